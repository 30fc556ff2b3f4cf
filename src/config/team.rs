//! What ranks of a team settle with each other.

use std::time::Duration;

use crate::config::error::ConfigError;
use crate::config::limits::MAX_WINDOWS;
use crate::config::modes::QpModes;
use crate::config::path::PathConfig;
use crate::config::setters::setters;
use crate::config::source::{OutOfRange, Source, in_table};

/// The settings of a team: those of a process ([`Config`](super::Config)) and of one team in it
/// ([`TeamConfig`](crate::team::TeamConfig)), which both hold them. All members pass the same values, except for `rank` and
/// `qps_per_peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamSettings {
    /// This rank, below `ranks`. `WARPVERBS_RANK`, or the launcher's.
    pub rank: u32,
    /// Places for ranks, 1 to 1,024: each rank has QPs and keys for every other place, and no table ever grows. `WARPVERBS_RANKS`,
    /// or the launcher's.
    pub ranks: u32,
    /// Longest wait for other ranks while a team is built, and in every collective call. `WARPVERBS_JOIN_TIMEOUT_MS`. Default 30 s.
    pub join_timeout: Duration,
    /// Longest wait of a device call. `WARPVERBS_DEADLINE_MS`. Default 1 s.
    pub deadline: Duration,
    /// QPs to each peer at most, 1 to 64. The founder that asks for the fewest decides, and a rank that joins later takes what the
    /// members have; [`Team::config`](crate::team::Team::config) says what came of it. `WARPVERBS_QPS_PER_PEER`. Default 4: dispatch
    /// and combine, two sets each.
    pub qps_per_peer: u32,
    /// log2 of a send queue's WQEBBs, 8 to 15. `WARPVERBS_LOG_DEPTH`. Default 10.
    pub log_depth: u8,
    /// Largest number of windows, 1 to 1,024; a MoE layer takes three. Each takes 16 bytes of device memory by rail and rank.
    /// `WARPVERBS_WINDOWS`. Default 16.
    pub windows: u32,
    /// Device memory for the contexts, rings and flags of each rail's QPs, in bytes; 0 takes what they need.
    /// `WARPVERBS_CONTROL_BYTES`. Default 0.
    pub control_bytes: u64,
    /// How its QPs work, and where their memory and that of windows lies.
    pub modes: QpModes,
    /// How packets go to the peers.
    pub path: PathConfig,
}

/// Passes the setter, name and type of each setting to a macro, after what stands before.
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

/// The setters of [`TeamSettings`] for a struct that holds them as `settings`, and its fields as if they were the struct's own. They
/// are const where `const` stands before the type.
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
            // As in `setters!`.
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
    /// Those of rank `rank` of `ranks`.
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

    /// The first that is outside its limits; a rank that the team does not have is the caller's to find. A program may take shorter
    /// queues than a variable allows.
    pub(crate) fn check(&self) -> Result<(), OutOfRange> {
        in_table("ranks", Some(self.ranks))?;
        in_table("qps_per_peer", Some(self.qps_per_peer))?;
        in_table("windows", Some(self.windows))?;
        self.path.check()
    }
}
