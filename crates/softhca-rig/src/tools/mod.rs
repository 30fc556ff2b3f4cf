//! Tools from outside this project, run with the library preloaded, one by one or as a pair.

pub mod pair;
pub mod programs;
