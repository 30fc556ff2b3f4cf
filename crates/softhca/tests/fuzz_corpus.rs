//! What fuzzing has found so far is taken in as it should be: no panic, nothing left behind.
//!
//! `./x fuzz` adds to the corpus. The seeds, which fuzzing starts from, are made here.

mod seeds;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target)
}

/// One target at a time: that of the ioctls closes what was opened meanwhile.
static TURN: Mutex<()> = Mutex::new(());

/// Runs `target` on the files of its corpus.
fn replay(target: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, run) = softhca_rig::fuzzing::TARGETS
        .into_iter()
        .find(|(name, _)| *name == target)
        .unwrap();
    let directory = corpus(target);
    let mut files: Vec<PathBuf> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(
        files.len() >= 5,
        "{} files in {}",
        files.len(),
        directory.display()
    );
    for file in files {
        // The last line of a failing test names the file.
        println!("{}", file.display());
        run(&fs::read(&file).unwrap());
    }
}

#[test]
fn ioctls_of_the_corpus_are_answered() {
    replay("ioctls");
}

#[test]
fn commands_of_the_corpus_are_answered() {
    replay("commands");
}

#[test]
fn wqes_of_the_corpus_end() {
    replay("wqes");
}

#[test]
fn packets_of_the_corpus_are_taken_or_dropped() {
    replay("packets");
}

/// Not a test of its own: `WV_WRITE_SEEDS=1` writes the seeds into the corpus.
#[test]
fn seeds_reach_what_they_are_made_for() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let write = std::env::var_os("WV_WRITE_SEEDS").is_some();
    for (target, run) in softhca_rig::fuzzing::TARGETS {
        for (name, bytes) in seeds::of(target) {
            run(&bytes);
            if write {
                fs::create_dir_all(corpus(target)).unwrap();
                fs::write(corpus(target).join(format!("seed-{name}")), &bytes).unwrap();
            }
        }
    }
}
