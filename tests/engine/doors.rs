//! What strangers can take of an engine before they are peers, and what peers can that no program accepts: so much, and no more.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use test_support::counts::full;
use test_support::limits::{HANG, until};
use test_support::process::Process;
use warpverbs::internal::engine::{EngineError, HostError};

use crate::rig::{End, LOOPBACK, config, listens, message};

/// Most connections that shake hands at a time.
const MOST: usize = 64;
/// Descriptors that are left to an engine for its strangers.
const FEW: usize = 20;

/// Waits until the engine has ended the stream.
fn is_ended(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(HANG)).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).is_ok()
}

/// Threads of this process that shake hands with one that has connected.
fn greeting() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names
        .filter(|name| name.trim() == "wv-engine-hello")
        .count()
}

#[test]
fn of_many_silent_connections_the_one_that_is_silent_longest_is_ended() {
    let end = End::new(config("a"), 4096);
    let address = listens(&end.engine);
    let silent = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        // It shakes hands.
        message(&mut stream);
        stream
    };
    let most = if full() { 1200 } else { 120 };
    let open: Vec<TcpStream> = (0..most).map(silent).collect();
    for (nth, stream) in open[..most - MOST].iter().enumerate() {
        assert!(is_ended(stream), "connection {nth}");
    }
    println!("{} threads shake hands with {most} silent ends", greeting());
    let other = End::new(config("b"), 4096);
    let peer = other.engine.connect(&address.to_string()).unwrap();
    assert_eq!(peer.name(), "a");
    assert_eq!(end.engine.accept(HANG).unwrap().name(), "b");
    assert!(is_ended(&open[most - MOST]), "it gave its place");
    let mut left: BTreeSet<usize> = (most - MOST + 1..most).collect();
    left.retain(|nth| {
        let stream = &open[*nth];
        stream.set_nonblocking(true).unwrap();
        let found = (&*stream).read(&mut [0]);
        found.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    });
    assert_eq!(left.len(), MOST - 1, "they wait still");
}

#[test]
fn a_close_waits_for_no_stranger_and_is_final() {
    // Each would be waited for as long.
    let end = End::new(config("a").with_connect_timeout(10 * HANG), 4096);
    let address = listens(&end.engine);
    let silent = || {
        let mut stream = TcpStream::connect(address).unwrap();
        message(&mut stream);
        stream
    };
    let open = [silent(), silent(), silent()];
    let begin = Instant::now();
    assert_eq!(end.engine.close().cut_off, 0);
    println!("closed within {:?} beside 3 silent ends", begin.elapsed());
    assert!(open.iter().all(is_ended));
    for _ in 0..3 {
        let refused = end.engine.listen(LOOPBACK.into()).unwrap_err();
        let is_it = matches!(refused, HostError::Refused(EngineError::Closing));
        assert!(is_it, "{refused}");
    }
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(greeting(), 0);
    assert_eq!(end.engine.close().cut_off, 0);
}

#[test]
fn of_peers_that_the_program_does_not_accept_ended_ones_go_first() {
    const PEERS: u32 = 4;
    let end = End::new(config("a").with_peers(PEERS), 4096);
    let address = listens(&end.engine).to_string();
    let connect = |name: &str| {
        let other = End::new(config(name), 4096);
        let peer = other.engine.connect(&address).unwrap();
        (other, peer)
    };
    // One that stays.
    let stays = connect("stays");
    let most = if full() { 1000 } else { 20 };
    for nth in 0..most {
        let (other, peer) = connect(&format!("goes {nth}"));
        assert_eq!(peer.close(), 0);
        assert_eq!(other.engine.close().cut_off, 0);
        end.engine.peer_gone(HANG).expect("it has gone");
    }
    let mut left = Vec::new();
    while let Some(peer) = end.engine.accept(Duration::ZERO) {
        left.push(peer.name().to_owned());
    }
    println!("{left:?} of {most} that have gone, and one that stays");
    assert!(
        left.contains(&"stays".to_owned()) && left.len() <= PEERS as usize,
        "{left:?}"
    );
    drop(stays);
}

/// What the log of a process says.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
#[ignore = "is started by the next test"]
fn an_engine_with_few_descriptors() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .init();
    // None is ended for its silence.
    let end = End::new(config("a").with_connect_timeout(10 * HANG), 4096);
    let address = listens(&end.engine);
    let used = fs::read_dir("/proc/self/fd").unwrap().count();
    let limit = Rlimit {
        current: Some((used + FEW).try_into().unwrap()),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    println!("said: {address} {used}");
    let peer = end.engine.accept(10 * HANG).expect("it has connected");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let waits = log.matches("an engine takes no connection for now");
    println!("said: {} {}", peer.name(), waits.count());
    // Until it is ended.
    let _ = io::stdin().read_line(&mut String::new());
}

