//! The `wv` command line; parses only.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;
use wv::cmd::{bench, config, demo, doctor, group, log, output, p2p, sim};

/// GPU-initiated RDMA for MoE dispatch and combine, with or without the hardware.
#[derive(Parser)]
#[command(name = "wv", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure and count what a post on a GPU, a MoE step and a returning rank cost. On the CPU a post is only checked
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Kill, freeze and part rank processes at random while they dispatch and combine, and check every step
    Chaos(demo::ChaosOptions),
    /// Dispatch and combine MoE tokens among rank processes, checked against a scalar reference
    Demo(demo::DemoOptions),
    /// One rank of the demo, started by it
    #[command(hide = true)]
    DemoRank(demo::RankOptions),
    Config(config::ConfigOptions),
    Doctor(doctor::DoctorOptions),
    Group(group::GroupOptions),
    /// Copy files between two machines, by RDMA
    #[command(subcommand)]
    P2p(p2p::P2pCommand),
    /// One group of the doctor's checks, started by it
    #[command(hide = true)]
    DoctorProbe(doctor::ProbeOptions),
    Sim(sim::SimArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let level = match command {
        Command::DemoRank(_) => LevelFilter::WARN,
        _ => LevelFilter::OFF,
    };
    if let Err(status) = log::start(level) {
        return status;
    }
    match command {
        Command::Bench(command) => bench::run(&command),
        Command::Chaos(options) => demo::run_chaos(&options),
        Command::Demo(options) => demo::run(&options),
        Command::DemoRank(options) => demo::run_rank(&options),
        Command::Config(options) => config::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Group(options) => group::run(&options),
        Command::P2p(command) => p2p::run(&command),
        Command::DoctorProbe(options) => doctor::run_probe(&options),
        Command::Sim(args) => sim::run(&args).unwrap_or_else(|error| {
            output::say(format_args!("wv sim: {error}"));
            ExitCode::from(error.exit_status())
        }),
    }
}
