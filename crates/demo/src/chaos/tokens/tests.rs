//! Tests each rule with a story that breaks it, and with a story that just keeps it.

use super::*;
use crate::record::Disturbance;
use crate::record::recorded::told;

const MS: u64 = 1000;
const TIMEOUT: &str = "timeout";

fn loss(of: &[u32], tokens: u32) -> Loss {
    Loss {
        tokens,
        of: of.to_vec(),
        causes: of.iter().map(|_| TIMEOUT.to_owned()).collect(),
    }
}

fn step(ms: u64, rank: u32, losses: Option<Vec<Loss>>) -> Record {
    let lost = losses.iter().flatten().map(|loss| loss.tokens).sum();
    let what = RecordKind::Step {
        step: u32::try_from(ms / 10).unwrap(),
        epoch: Some(1),
        tokens: 16,
        lost,
        missing: Vec::new(),
        losses,
        took_us: 1,
    };
    told(ms * MS, rank, 1, what)
}

fn deed(ms: u64, deed: u32, how: Disturbance, ranks: &[u32]) -> Record {
    let begun = Begun {
        deed,
        how,
        ranks: ranks.to_vec(),
        pairs: Vec::new(),
        words: String::new(),
    };
    told(ms * MS, 0, 0, RecordKind::Deed(begun))
}

fn over(ms: u64, deed: u32) -> Record {
    told(ms * MS, 0, 0, RecordKind::DeedOver { deed })
}

/// Returns the story of four ranks with a deadline of 500 ms, each with a call each 10 ms until 6 s. `lost` says what the call of a rank
/// that ends at a time has lost.
fn story(lost: impl Fn(u64, u32) -> Vec<Loss>) -> Vec<Record> {
    let plan = RecordKind::Plan {
        ranks: 4,
        lease_ms: 2000,
        deadline_ms: 500,
        masks: false,
    };
    let mut story = vec![told(0, 0, 0, plan)];
    for n in 1..=600 {
        for rank in 0..4 {
            story.push(step(n * 10, rank, Some(lost(n * 10, rank))));
        }
    }
    story
}

/// Returns a story in which rank 1 is frozen from 1.005 s to 1.1 s. It makes calls all the time, so it is whole two deadlines later, at 2.1
/// s.
fn frozen(lost: impl Fn(u64, u32) -> Vec<Loss>) -> Vec<Record> {
    let mut story = story(lost);
    story.push(deed(1005, 1, Disturbance::Freeze, &[1]));
    story.push(over(1100, 1));
    story.sort_by_key(|record| record.us);
    story
}

fn of(story: &[Record]) -> Tokens {
    Tokens::of(story).unwrap()
}

/// Returns that story, where the calls of `rank` that end at `at` lose 3 tokens of the experts of `lack`.
fn losing(at: &[u64], rank: u32, lack: &[u32]) -> Vec<Record> {
    frozen(|ms, by| match at.contains(&ms) && by == rank {
        true => vec![loss(lack, 3)],
        false => Vec::new(),
    })
}

#[test]
fn a_token_may_be_lost_in_the_call_of_the_deed_and_in_the_next_one() {
    // The deed happens in the call from 1,000 to 1,010 ms.
    let kept = of(&losing(&[1010, 1020], 0, &[2]));
    assert_eq!(kept.judged(), Judged::Good);
    let row = &kept.deeds["freeze"];
    assert_eq!((row.lost_at_once, row.lost_later), (6, 0));
    assert_eq!(row.causes, BTreeMap::from([(TIMEOUT.to_owned(), 6)]));
    assert_eq!(row.longest_ms, 15);
    let broken = of(&losing(&[1030], 0, &[2]));
    let Judged::Lost(lost) = broken.judged() else {
        panic!("{broken:?}");
    };
    assert_eq!(lost.len(), 1);
    assert_eq!(
        lost[0].in_words(),
        "1030 ms: rank 0 lost 3 tokens in call 103 (rank 2: timeout), after deed 1, freeze at [1], 25 ms before"
    );
    assert_eq!(broken.deeds["freeze"].lost_later, 3);
}

#[test]
fn what_came_before_every_deed_is_not_judged() {
    assert_eq!(of(&losing(&[500, 1000], 0, &[2])).judged(), Judged::Good);
}

#[test]
fn tokens_of_a_disturbed_rank_do_not_count_until_it_must_be_whole() {
    for at in [1500, 2100] {
        assert_eq!(of(&losing(&[at], 0, &[1])).judged(), Judged::Good, "{at}");
        assert_eq!(
            of(&losing(&[at], 1, &[0, 2])).judged(),
            Judged::Good,
            "{at}"
        );
    }
    // The call from 2,100 to 2,110 ms begins at the last moment of the disturbance. The next call is judged.
    assert_eq!(of(&losing(&[2110], 0, &[1])).judged(), Judged::Good);
    assert_ne!(of(&losing(&[2120], 0, &[1])).judged(), Judged::Good);
    assert_ne!(of(&losing(&[2120], 1, &[0])).judged(), Judged::Good);
}

