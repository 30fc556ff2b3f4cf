//! Arguments of calls that differ between ranks, told from absences.
//!
//! A rank that misses another one reads in the store what that rank's program does (`team/arguments.rs`). In peace it reads nothing.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::abi::{MoeCause, SETS};
use crate::moe::layout::Layout;
use crate::moe::making::state::{format, scales};
use crate::moe::{Fault, Format, MoeConfig, MoeError};
use crate::team::{CallShape, Differs, Launches, Team, TeamError, printable};

/// An argument that ranks must give alike, and in which two of them differ.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Which argument.
    pub argument: String,
    /// A rank that has the first of the two values.
    pub first_rank: u32,
    /// Its value.
    pub first: String,
    /// Another rank.
    pub second_rank: u32,
    /// Its value.
    pub second: String,
    /// Number of the call in which it showed. None: no call had begun, the ranks were making the layer.
    pub call: Option<u32>,
    /// Name of the layer of that call; empty without one.
    pub layer: String,
    /// Phase of the call in which it showed, 0 to 3; 0 without a call.
    pub phase: u32,
    /// Ranks of which something is missing here for this reason. They live.
    pub missed: Vec<u32>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [argument, first, second] =
            [&self.argument, &self.first, &self.second].map(|text| printable(text));
        let (first_rank, second_rank) = (self.first_rank, self.second_rank);
        write!(
            f,
            "{argument} is {first} at rank {first_rank} but {second} at rank {second_rank}"
        )?;
        if let Some(call) = self.call {
            write!(f, ", in call {call}")?;
        }
        f.write_str("; pass the same at all ranks")
    }
}

/// What a rank found when it met the others to make something; else the error as it was.
impl TryFrom<TeamError> for Difference {
    type Error = TeamError;

    fn try_from(error: TeamError) -> Result<Self, TeamError> {
        let none = (None, String::new());
        let (argument, first_rank, first, second_rank, second, (call, layer)) = match error {
            TeamError::Mismatch {
                what,
                first_rank,
                first,
                second_rank,
                second,
            } => (what, first_rank, first, second_rank, second, none),
            TeamError::Differs {
                argument,
                first_rank,
                first,
                second_rank,
                second,
                call,
                layer,
            } => {
                let of_call = (Some(call), layer);
                (argument, first_rank, first, second_rank, second, of_call)
            }
            other => return Err(other),
        };
        Ok(Self {
            argument,
            first_rank,
            first,
            second_rank,
            second,
            call,
            layer,
            phase: 0,
            missed: Vec::new(),
        })
    }
}

/// Makes the error of a layer that could not be made.
pub(in crate::moe) fn of_making(error: TeamError) -> MoeError {
    match Difference::try_from(error) {
        Ok(found) => MoeError::Arguments(Box::new(found)),
        Err(error) => MoeError::Team(error),
    }
}

/// The tag that kernels give to the shape `call` of calls of `layer`; 0 is the layer's own. Twin: `tag_of` in `begin.cuh`.
fn tag_of(layer: &MoeConfig, call: &MoeConfig, ranks: u32) -> u32 {
    if (call.format, call.max_tokens) == (layer.format, layer.max_tokens) {
        return 0;
    }
    let layout = Layout::new(call, ranks);
    let small = |bytes: u64| u32::try_from(bytes).expect("checked with the shape");
    let kind = format(call.format).0 << 2 | scales(call.format).0;
    let mix = |sum: u32, length: u32| {
        let product = (sum ^ length).wrapping_mul(0x9e37_79b1);
        product ^ product >> 15
    };
    let lengths = [
        call.max_tokens,
        small(layout.row_bytes),
        small(layout.scale_bytes),
    ];
    (kind + 1) << 11 | lengths.into_iter().fold(0, mix) >> 21
}

