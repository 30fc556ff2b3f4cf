//! The command line of `wv doctor`: which groups are asked, and how the results are printed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::ask::Question;
use super::check::Group;
use super::matrix;
use super::page;
use super::report::Report;
use super::store::{self, StoreOptions};
use super::texts::{known, texts};
use crate::launched::{Job, on_software_hca};
use crate::output;
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
