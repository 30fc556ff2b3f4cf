//! `wv bench moe`: starts itself again on software HCAs, one for each rank, and counts on them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::finish::{NAME, refuse, written};
use super::inside;
use crate::error::BenchError;
use crate::ranks::moe::bandwidth::{self, Bandwidth, BandwidthCase};
use crate::ranks::moe::{HcaCounts, MoeCase, MoeReport, RankGpu, Routing, measure_on};
use gpuhca::{Gpuhca, Options, Softhca};
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::moe::{MoeConfig, RowLayout};
use warpverbs::verbs::{Context, DeviceSelector};
use warpverbs_cli::{number, output};

/// Options of `wv bench moe`.
#[derive(Args, Debug)]
pub struct MoeArgs {
    /// Numbers of ranks, 1 to 64 each: threads of one process
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64], value_parser = number::any::<u32>())]
    ranks: Vec<u32>,
    /// Tokens of each rank
    #[arg(long, default_value_t = 128, value_parser = number::any::<u32>())]
    tokens: u32,
    /// BF16 elements of a token
    #[arg(long, default_value_t = 7168, value_parser = number::any::<u32>())]
    hidden: u32,
    /// Experts of all ranks together
    #[arg(long, default_value_t = 256, value_parser = number::any::<u32>())]
    experts: u32,
    /// Experts that each token chooses
    #[arg(long, default_value_t = 8, value_parser = number::any::<u32>())]
    top_k: u32,
    /// How tokens choose: any expert, experts of 4 of 8 groups, or both one after the other
    #[arg(long, value_enum, default_value_t = Choose::Both)]
    routing: Choose,
    /// How dispatch lays out what it received
    #[arg(long, value_enum, default_value_t = LayOut::Expert)]
    layout: LayOut,
    /// Where the kernels of one rank alone run: auto, simt, or the number of a GPU. On a GPU their bytes per second stand beside a
    /// copy's. The counts are always taken on simt
    #[arg(long, default_value = "auto")]
    gpu: String,
    /// Executor of the ranks' WQEs: softhca, or gpuhca, a kernel beside those of the ranks on the device of --gpu
    #[arg(long, default_value = "softhca", value_parser = ["softhca", "gpuhca"])]
    device: String,
    /// Only the kernels of one rank alone, with its windows in the memory of the device of --gpu
    #[arg(long)]
    alone: bool,
    /// Seed of tokens and routing
    #[arg(long, default_value_t = 1, value_parser = number::any::<u64>())]
    seed: u64,
    /// Where to write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// This process has the software HCAs
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Choose {
    Both,
    Uniform,
    Grouped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LayOut {
    Expert,
    Rank,
}

/// Runs `wv bench moe`. If a count is too high, it prints the table and ends with failure.
pub(super) fn run(args: &MoeArgs) -> ExitCode {
    if !args.inside {
        return match on_software_hcas(args) {
            Ok(code) => code,
            Err(error) => refuse(&error),
        };
    }
    let report = match written(count(args), args.json.as_deref()) {
        Ok(report) => report,
        Err(error) => return refuse(&error),
    };
    match output::print(&report) {
        Err(error) => error.end(NAME),
        Ok(()) if report.objections.is_empty() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
    }
}

fn on_software_hcas(args: &MoeArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let most = args.ranks.iter().copied().max().unwrap_or(0);
    if !(1..=64).contains(&most) || args.ranks.contains(&0) {
        return Err(Box::new(BenchError::Option {
            what: "--ranks",
            value: format!("{:?}", args.ranks),
            limit: "1 to 64 each".to_owned(),
        }));
    }
    match (args.alone, args.device.as_str()) {
        // Only an HCA whose WQEs an executor runs takes memory of a GPU by its address, because it never looks at the memory.
        (true, _) => inside::start_external(1),
        (false, "gpuhca") => inside::start_external(most),
        (false, _) => inside::start(most),
    }
}

fn count(args: &MoeArgs) -> Result<MoeReport, BenchError> {
    let devices = inside::devices()?;
    if args.alone {
        let found = alone(args, &devices)?;
        let ran_on = found.first().map_or_else(String::new, |of| of.gpu.clone());
        let report = MoeReport::new(Vec::new()).ran_on(&ran_on);
        return Ok(report.with_bandwidth(found));
    }
    let hca = match args.device.as_str() {
        "gpuhca" => {
            let gpu = gpu::open(args.gpu.parse::<GpuSelector>()?)?;
            let options = Options::on(gpu.as_ref());
            Some(Gpuhca::start(gpu, Softhca::preloaded()?, &options)?)
        }
        _ => None,
    };
    let open = || -> Result<RankGpu, BenchError> {
        let Some(hca) = &hca else {
            return RankGpu::simt();
        };
        let mut rank = match args.gpu.parse::<GpuSelector>()? {
            GpuSelector::Simt => RankGpu::simt()?,
            selector => RankGpu {
                gpu: gpu::open(selector)?,
                simt: None,
            },
        };
        rank.gpu = hca.for_rank(rank.gpu);
        Ok(rank)
    };
    let routings = match args.routing {
        Choose::Both => vec![Routing::Uniform, Routing::Grouped],
        Choose::Uniform => vec![Routing::Uniform],
        Choose::Grouped => vec![Routing::Grouped],
    };
    let mut rows = Vec::new();
    for &ranks in &args.ranks {
        for &routing in &routings {
            let case = MoeCase {
                ranks,
                config: MoeConfig::BF16
                    .with_hidden(args.hidden)
                    .with_experts(args.experts)
                    .with_top_k(args.top_k)
                    .with_max_tokens(args.tokens)
                    .with_layout(match args.layout {
                        LayOut::Expert => RowLayout::ExpertMajor,
                        LayOut::Rank => RowLayout::RankMajor,
                    }),
                routing,
                seed: args.seed,
            };
            output::say(format_args!("counting: {case}"));
            rows.extend(measure_on(&case, &devices, &read, &open)?);
        }
    }
    let report = MoeReport::new(rows);
    let report = match hca {
        Some(hca) => {
            let report = report.ran_on(hca.label());
            // The polls of the HCA's kernel would take memory bandwidth from what follows.
            hca.stop()?;
            report
        }
        None => report,
    };
    Ok(report.with_bandwidth(alone(args, &devices)?))
}

/// Measures the kernels of one rank without a network. On simt the shape is small, and only shows that the kernels run.
fn alone(args: &MoeArgs, devices: &[String]) -> Result<Vec<Bandwidth>, BenchError> {
    let name = devices.first().cloned().unwrap_or_default();
    let context = Context::open(&DeviceSelector::Name(name))?;
    // A team of one rank has no QP, so the HCA executes nothing.
    let gpu = gpu::open(args.gpu.parse::<GpuSelector>()?)?;
    let full = BandwidthCase {
        tokens: 4096,
        hidden: args.hidden,
        experts: 32,
        top_k: 8,
        calls: 20,
    };
    // One case is a batch of prefill, whose bytes count, and one is a batch of decode, in which each wait counts.
    let cases = if gpu.label() == "simt" {
        vec![BandwidthCase {
            tokens: 16,
            hidden: 512,
            calls: 1,
            ..full
        }]
    } else {
        vec![
            full,
            BandwidthCase {
                tokens: 128,
                ..full
            },
        ]
    };
    let measured = cases
        .iter()
        .map(|case| bandwidth::measure(case, &context, &gpu));
    measured.collect()
}

/// Returns the counters of a device, from its `hw_counters` files.
fn read(device: &str) -> Option<HcaCounts> {
    let root = env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from);
    let folder = root.join(format!("class/infiniband/{device}/ports/1/hw_counters"));
    Some(HcaCounts {
        wqes: counter(&folder, "tx_wqes")?,
        doorbells: counter(&folder, "doorbells")?,
        signals: counter(&folder, "inline_write_requests")? + counter(&folder, "atomic_requests")?,
        bytes: counter(&folder, "tx_bytes")?,
    })
}

fn counter(folder: &Path, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join(name)).ok()?;
    text.trim().parse().ok()
}
