//! How both ends reuse the pair of QPs of one lane when one end has failed, while the other lanes of the connection go on.
//!
//! The end that notices says `LaneFailed`. Each end puts its QP into the error state and lets the lane run dry. Then it resets
//! the QP, and says `LaneReset` with the number of its next first packet. An end that has reset its QP and has heard the other's
//! `LaneReset` sets the fence of the lane. Nothing of its old life lands any more. Then the end brings its QP to Rtr and says
//! `LaneReady`. When the other end has said so too, it brings its QP to Rts. If the rail of an end
//! [rests](crate::engine::route::rest) and slices go another way meanwhile, the end says `LaneRests` and waits before that.
//!
//! An end whose QP is Rts may send before the QP of the other end is. If that QP refuses the request, it fails in Rtr, and its
//! life ends as any other.
//!
//! Over libfabric each end says `LaneCounts` before its `LaneReset`, and says that only when it has counted what the other end has told
//! ([`counts`](crate::engine::connection::counts)). When the connection ends, each end tells the same before its `Reset`.
//!
//! TCP keeps the order, so an end never takes a message of one life for one of the next. It has heard all of a life before it
//! begins the next one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::connection::counts::{CountsError, LifeCounts};
use crate::engine::connection::own_qps::{BadOffer, OwnQps};
use crate::engine::route::crossing::Crossing;
use crate::engine::route::link::Link;
use crate::engine::route::rails::Rails;
use crate::engine::route::rest::{Failures, Fault, REST, Rest};
use crate::engine::transfers::Transfers;
use crate::engine::wire::error::WireError;
use crate::engine::wire::messages::{Message, Wire};
use crate::engine::wire::notices::NoticeError;
use crate::engine::worker::{Held, Pool};
use crate::gpu::GpuError;
use crate::provider::{Host, HostOffer, HostPair, HostTerms, LaneCounts, ProviderError};

/// Longest rest of a rail, in milliseconds, that the other end may announce.
const MOST_REST_MS: u64 = 60_000;

