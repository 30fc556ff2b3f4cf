//! What a probe tells the doctor: each check as it begins and ends.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::check::{Check, Look, Text};

/// A line of a probe's standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Told {
    /// A check begins.
    Begins {
        /// The NIC, GPU or pair that is checked; empty for the machine.
        subject: String,
        /// The id of the check.
        id: String,
        /// True if the text leaves the subject out unless everything is asked for.
        is_quiet: bool,
    },
    /// The check has ended with this result.
    Ends(Look),
}

/// Writes the results of a probe to the doctor.
pub(super) struct Report {
    skip: usize,
    is_heard: bool,
}

impl Report {
    /// Returns a report that leaves out the first `skip` checks, whose results the doctor has.
    pub(super) fn after(skip: usize) -> Self {
        Self {
            skip,
            is_heard: true,
        }
    }

    /// Runs all checks of a subject.
    pub(super) fn all<S: ?Sized>(&mut self, subject: &str, checks: &[Check<S>], of: &S) {
        for check in checks {
            self.one(subject, &check.text(), false, || (check.look)(of));
        }
    }

    /// Runs one check, unless the doctor has its result already. A `quiet` subject is left out of the text.
    pub(super) fn one(
        &mut self,
        subject: &str,
        text: &Text,
        is_quiet: bool,
        look: impl FnOnce() -> Look,
    ) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.tell(&Told::Begins {
            subject: subject.to_owned(),
            id: text.id.to_owned(),
            is_quiet,
        });
        if self.is_heard {
            let found = look();
            self.tell(&Told::Ends(found));
        }
    }

    fn tell(&mut self, told: &Told) {
        let mut line = serde_json::to_vec(told).expect("words");
        line.push(b'\n');
        let mut out = io::stdout().lock();
        self.is_heard &= out.write_all(&line).and_then(|()| out.flush()).is_ok();
    }
}
