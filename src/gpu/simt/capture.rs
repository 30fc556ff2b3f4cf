//! Captures and graphs of the simt backend.
//!
//! A capture is a list of launches, each with the launches that must end before it. A replay runs them one after the other. Each replay
//! after the first draws one of the legal orders, so that a missing dependency shows.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::health::{Health, lock};
use crate::gpu::GpuError;
use crate::gpu::event::Completion;

/// The function of a launch. It takes the number of the replay (0 outside of graphs), and its error is the report of the failure.
pub(super) type Work = Arc<dyn Fn(u64) -> Result<(), String> + Send + Sync>;

/// The launches recorded so far. All streams that joined share this.
#[derive(Debug)]
struct Recording {
    health: Arc<Health>,
    /// The recorded launches. None when the capture has ended.
    nodes: Mutex<Option<Vec<Node>>>,
}

/// One recorded launch.
#[derive(Clone)]
struct Node {
    kernel: String,
    work: Work,
    /// Indices of the earlier nodes that must end before this one.
    after: Vec<usize>,
}

/// A stream's part in a capture.
#[derive(Debug)]
pub(super) struct Member {
    recording: Arc<Recording>,
    /// True if the capture began, and must end, in this stream.
    origin: bool,
    /// Indices of the nodes that must end before the stream's next launch.
    tail: Vec<usize>,
}

/// An event that was recorded in a capture.
#[derive(Debug)]
pub(super) struct Captured {
    recording: Arc<Recording>,
    kernel: String,
    tail: Vec<usize>,
}

/// Returns the capture that `member` takes part in, if it has not ended meanwhile.
pub(super) fn current(member: &mut Option<Member>) -> Option<&mut Member> {
    let ended = |member: &Member| !member.origin && lock(&member.recording.nodes).is_none();
    if member.as_ref().is_some_and(ended) {
        *member = None;
    }
    member.as_mut()
}

/// Ends the capture that began in the stream of `member`.
pub(super) fn end(member: &mut Option<Member>) -> Result<Recorded, GpuError> {
    let wrong = |detail: &str| {
        Err(GpuError::Capture {
            detail: detail.to_owned(),
        })
    };
    match member {
        None => return wrong("none began in this stream"),
        Some(member) if !member.origin => return wrong("it began in another stream"),
        Some(_) => {}
    }
    let Some(Member {
        recording, tail, ..
    }) = member.take()
    else {
        return wrong("none began in this stream");
    };
    let nodes = lock(&recording.nodes).take().unwrap_or_default();
    let mut leads_on = vec![false; nodes.len()];
    for place in nodes.iter().flat_map(|node| &node.after).chain(&tail) {
        leads_on[*place] = true;
    }
    if let Some(lost) = leads_on.iter().position(|leads_on| !leads_on) {
        return wrong(&format!(
            "{} ran in a stream that the first one has not waited for",
            nodes[lost].kernel
        ));
    }
    Ok(Recorded {
        health: Arc::clone(&recording.health),
        nodes: nodes.into(),
        replays: Arc::default(),
        turn: Arc::default(),
    })
}

impl Member {
    /// Begins a capture. Returns the part of the stream in which it begins.
    pub(super) fn begin(health: &Arc<Health>) -> Self {
        Self {
            recording: Arc::new(Recording {
                health: Arc::clone(health),
                nodes: Mutex::new(Some(Vec::new())),
            }),
            origin: true,
            tail: Vec::new(),
        }
    }

    /// Records a launch.
    pub(super) fn push(&mut self, kernel: &str, work: Work) -> Captured {
        if let Some(nodes) = lock(&self.recording.nodes).as_mut() {
            let after = std::mem::replace(&mut self.tail, vec![nodes.len()]);
            nodes.push(Node {
                kernel: kernel.to_owned(),
                work,
                after,
            });
        }
        self.end(kernel)
    }

    /// Returns the end of what the stream has recorded.
    pub(super) fn end(&self, kernel: &str) -> Captured {
        Captured {
            recording: Arc::clone(&self.recording),
            kernel: kernel.to_owned(),
            tail: self.tail.clone(),
        }
    }
}

impl Captured {
    /// Makes later launches of the stream of `member` wait for the event. A stream that is in no capture joins the event's.
    pub(super) fn join(
        &self,
        member: &mut Option<Member>,
        health: &Arc<Health>,
    ) -> Result<(), GpuError> {
        let refused = |detail: &str| {
            Err(GpuError::Capture {
                detail: detail.to_owned(),
            })
        };
        if !Arc::ptr_eq(&self.recording.health, health) {
            return refused("it is one of another device");
        }
        if lock(&self.recording.nodes).is_none() {
            return refused("the one that the event belongs to has ended");
        }
        match current(member) {
            Some(member) if !Arc::ptr_eq(&member.recording, &self.recording) => {
                return refused("the stream is in another one than the event");
            }
            Some(member) => {
                let new: Vec<usize> = self
                    .tail
                    .iter()
                    .copied()
                    .filter(|place| !member.tail.contains(place))
                    .collect();
                member.tail.extend(new);
            }
            None => {
                *member = Some(Member {
                    recording: Arc::clone(&self.recording),
                    origin: false,
                    tail: self.tail.clone(),
                });
            }
        }
        Ok(())
    }
}

impl Completion for Captured {
    fn wait(&self, _: Duration) -> Result<(), GpuError> {
        Err(GpuError::Captured {
            kernel: self.kernel.clone(),
        })
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// The launches of a capture that has ended, in their order.
#[derive(Debug)]
pub(super) struct Recorded {
    health: Arc<Health>,
    nodes: Arc<[Node]>,
    /// Number of replays so far.
    replays: Arc<AtomicU64>,
    /// Held while a replay runs.
    turn: Arc<Mutex<()>>,
}

impl Recorded {
    pub(super) fn health(&self) -> &Arc<Health> {
        &self.health
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the whole recording as one launch.
    pub(super) fn replay(&self) -> Work {
        let (nodes, replays, turn) = (
            Arc::clone(&self.nodes),
            Arc::clone(&self.replays),
            Arc::clone(&self.turn),
        );
        Arc::new(move |_| {
            let _turn = lock(&turn);
            let replay = replays.fetch_add(1, Relaxed);
            for place in order(&nodes, replay) {
                let node = &nodes[place];
                (node.work)(replay).map_err(|report| format!("{}: {report}", node.kernel))?;
            }
            Ok(())
        })
    }
}

/// Returns the order of a replay: the recorded order for the first, then an order drawn from those that respect `after`.
fn order(nodes: &[Node], replay: u64) -> Vec<usize> {
    if replay == 0 {
        return (0..nodes.len()).collect();
    }
    let mut random = fastrand::Rng::with_seed(replay);
    let mut order: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut left: Vec<usize> = (0..nodes.len()).collect();
    while !left.is_empty() {
        let ready = |place: &usize| nodes[*place].after.iter().all(|a| order.contains(a));
        let ready: Vec<usize> = left.iter().copied().filter(ready).collect();
        // The earliest remaining node is always ready, since `after` names earlier nodes only.
        let next = ready[random.usize(..ready.len())];
        order.push(next);
        left.retain(|place| *place != next);
    }
    order
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("kernel", &self.kernel)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}
