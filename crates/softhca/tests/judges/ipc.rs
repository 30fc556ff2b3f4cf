//! A prefix that gives each program an IPC namespace of its own: programs that choose how they talk then find no shared memory
//! between them, and take the HCA.

use std::process::Command;

/// Returns the words before a command, none where the machine permits no such namespace; then it is said that `what` may go by memory.
pub(crate) fn apart(what: &str) -> Vec<String> {
    let ways: [&[&str]; 2] = [
        &["unshare", "--ipc"],
        &["unshare", "--user", "--map-root-user", "--ipc"],
    ];
    let works = |words: &&&[&str]| {
        let outcome = Command::new(words[0])
            .args(&words[1..])
            .arg("true")
            .output();
        outcome.is_ok_and(|output| output.status.success())
    };
    match ways.iter().find(works) {
        Some(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        None => {
            println!("left out: no IPC namespaces here: {what} may go by shared memory");
            Vec::new()
        }
    }
}
