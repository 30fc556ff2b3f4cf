//! How callers name what a device has made for them.

use crate::device::memory::keys::Access;

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrKeys {
    /// Local key; also the number by which the region is ended.
    pub lkey: u32,
    /// Remote key.
    pub rkey: u32,
}

/// A UAR page that a context has allocated: its number and its place in the UAR space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UarPage {
    /// Page id: what QP and CQ contexts name as `uar_page`.
    pub page_id: u32,
    /// Where the page lies in [`Context::uar_fd`](crate::device::Context::uar_fd), in bytes: the offset for `mmap`.
    pub offset: u64,
    /// Bytes, 4096.
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

/// What changes of a region.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Domain.
    pub pdn: Option<u32>,
    /// Rights.
    pub access: Option<Access>,
}
