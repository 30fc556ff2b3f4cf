//! Processes that move bytes through the wire: DevX QPs on HCAs with addresses of their own.

use softhca_rig::patience::{HANG, wait_until};
use softhca_rig::wire::driver::Patience;
use softhca_rig::wire::{Driver, Peer};
use std::time::{Duration, Instant};
use std::{env, io};
use test_basics::process::Process;

const MB: usize = 1 << 20;
/// Says what a process of the tests below is to do.
const TASK: &str = "SOFTHCA_WIRE_TASK";

/// What a child process does: the counterpart of the tests below. Its task is `kind number..`.
#[test]
#[ignore = "is started by the tests below"]
fn child() {
    let task = env::var(TASK).expect("the tests below start this");
    let mut lines = io::stdin().lines();
    let mut words = task.split(' ');
    let kind = words.next().unwrap();
    let numbers: Vec<usize> = words.map(|word| word.parse().unwrap()).collect();
    let mut hear = move || lines.next().unwrap().unwrap();
    match (kind, &numbers[..]) {
        ("window", &[bytes]) => window(bytes, &mut hear),
        ("all-to-all", &[rank, ranks, bytes]) => all_to_all(rank, ranks, bytes, &mut hear),
        other => panic!("no task {other:?}"),
    }
}

fn say(line: &str) {
    println!("said: {line}");
}

/// A window that the parent writes and reads, until it says `end`; between `pause` and `wake` the HCA sleeps.
fn window(bytes: usize, hear: &mut dyn FnMut() -> String) {
    let mut driver = Driver::new(4, bytes);
    say(&driver.describe().to_line());
    let parent = Peer::from_line(&hear());
    (0..4).for_each(|qp| driver.connect(qp, &parent, qp));
    say("ready");
    loop {
        let line = hear();
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("pause", "") => {
                driver.hca.pause(2 * HANG);
                say("asleep");
            }
            ("wake", "") => driver.hca.pause(Duration::ZERO),
            ("signals", rounds) => signals(&driver, rounds.parse().unwrap()),
            ("sum", range) => {
                let range: Vec<usize> =
                    range.split(' ').map(|word| word.parse().unwrap()).collect();
                say(&checksum(&driver.read(range[0], range[1])).to_string());
            }
            _ => break,
        }
    }
    say(&format!("{:?}", driver.hca.counters()));
}

/// Bytes of a row, rows of a round, and where a round's signal is.
const ROW: usize = 784;
const ROWS: usize = 180;
const SIGNAL_AT: usize = MB;

/// Returns a row that no other round or place has.
fn row(round: usize, place: usize) -> Vec<u8> {
    pattern((round * ROWS + place) as u64 + 1, ROW)
}

/// Waits for the signal of each round and checks at once that all its rows have arrived.
fn signals(driver: &Driver, rounds: usize) {
    for round in 1..=rounds {
        let end = Instant::now() + HANG;
        while driver.word(SIGNAL_AT) != round as u64 {
            assert!(Instant::now() < end, "no signal of round {round}");
            std::hint::spin_loop();
        }
        for place in 0..ROWS {
            let at = (round % 2 * ROWS + place) * ROW;
            assert!(
                driver.read(at, ROW) == row(round, place),
                "row {place} of round {round} came after the signal"
            );
        }
        say("seen");
    }
}

/// Starts a child with a window, and connects four QPs with it.
fn pair(bytes: usize) -> (Driver, Process) {
    pair_with(bytes, Patience::LONG)
}

fn pair_with(bytes: usize, patience: Patience) -> (Driver, Process) {
    let mut driver = Driver::new(4, bytes);
    let mut child = Process::start("child", (TASK, &format!("window {bytes}")));
    let peer = Peer::from_line(&child.says());
    child.ask(&driver.describe().to_line());
    (0..4).for_each(|qp| driver.connect_with(qp, &peer, qp, patience));
    assert_eq!(child.says(), "ready");
    (driver, child)
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut data = vec![0; bytes];
    fastrand::Rng::with_seed(seed).fill(&mut data);
    data
}

fn checksum(data: &[u8]) -> u32 {
    crc32fast::hash(data)
}

fn remote_sum(child: &mut Process, start: usize, bytes: usize) -> u32 {
    child.ask(&format!("sum {start} {bytes}"));
    child.says().parse().unwrap()
}

