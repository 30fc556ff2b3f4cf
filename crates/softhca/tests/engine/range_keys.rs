//! Keys over part of a region that one command makes, as the host engine gives them to peers. The tests check the range, the access
//! and the end of such a key.

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use mlx5_prm::mkey::{CreateMkeyIn, Mkc};
use mlx5_prm::umr::Klm;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca::device::DevxObject;
use softhca_rig::{End, Pair, Shape, create, data, raddr};

/// The low byte of the keys.
const TAG: u32 = 0x5a;
/// Where in the data of its end a key begins, and its length.
const FIRST: u64 = 4096;
const BYTES: u64 = 8192;
/// The address by which requests name the first byte: no address of any memory.
const NAMED: u64 = 0x4000_0000_0000_0040;

fn pair(loopback: bool) -> Pair {
    let config = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    Pair::with(&config, Shape::default(), Shape::default())
}

/// A key over part of the end's data.
fn range_key(end: &End, reads: bool, writes: bool) -> (DevxObject, u32) {
    let mkc = Mkc::default()
        .with_access_mode_1_0(Mkc::ACCESS_MODE_KLM)
        .with_rr(reads.into())
        .with_rw(writes.into())
        .with_lr(1)
        .with_lw(1)
        .with_qpn(Mkc::ANY_QP)
        .with_mkey_7_0(TAG)
        .with_pd(end.pdn)
        .with_start_addr(NAMED)
        .with_len(BYTES)
        .with_translations_octword_size(4);
    let input = CreateMkeyIn::default()
        .with_opcode(Opcode::CREATE_MKEY.0.into())
        .with_mkc(mkc)
        .with_translations_octword_actual_size(1);
    let piece = Klm {
        byte_count: Be32::new(u32::try_from(BYTES).unwrap()),
        mkey: Be32::new(end.keys.lkey),
        address: Be64::new(end.data.address() + FIRST),
    };
    let mut command = input.as_bytes().to_vec();
    command.extend_from_slice(bytemuck::bytes_of(&piece));
    command.resize(CreateMkeyIn::BYTES + 64, 0);
    let (object, index) = create(&end.context, &command).unwrap();
    (object, index << 8 | TAG)
}

fn run(pair: &mut Pair, opcode: WqeOpcode, bytes: u32, va: u64, rkey: u32) -> Result<(), Syndrome> {
    let rest = [
        raddr(va, rkey),
        data(bytes, pair.a.keys.lkey, pair.a.data.address()),
    ]
    .concat();
    pair.a.write_wqe(opcode, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    let cqe = pair.a.run(1)[0];
    match cqe.opcode() {
        CqeOpcode::REQ => Ok(()),
        _ => Err(Syndrome(bytemuck::cast::<Cqe64, ErrCqe>(cqe).syndrome)),
    }
}

#[test]
fn a_key_lets_a_peer_in_from_its_first_byte_to_its_last_and_no_further() {
    for loopback in [true, false] {
        for opcode in [WqeOpcode::RDMA_WRITE, WqeOpcode::RDMA_READ] {
            for (at, bytes, is_inside) in [
                (0, 8192, true),
                (0, 1, true),
                (8191, 1, true),
                (8192, 1, false),
                (8191, 2, false),
                (u64::MAX, 1, false),
                (u64::MAX, 2, false),
            ] {
                let mut pair = pair(loopback);
                let (_, rkey) = range_key(&pair.b, true, true);
                pair.a.data.write(0, &[1; 8192]);
                pair.b.data.write(0, &[2; 16384]);
                let done = run(&mut pair, opcode, bytes, NAMED.wrapping_add(at), rkey);
                let expected = if is_inside {
                    Ok(())
                } else {
                    Err(Syndrome::REMOTE_ACCESS_ERR)
                };
                assert_eq!(done, expected, "{loopback} {opcode:?} {at} {bytes}");
                let mut there = vec![2; 16384];
                let mut here = vec![1; 8192];
                let length = usize::try_from(bytes).unwrap();
                let first = usize::try_from((FIRST).wrapping_add(at)).unwrap();
                match (is_inside, opcode) {
                    (false, _) => {}
                    (true, WqeOpcode::RDMA_WRITE) => there[first..first + length].fill(1),
                    (true, _) => here[..length].fill(2),
                }
                assert!(
                    pair.b.data.read(0, 16384) == there,
                    "{opcode:?} {at} {bytes}"
                );
                assert!(pair.a.data.read(0, 8192) == here, "{opcode:?} {at} {bytes}");
            }
        }
    }
}

#[test]
fn a_key_lets_a_peer_do_what_it_has_the_right_for() {
    for loopback in [true, false] {
        for (reads, writes) in [(true, false), (false, true), (false, false)] {
            for (opcode, may) in [
                (WqeOpcode::RDMA_READ, reads),
                (WqeOpcode::RDMA_WRITE, writes),
            ] {
                let mut pair = pair(loopback);
                let (_, rkey) = range_key(&pair.b, reads, writes);
                pair.a.data.write(0, &[1; 64]);
                let done = run(&mut pair, opcode, 64, NAMED, rkey);
                assert_eq!(done.is_ok(), may, "{loopback} {opcode:?}: {done:?}");
                if !may {
                    assert_eq!(done, Err(Syndrome::REMOTE_ACCESS_ERR));
                    assert_eq!(pair.b.data.read(4096, 64), [0; 64]);
                    assert_eq!(pair.a.data.read(0, 64), [1; 64]);
                }
            }
        }
    }
}

#[test]
fn nothing_that_is_written_behind_the_end_of_a_key_is_read_by_it() {
    for loopback in [true, false] {
        for round in 0..24u8 {
            let mut pair = pair(loopback);
            let (object, rkey) = range_key(&pair.b, true, false);
            let rest = [
                raddr(NAMED, rkey),
                data(8192, pair.a.keys.lkey, pair.a.data.address()),
            ];
            let rest = rest.concat();
            for _ in 0..8 {
                pair.a
                    .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
            }
            pair.a.post();
            // As many are over as may be.
            for _ in 0..round % 8 {
                pair.a.completion();
            }
            pair.b.context.devx_destroy(object).unwrap();
            pair.b.data.write(4096, &[0xee; 8192]);
            for _ in round % 8..8 {
                pair.a.completion();
            }
            let read = pair.a.data.read(0, 8192);
            assert!(!read.contains(&0xee), "{loopback} {round}");
        }
    }
}
