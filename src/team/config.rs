//! The configuration with which a rank joins a team, and the limits of a team.

use super::error::TeamError;
use super::holder::Holder;
use super::ranks::RankSet;
use crate::abi::MAX_RAILS;
use crate::config::{
    Config, Memory, OutOfRange, SignalOrder, TeamSettings, holds_settings, setters,
};
use crate::fabric::{Allowed, RailConfig};
use crate::verbs::{CqKind, Doorbell, QpConfig, Queues, Rung, Sharing};

/// Bytes of a heap besides its QPs: the line that swallows results of atomics, and the losses of alignment.
const SPARE: u64 = 4096;

/// The configuration with which a rank joins: the settings of the team, and the part of this rank in it. The settings can be read
/// as fields of this struct, too (`config.rank` is `config.settings.rank`). A rank that joins later passes its `generation` and the
/// `members` at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TeamConfig {
    /// The settings of the team. All ranks have the same, except for `rank` and `qps_per_peer`.
    pub settings: TeamSettings,
    /// The ranks that meet in [`JoinOptions::join`](super::JoinOptions::join). For a founder these are all founders, this rank among
    /// them. For a rank that joins a working team they are the members that it finds, without itself. Default `None`: all ranks.
    pub members: Option<RankSet>,
    /// Generation of this rank, from 1: another one for every process that takes the rank. Default 1.
    pub generation: u32,
    /// Takes [`QpModes::moe_order`](crate::config::QpModes::moe_order) even if the device does not keep it. For tests, which show
    /// that it breaks.
    pub(crate) order_unchecked: bool,
    /// The way in which HCAs reach device memory, in place of the first way that works. For the doctor, which tries each way.
    pub(crate) rung: Option<Rung>,
}

setters! {
    const TeamConfig {
        with_settings(settings: TeamSettings),
        with_members(members: Option<RankSet>),
        with_generation(generation: u32),
    }
}

holds_settings! { const TeamConfig }

/// Setters of the modes, one field at a time.
macro_rules! of_modes {
    ($($setter:ident = $of_modes:ident($field:ident: $kind:ty)),* $(,)?) => {
        impl TeamConfig {
            $(
                #[doc = concat!("The same with this [`QpModes::", stringify!($field), "`](crate::config::QpModes::", stringify!($field), ").")]
                #[must_use]
                pub const fn $setter(self, $field: $kind) -> Self {
                    let modes = self.settings.modes.$of_modes($field);
                    self.with_modes(modes)
                }
            )*
        }
    };
}

of_modes! {
    with_sharing = with_sharing(sharing: Sharing),
    with_doorbell = with_doorbell(doorbell: Option<Doorbell>),
    with_queues = with_queues(queues: Option<Queues>),
    with_memory = with_memory(memory: Option<Memory>),
    with_cq = with_cq(cq: CqKind),
    with_log_recv_depth = with_log_recv_depth(log_recv_depth: Option<u8>),
    with_direct = with_direct(direct: bool),
    with_order = with_moe_order(moe_order: Option<SignalOrder>),
    with_pci_relaxed = with_pci_relaxed(pci_relaxed: bool),
}

impl TeamConfig {
    /// Returns the configuration of founder `rank` of `ranks`, with all defaults.
    #[must_use]
    pub fn new(rank: u32, ranks: u32) -> Self {
        Self::with(TeamSettings::default().with_rank(rank).with_ranks(ranks))
    }

