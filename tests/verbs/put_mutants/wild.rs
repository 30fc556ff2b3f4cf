//! Kernels that store outside their memory while they put through the software HCA, in a build with feature `asan`.
//! AddressSanitizer ends the process and names the line. Kernels that follow the rules run as in any build.

use std::env;
use std::process::{Command, Output};

use warpverbs::abi::Status;

use test_support::device::read;
use test_support::pair::Pair;

/// What a process of its own is to do.
const TASK: &str = "WV_TEST_WILD";

/// Threads of the kernel, each of which stores a status of 4 bytes.
const THREADS: u32 = 8;

/// Puts from threads whose results go to `bytes` bytes of device memory, freed before if `freed`.
fn put(bytes: usize, freed: bool) {
    let pair = Pair::shared(THREADS as usize * 4, 8);
    let gpu = &pair.ends[0].node.gpu;
    let memory = gpu.alloc(bytes, 8).unwrap();
    let mut params = pair.params(4, 0);
    params.status = memory.addr().into();
    let kept = (!freed).then_some(memory);
    pair.run("wv_test_put_words", THREADS, 3, &params);
    let ends: Vec<Status> = read(gpu.as_ref(), kept.unwrap().addr(), THREADS as usize);
    assert_eq!(ends, [Status::OK; THREADS as usize]);
    assert_eq!(pair.wrong_words(), [0; 0]);
    println!("every store was in place");
}

/// Runs this test again, as a process that only puts.
fn outcome(test: &str, task: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    command.env(TASK, task).output().unwrap()
}

#[test]
fn a_store_outside_device_memory_is_reported_by_line_while_the_hca_works() {
    match env::var(TASK).as_deref() {
        Ok("right") => return put(32, false),
        Ok("short") => return put(28, false),
        Ok("freed") => return put(32, true),
        _ => {}
    }
    let test = "wild::a_store_outside_device_memory_is_reported_by_line_while_the_hca_works";
    for (task, report) in [
        ("right", None),
        ("short", Some("use-after-poison")),
        ("freed", Some("use-after-poison")),
    ] {
        let output = outcome(test, task);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let passed = output.status.success() && text.contains("every store was in place");
        match report {
            None => assert!(passed, "{task}: {text}"),
            Some(report) => assert!(
                !output.status.success() && text.contains(report) && text.contains("words.cuh:"),
                "{task}: {text}"
            ),
        }
    }
}
