//! Every planted defect ends the launch with an error that names block, warp, lane and operation, at any seed; and the
//! process goes on.

// UNSAFETY: launches kernels.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

mod common;

use std::ffi::c_void;
use std::time::{Duration, Instant};

use common::{run, shape};
use simt::{Dim3, LaunchConfig, LaunchError, ThreadId};

const SEEDS: [u64; 6] = [0, 1, 2, 3, 4, 5];

/// The error of a kernel without arguments.
fn error(kernel: &str, seed: u64, blocks: u32, threads: u32) -> LaunchError {
    run(
        kernel,
        args![0u64],
        &LaunchConfig {
            seed,
            ..shape(blocks, threads)
        },
    )
    .unwrap_err()
}

fn thread(block: u32, warp: u32, lane: u32) -> ThreadId {
    ThreadId {
        block: Dim3 {
            x: block,
            y: 0,
            z: 0,
        },
        warp,
        lane,
    }
}

#[test]
fn a_circle_of_masks_is_a_mismatch_or_a_deadlock_that_names_the_warp() {
    for seed in SEEDS {
        match error("circle", seed, 1, 64) {
            LaunchError::Deadlock { report } => {
                assert!(
                    report.contains("block (0,0,0) warp 1")
                        && report.contains("__syncwarp with mask"),
                    "seed {seed}: {report}"
                );
                assert!(!report.contains("warp 0"), "seed {seed}: {report}");
            }
            LaunchError::MaskMismatch {
                thread, operation, ..
            } => {
                assert_eq!((thread.warp, operation), (1, "__syncwarp"), "seed {seed}");
            }
            other => panic!("seed {seed}: {other}"),
        }
    }
}

#[test]
fn a_barrier_in_a_branch_is_a_deadlock_that_names_each_waiting_thread() {
    for seed in SEEDS {
        let text = error("barrier_in_branch", seed, 2, 64).to_string();
        assert!(text.starts_with("deadlock: block (0,0,0) warp 0: lanes 0xfffffff7 wait in __shfl_sync with mask 0xffffffff for \
             lanes 0x00000008 (at a barrier of the block)"), "seed {seed}: {text}");
        assert!(
            text.contains("warp 1: lanes 0x00000008 wait in __syncthreads, where 2 of 64 are"),
            "seed {seed}: {text}"
        );
    }
}

#[test]
fn lanes_that_call_different_operations_are_a_mismatch() {
    for seed in SEEDS {
        match error("other_operation", seed, 1, 32) {
            LaunchError::MaskMismatch {
                operation,
                mask,
                conflict,
                ..
            } => {
                assert!(
                    ["__syncwarp", "__ballot_sync"].contains(&operation),
                    "seed {seed}"
                );
                assert_eq!(mask, u32::MAX);
                let other = if operation == "__syncwarp" {
                    "__ballot_sync"
                } else {
                    "__syncwarp"
                };
                assert!(conflict.contains(other), "seed {seed}: {conflict}");
            }
            other => panic!("seed {seed}: {other}"),
        }
    }
}

#[test]
fn lanes_that_call_with_different_masks_are_a_mismatch() {
    for seed in SEEDS {
        let text = error("other_mask", seed, 1, 32).to_string();
        assert!(
            text.contains("0x000000ff") && text.contains("0xffffffff"),
            "seed {seed}: {text}"
        );
        assert!(
            text.contains("__syncwarp") && text.contains("block (0,0,0) warp 0 lane"),
            "seed {seed}: {text}"
        );
    }
    assert!(matches!(
        error("other_mask", 0, 1, 32),
        LaunchError::MaskMismatch {
            thread: ThreadId { lane: 7, .. },
            mask: 0xff,
            ..
        }
    ));
}

