//! Findings in words: which threads touched which bytes, at which line of the source, and what is missing between the two accesses.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::agent::{Agent, Identity, Scope};
use super::shadow::Cell;

/// The kind of the defect of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Accesses of two threads, or of a thread that reads what a device wrote, that nothing orders.
    Unordered,
    /// An access of a device to bytes that a thread had touched and not fenced, with sufficient scope, before the doorbell.
    Untold,
    /// A weak load that finds bytes in the L1 that memory no longer holds.
    Stale,
    /// A non-coherent load of memory that changes while the kernel runs.
    NotConstant,
    /// An access of a kernel by the address that host-mapped memory has for the host.
    HostAddress,
}

/// One defect.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind of the defect.
    pub kind: Kind,
    /// Kernel, threads, addresses, source lines, and what is missing.
    pub text: String,
}

/// One of two accesses, in words. Its source line is still to be looked up.
#[derive(Debug)]
pub(super) struct Side(String);

impl Side {
    pub(super) fn of(who: &Identity, addr: u64, bytes: u64, writes: bool, pc: u64) -> Self {
        let Identity { kernel, thread, .. } = who;
        let does = if writes { "writes" } else { "reads" };
        Self(format!(
            "{kernel}, {thread} {does} {bytes} bytes at {addr:#x} ({{pc:{pc:x}}})"
        ))
    }

    pub(super) fn device(addr: u64, bytes: u64, writes: bool) -> Self {
        let does = if writes { "writes" } else { "reads" };
        Self(format!("the HCA {does} {bytes} bytes at {addr:#x}"))
    }
}

impl Finding {
    /// Returns the finding of two accesses that nothing orders. `writer` is the thread of the earlier access, if it still runs.
    pub(super) fn unordered(
        side: &Side,
        other: &Side,
        reader: &Agent,
        old: &Cell,
        writer: Option<&Agent>,
        apart: Scope,
        reach: Option<Scope>,
    ) -> Self {
        let mut why = if let Some(scope) = reader.lacks_acquire(old.slot, old.epoch) {
            format!(
                "missing: an acquire fence of scope {} or wider in the reading thread, after the load that saw the other's \
                 publication",
                scope.name()
            )
        } else {
            publication(writer, old, apart, "the store that publishes it")
        };
        if let Some(reach) = reach {
            let _ = write!(
                why,
                "; the two are atomics, but one has scope {} and they are {} apart",
                reach.name(),
                apart.name()
            );
        }
        Self {
            kind: Kind::Unordered,
            text: format!("unordered: {}; before that, {}. {why}", side.0, other.0),
        }
    }

    /// Returns the finding of a device access that no doorbell covers.
    pub(super) fn untold(
        device: &Side,
        other: &Side,
        writer: Option<&Agent>,
        old: &Cell,
        scope: Scope,
    ) -> Self {
        let memory = if scope == Scope::System {
            "host-mapped"
        } else {
            "device"
        };
        let why = publication(writer, old, scope, "the doorbell");
        let text = format!(
            "untold: {}, in {memory} memory; before that, {}. {why}",
            device.0, other.0
        );
        Self {
            kind: Kind::Untold,
            text,
        }
    }

    pub(super) fn stale(side: &Side, loaded_at: u64) -> Self {
        let text = format!(
            "stale: {}, but its block's L1 holds older bytes, loaded at {{pc:{loaded_at:x}}}. missing: an acquire fence of scope \
             .gpu or .sys by a thread of the block since they changed",
            side.0
        );
        Self {
            kind: Kind::Stale,
            text,
        }
    }

    /// Returns the finding of host-mapped memory at an address that only the host may use.
    pub(super) fn host_address(side: &Side, mapped_at: u64) -> Self {
        let text = format!(
            "host address: {}, which only the host may use: kernels reach this memory at {mapped_at:#x}",
            side.0
        );
        Self {
            kind: Kind::HostAddress,
            text,
        }
    }

    pub(super) fn constant(side: &Side, other: &Side) -> Self {
        let text = format!(
            "not constant: {} by a non-coherent load; before that, {}. Such a load may give old bytes whatever the fences",
            side.0, other.0
        );
        Self {
            kind: Kind::NotConstant,
            text,
        }
    }
}

/// Returns, in words, what the writer left out.
fn publication(writer: Option<&Agent>, old: &Cell, needed: Scope, before: &str) -> String {
    let covers = |scope: Scope| {
        let fenced = writer.and_then(|writer| writer.fenced[scope as usize].as_ref());
        fenced.is_some_and(|known| known.knows(old.slot, old.epoch))
    };
    let widest = Scope::ALL.into_iter().filter(|scope| covers(*scope)).max();
    match widest {
        Some(widest) if widest < needed => format!(
            "missing: scope. It was fenced with {}, and {} or wider is needed before {before}",
            widest.name(),
            needed.name()
        ),
        Some(_) => format!("missing: order. It was fenced, but not known to be before {before}"),
        None => format!(
            "missing: a release fence of scope {} or wider between it and {before}",
            needed.name()
        ),
    }
}

/// Findings that no caller has taken yet.
#[derive(Debug, Default)]
pub(super) struct Findings {
    found: Vec<(u64, Finding)>,
    seen: HashSet<Seen>,
}

/// What is reported once. Launches that run beside each other each get their own: else the first of two with one defect would take the
/// finding of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Seen {
    launch: u64,
    kind: Kind,
    places: (u64, u64),
}

/// The most findings that are kept.
const MOST: usize = 1000;

impl Findings {
    /// Keeps a finding about `launch`, once per launch and pair of places in the source.
    pub(super) fn add(&mut self, finding: Finding, launch: u64, places: (u64, u64)) {
        let seen = Seen {
            launch,
            kind: finding.kind,
            places,
        };
        if self.found.len() < MOST && self.seen.insert(seen) {
            super::report_at_exit();
            self.found.push((launch, finding));
        }
    }

    /// Takes the findings about one launch, or all.
    pub(super) fn take(&mut self, launch: Option<u64>) -> Vec<Finding> {
        let wanted = |of: u64| launch.is_none_or(|launch| of == launch);
        let (taken, left) = self.found.drain(..).partition(|(of, _)| wanted(*of));
        self.found = left;
        self.seen.retain(|seen| !wanted(seen.launch));
        let taken: Vec<(u64, Finding)> = taken;
        taken.into_iter().map(|(_, finding)| finding).collect()
    }
}

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
    fn launches_beside_each_other_get_the_same_finding_once_each() {
        let finding = || Finding {
            kind: Kind::Untold,
            text: String::new(),
        };
        let mut findings = Findings::default();
        for launch in [1, 2, 1, 2] {
            findings.add(finding(), launch, (0, 0x10));
        }
        assert_eq!(findings.take(Some(1)).len(), 1);
        findings.add(finding(), 1, (0, 0x10));
        findings.add(finding(), 2, (0, 0x10));
        assert_eq!(findings.take(Some(2)).len(), 1, "launch 2 has had it");
        assert_eq!(findings.take(None).len(), 1, "launch 1 has it anew");
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
