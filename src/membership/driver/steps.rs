//! Carries out the steps of a change: words of the layer, states of QPs, keys of the store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::look::{Leaving, Limit};
use membership_rules::record::{RankGeneration, Record, later, newer};
use membership_rules::slots::Slots;
use membership_rules::steps::Step;

use super::Driver;
use crate::membership::GroupError;
use crate::membership::event::{Cause, GroupEventKind, GroupState, GroupView};
use crate::membership::group_store::Replaced;
use crate::membership::layer::LayerView;
use crate::membership::outcome::{TURN_PART, TurnOutcome};
use crate::membership::see::says_through;
use crate::membership::shared::Traces;
use crate::membership::stored::Goodbye;

impl Driver {
    /// Does `step`, which the rules asked for after this rank had seen `record`.
    pub(super) fn take(
        &mut self,
        record: &Arc<Record>,
        step: Step,
    ) -> Result<TurnOutcome, GroupError> {
        let (proposal, epoch) = (record.number, record.epoch);
        let _span = tracing::info_span!("change", proposal, epoch).entered();
        match step {
            Step::Wait => {}
            Step::End => return Ok(TurnOutcome::Over(self.over())),
            Step::GiveUp => return Ok(TurnOutcome::Over(GroupState::Expelled)),
            Step::Propose(proposal) => {
                let alone = record.open.is_some() && self.rank.own.applied != 0;
                let alone = alone && !self.rank.own.is_proposed(record);
                let new = record
                    .propose(proposal)
                    .map_err(|refused| GroupError::Record {
                        key: "of this rank".to_owned(),
                        reason: refused.to_string(),
                    })?;
                let replaced = self.replace(&new)?;
                self.rank.own.solo |= alone;
                return Ok(self.behind(replaced));
            }
            Step::Commit(first) => {
                if let Some(open) = &record.open {
                    let replaced = self.replace(&record.commit(open, first))?;
                    return Ok(self.behind(replaced));
                }
            }
            Step::Promise(fence) => self.promise(record, &fence)?,
            Step::Limit(last) => {
                self.rank.shared.layer.set_limit(Some(last));
                self.rank.own.limit = Limit::UpTo(last);
            }
            Step::View => self.view(record)?,
            Step::Goodbye(last) => self.say_goodbye(record, last)?,
        }
        Ok(TurnOutcome::Again)
    }

    fn replace(&mut self, new: &Record) -> Result<Replaced, GroupError> {
        let replaced = self.rank.store.replace(new)?;
        match (replaced, &new.open) {
            (Replaced::Done, Some(open)) => {
                let kept = new.members.iter().filter(|it| open.keep.contains(it.0));
                let mut members = open.takes.clone();
                members.extend(kept);
                self.rank.shared.tell(GroupEventKind::Proposed {
                    proposal: new.number,
                    members,
                });
            }
            (Replaced::Done | Replaced::Changed | Replaced::Missing | Replaced::Unreadable, _) => {}
        }
        Ok(replaced)
    }

    /// Returns what is left to do after an attempt to replace the record. A record that is missing or spoiled does not come back at once,
    /// so this rank waits.
    fn behind(&self, replaced: Replaced) -> TurnOutcome {
        match replaced {
            Replaced::Done | Replaced::Changed => TurnOutcome::Again,
            Replaced::Missing | Replaced::Unreadable => {
                TurnOutcome::Wait(self.rank.shared.bounds.lease_ttl / 4)
            }
        }
    }

