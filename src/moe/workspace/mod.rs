//! A call with its own buffers, for callers whose tokens are on the host. Every method returns when its phase is done.

mod buffers;
mod encoded;
mod options;
mod received;
mod results;
#[expect(clippy::module_inception, reason = "the file of the type `Workspace`")]
mod workspace;

pub use encoded::{Encoded, EncodedRow};
pub use options::CombineOptions;
pub use results::{Combined, Statistics};
pub use workspace::Workspace;
