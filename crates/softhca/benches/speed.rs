//! What the device can do: one line per target of the README's section "Speed".
//!
//! `cargo bench -p softhca --bench speed [-- NAME..]`, where a NAME is a part of a line's name. Each figure is the best of
//! several windows, since others on the machine can only make it worse, with the median beside it. The first line names the
//! machine; `SOFTHCA_BENCH_MACHINE` says it in other words.

use softhca::{Hca, HcaConfig};
use softhca_rig::wire::{Driver, Peer};
use softhca_rig::{End, Pair, Shape};
use std::time::{Duration, Instant};
use std::{env, fs, io};
use test_basics::process::Process;

/// Measures and prints its line, under the name given.
type Bench = fn(&str);

/// Says what a second process of this program is to do.
const TASK: &str = "SOFTHCA_SPEED_TASK";
/// Windows that a figure is the best of.
const WINDOWS: usize = 20;

fn main() {
    if let Ok(task) = env::var(TASK) {
        let mut lines = io::stdin().lines();
        let mut hear = move || lines.next().unwrap().unwrap();
        match task.as_str() {
            "window" => window(&mut hear),
            "echo" => echo(&mut hear),
            other => panic!("no task {other:?}"),
        }
        return;
    }
    let wanted: Vec<String> = env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    println!("{}", machine());
    let benches: [(&str, Bench); 7] = [
        ("loopback, 8-byte WRITE, batches of 512", loopback_small),
        ("loopback, 4 KiB WRITE, batches of 256", loopback_large),
        ("loopback, one 8-byte WRITE to its CQE", loopback_latency),
        ("UDP, 1 MiB WRITEs between two processes", wire_bandwidth),
        (
            "UDP, 8-byte ping-pong between two processes",
            wire_ping_pong,
        ),
        ("idle device, 32 QPs", idle),
        ("1,000 idle QPs beside a busy one", crowd),
    ];
    for (name, bench) in benches {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            bench(name);
        }
    }
}

/// Processor, cores, kernel and build.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let found = format!("{processor}, {cores} cores, Linux {}", kernel.trim());
    let machine = env::var("SOFTHCA_BENCH_MACHINE").unwrap_or(found);
    let build = if cfg!(debug_assertions) {
        "with debug assertions"
    } else {
        "release"
    };
    format!("{machine}; {build}")
}

/// Prints a line: the best and the middle of `figures`, in `unit`, against the target.
fn report(name: &str, mut figures: Vec<f64>, more_is_better: bool, target: f64, unit: &str) {
    figures.sort_by(f64::total_cmp);
    let middle = figures[figures.len() / 2];
    let best = if more_is_better {
        figures[figures.len() - 1]
    } else {
        figures[0]
    };
    let (sign, met) = if more_is_better {
        (">=", best >= target)
    } else {
        ("<=", best <= target)
    };
    let verdict = if met { "met" } else { "MISSED" };
    println!(
        "{name:<46} {best:8.2} {unit} (median {middle:.2}; target {sign} {target} {unit}: {verdict})"
    );
}

fn shape() -> Shape {
    Shape {
        log_depth: 10,
        log_cq: None,
        data_bytes: 1 << 20,
        mtu: 5,
        ..Shape::default()
    }
}

/// Seconds from a doorbell to the completion of the last of `batch` WQEs.
fn batch_time(pair: &mut Pair, bytes: u32, batch: u16) -> f64 {
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let mut last = 0;
    for _ in 0..batch {
        last = pair.a.write(0, bytes, remote, rkey);
    }
    let start = Instant::now();
    pair.a.post();
    pair.a
        .poll_for(Duration::from_secs(10), |cqe| cqe.wqe_counter.get() == last)
        .expect("the batch completes");
    start.elapsed().as_secs_f64()
}

/// Returns the best time of `rounds` batches, in each window.
fn batch_times(bytes: u32, batch: u16, rounds: usize) -> Vec<f64> {
    let mut pair = Pair::with(&HcaConfig::default(), shape(), shape());
    (0..WINDOWS)
        .map(|_| {
            let times = (0..rounds).map(|_| batch_time(&mut pair, bytes, batch));
            times.fold(f64::INFINITY, f64::min)
        })
        .collect()
}

fn loopback_small(name: &str) {
    let rates = batch_times(8, 512, 100);
    let rates = rates.iter().map(|time| 512.0 / time / 1e6).collect();
    report(name, rates, true, 8.0, "M WQE/s");
}

fn loopback_large(name: &str) {
    let rates = batch_times(4096, 256, 100);
    let rates = rates
        .iter()
        .map(|time| 256.0 * 4096.0 / time / 1e9)
        .collect();
    report(name, rates, true, 20.0, "GB/s");
}

fn loopback_latency(name: &str) {
    let times = batch_times(8, 1, 2000);
    let times = times.iter().map(|time| time * 1e6).collect();
    report(name, times, false, 1.5, "us");
}

