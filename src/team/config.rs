//! How a rank joins a team, and the limits of a team.

use std::time::Duration;

use super::TeamError;
use crate::abi::MAX_RAILS;
use crate::verbs::QpConfig;

/// Most ranks of a team.
pub const MAX_RANKS: u32 = 1024;
/// Most QPs to one peer.
pub const MAX_QPS_PER_PEER: u32 = 64;
/// Most windows of a team: rows of the peer table.
pub const MAX_WINDOWS: u32 = 16;

/// How a rank joins. All ranks say the same, except for `rank`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamConfig {
    /// This rank, below `ranks`.
    pub rank: u32,
    /// Ranks of the team, 1 to 1,024.
    pub ranks: u32,
    /// QPs to each peer, 1 to 64. Default 4: dispatch and combine, two sets each.
    pub qps_per_peer: u32,
    /// log2 of a send queue's WQEBBs. Default 10.
    pub log_depth: u8,
    /// Device memory for the contexts, rings and flags of each rail's QPs, in bytes; 0 takes what they need. Default 0.
    pub control_bytes: u64,
    /// Longest wait for other ranks, here and in every collective call. Default 30 s.
    pub timeout: Duration,
    /// Longest wait of a device call. Default 1 s.
    pub deadline: Duration,
    /// The HCA's retransmission timeout 4.096 us · 2^n, 12 to 20. Default 14; the software HCA gets 17, since its host may let
    /// it wait.
    pub ack_timeout: Option<u8>,
    /// Mark ranks of the same process and device in the peer table, so that kernels that open a path reach them by load and
    /// store. Default true; kernels that post to QPs do not look at it.
    pub direct: bool,
}

impl TeamConfig {
    /// Rank `rank` of `ranks`, with all defaults.
    #[must_use]
    pub fn new(rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            qps_per_peer: 4,
            log_depth: 10,
            control_bytes: 0,
            timeout: Duration::from_secs(30),
            deadline: Duration::from_secs(1),
            ack_timeout: None,
            direct: true,
        }
    }

    /// Refuses what is outside the limits.
    pub(super) fn check(&self, rails: u32) -> Result<(), TeamError> {
        if !(1..=MAX_RAILS).contains(&rails) {
            let limit = format!("1 to {MAX_RAILS}");
            return Err(TeamError::limit("number of rails", rails, limit));
        }
        if !(1..=MAX_RANKS).contains(&self.ranks) {
            return Err(TeamError::limit(
                "ranks",
                self.ranks,
                format!("1 to {MAX_RANKS}"),
            ));
        }
        if self.rank >= self.ranks {
            return Err(TeamError::UnknownRank {
                rank: self.rank,
                ranks: self.ranks,
            });
        }
        if !(1..=MAX_QPS_PER_PEER).contains(&self.qps_per_peer) {
            let limit = format!("1 to {MAX_QPS_PER_PEER}");
            return Err(TeamError::limit("qps_per_peer", self.qps_per_peer, limit));
        }
        let need = self.needed_control_bytes_of(0, rails);
        if self.control_bytes != 0 && self.control_bytes < need {
            let limit = format!("at least {need} for {} QPs", self.qps_of(0, rails));
            return Err(TeamError::limit("control_bytes", self.control_bytes, limit));
        }
        Ok(())
    }

    /// QPs of this rank.
    #[must_use]
    pub fn qps(&self) -> u64 {
        u64::from(self.ranks.saturating_sub(1)) * u64::from(self.qps_per_peer)
    }

    /// QPs of this rank that run on `rail` of `rails`.
    #[must_use]
    pub fn qps_of(&self, rail: u32, rails: u32) -> u64 {
        let each = self.qps_per_peer / rails + u32::from(rail < self.qps_per_peer % rails);
        u64::from(self.ranks.saturating_sub(1)) * u64::from(each)
    }

    /// Device memory that the QPs take with one rail, rounded up to pages.
    #[must_use]
    pub fn needed_control_bytes(&self) -> u64 {
        self.needed_control_bytes_of(0, 1)
    }

    /// Device memory that the QPs of `rail` take.
    fn needed_control_bytes_of(&self, rail: u32, rails: u32) -> u64 {
        let depth = 1u32 << self.log_depth.min(15);
        let each = crate::abi::control_bytes(depth).next_multiple_of(128);
        (self.qps_of(rail, rails) * each)
            .next_multiple_of(4096)
            .max(4096)
    }

    /// Device memory that `rail` gets for its QPs.
    pub(super) fn control_bytes_of(&self, rail: u32, rails: u32) -> u64 {
        match self.control_bytes {
            0 => self.needed_control_bytes_of(rail, rails),
            bytes => bytes,
        }
    }

    /// The shape of its QPs.
    pub(super) fn shape(&self) -> QpConfig {
        QpConfig {
            log_depth: self.log_depth,
            ..QpConfig::default()
        }
    }

    /// What must agree between the ranks: name and value.
    pub(super) fn agreed(&self, rails: u32) -> Vec<(String, String)> {
        let pairs = [
            ("number of ranks", u64::from(self.ranks)),
            ("QPs per peer", self.qps_per_peer.into()),
            ("log_depth", self.log_depth.into()),
            ("number of rails", rails.into()),
        ];
        let mut pairs: Vec<_> = pairs
            .map(|(name, value)| (name.to_owned(), value.to_string()))
            .into();
        pairs.push(("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let qps = TeamConfig {
            qps_per_peer: 65,
            ..good
        };
        assert_eq!(message(qps), "qps_per_peer is 65; it must be 1 to 64");
        let small = TeamConfig {
            control_bytes: 4096,
            ..good
        };
        assert!(message(small).contains("control_bytes is 4096; it must be at least"));
    }

    #[test]
    fn eight_ranks_with_four_qps_per_peer_fit_into_4_mib() {
        assert!(TeamConfig::new(0, 8).needed_control_bytes() <= 4 << 20);
    }
}
