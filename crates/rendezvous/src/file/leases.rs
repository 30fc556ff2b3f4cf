//! Leases in a directory: the holder writes a beat, and readers look whether the beat changes.
//!
//! No clock is compared with another machine's. To a reader a lease is gone when its beat has stood still for a time to live by the
//! reader's clock. That is the result of one look: a holder that was only slow beats again, and the next look finds the beat. The holder
//! loses the lease once another rank has taken or changed the key. Readers see the end of a process of this machine at once.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::check::check_key;
use crate::{LeaseId, Process};

/// What the names of beats begin with.
const BEAT: &str = "beat-";
/// A lease that was not renewed for so many times to live is removed by readers that list its key.
const LONG_GONE: u32 = 32;

/// Returns whether the scratch file of this name is a beat.
pub(super) fn is_beat(name: &str) -> bool {
    name.starts_with(BEAT)
}

/// The record of a lease in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    id: u64,
    /// The key for which the lease was taken. Further keys may be under the lease.
    key: String,
    ttl_ms: u64,
    holder: Process,
}

impl LeaseRecord {
    pub(super) fn id(&self) -> LeaseId {
        LeaseId(self.id)
    }

    /// Returns the key for which the lease was taken.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Returns whether the holder is a process of this machine that has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.holder.has_ended()
    }

    /// Returns the name of the file of the lease's beat.
    pub(super) fn beat_name(&self) -> String {
        format!("{BEAT}{:016x}", self.id)
    }

    /// Returns the lease of a beat.
    pub(super) fn of_beat(beat: &[u8]) -> Option<Self> {
        let (_, line) = std::str::from_utf8(beat).ok()?.split_once(' ')?;
        Self::parse(line)
    }

    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        let record: Self = serde_json::from_str(line).ok()?;
        // The key is part of a path.
        check_key(&record.key).is_ok().then_some(record)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// The leases that one handle on a directory knows.
#[derive(Debug, Default)]
pub(super) struct Leases {
    own: Mutex<HashMap<u64, Own>>,
    others: Mutex<HashMap<u64, Other>>,
}

/// A lease of this handle.
#[derive(Debug)]
struct Own {
    record: LeaseRecord,
    /// The keys under the lease.
    keys: BTreeSet<String>,
    beat: u64,
}

/// A lease that this handle has looked at.
#[derive(Debug)]
struct Other {
    beat: Vec<u8>,
    since: Instant,
}

impl Leases {
    /// Makes the record of a new lease, with a random id.
    pub(super) fn begin(&self, key: &str, ttl: Duration) -> LeaseRecord {
        let record = LeaseRecord {
            id: fastrand::u64(1..),
            key: key.to_owned(),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            holder: Process::this(),
        };
        let own = Own {
            record: record.clone(),
            keys: [key.to_owned()].into(),
            beat: 0,
        };
        self.own_map().insert(record.id, own);
        record
    }

    /// Returns the record of a lease of this handle.
    pub(super) fn own(&self, id: LeaseId) -> Option<LeaseRecord> {
        self.own_map().get(&id.0).map(|own| own.record.clone())
    }

    /// Puts `key` under a lease of this handle. Returns the record of the lease.
    pub(super) fn attach(&self, id: LeaseId, key: &str) -> Option<LeaseRecord> {
        let mut map = self.own_map();
        let own = map.get_mut(&id.0)?;
        own.keys.insert(key.to_owned());
        Some(own.record.clone())
    }

    /// Returns the contents of the next beat: a number, and the record, so that a reader of the beat alone can see whether the holder
    /// lives.
    pub(super) fn next_beat(&self, record: &LeaseRecord) -> Vec<u8> {
        let mut map = self.own_map();
        let beat = map.get_mut(&record.id).map_or(0, |own| {
            own.beat += 1;
            own.beat
        });
        format!("{beat} {}", record.line()).into_bytes()
    }

