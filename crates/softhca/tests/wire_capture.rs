//! What tshark reads in a capture: every kind of packet by its name and with its fields, none of them malformed. Every ICRC is as
//! scapy computes it.

mod captures;
mod packets;

use captures::{dissect, judge, judges_are_there};
use packets::{every_kind, has_payload};
use softhca::wire::capture::{Capture, Tap};
use softhca::wire::carrier::Carrier;
use softhca::wire::headers::{Aeth, AtomicEth, AtomicOp, Reth, Syndrome};
use softhca::wire::icrc::Flow;
use softhca::wire::memory::Network;
use softhca::wire::opcode::WireService;
use softhca::wire::packet::{
    Body, Head, ReadPart, SendEnd, Transport, WriteEnd, seal, write_headers,
};
use softhca::wire::psn::Psn;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The fields that tshark shows, in the order of [`expected`].
const FIELDS: [&str; 17] = [
    "infiniband.bth.opcode",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.bth.a",
    "infiniband.bth.se",
    "infiniband.bth.padcnt",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.immdt",
    "infiniband.ieth",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomicacketh.origremdt",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
];

/// Returns the values that tshark should show; `None` where the packet has no such field.
fn expected(head: &Head, body: &Body, payload_bytes: usize) -> [Option<u64>; 17] {
    let (mut reth, mut aeth, mut immediate, mut key) = (None, None, None, None);
    let (mut swap, mut original, mut atomic_place) = (None, None, None);
    match body {
        Body::Send { end, .. } => match end {
            Some(SendEnd::Immediate(value)) => immediate = Some(*value),
            Some(SendEnd::Invalidate(value)) => key = Some(*value),
            Some(SendEnd::Plain) | None => {}
        },
        Body::Write { start, end } => {
            reth = *start;
            if let Some(WriteEnd::Immediate(value)) = end {
                immediate = Some(*value);
            }
        }
        Body::ReadRequest(place) => reth = Some(*place),
        Body::ReadResponse(
            ReadPart::First(found) | ReadPart::Last(found) | ReadPart::Only(found),
        )
        | Body::Acknowledge(found) => aeth = Some(*found),
        Body::ReadResponse(ReadPart::Middle) => {}
        Body::Atomic(AtomicEth { va, rkey, op }) => {
            // tshark shows address and key of an AtomicETH under the names of the RETH.
            atomic_place = Some((*va, *rkey));
            swap = match op {
                AtomicOp::FetchAdd { add } => Some(*add),
                AtomicOp::CompareSwap { swap, .. } => Some(*swap),
                AtomicOp::MaskedFetchAdd { .. } | AtomicOp::MaskedCompareSwap { .. } => None,
            };
        }
        Body::AtomicAcknowledge {
            aeth: found,
            original: value,
        } => (aeth, original) = (Some(*found), Some(*value)),
    }
    let deth = match head.transport {
        Transport::Ud(deth) => Some(deth),
        _ => None,
    };
    let place = reth
        .map(|Reth { va, rkey, .. }| (va, rkey))
        .or(atomic_place);
    [
        Some(body.opcode().of_service(head.transport.service()).0.into()),
        Some(head.dest_qpn.into()),
        Some(head.psn.value().into()),
        Some(head.ack_request.into()),
        Some(head.solicited.into()),
        Some([0, 3, 2, 1][payload_bytes % 4]),
        place.map(|(va, _)| va),
        place.map(|(_, rkey)| rkey.into()),
        reth.map(|reth| reth.bytes.into()),
        immediate.map(u64::from),
        key.map(u64::from),
        aeth.map(syndrome),
        aeth.map(|aeth| aeth.msn.into()),
        swap,
        original,
        deth.map(|deth| deth.qkey.into()),
        deth.map(|deth| deth.source_qpn.into()),
    ]
}

/// Returns the syndrome byte: 000ccccc of an ACK with its credits, 011nnnnn of a NAK with its code.
fn syndrome(aeth: Aeth) -> u64 {
    match aeth.syndrome {
        Syndrome::Ack { credits } => credits.into(),
        Syndrome::Nak(code) => 0x60 | u64::from(code.0),
        other => panic!("no packet has {other:?}"),
    }
}

/// Returns a number as tshark prints it: `0x1f`, `31`, `True`, or bytes in hex.
fn number(text: &str, field: &str) -> Option<u64> {
    let bytes = ["infiniband.immdt", "infiniband.ieth"].contains(&field);
    match text {
        "" => None,
        "True" => Some(1),
        "False" => Some(0),
        _ if bytes => Some(u64::from_str_radix(text, 16).unwrap()),
        _ => Some(match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => text
                .parse()
                .unwrap_or_else(|error| panic!("{field} is {text:?}: {error}")),
        }),
    }
}

/// A file that is gone afterwards, unless the test has failed.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        let name = format!("capture-{:x}.pcapng", fastrand::u64(..));
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

/// tshark reads no more than the BTH: of XRC, and of masked atomics, which no other device sends over the wire.
fn is_unknown(head: &Head, body: &Body) -> bool {
    let is_xrc = head.transport.service() == WireService::Xrc;
    let is_masked = matches!(
        body,
        Body::Atomic(AtomicEth {
            op: AtomicOp::MaskedFetchAdd { .. } | AtomicOp::MaskedCompareSwap { .. },
            ..
        })
    );
    is_xrc || is_masked
}

#[test]
fn every_kind_of_packet_is_read_with_its_fields_and_none_is_malformed() {
    if !judges_are_there("packets of every kind in a capture") {
        return;
    }
    let (file, network) = (File::new(), Network::default());
    let capture = Capture::create(&file.0, "test").unwrap();
    let _there = network.plug(THERE).unwrap();
    let mut carrier = Tap::new(Box::new(network.plug(HERE).unwrap()), capture, HERE);
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = vec![];
    for (body, transport) in every_kind() {
        for payload_bytes in [0, 1, 2, 3, 4, 1000] {
            if payload_bytes > 0 && !has_payload(&body) {
                continue;
            }
            let head = Head {
                dest_qpn: random.u32(..1 << 24),
                psn: Psn::new(random.u32(..)),
                ack_request: random.bool(),
                solicited: random.bool(),
                transport,
            };
            let out = carrier.sink().slot().unwrap();
            let start = write_headers(&head, &body, payload_bytes, out);
            random.fill(&mut out[start..start + payload_bytes]);
            let bytes = seal(out, start + payload_bytes, &Flow::v4(HERE, THERE));
            carrier.sink().commit(bytes, THERE.into());
            carrier.flush(0);
            all.push((head, body, payload_bytes));
        }
    }
    assert_eq!(judge(&file.0), all.len(), "seed {seed}");
    let columns = [&FIELDS[..], &["_ws.col.Info"]].concat();
    let rows = dissect(&file.0, "infiniband", &columns);
    assert_eq!(rows.len(), all.len(), "seed {seed}");
    for (row, (head, body, payload_bytes)) in rows.iter().zip(&all) {
        // Its name for what it does not know.
        let is_named = !row[17].starts_with("Unknown");
        assert_eq!(is_named, !is_unknown(head, body), "{row:?} for {body:?}");
        let mut wanted = expected(head, body, *payload_bytes);
        if is_unknown(head, body) {
            wanted[6..].fill(None);
        }
        for ((text, field), want) in row.iter().zip(FIELDS).zip(wanted) {
            assert_eq!(
                number(text, field),
                want,
                "{field} of {body:?} over {:?}, seed {seed}",
                head.transport
            );
        }
    }
}
