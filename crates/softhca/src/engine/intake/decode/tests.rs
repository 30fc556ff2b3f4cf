//! Tests of decoding.

use super::*;
use mlx5_prm::be::{Be16, Be32, Be64};
use proptest::prelude::*;

const RC: Sender = sender(Service::Rc);

const fn sender(service: Service) -> Sender {
    Sender {
        service,
        qkey: 0x22,
        mtu: 1024,
        infiniband: None,
    }
}

fn raddr(va: u64, rkey: u32) -> RaddrSeg {
    RaddrSeg {
        raddr: Be64::new(va),
        rkey: Be32::new(rkey),
        ..RaddrSeg::default()
    }
}

fn data(bytes: u32, lkey: u32, address: u64) -> DataSeg {
    DataSeg {
        byte_count: Be32::new(bytes),
        lkey: Be32::new(lkey),
        addr: Be64::new(address),
    }
}

fn run(opcode: WqeOpcode, opmod: u8, units: &[&[u8]]) -> Result<Decoded, DecodeError> {
    run_as(&RC, opcode, opmod, units)
}

fn run_as(
    sender: &Sender,
    opcode: WqeOpcode,
    opmod: u8,
    units: &[&[u8]],
) -> Result<Decoded, DecodeError> {
    let body: Vec<u8> = units.concat();
    let ds = u8::try_from(1 + body.len().div_ceil(16)).unwrap();
    let mut ctrl = CtrlSeg::new(opcode, 0, 1, ds).with_opmod(opmod);
    ctrl.imm = Be32::new(0x1234_5678);
    let mut wqe = bytemuck::bytes_of(&ctrl).to_vec();
    wqe.extend(body);
    wqe.resize(usize::from(ds) * 16, 0);
    decode(sender, &ctrl, &wqe)
}

fn bytes<T: bytemuck::NoUninit>(value: &T) -> &[u8] {
    bytemuck::bytes_of(value)
}

#[test]
fn a_write_of_three_segments_keeps_their_order() {
    let (operation, local) = run(
        WqeOpcode::RDMA_WRITE,
        0,
        &[
            bytes(&raddr(0x1000, 7)),
            bytes(&data(16, 1, 0xa0)),
            bytes(&data(8, 2, 0xb0)),
            bytes(&data(4, 3, 0xc0)),
        ],
    )
    .unwrap();
    let operation = operation.unwrap();
    assert_eq!(operation.bytes, 28);
    assert_eq!(
        operation.kind,
        OperationKind::Write {
            va: 0x1000,
            rkey: 7,
            immediate: None
        }
    );
    let lkeys: Vec<u32> = local.segments().iter().map(|part| part.lkey).collect();
    assert_eq!(lkeys, [1, 2, 3]);
}

#[test]
fn inline_data_follows_its_header_and_may_be_padded() {
    let mut inline = bytes(&InlineHeader::new(17)).to_vec();
    inline.extend(1..=17u8);
    let (operation, local) =
        run(WqeOpcode::RDMA_WRITE, 0, &[bytes(&raddr(0, 0)), &inline]).unwrap();
    assert_eq!(operation.unwrap().bytes, 17);
    let Local::Inline(data) = local else {
        panic!("{local:?} is not inline")
    };
    assert!(data.bytes().iter().copied().eq(1..=17));
}

fn inline(data: &[u8]) -> Vec<u8> {
    let header = InlineHeader::new(data.len().try_into().unwrap());
    let mut all = [bytes(&header), data].concat();
    all.resize(all.len().next_multiple_of(SEG_BYTES), 0);
    all
}

fn inside(data: &[u8]) -> Piece {
    Piece::Inline(InlineBytes::new(data))
}

fn outside(bytes: u32, lkey: u32, address: u64) -> Piece {
    Piece::Memory(Segment {
        lkey,
        address,
        bytes: bytes.into(),
    })
}

