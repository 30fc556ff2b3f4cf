//! Machines with files that were spoiled at random: reading and choosing end for every one.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use fastrand::Rng;
use rustix::fs::{CWD, Mode, mkfifoat};
use test_support::limits::HANG;
use test_support::machine::{MachineTree, descriptions};
use warpverbs::topology::{LinkLayer, Machine, Wish};

/// Trees that are read, each after another spoiled file or directory.
fn count() -> usize {
    match std::env::var_os("WV_TEST_FULL") {
        Some(_) => 10_000,
        None => 500,
    }
}

/// A fresh machine is made after so many changes.
const CHANGES: usize = 40;

#[test]
fn spoiled_trees_are_read_to_the_end() {
    let seed = fastrand::u64(..);
    println!("seed {seed:#x}, {} trees", count());
    let (done, ended) = mpsc::channel();
    let worker = thread::spawn(move || {
        let mut random = Rng::with_seed(seed);
        let machines: Vec<String> = descriptions().into_values().collect();
        let mut left = count();
        while left > 0 {
            let tree = MachineTree::of(&machines[random.usize(..machines.len())]);
            for _ in 0..CHANGES.min(left) {
                spoil(tree.path(), &mut random);
                look_at(tree.path());
                left -= 1;
                let _ = done.send(());
            }
        }
    });
    for number in 0..count() {
        match ended.recv_timeout(HANG) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("tree {number} of seed {seed:#x} hangs"),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    assert!(worker.join().is_ok(), "seed {seed:#x}");
}

/// Reads the whole tree, and chooses for each GPU and for none.
fn look_at(tree: &Path) {
    let machine = Machine::read(tree);
    for device in machine.rdma() {
        for port in &device.ports {
            let gids = machine.gids(&device.name, port.number);
            assert!(gids.iter().all(|gid| !gid.gid.is_unspecified()));
        }
    }
    let mut gpus: Vec<_> = machine.gpus().map(|gpu| Some(gpu.address)).collect();
    gpus.push(None);
    let ports = machine
        .rdma()
        .iter()
        .map(|device| device.ports.len().max(1))
        .sum::<usize>();
    // The first GPU, none, and a rank that is not listed, each beside a node.
    for place in [0, gpus.len() - 1, usize::MAX] {
        let wish = Wish {
            gpus: &gpus,
            place,
            node: machine.node_of(&"0".parse().unwrap()),
            link_layer: Some(LinkLayer::Ethernet),
        };
        let choice = wish.choose(&machine, |_, _| Ok(()));
        // Every port is in one of the two lists.
        assert_eq!(choice.candidates.len() + choice.passed_over.len(), ports);
    }
}

/// Changes one thing below `sys`.
fn spoil(tree: &Path, random: &mut Rng) {
    let mut all = Vec::new();
    everything(&tree.join("sys"), &mut all);
    let Some(victim) = random.choice(&all) else {
        return;
    };
    let remove = || match victim.symlink_metadata().is_ok_and(|it| it.is_dir()) {
        true => fs::remove_dir_all(victim),
        false => fs::remove_file(victim),
    };
    if victim.is_file() && random.bool() {
        rewrite(victim, random);
        return;
    }
    remove().expect("what was there a moment ago");
    match random.u32(..7) {
        0 => {}
        1 => symlink(victim, victim).expect("a loop"),
        2 => symlink(random.choice(&all).expect("one at least"), victim).expect("another place"),
        3 => symlink("/dev/zero", victim).expect("no end"),
        4 => mkfifoat(CWD, victim, Mode::from_raw_mode(0o600)).expect("a pipe"),
        5 => fs::create_dir(victim).expect("a directory"),
        _ => File::create(victim)
            .and_then(|file| file.set_len(1 << 40))
            .expect("a long file"),
    }
}

fn rewrite(file: &Path, random: &mut Rng) {
    let mut bytes = fs::read(file).unwrap_or_default();
    bytes.truncate(8192);
    match random.u32(..4) {
        0 => bytes.truncate(random.usize(..=bytes.len())),
        1 => bytes.extend((0..random.usize(..6000)).map(|_| b'7')),
        2 => bytes = (0..random.usize(..64)).map(|_| random.u8(..)).collect(),
        _ => {
            if !bytes.is_empty() {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
        }
    }
    fs::write(file, bytes).expect("a file that can be written");
}

/// Files, links and directories below one, which links do not lead out of.
fn everything(directory: &Path, all: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_directory = path.symlink_metadata().is_ok_and(|it| it.is_dir());
        all.push(path.clone());
        if is_directory {
            everything(&path, all);
        }
    }
}
