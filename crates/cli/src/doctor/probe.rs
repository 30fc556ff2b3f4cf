//! `wv doctor-probe`: checks one group, and reports each check as it begins and ends. The doctor starts it, and kills it if it hangs.

use std::path::PathBuf;
use std::process::ExitCode;

use super::check::Group;
use super::software::{self, Carried, Software};
use super::told::Report;
use super::tree::Tree;
use super::{gpu, machine, nic, pair};
use crate::number;

/// What one process of the doctor looks at.
#[derive(clap::Args, Clone, Debug)]
pub struct ProbeOptions {
    /// What to look at
    #[arg(long, value_enum)]
    group: Group,
    /// Where the machine's files are
    #[arg(long, default_value = "/")]
    root: PathBuf,
    /// So many checks are known
    #[arg(long, default_value_t = 0, value_parser = number::any::<usize>())]
    skip: usize,
    /// Move data from each NIC to itself
    #[arg(long)]
    loopback: bool,
}

/// Runs all checks of a group. `carried` are the sets of kernels that this program has beside those of the library and of the doctor.
#[must_use]
pub fn run_probe(options: &ProbeOptions, carried: &'static [Carried]) -> ExitCode {
    let tree = Tree::new(&options.root);
    let mut report = Report::after(options.skip);
    match options.group {
        Group::Software => {
            let of = Software { tree, carried };
            report.all("", software::CHECKS, &of);
        }
        Group::Machine => report.all("", machine::CHECKS, &tree),
        Group::Nic => nic::look(&tree, &mut report),
        Group::Gpu => gpu::look(&tree, &mut report),
        Group::Pair => pair::look(&tree, options.loopback, &mut report),
        // The doctor checks the store itself, because these calls end by themselves.
        Group::Store => {}
    }
    ExitCode::SUCCESS
}
