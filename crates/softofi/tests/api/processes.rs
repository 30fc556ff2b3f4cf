//! Two processes: bytes between them, and peers that are killed, stopped or closed under load.

use std::io::BufRead;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use libfabric_abi::errors::FI_ECONNABORTED;
use test_basics::process::Process;
use test_basics::stopped::{resume, stop};

use crate::rig::{End, Fabric, Memory, Remote, Seen, Work, until};

const BYTES: usize = 100_000;
/// Says to the other process what it is.
const CONFIG: &str = "SOFTOFI_TEST_TARGET";

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

/// Lines that the process is asked, while it goes on.
fn questions() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// The other process: an end whose memory is written and read.
#[test]
#[ignore = "is started by the tests below"]
fn target() {
    let Ok(config) = std::env::var(CONFIG) else {
        return;
    };
    let fabric = Fabric::soft(&config);
    let end = End::new(&fabric);
    let memory = Memory::new(&fabric, BYTES);
    let Remote { address, key } = memory.remote(0);
    println!("said: {} {address} {key}", digits(&end.address()));
    let lines = questions();
    loop {
        if end.is_open() {
            end.completions();
        }
        let line = match lines.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("insert", address) => println!("said: {}", end.insert(&bytes_of(address))),
            ("bytes", _) => println!("said: {}", digest(&memory.bytes())),
            ("close", _) => {
                end.close();
                let then = memory.bytes();
                std::thread::sleep(Duration::from_millis(50));
                println!("said: {}", memory.bytes() == then);
            }
            (other, _) => panic!("{other}?"),
        }
    }
}

/// A number that tells memory apart.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The other process, and where its memory is.
struct Other {
    process: Process,
    address: Vec<u8>,
    remote: Remote,
}

impl Other {
    fn start(config: &str) -> Self {
        let process = Process::start("processes::target", (CONFIG, config));
        let said = process.says();
        let mut words = said.split(' ');
        let mut next = || words.next().unwrap();
        Self {
            address: bytes_of(next()),
            remote: Remote {
                address: next().parse().unwrap(),
                key: next().parse().unwrap(),
            },
            process,
        }
    }

    fn meet(&mut self, end: &End<'_>) -> u64 {
        self.process
            .asked(&format!("insert {}", digits(&end.address())));
        end.insert(&self.address)
    }
}

#[test]
fn bytes_go_from_process_to_process_and_back() {
    for profile in ["efa-direct", "efa"] {
        let config = format!("profile={profile}");
        let mut other = Other::start(&config);
        let fabric = Fabric::soft(&config);
        let end = End::new(&fabric);
        let peer = other.meet(&end);
        let memory = Memory::new(&fabric, BYTES);
        let mut dice = fastrand::Rng::with_seed(5);
        let work = Work {
            memory: &memory,
            offset: 0,
            bytes: BYTES,
            peer,
            remote: other.remote,
            data: Some(7),
        };
        let mut seen = Seen::new(&[&end]);
        for _ in 0..5 {
            let sent = crate::rig::bytes(&mut dice, BYTES);
            memory.set(&sent);
            let context = end.write(&work, &mut seen);
            assert_eq!(seen.wait(0, context).error, 0, "{profile}");
            let there = other.process.asked("bytes");
            assert_eq!(there, digest(&sent).to_string(), "{profile}");
            memory.set(&vec![0; BYTES]);
            let context = end.read(&work, &mut seen);
            assert_eq!(seen.wait(0, context).error, 0, "{profile}");
            assert!(memory.bytes() == sent, "{profile}");
        }
    }
}

/// An end with work to another process under way.
struct Load<'a> {
    end: End<'a>,
    memory: Memory<'a>,
    peer: u64,
    remote: Remote,
}

impl<'a> Load<'a> {
    fn new(fabric: &'a Fabric, other: &mut Other) -> Self {
        let end = End::new(fabric);
        let peer = other.meet(&end);
        let memory = Memory::new(fabric, BYTES);
        memory.set(&vec![3; BYTES]);
        Self {
            end,
            memory,
            peer,
            remote: other.remote,
        }
    }

    /// Posts as many as are taken. It returns how many.
    fn post(&self) -> usize {
        let work = Work {
            memory: &self.memory,
            offset: 0,
            bytes: BYTES,
            peer: self.peer,
            remote: self.remote,
            data: None,
        };
        (0..16)
            .filter(|_| self.end.try_write(&work).is_ok())
            .count()
    }

    /// Errors of so many operations.
    fn errors(&self, count: usize) -> Vec<i32> {
        let mut seen = Seen::new(&[&self.end]);
        until("all operations end", || {
            seen.look();
            (seen.done[0].len() >= count).then_some(())
        });
        seen.done[0].iter().map(|done| done.error).collect()
    }
}

#[test]
fn a_killed_peer_ends_operations_with_errors_and_one_that_comes_is_served() {
    let config = "dead_ms=50,late_us=20000";
    let fabric = Fabric::soft(config);
    for _ in 0..10 {
        let mut other = Other::start(config);
        let load = Load::new(&fabric, &mut other);
        assert_eq!(load.errors(load.post()).iter().max(), Some(&0));
        let posted = load.post();
        std::thread::sleep(Duration::from_millis(3));
        other.process.kill();
        let errors = load.errors(posted);
        assert_eq!(errors.len(), posted);
        let known = |error: &i32| [0, FI_ECONNABORTED].contains(error);
        assert!(errors.iter().all(known), "{errors:?}");
    }
}

#[test]
fn a_stopped_peer_is_waited_for_as_long_as_the_timeout() {
    for (timeout, expected) in [("timeout_ms=60000", 0), ("timeout_ms=300", FI_ECONNABORTED)] {
        let config = format!("late_us=0,{timeout}");
        let fabric = Fabric::soft(&config);
        let mut other = Other::start("late_us=0");
        let load = Load::new(&fabric, &mut other);
        assert_eq!(load.errors(load.post()).iter().max(), Some(&0));
        stop(other.process.id());
        let start = Instant::now();
        let posted = load.post();
        if expected == 0 {
            std::thread::sleep(Duration::from_secs(1));
            assert_eq!(load.end.completions(), []);
            resume(other.process.id());
        }
        assert_eq!(load.errors(posted), vec![expected; posted], "{timeout}");
        assert!(start.elapsed() >= Duration::from_millis(250), "{timeout}");
        resume(other.process.id());
    }
}

#[test]
fn after_a_close_in_the_other_process_nothing_lands_there() {
    for profile in ["efa-direct", "efa"] {
        let config = format!("profile={profile},dead_ms=10,late_us=20000");
        let fabric = Fabric::soft(&config);
        for _ in 0..5 {
            let mut other = Other::start(&config);
            let load = Load::new(&fabric, &mut other);
            assert_eq!(load.errors(load.post()).iter().max(), Some(&0), "{profile}");
            let posted = load.post();
            load.end.completions();
            assert_eq!(other.process.asked("close"), "true", "{profile}");
            assert_eq!(load.errors(posted).len(), posted, "{profile}");
        }
    }
}
