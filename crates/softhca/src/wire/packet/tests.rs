use super::*;
use crate::envelope::Envelope;
use crate::transport::NakCode;
use crate::wire::headers::{AtomicOp, NO_CREDITS, Syndrome};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const HEAD: Head = Head {
    dest_qpn: 0x11,
    psn: Psn::new(0x64),
    ack_request: true,
    solicited: false,
    transport: Transport::Rc,
};
const RETH: Reth = Reth {
    va: 0x0102_0304_0506_0708,
    rkey: 0xdead_beef,
    bytes: 0x1001,
};
const ACK: Aeth = Aeth {
    syndrome: Syndrome::Ack {
        credits: NO_CREDITS,
    },
    msn: 7,
};
const RETH_BYTES: [u8; 16] = [
    1, 2, 3, 4, 5, 6, 7, 8, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0x10, 1,
];
const ACK_BYTES: [u8; 4] = [0x1f, 0, 0, 7];

/// Returns every kind of packet: its body, its opcode and the bytes of its extended headers.
fn kinds() -> Vec<(Body, u8, Vec<u8>)> {
    let word = 0xa1b2_c3d4;
    let word_bytes = [0xa1, 0xb2, 0xc3, 0xd4];
    let with_word = |front: &[u8]| [front, &word_bytes].concat();
    let atomic = |op| AtomicEth {
        va: RETH.va,
        rkey: RETH.rkey,
        op,
    };
    let words = |values: &[u8]| {
        let mut bytes = RETH_BYTES[..12].to_vec();
        values
            .iter()
            .for_each(|value| bytes.extend([0, 0, 0, 0, 0, 0, 0, *value]));
        bytes
    };
    let masked = |values: &[u8], operand: u8| {
        let mut bytes = words(values);
        bytes.splice(12..12, [operand, 0, 0, 0]);
        bytes
    };
    vec![
        (
            Body::Send {
                starts: true,
                end: None,
            },
            0x00,
            vec![],
        ),
        (
            Body::Send {
                starts: false,
                end: None,
            },
            0x01,
            vec![],
        ),
        (
            Body::Send {
                starts: false,
                end: Some(SendEnd::Plain),
            },
            0x02,
            vec![],
        ),
        (
            Body::Send {
                starts: false,
                end: Some(SendEnd::Immediate(word)),
            },
            0x03,
            with_word(&[]),
        ),
        (
            Body::Send {
                starts: true,
                end: Some(SendEnd::Plain),
            },
            0x04,
            vec![],
        ),
        (
            Body::Send {
                starts: true,
                end: Some(SendEnd::Immediate(word)),
            },
            0x05,
            with_word(&[]),
        ),
        (
            Body::Send {
                starts: false,
                end: Some(SendEnd::Invalidate(word)),
            },
            0x16,
            with_word(&[]),
        ),
        (
            Body::Send {
                starts: true,
                end: Some(SendEnd::Invalidate(word)),
            },
            0x17,
            with_word(&[]),
        ),
        (
            Body::Write {
                start: Some(RETH),
                end: None,
            },
            0x06,
            RETH_BYTES.to_vec(),
        ),
        (
            Body::Write {
                start: None,
                end: None,
            },
            0x07,
            vec![],
        ),
        (
            Body::Write {
                start: None,
                end: Some(WriteEnd::Plain),
            },
            0x08,
            vec![],
        ),
        (
            Body::Write {
                start: None,
                end: Some(WriteEnd::Immediate(word)),
            },
            0x09,
            with_word(&[]),
        ),
        (
            Body::Write {
                start: Some(RETH),
                end: Some(WriteEnd::Plain),
            },
            0x0a,
            RETH_BYTES.to_vec(),
        ),
        (
            Body::Write {
                start: Some(RETH),
                end: Some(WriteEnd::Immediate(word)),
            },
            0x0b,
            with_word(&RETH_BYTES),
        ),
        (Body::ReadRequest(RETH), 0x0c, RETH_BYTES.to_vec()),
        (
            Body::ReadResponse(ReadPart::First(ACK)),
            0x0d,
            ACK_BYTES.to_vec(),
        ),
        (Body::ReadResponse(ReadPart::Middle), 0x0e, vec![]),
        (
            Body::ReadResponse(ReadPart::Last(ACK)),
            0x0f,
            ACK_BYTES.to_vec(),
        ),
        (
            Body::ReadResponse(ReadPart::Only(ACK)),
            0x10,
            ACK_BYTES.to_vec(),
        ),
        (Body::Acknowledge(ACK), 0x11, ACK_BYTES.to_vec()),
        (
            Body::Acknowledge(Aeth {
                syndrome: Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR),
                msn: 7,
            }),
            0x11,
            vec![0x62, 0, 0, 7],
        ),
        (
            Body::AtomicAcknowledge {
                aeth: ACK,
                original: 9,
            },
            0x12,
            [&ACK_BYTES[..], &[0, 0, 0, 0, 0, 0, 0, 9]].concat(),
        ),
        (
            Body::Atomic(atomic(AtomicOp::CompareSwap {
                compare: 2,
                swap: 1,
            })),
            0x13,
            words(&[1, 2]),
        ),
        (
            Body::Atomic(atomic(AtomicOp::FetchAdd { add: 3 })),
            0x14,
            words(&[3, 0]),
        ),
        (
            Body::Atomic(atomic(AtomicOp::MaskedCompareSwap {
                bytes: 8,
                compare: 2,
                swap: 1,
                compare_mask: 4,
                swap_mask: 3,
            })),
            0xc0,
            masked(&[1, 2, 3, 4], 8),
        ),
        (
            Body::Atomic(atomic(AtomicOp::MaskedFetchAdd {
                bytes: 4,
                add: 5,
                boundary: 6,
            })),
            0xc1,
            masked(&[5, 0, 6, 0], 4),
        ),
    ]
}

