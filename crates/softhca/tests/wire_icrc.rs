//! The ICRC against an independent implementation: scapy's RoCE layer (Debian package python3-scapy).

mod packets;

use packets::{every_kind, has_payload};
use softhca::wire::icrc::Flow;
use softhca::wire::opcode::BthOpcode;
use softhca::wire::packet::{Head, MAX_OVERHEAD_BYTES, seal, write_headers};
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

#[test]
fn the_icrc_of_every_kind_of_packet_is_what_scapy_computes() {
    let probe = Command::new("/usr/bin/python3")
        .args(["-c", "import scapy.contrib.roce"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        eprintln!(
            "skipped: ICRCs: /usr/bin/python3 has no scapy.contrib.roce (package python3-scapy)"
        );
        return;
    }
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut input = String::new();
    let mut ours = vec![];
    let mut seen = vec![];
    for (body, transport) in every_kind() {
        let opcode = body.opcode();
        let carries = has_payload(&body);
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
