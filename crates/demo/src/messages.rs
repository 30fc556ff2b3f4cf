//! Messages of a rank process to the demo: each is a JSON object on a line of its standard output.

use std::cell::RefCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
use crate::options::DemoOptions;
use crate::record::Record;

/// The settings of a rank process, in a file that the demo wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) options: DemoOptions,
    /// The `--device`, from which each rank takes its part. None: the rank has software HCAs of its own.
    pub(crate) device: Option<String>,
    /// The number of HCAs of each rank, if `device` does not name them. If there are several, they are software HCAs.
    pub(crate) rails: u32,
    /// The URL of the store, and the id of the run in it.
    pub(crate) store: String,
    pub(crate) run_id: String,
    /// The longest wait for other ranks to join, ms.
    pub(crate) join_timeout_ms: u64,
    /// The longest wait of a device call, ms.
    pub(crate) deadline_ms: u64,
    /// True if the ranks form a group, so that some may go and come.
    pub(crate) membership: bool,
    /// When the run began, microseconds since 1970.
    pub(crate) began_us: u64,
    /// The directory to which inputs and outputs are written, if any.
    pub(crate) dump: Option<PathBuf>,
}

/// A message of a rank process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The rank has joined the team; steps begin.
    Joined {
        device: String,
        soft: bool,
        gpu: String,
        /// The IPv4 address of the HCA of each rail, if all have one.
        addresses: Vec<String>,
        /// The way of its traffic, one line for each rail.
        paths: Vec<String>,
    },
    /// A step begins, counted from 1. Only runs in which ranks are killed send this.
    Begins { step: u32 },
    /// An event of this rank. Only runs in which ranks are killed send this.
    Event(Record),
    /// A step was checked.
    Verified { step: u32 },
    /// All steps up to this one were checked, and the process stays until its input ends. Only runs in which ranks may go send this.
    Finished { step: u32 },
    /// All steps were checked, with this result.
    Done(RankResult),
    /// This rank gives up. `remote`: another rank is the cause, and reports it itself.
    Failed { message: String, remote: bool },
}

/// What one rank has done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankResult {
    pub(crate) rank: u32,
    /// The number of tokens that the rank dispatched.
    pub(crate) tokens: u64,
    /// The number of choices of those tokens.
    pub(crate) choices: u64,
    /// The number of rows that the rank's experts got.
    pub(crate) rows: u64,
    /// The seconds of each step: dispatch, experts, combine, without the checks.
    pub(crate) step_seconds: Vec<f64>,
    /// What the HCA has counted during the steps.
    pub(crate) counters: Counters,
    /// The bytes of the control heap that are in use, and the number of QPs.
    pub(crate) control_bytes: u64,
    pub(crate) qps: u64,
    /// The number of ranks whose memory the rank loads from and stores to itself.
    pub(crate) direct_peers: u32,
    /// The largest distance of a step's sums from those that the reference makes of BF16 tokens, where tokens travel as FP8.
    pub(crate) difference: f64,
    /// The bytes of device memory of the layer, without the caller's buffers.
    pub(crate) layer_bytes: u64,
    /// The ways in which the HCA reaches device memory, each once: `dmabuf`, `address`.
    pub(crate) memory_by: Vec<String>,
}

/// True if no process reads the messages of these ranks.
static UNHEARD: AtomicBool = AtomicBool::new(false);

/// Lets [`tell`] write nothing from now on, because the ranks are threads of the process that shows their results.
pub(crate) fn nobody_listens() {
    UNHEARD.store(true, Ordering::Relaxed);
}

/// A function that gets the messages of one rank.
type Listener = Box<dyn Fn(&Message)>;

thread_local! {
    /// The listener of the rank that this thread is.
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Gives `listener` what this thread tells from now on.
pub(crate) fn heard_by(listener: impl Fn(&Message) + 'static) {
    LISTENER.set(Some(Box::new(listener)));
}

/// Writes `message` to standard output, and gives it to the listener of this thread. An error says that the demo has ended, so that nothing
/// reads the output.
pub(crate) fn tell(message: &Message) -> io::Result<()> {
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
