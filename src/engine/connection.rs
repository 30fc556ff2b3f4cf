//! The control thread of one connection: it sees to QPs that have failed, waits for the end of the connection, and takes it down.
//!
//! A connection ends when none of its QPs is left, when a program closes it, or when the other end says so or is gone. Then the QPs
//! go to the error state, the workers drop their lanes once these are dry, the pairs are reset at both ends, and what has waited
//! for this is concluded.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::known::{AllKnown, PeerGone};
#[cfg(test)]
use super::link::Planted;
use super::link::{Fence, Link, MOST_QPS};
use super::recovery::{Ends, Pairs, RecoveryError};
use super::report::Remote;
use super::transfers::Transfers;
use super::wire::{Message, Wire};
use super::worker::Pool;
use crate::error::ThreadPanicked;
use crate::provider::mlx5::Mlx5;

/// Longest wait for lanes to run dry. In error every WQE completes at once: this is for a device that does not keep its word.
const DRY: Duration = Duration::from_secs(60);

/// Name of the thread.
pub(super) const THREAD: &str = "wv-engine-peer";

/// One end of a connection.
pub(super) struct Control {
    pub(super) link: Arc<Link>,
    pub(super) transfers: Arc<Transfers>,
    pub(super) pool: Arc<Pool<Mlx5>>,
    pub(super) pairs: Pairs,
    pub(super) wire: Wire,
    /// Of the peer.
    pub(super) name: String,
    /// Learns of the end.
    pub(super) known: Arc<AllKnown>,
}

/// What is left of the other end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It may answer.
    There,
    /// It has said that its QPs are reset.
    IsReset,
    Gone,
}

impl Control {
    /// Until the connection has ended. Returns when its transfers are concluded, behind a panic too.
    pub(super) fn run(mut self) {
        let watched = ThreadPanicked::catch(THREAD, || self.watch());
        let (other, mut reason) = watched.unwrap_or_else(|panic| self.give_up(&panic));
        self.link.break_off();
        let ended = ThreadPanicked::catch(THREAD, || self.take_down(other));
        let remote = ended.unwrap_or_else(|panic| {
            (_, reason) = self.give_up(&panic);
            self.take_down(Other::Gone)
        });
        let incarnation = self.link.incarnation;
        let gone = (!self.link.is_wished()).then(|| PeerGone {
            name: self.name.clone(),
            incarnation,
            remote,
            reason,
        });
        self.known.leave(&self.name, incarnation, gone);
    }

    /// Behind a panic: the wire may stand within a message and a pair between two states, so nothing more is told or heard.
    fn give_up(&self, panic: &ThreadPanicked) -> (Other, String) {
        tracing::error!("the connection to {} ends: {panic}", self.name);
        self.link.lose_control(panic);
        (Other::Gone, panic.to_string())
    }

    /// Waits until it breaks at one end or the other: what is left of that, and why.
    fn watch(&mut self) -> (Other, String) {
        let link = Arc::clone(&self.link);
        let Some(wake) = link.wake() else {
            return (Other::Gone, String::new());
        };
        loop {
            wake.begin();
            // Behind `begin`: what comes from here on wakes.
            #[cfg(test)]
            link.panic_if_planted(Planted::Watch);
            let advanced = self.advance();
            let is_open = link.is_open();
            let slept = match advanced {
                Ok(most) if is_open => wake.sleep(Some(self.wire.stream().as_fd()), most),
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
            let mut byte = [0];
            if !is_readable(&self.wire, &mut byte) {
                continue;
            }
            match self.wire.receive() {
                Ok(Message::Reset) => return (Other::IsReset, "it has ended it".to_owned()),
                Ok(Message::End) => return (Other::There, "it has ended it".to_owned()),
                Ok(Message::Refused(reason)) => {
                    return (Other::Gone, format!("it refuses: {reason}"));
                }
                Ok(message) => {
                    if let Err(error) = self.pairs.hear(message, &link) {
                        return self.failed(&error);
                    }
                }
                Err(error) => return self.failed(&error.into()),
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Duration>, RecoveryError> {
        let mut ends = Ends {
            link: &self.link,
            transfers: &self.transfers,
            pool: &self.pool,
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

    /// What is known of the other end then.
    fn take_down(&mut self, mut other: Other) -> Remote {
        #[cfg(test)]
        self.link.panic_if_planted(Planted::End);
        if other == Other::There && self.wire.send(&Message::End).is_err() {
            other = Other::Gone;
        }
        self.pairs.end(&self.name);
        self.transfers.look();
        if !self.link.wait_for_lanes(DRY) {
            tracing::error!("lanes to {} do not run dry", self.name);
        }
        let is_reset = self.pairs.reset(&self.name);
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
            Fence::Whole => Remote::Quiet,
            Fence::RemoteUnknown => Remote::Unknown,
        }
    }

    /// Tells the other end, and hears from it.
    fn meet(&mut self, is_reset: bool) -> Other {
        if is_reset && self.wire.send(&Message::Reset).is_err() {
            return Other::Gone;
        }
        // Its End may stand before its Reset, and before that what it has said of lanes.
        for _ in 0..2 + 3 * MOST_QPS {
            match self.wire.receive() {
                Ok(Message::Reset) => return Other::IsReset,
                Ok(_) => {}
                Err(_) => return Other::Gone,
            }
        }
        Other::There
    }
}

/// Whether there is something to read, or the end.
fn is_readable(wire: &Wire, byte: &mut [u8; 1]) -> bool {
    let stream = wire.stream();
    let peeked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(byte));
    let back = stream.set_nonblocking(false);
    let would_block =
        matches!(&peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    back.is_err() || !would_block
}
