//! Every kind of packet that the codec knows, one of each.

use softhca::wire::envelope::Envelope;
use softhca::wire::headers::{
    Aeth, AtomicEth, AtomicOp, Deth, NO_CREDITS, NakCode, Reth, Syndrome, XrcEth,
};
use softhca::wire::opcode::WireService;
use softhca::wire::packet::{Body, ReadPart, SendEnd, Transport, WriteEnd};

/// Every body over every service that has it.
pub(crate) fn every_kind() -> Vec<(Body, Transport)> {
    let deth = Deth {
        qkey: 0x8001_0203,
        source_qpn: 0xab_cdef,
        without_grh: false,
        envelope: Envelope::V2_IPV4,
        lmc: 0,
    };
    let transports = [
        Transport::Rc,
        Transport::Uc,
        Transport::Ud(deth),
        Transport::XrcRequest(XrcEth { srqn: 0x12_3456 }),
        Transport::XrcResponse,
    ];
    let fits = |(body, transport): &(Body, Transport)| {
        let opcode = body.opcode();
        let is_response = *transport == Transport::XrcResponse;
        let is_xrc = transport.service() == WireService::Xrc;
        transport.service().knows(opcode) && (!is_xrc || opcode.is_response() == is_response)
    };
    bodies()
        .into_iter()
        .flat_map(|body| transports.map(|transport| (body, transport)))
        .filter(fits)
        .collect()
}

/// Packets of this kind carry a payload.
pub(crate) fn has_payload(body: &Body) -> bool {
    matches!(
        body,
        Body::Send { .. } | Body::Write { .. } | Body::ReadResponse(_)
    )
}

fn bodies() -> Vec<Body> {
    let reth = Reth {
        va: 0x7f00_1234_5678_9abc,
        rkey: 0x0102_0304,
        bytes: 0x2001,
    };
    let ack = Aeth {
        syndrome: Syndrome::Ack {
            credits: NO_CREDITS,
        },
        msn: 0x12_3456,
    };
    let nak = Aeth {
        syndrome: Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR),
        msn: 1,
    };
    let atomic = |op| {
        Body::Atomic(AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            op,
        })
    };
    let mut bodies = vec![
        Body::ReadRequest(reth),
        Body::Acknowledge(ack),
        Body::Acknowledge(nak),
        Body::AtomicAcknowledge {
            aeth: ack,
            original: 0xdead_beef_0bad_cafe,
        },
        atomic(AtomicOp::CompareSwap {
            compare: 1,
            swap: 2,
        }),
        atomic(AtomicOp::FetchAdd { add: 3 }),
        atomic(AtomicOp::MaskedFetchAdd {
            bytes: 4,
            add: 5,
            boundary: 0x8000_0000,
        }),
        atomic(AtomicOp::MaskedCompareSwap {
            bytes: 8,
            compare: 1,
            swap: 2,
            compare_mask: 3,
            swap_mask: 4,
        }),
    ];
    for starts in [true, false] {
        for end in [
            None,
            Some(SendEnd::Plain),
            Some(SendEnd::Immediate(7)),
            Some(SendEnd::Invalidate(8)),
        ] {
            bodies.push(Body::Send { starts, end });
        }
        for end in [None, Some(WriteEnd::Plain), Some(WriteEnd::Immediate(9))] {
            bodies.push(Body::Write {
                start: starts.then_some(reth),
                end,
            });
        }
    }
    bodies.extend(
        [
            ReadPart::First(ack),
            ReadPart::Middle,
            ReadPart::Last(ack),
            ReadPart::Only(ack),
        ]
        .map(Body::ReadResponse),
    );
    bodies
}
