//! How packets of a QP go to the peer, where the caller may choose.

use super::{ConfigError, number, setters, word};

/// How packets of a QP go to the peer, where the caller may choose. Values that a port cannot have are refused when paths are
/// made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PathConfig {
    /// Own GID, by index; no variable. Default the one that the device was opened to speak from, which `WARPVERBS_GID` names
    /// ([`Context::own_gid`](crate::verbs::Context::own_gid)).
    pub gid_index: Option<u32>,
    /// Partition key, by value. `WARPVERBS_PKEY`, such as `0x8001`; default the first of the port.
    pub pkey: Option<u16>,
    /// Port of a link aggregation group that packets leave by, from 1. `WARPVERBS_LAG_PORT`; default: the QPs to a peer take the
    /// ports in turn.
    pub lag_port: Option<u8>,
    /// When packets have a global route header on InfiniBand. `WARPVERBS_GRH`: `auto`, `always`, `never`.
    pub grh: GrhUse,
    /// IP traffic class, or that of the GRH. `WARPVERBS_TRAFFIC_CLASS`, 0 to 255; default what the system has set for the port
    /// ([`Context::traffic_class`](crate::verbs::Context::traffic_class)).
    pub traffic_class: Option<u8>,
    /// Ethernet priority. `WARPVERBS_PRIORITY`, 0 to 7; default 0.
    pub priority: u8,
    /// InfiniBand service level. `WARPVERBS_SERVICE_LEVEL`, 0 to 15; default 0.
    pub service_level: u8,
    /// IP time to live, or hop limit of the GRH. `WARPVERBS_HOP_LIMIT`, 1 to 255; default 64.
    pub hop_limit: u8,
    /// PRM code of the delay that a receiver-not-ready answer asks for. `WARPVERBS_MIN_RNR_TIMER`, 0 to 31; default 12 (0.64 ms).
    pub min_rnr_timer: u8,
}

/// When packets have a global route header on InfiniBand. RoCE packets always have their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrhUse {
    /// Where the subnets of both ports differ, or one of them demands it.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never; a peer that needs one is refused.
    Never,
}

setters! {
    const PathConfig {
        with_gid_index(gid_index: Option<u32>),
        with_pkey(pkey: Option<u16>),
        with_lag_port(lag_port: Option<u8>),
        with_grh(grh: GrhUse),
        with_traffic_class(traffic_class: Option<u8>),
        with_priority(priority: u8),
        with_service_level(service_level: u8),
        with_hop_limit(hop_limit: u8),
        with_min_rnr_timer(min_rnr_timer: u8),
    }
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            gid_index: None,
            pkey: None,
            lag_port: None,
            grh: GrhUse::Auto,
            traffic_class: None,
            priority: 0,
            service_level: 0,
            hop_limit: 64,
            min_rnr_timer: 12,
        }
    }
}

impl PathConfig {
    /// That of this process, from its environment.
    ///
    /// # Errors
    /// A value that a variable cannot have.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables.
    ///
    /// # Errors
    /// As [`PathConfig::from_env`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        let byte = |name: &str, least: u8, most: u8, default: u8| {
            let value = number(&variable, name, least.into(), most.into(), default.into())?;
            Ok(u8::try_from(value).expect("at most `most`"))
        };
        let class = byte("WARPVERBS_TRAFFIC_CLASS", 0, u8::MAX, 0)?;
        let has_class = variable("WARPVERBS_TRAFFIC_CLASS").is_some();
        Ok(Self {
            gid_index: None,
            pkey: pkey(&variable)?,
            lag_port: match byte("WARPVERBS_LAG_PORT", 0, 15, 0)? {
                0 => None,
                port => Some(port),
            },
            grh: word(&variable, "WARPVERBS_GRH", &GRH)?,
            traffic_class: has_class.then_some(class),
            priority: byte("WARPVERBS_PRIORITY", 0, 7, 0)?,
            service_level: byte("WARPVERBS_SERVICE_LEVEL", 0, 15, 0)?,
            hop_limit: byte("WARPVERBS_HOP_LIMIT", 1, u8::MAX, 64)?,
            min_rnr_timer: byte("WARPVERBS_MIN_RNR_TIMER", 0, 31, 12)?,
        })
    }
}

/// What `WARPVERBS_PKEY` names: 16 bits, decimal or with `0x`.
fn pkey(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<u16>, ConfigError> {
    const NAME: &str = "WARPVERBS_PKEY";
    let Some(value) = variable(NAME) else {
        return Ok(None);
    };
    let read = match value.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => value.parse(),
    };
    match read {
        Ok(key) if key != 0 => Ok(Some(key)),
        _ => Err(ConfigError::Number {
            name: NAME.to_owned(),
            value,
            least: 1,
            most: u16::MAX.into(),
        }),
    }
}

/// Words of `WARPVERBS_GRH`.
const GRH: [(&str, GrhUse); 3] = [
    ("auto", GrhUse::Auto),
    ("always", GrhUse::Always),
    ("never", GrhUse::Never),
];
