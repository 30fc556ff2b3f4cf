//! What the program of this rank makes together with the programs of other ranks, and how far its calls are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Serialize};

/// The calls of a layer that a program has launched.
#[derive(Debug)]
pub(crate) struct Launches {
    /// The number of the next call.
    next: AtomicU32,
    /// Some calls were recorded into graphs: then the host does not know the number of the next call.
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
    /// Sets the number of the next call.
    pub(crate) fn next_is(&self, call: u32) {
        self.next.store(call, Ordering::Relaxed);
    }

    /// Counts a dispatch that was launched, or notes one that was recorded into a graph.
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

/// The knowledge of this rank about its own program.
#[derive(Debug, Default)]
pub(in crate::team) struct Program {
    /// The number of the last [`Wants`] that was published; 0: none yet.
    serial: AtomicU32,
    /// The number of the [`Wants`] that others may still refuse; 0: none.
    open: AtomicU32,
    /// The layers that the rank has made, by name.
    layers: Mutex<BTreeMap<String, Weak<Launches>>>,
}

/// The record of what the program of a rank makes together with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wants {
    /// The number of this record; each new one has another.
    pub(crate) serial: u32,
    /// The name of the layer.
    pub(crate) layer: String,
    /// The arguments of the layer: name and value.
    pub(crate) arguments: Vec<(String, String)>,
    /// The number of the next call in each layer that the rank has made, by layer, if the host knows it.
    pub(crate) calls: BTreeMap<String, u32>,
}

/// A difference in arguments that a rank has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Differs {
    /// The layer of the call.
    pub(crate) layer: String,
    /// The number of the call in which the difference showed.
    pub(crate) call: u32,
    /// The wants that the finder refuses: ranks, each with the [`Wants::serial`] of its record.
    pub(crate) refused: Vec<(u32, u32)>,
    /// The name of the argument.
    pub(crate) argument: String,
    /// A rank, and its value of the argument.
    pub(crate) first: (u32, String),
    /// Another rank, and its value of the argument.
    pub(crate) second: (u32, String),
}

/// A shape of calls of a layer, other than the layer's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallShape {
    /// The tag that rows of such calls carry for the shape.
    pub(crate) tag: u32,
    /// The format of the tokens.
    pub(crate) format: String,
    /// The most tokens of a rank.
    pub(crate) max_tokens: u32,
}

impl Program {
    /// Returns the record for `layer`, which the program makes with these arguments now.
    pub(super) fn next(&self, layer: &str, arguments: &[(String, String)]) -> Wants {
        Wants {
            serial: self.serial.load(Ordering::Relaxed).wrapping_add(1),
            layer: layer.to_owned(),
            arguments: arguments.to_vec(),
            calls: self.calls(),
        }
    }

    /// Notes that the record with this number was published, and that others may refuse it.
    pub(super) fn has_told(&self, serial: u32) {
        self.serial.store(serial, Ordering::Relaxed);
        self.open.store(serial, Ordering::Relaxed);
    }

    /// Returns the number of the record that others may refuse; 0: none.
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// Notes that what others could refuse is made, or was refused.
    pub(super) fn close(&self) {
        self.open.store(0, Ordering::Relaxed);
    }

    /// Notes that the program has made `layer`.
    pub(in crate::team) fn has_made(&self, layer: &str, launches: Weak<Launches>) {
        self.layers().insert(layer.to_owned(), launches);
        self.close();
    }

    /// Returns whether the program has made `layer`.
    pub(in crate::team) fn has_layer(&self, layer: &str) -> bool {
        self.layers().contains_key(layer)
    }

    /// Returns the number of the next call of each layer, if the host knows it.
    fn calls(&self) -> BTreeMap<String, u32> {
        let layers = self.layers();
        let known = layers.iter().filter_map(|(layer, launches)| {
            let next = launches.upgrade()?.next()?;
            Some((layer.clone(), next))
        });
        known.collect()
    }

    fn layers(&self) -> MutexGuard<'_, BTreeMap<String, Weak<Launches>>> {
        // The map is whole after every operation.
        self.layers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
