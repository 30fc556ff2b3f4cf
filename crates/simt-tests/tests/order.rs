//! The checker of a build with feature `tsan`: each planted defect is found and named, and the same kernel without it is passed.

#![cfg(feature = "tsan")]
// UNSAFETY: launches kernels; plays a device.
#![expect(
    unsafe_code,
    reason = "launching a kernel is unsafe, and a device writes by address"
)]

mod common;
// The compiler would look for it among the programs.
#[path = "order/omissions.rs"]
mod omissions;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use common::{run, shape, until};
use simt::check::{self, Finding, Kind};
use simt::{LaunchConfig, LaunchError};

const SEEDS: std::ops::Range<u64> = 0..6;

/// What is left out; the numbers of tests/kernels/order.cu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None = 0,
    NoBarrier = 1,
    NoReleaseFence = 2,
    NoAcquireFence = 3,
    FenceTooNarrow = 4,
    WriteAfterPublication = 5,
    AcquireTooEarly = 6,
    AcquireTooNarrow = 7,
    AtomicTooNarrow = 8,
}

/// `file:line` of the line of the kernels that is marked with this comment.
fn line(mark: &str) -> String {
    let lines = include_str!("kernels/order.cu").lines();
    let mark = format!("// ({mark})");
    let at = lines.enumerate().find(|(_, line)| line.contains(&mark));
    format!("kernels/order.cu:{}", at.expect("a marked line").0 + 1)
}

/// The findings of a launch of a kernel under its own name.
#[track_caller]
fn findings(
    name: &'static str,
    args: &mut [*mut c_void],
    config: &LaunchConfig,
    seed: u64,
) -> Vec<Finding> {
    let config = LaunchConfig {
        name,
        ..config.clone()
    };
    findings_as_named(name, args, &config, seed)
}

/// The findings of a launch of `kernel` under the name that `config` gives it.
#[track_caller]
fn findings_as_named(
    kernel: &str,
    args: &mut [*mut c_void],
    config: &LaunchConfig,
    seed: u64,
) -> Vec<Finding> {
    let config = LaunchConfig {
        seed,
        ..config.clone()
    };
    match run(kernel, args, &config) {
        Ok(_) => Vec::new(),
        Err(LaunchError::Findings { findings }) => findings,
        Err(other) => panic!("{kernel}, seed {seed}: {other}"),
    }
}

#[track_caller]
fn none(found: &[Finding], seed: u64) {
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
}

/// A finding of `kind` whose text has all `parts`.
#[track_caller]
fn has(found: &[Finding], kind: Kind, parts: &[&str], seed: u64) {
    let fits = |finding: &Finding| {
        finding.kind == kind && parts.iter().all(|part| finding.text.contains(part))
    };
    assert!(
        found.iter().any(fits),
        "seed {seed}: no {kind:?} with {parts:?} in {found:#?}"
    );
}

#[test]
fn a_missing_syncthreads_is_found_between_the_two_lines() {
    for seed in SEEDS {
        let config = LaunchConfig {
            shared_bytes: 4 * 64,
            ..shape(2, 64)
        };
        let mut out = [0i32; 64];
        let out = out.as_mut_ptr();
        let good = findings(
            "order_neighbour",
            args![Defect::None as i32, out],
            &LaunchConfig {
                grid: 1.into(),
                ..config.clone()
            },
            seed,
        );
        none(&good, seed);
        let found = findings(
            "order_neighbour",
            args![Defect::NoBarrier as i32, out],
            &LaunchConfig {
                grid: 1.into(),
                ..config
            },
            seed,
        );
        let parts = [
            "order_neighbour",
            "block (0,0,0) warp",
            &line("write own"),
            &line("read neighbour"),
            "missing: a release fence",
        ];
        has(&found, Kind::Unordered, &parts, seed);
    }
}

