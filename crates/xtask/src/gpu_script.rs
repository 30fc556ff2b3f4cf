//! Tests of .ci/gpu-run.sh, with shell scripts in place of the packed programs. They check what a run leaves, whenever it ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The script in place of `wv`. The probe and each step do what a shell script of the step's name in the folder SCRIPTED does. Without such
/// a script a probe finds no driver, and a step ends at once.
const WV: &str = r#"#!/bin/sh
case "$*" in
    *"--calls 1") step=probe ;;
    *"--doorbell device"*) step=post-device ;;
    *"--doorbell host"*) step=post-host ;;
    bench*) step=$2 ;;
    *"--device gpuhca"*"--ranks 2"*) step=gpuhca-2 ;;
    *"--device gpuhca"*"--ranks 4"*) step=gpuhca-4 ;;
    *) step=$1 ;;
esac
while [ $# -gt 0 ]; do [ "$1" != --json ] || json=$2; shift; done
if [ -e "$SCRIPTED/$step" ]; then . "$SCRIPTED/$step"; fi
if [ $step = probe ]; then echo "wv bench: no CUDA driver: libcuda.so.1 is not there" && exit 1; fi
[ -z "${json:-}" ] || printf '{"of": "%s"}\n' $step >"$json"
"#;

/// The programs that the script calls. `nvidia-smi` of this machine must not be one of them.
const TOOLS: [&str; 16] = [
    "sh", "cat", "cp", "date", "dirname", "env", "grep", "head", "mkdir", "mktemp", "mv", "rm",
    "sed", "sleep", "tail", "timeout",
];

/// The bound of a wait for what must come. It is less than the five minutes of nextest.
const HANG: Duration = Duration::from_secs(240);

/// A pack whose programs are shell scripts.
struct Pack(TempDir);

impl Pack {
    fn new() -> Self {
        let pack = Self(tempfile::tempdir().unwrap());
        for folder in ["bin", "tests", "dev", "tools", "scripted"] {
            fs::create_dir(pack.path(folder)).unwrap();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/gpu-run.sh");
        fs::copy(script, pack.path("run.sh")).unwrap();
        fs::write(pack.path("COMMIT"), "0123456789ab\n").unwrap();
        pack.program("bin/wv", WV);
        for tool in TOOLS.iter().chain(&["sort", "tr"]) {
            let mut places = ["/usr/bin", "/bin"]
                .iter()
                .map(|folder| Path::new(folder).join(tool));
            let found = places.find(|path| path.exists()).unwrap();
            symlink(found, pack.path("tools").join(tool)).unwrap();
        }
        // For a shell script the loader prints nothing, so the script prints the line itself.
        pack.scripted(
            "demo",
            "[ -z \"${LD_DEBUG:-}\" ] || echo \"calling init: ${0%/bin/wv}/lib/libmlx5.so.1\" >&2",
        );
        pack
    }

    fn path(&self, of: &str) -> PathBuf {
        self.0.path().join(of)
    }

    fn program(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Sets what a step does.
    fn scripted(&self, step: &str, text: &str) {
        fs::write(self.path("scripted").join(step), text).unwrap();
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = Command::new(self.path("tools/sh"));
        command
            .arg(self.path("run.sh"))
            .arg(self.path("results"))
            .args(["--dev", &self.path("dev").to_string_lossy()])
            .args(options)
            .env_clear()
            .env("PATH", self.path("tools"))
            .env("TMPDIR", self.0.path())
            .env("LD_LIBRARY_PATH", "/where/the/driver/is")
            .env("SCRIPTED", self.path("scripted"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str]) -> Output {
        self.command(options).output().unwrap()
    }

    /// Returns what the run has written about this device.
    fn results(&self, device: &str) -> Value {
        let file = self.path("results").join(format!("{device}.json"));
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }
}

/// Returns names and outcomes of the steps.
fn steps(results: &Value) -> Vec<(&str, &str)> {
    let steps = results["steps"].as_array().unwrap().iter();
    steps
        .map(|step| {
            (
                step["name"].as_str().unwrap(),
                step["outcome"].as_str().unwrap(),
            )
        })
        .collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const ON_SIMT: [&str; 11] = [
    "facts",
    "primitives",
    "registers",
    "post-device",
    "post-host",
    "post-checked",
    "moe",
    "gpuhca-2",
    "gpuhca-4",
    "demo",
    "libraries",
];

#[test]
fn every_step_runs_in_order_with_its_figures_and_the_drivers_folder() {
    let pack = Pack::new();
    pack.program(
        "tests/put",
        "#!/bin/sh\necho \"test result: ok on $WARPVERBS_TEST_GPU\"\n",
    );
    pack.scripted(
        "primitives",
        r#"echo "{\"path\": \"$LD_LIBRARY_PATH\", \"cache\": \"$CUDA_CACHE_PATH\", \"queues\": $CUDA_DEVICE_MAX_CONNECTIONS}" >"$json"; exit"#,
    );
    let output = pack.run(&[]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("no GPU here") && text.contains("gpu run: ok"),
        "{text}"
    );
    let results = pack.results("simt");
    let mut expected: Vec<_> = ON_SIMT.map(|step| (step, "ok")).to_vec();
    expected.push(("tests-put", "ok"));
    assert_eq!(steps(&results), expected);
    assert_eq!(
        (&results["ended"], &results["speed"]),
        (&"ok".into(), &false.into())
    );
    let data = |step: usize| &results["steps"][step]["data"];
    assert_eq!(data(3)["of"], "post-device");
    let lib = pack.path("lib").display().to_string();
    assert_eq!(data(1)["path"], format!("{lib}:/where/the/driver/is"));
    assert_eq!(data(1)["cache"], pack.path("jit").display().to_string());
    assert_eq!(data(1)["queues"], 32);
    assert!(text.contains("test result: ok on simt"), "{text}");
}

#[test]
fn other_projects_are_measured_if_the_pack_has_them_and_shown_in_a_table() {
    let pack = Pack::new();
    fs::create_dir(pack.path("others")).unwrap();
    pack.scripted("others", "echo \"table of $*\"");
    let output = pack.run(&["--from", "others"]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    let results = pack.results("simt");
    assert_eq!(steps(&results)[0], ("others", "ok"));
    assert_eq!(results["steps"][0]["data"]["of"], "others");
    assert!(text.contains("table of "), "{text}");
    // A step that finds no kernel to run has failed.
    pack.scripted("others", "echo 'no sm_NN/NAME.ptx'; exit 1");
    let output = pack.run(&["--from", "others"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert_eq!(steps(&pack.results("simt"))[0], ("others", "failed (1)"));
}

#[test]
fn programs_are_unpacked_for_one_run_and_half_a_file_of_them_is_refused() {
    let pack = Pack::new();
    let tar = pack.path("files.tar.gz");
    let packed = Command::new("tar")
        .arg("-C")
        .args([pack.0.path(), Path::new("-czf"), &tar])
        .args(["bin", "tests"])
        .status()
        .unwrap();
    assert!(packed.success());
    for folder in ["bin", "tests"] {
        fs::remove_dir_all(pack.path(folder)).unwrap();
    }
    for tool in ["tar", "gzip"] {
        symlink(
            Path::new("/usr/bin").join(tool),
            pack.path("tools").join(tool),
        )
        .unwrap();
    }
    let listed = || {
        let entries = fs::read_dir(pack.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.filter(|name| name != "results").collect();
        names.sort();
        names
    };
    let before = listed();
    for _ in 0..2 {
        let output = pack.run(&[]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(
            steps(&pack.results("simt")),
            ON_SIMT.map(|step| (step, "ok"))
        );
        assert_eq!(listed(), before);
    }
    let whole = fs::read(&tar).unwrap();
    fs::write(&tar, &whole[..whole.len() / 2]).unwrap();
    let output = pack.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(
        text.contains("files.tar.gz cannot be unpacked into"),
        "{text}"
    );
}

#[test]
fn a_gpu_that_no_kernel_runs_on_is_a_failure_and_says_why() {
    let pack = Pack::new();
    fs::write(pack.path("dev/nvidia0"), "").unwrap();
    let output = pack.run(&[]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("dev/nvidia0 is there), and no kernel runs on it: wv bench: no CUDA driver"),
        "{text}"
    );
    assert!(!text.contains("gpu run: ok"), "{text}");
    let results = pack.results("GPU-that-does-not-run");
    assert_eq!(results["ended"], "failed");
    let outcome = results["steps"][0]["outcome"].as_str().unwrap();
    assert!(outcome.contains("libcuda.so.1 is not there"), "{outcome}");
    // The run also fails if `--require-gpu` asks for a GPU, and if the machine has the tool of the driver.
    fs::remove_file(pack.path("dev/nvidia0")).unwrap();
    assert_eq!(pack.run(&["--require-gpu"]).status.code(), Some(1));
    pack.program("tools/nvidia-smi", "#!/bin/sh\n");
    let text = said(&pack.run(&[]));
    assert!(text.contains("nvidia-smi is there"), "{text}");
    // A driver that hangs is ended, and a broken driver is never taken for a missing one.
    fs::remove_file(pack.path("tools/nvidia-smi")).unwrap();
    pack.scripted(
        "probe",
        "echo 'cuInit: CUDA_ERROR_SYSTEM_NOT_READY (802)'; exit 1",
    );
    let output = pack.run(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("SYSTEM_NOT_READY (802)"),
        "{}",
        said(&output)
    );
}

#[test]
fn on_a_gpu_the_results_have_its_name_and_its_own_tests_run() {
    let pack = Pack::new();
    fs::write(pack.path("dev/nvidia0"), "").unwrap();
    pack.scripted(
        "probe",
        "echo 'posting on sink+NVIDIA H200 (test): a table'; exit",
    );
    pack.program("tests/gpu", "#!/bin/sh\necho \"test result: $*\"\n");
    let output = pack.run(&[]);
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("--include-ignored"), "{text}");
    let results = pack.results("NVIDIA-H200--test-");
    assert_eq!(results["ran_on"], "softhca+NVIDIA H200 (test)");
    assert_eq!(results["speed"], true);
    assert_eq!(steps(&results).last(), Some(&("tests-gpu", "ok")));
}

#[test]
fn on_a_gpu_with_nvidias_profiler_the_moe_kernels_are_profiled() {
    let pack = Pack::new();
    fs::write(pack.path("dev/nvidia0"), "").unwrap();
    pack.scripted("probe", "echo 'posting on sink+NVIDIA H200: a table'; exit");
    pack.program("tests/gpu", "#!/bin/sh\n");
    pack.program(
        "tools/ncu",
        "#!/bin/sh\necho \"$*\" >>\"$SCRIPTED/profiled\"; echo '  Duration us 33.50'; exit 9\n",
    );
    let output = pack.run(&[]);
    assert!(output.status.success(), "{}", said(&output));
    let results = pack.results("NVIDIA-H200");
    let found = steps(&results);
    for step in ["profile-128", "profile-4096"] {
        assert!(found.contains(&(step, "ok")), "{found:?}");
    }
    let profiled = fs::read_to_string(pack.path("scripted/profiled")).unwrap();
    let lines: Vec<_> = profiled.lines().collect();
    assert_eq!(lines.len(), 2, "{profiled}");
    assert!(lines[0].contains("--launch-skip 172 ") && lines[1].contains("--launch-skip 4 "));
    assert!(
        lines
            .iter()
            .all(|line| line.contains("bench moe --gpu 0 --alone"))
    );
}

#[test]
fn a_profiler_that_measures_nothing_is_a_failed_step() {
    let pack = Pack::new();
    fs::write(pack.path("dev/nvidia0"), "").unwrap();
    pack.scripted("probe", "echo 'posting on sink+NVIDIA H200: a table'; exit");
    pack.program("tests/gpu", "#!/bin/sh\n");
    pack.program("tools/ncu", "#!/bin/sh\necho 'no counters here'\n");
    let output = pack.run(&[]);
    assert!(!output.status.success(), "{}", said(&output));
    let results = pack.results("NVIDIA-H200");
    let found = steps(&results);
    assert!(found.contains(&("profile-128", "failed (1)")), "{found:?}");
}

#[test]
fn a_step_over_its_limit_is_ended_and_named_and_the_next_one_runs() {
    let pack = Pack::new();
    // The sleep would outlast the bound of this test.
    pack.scripted("primitives", "sleep 600 & echo $! >\"$SCRIPTED/pid\"; wait");
    pack.scripted("registers", "echo half >\"$json\"; exit 3");
    let output = pack.run(&["--limit", "5"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let results = pack.results("simt");
    let found = steps(&results);
    assert_eq!(
        &found[..4],
        [
            ("facts", "ok"),
            ("primitives", "over its limit of 5 s"),
            ("registers", "failed (3)"),
            ("post-device", "ok")
        ]
    );
    assert_eq!(
        (found.len(), &results["ended"]),
        (ON_SIMT.len(), &"failed".into())
    );
    // The programs that the step had started have ended with it.
    let pid = fs::read_to_string(pack.path("scripted/pid")).unwrap();
    let state = format!("/proc/{}/stat", pid.trim());
    let gone = || fs::read_to_string(&state).map_or(true, |stat| stat.contains(") Z "));
    let begun = Instant::now();
    while !gone() {
        assert!(begun.elapsed() < HANG, "sleep runs on");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_is_cut_by_its_budget_and_another_one_goes_on() {
    let pack = Pack::new();
    // The sleep is longer than the budget and the bound of this test.
    pack.scripted("post-device", "sleep 600");
    let output = pack.run(&["--budget", "20"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("cut by the budget of 20 s"), "{text}");
    assert!(text.contains("--from post-device"), "{text}");
    let results = pack.results("simt");
    assert_eq!(results["go_on_with"], "post-device");
    assert_eq!(results["ended"], "unfinished");
    assert_eq!(
        steps(&results),
        ON_SIMT[..3]
            .iter()
            .map(|step| (*step, "ok"))
            .collect::<Vec<_>>()
    );
    pack.scripted("post-device", "");
    let output = pack.run(&["--from", "post-device"]);
    assert!(output.status.success(), "{}", said(&output));
    let results = pack.results("simt");
    assert_eq!(steps(&results), ON_SIMT.map(|step| (step, "ok")));
    assert_eq!(results["ended"], "ok");
    // A run from the start forgets earlier results.
    pack.scripted("facts", "exit 1");
    pack.run(&["--budget", "20"]);
    assert_eq!(steps(&pack.results("simt"))[0], ("facts", "failed (1)"));
    // A run that goes on does not forget what has failed before.
    let output = pack.run(&["--from", "primitives"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
}

#[test]
fn a_run_that_is_killed_leaves_the_steps_that_it_has_finished() {
    let kill_after = |pause: Duration| {
        let pack = Pack::new();
        for step in ON_SIMT {
            pack.scripted(step, "sleep 0.25");
        }
        let mut command = pack.command(&[]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let mut run: Child = command.spawn().unwrap();
        thread::sleep(pause);
        let group = format!("-{}", run.id());
        let killed = Command::new("kill").args(["-KILL", "--", &group]).status();
        assert!(killed.unwrap().success());
        run.wait().unwrap();
        // The steps lead process groups of their own, and end soon.
        if pack.path("results/simt.json").exists() {
            let results = pack.results("simt");
            let found = steps(&results);
            let expected: Vec<_> = ON_SIMT.map(|step| (step, "ok")).to_vec();
            assert_eq!(found[..], expected[..found.len()], "{pause:?}");
            assert_eq!(results["ended"], "running", "{pause:?}");
            let records = fs::read_dir(pack.path("results/steps")).unwrap();
            let is_record = |name: &str| name.ends_with(".json");
            let records = records
                .filter(|file| is_record(&file.as_ref().unwrap().file_name().to_string_lossy()));
            // The last step may have ended before it got its place in the results.
            assert!(found.len() + 1 >= records.count(), "{pause:?}");
            found.len()
        } else {
            0
        }
    };
    let pauses = (1..=10).map(|nth| Duration::from_millis(nth * 190));
    let finished: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> = pauses
            .map(|pause| scope.spawn(move || kill_after(pause)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    println!("finished steps by the time of the kill: {finished:?}");
    assert!(finished.iter().any(|steps| *steps > 0), "{finished:?}");
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let pack = Pack::new();
    for (options, reason) in [
        (
            &["--from", "nothing"][..],
            "no step 'nothing'; the steps are: facts primitives",
        ),
        (&["--from"], "--from needs a value"),
        (
            &["--budget", "0"],
            "'0' is no number of seconds from 1 to 99999",
        ),
        (&["--budget", "8"], "--budget is 8: more than 8 seconds"),
        (&["--limit", "1s"], "'1s' is no number of seconds"),
        (&["--all"], "there is no option --all"),
    ] {
        let output = pack.run(options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        assert!(
            said(&output).contains(reason),
            "{options:?}: {}",
            said(&output)
        );
        assert!(
            said(&output).contains("run.sh [RESULTS]"),
            "{}",
            said(&output)
        );
    }
}