const WINDOW_BYTES: usize = 4 << 20;
const MESSAGE: usize = 1 << 20;

/// In the second process: memory that the parent writes to, until it says something.
fn window(hear: &mut dyn FnMut() -> String) {
    let mut driver = Driver::new(4, WINDOW_BYTES);
    println!("said: {}", driver.describe().to_line());
    let parent = Peer::from_line(&hear());
    (0..4).for_each(|qp| driver.connect(qp, &parent, qp));
    println!("said: ready");
    hear();
    let counters = driver.hca.counters();
    println!(
        "said: {} received, {} of them twice",
        counters.packets_received, counters.duplicates
    );
}

fn pair_with(task: &str) -> (Driver, Process) {
    let mut driver = Driver::new(4, WINDOW_BYTES);
    let mut child = Process::start("child", (TASK, task));
    let peer = Peer::from_line(&child.says());
    child.ask(&driver.describe().to_line());
    (0..4).for_each(|qp| driver.connect(qp, &peer, qp));
    assert_eq!(child.says(), "ready");
    (driver, child)
}

fn wire_bandwidth(name: &str) {
    const COUNT: usize = 64;
    let (mut driver, mut child) = pair_with("window");
    for qps in [1, 4] {
        let rates = (0..WINDOWS)
            .map(|_| {
                let start = Instant::now();
                for number in 0..COUNT {
                    let at = number % 4 * MESSAGE;
                    driver.post_write(number % qps, at, at, u32::try_from(MESSAGE).unwrap());
                }
                (0..qps).for_each(|qp| driver.wait(qp).unwrap());
                (COUNT * MESSAGE) as f64 / start.elapsed().as_secs_f64() / 1e9
            })
            .collect();
        report(&format!("{name}, {qps} QP"), rates, true, 3.0, "GB/s");
    }
    let counters = driver.hca.counters();
    child.ask("end");
    println!(
        "    {} packets sent, {} of them again; {}",
        counters.packets_sent,
        counters.retransmissions,
        child.says()
    );
}

/// In the second process: writes each number that arrives back.
fn echo(hear: &mut dyn FnMut() -> String) {
    let mut driver = Driver::new(4, WINDOW_BYTES);
    println!("said: {}", driver.describe().to_line());
    let parent = Peer::from_line(&hear());
    (0..4).for_each(|qp| driver.connect(qp, &parent, qp));
    println!("said: ready");
    for round in 1..=PINGS {
        driver.wait_for_word(0, round);
        send_word(&mut driver, round);
    }
    hear();
}

const PINGS: u64 = 20_000;

fn send_word(driver: &mut Driver, word: u64) {
    while driver.room(0) == 0 {
        driver.sleep_until_news();
    }
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&word.to_ne_bytes());
    driver.post_inline(0, &bytes, 0);
}

fn wire_ping_pong(name: &str) {
    let (mut driver, mut child) = pair_with("echo");
    let mut times = Vec::new();
    for window in 0..WINDOWS as u64 {
        let rounds = PINGS / WINDOWS as u64;
        let start = Instant::now();
        for round in 1..=rounds {
            send_word(&mut driver, window * rounds + round);
            driver.wait_for_word(0, window * rounds + round);
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / rounds as f64);
    }
    child.ask("end");
    report(name, times, false, 60.0, "us");
}

/// QPs that are connected to no peer.
fn idle_ends(hca: &Hca, count: usize) -> Vec<End> {
    let small = Shape {
        data_bytes: 4096,
        ..Shape::default()
    };
    let mut ends: Vec<End> = (0..count).map(|_| End::new(hca, small.clone())).collect();
    for end in &mut ends {
        end.connect(hca.gid(), end.qpn, 1);
        end.nop(true);
        end.run(1);
    }
    ends
}

fn idle(name: &str) {
    let hca = Hca::new().unwrap();
    let _ends = idle_ends(&hca, 32);
    std::thread::sleep(Duration::from_millis(200));
    let shares = (0..5)
        .map(|_| {
            let (before, start) = (softhca_rig::engine_time::engine_time(), Instant::now());
            std::thread::sleep(Duration::from_millis(400));
            (softhca_rig::engine_time::engine_time() - before).as_secs_f64()
                / start.elapsed().as_secs_f64()
                * 100.0
        })
        .collect();
    report(name, shares, false, 1.0, "% of a core");
}

fn crowd(name: &str) {
    let alone = batch_times(8, 64, 500);
    let hca = Hca::new().unwrap();
    let _ends = idle_ends(&hca, 1000);
    let crowded = batch_times(8, 64, 500);
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let lost = crowded
        .iter()
        .map(|time| 100.0 * (1.0 - least(&alone) / time))
        .collect();
    report(name, lost, false, 20.0, "% lost");
}
