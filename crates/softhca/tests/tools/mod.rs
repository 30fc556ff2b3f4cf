//! Tools that nobody here wrote, run with the library preloaded, one by one or as a pair.

#![allow(dead_code, reason = "each program that starts them uses its part")]

pub(crate) mod pair;
pub(crate) mod programs;
