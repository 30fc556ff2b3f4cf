//! Every entry of the GID table through libibverbs, and addresses that lead nowhere: what neither a pingpong nor the tests of
//! pyverbs look at.

use std::path::Path;
use std::time::Duration;

use softhca_rig::tools::programs::{Running, Scratch, package_version};

#[test]
fn every_gid_carries_traffic_and_other_addresses_fail_or_stay_unanswered() {
    if package_version("python3-pyverbs").is_none() {
        println!("skipped: GIDs through libibverbs: package python3-pyverbs is not installed");
        return;
    }
    let scratch = Scratch::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/gids.py");
    let mut command = scratch.preloaded(&[], "/usr/bin/python3");
    command.arg(script);
    let ended = Running::start(command, &scratch, "gids").end_within(Duration::from_secs(30));
    assert!(ended.is_success(), "{}", ended.report());
    assert!(ended.printed.ends_with("done\n"), "{}", ended.report());
}
