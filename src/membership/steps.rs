//! The steps of a change, done: words of the layer, states of QPs, keys of the store.

use std::collections::BTreeSet;
use std::time::Instant;

use super::GroupError;
use super::driver::{Driver, TurnOutcome, rank_generations};
use super::event::{GroupEventKind, GroupState, GroupView};
use super::presence::RankGeneration;
use super::record::{GroupRecord, Promise};
use super::rules::{Limit, Step};

impl Driver {
    /// Does `step`, which was asked for after `record` was seen.
    pub(super) fn take(
        &mut self,
        record: &GroupRecord,
        step: Step,
    ) -> Result<TurnOutcome, GroupError> {
        match step {
            Step::Wait => return Ok(TurnOutcome::Wait),
            Step::Leave => return Ok(TurnOutcome::Over(self.over())),
            Step::Store(new) => self.replace(record, &new)?,
            Step::Close => {
                self.since.held.get_or_insert_with(Instant::now);
                self.shared.set_state(GroupState::Changing);
                let layer = &self.shared.layer;
                layer.set_limit(Some(layer.started()));
                self.local.limit = Limit::Closed;
            }
            Step::Limit(last) => {
                self.shared.layer.set_limit(Some(last));
                self.local.limit = Limit::UpTo(last);
            }
            Step::Fence(slots) => self.fence(slots)?,
            Step::Promise(promise) => self.promise(record, promise)?,
            Step::View => self.view(record)?,
            Step::Open => self.open(record)?,
        }
        Ok(TurnOutcome::Again)
    }

    fn replace(&mut self, old: &GroupRecord, new: &GroupRecord) -> Result<(), GroupError> {
        if self.store.replace(Some(old), new)?
            && let Some(members) = &new.proposed
        {
            self.shared.tell(GroupEventKind::Proposed {
                proposal: new.proposal,
                members: members.clone(),
            });
        }
        Ok(())
    }

    fn fence(&mut self, slots: BTreeSet<u32>) -> Result<(), GroupError> {
        self.end_qps(&slots)?;
        self.local.fenced.extend(slots);
        Ok(())
    }

    /// QPs to these slots to Err.
    pub(super) fn end_qps(&mut self, slots: &BTreeSet<u32>) -> Result<(), GroupError> {
        for &slot in slots {
            self.shared.transport.fail_peer(slot)?;
            let mut inner = self.shared.lock();
            inner.connected.retain(|(connected, _)| *connected != slot);
        }
        self.opened.retain(|(opened, _)| !slots.contains(opened));
        self.shared.tell(GroupEventKind::Fenced {
            ranks: slots.iter().copied().collect(),
        });
        Ok(())
    }

    fn promise(&mut self, record: &GroupRecord, promise: Promise) -> Result<(), GroupError> {
        self.store.promise(record.proposal, &promise)?;
        if let Some((before, _)) = self.local.promised
            && before != record.proposal
        {
            self.store.forget_promise(before)?;
        }
        self.local.promised = Some((record.proposal, promise));
        self.shared.tell(GroupEventKind::Promised {
            proposal: record.proposal,
            last: promise.last,
        });
        Ok(())
    }

    fn view(&mut self, record: &GroupRecord) -> Result<(), GroupError> {
        let members: Vec<u32> = record.members.keys().copied().collect();
        let (epoch, first) = (record.epoch, record.first);
        let layer = &self.shared.layer;
        let set = match self.views.is_empty() {
            true => layer.begin(epoch, first, &members),
            false => layer.set_view(epoch, first, &members),
        };
        set.map_err(GroupError::Layer)?;
        self.views.push(first);
        if self.views.len() > 2 {
            self.views.remove(0);
        }
        self.local.viewed = epoch;
        self.viewed(record);
        Ok(())
    }

