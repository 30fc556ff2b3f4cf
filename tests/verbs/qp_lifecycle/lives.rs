//! Many lives, and every way to take one down: nothing grows, and nothing is left.

use std::any::Any;
use std::process::Command;
use std::sync::Arc;
use std::{env, fs};

use test_support::counts::seeds;
use test_support::hca::hca;
use test_support::node::{Node, connect};
use warpverbs::verbs::{AtomicSink, Events, HeapStats, QpConfig};

use crate::{HEAP, assert_nothing_left};

/// Lives before the first count, in which libraries and allocators take what they keep.
const FIRST: u64 = 100;
/// What an allocator may keep for itself in between.
const SLACK_KIB: u64 = 2048;

/// What must not grow.
#[derive(Debug, PartialEq)]
struct Held {
    descriptors: usize,
    heaps: [HeapStats; 2],
    objects: [usize; 2],
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.unwrap().parse().unwrap()
}

#[test]
fn many_lives_of_qps_leave_descriptors_memory_and_heaps_as_they_were() {
    const ALONE: &str = "WARPVERBS_TEST_LIVES_ALONE";
    // Other tests of this process open descriptors, too.
    if env::var_os(ALONE).is_none() {
        let name = "lives::many_lives_of_qps_leave_descriptors_memory_and_heaps_as_they_were";
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("1 passed"), "{told}{errors}");
        print!("{told}");
        return;
    }
    let hcas = [hca(), hca()];
    let nodes = hcas.each_ref().map(|hca| Node::open(hca, HEAP).unwrap());
    let heap = |node: &Node| {
        let mut stats = node.heap.stats();
        stats.allocations = 0; // of all lives
        stats
    };
    let held = || Held {
        descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
        heaps: nodes.each_ref().map(heap),
        objects: hcas.each_ref().map(|hca| hca.live_objects().total()),
    };
    let live = || drop(connect([&nodes[0], &nodes[1]], &QpConfig::default()).unwrap());
    (0..FIRST).for_each(|_| live());
    let (before, resident) = (held(), resident_kib());
    let lives = seeds(200, 10_000);
    lives.clone().for_each(|_| live());
    assert_eq!(held(), before, "after {} lives", lives.end);
    let now = resident_kib();
    println!(
        "{} lives of two QPs: {} descriptors, {} objects, {resident} KiB of memory before and {now} behind them",
        lives.end,
        before.descriptors,
        before.objects.iter().sum::<usize>(),
    );
    assert!(now <= resident + SLACK_KIB, "{resident} KiB, then {now}");
    drop(nodes);
    hcas.iter().for_each(assert_nothing_left);
}

/// Everything that a program holds of two connected QPs, each thing by itself.
fn holdings(nodes: [Node; 2]) -> Vec<Box<dyn Any>> {
    let mut all: Vec<Box<dyn Any>> = Vec::new();
    let shape = QpConfig::default();
    for qp in connect([&nodes[0], &nodes[1]], &shape).unwrap() {
        all.push(Box::new(Arc::clone(qp.doorbell())));
        all.extend(
            qp.counters()
                .map(|set| Box::new(Arc::clone(set)) as Box<dyn Any>),
        );
        all.push(Box::new(qp));
    }
    for node in nodes {
        let events = Events::open(&node.context).unwrap();
        let reset = node.qp(&shape).unwrap();
        reset.subscribe(&events, 7).unwrap();
        all.push(Box::new(events));
        all.push(Box::new(reset));
        all.push(Box::new(node.window(4096).unwrap()));
        all.push(Box::new(AtomicSink::new(&node.pd, &node.heap).unwrap()));
        all.push(Box::new(Arc::clone(&node.context)));
        all.push(Box::new(Arc::clone(&node.pd)));
        all.push(Box::new(Arc::clone(&node.heap)));
        all.push(Box::new(node));
    }
    all
}

#[test]
fn a_thousand_orders_of_drops_leave_nothing() {
    let hcas = [hca(), hca()];
    let first = fastrand::u64(..1 << 32);
    let orders = first..first + 1_000;
    let mut things = 0;
    for seed in orders.clone() {
        let nodes = hcas.each_ref().map(|hca| Node::open(hca, HEAP).unwrap());
        let mut all = holdings(nodes);
        things = all.len();
        fastrand::Rng::with_seed(seed).shuffle(&mut all);
        for thing in all {
            drop(thing);
        }
        for hca in &hcas {
            assert_eq!(hca.live_objects().total(), 0, "seed {seed:#x}");
        }
    }
    println!(
        "{} orders of {things} drops, seeds from {first:#x}",
        orders.count()
    );
    hcas.iter().for_each(assert_nothing_left);
}
