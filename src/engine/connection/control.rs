//! The control thread of one connection. It sees to QPs that have failed, waits for the end of the connection, and takes it down.
//!
//! A connection ends when none of its QPs is left, when a program closes it, or when the other end says so or is gone. Then the QPs
//! go to the error state, and the workers drop their lanes once these are dry. Both ends reset the pairs, tell each other over libfabric
//! what has counted, and conclude the transfers that have waited for this. Then both ends send the notices that they still hold: the
//! peer learns also of a transfer that failed with its connection.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::deadline::Looks;
use crate::engine::connection::core::Core;
use crate::engine::connection::recovery::{Ends, Pairs, RecoveryError};
use crate::engine::ledger::report::Remote;
use crate::engine::limits::MOST_QPS;
use crate::engine::lives::life::{EngineLife, EngineLives, PeerGone};
use crate::engine::memory::keys::{Keys, PeerKey};

use crate::engine::route::fences::Fence;
#[cfg(test)]
use crate::engine::route::fences::Planted;
use crate::engine::route::link::Link;
use crate::engine::route::rails::Rails;
use crate::engine::text::refusal;
use crate::engine::transfers::Transfers;
use crate::engine::wire::error::WireError;
use crate::engine::wire::messages::{Message, Wire};
use crate::engine::worker::Pool;
use crate::error::ThreadPanicked;
use crate::provider::local::Seat;
use crate::provider::{Host, Watched};

/// Longest wait for lanes to run dry. In the error state every WQE completes at once, unless the device is faulty.
const DRY: Duration = Duration::from_secs(60);
/// Longest wait for the messages of the other end when both part, in case that they do not stop.
const PARTING: Duration = Duration::from_secs(60);
/// The most messages that the thread takes before it looks at its other work.
const MOST_HEARD: u32 = 256;

/// Time between two looks for regions that a process of this machine has taken away, while their files are mapped here.
const SWEEP: Duration = Duration::from_secs(1);

/// Name of the thread.
pub(in crate::engine) const THREAD: &str = "wv-engine-peer";

/// One end of a connection.
pub(in crate::engine) struct Control {
    link: Arc<Link>,
    transfers: Arc<Transfers>,
    pool: Arc<Pool<Host>>,
    pairs: Pairs,
    rails: Arc<Rails>,
    wire: Wire,
    /// The name of the peer.
    name: String,
    known: Arc<EngineLife>,
    /// The state of all peers, which learns of the end of the connection and of notices.
    all: Arc<EngineLives>,
    /// The keys that peers have. Those of this peer end with the connection, or before.
    keys: Arc<Keys<PeerKey>>,
    /// The number of notices taken here that the other end has been told.
    told: u64,
    /// The seat of the peer, if it may copy to and from this engine.
    seat: Option<Seat>,
}

/// What is known of the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It may answer.
    There,
    /// It has said that its QPs are reset.
    IsReset,
    Gone,
}

impl Control {
    /// Returns what the control thread of the connection `link` to the peer `name` runs with.
    pub(in crate::engine) fn new(
        core: &Core,
        link: &Arc<Link>,
        known: &Arc<EngineLife>,
        name: String,
        pairs: Pairs,
        wire: Wire,
    ) -> Self {
        Self {
            link: Arc::clone(link),
            transfers: Arc::clone(&core.transfers),
            pool: Arc::clone(&core.pool),
            pairs,
            rails: Arc::clone(&core.rails),
            wire,
            name,
            known: Arc::clone(known),
            all: Arc::clone(&core.known),
            keys: Arc::clone(&core.keys),
            told: 0,
            seat: None,
        }
    }

    /// Returns the control with the seat of a peer that may copy to and from this engine.
    pub(in crate::engine) fn with_seat(mut self, seat: Option<Seat>) -> Self {
        self.seat = seat;
        self
    }