#[test]
fn a_shared_memory_word_belongs_to_its_block_and_finding_it_is_no_access() {
    // The first to come finds the place for the whole process: most likely to show in the first launch.
    for seed in [5, 1, 2, 3] {
        let mut out = [0i32; 64];
        let mut run = |defect: Defect| {
            findings(
                "order_slot",
                args![defect as i32, out.as_mut_ptr()],
                &shape(1, 64),
                seed,
            )
        };
        none(&run(Defect::None), seed);
        has(
            &run(Defect::NoBarrier),
            Kind::Unordered,
            &["order_slot"],
            seed,
        );
    }
}

#[test]
fn a_shuffle_in_place_of_syncwarp_is_found() {
    for seed in SEEDS {
        let config = LaunchConfig {
            shared_bytes: 4 * 32,
            ..shape(1, 32)
        };
        let mut out = [0i32; 32];
        let out = out.as_mut_ptr();
        none(
            &findings(
                "order_lanes",
                args![Defect::None as i32, out],
                &config,
                seed,
            ),
            seed,
        );
        let found = findings(
            "order_lanes",
            args![Defect::NoBarrier as i32, out],
            &config,
            seed,
        );
        has(&found, Kind::Unordered, &["kernels/order.cu"], seed);
    }
}

fn message(defect: Defect, seed: u64) -> Vec<Finding> {
    let (mut message, mut flag, mut out) = ([0i64; 2], 0u32, 0i64);
    findings(
        "order_message",
        args![
            defect as i32,
            message.as_mut_ptr(),
            &raw mut flag,
            &raw mut out
        ],
        &shape(2, 32),
        seed,
    )
}

#[test]
fn a_message_behind_a_flag_needs_both_fences_wide_enough_and_in_place() {
    for seed in SEEDS {
        none(&message(Defect::None, seed), seed);
        for (defect, part) in [
            (
                Defect::NoReleaseFence,
                "missing: a release fence of scope .gpu or wider",
            ),
            (
                Defect::NoAcquireFence,
                "missing: an acquire fence of scope .gpu or wider",
            ),
            (
                Defect::FenceTooNarrow,
                "missing: scope. It was fenced with .cta, and .gpu or wider is needed",
            ),
            (Defect::WriteAfterPublication, "missing: a release fence"),
            (
                Defect::AcquireTooEarly,
                "missing: an acquire fence of scope .gpu",
            ),
            (
                Defect::AcquireTooNarrow,
                "missing: an acquire fence of scope .gpu",
            ),
        ] {
            // The writer may have ended by the time of the read: then only that it was not published is known.
            let found = message(defect, seed);
            assert!(!found.is_empty(), "seed {seed}: {defect:?} is not found");
            let read = line("read message");
            assert!(
                found.iter().any(|one| one.text.contains(&read)),
                "seed {seed}, {defect:?}: {found:#?}"
            );
            if matches!(
                defect,
                Defect::NoAcquireFence | Defect::AcquireTooEarly | Defect::AcquireTooNarrow
            ) {
                has(&found, Kind::Unordered, &[part], seed);
            } else {
                let any = found.iter().any(|one| one.text.contains("missing: "));
                assert!(any, "seed {seed}, {defect:?}, {part}: {found:#?}");
            }
        }
        let found = message(Defect::AtomicTooNarrow, seed);
        has(
            &found,
            Kind::Unordered,
            &["one has scope .cta and they are .gpu apart"],
            seed,
        );
    }
}

#[test]
fn order_passes_through_relays_and_release_acquire_operations() {
    for seed in SEEDS {
        let (mut message, mut flags, mut out) = ([0i64; 2], [0u32; 3], 0i64);
        let found = findings(
            "order_relay",
            args![message.as_mut_ptr(), flags.as_mut_ptr(), &raw mut out],
            &shape(4, 32),
            seed,
        );
        none(&found, seed);
        assert_eq!(out, 11, "seed {seed}");
    }
}

