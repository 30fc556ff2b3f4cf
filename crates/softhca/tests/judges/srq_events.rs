//! Shared receive queues and the events around them, through libibverbs: what neither a pingpong nor the tests of pyverbs
//! look at.

use std::path::Path;

use softhca_rig::tools::programs::{LIMIT, Running, Scratch, package_version};

#[test]
fn a_shared_receive_queue_tells_its_limit_and_the_last_wqe() {
    if package_version("python3-pyverbs").is_none() {
        println!(
            "skipped: events of shared receive queues: package python3-pyverbs is not installed"
        );
        return;
    }
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/srq_events.py");
    let mut command = scratch.preloaded(&[], "/usr/bin/python3");
    command.arg(script);
    let ended = Running::start(command, &scratch, "srq_events").end_within(LIMIT);
    assert!(ended.is_success(), "{}", ended.report());
    assert!(ended.printed.ends_with("done\n"), "{}", ended.report());
}
