//! The thread that connects QPs to newcomers, and to members from which this rank is parted. The thread that agrees on views
//! therefore never waits for another rank.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use membership_rules::clocks::back_off;
use membership_rules::record::{RankGeneration, newer};

use super::event::GroupEventKind;
use super::shared::{Inner, Shared, Traces};
use super::transport::Meeting;
use crate::team::TeamError;

/// Time between two looks at calls that have to end first, and at a parted pair whose other end has not come. Also the time before the
/// first look at a newcomer that has not come. The intervals between looks at a newcomer double, because all ranks of a group wait for the
/// same newcomer.
const LOOK: Duration = Duration::from_millis(2);
/// The longest interval between two looks at a newcomer that has not come, in units of [`LOOK`].
const MOST_LOOKS: u32 = 16;
/// Time before the first look at a newcomer whose QPs are being proven. The longest time between two such looks is [`MOST_LOOKS`] times
/// this.
const PROVE: Duration = Duration::from_millis(2);
/// Time between two looks at a newcomer that is connected and is no member yet. The newcomer may have begun anew.
const FOLLOW: Duration = Duration::from_secs(1);
/// A newcomer counts as not reached when its QPs have carried nothing for this many times the patience of an HCA.
const PATIENCES: u32 = 2;
/// Time before this rank tries again to connect with a newcomer after a failure.
const AGAIN: Duration = Duration::from_millis(50);
/// Time between two looks at a parted pair that is connected. The other end may have begun anew.
const CHECK: Duration = Duration::from_millis(20);
/// Longest wait of this thread for something to do.
const IDLE: Duration = Duration::from_millis(200);
/// Time before this rank first looks at the records that it wrote for ranks with which it connects. The longest time between two looks is
/// [`MOST_RETELLS`] times this.
const RETELL: Duration = Duration::from_secs(1);
const MOST_RETELLS: u32 = 8;
/// Time after which a newcomer and a rank that have not met are reported, with what each of them has told the other. Further reports come
/// each time the wait has doubled.
pub(super) const MEET: Duration = Duration::from_secs(10);
/// P7: the longest wait of a parted pair between two tries, in error bounds.
const MOST_BOUNDS: u32 = 32;

/// When each rank is tried next, and how often tries have come to nothing.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    next: BTreeMap<RankGeneration, Instant>,
    /// How often the connection of each parted pair, or newcomer, has failed.
    failures: BTreeMap<RankGeneration, u32>,
    /// Looks in a row that have not found the newcomer.
    waits: BTreeMap<RankGeneration, u32>,
    /// Looks in a row that have not found the newcomer's QPs proven.
    proofs: BTreeMap<RankGeneration, u32>,
    /// Newcomers that have not answered in time, and that were reported for it.
    late: BTreeSet<RankGeneration>,
    /// Newcomers that this rank has not met, with the time for which it had tried at the last report.
    unmet: BTreeMap<RankGeneration, Duration>,
    /// The rank that was tried last. The search for the next rank begins after it, so that one rank that cannot be reached delays no other.
    last: RankGeneration,
    retell: Retell,
    /// Records of other ranks that count as missing, and that were reported.
    odd: BTreeSet<String>,
}

/// When this rank looks at its own records. Another writer may have spoiled them, so this rank looks while a pair is being connected.
#[derive(Debug, Default)]
struct Retell {
    next: Option<Instant>,
    times: u32,
    /// Ranks for which this rank still has to look at its own records in this round.
    left: Vec<RankGeneration>,
    /// The next turn of the thread looks at no record.
    rests: bool,
}

/// Why an attempt to connect has come to nothing.
enum Trouble {
    /// A record of the other end cannot be read. The other end has not written it yet, or will write it again.
    Missing(String),
    Failed(String),
    /// The QPs to a newcomer carry nothing: the HCA has given a QP up.
    Unreached(String),
}

impl From<TeamError> for Trouble {
    fn from(error: TeamError) -> Self {
        if error.counts_as_missing() {
            Self::Missing(error.to_string())
        } else {
            Self::Failed(error.to_string())
        }
    }
}

