//! The capabilities of a device: QUERY_HCA_CAP, typed and checked.

use std::ops::RangeInclusive;

use mlx5_prm::cmd::{CmdIn, Opcode};
use mlx5_prm::hca_cap::{AtomicCaps, CapType, CmdHcaCap, HcaCap2, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::roce::QueryLagOut;

use crate::abi::{ATOMIC_64, ATOMIC_MASKED_32, ATOMIC_MASKED_64, ATOMIC_RESULT_BE};
use crate::verbs::device::command;
use crate::verbs::device::open::OpenDevice;
use crate::verbs::device::port::LinkLayer;
use crate::verbs::error::VerbsError;
use crate::verbs::limits::LOG_MIN_DEPTH;

/// Capabilities that the runtime uses. PRM "HCA Capabilities"; the names are the manual's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caps {
    /// log2 of the length of the longest send queue, in WQEBBs; 8 to 15.
    pub log_max_qp_sz: u8,
    /// log2 of the largest number of QPs.
    pub log_max_qp: u8,
    /// log2 of the bytes of the longest message; at most 31.
    pub log_max_msg: u8,
    /// log2 of the number of outstanding reads and atomics of a QP as requester; at most 7, the range of the QP context.
    pub log_max_ra_req_qp: u8,
    /// log2 of the number of outstanding reads and atomics of a QP as responder; at most 7.
    pub log_max_ra_res_qp: u8,
    /// True if remote atomics of 8 bytes work: compare-and-swap and fetch-and-add.
    pub atomics: bool,
    /// True if the masked atomics of 8 bytes work too.
    pub masked_atomics: bool,
    /// True if the masked atomics of 4 bytes work.
    pub masked_atomics_of_4: bool,
    /// True if results of 8 bytes come in the order of the wire, big-endian, instead of the host's order.
    pub atomic_results_be: bool,
    /// True if a send queue can do without a doorbell record and be rung by software.
    pub send_dbr_mode_no_dbr_ext: bool,
    /// log2 of the length of the longest send queue without a doorbell record, in WQEBBs.
    pub log_max_send_dbr_less_qp_sq: u8,
    /// log2 of the length of the longest completion queue, in entries.
    pub log_max_cq_sz: u8,
    /// Source ports that a RoCEv2 QP may use. `None` if the device chooses, and on InfiniBand.
    pub udp_source_ports: Option<RangeInclusive<u16>>,
    /// Number of ports of an active link aggregation group; 0 without a group.
    pub lag_ports: u8,
    /// How a packet gets its port of the group; `None` without a group.
    pub lag_mode: Option<LagMode>,
    /// True if a QP names its port of the group on the way to Ready To Receive.
    pub init2_lag_tx_port_affinity: bool,
    /// True if a QP may name the port again in Ready To Send.
    pub rts2rts_lag_tx_port_affinity: bool,
    /// True if QPs have options of enhanced connection establishment. The other end must know an option for it to be used.
    pub ece: bool,
    /// True if QPs can belong to a set of counters.
    pub counter_sets: bool,
    /// True if a QP may ask that payload is written in order. Otherwise the device always does so, or has no such setting.
    pub qp_data_in_order: bool,
    /// The order of data that the device's RC QPs guarantee.
    pub data_order: DataOrder,
    /// True if a QP can insist on data in order. This library's QPs then do, and `data_order` says so.
    pub dp_ordering_force: bool,
    /// Largest number of bytes of a send WQE.
    pub max_wqe_sz_sq: u16,
    /// log2 of the number of entries of the longest list of an indirect key.
    pub log_max_klm_list_size: u8,
    /// log2 of the largest number of bytes of a memory region; 0 if the device does not say.
    pub log_max_mrw_sz: u8,
}

/// The way in which a packet gets its port of a link aggregation group. PRM "LAG Context", `port_select_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LagMode {
    /// Each queue names its port.
    QueueAffinity,
    /// By a hash of the packet's addresses and ports.
    Hash,
    /// By the rules of one e-switch over all ports.
    Multiport,
    /// A mode that later firmware has.
    Other(u8),
}

