//! Findings in words: which threads touched which bytes, and what is missing between the two accesses. Places in the code stand in the
//! words as addresses (`lines`).

use std::collections::HashSet;
use std::fmt::Write as _;

use super::access::Scope;
use super::agent::{Agent, Identity};
use super::finding::{Finding, Kind};
use super::shadow::Cell;

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

/// What lies between two accesses that nothing orders.
pub(super) struct Between<'a> {
    /// The earlier access.
    pub(super) old: &'a Cell,
    /// The thread of the earlier access, if it still runs.
    pub(super) writer: Option<&'a Agent>,
    /// The thread of the later access.
    pub(super) reader: &'a Agent,
    /// The narrowest scope that contains both threads.
    pub(super) apart: Scope,
    /// The narrower scope of the two, if both are atomics.
    pub(super) reach: Option<Scope>,
}

impl Finding {
    /// Returns the finding of two accesses that nothing orders.
    pub(super) fn unordered(side: &Side, other: &Side, between: &Between) -> Self {
        let Between { old, writer, .. } = *between;
        let mut why = if let Some(scope) = between.reader.lacks_acquire(old.slot, old.epoch) {
            format!(
                "missing: an acquire fence of scope {} or wider in the reading thread, after the load that saw the other's \
                 publication",
                scope.name()
            )
        } else {
            publication(writer, old, between.apart, "the store that publishes it")
        };
        if let Some(reach) = between.reach {
            let _ = write!(
                why,
                "; the two are atomics, but one has scope {} and they are {} apart",
                reach.name(),
                between.apart.name()
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
    places: [u64; 2],
}

/// The most findings that are kept.
const MOST: usize = 1000;

impl Findings {
    /// Keeps a finding about `launch`, once per launch and pair of places in the source.
    pub(super) fn add(&mut self, finding: Finding, launch: u64, places: [u64; 2]) {
        let seen = Seen {
            launch,
            kind: finding.kind,
            places,
        };
        if self.found.len() < MOST && self.seen.insert(seen) {
            self.found.push((launch, finding));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_beside_each_other_get_the_same_finding_once_each() {
        let finding = || Finding {
            kind: Kind::Untold,
            text: String::new(),
        };
        let mut findings = Findings::default();
        for launch in [1, 2, 1, 2] {
            findings.add(finding(), launch, [0, 0x10]);
        }
        assert_eq!(findings.take(Some(1)).len(), 1);
        findings.add(finding(), 1, [0, 0x10]);
        findings.add(finding(), 2, [0, 0x10]);
        assert_eq!(findings.take(Some(2)).len(), 1, "launch 2 has had it");
        assert_eq!(findings.take(None).len(), 1, "launch 1 has it anew");
    }
}