    /// P4. Promises the open proposal. A member closes its calls first, then ends its QPs to the slots of `fence`, then writes its promise.
    fn promise(&mut self, record: &Record, fence: &Slots) -> Result<(), GroupError> {
        let mut started = self.rank.shared.layer.started();
        if self.rank.own.is_member(record) && self.rank.own.limit == Limit::Open {
            self.rank.since.held.get_or_insert_with(Instant::now);
            self.rank.shared.set_state(GroupState::Changing);
            // `set_limit` has a fence. No call above the one that it returns starts after it, so the second limit is exact.
            started = self.rank.shared.layer.set_limit(Some(started));
            self.rank.own.limit = Limit::UpTo(started);
            self.rank.shared.layer.set_limit(Some(started));
        }
        let promise = self.rank.own.promise(record, started);
        self.rank
            .own
            .fenced
            .add(&fence.and(&self.slots_over(record)));
        let left = fence.without(&self.rank.own.fenced);
        let ended = self.end_qps(&left)?;
        self.rank.own.fenced.add(&ended);
        if ended != left {
            return Ok(());
        }
        self.rank.promises = true;
        self.rank.store.promise(record.number, &promise)?;
        self.rank.own.promised = Some((record.number, promise));
        // The clock against this proposal starts with the next look. The time before that look is from before the promise.
        self.rank.own.unanswered = (0, Duration::ZERO);
        self.rank.shared.tell(GroupEventKind::Promised {
            proposal: record.number,
            last: promise.last,
        });
        Ok(())
    }

