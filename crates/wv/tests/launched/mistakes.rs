//! What is wrong with a job is said once, by name.

use std::process::Command;

use test_support::fake_cuda::FakeDriver;

use crate::job::{Ended, Job, Launcher, clean, times};

const DEMO: [&str; 6] = ["demo", "--launched", "--device", "sim", "--steps", "1"];

fn all_fail(ended: &[Ended]) {
    for one in ended {
        assert_eq!(one.status, Some(1), "{ended:#?}");
        assert_eq!(one.out, "", "{ended:#?}");
    }
}

#[test]
fn a_missing_store_is_named_once() {
    for command in ["demo", "doctor"] {
        let arguments: &[&str] = match command {
            "demo" => &DEMO,
            _ => &["doctor", "--launched"],
        };
        let job = Job::new(Launcher::Torchrun, arguments).in_store("");
        let ended = job.run(&[0, 1, 2], 3, |_| Vec::new());
        all_fail(&ended);
        assert_eq!(times(&ended, "WARPVERBS_STORE is not set"), 1, "{ended:#?}");
        assert_eq!(times(&ended, "etcd://HOST:PORT/PREFIX"), 1, "{ended:#?}");
    }
    let job = Job::new(Launcher::Srun, &DEMO).in_store("file:///nonexistent/store");
    let ended = job.run(&[0, 1], 2, |_| Vec::new());
    all_fail(&ended);
    assert_eq!(times(&ended, "/nonexistent/store"), 1, "{ended:#?}");
}

/// The second start ends no other rank. Those find that a rank is missing, when the shortest wait for it is over.
fn the_second_is_named_once(ranks: &[u32], taken: u32) {
    let arguments = [&DEMO[..], &["--timeout", "20"]].concat();
    let job = Job::new(Launcher::Torchrun, &arguments);
    let ended = job.run(ranks, 3, |_| Vec::new());
    all_fail(&ended);
    let said = format!("rank {taken} has joined already: another process has this rank");
    assert_eq!(times(&ended, &said), 1, "{ended:#?}");
}

#[test]
fn two_ranks_with_one_number_are_named_once() {
    std::thread::scope(|scope| {
        scope.spawn(|| the_second_is_named_once(&[0, 1, 1], 1));
        scope.spawn(|| the_second_is_named_once(&[0, 0, 2], 0));
    });
}

#[test]
fn a_rank_whose_local_rank_has_no_gpu_is_named_once() {
    FakeDriver::new("devices 2").run(|_| {
        let job = Job::new(Launcher::Torchrun, &DEMO);
        let ended = job.run(&[0, 1, 2], 3, |_| Vec::new());
        all_fail(&ended);
        assert_eq!(times(&ended, "rank 2: "), 1, "{ended:#?}");
        assert_eq!(
            times(&ended, "below the number of GPUs that this process sees, 2"),
            1,
            "{ended:#?}"
        );
    });
}

#[test]
fn a_process_that_no_launcher_has_started_gets_that_as_its_error() {
    let place = tempfile::tempdir().unwrap();
    for command in ["demo", "doctor"] {
        let mut command_line = clean(Command::new(env!("CARGO_BIN_EXE_wv")), place.path());
        let ended = Ended::of(&command_line.args([command, "--launched"]).output().unwrap());
        assert_eq!(ended.status, Some(2), "{ended:#?}");
        assert!(
            ended.err.contains("start with torchrun, mpirun or srun"),
            "{ended:#?}"
        );
    }
}