impl LagMode {
    fn of(code: u32) -> Self {
        match code {
            QueryLagOut::QUEUE_AFFINITY => Self::QueueAffinity,
            QueryLagOut::FLOW_TABLE => Self::Hash,
            QueryLagOut::MULTIPORT => Self::Multiport,
            other => Self::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        }
    }
}

impl std::fmt::Display for LagMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::QueueAffinity => f.write_str("queue affinity"),
            Self::Hash => f.write_str("hash"),
            Self::Multiport => f.write_str("multiport e-switch"),
            Self::Other(code) => write!(f, "mode {code}"),
        }
    }
}

/// The time at which an RC QP guarantees that written data is in the peer's memory. PRM "QP Ordering Semantics".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DataOrder {
    /// Data arrives in the order of the requests (IBTA).
    InOrder,
    /// Reads and writes overtake each other, but nothing overtakes an atomic (OOO_RW).
    AtomicsOrdered,
    /// Data has arrived when its request has completed, and not before (OOO_ALL).
    FlushOnly,
}

impl DataOrder {
    /// Returns the order by `dp_ordering_ooo_rw_rc`, `dp_ordering_ooo_all_rc` and `dp_ordering_force`. If a device knows other orders than
    /// IBTA, and lets no QP insist on that one, the weakest of its orders counts.
    fn of(ooo_rw: bool, ooo_all: bool, force: bool) -> Self {
        match (ooo_rw, ooo_all) {
            _ if force => Self::InOrder,
            (_, true) => Self::FlushOnly,
            (true, false) => Self::AtomicsOrdered,
            (false, false) => Self::InOrder,
        }
    }
}

impl std::fmt::Display for DataOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InOrder => "in order",
            Self::AtomicsOrdered => "out of order, atomics after it",
            Self::FlushOnly => "out of order",
        })
    }
}

/// The largest values of fields of the QP context.
const LOG_SQ_LIMIT: u32 = 15;
const LOG_RA_LIMIT: u32 = 7;

