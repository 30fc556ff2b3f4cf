//! PCI functions, and the bridges above them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use super::sysfs::{self, Sysfs, Unread};

/// The address of a PCI function: `0000:1b:00.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Number of the domain (segment).
    pub domain: u32,
    /// Bus number within the domain.
    pub bus: u8,
    /// Number of the device, 0 to 31.
    pub device: u8,
    /// Number of the function, 0 to 7.
    pub function: u8,
}

/// A text that is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no PCI address; it must be DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, as 0000:1b:00.0"
)]
pub struct BadAddress {
    /// The text that is no address.
    pub text: String,
}

impl FromStr for PciAddress {
    type Err = BadAddress;

    /// Parses `0000:1b:00.0`, with up to eight digits of the domain, as the CUDA driver writes them.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        Self::parse(text).ok_or_else(|| BadAddress {
            text: text.chars().take(64).collect(),
        })
    }
}

impl PciAddress {
    fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let number = |digits: &str, lengths: std::ops::RangeInclusive<usize>, most: u32| {
            let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_number = is_plain && lengths.contains(&digits.len());
            let value = u32::from_str_radix(digits, 16).ok();
            value.filter(|value| is_number && *value <= most)
        };
        let byte = |value: u32| u8::try_from(value).ok();
        Some(Self {
            domain: number(domain, 4..=8, u32::MAX)?,
            bus: byte(number(bus, 2..=2, 0xff)?)?,
            device: byte(number(device, 2..=2, 0x1f)?)?,
            function: byte(number(function, 1..=1, 7)?)?,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// One PCI function of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciDevice {
    /// Domain, bus, device and function.
    pub address: PciAddress,
    /// Base class, subclass and interface: `0x030200`.
    pub class: Option<u32>,
    /// The number of the vendor: `0x10de`.
    pub vendor: Option<u32>,
    /// The vendor's number for the device.
    pub device: Option<u32>,
    /// The NUMA node that its host bridge belongs to. None if the firmware does not say.
    pub numa_node: Option<u32>,
    /// The host bridge above the function, by the kernel's name: `pci0000:15`. None if the path of the device shows none.
    pub host_bridge: Option<String>,
    /// The bridges between host bridge and function, from the root port down.
    pub bridges: Vec<PciAddress>,
    /// The function is a virtual one, whose physical function is on this machine, too.
    pub is_virtual: bool,
}

/// The PCI vendor number of NVIDIA.
const NVIDIA: u32 = 0x10de;
/// Base class and subclass of a VGA display controller, and of a 3D controller.
const DISPLAY: [u32; 2] = [0x0300, 0x0302];

impl PciDevice {
    /// Returns whether this is a GPU that CUDA may know.
    #[must_use]
    pub fn is_nvidia_gpu(&self) -> bool {
        let is_display = self
            .class
            .is_some_and(|class| DISPLAY.contains(&(class >> 8)));
        is_display && self.vendor == Some(NVIDIA)
    }
}

/// Returns the PCI functions of a machine, by address.
pub(super) fn devices(sysfs: &Sysfs, unread: &mut Vec<Unread>) -> BTreeMap<PciAddress, PciDevice> {
    let directory = sysfs.sys.join("bus/pci/devices");
    let names = sysfs::names(&directory, unread);
    let device = |name: &String| {
        let address = name.parse().ok()?;
        Some((address, read(address, &directory.join(name), unread)))
    };
    names.iter().filter_map(device).collect()
}

fn read(address: PciAddress, directory: &Path, unread: &mut Vec<Unread>) -> PciDevice {
    let place =
        sysfs::target(directory, unread).map_or_else(Place::default, |path| Place::of(&path));
    let mut number = |name: &str, most: u32| {
        let parse = |text: &str| sysfs::hexadecimal(text).filter(|value| *value <= most);
        sysfs::fact(&directory.join(name), "a number", unread, parse)
    };
    let (class, vendor) = (number("class", 0xff_ffff), number("vendor", 0xffff));
    let device = number("device", 0xffff);
    let numa_node = sysfs::fact(&directory.join("numa_node"), "a node", unread, node);
    let mut bridges = place.functions;
    // The last function is this one itself, if the link leads to it.
    bridges.pop_if(|last| *last == address);
    PciDevice {
        address,
        class,
        vendor,
        device,
        numa_node: numa_node.flatten(),
        host_bridge: place.host_bridge,
        bridges,
        is_virtual: directory.join("physfn").is_symlink(),
    }
}

/// Returns the node that a text names; -1 stands for no node.
fn node(text: &str) -> Option<Option<u32>> {
    match text {
        "-1" => Some(None),
        number => sysfs::decimal(number).map(Some),
    }
}

/// The place that the path of a device shows: `/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The lowest host bridge of the path: a device below a volume management device has two above it.
    host_bridge: Option<String>,
    /// The PCI functions below that host bridge, from the root port down.
    pub(super) functions: Vec<PciAddress>,
}

impl Place {
    pub(super) fn of(path: &Path) -> Self {
        let mut place = Self::default();
        for component in path.components() {
            let Some(name) = component.as_os_str().to_str() else {
                continue;
            };
            if is_host_bridge(name) {
                place = Self {
                    host_bridge: Some(name.to_owned()),
                    functions: Vec::new(),
                };
            } else if let (Some(address), true) =
                (PciAddress::parse(name), place.host_bridge.is_some())
            {
                place.functions.push(address);
            }
        }
        place
    }
}

/// Returns whether `name` names a host bridge: `pci0000:15`.
fn is_host_bridge(name: &str) -> bool {
    let Some((domain, bus)) = name
        .strip_prefix("pci")
        .and_then(|name| name.split_once(':'))
    else {
        return false;
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (4..=8).contains(&domain.len()) && bus.len() == 2 && is_number(domain) && is_number(bus)
}

/// Returns the lowest PCI function of this machine on `path`: the path is that of the function, or lies below it.
pub(super) fn function_of(sysfs: &Sysfs, path: &Path) -> Option<PciAddress> {
    let devices: PathBuf = std::fs::canonicalize(sysfs.sys.join("devices")).ok()?;
    let below = path.strip_prefix(devices).ok()?;
    let is_plain = below
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    is_plain.then(|| Place::of(below).functions.last().copied())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back_as_they_print_and_nothing_else_is_one() {
        for text in [
            "0000:1b:00.0",
            "0101:00:00.7",
            "10000:e1:1f.7",
            "ffffffff:ff:00.0",
        ] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        let of_cuda: PciAddress = "00000000:1B:00.0".parse().unwrap();
        assert_eq!(of_cuda.to_string(), "0000:1b:00.0");
        for text in [
            "",
            "1b:00.0",
            "0000:1b:00",
            "0000:1b:20.0",
            "0000:1b:00.8",
            "0000:1b:00.00",
            "+000:1b:00.0",
            "000000000:1b:00.0",
            "0000:1b:0.0",
            "0000:1b:00.0 ",
            "0000:é:00.0",
        ] {
            let error = text.parse::<PciAddress>().unwrap_err();
            assert!(error.to_string().contains("0000:1b:00.0"), "{error}");
        }
    }

    #[test]
    fn a_path_shows_the_last_host_bridge_and_what_is_below_it() {
        let place = |path: &str| Place::of(Path::new(path));
        let direct = place("/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/infiniband/mlx5_0");
        assert_eq!(direct.host_bridge.as_deref(), Some("pci0000:15"));
        assert_eq!(direct.functions.len(), 2);
        let volume = place("/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0");
        assert_eq!(volume.host_bridge.as_deref(), Some("pci10000:e0"));
        assert_eq!(volume.functions, ["10000:e0:06.0".parse().unwrap()]);
        for path in [
            "/",
            "/sys/devices/0000:15:01.0",
            "/sys/devices/pci0000:1/0000:15:01.0",
            "/a/pcix:00/b",
        ] {
            assert_eq!(place(path), Place::default(), "{path}");
        }
    }
}
