//! The rules by name. Each stands where it is asked for; a test may leave one out and see what breaks.

use super::clocks::Bounds;

/// A rule of the reference that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Section 2: own standing still is a gap.
    OwnGap,
    /// Section 2: a store call that was slow or failed is a gap.
    StoreGap,
    /// Section 3: the clock of a rank unheard starts at the first look that misses it, and needs four looks.
    FirstLook,
    /// Section 3: missing is not unheard before its clock says so.
    Unheard,
    /// Section 4: any sign of life withdraws it.
    Withdrawn,
    /// L3: a lease that was taken again is a sign of life.
    Takings,
    /// Section 3: words that arrive are signs of life.
    Veto,
    /// Section 4: all ranks that look say the same.
    Seconded,
    /// Section 4: a later generation that asks is evidence of nothing.
    LaterIsNothing,
    /// Section 3: the clock of a proposal starts anew behind a gap.
    AnswerGap,
    /// Section 3: a rank that meets no other accuses none.
    Lonely,
    /// Section 3: clocks of contact stand still while no word of any member arrives: earlier words are old.
    Fresh,
    /// P7: a pair connects behind the calls before the view that parted it. So a rank that has those calls to make is not accused
    /// and accuses none.
    BehindSaysNothing,
    /// Section 4: the group expels a rank that the larger side does not reach.
    Choice,
    /// Section 4: an edge is where both say that they meet; silence is none.
    BothMeet,
    /// Section 4: a side has two or more.
    TwoStay,
    /// P2: an open proposal only loses.
    OnlyLoses,
    /// P3: alone, once per view.
    SoloOnce,
    /// P4: newcomers promise first.
    NewcomersFirst,
    /// P4: a promise does not wait for QPs.
    PromiseAtOnce,
    /// P4: a rank that promises has fenced.
    Fence,
    /// P5: all have promised.
    AllPromise,
    /// P5: the first call lies behind all promises.
    FirstBehind,
    /// P5: it lies behind the last calls of leavers too.
    LeaversCount,
    /// P10: a leaver ends when all are through with its last call.
    LeaversWait,
    /// P6: each generation by itself.
    EachGeneration,
    /// P6: a pair of a newcomer counts as connected when a write each way was answered on each QP.
    Proven,
    /// P6: a newcomer comes in if it reaches more than half of the others.
    LargerPart,
    /// P6: a rank keeps to one of the generations that ask for a slot.
    OneSuccessor,
    /// P6: it gives its QPs to no other while a proposal takes that one in.
    ProposedKeeps,
    /// P6: a newcomer ends when a rank is connected with a later generation of its slot.
    Overtaken,
    /// P6, kept by the team: a later generation that was never connected makes no earlier one over.
    #[cfg(test)]
    GoesBack,
    /// P8, kept by what writes the record: pairs that are fenced are parted.
    #[cfg(test)]
    PartsStand,
    /// L1, kept by what renews leases: no lease outlives the thread that follows the rules.
    #[cfg(test)]
    RenewedByRules,
    /// L2, kept by what renews leases: a stale lease is not revoked.
    #[cfg(test)]
    NotRevoked,
    /// Section 1, kept by what reads keys: a key that cannot be read counts as missing.
    #[cfg(test)]
    KeysOneByOne,
    /// Section 4, kept by what watches ports: a port that is down says nothing.
    #[cfg(test)]
    PortsSayNothing,
    /// Finding 10, kept by what reads leases: a look of one that was stopped is not believed.
    #[cfg(test)]
    ClockFirst,
}

/// The rules, with their bounds.
#[derive(Clone, Debug)]
pub(crate) struct Rules<S> {
    /// How long clocks run.
    pub(crate) bounds: Bounds<S>,
    /// What a test leaves out.
    #[cfg(test)]
    pub(crate) left_out: &'static [Rule],
}

impl<S> Rules<S> {
    /// All of them.
    pub(crate) const fn new(bounds: Bounds<S>) -> Self {
        Self {
            bounds,
            #[cfg(test)]
            left_out: &[],
        }
    }

    /// Whether `rule` is followed.
    #[cfg(test)]
    pub(crate) fn follows(&self, rule: Rule) -> bool {
        !self.left_out.contains(&rule)
    }

    /// All are.
    #[cfg(not(test))]
    pub(crate) const fn follows(&self, _rule: Rule) -> bool {
        true
    }
}
