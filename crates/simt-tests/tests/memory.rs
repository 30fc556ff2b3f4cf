//! Wild accesses of kernels in a build with feature `asan`: AddressSanitizer ends the process and names the line.

#![cfg(feature = "asan")]
// UNSAFETY: launches kernels, that touch what they must not.
#![expect(
    unsafe_code,
    reason = "launching a kernel is unsafe, this one is wrong on purpose"
)]

mod common;

use std::env;
use std::process::{Command, Output};

use common::{run, shape};

/// What a process of its own is to do.
const TASK: &str = "SIMT_TEST_TASK";

/// Thread 33 stores to element `at` of 8 words: of the heap, of the heap after they were freed, of its stack.
fn store(where_to: &str, at: i32) {
    let mut words = vec![0i32; 8];
    let address = words.as_mut_ptr();
    if where_to == "freed" {
        drop(words);
    }
    let address = if where_to == "stack" {
        std::ptr::null_mut()
    } else {
        address
    };
    run("memory_store", args![address, at, 33i32], &shape(1, 64)).unwrap();
    println!("the store went by");
}

/// Runs this test again, as a process that only stores.
fn outcome(test: &str, where_to: &str, at: i32) -> Output {
    let this = env::current_exe().unwrap();
    let mut command = Command::new(this);
    command
        .args(["--exact", test, "--nocapture"])
        .env(TASK, format!("{where_to} {at}"));
    command.output().unwrap()
}

#[test]
fn a_store_outside_memory_or_into_freed_memory_is_reported_with_its_line() {
    if let Ok(task) = env::var(TASK) {
        let (where_to, at) = task.split_once(' ').unwrap();
        return store(where_to, at.parse().unwrap());
    }
    let test = "a_store_outside_memory_or_into_freed_memory_is_reported_with_its_line";
    for (where_to, at, report) in [
        ("heap", 7, None),
        ("heap", 8, Some("heap-buffer-overflow")),
        ("heap", -1, Some("heap-buffer-overflow")),
        ("freed", 3, Some("heap-use-after-free")),
        ("stack", 7, None),
        ("stack", 8, Some("stack-buffer-overflow")),
    ] {
        let output = outcome(test, where_to, at);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        match report {
            None => assert!(
                output.status.success() && text.contains("the store went by"),
                "{where_to} {at}: {text}"
            ),
            Some(report) => {
                assert!(!output.status.success(), "{where_to} {at}: {text}");
                assert!(
                    text.contains(report) && text.contains("memory.cu:"),
                    "{where_to} {at}: {text}"
                );
            }
        }
    }
}
