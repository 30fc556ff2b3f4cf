//! Numbers of engines, and ids of their regions. No number is given twice in a process, and the id of a region names its engine.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::engine::error::EngineError;
use crate::engine::ids::RegionId;
use crate::engine::limits::{MOST_ENGINES, MOST_REGIONS, REGION_BITS};

/// The number of the next engine of this process.
static ENGINES: AtomicU32 = AtomicU32::new(1);

/// Returns the number of one more engine of this process.
pub(in crate::engine) fn number_of_engine() -> Result<u32, EngineError> {
    next_of(&ENGINES)
}

fn next_of(engines: &AtomicU32) -> Result<u32, EngineError> {
    let next = |number| (number <= MOST_ENGINES).then_some(number + 1);
    let given = engines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    given.map_err(|_| EngineError::EngineNumbers)
}

/// The ids of the regions of one engine.
#[derive(Debug)]
pub(in crate::engine) struct RegionIds {
    engine: u32,
    given: u64,
}

impl RegionIds {
    /// Returns the ids of the engine that this process numbers `engine`.
    pub(in crate::engine) const fn new(engine: u32) -> Self {
        Self { engine, given: 0 }
    }

    /// Checks that `count` more ids can be given. The error has the index of the first id that cannot be given.
    pub(in crate::engine) fn check_left(&self, count: usize) -> Result<(), (usize, EngineError)> {
        let left = usize::try_from(MOST_REGIONS - self.given).unwrap_or(usize::MAX);
        if count <= left {
            Ok(())
        } else {
            Err((left, EngineError::RegionNumbers))
        }
    }

    /// Gives one more id, which [`RegionIds::check_left`] has allowed.
    pub(in crate::engine) fn give(&mut self) -> RegionId {
        self.given += 1;
        RegionId::of_number(u64::from(self.engine) << REGION_BITS | self.given)
    }

    /// Refuses an id that names another engine, or none.
    pub(in crate::engine) fn check(&self, region: RegionId) -> Result<(), EngineError> {
        let (number, engine) = (region.number(), self.engine);
        match region.engine() {
            0 => Err(EngineError::UnknownRegion { number }),
            named if named == engine => Ok(()),
            named => Err(EngineError::ForeignRegion {
                number,
                named,
                engine,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_engines_give_the_same_id_and_each_refuses_those_of_the_other() {
        let mut engines = [1, 2, MOST_ENGINES].map(RegionIds::new);
        let mut seen = std::collections::HashSet::new();
        for nth in 0..3 {
            let ids: Vec<RegionId> = engines.iter_mut().map(RegionIds::give).collect();
            for (of, id) in ids.iter().enumerate() {
                assert_ne!(id.number(), 0);
                assert_eq!(RegionId::of_number(id.number()), *id);
                assert!(seen.insert(*id), "{id:?} was given twice");
                let named = id.engine();
                for (asked, ids) in engines.iter().enumerate() {
                    let (number, engine) = (id.number(), ids.engine);
                    let expected = if asked == of {
                        Ok(())
                    } else {
                        Err(EngineError::ForeignRegion {
                            number,
                            named,
                            engine,
                        })
                    };
                    assert_eq!(ids.check(*id), expected, "{nth}: {id:?}");
                }
            }
        }
        for number in [0, 1, 77, MOST_REGIONS] {
            let refused = engines[0].check(RegionId::of_number(number));
            assert_eq!(refused, Err(EngineError::UnknownRegion { number }));
        }
    }

    #[test]
    fn numbers_that_are_used_up_are_an_error_and_none_is_given_twice() {
        let mut ids = RegionIds::new(MOST_ENGINES);
        ids.given = MOST_REGIONS - 2;
        assert_eq!(ids.check_left(3), Err((2, EngineError::RegionNumbers)));
        assert_eq!(ids.check_left(2), Ok(()));
        let last = [ids.give(), ids.give()].map(RegionId::number);
        assert_eq!(last, [u64::MAX - 1, u64::MAX]);
        assert_eq!(ids.check_left(1), Err((0, EngineError::RegionNumbers)));
        assert_eq!(ids.check_left(0), Ok(()));
        let engines = AtomicU32::new(MOST_ENGINES);
        assert_eq!(next_of(&engines), Ok(MOST_ENGINES));
        for _ in 0..3 {
            assert_eq!(next_of(&engines), Err(EngineError::EngineNumbers));
        }
    }
}
