//! Memory windows, indirect keys and their changes by UMR WQEs, inside the process and over packets.

use mlx5_prm::be::{Be16, Be32, Be64};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use mlx5_prm::mkey::{CreateMkeyIn, Mkc};
use mlx5_prm::umr::{Klm, RepeatBlock, RepeatEntry, UmrCtrlSeg};
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca::device::syndrome;
use softhca_rig::{End, Pair, Shape, create, data, raddr};

/// The low byte of all keys made by command here.
const TAG: u32 = 0x77;
const ANY: u32 = Mkc::ANY_QP;
const ALL_ACCESS: u32 = 0x1f;

fn pair(loopback: bool, shape: Shape) -> Pair {
    let config = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    Pair::with(&config, shape.clone(), shape)
}

fn windows_allowed() -> Shape {
    Shape {
        access: ALL_ACCESS,
        log_receive: Some(3),
        ..Shape::default()
    }
}

fn klm(key: u32, va: u64, bytes: u32) -> [u8; 16] {
    bytemuck::cast(Klm {
        byte_count: Be32::new(bytes),
        mkey: Be32::new(key),
        address: Be64::new(va),
    })
}

/// A UMR WQE after its control segment, the list inline.
fn umr(flags: u8, mask: u64, mkc: &Mkc, list: &[[u8; 16]]) -> Vec<u8> {
    let ctrl = UmrCtrlSeg {
        flags: flags | UmrCtrlSeg::FLAG_INLINE,
        klm_octowords: Be16::new(list.len().next_multiple_of(4).try_into().unwrap()),
        mkey_mask: Be64::new(mask),
        ..UmrCtrlSeg::default()
    };
    let mut wqe = [bytemuck::bytes_of(&ctrl), mkc.as_bytes()].concat();
    wqe.extend(list.concat());
    wqe.resize(112 + list.len().next_multiple_of(4) * 16, 0);
    wqe
}

const RIGHTS: u64 = UmrCtrlSeg::MASK_LOCAL_WRITE
    | UmrCtrlSeg::MASK_REMOTE_READ
    | UmrCtrlSeg::MASK_REMOTE_WRITE
    | UmrCtrlSeg::MASK_ATOMIC;
const SETUP: u64 = UmrCtrlSeg::MASK_FREE | UmrCtrlSeg::MASK_MKEY | UmrCtrlSeg::MASK_LEN | RIGHTS;

fn full(mkc: Mkc) -> Mkc {
    mkc.with_lw(1).with_rr(1).with_rw(1).with_a(1)
}

/// Posts a UMR WQE for `key`; whether it ended well.
fn change(end: &mut End, key: u32, rest: &[u8]) -> Result<(), Syndrome> {
    end.write_wqe(WqeOpcode::UMR, 0, CtrlSeg::CE_ALWAYS, key, rest);
    end.post();
    let cqe = end.completion();
    ended(&cqe)?;
    assert_eq!(cqe.sop_drop_qpn.get() >> 24, u32::from(WqeOpcode::UMR.0));
    Ok(())
}

fn ended(cqe: &Cqe64) -> Result<(), Syndrome> {
    match cqe.opcode() {
        CqeOpcode::REQ | CqeOpcode::RESP_SEND_INV => Ok(()),
        _ => Err(Syndrome(bytemuck::cast::<Cqe64, ErrCqe>(*cqe).syndrome)),
    }
}

/// Binds a window over `bytes` bytes at `offset` of the end's data, with the right to be written; its new rkey.
fn bind(end: &mut End, window: u32, offset: u64, bytes: u32, qpn: u32) -> Result<u32, Syndrome> {
    let va = end.data.address() + offset;
    let tag = (window + 1) & 0xff;
    let mkc = Mkc::default()
        .with_rw(1)
        .with_qpn(qpn)
        .with_mkey_7_0(tag)
        .with_start_addr(va)
        .with_len(bytes.into());
    let mask = SETUP | UmrCtrlSeg::MASK_START_ADDR | UmrCtrlSeg::MASK_QPN;
    let list = [klm(end.keys.lkey, va, bytes)];
    let rest = umr(UmrCtrlSeg::FLAG_TRANSLATION_OFFSET, mask, &mkc, &list);
    change(end, window, &rest)?;
    Ok(window & !0xff | tag)
}

