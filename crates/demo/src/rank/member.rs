//! A rank of a group whose other ranks may die. Each step is checked against what the report of its call says of the other ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::{Rank, check, instructions};
use crate::clock::unix_us;
use crate::error::DemoError;
use crate::messages::{Message, tell};
use crate::record::{Loss, Record, RecordKind};
use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::error::ThreadPanicked;
use warpverbs::membership::{self, Cause, Group, GroupConfig, GroupState};
use warpverbs::moe::{Batch, CallReport, Fault};

/// The time between two looks whether the demo wants this process to end.
const LOOK: Duration = Duration::from_millis(2);

/// Returns the time to live of the ranks' leases. A lease lasts at least as long as kernels of other ranks wait for its rank.
pub(crate) fn lease(deadline_ms: u64) -> Duration {
    let deadline = Duration::from_millis(deadline_ms);
    GroupConfig::default().lease_ttl.max(deadline)
}

/// The commands that a rank has given to its HCA, and the bytes that it has allocated, so far.
#[derive(Debug, Default)]
struct Spent {
    commands: u64,
    bytes: u64,
}

impl Spent {
    /// Returns how many commands and bytes were added since the last call.
    fn since(&mut self, commands: u64, bytes: u64) -> (u64, u64) {
        let new = (
            commands.saturating_sub(self.commands),
            bytes.saturating_sub(self.bytes),
        );
        (self.commands, self.bytes) = (commands, bytes);
        new
    }
}

impl Rank {
    /// Runs the steps in a group. A rank that joins begins with the first step of the view that takes it in.
    pub(super) fn serve(&mut self) -> Result<(), DemoError> {
        let defaults = GroupConfig::default();
        let lease = lease(self.spec.deadline_ms);
        let config = defaults
            .with_lease_ttl(lease)
            .with_error_bound(Some(Duration::from_secs(1)));
        self.watch_clock(Duration::from_millis(self.spec.deadline_ms));
        let group = Group::start(self.moe.team(), self.moe.clone(), &config)?;
        self.tell_what(unix_us(), RecordKind::Asks);
        let timeout = Duration::from_millis(self.spec.join_timeout_ms);
        let served = group.wait(GroupState::Serving, timeout);
        let mut spent = Spent::default();
        // The rank may be dropped again soon after it came.
        if self.is_over(&group, &mut spent) {
            return Ok(group.check()?);
        }
        served?;
        let kills = !self.spec.options.kill.is_empty();
        let mut told = None;
        while !instructions::is_closed() {
            let number = self.moe.started().wrapping_add(1);
            let last = self.spec.options.steps.min(instructions::last_step());
            if number > last {
                // A rank that dies in the last step is dropped by the ranks that have finished. Then more steps follow than were planned.
                if told != Some(last) {
                    instructions::done();
                    let _ = tell(&Message::Finished { step: last });
                    told = Some(last);
                }
                if self.is_over(&group, &mut spent) {
                    return Ok(group.check()?);
                }
                std::thread::sleep(LOOK);
                continue;
            }
            if let Some(late) = instructions::lateness() {
                std::thread::sleep(late);
                self.tell_what(unix_us(), RecordKind::Slept);
            }
            if kills {
                let _ = tell(&Message::Begins { step: number });
            }
            let step = self.member_step(number);
            if self.is_over(&group, &mut spent) {
                // The event `Expelled` was reported, so another generation comes.
                return Ok(group.check()?);
            }
            let step = step?;
            if matches!(step, RecordKind::Step { epoch: None, .. }) {
                // Nothing else limits the pace of this loop.
                std::thread::sleep(LOOK);
            }
            self.tell_what(unix_us(), step);
        }
        Ok(())
    }

