//! What comes back: sums, rows of every expert, rows that the caller made; weighted, unweighted, weighted late, renormalised,
//! with and without copies. Bit for bit as the reference, with NaN wherever nothing was selected.

// UNSAFETY: launches a kernel with parameters that the library would refuse.
#![expect(unsafe_code, reason = "a launch past the checks of the library")]

use std::sync::Barrier;
use std::time::Duration;

use bytemuck::Zeroable;
use moe_reference::{Asked, Expected};
use test_support::limits::HANG;
use test_support::reference::{choose, combine_asked};

use test_support::moe::{MIXED, Setup, Traffic, batches, expert, run};
use warpverbs::abi::{CallStage, DevicePtr, Status};
use warpverbs::gpu::Launch;
use warpverbs::internal::moe_abi::{COMBINE_ZERO_COPY, CombineSendParams};
use warpverbs::moe::{
    Batch, CombineOptions, Combined, Moe, MoeConfig, Placement, Returns, RowLayout, Workspace,
};

const SUMS: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(9)
    .with_top_k(4)
    .with_max_tokens(14);
const ROWS: MoeConfig = SUMS.with_returns(Returns::Rows);
const BY_RANK: MoeConfig = SUMS.with_layout(RowLayout::RankMajor);

/// Every rank has tokens.
const BUSY: Traffic = Traffic {
    percent_none: 10,
    percent_empty: 0,
};

/// BF16 of a NaN.
const POISON: u16 = 0x7fed;

/// Fills the output of the experts, so that a row that no expert wrote shows in every sum that it gets into.
fn poison(moe: &Moe, work: &Workspace) {
    let config = moe.config();
    let received = u64::from(moe.team().ranks() * config.max_tokens);
    let rows = match config.layout {
        RowLayout::ExpertMajor => received * u64::from(config.room(moe.team().ranks())),
        RowLayout::RankMajor => received,
    };
    let rows = usize::try_from(rows).unwrap();
    let poison = vec![POISON; rows * config.hidden as usize];
    let y = work.y().unwrap();
    moe.team()
        .gpu()
        .write(y, bytemuck::cast_slice(&poison))
        .unwrap();
}

/// Returns what the reference makes of rank `rank`'s batch if the rows of `returned` ranks come back.
fn expected(
    moe: &Moe,
    batch: &Batch,
    modes: &CombineOptions,
    returned: impl Fn(u32) -> bool,
) -> Expected {
    let (config, placement) = (moe.config(), &moe.placement());
    let chosen = choose(config, placement, moe.team().rank(), batch, |_| true);
    let asked = Asked {
        unweighted: modes.unweighted,
        renormalise: modes.renormalise,
        weights: modes.weights.as_deref(),
    };
    combine_asked(config, placement, batch, &chosen, returned, asked, expert)
}

/// A call up to the send phase of combine; the batch of this rank.
fn up_to_combine(moe: &Moe, work: &mut Workspace, traffic: Traffic, seed: u64, call: u32) -> Batch {
    let own = batches(moe, traffic, seed, call).swap_remove(moe.team().rank() as usize);
    moe.set_schedule_seed(seed ^ u64::from(call));
    work.send(&own).unwrap();
    work.receive().unwrap();
    poison(moe, work);
    work.experts(expert).unwrap();
    own
}

/// Every bit and every verdict is that of the reference.
fn check(got: &Combined, want: &Expected, what: &str) {
    let differs = got.out.iter().zip(&want.out).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let (got, want) = (got.out[at], want.out[at]);
        panic!("{what}: element {at} is {got:#06x}, not {want:#06x}");
    }
    assert_eq!(got.out.len(), want.out.len(), "{what}");
    assert_eq!(got.token_valid, want.token_valid, "{what}");
}

/// Weights of the choices of `batch` that dispatch did not know.
fn late_weights(batch: &Batch, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    batch.weights.iter().map(|_| random.f32() - 0.25).collect()
}

/// Runs calls with `modes` on teams of several sizes; with `late`, weights are given at combine.
fn verify(config: MoeConfig, modes: &CombineOptions, late: bool) {
    for (ranks, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        run(&Setup::adverse(ranks), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            for call in 1..=4 {
                let what = format!("{modes:?}, seed {seed}, call {call}, rank {}", team.rank());
                work.set_combine_options(modes.clone());
                let own = up_to_combine(&moe, &mut work, MIXED, seed, call);
                let mut asked = modes.clone();
                if late {
                    asked.weights = Some(late_weights(&own, seed + u64::from(call)));
                    work.set_combine_options(asked.clone());
                }
                work.send_back().unwrap();
                let got = work.receive_back().unwrap();
                work.call().check().unwrap();
                let want = expected(&moe, &own, &asked, |_| true);
                check(&got, &want, &what);
            }
        });
    }
}

