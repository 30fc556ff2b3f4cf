//! The choice of an HCA's carrier.

use super::memory::Network;
use crate::number::whole;
use std::net::SocketAddr;
use std::str::FromStr;
use thiserror::Error;

/// The carrier of an HCA's packets.
///
/// As text (`SOFTHCA_CARRIER`): `udp`, `frames:LOCAL:PORT,REMOTE:PORT` or `packet:INTERFACE`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum CarrierConfig {
    /// A UDP socket bound to the HCA's address and port 4791.
    #[default]
    Udp,
    /// Ethernet frames, one in each UDP datagram between two sockets, as in QEMU's `-netdev dgram`. The HCA is a host of its own on that
    /// Ethernet, so it needs an address in its subnet.
    Frames {
        /// The socket's own address.
        local: SocketAddr,
        /// The address of the only socket that it exchanges datagrams with.
        remote: SocketAddr,
    },
    /// Ethernet frames on a network interface of this machine, through a packet socket (root). The HCA is a host of its own on
    /// that network and needs an address that no other host has, this machine included.
    Packet {
        /// Name of the interface.
        interface: String,
    },
    /// A network in memory, on which the HCA needs an address of its own.
    Memory(Network),
}

/// The error for a text that names no [`CarrierConfig`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {}", CarrierConfig::EXPECTED)]
pub struct UnknownCarrier {
    /// The setting as the user wrote it.
    pub text: String,
}

impl CarrierConfig {
    /// The texts that are allowed.
    pub const EXPECTED: &str = "udp, frames:ADDRESS:PORT,ADDRESS:PORT or packet:INTERFACE";
}

impl FromStr for CarrierConfig {
    type Err = UnknownCarrier;

    fn from_str(text: &str) -> Result<Self, UnknownCarrier> {
        let parsed = match text.split_once(':') {
            None if text == "udp" => Some(Self::Udp),
            Some(("frames", ends)) => ends.split_once(',').and_then(|(local, remote)| {
                Some(Self::Frames {
                    local: end(local)?,
                    remote: end(remote)?,
                })
            }),
            // Linux takes such names of interfaces: IFNAMSIZ is 16 with the zero byte.
            Some(("packet", name)) if (1..16).contains(&name.len()) => Some(Self::Packet {
                interface: name.to_owned(),
            }),
            _ => None,
        };
        parsed.ok_or_else(|| UnknownCarrier {
            text: text.to_owned(),
        })
    }
}

/// Reads `ADDRESS:PORT`.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.rsplit_once(':')?;
    let port: u16 = whole(port)?;
    format!("{address}:{port}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_carrier_has_a_text() {
        let parse = |text: &str| text.parse::<CarrierConfig>();
        assert!(matches!(parse("udp"), Ok(CarrierConfig::Udp)));
        let Ok(CarrierConfig::Frames { local, remote }) = parse("frames:127.0.0.1:5002,[::1]:5001")
        else {
            panic!("frames");
        };
        assert_eq!(
            [local.to_string(), remote.to_string()],
            ["127.0.0.1:5002", "[::1]:5001"]
        );
        let Ok(CarrierConfig::Packet { interface }) = parse("packet:veth0") else {
            panic!("packet");
        };
        assert_eq!(interface, "veth0");
    }

    #[test]
    fn other_text_is_refused_with_what_would_be_right() {
        for text in [
            "",
            "tcp",
            "udp:",
            "frames:127.0.0.1:5002",
            "frames:localhost:1,localhost:2",
            "packet:",
            "packet:a_name_of_16_byte",
        ] {
            let error = text.parse::<CarrierConfig>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "{text:?} is not udp, frames:ADDRESS:PORT,ADDRESS:PORT or packet:INTERFACE"
                )
            );
        }
    }
}