    /// Runs until the connection has ended and its transfers are concluded, also after a panic.
    pub(in crate::engine) fn run(mut self) {
        let _span = tracing::info_span!("connection", peer = %self.name).entered();
        let watched = ThreadPanicked::catch(THREAD, || self.watch());
        let (other, mut reason) = watched.unwrap_or_else(|panic| self.give_up(&panic));
        self.link.break_off();
        // A thread that waits for room or a slot looks again, and is refused.
        self.transfers.waiting().change();
        self.keys.end_link(self.link.number());
        self.transfers.waiting().change();
        let ended = ThreadPanicked::catch(THREAD, || self.take_down(other));
        let remote = ended.unwrap_or_else(|panic| {
            (_, reason) = self.give_up(&panic);
            self.take_down(Other::Gone)
        });
        let incarnation = self.link.incarnation();
        let gone = (!self.link.is_wished()).then(|| PeerGone {
            name: self.name.clone(),
            incarnation,
            remote,
            reason,
        });
        self.all.leave(&self.known, &self.link, gone);
    }

    /// Ends the connection after a panic. The wire may stand within a message, and a pair between two states, so this end sends
    /// and receives no more.
    fn give_up(&self, panic: &ThreadPanicked) -> (Other, String) {
        tracing::error!("the connection to {} ends: {panic}", self.name);
        self.link.lose_control(panic);
        (Other::Gone, panic.to_string())
    }

