//! `./x load`: runs the tests of one part again and again on a busy machine. A test that depends on the speed of the machine fails here.

use std::process::Stdio;
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::numbers::above_0;
use crate::parts::{ALL, Parts};
use crate::process::{Ending, Running, command};
use crate::runners::Profile;
use crate::steps::{Run, Wanted};
use crate::tree::{build, prepare};

/// The arguments of `./x load`.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    part: &'a str,
    times: u32,
    /// True if stress-ng runs beside the tests.
    busy: bool,
}

impl<'a> Asked<'a> {
    fn read(arguments: &'a [String]) -> Result<Self> {
        let mut words = arguments.iter().map(String::as_str).peekable();
        let busy = words.next_if_eq(&"--quiet").is_none();
        let part = words.next().unwrap_or("");
        let parts = Parts::of_the_tests();
        let names = parts.names();
        if part != ALL && !names.contains(&part) {
            let told = format!("no such part: '{part}'. Parts: all {}", names.join(" "));
            return Err(Failure::new(2, told));
        }
        let times = words.next().unwrap_or("1");
        let times = above_0("TIMES", times)?;
        Ok(Self { part, times, busy })
    }
}

/// Runs `./x load`. Everything is built before the load starts.
pub(crate) fn load(arguments: &[String]) -> Result {
    let Asked { part, times, busy } = Asked::read(arguments)?;
    prepare("test")?;
    if busy {
        prepare("load")?;
    }
    let mut run = Run::start("load")?;
    build()
        .and_then(|()| run.build_all_tests())
        .map_err(|failure| {
            failure.say();
            Failure::new(1, "the build failed")
        })?;
    let mut stress = if busy {
        Some(start_stress(times)?)
    } else {
        None
    };
    let mut bad = 0;
    for round in 1..=times {
        let name = format!("{part}, run {round} of {times}");
        let well = run.step(&name, |run| {
            let wanted = Wanted::of_part(part, Profile::Load);
            run.run_tests(&format!("{part}-{round}.log"), &wanted)
        })?;
        bad += u32::from(!well);
    }
    if let Some(stress) = &mut stress
        && stress.ended()?.is_some()
    {
        let told = "stress-ng has ended before the tests: this was no load";
        return Err(Failure::new(1, told));
    }
    drop(stress);
    run.print_failures();
    let beside = if busy { " beside stress-ng" } else { "" };
    println!("x: part {part}{beside}: {times} runs, {bad} of them with a failure");
    run.result()
}

/// Starts two busy threads, and one that writes 256 MiB over and over. They end with this process, and in any case after two hours for each
/// run.
fn start_stress(times: u32) -> Result<Running> {
    let mut stress = command("stress-ng", ["--quiet", "--cpu", "2", "--vm", "1"]);
    stress
        .args(["--vm-bytes", "256M", "--timeout"])
        .arg(format!("{}h", u64::from(times) * 2))
        .stdin(Stdio::null());
    let mut running = Running::start(&mut stress, Ending::Asked)?;
    thread::sleep(Duration::from_secs(1));
    if running.ended()?.is_some() {
        return Err(Failure::new(1, "stress-ng has ended at once"));
    }
    Ok(running)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &str) -> std::result::Result<(String, u32, bool), u8> {
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let asked = Asked::read(&arguments).map_err(|failure| failure.status)?;
        Ok((asked.part.to_owned(), asked.times, asked.busy))
    }

    #[test]
    fn a_part_and_how_often_are_read() {
        assert_eq!(read("membership 5"), Ok(("membership".to_owned(), 5, true)));
        assert_eq!(read("--quiet all"), Ok(("all".to_owned(), 1, false)));
        assert_eq!(read("tests 1"), Ok(("tests".to_owned(), 1, true)));
        assert_eq!(read("tests 0x10"), Ok(("tests".to_owned(), 16, true)));
        for wrong in [
            "",
            "nothing",
            "moe 0",
            "moe many",
            "moe +4",
            "moe 04",
            "moe --quiet",
        ] {
            assert_eq!(read(wrong), Err(2), "{wrong}");
        }
    }
}
