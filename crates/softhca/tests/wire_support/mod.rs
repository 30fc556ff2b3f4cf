//! A driver for tests of the wire: an HCA with DevX QPs whose rings the test writes itself, and processes to put them in.

pub(crate) mod driver;
mod process;

pub(crate) use driver::{Driver, Peer};
pub(crate) use process::{Child, child_channel};
