//! `wv chaos --judge`: judges a run by its story alone.
//!
//! The checker believes no deed. Each deed has to name the ranks that its kind disturbs, and whatever was done to a rank has to be part of
//! a deed that names that rank. After that the checker gives the verdicts that the run itself gives, checks the steps of all ranks, and
//! lists the failures of ranks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use super::tokens::{Judged, Tokens};
use super::verdict::{self, Verdict, What};
use super::watch::Watch;
use crate::error::DemoError;
use crate::record::{Begun, Disturbance, Loss, Record, RecordKind, parse};
use warpverbs_cli::output;

/// Judges the story in the file at `path`. Only with `judges_tokens` it judges the tokens that undisturbed ranks lost.
pub(super) fn run(path: &Path, judges_tokens: bool) -> Result<(), DemoError> {
    let text = std::fs::read_to_string(path).map_err(|error| DemoError::file(path, &error))?;
    let records = parse(&text).map_err(|error| DemoError::file(path, &error))?;
    if let Some(words) = uncounted(&records) {
        return Err(DemoError::file(path, &words));
    }
    let mut verdicts = of(&records);
    let tokens = Tokens::of(&records).filter(|_| judges_tokens);
    let tokens = tokens.map(|tokens| tokens.judged());
    if let Some(Judged::Lost(lost)) = &tokens {
        verdicts.extend(verdict::of_tokens(lost));
    }
    if verdicts.is_empty() {
        let is_deed = |record: &&Record| matches!(record.what, RecordKind::Deed(_));
        let deeds = records.iter().filter(is_deed).count();
        let count = records.len();
        let words = format!("{count} records, {deeds} deeds: nothing that may not be\n");
        output::print(&words)?;
        match tokens {
            Some(Judged::Starved { calls, of }) => Err(DemoError::NotJudged { calls, of }),
            _ => Ok(()),
        }
    } else {
        Err(DemoError::Ranks {
            messages: verdicts.iter().map(ToString::to_string).collect(),
        })
    }
}

/// Returns why the tokens of a story cannot be judged: it has steps without their counts, or no deadline. None if they can be.
fn uncounted(records: &[Record]) -> Option<String> {
    let lacks = |record: &Record| match &record.what {
        RecordKind::Plan { deadline_ms: 0, .. } => Some("the deadline of its ranks"),
        RecordKind::Step { losses: None, .. } => {
            Some("counts of the tokens that undisturbed ranks lost")
        }
        _ => None,
    };
    let what = records.iter().find_map(lacks)?;
    Some(format!(
        "the story lacks {what}, since an earlier wv wrote it; run that seed again with this one"
    ))
}

/// Returns what must not be in a story. Its `records` are in the order of their times.
fn of(records: &[Record]) -> Vec<Verdict> {
    let plan = records.iter().find_map(|record| match record.what {
        RecordKind::Plan { ranks, .. } => Some(ranks),
        _ => None,
    });
    let Some(ranks) = plan else {
        return vec![odd("the story lacks the number of ranks".to_owned())];
    };
    let mut verdicts = verdict::of(records);
    verdicts.extend(deeds(records, ranks).into_iter().map(odd));
    verdicts.extend(unstarted(records).into_iter().map(odd));
    verdicts.extend(steps(records).into_iter().map(odd));
    verdicts.extend(failures(records).into_iter().map(odd));
    verdicts.extend(miscounted(records).into_iter().map(odd));
    verdicts
}

fn odd(words: String) -> Verdict {
    Verdict {
        what: What::Odd { words },
        evidence: Vec::new(),
    }
}

