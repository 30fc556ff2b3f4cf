//! `wv demo` as its users run it: rank processes over the wire of the software HCA, real activations, bad input, deaths.

mod closed;
mod direct;
mod gpuhca;
mod logged;
mod members;
mod orphans;
mod ports;
mod times;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use npyz::WriterBuilder;
use serde_json::Value;
use test_basics::limits::until;

/// Returns the arrays that a demo wrote to `directory`, by file name: what ranks computed, without maps of where their queues lie.
fn arrays(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let arrays = paths.filter(|path| path.extension().is_some_and(|extension| extension == "npy"));
    let name_and_bytes = arrays.map(|path| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    name_and_bytes.collect()
}

/// The bound of a demo in a test, in seconds, in place of the 120 of a user: a busy machine makes ranks slow. It is less than the bound of a
/// test, so that a demo that hangs says how far it is.
const BOUND: &str = "230";

/// The program with a private directory for its files, so that a test can see which files are left.
struct Demo {
    runtime: tempfile::TempDir,
    command: Command,
}

impl Demo {
    fn new(arguments: &[&str]) -> Self {
        Self::of("demo", arguments)
    }

    /// Another command of `wv` that starts ranks.
    fn of(command: &str, arguments: &[&str]) -> Self {
        let (name, runtime) = (command, tempfile::tempdir().unwrap());
        let is_bound = name != "demo" || arguments.contains(&"--timeout");
        let bound = ["--timeout", BOUND];
        let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
        command
            .arg(name)
            .args(bound.iter().filter(|_| !is_bound))
            .args(arguments)
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stdin(Stdio::null());
        Self { runtime, command }
    }

    fn set(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Returns the demo as the last arguments of `start`, which starts it.
    fn within(mut self, start: &Command) -> Self {
        let mut command = Command::new(start.get_program());
        command
            .args(start.get_args())
            .arg(self.command.get_program())
            .args(self.command.get_args())
            .stdin(Stdio::null());
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        self.command = command;
        self
    }

    /// Runs it to its end and checks that it leaves no file and no process.
    fn run(mut self) -> Output {
        let output = self.command.output().unwrap();
        self.nothing_is_left();
        output
    }

    fn nothing_is_left(&self) {
        let place = self.runtime.path().join("softhca");
        let left: Vec<PathBuf> = fs::read_dir(&place)
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        assert!(left.is_empty(), "{left:?}");
        let ranks = ranks_of(self.runtime.path());
        assert!(ranks.is_empty(), "rank processes {ranks:?} are left");
    }

    /// A run that verifies; its JSON.
    fn verified(self) -> Value {
        let value = self.json();
        assert_eq!(value["verified"], true);
        value
    }

    /// A run that is refused; exit status and message.
    fn refused(self) -> (i32, String) {
        let output = self.run();
        assert!(
            output.stdout.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().expect("an exit status"), errors)
    }
}

/// Rank processes whose store lies below `runtime`.
fn ranks_of(runtime: &Path) -> Vec<u32> {
    let wanted = runtime.to_str().unwrap();
    let is_rank = |pid: &u32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        arguments.contains("demo-rank") && arguments.contains(wanted)
    };
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(is_rank).collect()
}

/// Counts of `./x test full` are asked for by this variable.
fn full() -> bool {
    env::var_os("WV_TEST_FULL").is_some()
}

#[test]
fn real_activations_travel_between_four_rank_processes() {
    let value = Demo::new(&["--steps", "3", "--json"]).verified();
    assert_eq!(value["label"], "softhca+simt");
    assert_eq!(
        (&value["ranks"], &value["hidden"]),
        (&4.into(), &384.into())
    );
    let sum = |name: &str| -> u64 {
        let ranks = value["per_rank"].as_array().unwrap();
        ranks
            .iter()
            .map(|rank| rank["counters"][name].as_u64().unwrap())
            .sum()
    };
    // Two signals to each of three peers, per rank and step, and nothing else inline.
    assert_eq!(sum("inline_write_requests"), 4 * 3 * 3 * 2);
    assert_eq!(sum("tx_bytes"), sum("rx_bytes"));
    assert_eq!((sum("findings"), sum("error_cqes")), (0, 0));
    assert!(sum("tx_wqes") > 4 * 3 * 128);
}

#[test]
fn activations_arrive_however_the_qps_are_rung_and_where_their_queues_lie() {
    let modes = [
        ("WARPVERBS_DOORBELL", "record"),
        ("WARPVERBS_DOORBELL", "no-record"),
        ("WARPVERBS_DOORBELL", "mailbox"),
        ("WARPVERBS_QUEUES", "host"),
        ("WARPVERBS_CQ", "wide"),
        ("WARPVERBS_LOG_RECV_DEPTH", "5"),
    ];
    for (name, value) in modes {
        let arguments = ["--ranks", "2", "--steps", "2", "--tokens", "32", "--json"];
        Demo::new(&arguments).set(name, value).verified();
    }
}

#[test]
fn activations_as_fp8_and_by_rank_stay_within_the_limit_of_the_format() {
    let formats = [
        ("fp8", "rank"),
        ("fp8-pow2", "expert"),
        ("fp8-ue8m0", "rank"),
        ("bf16", "rank"),
    ];
    for (format, layout) in formats {
        let value = Demo::new(&[
            "--ranks", "2", "--steps", "2", "--tokens", "24", "--format", format, "--layout",
            layout, "--json",
        ])
        .verified();
        let number = |name: &str| value[name].as_f64().unwrap();
        let (far, limit) = (number("difference"), number("difference_limit"));
        match format {
            "bf16" => assert_eq!((far, limit), (0.0, 0.0)),
            "fp8" => assert!(far > 0.0 && far <= 9e-4 && limit == 9e-4, "{value}"),
            _ => assert!(far > 0.0 && far <= 7e-3 && limit == 7e-3, "{value}"),
        }
        let text = value["format"].as_str().unwrap();
        assert_eq!(text.starts_with("FP8"), format != "bf16", "{text}");
    }
    let (status, message) = Demo::new(&["--hidden", "200", "--format", "fp8"]).refused();
    assert_eq!(status, 2);
    assert!(
        message.contains("hidden is 200, which is not a multiple of 128"),
        "{message}"
    );
}

#[test]
fn a_mode_that_is_none_is_refused_with_its_words() {
    let (status, message) = Demo::new(&[]).set("WARPVERBS_CQ", "square").refused();
    assert_eq!(status, 2, "{message}");
    assert!(
        message.contains("WARPVERBS_CQ is 'square'; it must be one of collapsed, wide"),
        "{message}"
    );
}

#[test]
fn activations_arrive_over_a_wire_that_loses_doubles_and_reorders_packets() {
    let value = Demo::new(&["--steps", "2", "--tokens", "64", "--json"])
        .set("SOFTHCA_FAULT", "seed=7,drop=1%,dup=0.5%,reorder=1%")
        .verified();
    let sum = |name: &str| -> u64 {
        let ranks = value["per_rank"].as_array().unwrap();
        ranks
            .iter()
            .map(|rank| rank["counters"][name].as_u64().unwrap())
            .sum()
    };
    assert!(sum("retransmissions") > 0, "{value}");
    assert_eq!((sum("findings"), sum("error_cqes")), (0, 0));
}

#[test]
fn the_table_says_what_was_counted_and_on_what() {
    let output = Demo::new(&["--ranks", "2", "--steps", "1", "--tokens", "32"]).run();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    for words in [
        "softhca+simt",
        "equals the scalar reference, bit for bit",
        "doorbells",
        "signals",
        "CQEs",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_hundred_steps_of_two_ranks_verify() {
    let steps = if full() { "1000" } else { "100" };
    let value = Demo::new(&[
        "--ranks",
        "2",
        "--tokens",
        "16",
        "--hidden",
        "256",
        "--experts",
        "8",
        "--top-k",
        "2",
        "--steps",
        steps,
        "--json",
        "--timeout",
        "1200",
    ])
    .verified();
    assert_eq!(value["steps"].to_string(), steps);
}

#[test]
fn four_ranks_verify_under_random_hca_schedules_and_skewed_routing() {
    let seeds = if full() { 20 } else { 3 };
    for seed in 0..seeds {
        let kind = ["uniform", "zipf", "all-to-one"][seed % 3];
        let seed = seed.to_string();
        Demo::new(&[
            "--seed",
            &seed,
            "--tokens",
            "16",
            "--hidden",
            "256",
            "--experts",
            "10",
            "--top-k",
            "3",
            "--steps",
            "4",
            "--routing-kind",
            kind,
            "--json",
        ])
        .set("SOFTHCA_SCHEDULE_SEED", &seed)
        .verified();
    }
}

#[test]
fn a_dump_holds_inputs_and_outputs_of_every_step_and_rank() {
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("dump");
    let arguments = [
        "--ranks", "2", "--steps", "2", "--tokens", "8", "--json", "--dump",
    ];
    Demo::new(&[&arguments[..], &[dump.to_str().unwrap()]].concat()).verified();
    for name in [
        "tokens", "routing", "weights", "received", "sources", "output",
    ] {
        for (step, rank) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let path = dump.join(format!("step{step}_rank{rank}_{name}.npy"));
            let array = npyz::NpyFile::new(fs::File::open(&path).unwrap()).unwrap();
            assert!(array.len() > 0, "{}", path.display());
        }
    }
    for rank in 0..2 {
        let map = fs::read_to_string(dump.join(format!("rank{rank}_control_heap.txt"))).unwrap();
        assert!(map.starts_with("rail 0, control heap, "), "{map}");
        assert!(
            map.contains("% fragmented\n") && map.contains(" live\n"),
            "{map}"
        );
    }
}

#[test]
fn explain_prints_the_bytes_without_running() {
    let output = Demo::new(&[
        "--explain",
        "--ranks",
        "8",
        "--hidden",
        "7168",
        "--experts",
        "256",
    ])
    .run();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    let line = |name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(line("QPs per rank").contains(" 28 "), "{text}");
    assert!(
        line("output recv_x, bytes").contains("469,762,048"),
        "{text}"
    );
    assert!(
        line("control heap per QP, bytes").contains("74,624"),
        "{text}"
    );
}

#[test]
fn bad_input_is_one_sentence_with_value_and_limit() {
    let directory = tempfile::tempdir().unwrap();
    let twice = directory.path().join("twice.npy");
    let mut array = npyz::WriteOptions::new()
        .default_dtype()
        .shape(&[2, 2])
        .writer(fs::File::create(&twice).unwrap())
        .begin_nd()
        .unwrap();
    array.extend([0i32, 1, 7, 7]).unwrap();
    array.finish().unwrap();
    let twice = twice.to_str().unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["--gpu", "0,1,2"], "--gpu names 3 for 4 ranks"),
        (
            &[
                "--ranks",
                "3",
                "--gpu",
                "0,1,2",
                "--device",
                "mlx5_0,mlx5_1",
            ],
            "--device names 2 for 3 ranks",
        ),
        (
            &["--hidden", "100"],
            "hidden is 100, which is not a multiple of 8",
        ),
        (&["--top-k", "33"], "top-k is 33; it must be 1 to 32"),
        (&["--ranks", "65"], "--ranks is 65; it must be 1 to 64"),
        (
            &["--tokens", "70000"],
            "max_tokens is 70000; it must be 1 to 65534",
        ),
        (&["--routing", twice], "token 1 chooses expert 7 twice"),
        (
            &["--routing", twice, "--experts", "7"],
            "token 1 chooses expert 7; expert ids are 0 to 6",
        ),
        (
            &["--tokens-file", "/none.npy"],
            "/none.npy: No such file or directory",
        ),
        (
            &["--gpu", "fast"],
            "GPU is fast; it must be auto, simt, simt-dmabuf or the number of a CUDA device",
        ),
    ];
    for (arguments, words) in cases {
        let (status, message) = Demo::new(arguments).refused();
        assert!(
            status != 0 && message.contains(words),
            "{arguments:?}: {status}: {message}"
        );
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

#[test]
fn a_missing_library_is_named_with_the_places_that_were_looked_at() {
    let (status, message) = Demo::new(&["--device", "sim"])
        .set("WARPVERBS_SOFTHCA", "/nonexistent/libsofthca.so")
        .refused();
    assert_eq!(status, 1);
    assert!(
        message.contains("WARPVERBS_SOFTHCA=/nonexistent/libsofthca.so is no file"),
        "{message}"
    );
}

#[test]
fn a_device_that_is_not_there_is_named_with_those_that_are() {
    let (status, message) = Demo::new(&["--device", "mlx5_77"]).refused();
    assert_eq!(status, 1);
    assert!(message.contains("no RDMA device mlx5_77"), "{message}");
}

/// Each rank reports its way once, before the result.
#[test]
fn every_rank_tells_its_path_once() {
    let output = Demo::new(&[
        "--ranks", "2", "--steps", "1", "--device", "sim", "--gpu", "simt",
    ])
    .run();
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for rank in 0..2 {
        let start = format!("rank {rank}: simt -> mlx5_0 port 1, RoCEv2 127.");
        let lines: Vec<_> = errors
            .lines()
            .filter(|line| line.starts_with(&start))
            .collect();
        assert_eq!(lines.len(), 1, "{errors}");
        let end = " (gid 3, lo), MTU 4096, class 0 (default), memory by address, doorbells by the GPU, signals inline";
        assert!(lines[0].ends_with(end), "{errors}");
    }
}

/// In a program on software HCAs, those are devices like any other.
fn on_two_devices(arguments: &[&str]) -> Output {
    let command = [
        &[
            "sim",
            "--devices",
            "2",
            "--",
            env!("CARGO_BIN_EXE_wv"),
            "demo",
        ],
        arguments,
    ];
    let mut wv = Command::new(env!("CARGO_BIN_EXE_wv"));
    wv.args(command.concat())
        .args(["--steps", "1", "--gpu", "simt", "--tokens", "16"]);
    wv.output().unwrap()
}

#[test]
fn ranks_take_named_devices_in_turn() {
    let output = on_two_devices(&["--ranks", "4", "--device", "mlx5_1,mlx5_0"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    for (rank, device) in [(0, "mlx5_1"), (1, "mlx5_0"), (2, "mlx5_1"), (3, "mlx5_0")] {
        let line = format!("rank {rank}: simt -> {device} port 1, ");
        assert!(errors.contains(&line), "{errors}");
    }
    let uneven = on_two_devices(&["--ranks", "3", "--device", "mlx5_1,mlx5_0"]);
    let errors = String::from_utf8_lossy(&uneven.stderr).into_owned();
    assert_eq!(uneven.status.code(), Some(2), "{errors}");
    assert!(errors.contains("--device names 2 for 3 ranks"), "{errors}");
}

#[test]
fn what_auto_passes_over_is_named_before_it_takes_software_hcas() {
    let output = on_two_devices(&["--ranks", "2", "--device", "^mlx5_0,mlx5_1"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let line = |text: &str| errors.lines().position(|line| line == text);
    let passed_over = [0, 1].map(|number| {
        line(&format!(
            "wv demo: passes over mlx5_{number} port 1: the configuration leaves it out"
        ))
    });
    let taken = line("wv demo: software HCAs, one per rank");
    assert!(
        passed_over
            .iter()
            .all(|place| place.is_some() && *place < taken),
        "{errors}"
    );
    let auto = on_two_devices(&["--ranks", "2", "--device", "^mlx5_0"]);
    let errors = String::from_utf8_lossy(&auto.stderr).into_owned();
    assert!(
        errors.contains("rank 1: simt -> mlx5_1 port 1, "),
        "{errors}"
    );
}

#[test]
fn an_address_in_use_ends_all_ranks_with_an_error_that_names_it() {
    let (status, message) = Demo::new(&["--ranks", "2", "--device", "sim"])
        .set("SOFTHCA_IP", "127.77.77.77")
        .refused();
    assert_eq!(status, 1);
    for told in [
        "none is listed; load",
        "(softhca: address 127.77.77.77:4791 is in use)",
    ] {
        assert!(message.contains(told), "{told}: {message}");
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_others_and_is_named() {
    let demo = Demo::new(&["--steps", "100000", "--tokens", "16", "--timeout", "600"]);
    let (status, message) = disturb(demo, |runtime| {
        let pid = wait_for_ranks(runtime, 4)[2];
        wait_for_steps(runtime, 4);
        assert!(signal(pid, "-KILL"));
    });
    assert_eq!(status, Some(1), "{message}");
    assert!(
        message.contains("its process ended: signal: 9"),
        "{message}"
    );
}

#[test]
fn ranks_end_when_the_demo_is_killed_and_the_next_start_sweeps_up() {
    let runtime = tempfile::tempdir().unwrap();
    let place = runtime.path().join("softhca");
    let start = |arguments: &[&str]| {
        let mut demo = Demo::new(arguments);
        demo.command
            .env("XDG_RUNTIME_DIR", runtime.path())
            .stderr(Stdio::null())
            .stdout(Stdio::null());
        demo.command.spawn().unwrap()
    };
    let mut first = start(&["--steps", "100000", "--tokens", "16"]);
    wait_for_steps(runtime.path(), 4);
    first.kill().unwrap();
    first.wait().unwrap();
    until("the ranks end", || ranks_of(runtime.path()).is_empty());
    assert!(
        start(&["--ranks", "1", "--steps", "1", "--tokens", "8"])
            .wait()
            .unwrap()
            .success()
    );
    let left = fs::read_dir(&place).map(Iterator::count).unwrap_or(0);
    assert_eq!(left, 0);
}

#[test]
fn a_run_that_takes_too_long_is_ended() {
    let demo = Demo::new(&["--steps", "10000000", "--tokens", "16", "--timeout", "2"]);
    let start = Instant::now();
    let (status, message) = disturb(demo, |_| ());
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(status, Some(1), "{message}");
    assert!(
        message.contains("not done within 2 s (--timeout): ranks have verified"),
        "{message}"
    );
}

/// Runs a demo, does something to it, and takes its end: exit status and what it said.
fn disturb(mut demo: Demo, what: impl FnOnce(&Path)) -> (Option<i32>, String) {
    let child = demo
        .command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    what(demo.runtime.path());
    let start = Instant::now();
    let output = child.wait_with_output().unwrap();
    println!("ended {:?} later", start.elapsed());
    demo.nothing_is_left();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), message)
}

/// Waits until so many rank processes run.
fn wait_for_ranks(runtime: &Path, count: usize) -> Vec<u32> {
    let mut ranks = Vec::new();
    until(format_args!("{count} rank processes"), || {
        ranks = ranks_of(runtime);
        ranks.len() == count
    });
    ranks
}

/// Waits until `count` ranks have come to the barrier before their steps.
fn wait_for_steps(runtime: &Path, count: usize) {
    for rank in 0..count {
        wait_for_record(runtime, &format!("barrier/start/1/{rank}"));
    }
}

/// Waits until ranks have written this record into their store, whose directory of a record has one with its versions.
fn wait_for_record(runtime: &Path, key: &str) {
    let inside = |directory: &Path| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    until(format_args!("the record {key}"), || {
        let places = inside(&runtime.join("softhca"));
        let homes = places
            .iter()
            .map(|place| place.join(format!("store/{key}@")));
        homes
            .flat_map(|home| inside(&home))
            .any(|room| !inside(&room).is_empty())
    });
}

/// Sends a signal. Returns whether the process exists.
fn signal(pid: u32, signal: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.args([signal, &pid.to_string()]).stderr(Stdio::null());
    kill.status().unwrap().success()
}