#[test]
fn writes_reads_and_atomics_reach_another_process() {
    let (mut driver, mut child) = pair(4 * MB);
    let data = pattern(1, MB);
    driver.fill(0, &data);
    for (offset, bytes) in [(0, MB), (MB, 1), (MB + 1, 4097), (MB + 5000, 65_536)] {
        driver.post_write(0, 0, offset, u32::try_from(bytes).unwrap());
        driver.wait(0).unwrap();
        assert_eq!(
            remote_sum(&mut child, offset, bytes),
            checksum(&data[..bytes]),
            "{bytes} bytes"
        );
    }
    driver.post_inline(1, b"inline bytes", 2 * MB);
    driver.wait(1).unwrap();
    driver.post_read(1, 2 * MB, 2 * MB, 12);
    driver.post_read(2, 3 * MB, 0, u32::try_from(MB).unwrap());
    driver.wait(1).unwrap();
    driver.wait(2).unwrap();
    assert_eq!(driver.read(2 * MB, 12), b"inline bytes");
    assert_eq!(driver.read(3 * MB, MB), data);
    for round in 0..100 {
        driver.post_fetch_add(3, 8 * round, 3 * MB, 5);
    }
    driver.wait(3).unwrap();
    for round in 0..100 {
        let original = driver.read(8 * round, 8);
        assert_eq!(original, (5 * round as u64).to_ne_bytes());
    }
    assert_eq!(
        remote_sum(&mut child, 3 * MB, 8),
        checksum(&500_u64.to_ne_bytes())
    );
    let counters = driver.hca.counters();
    assert!(
        counters.packets_sent > 400 && counters.packets_received > 256,
        "{counters:?}"
    );
}

#[test]
fn a_signal_is_seen_only_after_the_rows_before_it() {
    let rounds = 200;
    let (mut driver, mut child) = pair(2 * MB);
    child.ask(&format!("signals {rounds}"));
    for round in 1..=rounds {
        for place in 0..ROWS {
            let at = (round % 2 * ROWS + place) * ROW;
            driver.fill(at, &row(round, place));
            driver.post_write(round % 4, at, at, u32::try_from(ROW).unwrap());
        }
        let mut word = [0; 12];
        word[..8].copy_from_slice(&(round as u64).to_ne_bytes());
        driver.post_inline(round % 4, &word, SIGNAL_AT);
        assert_eq!(child.says(), "seen", "round {round}");
        driver.wait(round % 4).unwrap();
    }
}

#[test]
fn a_wrong_key_is_refused_by_the_other_process() {
    const REMOTE_ACCESS: u8 = 0x13;
    let (mut driver, mut child) = pair(MB);
    driver.post_bad_key(0);
    assert_eq!(driver.wait(0), Err(REMOTE_ACCESS));
    // The other QPs of the pair know nothing of it.
    driver.fill(0, &[7; 64]);
    driver.post_write(1, 0, 0, 64);
    driver.wait(1).unwrap();
    assert_eq!(remote_sum(&mut child, 0, 64), checksum(&[7; 64]));
}

#[test]
fn a_receiver_that_sleeps_until_packets_are_sent_again_loses_nothing() {
    let (mut driver, mut child) = pair(8 * MB);
    let data = pattern(2, 2 * MB);
    driver.fill(0, &data);
    child.ask("pause");
    assert_eq!(child.says(), "asleep");
    let start = Instant::now();
    for qp in 0..4 {
        driver.post_write(qp, 0, 2 * MB * qp, u32::try_from(2 * MB).unwrap());
    }
    wait_until("packets are sent again", || {
        driver.hca.counters().retransmissions > 0
    });
    child.ask("wake");
    (0..4).for_each(|qp| driver.wait(qp).unwrap());
    let elapsed = start.elapsed();
    for qp in 0..4 {
        assert_eq!(
            remote_sum(&mut child, 2 * MB * qp, 2 * MB),
            checksum(&data),
            "QP {qp}"
        );
    }
    println!(
        "8 MiB to a receiver that sleeps: {elapsed:?}, {} packets sent again",
        driver.hca.counters().retransmissions
    );
}

#[test]
fn a_process_that_dies_ends_in_retry_exceeded() {
    const RETRY_EXCEEDED: u8 = 0x15;
    // 8 rounds of 0.5 s.
    let patience = Patience {
        ack_timeout: 14,
        retry_count: 7,
    };
    let (mut driver, child) = pair_with(MB, patience);
    drop(child);
    let start = Instant::now();
    driver.post_write(0, 0, 0, 64);
    assert_eq!(driver.wait(0), Err(RETRY_EXCEEDED));
    let elapsed = start.elapsed();
    println!("a dead process is given up after {elapsed:?}");
    assert!(elapsed >= Duration::from_secs(4), "{elapsed:?}");
}

