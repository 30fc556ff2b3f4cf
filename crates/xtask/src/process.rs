//! The children of this process. None outlives it, whatever ends it.
//!
//! SIGINT, SIGTERM and SIGHUP set a word, which every wait in this module checks. The wait then ends its child and fails with status 130.
//! So the owner of a directory can remove the directory on the way out. If this process is killed, the kernel ends its children
//! (PDEATHSIG).
//!
//! With the crate rustix five of the seven unsafe blocks here would be safe. But `./x` would compile 4 s longer on one core before anything
//! else, and rustix has no `signal`.

// UNSAFETY: handlers of signals, signals to groups of processes, and what a child does before it becomes a program.
#![expect(unsafe_code, reason = "system calls that std does not have")]

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};

/// The longest time for a child to end after it was asked to.
const GRACE: Duration = Duration::from_secs(10);
/// The longest time for another program to answer a question.
const QUESTION: Duration = Duration::from_secs(120);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Lets this process note signals that ask it to end, on which the waits below act. A signal that the caller ignores, as nohup does with
/// SIGHUP, stays ignored.
pub(crate) fn note_signals() {
    let handler: extern "C" fn(libc::c_int) = note;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic word, which a handler may do; the signals can be caught.
        unsafe {
            if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

/// Fails once a signal has asked this process to end.
pub(crate) fn check_interrupted() -> Result {
    if INTERRUPTED.load(Ordering::Relaxed) {
        return Err(Failure::silent(130));
    }
    Ok(())
}

/// How a child is ended when this process wants that, or has itself ended.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    /// By SIGTERM, after which the child has ten seconds to end its own children. Children that still run then are killed.
    Asked,
    /// By SIGKILL. The child has no children, or the kernel ends them with it.
    Killed,
    /// By SIGKILL to the child and to all that it has started. The child leads a session of its own.
    WithItsSession,
}

/// A running child.
pub(crate) struct Running {
    child: Child,
    name: String,
    ending: Ending,
}

impl Running {
    pub(crate) fn start(command: &mut Command, ending: Ending) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let parent = std::process::id();
        let before = move || {
            let signal = if matches!(ending, Ending::Asked) {
                libc::SIGTERM
            } else {
                libc::SIGKILL
            };
            // SAFETY: system calls that take no memory.
            let (tied, parent_now) =
                unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, signal), libc::getppid()) };
            if tied != 0 {
                return Err(io::Error::last_os_error());
            }
            if parent_now.unsigned_abs() != parent {
                return Err(io::ErrorKind::Interrupted.into()); // the parent has ended in between
            }
            // SAFETY: a system call that takes no memory. A child just forked leads no group, so it may lead a session.
            if matches!(ending, Ending::WithItsSession) && unsafe { libc::setsid() } < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        };
        // SAFETY: between fork and exec, `before` makes system calls and allocates nothing.
        unsafe { command.pre_exec(before) };
        check_interrupted()?;
        let child = command
            .spawn()
            .map_err(|error| Failure::new(1, format!("cannot start {name}: {error}")))?;
        Ok(Self {
            child,
            name,
            ending,
        })
    }

    /// Returns the status of the child if it has ended, or None if it still runs.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let name = &self.name;
        self.child
            .try_wait()
            .map_err(|error| Failure::new(1, format!("cannot wait for {name}: {error}")))
    }

    /// Waits until the child has ended, at most `limit`. After that, or when a signal asks this process to end, it ends the child. None:
    /// the child was too slow.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> Result<Option<ExitStatus>> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.ended()? {
                return Ok(Some(status));
            }
            if let Err(interrupted) = check_interrupted() {
                self.end();
                return Err(interrupted);
            }
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                self.end();
                return Ok(None);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Ends the child and reaps it.
    fn end(&mut self) {
        let Ok(pid) = libc::pid_t::try_from(self.child.id()) else {
            return;
        };
        let started_by_it = descendants(pid);
        if matches!(self.ending, Ending::Asked) {
            // SAFETY: a system call that takes no memory; the child is not reaped yet, so the number is its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            let start = Instant::now();
            while start.elapsed() < GRACE && matches!(self.child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
        }
        if matches!(self.ending, Ending::WithItsSession) {
            // SAFETY: as above; the child leads the group of this number.
            unsafe { libc::killpg(pid, libc::SIGKILL) };
        }
        // These calls fail only if the child has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in started_by_it {
            if read_process(process.pid).is_some_and(|now| now.start == process.start) {
                // SAFETY: a system call that takes no memory. Number and start say that it is the process meant.
                unsafe { libc::kill(process.pid, libc::SIGKILL) };
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// A process, as /proc describes it.
struct Process {
    pid: libc::pid_t,
    parent: libc::pid_t,
    /// The time of its start, in ticks. It distinguishes processes, because numbers are used again.
    start: u64,
}

fn read_process(pid: libc::pid_t) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may contain anything.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

/// Returns the children of a process, and their children, and so on.
fn descendants(pid: libc::pid_t) -> Vec<Process> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others: Vec<_> = pids.filter_map(read_process).collect();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let (children, rest) = others.into_iter().partition(|one| one.parent == parent);
        let children: Vec<Process> = children;
        parents.extend(children.iter().map(|child| child.pid));
        found.extend(children);
        others = rest;
    }
    found
}

/// Returns a command with arguments, to which more can be added.
pub(crate) fn command<I: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = I>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Runs a command in the foreground, without input.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    with_input(command.stdin(Stdio::null()))
}

