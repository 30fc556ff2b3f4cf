//! The options of `wv sim`, and those with which commands run on software HCAs.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::number;

/// Run COMMAND with software HCAs in place of real ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each process of COMMAND that looks for RDMA devices finds HCAs of its own, mlx5_0 and on, reachable by RoCEv2 over
UDP from the others. Its exit status, or the signal that ended it, is that of wv. With --check it is 123 if the checker has
findings. If COMMAND cannot be run the status is 127 (not found), 126 (refused) or 125 (wv itself failed, or findings are lost).")]
pub struct SimArgs {
    /// HCAs per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::within(1_u32..=64))]
    pub(super) devices: u32,

    /// IPv4 address of mlx5_0, the next devices take those above it [default: free ones of 127.0.0.0/8]
    #[arg(long, value_name = "A.B.C.D")]
    pub(super) ip: Option<Ipv4Addr>,

    /// Ports of each device, 1 or 2, each with an address of its own [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) ports: Option<String>,

    /// Each device has an address of this /96 in addition, with its IPv4 address in the last bits, as GID 4. With the carrier
    /// udp this machine must have it: ip -6 route add local fd00:5::/96 dev lo
    #[arg(long, value_name = "SUBNET", verbatim_doc_comment)]
    pub(super) ipv6: Option<String>,

    /// Faults to inject: drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,delay=50us..2ms@5%,partition=A.B.C.D,
    /// cmd=CREATE_QP#2:status=0x5,enomem=CREATE_CQ#1,cqe=wqe#100:syndrome=0x15,cqe=drop#50,cqe=delay#50:10ms,
    /// port-down@2s,port-up@3s,port-down=2@2s,freeze@1s+200ms,fatal@5s. Add seed=N for other chances
    #[arg(long, value_name = "SPEC", verbatim_doc_comment)]
    pub(super) fault: Option<String>,

    /// Card that the devices look like: cx5, cx6, cx6dx, cx7, bf3, cx7-lag or cx7-lag-hash [default: cx7]. A cx5 has no masked
    /// atomics, one read at once and no doorbells without a record. The last two aggregate two ports: each QP of cx7-lag names its port, a
    /// hash chooses it for cx7-lag-hash
    #[arg(long, value_name = "CARD")]
    pub(super) profile: Option<String>,

    /// Link layer: eth (RoCE v2), or ib, where an address A.B.C.D has the LID C.D and reaches LIDs of the same A.B
    /// [default: eth]
    #[arg(long, value_name = "LINK", verbatim_doc_comment)]
    pub(super) link: Option<String>,

    /// LMC of the port, with the link layer ib: it has 2^LMC LIDs, and the device an address for each, 0 to 7 [default: 0]
    #[arg(long, value_name = "LMC")]
    pub(super) lmc: Option<String>,

    /// Partition keys of the port, with the link layer ib: 0xffff,0x8001 [default: 0xffff]
    #[arg(long, value_name = "LIST")]
    pub(super) pkeys: Option<String>,

    /// Checks that cost time, in addition to the others: wqe, overlap or all; quiet prints no finding. A run that ends with findings
    /// has the status 123
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub(super) check: Option<String>,

    /// With --check: the status is that of COMMAND, whatever was found
    #[arg(long, requires = "check")]
    pub(super) keep_status: bool,

    /// Write what crosses the wire to FILE, as pcapng; further devices and processes take FILE.2 and on
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,

    /// Carrier of packets: udp, frames:ADDRESS:PORT,ADDRESS:PORT or packet:INTERFACE [default: udp]
    #[arg(long, value_name = "CARRIER")]
    pub(super) carrier: Option<String>,

    /// The executor of WQEs, for commands of `wv` itself
    #[arg(skip)]
    pub(super) execution: Option<&'static str>,

    /// Print what a device has and lacks, and run nothing
    #[arg(long)]
    pub(super) list_capabilities: bool,

    /// The program and its arguments
    #[arg(
        required_unless_present = "list_capabilities",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(super) command: Vec<OsString>,
}

impl SimArgs {
    /// Returns the arguments that run `command` with `devices` HCAs and default settings.
    #[must_use]
    pub fn plain(devices: u32, command: Vec<OsString>) -> Self {
        Self {
            devices,
            ip: None,
            ports: None,
            ipv6: None,
            fault: None,
            profile: None,
            link: None,
            lmc: None,
            pkeys: None,
            check: None,
            keep_status: false,
            pcap: None,
            carrier: None,
            execution: None,
            list_capabilities: false,
            command,
        }
    }

    /// As `plain`, but an executor that `command` attaches runs the WQEs of the HCAs.
    #[must_use]
    pub fn external(devices: u32, command: Vec<OsString>) -> Self {
        Self {
            execution: Some("external"),
            ..Self::plain(devices, command)
        }
    }
}
