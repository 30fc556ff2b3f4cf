//! Doorbells by way of the host: which thread rings, when, and how it ends.

// UNSAFETY: gives host memory to the thread that rings.
#![expect(unsafe_code, reason = "host memory for mailboxes")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mlx5_prm::cqe::CqeOpcode;
use test_support::limits::until;
use warpverbs::gpu::{Gpu, simt::SimtGpu};
use warpverbs::verbs::{Doorbell, DoorbellProxy, QpConfig, VerbsError};

use crate::poster::{End, Poster};
use test_support::hca::kick;
use test_support::node::connect;

fn shape() -> QpConfig {
    QpConfig::default()
        .with_log_depth(8)
        .with_doorbell(Doorbell::Mailbox)
}

/// Threads of this process that ring: their folders below /proc.
fn ringing_threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let rings = |task: &PathBuf| {
        let name = std::fs::read_to_string(task.join("comm"));
        name.is_ok_and(|name| name.trim() == "wv-doorbells")
    };
    let tasks = tasks.filter_map(|task| Some(task.ok()?.path()));
    tasks.filter(rings).collect()
}

/// Returns whether a thread sleeps, by the letter after its name.
fn sleeps(task: &Path) -> bool {
    let stat = std::fs::read_to_string(task.join("stat"));
    stat.is_ok_and(|stat| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// A thread names itself when it runs, and leaves the list a little after its end.
#[track_caller]
fn wait_for_threads(count: usize) {
    until(format_args!("{count} threads that ring"), || {
        ringing_threads().len() == count
    });
}

fn proxy(gpu: &Arc<SimtGpu>, bytes: usize) -> Result<Arc<DoorbellProxy>, VerbsError> {
    let memory = gpu.map_host(bytes).unwrap();
    let (addr, host_addr) = (memory.addr(), memory.host_addr());
    let owner = Some(Box::new(memory) as Box<_>);
    // SAFETY: the memory lives as long as its owner, and is only accessed by atomics and copies.
    unsafe { DoorbellProxy::start(addr, host_addr, bytes, Some(kick), owner) }
}

#[test]
fn qps_ring_while_others_come_and_go_and_are_reset() {
    const ROUNDS: u64 = 300;
    let ends = [End::new(), End::new()];
    let ends = [&ends[0], &ends[1]];
    let nodes = ends.map(|end| &end.node);
    let busy = connect(nodes, &shape()).unwrap();
    std::thread::scope(|scope| {
        let (busy, end) = (&busy[0], ends[0]);
        let rings = scope.spawn(move || {
            let mut poster = Poster::new(end, busy, 0);
            for _ in 0..ROUNDS {
                let index = poster.write(ends[1], None);
                poster.ring();
                assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
            }
        });
        while !rings.is_finished() {
            let [a, b] = connect(nodes, &shape()).unwrap();
            let mut poster = Poster::new(ends[1], &b, 0);
            let index = poster.write(ends[0], None);
            poster.ring();
            poster.completion(index);
            drop(a.reset().unwrap());
            b.destroy().unwrap();
        }
        rings.join().unwrap();
    });
    assert_eq!(busy[0].mailbox_doorbells(), Some(ROUNDS));
    let rung = nodes.map(|node| node.proxy.as_ref().unwrap().doorbells());
    assert!(rung[0] == ROUNDS && rung[1] > 0, "{rung:?}");
    for end in ends {
        assert_eq!(end.hca.findings(), Vec::<String>::new());
    }
}

#[test]
fn a_mailbox_thread_does_not_ring_for_a_qp_that_is_not_ready_to_send() {
    let end = End::new();
    let [a, _b] = connect([&end.node, &end.node], &shape()).unwrap();
    let [ready, _peer] = connect([&end.node, &end.node], &shape()).unwrap();
    let mailbox = a.layout().mailbox_addr.unwrap();
    let a = a.reset().unwrap();
    // As a kernel that comes late. The same thread then rings for another QP, twice, so it has looked at all mailboxes since.
    end.node.write(mailbox, &7u64.to_le_bytes());
    let mut poster = Poster::new(&end, &ready, 0);
    for _ in 0..2 {
        let index = poster.write(&end, None);
        poster.ring();
        assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
    }
    assert_eq!(a.mailbox_doorbells(), Some(0));
    drop(a);
    assert_eq!(end.node.proxy.as_ref().unwrap().doorbells(), 2);
    assert_eq!(end.hca.findings(), Vec::<String>::new());
}

#[test]
fn an_idle_thread_sleeps_and_still_rings() {
    let before = ringing_threads();
    let ends = [End::new(), End::new()];
    let qps = connect([&ends[0].node, &ends[1].node], &shape()).unwrap();
    until("the threads of both ends sleep", || {
        let own = ringing_threads().into_iter();
        let own = own.filter(|task| !before.contains(task));
        own.filter(|task| sleeps(task)).count() >= 2
    });
    let mut poster = Poster::new(&ends[0], &qps[0], 0);
    let index = poster.write(&ends[1], None);
    poster.ring();
    assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
    let rung = ends.map(|end| end.node.proxy.as_ref().unwrap().doorbells());
    assert_eq!(rung, [1, 0]);
}

#[test]
fn a_refused_reset_leaves_the_mailbox_rung_as_before() {
    let ends = [End::new(), End::new()];
    let qps = connect([&ends[0].node, &ends[1].node], &shape()).unwrap();
    let mut poster = Poster::new(&ends[0], &qps[0], 0);
    let [a, _b] = qps;
    crate::fail(
        &ends[0].hca,
        mlx5_prm::cmd::Opcode::TO_RST_QP,
        mlx5_prm::cmd::Status::INTERNAL_ERR,
        1,
    );
    let a = a.reset().unwrap_err().qp;
    let index = poster.write(&ends[1], None);
    poster.ring();
    assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
    assert_eq!(a.mailbox_doorbells(), Some(1));
}

#[test]
fn a_proxy_has_a_mailbox_per_line_and_its_thread_ends_with_its_last_user() {
    let gpu = SimtGpu::open().unwrap();
    let end = End::new();
    let few = proxy(&gpu, 128).unwrap();
    let mut node = end.node;
    let _unused = node.proxy.replace(few);
    // That of the end, which this node does not use any more, and the new one.
    wait_for_threads(2);
    let first = node.qp(&shape()).unwrap();
    let second = node.qp(&shape()).unwrap();
    let text = node.qp(&shape()).unwrap_err().to_string();
    assert!(text.starts_with("mailbox is none left"), "{text}");
    assert_eq!(
        first
            .layout()
            .mailbox_addr
            .unwrap()
            .abs_diff(second.layout().mailbox_addr.unwrap()),
        64
    );
    drop(first);
    let third = node.qp(&shape()).unwrap();
    node.proxy = None;
    drop(second);
    assert_eq!(ringing_threads().len(), 2, "a QP still has a mailbox");
    drop(third);
    wait_for_threads(1);
    drop(node);
}

#[test]
fn memory_that_holds_no_mailbox_is_refused() {
    let gpu = SimtGpu::open().unwrap();
    for (skip, bytes) in [(0, 63), (8, 64)] {
        let memory = gpu.map_host(4096).unwrap();
        let (addr, host_addr) = (memory.addr() + skip, memory.host_addr() + skip);
        // SAFETY: part of the memory, which its owner keeps.
        let refused =
            unsafe { DoorbellProxy::start(addr, host_addr, bytes, None, Some(Box::new(memory))) };
        let text = refused.unwrap_err().to_string();
        assert!(
            text.contains("at least 64 bytes at a multiple of 64"),
            "{text}"
        );
    }
}
