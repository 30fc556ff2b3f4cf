//! What tshark and scapy say about a capture: neither knows anything of softhca.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod programs;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Prints, per packet with a BTH, what is wrong with its ICRC; then their number.
///
/// scapy computes it for IPv4. For RoCE v1 and IPv6 the script follows the recipe of the specification with zlib. Both headers have
/// 40 bytes, and the same fields may change.
const ICRC_SCRIPT: &str = "
import sys
import zlib
from scapy.layers.l2 import Ether
from scapy.utils import PcapReader
from scapy.contrib.roce import BTH, GRH
def by_recipe(frame, bth):
    masked = bytearray(frame[14:-4])
    masked[0] |= 0x0f
    masked[1:4] = bytes([255] * 3)
    masked[7] = 255
    masked[bth - 2:bth] = bytes([255] * 2) if bth == 48 else masked[bth - 2:bth]
    masked[bth + 4] = 255
    return zlib.crc32(bytes([255] * 8) + bytes(masked)).to_bytes(4, 'little')
count = 0
for number, packet in enumerate(PcapReader(sys.argv[1]), 1):
    frame = bytes(packet)
    packet = Ether(frame)
    if BTH not in packet:
        continue
    count += 1
    have = frame[-4:]
    if packet.type == 0x8915:
        assert GRH in packet and packet[GRH].paylen == len(frame) - 54
        want = by_recipe(frame, 40)
    elif packet.type == 0x86dd:
        want = by_recipe(frame, 48)
    else:
        packet[BTH].icrc = None
        want = bytes(packet)[-4:]
    if have != want:
        print(f'packet {number} ({packet.summary()}): ICRC {have.hex()}, computed here {want.hex()}')
print(count)
";

/// Returns whether tshark and scapy are installed; if not, prints that the test `what` is skipped.
pub(crate) fn judges_are_there(what: &str) -> bool {
    let missing = missing_judge();
    if let Some(missing) = missing {
        println!("skipped: {what}: {missing}");
    }
    missing.is_none()
}

/// Returns whether tshark and scapy are installed; if not, prints that the rest of a test goes on without `what`.
pub(crate) fn judges_of_a_part_are_there(what: &str) -> bool {
    let missing = missing_judge();
    if let Some(missing) = missing {
        println!("left out: {what}: {missing}");
    }
    missing.is_none()
}

fn missing_judge() -> Option<&'static str> {
    let works = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !works("tshark", &["--version"]) {
        Some("tshark is not installed")
    } else if !works("/usr/bin/python3", &["-c", "import scapy.contrib.roce"]) {
        Some("/usr/bin/python3 has no scapy.contrib.roce (package python3-scapy)")
    } else {
        None
    }
}

/// Returns the values of `fields` for each packet that matches `filter`.
pub(crate) fn dissect(file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-n").arg("-r").arg(file).args(["-Y", filter]);
    // What it takes payloads for without a sign of it, and then finds malformed.
    for guess in ["rpcrdma_infiniband", "eth_over_ib", "mellanox_eoib"] {
        tshark.args(["--disable-heuristic", guess]);
    }
    tshark.args(["-o", "ip.check_checksum:TRUE"]);
    tshark.args(["-o", "udp.check_checksum:TRUE"]);
    tshark.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let output = tshark.output().expect("tshark is there");
    assert!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("text");
    text.lines()
        .map(|line| line.split('|').map(str::to_owned).collect())
        .collect()
}

/// Fails if tshark finds a packet malformed, or a checksum of ours wrong, or scapy an ICRC. Returns the number of RoCE packets in
/// `file`.
pub(crate) fn judge(file: &Path) -> usize {
    let malformed = dissect(
        file,
        // Hosts leave UDP checksums to their network card: only those of ours are looked at.
        "_ws.malformed || ip.checksum.status == 0 || (udp.checksum.status == 0 && frame.packet_flags_direction == 2)",
        &["frame.number", "_ws.col.Info"],
    );
    assert!(malformed.is_empty(), "{}: {malformed:?}", file.display());
    let output = Command::new("/usr/bin/python3")
        .args(["-c", ICRC_SCRIPT])
        .arg(file)
        .output()
        .expect("python is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines: Vec<&str> = text.lines().collect();
    let count = lines.pop().and_then(|line| line.parse().ok());
    let Some(count) = count else {
        panic!("scapy: {}", String::from_utf8_lossy(&output.stderr))
    };
    assert!(lines.is_empty(), "{}: {lines:#?}", file.display());
    count
}

/// Returns the number of packets of each operation, by tshark's name for it.
pub(crate) fn operations(file: &Path) -> BTreeMap<String, usize> {
    count_operations(file, "infiniband")
}

/// Returns the number of packets of each operation among those that match `filter`.
pub(crate) fn count_operations(file: &Path, filter: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for row in dissect(file, filter, &["_ws.col.Info"]) {
        let name = row[0].split("QP=").next().unwrap_or_default().trim();
        *counts.entry(name.to_owned()).or_default() += 1;
    }
    counts
}