    /// Returns the configuration of a founder with the settings of `config`.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::with(config.settings)
    }

    /// Returns the configuration of a founder with `settings`.
    fn with(settings: TeamSettings) -> Self {
        Self {
            settings,
            members: None,
            generation: 1,
            order_unchecked: false,
            rung: None,
        }
    }

    /// Returns the configuration of a rank that joins a working team. `generation` is one that no process of this rank has had
    /// before. `members` are the members that the rank finds.
    #[must_use]
    pub fn joining(self, generation: u32, members: RankSet) -> Self {
        Self {
            generation,
            members: Some(members.without(self.rank)),
            ..self
        }
    }

    /// Returns the ranks that meet in [`JoinOptions::join`](super::JoinOptions::join). For a rank that joins later these are the
    /// members before it, without itself.
    #[must_use]
    pub fn members(&self) -> RankSet {
        self.members.unwrap_or(RankSet::first(self.ranks))
    }

    /// Returns whether this rank joins a team that works already: [`members`](Self::members) are named, and the rank is not one of
    /// them. If none are named, all ranks are founders, and one that does not come fails the team.
    #[must_use]
    pub fn joins(&self) -> bool {
        self.members
            .is_some_and(|members| !members.contains(self.rank))
    }

    /// Sets whether `order` is taken even if the device does not keep it. For tests, which show that it breaks.
    #[doc(hidden)]
    pub fn set_order_unchecked(&mut self, unchecked: bool) {
        self.order_unchecked = unchecked;
    }

    /// Sets the way in which HCAs reach device memory, in place of the first way that works.
    #[doc(hidden)]
    pub fn set_rung(&mut self, rung: Option<Rung>) {
        self.rung = rung;
    }

    /// Returns this rank and its generation.
    pub(in crate::team) fn holder(&self) -> Holder {
        Holder::new(self.rank, self.generation)
    }

    /// Returns the number of rails, of `rails`, of which all but one may be left out; 1 if none may be. A QP that has one user, or
    /// whose peer counts receives, cannot be used in place of another. All ranks have the same number.
    pub(in crate::team) fn rails_that_share(&self, rails: usize) -> u32 {
        let shares = self.modes.sharing == Sharing::Shared && self.modes.log_recv_depth.is_none();
        let rails = u32::try_from(rails).unwrap_or(u32::MAX);
        if shares {
            rails.min(self.qps_per_peer)
        } else {
            1
        }
    }

    /// Refuses values outside the limits.
    pub(in crate::team) fn check(&self, rails: u32) -> Result<(), TeamError> {
        if !(1..=MAX_RAILS).contains(&rails) {
            let limit = format!("1 to {MAX_RAILS}");
            return Err(TeamError::limit("number of rails", rails, limit));
        }
        self.settings.check()?;
        if self.rank >= self.ranks {
            return Err(TeamError::UnknownRank {
                rank: self.rank,
                ranks: self.ranks,
            });
        }
        if let Some(rank) = self.members().iter().find(|rank| *rank >= self.ranks) {
            let ranks = self.ranks;
            return Err(TeamError::UnknownRank { rank, ranks });
        }
        if self.generation == 0 {
            return Err(TeamError::limit("generation", 0, "at least 1"));
        }
        let need = self.needed_control_bytes_of(0, rails);
        if self.control_bytes != 0 && self.control_bytes < need {
            let limit = format!("at least {need} for {} QPs", self.qps_of(0, rails));
            return Err(TeamError::limit("control_bytes", self.control_bytes, limit));
        }
        Ok(())
    }

    /// Returns the number of QPs of this rank.
    #[must_use]
    pub fn qps(&self) -> u64 {
        u64::from(self.ranks.saturating_sub(1)) * u64::from(self.qps_per_peer)
    }

    /// Returns the number of QPs of this rank on rail `rail` of `rails`.
    #[must_use]
    pub(crate) fn qps_of(&self, rail: u32, rails: u32) -> u64 {
        let each = self.qps_per_peer / rails + u32::from(rail < self.qps_per_peer % rails);
        u64::from(self.ranks.saturating_sub(1)) * u64::from(each)
    }

    /// Returns the bytes of device memory that the QPs take with one rail, rounded up to pages.
    #[must_use]
    pub fn needed_control_bytes(&self) -> u64 {
        self.needed_control_bytes_of(0, 1)
    }

    /// Returns the bytes of device memory that the QPs of `rail` take.
    fn needed_control_bytes_of(&self, rail: u32, rails: u32) -> u64 {
        self.heap_bytes(rail, rails, self.any_shape().control_bytes())
    }

    /// Returns the bytes of a heap for the QPs of `rail`, each of which takes `each` bytes.
    fn heap_bytes(&self, rail: u32, rails: u32, each: u64) -> u64 {
        (self.qps_of(rail, rails) * each.next_multiple_of(128) + SPARE).next_multiple_of(4096)
    }

    /// Returns the room of rail `rail` of `rails`, with QPs of `shape` whose queues the HCA reaches as `rung` says.
    pub(in crate::team) fn rail(
        &self,
        rail: u32,
        rails: u32,
        shape: QpConfig,
        rung: Rung,
    ) -> Result<RailConfig, TeamError> {
        let length = |what, value: u64| {
            usize::try_from(value).map_err(|_| TeamError::limit(what, value, usize::MAX))
        };
        let control = match self.control_bytes {
            0 => self.heap_bytes(rail, rails, shape.control_bytes()),
            bytes => bytes,
        };
        let host = match shape.queues {
            Queues::Device => 0,
            Queues::Host => self.heap_bytes(rail, rails, shape.host_bytes()),
        };
        Ok(RailConfig {
            shape,
            rung,
            qps: length("mailboxes", self.qps_of(rail, rails))?,
            control_bytes: length("control_bytes", control)?,
            host_bytes: length("host queues", host)?,
        })
    }

    /// Returns the steps that this configuration allows on each ladder.
    pub(in crate::team) fn allowed(&self) -> Allowed {
        Allowed {
            doorbell: self.modes.doorbell,
            queues: self.modes.queues,
            windows: self.modes.memory,
            rung: self.rung,
        }
    }

    /// Returns the shape of the QPs on any device, with queues in device memory unless the configuration sets another place. The
    /// kind of doorbell is left open: it changes no length.
    pub(in crate::team) fn any_shape(&self) -> QpConfig {
        QpConfig {
            log_depth: self.log_depth.min(15),
            sharing: self.modes.sharing,
            queues: self.modes.queues.unwrap_or_default(),
            cq: self.modes.cq,
            log_recv_depth: self.modes.log_recv_depth.map(|log| log.min(15)),
            pkey: self.path.pkey,
            ..QpConfig::default()
        }
    }

    /// Returns the settings that all ranks must have alike: name and value.
    pub(in crate::team) fn agreed(&self, rails: u32) -> Vec<(String, String)> {
        let pairs = [
            ("number of ranks", u64::from(self.ranks)),
            ("room for windows", self.windows.into()),
            ("log_depth", self.log_depth.into()),
            ("number of rails", rails.into()),
        ];
        let mut pairs: Vec<_> = pairs
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into();
        // Kernels are compiled for one kind of sharing. A rank that writes with immediate counts on the peer's receives. How a QP
        // is rung, where its queues lie and how it completes may differ from rank to rank.
        pairs.push(("sharing".to_owned(), format!("{:?}", self.modes.sharing)));
        let recv = self
            .modes
            .log_recv_depth
            .map_or("none".to_owned(), |log| log.to_string());
        pairs.push(("log_recv_depth".to_owned(), recv));
        pairs.push(("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        pairs
    }
}

impl From<OutOfRange> for TeamError {
    fn from(
        OutOfRange {
            field,
            value,
            limit,
        }: OutOfRange,
    ) -> Self {
        Self::limit(field, value, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::QpModes;

    #[test]
    fn a_team_outside_its_limits_is_refused_by_value_and_limit() {
        let message = |config: TeamConfig| config.check(1).unwrap_err().to_string();
        let good = TeamConfig::new(0, 4);
        assert!(good.check(1).is_ok());
        assert_eq!(
            message(TeamConfig::new(4, 4)),
            "rank 4 is unknown: the team has ranks 0 to 3"
        );
        assert_eq!(
            message(TeamConfig::new(0, 0)),
            "ranks is 0; it must be 1 to 1024"
        );
        assert_eq!(
            message(good.with_qps_per_peer(65)),
            "qps_per_peer is 65; it must be 1 to 64"
        );
        assert_eq!(
            message(good.with_generation(0)),
            "generation is 0; it must be at least 1"
        );
        for windows in [0, 1025] {
            let text = format!("windows is {windows}; it must be 1 to 1024");
            assert_eq!(message(good.with_windows(windows)), text);
        }
        assert!(good.with_windows(1024).check(1).is_ok());
        assert!(
            message(good.with_control_bytes(4096))
                .contains("control_bytes is 4096; it must be at least")
        );
    }

    #[test]
    fn modes_of_qps_become_those_of_the_team() {
        let modes = QpModes {
            sharing: Sharing::Cta,
            doorbell: Some(Doorbell::Mailbox),
            queues: Some(Queues::Host),
            memory: Some(Memory::Host),
            cq: CqKind::Wide,
            log_recv_depth: Some(5),
            direct: true,
            moe_order: Some(SignalOrder::Flush),
            pci_relaxed: true,
        };
        let default = TeamConfig::new(0, 2);
        assert_eq!(default.with_modes(QpModes::default()), default);
        assert_eq!(default.with_modes(modes).modes, modes);
        let one_by_one = default
            .with_sharing(modes.sharing)
            .with_doorbell(modes.doorbell)
            .with_queues(modes.queues)
            .with_memory(modes.memory)
            .with_cq(modes.cq)
            .with_log_recv_depth(modes.log_recv_depth)
            .with_direct(modes.direct)
            .with_order(modes.moe_order)
            .with_pci_relaxed(modes.pci_relaxed);
        assert_eq!(one_by_one.modes, modes);
    }

    #[test]
    fn eight_ranks_with_four_qps_per_peer_fit_into_4_mib() {
        assert!(TeamConfig::new(0, 8).needed_control_bytes() <= 4 << 20);
    }
}