fn invalidate() -> Vec<u8> {
    let mask = UmrCtrlSeg::MASK_FREE | UmrCtrlSeg::MASK_MKEY | UmrCtrlSeg::MASK_QPN;
    let mkc = Mkc::default().with_free(1).with_qpn(ANY);
    umr(UmrCtrlSeg::FLAG_CHECK_QPN, mask, &mkc, &[])
}

/// One WRITE of 8 bytes from a to `va` under `rkey`.
fn write(pair: &mut Pair, va: u64, rkey: u32) -> Result<(), Syndrome> {
    pair.a.write(0, 8, va, rkey);
    ended(&pair.a.run(1)[0])
}

/// Returns a key for UMR WQEs, as `mlx5dv_create_mkey` makes it.
fn indirect_key(end: &End, entries: u32) -> u32 {
    let mkc = Mkc::default()
        .with_access_mode_1_0(Mkc::ACCESS_MODE_KLM)
        .with_free(1)
        .with_umr_en(1)
        .with_lr(1)
        .with_qpn(ANY)
        .with_mkey_7_0(TAG)
        .with_pd(end.pdn)
        .with_translations_octword_size(entries);
    let input = CreateMkeyIn::default()
        .with_opcode(Opcode::CREATE_MKEY.0.into())
        .with_mkc(mkc);
    create(&end.context, input.as_bytes()).unwrap().1 << 8 | TAG
}

fn on_both(test: impl Fn(bool)) {
    for loopback in [true, false] {
        println!("loopback {loopback}");
        test(loopback);
    }
}

#[test]
fn a_window_lets_the_peer_in_exactly_where_and_while_it_is_bound() {
    on_both(|loopback| {
        let mut pair = pair(loopback, windows_allowed());
        pair.a.data.write(0, b"through!");
        let window = pair.b.context.alloc_mw(pair.b.pdn, false).unwrap();
        let rkey = bind(&mut pair.b, window, 256, 64, ANY).unwrap();
        assert_eq!(rkey >> 8, window >> 8);
        let va = pair.b.data.address() + 256;
        write(&mut pair, va + 56, rkey).unwrap();
        assert_eq!(pair.b.data.read(256 + 56, 8), b"through!");
        let moved = bind(&mut pair.b, rkey, 512, 64, ANY).unwrap();
        write(&mut pair, va + 256, moved).unwrap();
        pair.assert_clean();
        let refused = write(&mut pair, va, moved);
        assert_eq!(refused, Err(Syndrome::REMOTE_ACCESS_ERR));
        assert_eq!(pair.b.data.read(256, 8), [0; 8]);
        assert_eq!(pair.b.context.live_objects().mw, 1);
        pair.b.context.dealloc_mw(window).unwrap();
        assert_eq!(pair.b.context.live_objects().mw, 0);
        assert!(pair.b.context.dealloc_mw(window).is_err());
    });
}

#[test]
fn a_window_that_was_unbound_is_closed() {
    let mut pair = pair(true, windows_allowed());
    let window = pair.b.context.alloc_mw(pair.b.pdn, true).unwrap();
    let qpn = pair.b.qpn;
    let rkey = bind(&mut pair.b, window, 0, 64, qpn).unwrap();
    let va = pair.b.data.address();
    write(&mut pair, va, rkey).unwrap();
    change(&mut pair.b, rkey, &invalidate()).unwrap();
    assert_eq!(write(&mut pair, va, rkey), Err(Syndrome::REMOTE_ACCESS_ERR));
}

#[test]
fn a_bind_without_the_regions_leave_is_a_bind_error() {
    let mut pair = pair(true, Shape::default());
    let window = pair.b.context.alloc_mw(pair.b.pdn, false).unwrap();
    let refused = bind(&mut pair.b, window, 0, 64, ANY);
    assert_eq!(refused, Err(Syndrome::MW_BIND_ERR));
    let findings = pair.hca_b.findings();
    assert!(findings[0].contains("without the right"), "{findings:?}");
}

