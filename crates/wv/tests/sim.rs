//! `wv sim` with programs that it does not know: Debian's ibv_devinfo, shells, and what it must refuse.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use test_basics::limits::until;

/// A directory for `XDG_RUNTIME_DIR` and the test's files.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// `wv sim ARGUMENTS`, with its directories below this one.
    fn sim(&self, arguments: &[&str]) -> Command {
        // A shell that starts this test in the background lets it ignore signals, which `wv` would inherit.
        let mut command = Command::new("/usr/bin/env");
        command
            .args(["--default-signal", env!("CARGO_BIN_EXE_wv"), "sim"])
            .args(arguments)
            .env("XDG_RUNTIME_DIR", self.path())
            .stdin(Stdio::null());
        for name in [
            "LD_PRELOAD",
            "SYSFS_PATH",
            "SOFTHCA_DIR",
            "SOFTHCA_IP",
            "SOFTHCA_DEVICES",
            "WARPVERBS_SOFTHCA",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn shell(&self, script: &str) -> Command {
        self.sim(&["--", "bash", "-c", script])
    }

    /// Returns whether any directory of `wv sim` or a process is left.
    fn is_clean(&self) -> bool {
        !self.path().join("softhca").exists()
    }

    fn file(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

struct Seen {
    stdout: String,
    stderr: String,
    output: Output,
}

fn run(mut command: Command) -> Seen {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Seen {
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        output,
    }
}

impl Seen {
    fn code(&self) -> Option<i32> {
        self.output.status.code()
    }

    /// Fails unless `wv` refused with this status and a single line that holds all of `words`.
    fn assert_refused(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code(), Some(code), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word} in: {}", self.stderr);
        }
    }
}

#[test]
fn ibv_devinfo_of_the_distribution_prints_the_device() {
    let scratch = Scratch::new();
    let seen = run(scratch.sim(&["--", "ibv_devinfo", "-v"]));
    assert!(seen.output.status.success(), "{}", seen.stderr);
    assert_eq!(seen.stderr, "");
    for expected in ["mlx5_0", "PORT_ACTIVE (4)", "RoCE v2"] {
        assert!(seen.stdout.contains(expected), "{}", seen.stdout);
    }
    assert!(scratch.is_clean());
}

#[test]
fn devices_and_addresses_are_those_asked_for() {
    let scratch = Scratch::new();
    // Random, and tried again, because other programs of this machine take addresses too.
    for _ in 0..5 {
        let [a, b, c, _] = fastrand::u32(..).to_be_bytes();
        let (a, c) = (a | 1, c % 200 + 1);
        let ip = format!("127.{a}.{b}.{c}");
        let seen = run(scratch.sim(&["--devices", "2", "--ip", &ip, "ibv_devinfo", "-v"]));
        if seen.stderr.contains("in use") {
            continue;
        }
        for expected in ["mlx5_0", "mlx5_1", &ip, &format!("127.{a}.{b}.{}", c + 1)] {
            assert!(
                seen.stdout.contains(expected),
                "{expected}: {}",
                seen.stdout
            );
        }
        return;
    }
    panic!("five random addresses were in use");
}

#[test]
fn exit_status_and_output_are_those_of_the_command() {
    let scratch = Scratch::new();
    for status in [0, 1, 42, 255] {
        let seen = run(scratch.shell(&format!("echo out; echo err >&2; exit {status}")));
        assert_eq!(seen.code(), Some(status));
        assert_eq!((&*seen.stdout, &*seen.stderr), ("out\n", "err\n"));
    }
    assert!(scratch.is_clean());
}

#[test]
fn arguments_and_environment_reach_the_command() {
    let scratch = Scratch::new();
    let mut command = scratch.sim(&[
        "--",
        "bash",
        "-c",
        "echo \"$0|$1|$2|$MINE|$LD_PRELOAD\"",
        "a b",
        "--ip",
        "-x",
    ]);
    command.env("MINE", "kept").env("LD_PRELOAD", "");
    let seen = run(command);
    let fields: Vec<_> = seen.stdout.trim_end().split('|').collect();
    assert_eq!(
        fields[..4],
        ["a b", "--ip", "-x", "kept"],
        "{}",
        seen.stderr
    );
    assert!(fields[4].ends_with("/libsofthca.so"), "{}", seen.stdout);
}

#[test]
fn the_devices_of_a_script_see_each_other_as_different() {
    let scratch = Scratch::new();
    let gid = "/sys/class/infiniband/mlx5_0/ports/1/gids/3";
    let seen = run(scratch.shell(&format!("read a <{gid}; b=$(cat {gid}); echo $a; echo $b")));
    let gids: Vec<_> = seen.stdout.lines().collect();
    assert_eq!(gids.len(), 2, "{}", seen.stderr);
    assert!(gids.iter().all(|gid| gid.contains("ffff:7f")), "{gids:?}");
    assert_ne!(gids[0], gids[1]);
    assert!(scratch.is_clean());
}

/// A command that has a tree, does `script`, and runs until the test ends it.
fn start(scratch: &Scratch, script: &str) -> Child {
    start_then(scratch, script, "while :; do sleep 0.05; done")
}

fn start_then(scratch: &Scratch, script: &str, then: &str) -> Child {
    let script =
        format!("read x </sys/class/infiniband/mlx5_0/node_type; {script}; echo ready; {then}");
    let mut child = scratch
        .shell(&script)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(next_line(&mut child), "ready\n");
    child
}

fn next_line(child: &mut Child) -> String {
    let mut line = String::new();
    // Unbuffered, so that nothing is lost between calls.
    BufReader::with_capacity(1, child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    line
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_signal_that_ends_the_command_ends_wv_likewise() {
    let scratch = Scratch::new();
    for (name, number) in [
        ("INT", 2),
        ("QUIT", 3),
        ("HUP", 1),
        ("TERM", 15),
        ("USR1", 10),
    ] {
        // Not the shell itself: it ignores SIGQUIT, and has its own mind about SIGINT.
        let mut child = start_then(&scratch, ":", "exec sleep 60");
        until("the shell has become the command", || {
            command_of(&child).is_some_and(|name| name == "sleep")
        });
        signal(&child, name);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(number), "{name}: {status}");
        assert!(scratch.is_clean(), "{name}");
    }
    // Not by a signal that was passed on: the command ends itself.
    let seen = run(scratch.shell("kill -SEGV $$"));
    assert_eq!(seen.output.status.signal(), Some(11));
    assert!(scratch.is_clean());
}

/// Returns the name of the program that `wv` runs.
fn command_of(wv: &Child) -> Option<String> {
    let parent = wv.id().to_string();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    // `PID (NAME) STATE PARENT ..`
    let stats =
        processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats.into_iter().find_map(|stat| {
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let is_child = rest.split_whitespace().nth(1) == Some(&parent);
        is_child.then(|| name.to_owned())
    })
}

#[test]
fn a_signal_that_the_command_handles_is_its_affair() {
    let scratch = Scratch::new();
    for name in ["INT", "TERM", "HUP", "USR1", "USR2", "WINCH"] {
        let mut child = start(&scratch, &format!("trap 'echo got; exit 7' {name}"));
        signal(&child, name);
        assert_eq!(next_line(&mut child), "got\n", "{name}");
        assert_eq!(child.wait().unwrap().code(), Some(7), "{name}");
    }
    assert!(scratch.is_clean());
}

#[test]
fn stopping_and_continuing_reach_the_command() {
    let scratch = Scratch::new();
    let mut child = start(&scratch, "trap 'echo on; exit 3' CONT");
    signal(&child, "TSTP");
    // Both stop, unless no shell could continue them (an orphaned process group). The test cannot know that before, so it waits for
    // half a second at most. The checks below hold in both cases.
    let patience = Instant::now() + Duration::from_millis(500);
    while Instant::now() < patience && !is_stopped(&child) {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "CONT");
    assert_eq!(next_line(&mut child), "on\n");
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(scratch.is_clean());
}

fn is_stopped(child: &Child) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", child.id()))
        .unwrap()
        .contains(") T ")
}

#[test]
fn a_killed_wv_takes_its_command_along_and_the_next_start_sweeps_up() {
    let scratch = Scratch::new();
    let pid = scratch.path().join("pid");
    // A process of the command that goes on without it, and has a tree of its own.
    let open = "read x </sys/class/infiniband/mlx5_0/node_type";
    let on = format!("{open}; echo $$ >{0}.new; mv {0}.new {0}", pid.display());
    let forever = "while :; do sleep 0.05; done";
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", pid.display());
    let mut child = start(&scratch, &format!("bash -c '{on}; {forever}' & {wait}"));
    let command = children(child.id());
    assert_eq!(command.len(), 1);
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    until_gone(&command[0]);
    // A start meanwhile leaves the living process its tree.
    assert!(run(scratch.shell("true")).output.status.success());
    assert!(trees(scratch.path()) >= 1);

    let other = fs::read_to_string(&pid).unwrap();
    let kill = Command::new("kill")
        .args(["-s", "KILL", other.trim()])
        .status();
    assert!(kill.unwrap().success());
    until_gone(other.trim());
    assert!(run(scratch.shell("true")).output.status.success());
    assert!(scratch.is_clean());
}

fn until_gone(pid: &str) {
    let open = Path::new("/proc").join(pid).join("fd/0");
    until(format!("process {pid} has ended"), || !open.exists());
}

/// Process trees below all directories of `wv sim`.
fn trees(runtime: &Path) -> usize {
    fs::read_dir(runtime.join("softhca"))
        .unwrap()
        .flat_map(|sim| fs::read_dir(sim.unwrap().path()).unwrap())
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count()
}

fn children(pid: u32) -> Vec<String> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap()
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_command_killed_with_its_tree_open_leaves_nothing() {
    let scratch = Scratch::new();
    let mut child = start(&scratch, ":");
    let command = children(child.id());
    assert_eq!(trees(scratch.path()), 1);
    let kill = Command::new("kill")
        .args(["-s", "KILL", &command[0]])
        .status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(scratch.is_clean());
}

#[test]
fn commands_that_preloading_cannot_reach_are_refused_in_a_sentence() {
    let scratch = Scratch::new();
    let program = fs::read("/bin/true").unwrap();
    let refused = |path: &Path, words: &[&str]| {
        let path = path.to_str().unwrap();
        run(scratch.sim(&["--", path])).assert_refused(126, &[&[path], words].concat());
    };
    refused(&scratch.file("setuid", &program, 0o4755), &["is setuid"]);
    refused(&scratch.file("setgid", &program, 0o2755), &["is setgid"]);
    let mut foreign = program.clone();
    foreign[18] = 243;
    refused(&scratch.file("foreign", &foreign, 0o755), &["RISC-V"]);
    let mut without_loader = program;
    without_loader[56] = 0; // no program headers, as far as the loader's is concerned
    refused(
        &scratch.file("static", &without_loader, 0o755),
        &["statically linked"],
    );
    refused(&scratch.file("text", b"hello\n", 0o755), &["neither"]);
    run(scratch.sim(&["--", "no-such-command"]))
        .assert_refused(127, &["no-such-command", "not found"]);
    assert!(scratch.is_clean());
}

#[test]
fn a_missing_library_is_an_error_that_names_the_places() {
    let scratch = Scratch::new();
    let wv = scratch.path().join("wv");
    fs::copy(env!("CARGO_BIN_EXE_wv"), &wv).unwrap();
    let seen = run({
        let mut command = Command::new(&wv);
        command
            .args(["sim", "--", "true"])
            .env_remove("WARPVERBS_SOFTHCA");
        command
    });
    let here = scratch.path().to_str().unwrap();
    seen.assert_refused(
        125,
        &[
            "WARPVERBS_SOFTHCA is not set",
            &format!("{here}/libsofthca.so"),
            &format!("{here}/deps/libsofthca.so"),
            &format!("{here}/../lib/warpverbs/libsofthca.so"),
        ],
    );
    let mut command = scratch.sim(&["--", "true"]);
    command.env("WARPVERBS_SOFTHCA", "/nowhere.so");
    run(command).assert_refused(125, &["WARPVERBS_SOFTHCA=/nowhere.so is no file"]);
}

#[test]
fn flags_become_variables_and_mistakes_are_reported_before_the_command() {
    let scratch = Scratch::new();
    let mut command = scratch.sim(&[
        "--fault",
        "seed=3,drop=1%",
        "--check",
        "all",
        "--carrier",
        "udp",
        "--pcap",
        "capture.pcapng",
        "--",
        "bash",
        "-c",
        "echo $SOFTHCA_FAULT $SOFTHCA_CHECK $SOFTHCA_CARRIER $SOFTHCA_PCAP",
    ]);
    command.current_dir(scratch.path());
    let seen = run(command);
    let pcap = scratch.path().join("capture.pcapng");
    assert_eq!(
        seen.stdout,
        format!("seed=3,drop=1% all udp {}\n", pcap.display()),
        "{}",
        seen.stderr
    );
    for (flag, value, words) in [
        (
            "--fault",
            "drop=1%,dup=2",
            "fault \"dup=2\": \"2\" is not a chance",
        ),
        (
            "--profile",
            "cx9",
            "SOFTHCA_PROFILE=cx9 is not cx5, cx6, cx6dx, cx7, bf3, cx7-lag or cx7-lag-hash",
        ),
        (
            "--check",
            "some",
            "\"some\" is not quiet, print, wqe, overlap or all",
        ),
        ("--carrier", "tcp", "SOFTHCA_CARRIER=tcp is not udp"),
    ] {
        let seen = run(scratch.sim(&[flag, value, "--", "touch", "started"]));
        assert_eq!(seen.code(), Some(125), "{}", seen.stderr);
        assert!(seen.stderr.contains(words), "{}", seen.stderr);
    }
    let mut command = scratch.shell("touch started");
    command.env("SOFTHCA_FAULT", "rain=1%");
    let seen = run(command);
    assert!(seen.stderr.contains("no item \"rain\""), "{}", seen.stderr);
    assert!(!Path::new("started").exists());
    assert!(scratch.is_clean());
}

#[test]
fn capabilities_are_listed_without_a_command() {
    let scratch = Scratch::new();
    let seen = run(scratch.sim(&["--list-capabilities"]));
    assert_eq!(seen.code(), Some(0), "{}", seen.stderr);
    for line in [
        "bytes of a send WQE               1024\n",
        "on-demand paging                  no",
    ] {
        assert!(seen.stdout.contains(line), "{}", seen.stdout);
    }
}

#[test]
fn findings_give_a_checked_run_a_status_of_its_own() {
    let scratch = Scratch::new();
    let found = "echo cq-overrun 1 mlx5_0: x >> $SOFTHCA_FINDINGS; exit 3";
    let told = "wv sim: 1 finding of the checker: 1 cq-overrun\n";
    for (options, command, status) in [
        (&["--check", "all"][..], found, 123),
        (&["--check", "quiet"], found, 123),
        (&["--check", "all", "--keep-status"], found, 3),
        (&[], found, 3),
        (&["--check", "all"], "exit 3", 3),
        (&["--check", "all"], "true", 0),
    ] {
        let more = [options, &["--", "bash", "-c", command]].concat();
        let seen = run(scratch.sim(&more));
        assert_eq!(seen.code(), Some(status), "{options:?} {}", seen.stderr);
        let expected = if command == found { told } else { "" };
        assert_eq!(seen.stderr, expected, "{options:?}");
    }
    for lost in ["rm $SOFTHCA_FINDINGS", "touch $SOFTHCA_FINDINGS.lost"] {
        let seen = run(scratch.sim(&["--check", "all", "--", "bash", "-c", lost]));
        assert_eq!(seen.code(), Some(125), "{}", seen.stderr);
        assert!(seen.stderr.contains("finding"), "{}", seen.stderr);
    }
    let refused = run(scratch.sim(&["--keep-status", "--", "true"]));
    assert_ne!(refused.code(), Some(0));
    assert!(refused.stderr.contains("--check"), "{}", refused.stderr);
    assert!(scratch.is_clean());
}

#[test]
fn findings_are_summed_up_at_the_end_and_do_not_change_the_exit_status() {
    let scratch = Scratch::new();
    let seen = run(scratch.shell(
        "echo cq-overrun 1 mlx5_0: x >> $SOFTHCA_FINDINGS; echo cq-overrun 2 mlx5_0: y >> $SOFTHCA_FINDINGS; exit 3",
    ));
    assert_eq!(seen.code(), Some(3));
    assert_eq!(
        seen.stderr,
        "wv sim: 2 findings of the checker: 2 cq-overrun\n"
    );
    assert_eq!(run(scratch.shell("true")).stderr, "");
    assert!(scratch.is_clean());
}

#[test]
fn ibv_devinfo_sees_the_card_of_the_profile() {
    let scratch = Scratch::new();
    for (profile, id, firmware, board) in [
        ("cx5", 0x1017, "16.35.3502", "SOFTHCA0000000005"),
        ("cx6", 0x101b, "20.39.1002", "SOFTHCA0000000006"),
        ("cx6dx", 0x101d, "22.39.1002", "SOFTHCA0000000016"),
        ("cx7", 0x1021, "28.39.1002", "SOFTHCA0000000001"),
        ("bf3", 0xa2dc, "32.39.1002", "SOFTHCA0000000003"),
        ("cx7-lag", 0x1021, "28.39.1002", "SOFTHCA0000000002"),
        ("cx7-lag-hash", 0x1021, "28.39.1002", "SOFTHCA0000000004"),
    ] {
        let seen = run(scratch.sim(&["--profile", profile, "--", "ibv_devinfo", "-v"]));
        let id = format!("vendor_part_id:\t\t\t{id}\n");
        for words in [firmware, board, &id] {
            assert!(seen.stdout.contains(words), "{words}: {}", seen.stdout);
        }
    }
}

#[test]
fn a_port_that_is_down_from_the_start_is_seen_so() {
    let scratch = Scratch::new();
    let seen = run(scratch.sim(&["--fault", "port-down", "--", "ibv_devinfo"]));
    assert!(seen.stdout.contains("PORT_DOWN (1)"), "{}", seen.stdout);
    let seen = run(scratch.sim(&["--fault", "enomem=ALLOC_UCTX", "--", "ibv_devinfo"]));
    assert_ne!(seen.code(), Some(0));
    let refused = "Failed to open device";
    assert!(seen.stderr.contains(refused), "{}", seen.stderr);
}
