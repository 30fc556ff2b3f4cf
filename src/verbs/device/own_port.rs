//! The port of an open device that this process uses: its properties, its addresses, and the choice of the address from which packets go.

use crate::config::GidChoice;
use crate::verbs::device::gids::GidEntry;
use crate::verbs::device::list::DeviceInfo;
use crate::verbs::device::open::OpenDevice;
use crate::verbs::device::port::PortInfo;
use crate::verbs::device::traffic_class::{self, TrafficClass};
use crate::verbs::error::VerbsError;
use crate::verbs::gid::Gid;

/// The largest number of ports for which a device is asked.
const MOST_PORTS: u8 = 8;

/// The port of an open device that this process uses, as it was when the device was opened.
#[derive(Clone, Debug)]
pub(crate) struct OwnPort {
    info: DeviceInfo,
    port: PortInfo,
    gids: Vec<GidEntry>,
    /// The own GID that the caller named.
    named_gid: Option<GidEntry>,
    log_reads: u8,
}

impl OwnPort {
    /// Reads port `port` of the device, or its first active port, and the port's GIDs.
    pub(in crate::verbs) fn query(
        device: &OpenDevice,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Self, VerbsError> {
        let port = match port {
            Some(port) => PortInfo::query(device, &info, port)?,
            None => first_active(device, &info)?,
        };
        let gids = GidEntry::query(device, &port)?;
        let named_gid = GidEntry::named(&gids, gid, &info.name, &port)?;
        Ok(Self {
            info,
            port,
            gids,
            named_gid,
            log_reads: 0,
        })
    }

    /// Returns the port of a device that takes `1 << log_reads` reads and atomics of a QP at once.
    pub(in crate::verbs) fn with_log_reads(self, log_reads: u8) -> Self {
        Self { log_reads, ..self }
    }

    /// Returns what the list of devices says about the device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the port, as it was at opening.
    pub(crate) fn port(&self) -> &PortInfo {
        &self.port
    }

    /// Returns all GIDs of the port, as they were at opening.
    pub(crate) fn gids(&self) -> &[GidEntry] {
        &self.gids
    }

    /// Returns log2 of the number of reads and atomics that a QP of the device takes at once.
    pub(crate) fn log_reads(&self) -> u8 {
        self.log_reads
    }

    /// Returns the entry at `index` of the port's table. Without an index, returns [`OwnPort::own_gid`].
    pub(crate) fn source_gid(&self, index: Option<u32>) -> Result<GidEntry, VerbsError> {
        let Some(index) = index else {
            return self.own_gid();
        };
        let entry = self.gids.iter().find(|entry| entry.index == index);
        entry.copied().ok_or_else(|| {
            let known: Vec<_> = self.gids.iter().map(|entry| entry.index).collect();
            VerbsError::argument("GID index", index, format!("one of {known:?}"))
        })
    }

    /// Returns the own GID of the runtime's packets, as [`Context::own_gid`](crate::verbs::Context::own_gid) says.
    pub(crate) fn own_gid(&self) -> Result<GidEntry, VerbsError> {
        let chosen = self
            .named_gid
            .or_else(|| GidEntry::choose(&self.gids, self.port.link_layer));
        chosen.ok_or_else(|| self.lacks_gid("a RoCEv2 GID: an IP address on the port's interface"))
    }

    /// Returns the RoCEv2 GID from which packets reach `remote`: one of the same address family, chosen as `own_gid` chooses.
    pub(crate) fn roce_v2_gid_towards(&self, remote: &Gid) -> Result<GidEntry, VerbsError> {
        let own = self.named_gid.as_ref().map(std::slice::from_ref);
        GidEntry::towards(own.unwrap_or(&self.gids), remote).ok_or_else(|| {
            self.lacks_gid(format!("a RoCEv2 GID of the address family of {remote}"))
        })
    }

    /// Returns the traffic class of this port's packets: `wanted`, else what the system has set for the port, else 0.
    pub(crate) fn traffic_class(&self, wanted: Option<u8>) -> TrafficClass {
        traffic_class::of_port(wanted, &self.info, self.port.number)
    }

    fn lacks_gid(&self, needed: impl ToString) -> VerbsError {
        let of_roce_v2 = self.gids.iter().filter(|entry| entry.roce_v2).count();
        VerbsError::Capability {
            device: self.info.name.clone(),
            what: "GID table",
            has: format!("{} entries, {of_roce_v2} of RoCEv2", self.gids.len()),
            needed: needed.to_string(),
        }
    }
}

/// Returns the first active port of a device. If none is active, returns why the first port is not.
fn first_active(device: &OpenDevice, info: &DeviceInfo) -> Result<PortInfo, VerbsError> {
    let mut first = None;
    for number in 1..=MOST_PORTS {
        match PortInfo::query(device, info, number) {
            Ok(port) => return Ok(port),
            // There is no such port: the one before was the last.
            Err(VerbsError::Call { .. } | VerbsError::BadArgument { .. }) if first.is_some() => {
                break;
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| device.lacks("port", "none", "an active one")))
}
