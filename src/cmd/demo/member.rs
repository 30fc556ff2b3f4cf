//! A rank whose fellows may die: each step is checked for what the report of its call says of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::chaos::{Record, What, unix_us};
use super::messages::{Message, tell};
use super::rank::Rank;
use super::{DemoError, check};
use crate::abi::{Outcome, Status};
use crate::moe::Member;
use crate::moe::reference::Batch;
use crate::team::{self, Group, GroupConfig, GroupState};

/// Between two looks whether the demo wants this process to end.
const LOOK: Duration = Duration::from_millis(2);

/// All steps are done, and the others may still need this rank's memory.
static DONE: AtomicBool = AtomicBool::new(false);
/// They do not any more.
static END: AtomicBool = AtomicBool::new(false);

/// The demo has closed this process's input. Whether it ends by itself.
pub(super) fn may_end() -> bool {
    END.store(true, Ordering::Relaxed);
    DONE.load(Ordering::Relaxed)
}

/// Commands given to the HCA, and bytes allocated, by a rank so far.
#[derive(Debug, Default)]
struct Spent {
    commands: u64,
    bytes: u64,
}

impl Spent {
    /// What has come to it since the last time.
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
    /// Runs the steps in a group. One that joins begins with the first step of the view that takes it in.
    pub(super) fn serve(&mut self) -> Result<(), DemoError> {
        let config = GroupConfig {
            error_bound: Some(Duration::from_secs(1)),
            ..GroupConfig::default()
        };
        let group = Group::start(self.moe.team(), Member::new(&self.moe), &config)?;
        let timeout = Duration::from_millis(self.spec.join_timeout_ms);
        group.wait(GroupState::Serving, timeout)?;
        let mut spent = Spent::default();
        self.tell_events(&group, &mut spent);
        loop {
            let number = self.moe.started().wrapping_add(1);
            if number > self.spec.options.steps {
                break;
            }
            let _ = tell(&Message::Begins { step: number });
            let start = Instant::now();
            let lost = self.member_step(number)?;
            self.result.step_seconds.push(start.elapsed().as_secs_f64());
            self.tell_events(&group, &mut spent);
            let tokens = self.inputs.config.max_tokens;
            self.tell_what(
                unix_us(),
                What::Step {
                    step: number,
                    tokens,
                    lost,
                },
            );
        }
        // One that dies in the last step is dropped by those who are done.
        DONE.store(true, Ordering::Relaxed);
        let _ = tell(&Message::Finished);
        while !END.load(Ordering::Relaxed) {
            self.tell_events(&group, &mut spent);
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// One step; how many of its tokens lack an expert.
    fn member_step(&mut self, number: u32) -> Result<u32, DemoError> {
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
        self.work.send(&own)?;
        let sources = self.work.receive()?;
        let report = self.work.call().report()?;
        let aborted = report.phases[0] != Status::OK;
        // A call that finds its staging memory in use sends nothing, not even to its own rank.
        let own_sent = report.peers[rank as usize].dispatch_received != Outcome::NOT_SENT;
        let here = |other: u32, there: bool| (there || other == rank && own_sent) && !aborted;
        for (other, peer) in (0u32..).zip(&report.peers) {
            if !here(other, peer.dispatch_received == Outcome::ACCEPTED) {
                batches[other as usize] = Batch::default();
            }
        }
        let row = |local: usize, row: usize| self.work.received(local, row);
        let config = self.moe.config();
        let placement = self.work.placement();
        check::dispatch(config, placement, rank, &batches, &sources, row)?.map_err(wrong)?;
        self.run_experts()?;
        self.work.send_back()?;
        let combined = self.work.receive_back()?;
        let report = self.work.call().report()?;
        let seen: Vec<u32> = (0u32..)
            .zip(&report.peers)
            .filter(|(other, peer)| here(*other, peer.valid != 0 && peer.member != 0))
            .map(|(other, _)| other)
            .collect();
        let (config, placement) = (self.moe.config(), self.work.placement());
        check::combine_of(config, placement, rank, &own, &combined, &seen).map_err(wrong)
    }

    /// What has happened to the group since the last time.
    fn tell_events(&self, group: &Group, spent: &mut Spent) {
        for event in group.events() {
            let us = unix_us()
                .saturating_sub(u64::try_from(event.at.elapsed().as_micros()).unwrap_or(0));
            let what = match event.what {
                team::What::Suspected { rank, cause } => What::Suspects {
                    other: rank,
                    cause: cause.to_string(),
                },
                team::What::Trusted { rank } => What::Trusts { other: rank },
                team::What::Masked { ranks } => What::Masked { others: ranks },
                team::What::Viewed(view) => {
                    let team = self.moe.team();
                    let (commands, bytes) = spent.since(team.commands(), team.bytes_allocated());
                    What::Serves {
                        epoch: view.epoch,
                        members: view.members.into_keys().collect(),
                        commands,
                        bytes,
                    }
                }
                team::What::Ended(GroupState::Expelled) => What::Expelled,
                _ => continue,
            };
            self.tell_what(us, what);
        }
    }

    fn tell_what(&self, us: u64, what: What) {
        let _ = tell(&Message::Event(Record {
            us: us.saturating_sub(self.spec.began_us),
            rank: self.moe.team().rank(),
            generation: self.moe.team().config().generation,
            what,
        }));
    }
}
