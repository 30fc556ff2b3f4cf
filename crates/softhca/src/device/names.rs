//! The numbers by which callers name the objects that a device has made for them.

use crate::device::memory::Access;

/// The keys of a registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Local key. It is also the number by which the region is ended.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// A UAR page that a context has allocated: its number and its place in the UAR space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarPage {
    /// Page id, which QP and CQ contexts name as `uar_page`.
    pub page_id: u32,
    /// Offset of the page in [`Context::uar_fd`](crate::device::Context::uar_fd), in bytes, for `mmap`.
    pub offset: u64,
    /// Length in bytes, 4096.
    pub bytes: u64,
}

/// An object made by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DevxObject {
    /// Protection domain.
    Pd(u32),
    /// Completion queue.
    Cq(u32),
    /// Queue pair.
    Qp(u32),
    /// Memory key, by index (the key without its low byte).
    Mkey(u32),
    /// Receive memory pool: the shared receive queue of QPs.
    Rmp(u32),
    /// Shared receive queue of an XRC domain.
    XrcSrq(u32),
    /// XRC domain.
    Xrcd(u32),
}

/// A change of a region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// The new protection domain; None leaves the old one.
    pub pdn: Option<u32>,
    /// The new rights; None leaves the old ones.
    pub access: Option<Access>,
}
