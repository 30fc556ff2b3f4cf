//! `wv doctor`: what this machine can do. Each check has a line, with the command or option that mends a defect.
//!
//! A check is one row of the table `CHECKS` in the file of its group: `software`, `machine`, `nic`, `gpu`, `pair`. The texts in that table
//! are those of the report, of `--explain` and of the page for operators.
//!
//! A process of its own (`probe`) checks each group, and reports each check as it begins and ends. If a check hangs, the doctor (`ask`)
//! kills the process and starts another one for the checks after it. A check changes nothing. Files of the machine are read below a root
//! (`tree`), so that tests can show other machines.

mod acs;
mod ask;
mod check;
mod couple;
mod engine;
mod gpu;
mod loopback;
mod machine;
mod matrix;
mod nic;
mod page;
mod pair;
mod probe;
mod report;
mod software;
mod steps;
mod store;
mod tree;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::launched::{Job, on_software_hca};
use super::output;
use ask::Question;
use check::{Group, Text};
pub use page::page;
pub use probe::{ProbeOptions, run_probe};
use report::Report;
use store::StoreOptions;
use warpverbs::verbs::VerbsError;

/// The name of the command in its messages.
const NAME: &str = "wv doctor";

/// Report what this machine can do: software, kernel, NICs, GPUs, each GPU with each NIC, and the store that ranks meet in
///
/// Each check is ok, degraded, missing or not-looked-at, with the finding, why it matters and what mends it. The status is 0 if the
/// machine can be used, 1 if a needed part is missing, 2 for a wrong command line. The doctor changes nothing on the machine. In
/// the store it sets and removes keys of its own. A directory or prefix that no run has used yet then belongs to the run
/// WARPVERBS_RUN_ID.
#[derive(Args)]
pub struct DoctorOptions {
    /// Groups to look at [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Group>,
    /// Move data from each NIC to itself, by a kernel, on each way that works
    #[arg(long)]
    loopback: bool,
    /// Show each NIC with each GPU, not only those that `auto` takes
    #[arg(long)]
    all: bool,
    /// Print why one check matters and what mends it, without a look at the machine
    #[arg(long, value_name = "ID", value_parser = known)]
    explain: Option<String>,
    /// This process is one rank of a launcher's job (torchrun, mpirun, MPICH, srun), which meets in WARPVERBS_STORE. Rank 0 prints
    /// its checks and which ranks reach each other
    #[arg(long)]
    launched: bool,
    /// This rank has a software HCA of its own
    #[arg(long, hide = true)]
    inside: bool,
    #[command(flatten)]
    store: StoreOptions,
    /// Print JSON, by crates/wv/data/doctor.schema.json
    #[arg(long)]
    json: bool,
    /// Where the machine's files are
    #[arg(long, default_value = "/", hide = true)]
    root: PathBuf,
}

/// Runs `wv doctor`.
#[must_use]
pub fn run(options: &DoctorOptions) -> ExitCode {
    if let Some(id) = &options.explain {
        let text = texts()
            .into_iter()
            .map(|(_, text)| text)
            .find(|text| text.id == *id);
        return match text {
            Some(text) => output::finish(NAME, &page::explained(&text)),
            None => ExitCode::from(2),
        };
    }
    if options.launched {
        return launched(options);
    }
    show(options, &examine(options))
}

/// Prints a report.
fn show(options: &DoctorOptions, report: &Report) -> ExitCode {
    let status = if report.is_usable() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    let text = if options.json {
        format!("{:#}\n", report.json())
    } else {
        report.text(options.all)
    };
    match output::print(&text) {
        Ok(()) => status,
        Err(error) => error.end(NAME),
    }
}

/// Runs one rank of a job. Rank 0 also prints the report of its machine, and which ranks reach each other.
fn launched(options: &DoctorOptions) -> ExitCode {
    let job = match Job::of_this_process(NAME) {
        Ok(job) => job,
        Err(code) => return code,
    };
    let devices = match job.open_devices(&job.config) {
        Ok(devices) => devices,
        Err(error) => match error.downcast_ref() {
            Some(VerbsError::NoDevice { .. }) if !options.inside => {
                return on_software_hca(NAME, "--inside");
            }
            _ => return job.fail(&matrix::cause_of_devices(&error)),
        },
    };
    match matrix::find(&job, &devices) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(matrix)) => {
            // The checks open the devices themselves.
            drop(devices);
            let mut report = examine(options);
            report.ranks = Some(matrix);
            show(options, &report)
        }
        Err(cause) => job.fail(&cause),
    }
}

fn examine(options: &DoctorOptions) -> Report {
    let question = Question {
        root: &options.root,
        loopback: options.loopback,
    };
    let is_wanted = |group: &Group| options.only.is_empty() || options.only.contains(group);
    let mut report = Report::default();
    for group in Group::ALL.into_iter().filter(is_wanted) {
        match group {
            Group::Store => report.store = Some(store::examine(&options.store)),
            group => report.groups.push((group, question.ask(group))),
        }
    }
    report
}

/// Returns the texts of all checks, group by group.
fn texts() -> Vec<(Group, Text)> {
    fn of<S: ?Sized>(group: Group, checks: &[check::Check<S>]) -> Vec<(Group, Text)> {
        checks.iter().map(|check| (group, check.text())).collect()
    }
    let mut all = of(Group::Software, software::CHECKS);
    all.extend(of(Group::Machine, machine::CHECKS));
    all.push((Group::Nic, nic::THERE));
    all.extend(of(Group::Nic, nic::CHECKS));
    all.push((Group::Nic, engine::TEXT));
    all.push((Group::Gpu, gpu::THERE));
    all.extend(of(Group::Gpu, gpu::CHECKS));
    all.extend(of(Group::Pair, pair::CHECKS));
    all.push((Group::Pair, pair::LOOPBACK));
    all.push((Group::Store, store::TEXT));
    all
}

/// Returns `id` if it is the id of a check, else an error that lists all ids.
fn known(id: &str) -> Result<String, String> {
    let ids: Vec<&str> = texts().iter().map(|(_, text)| text.id).collect();
    if ids.contains(&id) {
        Ok(id.to_owned())
    } else {
        Err(format!("no check; the checks are {}", ids.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_check_has_an_id_of_its_own_and_says_why_and_what_mends_it() {
        let mut ids = BTreeSet::new();
        for (group, text) in texts() {
            assert!(ids.insert(text.id), "{}", text.id);
            let is_word =
                |mark: char| mark.is_ascii_lowercase() || mark.is_ascii_digit() || mark == '-';
            assert!(text.id.chars().all(is_word), "{}", text.id);
            for said in [text.what, text.why, text.mend] {
                assert!(
                    said.len() > 2 && !said.contains("  "),
                    "{group:?} {}: {said}",
                    text.id
                );
            }
        }
    }
}
