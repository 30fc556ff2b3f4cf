//! The commands of `./x`. When cargo and the system's packages are installed, the script `x` builds this program and runs it.
//!
//! - [`mod@test`], [`load`], [`sanitize`]: runs in parts and steps ([`steps`]), with a table of parts ([`parts`]) and how busy the cores
//!   were ([`core_times`]). Every test of every
//!   program that cargo builds ([`programs`]) is run ([`runners`]), and has one outcome ([`outcomes`]) at the end ([`summary`]). A list
//!   says which tests may be skipped ([`skips`]).
//! - [`checks`]: formats, lints, shell scripts. [`kernels`]: PTX, also that which git does not carry ([`written_ptx`]), and what calls
//!   cost. [`commands`]: how kernels are compiled, for editors. [`mod@gpu`]: the pack for a machine with a GPU, and in it [`others`], which
//!   measures other projects beside this one.
//! - [`fresh`]: demo and tests in a bare root. [`mod@figures`]: the figures of the documents, [`perftest`] among them. [`debug`], [`miri`],
//!   [`texts`] ([`prose`]), [`fuzz`], [`install`], [`python`].
//!
//! The program works in the current directory, which must be the root of the tree. `./x prepare` installs what it needs, and has the lists
//! of that.

mod checks;
mod commands;
mod core_times;
mod debug;
mod failure;
mod figures;
mod fresh;
mod fuzz;
mod gpu;
#[cfg(test)]
mod gpu_script;
mod install;
mod interop;
mod kernels;
mod load;
mod miri;
/// The only definition of how a number is written.
#[expect(unreachable_pub, reason = "public where the library has it")]
#[path = "../../../src/config/number.rs"]
mod number;
mod numbers;
mod others;
mod outcomes;
mod output;
mod parts;
mod perftest;
mod process;
mod programs;
mod prose;
mod python;
mod runners;
mod sanitize;
mod skips;
/// The only definition of the sources of which PTX was compiled.
#[path = "../../warpverbs-build/src/stamp.rs"]
mod stamp;
mod steps;
mod summary;
mod test;
#[cfg(test)]
mod test_trees;
mod texts;
mod tree;
/// The only definition of what machine code is made of, and of its names.
#[path = "../../../src/gpu/cuda/widen.rs"]
mod widen;
mod written_ptx;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use failure::{Failure, Result};

/// The text of `./x help`.
const HELP: &str = include_str!("help.txt");

fn main() -> ExitCode {
    process::note_signals();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match perform(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            ExitCode::from(failure.status)
        }
    }
}

fn perform(arguments: &[String]) -> Result {
    let Some((task, rest)) = arguments.split_first() else {
        return refuse();
    };
    let words: Vec<&str> = rest.iter().map(String::as_str).collect();
    let word = |at: usize| words.get(at).copied().filter(|word| !word.is_empty());
    let (first, second) = (word(0), word(1));
    match task.as_str() {
        "demo" => demo(rest),
        "test" => match first {
            None => test::all("test"),
            Some("quick") => test::quick(),
            Some("full") => test::full(),
            Some("release") => test::release(),
            Some("python") => test::python(),
            Some("interop") => interop::interop(),
            Some(_) => refuse(),
        },
        "lint" => checks::lint(),
        "load" => load::load(rest),
        "sanitize" => sanitize::sanitize(),
        "debug" => debug::debug(&words),
        "miri" => miri::miri(first),
        "texts" => texts::texts(),
        "figures" => figures::figures(first),
        "format" => checks::format(),
        "kernels" => match words.first().copied() {
            Some("--commands") => commands::write(),
            file => kernels::kernels(file),
        },
        "sass" => kernels::sass(rest),
        "gpu" => gpu(&words),
        "fuzz" => fuzz::fuzz(first, second),
        "fresh" => fresh::fresh(&words).unwrap_or_else(refuse),
        "fresh-inside" => match words[..] {
            [root, suite, tried] => fresh::fresh_inside(root, suite, tried),
            _ => refuse(),
        },
        "install" => install::install(first),
        "dist" => install::dist(),
        "wheel" => python::wheel(),
        _ => refuse(),
    }
}

fn gpu(words: &[&str]) -> Result {
    match *words {
        [] | ["--others", _] => {
            gpu::pack(gpu::Size::Full, words.get(1).copied())?;
            gpu::run_pack(gpu::RESULTS, gpu::Size::Full, &[])
        }
        ["pack"] => gpu::pack(gpu::Size::Full, None),
        ["pack", "--others", folder] => gpu::pack(gpu::Size::Full, Some(folder)),
        ["run", folder, ref options @ ..] if !folder.starts_with('-') => {
            gpu::run_pack(folder, gpu::Size::Full, options)
        }
        ["run", ref options @ ..] => gpu::run_pack(gpu::RESULTS, gpu::Size::Full, options),
        ["others", folder, ref options @ ..] => others::others(folder, options),
        _ => refuse(),
    }
}

/// Prints the help, because no command has this name.
fn refuse() -> Result {
    eprint!("{HELP}");
    Err(Failure::silent(2))
}

/// Replaces this process by `wv demo`.
fn demo(arguments: &[String]) -> Result {
    tree::prepare("demo")?;
    tree::build_programs()?;
    let wv = tree::target().join("wv");
    let error = Command::new(&wv).arg("demo").args(arguments).exec();
    Err(Failure::new(
        1,
        format!("cannot start {}: {error}", wv.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_task_is_refused_with_status_2() {
        for wrong in [
            "",
            "nothing",
            "test all",
            "gpu typo",
            "gpu others",
            "gpu pack --others",
            "fresh --help",
            "fresh test --help",
            "fresh-inside /",
        ] {
            let arguments: Vec<_> = wrong.split_whitespace().map(str::to_owned).collect();
            assert_eq!(perform(&arguments), Err(Failure::silent(2)), "{wrong}");
        }
    }
}
