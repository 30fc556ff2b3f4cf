//! The settings that the ranks of a team share.

use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::limits::MAX_WINDOWS;
use crate::config::modes::QpModes;
use crate::config::path::PathConfig;
use crate::config::setters::setters;
use crate::config::source::{OutOfRange, Source, in_table};

/// The settings of a team. A process ([`Config`](super::Config)) and one team in it ([`TeamConfig`](crate::team::TeamConfig)) both hold
/// them. All members pass equal values, except for `rank` and `qps_per_peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamSettings {
    /// Number of this rank, below `ranks`. `WARPVERBS_RANK`, or the launcher's variable.
    pub rank: u32,
    /// Number of slots for ranks, 1 to 1,024. Each rank has QPs and keys for every other slot, and no table ever grows. `WARPVERBS_RANKS`,
    /// or the launcher's variable.
    pub ranks: u32,
    /// Longest wait for other ranks while a team is built, and in every collective call. `WARPVERBS_JOIN_TIMEOUT_MS`. Default 30 s.
    pub join_timeout: Duration,
    /// Longest wait of a device call. `WARPVERBS_DEADLINE_MS`. Default 1 s.
    pub deadline: Duration,
    /// Most QPs to each peer, 1 to 64. The founder that asks for the fewest decides, and a rank that joins later takes the number that the
    /// members have. [`Team::config`](crate::team::Team::config) says which number that is. `WARPVERBS_QPS_PER_PEER`. Default 4: two sets
    /// each for dispatch and combine.
    pub qps_per_peer: u32,
    /// log2 of a send queue's WQEBBs, 8 to 15. `WARPVERBS_LOG_DEPTH`. Default 10.
    pub log_depth: u8,
    /// Largest number of windows, 1 to 1,024. A MoE layer takes three. Each window takes 16 bytes of device memory for each rail and rank.
    /// `WARPVERBS_WINDOWS`. Default 16.
    pub windows: u32,
    /// Bytes of device memory for the contexts, rings and flags of each rail's QPs; 0 takes as much as they need.
    /// `WARPVERBS_CONTROL_BYTES`. Default 0.
    pub control_bytes: u64,
    /// The modes of the team's QPs, and in which memory the QPs' queues and windows lie.
    pub modes: QpModes,
    /// How packets go to the peers.
    pub path: PathConfig,
}

/// Passes the setter, name and type of each setting to a macro, after the tokens in `$before`.
macro_rules! each_setting {
    ($macro:ident! { $($before:tt)* }) => {
        $crate::config::$macro! { $($before)* {
            with_rank(rank: u32),
            with_ranks(ranks: u32),
            with_join_timeout(join_timeout: std::time::Duration),
            with_deadline(deadline: std::time::Duration),
            with_qps_per_peer(qps_per_peer: u32),
            with_log_depth(log_depth: u8),
            with_windows(windows: u32),
            with_control_bytes(control_bytes: u64),
            with_modes(modes: $crate::config::QpModes),
            with_path(path: $crate::config::PathConfig),
        } }
    };
}
pub(crate) use each_setting;

each_setting!(setters! { const TeamSettings });

/// Defines the setters of [`TeamSettings`] for a struct that holds them as `settings`, and lets the settings be used like fields of that
/// struct. The setters are const if `const` stands before the type.
macro_rules! holds_settings {
    (const $type:ident) => {
        holds_settings! { [const] $type }
    };
    ($type:ident) => {
        holds_settings! { [] $type }
    };
    ([$($const:tt)?] $type:ident) => {
        $crate::config::each_setting!(holds_settings! { @ [$($const)?] $type });

        impl std::ops::Deref for $type {
            type Target = crate::config::TeamSettings;

            fn deref(&self) -> &Self::Target {
                &self.settings
            }
        }

        impl std::ops::DerefMut for $type {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.settings
            }
        }
    };
    (@ $const:tt $type:ident { $($setter:ident($field:ident: $value:ty),)+ }) => {
        impl $type {
            $($crate::config::holds_settings! { @@ $const $setter $field $value })+
        }
    };
    (@@ [$($const:tt)?] $setter:ident $field:ident $value:ty) => {
        #[doc = concat!("The same with this [`TeamSettings::", stringify!($field), "`](crate::config::TeamSettings::", stringify!($field), ").")]
        #[must_use]
        pub $($const)? fn $setter(self, $field: $value) -> Self {
            // The reason is the same as in `setters!`: no `mut self`.
            let settings = self.settings.$setter($field);
            Self { settings, ..self }
        }
    };
}
pub(crate) use holds_settings;

impl Default for TeamSettings {
    fn default() -> Self {
        Self {
            rank: 0,
            ranks: 1,
            join_timeout: Duration::from_secs(30),
            deadline: Duration::from_secs(1),
            qps_per_peer: 4,
            log_depth: 10,
            windows: MAX_WINDOWS,
            control_bytes: 0,
            modes: QpModes::default(),
            path: PathConfig::default(),
        }
    }
}

impl TeamSettings {
    /// Returns the settings of rank `rank` of `ranks`.
    pub(super) fn read(source: &Source<'_>, rank: u32, ranks: u32) -> Result<Self, ConfigError> {
        Ok(Self {
            rank,
            ranks,
            join_timeout: source.milliseconds("WARPVERBS_JOIN_TIMEOUT_MS")?,
            deadline: source.milliseconds("WARPVERBS_DEADLINE_MS")?,
            qps_per_peer: source.number("WARPVERBS_QPS_PER_PEER")?,
            log_depth: source.number("WARPVERBS_LOG_DEPTH")?,
            windows: source.number("WARPVERBS_WINDOWS")?,
            control_bytes: source
                .optional("WARPVERBS_CONTROL_BYTES")?
                .unwrap_or_default(),
            modes: QpModes::read(source)?,
            path: PathConfig::read(source)?,
        })
    }

    /// Checks the settings. The error names the first one that is outside its limits. The caller finds a rank that the team does not have.
    /// A program may take shorter queues than a variable allows.
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        in_table("ranks", Some(self.ranks))?;
        in_table("qps_per_peer", Some(self.qps_per_peer))?;
        in_table("windows", Some(self.windows))?;
        self.path.check()
    }
}