#[test]
fn a_mask_without_the_calling_lane_is_a_mismatch() {
    match error("mask_without_self", 0, 1, 32) {
        LaunchError::MaskMismatch {
            thread: at,
            mask,
            conflict,
            ..
        } => {
            assert_eq!(
                (at, mask, conflict.as_str()),
                (
                    thread(0, 0, 0),
                    0xffff_fffe,
                    "the mask lacks the calling lane"
                )
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_lane_that_exits_before_a_syncwarp_is_named() {
    for seed in SEEDS {
        let text = error("exit_before_syncwarp", seed, 1, 64).to_string();
        let by_the_exit = "block (0,0,0) warp 1 lane 5 has exited, but lanes";
        let by_a_caller = "waits for lanes 0x00000020, which have exited";
        assert!(
            text.contains(by_the_exit) || text.contains(by_a_caller),
            "seed {seed}: {text}"
        );
        assert!(
            text.contains("warp 1") && text.contains("__syncwarp with mask 0xffffffff"),
            "seed {seed}: {text}"
        );
    }
}

#[test]
fn threads_in_different_barriers_are_a_mismatch() {
    for seed in SEEDS {
        let text = error("other_barrier", seed, 1, 64).to_string();
        assert!(
            text.contains("__syncthreads_or") && text.contains("wait in __syncthreads"),
            "seed {seed}: {text}"
        );
    }
}

#[test]
fn a_grid_sync_that_an_exited_thread_misses_is_a_deadlock() {
    for (seed, workers) in [(0, 1), (1, 1), (0, 2), (1, 3)] {
        let config = LaunchConfig {
            seed,
            workers,
            cooperative: true,
            ..shape(3, 48)
        };
        let text = run("exit_before_grid_sync", args![0u64], &config)
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with(
                "deadlock: 1 threads of the grid have exited and never come to simt_grid_sync"
            ),
            "{text}"
        );
    }
}

#[test]
fn sizes_one_past_the_limit_are_refused_before_anything_runs() {
    let large = LaunchConfig {
        shared_bytes: 232_449,
        ..shape(1, 32)
    };
    for (config, field) in [
        (shape(0, 32), "grid.x"),
        (shape(1, 1025), "block.x"),
        (large, "shared_bytes"),
    ] {
        match run("mask_without_self", args![0u64], &config).unwrap_err() {
            LaunchError::BadConfig { field: named, .. } => assert_eq!(named, field),
            other => panic!("{field}: {other}"),
        }
    }
}

#[test]
fn a_grid_sync_in_an_ordinary_launch_is_refused() {
    let text = error("exit_before_grid_sync", 0, 1, 48).to_string();
    assert_eq!(
        text,
        "block (0,0,0) warp 0 lane 0: simt_grid_sync in a launch that is not cooperative"
    );
}

#[test]
fn failures_inside_a_kernel_name_their_thread_and_text() {
    let texts = [
        "planted",
        "assertion failed: how == 0",
        "__trap()",
        "C++ exception vector::_M_range_check: __n (which is 7) >= this->size() (which is 3)",
        "C++ exception of type i",
        "planted below noexcept",
    ];
    for (how, text) in (0i32..).zip(texts) {
        for (seed, workers) in [(0, 1), (1, 1), (0, 2)] {
            let config = LaunchConfig {
                seed,
                workers,
                ..shape(2, 96)
            };
            match run("failing", args![how], &config).unwrap_err() {
                LaunchError::Panic {
                    thread: at,
                    message,
                } => {
                    assert_eq!(at, thread(1, 2, 6), "{how}");
                    assert!(message.starts_with(text), "{how}: {message}");
                }
                other => panic!("{how}: {other}"),
            }
        }
    }
}

#[test]
fn a_rust_panic_in_an_entry_is_an_error() {
    unsafe extern "C-unwind" fn entry(args: *mut *mut c_void) {
        // SAFETY: the test passes a pointer to a u32.
        let limit = unsafe { (*args).cast::<u32>().read() };
        assert!(limit > 10, "limit is {limit}");
    }
    for _ in 0..3 {
        // SAFETY: the argument is a pointer to a u32 that lives during the call.
        let error = unsafe { simt::launch(entry, args![7u32], &shape(1, 1)) }.unwrap_err();
        assert_eq!(error.to_string(), "block (0,0,0) warp 0 lane 0: limit is 7");
    }
}

#[test]
fn a_kernel_cannot_launch_a_kernel() {
    unsafe extern "C-unwind" fn entry(args: *mut *mut c_void) {
        // SAFETY: never runs: the nested launch is refused.
        let nested = unsafe { simt::launch(entry, &mut [], &shape(1, 1)) };
        // SAFETY: the test passes a pointer to a pointer to a bool.
        unsafe {
            (*args)
                .cast::<*mut bool>()
                .read()
                .write(matches!(nested, Err(LaunchError::Nested)))
        };
    }
    let mut refused = false;
    // SAFETY: as the entry expects.
    unsafe { simt::launch(entry, args![&raw mut refused], &shape(1, 1)) }.unwrap();
    assert!(refused);
}

#[test]
fn an_overflowed_stack_is_found_by_its_canary() {
    let mut out = 0i32;
    for seed in [0, 1] {
        let config = LaunchConfig {
            seed,
            stack_bytes: 16 << 10,
            ..shape(2, 64)
        };
        // A little deeper each time: the first overflow hurts only the canary.
        let (depth, error) = (12_000i64..18_000)
            .step_by(64)
            .find_map(|depth| {
                Some((
                    depth,
                    run("deep", args![depth, &raw mut out], &config).err()?,
                ))
            })
            .expect("no overflow found");
        assert!((15_000..16_512).contains(&depth), "seed {seed}: {depth}");
        match error {
            LaunchError::StackOverflow {
                thread: at,
                stack_bytes,
            } => assert_eq!((at, stack_bytes), (thread(0, 1, 1), 16 << 10)),
            other => panic!("seed {seed}: {other}"),
        }
        run("deep", args![12_000i64, &raw mut out], &config).expect("the slab is whole again");
    }
}

#[test]
fn a_write_past_the_shared_memory_is_found() {
    run(
        "past_shared",
        args![100i32],
        &LaunchConfig {
            shared_bytes: 100,
            ..shape(1, 1)
        },
    )
    .unwrap();
    let error = run(
        "past_shared",
        args![101i32],
        &LaunchConfig {
            shared_bytes: 100,
            ..shape(1, 1)
        },
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "block (0,0,0) wrote past its 100 bytes of shared memory"
    );
}

#[test]
fn a_launch_that_does_not_end_stops_at_its_deadline() {
    let flag = 0u32;
    for (kernel, doing) in [
        ("spin_for_ever", "run or poll"),
        ("sync_for_ever", "run or poll"),
        ("poll_flag", "run or poll"),
    ] {
        for (seed, workers) in [(0, 1), (1, 1), (0, 2)] {
            let deadline = Duration::from_millis(40);
            let (config, mut looks) = (
                LaunchConfig {
                    seed,
                    workers,
                    deadline,
                    ..shape(2, 64)
                },
                0u32,
            );
            let started = Instant::now();
            match run(kernel, args![&raw const flag, &raw mut looks], &config).unwrap_err() {
                LaunchError::Deadline {
                    deadline: configured,
                    report,
                } => {
                    assert_eq!(configured, deadline);
                    assert!(
                        report.contains(doing) && report.contains("block ("),
                        "{kernel} seed {seed}: {report}"
                    );
                }
                other => panic!("{kernel} seed {seed}: {other}"),
            }
            let elapsed = started.elapsed();
            println!("{kernel} seed {seed}: {elapsed:?} of {deadline:?}");
            assert!(elapsed >= deadline, "{elapsed:?}");
        }
    }
}
