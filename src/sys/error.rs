//! What a process finds missing in libibverbs and libmlx5.

/// libmlx5 or libibverbs could not be opened, or lacks a function.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "no usable {library} (Debian, Ubuntu: apt-get install libibverbs1 ibverbs-providers); tried {}",
    .tried.join("; ")
)]
#[non_exhaustive]
pub struct LoadError {
    /// The library that was to be loaded.
    pub library: &'static str,
    /// Each file that was tried, with the loader's reason.
    pub tried: Vec<String>,
}

/// A function that older releases of rdma-core lack, and without which the runtime works in another way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the installed libmlx5 or libibverbs has no {function}, which came with rdma-core {release}: install that or a later one"
)]
#[non_exhaustive]
pub struct MissingFunction {
    /// The function that the installed library lacks.
    pub function: &'static str,
    /// The release of rdma-core that has it first.
    pub release: u32,
}