#[test]
fn a_slot_is_used_again_once_it_is_seen_free_and_its_reads_need_a_fence() {
    for seed in SEEDS {
        for (defect, clean) in [(Defect::None, true), (Defect::NoReleaseFence, false)] {
            let (mut slot, mut flags, mut out) = (1i64, [0u32; 1], 0i64);
            let found = findings(
                "order_reuse",
                args![
                    defect as i32,
                    &raw mut slot,
                    flags.as_mut_ptr(),
                    &raw mut out
                ],
                &shape(2, 1),
                seed,
            );
            assert_eq!(
                found.is_empty(),
                clean,
                "seed {seed}, {defect:?}: {found:#?}"
            );
        }
    }
}

#[test]
fn blocks_are_ordered_by_the_barrier_of_the_grid_also_across_workers() {
    for (seed, workers) in SEEDS.zip([1, 1, 1, 2, 2, 2]) {
        let config = LaunchConfig {
            cooperative: true,
            workers,
            ..shape(4, 32)
        };
        let (mut words, mut out) = ([0i32; 128], [0i32; 128]);
        let (words, out) = (words.as_mut_ptr(), out.as_mut_ptr());
        none(
            &findings(
                "order_grid",
                args![Defect::None as i32, words, out],
                &config,
                seed,
            ),
            seed,
        );
        let found = findings(
            "order_grid",
            args![Defect::NoBarrier as i32, words, out],
            &config,
            seed + 1,
        );
        has(&found, Kind::Unordered, &["kernels/order.cu"], seed);
    }
}

#[test]
fn a_launch_comes_after_those_that_have_ended() {
    let (mut words, mut out) = ([0i32; 64], [0i32; 64]);
    for round in 0..3u64 {
        let config = LaunchConfig {
            shared_bytes: 256,
            ..shape(1, 64)
        };
        let found = findings(
            "order_neighbour",
            args![
                0i32,
                if round == 1 {
                    out.as_mut_ptr()
                } else {
                    words.as_mut_ptr()
                }
            ],
            &config,
            round,
        );
        none(&found, round);
    }
}

/// What the device and the kernel share.
#[repr(align(128))]
struct Memory {
    source: [AtomicU64; 16],
    bell: [AtomicU64; 16],
    signal: [AtomicU32; 32],
    target: [AtomicU64; 16],
    out: AtomicU64,
}

/// Runs the kernel against a device that reads the source after the doorbell, then writes target and signal.
fn with_device(defect: Defect, warm: bool, host_memory: bool, seed: u64) -> Vec<Finding> {
    let memory = Memory {
        source: [const { AtomicU64::new(0) }; 16],
        bell: [const { AtomicU64::new(0) }; 16],
        signal: [const { AtomicU32::new(0) }; 32],
        target: [const { AtomicU64::new(0) }; 16],
        out: AtomicU64::new(0),
    };
    let addr = |word: *const u64| word.expose_provenance() as u64;
    let source = addr(memory.source.as_ptr().cast());
    if host_memory {
        check::map_host_memory(source, source, 128);
    }
    let found = std::thread::scope(|scope| {
        let memory = &memory;
        scope.spawn(move || {
            until("the doorbell", || memory.bell[0].load(Relaxed) != 0);
            check::device_access(source, 16, false);
            let sum = memory.source[0].load(Relaxed) + memory.source[1].load(Relaxed);
            check::device_access(addr(memory.target.as_ptr().cast()), 8, true);
            memory.target[0].store(sum, Relaxed);
            check::device_access(addr(memory.signal.as_ptr().cast()), 4, true);
            memory.signal[0].store(1, Relaxed);
        });
        findings(
            "order_device",
            args![
                defect as i32,
                i32::from(warm),
                memory.source.as_ptr(),
                memory.bell.as_ptr(),
                memory.signal.as_ptr(),
                memory.target.as_ptr(),
                &raw const memory.out
            ],
            &shape(1, 1),
            seed,
        )
    });
    check::unmap_memory(source, 128);
    found
}