fn modes(zero_copy: bool, unweighted: bool) -> CombineOptions {
    CombineOptions::default()
        .with_zero_copy(zero_copy)
        .with_unweighted(unweighted)
}

#[test]
fn the_row_of_every_expert_comes_back_and_is_weighed_at_the_source() {
    verify(ROWS, &modes(false, false), false);
    verify(ROWS, &modes(false, false), true);
}

#[test]
fn unweighted_means_that_every_weight_is_1_whatever_comes_back() {
    for config in [SUMS, ROWS, BY_RANK] {
        verify(config, &modes(false, true), false);
    }
}

#[test]
fn by_rank_what_the_caller_made_comes_back_as_it_is() {
    verify(BY_RANK, &modes(false, false), false);
}

#[test]
fn zero_copy_sends_what_the_experts_wrote_into_the_staging_memory() {
    verify(ROWS, &modes(true, false), true);
    verify(BY_RANK, &modes(true, false), false);
}

#[test]
fn rows_have_room_with_more_experts_than_choices_and_the_reverse() {
    let few = ROWS.with_experts(32).with_top_k(1);
    let many = ROWS.with_experts(6).with_top_k(6).with_hidden(8);
    for config in [few, many] {
        verify(config, &modes(false, false), false);
    }
}

#[test]
fn two_open_calls_use_a_staging_memory_each() {
    for config in [ROWS, BY_RANK] {
        run(&Setup::adverse(2), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut works = [Workspace::new(&moe).unwrap(), Workspace::new(&moe).unwrap()];
            for work in &mut works {
                work.set_combine_options(modes(true, false));
            }
            for first in [1, 3, 5] {
                let owns: Vec<Batch> = (first..)
                    .zip(&mut works)
                    .map(|(call, work)| up_to_combine(&moe, work, BUSY, 8, call))
                    .collect();
                assert_ne!(works[0].y().unwrap(), works[1].y().unwrap());
                for work in &mut works {
                    work.send_back().unwrap();
                }
                for (work, own) in works.iter_mut().zip(&owns) {
                    let got = work.receive_back().unwrap();
                    let want = expected(&moe, own, &CombineOptions::default(), |_| true);
                    let what = format!("calls {first} and the next, rank {}", team.rank());
                    check(&got, &want, &what);
                }
            }
        });
    }
}

#[test]
fn what_a_layer_cannot_do_is_refused_by_name() {
    run(&Setup::adverse(1), |team| {
        let moe = Moe::new(team, "sums", SUMS).unwrap();
        let error = moe.combine_staging(0).unwrap_err().to_string();
        assert!(
            error.starts_with("zero-copy: needs a layer that sends rows"),
            "{error}"
        );
        let moe = Moe::new(team, "rows", ROWS).unwrap();
        let error = moe.combine_staging(2).unwrap_err().to_string();
        assert_eq!(error, "set is 2; it must be 0 to 1");
        let mut work = Workspace::new(&moe).unwrap();
        up_to_combine(&moe, &mut work, BUSY, 5, 1);
        work.send_back().unwrap();
        work.set_combine_options(CombineOptions::default().with_weights(Some(vec![1.0; 1])));
        let error = work.receive_back().unwrap_err().to_string();
        assert!(
            error.starts_with("the weights of combine has 1 elements"),
            "{error}"
        );
    });
    let both = BY_RANK.with_returns(Returns::Rows);
    let error = both.check(1).unwrap_err().to_string();
    assert!(error.contains("needs the expert-major layout"), "{error}");
}

