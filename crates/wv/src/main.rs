//! The `wv` command line, which is only parsed here. Three libraries run the commands: `warpverbs-cli`, `warpverbs-demo` and
//! `warpverbs-bench`.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;
use warpverbs_bench as bench;
use warpverbs_cli::doctor::Carried;
use warpverbs_cli::{config, doctor, group, log, output, p2p, sim};
use warpverbs_demo as demo;

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

/// The kernels of this program that the doctor asks about.
static CARRIED: [Carried; 2] = [
    Carried {
        set: &bench::KERNELS,
        user: "wv bench",
    },
    Carried {
        set: &gpuhca::KERNELS,
        user: "--device gpuhca",
    },
];

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
        Command::DoctorProbe(options) => doctor::run_probe(&options, &CARRIED),
        Command::Sim(args) => sim::run(&args).unwrap_or_else(|error| {
            output::say(format_args!("wv sim: {error}"));
            ExitCode::from(error.exit_status())
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use clap::builder::ValueParser;
    use clap::error::ErrorKind;
    use clap::{Arg, CommandFactory};
    use warpverbs::engine::EngineAddress;

    use super::*;

    /// Numbers, at least one of which each option for a number takes.
    const SOME: [u64; 4] = [1, 4, 500, 1000];

    /// Finds every option and argument of `command` and of its subcommands, with the words before it.
    fn options(command: &clap::Command, words: &str, found: &mut Vec<(String, Arg)>) {
        let words = format!("{words}{} ", command.get_name());
        for option in command.get_arguments() {
            found.push((format!("{words}{}", option.get_id()), option.clone()));
        }
        for command in command.get_subcommands() {
            options(command, &words, found);
        }
    }

    fn all_options() -> Vec<(String, Arg)> {
        let mut found = Vec::new();
        options(&Cli::command(), "", &mut found);
        found
    }

    /// Returns whether the parser returns one of `types`.
    fn is_of(parser: &ValueParser, types: &[TypeId]) -> bool {
        types.iter().any(|of| parser.type_id() == *of)
    }

    fn is_whole(parser: &ValueParser) -> bool {
        let of = [
            TypeId::of::<u8>(),
            TypeId::of::<u16>(),
            TypeId::of::<u32>(),
            TypeId::of::<u64>(),
            TypeId::of::<u128>(),
            TypeId::of::<usize>(),
            TypeId::of::<i8>(),
            TypeId::of::<i16>(),
            TypeId::of::<i32>(),
            TypeId::of::<i64>(),
            TypeId::of::<i128>(),
            TypeId::of::<isize>(),
        ];
        is_of(parser, &of)
    }

    /// Returns how the parser of an option refuses `text`, or None if it takes it. A like option with that parser is asked, so that what
    /// the option requires and excludes does not matter.
    fn refusal(option: &Arg, text: &str) -> Option<String> {
        let like = Arg::new("like")
            .long("like")
            .allow_hyphen_values(true)
            .value_parser(option.get_value_parser().clone());
        let asked = clap::Command::new("ask").arg(like);
        let refused = asked.try_get_matches_from(["ask", "--like", text]).err()?;
        assert_eq!(refused.kind(), ErrorKind::ValueValidation, "{refused}");
        Some(refused.to_string())
    }

    #[test]
    fn each_option_that_takes_a_whole_number_reads_it_as_variables_do() {
        let all = all_options();
        let numbers = all
            .iter()
            .filter(|(_, option)| is_whole(option.get_value_parser()));
        let mut seen = 0;
        for (name, option) in numbers {
            let taken = SOME
                .into_iter()
                .find(|number| refusal(option, &number.to_string()).is_none());
            let number = taken.unwrap_or_else(|| panic!("{name} takes none of {SOME:?}"));
            for hex in [format!("{number:#x}"), format!("0x0{number:X}")] {
                assert_eq!(refusal(option, &hex), None, "{name}");
            }
            let wrong = ["+", "-", "0", " ", "0x+", "0X"].map(|before| format!("{before}{number}"));
            let more = ["", "x", "1.0", "1e0", "1_0", "0o1"].map(str::to_owned);
            for wrong in wrong.into_iter().chain(more) {
                let told = refusal(option, &wrong);
                let told = told.unwrap_or_else(|| panic!("{name} takes '{wrong}'"));
                let names_all = told.contains(&format!("'{wrong}'"))
                    && told.contains("--like")
                    && told.contains("decimal or with 0x");
                assert!(names_all, "{name}: {told}");
            }
            seen += 1;
        }
        assert!(seen > 50, "{seen} options are numbers");
    }

    #[test]
    fn each_option_that_takes_a_fraction_refuses_other_spellings() {
        let of = [TypeId::of::<f32>(), TypeId::of::<f64>()];
        let mut seen = 0;
        for (name, option) in all_options() {
            if !is_of(option.get_value_parser(), &of) {
                continue;
            }
            for good in ["1", "0", "1.5"] {
                assert_eq!(refusal(&option, good), None, "{name}");
            }
            for wrong in ["+1", "-1", "01", "inf", "nan", "1e1", ".5", "1.", "0x1", ""] {
                assert!(refusal(&option, wrong).is_some(), "{name} takes '{wrong}'");
            }
            seen += 1;
        }
        assert!(seen > 2, "{seen} options are fractions");
    }

    #[test]
    fn each_option_that_takes_an_address_reads_its_port_as_a_number() {
        let mut seen = 0;
        for (name, option) in all_options() {
            if !is_of(option.get_value_parser(), &[TypeId::of::<EngineAddress>()]) {
                continue;
            }
            for good in ["127.0.0.1:80", "[::1]:0x50", "unix:here"] {
                assert_eq!(refusal(&option, good), None, "{name}");
            }
            for wrong in ["127.0.0.1:+80", "127.0.0.1:080", "127.0.0.1", "unix:"] {
                assert!(refusal(&option, wrong).is_some(), "{name} takes '{wrong}'");
            }
            seen += 1;
        }
        assert!(seen > 1, "{seen} options are addresses");
    }

    #[test]
    fn a_set_has_ptx_of_each_kernel_for_each_gpu_or_says_what_writes_it() {
        assert_eq!(doctor::KERNELS.no_ptx(), None, "wv doctor needs NVRTC");
        for set in [&bench::KERNELS, &doctor::KERNELS, &gpuhca::KERNELS] {
            let kernels = set
                .sources()
                .iter()
                .filter(|(path, _)| path.ends_with(".cu"));
            if let Some(why) = set.no_ptx() {
                assert!(set.ptx().is_empty(), "{why}");
                assert!(why.contains("`./x kernels` writes it"), "{why}");
                continue;
            }
            let mut wanted = 0;
            for (path, _) in kernels {
                let name = path.rsplit('/').next().unwrap().replace(".cu", ".ptx");
                for arch in [80, 90] {
                    let is_it =
                        |(of, path, _): &&(u32, &str, &str)| *of == arch && path.ends_with(&name);
                    assert_eq!(
                        set.ptx().iter().filter(is_it).count(),
                        1,
                        "sm_{arch} {name}"
                    );
                    wanted += 1;
                }
            }
            assert!(wanted > 0 && set.ptx().len() == wanted, "{wanted}");
        }
    }
}
