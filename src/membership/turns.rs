//! P9: decides whose turn it is to do what any rank may do, and how long a rank waits until its own turn has come.

use std::time::{Duration, Instant};

use membership_rules::look::{Leaving, Look, Row};
use membership_rules::record::{Proposal, Record};

use super::attention::{Attention, BUSY, LOOK};
use super::rank::Rank;

/// A rank that waits in a change pauses for this part of the time that it has waited, if that is longer than [`BUSY`].
const BUSY_PART: u32 = 4;

/// How long a rank waits for more pairs after a pair was connected anew. When ports or a switch come back many pairs do, and each view
/// costs every rank a change.
const UNITE: Duration = Duration::from_millis(40);

/// The epoch and number of a record, and since when something is to be done in it.
type Since = Option<((u32, u64), Instant)>;

/// What this rank waits for other ranks to do.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Since when this rank would do a step that any rank may do.
    turn: Since,
    /// Since when a step is to be done by some rank.
    busy: Since,
}

impl Turns {
    /// P9: returns whether this rank looks at all keys. The rank that acts does, and so does a rank that comes or goes. Another rank does
    /// so only when its turn has passed without a change, and not before its next regular look. If this rank has something against others,
    /// it follows that by itself, at its turn.
    pub(super) fn reads_all(
        &mut self,
        rank: &Rank,
        record: &Record,
        look: &Look<Duration>,
        row: &Row,
        quiet: bool,
    ) -> bool {
        let of = (record.epoch, record.number);
        if quiet {
            self.busy = None;
        } else if self.busy.is_none_or(|(same, _)| same != of) {
            self.busy = Some((of, Instant::now()));
        }
        let alone = !rank.own.is_member(record) || rank.own.leaving != Leaving::No;
        if rank.own.applied == 0 || alone || rank.shared.lock().hca_lost {
            return true;
        }
        let place = place(rank, record, look);
        if place == 0 || waits_for_promises(rank, record) {
            return true;
        }
        let Some((_, since)) = self.busy else {
            return false;
        };
        let accuses = row.accuses() || !look.ended.is_empty();
        since.elapsed() >= reading_turn(rank, record, accuses, place)
    }

    /// P9: returns how long this rank still leaves a step to others that may do it as well. All of them wait for `more`.
    pub(super) fn turn_left(
        &mut self,
        rank: &Rank,
        record: &Record,
        look: &Look<Duration>,
        more: Duration,
    ) -> Duration {
        let of = (record.epoch, record.number);
        let now = Instant::now();
        let since = match self.turn {
            Some((same, since)) if same == of => since,
            _ => now,
        };
        self.turn = Some((of, since));
        let turn = rank.store.pace().turn(place(rank, record, look));
        turn.saturating_add(more)
            .saturating_sub(now.duration_since(since))
    }

    /// Returns the pause between two looks of a rank that waits for others in a change: a quarter of the time that it has waited already.
    /// So the number of looks in a change grows only slowly with the time that other ranks take.
    fn busy_pause(&self, rank: &Rank) -> Duration {
        let waited = self.busy.map(|(_, since)| since.elapsed() / BUSY_PART);
        let shortest = BUSY.max(rank.store.pace().slowest());
        shortest.max(waited.unwrap_or_default())
    }

