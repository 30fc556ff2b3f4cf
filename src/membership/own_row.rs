//! Writes the row of this rank when it says something else than the store holds.

use std::sync::Arc;
use std::time::Instant;

use membership_rules::look::Row;
use membership_rules::members::Members;
use membership_rules::record::Record;
use rendezvous::StoreError;

use super::newcomers::Newcomers;
use super::rank::Rank;
use super::stored::StoredRow;

/// The row of this rank as the store holds it.
#[derive(Debug, Default)]
pub(super) struct OwnRow {
    told: Arc<StoredRow>,
}

impl OwnRow {
    /// Returns how often this rank had taken its lease when it wrote the row.
    pub(super) fn takings(&self) -> u32 {
        self.told.takings
    }

    /// Writes the row of this rank, if the store holds another one.
    pub(super) fn tell(
        &mut self,
        rank: &mut Rank,
        newcomers: &Newcomers,
        record: &Record,
        row: &Row,
    ) -> Result<(), StoreError> {
        let (connected, unproven) = {
            let inner = rank.shared.lock();
            let unproven = inner.unproven.difference(&inner.connected);
            (
                inner.connected.iter().copied().collect(),
                unproven.copied().collect(),
            )
        };
        let own = rank.own();
        let says = row.behind || row.accuses();
        let stored = StoredRow {
            slots: rank.shared.transport.slots(),
            epoch: if says { record.epoch } else { 0 },
            takings: rank.store.takings(),
            through: rank.through,
            unheard: row.unheard.clone(),
            broken: row.broken.clone(),
            overdue: row.overdue.clone(),
            meets: row.meets.clone(),
            ended: row.ended.clone(),
            behind: row.behind,
            unbuffered: rank.shared.layer.unbuffered(),
            connected,
            held: held(rank, newcomers, record),
            unproven,
        };
        // Another writer may have replaced the row, also by text that is no row.
        let kept = rank.store.kept().rows.get(&own);
        let away = rank.since.away.is_some();
        let stands = kept == Some(&self.told);
        if stands && !away && !row.accuses() && self.may_wait(rank, record, &stored) {
            return Ok(());
        }
        // The write also finds out whether a store that refused a change takes one again.
        if stored != *self.told || !stands || away {
            rank.store.tell(&stored)?;
            self.told = Arc::new(stored);
            rank.store.reader_mut().keep_own_row(Arc::clone(&self.told));
        }
        Ok(())
    }

    /// Returns whether the row may wait, for a moment after a view. It may if it accuses no rank, and only says less than before or which
    /// ranks this one meets. What it said against others held in the view before, and no rank is expelled for want of contact yet.
    fn may_wait(&self, rank: &Rank, record: &Record, row: &StoredRow) -> bool {
        let told = &self.told;
        let quarter = rank.shared.bounds.lease_ttl / 4;
        let new = rank
            .since
            .viewed
            .is_some_and(|viewed| viewed.elapsed() < quarter);
        let parted = record.parted.of(rank.own.slot);
        let connected = |row: &StoredRow, slot: u32| row.connected.get(slot);
        let mut slots = row.connected.keys().chain(parted.iter());
        new && (row.takings, row.through) == (told.takings, told.through)
            && row.unproven == told.unproven
            && slots.all(|slot| connected(row, slot) == connected(told, slot))
    }
}

/// Returns the slots that are held back, which only the member with the lowest slot says: it takes newcomers in while it acts.
fn held(rank: &Rank, newcomers: &Newcomers, record: &Record) -> Members {
    if rank.is_lowest(record) {
        newcomers.held(Instant::now())
    } else {
        Members::default()
    }
}