/// Runs a command that may ask the user for something.
pub(crate) fn with_input(command: &mut Command) -> Result<ExitStatus> {
    let ended = Running::start(command, Ending::Asked)?.wait(None)?;
    ended.ok_or_else(|| Failure::silent(1)) // without a limit it was not too slow
}

/// As [`status`], but fails with the status of the command if the command fails.
pub(crate) fn run(command: &mut Command) -> Result {
    succeeded(status(command)?)
}

/// Fails with the status of a command that has failed. The command has printed why.
pub(crate) fn succeeded(status: ExitStatus) -> Result {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::silent(u8::try_from(code).unwrap_or(1))),
        None => Err(Failure::silent(
            128 + u8::try_from(status.signal().unwrap_or(0)).unwrap_or(0),
        )),
    }
}

/// The output of a command that answers a question, and its status.
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) text: String,
}

/// Asks a program, which has two minutes to answer.
pub(crate) fn ask(command: &mut Command) -> Result<Answer> {
    answer(command, Some(QUESTION))
}

/// Returns what a command without input prints until it ends. `limit` is the longest time that it may take, if any.
pub(crate) fn answer(command: &mut Command, limit: Option<Duration>) -> Result<Answer> {
    let mut running = Running::start(
        command.stdin(Stdio::null()).stdout(Stdio::piped()),
        Ending::Asked,
    )?;
    let mut output = running.child.stdout.take();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.as_mut().map_or(Ok(0), |o| o.read_to_end(&mut bytes));
        read.map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let name = running.name.clone();
    let status = running.wait(limit)?.ok_or_else(|| {
        let seconds = limit.unwrap_or_default().as_secs();
        Failure::new(1, format!("{name} has not answered within {seconds} s"))
    })?;
    let text =
        joined(reader)?.map_err(|error| Failure::new(1, format!("what {name} says: {error}")))?;
    Ok(Answer { status, text })
}

/// Returns the result of a thread that reads from a child. The child has ended, but programs that it has started may still write.
pub(crate) fn joined<T>(reader: thread::JoinHandle<T>) -> Result<T> {
    while !reader.is_finished() {
        check_interrupted()?;
        thread::sleep(Duration::from_millis(1));
    }
    reader.join().map_err(|_panic| Failure::silent(1))
}

/// As [`ask`], but fails with the status of the command if the command fails.
pub(crate) fn text_of(command: &mut Command) -> Result<String> {
    let answer = ask(command)?;
    succeeded(answer.status)?;
    Ok(answer.text)
}

/// Returns whether a program of this name is in `PATH`.
pub(crate) fn is_installed(name: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_command_is_handed_on() {
        assert!(run(&mut command("true", [""; 0])).is_ok());
        let status = |script: &str| run(&mut command("sh", ["-c", script])).unwrap_err().status;
        assert_eq!(status("exit 3"), 3);
        assert_eq!(status("kill -TERM $$"), 128 + 15);
    }

    #[test]
    fn a_child_that_takes_too_long_ends_with_what_it_has_started() {
        ends_with_what_it_has_started("sleep 1000", Ending::WithItsSession);
        ends_with_what_it_has_started("sleep 1000", Ending::Asked);
        // The program has a process group of its own, so no signal to the child's group reaches it.
        ends_with_what_it_has_started("setsid sleep 1000", Ending::Asked);
    }

    #[track_caller]
    fn ends_with_what_it_has_started(started: &str, ending: Ending) {
        let folder = tempfile::tempdir().unwrap();
        let written = folder.path().join("pid");
        let script = format!("{started} & echo $! >{}; wait", written.display());
        let mut running = Running::start(&mut command("sh", ["-c", &script]), ending).unwrap();
        let ended = running.wait(Some(Duration::from_secs(1))).unwrap();
        assert!(ended.is_none());
        let pid = std::fs::read_to_string(written).unwrap();
        let start = Instant::now();
        let gone = || {
            std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        while !gone() {
            assert!(start.elapsed() < GRACE, "process {pid} still runs");
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn an_answer_is_all_that_was_printed() {
        let answer = ask(&mut command("sh", ["-c", "echo one; echo two; exit 4"])).unwrap();
        assert_eq!(answer.text, "one\ntwo\n");
        assert_eq!(answer.status.code(), Some(4));
    }
}
