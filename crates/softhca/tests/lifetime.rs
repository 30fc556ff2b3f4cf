//! The tree of a program that has the HCA linked in exists while the program has devices, and is gone when it ends.

use softhca_rig::patience::{HANG, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use softhca::Hca;

const ROLE: &str = "SOFTHCA_TEST_ROLE";

/// What the test runs as a second process.
#[test]
#[ignore = "is started by the test below"]
fn owner() {
    let role = std::env::var_os(ROLE).expect("the test below starts this");
    let hca = Hca::new().unwrap();
    let tree = PathBuf::from(std::env::var_os("SYSFS_PATH").unwrap());
    let listed = tree.join("class/infiniband").join(hca.name());
    assert!(listed.join("node_guid").exists(), "{}", listed.display());
    if role == "wait" {
        // Until it is killed.
        std::thread::sleep(HANG);
    }
}

fn run_owner(role: &str, runtime: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owner", "--ignored", "--test-threads=1"])
        .env(ROLE, role)
        .env("XDG_RUNTIME_DIR", runtime)
        .env_remove("SOFTHCA_DIR")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn trees(runtime: &Path) -> usize {
    fs::read_dir(runtime.join("softhca")).map_or(0, Iterator::count)
}

#[test]
fn the_tree_goes_when_its_program_ends_or_with_the_next_start() {
    let runtime = PathBuf::from(format!("/tmp/softhca-life-{}", std::process::id()));
    let _ = fs::remove_dir_all(&runtime);
    fs::create_dir(&runtime).unwrap();

    assert!(run_owner("end", &runtime).wait().unwrap().success());
    assert!(!runtime.join("softhca").exists(), "an orderly end");

    let mut killed = run_owner("wait", &runtime);
    wait_until("the tree is there", || trees(&runtime) == 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(trees(&runtime), 1, "a kill leaves the tree");
    assert!(run_owner("end", &runtime).wait().unwrap().success());
    assert!(!runtime.join("softhca").exists(), "the next start sweeps");
    fs::remove_dir_all(&runtime).unwrap();
}