fn carries_payload(body: &Body) -> bool {
    matches!(
        body,
        Body::Send { .. } | Body::Write { .. } | Body::ReadResponse(_)
    )
}

/// Returns every kind of packet in every service that has it: head, body, opcode, and the bytes of all extended headers.
fn packets() -> Vec<(Head, Body, u8, Vec<u8>)> {
    let deth = Deth {
        qkey: 0x8001_0203,
        source_qpn: 0xab_cdef,
        without_grh: false,
        envelope: Envelope::V2_IPV4,
        lmc: 0,
    };
    let xrc = XrcEth { srqn: 0x12_3456 };
    let mut packets = vec![];
    for (body, opcode, extended) in kinds() {
        let mut add = |transport, opcode, front: &[u8]| {
            let head = Head { transport, ..HEAD };
            packets.push((head, body, opcode, [front, &extended].concat()));
        };
        add(Transport::Rc, opcode, &[]);
        if opcode < 0x0c {
            add(Transport::Uc, 0x20 + opcode, &[]);
        }
        if opcode == 0x04 || opcode == 0x05 {
            let bytes = [0x80, 1, 2, 3, 0, 0xab, 0xcd, 0xef];
            add(Transport::Ud(deth), 0x60 + opcode, &bytes);
        }
        let xrc_opcode = if opcode < 0xc0 {
            0xa0 + opcode
        } else {
            0x20 + opcode
        };
        if (0x0d..=0x12).contains(&opcode) {
            add(Transport::XrcResponse, xrc_opcode, &[]);
        } else {
            let bytes = [0, 0x12, 0x34, 0x56];
            add(Transport::XrcRequest(xrc), xrc_opcode, &bytes);
        }
    }
    packets
}

#[test]
fn every_opcode_has_its_literal_bytes_both_ways() {
    let flow = Flow::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    for (head, body, opcode, extended) in packets() {
        let payload: &[u8] = if carries_payload(&body) {
            b"hello"
        } else {
            b""
        };
        let pad: u8 = if payload.is_empty() { 0 } else { 3 };
        let mut literal = vec![
            opcode,
            0x40 | pad << 4,
            0xff,
            0xff,
            0,
            0,
            0,
            0x11,
            0x80,
            0,
            0,
            0x64,
        ];
        literal.extend(&extended);
        literal.extend(payload);
        literal.extend(&[0; 3][..usize::from(pad)]);
        literal.extend(flow.icrc(&literal).to_le_bytes());

        let mut out = [0xee; MAX_OVERHEAD_BYTES + 8];
        let start = write_headers(&head, &body, payload.len(), &mut out);
        out[start..start + payload.len()].copy_from_slice(payload);
        let bytes = seal(&mut out, start + payload.len(), &flow);
        assert_eq!(&out[..bytes], &literal[..], "{head:?} {body:?}");
        assert_eq!(
            Packet::parse(&literal),
            Ok(Packet {
                head,
                body,
                payload
            })
        );
        assert!(icrc_matches(&literal, &flow));
    }
}

