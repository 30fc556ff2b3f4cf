//! The devices of a preloaded library, as its environment asks for them.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `SOFTHCA_DEVICES` | how many HCAs the process has, 1 to 64 | 1 |
//! | `SOFTHCA_IP` | IPv4 address of `mlx5_0`; the next devices take the addresses above it | first free of 127/8 |
//! | `SOFTHCA_PORTS` | how many ports a device has, 1 or 2; each has addresses of its own | 1 |
//! | `SOFTHCA_IPV6` | the /96 from which each device has an IPv6 address in addition, its IPv4 address in the last bits | none |
//! | `SOFTHCA_STRICT` | 1: a WQE runs only after its doorbell; 0: its doorbell record is enough | 1 |
//! | `SOFTHCA_EXECUTION` | executor of WQEs: `engine`, or `external` for an executor that is attached (`device::external`) | `engine` |
//! | `SOFTHCA_SCHEDULE_SEED` | seed of a randomised order of work between queues | in order |
//! | `SOFTHCA_PROFILE` | which card the devices look like: `cx5` (which can do the least), `cx6`, `cx6dx`, `cx7`, `bf3`, `cx7-lag` (two ports aggregated, each QP names one) or `cx7-lag-hash` (a hash finds the port) | `cx7` |
//! | `SOFTHCA_LINK` | the link layer: `eth`, or `ib` for InfiniBand; see [`crate::link`] | `eth` |
//! | `SOFTHCA_LMC` | LMC of the port, on InfiniBand: it has 2^LMC LIDs, and the device as many addresses; 0 to 7 | 0 |
//! | `SOFTHCA_PKEYS` | partition keys of the port, on InfiniBand: `0xffff,0x8001` | `0xffff` |
//! | `SOFTHCA_LOG_MAX_MR` | log2 of the most bytes of a memory region, 12 to 63 | 48 |
//! | `SOFTHCA_ORDER` | what the devices promise about the order of data: `in-order`, `atomics` or `flush` | `in-order` |
//! | `SOFTHCA_ADVERSARY` | `SEED` or `SEED:MICROSECONDS`: makes use of all that the order leaves open, see [`Adversary`] | none |
//! | `SOFTHCA_FAULT` | what goes wrong, see `FaultSpec` | nothing |
//! | `SOFTHCA_CHECK` | what the checker looks for, see `CheckConfig` | what costs nothing; prints |
//! | `SOFTHCA_FINDINGS` | a file that gets a line for each finding | none |
//! | `SOFTHCA_CARRIER` | `udp`, `frames:LOCAL:PORT,REMOTE:PORT` or `packet:INTERFACE`; see [`CarrierConfig`] | `udp` |
//! | `SOFTHCA_PCAP` | file for what crosses the wire, in pcapng; the next devices and processes take FILE.2 and so on | none |
//! | `SOFTHCA_DIR` | directory, made by `wv sim`, for the sysfs tree | a private one |

use crate::device::{
    Adversary, CheckConfig, CheckConfigError, DataOrder, Execution, FaultSpec, FaultSpecError,
};
use crate::link::Link;
use crate::number::whole;
use crate::partition::PkeyTable;
use crate::profile::Profile;
use crate::shim::complain::complain;
use crate::subnet::Ipv6Subnet;
use crate::sysfs::MAX_PORTS;
use crate::wire::config::CarrierConfig;
use crate::{Hca, HcaConfig, HcaError, link};
use std::env::{self, VarError};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use thiserror::Error;

/// The devices of this process. A preloaded library never removes its devices, so they are kept for the life of the process.
static DEVICES: Mutex<Vec<Hca>> = Mutex::new(Vec::new());

const MAX_DEVICES: u32 = 64;

