//! Hand-built WQEs between two QPs of one process: what moves bytes and what does not.

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{
    AtomicSeg, CtrlSeg, MaskedCas64Seg, MaskedFa32Seg, OPMOD_MASKED_4_BYTES, OPMOD_MASKED_8_BYTES,
    WqeOpcode,
};
use softhca::HcaConfig;
use softhca_rig::patience::{HANG, QUIET};
use softhca_rig::{Pair, Shape, data, inline, raddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| rng.u8(..)).collect()
}

#[test]
fn a_hand_built_write_moves_bytes_between_two_hcas() {
    let mut pair = Pair::new(Shape::default());
    let bytes = pattern(5000, 1);
    pair.a.data.write(100, &bytes);
    let (remote, rkey) = (pair.b.data.address() + 77, pair.b.keys.rkey);
    let index = pair.a.write(100, 5000, remote, rkey);
    let cqe = pair.a.run(1)[0];
    assert_eq!(cqe.opcode(), CqeOpcode::REQ);
    assert_eq!(cqe.wqe_counter.get(), index);
    assert_eq!(cqe.srqn_uidx.get(), 0x777);
    assert_eq!(cqe.sop_drop_qpn.get(), 0x0800_0000 | pair.a.qpn);
    assert_eq!(pair.b.data.read(77, 5000), bytes);
    assert_eq!(pair.b.data.read(0, 77), [0; 77]);
    pair.assert_clean();
    let counters = pair.hca_a.counters();
    assert_eq!(
        (counters.wqes, counters.doorbells, counters.cqes),
        (1, 1, 1)
    );
    assert_eq!(counters.bytes_sent, 5000);
    assert_eq!(pair.hca_b.counters().bytes_received, 5000);
}

#[test]
fn without_the_uar_store_nothing_moves_in_strict_mode() {
    let mut pair = Pair::new(Shape::default());
    pair.a.data.write(0, &[7; 8]);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write(0, 8, remote, rkey);
    pair.a.record();
    softhca::engine::softhca_kick();
    assert!(pair.a.poll_for(QUIET, |_| true).is_none());
    assert_eq!(pair.b.data.read(0, 8), [0; 8]);
    pair.a.ring();
    pair.a.completion();
    assert_eq!(pair.b.data.read(0, 8), [7; 8]);
}

#[test]
fn in_lax_mode_the_doorbell_record_is_enough() {
    let config = HcaConfig {
        strict: false,
        ..HcaConfig::default()
    };
    let mut pair = Pair::with(&config, Shape::default(), Shape::default());
    pair.a.data.write(0, &[7; 8]);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write(0, 8, remote, rkey);
    pair.a.record();
    pair.a.completion();
    assert_eq!(pair.b.data.read(0, 8), [7; 8]);
}

