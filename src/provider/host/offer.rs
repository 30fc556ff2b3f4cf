//! What an engine tells others of its NICs and of the queues of a connection. Both ends have agreed on a wire before, and each wire has its
//! own forms.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::PathConfig;
use crate::fabric::{PortRecord, Unfit};
use crate::provider::ofi::{OfiError, OfiOffer, OfiPort};
use crate::provider::rc::RcOffer;

/// The wire of an engine that names none.
pub(crate) const RC: &str = "rc";

/// What an engine tells of one of its NICs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum HostPort {
    /// A port whose QPs are of type RC.
    Rc(PortRecord),
    /// A domain of libfabric.
    Ofi(OfiPort),
}

/// What one end tells the other of the queue of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum HostOffer {
    /// A QP of type RC.
    Rc(RcOffer),
    /// An endpoint of libfabric.
    Ofi(OfiOffer),
}

impl HostPort {
    /// Checks that an engine can have said this. The error says which value is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Rc(port) => port.check(),
            Self::Ofi(port) => port.check(),
        }
    }

    /// Checks whether queues of both NICs reach each other.
    pub(crate) fn fits(&self, theirs: &Self, config: &PathConfig) -> Result<(), Unfit> {
        match (self, theirs) {
            (Self::Rc(own), Self::Rc(theirs)) => own.fits(theirs, config),
            (Self::Ofi(own), Self::Ofi(theirs)) => own.fits(theirs),
            (own, theirs) => Err(Unfit {
                what: "wire",
                own: own.wire(),
                theirs: theirs.wire(),
            }),
        }
    }

    /// Returns the speed of the port in Mbit/s, or 0 if it is unknown.
    pub(crate) const fn speed(&self) -> u32 {
        match self {
            Self::Rc(port) => port.speed(),
            Self::Ofi(port) => port.speed(),
        }
    }

    /// Returns the name of the wire: what two ends must both speak.
    pub(crate) fn wire(&self) -> String {
        match self {
            Self::Rc(_) => RC.to_owned(),
            Self::Ofi(port) => port.wire(),
        }
    }
}

impl HostOffer {
    /// Returns whether this offer of a queue at `port` names the queue that `other` offers at `others`.
    pub(crate) fn is_of(&self, port: &HostPort, other: &Self, others: &HostPort) -> bool {
        match (self, port, other, others) {
            (Self::Rc(own), HostPort::Rc(port), Self::Rc(other), HostPort::Rc(others)) => {
                own.qpn == other.qpn && port.is_at(others)
            }
            (Self::Ofi(own), HostPort::Ofi(port), Self::Ofi(other), HostPort::Ofi(others)) => {
                own.is_of(other) && port.is_at(others)
            }
            _ => false,
        }
    }

    /// Returns whether the queue gives its name back at the end of a life. A QP keeps its number over a reset.
    pub(crate) const fn ends_with_its_life(&self) -> bool {
        matches!(self, Self::Ofi(_))
    }

    /// Checks that an end at `port` can have made this offer. The error says which value is wrong.
    pub(crate) fn check(&self, port: &HostPort) -> Result<(), OfiError> {
        match (self, port) {
            (Self::Rc(_), HostPort::Rc(_)) => Ok(()),
            (Self::Ofi(offer), HostPort::Ofi(_)) => offer.address().map(drop),
            (other, _) => Err(OfiError::Offer {
                found: other.to_string(),
            }),
        }
    }
}

impl fmt::Display for HostOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rc(RcOffer { qpn, .. }) => write!(f, "QP {qpn:#x}"),
            Self::Ofi(offer) => write!(f, "endpoint {offer}"),
        }
    }
}
