//! The thread that looks at what tells of trouble without asking the store: words of kernels, words of QPs, events of HCAs, ends
//! of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event::{Cause, GroupEventKind};
use super::pidfd::{PidFd, Watched};
use super::presence::RankGeneration;
use super::shared::Shared;
use super::transport::Alarm;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Every peer's QPs are looked at once in so many looks.
const ROUND: usize = 4;

/// What was seen so far.
#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    processes: BTreeMap<RankGeneration, Watched>,
    turn: usize,
    /// Rails whose port carries nothing.
    down: BTreeSet<usize>,
    /// Those whose HCA has failed for good.
    failed: BTreeSet<usize>,
}

/// Looks until the group stops.
pub(super) fn run(shared: Arc<Shared>) {
    let mut watch = Watch {
        shared,
        processes: BTreeMap::new(),
        turn: 0,
        down: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    while !watch.shared.is_stopped() {
        watch.look();
        std::thread::sleep(LOOK);
    }
}

impl Watch {
    fn look(&mut self) {
        let (members, processes) = {
            let inner = self.shared.lock();
            let own = self.shared.transport.slot();
            let members: Vec<u32> = inner.table.members().keys().copied().collect();
            let others = members.into_iter().filter(|slot| *slot != own);
            (others.collect::<Vec<u32>>(), inner.processes.clone())
        };
        self.look_at_kernels(&members);
        self.look_at_qps(&members);
        self.look_at_hcas(&members);
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
        let is_member = self.shared.lock().table.members().get(&slot) == Some(&generation);
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

    /// A rank whose port is down is the ill one, as far as it can tell: it reaches nobody, and says so of everybody.
    fn look_at_hcas(&mut self, members: &[u32]) {
        for alarm in self.shared.transport.alarms() {
            match alarm {
                Alarm::PortDown(rail) => drop(self.down.insert(rail)),
                Alarm::PortUp(rail) => drop(self.down.remove(&rail)),
                Alarm::Fatal(rail) => drop(self.failed.insert(rail)),
                Alarm::Qp(peer, kind) => self.shared.suspect(peer, Cause::QpEvent(kind)),
            }
        }
        let down = !(self.down.is_empty() && self.failed.is_empty());
        let needs = |slot: &&u32| self.shared.transport.needs_port(**slot);
        let reached: Vec<u32> = members.iter().filter(needs).copied().collect();
        let cut_off = down && !reached.is_empty() && reached.len() == members.len();
        // First: it goes before its suspicions count.
        let mut inner = self.shared.lock();
        match cut_off {
            true => drop(inner.cut_off.get_or_insert_with(Instant::now)),
            false => inner.cut_off = None,
        }
        drop(inner);
        for slot in &reached {
            match down {
                true => self.shared.suspect(*slot, Cause::PortDown),
                false => self.shared.trust(*slot, &Cause::PortDown),
            }
        }
    }

    fn look_at_qps(&self, members: &[u32]) {
        for slot in members.iter().skip(self.turn % ROUND).step_by(ROUND) {
            match self.shared.transport.failure(*slot) {
                Ok(None) => {}
                Ok(Some(cause)) => self.shared.suspect(*slot, cause),
                Err(error) => self.shared.tell(GroupEventKind::Failed {
                    error: format!("looking at the QPs to rank {slot}: {error}"),
                }),
            }
        }
    }
}
