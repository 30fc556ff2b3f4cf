//! The topology of machines that `tests/data/machines` describes: judged by hwloc, chosen from, and spoiled.

mod choice;
mod facts;
mod hwloc;
mod mutants;
