//! The workers: threads that post slices and take completions, each with lanes of its own.
//!
//! # Rooms
//!
//! ```text
//! pool.rs       the threads of all workers
//! worker.rs     `Worker`: its turns and its sleep
//! end.rs post.rs reap.rs alarms.rs   how a worker ends; slices go out; completions come in; deadlines and graces
//! inbox.rs links.rs   what others give a worker; its links with their lanes and transfers
//! held.rs       a lane of a worker
//! ```

mod alarms;
mod end;
mod held;
mod inbox;
mod links;
mod pool;
mod post;
mod reap;
#[expect(clippy::module_inception, reason = "the file of the type `Worker`")]
mod worker;

pub(super) use held::Held;
pub(super) use inbox::Pace;
pub(super) use pool::{Pool, Seat, Workers};
