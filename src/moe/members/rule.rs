//! Which ranks hold which experts in the views of a group.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::moe::error::MoeError;
use crate::moe::placement::{Capacity, Placement};

/// A function that places the experts for the members of a view. It is the same at all ranks.
type Rule = dyn Fn(&[u32]) -> Placement + Send + Sync;

/// A rule for where experts are in the views of a group, by a name that all ranks give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementPolicy {
    /// The experts stay where they were when the layer was made. If a rank is gone, no rank serves its experts.
    Fixed,
    /// The experts are spread over the members by [`Placement::spread`].
    Spread,
}

impl PlacementPolicy {
    const ALL: [(Self, &'static str); 2] = [(Self::Fixed, "fixed"), (Self::Spread, "spread")];
}

impl fmt::Display for PlacementPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::ALL.iter().filter(|(policy, _)| policy == self);
        names.map(|(_, name)| *name).collect::<String>().fmt(f)
    }
}

impl FromStr for PlacementPolicy {
    type Err = MoeError;

    fn from_str(name: &str) -> Result<Self, MoeError> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(policy, _)| *policy).ok_or(MoeError::Policy {
            name: name.to_owned(),
        })
    }
}

/// The rule by which experts are placed in the views of a group.
pub(in crate::moe) struct PlacementRule {
    /// The placement with which the layer was made.
    first: Placement,
    capacity: Capacity,
    chosen: Mutex<Chosen>,
}

/// The rule and the tables that the program has chosen.
#[derive(Default)]
struct Chosen {
    rule: Option<Arc<Rule>>,
    /// The placements for given members, which are in ascending order.
    tables: BTreeMap<Vec<u32>, Placement>,
}

impl fmt::Debug for PlacementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementRule").finish_non_exhaustive()
    }
}

impl PlacementRule {
    pub(in crate::moe) fn new(first: Placement, capacity: Capacity) -> Self {
        Self {
            first,
            capacity,
            chosen: Mutex::default(),
        }
    }

    /// Returns where the experts were when the layer was made.
    pub(super) fn first(&self) -> &Placement {
        &self.first
    }

    /// Refuses a placement that does not fit the layer.
    pub(super) fn check(&self, placement: &Placement) -> Result<(), MoeError> {
        self.capacity.check(placement)
    }

    /// Sets the rule by which views go, in place of a rule that was given before.
    pub(in crate::moe) fn set(&self, rule: impl Fn(&[u32]) -> Placement + Send + Sync + 'static) {
        self.chosen().rule = Some(Arc::new(rule));
    }

    /// Sets the rule of this name, in place of a rule that was given before.
    pub(in crate::moe) fn set_policy(&self, policy: PlacementPolicy) {
        let first = self.first.clone();
        let Capacity {
            experts,
            ranks,
            room,
        } = self.capacity;
        match policy {
            PlacementPolicy::Fixed => self.set(move |_| first.clone()),
            PlacementPolicy::Spread => {
                self.set(move |members| Placement::spread(experts, ranks, members, room));
            }
        }
    }

    /// Sets the placement of views with these members, in any order; without `placement` such views go by the rule again.
    pub(in crate::moe) fn set_table(
        &self,
        members: &[u32],
        placement: Option<Placement>,
    ) -> Result<(), MoeError> {
        let ranks = self.capacity.ranks;
        let mut members = members.to_vec();
        members.sort_unstable();
        members.dedup();
        match members.last() {
            None => {
                return Err(MoeError::Shape {
                    name: "number of members of a placement",
                    value: 0,
                    least: 1,
                    most: ranks,
                });
            }
            Some(&rank) if rank >= ranks => return Err(MoeError::Rank { rank, ranks }),
            Some(_) => {}
        }
        match placement {
            None => drop(self.chosen().tables.remove(&members)),
            Some(placement) => {
                self.check(&placement)?;
                self.chosen().tables.insert(members, placement);
            }
        }
        Ok(())
    }

    fn chosen(&self) -> MutexGuard<'_, Chosen> {
        // The value is whole after every operation. Rules are called when the lock is free again.
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the placement for `members`, in ascending order; none if the program has chosen nothing. It depends on the members
    /// alone, so that it is the same at a rank that has seen other views.
    pub(super) fn place(&self, members: &[u32]) -> Option<Placement> {
        let chosen = self.chosen();
        if let Some(table) = chosen.tables.get(members) {
            return Some(table.clone());
        }
        let rule = chosen.rule.clone();
        let tables = !chosen.tables.is_empty();
        drop(chosen);
        match rule {
            Some(rule) => Some(rule(members)),
            None => tables.then(|| self.first.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_parsed_by_its_name_and_a_wrong_name_lists_all_policies() {
        for (policy, name) in PlacementPolicy::ALL {
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse::<PlacementPolicy>().unwrap(), policy);
        }
        let error = "Spread".parse::<PlacementPolicy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no placement policy \"Spread\"; there are fixed and spread"
        );
    }

    #[test]
    fn a_table_goes_before_the_rule_and_the_first_placement_is_the_fallback() {
        let first = Placement::blocks(4, 3);
        let moved = |rank: u32| Placement::from_ranks([rank; 4], 3).unwrap();
        let capacity = Capacity {
            experts: 4,
            ranks: 3,
            room: 4,
        };
        let rule = PlacementRule::new(first.clone(), capacity);
        assert_eq!(rule.place(&[0, 1]), None);
        rule.set_table(&[2, 0], Some(moved(2))).unwrap();
        assert_eq!(rule.place(&[0, 2]), Some(moved(2)));
        assert_eq!(rule.place(&[0, 1]), Some(first));
        rule.set(move |members| moved(members[0]));
        assert_eq!(rule.place(&[0, 2]), Some(moved(2)));
        assert_eq!(rule.place(&[1, 2]), Some(moved(1)));
    }
}