/// Connects until this rank has nothing to connect and nothing to close, or the group stops.
///
/// This function is long because it has one arm for each way in which an attempt can end.
pub(super) fn run(shared: &Shared, schedule: &mut Schedule) {
    while !shared.is_stopped() {
        let mut inner = shared.lock();
        if !inner.has_to_connect() {
            inner.connects = false;
            return;
        }
        let targets = targets(shared, &inner);
        let now = Instant::now();
        schedule.forget(&inner);
        if let Some((rank, generation)) = schedule.retell.due(&inner, now) {
            drop(inner);
            if let Err(error) = shared.transport.tell_again(rank, generation) {
                tracing::debug!("what rank {rank} was told stays as it is: {error}");
            }
            schedule.retell.look_again();
            continue;
        }
        let Some(who) = schedule.due(&targets, now) else {
            let over = over(shared, &inner);
            let idle = if waits_for_calls(shared, &inner) {
                LOOK
            } else {
                schedule.idle(&targets, now)
            };
            drop(shared.wait(inner, idle));
            release(shared, &over);
            continue;
        };
        let parted = inner.parted.contains(&who);
        drop(inner);
        schedule.last = who;
        let pause = match connect(shared, who, parted) {
            Ok(Meeting::Proven) => {
                schedule.waits.remove(&who);
                schedule.proofs.remove(&who);
                if parted { CHECK } else { FOLLOW }
            }
            Ok(_) if parted => LOOK,
            Ok(Meeting::Unproven) => {
                let cause = "both have made QPs, and a write on one of them has no answer";
                schedule.tell_unmet(shared, who, Some(cause));
                wait_again(&mut schedule.proofs, who, PROVE, MOST_LOOKS)
            }
            Ok(Meeting::Absent) => {
                schedule.tell_late(shared, who);
                schedule.tell_unmet(shared, who, None);
                wait_again(&mut schedule.waits, who, LOOK, MOST_LOOKS)
            }
            Err(Trouble::Missing(error)) => {
                let cause = error.clone();
                if schedule.odd.insert(error.clone()) {
                    let error = format!("{error}; the record counts as missing");
                    shared.tell(GroupEventKind::Failed { error });
                }
                schedule.tell_unmet(shared, who, Some(&cause));
                CHECK
            }
            Err(Trouble::Failed(error)) => {
                schedule.tell_unmet(shared, who, Some(&error));
                let (rank, generation) = who;
                shared.tell(GroupEventKind::NotConnected {
                    rank,
                    generation,
                    error,
                });
                if parted {
                    wait_again(
                        &mut schedule.failures,
                        who,
                        shared.bounds.error,
                        MOST_BOUNDS,
                    )
                } else {
                    AGAIN
                }
            }
            // The HCA has given a QP up. The next attempt writes the numbers of new QPs into the store, so this rank waits before it.
            Err(Trouble::Unreached(error)) => {
                schedule.tell_unmet(shared, who, Some(&error));
                let unit = shared.bounds.error;
                wait_again(&mut schedule.failures, who, unit, MOST_BOUNDS)
            }
        };
        schedule.next.insert(who, Instant::now() + pause);
    }
}

impl Schedule {
    /// Returns the next target whose time has come. The search goes in the order of slots and begins after the last target.
    fn due(&self, targets: &[RankGeneration], now: Instant) -> Option<RankGeneration> {
        let is_due = |who: &&RankGeneration| self.next.get(who).is_none_or(|next| *next <= now);
        let behind = targets.iter().find(|who| **who > self.last && is_due(who));
        behind.or_else(|| targets.iter().find(is_due)).copied()
    }

    /// Returns how long this thread may wait until one of `targets` is due.
    fn idle(&self, targets: &[RankGeneration], now: Instant) -> Duration {
        let next = targets.iter().filter_map(|who| self.next.get(who));
        let left = next.map(|next| next.saturating_duration_since(now));
        left.min().unwrap_or(IDLE).clamp(LOOK, IDLE)
    }

