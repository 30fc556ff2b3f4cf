//! Findings: mistakes of programs that a real device would not report. Each is reported once, in words.

mod config;
mod ended;
mod finding;
pub(crate) mod flight;
pub(crate) mod scrutiny;

pub use config::{CheckConfig, CheckConfigError};
pub use finding::Finding;

use std::collections::{BTreeMap, HashMap};

/// The findings of one HCA. The text of a kind of finding is kept the first time that it happens on an object. Repetitions are counted.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    config: CheckConfig,
    device: String,
    seen: HashMap<(Finding, u32), u64>,
    counts: BTreeMap<Finding, u64>,
    texts: Vec<String>,
    ended: ended::EndedKeys,
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
}
