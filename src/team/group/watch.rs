//! The thread that looks at what tells of trouble without asking the store: words of kernels, words of QPs, ends of processes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::event::{Cause, What};
use super::pidfd::{PidFd, Watched};
use super::presence::Incarnation;
use super::shared::Shared;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Every peer's QPs are looked at once in so many looks.
const ROUND: usize = 4;

/// What was seen so far.
#[derive(Debug)]
struct Watch {
    shared: Arc<Shared>,
    processes: BTreeMap<Incarnation, Watched>,
    turn: usize,
}

/// Looks until the group stops.
pub(super) fn run(shared: Arc<Shared>) {
    let mut watch = Watch {
        shared,
        processes: BTreeMap::new(),
        turn: 0,
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
            let own = self.shared.fabric.slot();
            let members: Vec<u32> = inner.table.members().keys().copied().collect();
            let others = members.into_iter().filter(|slot| *slot != own);
            (others.collect::<Vec<u32>>(), inner.processes.clone())
        };
        self.look_at_kernels(&members);
        self.look_at_qps(&members);
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

    fn ended(&self, (slot, generation): Incarnation) {
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

    fn look_at_qps(&self, members: &[u32]) {
        for slot in members.iter().skip(self.turn % ROUND).step_by(ROUND) {
            match self.shared.fabric.failure(*slot) {
                Ok(None) => {}
                Ok(Some(syndrome)) => self.shared.suspect(*slot, Cause::QpError(syndrome)),
                Err(error) => self.shared.tell(What::Failed {
                    error: format!("looking at the QPs to rank {slot}: {error}"),
                }),
            }
        }
    }
}
