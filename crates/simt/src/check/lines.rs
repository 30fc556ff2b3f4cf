//! Lines of the source in place of the code addresses in findings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::finding::Finding;

/// Puts source lines in place of the code addresses.
pub(super) fn look_up(findings: &mut [Finding]) {
    /// The places of addresses that were looked up before. They stay valid, since code does not move.
    static KNOWN: Mutex<BTreeMap<u64, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = findings
        .iter()
        .flat_map(|finding| addresses(&finding.text))
        .filter(|pc| !known.contains_key(pc));
    let asked: BTreeSet<u64> = asked.collect();
    if !asked.is_empty() {
        known.extend(source_lines(&asked));
    }
    for finding in findings.iter_mut() {
        while let Some((start, end, pc)) = placeholder(&finding.text) {
            let unknown = || format!("code at {pc:#x}");
            let place = known.get(&pc).cloned().unwrap_or_else(unknown);
            finding.text.replace_range(start..end, &place);
        }
    }
}

/// Returns all code addresses in a text.
fn addresses(text: &str) -> Vec<u64> {
    let (mut all, mut rest) = (Vec::new(), text);
    while let Some((_, end, pc)) = placeholder(rest) {
        all.push(pc);
        rest = &rest[end..];
    }
    all
}

/// Returns the first `{pc:...}` of a text: its start, its end, and the address.
fn placeholder(text: &str) -> Option<(usize, usize, u64)> {
    let start = text.find("{pc:")?;
    let length = text[start..].find('}')?;
    let digits = &text[start + 4..start + length];
    Some((
        start,
        start + length + 1,
        u64::from_str_radix(digits, 16).ok()?,
    ))
}

/// Returns the places in the source of return addresses, as `file:line`. Addresses without debug information have none.
fn source_lines(addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut of_file: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for pc in addresses {
        if let Some((base, file)) = module(&maps, *pc) {
            // The call is before the return address.
            let offset = (pc - base).saturating_sub(1);
            of_file.entry(file).or_default().push((*pc, offset));
        }
    }
    let mut places = BTreeMap::new();
    for (file, asked) in of_file {
        let offsets = asked.iter().map(|(_, offset)| format!("{offset:#x}"));
        let output = Command::new("addr2line")
            .args(["-a", "-i", "-e", file])
            .args(offsets)
            .output();
        if let Ok(output) = output {
            let lines = String::from_utf8_lossy(&output.stdout);
            let blocks = blocks(&lines).into_iter();
            let found = asked
                .iter()
                .zip(blocks)
                .map(|((pc, _), place)| (*pc, place));
            places.extend(found.filter(|(_, place)| !place.is_empty()));
        }
    }
    places
}

/// Returns what `addr2line -a -i` says about each address: its lines from the innermost function outwards. For an inlined function, the
/// line from which it was called explains more.
fn blocks(lines: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    for line in lines.lines() {
        if line.starts_with("0x") {
            blocks.push(String::new());
        } else if let Some(block) = blocks.last_mut()
            && !line.starts_with("??")
        {
            if !block.is_empty() {
                block.push_str(" < ");
            }
            block.push_str(short(line));
        }
    }
    blocks
}

/// Returns the part of a path that identifies the source.
fn short(line: &str) -> &str {
    let line = line.split(" (").next().unwrap_or(line);
    ["/kernels/", "/include/"]
        .iter()
        .find_map(|part| line.rfind(part))
        .map_or(line, |at| &line[at + 1..])
}

/// Returns the mapped file that an address is in, and where its first byte is mapped.
fn module(maps: &str, pc: u64) -> Option<(u64, &str)> {
    let lines = maps.lines().filter_map(|line| {
        let path = line.find('/').map(|at| &line[at..])?;
        let (start, rest) = line.split_once('-')?;
        let end = rest.split(' ').next()?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        Some((number(start)?, number(end)?, path))
    });
    let all: Vec<(u64, u64, &str)> = lines.collect();
    let (_, _, path) = all
        .iter()
        .find(|(start, end, _)| (*start..*end).contains(&pc))?;
    let base = all
        .iter()
        .filter(|(_, _, other)| other == path)
        .map(|(start, _, _)| *start)
        .min()?;
    Some((base, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::finding::Kind;

    #[test]
    fn a_code_address_becomes_a_place_and_an_unknown_one_stays() {
        let text = "a ({pc:10}), b ({pc:10})".to_owned();
        let mut findings = [Finding {
            kind: Kind::Stale,
            text,
        }];
        look_up(&mut findings);
        assert_eq!(findings[0].text, "a (code at 0x10), b (code at 0x10)");
    }

    #[test]
    fn each_address_gets_its_lines_and_an_unknown_one_none() {
        let lines = "0x01\n/w/kernels/a.cuh:3\n/w/kernels/b.cu:7 (discriminator 2)\n0x02\n??:0\n0x03\n/c.c:1\n";
        assert_eq!(
            blocks(lines),
            ["kernels/a.cuh:3 < kernels/b.cu:7", "", "/c.c:1"]
        );
        assert_eq!(addresses("a ({pc:10}), b ({pc:ff})"), [0x10, 0xff]);
    }

    #[test]
    fn modules_start_at_their_first_mapping() {
        let maps = "1000-2000 r--p 0 0:0 0 /bin/a\n2000-3000 r-xp 1000 0:0 0 /bin/a\n5000-6000 r-xp 0 0:0 0 /bin/b\n";
        assert_eq!(module(maps, 0x2800), Some((0x1000, "/bin/a")));
        assert_eq!(module(maps, 0x4000), None);
        assert_eq!(
            short("/x/crates/simt/tests/kernels/k.cu:3 (discriminator 2)"),
            "kernels/k.cu:3"
        );
    }
}