    /// Reports once that newcomer `who` has not answered for the promise bound. This rank goes on looking for the newcomer.
    fn tell_late(&mut self, shared: &Shared, who: RankGeneration) {
        let bound = shared.bounds.promise;
        let since = {
            let inner = shared.lock();
            if inner.waits {
                return;
            }
            inner.begun.get(&who).map(Instant::elapsed)
        };
        if since.is_none_or(|since| since < bound) || !self.late.insert(who) {
            return;
        }
        let (rank, generation) = who;
        let error = format!(
            "it has not answered for {bound:?} (promise_bound), or kernels of this rank still hold guards of it"
        );
        shared.tell(GroupEventKind::NotConnected {
            rank,
            generation,
            error,
        });
    }

    /// Reports a pair that does not meet, with the words of both ends in the store: first after [`MEET`], then each time the wait has
    /// doubled. `cause` is the error that this end has found in the last look, if any.
    fn tell_unmet(&mut self, shared: &Shared, who: RankGeneration, cause: Option<&str>) {
        let since = {
            let inner = shared.lock();
            let since = inner.begun.get(&who).map(Instant::elapsed);
            since.filter(|_| !inner.waits && !inner.parted.contains(&who))
        };
        let due = self.unmet.get(&who).map_or(MEET, |told| *told * 2);
        let Some(since) = since.filter(|since| *since >= due) else {
            return;
        };
        self.unmet.insert(who, since);
        let (rank, generation) = who;
        let [own, theirs] = shared.transport.words(rank, generation);
        let cause = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
        let error = format!(
            "the two have not met for {since:.1?}{cause}. This end: {own}. Rank {rank}: {theirs}"
        );
        shared.tell(GroupEventKind::NotConnected {
            rank,
            generation,
            error,
        });
    }

    /// Forgets ranks that are no targets any more: they are neither wanted nor parted from this one. Failures of a member are kept: if its
    /// pair was united and parts again, that counts as one more failure.
    fn forget(&mut self, inner: &Inner) {
        let is_target =
            |who: &RankGeneration| inner.wanted.contains(who) || inner.parted.contains(who);
        self.next.retain(|who, _| is_target(who));
        self.waits.retain(|who, _| is_target(who));
        self.proofs.retain(|who, _| is_target(who));
        self.late.retain(is_target);
        self.unmet
            .retain(|who, _| inner.begun.contains_key(who) && is_target(who));
        if inner.wanted.is_empty() && inner.parted.is_empty() {
            self.odd.clear();
        }
        let members = inner.suspects.members();
        let is_member = |who: &RankGeneration| members.get(who.0) == Some(who.1);
        self.failures
            .retain(|who, _| is_member(who) || inner.wanted.contains(who));
    }
}

impl Retell {
    /// Returns the rank for which this rank looks at its own records now, if any. This rank connects with that rank, or has connected with
    /// it. Every second call returns None, so that connecting goes on.
    fn due(&mut self, inner: &Inner, now: Instant) -> Option<RankGeneration> {
        if inner.wanted.is_empty() && inner.parted.is_empty() {
            *self = Self::default();
            return None;
        }
        let next = *self.next.get_or_insert(now + RETELL);
        if self.left.is_empty() && next <= now {
            self.left = inner.wanted.union(&inner.parted).copied().collect();
            self.times = self.times.saturating_add(1);
        }
        if std::mem::take(&mut self.rests) {
            return None;
        }
        self.rests = true;
        self.left.pop()
    }

    /// Notes that the records for one rank were looked at. The next round begins some time after the end of this one.
    fn look_again(&mut self) {
        if self.left.is_empty() {
            self.next = Some(Instant::now() + back_off(RETELL, self.times, MOST_RETELLS));
        }
    }
}

/// Returns how long `who` waits after one more failure: `unit` at first, twice as long each time, at most `most` times `unit`.
fn wait_again(
    times: &mut BTreeMap<RankGeneration, u32>,
    who: RankGeneration,
    unit: Duration,
    most: u32,
) -> Duration {
    let times = times.entry(who).or_default();
    *times = times.saturating_add(1);
    back_off(unit, *times, most)
}