#[derive(Debug, Error)]
enum EnvironmentError {
    #[error("{name}={value} is not {expected}")]
    Value {
        name: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("SOFTHCA_IP={first} leaves no address for device {index}")]
    Addresses { first: Ipv4Addr, index: u32 },
    #[error("SOFTHCA_FAULT: {0}")]
    Faults(#[from] FaultSpecError),
    #[error("SOFTHCA_CHECK: {0}")]
    Check(#[from] CheckConfigError),
    #[error(transparent)]
    Hca(#[from] HcaError),
}

/// Makes the devices. If that fails, it says the reason on stderr.
pub(super) fn make_devices() {
    match try_make_devices() {
        Ok(devices) => {
            if let Ok(mut kept) = DEVICES.lock() {
                *kept = devices;
            }
        }
        Err(error) => complain(&error.to_string()),
    }
}

fn try_make_devices() -> Result<Vec<Hca>, EnvironmentError> {
    configs(&variable)?
        .into_iter()
        .map(|config| Ok(Hca::with_config(config)?))
        .collect()
}

fn configs(
    variable: &dyn Fn(&'static str) -> Option<String>,
) -> Result<Vec<HcaConfig>, EnvironmentError> {
    let devices = number(variable, "SOFTHCA_DEVICES", "a number from 1 to 64")?.unwrap_or(1u32);
    if !(1..=MAX_DEVICES).contains(&devices) {
        return Err(EnvironmentError::Value {
            name: "SOFTHCA_DEVICES",
            value: devices.to_string(),
            expected: "a number from 1 to 64",
        });
    }
    let first: Option<Ipv4Addr> = parsed(variable, "SOFTHCA_IP", "an IPv4 address")?;
    let ipv6: Option<Ipv6Subnet> = parsed(variable, "SOFTHCA_IPV6", Ipv6Subnet::EXPECTED)?;
    let strict = match number(variable, "SOFTHCA_STRICT", "0 or 1")?.unwrap_or(1u8) {
        0 => false,
        1 => true,
        other => {
            return Err(EnvironmentError::Value {
                name: "SOFTHCA_STRICT",
                value: other.to_string(),
                expected: "0 or 1",
            });
        }
    };
    let schedule_seed = number(variable, "SOFTHCA_SCHEDULE_SEED", "a 64-bit number")?;
    let execution = parsed(variable, "SOFTHCA_EXECUTION", Execution::EXPECTED)?.unwrap_or_default();
    let profile: Profile =
        parsed(variable, "SOFTHCA_PROFILE", Profile::EXPECTED)?.unwrap_or_default();
    let link: Link = parsed(variable, "SOFTHCA_LINK", Link::EXPECTED)?.unwrap_or_default();
    let lmc = within(
        variable,
        "SOFTHCA_LMC",
        0..=link::MAX_LMC,
        "a number from 0 to 7",
    )?;
    let expected = "a number from 12 to 63";
    let log_max_mr = match variable("SOFTHCA_LOG_MAX_MR") {
        Some(_) => within(variable, "SOFTHCA_LOG_MAX_MR", 12..=63, expected)?,
        None => HcaConfig::LOG_MAX_MR,
    };
    let ports = within(variable, "SOFTHCA_PORTS", 1..=MAX_PORTS, "1 or 2")?;
    let pkeys: PkeyTable =
        parsed(variable, "SOFTHCA_PKEYS", PkeyTable::EXPECTED)?.unwrap_or_default();
    let order: DataOrder =
        parsed(variable, "SOFTHCA_ORDER", DataOrder::EXPECTED)?.unwrap_or_default();
    let adversary = parsed(variable, "SOFTHCA_ADVERSARY", Adversary::EXPECTED)?;
    let faults = match variable("SOFTHCA_FAULT") {
        Some(text) => Some(text.parse::<FaultSpec>()?),
        None => None,
    };
    let mut check = CheckConfig::printing().with(&variable("SOFTHCA_CHECK").unwrap_or_default())?;
    check.file = variable("SOFTHCA_FINDINGS").map(PathBuf::from);
    let carrier: CarrierConfig =
        parsed(variable, "SOFTHCA_CARRIER", CarrierConfig::EXPECTED)?.unwrap_or_default();
    let pcap = variable("SOFTHCA_PCAP").map(PathBuf::from);
    (0..devices)
        .map(|index| {
            let ip = match first {
                Some(first) => Some(address(first, index * u32::from(ports), lmc)?),
                None => None,
            };
            Ok(HcaConfig {
                ip,
                ports,
                ipv6,
                strict,
                execution,
                schedule_seed,
                profile,
                link,
                lmc,
                pkeys: pkeys.clone(),
                order,
                log_max_mr,
                adversary,
                faults: faults.clone(),
                check: check.clone(),
                carrier: carrier.clone(),
                pcap: pcap.clone(),
                ..HcaConfig::default()
            })
        })
        .collect()
}

/// Returns what is wrong with `value` for the variable `name`; `None` if nothing is wrong.
pub(super) fn objection(name: &str, value: &str) -> Option<String> {
    let only = |asked: &'static str| (asked == name).then(|| value.to_owned());
    configs(&only).err().map(|error| error.to_string())
}

/// Returns the number that the variable `name` holds, which must be in `range`. The default is the first number of `range`.
fn within(
    variable: &dyn Fn(&'static str) -> Option<String>,
    name: &'static str,
    range: RangeInclusive<u8>,
    expected: &'static str,
) -> Result<u8, EnvironmentError> {
    let number = number(variable, name, expected)?.unwrap_or(*range.start());
    if !range.contains(&number) {
        return Err(EnvironmentError::Value {
            name,
            value: number.to_string(),
            expected,
        });
    }
    Ok(number)
}

/// Returns the first address of the device whose first port is number `index` among all ports. Each port before it takes 2^`lmc` addresses.
fn address(first: Ipv4Addr, index: u32, lmc: u8) -> Result<Ipv4Addr, EnvironmentError> {
    u32::from(first)
        .checked_add(index << lmc)
        .map(Ipv4Addr::from)
        .ok_or(EnvironmentError::Addresses { first, index })
}

fn parsed<T: FromStr>(
    variable: &dyn Fn(&'static str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, EnvironmentError> {
    read(variable, name, expected, |value| value.parse().ok())
}

fn number<T: TryFrom<u64>>(
    variable: &dyn Fn(&'static str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, EnvironmentError> {
    read(variable, name, expected, whole)
}

/// Returns what `of` makes of the variable's value, or `None` if the variable is not set.
fn read<T>(
    variable: &dyn Fn(&'static str) -> Option<String>,
    name: &'static str,
    expected: &'static str,
    of: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, EnvironmentError> {
    let Some(value) = variable(name) else {
        return Ok(None);
    };
    match of(&value) {
        Some(read) => Ok(Some(read)),
        None => Err(EnvironmentError::Value {
            name,
            value,
            expected,
        }),
    }
}

/// Returns the value of a variable. An empty variable counts as unset.
fn variable(name: &'static str) -> Option<String> {
    let value = match env::var(name) {
        Ok(value) => value,
        Err(VarError::NotPresent) => return None,
        Err(VarError::NotUnicode(value)) => value.to_string_lossy().into_owned(),
    };
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs_of(
        set: &'static [(&'static str, &'static str)],
    ) -> Result<Vec<HcaConfig>, EnvironmentError> {
        configs(&|name| {
            set.iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_gives_one_strict_device() {
        let configs = configs_of(&[]).unwrap();
        assert_eq!(configs.len(), 1);
        assert!(configs[0].strict);
        assert_eq!(configs[0].ip, None);
        assert_eq!(configs[0].schedule_seed, None);
    }

    #[test]
    fn devices_take_consecutive_addresses() {
        let configs = configs_of(&[
            ("SOFTHCA_DEVICES", "3"),
            ("SOFTHCA_IP", "127.9.8.254"),
            ("SOFTHCA_STRICT", "0"),
            ("SOFTHCA_SCHEDULE_SEED", "77"),
            ("SOFTHCA_CARRIER", "packet:veth0"),
            ("SOFTHCA_PCAP", "/tmp/wire"),
        ])
        .unwrap();
        let ips: Vec<_> = configs.iter().map(|config| config.ip.unwrap()).collect();
        assert_eq!(
            ips,
            [
                Ipv4Addr::new(127, 9, 8, 254),
                Ipv4Addr::new(127, 9, 8, 255),
                Ipv4Addr::new(127, 9, 9, 0)
            ]
        );
        assert!(!configs[2].strict);
        assert_eq!(configs[2].schedule_seed, Some(77));
        assert!(matches!(configs[2].carrier, CarrierConfig::Packet { .. }));
        assert_eq!(configs[2].pcap, Some(PathBuf::from("/tmp/wire")));
    }

    #[test]
    fn devices_with_an_lmc_take_as_many_addresses_each() {
        let configs = configs_of(&[
            ("SOFTHCA_DEVICES", "2"),
            ("SOFTHCA_IP", "127.73.9.240"),
            ("SOFTHCA_LINK", "ib"),
            ("SOFTHCA_LMC", "4"),
        ])
        .unwrap();
        let ips: Vec<_> = configs.iter().map(|config| config.ip.unwrap()).collect();
        let expected = [[127, 73, 9, 240], [127, 73, 10, 0]].map(Ipv4Addr::from);
        assert_eq!((ips, configs[1].lmc), (expected.to_vec(), 4));
    }

    #[test]
    fn devices_with_two_ports_take_two_addresses_each() {
        let configs = configs_of(&[
            ("SOFTHCA_DEVICES", "2"),
            ("SOFTHCA_IP", "127.9.8.1"),
            ("SOFTHCA_PORTS", "2"),
        ])
        .unwrap();
        let ips: Vec<_> = configs.iter().map(|config| config.ip.unwrap()).collect();
        let expected = [1, 3].map(|last| Ipv4Addr::new(127, 9, 8, last));
        assert_eq!((ips, configs[1].ports), (expected.to_vec(), 2));
    }

    #[test]
    fn faults_checks_and_carriers_are_read() {
        let configs = configs_of(&[
            ("SOFTHCA_FAULT", "seed=3,drop=1%"),
            ("SOFTHCA_CHECK", "all,quiet"),
            ("SOFTHCA_PROFILE", "bf3"),
            ("SOFTHCA_LINK", "ib"),
            ("SOFTHCA_IPV6", "fd00:5::"),
            ("SOFTHCA_PKEYS", "0xffff,0x8001"),
            ("SOFTHCA_ORDER", "atomics"),
            ("SOFTHCA_ADVERSARY", "9:500"),
            ("SOFTHCA_CARRIER", "packet:veth0"),
            ("SOFTHCA_PCAP", "/tmp/a.pcapng"),
            ("SOFTHCA_FINDINGS", "/tmp/f"),
        ])
        .unwrap();
        let config = &configs[0];
        assert_eq!(config.faults.as_ref().unwrap().seed, 3);
        assert_eq!(config.order, DataOrder::AtomicsOrdered);
        assert_eq!(config.adversary.unwrap().seed, 9);
        assert!(config.check.wqe_bytes && !config.check.print);
        assert_eq!(config.check.file, Some("/tmp/f".into()));
        assert!(matches!(config.carrier, CarrierConfig::Packet { .. }));
        assert_eq!(config.profile, Profile::BlueField3);
        assert_eq!(config.pcap, Some("/tmp/a.pcapng".into()));
        assert_eq!(config.link, Link::InfiniBand);
        assert_eq!(config.pkeys.keys(), [0xffff, 0x8001]);
        assert_eq!(config.ipv6.unwrap().to_string(), "fd00:5::/96");
        assert_eq!(configs_of(&[]).unwrap()[0].link, Link::Ethernet);
        assert!(configs_of(&[]).unwrap()[0].check.print);
    }

    #[test]
    fn an_objection_is_what_the_start_would_have_said() {
        assert_eq!(objection("SOFTHCA_FAULT", "drop=1%"), None);
        assert_eq!(objection("SOMETHING_ELSE", "?"), None);
        assert_eq!(
            objection("SOFTHCA_FAULT", "drop=2").unwrap(),
            "SOFTHCA_FAULT: fault \"drop=2\": \"2\" is not a chance from 0% to 100%, in steps of 0.0001%, or #N"
        );
        assert!(objection("SOFTHCA_CHECK", "al").unwrap().contains("\"al\""));
        assert!(objection("SOFTHCA_CARRIER", "tcp").unwrap().contains("tcp"));
    }

    #[test]
    fn a_bad_value_is_named_with_what_was_expected() {
        let table: &[(&'static [(&'static str, &'static str)], &str)] = &[
            (
                &[("SOFTHCA_DEVICES", "0")],
                "SOFTHCA_DEVICES=0 is not a number from 1 to 64",
            ),
            (
                &[("SOFTHCA_DEVICES", "65")],
                "SOFTHCA_DEVICES=65 is not a number from 1 to 64",
            ),
            (
                &[("SOFTHCA_DEVICES", "04")],
                "SOFTHCA_DEVICES=04 is not a number from 1 to 64",
            ),
            (
                &[("SOFTHCA_DEVICES", "many")],
                "SOFTHCA_DEVICES=many is not a number from 1 to 64",
            ),
            (
                &[("SOFTHCA_IP", "::1")],
                "SOFTHCA_IP=::1 is not an IPv4 address",
            ),
            (
                &[("SOFTHCA_CARRIER", "pigeon")],
                "SOFTHCA_CARRIER=pigeon is not udp, frames:ADDRESS:PORT,ADDRESS:PORT or packet:INTERFACE",
            ),
            (
                &[("SOFTHCA_IPV6", "fe80::")],
                "SOFTHCA_IPV6=fe80:: is not the first address of a /96 in 2000::/3 or fc00::/7, as fd00:5:: or fd00:5::/96",
            ),
            (
                &[("SOFTHCA_PKEYS", "0x8000")],
                "SOFTHCA_PKEYS=0x8000 is not 1 to 128 different partition keys as 0xffff,0x8001, no partition of which is 0",
            ),
            (
                &[("SOFTHCA_LMC", "8")],
                "SOFTHCA_LMC=8 is not a number from 0 to 7",
            ),
            (
                &[("SOFTHCA_LMC", "-1")],
                "SOFTHCA_LMC=-1 is not a number from 0 to 7",
            ),
            (&[("SOFTHCA_PORTS", "0")], "SOFTHCA_PORTS=0 is not 1 or 2"),
            (&[("SOFTHCA_PORTS", "3")], "SOFTHCA_PORTS=3 is not 1 or 2"),
            (&[("SOFTHCA_STRICT", "2")], "SOFTHCA_STRICT=2 is not 0 or 1"),
            (
                &[("SOFTHCA_LINK", "IB")],
                "SOFTHCA_LINK=IB is not ib or eth",
            ),
            (
                &[("SOFTHCA_IP", "255.255.255.255"), ("SOFTHCA_DEVICES", "2")],
                "SOFTHCA_IP=255.255.255.255 leaves no address for device 1",
            ),
        ];
        for (set, expected) in table {
            assert_eq!(configs_of(set).unwrap_err().to_string(), *expected);
        }
    }
}