impl Caps {
    /// Returns the largest number of bytes of a memory region. PRM "HCA Capabilities", `log_max_mrw_sz`. This is the `max_mr_size` of
    /// `ibv_query_device`, for which mlx5 drivers name no limit.
    #[must_use]
    pub fn max_mr_size(&self) -> u64 {
        match self.log_max_mrw_sz {
            0 => u64::MAX,
            log => 1u64.checked_shl(log.into()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the number of ports of the link aggregation group, of which each QP names one. 0 if no QP may name a port: the device has no
    /// group, or finds the port in another way ([`LagMode`]).
    #[must_use]
    pub fn affinity_ports(&self) -> u8 {
        match self.lag_mode {
            Some(LagMode::QueueAffinity) => self.lag_ports,
            _ => 0,
        }
    }

    /// Returns the port, from 1 on, of QP number `number`, if QPs take the ports in turn. 0: QPs name no port.
    pub(in crate::verbs) fn lag_port_in_turn(&self, number: u32) -> u8 {
        let turn = number.checked_rem(self.affinity_ports().into());
        turn.and_then(|turn| u8::try_from(1 + turn).ok())
            .unwrap_or(0)
    }

    /// Reads and checks the capabilities, for a port with this link layer.
    pub(in crate::verbs) fn query(
        device: &OpenDevice,
        link_layer: LinkLayer,
    ) -> Result<Self, VerbsError> {
        let general = query(device, CapType::GENERAL)?;
        let general = general.cmd_hca_cap();
        check_needed(device, general, link_layer)?;
        let udp_source_ports = match link_layer {
            LinkLayer::Ethernet => udp_source_ports(device)?,
            LinkLayer::InfiniBand => None,
        };
        let atomic = match general.atomic() {
            0 => AtomicCaps::default(),
            _ => *query(device, CapType::ATOMIC)?.atomic_caps(),
        };
        let operations = |bytes: u32, wanted| {
            atomic.atomic_size_qp() & bytes != 0 && atomic.atomic_operations() & wanted == wanted
        };
        let masked = AtomicCaps::OP_MASKED_CMP_SWAP | AtomicCaps::OP_MASKED_FETCH_ADD;
        let second = match general.hca_cap_2() {
            0 => HcaCap2::default(),
            _ => *query(device, CapType::GENERAL_2)?.hca_cap_2(),
        };
        let lag_mode = lag_mode(device, general)?;
        Ok(Self {
            log_max_qp_sz: narrow(general.log_max_qp_sz().min(LOG_SQ_LIMIT)),
            log_max_qp: narrow(general.log_max_qp()),
            log_max_msg: narrow(general.log_max_msg()),
            log_max_ra_req_qp: narrow(general.log_max_ra_req_qp().min(LOG_RA_LIMIT)),
            log_max_ra_res_qp: narrow(general.log_max_ra_res_qp().min(LOG_RA_LIMIT)),
            atomics: operations(8, AtomicCaps::OP_CMP_SWAP | AtomicCaps::OP_FETCH_ADD),
            masked_atomics: operations(8, masked),
            masked_atomics_of_4: operations(4, masked),
            atomic_results_be: atomic.atomic_req_8b_endianness_mode() == 0,
            send_dbr_mode_no_dbr_ext: second.send_dbr_mode_no_dbr_ext() != 0,
            log_max_send_dbr_less_qp_sq: narrow(second.log_max_send_dbr_less_qp_sq()),
            log_max_cq_sz: narrow(general.log_max_cq_sz()),
            udp_source_ports,
            lag_ports: match lag_mode {
                Some(_) => narrow(general.num_lag_ports()),
                None => 0,
            },
            lag_mode,
            init2_lag_tx_port_affinity: general.init2_lag_tx_port_affinity() != 0,
            rts2rts_lag_tx_port_affinity: general.rts2rts_lag_tx_port_affinity() != 0,
            ece: general.ece() != 0,
            counter_sets: general.max_qp_cnt() != 0,
            qp_data_in_order: general.qp_data_in_order() != 0,
            data_order: DataOrder::of(
                general.dp_ordering_ooo_rw_rc() != 0,
                general.dp_ordering_ooo_all_rc() != 0,
                second.dp_ordering_force() != 0,
            ),
            dp_ordering_force: second.dp_ordering_force() != 0,
            max_wqe_sz_sq: u16::try_from(general.max_wqe_sz_sq()).unwrap_or(u16::MAX),
            log_max_klm_list_size: narrow(general.log_max_klm_list_size()),
            log_max_mrw_sz: narrow(general.log_max_mrw_sz()),
        })
    }

    /// Returns the bits of atomics for kernels: `ATOMIC_64` to `ATOMIC_RESULT_BE`.
    #[must_use]
    pub fn atomic_bits(&self) -> u32 {
        let bits = [
            (self.atomics, ATOMIC_64),
            (self.masked_atomics_of_4, ATOMIC_MASKED_32),
            (self.masked_atomics, ATOMIC_MASKED_64),
            (self.atomic_results_be, ATOMIC_RESULT_BE),
        ];
        // rae and atomic_mode follow from the plain atomics. Without them the peer would refuse the masked atomics too.
        let any = if self.atomics { u32::MAX } else { 0 };
        bits.iter()
            .filter(|(has, _)| *has)
            .fold(0, |all, (_, bit)| all | bit)
            & any
    }
}

/// Refuses a device without a capability that every QP needs.
fn check_needed(
    device: &OpenDevice,
    general: &CmdHcaCap,
    link_layer: LinkLayer,
) -> Result<(), VerbsError> {
    let ethernet = u32::from(link_layer == LinkLayer::Ethernet);
    let needed = [
        ("rc", general.rc(), 1),
        ("cq_oi", general.cq_oi(), 1),
        ("port_type", general.port_type(), ethernet),
    ];
    let roce = (ethernet != 0).then(|| ("roce", general.roce(), 1));
    for (what, has, needed) in needed.into_iter().chain(roce) {
        if has != needed {
            return Err(device.lacks(what, has, needed));
        }
    }
    let log_max_qp_sz = general.log_max_qp_sz();
    if log_max_qp_sz < LOG_MIN_DEPTH.into() {
        let needed = format!("at least {LOG_MIN_DEPTH}");
        return Err(device.lacks("log_max_qp_sz", log_max_qp_sz, needed));
    }
    Ok(())
}

/// Returns the mode of the link aggregation group that the device's ports form now, if they form one.
fn lag_mode(device: &OpenDevice, general: &CmdHcaCap) -> Result<Option<LagMode>, VerbsError> {
    if general.lag_master() == 0 {
        return Ok(None);
    }
    let input = CmdIn::default().with_opcode(u32::from(Opcode::QUERY_LAG.0));
    let out: QueryLagOut = command::general(device, &input)?;
    let mode = LagMode::of(out.port_select_mode());
    Ok((out.lag_state() != 0).then_some(mode))
}

fn udp_source_ports(device: &OpenDevice) -> Result<Option<RangeInclusive<u16>>, VerbsError> {
    let caps = query(device, CapType::ROCE)?;
    let roce = caps.roce_caps();
    let port = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let range = port(roce.r_roce_min_src_udp_port())..=port(roce.r_roce_max_src_udp_port());
    Ok((roce.sw_r_roce_src_udp_port() != 0).then_some(range))
}

fn query(device: &OpenDevice, kind: CapType) -> Result<QueryHcaCapOut, VerbsError> {
    let input = QueryHcaCapIn::default()
        .with_opcode(u32::from(Opcode::QUERY_HCA_CAP.0))
        .with_op_mod(kind.current());
    command::general(device, &input)
}

/// Returns a capability of at most 8 bits.
fn narrow(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}

#[cfg(test)]
pub(in crate::verbs) mod tests {
    use super::*;

    /// Returns the capabilities of a small device.
    pub(crate) fn caps() -> Caps {
        Caps {
            log_max_qp_sz: 12,
            log_max_qp: 17,
            log_max_msg: 30,
            log_max_ra_req_qp: 4,
            log_max_ra_res_qp: 4,
            atomics: true,
            masked_atomics: true,
            masked_atomics_of_4: true,
            atomic_results_be: false,
            send_dbr_mode_no_dbr_ext: false,
            log_max_send_dbr_less_qp_sq: 0,
            log_max_cq_sz: 22,
            udp_source_ports: Some(0xc000..=0xffff),
            lag_ports: 0,
            lag_mode: None,
            init2_lag_tx_port_affinity: false,
            rts2rts_lag_tx_port_affinity: false,
            ece: false,
            counter_sets: false,
            qp_data_in_order: false,
            data_order: DataOrder::InOrder,
            dp_ordering_force: false,
            max_wqe_sz_sq: 1024,
            log_max_klm_list_size: 16,
            log_max_mrw_sz: 48,
        }
    }

    #[test]
    fn the_order_of_data_is_the_weakest_that_a_qp_cannot_refuse() {
        for (bits, want) in [
            ((false, false, false), DataOrder::InOrder),
            ((true, false, false), DataOrder::AtomicsOrdered),
            ((false, true, false), DataOrder::FlushOnly),
            ((true, true, false), DataOrder::FlushOnly),
            ((true, true, true), DataOrder::InOrder),
        ] {
            assert_eq!(DataOrder::of(bits.0, bits.1, bits.2), want, "{bits:?}");
        }
    }

    #[test]
    fn a_mode_of_a_group_is_one_of_the_manual_or_named_by_its_code() {
        let texts = [0, 1, 2, 7].map(|code| LagMode::of(code).to_string());
        let expected = ["queue affinity", "hash", "multiport e-switch", "mode 7"];
        assert_eq!(texts, expected);
        assert_eq!(LagMode::of(1000), LagMode::Other(255));
    }

    #[test]
    fn kernels_know_of_atomics_by_size() {
        assert_eq!(
            caps().atomic_bits(),
            ATOMIC_64 | ATOMIC_MASKED_64 | ATOMIC_MASKED_32
        );
        let narrow = Caps {
            masked_atomics: false,
            atomic_results_be: true,
            ..caps()
        };
        assert_eq!(
            narrow.atomic_bits(),
            ATOMIC_64 | ATOMIC_MASKED_32 | ATOMIC_RESULT_BE
        );
        let none = Caps {
            atomics: false,
            ..caps()
        };
        assert_eq!(none.atomic_bits(), 0);
    }
}
