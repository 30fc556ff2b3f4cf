//! A MoE layer under the rules of membership: its views are those of a group, and each has a placement of the experts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Moe, MoeError, Placement, View};
use crate::membership::{Layer, LayerError, LayerView};

/// The placement of the experts for the members of a view: the same at all ranks.
type Rule = dyn Fn(&[u32]) -> Placement + Send + Sync;

/// Where the experts are in the views of a group, by a name that all ranks give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlacementPolicy {
    /// Where they were when the layer was made, whatever the members: no rank serves those of a rank that is gone.
    Fixed,
    /// Over the members, as [`Placement::spread`] lays them out.
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

/// How experts are placed in the views of a group.
pub(super) struct PlacementRule {
    /// Where they were when the layer was made.
    first: Placement,
    chosen: Mutex<Chosen>,
}

/// What the program has chosen.
#[derive(Default)]
struct Chosen {
    rule: Option<Arc<Rule>>,
    /// By members, in ascending order.
    tables: BTreeMap<Vec<u32>, Placement>,
}

impl fmt::Debug for PlacementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacementRule").finish_non_exhaustive()
    }
}

impl PlacementRule {
    pub(super) fn new(first: Placement) -> Self {
        Self {
            first,
            chosen: Mutex::default(),
        }
    }

    fn chosen(&self) -> MutexGuard<'_, Chosen> {
        // Whole after every operation: rules are called behind it.
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The placement for `members`, in ascending order; none where the program has chosen nothing. A function of the members alone,
    /// so that it is the same at a rank that has seen other views.
    fn place(&self, members: &[u32]) -> Option<Placement> {
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

impl Moe {
    /// `rule` says, for the members of a view in ascending order, which rank holds which expert in it. It is a pure function, the
    /// same at all ranks, whose results fit the shape of the layer. For the views that a group makes; call it before
    /// [`Group::start`](crate::membership::Group::start). Without a rule the experts stay where they are, whichever ranks are
    /// members. No rank serves those of a rank that is gone until it is back. The first view of founders has the placement with
    /// which the layer was made, whatever the rule.
    pub fn place_by(&self, rule: impl Fn(&[u32]) -> Placement + Send + Sync + 'static) {
        self.rule().chosen().rule = Some(Arc::new(rule));
    }

    /// The same by a name. It takes the place of a rule that was given before.
    pub fn set_placement_policy(&self, policy: PlacementPolicy) {
        let (first, config) = (self.rule().first.clone(), *self.config());
        let ranks = self.team().ranks();
        let (experts, room) = (config.experts, config.room(ranks));
        match policy {
            PlacementPolicy::Fixed => self.place_by(move |_| first.clone()),
            PlacementPolicy::Spread => {
                self.place_by(move |members| Placement::spread(experts, ranks, members, room))
            }
        }
    }

    /// The placement of the views whose members are `members`, in any order, whatever the rule says; `None` takes it back. Views
    /// with other members go by the rule. Without a rule their experts stay where they were when the layer was made. All ranks make
    /// the same call, before a view has these members. A view that exists already keeps its placement.
    ///
    /// # Errors
    /// [`MoeError::Placement`]: a table that does not fit the layer; [`MoeError::Rank`]: a member that the team does not have;
    /// [`MoeError::Shape`]: no member.
    pub fn set_placement_of(
        &self,
        members: &[u32],
        placement: Option<Placement>,
    ) -> Result<(), MoeError> {
        let ranks = self.team().ranks();
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
            None => drop(self.rule().chosen().tables.remove(&members)),
            Some(placement) => {
                self.check_placement(&placement)?;
                self.rule().chosen().tables.insert(members, placement);
            }
        }
        Ok(())
    }

    /// The view of a group as this rank runs its calls in it. Experts are placed for all members, those parted from this rank
    /// included.
    fn view_of_group(&self, view: &LayerView<'_>) -> View {
        let placed = self.rule().place(view.members);
        View {
            first: view.first,
            epoch: view.epoch,
            members: view.reached.to_vec(),
            placement: placed.unwrap_or_else(|| self.placement()),
        }
    }
}

/// The methods of the same name that [`Moe`] has are for programs without a group; their errors say which.
impl Layer for Moe {
    fn set_limit(&self, limit: Option<u32>) -> u32 {
        Self::set_limit(self, limit)
    }

    fn started(&self) -> u32 {
        Self::started(self)
    }

    fn finished(&self) -> u32 {
        Self::finished(self)
    }

    fn has_place(&self, first: u32) -> bool {
        Self::has_place(self, first)
    }

    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.view_of_group(view);
        Ok(self.set_view(&view, Duration::ZERO)?)
    }

    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError> {
        let view = self.view_of_group(view);
        self.check_view(&view)?;
        let (gpu, first) = (self.team().gpu().as_ref(), view.first);
        self.views().begin_in(gpu, self.team().rank(), view)?;
        Ok(self.begin_at(first)?)
    }

    fn clear_peer(&self, peer: u32) -> Result<(), LayerError> {
        Ok(Self::clear_peer(self, peer)?)
    }

    fn suspected(&self) -> Vec<u32> {
        Self::suspected(self)
    }

    fn unbuffered(&self) -> u32 {
        Self::unbuffered(self)
    }

    fn heard(&self) -> Result<Vec<u64>, LayerError> {
        Ok(self.board().words()?)
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError> {
        Ok(Self::set_suspects(self, ranks)?)
    }

    fn set_alone(&self, alone: bool) {
        Self::set_alone(self, alone);
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError> {
        Ok(Self::set_preparing(self, promised)?)
    }

    fn set_refuse(&self, refuse: bool) {
        Self::set_refuse(self, refuse);
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
        let rule = PlacementRule::new(first.clone());
        assert_eq!(rule.place(&[0, 1]), None);
        rule.chosen().tables.insert(vec![0, 2], moved(2));
        assert_eq!(rule.place(&[0, 2]), Some(moved(2)));
        assert_eq!(rule.place(&[0, 1]), Some(first));
        rule.chosen().rule = Some(Arc::new(move |members: &[u32]| moved(members[0])));
        assert_eq!(rule.place(&[0, 2]), Some(moved(2)));
        assert_eq!(rule.place(&[1, 2]), Some(moved(1)));
    }
}