    /// Waits until the connection breaks at one end or the other. Returns what is left of the other end, and why it broke.
    fn watch(&mut self) -> (Other, String) {
        let link = Arc::clone(&self.link);
        let Some(wake) = link.wake() else {
            return (Other::Gone, String::new());
        };
        if let Err(error) = self.begin_notices() {
            return self.failed(&error);
        }
        loop {
            wake.begin();
            // After `begin`: what comes from here on wakes.
            #[cfg(test)]
            link.fences().panic_if_planted(Planted::Watch);
            let advanced = self.advance();
            // No descriptor wakes the thread for bytes that were read already.
            let advanced = if self.wire.has_whole() {
                advanced.map(|_| Some(Duration::ZERO))
            } else {
                advanced
            };
            let is_open = link.is_open();
            let slept = match advanced {
                Ok(most) if is_open => wake.sleep(Some(self.watched()), most),
                _ => Ok(()),
            };
            wake.end();
            if let Err(error) = advanced {
                return self.failed(&error);
            }
            if !is_open {
                return (Other::There, "no QP of it is left".to_owned());
            }
            if let Err(error) = slept {
                tracing::error!("the connection to {} is not watched: {error}", self.name);
                return (Other::There, error.to_string());
            }
            match self.hear() {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn watched(&self) -> Watched<'_> {
        Watched {
            fd: self.wire.stream().as_fd(),
            is_written: self.wire.is_going(),
        }
    }

    /// Takes the messages that have come, but not more than [`MOST_HEARD`]. Returns what is left of the other end, if one of them ends the
    /// connection.
    fn hear(&mut self) -> Result<Option<(Other, String)>, RecoveryError> {
        for _ in 0..MOST_HEARD {
            let Some(message) = self.wire.try_receive()? else {
                break;
            };
            match message {
                Message::Reset => return Ok(Some((Other::IsReset, "it has ended it".to_owned()))),
                Message::End => return Ok(Some((Other::There, "it has ended it".to_owned()))),
                Message::Refused(reason) => {
                    return Ok(Some((Other::Gone, refusal(&reason))));
                }
                message => {
                    if let Some(message) = self.hear_notice(message)? {
                        self.pairs.hear(message, &self.link)?;
                        // A pair takes each step before it hears of the next.
                        self.advance_pairs()?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// Takes a message about notices. Returns any other message.
    fn hear_notice(&mut self, message: Message) -> Result<Option<Message>, RecoveryError> {
        match message {
            Message::Accepted(number) => {
                self.known.outbox().enter(self.link.number(), number)?;
            }
            Message::Taken(count) => {
                if self.known.outbox().taken(count)? {
                    self.transfers.waiting().change();
                }
            }
            Message::Notice(record) => {
                // Kernels see the bytes after which the notice comes.
                self.transfers.flushes().flush()?;
                self.all.accept(&self.known, record)?;
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn begin_notices(&mut self) -> Result<(), RecoveryError> {
        let (accepted, taken) = {
            let inbox = self.known.inbox();
            (inbox.accepted(), inbox.taken())
        };
        self.wire.post(&Message::Accepted(accepted))?;
        self.told = taken;
        self.wire.post(&Message::Taken(taken))?;
        Ok(())
    }

    /// Sends as much about notices as the stream takes.
    fn tell_notices(&mut self) -> Result<(), RecoveryError> {
        self.wire.flush()?;
        while !self.wire.is_going() {
            let taken = self.known.inbox().taken();
            if taken != self.told {
                self.told = taken;
                self.wire.post(&Message::Taken(taken))?;
                continue;
            }
            let Some(record) = self.known.outbox().next(self.link.number()) else {
                break;
            };
            self.wire.post(&Message::Notice(record))?;
        }
        Ok(())
    }

    /// Takes all steps that can be taken now. Returns how long the thread may wait for the next.
    fn advance(&mut self) -> Result<Option<Duration>, RecoveryError> {
        let next = self.advance_pairs()?;
        self.tell_notices()?;
        let due = self.expire_keys();
        let local = self.link.local();
        let sweep = local.is_some_and(|way| way.reach.sweep()).then_some(SWEEP);
        Ok(next
            .into_iter()
            .chain(self.wire.patience())
            .chain(due)
            .chain(sweep)
            .min())
    }

    /// Ends the keys of the peer whose time is over. Returns how long it is until the time of the next is over.
    fn expire_keys(&self) -> Option<Duration> {
        let before = self.keys.count();
        let due = self.keys.expire(self.link.number());
        if self.keys.count() < before {
            // A thread that waits to take a region away looks again.
            self.transfers.waiting().change();
        }
        due
    }

    fn advance_pairs(&mut self) -> Result<Option<Duration>, RecoveryError> {
        let mut ends = Ends {
            link: &self.link,
            transfers: &self.transfers,
            pool: &self.pool,
            rails: &self.rails,
            wire: &mut self.wire,
        };
        self.pairs.advance(&mut ends)
    }

    fn failed(&self, error: &RecoveryError) -> (Other, String) {
        tracing::debug!("the connection to {} ends: {error}", self.name);
        let other = match error {
            RecoveryError::Wire(_) => Other::Gone,
            _ => Other::There,
        };
        (other, error.to_string())
    }

    /// Takes the connection down. Returns what is known of the other end then.
    fn take_down(&mut self, mut other: Other) -> Remote {
        #[cfg(test)]
        self.link.fences().panic_if_planted(Planted::End);
        if other == Other::There && self.wire.send(&Message::End).is_err() {
            other = Other::Gone;
        }
        self.pairs.end(&self.name);
        self.transfers.queues().look();
        if !self.link.fences().wait_for_lanes(DRY) {
            tracing::error!("lanes to {} do not run dry", self.name);
        }
        let is_reset = self.pairs.reset(&self.name);
        // After this the peer copies no more.
        self.seat = None;
        if let Err(error) = self.settle_counts(other) {
            tracing::debug!("{} and this end differ in counts: {error}", self.name);
            other = Other::Gone;
        }
        if other == Other::There {
            other = self.meet(is_reset);
        } else if is_reset && self.wire.send(&Message::Reset).is_err() {
            tracing::debug!("{} does not hear that this end is reset", self.name);
        }
        let fence = match other {
            Other::IsReset => Fence::Whole,
            Other::There | Other::Gone => Fence::RemoteUnknown,
        };
        self.transfers.end(&self.link, fence);
        match fence {
            // The other end does not part from an end that is not reset: the end of the stream tells it so.
            Fence::Whole if !is_reset => Remote::Quiet,
            Fence::Whole => {
                if let Err(error) = self.part() {
                    tracing::debug!("{} does not get all notices: {error}", self.name);
                }
                Remote::Quiet
            }
            Fence::RemoteUnknown => Remote::Unknown,
        }
    }

    /// Tells the other end what has counted, if it listens, and counts what it has told so far.
    fn settle_counts(&mut self, other: Other) -> Result<(), RecoveryError> {
        let settled = self.pairs.settle_last(&self.link, &self.transfers);
        if other == Other::There {
            self.pairs.tell_last(&mut self.wire)?;
        }
        Ok(settled?)
    }

    /// Tells the other end whether this end is reset, and hears the same from it.
    fn meet(&mut self, is_reset: bool) -> Other {
        if !is_reset {
            // This end sends no Reset. If the other end is not reset either, each would wait for the Reset of the other.
            self.wire.shut();
        } else if self.wire.send(&Message::Reset).is_err() {
            return Other::Gone;
        }
        match self.hear_until(&Message::Reset) {
            Ok(true) => Other::IsReset,
            Ok(false) => Other::There,
            Err(_) => Other::Gone,
        }
    }

    /// Sends the notices that are left, and takes those of the other end meanwhile. Both ends are reset.
    fn part(&mut self) -> Result<(), RecoveryError> {
        let mut looks = Looks::within(PARTING);
        let (mut is_over, mut is_theirs_over) = (false, false);
        while !is_over || self.wire.is_going() {
            if looks.next().is_none() {
                return Err(WireError::Late(PARTING).into());
            }
            if !self.wire.is_going() {
                // This is a statement of its own, so that the lock is not held while the message is sent.
                let record = self.known.outbox().next(self.link.number());
                is_over = record.is_none();
                self.wire
                    .post(&record.map_or(Message::Over, Message::Notice))?;
            }
            is_theirs_over = is_theirs_over || self.hear_parting()?;
            if self.wire.is_going() && (is_theirs_over || !self.wire.has_whole()) {
                self.wire.wait()?;
            }
            self.wire.flush()?;
        }
        if !is_theirs_over {
            self.hear_until(&Message::Over)?;
        }
        Ok(())
    }

    /// Takes messages about notices that have come, but not more than [`MOST_HEARD`]. Returns whether the other end has no more notices.
    fn hear_parting(&mut self) -> Result<bool, RecoveryError> {
        for _ in 0..MOST_HEARD {
            match self.wire.try_receive()? {
                None => break,
                Some(Message::Over) => return Ok(true),
                Some(message) => {
                    self.hear_notice(message)?;
                }
            }
        }
        Ok(false)
    }

    /// Takes the notices that come before the message `last`. Returns false if more messages came than the peer can have sent, or
    /// if the time is over.
    fn hear_until(&mut self, last: &Message) -> Result<bool, RecoveryError> {
        let mut looks = Looks::within(PARTING);
        // The peer's End may come before its Reset. What it has said of lanes comes before both: five messages of a life of a lane, and one
        // of its last life.
        let mut others = 2 + 6 * MOST_QPS;
        while others > 0 {
            let is_late = looks.next().is_none_or(|left| left.is_zero());
            // After the deadline messages that have come are still heard, but the thread does not wait for more.
            let message = if is_late {
                match self.wire.try_receive()? {
                    Some(message) => message,
                    None => return Ok(false),
                }
            } else {
                self.wire.receive()?
            };
            if message == *last {
                return Ok(true);
            }
            if let Some(message) = self.hear_notice(message)? {
                self.pairs.hear_last(message)?;
                self.pairs.settle_last(&self.link, &self.transfers)?;
                others -= 1;
            }
        }
        Ok(false)
    }
}
