//! Text that says what a device has and lacks.
//!
//! The numbers come from `QUERY_HCA_CAP`, so the text agrees with the device.

use crate::device::command::general_capabilities;
use crate::device::memory::pending_writes::DataOrder;
use crate::link::Link;
use std::fmt::Write;

/// What the device lacks. A call that needs one of these is refused as by a kernel without it (`EOPNOTSUPP`, `EPROTONOSUPPORT`, or the
/// device's own refusal of a command).
const LACKS: &[&str] = &[
    "DC, raw packets, flow steering",
    "on-demand paging",
    "device memory, tag matching",
    "signature and encryption offloads",
    "multicast",
];

/// Returns the description, as lines of text.
pub(crate) fn described() -> String {
    let caps = general_capabilities(Link::Ethernet, DataOrder::default());
    let yes_no = |bit: u32| if bit == 0 { "no" } else { "yes" };
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<34}{value}");
    };
    line("queue pairs", &(1u64 << caps.log_max_qp()));
    line("WQEBBs of a send queue", &(1u64 << caps.log_max_qp_sz()));
    line("bytes of a send WQE", &caps.max_wqe_sz_sq());
    line("completion queues", &(1u64 << caps.log_max_cq()));
    line(
        "entries of a completion queue",
        &(1u64 << caps.log_max_cq_sz()),
    );
    line("memory keys", &(1u64 << caps.log_max_mkey()));
    line("protection domains", &(1u64 << caps.log_max_pd()));
    line("UMEMs", &(1u64 << caps.log_max_umem()));
    line("bytes of a message", &(1u64 << caps.log_max_msg()));
    line(
        "outstanding reads and atomics",
        &(1u64 << caps.log_max_ra_req_qp()),
    );
    line("RC", &yes_no(caps.rc()));
    line("UC", &yes_no(caps.uc()));
    line("UD", &yes_no(caps.ud()));
    line("XRC", &yes_no(caps.xrc()));
    line("atomics", &yes_no(caps.atomic()));
    line("shared receive queues", &(1u64 << caps.log_max_srq()));
    line("CQ overrun ignore", &yes_no(caps.cq_oi()));
    line("RoCE", &yes_no(caps.roce()));
    line("InfiniBand link layer", &"yes (SOFTHCA_LINK=ib)");
    for name in LACKS {
        line(name, &"no");
    }
    text
}
