//! What connections need of their engine, and what they leave in it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};

use crate::config::EngineConfig;
use crate::engine::lives::known::{AllKnown, Known};
use crate::engine::memory::keys::{Keys, PeerKey};
use crate::engine::route::counter::Counters;
use crate::engine::route::link::Link;
use crate::engine::route::local::Local;
use crate::engine::route::rails::Rails;
use crate::engine::transfers::Transfers;
use crate::engine::wire::messages::Hello;
use crate::engine::worker::Pool;
use crate::error::OwnThread;
use crate::provider::{Host, Wake};

/// The part of an engine that its connections share with it.
pub(in crate::engine) struct Core {
    pub(in crate::engine) config: EngineConfig,
    /// What this engine tells of itself.
    pub(in crate::engine) hello: Hello,
    pub(in crate::engine) transfers: Arc<Transfers>,
    pub(in crate::engine) pool: Arc<Pool<Host>>,
    pub(in crate::engine) local: Local,
    pub(in crate::engine) counters: Arc<Counters>,
    pub(in crate::engine) peers: Mutex<Peers>,
    /// A peer has connected, or the engine is closed.
    pub(in crate::engine) arrived: Condvar,
    /// Numbers the connections.
    pub(in crate::engine) links: AtomicU64,
    pub(in crate::engine) is_closing: AtomicBool,
    pub(in crate::engine) known: Arc<AllKnown>,
    /// Keys that peers have. They end before the registrations that they stand on.
    pub(in crate::engine) keys: Arc<Keys<PeerKey>>,
    /// Last, since all of the above stands on it.
    pub(in crate::engine) rails: Arc<Rails>,
}

/// A connection that has shaken hands, before the program has a handle of it.
pub(in crate::engine) struct Arrived {
    pub(in crate::engine) link: Arc<Link>,
    /// The hello that the peer sent.
    pub(in crate::engine) hello: Arc<Hello>,
    pub(in crate::engine) known: Arc<Known>,
}

/// The connections of an engine.
#[derive(Default)]
pub(in crate::engine) struct Peers {
    /// All that have not ended: their control threads.
    pub(in crate::engine) threads: Vec<(Arc<Link>, Arc<Hello>, OwnThread)>,
    /// Name and life of those that shake hands, and have a place.
    pub(in crate::engine) entering: Vec<(String, u64)>,
    /// Those that have connected and were not accepted yet.
    pub(in crate::engine) arrived: VecDeque<Arrived>,
}

pub(in crate::engine) struct Listening {
    pub(in crate::engine) wake: Wake,
    pub(in crate::engine) stops: AtomicBool,
}

impl Peers {
    /// One more has connected. If the program leaves too many unaccepted, the oldest whose connection has ended goes.
    pub(in crate::engine) fn arrive(&mut self, peer: Arrived, most: usize) {
        self.arrived.push_back(peer);
        if self.arrived.len() > most {
            let ended = self.arrived.iter().position(|it| !it.link.is_open());
            self.arrived.remove(ended.unwrap_or(0));
        }
    }
}