    /// Moves the QPs to members that have ended for certain to Err, before any promise and also while the store does not answer. After that
    /// the HCA repeats nothing to those members, so no memory is bound.
    pub(super) fn end_qps_of_ended(&mut self) -> Result<(), GroupError> {
        let Some(record) = self.rank.store.kept().record.clone() else {
            return Ok(());
        };
        if self.rank.own.applied == 0 {
            return Ok(());
        }
        let is_opened = |slot| {
            let generation = record.members.get(slot);
            generation.is_some() && self.rank.opened.get(slot) == generation
        };
        let ended = self.rank.ended(&record);
        let left: Slots = ended.iter().filter(|slot| is_opened(*slot)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let done = self.end_qps(&left)?;
        let who = |slot| Some((slot, record.members.get(slot)?));
        self.rank.over.extend(done.iter().filter_map(who));
        Ok(())
    }

    /// Returns the slots of members of `record` whose QPs were ended because the member had ended for certain.
    fn slots_over(&self, record: &Record) -> Slots {
        let members = self
            .rank
            .over
            .iter()
            .filter(|who| record.is_member(who.0, who.1));
        members.map(|who| who.0).collect()
    }

    /// Moves the QPs to `slots` to Err. Goes on for as long as a turn may take, and does one slot at least. Returns the slots that are
    /// done. Each peer takes a few commands, so this rank renews its lease meanwhile.
    pub(super) fn end_qps(&mut self, slots: &Slots) -> Result<Slots, GroupError> {
        let mut ended = Slots::default();
        let begun = Instant::now();
        let mut refused = Ok(());
        for slot in slots.iter() {
            refused = self.rank.shared.transport.fail_peer(slot);
            if refused.is_err() {
                break;
            }
            ended.insert(slot);
            if let Err(error) = self.rank.store.keep_lease(self.rank.own.applied == 0) {
                tracing::warn!("the lease is not renewed: {error}");
            }
            if begun.elapsed() >= self.rank.shared.bounds.lease_ttl / TURN_PART {
                break;
            }
        }
        if !ended.is_empty() {
            self.rank.opened.retain(|opened, _| !ended.contains(opened));
            let mut inner = self.rank.shared.lock();
            inner
                .connected
                .retain(|(connected, _)| !ended.contains(*connected));
            inner.tell(GroupEventKind::Fenced {
                ranks: ended.iter().collect(),
            });
        }
        refused?;
        Ok(ended)
    }

    /// P7. Takes over a new view: first the device gets the view, then kernels may post to newcomers, then all calls may start.
    fn view(&mut self, record: &Arc<Record>) -> Result<(), GroupError> {
        let own = self.rank.own();
        let members: Vec<u32> = record.members.keys().collect();
        let parted = record.parted.of(own.0);
        let reached: Vec<u32> = record.slots().without(&parted).iter().collect();
        let view = LayerView {
            epoch: record.epoch,
            first: record.first,
            members: &members,
            reached: &reached,
        };
        let layer = &self.rank.shared.layer;
        let set = match self.rank.own.applied {
            0 => layer.begin(&view),
            _ => layer.set_view(&view),
        };
        set.map_err(GroupError::Layer)?;
        self.rank.first = record.first;
        self.viewed(record);
        self.open(record, &parted);
        let joined = self.rank.own.applied == 0;
        // Promises of a change of the view before do not count as promises of a change of this one.
        self.prepare(None)?;
        self.rank.shared.layer.set_limit(None);
        self.rank.own.limit = Limit::Open;
        self.rank.own.applied = record.epoch;
        self.rank.since.viewed = Some(Instant::now());
        self.rank.own.fenced = Slots::default();
        self.rank.own.solo = false;
        if self.rank.own.leaving == Leaving::Said {
            self.rank.own.leaving = Leaving::Wants;
        }
        self.rank.own.promised = None;
        let held = self.rank.since.held.take();
        let mut inner = self.rank.shared.lock();
        inner.set_state(GroupState::Serving);
        inner.tell(GroupEventKind::Resumed {
            epoch: record.epoch,
            held: held.map_or_else(Default::default, |since| since.elapsed()),
        });
        drop(inner);
        self.rank.shared.notify();
        if joined {
            self.rank.store.keep_lease(false)?;
        }
        self.tidying.tidy(&self.rank, record);
        Ok(())
    }

    /// Lets kernels post to the members that this rank reaches. If the QPs to one of them are of no use, this rank suspects it, and the
    /// next view parts the pair.
    fn open(&mut self, record: &Record, parted: &Slots) {
        let own = self.rank.own();
        for who in record.members.iter().filter(|who| *who != own) {
            if parted.contains(who.0) || self.rank.over.contains(&who) {
                continue;
            }
            let fenced = self.rank.own.fenced.contains(who.0);
            let opened = match self.rank.opened.get(who.0) == Some(who.1) {
                true if !fenced => continue,
                true => Err("they were ended for a change that kept the rank".to_owned()),
                false => {
                    let opened = self.rank.shared.transport.open_peer(who.0);
                    opened.map_err(|error| error.to_string())
                }
            };
            match opened {
                Ok(()) => drop(self.rank.opened.insert(who.0, who.1)),
                Err(error) => {
                    let cause = Cause::Told(format!("the QPs to it are of no use: {error}"));
                    self.rank.shared.suspect(who.0, cause);
                }
            }
        }
        self.rank.opened.share(&record.members);
        let mut inner = self.rank.shared.lock();
        let opened = |(slot, generation): &RankGeneration| {
            *slot == own.0 || self.rank.opened.get(*slot) == Some(*generation)
        };
        inner.connected.retain(|who| !opened(who));
    }

    /// Notes that the device has the view of `record`.
    pub(super) fn viewed(&mut self, record: &Record) {
        let own = self.rank.own();
        let mut inner = self.rank.shared.lock();
        let before = inner.suspects.members().clone();
        let stays = |who: RankGeneration| record.is_member(who.0, who.1);
        for who in before.iter().filter(|who| !stays(*who) && *who != own) {
            inner.traces.insert(who.0, Traces::behind(record.first));
            // Calls that begin before this view still need a member that has left.
            if record.left.get(&who.0) == Some(&(who.1, record.first)) {
                inner.farewells.insert(who, record.first);
            }
        }
        let parted_slots = record.parted.of(own.0);
        let member = |slot| Some((slot, record.members.get(slot)?));
        let parted: BTreeSet<RankGeneration> = parted_slots.iter().filter_map(member).collect();
        for who in parted.difference(&inner.parted.clone()) {
            inner.traces.insert(who.0, Traces::behind(record.first));
            inner.connected.remove(who);
        }
        inner.parted = parted;
        // From now on the view says how the pair with a newcomer of it is.
        inner.unproven.retain(|who| !stays(*who));
        inner.proving.retain(|who, _| !stays(*who));
        inner.suspects.set_members(&record.members);
        self.rank.opened.share(&record.members);
        inner.processes.retain(|who, _| stays(*who));
        let view = GroupView::from(record);
        inner.set_view(view.clone());
        inner.tell(GroupEventKind::Viewed(view));
        self.rank.shared.mask(&mut inner);
        drop(inner);
        self.reports.forget_causes();
        self.rank.store.reader_mut().note_view();
        self.sight.heard.retain(stays);
        self.rank.over.retain(|who| stays(*who));
        self.rank.shared.notify();
        self.rank.wake_connector();
    }

    /// Says goodbye for a member that wants to leave, and lets it start no call after `last`. If a view keeps the member after that, it
    /// says goodbye anew.
    fn say_goodbye(&mut self, record: &Record, last: u32) -> Result<(), GroupError> {
        self.rank.since.held.get_or_insert_with(Instant::now);
        let layer = &self.rank.shared.layer;
        // The limit is set first. What the rank has started is read after that.
        let started = layer.set_limit(Some(last));
        let last = later(last, started);
        layer.set_limit(Some(last));
        self.rank.own.limit = Limit::UpTo(last);
        self.rank.store.leave(Goodbye {
            epoch: record.epoch,
            last,
        })?;
        self.rank.own.leaving = Leaving::Said;
        // Ranks that do not act look for the goodbye when a change of the record wakes them.
        self.rank.store.wake(record)?;
        Ok(())
    }

    /// Ends the QPs to each rank that has left, when both ends have made all calls that they share or when the leaver is gone.
    pub(super) fn see_off(&mut self, record: &Record) -> Result<(), GroupError> {
        let finished = self.rank.shared.layer.finished();
        let leavers: Vec<(RankGeneration, u32)> = {
            let inner = self.rank.shared.lock();
            let leavers = inner.farewells.iter();
            leavers.map(|(who, first)| (*who, *first)).collect()
        };
        let mut over = Slots::default();
        for (who, first) in &leavers {
            let last = first.wrapping_sub(1);
            let through = !newer(last, finished);
            if through && self.rank.through.is_none_or(|before| newer(last, before)) {
                self.rank.through = Some(last);
            }
            let kept = self.rank.store.kept();
            let gone = !kept.members.contains(*who) || kept.over.contains(who);
            if gone || through && says_through(kept.rows.get(who).map(Arc::as_ref), last) {
                over.insert(who.0);
            }
        }
        if over.is_empty() {
            return Ok(());
        }
        let ended = self.end_qps(&over)?;
        let mut inner = self.rank.shared.lock();
        inner.farewells.retain(|who, _| !ended.contains(who.0));
        // The next turn ends the QPs that are left.
        inner.news |= ended != over;
        self.rank.shared.mask(&mut inner);
        drop(inner);
        self.rank.shared.notify();
        if self.rank.is_lowest(record) {
            for (who, _) in leavers.iter().filter(|(who, _)| ended.contains(who.0)) {
                self.tidying.leaver(*who);
            }
        }
        Ok(())
    }

    /// Returns the state in which this generation ends when it is not in the view.
    fn over(&self) -> GroupState {
        if self.rank.shared.lock().leaving {
            GroupState::Left
        } else {
            GroupState::Expelled
        }
    }

    /// Ends this generation. Its calls end at once, this rank waits for no other, and nothing that it sends arrives any more.
    pub(super) fn end(&mut self, state: GroupState) {
        let layer = &self.rank.shared.layer;
        layer.set_refuse(true);
        // A call that another limit holds ends as well, and does not start.
        if self.rank.own.limit == Limit::Open {
            layer.set_limit(Some(layer.started()));
        }
        let own = self.rank.own();
        for peer in (0..self.rank.shared.transport.slots()).filter(|peer| *peer != own.0) {
            if let Err(error) = self.rank.shared.transport.fail_peer(peer) {
                self.rank.shared.tell(GroupEventKind::Failed {
                    error: format!("ending the QPs to rank {peer}: {error}"),
                });
            }
        }
        // The lease's name, and the `over` key, belong to the other process. So this one says nothing of its end.
        if self.lost.has_namesake() {
            self.rank.store.end_lease();
        } else {
            self.give_up();
        }
        let mut inner = self.rank.shared.lock();
        inner.set_state(state);
        inner.tell(GroupEventKind::Ended(state));
        drop(inner);
        self.rank.shared.stop();
    }

    /// Writes that this generation has ended, so that the others need not wait for its lease to run out, and gives the lease back.
    pub(super) fn give_up(&mut self) {
        if let Err(error) = self.rank.store.say_over() {
            tracing::warn!("the others learn of the end of this rank by its lease: {error}");
        }
        self.rank.store.end_lease();
    }
}