/// Returns deeds that are not as they say, and what was done to ranks outside of deeds.
fn deeds(records: &[Record], ranks: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut numbers = BTreeSet::new();
    let mut under_way: Vec<(u64, &Begun)> = Vec::new();
    for record in records {
        let ms = record.us / 1000;
        let done = match &record.what {
            RecordKind::Deed(begun) => {
                if let Some(words) = misnamed(begun, ranks) {
                    let (deed, how) = (begun.deed, begun.how.name());
                    wrong.push(format!("deed {deed}, {how}, at {ms} ms {words}"));
                }
                if !numbers.insert(begun.deed) {
                    wrong.push(format!("deed {} begins twice, at {ms} ms", begun.deed));
                }
                under_way.push((ms, begun));
                continue;
            }
            RecordKind::DeedOver { deed } => {
                let before = under_way.len();
                under_way.retain(|(_, begun)| begun.deed != *deed);
                if under_way.len() == before {
                    wrong.push(format!("deed {deed} ends at {ms} ms and is not under way"));
                }
                continue;
            }
            RecordKind::Killed => Done::Killed,
            RecordKind::Disturbed { how } => Done::Disturbed(*how),
            _ => continue,
        };
        let rank = record.rank;
        let names =
            |(_, begun): &(u64, &Begun)| done.is_of(begun.how) && begun.ranks.contains(&rank);
        if !under_way.iter().any(names) {
            wrong.push(format!(
                "rank {rank} meets a {} at {ms} ms, and no deed under way says so",
                done.name()
            ));
        }
    }
    // A run ends only after every deed has ended.
    let endless = under_way.iter().map(|(ms, begun)| {
        let (deed, how) = (begun.deed, begun.how.name());
        format!("deed {deed}, {how}, begins at {ms} ms and does not end")
    });
    wrong.extend(endless);
    wrong
}

/// Returns the processes that speak and were never started, each with its first record.
fn unstarted(records: &[Record]) -> Vec<String> {
    let mut known: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut wrong = Vec::new();
    for record in records {
        let (rank, generation) = (record.rank, record.generation);
        if [RecordKind::Started, RecordKind::Rival].contains(&record.what) {
            known.insert((rank, generation));
        } else if !record.what.is_done_to() && known.insert((rank, generation)) {
            let ms = record.us / 1000;
            wrong.push(format!(
                "rank {rank}, generation {generation}, speaks at {ms} ms and was not started before"
            ));
        }
    }
    wrong
}

/// What is done to one rank.
#[derive(Clone, Copy)]
enum Done {
    Killed,
    Disturbed(Disturbance),
}

impl Done {
    /// Returns whether a deed of the kind `how` does this to a rank.
    fn is_of(self, how: Disturbance) -> bool {
        match self {
            Self::Killed => how.kills(),
            Self::Disturbed(done) => done == how,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Killed => Disturbance::Kill.name(),
            Self::Disturbed(how) => how.name(),
        }
    }
}

/// The ranks that a kind of deed disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    One,
    /// Two ranks, which are those of one host.
    Two,
    All,
    /// The store, or what is in it, so that no rank is disturbed.
    Store,
}

fn target(how: Disturbance) -> Target {
    match how {
        Disturbance::Kill
        | Disturbance::CrashLoop
        | Disturbance::HostFreeze
        | Disturbance::KernelFreeze
        | Disturbance::Freeze
        | Disturbance::Partition
        | Disturbance::Rail
        | Disturbance::PortOne
        | Disturbance::Late
        | Disturbance::NoPidfd
        | Disturbance::OneWay
        | Disturbance::LinkJoiner
        | Disturbance::Twice
        | Disturbance::Arguments => Target::One,
        Disturbance::Host => Target::Two,
        Disturbance::PauseAll | Disturbance::PortsAll => Target::All,
        Disturbance::StorePause
        | Disturbance::StoreSlow
        | Disturbance::StoreRestart
        | Disturbance::LeaderLoss
        | Disturbance::Garbage => Target::Store,
    }
}

