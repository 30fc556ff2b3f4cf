//! Ranks in PID namespaces of their own, for which other ranks can have no pidfd.
//!
//! The program `unshare` of util-linux makes a namespace, and the rank ends when that program ends.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

/// The program that makes a PID namespace, and its options for a /proc of its own.
const UNSHARE: &str = "unshare";
const OPTIONS: [&str; 4] = ["--pid", "--fork", "--mount-proc", "--kill-child=KILL"];

/// Returns why no namespace can be made here, in words, or None if one can.
pub(super) fn refused() -> Option<String> {
    let mut command = Command::new(UNSHARE);
    command.args(OPTIONS).arg("true").stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Some(format!("{UNSHARE} {}: {said}", OPTIONS.join(" ")))
        }
        Err(error) => Some(format!("{UNSHARE}: {error}")),
    }
}

/// Returns a command that runs `command` in a namespace. Only the rank gets its variables, because a preloaded library is for the rank
/// alone.
pub(super) fn in_own(command: &Command) -> Command {
    let mut outer = Command::new(UNSHARE);
    warpverbs_cli::tied::tie(&mut outer);
    outer.args(OPTIONS).arg("env");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let mut pair = name.to_owned();
            pair.push("=");
            pair.push(value);
            outer.arg(pair);
        }
    }
    outer.arg(command.get_program()).args(command.get_args());
    outer
}

/// Returns the process of the rank: the child of `unshare` if `child` is that, else `child` itself.
pub(super) fn process_of(child: &Child) -> Pid {
    let own = Pid::from_child(child);
    let number = own.as_raw_nonzero();
    let name = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
    if name.trim_end() != UNSHARE {
        return own;
    }
    let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
    let children = children.unwrap_or_default();
    let first = children.split_whitespace().next();
    let first = first.and_then(|first| first.parse().ok());
    first.and_then(Pid::from_raw).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_in_a_namespace_has_another_number_there_and_is_found() {
        if let Some(why) = refused() {
            println!("skipped: no PID namespace can be made: {why}");
            return;
        }
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ $GREETING; read x"])
            .env("GREETING", "hello");
        let mut outer = in_own(&command);
        let outer = outer.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = outer.spawn().unwrap();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert_eq!(line, "1 hello\n");
        let rank = process_of(&child);
        assert_ne!(rank, Pid::from_child(&child));
        // The process in the namespace ends with the one that started it.
        child.kill().unwrap();
        child.wait().unwrap();
        line.clear();
        assert_eq!(
            std::io::BufRead::read_line(&mut said, &mut line).unwrap(),
            0
        );
    }
}