#[test]
fn an_engine_without_descriptors_waits_and_takes_peers_when_it_has_some() {
    let test = "doors::an_engine_with_few_descriptors";
    let process = Process::start(test, ("WV_TEST_FEW", "1"));
    let said = process.says();
    let (address, used) = said.split_once(' ').unwrap();
    let used: usize = used.parse().unwrap();
    let count = || {
        let all = fs::read_dir(format!("/proc/{}/fd", process.id()));
        all.unwrap().count()
    };
    let time = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        let words: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        format!("{} + {} ticks", words[11], words[12])
    };
    let silent = |_| TcpStream::connect(address).unwrap();
    let silent: Vec<TcpStream> = (0..2 * FEW).map(silent).collect();
    until("all descriptors are taken", || count() + 2 >= used + FEW);
    println!("without descriptors: {}", time());
    let few = config("late").with_connect_timeout(Duration::from_secs(2));
    let late = End::new(few, 4096).engine.connect(address);
    let late = late.map(|peer| peer.name().to_owned()).unwrap_err();
    println!("2 s later: {}; {late}", time());
    drop(silent);
    until("descriptors are there again", || count() <= used + 2);
    let other = End::new(config("b"), 4096);
    let peer = other.engine.connect(address).unwrap();
    assert_eq!(peer.name(), "a");
    let said = process.says();
    let (peer, waits) = said.split_once(' ').unwrap();
    assert_eq!(peer, "b");
    // Once each time when there are none: some are free for a while when a few have gone.
    let waits: usize = waits.parse().unwrap();
    assert!((1..=4).contains(&waits), "{said}");
}

/// Descriptors, threads and kilobytes of memory that this process has.
fn holds() -> [usize; 3] {
    let count = |place: &str| fs::read_dir(place).unwrap().count();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.unwrap().trim().trim_end_matches(" kB");
    let (descriptors, threads) = (count("/proc/self/fd"), count("/proc/self/task"));
    [descriptors, threads, memory.parse().unwrap()]
}

#[test]
fn notices_that_nobody_takes_have_their_room_and_no_more() {
    const SENDERS: usize = 4;
    const ROOM: u32 = 1 << 17;
    const BYTES: usize = 1000;
    let receiver = End::new(config("a").with_inbox(ROOM), 4096);
    let address = listens(&receiver.engine).to_string();
    let senders = (0..SENDERS).map(|nth| {
        let end = End::new(config(&format!("b{nth}")).with_inbox(ROOM), 4096);
        let peer = end.engine.connect(&address).unwrap();
        (end, peer)
    });
    let senders: Vec<_> = senders.collect();
    let each = if full() { 100_000 } else { 10_000 } / SENDERS;
    let before = holds();
    let mut taken = [0; SENDERS];
    for nth in 0..each {
        for ((_, peer), taken) in senders.iter().zip(&mut taken) {
            let mut bytes = vec![0; BYTES];
            bytes[..8].copy_from_slice(&nth.to_le_bytes());
            match peer.notify(&bytes) {
                // Those before the first that has no room.
                Ok(()) => *taken += usize::from(*taken == nth),
                Err(EngineError::InboxFull { most, .. }) => assert_eq!(most, u64::from(ROOM)),
                Err(error) => panic!("{error}"),
            }
        }
    }
    let room = ROOM as usize / (BYTES + 64);
    assert_eq!(taken, [room; SENDERS]);
    let after = holds();
    let is_no_more = after[0] <= before[0] && after[1] <= before[1];
    assert!(
        is_no_more,
        "{before:?}, then {after:?} descriptors, threads, kB"
    );
    println!(
        "{} notices of {BYTES} bytes, {} taken: {before:?}, then {after:?} descriptors, threads, kB",
        each * SENDERS,
        room * SENDERS
    );
    // The others lost nothing by those that were refused: each comes once, in its order.
    let mut next = [0; SENDERS];
    for _ in 0..room * SENDERS {
        let notice = receiver.engine.notice(HANG).expect("it was taken");
        let peer: usize = notice.peer[1..].parse().unwrap();
        let found = usize::from_le_bytes(notice.bytes[..8].try_into().unwrap());
        assert_eq!(found, next[peer], "of {}", notice.peer);
        next[peer] += 1;
    }
    assert!(receiver.engine.notice(Duration::ZERO).is_none());
}
