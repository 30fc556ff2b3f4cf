//! A defect that the checker has found, as callers get it.

/// The kind of the defect of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Accesses of two threads, or of a thread that reads what a device wrote, that nothing orders.
    Unordered,
    /// An access of a device to bytes that a thread had touched and not fenced, with sufficient scope, before the doorbell.
    Untold,
    /// A weak load that finds bytes in the L1 that memory no longer holds.
    Stale,
    /// A non-coherent load of memory that changes while the kernel runs.
    NotConstant,
    /// An access of a kernel by the address that host-mapped memory has for the host.
    HostAddress,
}

/// One defect.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind of the defect.
    pub kind: Kind,
    /// Kernel, threads, addresses, source lines, and what is missing.
    pub text: String,
}