    /// Forgets a lease of this handle that is over. Returns its record and the keys under it.
    pub(super) fn forget(&self, id: LeaseId) -> Option<(LeaseRecord, BTreeSet<String>)> {
        let own = self.own_map().remove(&id.0);
        own.map(|own| (own.record, own.keys))
    }

    /// Returns whether the lease is held, as far as its beat in the file `beat` and its holder's process show.
    pub(super) fn lives(&self, record: &LeaseRecord, beat: &Path) -> bool {
        if record.has_ended() {
            return false;
        }
        // The clock is read first. A thread that is stopped between the two has read a beat that may be older than its clock says. Only at
        // its next look does the time of the stop count against the holder.
        let at = Instant::now();
        let now = fs::read(beat).unwrap_or_default();
        self.judge(record, now, at)
    }

    /// Returns whether the beat has stood still for [`LONG_GONE`] times to live, or the holder's process has ended. Its holder does not
    /// come back.
    pub(super) fn is_long_gone(&self, record: &LeaseRecord) -> bool {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let still = others.get(&record.id).map(|other| other.since.elapsed());
        record.has_ended() || still.is_some_and(|still| still >= LONG_GONE * record.ttl())
    }

    /// Returns whether the lease is held. Its beat was read as `now`, not before `at`. An empty beat was not found; it counts as unchanged,
    /// since readers remove the beat of a lease that they find gone.
    fn judge(&self, record: &LeaseRecord, now: Vec<u8>, at: Instant) -> bool {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let other = others.entry(record.id).or_insert_with(|| Other {
            beat: now.clone(),
            since: at,
        });
        if other.beat != now && !now.is_empty() {
            other.beat = now;
            other.since = at;
        }
        at.saturating_duration_since(other.since) < record.ttl()
    }

    fn own_map(&self) -> MutexGuard<'_, HashMap<u64, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn what_one_look_found_gone_is_there_again_when_it_beats() {
        let leases = Leases::default();
        let record = leases.begin("k", TTL);
        let start = Instant::now();
        assert!(leases.judge(&record, b"1".to_vec(), start));
        assert!(leases.judge(&record, b"1".to_vec(), start + TTL / 2));
        assert!(!leases.judge(&record, b"1".to_vec(), start + TTL));
        assert!(leases.judge(&record, b"2".to_vec(), start + 2 * TTL));
        assert!(!leases.judge(&record, b"2".to_vec(), start + 3 * TTL));
    }

    #[test]
    fn a_beat_that_others_have_removed_is_no_sign_of_life() {
        let leases = Leases::default();
        let record = leases.begin("k", TTL);
        let start = Instant::now();
        assert!(leases.judge(&record, Vec::new(), start), "not written yet");
        assert!(leases.judge(&record, b"1".to_vec(), start + TTL / 2));
        assert!(leases.judge(&record, Vec::new(), start + TTL));
        assert!(!leases.judge(&record, Vec::new(), start + 2 * TTL));
        let beat = leases.next_beat(&record);
        assert_eq!(LeaseRecord::of_beat(&beat).unwrap().id, record.id);
        for beat in [&b""[..], b"1", b"1 {}", b"\xff x"] {
            assert!(LeaseRecord::of_beat(beat).is_none());
        }
        let outside = leases.begin("../k", TTL).line();
        assert!(LeaseRecord::parse(&outside).is_none(), "it names a file");
    }

    #[test]
    fn a_reader_stopped_between_clock_and_beat_takes_no_lease_for_gone() {
        let leases = Leases::default();
        let record = leases.begin("k", TTL);
        let start = Instant::now();
        assert!(leases.judge(&record, b"1".to_vec(), start));
        // The thread took its clock, was stopped for an hour, and then read the beat of long ago.
        let taken = start + TTL / 2;
        assert!(leases.judge(&record, b"1".to_vec(), taken));
        // A beat that another thread judged later does not make time run backwards.
        assert!(leases.judge(&record, b"3".to_vec(), start + 2 * TTL));
        assert!(leases.judge(&record, b"3".to_vec(), taken));
    }
}
