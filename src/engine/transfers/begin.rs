//! How a transfer begins: it is planned, gets a slot, and workers learn of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::place::{Body, Way};
use super::prepared::{Options, Prepared};
use super::{Transfers, copiers, count};
use crate::engine::error::{EngineError, Side};
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::cut::Cut;
use crate::engine::ledger::plan::{Operation, Plan};
use crate::engine::lives::attached::Attached;
use crate::engine::memory::table::{LocalTable, RemoteTable};
use crate::engine::route::link::{Fence, Link};

impl Transfers {
    /// Plans `operations` for many posts.
    pub(in crate::engine) fn prepare(
        &self,
        link: &Link,
        (local, remote): (Arc<LocalTable>, Arc<RemoteTable>),
        (cut, gather): (Cut, u32),
        (operations, overlaps, counts): (&[Operation], bool, bool),
    ) -> Result<Arc<Prepared>, EngineError> {
        let mut plan = Plan::new(cut, gather)?;
        match counts {
            true => plan.set_counting(operations, &*local, &*remote),
            false => plan.set(operations, &*local, &*remote),
        }?;
        let reaches_gpu = check_remote(&plan, &remote)?;
        // Asked again at each post: what the peer has may change.
        copiers::choose(&plan, (link, &local, &remote), reaches_gpu)?;
        Ok(Arc::new(Prepared {
            plan,
            operations: count(operations.len()),
            overlaps,
            reaches_gpu,
            local,
            remote,
            engine: self.engine(),
            incarnation: link.incarnation,
        }))
    }

    /// Takes a vector of operations, all or nothing.
    pub(in crate::engine) fn submit(
        &self,
        link: &Arc<Link>,
        (local, remote): (Arc<LocalTable>, Arc<RemoteTable>),
        (operations, overlaps): (&[Operation], bool),
        how: (&Options, Option<Attached>),
    ) -> Result<TransferId, EngineError> {
        let way = Way {
            link: Arc::clone(link),
            local,
            remote,
        };
        let counts = how.0.counter.is_some();
        self.begin(way, how, |body, way| {
            body.prepared = None;
            body.operations = count(operations.len());
            body.overlaps = overlaps;
            match counts {
                true => body.own.set_counting(operations, &*way.local, &*way.remote),
                false => body.own.set(operations, &*way.local, &*way.remote),
            }?;
            body.reaches_gpu = check_remote(&body.own, &way.remote)?;
            Ok(())
        })
    }

    /// Posts what was prepared once more.
    pub(in crate::engine) fn post(
        &self,
        link: &Arc<Link>,
        prepared: &Arc<Prepared>,
        how: (&Options, Option<Attached>),
    ) -> Result<TransferId, EngineError> {
        // Before the peer: both engines may be connected to it.
        if prepared.engine != self.engine() {
            let (by, engine) = (prepared.engine, self.engine());
            return Err(EngineError::PreparedElsewhere { by, engine });
        }
        if prepared.incarnation != link.incarnation {
            let (found, peer) = (prepared.incarnation, link.incarnation);
            return Err(EngineError::ForeignPrepared { found, peer });
        }
        if how.0.counter.is_some() && !prepared.plan.counts() {
            return Err(EngineError::PreparedUncounted);
        }
        let way = Way {
            link: Arc::clone(link),
            local: Arc::clone(&prepared.local),
            remote: Arc::clone(&prepared.remote),
        };
        self.begin(way, how, |body, _| {
            body.operations = prepared.operations;
            body.overlaps = prepared.overlaps;
            body.reaches_gpu = prepared.reaches_gpu;
            body.prepared = Some(Arc::clone(prepared));
            Ok(())
        })
    }

    fn begin(
        &self,
        way: Way,
        (options, notice): (&Options, Option<Attached>),
        fill: impl FnOnce(&mut Body, &Way) -> Result<(), EngineError>,
    ) -> Result<TransferId, EngineError> {
        let slots = self.places.len();
        let Some(id) = self.slots.take() else {
            self.totals.refuse();
            return Err(EngineError::WouldBlock { slots });
        };
        let place = &self.places[id.slot() as usize];
        let mut body = place.write();
        let filled = fill(&mut body, &way)
            .and_then(|()| {
                let tables = (&*way.link, &*way.local, &*way.remote);
                copiers::choose(body.plan(), tables, body.reaches_gpu)
            })
            .and_then(|by| enter_all(body.plan(), &way.local).map(|()| by));
        match filled {
            Ok(by) => (body.has_gpu, body.copier) = (by.has_gpu, by.copier),
            Err(error) => {
                body.id = None;
                drop(body);
                self.slots.conclude(id, Outcome::Failed)?;
                self.release(id)?;
                return Err(error);
            }
        }
        let (total, is_small) = (body.plan().slices(), body.plan().is_small());
        let near = near_of(body.plan(), &way);
        let is_for_nic = body.is_for_nic();
        let link = Arc::clone(&way.link);
        let deadline = options
            .deadline
            .and_then(|it| Instant::now().checked_add(it));
        body.id = Some(id);
        body.deadline = deadline;
        body.counter = options.counter;
        body.near = near;
        body.notice = notice;
        body.way = Some(way);
        place.failures().clear();
        place.to_retry.store(0, Ordering::Relaxed);
        place.total.store(total, Ordering::Relaxed);
        place.account.reset();
        drop(body);
        self.totals.submit(total);
        link.begin_transfer(is_for_nic);
        if total == 0 {
            self.conclude(id, Outcome::Done, Fence::Whole);
            return Ok(id);
        }
        let near_workers = match near {
            0 => Vec::new(),
            near => link.workers_of(link.lanes().near(near)),
        };
        let workers = match near_workers.is_empty() {
            true => link.workers(is_small),
            false => &near_workers,
        };
        self.push(id, (&link, deadline), (workers, true));
        Ok(id)
    }
}

/// The rails of the peer that are near all of the memory that a transfer reaches at the peer. 0: none is known, or none is wanted.
fn near_of(plan: &Plan, way: &Way) -> u8 {
    if !way.link.lanes().is_near() {
        return 0;
    }
    let regions = plan.remotes();
    let near = regions.map(|(.., region)| way.remote.get(region).map_or(0, |it| it.keys.near()));
    near.filter(|near| *near != 0)
        .reduce(|all, near| all & near)
        .unwrap_or(0)
}

/// Refuses what the peer has not allowed, as far as it has said. Whether some of the peer's memory is a GPU's.
fn check_remote(plan: &Plan, remote: &RemoteTable) -> Result<bool, EngineError> {
    let mut is_of_gpu = false;
    for (operation, kind, region) in plan.remotes() {
        let Some(region) = remote.get(region) else {
            continue;
        };
        let rights = region.owner;
        if !rights.allow(kind) {
            return Err(EngineError::Right {
                operation,
                kind,
                rights,
            });
        }
        is_of_gpu |= region.keys.is_of_gpu();
    }
    Ok(is_of_gpu)
}

/// Counts the transfer at all its local regions, or at none.
fn enter_all(plan: &Plan, local: &LocalTable) -> Result<(), EngineError> {
    for (nth, (operation, address, number)) in plan.locals().enumerate() {
        let Some(region) = local.get(number).filter(|region| region.owner.enter()) else {
            for number in plan.local_regions().take(nth) {
                local.get(number).inspect(|region| region.owner.leave());
            }
            // It was taken away since the plan was made.
            return Err(EngineError::NotRegistered {
                operation,
                side: Side::Local,
                address,
            });
        };
        let _ = region;
    }
    Ok(())
}