#[test]
fn a_device_needs_a_fence_of_its_scope_before_the_doorbell() {
    for seed in SEEDS {
        for host in [false, true] {
            none(&with_device(Defect::None, false, host, seed), seed);
        }
        none(
            &with_device(Defect::FenceTooNarrow, false, false, seed),
            seed,
        );
        let device = "the HCA reads 8 bytes";
        let host = with_device(Defect::FenceTooNarrow, false, true, seed);
        let scope = "missing: scope. It was fenced with .gpu, and .sys or wider is needed before the doorbell";
        has(
            &host,
            Kind::Untold,
            &[device, "host-mapped memory", "kernels/order.cu", scope],
            seed,
        );
        let block = with_device(Defect::AcquireTooNarrow, false, false, seed);
        let scope = "missing: scope. It was fenced with .cta, and .gpu or wider is needed before the doorbell";
        has(
            &block,
            Kind::Untold,
            &[device, "in device memory", scope],
            seed,
        );
        let unfenced = with_device(Defect::NoReleaseFence, false, false, seed);
        has(
            &unfenced,
            Kind::Untold,
            &[device, "missing: a release fence"],
            seed,
        );
        let late = with_device(Defect::WriteAfterPublication, false, false, seed);
        has(
            &late,
            Kind::Untold,
            &[device, "missing: a release fence", &line("write late")],
            seed,
        );
    }
}

#[test]
fn device_writes_need_an_acquire_fence_and_an_earlier_l1_load_is_stale() {
    for seed in SEEDS {
        none(&with_device(Defect::None, true, false, seed), seed);
        let cold = with_device(Defect::NoAcquireFence, false, false, seed);
        let parts = [
            "order_device",
            &line("read target"),
            "the HCA writes 8 bytes",
            "missing: an acquire fence of scope .gpu",
        ];
        has(&cold, Kind::Unordered, &parts, seed);
        assert!(cold.iter().all(|one| one.kind != Kind::Stale), "{cold:#?}");
        let warm = with_device(Defect::NoAcquireFence, true, false, seed);
        let loaded = format!("loaded at {}", line("warm"));
        has(&warm, Kind::Stale, &[&line("read target"), &loaded], seed);
    }
}

#[test]
fn a_non_coherent_load_of_a_device_write_is_found_with_any_fences() {
    for seed in SEEDS {
        let found = with_device(Defect::AtomicTooNarrow, false, false, seed);
        has(
            &found,
            Kind::NotConstant,
            &["order_device", "the HCA writes"],
            seed,
        );
    }
}

#[test]
fn a_kernel_that_uses_a_host_address_is_found_and_given_its_own() {
    for seed in SEEDS {
        let mut words = [0u64; 4];
        let host = words.as_mut_ptr().expose_provenance() as u64;
        let mapped_at = 1 << 45;
        check::map_host_memory(mapped_at, host, 32);
        let out = &mut [0u64; 4];
        let found = findings(
            "order_host",
            args![words.as_mut_ptr(), out.as_mut_ptr()],
            &shape(1, 1),
            seed,
        );
        check::unmap_memory(mapped_at, 32);
        let reaches = |at: u64| format!("kernels reach this memory at {:#x}", mapped_at + at);
        let writes = ["order_host", "writes 8 bytes", &reaches(8)];
        has(&found, Kind::HostAddress, &writes, seed);
        let adds = ["order_host", "writes 4 bytes", &reaches(16)];
        has(&found, Kind::HostAddress, &adds, seed);
        assert_eq!(found.len(), 2, "{found:#?}");
        let after = findings(
            "order_host",
            args![words.as_mut_ptr(), out.as_mut_ptr()],
            &shape(1, 1),
            seed,
        );
        none(&after, seed);
    }
}