    /// The device has the view of `record`.
    pub(super) fn viewed(&mut self, record: &GroupRecord) {
        let own = self.own();
        let mut inner = self.shared.lock();
        let before: BTreeSet<RankGeneration> = rank_generations(inner.table.members()).collect();
        let now: BTreeSet<RankGeneration> = rank_generations(&record.members).collect();
        let dropped: Vec<RankGeneration> = before.difference(&now).copied().collect();
        for &who in &dropped {
            inner.traces.insert(who.0, record.first);
            // Who was not fenced before the commit has left, and calls that begin before this view need it.
            if who != own && !self.local.fenced.contains(&who.0) {
                inner.farewells.insert(who, record.first);
            }
        }
        let dropped: Vec<RankGeneration> = {
            let over = |who: &RankGeneration| *who != own && !inner.farewells.contains_key(who);
            dropped.into_iter().filter(over).collect()
        };
        inner.table.set_members(&record.members);
        inner.processes.retain(|who, _| now.contains(who));
        let view = GroupView::from(record);
        inner.view = Some(view.clone());
        inner.tell(GroupEventKind::Viewed(view));
        self.shared.mask(&mut inner);
        drop(inner);
        self.shared.notify();
        for who in dropped {
            // Tidying only: whoever reads these keys knows that the generation was dropped.
            if let Err(error) = self.store.clear(who) {
                tracing::warn!("keys of a rank that is gone are left in the store: {error}");
            }
        }
    }

    fn open(&mut self, record: &GroupRecord) -> Result<(), GroupError> {
        let own = self.own();
        for who in rank_generations(&record.members) {
            if who != own && !self.opened.contains(&who) {
                self.shared.transport.open_peer(who.0)?;
                self.opened.insert(who);
            }
        }
        if self.local.applied == 0 {
            self.store.answered()?;
        }
        self.shared.layer.set_limit(None);
        self.local.limit = Limit::Open;
        self.local.applied = record.epoch;
        self.local.fenced.clear();
        let promised = self.local.promised.take();
        let held = self.since.held.take();
        let mut inner = self.shared.lock();
        inner.set_state(GroupState::Serving);
        inner.tell(GroupEventKind::Resumed {
            epoch: record.epoch,
            held: held.map_or_else(Default::default, |since| since.elapsed()),
        });
        drop(inner);
        self.shared.notify();
        if let Some((proposal, _)) = promised {
            self.store.forget_promise(proposal)?;
        }
        self.tidy(record);
        Ok(())
    }

    /// Removes what nobody reads any more. One member is enough; if it dies, the next view has another one.
    fn tidy(&self, record: &GroupRecord) {
        if record.members.keys().next() != Some(&self.local.slot) {
            return;
        }
        let is_over = |slot: u32, generation: u32| record.was_dropped(slot, generation);
        let tidied = self.shared.transport.forget(&is_over);
        if let Err(error) = tidied.and_then(|()| self.store.tidy(record)) {
            tracing::warn!("records of ranks that are gone are left in the store: {error}");
        }
    }

    /// This generation goes: its calls end at once, nobody is waited for, nothing of it reaches anybody any more.
    pub(super) fn end(mut self, state: GroupState) {
        let layer = &self.shared.layer;
        layer.set_refuse(true);
        // A call that is held by another limit ends, too, and does not start.
        if self.local.limit == Limit::Open {
            layer.set_limit(Some(layer.started()));
        }
        let own = self.own();
        for peer in (0..self.shared.transport.slots()).filter(|peer| *peer != own.0) {
            if let Err(error) = self.shared.transport.fail_peer(peer) {
                self.shared.tell(GroupEventKind::Failed {
                    error: format!("ending the QPs to rank {peer}: {error}"),
                });
            }
        }
        if let Err(error) = self.store.clear(own) {
            tracing::warn!("keys of this rank are left in the store: {error}");
        }
        self.lease = None;
        let mut inner = self.shared.lock();
        inner.set_state(state);
        inner.tell(GroupEventKind::Ended(state));
        drop(inner);
        self.shared.stop();
    }
}
