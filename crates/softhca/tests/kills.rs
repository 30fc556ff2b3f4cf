//! A program that is killed at any moment leaves no socket and no shared memory, and no file after the next start.

use softhca::{Hca, HcaConfig};
use softhca_rig::patience::{HANG, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "SOFTHCA_TEST_ROLE";
/// Where the victims' HCA is; no other HCA in these tests has it.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 77, 3, 9);

/// What the test kills. It makes and removes a device with open contexts, again and again; with the role `hold` it keeps the
/// first one.
#[test]
#[ignore = "is started by the test below"]
fn victim() {
    let role = std::env::var_os(ROLE).expect("the test below starts this");
    let config = HcaConfig {
        ip: Some(ADDRESS),
        ..HcaConfig::default()
    };
    let end = Instant::now() + HANG;
    while Instant::now() < end {
        let hca = Hca::with_config(config.clone()).unwrap();
        let context = hca.open().unwrap();
        context.alloc_pd().unwrap();
        context.alloc_uar().unwrap();
        if role == "once" {
            return;
        }
        if role == "hold" {
            std::thread::sleep(HANG);
        }
    }
}

fn start(role: &str, runtime: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--ignored", "--test-threads=1"])
        .env(ROLE, role)
        .env("XDG_RUNTIME_DIR", runtime)
        .env_remove("SOFTHCA_DIR")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn names(directory: &str) -> BTreeSet<PathBuf> {
    fs::read_dir(directory)
        .map(|entries| {
            entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .collect()
        })
        .unwrap_or_default()
}

/// Returns the trees of devices.
fn trees(runtime: &Path) -> BTreeSet<PathBuf> {
    names(runtime.join("softhca").to_str().unwrap())
}

/// Shared memory of the machine, by path and by System V.
fn shared_memory() -> (BTreeSet<PathBuf>, usize) {
    let system_v = fs::read_to_string("/proc/sysvipc/shm").map_or(0, |table| table.lines().count());
    let ours = |path: &PathBuf| path.to_string_lossy().contains("softhca");
    (
        names("/dev/shm").into_iter().filter(ours).collect(),
        system_v,
    )
}

/// Unix sockets with a name of ours.
fn unix_sockets() -> usize {
    fs::read_to_string("/proc/net/unix").map_or(0, |table| {
        table
            .lines()
            .filter(|line| line.contains("softhca"))
            .count()
    })
}

#[test]
fn a_program_killed_at_any_moment_leaves_nothing_behind() {
    let runtime = PathBuf::from(format!("/tmp/softhca-kills-{}", std::process::id()));
    let _ = fs::remove_dir_all(&runtime);
    fs::create_dir(&runtime).unwrap();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    let (shared, sockets) = (shared_memory(), unix_sockets());
    let mut left_a_tree = 0;
    for round in 0..if full { 500 } else { 25 } {
        let what = format!("seed {seed} round {round}");
        // Of three rounds one ends at any moment from the start, and one at any moment from the first device. In the third the
        // victim holds its device, however slow the machine is.
        let kind = round % 3;
        let before = trees(&runtime);
        let mut victim = start(if kind == 2 { "hold" } else { "for ever" }, &runtime);
        if kind > 0 {
            wait_until("the victim makes a device", || {
                trees(&runtime).difference(&before).next().is_some()
            });
        }
        if kind < 2 {
            std::thread::sleep(Duration::from_micros(random.u64(..60_000)));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        let left = runtime.join("softhca").exists();
        assert!(left || kind < 2, "{what}: a kill leaves the tree");
        left_a_tree += usize::from(left);
        // The kernel has taken the address back.
        drop(UdpSocket::bind((ADDRESS, 4791)).unwrap_or_else(|error| panic!("{what}: {error}")));
        assert_eq!(unix_sockets(), sockets, "{what}");
    }
    println!("seed {seed}: {left_a_tree} kills left a tree");
    assert!(
        start("once", &runtime).wait().unwrap().success(),
        "seed {seed}"
    );
    assert_eq!(
        names(runtime.to_str().unwrap()),
        BTreeSet::new(),
        "seed {seed}"
    );
    assert_eq!(shared_memory(), shared, "seed {seed}");
    fs::remove_dir_all(&runtime).unwrap();
}
