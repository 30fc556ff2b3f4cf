//! The modes of the QPs of a team.

use std::ffi::OsString;

use crate::config::choices::{
    CQ, CqKind, DOORBELL, Doorbell, MEMORY, MOE_ORDER, Memory, QUEUES, Queues, SHARING, Sharing,
    SignalOrder,
};
use crate::config::error::ConfigError;
use crate::config::setters::setters;
use crate::config::source::Source;

/// The modes of the QPs of a team.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpModes {
    /// Which threads post on a QP. `WARPVERBS_SHARING`: `shared`, `exclusive` or `cta`. Default `shared`, which the MoE kernels need.
    pub sharing: Sharing,
    /// How the HCA hears of work. `WARPVERBS_DOORBELL`: `record`, `no-record`, `mailbox` (a thread of the host rings), or `auto`, which is
    /// `None`. `auto` takes `no-record` if the device can do it, otherwise `record`, and `mailbox` if the GPU does not map the registers.
    /// Default `auto`.
    pub doorbell: Option<Doorbell>,
    /// In which memory rings and CQEs lie. `WARPVERBS_QUEUES`: `device` or `host`, or `auto`, which is `None`. `auto` takes host memory if
    /// the HCA does not reach device memory. Default `auto`.
    pub queues: Option<Queues>,
    /// In which memory windows lie. `WARPVERBS_MEMORY`: `device` or `host`, or `auto`, which is `None`. `auto` takes host memory if the HCA
    /// does not reach device memory. Default `auto`.
    pub memory: Option<Memory>,
    /// How completions are written. `WARPVERBS_CQ`: `collapsed` (one entry) or `wide` (the first error is never overwritten). Default
    /// `collapsed`.
    pub cq: CqKind,
    /// log2 of the WQEs of the receive queue, 4 to 15. Writes with immediate consume these WQEs. `WARPVERBS_LOG_RECV_DEPTH`, where 0 means
    /// no receive queue. Default none.
    pub log_recv_depth: Option<u8>,
    /// True if kernels reach some ranks by load and store, without the HCA. These are ranks of the same process and device, or of the same
    /// machine and user if their memory can be opened. The peer table marks them. Kernels that open a path, those of MoE too, follow the
    /// mark; kernels that post to QPs do not look at it. Both ranks must set it. Such a rank is replaced only when its process has ended.
    /// `WARPVERBS_DIRECT`: 1 or 0. Default 0.
    pub direct: bool,
    /// How MoE signals are kept after data. `WARPVERBS_MOE_ORDER`: `inline`, `swap`, `flush`, or `auto`, which is `None`. `auto` takes the
    /// first of these that the devices allow. Default `auto`.
    pub moe_order: Option<SignalOrder>,
    /// True if the NIC is forced to relax its PCI writes (`PCI_WR_ORDERING` is `force_relax` in `mlxconfig`). No program can ask the NIC
    /// for that. `WARPVERBS_PCI_RELAXED`: 1 or 0. Signals are then not inline. Default 0.
    pub pci_relaxed: bool,
}

setters! {
    const QpModes {
        with_sharing(sharing: Sharing),
        with_doorbell(doorbell: Option<Doorbell>),
        with_queues(queues: Option<Queues>),
        with_memory(memory: Option<Memory>),
        with_cq(cq: CqKind),
        with_log_recv_depth(log_recv_depth: Option<u8>),
        with_direct(direct: bool),
        with_moe_order(moe_order: Option<SignalOrder>),
        with_pci_relaxed(pci_relaxed: bool),
    }
}

impl QpModes {
    /// Returns the modes of this process, from its environment.
    ///
    /// # Errors
    /// [`ConfigError`] if a variable has none of its words, or is no number in its range.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Returns the modes from any source of variables, as `from_env` does from the environment.
    ///
    /// # Errors
    /// As [`QpModes::from_env`].
    pub fn from_variables<T: Into<OsString>>(
        variable: impl Fn(&str) -> Option<T>,
    ) -> Result<Self, ConfigError> {
        Source::reading(variable, Self::read)
    }

    pub(super) fn read(source: &Source<'_>) -> Result<Self, ConfigError> {
        Ok(Self {
            sharing: source.word("WARPVERBS_SHARING", &SHARING)?,
            doorbell: source.word("WARPVERBS_DOORBELL", &DOORBELL)?,
            queues: source.word("WARPVERBS_QUEUES", &QUEUES)?,
            memory: source.word("WARPVERBS_MEMORY", &MEMORY)?,
            cq: source.word("WARPVERBS_CQ", &CQ)?,
            log_recv_depth: source.optional("WARPVERBS_LOG_RECV_DEPTH")?,
            direct: source.switch("WARPVERBS_DIRECT")?,
            moe_order: source.word("WARPVERBS_MOE_ORDER", &MOE_ORDER)?,
            pci_relaxed: source.switch("WARPVERBS_PCI_RELAXED")?,
        })
    }
}
