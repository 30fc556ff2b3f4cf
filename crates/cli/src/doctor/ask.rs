//! The doctor's side of a probe. It starts the probe, reads what it tells, and kills it if a check hangs.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::check::{Group, Look};
use super::pair::LOOPBACK_ID;
use super::told::Told;
use crate::tied;

/// The longest time of a check.
pub(super) const CHECK: Duration = Duration::from_secs(2);
/// The longest time of a check that moves data.
pub(super) const LOOPBACK: Duration = Duration::from_secs(5);
/// The most checks of a group: those of 64 GPUs with 64 NICs.
const MOST: usize = 1 << 16;

/// A check with its result.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The NIC, GPU or pair that was checked; empty for the machine.
    pub(super) subject: String,
    pub(super) id: String,
    pub(super) is_quiet: bool,
    pub(super) look: Look,
}

/// What the doctor asks of its probes.
pub(super) struct Question<'a> {
    pub(super) root: &'a Path,
    pub(super) loopback: bool,
}

impl Question<'_> {
    /// Returns all checks of a group, each within its time. A check that hangs gets a line with the reason, and a new probe runs the checks
    /// after it.
    pub(super) fn ask(&self, group: Group) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::new();
        while lines.len() < MOST {
            let known = lines.len();
            let how = match self.start(group, known) {
                Ok(probe) => probe.hear(&mut lines),
                Err(error) => Ending::Broken(format!("cannot be started: {error}")),
            };
            match how {
                Ending::Whole => return lines,
                Ending::Broken(why) if lines.len() == known => {
                    lines.push(Line {
                        subject: String::new(),
                        id: group.word().to_owned(),
                        is_quiet: false,
                        look: Look::not_looked(why),
                    });
                    return lines;
                }
                Ending::Broken(_) => {}
            }
        }
        lines
    }

    fn start(&self, group: Group, skip: usize) -> io::Result<Probe> {
        let mut command = Command::new(env::current_exe()?);
        command
            .arg("doctor-probe")
            .args(["--group", group.word(), "--skip", &skip.to_string()])
            .arg("--root")
            .arg(self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // The checks report in their own words what libraries print.
            .stderr(Stdio::null());
        if self.loopback {
            command.arg("--loopback");
        }
        tied::tie(&mut command);
        let mut child = command.spawn()?;
        let output = child.stdout.take().expect("piped");
        let (sender, told) = channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            let mut told = lines.filter_map(|line| serde_json::from_str::<Told>(&line).ok());
            told.all(|told| sender.send(told).is_ok())
        });
        Ok(Probe { child, told })
    }
}

/// How a probe has ended.
enum Ending {
    /// The probe has ended by itself, after its last check.
    Whole,
    /// The probe has broken off, for this reason.
    Broken(String),
}

struct Probe {
    child: Child,
    told: Receiver<Told>,
}

impl Probe {
    /// Adds the results of the probe. For a check that does not end it adds the reason why no result came.
    fn hear(mut self, lines: &mut Vec<Line>) -> Ending {
        let mut begun = None;
        let mut limit = CHECK;
        let why = loop {
            match self.told.recv_timeout(limit) {
                Ok(Told::Begins {
                    subject,
                    id,
                    is_quiet,
                }) => {
                    limit = if id == LOOPBACK_ID { LOOPBACK } else { CHECK };
                    begun = Some((subject, id, is_quiet));
                }
                Ok(Told::Ends(look)) => {
                    let Some((subject, id, is_quiet)) = begun.take() else {
                        continue;
                    };
                    lines.push(Line {
                        subject,
                        id,
                        is_quiet,
                        look,
                    });
                }
                Err(RecvTimeoutError::Timeout) => {
                    break format!("no answer within {} s", limit.as_secs());
                }
                Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                    Ok(status) if status.success() && begun.is_none() => return Ending::Whole,
                    Ok(status) => break format!("the check ended its process: {status}"),
                    Err(error) => break format!("the check's process is lost: {error}"),
                },
            }
        };
        if let Some((subject, id, is_quiet)) = begun {
            lines.push(Line {
                subject,
                id,
                is_quiet,
                look: Look::not_looked(why.clone()),
            });
        }
        Ending::Broken(why)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // A process in an uninterruptible call does not end, so this does not wait for it.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}
