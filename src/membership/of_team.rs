//! A team as the transport of a group.

use std::sync::Arc;
use std::time::Duration;

use rendezvous::Store;

use super::event::Cause;
use super::transport::{Alarm, Meeting, Transport};
use crate::abi::Status;
use crate::team::{Sweep, Team, TeamError};
use crate::verbs::{HcaEvent, QpState};

/// Longest wait for one peer before the next one is tried.
const PATIENCE: Duration = Duration::from_millis(20);

impl Transport for Team {
    fn slot(&self) -> u32 {
        self.rank()
    }

    fn generation(&self) -> u32 {
        self.config().generation
    }

    fn slots(&self) -> u32 {
        self.ranks()
    }

    fn founders(&self) -> Vec<u32> {
        if self.config().joins() {
            Vec::new()
        } else {
            self.config().members().iter().collect()
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(Self::store(self))
    }

    fn deadline(&self) -> Duration {
        self.config().deadline
    }

    fn timeout(&self) -> Duration {
        self.config().join_timeout
    }

    fn hello(&self) -> Result<Option<(String, Vec<u8>)>, TeamError> {
        self.hello_record()
    }

    fn fail_peer(&self, peer: u32) -> Result<(), TeamError> {
        Self::fail_peer(self, peer)
    }

    fn release_peer(&self, peer: u32) -> Result<bool, TeamError> {
        Self::release_peer(self, peer)
    }

    fn is_silent(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        match self.check_former(peer, generation) {
            Ok(()) => Ok(true),
            // The peer has not written its hello yet.
            Err(TeamError::Absent { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn newest(&self, peer: u32) -> u32 {
        self.connected_generation(peer).unwrap_or(0)
    }

    fn connect_peer(&self, peer: u32, generation: u32) -> Result<Meeting, TeamError> {
        if !self.is_introduced(peer, generation)? {
            match Self::connect_peer(self, peer, generation, PATIENCE) {
                Ok(()) => {}
                // The other end has not come, or a kernel has to leave first.
                Err(TeamError::Absent { .. } | TeamError::Guarded { .. }) => {
                    return Ok(Meeting::Absent);
                }
                Err(error) => return Err(error),
            }
        }
        if self.prove_peer(peer, generation)? {
            Ok(Meeting::Proven)
        } else {
            Ok(Meeting::Unproven)
        }
    }

    fn patience(&self) -> Duration {
        Self::patience(self)
    }

    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        Self::reunite_peer(self, peer, generation)
    }

    fn tell_again(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        Self::tell_again(self, peer, generation)
    }

    fn words(&self, peer: u32, generation: u32) -> [String; 2] {
        Self::words(self, peer, generation)
    }

    fn tell_all_again(&self) -> Result<(), TeamError> {
        Self::tell_all_again(self)
    }

    fn open_peer(&self, peer: u32) -> Result<(), TeamError> {
        Self::open_peer(self, peer)
    }

    fn leftovers(&self) -> Sweep {
        Sweep::of_team()
    }

    fn alarms(&self) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for (number, events) in self.hca_events() {
            loop {
                alarms.push(match events.next() {
                    Ok(Some(HcaEvent::PortDown)) => Alarm::PortDown(number),
                    Ok(Some(HcaEvent::PortUp)) => Alarm::PortUp(number),
                    Ok(Some(HcaEvent::Fatal)) => Alarm::Fatal(number),
                    Ok(Some(HcaEvent::Qp { cookie, kind })) => match u32::try_from(cookie) {
                        Ok(peer) => Alarm::Qp(peer, kind),
                        Err(_) => continue,
                    },
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!("events of rail {number}: {error}");
                        break;
                    }
                });
            }
        }
        alarms
    }

    fn rails(&self) -> usize {
        Self::rails(self)
    }

    fn left_out(&self, peer: u32) -> Vec<u32> {
        Self::left_out(self, peer)
    }

    fn completed(&self, peer: u32) -> Result<u64, TeamError> {
        let qps = 0..self.config().qps_per_peer;
        let of = |qp| Ok(self.counters(peer, qp)?.completed);
        qps.map(of).sum()
    }

    fn has_failed(&self, peer: u32) -> Result<bool, TeamError> {
        for qp in 0..self.config().qps_per_peer {
            if self.qp_status(peer, qp)?.hca.state == QpState::ERR {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn failing(&self) -> Vec<u32> {
        Self::failing(self)
    }

    fn failure(&self, peer: u32) -> Result<Option<Cause>, TeamError> {
        let mut found = None;
        for word in self.error_words(peer)? {
            match cause_of(word) {
                // Another QP may have kept the cause that this QP has lost.
                Some(Cause::QpFlushed) => found = Some(Cause::QpFlushed),
                Some(cause) => return Ok(Some(cause)),
                None => {}
            }
        }
        Ok(found)
    }
}

/// Returns the cause that a QP's word of failure and syndrome names. Returns None if the host has written the word itself.
fn cause_of(word: u64) -> Option<Cause> {
    let half = |at: u32| u32::try_from(word >> at & u64::from(u32::MAX)).expect("32 bits");
    match Status(half(0)) {
        Status::OK | Status::ABORTED => None,
        Status::CQE_ERROR => Some(Cause::QpError(half(32))),
        _ => Some(Cause::QpFlushed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_error_is_a_cause_and_what_was_flushed_over_it_is_none() {
        let word = |status: Status| 0x8115 << 32 | u64::from(status.0);
        assert_eq!(
            cause_of(word(Status::CQE_ERROR)),
            Some(Cause::QpError(0x8115))
        );
        let flushed = 0x05 << 32 | u64::from(Status::FLUSHED.0);
        assert_eq!(cause_of(flushed), Some(Cause::QpFlushed));
        assert_eq!(cause_of(u64::from(Status::ABORTED.0)), None);
        assert_eq!(cause_of(0), None);
    }
}