/// Returns why a deed cannot disturb the ranks that it names, or None if it can.
fn misnamed(begun: &Begun, ranks: u32) -> Option<String> {
    let Begun {
        how,
        ranks: of,
        pairs,
        ..
    } = begun;
    let named: BTreeSet<u32> = of.iter().copied().collect();
    let wanted = match target(*how) {
        Target::One => 1,
        Target::Two => 2,
        Target::All => ranks as usize,
        Target::Store => 0,
    };
    if of.len() != wanted || named.len() != wanted || named.iter().any(|rank| *rank >= ranks) {
        return Some(format!(
            "names the ranks {of:?}; it is done to {wanted} of {ranks}"
        ));
    }
    let cuts = matches!(how, Disturbance::Partition | Disturbance::OneWay);
    if cuts == pairs.is_empty() {
        return Some(format!("cuts the pairs {pairs:?}"));
    }
    let cannot =
        |(a, b): &&(u32, u32)| a >= b || *b >= ranks || !(named.contains(a) || named.contains(b));
    let pair = pairs.iter().find(cannot);
    pair.map(|pair| format!("cuts the pair {pair:?}, which is none of rank {of:?}"))
}

/// Returns the steps that members of one view have run in different views.
fn steps(records: &[Record]) -> Vec<String> {
    let begin = Instant::now();
    // The watch has no bound, because the run itself has found ranks that hang.
    let mut watch = Watch::new(Duration::ZERO);
    let mut running: BTreeMap<u32, u32> = BTreeMap::new();
    let mut wrong = Vec::new();
    for record in records {
        match record.what {
            RecordKind::Started => drop(running.insert(record.rank, record.generation)),
            RecordKind::Killed => drop(running.remove(&record.rank)),
            _ => {}
        }
        // Lines of a rank that has ended may come late.
        let is_over = running.get(&record.rank) != Some(&record.generation);
        if !record.what.is_done_to() && is_over {
            continue;
        }
        let now = begin + Duration::from_micros(record.us);
        if let Err(words) = watch.see(record, now) {
            let (rank, ms) = (record.rank, record.us / 1000);
            wrong.push(format!("rank {rank} at {ms} ms: {words}"));
        }
    }
    wrong
}

/// Returns the steps whose lost tokens are not the sum of their counts, or whose counts name no rank or no cause.
fn miscounted(records: &[Record]) -> Vec<String> {
    let wrong = records.iter().filter_map(|record| match &record.what {
        RecordKind::Step {
            step,
            lost,
            losses: Some(losses),
            ..
        } => {
            let sum: u64 = losses.iter().map(|loss| u64::from(loss.tokens)).sum();
            let named = |loss: &Loss| !loss.of.is_empty() && loss.of.len() == loss.causes.len();
            let right = sum == u64::from(*lost) && losses.iter().all(named);
            let (rank, ms) = (record.rank, record.us / 1000);
            (!right).then(|| {
                format!(
                    "rank {rank} at {ms} ms: step {step} lost {lost} tokens, and its counts say {losses:?}"
                )
            })
        }
        _ => None,
    });
    wrong.collect()
}