#[test]
fn a_send_with_invalidate_closes_a_window_of_type_2_and_nothing_else() {
    on_both(|loopback| {
        let mut pair = pair(loopback, windows_allowed());
        let window = pair.b.context.alloc_mw(pair.b.pdn, true).unwrap();
        let qpn = pair.b.qpn;
        let rkey = bind(&mut pair.b, window, 0, 64, qpn).unwrap();
        for (key, outcome, received) in [
            (rkey, Ok(()), Ok(())),
            (
                pair.b.keys.rkey,
                Err(Syndrome::REMOTE_ACCESS_ERR),
                Err(Syndrome::LOCAL_ACCESS_ERR),
            ),
        ] {
            pair.b.post_receive(1024, 64);
            let rest = data(8, pair.a.keys.lkey, pair.a.data.address());
            pair.a
                .write_wqe(WqeOpcode::SEND_INVAL, 0, CtrlSeg::CE_ALWAYS, key, &rest);
            assert_eq!(ended(&pair.a.run(1)[0]), outcome);
            let cqe = pair.b.completion();
            assert_eq!(ended(&cqe), received);
            if received.is_ok() {
                assert_eq!(cqe.imm_inval_pkey.get(), key);
            }
        }
        let findings = pair.hca_b.findings();
        assert!(findings[0].contains("invalidate"), "{findings:?}");
    });
}

#[test]
fn an_indirect_key_gathers_and_scatters_at_both_ends() {
    on_both(|loopback| {
        let mut pair = pair(loopback, Shape::default());
        let (near, far) = (indirect_key(&pair.a, 8), indirect_key(&pair.b, 8));
        let at = |end: &End, offset: u64| end.data.address() + offset;
        // A block of two pieces, four times, at the near end; three pieces at the far end.
        let block = bytemuck::cast(RepeatBlock {
            byte_count: Be32::new(12),
            op: Be32::new(RepeatBlock::OP),
            repeat_count: Be32::new(4),
            reserved: Be16::new(0),
            num_ent: Be16::new(2),
        });
        let piece = |va, bytes, stride| {
            bytemuck::cast(RepeatEntry {
                stride: Be16::new(stride),
                byte_count: Be16::new(bytes),
                memkey: Be32::new(pair.a.keys.lkey),
                va: Be64::new(va),
            })
        };
        let list = [
            block,
            piece(at(&pair.a, 0), 4, 16),
            piece(at(&pair.a, 1000), 8, 32),
        ];
        let mkc = full(Mkc::default().with_mkey_7_0(TAG).with_len(48));
        change(&mut pair.a, near, &umr(0, SETUP, &mkc, &list)).unwrap();
        let key = pair.b.keys.lkey;
        let list = [
            klm(key, at(&pair.b, 64), 5),
            klm(key, at(&pair.b, 200), 40),
            klm(key, at(&pair.b, 30), 3),
        ];
        change(&mut pair.b, far, &umr(0, SETUP, &mkc, &list)).unwrap();

        let bytes: Vec<u8> = (0..48).collect();
        for (block, chunk) in bytes.chunks(12).enumerate() {
            pair.a.data.write(block * 16, &chunk[..4]);
            pair.a.data.write(1000 + block * 32, &chunk[4..]);
        }
        let both = [raddr(0, far), data(48, near, 0)].concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &both);
        ended(&pair.a.run(1)[0]).unwrap();
        let read = |at, bytes| pair.b.data.read(at, bytes);
        assert_eq!([read(64, 5), read(200, 40), read(30, 3)].concat(), bytes);
        assert_eq!(pair.b.data.read(240, 8), [0; 8]);

        // Back again, reversed at the far end, into plain memory.
        pair.b.data.write(64, &[9; 5]);
        let back = [raddr(0, far), data(48, pair.a.keys.lkey, at(&pair.a, 4096))].concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &back);
        ended(&pair.a.run(1)[0]).unwrap();
        let mut expected = bytes.clone();
        expected[..5].fill(9);
        assert_eq!(pair.a.data.read(4096, 48), expected);
        pair.assert_clean();
    });
}

