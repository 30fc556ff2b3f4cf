//! Opens the carrier that a configuration asks for.

use crate::address::{self, AddressError};
use crate::device::HcaConfig;
use crate::link::mac_of;
use crate::wire::capture::{Capture, Tap};
use crate::wire::carrier::Carrier;
use crate::wire::config::CarrierConfig;
use crate::wire::frames::{FrameCarrier, FrameSocket};
use crate::wire::udp::UdpCarrier;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use thiserror::Error;

/// The reason why no carrier for an HCA's packets could be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// There is no address for the HCA.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The kernel refuses an option of the UDP socket.
    #[error("cannot set up the UDP socket: {0}")]
    Udp(io::Error),
    /// The socket that carries frames over UDP cannot be opened.
    #[error("cannot carry frames from {local}: {source}")]
    Frames {
        /// The local end of the socket.
        local: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The interface cannot be used, or the process lacks the right to use it.
    #[error(
        "cannot carry frames on interface {interface}: {source}{}",
        hint(source)
    )]
    Interface {
        /// The name of the interface.
        interface: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The capture file cannot be written.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// The file that the configuration names.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::PermissionDenied {
        " (packet sockets need CAP_NET_RAW, which mostly only root has)"
    } else {
        ""
    }
}

/// Opens the carrier of the HCA's packets. Returns it with the HCA's address.
pub(super) fn open_carrier(
    config: &HcaConfig,
) -> Result<(Ipv4Addr, Box<dyn Carrier>), CarrierError> {
    let (ip, carrier): (_, Box<dyn Carrier>) = match &config.carrier {
        CarrierConfig::Udp => {
            let (sockets, ip) =
                address::claim(config.ip, config.link, config.lmc, fastrand::u32(..))?;
            let mut sockets = sockets.into_iter();
            let first = sockets.next().ok_or(AddressError::Missing)?;
            let mut carrier = UdpCarrier::new(first)
                .and_then(|carrier| carrier.with_more(sockets.collect()))
                .map_err(CarrierError::Udp)?;
            if let Some(subnet) = config.ipv6 {
                let socket = address::claim_ipv6(ip, subnet)?;
                carrier = carrier
                    .with_ipv6(socket, subnet)
                    .map_err(CarrierError::Udp)?;
            }
            (ip, Box::new(carrier))
        }
        CarrierConfig::Memory(network) => {
            let ip = config.ip.ok_or(AddressError::Missing)?;
            let carrier = network
                .plug_range(ip, config.lmc)
                .ok_or(AddressError::InUse { ip: ip.into() })?;
            (ip, Box::new(carrier))
        }
        CarrierConfig::Frames { local, remote } => {
            let ip = config.ip.ok_or(AddressError::Missing)?;
            let socket = FrameSocket::over_udp(*local, *remote).map_err(|source| {
                let local = *local;
                CarrierError::Frames { local, source }
            })?;
            // This carrier captures by itself: it writes whole frames, as they were.
            let capture = capture(config, ip)?;
            let carrier = FrameCarrier::new(socket, ip, capture).with_subnet(config.ipv6);
            return Ok((ip, Box::new(carrier)));
        }
        CarrierConfig::Packet { interface } => {
            let ip = config.ip.ok_or(AddressError::Missing)?;
            let socket = FrameSocket::on_interface(interface, mac_of(ip)).map_err(|source| {
                let interface = interface.clone();
                CarrierError::Interface { interface, source }
            })?;
            let capture = capture(config, ip)?;
            let carrier = FrameCarrier::new(socket, ip, capture).with_subnet(config.ipv6);
            return Ok((ip, Box::new(carrier)));
        }
    };
    match capture(config, ip)? {
        None => Ok((ip, carrier)),
        Some(capture) => {
            let tap = Tap::new(carrier, capture, ip).with_lmc(config.lmc);
            Ok((ip, Box::new(tap)))
        }
    }
}

/// Opens the capture that `config` asks for. Prints its file name if that differs from the configured name.
fn capture(config: &HcaConfig, ip: Ipv4Addr) -> Result<Option<Capture>, CarrierError> {
    let Some(path) = &config.pcap else {
        return Ok(None);
    };
    let capture = Capture::create(path, &format!("softhca {ip}")).map_err(|source| {
        CarrierError::Capture {
            path: path.clone(),
            source,
        }
    })?;
    if capture.path() != path {
        let (at, asked) = (capture.path().display(), path.display());
        eprintln!("softhca: the HCA at {ip} is captured in {at}, since {asked} exists");
    }
    Ok(Some(capture))
}
