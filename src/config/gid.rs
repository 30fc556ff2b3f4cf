//! Which GID a rank sends from, as text.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::config::number::whole;

/// Which entry of a port's GID table a rank sends from. Indices differ between hosts and containers; subnets and interfaces do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GidChoice {
    /// The best entry: routable before link-local, then the lowest index.
    #[default]
    Auto,
    /// The entry at this index of the table.
    Index(u32),
    /// The best entry whose address is in this subnet.
    Subnet {
        /// Address of the subnet. The bits after the prefix are ignored.
        address: IpAddr,
        /// Bits of the prefix: at most 32 for IPv4, 128 for IPv6.
        prefix: u8,
    },
    /// The best entry of this network interface.
    Interface(String),
}

/// A text that names no GID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "GID '{value}': {reason}; it must be auto, an index, a subnet as 10.1.0.0/16, an address, or a network interface"
)]
pub struct BadGid {
    /// The text.
    pub value: String,
    /// Why the text names no GID.
    pub reason: String,
}

/// Longest name of a network interface: `IFNAMSIZ` of the kernel without the NUL.
const LONGEST_NAME: usize = 15;

impl GidChoice {
    /// Returns whether the choice allows the entry at `index`. `gid`: the address of the entry, IPv4 as `::ffff:a.b.c.d`. `interface`: the
    /// network interface to which the entry belongs.
    #[must_use]
    pub fn allows(&self, index: u32, gid: Ipv6Addr, interface: Option<&str>) -> bool {
        match self {
            Self::Auto => true,
            Self::Index(wanted) => *wanted == index,
            Self::Interface(wanted) => interface == Some(wanted),
            Self::Subnet { address, prefix } => match (address, gid.to_ipv4_mapped()) {
                (IpAddr::V4(subnet), Some(own)) => {
                    let differ = u32::from(*subnet) ^ u32::from(own);
                    differ
                        .checked_shr(32 - u32::from(*prefix).min(32))
                        .unwrap_or(0)
                        == 0
                }
                (IpAddr::V6(subnet), None) => {
                    let differ = u128::from(*subnet) ^ u128::from(gid);
                    differ
                        .checked_shr(128 - u32::from(*prefix).min(128))
                        .unwrap_or(0)
                        == 0
                }
                _ => false,
            },
        }
    }
}

impl FromStr for GidChoice {
    type Err = BadGid;

    /// Reads a choice such as `auto`, `3`, `10.1.0.0/16`, `fd00::/8`, `10.1.0.7` or `ens3`.
    fn from_str(text: &str) -> Result<Self, BadGid> {
        Self::parse(text.trim()).map_err(|reason| BadGid {
            value: text.chars().take(64).collect(),
            reason,
        })
    }
}

impl GidChoice {
    fn parse(text: &str) -> Result<Self, String> {
        let is_number =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if text == "auto" {
            return Ok(Self::Auto);
        }
        if is_number(text) || text.starts_with("0x") {
            let index = whole(text).ok_or("the index is no number, decimal or with 0x")?;
            let index = index.try_into();
            return index
                .map(Self::Index)
                .map_err(|_| format!("the index is above {}", u32::MAX));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            let prefix = bits(address);
            return Ok(Self::Subnet { address, prefix });
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let no_address = |_| format!("'{address}' is no IP address");
            let address: IpAddr = address.parse().map_err(no_address)?;
            let most = bits(address);
            let prefix = whole(prefix).and_then(|it| u8::try_from(it).ok());
            let prefix = prefix.filter(|it| *it <= most);
            let prefix = prefix.ok_or_else(|| format!("the prefix is not from 0 to {most}"))?;
            return Ok(Self::Subnet { address, prefix });
        }
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        match text {
            "" => Err("it is empty".to_owned()),
            "." | ".." => Err("no interface has this name".to_owned()),
            _ if text.len() > LONGEST_NAME => Err(format!(
                "the name of an interface has at most {LONGEST_NAME} bytes"
            )),
            _ if !text.bytes().all(is_name) => Err("no interface has this name".to_owned()),
            name => Ok(Self::Interface(name.to_owned())),
        }
    }
}

/// Returns the number of bits of an address.
fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Index(index) => write!(f, "{index}"),
            Self::Subnet { address, prefix } if *prefix == bits(*address) => write!(f, "{address}"),
            Self::Subnet { address, prefix } => write!(f, "{address}/{prefix}"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(text: &str) -> GidChoice {
        text.parse().unwrap()
    }

    #[test]
    fn choices_read_back_as_they_print() {
        for text in [
            "auto",
            "0",
            "4294967295",
            "10.1.0.0/16",
            "0.0.0.0/0",
            "10.1.0.7",
            "fd00::/8",
            "fe80::1",
            "ens3",
            "bond0.100",
            "enp41s0f1np1",
        ] {
            assert_eq!(choice(text).to_string(), text);
        }
        assert_eq!(choice("10.1.0.7/32"), choice("10.1.0.7"));
        assert_eq!(choice("3"), GidChoice::Index(3));
    }

    #[test]
    fn what_names_no_gid_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("4294967296", "index"),
            ("10.1.0.0/33", "from 0 to 32"),
            ("10.1.0.0/", "from 0 to 32"),
            ("10.1.0.0/+8", "from 0 to 32"),
            ("10.1.0.0/08", "from 0 to 32"),
            ("fd00::/129", "from 0 to 128"),
            ("10.1.0/16", "'10.1.0' is no IP address"),
            ("ens3/24", "'ens3' is no IP address"),
            ("an-interface-name", "at most 15"),
            ("..", "no interface"),
            ("en s3", "no interface"),
            ("ens3:0", "no interface"),
        ] {
            let error = text.parse::<GidChoice>().unwrap_err().to_string();
            assert!(error.contains(reason), "'{text}': {error}");
        }
    }

    #[test]
    fn a_subnet_allows_its_own_addresses_and_no_others() {
        let allows =
            |choice: &GidChoice, gid: &str| choice.allows(3, gid.parse().unwrap(), Some("ens3"));
        for (subnet, inside, outside) in [
            ("10.1.0.0/16", "::ffff:10.1.255.7", "::ffff:10.2.0.7"),
            ("10.1.0.0/16", "::ffff:10.1.0.0", "fe80::1"),
            ("10.1.2.3/16", "::ffff:10.1.9.9", "::ffff:11.1.2.3"),
            ("0.0.0.0/0", "::ffff:255.255.255.255", "fe80::1"),
            ("10.1.0.7", "::ffff:10.1.0.7", "::ffff:10.1.0.6"),
            ("fd00::/8", "fdff::1", "fe80::1"),
            ("::/0", "fe80::1", "::ffff:10.1.0.7"),
            ("fe80::1", "fe80::1", "fe80::2"),
        ] {
            let choice = choice(subnet);
            assert!(
                allows(&choice, inside) && !allows(&choice, outside),
                "{subnet}"
            );
        }
        assert!(allows(&choice("ens3"), "fe80::1") && !allows(&choice("ens4"), "fe80::1"));
        assert!(allows(&choice("3"), "fe80::1") && !allows(&choice("2"), "fe80::1"));
        assert!(!choice("ens3").allows(3, Ipv6Addr::LOCALHOST, None));
    }
}
