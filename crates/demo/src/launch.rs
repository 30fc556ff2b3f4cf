//! The rank processes of a demo, which it starts, listens to and ends.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::error::DemoError;
use crate::messages::{Message, RankResult, Spec};
use private_dir::{PrivateDir, PrivateDirError, standard_parent, sweep};
use warpverbs::deadline::Looks;
use warpverbs::error::ThreadPanicked;
use warpverbs::internal::tell_failure;
use warpverbs::team::{Store, open_store};
use warpverbs_cli::{log, output, tied};

/// How long the other ranks have after the first failure to report theirs.
const GRACE: Duration = Duration::from_secs(8);
/// How long a process that has closed its output may take to end before it is killed.
const ENDING: Duration = Duration::from_secs(5);

/// A private directory for store, specification and sysfs trees. It is removed when this is dropped.
pub(crate) struct Workplace(PrivateDir);

impl Workplace {
    /// Makes the private directory, and removes directories whose owners have died.
    pub(crate) fn new() -> Result<Self, DemoError> {
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

    pub(crate) fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    pub(crate) fn store_url(&self) -> String {
        format!("file://{}", self.store().display())
    }

    /// Returns the directory, for other files of a run.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn hcas(&self) -> PathBuf {
        self.0.path().join("hcas")
    }

    pub(crate) fn spec(&self) -> PathBuf {
        self.0.path().join("spec.json")
    }

    /// Writes the file that says what the ranks are to do.
    pub(crate) fn write(&self, spec: &Spec) -> Result<(), DemoError> {
        let path = self.spec();
        let text = serde_json::to_vec(spec).map_err(|error| DemoError::file(&path, &error))?;
        fs::write(&path, text).map_err(|error| DemoError::file(&path, &error))
    }

    /// Returns the command that starts a rank, which ends with this process. With `preload` the rank has software HCAs of its own.
    pub(crate) fn command(
        &self,
        (rank, rails): (u32, u32),
        preload: Option<&OsString>,
    ) -> Result<Command, DemoError> {
        let program =
            env::current_exe().map_err(|error| DemoError::file(Path::new("wv"), &error))?;
        let mut command = Command::new(program);
        tied::tie(&mut command);
        command
            .arg("demo-rank")
            .arg("--spec")
            .arg(self.spec())
            .args(["--rank", &rank.to_string()]);
        if let Some(preload) = preload {
            command
                .env("LD_PRELOAD", preload)
                .env("SOFTHCA_DIR", self.hcas())
                .env("SOFTHCA_DEVICES", rails.to_string());
        }
        Ok(command)
    }
}

/// The program of ranks that are Python programs: they drive a Buffer with DeepEP's or Mooncake's interface, with masks.
#[derive(Clone, Debug)]
pub(crate) struct Buffers {
    /// The Python that has warpverbs and torch.
    pub(crate) python: PathBuf,
    /// The name of the Buffer, as the program takes it.
    pub(crate) name: String,
}

