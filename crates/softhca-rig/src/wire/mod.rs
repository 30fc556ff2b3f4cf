//! A driver for tests of the wire: an HCA with DevX QPs whose rings the test writes itself.

pub mod driver;

pub use driver::{Driver, Peer};