/// Returns the ranks with which this rank may try to connect now: wanted newcomers, and members from which this rank is parted.
fn targets(shared: &Shared, inner: &Inner) -> Vec<RankGeneration> {
    let free = |(slot, _): &&RankGeneration| {
        !inner.suspects.members().contains_key(*slot) && !says_farewell(inner, *slot)
    };
    // Newcomers that are connected stay targets: the other end may begin anew before it is a member.
    let wanted = inner.wanted.iter().filter(free);
    let mut all: Vec<RankGeneration> = wanted.chain(&inner.parted).copied().collect();
    all.retain(|(slot, _)| is_cleared(shared, inner, *slot));
    all.sort_unstable();
    all
}

/// Returns whether this rank has a rank to connect with and some calls have to end first. No event reports the end of a call. Traces in a
/// slot that stays empty do not count.
fn waits_for_calls(shared: &Shared, inner: &Inner) -> bool {
    let missing = inner.wanted.difference(&inner.connected);
    let mut slots = missing.chain(&inner.parted).map(|who| who.0);
    slots.any(|slot| says_farewell(inner, slot) || !is_cleared(shared, inner, slot))
}

/// Returns whether all calls have ended that may read what the last holder of `slot` has sent: the calls of the views that had this holder.
fn is_cleared(shared: &Shared, inner: &Inner, slot: u32) -> bool {
    let ended = |first: u32| !newer(first.wrapping_sub(1), shared.layer.finished());
    inner
        .traces
        .get(&slot)
        .is_none_or(|traces| ended(traces.first))
}

/// Returns whether the last holder of `slot` has left, and calls that it is part of may still run.
fn says_farewell(inner: &Inner, slot: u32) -> bool {
    inner.farewells.keys().any(|(leaver, _)| *leaver == slot)
}

/// Returns the slots whose holder was dropped, whose memory is still open, and whose memory no call needs any more. With each slot it
/// returns the first call of the view that dropped the holder.
fn over(shared: &Shared, inner: &Inner) -> Vec<(u32, u32)> {
    if inner.traces.values().all(|traces| traces.closed) {
        return Vec::new();
    }
    let finished = shared.layer.finished();
    let parted = |slot: &u32| inner.parted.iter().any(|(of, _)| of == slot);
    let ended = |(slot, traces): &(&u32, &Traces)| {
        !traces.closed && !newer(traces.first.wrapping_sub(1), finished) && !parted(slot)
    };
    let over = inner.traces.iter().filter(ended);
    over.map(|(slot, traces)| (*slot, traces.first)).collect()
}

/// Closes the memory of the peers in `over`, which are gone.
fn release(shared: &Shared, over: &[(u32, u32)]) {
    for &(slot, first) in over {
        match shared.transport.release_peer(slot) {
            Ok(true) => {
                let mut inner = shared.lock();
                // A later view may have dropped a later holder of the slot meanwhile. Its memory stays open.
                let traces = inner.traces.get_mut(&slot);
                let same = traces.filter(|traces| traces.first == first);
                if let Some(traces) = same {
                    traces.closed = true;
                }
            }
            Ok(false) => {}
            Err(error) => tracing::debug!("the memory of rank {slot} stays open: {error}"),
        }
    }
}

