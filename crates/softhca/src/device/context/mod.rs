//! An opened device, and the calls by which its objects come and go.

mod calls;
mod handle;
mod refuse;
mod regions;
mod uars;
mod umems;
mod windows;
mod xrcds;

pub use handle::Context;
