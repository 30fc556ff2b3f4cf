//! Which RDMA devices a rank or an engine uses, as text.

use std::fmt;
use std::str::FromStr;

use crate::config::number::whole;

/// Which RDMA devices a rank or an engine uses: one for each rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The best device for the rank's GPU, of those that are not left out. An engine may take several.
    Auto {
        /// Devices, or ports of them, that are left out.
        without: Vec<PortName>,
    },
    /// The devices with these names, and no others.
    Named(Vec<PortName>),
}

/// The name of an RDMA device, and the number of a port if the text names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortName {
    /// Name of the device in the kernel, such as `mlx5_3`.
    pub device: String,
    /// Port, from 1.
    pub port: Option<u8>,
}

/// A text that names no devices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "RDMA devices '{value}': {reason}; it must be auto, NAME, NAME:PORT, several of those separated by commas, or ^ and those that are left out"
)]
pub struct BadDevices {
    /// The text.
    pub value: String,
    /// Why the text names no devices.
    pub reason: String,
}

/// Longest name of an RDMA device: `IB_DEVICE_NAME_MAX` of the kernel without the NUL.
const LONGEST_NAME: usize = 63;

impl Default for DeviceChoice {
    fn default() -> Self {
        Self::Auto {
            without: Vec::new(),
        }
    }
}

impl DeviceChoice {
    /// Returns whether `auto` chooses the devices.
    #[must_use]
    pub fn is_auto(&self) -> bool {
        matches!(self, Self::Auto { .. })
    }

    /// Returns whether the configuration leaves out this port.
    #[must_use]
    pub fn leaves_out(&self, device: &str, port: u8) -> bool {
        let Self::Auto { without } = self else {
            return false;
        };
        let is_it =
            |name: &PortName| name.device == device && name.port.is_none_or(|it| it == port);
        without.iter().any(is_it)
    }
}

impl FromStr for DeviceChoice {
    type Err = BadDevices;

    /// Reads a choice such as `auto`, `mlx5_3`, `mlx5_3:2`, `mlx5_0,mlx5_1` or `^mlx5_bond_0`.
    fn from_str(text: &str) -> Result<Self, BadDevices> {
        let bad = |reason: String| BadDevices {
            value: text.chars().take(256).collect(),
            reason,
        };
        match text.trim().strip_prefix('^') {
            None if text.trim() == "auto" => Ok(Self::default()),
            None => names(text).map(Self::Named).map_err(bad),
            Some(left_out) => {
                let without = names(left_out).map_err(bad)?;
                Ok(Self::Auto { without })
            }
        }
    }
}

/// Returns the names in a list with commas.
fn names(list: &str) -> Result<Vec<PortName>, String> {
    let mut names: Vec<PortName> = Vec::new();
    for word in list.split(',').map(str::trim) {
        let name = PortName::parse(word)?;
        let is_same = |known: &PortName| {
            let both = known.port.zip(name.port);
            known.device == name.device && both.is_none_or(|(one, other)| one == other)
        };
        if names.iter().any(is_same) {
            return Err(format!("'{word}' is named twice"));
        }
        names.push(name);
    }
    Ok(names)
}

impl PortName {
    fn parse(word: &str) -> Result<Self, String> {
        let (device, port) = match word.split_once(':') {
            Some((device, port)) => (device, Some(port)),
            None => (word, None),
        };
        let is_name = |byte: u8| byte.is_ascii_graphic() && !b"^:/,".contains(&byte);
        match device {
            "" => return Err("a name is empty".to_owned()),
            "auto" => return Err("auto stands alone".to_owned()),
            _ if device.len() > LONGEST_NAME => {
                return Err(format!("a name is longer than {LONGEST_NAME} bytes"));
            }
            _ if !device.bytes().all(is_name) => {
                return Err(format!("'{device}' is no name of a device"));
            }
            _ => {}
        }
        let number = |port: &str| {
            let number = whole(port).and_then(|it| u8::try_from(it).ok());
            let number = number.filter(|number| *number != 0);
            number.ok_or_else(|| format!("port '{port}' is not from 1 to 255"))
        };
        Ok(Self {
            device: device.to_owned(),
            port: port.map(number).transpose()?,
        })
    }
}

impl fmt::Display for PortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, names) = match self {
            Self::Auto { without } if without.is_empty() => return f.write_str("auto"),
            Self::Auto { without } => ("^", without),
            Self::Named(names) => ("", names),
        };
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        write!(f, "{before}{}", names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_read_back_as_they_print() {
        for text in [
            "auto",
            "mlx5_3",
            "mlx5_3:2",
            "mlx5_3:255",
            "mlx5_0,mlx5_1",
            "mlx5_0:1,mlx5_0:2",
            "^mlx5_bond_0",
            "^mlx5_bond_0,mlx5_4:2",
            "rocep1s0f0",
        ] {
            let choice: DeviceChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            assert_eq!(choice == DeviceChoice::default(), text == "auto");
        }
        let spaced: DeviceChoice = " mlx5_0 , mlx5_1 ".parse().unwrap();
        assert_eq!(spaced.to_string(), "mlx5_0,mlx5_1");
        let longest = "m".repeat(LONGEST_NAME);
        assert!(longest.parse::<DeviceChoice>().is_ok());
    }

    #[test]
    fn what_names_no_device_is_refused_with_the_reason() {
        let too_long = "m".repeat(LONGEST_NAME + 1);
        for (text, reason) in [
            ("", "empty"),
            ("^", "empty"),
            ("mlx5_0,", "empty"),
            (":1", "empty"),
            ("mlx5_0,mlx5_0", "twice"),
            ("mlx5_0,mlx5_0:1", "twice"),
            ("mlx5_0:2,mlx5_0:2", "twice"),
            ("auto,mlx5_0", "auto stands alone"),
            ("^auto", "auto stands alone"),
            ("mlx5_0,^mlx5_1", "no name"),
            ("../mlx5_0", "no name"),
            ("mlx5 0", "no name"),
            ("mlx5_0:0", "port '0'"),
            ("mlx5_0:256", "port '256'"),
            ("mlx5_0:+1", "port '+1'"),
            ("mlx5_0:01", "port '01'"),
            ("mlx5_0:", "port ''"),
            ("mlx5_0:1:2", "port '1:2'"),
            (&too_long, "longer than 63"),
        ] {
            let error = text.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(error.contains(reason), "'{text}': {error}");
        }
    }

    #[test]
    fn a_port_is_left_out_by_its_device_or_by_itself() {
        let choice: DeviceChoice = "^mlx5_bond_0,mlx5_4:2".parse().unwrap();
        assert!(choice.leaves_out("mlx5_bond_0", 1) && choice.leaves_out("mlx5_4", 2));
        assert!(!choice.leaves_out("mlx5_4", 1) && !choice.leaves_out("mlx5_bond_00", 1));
        let named: DeviceChoice = "mlx5_4".parse().unwrap();
        assert!(!named.leaves_out("mlx5_4", 1));
        assert!(choice.is_auto() && !named.is_auto());
    }
}
