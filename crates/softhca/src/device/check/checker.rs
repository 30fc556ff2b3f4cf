//! The checker of an HCA, which keeps its findings.

use super::ended::{EndedKey, EndedKeys};
use super::{CheckConfig, Finding};
use std::collections::{BTreeMap, HashMap};

/// The findings of one HCA. The text of a kind of finding is kept the first time that it happens on an object. Repetitions are counted.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    config: CheckConfig,
    device: String,
    seen: HashMap<(Finding, u32), u64>,
    counts: BTreeMap<Finding, u64>,
    texts: Vec<String>,
    ended: EndedKeys,
}

/// The number of texts that are kept. Later findings are only counted.
const MAX_TEXTS: usize = 1000;

impl Checker {
    pub(crate) fn new(device: &str, config: &CheckConfig) -> Self {
        Self {
            config: config.clone(),
            device: device.to_owned(),
            ..Self::default()
        }
    }

    /// Notes a finding about object `number`. Keeps and reports `text` if it is the first of its kind at that object.
    pub(crate) fn note(&mut self, finding: Finding, number: u32, text: impl FnOnce() -> String) {
        *self.counts.entry(finding).or_insert(0) += 1;
        let times = self.seen.entry((finding, number)).or_insert(0);
        *times += 1;
        if *times == 1 && self.texts.len() < MAX_TEXTS {
            let text = text();
            self.config.tell(&self.device, finding, &text);
            self.texts.push(text);
        }
    }

    /// Notes that a key ends, which covered `bytes` bytes at `iova`.
    pub(crate) fn key_ended(&mut self, key: u32, iova: u64, bytes: u64, now_ns: u64) {
        self.ended.add(EndedKey {
            key,
            iova,
            bytes,
            at_ns: now_ns,
        });
    }

    /// Handles that QP `qpn` used `key`, which does not exist. Returns whether the key has existed: then a finding is noted, in words that
    /// begin with `what`.
    pub(crate) fn note_if_ended(&mut self, qpn: u32, key: u32, now_ns: u64, what: &str) -> bool {
        let Some(ended) = self.ended.find(key) else {
            return false;
        };
        let EndedKey {
            iova, bytes, at_ns, ..
        } = ended;
        self.note(Finding::KeyEnded, qpn, || {
            let ago_us = now_ns.saturating_sub(at_ns) / 1000;
            format!(
                "QP {qpn:#x}: {what} key {key:#x}, which was ended {ago_us} us before; it covered {bytes:#x} bytes at {iova:#x}"
            )
        });
        true
    }

    /// Forgets the findings of an object that is gone. If its number comes back, it is another object.
    pub(crate) fn forget(&mut self, number: u32) {
        self.seen.retain(|(_, of), _| *of != number);
    }

    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }

    pub(crate) fn counts(&self) -> &BTreeMap<Finding, u64> {
        &self.counts
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Returns the configuration, which says which checks that cost time are done.
    pub(crate) fn config(&self) -> &CheckConfig {
        &self.config
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
        checker.note(Finding::WqeIndex, 7, || "QP 0x7".to_owned());
        assert_eq!(
            checker.texts(),
            ["CQ 0x7 overran", "CQ 0x8 overran", "QP 0x7"]
        );
        assert_eq!(checker.total(), 5);
        assert_eq!(checker.counts()[&Finding::CqOverrun], 4);
        assert_eq!(checker.counts()[&Finding::WqeIndex], 1);
        checker.forget(7);
        checker.note(Finding::CqOverrun, 7, || "CQ 0x7 again".to_owned());
        assert_eq!(checker.texts().last().unwrap(), "CQ 0x7 again");
    }

    #[test]
    fn a_key_that_has_ended_is_remembered_for_a_while() {
        let mut checker = Checker::default();
        checker.key_ended(0x1011, 0x7000, 0x40, 1_000_000);
        assert!(!checker.note_if_ended(5, 0x1012, 2_000_000, "a WQE uses"));
        assert!(checker.note_if_ended(5, 0x1011, 3_000_000, "a WQE uses"));
        assert_eq!(
            checker.texts(),
            [
                "QP 0x5: a WQE uses key 0x1011, which was ended 2000 us before; it covered 0x40 bytes at 0x7000"
            ]
        );
        for key in 0..600 {
            checker.key_ended(key, 0, 0, 0);
        }
        assert!(!checker.note_if_ended(6, 0x1011, 0, ""));
        // The last 512 keys are remembered.
        assert!(!checker.note_if_ended(6, 87, 0, ""));
        assert!(checker.note_if_ended(6, 88, 0, ""));
    }
}
