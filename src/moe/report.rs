//! How a call went, read from its handle.

use std::fmt;

use super::fault::{Fault, PHASES};
use crate::abi::{CallStage, MoeHandle, MoeHandlePeer, NONE, Outcome, Status};

/// One call at one rank: how each phase ended, and what became of each peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CallReport {
    /// The rank that made the call.
    pub rank: u32,
    /// The number of the call.
    pub call: u32,
    /// The epoch of the call, low 16 bits.
    pub epoch: u32,
    /// The stage of the call.
    pub stage: CallStage,
    /// The results of dispatch send, dispatch receive, combine send and combine receive. Only those up to `stage` have run.
    pub phases: [Status; 4],
    /// The first choice that dispatch refused: token and expert id. A 64-bit id that does not fit into 32 bits is replaced by the
    /// nearest 32-bit number.
    pub refused: Option<(u32, i32)>,
    /// The fault that showed first, if the call is not complete.
    pub fault: Option<Fault>,
    /// The dispatch of the call has offered the staging memory for a combine with zero-copy.
    pub offered: bool,
    /// The call found no free send buffer before its deadline, and so sent nothing.
    pub no_buffer: bool,
    /// The number of calls of the layer at this rank, up to this one, that found no free send buffer. Wraps.
    pub unbuffered: u32,
    /// The state of the call for each peer, by rank.
    pub peers: Vec<MoeHandlePeer>,
}

impl CallReport {
    pub(super) fn new(rank: u32, handle: &MoeHandle, peers: Vec<MoeHandlePeer>) -> Self {
        let refused = (handle.refused != u64::MAX && handle.stage != CallStage::FRESH).then(|| {
            let [a, b, c, d, e, f, g, h] = handle.refused.to_be_bytes();
            (
                u32::from_be_bytes([a, b, c, d]),
                i32::from_be_bytes([e, f, g, h]),
            )
        });
        Self {
            rank,
            call: handle.call,
            epoch: handle.epoch,
            stage: handle.stage,
            phases: handle.phase,
            refused,
            fault: Fault::new(&handle.fault),
            offered: handle.offered != 0,
            no_buffer: handle.stage != CallStage::FRESH && handle.buffer == NONE,
            unbuffered: handle.unbuffered,
            peers,
        }
    }

    /// Returns whether every phase that was called so far succeeded for every peer. A phase did not succeed if it did nothing:
    /// because the call was at another phase, or because a later call was received before.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let good = self.phases.iter().all(|status| *status == Status::OK);
        let used = self.stage != CallStage::FRESH;
        good && used && self.peers.iter().all(|peer| self.trouble(peer).is_none())
    }

    /// Returns the ranks with which a phase so far did not succeed.
    pub fn troubled(&self) -> impl Iterator<Item = u32> {
        let ranks = (0..).zip(&self.peers);
        ranks.filter_map(|(rank, peer)| self.trouble(peer).map(|_| rank))
    }

    /// Returns in words what went wrong with one peer; none if nothing did.
    fn trouble(&self, peer: &MoeHandlePeer) -> Option<String> {
        if peer.active == 0 {
            return None;
        }
        let outcomes = [
            (peer.dispatch_sent, Outcome::SENT),
            (peer.dispatch_received, Outcome::ACCEPTED),
            (peer.combine_sent, Outcome::SENT),
            (peer.combine_received, Outcome::ACCEPTED),
        ];
        let ran = PHASES.iter().zip(outcomes).take(self.stage.0 as usize);
        let mut words: Vec<String> = ran
            .filter(|(_, (is, wanted))| is != wanted)
            .map(|(phase, (is, _))| format!("{phase} {is}"))
            .collect();
        if self.stage.0 >= CallStage::DISPATCHED.0 && peer.malformed != 0 {
            words.push(format!(
                "{} rows with a header out of range",
                peer.malformed
            ));
        }
        if self.stage == CallStage::COMBINED && peer.rows_combined != peer.rows_sent {
            words.push(format!(
                "{} of {} rows came back",
                peer.rows_combined, peer.rows_sent
            ));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} of rank {}", self.call, self.rank)?;
        let mut parts = Vec::new();
        if let Some((token, expert)) = self.refused {
            parts.push(format!(
                "token {token} chooses expert {expert}, which is out of range or chosen twice"
            ));
        }
        if self.no_buffer {
            parts.push(
                "HCAs still read all send buffers of dispatch, so it sent nothing; make the layer with more failing_links"
                    .to_owned(),
            );
        }
        for (number, (phase, status)) in (0..).zip(PHASES.iter().zip(self.phases)) {
            parts.extend(match status {
                Status::OK => None,
                Status::CLOSED => Some(format!(
                    "{phase} did nothing, since a later call of the layer was received before: receive calls in the order in which \
                     they were sent"
                )),
                Status::INVALID if number >= self.stage.0 => Some(format!(
                    "{phase} did nothing: it does not follow what the call has done, or the layer does not hold what it asks"
                )),
                status => Some(format!("{phase} ended with {status}")),
            });
        }
        for (rank, peer) in self.peers.iter().enumerate() {
            if let Some(words) = self.trouble(peer) {
                parts.push(format!("rank {rank}: {words}"));
            }
        }
        if let Some(fault) = &self.fault {
            parts.push(format!("first: {fault}"));
        }
        if parts.is_empty() {
            return f.write_str(" is complete");
        }
        write!(f, ": {}", parts.join("; "))
    }
}

impl std::error::Error for CallReport {}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    fn peer() -> MoeHandlePeer {
        MoeHandlePeer {
            dispatch_sent: Outcome::SENT,
            dispatch_received: Outcome::ACCEPTED,
            member: 1,
            active: 1,
            ..MoeHandlePeer::zeroed()
        }
    }

    #[test]
    fn only_phases_that_have_run_count() {
        let handle = MoeHandle {
            call: 3,
            stage: CallStage::DISPATCHED,
            refused: u64::MAX,
            ..MoeHandle::zeroed()
        };
        let report = CallReport::new(1, &handle, vec![peer(); 2]);
        assert!(report.is_complete());
        assert_eq!(report.to_string(), "call 3 of rank 1 is complete");
    }

    #[test]
    fn a_report_names_the_phase_the_peer_and_the_refused_choice() {
        let mut late = peer();
        late.dispatch_received = Outcome::GAVE_UP;
        let handle = MoeHandle {
            call: 4,
            stage: CallStage::DISPATCHED,
            phase: [Status::INVALID, Status::TIMEOUT, Status::OK, Status::OK],
            refused: 7 << 32 | 99,
            ..MoeHandle::zeroed()
        };
        let report = CallReport::new(0, &handle, vec![peer(), late]);
        assert!(!report.is_complete());
        assert_eq!(
            report.to_string(),
            "call 4 of rank 0: token 7 chooses expert 99, which is out of range or chosen twice; \
             dispatch send ended with invalid; dispatch receive ended with timeout; rank 1: dispatch receive gave_up"
        );
    }
}
