//! The start of a generation: the generation takes its place in the group, and agrees on bounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rendezvous::{Measured, Patient, Store, StoreError, Timed, repeat};

use super::store::GroupStore;
use crate::deadline::Looks;
use crate::membership::GroupError;
use crate::membership::config::Bounds;
use crate::membership::event::GroupView;
use crate::membership::generations::{PATIENCE, note_generation};
use crate::membership::stored::{CONFIG, MEMBERS, RECORD, key, parse_record};

/// The number of calls of the store that a rank makes at its start only to measure how fast the store is.
pub(super) const LOOKS: u32 = 4;

impl GroupStore {
    /// Takes the place of this generation in a group with these bounds; a generation can do so once. A founder has not drawn its
    /// generation, so this call notes that generation as the newest. Returns how long the calls of the store took.
    pub(in crate::membership) fn enter(&mut self, bounds: &Bounds) -> Result<Measured, GroupError> {
        let store = Patient::new(Arc::clone(self.reader().calls().opened()), PATIENCE);
        let mut times = Vec::new();
        let mut timed = |call: &dyn Fn() -> Result<bool, StoreError>| {
            let timed = Timed::of(call);
            times.push(timed.took);
            timed.result
        };
        let own = self.reader().own();
        let (rank, generation) = own;
        let taken = GroupError::Taken { rank, generation };
        let place = key("taken", own);
        if timed(&|| Ok(store.try_get(&place)?.is_some()))? {
            return Err(taken);
        }
        self.reader_mut()
            .set_bounds(bounds.to_string().into_bytes());
        let (text, token) = (self.reader().bounds(), self.reader().token());
        if !timed(&|| store.compare_and_set(CONFIG, None, text))? {
            self.agree(&store, bounds.found)?;
        }
        timed(&|| note_generation(&store, own))?;
        if !timed(&|| store.compare_and_set(&place, None, token))? {
            return Err(taken);
        }
        for _ in 0..LOOKS {
            timed(&|| store.count(MEMBERS).map(|_| true))?;
        }
        Ok(Measured::of(times))
    }

    /// Compares the bounds of this rank with those in the store. If the store holds garbage, a rank that looks writes the bounds
    /// again (`mend_bounds`), and this rank waits for that up to `patience`. If no rank holds a lease, this rank writes them.
    fn agree(&self, store: &Patient, patience: Duration) -> Result<(), GroupError> {
        let (own, start) = (self.reader().bounds(), Instant::now());
        let mut why = String::new();
        for left in Looks::by(Instant::now, start.checked_add(patience)) {
            let reason = match store.try_get(CONFIG) {
                Ok(Some(theirs)) if theirs == own => return Ok(()),
                Ok(Some(theirs)) if Bounds::are_in(&theirs) => {
                    let [own, theirs] = [own, theirs.as_slice()]
                        .map(|text| String::from_utf8_lossy(text).into_owned());
                    return Err(GroupError::Differs { own, theirs });
                }
                Ok(Some(_)) => "it does not hold the bounds of a group".to_owned(),
                Ok(None) => "it was removed".to_owned(),
                Err(error) if error.is_unreadable() => error.to_string(),
                Err(error) => return Err(error.into()),
            };
            if store.count(MEMBERS)?.keys == 0 {
                tracing::warn!("'{CONFIG}' counts as missing: {reason}");
                store.remove(CONFIG)?;
            }
            if store.compare_and_set(CONFIG, None, own)? {
                return Ok(());
            }
            why = reason;
            if !left.is_zero() {
                store.wait_for_change(left.min(self.reader().calls().ttl() / 4));
            }
        }
        let waited = start.elapsed();
        Err(GroupError::Record {
            key: CONFIG.to_owned(),
            reason: format!(
                "{why}; no rank that is there has written it again within {waited:.1?}"
            ),
        })
    }

    /// Writes the bounds again if another writer has changed them: ranks that come compare their bounds with these.
    pub(in crate::membership) fn mend_bounds(&mut self) -> Result<(), StoreError> {
        let reader = self.reader_mut();
        if let Some(bounds) = reader.take_bounds_to_mend() {
            reader.call(|store| store.put(CONFIG, &bounds))?;
        }
        Ok(())
    }
}

/// Returns the newest view of the group of `slots` ranks that meets in `store`. A rank that wants to come in finds these members. Returns
/// None before the founders have met.
///
/// # Errors
/// [`GroupError::Store`] after 5 s of failures that may pass; [`GroupError::Record`] if the record cannot be read.
pub fn newest_view(store: &Arc<dyn Store>, slots: u32) -> Result<Option<GroupView>, GroupError> {
    let until = Instant::now() + PATIENCE;
    let Some(text) = repeat(until, || store.try_get(RECORD))? else {
        return Ok(None);
    };
    let record = parse_record(&text, slots).map_err(|error| GroupError::Record {
        key: RECORD.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(Some(GroupView::from(&record)))
}