    /// Starts a thread that only looks at the clock, and that reports if it stood still for a quarter of a deadline. The other ranks may
    /// then have missed this process.
    fn watch_clock(&self, deadline: Duration) {
        let (began_us, team) = (self.spec.began_us, self.moe.team());
        let (rank, generation) = (team.rank(), team.config().generation);
        let look = move || {
            let mut before = Instant::now();
            loop {
                std::thread::sleep(deadline / 40);
                let stood = before.elapsed();
                before = Instant::now();
                if stood >= deadline / 4 {
                    let ms = u64::try_from(stood.as_millis()).unwrap_or(u64::MAX);
                    let _ = tell(&Message::Event(Record {
                        us: unix_us().saturating_sub(began_us),
                        rank,
                        generation,
                        what: RecordKind::Stood { ms },
                    }));
                }
            }
        };
        let named = std::thread::Builder::new().name("clock".to_owned());
        // If the thread cannot be started, it stays unknown how the machine disturbs this rank.
        drop(named.spawn(move || ThreadPanicked::catch("clock", look)));
    }

    /// Runs one step, and checks it against what its report says of the other ranks.
    fn member_step(&mut self, number: u32) -> Result<RecordKind, DemoError> {
        let (rank, step) = (self.moe.team().rank(), number - 1);
        let mut batches: Vec<Batch> = (0..self.inputs.ranks)
            .map(|rank| self.inputs.batch(step, rank))
            .collect();
        let own = batches[rank as usize].clone();
        let wrong = |words: String| DemoError::Mismatch {
            rank,
            step: number,
            words,
        };
        self.moe
            .set_schedule_seed(self.spec.options.seed ^ u64::from(number));
        let start = Instant::now();
        self.work.send(&own)?;
        let sources = self.work.receive()?;
        let mut took = start.elapsed();
        let report = self.work.call().report()?;
        // Such a fault says that no view covers the call. A call that only skips a peer has sent to the others.
        let aborted = |fault: &Fault| fault.cause == MoeCause::ABORTED && fault.peer.is_none();
        let aborted = report.fault.as_ref().is_some_and(aborted);
        // A call that finds its staging memory in use sends nothing, not even to its own rank.
        let own_sent = report.peers[rank as usize].dispatch_received != Outcome::NOT_SENT;
        let here = |other: u32, there: bool| (there || other == rank && own_sent) && !aborted;
        for (other, peer) in (0u32..).zip(&report.peers) {
            if !here(other, peer.dispatch_received == Outcome::ACCEPTED) {
                batches[other as usize] = Batch::default();
            }
        }
        let read = |local: usize, rows: Range<usize>| self.work.received_rows(local, rows);
        let config = self.moe.config();
        let placement = self.work.placement();
        check::dispatch(config, placement, rank, &batches, &sources, read)?.map_err(wrong)?;
        let start = Instant::now();
        self.run_experts()?;
        self.work.send_back()?;
        let combined = self.work.receive_back()?;
        took += start.elapsed();
        let report = self.work.call().report()?;
        let peers = || (0u32..).zip(&report.peers);
        // The own rank may be missing, too: a combine that finds its staging memory in use brings nothing back, not even to its own rank.
        let seen: Vec<u32> = peers()
            .filter(|(_, peer)| !aborted && peer.valid != 0 && peer.member != 0)
            .map(|(other, _)| other)
            .collect();
        let missing = peers().filter(|(other, peer)| {
            let came = peer.dispatch_received == Outcome::ACCEPTED && peer.valid != 0;
            peer.member != 0 && *other != rank && !came
        });
        let missing: Vec<u32> = missing.map(|(other, _)| other).collect();
        let (config, placement) = (self.moe.config(), self.work.placement());
        let lost = check::combine_of(config, placement, rank, &own, &combined, &seen);
        let lost = lost.map_err(wrong)?;
        let cause = |of: u32| cause(&report, of, aborted);
        Ok(RecordKind::Step {
            step: report.call,
            epoch: (!aborted).then_some(report.epoch),
            tokens: config.max_tokens,
            lost: u32::try_from(lost.len()).unwrap_or(u32::MAX),
            missing,
            losses: Some(losses(&lost, cause)),
            took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        })
    }

    /// Reports what the group has seen since the last time, and returns whether this generation has ended. The state is read before the
    /// events. So a state that ends the generation comes with its event, without which `wv chaos` would take the end for a failure.
    fn is_over(&self, group: &Group, spent: &mut Spent) -> bool {
        let is_over = group.state().is_over();
        self.tell_events(group, spent);
        is_over
    }

