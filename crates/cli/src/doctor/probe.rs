//! `wv doctor-probe`: checks one group, and reports each check as it begins and ends. The doctor starts it, and kills it if it hangs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::check::{Check, Group, Look, Text};
use super::tree::Tree;
use super::{gpu, machine, nic, pair, software};
use crate::cmd::number;

/// What one process of the doctor looks at.
#[derive(clap::Args, Clone, Debug)]
pub struct ProbeOptions {
    /// What to look at
    #[arg(long, value_enum)]
    pub(super) group: Group,
    /// Where the machine's files are
    #[arg(long, default_value = "/")]
    pub(super) root: PathBuf,
    /// So many checks are known
    #[arg(long, default_value_t = 0, value_parser = number::any::<usize>())]
    pub(super) skip: usize,
    /// Move data from each NIC to itself
    #[arg(long)]
    pub(super) loopback: bool,
}

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

/// Runs all checks of a group.
#[must_use]
pub fn run_probe(options: &ProbeOptions) -> ExitCode {
    let tree = Tree::new(&options.root);
    let mut report = Report {
        skip: options.skip,
        is_heard: true,
    };
    match options.group {
        Group::Software => report.all("", software::CHECKS, &tree),
        Group::Machine => report.all("", machine::CHECKS, &tree),
        Group::Nic => nic::look(&tree, &mut report),
        Group::Gpu => gpu::look(&tree, &mut report),
        Group::Pair => pair::look(&tree, options.loopback, &mut report),
        // The doctor checks the store itself, because these calls end by themselves.
        Group::Store => {}
    }
    ExitCode::SUCCESS
}

/// Writes the results of a probe to the doctor.
pub(super) struct Report {
    skip: usize,
    is_heard: bool,
}

impl Report {
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
