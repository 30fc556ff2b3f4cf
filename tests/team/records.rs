//! What a rank reads of others, where fuzzing began: a typed error or a good record.

use std::path::Path;

use test_support::counts::seeds;
use test_support::fuzzing::hello;

#[test]
fn records_of_the_corpus_and_random_bytes_are_good_or_refused_by_rank() {
    let corpus =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/test-support/fuzz/corpus/hello");
    let files: Vec<_> = std::fs::read_dir(&corpus).unwrap().collect();
    assert!(
        files.len() >= 5,
        "{} files in {}",
        files.len(),
        corpus.display()
    );
    for file in files {
        // The last line of a failing test names the file.
        let path = file.unwrap().path();
        println!("{}", path.display());
        hello(&std::fs::read(path).unwrap());
    }
    let first = fastrand::u64(..1 << 32);
    println!("seeds from {first:#x}");
    for seed in seeds(1000, 100_000) {
        let mut random = fastrand::Rng::with_seed(first + seed);
        let mut bytes = vec![0; random.usize(..200)];
        random.fill(&mut bytes);
        hello(&bytes);
    }
}
