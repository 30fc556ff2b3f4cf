//! Rules that are broken on purpose.

/// A rule that is broken, and the property that must show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// E3
    DeviceLoadsLimitFirst,
    /// E3
    FirstIsThePromise,
    /// E3
    StartedReadBeforeClose,
    /// E2
    NoFence,
    /// E2
    CommitByMajority,
    /// E3
    OpenBeforeView,
    /// L
    NotOpenedToFirst,
    /// E2
    GoodbyeForEver,
    /// T
    LeaverFenced,
    /// T
    LeaverForgotten,
    /// T
    LeavesAtOnce,
}
