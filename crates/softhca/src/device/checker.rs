//! What the device saw that silicon would not tell: each in words, once.

use std::collections::HashMap;

/// Findings of one HCA. The text of a kind is kept for the first time it happens on an object; repetitions are counted.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    seen: HashMap<(Finding, u32), u64>,
    texts: Vec<String>,
    total: u64,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Finding {
    WqeIndex,
    WqeQpn,
    WqeLength,
    WqeBeyondDoorbell,
    WqeSegment,
    DoorbellBackwards,
    DoorbellBeyondRing,
    RingReusedEarly,
    DoorbellStray,
    CqOverrun,
    LocalKey,
    RemoteKey,
    RemoteRight,
    PsnMismatch,
    ReceiveBeyondRing,
    SrqList,
    QueueKey,
    Socket,
}

/// Different texts that are kept; later ones are only counted.
const MAX_TEXTS: usize = 1000;

impl Checker {
    /// Notes a finding about the object `number`; says `text` if it is the first of its kind there.
    pub(crate) fn note(&mut self, finding: Finding, number: u32, text: impl FnOnce() -> String) {
        self.total += 1;
        let times = self.seen.entry((finding, number)).or_insert(0);
        *times += 1;
        if *times == 1 && self.texts.len() < MAX_TEXTS {
            self.texts.push(text());
        }
    }

    /// An object is gone: if its number comes back, it is another one.
    pub(crate) fn forget(&mut self, number: u32) {
        self.seen.retain(|(_, of), _| *of != number);
    }

    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_finding_is_said_once_and_counted() {
        let mut checker = Checker::default();
        for _ in 0..3 {
            checker.note(Finding::CqOverrun, 7, || "CQ 0x7 overran".to_owned());
        }
        checker.note(Finding::CqOverrun, 8, || "CQ 0x8 overran".to_owned());
        assert_eq!(checker.texts(), ["CQ 0x7 overran", "CQ 0x8 overran"]);
        assert_eq!(checker.total(), 4);
    }
}
