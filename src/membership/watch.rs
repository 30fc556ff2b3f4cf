//! The thread that looks at what tells of trouble without asking the store: words of kernels, words of QPs, events of HCAs, ends
//! of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::{Cause, GroupEventKind};
use super::pidfd::{PidFd, Watched};
use super::rules::record::RankGeneration;
use super::shared::Shared;
use super::transport::Alarm;

/// Every peer's QPs are looked at once in so many looks.
const ROUND: usize = 4;
/// The HCA is asked about the QPs to a rank for which kernels wait in vain once in so many looks.
const ASK: usize = 128;

/// What was seen so far.
#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    processes: BTreeMap<RankGeneration, Watched>,
    turn: usize,
    /// Rails whose HCA has failed for good.
    failed: BTreeSet<usize>,
}

/// Looks until the group stops.
pub(super) fn run(shared: Arc<Shared>) {
    let mut watch = Watch {
        shared,
        processes: BTreeMap::new(),
        turn: 0,
        failed: BTreeSet::new(),
    };
    while !watch.shared.is_stopped() {
        watch.look();
        watch.shared.transport.rest();
    }
}

impl Watch {
    fn look(&mut self) {
        let (members, reached, processes) = {
            let inner = self.shared.lock();
            let own = self.shared.transport.slot();
            let members = inner.suspects.members().iter();
            let others = members.map(|(slot, generation)| (*slot, *generation));
            let others = others.filter(|(slot, _)| *slot != own);
            let others: Vec<RankGeneration> = others.collect();
            let reached = others.iter().filter(|who| !inner.parted.contains(who));
            let reached: Vec<u32> = reached.map(|who| who.0).collect();
            (others, reached, inner.processes.clone())
        };
        self.look_at_kernels(&reached);
        self.look_at_qps(&reached);
        self.look_at_hcas();
        for &(slot, generation) in &members {
            if self.shared.transport.has_ended(slot, generation) {
                self.ended((slot, generation));
            }
        }
        self.processes.retain(|who, _| processes.contains_key(who));
        for (&who, process) in &processes {
            let watched = self
                .processes
                .entry(who)
                .or_insert_with(|| PidFd::open(process));
            let ended = match watched {
                Watched::Runs(pidfd) => pidfd.has_ended(),
                Watched::Ended => true,
                Watched::Unknown => false,
            };
            if ended {
                *watched = Watched::Ended;
                self.ended(who);
            }
        }
        self.turn = self.turn.wrapping_add(1);
    }

    fn ended(&self, (slot, generation): RankGeneration) {
        let is_member = self.shared.lock().suspects.members().get(&slot) == Some(&generation);
        if is_member {
            self.shared.suspect(slot, Cause::ProcessExit);
        }
    }

    fn look_at_kernels(&self, members: &[u32]) {
        let suspected: BTreeSet<u32> = self.shared.layer.suspected().into_iter().collect();
        for slot in members {
            match suspected.contains(slot) {
                true => self.shared.suspect(*slot, Cause::Timeout),
                false => self.shared.trust(*slot, &Cause::Timeout),
            }
        }
    }

    /// A port that is down says nothing of any rank: what goes through it fails by its QPs, pair by pair.
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
                Alarm::Qp(peer, kind) => self.shared.suspect(peer, Cause::QpEvent(kind)),
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

    /// A kernel that has given `slot` up looks at the QPs to it no more, so it does not see that they have failed; and what it has
    /// posted there holds the memory that its next calls need, until the QPs are in error for all.
    fn ask(&self, slot: u32) {
        let waits = self.shared.lock().suspects.has(slot, &Cause::Timeout);
        if waits && matches!(self.shared.transport.has_failed(slot), Ok(true)) {
            self.shared.suspect(slot, Cause::QpFlushed);
        }
    }

    fn look_at_qps(&self, members: &[u32]) {
        for slot in members.iter().skip(self.turn % ROUND).step_by(ROUND) {
            match self.shared.transport.failure(*slot) {
                Ok(None) if self.turn % ASK < ROUND => self.ask(*slot),
                Ok(None) => {}
                Ok(Some(cause)) => self.shared.suspect(*slot, cause),
                Err(error) => self.shared.tell(GroupEventKind::Failed {
                    error: format!("looking at the QPs to rank {slot}: {error}"),
                }),
            }
        }
    }
}