#[test]
fn a_token_that_lacks_experts_of_a_disturbed_and_of_a_well_rank_is_lost() {
    let tokens = of(&losing(&[1500], 0, &[1, 2]));
    let Judged::Lost(lost) = tokens.judged() else {
        panic!("{tokens:?}");
    };
    assert_eq!(lost[0].of, [(2, TIMEOUT.to_owned())]);
    assert_eq!(lost[0].tokens, 3);
    // A rank may not lose tokens of its own experts, either.
    assert_ne!(of(&losing(&[1500], 0, &[0])).judged(), Judged::Good);
}

#[test]
fn each_death_is_a_deed_by_itself() {
    let mut story = losing(&[3010], 0, &[2]);
    assert_ne!(of(&story).judged(), Judged::Good);
    story.push(told(3005 * MS, 3, 1, RecordKind::Killed));
    story.sort_by_key(|record| record.us);
    assert_eq!(of(&story).judged(), Judged::Good);
}

#[test]
fn a_call_in_which_a_rank_without_a_deed_was_starved_does_not_count() {
    let with = |rank: u32| {
        let mut story = losing(&[1500], 0, &[2]);
        story.push(told(1495 * MS, rank, 1, RecordKind::Stood { ms: 130 }));
        story.sort_by_key(|record| record.us);
        of(&story)
    };
    let starved = with(3);
    assert_eq!(starved.judged(), Judged::Good);
    assert_eq!(starved.starved_tokens, 3);
    // These are the calls of three ranks that touch 1,365 to 1,495 ms.
    assert_eq!(starved.starved_calls, 3 * 14);
    assert_eq!(starved.deeds["freeze"].lost_later, 0);
    // The machine starves rank 1, which has a deed, so its calls count.
    assert_ne!(with(1).judged(), Judged::Good);
}

#[test]
fn a_run_with_more_than_a_tenth_of_its_calls_starved_is_not_judged() {
    let with = |ms: u64, lost: &[u64]| {
        let mut story = losing(lost, 0, &[2]);
        // The machine starves a rank in calls that lose no tokens, last at the end of the run.
        story.push(told(6000 * MS, 3, 1, RecordKind::Stood { ms }));
        story.sort_by_key(|record| record.us);
        of(&story)
    };
    let all = with(130, &[]).calls;
    // The calls of ranks 0, 2 and 3 count if they end from 1,010 ms on, and those of rank 1 if they begin after 2,100 ms.
    assert_eq!(all, 3 * 500 + 389);
    // 188 calls of 1,889 are less than a tenth, and 192 are more.
    let kept = with(465, &[]);
    assert_eq!((kept.starved_calls, kept.judged()), (188, Judged::Good));
    let broken = with(475, &[1500]);
    let starved = Judged::Starved {
        calls: 192,
        of: all,
    };
    assert_eq!(broken.judged(), starved);
}

#[test]
fn tokens_are_counted_under_the_newest_deed() {
    let mut story = losing(&[1500, 3030], 0, &[2]);
    story.push(deed(3000, 2, Disturbance::StorePause, &[]));
    story.push(over(3100, 2));
    story.sort_by_key(|record| record.us);
    let tokens = of(&story);
    let names: Vec<&str> = tokens.deeds.keys().copied().collect();
    assert_eq!(names, ["freeze", "store pause"]);
    assert_eq!(tokens.deeds["freeze"].lost_later, 3);
    // A deed at the store disturbs no rank.
    assert_eq!(tokens.deeds["store pause"].lost_later, 3);
    assert_eq!(tokens.deeds["store pause"].longest_ms, 30);
}

#[test]
fn each_rank_may_lose_one_call_to_other_arguments_of_a_rank() {
    let refused = |at: &[u64], cause: &str| {
        let mut story = story(|ms, by| match at.contains(&ms) && by != 1 {
            true => vec![Loss {
                tokens: 3,
                of: vec![2],
                causes: vec![cause.to_owned()],
            }],
            false => Vec::new(),
        });
        story.push(deed(1005, 1, Disturbance::Arguments, &[1]));
        story.push(over(1200, 1));
        story.sort_by_key(|record| record.us);
        of(&story)
    };
    let kept = refused(&[1100], "MoeError in 1");
    assert_eq!(kept.judged(), Judged::Good);
    assert_eq!(kept.deeds["arguments"].lost_at_once, 9);
    for broken in [
        refused(&[1100, 1110], "MoeError in 1"),
        refused(&[1100], TIMEOUT),
    ] {
        assert_eq!(broken.deeds["arguments"].lost_later, 9);
    }
}

#[test]
fn a_story_of_before_has_no_counts() {
    let mut old = frozen(|_, _| Vec::new());
    old.push(step(6010, 0, None));
    assert_eq!(Tokens::of(&old), None);
    let mut old = frozen(|_, _| Vec::new());
    old[0].what = RecordKind::Plan {
        ranks: 4,
        lease_ms: 2000,
        deadline_ms: 0,
        masks: false,
    };
    assert_eq!(Tokens::of(&old), None);
}
