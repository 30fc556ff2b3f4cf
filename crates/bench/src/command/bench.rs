//! The commands of `wv bench`, and what runs each.

use std::process::ExitCode;

use clap::Subcommand;

use super::{device, engine, fill, group, moe, others, p2p, post, regions, rejoin};

/// What to measure.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure what a put costs the thread that posts it, and how many puts a second it posts. The rings are in device memory, and
    /// a block of the same kernel answers their doorbells as a NIC would. No NIC is used, and none is measured
    Post(post::PostArgs),
    /// Measure the same puts by one thread, with this project's headers and with those of other projects. `./x gpu others` compiles
    /// the latter. All post to the same rings and sink
    Others(others::OthersArgs),
    /// Print what a GPU, its driver and its machine report, and what the driver has made of the kernels: registers, spills
    Facts(device::DeviceArgs),
    /// Measure what single operations of a GPU cost: atomics, loads, fences after stores, stores to a register, barriers of a
    /// grid, launches. Print the step of its clock
    Primitives(device::DeviceArgs),
    /// Check that doorbells of a GPU reach a CPU that exchanges the register, for each way to map the register's page
    Registers(device::RegistersArgs),
    /// Count what a MoE step puts on the wire: work requests, doorbells, signals and bytes of dispatch and combine. The counts come
    /// from software HCAs and kernels on the CPU, beside what DeepEP's algorithm needs; they are no times. Then measure how fast
    /// the kernels of one rank move tokens on a GPU, beside a copy. Without a GPU that figure is left out
    Moe(moe::MoeArgs),
    /// Measure what a returning rank costs the others, in commands, memory and time. Its QPs are reset in place, beside all QPs
    /// of all ranks made again. Ranks are threads, on software HCAs
    Rejoin(rejoin::RejoinArgs),
    /// Count what a group of ranks asks of its store, and how long its changes take. Cases: in peace, a death and a join,
    /// bring-up, and a newcomer that dies again and again. Ranks are threads over a simulated fabric; no HCA and no GPU is used,
    /// or measured
    Group(group::GroupArgs),
    /// Measure what the host engine costs: transfers of large blocks, pages and words over lanes without an HCA. Or between two
    /// engines of one process on software HCAs, with every byte compared. What programs move (--pattern) goes to peers of this process,
    /// or of other processes and machines (--serve, --to)
    P2p(p2p::P2pArgs),
    /// Measure what the host engine adds, each rate beside its yardstick in one run: a bare loop by the same provider, one worker, no
    /// idle QPs. And how long a sleeping worker takes, and what an idle worker and an idle engine with 64 peers cost. WARPVERBS_PROVIDER
    /// is mlx5, or verbs beside mlx5, on software HCAs of this program; or ofi, on a domain that WARPVERBS_DEVICE may name
    Engine(engine::EngineArgs),
    /// Measure how fast a host engine writes pages to random places of a peer's memory, beside the speed of the port. The bytes
    /// of the last repeat and of two others are compared. Both engines are in this process, or one on another machine (--serve, --to)
    Fill(fill::FillArgs),
    /// Measure what it costs a host engine to register memory, one by one and in lists, to make a key for a peer, and to find the
    /// region of an address
    Regions(regions::RegionsArgs),
}

/// Runs `wv bench`, whose table goes to standard output.
#[must_use]
pub fn run(command: &BenchCommand) -> ExitCode {
    match command {
        BenchCommand::Post(args) => post::run(args),
        BenchCommand::Others(args) => others::run(args),
        BenchCommand::Facts(args) => device::facts(args),
        BenchCommand::Primitives(args) => device::primitives(args),
        BenchCommand::Registers(args) => device::registers(args),
        BenchCommand::Moe(args) => moe::run(args),
        BenchCommand::Rejoin(args) => rejoin::run(args),
        BenchCommand::Group(args) => group::run(args),
        BenchCommand::P2p(args) => p2p::run(args),
        BenchCommand::Engine(args) => engine::run(args),
        BenchCommand::Fill(args) => fill::run(args),
        BenchCommand::Regions(args) => regions::run(args),
    }
}