#[test]
fn every_known_opcode_is_among_the_kinds() {
    let packets = packets();
    for opcode in (0..=255).map(BthOpcode) {
        assert_eq!(
            packets.iter().any(|(_, _, byte, _)| *byte == opcode.0),
            opcode.split().is_some(),
            "{opcode:?}"
        );
    }
}

#[test]
fn a_cut_packet_names_the_length_it_needs() {
    for (head, body, opcode, _) in packets() {
        let mut out = [0; MAX_OVERHEAD_BYTES + 8];
        let used = write_headers(&head, &body, 0, &mut out);
        let cut = used + ICRC_BYTES - 1;
        let error = Packet::parse(&out[..cut]).unwrap_err();
        assert_eq!(
            error,
            PacketError::Short {
                opcode: BthOpcode(opcode),
                bytes: cut,
                needed: cut + 1
            }
        );
    }
}

#[test]
fn malformed_packets_give_the_error_that_says_why() {
    let mut packet = [0u8; 16];
    assert_eq!(
        Packet::parse(&[]),
        Err(PacketError::Short {
            opcode: BthOpcode(0),
            bytes: 0,
            needed: 16
        })
    );
    packet[1] = 1;
    assert_eq!(Packet::parse(&packet), Err(PacketError::Version(1)));
    packet[1] = 0x30;
    assert_eq!(
        Packet::parse(&packet),
        Err(PacketError::Pad { pad: 3, payload: 0 })
    );
    packet[..2].copy_from_slice(&[0x15, 0]);
    assert_eq!(
        Packet::parse(&packet),
        Err(PacketError::Opcode(BthOpcode(0x15)))
    );
    packet[0] = 0x81;
    assert_eq!(
        Packet::parse(&packet),
        Err(PacketError::Opcode(BthOpcode::CONGESTION))
    );
    packet[0] = 0x64;
    assert_eq!(
        Packet::parse(&packet),
        Err(PacketError::Short {
            opcode: BthOpcode(0x64),
            bytes: 16,
            needed: 24
        })
    );
    let mut ack = [0u8; 24];
    ack[0] = 0x11;
    assert_eq!(
        Packet::parse(&ack),
        Err(PacketError::Surplus {
            opcode: BthOpcode::ACKNOWLEDGE,
            bytes: 4
        })
    );
    let mut masked = [0u8; 64];
    masked[0] = 0xc0;
    masked[24] = 5;
    assert_eq!(Packet::parse(&masked), Err(PacketError::Operand(5)));
}

proptest! {
    #[test]
    fn any_bytes_give_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = Packet::parse(&bytes);
    }

    #[test]
    fn bytes_behind_a_known_opcode_give_a_packet_or_an_error(
        opcode in any::<u8>().prop_filter("known", |byte| BthOpcode(*byte).split().is_some()),
        flags in prop::sample::select(vec![0u8, 0x10, 0x20, 0x30, 0xc0]),
        rest in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let bytes = [&[opcode, flags][..], &rest].concat();
        if let Ok(packet) = Packet::parse(&bytes) {
            // A parsed packet is written back as it came, except for reserved bits.
            let mut out = vec![0; bytes.len() + MAX_HEAD_BYTES];
            let used = write_headers(&packet.head, &packet.body, packet.payload.len(), &mut out);
            out[used..used + packet.payload.len()].copy_from_slice(packet.payload);
            let again = Packet::parse(&out[..used + packet.payload.len().next_multiple_of(4) + ICRC_BYTES]).unwrap();
            prop_assert_eq!(again, packet);
        }
    }

    #[test]
    fn a_flipped_bit_breaks_the_icrc(payload in prop::collection::vec(any::<u8>(), 1..100), bit in any::<prop::sample::Index>()) {
        let flow = Flow::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let mut out = vec![0; payload.len() + MAX_OVERHEAD_BYTES];
        let used = write_headers(&HEAD, &Body::Write { start: None, end: None }, payload.len(), &mut out);
        out[used..used + payload.len()].copy_from_slice(&payload);
        let bytes = seal(&mut out, used + payload.len(), &flow);
        prop_assert!(icrc_matches(&out[..bytes], &flow));
        let bit = bit.index(bytes * 8);
        prop_assume!(bit / 8 != 4);
        out[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!icrc_matches(&out[..bytes], &flow));
    }
}
