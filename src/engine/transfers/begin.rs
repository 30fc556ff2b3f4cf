//! How a transfer begins: it is planned, gets a slot, and workers learn of it.

use std::sync::Arc;
use std::time::Instant;

use super::copiers::{self, By};
use super::place::{Body, Way};
use super::prepared::{How, Moves, Prepared};
use super::queue::Task;
use super::transfers::Transfers;
use crate::engine::error::{EngineError, Side};
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::plan::Plan;
use crate::engine::limits::count;
use crate::engine::memory::table::{LocalTable, RemoteTable, Tables};
use crate::engine::route::fences::Fence;
use crate::engine::route::link::Link;

impl Transfers {
    /// Plans a transfer for many posts. With `counts` each operation of it may count at the peer.
    pub(in crate::engine) fn prepare(
        &self,
        link: &Link,
        tables: Tables,
        moves: Moves,
        counts: bool,
    ) -> Result<Arc<Prepared>, EngineError> {
        let mut plan = self.new_plan()?;
        moves.plan_into(&mut plan, &tables, counts)?;
        let reaches_gpu = check_remote(&plan, &tables.remote)?;
        // Each post chooses again, since the peer's regions may change.
        copiers::choose(&plan, link, &tables, reaches_gpu)?;
        Ok(Arc::new(Prepared {
            plan,
            operations: count(moves.operations.len()),
            overlaps: moves.overlaps,
            reaches_gpu,
            tables,
            engine: self.engine(),
            incarnation: link.incarnation(),
        }))
    }

    /// Begins a transfer of all `moves`, or takes none of them.
    pub(in crate::engine) fn submit(
        &self,
        link: &Arc<Link>,
        tables: Tables,
        moves: Moves,
        how: How,
    ) -> Result<TransferId, EngineError> {
        let way = Way {
            link: Arc::clone(link),
            tables,
        };
        let counts = how.counter.is_some();
        self.begin(way, how, |body, tables| {
            body.prepared = None;
            body.operations = count(moves.operations.len());
            body.overlaps = moves.overlaps;
            moves.plan_into(&mut body.own, tables, counts)?;
            body.reaches_gpu = check_remote(&body.own, &tables.remote)?;
            Ok(())
        })
    }

    /// Begins a transfer that was prepared.
    pub(in crate::engine) fn post(
        &self,
        link: &Arc<Link>,
        prepared: &Arc<Prepared>,
        how: How,
    ) -> Result<TransferId, EngineError> {
        // This check comes before that of the peer, since two engines may be connected to one peer.
        if prepared.engine != self.engine() {
            let (by, engine) = (prepared.engine, self.engine());
            return Err(EngineError::PreparedElsewhere { by, engine });
        }
        if prepared.incarnation != link.incarnation() {
            let (found, peer) = (prepared.incarnation, link.incarnation());
            return Err(EngineError::ForeignPrepared { found, peer });
        }
        if how.counter.is_some() && !prepared.plan.counts() {
            return Err(EngineError::PreparedUncounted);
        }
        let way = Way {
            link: Arc::clone(link),
            tables: prepared.tables.clone(),
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
        how: How,
        fill: impl FnOnce(&mut Body, &Tables) -> Result<(), EngineError>,
    ) -> Result<TransferId, EngineError> {
        let id = self.ends().take_slot()?;
        let place = self.place(id);
        let mut body = place.write();
        if let Err(error) = fill(&mut body, &way.tables).and_then(|()| enter(&mut body, &way)) {
            body.id = None;
            drop(body);
            self.ends().give_slot_back(id)?;
            return Err(error);
        }
        let link = Arc::clone(&way.link);
        body.id = Some(id);
        body.deadline = how.deadline.and_then(|it| Instant::now().checked_add(it));
        body.counter = how.counter;
        body.near = near_of(body.plan(), &way);
        body.notice = how.notice;
        body.way = Some(way);
        let task = Task {
            id,
            deadline: body.deadline,
        };
        let (total, is_small) = (body.plan().slices(), body.plan().is_small());
        let (near, is_for_nic) = (body.near, body.is_for_nic());
        place.reset(total);
        drop(body);
        self.ends().begin(total);
        link.load().begin(is_for_nic);
        if total == 0 {
            self.ends().conclude(place, id, Outcome::Done, Fence::Whole);
            return Ok(id);
        }
        let near = match near {
            0 => Vec::new(),
            near => link.open_workers_of(link.lanes().near(near)),
        };
        let workers = if !near.is_empty() {
            &near
        } else if is_small {
            link.load().next_worker()
        } else {
            link.load().workers()
        };
        self.queues().give_new(task, &link, workers);
        Ok(id)
    }
}

/// Chooses what moves the transfer, and counts it at its local regions.
fn enter(body: &mut Body, way: &Way) -> Result<(), EngineError> {
    let By { has_gpu, copier } =
        copiers::choose(body.plan(), &way.link, &way.tables, body.reaches_gpu)?;
    enter_all(body.plan(), &way.tables.local)?;
    (body.has_gpu, body.copier) = (has_gpu, copier);
    Ok(())
}

/// Returns the rails of the peer that are near all memory of the peer that the transfer reaches. 0: no such rail is known, or slices go by
/// any rail.
fn near_of(plan: &Plan, way: &Way) -> u8 {
    if !way.link.lanes().is_near() {
        return 0;
    }
    let regions = plan.remotes().map(|it| way.tables.remote.get(it.region));
    let near = regions.map(|region| region.map_or(0, |it| it.keys.near()));
    near.filter(|near| *near != 0)
        .reduce(|all, near| all & near)
        .unwrap_or(0)
}

/// Refuses operations that the peer has not allowed, as far as this end knows. Returns whether some of the peer's memory is a GPU's.
fn check_remote(plan: &Plan, remote: &RemoteTable) -> Result<bool, EngineError> {
    let mut is_of_gpu = false;
    for it in plan.remotes() {
        let Some(region) = remote.get(it.region) else {
            continue;
        };
        let rights = region.owner;
        if !rights.allow(it.kind) {
            return Err(EngineError::Right {
                operation: it.operation,
                kind: it.kind,
                rights,
            });
        }
        is_of_gpu |= region.keys.is_of_gpu();
    }
    Ok(is_of_gpu)
}

/// Counts the transfer at all its local regions, or at none.
fn enter_all(plan: &Plan, local: &LocalTable) -> Result<(), EngineError> {
    for (nth, it) in plan.locals().enumerate() {
        let region = local.get(it.region);
        if region.is_some_and(|region| region.owner.enter()) {
            continue;
        }
        for number in plan.local_regions().take(nth) {
            local.get(number).inspect(|region| region.owner.leave());
        }
        // The region was taken away since the plan was made.
        return Err(EngineError::NotRegistered {
            operation: it.operation,
            side: Side::Local,
            address: it.address,
        });
    }
    Ok(())
}