#[test]
fn throughput_of_64_kib_writes_between_two_processes() {
    let (mut driver, mut child) = pair(MB);
    for (qps, bytes, count) in [(1, 65_536, 8_000), (4, 65_536, 8_000), (4, 8, 100_000)] {
        let start = Instant::now();
        let mut posted = 0;
        while posted < count {
            for qp in 0..qps {
                for _ in 0..driver.room(qp).min(count - posted) {
                    driver.post_write(qp, 0, 0, bytes);
                    posted += 1;
                }
            }
            driver.sleep_until_news();
        }
        (0..qps).for_each(|qp| driver.wait(qp).unwrap());
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{count} WRITEs of {bytes} B over {qps} QPs: {:.2} GB/s, {:.3} million per second",
            count as f64 * f64::from(bytes) / seconds / 1e9,
            count as f64 / seconds / 1e6
        );
    }
    println!("sender {:?}", driver.hca.counters());
    child.ask("end");
    println!("receiver {}", child.says());
}

/// Rank `rank` writes `bytes` to each other rank, in pieces of 64 KiB over one QP each, and checks what came.
fn all_to_all(rank: usize, ranks: usize, bytes: usize, hear: &mut dyn FnMut() -> String) {
    const PIECE: usize = 65_536;
    // The window: what is sent (the same to all), then what comes from each rank.
    let mut driver = Driver::new(ranks, bytes * (ranks + 1));
    driver.fill(0, &pattern(rank as u64, bytes));
    say(&driver.describe().to_line());
    let peers: Vec<Peer> = (0..ranks).map(|_| Peer::from_line(&hear())).collect();
    for (other, peer) in peers.iter().enumerate().filter(|(other, _)| *other != rank) {
        driver.connect(other, peer, rank);
    }
    say("ready");
    assert_eq!(hear(), "go");
    let mut sent = vec![0; ranks];
    sent[rank] = bytes;
    while sent.iter().any(|sent| *sent < bytes) {
        for other in (0..ranks).map(|step| (rank + step) % ranks) {
            for _ in 0..driver.room(other) {
                if sent[other] == bytes {
                    break;
                }
                let piece = PIECE.min(bytes - sent[other]);
                let to = bytes * (rank + 1) + sent[other];
                driver.post_write(other, sent[other], to, u32::try_from(piece).unwrap());
                sent[other] += piece;
            }
        }
        driver.sleep_until_news();
    }
    for other in (0..ranks).filter(|other| *other != rank) {
        driver.wait(other).unwrap();
    }
    say("sent");
    assert_eq!(hear(), "check");
    for other in (0..ranks).filter(|other| *other != rank) {
        let came = driver.read(bytes * (other + 1), bytes);
        assert_eq!(
            checksum(&came),
            checksum(&pattern(other as u64, bytes)),
            "from rank {other}"
        );
    }
    let counters = driver.hca.counters();
    say(&format!(
        "{} {}",
        counters.packets_sent, counters.retransmissions
    ));
}

#[test]
fn eight_processes_write_to_all_others_at_once() {
    let ranks: usize = 8;
    // 100 MB leave each rank.
    let bytes = 14 * MB;
    let mut children: Vec<Process> = (0..ranks)
        .map(|rank| {
            Process::start(
                "child",
                (TASK, &format!("all-to-all {rank} {ranks} {bytes}")),
            )
        })
        .collect();
    let peers: Vec<String> = children.iter().map(Process::says).collect();
    for child in &mut children {
        peers.iter().for_each(|peer| child.ask(peer));
    }
    children
        .iter_mut()
        .for_each(|child| assert_eq!(child.says(), "ready"));
    let start = Instant::now();
    children.iter_mut().for_each(|child| child.ask("go"));
    children
        .iter_mut()
        .for_each(|child| assert_eq!(child.says(), "sent"));
    let seconds = start.elapsed().as_secs_f64();
    children.iter_mut().for_each(|child| child.ask("check"));
    let (mut packets, mut again) = (0, 0);
    for child in &mut children {
        let line = child.says();
        let (sent, retransmitted) = line.split_once(' ').unwrap();
        packets += sent.parse::<u64>().unwrap();
        again += retransmitted.parse::<u64>().unwrap();
    }
    let total = (ranks * (ranks - 1) * bytes) as f64;
    println!(
        "{ranks} processes, {:.0} MB each to the others: {seconds:.2} s, {:.2} GB/s in sum, {packets} packets, {again} again",
        total / ranks as f64 / 1e6,
        total / seconds / 1e9
    );
}