    /// Returns how long the rank waits for its next look if nothing changes before.
    pub(super) fn longest_wait(
        &self,
        rank: &Rank,
        attention: &Attention,
        record: &Record,
        look: &Look<Duration>,
    ) -> Duration {
        let quarter = rank.shared.bounds.lease_ttl / 4;
        let busy = self.busy_pause(rank);
        let place = place(rank, record, look);
        let row = look.rows.get(&rank.own.slot);
        let accuses = row.is_some_and(Row::accuses) || !look.ended.is_empty();
        // `rung`: all newcomers of the proposal have promised, so they have woken the members. Before that the rank that acts waits for the
        // record.
        let rung = |open: &Proposal| open.takes.keys().all(|it| look.promises.contains_key(&it));
        let device = !look.has_place || rank.since.left.is_some();
        let comes = match rank.own.applied {
            // This newcomer founds the group anew with others that ask.
            0 => look.holders.and(&record.slots()).is_empty(),
            _ => !look.asks.is_empty(),
        };
        let bound = rank.shared.bounds.error;
        let (parts, breaks) = {
            let inner = rank.shared.lock();
            let breaks = inner.suspects.next_broken(Instant::now(), bound);
            (!inner.farewells.is_empty(), breaks)
        };
        let time = match &record.open {
            Some(open) if place == 0 && rung(open) => busy,
            Some(_) if rank.own.applied == 0 && rank.rung != record.number => busy,
            _ if device => busy.min(LOOK),
            _ if parts || comes && place == 0 => LOOK.max(busy),
            _ => quarter,
        };
        let waits = if rank.has_waiting_call(record) {
            rank.shared.transport.deadline() / 4
        } else {
            quarter
        };
        let reads = match self.busy {
            Some((_, since)) if !attention.reads() => {
                let turn = reading_turn(rank, record, accuses, place);
                turn.saturating_sub(since.elapsed())
            }
            _ => quarter,
        };
        let looked = attention
            .looked()
            .map_or(quarter, |looked| quarter.saturating_sub(looked.elapsed()));
        let others = breaks.unwrap_or(quarter).min(waits).min(reads).min(looked);
        time.min(quarter).min(others.max(BUSY))
    }
}

/// Returns how long something has to be done before the rank at `place` looks whether it is.
fn reading_turn(rank: &Rank, record: &Record, accuses: bool, place: u32) -> Duration {
    let turn = rank.store.pace().turn(place);
    if record.open.is_none() && accuses {
        turn
    } else {
        turn.max((rank.shared.bounds.lease_ttl / 4).saturating_mul(place))
    }
}

/// Returns whether a call of this rank has waited so long in a change that the rank needs to know which members have promised. The
/// clocks against those members stand still.
fn waits_for_promises(rank: &Rank, record: &Record) -> bool {
    let held = rank.since.held.map(|since| since.elapsed());
    let long = held.is_some_and(|held| held >= rank.shared.transport.deadline() / 4);
    long && rank.has_waiting_call(record)
}

/// Returns how many living ranks come before this one.
fn place(rank: &Rank, record: &Record, look: &Look<Duration>) -> u32 {
    let own = rank.own.slot;
    let (from, may, behind) = match &record.open {
        Some(open) if rank.own.is_proposed(record) => (open.by, open.all(), 0),
        Some(open) => (0, record.slots().without(&open.all()), 1),
        None if rank.own.applied == 0 => (0, look.asks.keys().map(|who| who.0).collect(), 0),
        None => (0, record.slots(), 0),
    };
    let gone = rank.rules.gone(&rank.own, record, look);
    let asks = look.asks.iter().filter(|(_, ask)| ask.holds);
    let living = look.holders.with(&asks.map(|(who, _)| who.0).collect());
    let living = may.and(&living).without(&gone);
    let order = |slot: u32| (slot < from, slot);
    let before = living.iter().filter(|slot| order(*slot) < order(own));
    behind + u32::try_from(before.count()).unwrap_or(u32::MAX)
}

/// Returns how much longer all ranks leave a step alone that proposes `new`.
pub(super) fn waits_more(record: &Record, new: &Proposal) -> Duration {
    if only_unites(record, new) {
        UNITE
    } else {
        Duration::ZERO
    }
}

/// Returns whether `new` does nothing but unite pairs: no rank comes or goes, and no pair parts.
fn only_unites(record: &Record, new: &Proposal) -> bool {
    record.open.is_none()
        && new.takes.is_empty()
        && new.keep == record.slots()
        && new.parts != record.parted
        && new.parts.is_subset(&record.parted)
}
