//! The demo as ranks of a job.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::job::{Ended, Job, Launcher, clean};

const DEMO: [&str; 11] = [
    "demo",
    "--launched",
    "--timeout",
    "230",
    "--device",
    "sim",
    "--steps",
    "2",
    "--tokens",
    "32",
    "--json",
];

/// That all ended well, and rank 0 alone has printed the result of so many ranks.
fn is_whole(ended: &[Ended], ranks: u64) {
    for one in ended {
        assert_eq!(one.status, Some(0), "{ended:#?}");
    }
    let (first, others) = ended.split_first().unwrap();
    is_result(&first.out, ranks);
    for line in 0..ranks {
        assert_eq!(
            first.err.matches(&format!("rank {line}: ")).count(),
            1,
            "{first:#?}"
        );
    }
    for other in others {
        assert_eq!((other.out.as_str(), other.err.as_str()), ("", ""));
    }
}

fn is_result(text: &str, ranks: u64) {
    let result: Value = serde_json::from_str(text).unwrap();
    assert_eq!(result["verified"], true);
    assert_eq!(result["ranks"], ranks);
    assert_eq!(result["per_rank"].as_array().unwrap().len() as u64, ranks);
    for (rank, of) in result["per_rank"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (of["rank"].as_u64(), of["tokens"].as_u64()),
            (Some(rank as u64), Some(64))
        );
    }
}

#[test]
fn ranks_of_torchrun_meet_in_a_directory() {
    let job = Job::new(Launcher::Torchrun, &DEMO);
    is_whole(&job.run(&[0, 1, 2], 3, |_| Vec::new()), 3);
}

#[cfg(feature = "etcd")]
#[test]
fn ranks_of_srun_meet_in_an_etcd() {
    let Some(etcd) = test_basics::etcd::Etcd::start(1) else {
        return;
    };
    let job = Job::new(Launcher::Srun, &DEMO).in_store(&etcd.url(0, "", "demo"));
    is_whole(&job.run(&[0, 1], 2, |_| Vec::new()), 2);
}

#[test]
fn mpirun_starts_ranks() {
    let place = tempfile::tempdir().unwrap();
    let store = place.path().join("store");
    std::fs::create_dir(&store).unwrap();
    by_mpirun(place.path(), &format!("file://{}", store.display()));
}

#[cfg(feature = "etcd")]
#[test]
fn ranks_of_mpirun_meet_in_an_etcd() {
    let place = tempfile::tempdir().unwrap();
    let Some(etcd) = test_basics::etcd::Etcd::start(1) else {
        return;
    };
    by_mpirun(place.path(), &etcd.url(0, "", "demo"));
}

/// Four ranks that mpirun starts meet in this store.
fn by_mpirun(place: &Path, store: &str) {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("skipped: mpirun: there is none (openmpi-bin)");
        return;
    }
    let mut command = clean(Command::new("mpirun"), place);
    command
        .args(["-n", "4", "--oversubscribe", "--allow-run-as-root"])
        .args(["-x", "WARPVERBS_STORE", "-x", "XDG_RUNTIME_DIR"])
        .arg(env!("CARGO_BIN_EXE_wv"))
        .args(DEMO)
        .env("TMPDIR", place)
        .env("WARPVERBS_STORE", store);
    let ended = Ended::of(&command.output().unwrap());
    assert_eq!(ended.status, Some(0), "{ended:#?}");
    is_result(&ended.out, 4);
}
