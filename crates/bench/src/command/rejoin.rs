//! `wv bench rejoin`: starts itself again on software HCAs, one for each rank, and measures on them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::finish::{finish, refuse};
use super::inside;
use crate::error::BenchError;
use crate::ranks::rejoin::{RejoinCase, RejoinReport, measure};
use warpverbs_cli::{number, output};

/// Options of `wv bench rejoin`.
#[derive(Args, Debug)]
pub struct RejoinArgs {
    /// Numbers of ranks, 3 to 64 each: threads of one process
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64], value_parser = number::any::<u32>())]
    ranks: Vec<u32>,
    /// QPs to each peer
    #[arg(long, default_value_t = 4, value_parser = number::any::<u32>())]
    qps_per_peer: u32,
    /// Returns of a rank in each way
    #[arg(long, default_value_t = 5, value_parser = number::any::<u32>())]
    rounds: u32,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
}

/// Runs `wv bench rejoin`.
pub(super) fn run(args: &RejoinArgs) -> ExitCode {
    let most = args.ranks.iter().copied().max().unwrap_or(0);
    if args.ranks.is_empty() || args.ranks.iter().any(|ranks| !(3..=64).contains(ranks)) {
        return refuse(&BenchError::Option {
            what: "--ranks",
            value: format!("{:?}", args.ranks),
            limit: "3 to 64 each".to_owned(),
        });
    }
    if args.rounds == 0 {
        return refuse(&BenchError::Option {
            what: "--rounds",
            value: "0".to_owned(),
            limit: "at least 1".to_owned(),
        });
    }
    if !args.inside {
        return match inside::start(most) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    finish(run_all(args), args.json.as_deref())
}

fn run_all(args: &RejoinArgs) -> Result<RejoinReport, BenchError> {
    let devices = inside::devices()?;
    let mut rows = Vec::new();
    for &ranks in &args.ranks {
        let case = RejoinCase {
            ranks,
            qps_per_peer: args.qps_per_peer,
            rounds: args.rounds,
        };
        output::say(format_args!("measuring: {ranks} ranks"));
        rows.extend(measure(&case, &devices)?);
    }
    Ok(RejoinReport {
        ran_on: "softhca+simt",
        rows,
    })
}
