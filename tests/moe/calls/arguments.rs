//! Arguments that differ between ranks: every rank learns which, with two ranks and their values, and no mask changes.

use std::sync::Arc;
use std::time::Duration;

use test_support::device::read;
use test_support::moe::{Setup, batch, run};
use warpverbs::moe::{Batch, Difference, Format, Moe, MoeConfig, MoeError, Scales};

use crate::options::{BUSY, Io, SHAPE};

/// The rank that passes something else.
const ODD: u32 = 1;
/// Each rank has an expert for each choice.
const LAYER: MoeConfig = MoeConfig::BF16
    .with_hidden(128)
    .with_experts(8)
    .with_top_k(4)
    .with_max_tokens(16);

/// Tokens that choose these experts.
fn tokens(chosen: [i32; 4]) -> Batch {
    Batch {
        x: vec![0x3f80; 3 * 128],
        experts: chosen.repeat(3),
        weights: vec![0.25; 12],
    }
}

/// Four ranks that wait for each other for so long.
fn four(deadline: Duration, body: impl Fn(u32, &Io) + Sync) {
    let mut setup = Setup::adverse(4);
    setup.team.deadline = deadline;
    run(&setup, |team| {
        let moe = Moe::new(team, "layer", LAYER).unwrap();
        body(team.rank(), &Io::new(&moe));
        team.barrier("end").unwrap();
    });
}

/// The difference that `error` is, between rank 1 with `odd` and another rank with `usual`.
fn difference(error: MoeError, argument: &str, usual: &str, odd: &str) -> Difference {
    let words = error.to_string();
    let MoeError::Arguments(found) = error else {
        panic!("{error:?}");
    };
    assert_eq!(found.argument, argument, "{words}");
    let both = [
        (found.first_rank, &found.first),
        (found.second_rank, &found.second),
    ];
    assert!(found.first_rank < found.second_rank, "{words}");
    for (rank, value) in both {
        assert_eq!(value, if rank == ODD { odd } else { usual }, "{words}");
    }
    assert!(both.iter().any(|(rank, _)| *rank == ODD), "{words}");
    *found
}

/// A mask of all ranks in device memory, which is changed in place.
fn mask(io: &Io) -> warpverbs::gpu::DeviceMemory {
    let active = io.gpu().alloc(4 * 4, 128).unwrap();
    let ones = [1u32; 4];
    io.gpu()
        .write(active.addr(), bytemuck::cast_slice(&ones))
        .unwrap();
    active
}

#[test]
fn ranks_that_differ_in_a_call_name_the_argument_and_keep_their_masks() {
    let fp8 = LAYER.with_format(Format::Fp8(Scales::F32));
    let odd = [
        (fp8, "format", "Bf16", "Fp8(F32)"),
        (LAYER.with_max_tokens(5), "max_tokens of a call", "16", "5"),
    ];
    four(Duration::from_secs(100), |rank, io| {
        let active = mask(io);
        for (number, (shape, argument, usual, value)) in (1..).zip(odd) {
            let mine = if rank == ODD { shape } else { LAYER };
            let one = Io::sized(&io.moe, mine);
            let own = tokens([0, 2, 4, 6]);
            let input = one.input(&own, |_| ()).with_active(active.addr());
            let output = one.output().with_active(active.addr());
            let report = one.dispatch(&input, &output.with_active_in_place(true));
            let left: Vec<u32> = read(io.gpu().as_ref(), active.addr(), 4);
            assert_eq!(left, [1; 4], "rank {rank}: {report}");
            let error = one.call.check().unwrap_err();
            let found = difference(error, argument, usual, value);
            assert_eq!(found.call, Some(report.call));
            let others = |other: &u32| (*other == ODD) != (rank == ODD);
            assert!(found.missed.iter().all(others), "rank {rank}: {found:?}");
            // The newest fault of the layer says the same.
            assert_eq!(io.moe.difference(), Some(found));
            // Combine of such a call clears no mask either.
            one.combine(
                &one.sums()
                    .with_active(active.addr())
                    .with_active_in_place(true),
            );
            let left: Vec<u32> = read(io.gpu().as_ref(), active.addr(), 4);
            assert_eq!(left, [1; 4], "rank {rank}, combine");
            let next = Io::new(&io.moe);
            let own = batch(&LAYER, BUSY, 13, number, rank);
            next.dispatch(&next.input(&own, |_| ()), &next.output());
            let out = next.combine(&next.sums());
            next.check(&own, &out, &format!("rank {rank}"));
        }
    });
}

#[test]
fn a_rank_without_rows_of_the_odd_one_learns_it_from_one_that_has() {
    four(Duration::from_secs(2), |rank, io| {
        let mine = if rank == ODD {
            LAYER.with_max_tokens(5)
        } else {
            LAYER
        };
        let one = Io::sized(&io.moe, mine);
        let own = tokens(if rank == 3 {
            [6, 7, 0, -1]
        } else {
            [0, 2, 4, -1]
        });
        let report = one.dispatch(&one.input(&own, |_| ()), &one.output());
        if rank == 3 {
            assert!(report.is_complete(), "{report}");
            one.combine(&one.sums());
        }
        let error = one.call.check().unwrap_err();
        difference(error, "max_tokens of a call", "16", "5");
    });
}

#[test]
fn a_rank_that_makes_another_layer_and_those_that_call_learn_why() {
    four(Duration::from_secs(2), |rank, io| {
        for number in 1..=3 {
            let own = batch(&LAYER, BUSY, 15, number, rank);
            io.dispatch(&io.input(&own, |_| ()), &io.output());
            let out = io.combine(&io.sums());
            io.check(&own, &out, &format!("call {number}, rank {rank}"));
        }
        let team = Arc::clone(io.moe.team());
        team.barrier("called").unwrap();
        let next = LAYER.with_experts(16).with_top_k(2);
        if rank == ODD {
            let error = Moe::new(&team, "next", next).unwrap_err();
            let found = difference(error, "experts", "8", "16");
            assert_eq!((found.call, found.layer.as_str()), (Some(4), "layer"));
            io.moe.skip_to(4).unwrap();
        } else {
            let own = batch(&LAYER, BUSY, 15, 4, rank);
            io.dispatch(&io.input(&own, |_| ()), &io.output());
            let error = io.call.check().unwrap_err();
            let found = difference(error, "experts", "8", "16");
            assert_eq!(found.missed, [ODD]);
            io.moe.trust(ODD).unwrap();
        }
        team.barrier("told").unwrap();
        // Rank 1 is in step again, and what it wanted can be made by all.
        for number in 5..=8 {
            let again = Io::new(&io.moe);
            let own = batch(&LAYER, BUSY, 15, number, rank);
            again.dispatch(&again.input(&own, |_| ()), &again.output());
            let out = again.combine(&again.sums());
            again.check(&own, &out, &format!("call {number}, rank {rank}"));
        }
        Moe::new(&team, "next", next).unwrap();
    });
}

#[test]
fn a_layer_of_other_arguments_is_named_at_all_ranks_and_ends_no_team() {
    four(Duration::from_secs(100), |rank, io| {
        let team = io.moe.team();
        let hidden = if rank == ODD { 128 } else { 64 };
        let error = Moe::new(team, "other", SHAPE.with_hidden(hidden)).unwrap_err();
        let found = difference(error, "hidden", "64", "128");
        assert_eq!((found.call, &found.missed[..]), (None, &[][..]));
        team.barrier("told").unwrap();
        Moe::new(team, "the-same", SHAPE).unwrap();
    });
}
