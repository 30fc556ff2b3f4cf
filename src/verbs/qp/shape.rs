//! The shape of a QP: which threads post, how the QP is rung, where its queues lie and how they complete. The mode bits of [`QpContext`]
//! tell kernels the shape.

use crate::abi::{
    MAX_DEPTH, MODE_CTA, MODE_EXCLUSIVE, MODE_HOST_QUEUES, MODE_MAILBOX, MODE_NO_RECORD,
    MODE_WIDE_CQ, QpContext, WQEBB_BYTES,
};
use crate::config::setters;
pub use crate::config::{CqKind, Doorbell, Queues, Sharing};
use crate::verbs::device::caps::{Caps, LagMode};
use crate::verbs::error::{DEPTH_WITHOUT_RECORD, VerbsError};
use crate::verbs::limits::{
    CQE_BYTES, LINE_BYTES, LOG_MIN_DEPTH, RECORDS_BYTES, RECV_WQE_BYTES, in_range,
};

/// The log2 of the deepest queue with a CQE for each WQE. The 16-bit counter shows a poller that a CQE is out of reach only while it spans
/// four rings. With deeper queues the largest wide configuration of the posting model livelocks.
const LOG_MAX_WIDE_DEPTH: u8 = 14;

#[expect(clippy::cast_possible_truncation, reason = "at most 31")]
const LOG_MAX_DEPTH: u8 = MAX_DEPTH.ilog2() as u8;
/// The log2 of the fewest receive WQEs. With so many, the send queue after them begins on a line of its own.
const LOG_MIN_RECV_DEPTH: u8 = 4;
/// The log2 of the most receive WQEs: half the range of the receive counter.
const LOG_MAX_RECV_DEPTH: u8 = 15;

impl Doorbell {
    /// Returns the cheapest way that the device has and that needs no host thread.
    #[must_use]
    pub fn by_capability(caps: &Caps) -> Self {
        if caps.send_dbr_mode_no_dbr_ext {
            Self::NoRecord
        } else {
            Self::Record
        }
    }
}

/// The shape of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpConfig {
    /// log2 of the send queue's length in WQEBBs: 8 to 15 (`abi::MIN_DEPTH` to `abi::MAX_DEPTH`), and at most the device's limit. Default
    /// 10.
    pub log_depth: u8,
    /// The threads that post. Default any thread.
    pub sharing: Sharing,
    /// How the QP is rung. Default by record and register.
    pub doorbell: Doorbell,
    /// The memory in which the queues lie. Default device memory.
    pub queues: Queues,
    /// How sends complete. Default one collapsed entry.
    pub cq: CqKind,
    /// log2 of the length of the receive queue, which the peer's writes with immediate consume, 4 to 15. Default none.
    pub log_recv_depth: Option<u8>,
    /// True to share one doorbell register with all QPs of the context that ask for it; the software HCA refuses. Default false.
    pub share_doorbell_register: bool,
    /// True to ask for payload in order, if the device has that setting. Default true.
    pub data_in_order: bool,
    /// True to count packets in the context's own counter set, if the device has sets. Otherwise the device's own set counts them. Default
    /// true.
    pub own_counters: bool,
    /// Port of a link aggregation group by which packets leave, from 1. With 0 the QPs take the group's ports in turn. Only 0 is allowed
    /// without a group, and for a group whose ports are found by a hash. Default 0.
    pub lag_port: u8,
    /// Number of the QP among the QPs to a peer on this device, by which ports are taken in turn. Default none: the QP's number counts.
    pub place: Option<u32>,
    /// Partition key, by value. Default the port's first key.
    pub pkey: Option<u16>,
}

setters! {
    const QpConfig {
        with_log_depth(log_depth: u8),
        with_sharing(sharing: Sharing),
        with_doorbell(doorbell: Doorbell),
        with_queues(queues: Queues),
        with_cq(cq: CqKind),
        with_log_recv_depth(log_recv_depth: Option<u8>),
        with_share_doorbell_register(share_doorbell_register: bool),
        with_data_in_order(data_in_order: bool),
        with_own_counters(own_counters: bool),
        with_lag_port(lag_port: u8),
        with_place(place: Option<u32>),
        with_pkey(pkey: Option<u16>),
    }
}

impl Default for QpConfig {
    fn default() -> Self {
        Self {
            log_depth: 10,
            sharing: Sharing::default(),
            doorbell: Doorbell::default(),
            queues: Queues::default(),
            cq: CqKind::default(),
            log_recv_depth: None,
            share_doorbell_register: false,
            data_in_order: true,
            own_counters: true,
            lag_port: 0,
            place: None,
            pkey: None,
        }
    }
}

