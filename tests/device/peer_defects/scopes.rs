//! Warps and blocks that post together: every thread knows its index, every thread gets the same answer.

use std::mem::offset_of;

use bytemuck::bytes_of;
use warpverbs::abi::{QpContext, Status};

use crate::healthy;
use test_support::device::launch;
use test_support::ring::Ring;
use test_support::words::word;

/// Where the WQE with this index writes to, and whether its data is inside. The WQE must say that it is that one.
#[track_caller]
fn target(ring: &Ring, index: u64) -> (u64, bool) {
    let wqe = ring.wqe(index);
    assert_eq!(
        u64::from(wqe[1]) << 8 | u64::from(wqe[2]),
        index,
        "{wqe:02x?}"
    );
    assert_eq!((wqe[3], wqe[7]), (8, 3), "RDMA WRITE of three segments");
    let addr = u64::from_be_bytes(wqe[16..24].try_into().unwrap());
    (addr, wqe[32] & 0x80 != 0)
}

/// NVSHMEM, :3114-3118: `put_signal` of a warp takes a base index that only lane 0 has.
#[test]
fn every_lane_of_a_warp_writes_its_own_slot_and_the_signal_comes_last() {
    let (warps, rounds) = (2_u32, 3_u32);
    let threads = 32 * warps;
    // 3: lane 0 has nothing to put.
    for every in [0, 3, 31] {
        let words = u64::from(threads * rounds);
        let ring = Ring::shared(256, (words + u64::from(warps)) as usize, 0);
        let params = ring.params(rounds, every);
        let ends = ring.run(
            &launch("wv_test_defect_warp_signal", 1, threads, every.into()),
            &params,
        );
        let lanes: Vec<u64> = (0..32)
            .filter(|lane| every == 0 || lane % u64::from(every) == 1)
            .collect();
        let batch = lanes.len() as u64 + 1;
        assert_eq!(
            ring.read_context().resv,
            u64::from(warps * rounds) * batch,
            "every {every}"
        );
        let base = ring.window().base + params.dst_offset;
        let mut next_round = vec![0; warps as usize];
        for first in (0..ring.read_context().resv).step_by(batch as usize) {
            let (signal, inline) = target(&ring, first + batch - 1);
            assert!(inline, "the signal is behind the data of all lanes");
            let warp = (signal - base) / 8 - words;
            let round = &mut next_round[warp as usize];
            for (place, lane) in lanes.iter().enumerate() {
                let thread = 32 * warp + lane;
                let word = thread * u64::from(rounds) + *round;
                let expected = (base + 8 * word, false);
                assert_eq!(target(&ring, first + place as u64), expected, "lane {lane}");
            }
            *round += 1;
        }
        assert_eq!(next_round, vec![u64::from(rounds); warps as usize]);
        // One ticket for all lanes, one past the signal of the warp's last batch.
        for warp in ends.chunks(32) {
            assert!(warp.iter().all(|end| *end == warp[0]), "{warp:?}");
            assert_eq!((warp[0].0, u64::from(warp[0].1) % batch), (Status::OK, 0));
        }
        let nic = ring.nic(healthy(1));
        let ends = ring.run(&launch("wv_test_quiet", 1, 1, 0), &ring.params(0, 0));
        assert_eq!((ends[0].0, nic.stop().findings.len()), (Status::OK, 0));
        let arrived = ring.target();
        let put = |k: &u64| lanes.contains(&(k / u64::from(rounds) % 32));
        for k in 0..words {
            let expected = if put(&k) { word(k) } else { 0 };
            assert_eq!(arrived[k as usize], expected, "word {k}, every {every}");
        }
        assert_eq!(arrived[words as usize..], [u64::from(rounds); 2]);
    }
}

/// Puts one word from each active thread of two blocks.
fn block_put(ring: &Ring, threads: u32, every: u32) -> Vec<(Status, u32)> {
    ring.run(
        &launch("wv_test_defect_block_put", 2, threads, every.into()),
        &ring.params(1, every),
    )
}

/// UCX, gdaki.cuh:150-162, 252-260: block-level put reads an index that only one warp was given, and threads part before a
/// barrier.
#[test]
fn a_block_whose_first_thread_puts_nothing_gets_one_index_and_one_answer() {
    for (threads, every) in [(33, 32), (40, 2), (61, 60), (64, 3), (96, 64), (100, 7)] {
        let ring = Ring::shared(256, 2 * threads as usize, 0);
        let nic = ring.nic(healthy(every.into()));
        let ends = block_put(&ring, threads, every);
        let what = format!("{threads} threads, every {every}");
        assert_eq!(nic.stop().findings, [""; 0], "{what}");
        let active: Vec<u32> = (0..threads).filter(|t| t % every == 1).collect();
        let mut tickets = Vec::new();
        for block in ends.chunks(threads as usize) {
            assert!(
                block.iter().all(|end| *end == block[0]),
                "{what}: {block:?}"
            );
            assert_eq!(block[0].0, Status::OK, "{what}");
            tickets.push(block[0].1 as usize);
        }
        tickets.sort_unstable();
        assert_eq!(tickets, [active.len(), 2 * active.len()], "{what}");
        for (k, target) in ring.target().into_iter().enumerate() {
            let puts = active.contains(&(k as u32 % threads));
            let expected = if puts { word(k as u64) } else { 0 };
            assert_eq!(target, expected, "{what}: word {k}");
        }
    }
}

/// The same place: on an error some threads return and the others stay in the barrier.
#[test]
fn a_block_that_cannot_post_gets_the_same_answer_in_every_thread() {
    let same = |ring: &Ring, every: u32, status: Status| {
        let ends = block_put(ring, 70, every);
        assert_eq!(ends, [(status, 0); 140], "every {every}");
        assert_eq!(ring.read_context().resv, 0);
    };
    let ring = Ring::shared(256, 140, 0);
    same(&ring, 1, Status::INVALID); // no thread is active
    same(&ring, 0, Status::INVALID); // more than a quarter of the ring
    let failed = bytes_of(&Status::CQE_ERROR).to_vec();
    ring.patch(offset_of!(QpContext, err), &failed);
    same(&ring, 2, Status::CQE_ERROR);
    let ring = Ring::shared(256, 140, 0);
    ring.patch(offset_of!(QpContext, abort), &1_u32.to_ne_bytes());
    same(&ring, 2, Status::ABORTED);
}
