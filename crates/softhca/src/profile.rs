//! Profiles: the card that a software HCA looks like.
//!
//! Programs choose by PCI device id, firmware version and link speed, and a profile decides these. What the device can do, and how many
//! objects it can have, is the same for all profiles, except `cx5` and link aggregation. `QUERY_HCA_CAP` reports it. A capability is set
//! because the software has it, never because the card would have it.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The card that the device looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// A `ConnectX-6` of 200 Gb/s.
    ConnectX6,
    /// A `ConnectX-6` Dx of 100 Gb/s.
    ConnectX6Dx,
    /// A `ConnectX-7` of 400 Gb/s.
    #[default]
    ConnectX7,
    /// A `BlueField-3` of 400 Gb/s.
    BlueField3,
    /// A `ConnectX-7` whose two ports are one link aggregation group in queue-affinity mode: each QP names the port that its packets leave
    /// by.
    ConnectX7Lag,
    /// A `ConnectX-7` like `ConnectX7Lag`, but in hash mode: the device finds the port of a packet itself, and refuses a QP that names a
    /// port.
    ConnectX7LagHash,
    /// A `ConnectX-5` of 100 Gb/s, with the fewest capabilities that programs meet: no masked atomics, one READ in flight, no doorbells
    /// without a record.
    ConnectX5,
}

/// The way in which a device with a link aggregation group finds the port of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lag {
    /// Each QP names the port of its packets.
    QueueAffinity,
    /// The device finds the port by a hash of the packet's addresses. The kernel names no port for its QPs
    /// (`port_select_flow_table_bypass`).
    Hash,
}

/// The number of ports of a link aggregation group.
pub(crate) const LAG_PORTS: u8 = 2;

/// The facts about a card that programs see.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The name of the card in `SOFTHCA_PROFILE`.
    pub(crate) name: &'static str,
    pub(crate) pci_device: u16,
    /// The text of `hca_type` in sysfs.
    pub(crate) hca_type: &'static str,
    pub(crate) firmware: [u16; 3],
    /// The text of `board_id` in sysfs, which says plainly that this is no hardware.
    pub(crate) board: &'static str,
    /// The text of `rate` in sysfs.
    pub(crate) rate: &'static str,
    /// The `active_speed` of `ibv_query_port`, with 4 lanes.
    pub(crate) speed: u8,
    /// The `max_link_speed` of the PCI function, with 16 lanes.
    pub(crate) pci_speed: &'static str,
    /// The mode of the card's link aggregation group of [`LAG_PORTS`]; `None` if the card has no such group.
    pub(crate) lag: Option<Lag>,
    /// True if the card has no masked atomics, one READ in flight, and no doorbells without a record.
    pub(crate) lean: bool,
}

/// The values of `enum ib_port_speed` of the kernel.
mod speed {
    pub(super) const EDR: u8 = 32;
    pub(super) const HDR: u8 = 64;
    pub(super) const NDR: u8 = 128;
}

/// The facts about each card. Device ids are from `mlx5_core_pci_table` of the kernel; types and firmware are from NVIDIA's release notes.
static TABLE: [(Profile, Facts); 7] = [
    (
        Profile::ConnectX6,
        Facts {
            name: "cx6",
            pci_device: 0x101b,
            hca_type: "MT4123",
            firmware: [20, 39, 1002],
            board: "SOFTHCA0000000006",
            rate: "200 Gb/sec (4X HDR)",
            speed: speed::HDR,
            pci_speed: "16.0 GT/s PCIe",
            lag: None,
            lean: false,
        },
    ),
    (
        Profile::ConnectX6Dx,
        Facts {
            name: "cx6dx",
            pci_device: 0x101d,
            hca_type: "MT4125",
            firmware: [22, 39, 1002],
            board: "SOFTHCA0000000016",
            rate: "100 Gb/sec (4X EDR)",
            speed: speed::EDR,
            pci_speed: "16.0 GT/s PCIe",
            lag: None,
            lean: false,
        },
    ),
    (
        Profile::ConnectX7,
        Facts {
            name: "cx7",
            pci_device: 0x1021,
            hca_type: "MT4129",
            firmware: [28, 39, 1002],
            board: "SOFTHCA0000000001",
            rate: "400 Gb/sec (4X NDR)",
            speed: speed::NDR,
            pci_speed: "32.0 GT/s PCIe",
            lag: None,
            lean: false,
        },
    ),
    (
        Profile::BlueField3,
        Facts {
            name: "bf3",
            pci_device: 0xa2dc,
            hca_type: "MT41692",
            firmware: [32, 39, 1002],
            board: "SOFTHCA0000000003",
            rate: "400 Gb/sec (4X NDR)",
            speed: speed::NDR,
            pci_speed: "32.0 GT/s PCIe",
            lag: None,
            lean: false,
        },
    ),
    (
        Profile::ConnectX7Lag,
        Facts {
            name: "cx7-lag",
            pci_device: 0x1021,
            hca_type: "MT4129",
            firmware: [28, 39, 1002],
            board: "SOFTHCA0000000002",
            rate: "400 Gb/sec (4X NDR)",
            speed: speed::NDR,
            pci_speed: "32.0 GT/s PCIe",
            lag: Some(Lag::QueueAffinity),
            lean: false,
        },
    ),
    (
        Profile::ConnectX7LagHash,
        Facts {
            name: "cx7-lag-hash",
            pci_device: 0x1021,
            hca_type: "MT4129",
            firmware: [28, 39, 1002],
            board: "SOFTHCA0000000004",
            rate: "400 Gb/sec (4X NDR)",
            speed: speed::NDR,
            pci_speed: "32.0 GT/s PCIe",
            lag: Some(Lag::Hash),
            lean: false,
        },
    ),
    (
        Profile::ConnectX5,
        Facts {
            name: "cx5",
            pci_device: 0x1017,
            hca_type: "MT4119",
            firmware: [16, 35, 3502],
            board: "SOFTHCA0000000005",
            rate: "100 Gb/sec (4X EDR)",
            speed: speed::EDR,
            pci_speed: "8.0 GT/s PCIe",
            lag: None,
            lean: true,
        },
    ),
];

impl Profile {
    /// The texts that are profiles, in words.
    pub const EXPECTED: &str = "cx5, cx6, cx6dx, cx7, bf3, cx7-lag or cx7-lag-hash";

    /// Returns what programs see of this card.
    pub(crate) fn facts(self) -> &'static Facts {
        TABLE
            .iter()
            .find(|(profile, _)| *profile == self)
            .map_or(&TABLE[2].1, |(_, facts)| facts)
    }
}

/// The error for a text that names no profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no profile: {expected}", expected = Profile::EXPECTED)]
pub struct UnknownProfile(pub String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        TABLE
            .iter()
            .find(|(_, facts)| facts.name == text)
            .map(|(profile, _)| *profile)
            .ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.facts().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_a_row_and_a_name_of_its_own() {
        for profile in [
            Profile::ConnectX6,
            Profile::ConnectX6Dx,
            Profile::ConnectX7,
            Profile::BlueField3,
            Profile::ConnectX7Lag,
            Profile::ConnectX7LagHash,
            Profile::ConnectX5,
        ] {
            let rows = TABLE.iter().filter(|(row, _)| *row == profile).count();
            assert_eq!(rows, 1, "{profile:?}");
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
        assert_eq!(Profile::default().facts().pci_device, 0x1021);
        let error = "cx8".parse::<Profile>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"cx8\" is no profile: cx5, cx6, cx6dx, cx7, bf3, cx7-lag or cx7-lag-hash"
        );
    }
}
