//! The rank processes: started, listened to, ended.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::DemoError;
use super::messages::{Message, RankResult, Spec};
use crate::cmd::sim::private_dir::{PrivateDir, PrivateDirError, standard_parent, sweep};
use crate::team::{FileStore, Store};

/// After the first failure the other ranks have this long to tell theirs.
const GRACE: Duration = Duration::from_secs(8);
/// A process that has closed its output ends within this time, or is killed.
const ENDING: Duration = Duration::from_secs(5);

/// A private directory for store, specification and sysfs trees; goes with its owner.
pub(super) struct Workplace(PrivateDir);

impl Workplace {
    /// Makes it, and sweeps up what dead owners left.
    pub(super) fn new() -> Result<Self, DemoError> {
        let parent = standard_parent();
        sweep(&parent);
        let name = format!("p{}-{:08x}", std::process::id(), fastrand::u32(..));
        let refused = |error: PrivateDirError| DemoError::file(&parent, &error);
        let place = Self(PrivateDir::create(&parent.join(name)).map_err(refused)?);
        for folder in [place.store(), place.hcas()] {
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&folder)
                .map_err(|error| DemoError::file(&folder, &error))?;
        }
        Ok(place)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn hcas(&self) -> PathBuf {
        self.0.path().join("hcas")
    }