#[test]
fn inline_data_and_segments_keep_their_order() {
    let header: Vec<u8> = (0..29).collect();
    let (first, second) = (data(100, 1, 0xa0), data(7, 2, 0xb0));
    let (first, second) = (bytes(&first), bytes(&second));
    let (head, tail, none) = (inline(&header), inline(b"tail"), inline(b""));
    let (outer, inner) = (outside(100, 1, 0xa0), outside(7, 2, 0xb0));
    let joined = [header.as_slice(), b"tail"].concat();
    let cases: [(&[&[u8]], Vec<Piece>); 6] = [
        (&[&head, first], vec![inside(&header), outer.clone()]),
        (&[first, &head], vec![outer.clone(), inside(&header)]),
        (
            &[&head, first, &tail, second],
            vec![
                inside(&header),
                outer.clone(),
                inside(b"tail"),
                inner.clone(),
            ],
        ),
        (
            &[first, second, &head],
            vec![outer.clone(), inner.clone(), inside(&header)],
        ),
        // Neighbouring inline segments become one piece of data. An inline segment without bytes is a piece as well.
        (
            &[first, &head, &tail, second],
            vec![outer.clone(), inside(&joined), inner.clone()],
        ),
        (&[&none, second], vec![inside(b""), inner.clone()]),
    ];
    for (units, expected) in cases {
        let length: u64 = expected.iter().map(Piece::bytes).sum();
        let (operation, local) = run(WqeOpcode::SEND, 0, units).unwrap();
        assert_eq!(u64::from(operation.unwrap().bytes), length, "{expected:?}");
        assert_eq!(local, Local::Mixed(expected.into()));
    }
    let (_, local) = run(WqeOpcode::SEND, 0, &[&head, &none, &tail]).unwrap();
    assert_eq!(local, Local::Inline(InlineBytes::new(&joined)));
}

#[test]
fn inline_data_beside_segments_ends_inside_the_wqe_and_holds_no_result() {
    let segment = data(100, 1, 0xa0);
    let segment = bytes(&segment);
    let at = raddr(0, 0);
    // The last unit has room for 12 bytes. The cases have one byte more, and as many bytes as the field can say.
    for (count, bytes) in [(13, 13), (u32::MAX, 0x3ff)] {
        let header = Be32::new(InlineHeader::INLINE | count);
        let last = [header.bytes().as_slice(), &[0; 12]].concat();
        let refused = run(WqeOpcode::SEND, 0, &[&inline(b"head"), segment, &last]);
        let room = 12;
        assert_eq!(refused, Err(DecodeError::InlineBeyondEnd { bytes, room }));
    }
    let whole = run(
        WqeOpcode::SEND,
        0,
        &[&inline(b"head"), segment, &inline(&[1; 12])],
    );
    assert_eq!(whole.unwrap().0.unwrap().bytes, 116);
    for units in [[&inline(b"head"), segment], [segment, &inline(b"tail")]] {
        let read = run(
            WqeOpcode::RDMA_READ,
            0,
            &[&[bytes(&at)], &units[..]].concat(),
        );
        assert_eq!(read, Err(DecodeError::InlineResult));
    }
    let operands = AtomicSeg::default();
    let atomic: [&[u8]; 4] = [bytes(&at), bytes(&operands), &inline(&[0; 4]), segment];
    let atomic = run(WqeOpcode::ATOMIC_FA, 0, &atomic);
    assert_eq!(atomic, Err(DecodeError::InlineResult));
    let long = data(1 << 30, 1, 0);
    let long = run(WqeOpcode::SEND, 0, &[bytes(&long), &inline(b"x")]);
    let (bytes, limit) = ((1 << 30) + 1, 1 << 30);
    assert_eq!(long, Err(DecodeError::TooLong { bytes, limit }));
}

#[test]
fn a_datagram_counts_inline_data_and_segments_together() {
    let to = DatagramSeg {
        dqp_dct: Be32::new(DatagramSeg::EXTENDED | 1),
        ..DatagramSeg::default()
    };
    let ud = sender(Service::Ud);
    let header = inline(&[1; 24]);
    let send = |count: u32| {
        let payload = data(count, 1, 0);
        run_as(
            &ud,
            WqeOpcode::SEND,
            0,
            &[bytes(&to), &header, bytes(&payload)],
        )
    };
    assert_eq!(send(1000).unwrap().0.unwrap().bytes, 1024);
    let (bytes, limit) = (1025, 1024);
    assert_eq!(send(1001), Err(DecodeError::TooLong { bytes, limit }));
}

#[test]
fn a_write_without_data_has_length_0() {
    let (operation, local) = run(WqeOpcode::RDMA_WRITE_IMM, 0, &[bytes(&raddr(1, 2))]).unwrap();
    assert_eq!(local, Local::Nothing);
    assert_eq!(
        operation.unwrap().kind,
        OperationKind::Write {
            va: 1,
            rkey: 2,
            immediate: Some(0x1234_5678)
        }
    );
}

