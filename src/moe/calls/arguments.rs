//! Explains missing ranks by arguments of calls in which ranks differ.
//!
//! A rank that misses another rank reads in the store what that rank's program does (`team/arguments.rs`). In peace it reads
//! nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use crate::abi::{MoeCause, SETS};
use crate::moe::calls::shape::tag_of;
use crate::moe::config::{Format, MoeConfig};
use crate::moe::difference::Difference;
use crate::moe::fault::Fault;
use crate::team::{CallShape, Differs, Launches, Team};

/// The knowledge of a layer about the arguments of its calls.
#[derive(Debug)]
pub(in crate::moe) struct Arguments {
    team: Weak<Team>,
    /// The name of the layer.
    layer: String,
    config: MoeConfig,
    /// The arguments on which all ranks agreed when they made the layer: name and value.
    agreed: Vec<(String, String)>,
    rank: u32,
    ranks: u32,
    launches: Arc<Launches>,
    /// The most tokens of a rank in the newest call.
    max_tokens: AtomicU32,
    /// The shapes of calls that this rank has told the others, without the layer's own shape.
    told: Mutex<Vec<CallShape>>,
    looked: Mutex<Looked>,
}

/// The results of this rank's questions to the store.
#[derive(Debug, Default)]
struct Looked {
    /// The newest call in which ranks were missed for no reason that the store knows, and these ranks.
    unexplained: Option<(u32, Vec<u32>)>,
    /// The newest difference, with its call.
    found: Option<(u32, Difference)>,
}

/// An argument whose value at this rank differs from that at a peer.
struct Contrast {
    argument: String,
    ours: String,
    peer: u32,
    theirs: String,
}

impl Arguments {
    pub(in crate::moe) fn new(
        team: &Arc<Team>,
        layer: &str,
        config: &MoeConfig,
        agreed: Vec<(String, String)>,
        launches: &Arc<Launches>,
    ) -> Self {
        Self {
            team: Arc::downgrade(team),
            layer: layer.to_owned(),
            config: *config,
            agreed,
            rank: team.rank(),
            ranks: team.ranks(),
            launches: Arc::clone(launches),
            max_tokens: AtomicU32::new(config.max_tokens),
            told: Mutex::default(),
            looked: Mutex::default(),
        }
    }

    /// Notes that all ranks have made the layer.
    pub(in crate::moe) fn made(&self, team: &Team) {
        team.has_made(&self.layer, Arc::downgrade(&self.launches));
    }

    fn told(&self) -> MutexGuard<'_, Vec<CallShape>> {
        // The list is whole after every operation.
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

    /// Notes the shape of the dispatch that follows, and tells it to the other ranks. The layer has room for it.
    pub(in crate::moe) fn use_shape(&self, of: Option<Format>, max_tokens: u32) {
        let most = match max_tokens {
            0 => self.config.max_tokens,
            own => own,
        };
        self.max_tokens.store(most, Ordering::Relaxed);
        self.announce(of, most);
    }

    /// Tells the other ranks a shape of calls, once. The layer's own shape is not told.
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

    /// Returns the difference in arguments for which ranks were missed in `fault`, if there is one. It asks the store unless the
    /// answer is known. The first rank that finds a difference publishes it for the others.
    pub(in crate::moe) fn explain(&self, fault: &Fault) -> Option<Difference> {
        let mut looked = match self.looked.try_lock() {
            Ok(looked) => looked,
            Err(TryLockError::Poisoned(looked)) => looked.into_inner(),
            // Another thread is asking the store, which may not answer.
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
            // The next call that misses these ranks asks again.
            None if team.asks_in_vain() => looked.unexplained = None,
            None => looked.unexplained = Some((fault.call, missed)),
        }
        found
    }

    /// Returns the difference in the shapes of the call, if rows of a peer had another tag.
    fn other_shape(&self, team: &Team, fault: &Fault) -> Option<Difference> {
        let peer = fault.peer?;
        let (theirs, ours) = (fault.syndrome >> 16, fault.syndrome & 0xffff);
        let layers = self.shape(None, self.config.max_tokens);
        let told = team.shapes_of(&self.layer, peer).unwrap_or_default();
        let by_tag = |shapes: &[CallShape], tag: u32| match tag {
            0 => Some(layers.clone()),
            tag => shapes.iter().find(|shape| shape.tag == tag).cloned(),
        };
        let own = by_tag(&self.told(), ours)?;
        let (argument, ours, theirs) = match by_tag(&told, theirs) {
            Some(other) if other.format != own.format => ("format", own.format, other.format),
            Some(other) => (
                "max_tokens of a call",
                own.max_tokens.to_string(),
                other.max_tokens.to_string(),
            ),
            None => (
                "format or max_tokens of a call",
                format!("{} with {}", own.format, own.max_tokens),
                "another one, which the store does not name,".to_owned(),
            ),
        };
        let contrast = Contrast {
            argument: argument.to_owned(),
            ours,
            peer,
            theirs,
        };
        Some(self.found(team, fault, contrast, &[], vec![peer]))
    }

    /// Returns the difference to the arguments of a missed rank, if that rank makes something else with the others in place of this
    /// call.
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
            // The peer has not launched this call, and this rank has not made what the peer wants.
            let instead = wants.calls.get(&self.layer) == Some(&fault.call);
            if !instead || team.has_layer(&wants.layer) {
                continue;
            }
            let Some(contrast) = self.compare(peer, &wants.arguments) else {
                continue;
            };
            refused.push((peer, wants.serial));
            first.get_or_insert(contrast);
        }
        let missed = refused.iter().map(|(peer, _)| *peer).collect();
        Some(self.found(team, fault, first?, &refused, missed))
    }

    /// Returns the first argument of `theirs`, names and values of `peer`, that has another value in this rank's call.
    fn compare(&self, peer: u32, theirs: &[(String, String)]) -> Option<Contrast> {
        let max_tokens = self.max_tokens.load(Ordering::Relaxed).to_string();
        let mut known = theirs.iter().filter_map(|(argument, theirs)| {
            let (_, agreed) = self.agreed.iter().find(|(own, _)| own == argument)?;
            let ours = match argument.as_str() {
                "max_tokens" => &max_tokens,
                _ => agreed,
            };
            (ours != theirs).then(|| Contrast {
                argument: argument.clone(),
                ours: ours.clone(),
                peer,
                theirs: theirs.clone(),
            })
        });
        known.next()
    }

    /// Returns a difference that a missed rank has found, in this call or the one before. `known` is the call whose difference is
    /// known.
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

    /// Makes a difference out of `contrast`, which showed in `fault`, and publishes it. `refused`: the ranks that want another
    /// layer, and the numbers of their wants. `missed`: the ranks of which something is missing because of it.
    fn found(
        &self,
        team: &Team,
        fault: &Fault,
        contrast: Contrast,
        refused: &[(u32, u32)],
        missed: Vec<u32>,
    ) -> Difference {
        // The lower rank comes first, so that all ranks say the same.
        let mut both = [(self.rank, contrast.ours), (contrast.peer, contrast.theirs)];
        both.sort();
        let [(first_rank, first), (second_rank, second)] = both;
        let found = Difference {
            argument: contrast.argument,
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
