//! What the program of this rank makes together with those of the others, and how far its calls are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

/// Calls of a layer that a program has launched.
#[derive(Debug)]
pub(crate) struct Launches {
    /// Number of the next one.
    next: AtomicU32,
    /// Whether some were recorded into graphs: then the host does not know the number.
    in_graphs: AtomicBool,
}

impl Default for Launches {
    fn default() -> Self {
        Self {
            next: AtomicU32::new(1),
            in_graphs: AtomicBool::new(false),
        }
    }
}

impl Launches {
    /// The next call has number `call`.
    pub(crate) fn next_is(&self, call: u32) {
        self.next.store(call, Ordering::Relaxed);
    }

    /// A dispatch was launched, or recorded into a graph.
    pub(crate) fn count(&self, in_graph: bool) {
        if in_graph {
            self.in_graphs.store(true, Ordering::Relaxed);
        } else {
            self.next.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn next(&self) -> Option<u32> {
        let known = !self.in_graphs.load(Ordering::Relaxed);
        known.then(|| self.next.load(Ordering::Relaxed))
    }
}

/// What this rank knows of its own program.
#[derive(Debug, Default)]
pub(in crate::team) struct Program {
    /// Number of what it has wanted last; 0: nothing yet.
    serial: AtomicU32,
    /// As `serial`, while it may be refused; else 0.
    open: AtomicU32,
    /// The layers that it has made, by name.
    layers: Mutex<BTreeMap<String, Weak<Launches>>>,
}

/// What the program of a rank makes together with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wants {
    /// A new number for each.
    pub(crate) serial: u32,
    /// Name of the layer.
    pub(crate) layer: String,
    /// Names and values.
    pub(crate) arguments: Vec<(String, String)>,
    /// By layer that the rank has made: the number of the next call that it launches there, if its host knows it.
    pub(crate) calls: BTreeMap<String, u32>,
}

/// What a rank has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differs {
    /// The layer of the call.
    pub(crate) layer: String,
    /// Number of the call in which it showed.
    pub(crate) call: u32,
    /// Rank and [`Wants::serial`] of what it refuses.
    pub(crate) refused: Vec<(u32, u32)>,
    /// Which argument.
    pub(crate) argument: String,
    /// A rank, and its value.
    pub(crate) first: (u32, String),
    /// Another rank, and its value.
    pub(crate) second: (u32, String),
}

/// A shape of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallShape {
    /// What rows of such a call say in place of it.
    pub(crate) tag: u32,
    /// What its tokens are made of.
    pub(crate) format: String,
    /// Most tokens of a rank.
    pub(crate) max_tokens: u32,
}

impl Program {
    /// Returns what it wants when it makes `layer` with these arguments now.
    pub(super) fn next(&self, layer: &str, arguments: &[(String, String)]) -> Wants {
        Wants {
            serial: self.serial.load(Ordering::Relaxed).wrapping_add(1),
            layer: layer.to_owned(),
            arguments: arguments.to_vec(),
            calls: self.calls(),
        }
    }

    /// What has this number was published, and others may refuse it.
    pub(super) fn has_told(&self, serial: u32) {
        self.serial.store(serial, Ordering::Relaxed);
        self.open.store(serial, Ordering::Relaxed);
    }

    /// Returns the number of what others may refuse; 0: nothing.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// What was open is made, or was refused.
    pub(super) fn close(&self) {
        self.open.store(0, Ordering::Relaxed);
    }

    /// It has made `layer`.
    pub(in crate::team) fn has_made(&self, layer: &str, launches: Weak<Launches>) {
        self.layers().insert(layer.to_owned(), launches);
        self.close();
    }

    /// Returns whether it has made `layer`.
    pub(in crate::team) fn has_layer(&self, layer: &str) -> bool {
        self.layers().contains_key(layer)
    }

    /// By layer the number of the next call.
    fn calls(&self) -> BTreeMap<String, u32> {
        let layers = self.layers();
        let known = layers.iter().filter_map(|(layer, launches)| {
            let next = launches.upgrade()?.next()?;
            Some((layer.clone(), next))
        });
        known.collect()
    }

    fn layers(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Launches>>> {
        // Whole after every operation.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