#[test]
fn masked_atomics_of_both_widths_decode_their_operands() {
    let cas = MaskedCas32Seg {
        swap: Be32::new(1),
        compare: Be32::new(2),
        swap_mask: Be32::new(3),
        compare_mask: Be32::new(4),
    };
    let at = raddr(0x40, 9);
    let (operation, _) = run(
        WqeOpcode::ATOMIC_MASKED_CS,
        OPMOD_MASKED_4_BYTES,
        &[bytes(&at), bytes(&cas), bytes(&data(4, 1, 0))],
    )
    .unwrap();
    let expected = AtomicEth {
        va: 0x40,
        rkey: 9,
        op: AtomicOp::MaskedCompareSwap {
            bytes: 4,
            compare: 2,
            swap: 1,
            compare_mask: 4,
            swap_mask: 3,
        },
    };
    assert_eq!(operation.unwrap().kind, OperationKind::Atomic(expected));

    let cas = MaskedCas64Seg {
        swap: Be64::new(1),
        compare: Be64::new(2),
        swap_mask: Be64::new(3),
        compare_mask: Be64::new(4),
    };
    let (operation, _) = run(
        WqeOpcode::ATOMIC_MASKED_CS,
        OPMOD_MASKED_8_BYTES,
        &[bytes(&at), bytes(&cas), bytes(&data(8, 1, 0))],
    )
    .unwrap();
    assert_eq!(operation.unwrap().bytes, 8);
}

#[test]
fn wrong_wqes_are_refused_by_what_is_wrong() {
    let at = raddr(0, 0);
    let cases = [
        (
            run(WqeOpcode(0x33), 0, &[]),
            DecodeError::Opcode(WqeOpcode(0x33)),
        ),
        (
            run(WqeOpcode::RDMA_WRITE, 0, &[]),
            DecodeError::Short { ds: 1, need: 2 },
        ),
        (
            run(WqeOpcode::ATOMIC_MASKED_FA, 5, &[bytes(&at)]),
            DecodeError::OpMod(5),
        ),
        (
            run(
                WqeOpcode::RDMA_WRITE,
                0,
                &[bytes(&at), bytes(&InlineHeader::new(13)), &[0; 12]],
            ),
            DecodeError::InlineBeyondEnd {
                bytes: 13,
                room: 12,
            },
        ),
        (
            run(
                WqeOpcode::RDMA_READ,
                0,
                &[bytes(&at), bytes(&InlineHeader::new(4)), &[0; 12]],
            ),
            DecodeError::InlineResult,
        ),
        (
            run(
                WqeOpcode::RDMA_WRITE,
                0,
                &[
                    bytes(&at),
                    bytes(&data(1 << 30, 0, 0)),
                    bytes(&data(1, 0, 0)),
                ],
            ),
            DecodeError::TooLong {
                bytes: (1 << 30) + 1,
                limit: 1 << 30,
            },
        ),
        (
            run(
                WqeOpcode::RDMA_WRITE,
                0,
                &[bytes(&at), bytes(&data(0, 0, 0))],
            ),
            DecodeError::TooLong {
                bytes: 1 << 31,
                limit: 1 << 30,
            },
        ),
        (
            run(
                WqeOpcode::ATOMIC_FA,
                0,
                &[
                    bytes(&at),
                    bytes(&AtomicSeg::default()),
                    bytes(&data(4, 0, 0)),
                ],
            ),
            DecodeError::AtomicLength { bytes: 4, need: 8 },
        ),
    ];
    for (got, expected) in cases {
        assert_eq!(got.unwrap_err(), expected);
    }
}

#[test]
fn a_datagram_says_where_it_goes_and_by_which_key() {
    let mut to = DatagramSeg {
        qkey: Be32::new(0x33),
        dqp_dct: Be32::new(DatagramSeg::EXTENDED | 0x12_3456),
        tclass: 9,
        hop_limit: 64,
        rgid: [7; 16],
        ..DatagramSeg::default()
    };
    let ud = sender(Service::Ud);
    let run_ud = |to: &DatagramSeg, bytes_sent: u32| {
        let data = data(bytes_sent, 1, 0);
        let units = [bytes(to), bytes(&data)];
        run_as(&ud, WqeOpcode::SEND_IMM, 0, &units)
    };
    let (operation, local) = run_ud(&to, 1024).unwrap();
    let mut expected = Datagram {
        gid: [7; 16],
        has_grh: true,
        qpn: 0x12_3456,
        qkey: 0x33,
        hop_limit: 64,
        traffic_class: 9,
        path_bits: 0,
    };
    assert_eq!(operation.unwrap().to, Target::Datagram(expected));
    assert_eq!(local.segments().len(), 1);
    assert_eq!(
        run_ud(&to, 1025),
        Err(DecodeError::TooLong {
            bytes: 1025,
            limit: 1024
        })
    );
    to.qkey = Be32::new(DatagramSeg::OWN_QKEY | 0x33);
    expected.qkey = 0x22;
    let (operation, _) = run_ud(&to, 1).unwrap();
    assert_eq!(operation.unwrap().to, Target::Datagram(expected));
    to.dqp_dct = Be32::new(0x12_3456);
    assert_eq!(run_ud(&to, 1), Err(DecodeError::ShortAddress));
    let short = run_as(&ud, WqeOpcode::SEND, 0, &[&[0; 32]]);
    assert_eq!(short, Err(DecodeError::Short { ds: 3, need: 4 }));
}