/// Returns the failures of ranks. A changed result of a call is one of them.
fn failures(records: &[Record]) -> Vec<String> {
    let failed = records.iter().filter_map(|record| match &record.what {
        RecordKind::Failed { message } => {
            let (rank, ms) = (record.rank, record.us / 1000);
            Some(format!("rank {rank} has failed at {ms} ms: {message}"))
        }
        _ => None,
    });
    failed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::recorded::told;

    const MS: u64 = 1000;

    /// Returns the story of four ranks that all serve at 1 s and make a step each.
    fn begin() -> Vec<Record> {
        let plan = RecordKind::Plan {
            ranks: 4,
            lease_ms: 2000,
            deadline_ms: 500,
            masks: false,
        };
        let mut story = vec![told(0, 0, 0, plan)];
        for rank in 0..4 {
            story.push(told(500 * MS, rank, 1, RecordKind::Started));
            story.push(serves(1000 * MS, rank, 1));
            story.push(step(1100 * MS, rank, 1, 1));
        }
        story
    }

    fn serves(us: u64, rank: u32, epoch: u32) -> Record {
        let what = RecordKind::Serves {
            epoch,
            members: vec![0, 1, 2, 3],
            parted: Vec::new(),
            commands: 0,
            bytes: 0,
        };
        told(us, rank, 1, what)
    }

    fn step(us: u64, rank: u32, step: u32, epoch: u32) -> Record {
        let what = RecordKind::Step {
            step,
            epoch: Some(epoch),
            tokens: 1,
            lost: 0,
            missing: Vec::new(),
            losses: Some(Vec::new()),
            took_us: 1,
        };
        told(us, rank, 1, what)
    }

    fn begun(deed: u32, how: Disturbance, ranks: &[u32], pairs: &[(u32, u32)]) -> RecordKind {
        RecordKind::Deed(Begun {
            deed,
            how,
            ranks: ranks.to_vec(),
            pairs: pairs.to_vec(),
            words: String::new(),
        })
    }

    /// Returns a story in which `what` is done at 2 s and is over at 3 s.
    fn with(what: RecordKind, more: Vec<Record>) -> Vec<Record> {
        let mut story = begin();
        story.push(told(2000 * MS, 0, 0, what));
        story.extend(more);
        story.push(told(3000 * MS, 0, 0, RecordKind::DeedOver { deed: 1 }));
        story.sort_by_key(|record| record.us);
        story
    }

    fn words(story: &[Record]) -> Vec<String> {
        of(story).iter().map(ToString::to_string).collect()
    }

    const KINDS: [(Disturbance, &[u32]); 22] = [
        (Disturbance::Kill, &[1]),
        (Disturbance::CrashLoop, &[1]),
        (Disturbance::HostFreeze, &[1]),
        (Disturbance::KernelFreeze, &[1]),
        (Disturbance::Freeze, &[1]),
        (Disturbance::Partition, &[1]),
        (Disturbance::Rail, &[1]),
        (Disturbance::PortOne, &[1]),
        (Disturbance::PauseAll, &[0, 1, 2, 3]),
        (Disturbance::PortsAll, &[0, 1, 2, 3]),
        (Disturbance::StorePause, &[]),
        (Disturbance::StoreSlow, &[]),
        (Disturbance::StoreRestart, &[]),
        (Disturbance::LeaderLoss, &[]),
        (Disturbance::Garbage, &[]),
        (Disturbance::Late, &[1]),
        (Disturbance::NoPidfd, &[1]),
        (Disturbance::OneWay, &[1]),
        (Disturbance::Host, &[1, 2]),
        (Disturbance::LinkJoiner, &[1]),
        (Disturbance::Twice, &[1]),
        (Disturbance::Arguments, &[1]),
    ];

    fn cuts(how: Disturbance) -> &'static [(u32, u32)] {
        match how {
            Disturbance::Partition => &[(0, 1), (1, 3)],
            Disturbance::OneWay => &[(0, 1)],
            _ => &[],
        }
    }

    #[test]
    fn a_story_without_counts_of_tokens_is_refused() {
        let mut story = begin();
        assert_eq!(uncounted(&story), None);
        story.push(told(1200 * MS, 0, 1, old_step()));
        let words = uncounted(&story).unwrap();
        let said = "the story lacks counts of the tokens that undisturbed ranks lost";
        assert!(words.starts_with(said), "{words}");
        let mut story = begin();
        story[0].what = RecordKind::Plan {
            ranks: 4,
            lease_ms: 2000,
            deadline_ms: 0,
            masks: false,
        };
        let words = uncounted(&story).unwrap();
        assert!(words.starts_with("the story lacks the deadline"), "{words}");
    }

    /// Returns a step as older versions wrote it, without counts.
    fn old_step() -> RecordKind {
        let text =
            r#"{"what":"step","step":2,"epoch":1,"tokens":1,"lost":0,"missing":[],"took_us":1}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_step_whose_counts_are_not_what_it_lost_is_reported() {
        let with = |lost: u32, counted: u32, causes: &[&str]| {
            let mut story = begin();
            let loss = Loss {
                tokens: counted,
                of: vec![2],
                causes: causes.iter().map(|&cause| cause.to_owned()).collect(),
            };
            let what = RecordKind::Step {
                step: 2,
                epoch: Some(1),
                tokens: 16,
                lost,
                missing: Vec::new(),
                losses: Some(vec![loss]),
                took_us: 1,
            };
            story.push(told(1200 * MS, 0, 1, what));
            words(&story).len()
        };
        assert_eq!(with(3, 3, &["timeout"]), 0);
        assert_eq!(with(3, 2, &["timeout"]), 1);
        assert_eq!(with(3, 3, &[]), 1);
    }

    #[test]
    fn a_deed_of_each_kind_disturbs_no_rank_but_those_it_names() {
        for (how, ranks) in KINDS {
            let done = match how {
                how if how.kills() => RecordKind::Killed,
                how => RecordKind::Disturbed { how },
            };
            let to = |rank: u32| vec![told(2500 * MS, rank, 1, done.clone())];
            let deed = || begun(1, how, ranks, cuts(how));
            assert_eq!(words(&with(deed(), Vec::new())), [""; 0], "{how:?}");
            for rank in 0..4 {
                let found = words(&with(deed(), to(rank)));
                let is_named = ranks.contains(&rank);
                let name = Done::name(match &done {
                    RecordKind::Killed => Done::Killed,
                    _ => Done::Disturbed(how),
                });
                let wanted =
                    format!("rank {rank} meets a {name} at 2500 ms, and no deed under way says so");
                assert_eq!(found.is_empty(), is_named, "{how:?} {rank}: {found:?}");
                assert!(is_named || found == [wanted], "{how:?} {rank}: {found:?}");
            }
            // The rank is disturbed before the deed begins, or after its end.
            for us in [1500, 3500] {
                let mut story = with(deed(), Vec::new());
                story.push(told(us * MS, 1, 1, done.clone()));
                story.sort_by_key(|record| record.us);
                assert_eq!(words(&story).len(), 1, "{how:?} at {us} ms");
            }
            // The deed under way is of another kind.
            let other = match how {
                Disturbance::Freeze => Disturbance::HostFreeze,
                _ => Disturbance::Freeze,
            };
            let found = words(&with(begun(1, other, &[1], &[]), to(1)));
            assert_eq!(found.len(), 1, "{how:?} by {other:?}: {found:?}");
        }
    }

    #[test]
    fn a_deed_that_names_a_rank_its_kind_is_not_done_to_is_reported() {
        let one = |deed: RecordKind| {
            let found = words(&with(deed, Vec::new()));
            assert_eq!(found.len(), 1, "{found:?}");
            found.concat()
        };
        for (how, ranks) in KINDS {
            let wrong: &[&[u32]] = match target(how) {
                Target::One => &[&[], &[0, 1], &[4]],
                Target::Two => &[&[], &[1], &[1, 1], &[0, 4], &[0, 1, 2]],
                Target::All => &[&[], &[1], &[0, 1, 2], &[0, 1, 2, 2], &[0, 1, 2, 3, 4]],
                Target::Store => &[&[0], &[0, 1, 2, 3]],
            };
            for named in wrong {
                assert_ne!(*named, ranks);
                let text = one(begun(1, how, named, cuts(how)));
                let said = format!("names the ranks {named:?}; it is done to");
                assert!(text.contains(&said), "{text}");
            }
        }
        let cut = |pairs: &[(u32, u32)]| one(begun(1, Disturbance::Partition, &[1], pairs));
        assert!(cut(&[]).ends_with("cuts the pairs []"));
        for pair in [(1, 0), (1, 1), (1, 4), (2, 3)] {
            let text = cut(&[(0, 1), pair]);
            let said = format!("cuts the pair {pair:?}, which is none of rank [1]");
            assert!(text.ends_with(&said), "{text}");
        }
        let text = one(begun(1, Disturbance::Freeze, &[1], &[(0, 1)]));
        assert!(text.ends_with("cuts the pairs [(0, 1)]"), "{text}");
    }

    #[test]
    fn a_deed_begins_and_ends_once() {
        let deed = || begun(1, Disturbance::StorePause, &[], &[]);
        let twice = with(deed(), vec![told(2500 * MS, 0, 0, deed())]);
        assert_eq!(words(&twice), ["deed 1 begins twice, at 2500 ms"]);
        let over = RecordKind::DeedOver { deed: 2 };
        let none = with(deed(), vec![told(2500 * MS, 0, 0, over)]);
        let wanted = "deed 2 ends at 2500 ms and is not under way";
        assert_eq!(words(&none), [wanted]);
        for (how, ranks) in KINDS {
            let mut endless = with(begun(1, how, ranks, cuts(how)), Vec::new());
            endless.pop();
            endless.push(told(90_000 * MS, 0, 0, RecordKind::Calm));
            let name = how.name();
            let wanted = format!("deed 1, {name}, begins at 2000 ms and does not end");
            assert_eq!(words(&endless), [wanted]);
        }
    }

    #[test]
    fn a_word_of_a_rank_that_was_never_started_is_reported_once_by_name() {
        let words_of = |rank: u32, generation: u32| {
            let by = |what: Record| Record { generation, ..what };
            let mut story = begin();
            story.push(by(serves(2000 * MS, rank, 1)));
            story.push(by(step(2100 * MS, rank, 2, 1)));
            words(&story)
        };
        assert_eq!(words_of(1, 1), [""; 0]);
        // The records are of another generation, or of a slot that the run does not have.
        for (rank, generation) in [(1, 2), (1, 0), (4, 1)] {
            let wanted = format!(
                "rank {rank}, generation {generation}, speaks at 2000 ms and was not started before"
            );
            assert_eq!(words_of(rank, generation), [wanted]);
        }
        // The process is started too late.
        let mut late = begin();
        late.push(told(90 * MS, 1, 1, RecordKind::Asks));
        late.sort_by_key(|record| record.us);
        assert_eq!(words(&late).len(), 1);
    }

    #[test]
    fn a_step_in_two_views_a_failure_and_the_verdicts_are_reported() {
        // Rank 1 is in view 2, and runs a step in view 1 that the others have run in view 2.
        let mut story = begin();
        for rank in 0..4 {
            story.push(serves(2000 * MS, rank, 2));
        }
        for rank in [0, 2, 3] {
            story.push(step(2100 * MS, rank, 2, 2));
        }
        let mut good = story.clone();
        good.push(step(2200 * MS, 1, 2, 2));
        assert_eq!(words(&good), [""; 0]);
        story.push(step(2200 * MS, 1, 2, 1));
        let found = words(&story);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("it ran step 2 in view 1"), "{found:?}");
        // What a rank has said counts no more once it is over.
        let mut killed = good.clone();
        killed.push(told(
            2150 * MS,
            0,
            0,
            begun(1, Disturbance::Kill, &[1], &[]),
        ));
        killed.push(told(2160 * MS, 1, 1, RecordKind::Killed));
        killed.push(told(2170 * MS, 0, 0, RecordKind::DeedOver { deed: 1 }));
        killed.push(step(2300 * MS, 1, 3, 1));
        killed.sort_by_key(|record| record.us);
        assert_eq!(words(&killed), [""; 0]);

        let mut failed = begin();
        let message = "step 7: row 3 differs".to_owned();
        failed.push(told(2000 * MS, 2, 1, RecordKind::Failed { message }));
        let wanted = "rank 2 has failed at 2000 ms: step 7: row 3 differs";
        assert_eq!(words(&failed), [wanted]);

        let mut expelled = begin();
        expelled.push(told(2000 * MS, 2, 1, RecordKind::Expelled));
        let found = words(&expelled);
        assert!(
            found[0].starts_with("an undisturbed rank was expelled"),
            "{found:?}"
        );

        let mut no_plan = begin();
        no_plan.remove(0);
        let wanted = "the story lacks the number of ranks";
        assert_eq!(words(&no_plan), [wanted]);
    }
}