    fn spec(&self) -> PathBuf {
        self.0.path().join("spec.json")
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// What a rank has told, or how it ended.
pub(super) enum Event {
    Told(Message),
    /// It has closed its output.
    Closed,
}

/// The rank processes. Dropping them ends them.
pub(super) struct Ranks {
    children: Vec<Child>,
    /// Their standard inputs: a rank ends when its own is closed.
    inputs: Vec<ChildStdin>,
    events: Receiver<(u32, Event)>,
    store: FileStore,
}

impl Ranks {
    /// Starts all of them; with `preload` each has software HCAs of its own.
    pub(super) fn start(
        place: &Workplace,
        spec: &Spec,
        preload: Option<&OsString>,
    ) -> Result<Self, DemoError> {
        let path = place.spec();
        let text = serde_json::to_vec(spec).map_err(|error| DemoError::file(&path, &error))?;
        fs::write(&path, text).map_err(|error| DemoError::file(&path, &error))?;
        let program =
            env::current_exe().map_err(|error| DemoError::file(Path::new("wv"), &error))?;
        let (sender, events) = channel();
        let mut ranks = Self {
            children: Vec::new(),
            inputs: Vec::new(),
            events,
            store: FileStore::open(&place.store(), &spec.run_id)?,
        };
        for rank in 0..spec.options.ranks {
            let mut command = Command::new(&program);
            command
                .arg("demo-rank")
                .arg("--spec")
                .arg(&path)
                .args(["--rank", &rank.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            if let Some(preload) = preload {
                command
                    .env("LD_PRELOAD", preload)
                    .env("SOFTHCA_DIR", place.hcas());
            }
            let mut child = command
                .spawn()
                .map_err(|error| DemoError::file(&program, &error))?;
            ranks.inputs.extend(child.stdin.take());
            if let Some(output) = child.stdout.take() {
                listen(rank, output, sender.clone());
            }
            ranks.children.push(child);
        }
        Ok(ranks)
    }

    /// Listens until every rank is done; `progress` sees each message. The results, by rank.
    ///
    /// After a failure the others get a little time to end by themselves.
    pub(super) fn finish(
        mut self,
        limit: Duration,
        mut progress: impl FnMut(u32, &Message),
    ) -> Result<Vec<RankResult>, DemoError> {
        let start = Instant::now();
        let mut until = start + limit;
        let mut states: Vec<State> = self.children.iter().map(|_| State::default()).collect();
        while states.iter().any(|state| !state.closed) {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok((rank, Event::Told(message))) => {
                    progress(rank, &message);
                    states[rank as usize].hear(message);
                }
                Ok((rank, Event::Closed)) => {
                    let status = self.reap(rank as usize);
                    states[rank as usize].end(status);
                    self.tell_of_a_death(rank, &states[rank as usize]);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            if states.iter().any(|state| state.failure.is_some()) {
                until = until.min(Instant::now() + GRACE);
            }
        }
        let failed = states.iter().any(|state| state.failure.is_some());
        if !failed && states.iter().any(|state| !state.closed) {
            return Err(DemoError::Timeout {
                seconds: limit.as_secs(),
                progress: progress_in_words(&states),
            });
        }
        if failed {
            return Err(DemoError::Ranks {
                messages: failures_in_words(&states),
            });
        }
        Ok(states
            .into_iter()
            .filter_map(|state| state.result)
            .collect())
    }

    /// Waits for a process that has closed its output.
    fn reap(&mut self, rank: usize) -> Option<ExitStatus> {
        let until = Instant::now() + ENDING;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.children[rank].try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.children[rank].kill();
        self.children[rank].wait().ok()
    }

    /// A rank that died could not tell the others, so the demo does.
    fn tell_of_a_death(&self, rank: u32, state: &State) {
        if let Some(Failure {
            message,
            told: false,
            ..
        }) = &state.failure
        {
            let _ = self
                .store
                .put(&format!("failed/{rank}"), message.as_bytes());
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in &mut self.children {
            if !matches!(child.try_wait(), Ok(Some(_))) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// What is known of one rank.
#[derive(Default)]
struct State {
    verified: u32,
    result: Option<RankResult>,
    failure: Option<Failure>,
    closed: bool,
}

struct Failure {
    message: String,
    remote: bool,
    /// By the rank itself.
    told: bool,
}

impl State {
    fn hear(&mut self, message: Message) {
        match message {
            Message::Joined { .. } => {}
            Message::Verified { step } => self.verified = step + 1,
            Message::Done(result) => self.result = Some(result),
            Message::Failed { message, remote } => {
                let told = true;
                self.failure = Some(Failure {
                    message,
                    remote,
                    told,
                });
            }
        }
    }

    fn end(&mut self, status: Option<ExitStatus>) {
        self.closed = true;
        let good = status.is_some_and(|status| status.success()) && self.result.is_some();
        if !good && self.failure.is_none() {
            let status = status.map_or_else(
                || "nobody knows how".to_owned(),
                |status| status.to_string(),
            );
            self.failure = Some(Failure {
                message: format!("its process ended: {status}"),
                remote: false,
                told: false,
            });
        }
    }
}

/// Causes first, one line each; then who ended because of them.
fn failures_in_words(states: &[State]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut others = Vec::new();
    for (rank, state) in states.iter().enumerate() {
        match &state.failure {
            Some(failure) if !failure.remote => {
                lines.push(format!("rank {rank}: {}", failure.message))
            }
            Some(failure) => others.push(format!("rank {rank}: {}", failure.message)),
            None if !state.closed => {
                others.push(format!("rank {rank}: was still running, and was ended"))
            }
            None => {}
        }
    }
    lines.extend(others);
    lines
}

fn progress_in_words(states: &[State]) -> String {
    let verified = states.iter().map(|state| state.verified);
    let (least, most) = (
        verified.clone().min().unwrap_or(0),
        verified.max().unwrap_or(0),
    );
    format!("ranks have verified {least} to {most} steps")
}

/// Reads what a rank tells, on a thread that ends with the rank.
fn listen(rank: u32, output: ChildStdout, events: Sender<(u32, Event)>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let message = serde_json::from_str(&line).unwrap_or_else(|error| Message::Failed {
                message: format!("told something that is no message ({error}): {line}"),
                remote: false,
            });
            if events.send((rank, Event::Told(message))).is_err() {
                return;
            }
        }
        let _ = events.send((rank, Event::Closed));
    });
}
