//! Why a rank does not use a port.

use std::fmt;

use super::rdma::{LinkLayer, PortState, RdmaPort};

/// The reason why a rank does not use a port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The port does not carry traffic.
    State(Option<PortState>),
    /// The port is of another link layer than the one that is wanted.
    LinkLayer(Option<LinkLayer>, LinkLayer),
    /// The device has no port.
    NoPort,
    /// The configuration leaves the port out.
    LeftOut,
    /// Another library than libmlx5 drives the device.
    Provider,
    /// libibverbs does not list the device: it has no node in `/dev/infiniband`, or no library for it.
    NotListed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(Some(state)) => write!(f, "the port is {state}, not active"),
            Self::State(None) => f.write_str("the state of the port cannot be read"),
            Self::LinkLayer(Some(layer), wanted) => write!(f, "the port is {layer}, not {wanted}"),
            Self::LinkLayer(None, wanted) => {
                write!(
                    f,
                    "the link layer of the port cannot be read, so it may not be {wanted}"
                )
            }
            Self::NoPort => f.write_str("it has no port"),
            Self::LeftOut => f.write_str("the configuration leaves it out"),
            Self::Provider => f.write_str("another library than libmlx5 drives it"),
            Self::NotListed => f.write_str(
                "libibverbs does not list it: its node in /dev/infiniband or the library of its driver is missing",
            ),
        }
    }
}

/// Refuses a port that is not active, or of another link layer than is wanted.
pub(super) fn admit(port: &RdmaPort, wanted: Option<LinkLayer>) -> Result<(), Reason> {
    match wanted {
        Some(wanted) if port.link_layer != Some(wanted) => {
            Err(Reason::LinkLayer(port.link_layer, wanted))
        }
        _ if port.state != Some(PortState::Active) => Err(Reason::State(port.state)),
        _ => Ok(()),
    }
}
