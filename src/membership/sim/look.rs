//! Measures how long one look of a rank takes: one turn of the thread that follows the rules, made on the caller's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use membership_rules::members::Members;
use membership_rules::record::Record;
use rendezvous::{MemoryStore, Process, Store};

use super::world;
use crate::membership::driver::Driver;
use crate::membership::group_store::GroupStore;
use crate::membership::shared::Shared;
use crate::membership::stored::{Member, StoredRow, member_key, record_text, row_key, row_text};
use crate::membership::{GroupConfig, GroupError};

/// Returns the times of `rounds` turns of the rank in slot 0 of `ranks`. The rank looks at all keys, after every row has changed.
///
/// # Errors
/// [`GroupError::Bound`] if a bound would drop healthy ranks; errors of the store.
pub fn looks(ranks: u32, rounds: u32, config: &GroupConfig) -> Result<Vec<Duration>, GroupError> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (transport, layer) = world::founder(&store, ranks);
    let bounds = config.bounds(transport.deadline(), transport.timeout())?;
    let members: Members = (0..ranks).map(|slot| (slot, 1)).collect();
    store.put(
        "group/record",
        &record_text(&Record::founded(members.clone()), ranks),
    )?;
    let member = Member {
        process: Process::this(),
        asks: false,
        lost: false,
    };
    let member = serde_json::to_vec(&member).expect("plain words");
    for slot in 1..ranks {
        // No lease runs out during the measurement.
        store.put(&member_key((slot, 1)), &member)?;
    }
    let own = (0, 1);
    let group = GroupStore::new(
        Arc::clone(&store),
        own,
        ranks,
        bounds.lease_ttl,
        transport.process(),
    );
    let shared = Arc::new(Shared::new(transport, layer, bounds));
    let mut driver = Driver::new(Arc::clone(&shared), group, Arc::default());
    let mut times = Vec::new();
    for round in 0..=rounds {
        for slot in 1..ranks {
            let row = StoredRow {
                slots: ranks,
                takings: round + 1,
                meets: (0..ranks).filter(|other| *other != slot).collect(),
                ..StoredRow::default()
            };
            store.put(&row_key((slot, 1)), &row_text(&row))?;
        }
        shared.lock().rang = true;
        let start = Instant::now();
        driver.turn()?;
        // The first turn reads keys that are read only once.
        if round > 0 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}
