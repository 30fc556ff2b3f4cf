//! The ICRC against an independent implementation: scapy's RoCE layer (Debian package python3-scapy).

use softhca::wire::headers::{
    Aeth, AtomicEth, AtomicOp, Deth, NO_CREDITS, NakCode, Reth, Syndrome, XrcEth,
};
use softhca::wire::icrc::Flow;
use softhca::wire::opcode::{BthOpcode, WireService};
use softhca::wire::packet::{
    Body, Head, MAX_OVERHEAD_BYTES, ReadPart, SendEnd, Transport, WriteEnd, seal, write_headers,
};
use softhca::wire::psn::Psn;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

/// Reads `source destination source-port packet-in-hex` per line, prints the ICRC that scapy computes.
const SCRIPT: &str = "
import sys
from scapy.all import IP, UDP
from scapy.contrib.roce import BTH
for line in sys.stdin:
    source, destination, port, packet = line.split()
    packet = IP(src=source, dst=destination, id=0, flags='DF') / UDP(sport=int(port), dport=4791) / bytes.fromhex(packet)
    packet = IP(bytes(packet))
    packet[BTH].icrc = None
    print(bytes(packet)[-4:].hex())
";

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

#[test]
fn the_icrc_of_every_kind_of_packet_is_what_scapy_computes() {
    let probe = Command::new("/usr/bin/python3")
        .args(["-c", "import scapy.contrib.roce"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!(
            "SKIPPED: /usr/bin/python3 has no scapy.contrib.roce; apt-get install python3-scapy"
        );
        return;
    }
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut input = String::new();
    let mut ours = vec![];
    let mut seen = vec![];
    let deth = Deth {
        qkey: 0x8001_0203,
        source_qpn: 0xab_cdef,
    };
    let transports = [
        Transport::Rc,
        Transport::Uc,
        Transport::Ud(deth),
        Transport::XrcRequest(XrcEth { srqn: 0x12_3456 }),
        Transport::XrcResponse,
    ];
    for (body, transport) in bodies()
        .into_iter()
        .flat_map(|body| transports.map(|transport| (body, transport)))
    {
        let opcode = body.opcode();
        let response = transport == Transport::XrcResponse;
        let xrc = transport.service() == WireService::Xrc;
        if !transport.service().knows(opcode) || (xrc && opcode.is_response() != response) {
            continue;
        }
        let carries = matches!(
            body,
            Body::Send { .. } | Body::Write { .. } | Body::ReadResponse(_)
        );
        for payload_bytes in [0, 1, 2, 3, 4, 1000, 4096] {
            let payload_bytes = if carries { payload_bytes } else { 0 };
            let (source, destination) = (
                Ipv4Addr::from(random.u32(..)),
                Ipv4Addr::from(random.u32(..)),
            );
            let flow = Flow {
                // As RoCE takes them; by other ports scapy guesses other protocols.
                source_port: random.u16(0xc000..),
                ..Flow::v4(source, destination)
            };
            let head = Head {
                dest_qpn: random.u32(..1 << 24),
                psn: Psn::new(random.u32(..)),
                ack_request: random.bool(),
                solicited: random.bool(),
                transport,
            };
            let mut out = vec![0; payload_bytes + MAX_OVERHEAD_BYTES];
            let start = write_headers(&head, &body, payload_bytes, &mut out);
            random.fill(&mut out[start..start + payload_bytes]);
            let bytes = seal(&mut out, start + payload_bytes, &flow);
            let hex: String = out[..bytes]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            ours.push(hex[hex.len() - 8..].to_owned());
            input += &format!("{source} {destination} {} {hex}\n", flow.source_port);
        }
        seen.push(opcode.of_service(transport.service()));
    }
    assert!(
        (0..=255)
            .map(BthOpcode)
            .all(|opcode| opcode.split().is_none() || seen.contains(&opcode)),
        "an opcode is missing"
    );
    assert_eq!(scapy(&input), ours, "seed {seed}");
}

fn scapy(input: &str) -> Vec<String> {
    let mut child = Command::new("/usr/bin/python3")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn({
        let input = input.to_owned();
        move || stdin.write_all(input.as_bytes())
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}
