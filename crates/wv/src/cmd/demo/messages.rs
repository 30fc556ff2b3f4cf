//! Messages of a rank process to the demo: one JSON object per line of its standard output.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::chaos::Record;
use super::counters::Counters;
use super::options::DemoOptions;

/// The settings of a rank process, in a file that the demo wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) options: DemoOptions,
    /// `--device`, of which each rank takes its own part; none: software HCAs of its own.
    pub(super) device: Option<String>,
    /// HCAs of each rank, where that is `device`'s; with several they are software HCAs.
    pub(super) rails: u32,
    /// URL of the store, and its run.
    pub(super) store: String,
    pub(super) run_id: String,
    /// Longest wait for other ranks, ms.
    pub(super) join_timeout_ms: u64,
    /// Longest wait of a device call, ms.
    pub(super) deadline_ms: u64,
    /// Whether the ranks form a group, so that some may go and come.
    pub(super) membership: bool,
    /// When the run began, microseconds since 1970.
    pub(super) began_us: u64,
    /// Where to write inputs and outputs.
    pub(super) dump: Option<PathBuf>,
}

/// A message of a rank process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The rank has joined the team; steps begin.
    Joined {
        device: String,
        soft: bool,
        gpu: String,
        /// IPv4 address of the HCA of each rail, if all have one.
        addresses: Vec<String>,
        /// The way of its traffic, a line for each rail.
        paths: Vec<String>,
    },
    /// A step, counted from 1, begins. Sent where ranks are killed.
    Begins { step: u32 },
    /// An event of this rank. Sent where ranks are killed.
    Event(Record),
    /// A step was checked.
    Verified { step: u32 },
    /// All steps up to this one were checked, and the process stays until its input ends. Sent where ranks may go.
    Finished { step: u32 },
    /// All steps were checked.
    Done(RankResult),
    /// This rank gives up. `remote`: because of another rank, which reports the cause itself.
    Failed { message: String, remote: bool },
}

/// What one rank did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RankResult {
    pub(super) rank: u32,
    /// Tokens that it dispatched.
    pub(super) tokens: u64,
    /// Choices of those tokens.
    pub(super) choices: u64,
    /// Rows that its experts got.
    pub(super) rows: u64,
    /// Seconds of each step: dispatch, experts, combine; checks not counted.
    pub(super) step_seconds: Vec<f64>,
    /// Counted by the HCA during the steps.
    pub(super) counters: Counters,
    /// Control heap: bytes in use, and QPs.
    pub(super) control_bytes: u64,
    pub(super) qps: u64,
    /// Ranks whose memory it loads from and stores to itself.
    pub(super) direct_peers: u32,
    /// Largest distance of a step's sums from the reference of BF16 tokens, where tokens travel as FP8.
    pub(super) difference: f64,
    /// Device memory of the layer, without the caller's buffers.
    pub(super) layer_bytes: u64,
    /// How the HCA reaches device memory, each way once: `dmabuf`, `address`.
    pub(super) memory_by: Vec<String>,
}

/// True if no process reads the messages of these ranks.
static UNHEARD: AtomicBool = AtomicBool::new(false);

/// From now on [`tell`] writes nothing: the ranks are threads of the process that shows their results.
pub(super) fn nobody_listens() {
    UNHEARD.store(true, Ordering::Relaxed);
}

/// What hears the messages of one rank.
type Listener = Box<dyn Fn(&Message)>;

thread_local! {
    /// That of the rank which is this thread.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// From now on `listener` gets what this thread tells.
pub(super) fn heard_by(listener: impl Fn(&Message) + 'static) {
    LISTENER.set(Some(Box::new(listener)));
}

/// Writes `message` to standard output, or gives it to the listener of this thread. A demo that does not read any more has ended.
pub(super) fn tell(message: &Message) -> io::Result<()> {
    LISTENER.with_borrow(|listener| {
        if let Some(listener) = listener {
            listener(message);
        }
    });
    if UNHEARD.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}
