//! Walls inside the modules, as tables of numbers that may only fall, the rooms of folders, and their faces.
//!
//! An arrow leads from a file to another one that defines what its code names, by `use` or by a path; names that come through
//! `pub use` are followed (`arrows`). A `mod` line is no arrow, and methods are no names. Code under `cfg(test)` is left out, and
//! so are the bodies of `macro_rules!`.
//! It reads tokens, and not what `syn` makes of them: paths in the arguments of macros count too, and `syn` leaves those unread.

mod arrows;
mod body;
mod circles;
mod code;
mod compare;
mod faces;
mod functions;
mod limits;
mod modules;
mod planted;
mod rooms;
mod slices;
