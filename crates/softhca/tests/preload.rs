//! `libsofthca.so` preloaded into programs that know nothing of it, and what is left when they end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that takes the place of `XDG_RUNTIME_DIR`, so that a test sees its own trees only.
struct Runtime(PathBuf);

impl Runtime {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/softhca-run-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// `program` with the library preloaded.
    fn preloaded(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", library())
            .env("XDG_RUNTIME_DIR", &self.0)
            .env_remove("SYSFS_PATH");
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SOFTHCA_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Everything that programs have left.
    fn left(&self) -> Vec<PathBuf> {
        entries(&self.0)
    }

    /// Returns the trees of processes that live or were killed.
    fn trees(&self) -> Vec<PathBuf> {
        entries(&self.0.join("softhca"))
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
        .unwrap_or_default()
}

/// Cargo puts it beside the test programs.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let library = program.with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

fn devinfo(runtime: &Runtime) -> Command {
    let mut command = runtime.preloaded("ibv_devinfo");
    command.arg("-v");
    command
}

fn run(mut command: Command) -> (String, String, Output) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error} (ibv_devinfo is in ibverbs-utils, cc in gcc)")
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output)
}

/// Returns the value after `key:` in the output of ibv_devinfo.
fn value<'a>(output: &'a str, key: &str) -> Option<&'a str> {
    output
        .lines()
        .find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}

#[test]
fn ibv_devinfo_prints_the_device() {
    let runtime = Runtime::new();
    let (stdout, stderr, output) = run(devinfo(&runtime));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(stderr, "");
    for (key, expected) in [
        ("hca_id", "mlx5_0"),
        ("transport", "InfiniBand (0)"),
        ("fw_ver", "28.39.1002"),
        ("vendor_id", "0x02c9"),
        ("vendor_part_id", "4129"),
        ("board_id", "SOFTHCA0000000001"),
        ("phys_port_cnt", "1"),
        ("state", "PORT_ACTIVE (4)"),
        ("max_mtu", "4096 (5)"),
        ("link_layer", "Ethernet"),
        ("atomic_cap", "ATOMIC_HCA (1)"),
    ] {
        assert_eq!(value(&stdout, key), Some(expected), "{key}\n{stdout}");
    }
    let gid = value(&stdout, "GID[  3]").unwrap_or_else(|| panic!("no GID 3\n{stdout}"));
    assert!(gid.starts_with("::ffff:127."), "{gid}");
    assert!(gid.ends_with("RoCE v2"), "{gid}");
    assert_eq!(runtime.left(), [] as [PathBuf; 0], "left after the end");
}

