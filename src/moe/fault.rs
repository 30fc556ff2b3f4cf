//! The fault of a call, read from the record that a kernel wrote.

use std::fmt;

use super::bits::ranks_of;
use crate::abi::{MoeCause, MoeFault, NONE};

/// Names of the phases, in the order of [`MoeHandle::phase`](crate::abi::MoeHandle::phase).
pub(super) const PHASES: [&str; 4] = [
    "dispatch send",
    "dispatch receive",
    "combine send",
    "combine receive",
];

/// The reason why a call is not complete: what showed first, and which ranks are suspects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The number of the call, modulo 2^32.
    pub call: u32,
    /// The epoch of the call, low 16 bits.
    pub epoch: u32,
    /// The cause of the fault.
    pub cause: MoeCause,
    /// The rank concerned; none if it is this rank itself.
    pub peer: Option<u32>,
    /// The phase in which the fault showed: 0 to 3, dispatch send to combine receive.
    pub phase: u32,
    /// If `cause` is `CQE_ERROR`: vendor syndrome << 8 | syndrome of the error CQE. If `cause` is `SHAPE`: the tag of the peer's
    /// shape << 16 | the tag of this rank's shape. Otherwise 0.
    pub syndrome: u32,
    /// The expert concerned; none if all experts of the peer are.
    pub expert: Option<u32>,
    /// The ranks that the call waited for in vain.
    pub suspects: Vec<u32>,
}

impl Fault {
    /// Returns the fault that a kernel has written; none if nothing is missing.
    pub(super) fn new(fault: &MoeFault) -> Option<Self> {
        let some = |value: u32| (value != NONE).then_some(value);
        (fault.cause != MoeCause::NONE).then(|| Self {
            call: fault.call,
            epoch: fault.epoch,
            cause: fault.cause,
            peer: some(fault.peer),
            phase: fault.phase,
            syndrome: fault.syndrome,
            expert: some(fault.expert),
            suspects: ranks_of(&fault.suspects),
        })
    }

    fn why(&self) -> String {
        match self.cause {
            MoeCause::TIMEOUT => "no word before the deadline".to_owned(),
            MoeCause::CQE_ERROR => format!("error completion, syndrome {:#x}", self.syndrome),
            MoeCause::FLUSHED => "flushed, the cause is lost".to_owned(),
            MoeCause::EPOCH => "its word names another epoch".to_owned(),
            MoeCause::MISSED_CALL if self.peer.is_none() => {
                "other ranks have gone on without its rows".to_owned()
            }
            MoeCause::MISSED_CALL => "it has not sent the call".to_owned(),
            MoeCause::SHAPE => {
                "its call has another format or max_tokens than this rank's".to_owned()
            }
            MoeCause::MALFORMED => "a slot or word of it is out of range".to_owned(),
            MoeCause::ABORTED => "ended by the host".to_owned(),
            MoeCause::REFUSED => "the input was refused".to_owned(),
            MoeCause::NO_BUFFER => "HCAs still read all its send buffers".to_owned(),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = PHASES.get(self.phase as usize).unwrap_or(&"?");
        write!(f, "{phase} of call {} in epoch {}, ", self.call, self.epoch)?;
        match self.peer {
            Some(peer) => write!(f, "rank {peer}: {}", self.why())?,
            None => write!(f, "this rank: {}", self.why())?,
        }
        if let Some(expert) = self.expert {
            write!(f, " (expert {expert})")?;
        }
        if self.suspects.is_empty() {
            return Ok(());
        }
        write!(f, "; suspects {:?}", self.suspects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn a_record_names_phase_call_peer_cause_and_suspects() {
        let mut record = MoeFault {
            call: 7,
            epoch: 2,
            cause: MoeCause::CQE_ERROR,
            peer: 33,
            phase: 1,
            syndrome: 0x15,
            expert: NONE,
            ..MoeFault::zeroed()
        };
        record.suspects[1] = 0b10;
        record.suspects[31] = 1 << 31;
        assert_eq!(
            Fault::new(&record).unwrap().to_string(),
            "dispatch receive of call 7 in epoch 2, rank 33: error completion, syndrome 0x15; suspects [33, 1023]"
        );
        let own = MoeFault {
            call: 8,
            epoch: 2,
            cause: MoeCause::REFUSED,
            peer: NONE,
            expert: 9,
            ..MoeFault::zeroed()
        };
        assert_eq!(
            Fault::new(&own).unwrap().to_string(),
            "dispatch send of call 8 in epoch 2, this rank: the input was refused (expert 9)"
        );
        let flushed = MoeFault {
            call: 9,
            epoch: 2,
            cause: MoeCause::FLUSHED,
            peer: 1,
            expert: NONE,
            ..MoeFault::zeroed()
        };
        assert_eq!(
            Fault::new(&flushed).unwrap().to_string(),
            "dispatch send of call 9 in epoch 2, rank 1: flushed, the cause is lost"
        );
        assert_eq!(Fault::new(&MoeFault::zeroed()), None);
    }
}
