//! Instructions that a rank process reads from its standard input: to stand still for a while, wholly or in part, to lose packets, or to
//! end.
//!
//! Host threads and kernels are stopped separately, by a signal to each of their threads, whose handler sleeps. The thread of the software
//! HCA gets no signal and goes on acknowledging.

// UNSAFETY: a signal handler, and signals to single threads.
#![expect(unsafe_code, reason = "signals to threads")]

use std::ffi::c_int;
use std::fs;
use std::io::{self, BufRead};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::disturbed_store::{DisturbedStore, Faults, StoreFault};
use crate::messages::{Message, tell};
use warpverbs::error::ThreadPanicked;
use warpverbs::team::Store;
use warpverbs_cli::own_faults;

/// An instruction, which is one line of a rank's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Instruction {
    /// These threads stand still for so many milliseconds.
    Freeze { threads: Threads, ms: u64 },
    /// The HCA has these faults from now on, and no others.
    Faults(String),
    /// The store of the rank has this fault.
    Store(StoreFault),
    /// This step is the last.
    Last(u32),
    /// The rank sleeps for so many milliseconds before its next call.
    Late(u64),
    /// The rank makes its next call with other arguments than the other ranks. Only Python programs know this.
    Arguments,
    /// The rank takes back all ranks that it masks before this call. Only Python programs know this.
    TakeBack(u32),
}

/// A kind of threads of a rank process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Threads {
    /// The threads that run neither kernels nor the HCA.
    Host,
    /// The threads on which kernels run.
    Kernels,
}

/// The last step that was ordered, or `u32::MAX` if none was.
static LAST: AtomicU32 = AtomicU32::new(u32::MAX);
/// True if standard input has ended.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// True if all steps are done. The others may then still need this rank's memory.
static DONE: AtomicBool = AtomicBool::new(false);
/// How long the rank sleeps before its next call, in milliseconds.
static LATE_MS: AtomicU64 = AtomicU64::new(0);
/// The time until which signalled threads sleep: nanoseconds of `CLOCK_MONOTONIC`.
static UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// The fault of the store of this process.
static STORE_FAULTS: LazyLock<Arc<Faults>> = LazyLock::new(Faults::none);

/// Returns `store`, which instructions can disturb.
pub(crate) fn disturbed(store: Arc<dyn Store>) -> Arc<dyn Store> {
    Arc::new(DisturbedStore::new(store, Arc::clone(&STORE_FAULTS)))
}

/// Returns the last step that is to be made.
pub(crate) fn last_step() -> u32 {
    LAST.load(Ordering::Relaxed)
}

/// Returns how long to sleep before the next call, if that was ordered. An order is returned once.
pub(crate) fn lateness() -> Option<Duration> {
    match LATE_MS.swap(0, Ordering::Relaxed) {
        0 => None,
        ms => Some(Duration::from_millis(ms)),
    }
}

/// Lets the process end by itself from now on when its input ends.
pub(crate) fn done() {
    DONE.store(true, Ordering::Relaxed);
}

/// Returns whether the process that started this one has closed its standard input. This process then ends.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Starts a thread that obeys the instructions on standard input. The process that started this one holds the other end. When that process
/// ends in any way, this one ends, too.
pub(crate) fn follow() {
    std::thread::spawn(|| {
        let followed = ThreadPanicked::catch("instructions", || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                let instruction = serde_json::from_str(&line).map_err(|error| error.to_string());
                if let Err(error) = instruction.and_then(obey) {
                    give_up(format!("invalid instruction ({error}): {line}"));
                }
            }
        });
        if let Err(panicked) = followed {
            give_up(panicked.to_string());
        }
        CLOSED.store(true, Ordering::Relaxed);
        if !DONE.load(Ordering::Relaxed) {
            std::process::exit(1);
        }
    });
}

/// Ends this process, because it can obey instructions no more.
fn give_up(message: String) -> ! {
    let remote = false;
    let _ = tell(&Message::Failed { message, remote });
    std::process::exit(1);
}

fn obey(instruction: Instruction) -> Result<(), String> {
    match instruction {
        Instruction::Last(step) => LAST.store(step, Ordering::Relaxed),
        Instruction::Freeze { threads, ms } => {
            freeze(threads, ms).map_err(|error| error.to_string())?
        }
        Instruction::Faults(spec) => own_faults::set(&spec)?,
        Instruction::Store(fault) => STORE_FAULTS.set(fault),
        Instruction::Late(ms) => LATE_MS.store(ms, Ordering::Relaxed),
        Instruction::Arguments | Instruction::TakeBack(_) => {
            return Err("it is for programs of Python".to_owned());
        }
    }
    Ok(())
}

/// Returns whether a thread of this name is one of `threads`.
fn is_of(threads: Threads, name: &str) -> bool {
    match (name.starts_with("simt"), name == "softhca") {
        (_, true) => false,
        (kernels, false) => kernels == (threads == Threads::Kernels),
    }
}

