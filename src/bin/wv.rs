//! The `wv` command line; parses only.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpverbs::cmd::sim;

/// GPU-initiated RDMA for MoE dispatch and combine, with or without the hardware.
#[derive(Parser)]
#[command(name = "wv", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sim(sim::SimArgs),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Sim(args) => sim::run(&args).unwrap_or_else(|error| {
            eprintln!("wv sim: {error}");
            ExitCode::from(error.exit_status())
        }),
    }
}
