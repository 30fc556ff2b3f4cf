//! What the two ends of an RC connection tell each other and settle, whichever library makes their QPs.

use crate::config::EngineConfig;
use crate::fabric::{PortRecord, patience};
use crate::verbs::{OwnPort, PathAttr, SendAttr};

/// What one end tells the other of its QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RcOffer {
    /// The number of the QP.
    pub(crate) qpn: u32,
    /// The number of the first packet that the QP sends.
    pub(crate) psn: u32,
    /// The options of enhanced connection establishment that the QP has.
    pub(crate) ece: u32,
}

/// The settings of the QP of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RcTerms {
    /// The path to the peer's port. QP and packet numbers are set when the peer has offered its QP.
    pub(crate) path: PathAttr,
    pub(crate) send: SendAttr,
    /// The most bytes of a WRITE that its WQE carries inline.
    pub(crate) inline: u32,
}

impl RcTerms {
    /// Returns the settings of a QP of `port` between these two ports, which fit each other.
    pub(crate) fn new(
        port: &OwnPort,
        own: &PortRecord,
        theirs: &PortRecord,
        config: &EngineConfig,
    ) -> Self {
        let class = port.traffic_class(config.path.traffic_class).value;
        let soft = port.info().is_soft();
        let reads = own.reads_with(theirs);
        Self {
            path: own.path(theirs, &config.path, class, 0),
            send: patience(&config.path, soft).with_log_peer_reads(Some(reads)),
            inline: config.inline,
        }
    }
}
