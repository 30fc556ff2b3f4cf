//! `wv demo --kill`: rank processes are killed when they begin a step, and the others go on. With `--rejoin-after` another process takes
//! the place of a killed one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::fleet::{Fleet, News, Ranks};
use super::publish::publish;
use crate::data::input::Inputs;
use crate::error::DemoError;
use crate::kill::Kill;
use crate::options::DemoOptions;
use crate::run::Run;

/// The longest `--rejoin-after`, in seconds.
const MOST_AFTER: f64 = 3600.0;

/// Runs the demo with its kills, and prints what they cost.
pub(crate) fn run(options: &DemoOptions, inputs: &Inputs) -> Result<(), DemoError> {
    check(options, inputs)?;
    let mut run = Run::prepare(options)?;
    run.spec.membership = true;
    let mut fleet = Fleet::start(&run, inputs.ranks, Ranks::default())?;
    let ended = watch(&mut fleet, options, run.limit).and_then(|()| fleet.end());
    let timeline = options.timeline.as_deref();
    publish(&fleet.story(), timeline, options.json, ended)
}

/// Refuses a kill that names no rank, or a step that never comes.
fn check(options: &DemoOptions, inputs: &Inputs) -> Result<(), DemoError> {
    check_format(inputs)?;
    if let Some(after) = options.rejoin_after
        && !(0.0..=MOST_AFTER).contains(&after)
    {
        return Err(DemoError::Option(format!(
            "--rejoin-after {after}: it must be 0 to {MOST_AFTER} seconds"
        )));
    }
    let mut victims = BTreeSet::new();
    for kill in &options.kill {
        let Kill { rank, step } = *kill;
        let (ranks, steps) = (inputs.ranks, options.steps);
        if rank >= ranks || step == 0 || step > steps || !victims.insert(rank) {
            return Err(DemoError::Option(format!(
                "--kill {rank}@{step}: ranks are 0 to {}, each dies once, steps are 1 to {steps}",
                ranks - 1
            )));
        }
    }
    if victims.len() < inputs.ranks as usize {
        Ok(())
    } else {
        Err(DemoError::Option(
            "--kill leaves no rank; at least one must live on".to_owned(),
        ))
    }
}

/// Refuses token formats other than BF16, because sums over the ranks that took part are compared bit for bit.
fn check_format(inputs: &Inputs) -> Result<(), DemoError> {
    match inputs.config.format {
        warpverbs::moe::Format::Bf16 => Ok(()),
        _ => Err(DemoError::Option(
            "--kill compares bit for bit, and so takes BF16 tokens only".to_owned(),
        )),
    }
}

/// Listens, kills, and starts ranks again until all living ranks are done.
fn watch(fleet: &mut Fleet<'_>, options: &DemoOptions, limit: Duration) -> Result<(), DemoError> {
    let end = Instant::now() + limit;
    let mut kills = options.kill.clone();
    loop {
        let next = fleet.start_again()?;
        if fleet.is_done() {
            return Ok(());
        }
        // The time is read before it listens, so that what has come by the end is heard.
        let is_late = Instant::now() >= end;
        match fleet.listen(next.map_or(end, |next| next.min(end)))? {
            Some(News::Begins(who, step)) => {
                let due = |kill: &Kill| kill.rank == who.0 && kill.step <= step;
                if let Some(place) = kills.iter().position(due) {
                    kills.swap_remove(place);
                    fleet.kill(who.0);
                    if let Some(after) = options.rejoin_after {
                        fleet.rejoin(who, Duration::from_secs_f64(after));
                    }
                }
            }
            Some(News::Ended((rank, _))) => {
                fleet.fail(rank, "the others have dropped it".to_owned());
                return Err(fleet.failed());
            }
            None if is_late => {
                return Err(DemoError::Timeout {
                    seconds: limit.as_secs(),
                    progress: progress(fleet),
                });
            }
            _ => {}
        }
    }
}

/// Returns which ranks are done, in words.
fn progress(fleet: &Fleet<'_>) -> String {
    if fleet.finished.is_empty() {
        "no rank is done".to_owned()
    } else {
        format!("ranks {:?} are done", fleet.finished.keys())
    }
}