/// Makes one attempt to connect with `who`. Returns how far the two ends are.
fn connect(shared: &Shared, who: RankGeneration, parted: bool) -> Result<Meeting, Trouble> {
    let (rank, generation) = who;
    let since = {
        let mut inner = shared.lock();
        if inner.connected.contains(&who) {
            Instant::now()
        } else {
            *inner.begun.entry(who).or_insert_with(Instant::now)
        }
    };
    if shared.lock().traces.contains_key(&rank) && !clear_traces(shared, who, parted)? {
        return Ok(Meeting::Absent);
    }
    let connected = if parted {
        let united = shared.transport.reunite_peer(rank, generation);
        united.map(|united| {
            if united {
                Meeting::Proven
            } else {
                Meeting::Absent
            }
        })
    } else {
        // An earlier generation of this slot that was connected and did not become a member has lost its QPs now.
        let other = |of: &RankGeneration| of.0 == rank && *of != who;
        shared.lock().forget_pairs(other);
        // Read before the attempt whose result it judges.
        let late = is_late(shared, who);
        let connected = shared.transport.connect_peer(rank, generation);
        prove(shared, who, &connected, late);
        connected
    };
    let mut inner = shared.lock();
    // The view may have changed meanwhile: the rank is gone, or the pair has parted once more.
    let is_target = if parted {
        inner.parted.contains(&who) && !inner.traces.contains_key(&rank)
    } else {
        inner.wanted.contains(&who)
    };
    if !matches!(connected, Ok(Meeting::Proven)) || !is_target {
        if inner.connected.remove(&who) {
            inner.news = true;
            shared.notify();
        }
        return match connected {
            Ok(Meeting::Proven) => Ok(Meeting::Absent),
            Err(error @ TeamError::Unreached { .. }) if !parted => {
                Err(Trouble::Unreached(error.to_string()))
            }
            connected => Ok(connected?),
        };
    }
    if inner.connected.insert(who) {
        note_connected(shared, &mut inner, who, since);
    }
    Ok(Meeting::Proven)
}

/// Clears the words that this rank and an earlier generation in the slot of `who` have sent each other. Returns false if that generation
/// may still write.
fn clear_traces(shared: &Shared, who: RankGeneration, parted: bool) -> Result<bool, Trouble> {
    let (rank, generation) = who;
    // If the pair is parted the other end lives. Nothing of it arrives, because the QPs at this end are in Err.
    if !parted && !shared.transport.is_silent(rank, generation)? {
        return Ok(false);
    }
    let cleared = shared.layer.clear_peer(rank);
    cleared.map_err(|error| Trouble::Failed(format!("clearing its words: {error}")))?;
    let mut inner = shared.lock();
    inner.traces.remove(&rank);
    inner.masked = None;
    shared.mask(&mut inner);
    inner.tell(GroupEventKind::Cleared { rank });
    Ok(true)
}

/// Notes that this rank is connected with `who`. `since`: when the attempts began.
fn note_connected(shared: &Shared, inner: &mut Inner, who: RankGeneration, since: Instant) {
    let (rank, generation) = who;
    inner.begun.remove(&who);
    inner.unproven.remove(&who);
    inner.proving.remove(&who);
    if inner.suspects.mend(rank) {
        inner.tell(GroupEventKind::Trusted { rank });
    }
    inner.news = true;
    shared.mask(inner);
    inner.tell(GroupEventKind::Connected {
        rank,
        generation,
        took: since.elapsed(),
    });
    let rails = shared.transport.left_out(rank);
    if !rails.is_empty() {
        inner.tell(GroupEventKind::GoesRound { rank, rails });
    }
    shared.notify();
}

/// Returns whether the QPs to a newcomer have been tried for [`PATIENCES`] times the patience of an HCA.
fn is_late(shared: &Shared, who: RankGeneration) -> bool {
    let bound = shared.transport.patience().saturating_mul(PATIENCES);
    let inner = shared.lock();
    let since = inner.proving.get(&who);
    since.is_some_and(|since| since.elapsed() >= bound)
}

/// Notes whether the QPs to a newcomer are made and carry nothing. If they are `late`, the newcomer counts as not reached until they carry.
fn prove(shared: &Shared, who: RankGeneration, connected: &Result<Meeting, TeamError>, late: bool) {
    let is_made = match connected {
        Ok(Meeting::Unproven) | Err(TeamError::Unreached { .. }) => true,
        Ok(Meeting::Absent | Meeting::Proven) | Err(_) => false,
    };
    let mut inner = shared.lock();
    // For a member the view says how the pair is. A view may have taken the newcomer in during this attempt.
    let is_member = inner.suspects.members().get(who.0) == Some(who.1);
    if !is_made || is_member || !inner.wanted.contains(&who) {
        return;
    }
    inner.proving.entry(who).or_insert_with(Instant::now);
    if late && inner.unproven.insert(who) {
        inner.news = true;
        shared.notify();
    }
}
