//! The connections of an engine: those that shake hands, those that run, and those that the program has not accepted yet.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::lives::life::EngineLife;
use crate::engine::route::link::Link;
use crate::engine::wire::messages::Hello;
use crate::error::OwnThread;
use crate::provider::Wake;

/// A connection that has shaken hands, before the program has a handle of it.
pub(in crate::engine) struct Arrived {
    pub(in crate::engine) link: Arc<Link>,
    /// The hello that the peer sent.
    pub(in crate::engine) hello: Arc<Hello>,
    pub(in crate::engine) known: Arc<EngineLife>,
}

/// A connection whose control thread has not been joined.
pub(in crate::engine) struct Running {
    pub(in crate::engine) link: Arc<Link>,
    /// The hello that the peer sent.
    pub(in crate::engine) hello: Arc<Hello>,
    pub(in crate::engine) control: OwnThread,
}

/// The name and the life of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Life {
    pub(in crate::engine) name: String,
    pub(in crate::engine) incarnation: u64,
}

/// All connections of an engine.
#[derive(Default)]
pub(in crate::engine) struct Peers {
    running: Vec<Running>,
    /// Peers that shake hands. Each has a place already.
    entering: Vec<Life>,
    arrived: VecDeque<Arrived>,
}

impl Life {
    pub(in crate::engine) fn of(hello: &Hello) -> Self {
        Self {
            name: hello.name.clone(),
            incarnation: hello.incarnation,
        }
    }

    /// Returns whether this is another life of an engine with this name.
    fn is_rival(&self, name: &str, incarnation: u64) -> bool {
        self.name == name && self.incarnation != incarnation
    }
}

impl Peers {
    /// Joins the control threads that have ended. Returns how many places are taken.
    ///
    /// After its end a connection may send notices for a while, and has no place any more.
    pub(in crate::engine) fn count(&mut self) -> usize {
        let has_ended = |it: &mut Running| it.control.is_finished();
        for ended in self.running.extract_if(.., has_ended) {
            ended.control.join();
        }
        let present = self.running.iter().filter(|it| !it.link.fences().is_over());
        present.count() + self.entering.len()
    }

    /// Returns whether another life of this name is connected or shakes hands.
    pub(in crate::engine) fn has_rival(&self, life: &Life) -> bool {
        let mut running = self.running.iter().filter(|it| it.link.is_open());
        let mut entering = self.entering.iter();
        running.any(|it| life.is_rival(&it.hello.name, it.hello.incarnation))
            || entering.any(|it| life.is_rival(&it.name, it.incarnation))
    }

    /// Gives a place to a peer that shakes hands.
    pub(in crate::engine) fn enter(&mut self, life: Life) {
        self.entering.push(life);
    }

    /// Takes the place back after the handshake.
    pub(in crate::engine) fn leave(&mut self, life: &Life) {
        if let Some(at) = self.entering.iter().position(|it| it == life) {
            self.entering.swap_remove(at);
        }
    }

    /// Takes in a connection that runs.
    pub(in crate::engine) fn run(&mut self, running: Running) {
        self.running.push(running);
    }

    /// Keeps a connection until the program accepts it. If the program leaves more than `most` unaccepted, the oldest goes, or the oldest
    /// that has ended.
    pub(in crate::engine) fn arrive(&mut self, peer: Arrived, most: usize) {
        self.arrived.push_back(peer);
        if self.arrived.len() > most {
            let ended = self.arrived.iter().position(|it| !it.link.is_open());
            self.arrived.remove(ended.unwrap_or(0));
        }
    }

    /// Returns the oldest connection that the program has not accepted.
    pub(in crate::engine) fn accept(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    /// Takes all connections away, for their end. Those that were not accepted lose their handles.
    pub(in crate::engine) fn take_all(&mut self) -> Vec<Running> {
        self.arrived.clear();
        std::mem::take(&mut self.running)
    }

    /// Returns how often control threads have woken.
    pub(in crate::engine) fn wakes(&self) -> u64 {
        let wakes = self.running.iter().filter_map(|it| it.link.wake());
        wakes.map(Wake::wakes).sum()
    }
}

#[cfg(test)]
impl Peers {
    pub(super) fn entering(&self) -> &[Life] {
        &self.entering
    }
}