/// Launches the send phase of combine with any `y` and flags.
fn raw_send(moe: &Moe, work: &Workspace, y: u64, flags: u32) {
    let params = CombineSendParams {
        moe: DevicePtr::new(moe.context_addr()),
        handle: DevicePtr::new(work.call().addr()),
        y: DevicePtr::new(y),
        flags,
        ..CombineSendParams::zeroed()
    };
    let launch = Launch::new("wv_moe_combine_send", moe.grid().blocks, moe.grid().threads)
        .with_cooperative(true);
    let gpu = moe.team().gpu();
    // SAFETY: layer, handle and `y` are device memory that outlives the launch, for which this thread waits. The kernel has to
    // refuse any memory that the flags name beyond that.
    let event = unsafe { gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap();
    gpu.wait(&event, HANG).unwrap();
}

#[test]
fn kernels_refuse_unsupported_calls_and_the_phase_can_be_called_again() {
    for (config, others_set) in [(SUMS, false), (ROWS, true), (BY_RANK, true)] {
        run(&Setup::adverse(2), |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            work.set_combine_options(modes(false, true));
            let own = up_to_combine(&moe, &mut work, BUSY, 6, 1);
            let y = work.y().unwrap();
            let wrong = if others_set {
                // Call 1 belongs to set 1.
                (moe.combine_staging(0).unwrap().addr, COMBINE_ZERO_COPY)
            } else {
                (y, COMBINE_ZERO_COPY)
            };
            for (y, flags) in [wrong, (y, COMBINE_ZERO_COPY), (y, 1 << 7)] {
                raw_send(&moe, &work, y, flags);
                let report = work.call().report().unwrap();
                assert_eq!(
                    report.phases[2],
                    Status::INVALID,
                    "flags {flags:#x}: {report}"
                );
                assert_eq!(report.stage, CallStage::DISPATCHED);
            }
            work.send_back().unwrap();
            let late = CombineOptions::default().with_weights(Some(own.weights.clone()));
            work.set_combine_options(late);
            if config == ROWS {
                // Weights at combine and weights of 1 contradict each other.
                let refused = work.receive_back().unwrap();
                let report = work.call().report().unwrap();
                assert_eq!(report.phases[3], Status::INVALID, "{report}");
                assert!(refused.token_valid.iter().all(|valid| !valid));
            } else {
                let error = work.receive_back().unwrap_err().to_string();
                assert!(error.starts_with("weights of combine: needs"), "{error}");
            }
            work.set_combine_options(modes(false, true));
            let got = work.receive_back().unwrap();
            work.call().check().unwrap();
            let want = expected(&moe, &own, &modes(false, true), |_| true);
            check(&got, &want, "called again");
        });
    }
}

#[test]
fn a_token_that_lost_experts_is_scaled_by_the_weight_that_is_left() {
    // No rank holds experts 2 and 5.
    let held = vec![vec![0, 3, 8], vec![1, 4], vec![7, 6, 0]];
    let placement = Placement::from_slots(SUMS.experts, held).unwrap();
    for config in [SUMS, ROWS, BY_RANK] {
        for (unweighted, renormalise) in [(false, false), (false, true), (true, true)] {
            let asked = CombineOptions::default()
                .with_unweighted(unweighted)
                .with_renormalise(renormalise);
            let lost = run(&Setup::adverse(3), |team| {
                let moe = Moe::with_placement(team, "layer", config, placement.clone()).unwrap();
                let mut work = Workspace::new(&moe).unwrap();
                work.set_combine_options(asked.clone());
                let mut lost = 0;
                for call in 1..=2 {
                    let own = up_to_combine(&moe, &mut work, BUSY, 31, call);
                    work.send_back().unwrap();
                    let got = work.receive_back().unwrap();
                    let want = expected(&moe, &own, &asked, |_| true);
                    let what = format!("{config:?} {asked:?}, call {call}, rank {}", team.rank());
                    check(&got, &want, &what);
                    lost += got.token_valid.iter().filter(|valid| !**valid).count();
                }
                lost
            });
            assert!(lost.iter().all(|lost| *lost > 0), "{lost:?}");
        }
    }
}

#[test]
fn rows_of_a_rank_that_never_combines_are_missing_and_the_rest_is_scaled() {
    const SILENT: u32 = 2;
    let check_one = |config: MoeConfig| {
        let mut setup = Setup::adverse(3);
        // Dispatch has this time too, and it is the shortest: a busy machine may keep a rank from its core for so long.
        setup.team.deadline = Duration::from_secs(10);
        let sent = Barrier::new(3);
        run(&setup, |team| {
            let moe = Moe::new(team, "layer", config).unwrap();
            let mut work = Workspace::new(&moe).unwrap();
            let asked = CombineOptions::default().with_renormalise(true);
            work.set_combine_options(asked.clone());
            let own = up_to_combine(&moe, &mut work, BUSY, 17, 1);
            if team.rank() != SILENT {
                work.send_back().unwrap();
            }
            // The others have sent before any rank waits, so that only the silent rank can be late.
            sent.wait();
            if team.rank() == SILENT {
                return;
            }
            let got = work.receive_back().unwrap();
            let want = expected(&moe, &own, &asked, |rank| rank != SILENT);
            check(&got, &want, &format!("{config:?}, rank {}", team.rank()));
            assert!(got.token_valid.iter().any(|valid| !valid));
            assert_eq!(work.contributed().unwrap(), [true, true, false]);
        });
    };
    std::thread::scope(|scope| {
        for config in [SUMS, ROWS, BY_RANK] {
            let check_one = &check_one;
            scope.spawn(move || check_one(config));
        }
    });
}