    fn tell_events(&self, group: &Group, spent: &mut Spent) {
        for event in group.events() {
            let us = unix_us()
                .saturating_sub(u64::try_from(event.at.elapsed().as_micros()).unwrap_or(0));
            let what = match event.what {
                membership::GroupEventKind::Suspected { rank, cause } => RecordKind::Suspects {
                    other: rank,
                    cause: cause.to_string(),
                    qp_failed: matches!(
                        cause,
                        Cause::QpError(_) | Cause::QpEvent(_) | Cause::QpFlushed
                    ),
                },
                membership::GroupEventKind::Trusted { rank } => RecordKind::Trusts { other: rank },
                membership::GroupEventKind::Connected { rank, took, .. } => RecordKind::Connected {
                    other: rank,
                    took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                },
                membership::GroupEventKind::Masked { ranks } => {
                    RecordKind::Masked { others: ranks }
                }
                membership::GroupEventKind::Viewed(view) => {
                    let team = self.moe.team();
                    let (commands, bytes) = spent.since(team.commands(), team.bytes_allocated());
                    RecordKind::Serves {
                        epoch: view.epoch,
                        members: view.members.into_keys().collect(),
                        parted: view.parted,
                        commands,
                        bytes,
                    }
                }
                membership::GroupEventKind::Proposed { proposal, members } => {
                    RecordKind::Proposes {
                        proposal,
                        members: members.into_keys().collect(),
                    }
                }
                membership::GroupEventKind::Promised { proposal, .. } => {
                    RecordKind::Promises { proposal }
                }
                membership::GroupEventKind::Ended(GroupState::Expelled) => RecordKind::Expelled,
                other => RecordKind::Notes {
                    words: format!("{}: {other}", other.name()),
                },
            };
            self.tell_what(us, what);
        }
    }

    fn tell_what(&self, us: u64, what: RecordKind) {
        let _ = tell(&Message::Event(Record {
            us: us.saturating_sub(self.spec.began_us),
            rank: self.moe.team().rank(),
            generation: self.moe.team().config().generation,
            what,
        }));
    }
}

/// Returns how many tokens lack experts of each set of ranks, with the causes.
fn losses(lost: &[BTreeSet<u32>], cause: impl Fn(u32) -> String) -> Vec<Loss> {
    let mut sets: BTreeMap<&BTreeSet<u32>, u32> = BTreeMap::new();
    for of in lost {
        *sets.entry(of).or_default() += 1;
    }
    let loss = |(of, tokens): (&BTreeSet<u32>, u32)| Loss {
        tokens,
        of: of.iter().copied().collect(),
        causes: of.iter().map(|rank| cause(*rank)).collect(),
    };
    sets.into_iter().map(loss).collect()
}

/// Returns why rows of rank `of` are missing from a call.
fn cause(report: &CallReport, of: u32, aborted: bool) -> String {
    let peer = &report.peers[of as usize];
    match () {
        () if aborted => "no view covers the call".to_owned(),
        () if report.no_buffer => "no send buffer was free".to_owned(),
        () if of == report.rank => "this rank sent nothing".to_owned(),
        () if peer.member == 0 => "no member of the view".to_owned(),
        () if peer.cause != MoeCause::NONE => peer.cause.to_string(),
        () if peer.active == 0 => "masked".to_owned(),
        () if peer.dispatch_received != Outcome::ACCEPTED => {
            format!("dispatch {}", peer.dispatch_received)
        }
        () if peer.combine_received == Outcome::ACCEPTED => "rows did not come back".to_owned(),
        () => format!("combine {}", peer.combine_received),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_tokens_are_counted_by_the_ranks_whose_experts_they_lack() {
        let lost = [&[1][..], &[1, 2], &[1]].map(|of| of.iter().copied().collect());
        let found = losses(&lost, |rank| format!("cause {rank}"));
        let loss = |tokens, of: &[u32]| Loss {
            tokens,
            of: of.to_vec(),
            causes: of.iter().map(|rank| format!("cause {rank}")).collect(),
        };
        assert_eq!(found, [loss(2, &[1]), loss(1, &[1, 2])]);
        assert_eq!(losses(&[], |_| String::new()), []);
    }
}