impl QpConfig {
    /// Returns the ring length in WQEBBs.
    #[must_use]
    pub fn depth(&self) -> u32 {
        1 << self.log_depth
    }

    /// Returns the number of receive WQEs; 0 without a receive queue.
    #[must_use]
    pub fn recv_depth(&self) -> u32 {
        self.log_recv_depth.map_or(0, |log| 1 << log)
    }

    /// Returns the bytes of control heap that a QP of this shape takes, alignment not counted: context and flags, and with
    /// [`Queues::Device`] the queues.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        let own = size_of::<QpContext>() as u64 + u64::from(self.depth()) * 8;
        match self.queues {
            Queues::Device => own + self.queue_bytes(),
            Queues::Host => own,
        }
    }

    /// Returns the bytes of the heap in host memory that a QP of this shape takes, alignment not counted; 0 with [`Queues::Device`].
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        match self.queues {
            Queues::Device => 0,
            // Includes the CQE's line and the records, which lie in the context with device queues.
            Queues::Host => self.queue_bytes() + RECORDS_BYTES,
        }
    }

    /// Returns the bytes of the work queues and of completion queues that have blocks of their own.
    fn queue_bytes(&self) -> u64 {
        let (depth, recv_depth) = (u64::from(self.depth()), u64::from(self.recv_depth()));
        let wide = match self.cq {
            CqKind::Collapsed => 0,
            CqKind::Wide => depth * CQE_BYTES,
        };
        let receive = match recv_depth {
            0 => 0,
            _ => recv_depth * (RECV_WQE_BYTES + CQE_BYTES) + LINE_BYTES,
        };
        depth * u64::from(WQEBB_BYTES) + wide + receive
    }

    /// Returns the bits of [`QpContext::mode`].
    #[must_use]
    pub fn mode(&self) -> u32 {
        let sharing = match self.sharing {
            Sharing::Shared => 0,
            Sharing::Exclusive => MODE_EXCLUSIVE,
            Sharing::Cta => MODE_CTA,
        };
        let doorbell = match self.doorbell {
            Doorbell::Record => 0,
            Doorbell::NoRecord => MODE_NO_RECORD,
            Doorbell::Mailbox => MODE_MAILBOX,
        };
        let queues = match self.queues {
            Queues::Device => 0,
            Queues::Host => MODE_HOST_QUEUES,
        };
        let cq = match self.cq {
            CqKind::Collapsed => 0,
            CqKind::Wide => MODE_WIDE_CQ,
        };
        sharing | doorbell | queues | cq
    }

    /// Refuses a shape that `device` does not have.
    pub(in crate::verbs) fn check(&self, device: &str, caps: &Caps) -> Result<(), VerbsError> {
        let limit = caps.log_max_qp_sz.min(LOG_MAX_DEPTH);
        in_range("log_depth", self.log_depth, LOG_MIN_DEPTH, limit)?;
        self.check_lag_port(device, caps)?;
        if self.cq == CqKind::Wide {
            let limit = limit.min(caps.log_max_cq_sz).min(LOG_MAX_WIDE_DEPTH);
            in_range(
                "log_depth with a wide CQ",
                self.log_depth,
                LOG_MIN_DEPTH,
                limit,
            )?;
        }
        if let Some(log) = self.log_recv_depth {
            let limit = caps
                .log_max_qp_sz
                .min(caps.log_max_cq_sz)
                .min(LOG_MAX_RECV_DEPTH);
            in_range("log_recv_depth", log, LOG_MIN_RECV_DEPTH, limit)?;
        }
        if self.doorbell == Doorbell::NoRecord {
            self.check_no_record(device, caps)?;
        }
        Ok(())
    }

    /// Returns the port of a link aggregation group by which packets of the QP with this number leave, as far as that is known. 0: the QP
    /// names no port.
    pub(in crate::verbs) fn lag_port_of(&self, caps: &Caps, qpn: Option<u32>) -> u8 {
        match (self.lag_port, self.place.or(qpn)) {
            (0, Some(turn)) => caps.lag_port_in_turn(turn),
            (named, _) => named,
        }
    }

    fn check_lag_port(&self, device: &str, caps: &Caps) -> Result<(), VerbsError> {
        match caps.lag_mode {
            Some(mode) if mode != LagMode::QueueAffinity && self.lag_port != 0 => {
                Err(VerbsError::Capability {
                    device: device.to_owned(),
                    what: "mode of the bond",
                    has: mode.to_string(),
                    needed: format!(
                        "{} for a QP that names its port (lag_port {})",
                        LagMode::QueueAffinity,
                        self.lag_port
                    ),
                })
            }
            _ => in_range("lag_port", self.lag_port, 0, caps.affinity_ports()),
        }
    }

    fn check_no_record(&self, device: &str, caps: &Caps) -> Result<(), VerbsError> {
        if !caps.send_dbr_mode_no_dbr_ext {
            return Err(VerbsError::Capability {
                device: device.to_owned(),
                what: "send_dbr_mode_no_dbr_ext",
                has: "0".to_owned(),
                needed: "1 for a send queue without a doorbell record (Doorbell::NoRecord)"
                    .to_owned(),
            });
        }
        let limit = caps.log_max_send_dbr_less_qp_sq;
        in_range(DEPTH_WITHOUT_RECORD, self.log_depth, LOG_MIN_DEPTH, limit)?;
        if self.share_doorbell_register {
            return Err(VerbsError::argument(
                "share_doorbell_register without a doorbell record",
                true,
                "false: a doorbell that is overwritten is lost",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::device::caps::tests::caps;

    fn refused(config: QpConfig) -> String {
        config.check("mlx5_7", &caps()).unwrap_err().to_string()
    }

    #[test]
    fn a_shape_beyond_the_device_names_value_and_limit() {
        let good = QpConfig::default();
        good.check("mlx5_7", &caps()).unwrap();
        let deep = QpConfig {
            log_depth: 13,
            ..good
        };
        assert_eq!(refused(deep), "log_depth is 13; it must be 8 to 12");
        let flat = QpConfig {
            log_depth: 7,
            ..good
        };
        assert_eq!(refused(flat), "log_depth is 7; it must be 8 to 12");
        for (log, reason) in [
            (3, "log_recv_depth is 3; it must be 4 to 12"),
            (13, "log_recv_depth is 13; it must be 4 to 12"),
        ] {
            let config = QpConfig {
                log_recv_depth: Some(log),
                ..good
            };
            assert_eq!(refused(config), reason);
        }
    }

    #[test]
    fn a_wide_queue_longer_than_the_devices_longest_is_refused() {
        let config = QpConfig {
            cq: CqKind::Wide,
            ..QpConfig::default()
        };
        config.check("mlx5_7", &caps()).unwrap();
        let short = Caps {
            log_max_cq_sz: 9,
            ..caps()
        };
        let error = config.check("mlx5_7", &short).unwrap_err().to_string();
        assert_eq!(error, "log_depth with a wide CQ is 10; it must be 8 to 9");
        let deep = QpConfig {
            log_depth: 15,
            ..config
        };
        let large = Caps {
            log_max_cq_sz: 22,
            log_max_qp_sz: 15,
            ..caps()
        };
        let error = deep.check("mlx5_7", &large).unwrap_err().to_string();
        assert_eq!(error, "log_depth with a wide CQ is 15; it must be 8 to 14");
    }

    #[test]
    fn a_queue_without_a_record_is_refused_if_the_hca_lacks_the_capability() {
        let config = QpConfig {
            doorbell: Doorbell::NoRecord,
            ..QpConfig::default()
        };
        let error = config.check("mlx5_7", &caps()).unwrap_err();
        assert!(matches!(error, VerbsError::Capability { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.starts_with("mlx5_7: send_dbr_mode_no_dbr_ext is 0, needed: 1"),
            "{text}"
        );
        let can = Caps {
            send_dbr_mode_no_dbr_ext: true,
            log_max_send_dbr_less_qp_sq: 9,
            ..caps()
        };
        let error = config.check("mlx5_7", &can).unwrap_err();
        assert!(error.is_of_no_record());
        assert_eq!(
            error.to_string(),
            "log_depth without a doorbell record is 10; it must be 8 to 9"
        );
        let shared = QpConfig {
            log_depth: 9,
            share_doorbell_register: true,
            ..config
        };
        let error = shared.check("mlx5_7", &can).unwrap_err();
        assert!(!error.is_of_no_record());
        assert!(error.to_string().contains("overwritten"), "{error}");
        assert_eq!(Doorbell::by_capability(&caps()), Doorbell::Record);
        assert_eq!(Doorbell::by_capability(&can), Doorbell::NoRecord);
    }

    #[test]
    fn kernels_learn_each_mode_by_a_bit_of_its_own() {
        let config = QpConfig {
            sharing: Sharing::Cta,
            doorbell: Doorbell::Mailbox,
            queues: Queues::Host,
            cq: CqKind::Wide,
            ..QpConfig::default()
        };
        let all = MODE_CTA | MODE_MAILBOX | MODE_HOST_QUEUES | MODE_WIDE_CQ;
        assert_eq!((QpConfig::default().mode(), config.mode()), (0, all));
        let lone = QpConfig {
            sharing: Sharing::Exclusive,
            doorbell: Doorbell::NoRecord,
            ..QpConfig::default()
        };
        assert_eq!(lone.mode(), MODE_EXCLUSIVE | MODE_NO_RECORD);
    }
}