#[test]
fn a_ksm_made_by_one_command_serves_writes_and_atomics_at_an_offset() {
    on_both(|loopback| {
        let mut pair = pair(loopback, Shape::default());
        let base = pair.b.data.address();
        let mkc = full(Mkc::default())
            .with_access_mode_1_0(Mkc::ACCESS_MODE_KSM)
            .with_lr(1)
            .with_qpn(ANY)
            .with_mkey_7_0(TAG)
            .with_pd(pair.b.pdn)
            .with_start_addr(base + 0x20)
            .with_len(8192)
            .with_translations_octword_size(2)
            .with_log_page_size(12);
        let input = CreateMkeyIn::default()
            .with_opcode(Opcode::CREATE_MKEY.0.into())
            .with_mkc(mkc)
            .with_translations_octword_actual_size(2);
        let key = pair.b.keys.lkey;
        // The pages change places.
        let list = [klm(key, base + 4096, 0), klm(key, base, 0)];
        let mut command = input.as_bytes().to_vec();
        command.extend(list.concat());
        let rkey = create(&pair.b.context, &command).unwrap().1 << 8 | TAG;
        pair.a.data.write(0, b"12345678");
        write(&mut pair, base + 0x20 + 4096 - 4, rkey).unwrap();
        assert_eq!(pair.b.data.read(8192 - 4, 4), b"1234");
        assert_eq!(pair.b.data.read(0, 4), b"5678");

        pair.b.data.write(4096 + 64, &7u64.to_ne_bytes());
        let operands = AtomicSeg {
            swap_add: Be64::new(5),
            compare: Be64::new(0),
        };
        let rest = [
            raddr(base + 0x20 + 64, rkey).as_slice(),
            bytemuck::bytes_of(&operands),
            &data(8, pair.a.keys.lkey, pair.a.data.address() + 512),
        ]
        .concat();
        pair.a
            .write_wqe(WqeOpcode::ATOMIC_FA, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        ended(&pair.a.run(1)[0]).unwrap();
        assert_eq!(pair.b.data.read(4096 + 64, 8), 12u64.to_ne_bytes());
        assert_eq!(pair.a.data.read(512, 8), 7u64.to_ne_bytes());
        pair.assert_clean();
    });
}

#[test]
fn work_behind_a_umr_sees_its_change_and_earlier_work_does_not() {
    on_both(|loopback| {
        let mut pair = pair(loopback, Shape::default());
        let key = indirect_key(&pair.a, 4);
        let (own, base) = (pair.a.keys.lkey, pair.a.data.address());
        pair.a.data.write(0, &[1; 4096]);
        pair.a.data.write(4096, &[2; 4096]);
        let remote = pair.b.data.address();
        let rkey = pair.b.keys.rkey;
        let mkc = full(Mkc::default().with_mkey_7_0(TAG).with_len(4096));
        for round in 0..4u64 {
            let list = [klm(own, base + round % 2 * 4096, 4096)];
            pair.a
                .write_wqe(WqeOpcode::UMR, 0, 0, key, &umr(0, SETUP, &mkc, &list));
            let rest = [raddr(remote + round * 4096, rkey), data(4096, key, 0)].concat();
            pair.a
                .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        }
        pair.a
            .write_wqe(WqeOpcode::UMR, 0, CtrlSeg::CE_ALWAYS, key, &invalidate());
        let indices: Vec<u16> = pair
            .a
            .run(5)
            .iter()
            .map(|cqe| cqe.wqe_counter.get())
            .collect();
        assert!(indices.is_sorted(), "{indices:?}");
        for round in 0..4 {
            let expected = [1 + u8::try_from(round % 2).unwrap(); 4096];
            assert_eq!(pair.b.data.read(round * 4096, 4096), expected, "{round}");
        }
        pair.assert_clean();
        let rest = [raddr(remote, rkey), data(8, key & !0xff, 0)].concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
        assert_eq!(ended(&pair.a.run(1)[0]), Err(Syndrome::LOCAL_PROT_ERR));
    });
}

#[test]
fn a_list_may_lie_in_memory_and_change_in_part() {
    let mut pair = pair(true, Shape::default());
    let key = indirect_key(&pair.a, 8);
    let (own, base) = (pair.a.keys.lkey, pair.a.data.address());
    let list: Vec<u8> = (0..8u64)
        .flat_map(|n| klm(own, base + 512 + n * 16, 4))
        .collect();
    pair.a.data.write(8192, &list);
    for n in 0..8usize {
        pair.a
            .data
            .write(512 + n * 16, &[u8::try_from(n).unwrap(); 4]);
    }
    let mkc = full(Mkc::default().with_mkey_7_0(TAG).with_len(32));
    let by_pointer = |first: u16, count: u16, at: u64| {
        let ctrl = UmrCtrlSeg {
            flags: UmrCtrlSeg::FLAG_TRANSLATION_OFFSET,
            klm_octowords: Be16::new(count),
            translation_offset: Be16::new(first),
            mkey_mask: Be64::new(SETUP),
            ..UmrCtrlSeg::default()
        };
        let pointer = data(u32::from(count) * 16, own, base + at);
        [bytemuck::bytes_of(&ctrl), mkc.as_bytes(), &pointer].concat()
    };
    change(&mut pair.a, key, &by_pointer(0, 8, 8192)).unwrap();
    // Entries 2 and 3 become what 6 and 7 are.
    change(&mut pair.a, key, &by_pointer(2, 2, 8192 + 96)).unwrap();
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let rest = [raddr(remote, rkey), data(32, key, 0)].concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    ended(&pair.a.run(1)[0]).unwrap();
    let expected: Vec<u8> = [0, 1, 6, 7, 4, 5, 6, 7]
        .into_iter()
        .flat_map(|n| [n; 4])
        .collect();
    assert_eq!(pair.b.data.read(0, 32), expected);
    pair.assert_clean();
    // A list where no key gives it.
    let wrong = [&by_pointer(0, 8, 8192)[..112], &data(128, own ^ 1, base)].concat();
    let refused = change(&mut pair.a, key, &wrong);
    assert_eq!(refused, Err(Syndrome::LOCAL_PROT_ERR));
}

#[test]
fn a_umr_that_makes_no_sense_fails_by_itself() {
    let long = [klm(1, 0, 1); 12];
    let mkc = Mkc::default().with_len(8);
    for (rest, syndrome) in [
        (vec![0; 16], Syndrome::LOCAL_QP_OP_ERR),
        (umr(0, SETUP, &mkc, &long), Syndrome::MW_BIND_ERR),
        (
            umr(0, UmrCtrlSeg::MASK_BSF_ENABLE, &mkc, &[]),
            Syndrome::MW_BIND_ERR,
        ),
        (
            umr(UmrCtrlSeg::FLAG_FAIL_IF_FREE, 0, &mkc, &[]),
            Syndrome::MW_BIND_ERR,
        ),
    ] {
        let mut pair = pair(true, Shape::default());
        let key = indirect_key(&pair.a, 8);
        assert_eq!(change(&mut pair.a, key, &rest), Err(syndrome));
    }
    let mut pair = pair(true, Shape::default());
    let region = pair.a.keys.lkey;
    let refused = change(&mut pair.a, region, &invalidate());
    assert_eq!(refused, Err(Syndrome::MW_BIND_ERR));
}

#[test]
fn keys_that_this_device_does_not_have_are_refused() {
    let pair = pair(true, Shape::default());
    let mkc = full(Mkc::default())
        .with_access_mode_1_0(Mkc::ACCESS_MODE_KLM)
        .with_qpn(ANY)
        .with_pd(pair.a.pdn)
        .with_translations_octword_size(4);
    let refused = |mkc: Mkc, listed: u32, list: &[[u8; 16]]| {
        let input = CreateMkeyIn::default()
            .with_opcode(Opcode::CREATE_MKEY.0.into())
            .with_mkc(mkc)
            .with_translations_octword_actual_size(listed);
        let mut command = input.as_bytes().to_vec();
        command.extend(list.concat());
        softhca_rig::bringup::refused(create(&pair.a.context, &command)).1
    };
    let piece = klm(pair.a.keys.lkey, pair.a.data.address(), 64);
    for (mkc, listed, expected) in [
        (mkc.with_bsf_en(1), 0, syndrome::MKEY_SIGNATURE),
        (mkc.with_bsf_octword_size(4), 0, syndrome::MKEY_SIGNATURE),
        (mkc.with_crypto_en(1), 0, syndrome::MKEY_SIGNATURE),
        (mkc.with_access_mode_4_2(1), 0, syndrome::MKEY_MODE),
        (mkc.with_length64(1), 0, syndrome::MKEY_RANGE),
        (mkc.with_pd(0x00ff_ffff), 0, syndrome::NO_SUCH_PD),
        (
            mkc.with_translations_octword_size(1 << 20),
            0,
            syndrome::MKEY_LIST_TOO_LONG,
        ),
        // A command without its list, with a list that is too long, and with one that is shorter than the key.
        (mkc, 2, syndrome::INPUT_TOO_SHORT),
        (
            mkc.with_translations_octword_size(0),
            1,
            syndrome::MKEY_LIST,
        ),
        (mkc.with_len(65), 1, syndrome::MKEY_LIST),
    ] {
        assert_eq!(refused(mkc, listed, &[piece]), expected, "{mkc:?} {listed}");
    }
}
