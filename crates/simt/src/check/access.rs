//! What threads do to memory, as compiled code reports it: accesses and fences.

/// The scope of a fence or an atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Gpu,
    System,
}

impl Scope {
    pub(super) const ALL: [Self; 3] = [Self::Block, Self::Gpu, Self::System];

    pub(crate) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Block,
            1 => Self::Gpu,
            _ => Self::System,
        }
    }

    /// Returns the name of the scope in PTX.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Block => ".cta",
            Self::Gpu => ".gpu",
            Self::System => ".sys",
        }
    }
}

/// One access of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// The slot of the thread.
    pub(crate) slot: u32,
    pub(crate) addr: u64,
    pub(crate) bytes: u64,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// The scope of an atomic. None for a plain access.
    pub(crate) strong: Option<Scope>,
    /// True for a non-coherent load.
    pub(crate) constant: bool,
    /// The return address of the call that reports the access.
    pub(crate) pc: u64,
}

/// A fence, by itself or as part of an atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    pub(crate) acquire: bool,
    pub(crate) release: bool,
    pub(crate) scope: Scope,
}