/// Why a pair cannot be used again.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum RecoveryError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("a QP that has failed is not used again: {0}")]
    Provider(#[from] ProviderError),
    #[error("a QP that has failed is not used again within {0:?}")]
    Late(Duration),
    #[error(transparent)]
    Offer(#[from] BadOffer),
    #[error(transparent)]
    Counts(#[from] CountsError),
    #[error(transparent)]
    Notices(#[from] NoticeError),
    #[error("a notice is not delivered, since its bytes may not have come to the GPU: {0}")]
    Gpu(#[from] GpuError),
    #[error("{found:?}; it must be {expected}")]
    Message {
        found: Box<Message>,
        expected: String,
    },
}

/// The stage of a pair on its way back to use.
#[derive(Debug)]
enum Stage {
    /// Slices go by it.
    Up(HostPair),
    /// It is in the error state, until its lane is dry.
    Failed(HostPair),
    /// It is closed, and the other end knows what has counted. It has not told the same.
    Closed(HostPair),
    /// It is reset, and in Init with a new number for its first packet.
    Reset(HostPair),
    /// Both ends are reset. The rail may rest before the pair is connected again.
    Fenced(HostPair),
    /// It receives packets.
    Ready(HostPair),
    /// A step has failed.
    Lost,
}

#[derive(Debug)]
struct OnePair {
    stage: Stage,
    /// What the other end has said of the next life of its QP.
    theirs: Option<HostOffer>,
    is_theirs_ready: bool,
    /// What has counted in the present life of its lane.
    counts: LifeCounts,
    /// The time by which the pair must be up again.
    end: Option<Instant>,
    /// The time until which the rail rests.
    rests: Option<Instant>,
}

/// What a pair needs of its connection to go on.
pub(in crate::engine) struct Ends<'a> {
    pub(in crate::engine) link: &'a Arc<Link>,
    pub(in crate::engine) transfers: &'a Transfers,
    pub(in crate::engine) pool: &'a Pool<Host>,
    pub(in crate::engine) rails: &'a Rails,
    pub(in crate::engine) wire: &'a mut Wire,
}

/// The pairs of one connection, by lane.
#[derive(Debug)]
pub(in crate::engine) struct Pairs {
    pairs: Vec<OnePair>,
    /// The settings of each lane's QP.
    terms: Vec<HostTerms>,
    own: OwnQps,
    /// Longest time from a failure until a pair is used again.
    most: Duration,
    failures: Failures,
    rests: Rests,
    /// What has counted in the last life of each lane, once the connection has ended.
    last: Vec<LifeCounts>,
    /// What the other end is to be told of these lives.
    untold: Vec<Message>,
}

/// The rests of rails of the peer, and of ways to them. Rests of this end's rails belong to the engine.
type Rests = HashMap<Fault, Rest>;

impl Pairs {
    pub(in crate::engine) fn new(
        pairs: Vec<HostPair>,
        terms: Vec<HostTerms>,
        own: OwnQps,
        most: Duration,
    ) -> Self {
        let up = |pair| OnePair {
            stage: Stage::Up(pair),
            theirs: None,
            is_theirs_ready: false,
            counts: LifeCounts::default(),
            end: None,
            rests: None,
        };
        Self {
            pairs: pairs.into_iter().map(up).collect(),
            terms,
            own,
            most,
            failures: Failures::default(),
            rests: Rests::new(),
            last: Vec::new(),
            untold: Vec::new(),
        }
    }

    /// Takes a message of the other end about a lane.
    pub(in crate::engine) fn hear(
        &mut self,
        message: Message,
        link: &Link,
    ) -> Result<(), RecoveryError> {
        let (Message::LaneFailed(number)
        | Message::LaneCounts(number, _)
        | Message::LaneReset(number, _)
        | Message::LaneRests(number, _)
        | Message::LaneReady(number)) = message
        else {
            return Err(unexpected(message, "a notice, or what becomes of a lane"));
        };
        let lane = usize::try_from(number).unwrap_or(usize::MAX);
        let most = self.pairs.len().saturating_sub(1);
        let closed = self.closed(link);
        let Some(pair) = self.pairs.get_mut(lane) else {
            return Err(unexpected(message, &format!("a lane from 0 to {most}")));
        };
        let is_up = matches!(pair.stage, Stage::Up(_));
        let tells = self.terms.get(lane).is_some_and(HostTerms::tells_counts);
        let tells_first = tells && matches!(pair.stage, Stage::Failed(_) | Stage::Closed(_));
        match message {
            // This end had noticed the failure already.
            Message::LaneFailed(_) if !is_up => {}
            Message::LaneFailed(_) => link.end_lane(lane),
            Message::LaneCounts(_, told) if tells_first && !pair.counts.is_told() => {
                pair.counts.hear(told)?;
            }
            Message::LaneReset(_, offer) if !is_up && !tells_first && pair.theirs.is_none() => {
                self.own.check(lane, &offer, closed)?;
                pair.theirs = Some(offer);
            }
            Message::LaneReady(_) if !is_up && pair.theirs.is_some() => pair.is_theirs_ready = true,
            Message::LaneRests(_, ms) if !is_up && pair.theirs.is_some() && ms <= MOST_REST_MS => {
                let until = Instant::now().checked_add(self.most + Duration::from_millis(ms));
                pair.end = pair.end.max(until);
            }
            message => {
                let expected = match (is_up, &pair.theirs) {
                    (true, _) => "LaneFailed",
                    (false, None) if tells_first => "LaneCounts",
                    (false, None) => "LaneReset",
                    (false, Some(_)) => "LaneReady, or a rest of at most a minute",
                };
                return Err(unexpected(message, expected));
            }
        }
        Ok(())
    }

    /// Returns a bit for each lane whose queue is between two lives: its worker may have closed it, and it is not made again.
    fn closed(&self, link: &Link) -> u32 {
        let is_closed = |lane: usize| {
            let stage = &self.pairs[lane].stage;
            let is_old = matches!(stage, Stage::Up(_) | Stage::Failed(_) | Stage::Closed(_));
            is_old && !link.lanes().is_open(lane)
        };
        let closed = (0..self.pairs.len()).filter(|lane| is_closed(*lane));
        closed.fold(0, |bits, lane| bits | 1 << lane)
    }

    /// Takes every step that can be taken now. Returns how long the caller may wait for the next. None: no pair waits for anything.
    pub(in crate::engine) fn advance(
        &mut self,
        ends: &mut Ends,
    ) -> Result<Option<Duration>, RecoveryError> {
        for lane in 0..self.pairs.len() {
            let is_well =
                matches!(self.pairs[lane].stage, Stage::Up(_)) && ends.link.lanes().is_open(lane);
            let _span = (!is_well).then(|| tracing::info_span!("qp_failure", lane).entered());
            while self.step(lane, ends)? {}
        }
        let now = Instant::now();
        let ends = self.pairs.iter().filter_map(|pair| pair.end).min();
        if ends.is_some_and(|end| end < now) {
            return Err(RecoveryError::Late(self.most));
        }
        let rests = self.pairs.iter().filter_map(|pair| pair.rests);
        let next = rests.chain(ends).min();
        Ok(next.map(|next| next.saturating_duration_since(now)))
    }

    /// Takes the next step of one pair, if it can. Returns whether it did.
    fn step(&mut self, lane: usize, ends: &mut Ends) -> Result<bool, RecoveryError> {
        let number = lane as u64;
        let pair = &mut self.pairs[lane];
        if matches!(pair.stage, Stage::Closed(_)) {
            if !pair.counts.settle(ends.link, ends.transfers)? {
                return Ok(false);
            }
            pair.counts = LifeCounts::default();
        }
        let stage = std::mem::replace(&mut pair.stage, Stage::Lost);
        let (next, is_taken) = match (stage, pair.theirs.clone()) {
            (Stage::Up(qp), _) if !ends.link.lanes().is_open(lane) => {
                qp.end()?;
                tracing::info!("no slice takes it until both ends have reset it");
                ends.transfers.queues().look();
                pair.end = Instant::now().checked_add(self.most);
                ends.wire.send(&Message::LaneFailed(number))?;
                (Stage::Failed(qp), true)
            }
            (Stage::Failed(qp), _) if !ends.link.fences().is_held(lane) => match qp.counts()? {
                Some(LaneCounts { done, seen }) => {
                    pair.counts.close(seen);
                    ends.wire.send(&Message::LaneCounts(number, done.all()))?;
                    (Stage::Closed(qp), true)
                }
                None => (renew(qp, lane, &mut self.own, ends)?, true),
            },
            (Stage::Closed(qp), _) => (renew(qp, lane, &mut self.own, ends)?, true),
            (Stage::Reset(qp), Some(_)) => {
                ends.transfers.fence_lane(ends.link, lane);
                // The peer answers, so the way to it has failed.
                if ends.link.lanes().take_failure(lane) {
                    rest(&mut self.failures, &mut self.rests, lane, ends);
                }
                (Stage::Fenced(qp), true)
            }
            (Stage::Fenced(qp), Some(_))
                if !may_connect(pair, &mut self.rests, lane, self.most, ends)? =>
            {
                (Stage::Fenced(qp), false)
            }
            (Stage::Fenced(qp), Some(theirs)) => {
                let qp = qp.receive(&self.terms[lane], &theirs)?;
                ends.wire.send(&Message::LaneReady(number))?;
                (Stage::Ready(qp), true)
            }
            (Stage::Ready(qp), _) if pair.is_theirs_ready => {
                (pair.theirs, pair.is_theirs_ready, pair.end) = (None, false, None);
                let next = go_up(qp, &self.terms[lane], lane, ends)?;
                if matches!(next, Stage::Failed(_)) {
                    pair.end = Instant::now().checked_add(self.most);
                }
                (next, true)
            }
            (stage, _) => (stage, false),
        };
        self.pairs[lane].stage = next;
        Ok(is_taken)
    }

    /// Puts all QPs into the error state.
    pub(in crate::engine) fn end(&self, peer: &str) {
        for pair in &self.pairs {
            let (Stage::Up(pair)
            | Stage::Failed(pair)
            | Stage::Closed(pair)
            | Stage::Reset(pair)
            | Stage::Fenced(pair)
            | Stage::Ready(pair)) = &pair.stage
            else {
                continue;
            };
            if let Err(error) = pair.end() {
                tracing::error!("a QP to {peer} is not put into error: {error}");
            }
        }
    }

    /// Resets all QPs, whose lanes are gone. Returns whether all of them are reset.
    pub(in crate::engine) fn reset(&mut self, peer: &str) -> bool {
        let mut is_reset = true;
        for (number, mut pair) in (0..).zip(std::mem::take(&mut self.pairs)) {
            is_reset &= !matches!(pair.stage, Stage::Lost);
            let has_told = matches!(pair.stage, Stage::Closed(_));
            match reset(pair.stage) {
                Ok(Some(LaneCounts { done, seen })) if !has_told => {
                    pair.counts.close(seen);
                    let told = done.all();
                    if !told.is_empty() {
                        self.untold.push(Message::LaneCounts(number, told));
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::error!("a QP to {peer} is not reset: {error}");
                    is_reset = false;
                }
            }
            self.last.push(pair.counts);
        }
        is_reset
    }

    /// Tells the other end what has counted in the last life of each lane, which is reset.
    pub(in crate::engine) fn tell_last(&mut self, wire: &mut Wire) -> Result<(), WireError> {
        let mut untold = std::mem::take(&mut self.untold).into_iter();
        untold.try_for_each(|message| wire.send(&message))
    }

    /// Counts what the other end has told of the last life of each lane, as far as it has.
    pub(in crate::engine) fn settle_last(
        &mut self,
        link: &Link,
        transfers: &Transfers,
    ) -> Result<(), CountsError> {
        for counts in &mut self.last {
            counts.settle(link, transfers)?;
        }
        Ok(())
    }

    /// Takes a message of the other end about a lane, which is reset. Only what the other end tells of its last life matters now.
    pub(in crate::engine) fn hear_last(&mut self, message: Message) -> Result<(), CountsError> {
        let Message::LaneCounts(number, told) = message else {
            return Ok(());
        };
        let lane = usize::try_from(number).unwrap_or(usize::MAX);
        match self.last.get_mut(lane) {
            Some(counts) if !counts.is_told() => counts.hear(told),
            // This is of a life that has not begun here, or of no lane.
            _ => Ok(()),
        }
    }
}

/// Returns the error of a message that must not come now.
fn unexpected(mut found: Message, expected: &str) -> RecoveryError {
    if let Message::LaneCounts(_, told) = &mut found {
        // The reason stays short.
        told.truncate(1);
    }
    RecoveryError::Message {
        found: found.into(),
        expected: expected.to_owned(),
    }
}

/// Begins the next life of a queue whose lane is dropped, and tells the other end of it.
fn renew(
    qp: HostPair,
    lane: usize,
    own: &mut OwnQps,
    ends: &mut Ends,
) -> Result<Stage, RecoveryError> {
    let qp = qp.renew()?;
    if let Some(offer) = qp.offer() {
        own.renew(lane, offer.clone());
        ends.wire.send(&Message::LaneReset(lane as u64, offer))?;
    }
    Ok(Stage::Reset(qp))
}

/// Resets the QP of a pair, whose lane is gone. Returns what has counted in its life, if the ends tell each other that.
fn reset(stage: Stage) -> Result<Option<LaneCounts>, ProviderError> {
    let (Stage::Up(qp)
    | Stage::Failed(qp)
    | Stage::Closed(qp)
    | Stage::Reset(qp)
    | Stage::Fenced(qp)
    | Stage::Ready(qp)) = stage
    else {
        return Ok(None);
    };
    let counts = qp.counts()?;
    qp.reset()?;
    Ok(counts)
}

/// Lets the QP of a lane send, and gives the lane to its worker. Returns the next stage of the pair.
fn go_up(
    qp: HostPair,
    terms: &HostTerms,
    lane: usize,
    ends: &mut Ends,
) -> Result<Stage, RecoveryError> {
    match qp.send(terms) {
        Ok((qp, queue)) => {
            if let Some(queue) = queue {
                let life = ends.link.open_lane(lane);
                let worker = ends.link.fences().worker_of(lane);
                let held = Held::new(ends.link, lane, life, queue);
                ends.pool.add(worker, held);
                // Others may have transfers that wait for a lane.
                ends.transfers.queues().look();
            }
            tracing::info!("slices take it again");
            Ok(Stage::Up(qp))
        }
        // The other end sends already, and this QP has refused its first request.
        Err((qp, _)) if qp.has_failed() => {
            ends.wire.send(&Message::LaneFailed(lane as u64))?;
            Ok(Stage::Failed(qp))
        }
        Err((_, error)) => Err(error.into()),
    }
}

/// Notes that a QP has failed. A rail or way that has failed often rests, with all QPs of the connection that go by it.
fn rest(failures: &mut Failures, rests: &mut Rests, lane: usize, ends: &Ends) {
    let crossings = (0..ends.link.lanes().qps()).map(|lane| ends.link.lanes().crossing(lane));
    let crossings: Vec<Crossing> = crossings.collect();
    let now = Instant::now();
    let fault = failures.add(ends.link.lanes().crossing(lane), &crossings, now);
    let begins = match fault {
        Fault::Own(rail) => ends.rails.rest(rail, Rest::failed) == Some(true),
        other => rests.entry(other).or_default().failed(now),
    };
    if begins {
        tracing::warn!("{fault} has failed often: it rests for {REST:?}");
        ends.link.end_those(|it| fault.has(it));
    }
}

/// Returns whether this pair may be reconnected now. If its rail is paused, tells the peer so and returns false.
fn may_connect(
    pair: &mut OnePair,
    rests: &mut Rests,
    lane: usize,
    most: Duration,
    ends: &mut Ends,
) -> Result<bool, RecoveryError> {
    let crossing = ends.link.lanes().crossing(lane);
    let all = [
        Fault::Way(crossing),
        Fault::Peers(crossing.theirs),
        Fault::Own(crossing.own),
    ];
    // If slices have no other way, the pair is connected at once.
    let has_way = |fault: &Fault| ends.link.lanes().has_way_beside(|it| fault.has(it));
    let rest = all.into_iter().filter(has_way).find_map(|fault| {
        let rest = match fault {
            Fault::Own(rail) => ends.rails.rest(rail, Rest::may_connect)?,
            other => rests.get_mut(&other)?.may_connect(Instant::now()),
        };
        rest.err()
    });
    let Some(left) = rest else {
        pair.rests = None;
        return Ok(true);
    };
    let now = Instant::now();
    if pair.rests.is_none_or(|known| known <= now) {
        let ms = u64::try_from(left.as_millis()).unwrap_or(MOST_REST_MS) + 1;
        let ms = ms.min(MOST_REST_MS);
        ends.wire.send(&Message::LaneRests(lane as u64, ms))?;
        pair.rests = now.checked_add(left);
        pair.end = now.checked_add(left + most);
    }
    Ok(false)
}
