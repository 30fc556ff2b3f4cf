//! `fi_info`: what a program is told of devices, and what it hands back.

mod build;
mod copies;
mod hints;
mod memory;

pub(crate) use build::{Place, RIGHTS, build};
pub(crate) use copies::{duplicate, empty, free_all, free_nic};
pub(crate) use hints::fit;
