//! Leases in a directory: the holder writes a beat, others look whether it changes.
//!
//! No clock is compared with another machine's: who looks takes a lease for gone when its beat has stood still for a time to
//! live by its own clock, and the holder takes it for lost when that time has passed by its own clock since it last renewed,
//! which is never later. The end of a process of this machine is seen at once.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::LeaseId;
use super::process::Process;

/// What stands in the store of a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    id: u64,
    ttl_ms: u64,
    holder: Process,
}

impl LeaseRecord {
    pub(super) fn id(&self) -> LeaseId {
        LeaseId(self.id)
    }

    /// What the name of its beat ends with.
    pub(super) fn beat_suffix(&self) -> String {
        format!("@beat-{:016x}", self.id)
    }

    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// What one handle on a directory knows of leases.
#[derive(Debug, Default)]
pub(super) struct Leases {
    own: Mutex<HashMap<u64, Own>>,
    others: Mutex<HashMap<u64, Other>>,
}

/// A lease of this handle.
#[derive(Debug)]
struct Own {
    record: LeaseRecord,
    renewed: Instant,
    beat: u64,
}

/// A lease that was looked at.
#[derive(Debug)]
struct Other {
    beat: Vec<u8>,
    since: Instant,
    gone: bool,
}

impl Leases {
    /// Makes a record that nobody else has.
    pub(super) fn begin(&self, ttl: Duration) -> LeaseRecord {
        let record = LeaseRecord {
            id: fastrand::u64(1..),
            ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
            holder: Process::this(),
        };
        let own = Own {
            record: record.clone(),
            renewed: Instant::now(),
            beat: 0,
        };
        self.own_map().insert(record.id, own);
        record
    }

    /// The record of a lease of this handle.
    pub(super) fn own(&self, id: LeaseId) -> Option<LeaseRecord> {
        self.own_map().get(&id.0).map(|own| own.record.clone())
    }

    /// Whether its time to live has not passed since it was renewed.
    pub(super) fn in_time(&self, id: LeaseId) -> bool {
        let map = self.own_map();
        map.get(&id.0)
            .is_some_and(|own| own.renewed.elapsed() < own.record.ttl())
    }

    /// The beat is written. Whether that was in time.
    pub(super) fn renewed(&self, id: LeaseId) -> bool {
        let in_time = self.in_time(id);
        if let Some(own) = self.own_map().get_mut(&id.0) {
            own.renewed = Instant::now();
        }
        in_time
    }

    pub(super) fn next_beat(&self, id: LeaseId) -> Vec<u8> {
        let mut map = self.own_map();
        let beat = map.get_mut(&id.0).map_or(0, |own| {
            own.beat += 1;
            own.beat
        });
        beat.to_string().into_bytes()
    }

    pub(super) fn forget(&self, id: LeaseId) -> Option<LeaseRecord> {
        self.own_map().remove(&id.0).map(|own| own.record)
    }

    /// Whether the lease is held, as far as its beat in the file `beat` and its holder's process show.
    pub(super) fn lives(&self, record: &LeaseRecord, beat: &Path) -> bool {
        if record.holder.has_ended() {
            return false;
        }
        let now = fs::read(beat).unwrap_or_default();
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let other = others.entry(record.id).or_insert_with(|| Other {
            beat: now.clone(),
            since: Instant::now(),
            gone: false,
        });
        if other.beat != now {
            other.beat = now;
            other.since = Instant::now();
        }
        // Once gone it stays so: a holder that wakes up too late takes it for lost as well.
        other.gone |= other.since.elapsed() >= record.ttl();
        !other.gone
    }

    fn own_map(&self) -> MutexGuard<'_, HashMap<u64, Own>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