#[test]
fn the_record_and_not_the_doorbell_value_decides_what_runs() {
    let mut pair = Pair::new(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write_inline(&[1; 8], remote, rkey);
    pair.a.record();
    pair.a.write_inline(&[2; 8], remote + 8, rkey);
    pair.a.ring(); // names index 2; the record says 1
    pair.a.completion();
    assert!(pair.a.poll_for(QUIET, |_| true).is_none());
    assert_eq!(pair.b.data.read(0, 16), [[1; 8], [0; 8]].concat());
    pair.a.post();
    pair.a.completion();
    assert_eq!(pair.b.data.read(8, 8), [2; 8]);
}

#[test]
fn several_segments_and_a_ring_wrap_in_the_middle_of_a_wqe() {
    let mut pair = Pair::new(Shape {
        log_depth: 2,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let bytes = pattern(600, 2);
    pair.a.data.write(0, &bytes);
    let base = pair.a.data.address();
    let lkey = pair.a.keys.lkey;
    let mut sent = 0;
    // Six units are two blocks, and a single block before each shifts the start: it falls on every slot of the ring.
    for round in 0..12u64 {
        pair.a.nop(true);
        let rest = [
            raddr(remote + round * 600, rkey).as_slice(),
            &data(100, lkey, base + 500),
            &data(1, lkey, base),
            &data(399, lkey, base + 1),
            &data(100, lkey, base + 400),
        ]
        .concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        let cqes = pair.a.run(2);
        assert_eq!(cqes[1].opcode(), CqeOpcode::REQ, "round {round}");
        assert_eq!(cqes[1].byte_cnt.get(), 600);
        let expected = [&bytes[500..], &bytes[..500]].concat();
        let at = usize::try_from(round * 600).unwrap();
        assert_eq!(pair.b.data.read(at, 600), expected, "round {round}");
        sent += 600;
    }
    assert_eq!(pair.hca_a.counters().bytes_sent, sent);
    pair.assert_clean();
}

#[test]
fn inline_data_of_every_length_wraps_with_the_ring() {
    let mut pair = Pair::new(Shape {
        log_depth: 5,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    // The largest WQE has 63 units: 61 for data, 4 bytes of which are the header.
    for bytes in [
        0usize, 1, 7, 8, 12, 13, 16, 24, 28, 29, 44, 100, 500, 971, 972,
    ] {
        let sent = pattern(bytes, bytes as u64);
        pair.a.write_inline(&sent, remote, rkey);
        let cqe = pair.a.run(1)[0];
        assert_eq!(cqe.opcode(), CqeOpcode::REQ, "{bytes} bytes");
        assert_eq!(cqe.byte_cnt.get() as usize, bytes);
        assert_eq!(pair.b.data.read(0, bytes), sent, "{bytes} bytes");
    }
    pair.assert_clean();
}

#[test]
fn indices_run_through_2_to_the_16() {
    let mut pair = Pair::new(Shape {
        log_depth: 8,
        log_cq: None,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for batch in 0..600u32 {
        for _ in 0..127 {
            pair.a.nop(false);
        }
        let value = u64::from(batch).to_le_bytes();
        let last = pair.a.write_inline(&value, remote, rkey);
        pair.a.post();
        let cqe = pair
            .a
            .poll_for(HANG, |cqe| cqe.wqe_counter.get() == last)
            .expect("the batch completes");
        assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        assert_eq!(pair.b.data.read(0, 8), value);
    }
    assert_eq!(pair.hca_a.counters().wqes, 600 * 128);
    pair.assert_clean();
}

#[test]
fn a_collapsed_queue_shows_the_newest_completion_only() {
    let mut pair = Pair::new(Shape {
        log_cq: None,
        ..Shape::default()
    });
    for _ in 0..20 {
        pair.a.nop(true);
    }
    let last = pair.a.index.wrapping_sub(1);
    pair.a.post();
    let cqe = pair.a.poll_for(HANG, |cqe| cqe.wqe_counter.get() == last);
    assert!(cqe.is_some());
    assert_eq!(pair.hca_a.counters().cqes, 20);
}

#[test]
fn a_write_of_length_0_needs_no_key() {
    let mut pair = Pair::new(Shape::default());
    let rest = raddr(0, 0xdead_beef);
    pair.a
        .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    pair.assert_clean();
}

#[test]
fn the_whole_region_can_be_written_and_not_a_byte_more() {
    let mut pair = Pair::new(Shape {
        data_bytes: 3 << 20,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let bytes = pattern(3 << 20, 3);
    pair.a.data.write(0, &bytes);
    pair.a.write(0, 3 << 20, remote, rkey);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert!(pair.b.data.read(0, 3 << 20) == bytes);

    pair.a.write(1, (3 << 20) - 1, remote + 2, rkey);
    let cqe = pair.a.run(1)[0];
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_ACCESS_ERR);
    assert!(pair.b.data.read(0, 3 << 20) == bytes, "nothing was written");
}

#[test]
fn reads_bring_bytes_back() {
    let mut pair = Pair::new(Shape::default());
    let bytes = pattern(3000, 4);
    pair.b.data.write(10, &bytes);
    let (own, lkey) = (pair.a.data.address(), pair.a.keys.lkey);
    let rest = [
        raddr(pair.b.data.address() + 10, pair.b.keys.rkey).as_slice(),
        &data(1000, lkey, own + 2000),
        &data(2000, lkey, own),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    let expected = [&bytes[1000..], &bytes[..1000]].concat();
    assert_eq!(pair.a.data.read(0, 3000), expected);
    pair.assert_clean();
}

#[test]
fn atomics_change_the_remote_word_and_bring_the_old_value() {
    let mut pair = Pair::new(Shape::default());
    let word = |pair: &Pair| pair.b.data.word(64).load(Ordering::Acquire);
    let old = |pair: &Pair| pair.a.data.word(0).load(Ordering::Acquire);
    let at = raddr(pair.b.data.address() + 64, pair.b.keys.rkey);
    let result = |pair: &Pair, bytes| data(bytes, pair.a.keys.lkey, pair.a.data.address());
    pair.b.data.word(64).store(40, Ordering::Release);

    let operands = AtomicSeg {
        swap_add: Be64::new(2),
        compare: Be64::new(0),
    };
    let rest = [
        at.as_slice(),
        bytemuck::bytes_of(&operands),
        &result(&pair, 8),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::ATOMIC_FA, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    pair.a.run(1);
    assert_eq!((word(&pair), old(&pair)), (42, 40));

    let operands = AtomicSeg {
        swap_add: Be64::new(7),
        compare: Be64::new(42),
    };
    let rest = [
        at.as_slice(),
        bytemuck::bytes_of(&operands),
        &result(&pair, 8),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::ATOMIC_CS, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    pair.a.run(1);
    assert_eq!((word(&pair), old(&pair)), (7, 42));

    // Compare mask 0: an unconditional swap.
    let operands = MaskedCas64Seg {
        swap: Be64::new(0xaabb),
        compare: Be64::new(0x1234),
        swap_mask: Be64::new(0xff00),
        compare_mask: Be64::new(0),
    };
    let rest = [
        at.as_slice(),
        bytemuck::bytes_of(&operands),
        &result(&pair, 8),
    ]
    .concat();
    pair.a.write_wqe(
        WqeOpcode::ATOMIC_MASKED_CS,
        OPMOD_MASKED_8_BYTES,
        CtrlSeg::CE_ALWAYS,
        0,
        &rest,
    );
    pair.a.run(1);
    assert_eq!((word(&pair), old(&pair)), (0xaa07, 7));

    let operands = MaskedFa32Seg {
        add: Be32::new(0xffff_ffff),
        ..MaskedFa32Seg::default()
    };
    pair.b
        .data
        .word(64)
        .store(0x5555_5555_0000_0001, Ordering::Release);
    let rest = [
        at.as_slice(),
        bytemuck::bytes_of(&operands),
        &result(&pair, 4),
    ]
    .concat();
    pair.a.write_wqe(
        WqeOpcode::ATOMIC_MASKED_FA,
        OPMOD_MASKED_4_BYTES,
        CtrlSeg::CE_ALWAYS,
        0,
        &rest,
    );
    pair.a.run(1);
    // A result of 4 bytes is big-endian on every device; the 4 bytes after it stay.
    assert_eq!(
        (word(&pair), old(&pair)),
        (0x5555_5555_0000_0000, 1_u32.to_be().into())
    );
    pair.assert_clean();
    assert_eq!(pair.hca_a.counters().atomic_requests, 4);
}

#[test]
fn a_write_with_immediate_takes_a_receive_wqe_and_waits_for_one() {
    let shape = Shape {
        log_receive: Some(2),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    let rest = [
        raddr(pair.b.data.address(), pair.b.keys.rkey).as_slice(),
        &inline(&[9; 16]),
    ]
    .concat();
    let flags = CtrlSeg::CE_ALWAYS | CtrlSeg::SE;
    pair.a
        .write_wqe(WqeOpcode::RDMA_WRITE_IMM, 0, flags, 0x1122_3344, &rest);
    pair.a.post();
    // Never silently lost: without a receive WQE it waits.
    assert!(pair.a.poll_for(QUIET, |_| true).is_none());
    assert!(pair.b.poll_for(Duration::ZERO, |_| true).is_none());
    pair.b.post_receive(0, 0);
    assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
    let cqe = pair.b.completion();
    assert_eq!(cqe.opcode(), CqeOpcode::RESP_WR_IMM);
    assert_eq!(cqe.imm_inval_pkey.get(), 0x1122_3344);
    assert_eq!(cqe.byte_cnt.get(), 16);
    assert_eq!(cqe.op_own & 2, 2, "solicited");
    assert_eq!(pair.b.data.read(0, 16), [9; 16]);
    pair.assert_clean();
}

#[test]
fn sends_go_to_receive_wqes_in_order() {
    let shape = Shape {
        log_receive: Some(2),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    pair.b.post_receive(0, 100);
    pair.b.post_receive(1000, 100);
    for value in [3u8, 4] {
        pair.a.write_wqe(
            WqeOpcode::SEND,
            0,
            CtrlSeg::CE_ALWAYS,
            0,
            &inline(&[value; 50]),
        );
    }
    pair.a.run(2);
    let first = pair.b.completion();
    let second = pair.b.completion();
    assert_eq!((first.wqe_counter.get(), second.wqe_counter.get()), (0, 1));
    assert_eq!(first.opcode(), CqeOpcode::RESP_SEND);
    assert_eq!(pair.b.data.read(0, 51), [[3; 50].as_slice(), &[0]].concat());
    assert_eq!(pair.b.data.read(1000, 50), [4; 50]);
    pair.assert_clean();
}

#[test]
fn a_signal_is_never_seen_before_the_payload_of_the_wqe_before_it() {
    let mut pair = Pair::with(
        &HcaConfig::default(),
        Shape {
            log_cq: None,
            ..Shape::default()
        },
        Shape::default(),
    );
    const PAYLOAD: usize = 1024;
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let data = &pair.b.data;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut last = 0;
            while last < 2000 {
                let signal = data.word(8192).load(Ordering::Acquire);
                let other = data.word(8200).load(Ordering::Acquire);
                assert!(
                    other == 0 || other + 1 >= signal,
                    "the words of a signal go out in order"
                );
                let payload = data.word(PAYLOAD - 8).load(Ordering::Acquire);
                let first = data.word(0).load(Ordering::Acquire);
                assert!(
                    first >= signal && payload >= signal,
                    "{first} {payload} behind {signal}"
                );
                last = signal;
            }
        });
        let a = &mut pair.a;
        for round in 1..=2000u64 {
            a.data.write(0, &round.to_ne_bytes().repeat(PAYLOAD / 8));
            a.write(0, u32::try_from(PAYLOAD).unwrap(), remote, rkey);
            let signal = round.to_ne_bytes().repeat(2);
            let last = a.write_inline(&signal, remote + 8192, rkey);
            a.post();
            a.poll_for(HANG, |cqe| cqe.wqe_counter.get() == last)
                .expect("the round completes");
        }
        reader.join().unwrap();
    });
}
