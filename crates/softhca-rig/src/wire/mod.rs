//! A driver for tests of the wire: an HCA with DevX QPs whose rings the test writes itself, and processes to put them in.

pub mod driver;
mod process;

pub use driver::{Driver, Peer};
pub use process::{Child, child_channel};
