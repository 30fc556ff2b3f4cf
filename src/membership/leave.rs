//! A rank leaves, and no token is lost: it says which is the last call that it starts, the others go on without it behind that
//! call, and QPs end when both sides are through with all calls before.

use std::collections::BTreeSet;
use std::time::Instant;

use super::GroupError;
use super::driver::{Driver, rank_generations};
use super::group_store::Look;
use super::presence::RankGeneration;
use super::record::{GroupRecord, newer};
use super::rules::Limit;

impl Driver {
    /// A member that wants to go starts no call any more, and tells which was the last. Whenever a view has let it go on, it does
    /// so again.
    pub(super) fn say_goodbye(&mut self, record: &GroupRecord) -> Result<(), GroupError> {
        let leaving = self.shared.lock().leaving;
        if !leaving || !self.local.says_goodbye(record) {
            return Ok(());
        }
        self.since.held.get_or_insert_with(Instant::now);
        let layer = &self.shared.layer;
        // Closed first: what it has started is read behind that.
        let before = self.local.goodbye(record, layer.started());
        let started = layer.set_limit(Some(before.last));
        let goodbye = self.local.goodbye(record, started);
        layer.set_limit(Some(goodbye.last));
        self.local.limit = Limit::UpTo(goodbye.last);
        self.store.leave(goodbye)?;
        Ok(())
    }

    /// Whether this rank, which has left with the view of `record`, is still needed: its last calls have not ended here, or not
    /// at the others. Nobody waits for longer than calls do.
    pub(super) fn is_leaving(
        &mut self,
        record: &GroupRecord,
        look: &Look,
    ) -> Result<bool, GroupError> {
        let own = self.own();
        let leaving = self.shared.lock().leaving;
        let Some(last) = self.local.last_call(record).filter(|_| leaving) else {
            return Ok(false);
        };
        self.busy = true;
        let layer = &self.shared.layer;
        if self.local.limit != Limit::UpTo(last) {
            layer.set_limit(Some(last));
            self.local.limit = Limit::UpTo(last);
        }
        let since = *self.since.left.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.shared.transport.deadline() {
            return Ok(false);
        }
        if newer(last, layer.finished()) {
            return Ok(true);
        }
        self.shared.lock().done.insert(own);
        self.row.done.insert(own);
        self.store.tell(&self.row)?;
        let through = |who: RankGeneration| {
            let row = look.rows.get(&who);
            !look.held.contains(&who) || row.is_some_and(|row| row.done.contains(&own))
        };
        Ok(!rank_generations(&record.members).all(through))
    }

    /// Ends the QPs to those who have left when both sides are through with their calls, or when they are gone.
    pub(super) fn see_off(&mut self, look: &Look) -> Result<(), GroupError> {
        let finished = self.shared.layer.finished();
        let mut over = BTreeSet::new();
        {
            let mut inner = self.shared.lock();
            // Who is gone reads it no more.
            inner.done.retain(|who| look.held.contains(who));
            let leavers: Vec<(RankGeneration, u32)> = inner
                .farewells
                .iter()
                .map(|(who, first)| (*who, *first))
                .collect();
            self.busy |= !leavers.is_empty();
            for (who, first) in leavers {
                let through = !newer(first.wrapping_sub(1), finished);
                if through {
                    inner.done.insert(who);
                }
                let row = look.rows.get(&who);
                let theirs = row.is_some_and(|row| row.done.contains(&who));
                if !look.held.contains(&who) || through && theirs {
                    over.insert(who);
                }
            }
        }
        if over.is_empty() {
            return Ok(());
        }
        self.end_qps(&over.iter().map(|(slot, _)| *slot).collect())?;
        for who in over {
            let mut inner = self.shared.lock();
            inner.farewells.remove(&who);
            self.shared.mask(&mut inner);
            drop(inner);
            if let Err(error) = self.store.clear(who) {
                tracing::warn!("keys of a rank that has left are still in the store: {error}");
            }
        }
        self.shared.notify();
        Ok(())
    }
}
