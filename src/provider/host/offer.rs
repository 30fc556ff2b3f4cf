//! What an engine tells others of its NICs and of the queues of a connection. Both ends have agreed on a wire before, and each wire has its
//! own forms.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::PathConfig;
use crate::fabric::{PortRecord, Unfit};
use crate::provider::rc::RcOffer;

/// What an engine tells of one of its NICs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum HostPort {
    /// A port whose QPs are of type RC.
    Rc(PortRecord),
}

/// What one end tells the other of the queue of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum HostOffer {
    /// A QP of type RC.
    Rc(RcOffer),
}

impl HostPort {
    /// Checks that an engine can have said this. The error says which value is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Rc(port) => port.check(),
        }
    }

    /// Checks whether queues of both NICs reach each other.
    pub(crate) fn fits(&self, theirs: &Self, config: &PathConfig) -> Result<(), Unfit> {
        match (self, theirs) {
            (Self::Rc(own), Self::Rc(theirs)) => own.fits(theirs, config),
        }
    }

    /// Returns the speed of the port in Mbit/s, or 0 if it is unknown.
    pub(crate) const fn speed(&self) -> u32 {
        match self {
            Self::Rc(port) => port.speed(),
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
        }
    }
}

impl fmt::Display for HostOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rc(RcOffer { qpn, .. }) => write!(f, "QP {qpn:#x}"),
        }
    }
}
