//! The thread that looks for signs of trouble that need no call of the store: words of kernels, words of QPs, events of HCAs, and ends of
//! processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use membership_rules::record::RankGeneration;

use super::event::{Cause, GroupEventKind};
use super::pidfd::{PidFd, Watched};
use super::shared::{Inner, Shared};
use super::transport::Alarm;

/// The QPs to a peer that may have failed are looked at once in this many looks.
const ROUND: u32 = 4;
/// The HCA is asked, once in this many looks, about the QPs to each rank for which kernels wait in vain.
const ASK: u32 = 128;
/// A process that could not be watched, as when no descriptor was left, is tried again once in this many looks.
const WATCH_AGAIN: u32 = 1024;

/// What the thread that watches has seen so far.
#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    processes: BTreeMap<RankGeneration, Watched>,
    turn: u32,
    /// Peers to which QPs may have failed. A peer stays here as long as a QP to it is in error. It need not be a member, because it may
    /// become one.
    failing: BTreeSet<u32>,
    /// Rails whose HCA has failed for good.
    failed: BTreeSet<usize>,
}

/// Looks until the group stops.
pub(super) fn run(shared: Arc<Shared>) {
    let mut watch = Watch {
        shared,
        processes: BTreeMap::new(),
        turn: 0,
        failing: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    while !watch.shared.is_stopped() {
        watch.look();
        watch.shared.transport.rest();
    }
}

impl Watch {
    fn look(&mut self) {
        self.look_at_kernels();
        self.look_at_qps();
        self.look_at_hcas();
        for who in self.shared.transport.ended() {
            self.ended(who);
        }
        self.look_at_processes();
        self.turn = self.turn.wrapping_add(1);
    }

    fn look_at_processes(&mut self) {
        let inner = self.shared.lock();
        let now = &inner.processes;
        let again = self.turn.is_multiple_of(WATCH_AGAIN);
        let stays = |watched: &Watched| !again || !matches!(watched, Watched::Unknown);
        self.processes
            .retain(|who, watched| now.contains_key(who) && stays(watched));
        let known = &self.processes;
        let new = now.iter().filter(|(who, _)| !known.contains_key(who));
        let new: Vec<_> = new.map(|(who, it)| (*who, Arc::clone(it))).collect();
        drop(inner);
        for (who, process) in new {
            self.processes.insert(who, PidFd::open(&process));
        }
        let mut ended = Vec::new();
        for (who, watched) in &mut self.processes {
            let is_over = match watched {
                Watched::Runs(pidfd) => pidfd.has_ended(),
                Watched::Ended => true,
                Watched::Unknown => false,
            };
            if is_over {
                *watched = Watched::Ended;
                ended.push(*who);
            }
        }
        for who in ended {
            self.ended(who);
        }
    }

    fn ended(&self, (slot, generation): RankGeneration) {
        let is_member = self.shared.lock().suspects.members().get(slot) == Some(generation);
        if is_member {
            self.shared.suspect(slot, Cause::ProcessExit);
        }
    }

    fn look_at_kernels(&self) {
        let suspected: BTreeSet<u32> = self.shared.layer.suspected().into_iter().collect();
        let (late, back) = {
            let inner = self.shared.lock();
            let late = suspected.iter().copied();
            let late: Vec<u32> = late.filter(|slot| self.reaches(&inner, *slot)).collect();
            let before = inner.suspects.because_of(&Cause::Timeout);
            let back = before.iter().filter(|slot| !suspected.contains(slot));
            let back = back.filter(|slot| self.reaches(&inner, *slot));
            (late, back.collect::<Vec<u32>>())
        };
        for slot in late {
            self.shared.suspect(slot, Cause::Timeout);
        }
        for slot in back {
            self.shared.trust(slot, &Cause::Timeout);
        }
    }

    /// Returns whether `slot` has another member of the newest view from which this rank is not parted.
    fn reaches(&self, inner: &Inner, slot: u32) -> bool {
        let generation = inner.suspects.members().get(slot);
        let is_parted = |generation: u32| inner.parted.contains(&(slot, generation));
        slot != self.shared.transport.slot() && generation.is_some_and(|it| !is_parted(it))
    }

    /// Reports what HCAs have told. A port that is down says nothing of any rank: what goes through it fails by its QPs, pair by pair.
    fn look_at_hcas(&mut self) {
        for alarm in self.shared.transport.alarms() {
            match alarm {
                Alarm::PortDown(rail) => self.shared.tell(GroupEventKind::RailDown { rail }),
                Alarm::PortUp(rail) => self.shared.tell(GroupEventKind::RailUp { rail }),
                Alarm::Fatal(rail) => {
                    if self.failed.insert(rail) {
                        self.shared.tell(GroupEventKind::RailLost { rail });
                    }
                }
                Alarm::Qp(peer, kind) => {
                    let _span = tracing::info_span!("qp_failure", peer).entered();
                    self.shared.suspect(peer, Cause::QpEvent(kind));
                }
            }
        }
        if self.failed.len() >= self.shared.transport.rails() {
            let mut inner = self.shared.lock();
            inner.news |= !inner.hca_lost;
            inner.hca_lost = true;
            drop(inner);
            self.shared.notify();
        }
    }

    /// Asks the HCA whether the QPs to `slot` have failed, after kernels have given the slot up. Those kernels look at the QPs no more, so
    /// they do not see the failure. What they posted holds memory that the next calls need, until the QPs are in error.
    fn ask(&self, slot: u32) {
        if matches!(self.shared.transport.has_failed(slot), Ok(true)) {
            self.shared.suspect(slot, Cause::QpFlushed);
        }
    }

    fn look_at_qps(&mut self) {
        let own = self.shared.transport.slot();
        let failing = self.shared.transport.failing();
        let failing = failing.into_iter().filter(|slot| *slot != own);
        self.failing.extend(failing);
        let round = self.turn % ROUND;
        let due = self.failing.iter().copied();
        let due: Vec<u32> = due.filter(|slot| slot % ROUND == round).collect();
        for slot in due {
            match self.shared.transport.failure(slot) {
                Ok(None) => drop(self.failing.remove(&slot)),
                Ok(Some(cause)) => {
                    let reached = self.reaches(&self.shared.lock(), slot);
                    if reached {
                        let _span = tracing::info_span!("qp_failure", peer = slot).entered();
                        self.shared.suspect(slot, cause);
                    }
                }
                Err(error) => self.shared.tell(GroupEventKind::Failed {
                    error: format!("looking at the QPs to rank {slot}: {error}"),
                }),
            }
        }
        if self.turn.is_multiple_of(ASK) {
            let unexplained = self.shared.lock().suspects.unexplained();
            unexplained.iter().for_each(|slot| self.ask(slot));
        }
    }
}