impl Workplace {
    /// Returns the command that starts a rank that is a Python program. Its HCAs do not give up on a peer for 8 s, which is longer than any
    /// cut of `chaos`. Without a group nothing would remake a QP that has failed.
    pub(crate) fn python(
        &self,
        rank: u32,
        rails: u32,
        preload: Option<&OsString>,
        buffers: &Buffers,
    ) -> Command {
        let mut command = Command::new(&buffers.python);
        tied::tie(&mut command);
        command
            .args(["-m", "warpverbs._chaos", "--buffer", &buffers.name])
            .arg("--spec")
            .arg(self.spec())
            .args(["--rank", &rank.to_string()])
            .env("OMP_NUM_THREADS", "1")
            .env("WARPVERBS_ACK_TIMEOUT", "18")
            .env("WARPVERBS_GPU", "simt");
        if let Some(preload) = preload {
            command
                .env("LD_PRELOAD", preload)
                .env("SOFTHCA_DIR", self.hcas())
                .env("SOFTHCA_DEVICES", rails.to_string());
        }
        command
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// What came from a rank process.
enum Event {
    Told(Message),
    /// A line on its standard error, of the software HCA or of a library.
    Said(String),
    /// The end of one of its two outputs.
    Closed,
}

/// The rank processes. They are killed when this is dropped.
pub(crate) struct Ranks {
    children: Vec<Child>,
    /// The standard inputs of the ranks. A rank ends when its input is closed.
    inputs: Vec<ChildStdin>,
    events: Receiver<(u32, Event)>,
    store: Arc<dyn Store>,
}

impl Ranks {
    /// Starts all ranks. With `preload` each rank has software HCAs of its own.
    pub(crate) fn start(
        place: &Workplace,
        spec: &Spec,
        preload: Option<&OsString>,
    ) -> Result<Self, DemoError> {
        place.write(spec)?;
        let (sender, events) = channel();
        let mut ranks = Self {
            children: Vec::new(),
            inputs: Vec::new(),
            events,
            store: open_store(&spec.store, &spec.run_id)?,
        };
        for rank in 0..spec.options.ranks {
            let mut command = place.command((rank, spec.rails), preload)?;
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            let mut child = command
                .spawn()
                .map_err(|error| DemoError::file(Path::new("wv"), &error))?;
            ranks.inputs.extend(child.stdin.take());
            if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
                listen(rank, output, sender.clone(), told);
                listen(rank, errors, sender.clone(), Event::Said);
            }
            ranks.children.push(child);
        }
        Ok(ranks)
    }

    /// Listens until every rank is done. `progress` sees each message. Returns the results, by rank.
    ///
    /// After a failure the other ranks get a little time to end by themselves.
    pub(crate) fn finish(
        mut self,
        limit: Duration,
        mut progress: impl FnMut(u32, &Message),
    ) -> Result<Vec<RankResult>, DemoError> {
        let start = Instant::now();
        let mut until = start + limit;
        let mut states: Vec<State> = self.children.iter().map(|_| State::default()).collect();
        while !states.iter().all(State::has_ended) {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok((rank, event)) => {
                    let state = &mut states[rank as usize];
                    match event {
                        Event::Told(message) => {
                            progress(rank, &message);
                            state.hear(message);
                        }
                        Event::Said(line) => {
                            log::pass_on(rank, &line);
                            state.said.push(line);
                        }
                        Event::Closed => state.closed += 1,
                    }
                    if state.has_ended() {
                        state.end(self.reap(rank as usize));
                    }
                    self.tell_the_others(rank, state);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            if states.iter().any(|state| state.failure.is_some()) {
                until = until.min(Instant::now() + GRACE);
            }
        }
        let failed = states.iter().any(|state| state.failure.is_some());
        if !failed && !states.iter().all(State::has_ended) {
            return Err(DemoError::Timeout {
                seconds: limit.as_secs(),
                progress: progress_in_words(states.iter().map(|state| state.verified)),
            });
        }
        if failed {
            return Err(DemoError::Ranks {
                messages: failures_in_words(&states),
            });
        }
        let unseen = states.iter().enumerate().filter(|_| !log::is_asked_for());
        for (rank, state) in unseen {
            for line in &state.said {
                output::say(format_args!("rank {rank}: {line}"));
            }
        }
        Ok(states
            .into_iter()
            .filter_map(|state| state.result)
            .collect())
    }

    /// Waits for a rank's process that has closed its output, and returns its status.
    fn reap(&mut self, rank: usize) -> Option<ExitStatus> {
        for left in Looks::within(ENDING) {
            if let Ok(Some(status)) = self.children[rank].try_wait() {
                return Some(status);
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
        let _ = self.children[rank].kill();
        self.children[rank].wait().ok()
    }

    /// Tells the failure of a rank to the others. A rank that died, or that failed before it joined, could not do that itself.
    fn tell_the_others(&self, rank: u32, state: &mut State) {
        if let Some(failure) = &mut state.failure
            && !failure.remote
            && !failure.passed_on
        {
            failure.passed_on = true;
            let _ = tell_failure(self.store.as_ref(), rank, &failure.message);
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
    /// The lines of its standard error.
    said: Vec<String>,
    /// The number of outputs that it has closed.
    closed: u32,
}

struct Failure {
    message: String,
    remote: bool,
    /// True if the failure was told to the others through the store.
    passed_on: bool,
}

impl State {
    fn hear(&mut self, message: Message) {
        match message {
            Message::Joined { .. }
            | Message::Begins { .. }
            | Message::Event(_)
            | Message::Finished { .. } => {}
            Message::Verified { step } => self.verified = step + 1,
            Message::Done(result) => self.result = Some(result),
            Message::Failed { message, remote } => self.fail(message, remote),
        }
    }

    /// Returns whether the rank has closed both of its outputs.
    fn has_ended(&self) -> bool {
        self.closed >= 2
    }

    fn end(&mut self, status: Option<ExitStatus>) {
        let good = status.is_some_and(|status| status.success()) && self.result.is_some();
        if !good && self.failure.is_none() {
            let status =
                status.map_or_else(|| "status unknown".to_owned(), |status| status.to_string());
            self.fail(format!("its process ended: {status}"), false);
        }
    }

    fn fail(&mut self, message: String, remote: bool) {
        self.failure = Some(Failure {
            message,
            remote,
            passed_on: false,
        });
    }

    /// Returns the failure with the last line of standard error, which may be the cause.
    fn in_words(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let message = &failure.message;
        Some(match self.said.last() {
            Some(said) if !failure.remote => format!("{message} ({said})"),
            _ => message.clone(),
        })
    }
}

/// Returns one line for each cause, which names all ranks that reported it, and then lines for the ranks that ended because of a cause.
fn failures_in_words(states: &[State]) -> Vec<String> {
    let (mut causes, mut others) = (Vec::new(), Vec::new());
    for (rank, state) in states.iter().enumerate() {
        let remote = state.failure.as_ref().is_some_and(|failure| failure.remote);
        match state.in_words() {
            Some(words) if remote => tell(&mut others, rank, words),
            Some(words) => tell(&mut causes, rank, words),
            None if !state.has_ended() => {
                tell(
                    &mut others,
                    rank,
                    "still at work when the others ended".to_owned(),
                );
            }
            None => {}
        }
    }
    causes.extend(others);
    causes.iter().map(Told::in_words).collect()
}

/// One text, and the ranks that reported it.
struct Told {
    ranks: Vec<usize>,
    words: String,
}

fn tell(told: &mut Vec<Told>, rank: usize, words: String) {
    match told.iter_mut().find(|told| told.words == words) {
        Some(known) => known.ranks.push(rank),
        None => told.push(Told {
            ranks: vec![rank],
            words,
        }),
    }
}

impl Told {
    fn in_words(&self) -> String {
        let words = &self.words;
        match &self.ranks[..] {
            [rank] => format!("rank {rank}: {words}"),
            ranks => {
                let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
                format!("ranks {}: {words}", ranks.join(", "))
            }
        }
    }
}

/// Returns how far ranks are, in words, by how many steps each has verified.
pub(crate) fn progress_in_words(verified: impl Iterator<Item = u32> + Clone) -> String {
    let (least, most) = (
        verified.clone().min().unwrap_or(0),
        verified.max().unwrap_or(0),
    );
    format!("ranks have verified {least} to {most} steps")
}

/// Returns the event of a line of a rank's standard output.
fn told(line: String) -> Event {
    Event::Told(
        serde_json::from_str(&line).unwrap_or_else(|error| Message::Failed {
            message: format!("invalid message ({error}): {line}"),
            remote: false,
        }),
    )
}

/// Starts a thread that passes on each line of `output`. The thread ends with the rank.
fn listen(
    rank: u32,
    output: impl Read + Send + 'static,
    events: Sender<(u32, Event)>,
    event: fn(String) -> Event,
) {
    std::thread::spawn(move || {
        let listened = ThreadPanicked::catch("listener of a rank", || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            // If the receiver is gone, the rest of the lines is of no use.
            lines.all(|line| events.send((rank, event(line))).is_ok());
        });
        if let Err(panicked) = listened {
            let message = panicked.to_string();
            let remote = false;
            let _ = events.send((rank, Event::Told(Message::Failed { message, remote })));
        }
        let _ = events.send((rank, Event::Closed));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(message: &str, remote: bool) -> State {
        let mut state = State::default();
        state.fail(message.to_owned(), remote);
        state
    }

    #[test]
    fn ranks_that_fail_alike_share_a_line_before_ranks_that_ended_after_them() {
        let states = [
            failed("rank 1 failed: no memory", true),
            failed("no memory", false),
            State::default(),
            failed("no memory", false),
            failed("another", false),
            State::default(),
        ];
        assert_eq!(
            failures_in_words(&states),
            [
                "ranks 1, 3: no memory",
                "rank 4: another",
                "rank 0: rank 1 failed: no memory",
                "ranks 2, 5: still at work when the others ended",
            ]
        );
    }
}