#[test]
fn ibv_devinfo_works_for_a_user_without_rights() {
    // SAFETY-free way to know: only root may read this.
    if fs::read("/proc/1/environ").is_err() {
        println!("not root, so every test of this file runs without rights already");
        return;
    }
    let runtime = Runtime::new();
    // The user can neither reach cargo's directories nor write to root's.
    let copy = runtime.0.join("libsofthca.so");
    fs::copy(library(), &copy).unwrap();
    for path in [&runtime.0, &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = runtime.preloaded("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["env", &format!("LD_PRELOAD={}", copy.display())])
        .args(["ibv_devinfo", "-v"])
        .env_remove("LD_PRELOAD");
    let (stdout, stderr, output) = run(command);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!(value(&stdout, "hca_id"), Some("mlx5_0"), "{stdout}");
    assert_eq!(entries(Path::new("/tmp/softhca-65534")), [] as [PathBuf; 0]);
}

#[test]
fn the_environment_gives_count_and_addresses() {
    let runtime = Runtime::new();
    // An address that is free now; another HCA may take it meanwhile, hence the loop.
    for _ in 0..5 {
        let (socket, ip) = free_address();
        drop(socket);
        let mut command = devinfo(&runtime);
        command
            .env("SOFTHCA_DEVICES", "3")
            .env("SOFTHCA_IP", ip.to_string());
        let (stdout, stderr, _) = run(command);
        if stderr.contains("in use") {
            continue;
        }
        for index in 0..3 {
            assert!(
                stdout.contains(&format!("mlx5_{index}")),
                "{stdout}{stderr}"
            );
            let [a, b, c, d] = ip.octets();
            let gid = format!("::ffff:{a}.{b}.{c}.{}", d + index);
            assert!(stdout.contains(&gid), "{gid}\n{stdout}");
        }
        return;
    }
    panic!("five addresses in a row were taken");
}

fn free_address() -> (UdpSocket, std::net::Ipv4Addr) {
    loop {
        let [a, b, c, _] = fastrand::u32(..).to_be_bytes();
        let ip = std::net::Ipv4Addr::new(127, a | 1, b, c % 200 + 1);
        if let Ok(socket) = UdpSocket::bind((ip, 4791)) {
            return (socket, ip);
        }
    }
}

#[test]
fn an_address_in_use_is_named() {
    let runtime = Runtime::new();
    let (_socket, ip) = free_address();
    let mut command = devinfo(&runtime);
    command.env("SOFTHCA_IP", ip.to_string());
    let (stdout, stderr, output) = run(command);
    assert!(!output.status.success(), "{stdout}");
    let expected = format!("softhca: address {ip}:4791 is in use\n");
    assert!(stderr.contains(&expected), "{stderr}");
    assert_eq!(runtime.left(), [] as [PathBuf; 0]);
}

#[test]
fn a_bad_variable_is_named() {
    let runtime = Runtime::new();
    let mut command = devinfo(&runtime);
    command.env("SOFTHCA_DEVICES", "none");
    let (_, stderr, output) = run(command);
    assert!(!output.status.success());
    let expected = "softhca: SOFTHCA_DEVICES=none is not a number from 1 to 64\n";
    assert!(stderr.contains(expected), "{stderr}");
}

#[test]
fn a_program_without_rdma_gets_nothing_and_leaves_nothing() {
    let runtime = Runtime::new();
    let mut command = runtime.preloaded("sh");
    command.args([
        "-c",
        "ls /proc/$$/task | wc -l; cat /dev/null; exec 5</dev/null 5<&-",
    ]);
    let (stdout, stderr, output) = run(command);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stdout.trim(), "1", "threads");
    assert_eq!(stderr, "");
    assert_eq!(runtime.left(), [] as [PathBuf; 0]);
}

#[test]
fn sysfs_paths_lead_into_the_tree() {
    let runtime = Runtime::new();
    // Tools with hard-coded paths: of these, `realpath` calls realpath() and `head` fopen() or open().
    let mut command = runtime.preloaded("head");
    command.args(["-n1", "/sys/class/infiniband/mlx5_0/ports/1/gids/3"]);
    let (stdout, stderr, _) = run(command);
    assert!(
        stdout.starts_with("0000:0000:0000:0000:0000:ffff:7f"),
        "{stdout}{stderr}"
    );
    let mut command = runtime.preloaded("cat");
    command.arg("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/doorbells");
    let (stdout, stderr, _) = run(command);
    assert_eq!(stdout, "0\n", "{stderr}");
}

#[test]
fn every_way_of_libc_to_look_at_a_path_sees_the_tree() {
    let runtime = Runtime::new();
    let program = runtime.0.join("ways");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysfs_ways.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-D_FORTIFY_SOURCE=2", "-Wall", "-o"]);
    compiler.args([&program, &source]);
    let (_, stderr, output) = run(compiler);
    assert!(output.status.success(), "{stderr}");
    let (stdout, stderr, output) = run(runtime.preloaded(program.to_str().unwrap()));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert_eq!((stdout.as_str(), stderr.as_str()), ("", ""));
}

#[test]
fn a_state_is_current_from_a_directory_of_the_tree_on() {
    let runtime = Runtime::new();
    // A file that was taken away shows that each opening writes it.
    let script = "cd /sys/class/infiniband/mlx5_0/ports/1 && read x <state && echo $x && rm -f state && read x <state && echo $x";
    let mut command = runtime.preloaded("bash");
    command.args(["-c", script]);
    let (stdout, stderr, _) = run(command);
    assert_eq!(stdout, "4: ACTIVE\n4: ACTIVE\n", "{stderr}");
}

#[test]
fn programs_that_look_around_find_devices_and_links() {
    let runtime = Runtime::new();
    let mut command = runtime.preloaded("ls");
    command.args(["-l", "/sys/class/infiniband", "/dev/infiniband/uverbs0"]);
    let (stdout, stderr, output) = run(command);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    for expected in [
        "crw-rw-rw-",
        "231, 192",
        "mlx5_0 -> ../../devices/pci0000:00/0000:00:00.0/infiniband/mlx5_0",
    ] {
        assert!(stdout.contains(expected), "{expected}: {stdout}");
    }
}

#[test]
fn children_of_a_fork_have_hcas_of_their_own_unless_the_parent_had_some() {
    let runtime = Runtime::new();
    let gid = "/sys/class/infiniband/mlx5_0/ports/1/gids/3";
    let subshell = format!("(read x <{gid}; echo $x)");
    let mut command = runtime.preloaded("bash");
    command.args([
        "-c",
        &format!("{subshell}; {subshell}; read y <{gid}; echo $y; {subshell}"),
    ]);
    let (stdout, stderr, _) = run(command);
    let gids: Vec<_> = stdout.lines().collect();
    assert_eq!(gids.len(), 4, "{stdout}{stderr}");
    assert_ne!(gids[0], gids[1], "two children");
    assert_ne!(gids[1], gids[2], "child and parent");
    assert_eq!(gids[2], gids[3], "a later child sees the parent's");
    assert_eq!(runtime.left(), [] as [PathBuf; 0]);

    // Only seeing: it cannot open it.
    let mut command = runtime.preloaded("bash");
    command.args([
        "-c",
        &format!("read y <{gid}; (exec 5<>/dev/infiniband/uverbs0)"),
    ]);
    let (_, stderr, output) = run(command);
    assert!(!output.status.success());
    assert!(
        stderr.contains("forked from one that had opened"),
        "{stderr}"
    );
}

/// Returns a program that has a tree and lives until it is killed.
fn long_lived(runtime: &Runtime) -> Child {
    let mut child = runtime
        // The shell itself opens the file, and ends by exit() (dash would end by _exit, and leave its tree).
        .preloaded("bash")
        .args([
            "-c",
            "read x </sys/class/infiniband/mlx5_0/node_type && echo \"$x\" && read y",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "1: CA\n");
    child
}

#[test]
fn what_a_killed_program_left_goes_with_the_next_start() {
    let runtime = Runtime::new();
    let mut living = long_lived(&runtime);
    let mut killed = long_lived(&runtime);
    assert_eq!(runtime.trees().len(), 2);
    killed.kill().unwrap(); // SIGKILL
    killed.wait().unwrap();
    assert_eq!(
        runtime.trees().len(),
        2,
        "no process cleans up after a kill"
    );

    assert!(run(devinfo(&runtime)).2.status.success());
    let trees = runtime.trees();
    assert_eq!(trees.len(), 1, "{trees:?}");
    let pid = living.id().to_string();
    assert!(trees[0].to_string_lossy().contains(&pid), "{trees:?}");

    living.kill().unwrap();
    living.wait().unwrap();
    assert!(run(devinfo(&runtime)).2.status.success());
    assert_eq!(runtime.left(), [] as [PathBuf; 0]);
}

#[test]
fn processes_have_hcas_of_their_own() {
    let runtime = Runtime::new();
    let mut first = long_lived(&runtime);
    let mut second = long_lived(&runtime);
    let gids: Vec<_> = runtime
        .trees()
        .iter()
        .map(|tree| {
            fs::read_to_string(tree.join("class/infiniband/mlx5_0/ports/1/gids/3")).unwrap()
        })
        .collect();
    assert_eq!(gids.len(), 2);
    assert_ne!(gids[0], gids[1]);
    for child in [&mut first, &mut second] {
        drop(child.stdin.take()); // the program ends by itself
        child.wait().unwrap();
    }
    assert_eq!(runtime.left(), [] as [PathBuf; 0]);
}