/// What a layer knows of the arguments of its calls.
#[derive(Debug)]
pub(in crate::moe) struct Arguments {
    team: Weak<Team>,
    /// Name of the layer.
    layer: String,
    config: MoeConfig,
    /// What all ranks have agreed on when they made it: names and values.
    agreed: Vec<(String, String)>,
    rank: u32,
    ranks: u32,
    launches: Arc<Launches>,
    /// Most tokens of a rank in the newest call.
    max_tokens: AtomicU32,
    /// Shapes of calls that were told to the other ranks, the layer's own left out.
    told: Mutex<Vec<CallShape>>,
    looked: Mutex<Looked>,
}

/// What this rank has asked the store.
#[derive(Debug, Default)]
struct Looked {
    /// The newest call, and the ranks that were missed in it for no reason that the store knows.
    unexplained: Option<(u32, Vec<u32>)>,
    /// The newest difference.
    found: Option<(u32, Difference)>,
}

impl Arguments {
    pub(in crate::moe) fn new(
        team: &Arc<Team>,
        layer: &str,
        config: &MoeConfig,
        agreed: Vec<(String, String)>,
    ) -> Self {
        Self {
            team: Arc::downgrade(team),
            layer: layer.to_owned(),
            config: *config,
            agreed,
            rank: team.rank(),
            ranks: team.ranks(),
            launches: Arc::default(),
            max_tokens: AtomicU32::new(config.max_tokens),
            told: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    /// All ranks have made the layer.
    pub(in crate::moe) fn made(&self, team: &Team) {
        team.has_made(&self.layer, Arc::downgrade(&self.launches));
    }

    pub(in crate::moe) fn launches(&self) -> &Launches {
        &self.launches
    }

    fn told(&self) -> MutexGuard<'_, Vec<CallShape>> {
        // Whole after every operation.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shape(&self, of: Option<Format>, max_tokens: u32) -> CallShape {
        let call = MoeConfig {
            format: of.unwrap_or(self.config.format),
            max_tokens,
            ..self.config
        };
        CallShape {
            tag: tag_of(&self.config, &call, self.ranks),
            format: format!("{:?}", call.format),
            max_tokens: call.max_tokens,
        }
    }

    /// A dispatch of this shape follows, which the layer has room for.
    pub(in crate::moe) fn use_shape(&self, of: Option<Format>, max_tokens: u32) {
        let most = match max_tokens {
            0 => self.config.max_tokens,
            own => own,
        };
        self.max_tokens.store(most, Ordering::Relaxed);
        self.announce(of, most);
    }

    /// Tells the other ranks a shape of calls, once, unless it is the layer's own.
    pub(in crate::moe) fn announce(&self, of: Option<Format>, max_tokens: u32) {
        let format = of.unwrap_or(self.config.format);
        if (format, max_tokens) == (self.config.format, self.config.max_tokens) {
            return;
        }
        let shape = self.shape(of, max_tokens);
        let mut told = self.told();
        if !told.contains(&shape) {
            told.push(shape);
            if let Some(team) = self.team.upgrade() {
                team.tell_shapes(&self.layer, &told);
            }
        }
    }

    /// Whether ranks were missed in `fault` for arguments that differ; asks the store unless that is known. The first rank to find it
    /// tells the others.
    pub(in crate::moe) fn explain(&self, fault: &Fault) -> Option<Difference> {
        let mut looked = match self.looked.try_lock() {
            Ok(looked) => looked,
            Err(TryLockError::Poisoned(looked)) => looked.into_inner(),
            // Another thread asks the store, which may not answer.
            Err(TryLockError::WouldBlock) => return None,
        };
        if let Some((call, found)) = &looked.found
            && *call == fault.call
        {
            return Some(found.clone());
        }
        let mut missed = fault.suspects.clone();
        missed.extend(fault.peer);
        missed.sort_unstable();
        missed.dedup();
        missed.retain(|rank| *rank != self.rank);
        if missed.is_empty() {
            return None;
        }
        if let Some((call, known)) = &mut looked.unexplained
            && fault.call.wrapping_sub(*call) <= SETS
            && fault.cause != MoeCause::SHAPE
            && missed.iter().all(|rank| known.contains(rank))
        {
            *call = fault.call;
            return None;
        }
        let team = self.team.upgrade()?;
        let told = looked.found.as_ref().map(|(call, _)| *call);
        let found = match fault.cause {
            MoeCause::SHAPE => self.other_shape(&team, fault),
            _ => self
                .other_layer(&team, fault, &missed)
                .or_else(|| self.told_by(&team, fault, &missed, told)),
        };
        match &found {
            Some(found) => looked.found = Some((fault.call, found.clone())),
            // The next call that misses them asks again.
            None if team.asks_in_vain() => looked.unexplained = None,
            None => looked.unexplained = Some((fault.call, missed)),
        }
        found
    }

    /// Rows of a peer had another tag.
    fn other_shape(&self, team: &Team, fault: &Fault) -> Option<Difference> {
        let peer = fault.peer?;
        let (theirs, ours) = (fault.syndrome >> 16, fault.syndrome & 0xffff);
        let layers = self.shape(None, self.config.max_tokens);
        let told = team.shapes_of(&self.layer, peer).unwrap_or_default();
        let by_tag = |shapes: &[CallShape], tag: u32| match tag {
            0 => Some(layers.clone()),
            tag => shapes.iter().find(|shape| shape.tag == tag).cloned(),
        };
        let ours = by_tag(&self.told(), ours)?;
        let (argument, first, second) = match by_tag(&told, theirs) {
            Some(theirs) if theirs.format != ours.format => ("format", ours.format, theirs.format),
            Some(theirs) => (
                "max_tokens of a call",
                ours.max_tokens.to_string(),
                theirs.max_tokens.to_string(),
            ),
            None => (
                "format or max_tokens of a call",
                format!("{} with {}", ours.format, ours.max_tokens),
                "another one, which the store does not name,".to_owned(),
            ),
        };
        Some(self.found(
            team,
            fault,
            argument,
            first,
            (peer, second),
            &[],
            vec![peer],
        ))
    }

    /// A rank that was missed makes something else with the others, in place of this call.
    fn other_layer(&self, team: &Team, fault: &Fault, missed: &[u32]) -> Option<Difference> {
        // A rank that was missed in combine has made the dispatch.
        if fault.phase > 1 {
            return None;
        }
        let mut refused = Vec::new();
        let mut first = None;
        for &peer in missed {
            let Some(wants) = team.wants_of(peer) else {
                continue;
            };
            // It has not launched this call, and this rank has not made what it wants.
            let instead = wants.calls.get(&self.layer) == Some(&fault.call);
            if !instead || team.has_layer(&wants.layer) {
                continue;
            }
            let Some((argument, ours, theirs)) = self.compare(&wants.arguments) else {
                continue;
            };
            refused.push((peer, wants.serial));
            first.get_or_insert((argument, ours, (peer, theirs)));
        }
        let (argument, ours, theirs) = first?;
        let missed = refused.iter().map(|(peer, _)| *peer).collect();
        Some(self.found(team, fault, &argument, ours, theirs, &refused, missed))
    }

    /// The first of `theirs` in which this rank's call differs: name, value here, value there.
    fn compare(&self, theirs: &[(String, String)]) -> Option<(String, String, String)> {
        let max_tokens = self.max_tokens.load(Ordering::Relaxed).to_string();
        let here = |name: &str, agreed: &str| match name {
            "max_tokens" => max_tokens.clone(),
            _ => agreed.to_owned(),
        };
        let known = theirs.iter().filter_map(|(name, theirs)| {
            let (_, agreed) = self.agreed.iter().find(|(own, _)| own == name)?;
            Some((name.clone(), here(name, agreed), theirs.clone()))
        });
        let mut differing = known.filter(|(_, ours, theirs)| ours != theirs);
        differing.next()
    }

    /// A rank that was missed has found a difference, in this call or the one before.
    fn told_by(
        &self,
        team: &Team,
        fault: &Fault,
        missed: &[u32],
        known: Option<u32>,
    ) -> Option<Difference> {
        let told = missed.iter().filter_map(|&peer| {
            let found = team.differs_of(peer)?;
            let fits = found.layer == self.layer && fault.call.wrapping_sub(found.call) < SETS;
            (fits && Some(found.call) != known).then_some((peer, found))
        });
        let told: Vec<(u32, Differs)> = told.collect();
        let missed = told.iter().map(|(peer, _)| *peer).collect();
        let (_, found) = told.into_iter().next()?;
        let found = Difference {
            argument: found.argument,
            first_rank: found.first.0,
            first: found.first.1,
            second_rank: found.second.0,
            second: found.second.1,
            call: Some(fault.call),
            layer: self.layer.clone(),
            phase: fault.phase,
            missed,
        };
        self.tell(team, &found, &[]);
        Some(found)
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one record")]
    fn found(
        &self,
        team: &Team,
        fault: &Fault,
        argument: &str,
        ours: String,
        theirs: (u32, String),
        refused: &[(u32, u32)],
        missed: Vec<u32>,
    ) -> Difference {
        // The lower rank first, so that all say the same.
        let mut both = [(self.rank, ours), theirs];
        both.sort();
        let [(first_rank, first), (second_rank, second)] = both;
        let found = Difference {
            argument: argument.to_owned(),
            first_rank,
            first,
            second_rank,
            second,
            call: Some(fault.call),
            layer: self.layer.clone(),
            phase: fault.phase,
            missed,
        };
        self.tell(team, &found, refused);
        found
    }

    fn tell(&self, team: &Team, found: &Difference, refused: &[(u32, u32)]) {
        team.tell_differs(&Differs {
            layer: self.layer.clone(),
            call: found.call.unwrap_or_default(),
            refused: refused.to_vec(),
            argument: found.argument.clone(),
            first: (found.first_rank, found.first.clone()),
            second: (found.second_rank, found.second.clone()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moe::Scales;

    #[test]
    fn a_difference_is_told_with_both_ranks_and_values() {
        let error = TeamError::Mismatch {
            what: "hidden".to_owned(),
            first_rank: 0,
            first: "128".to_owned(),
            second_rank: 2,
            second: "256".to_owned(),
        };
        let words = of_making(error).to_string();
        assert_eq!(
            words,
            "hidden is 128 at rank 0 but 256 at rank 2; pass the same at all ranks"
        );
        let other = of_making(TeamError::NotConnected { peer: 3 });
        assert!(matches!(other, MoeError::Team(_)));
    }

    #[test]
    fn shapes_of_one_layer_have_tags_of_their_own_and_that_of_the_layer_none() {
        let layer = MoeConfig::BF16
            .with_hidden(512)
            .with_experts(8)
            .with_top_k(2)
            .with_max_tokens(64);
        let tag = |format, max_tokens| {
            let call = MoeConfig {
                format,
                max_tokens,
                ..layer
            };
            tag_of(&layer, &call, 4)
        };
        assert_eq!(tag(Format::Bf16, 64), 0);
        let fp8 = [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0].map(Format::Fp8);
        let mut tags: Vec<u32> = fp8.iter().map(|format| tag(*format, 64)).collect();
        tags.extend([1, 7, 32, 63].map(|tokens| tag(Format::Bf16, tokens)));
        assert!(tags.iter().all(|tag| (1..1 << 16).contains(tag)));
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 7);
    }

    #[test]
    fn arguments_of_other_ranks_are_shown_as_one_plain_line() {
        let text = || "a\n\u{1b}[2J\u{202e}\u{85}".to_owned();
        let error = TeamError::Mismatch {
            what: text(),
            first_rank: 0,
            first: text(),
            second_rank: 2,
            second: text(),
        };
        let words = of_making(error).to_string();
        assert_eq!(words, printable(&words));
        assert!(words.contains("a\\n\\u{1b}[2J"), "{words}");
    }
}