#[test]
fn an_xrc_request_names_its_queue_first() {
    let xrc = XrcSeg {
        xrc_srqn: Be32::new(0xff12_3456),
        ..XrcSeg::default()
    };
    let (raddr, data) = (raddr(8, 9), data(4, 1, 0));
    let units = [bytes(&xrc), bytes(&raddr), bytes(&data)];
    let sender = sender(Service::XrcInitiator);
    let (operation, _) = run_as(&sender, WqeOpcode::RDMA_READ, 0, &units).unwrap();
    let operation = operation.unwrap();
    assert_eq!(operation.to, Target::Srq(0x12_3456));
    assert_eq!(operation.kind, OperationKind::Read { va: 8, rkey: 9 });
}

#[test]
fn each_service_has_its_opcodes() {
    let all = [
        WqeOpcode::SEND,
        WqeOpcode::SEND_IMM,
        WqeOpcode::SEND_INVAL,
        WqeOpcode::RDMA_WRITE,
        WqeOpcode::RDMA_WRITE_IMM,
        WqeOpcode::RDMA_READ,
        WqeOpcode::ATOMIC_CS,
        WqeOpcode::ATOMIC_FA,
        WqeOpcode::ATOMIC_MASKED_CS,
        WqeOpcode::ATOMIC_MASKED_FA,
    ];
    let known = |service| {
        all.into_iter()
            .filter(|opcode| is_for(*opcode, service))
            .count()
    };
    assert_eq!(known(Service::Rc), 10);
    assert_eq!(known(Service::XrcInitiator), 10);
    assert_eq!(known(Service::Uc), 4);
    assert_eq!(known(Service::Ud), 2);
    assert_eq!(known(Service::XrcTarget), 0);
    for service in [Service::Rc, Service::Uc, Service::Ud, Service::XrcInitiator] {
        let nop = run_as(&sender(service), WqeOpcode::NOP, 0, &[]);
        assert_eq!(nop, Ok((None, Local::Nothing)));
    }
}

proptest! {
    #[test]
    fn any_bytes_decode_or_are_refused(opcode: u8, opmod: u8, body in proptest::collection::vec(any::<u8>(), 0..1024)) {
        let ds = u8::try_from((1 + body.len() / 16).min(63)).unwrap();
        let ctrl = CtrlSeg::new(WqeOpcode(opcode), 0, 1, ds).with_opmod(opmod);
        let mut wqe = bytemuck::bytes_of(&ctrl).to_vec();
        wqe.extend(&body[..(usize::from(ds) - 1) * 16]);
        if let Ok((Some(operation), local)) = decode(&RC, &ctrl, &wqe) {
            let length: u64 = match &local {
                Local::Inline(data) => data.bytes().len() as u64,
                Local::Mixed(pieces) => pieces.iter().map(Piece::bytes).sum(),
                _ => local.segments().iter().map(|part| part.bytes).sum(),
            };
            prop_assert_eq!(u64::from(operation.bytes), length);
        }
    }
}

#[test]
fn on_infiniband_a_datagram_goes_by_lid_or_by_gid() {
    let own = Ipv4Addr::new(10, 20, 1, 2);
    let peer = Ipv4Addr::new(10, 20, 3, 4);
    let ud = Sender {
        infiniband: Some(own),
        ..sender(Service::Ud)
    };
    let target = |rlid: u16, grh: u32, rgid: [u8; 16]| {
        let to = DatagramSeg {
            dqp_dct: Be32::new(DatagramSeg::EXTENDED | 1),
            rlid: Be16::new(rlid),
            grh_gid_fl: Be32::new(grh),
            rgid,
            ..DatagramSeg::default()
        };
        let (operation, _) = run_as(&ud, WqeOpcode::SEND, 0, &[bytes(&to)]).unwrap();
        match operation.unwrap().to {
            Target::Datagram(to) => (to.gid, to.has_grh),
            other => panic!("{other:?}"),
        }
    };
    let found = peer.to_ipv6_mapped().octets();
    assert_eq!(target(0x0304, 0, [0; 16]), (found, false));
    assert_eq!(target(0x0304, 0, [7; 16]), (found, false));
    let gid = link::gid(peer);
    assert_eq!(target(0x0304, DatagramSeg::GRH, gid), (found, true));
    assert_eq!(target(0x0308, DatagramSeg::GRH, gid), ([0; 16], true));
    assert_eq!(target(0xffff, 0, [0; 16]), ([0; 16], false));
}