/// Signals each of these threads, except the calling one.
fn freeze(threads: Threads, ms: u64) -> io::Result<()> {
    let signal = libc::SIGUSR2;
    install(signal)?;
    UNTIL_NS.store(
        now_ns().saturating_add(ms.saturating_mul(1_000_000)),
        Ordering::Relaxed,
    );
    // SAFETY: calls without arguments.
    let (process, own) = unsafe { (libc::getpid(), libc::gettid()) };
    for entry in fs::read_dir("/proc/self/task")? {
        let entry = entry?;
        let id: Option<libc::pid_t> = entry.file_name().to_str().and_then(|id| id.parse().ok());
        // A thread that has ended meanwhile has no name.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let Some(id) = id.filter(|id| *id != own && is_of(threads, name.trim_end())) else {
            continue;
        };
        // SAFETY: a signal to a thread of this process, whose handler is installed; one that has ended is an error, no more.
        unsafe { libc::syscall(libc::SYS_tgkill, process, id, signal) };
    }
    Ok(())
}

fn install(signal: c_int) -> io::Result<()> {
    // SAFETY: an action of zeros is valid; the fields that count are set before it is used.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = stand_still as extern "C" fn(c_int) as usize;
    // The handler runs on the alternate stack, because kernels' coroutines have little stack of their own.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: an initialised set and action. The handler does nothing but what signal handlers may.
    let done = unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sleeps until the time that was ordered. It is async-signal-safe: it calls an atomic load, `clock_gettime` and `nanosleep`, and leaves
/// errno as it was.
extern "C" fn stand_still(_: c_int) {
    // SAFETY: the calling thread's errno, which lives as long as the thread.
    let errno = unsafe { *libc::__errno_location() };
    loop {
        let left = UNTIL_NS.load(Ordering::Relaxed).saturating_sub(now_ns());
        if left == 0 {
            break;
        }
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(left / 1_000_000_000).unwrap_or(1),
            tv_nsec: libc::c_long::try_from(left % 1_000_000_000).unwrap_or(0),
        };
        // SAFETY: a timespec that lives here.
        unsafe { libc::nanosleep(&raw const time, ptr::null_mut()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    #[test]
    fn threads_have_different_names() {
        let of = |name: &str| [Threads::Host, Threads::Kernels].map(|threads| is_of(threads, name));
        assert_eq!(of("simt-stream"), [false, true]);
        assert_eq!(of("simt-3"), [false, true]);
        assert_eq!(of("softhca"), [false, false]);
        for name in ["wv", "group 3", "group watch 3", "lease member/3."] {
            assert_eq!(of(name), [true, false], "{name}");
        }
    }

    /// The times, as `now_ns` gives them, at which a thread has run, a millisecond apart or more.
    #[derive(Default)]
    struct Turns {
        times: Mutex<Vec<u64>>,
        stop: AtomicBool,
    }

    impl Turns {
        fn take(&self) {
            while !self.stop.load(Ordering::Relaxed) {
                self.times.lock().unwrap().push(now_ns());
                std::thread::sleep(Duration::from_millis(1));
            }
        }

        /// Waits until the thread has run after `ns`.
        fn wait(&self, ns: u64) {
            let start = Instant::now();
            while self.times.lock().unwrap().last().is_none_or(|at| *at <= ns) {
                assert!(start.elapsed() < Duration::from_secs(240), "no turn");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn a_thread_of_kernels_stands_still_for_its_time() {
        let turns = Arc::new(Turns::default());
        let taking = Arc::clone(&turns);
        let thread = std::thread::Builder::new().name("simt-test".to_owned());
        let thread = thread.spawn(move || taking.take()).unwrap();
        turns.wait(0);
        freeze(Threads::Kernels, 300).unwrap();
        let (from, until) = (now_ns(), UNTIL_NS.load(Ordering::Relaxed));
        turns.wait(until);
        turns.stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let times = turns.times.lock().unwrap();
        let meanwhile = times.iter().filter(|at| (from..until).contains(at));
        // A turn may be under way when the signal comes.
        let meanwhile = meanwhile.count();
        println!(
            "{} turns, {meanwhile} of them in {} us",
            times.len(),
            until.saturating_sub(from) / 1000
        );
        assert!(meanwhile <= 1, "{meanwhile} turns");
    }

    #[test]
    fn orders_are_lines_that_are_read_back() {
        let instructions = [
            Instruction::Freeze {
                threads: Threads::Host,
                ms: 700,
            },
            Instruction::Faults("drop=1%".to_owned()),
            Instruction::Store(StoreFault {
                ms: 400,
                late: None,
            }),
            Instruction::Last(12),
            Instruction::Late(700),
            Instruction::Arguments,
            Instruction::TakeBack(9),
        ];
        for instruction in instructions {
            let line = serde_json::to_string(&instruction).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(
                serde_json::from_str::<Instruction>(&line).unwrap(),
                instruction
            );
        }
    }
}
