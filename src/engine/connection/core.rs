//! What connections need of their engine, and what they leave in it.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex};

use crate::config::EngineConfig;
use crate::engine::connection::peers::Peers;
use crate::engine::lives::life::EngineLives;
use crate::engine::memory::keys::{Keys, PeerKey};
use crate::engine::route::counter::Counters;
use crate::engine::route::local::Local;
use crate::engine::route::rails::Rails;
use crate::engine::transfers::Transfers;
use crate::engine::wire::messages::Hello;
use crate::engine::worker::{Pool, Workers};
use crate::provider::{Host, Wake};

/// The part of an engine that its connections share with it.
pub(in crate::engine) struct Core {
    pub(in crate::engine) config: EngineConfig,
    /// What this engine tells of itself.
    pub(in crate::engine) hello: Hello,
    pub(in crate::engine) transfers: Arc<Transfers>,
    /// The workers with lanes of the NICs.
    pub(in crate::engine) pool: Arc<Pool<Host>>,
    /// All workers: `pool`, or those of another provider.
    pub(in crate::engine) workers: Arc<dyn Workers>,
    pub(in crate::engine) local: Local,
    pub(in crate::engine) counters: Arc<Counters>,
    pub(in crate::engine) peers: Mutex<Peers>,
    /// Notified when a peer has connected, or the engine is closed.
    pub(in crate::engine) arrived: Condvar,
    /// The number of the next connection.
    pub(in crate::engine) links: AtomicU64,
    pub(in crate::engine) is_closing: AtomicBool,
    pub(in crate::engine) known: Arc<EngineLives>,
    /// Keys that peers have. They end before the registrations that they stand on.
    pub(in crate::engine) keys: Arc<Keys<PeerKey>>,
    /// The last field, so that it is dropped last: all of the above stands on it.
    pub(in crate::engine) rails: Arc<Rails>,
}

/// What the engine has of a thread that takes connections.
pub(in crate::engine) struct Listening {
    pub(in crate::engine) wake: Wake,
    pub(in crate::engine) stops: AtomicBool,
}
