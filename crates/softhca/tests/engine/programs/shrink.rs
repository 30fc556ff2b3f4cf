//! A failing program made smaller, as long as it fails.
//!
//! The crate proptest does not replace this. What a WQE may be depends on all before it, so programs are drawn one step after the
//! other and not from strategies. Shrinking by proptest takes any failure for the one sought, but a program must fail in the same
//! way. Its `simplify` and `complicate` over programs would be the same candidates, written by hand.

use super::fences::fence;
use super::program::{Program, Round, Work};

/// Returns the smallest program that still fails, of those tried; `fails` runs one.
pub(crate) fn shrink(mut program: Program, fails: impl Fn(&Program) -> bool) -> Program {
    loop {
        let smaller = candidates(&program)
            .into_iter()
            .find(|candidate| fails(candidate));
        match smaller {
            Some(smaller) => program = smaller,
            None => return program,
        }
    }
}

/// Programs with a little less in them.
fn candidates(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Program)| {
        let mut other = program.clone();
        change(&mut other);
        fence(&mut other);
        all.push(other);
    };
    for at in 0..program.rounds.len() {
        with(&|other| {
            other.rounds.remove(at);
        });
    }
    for (at, round) in program.rounds.iter().enumerate() {
        for (part, work) in works(round).into_iter().enumerate() {
            for wqe in 0..work.wqes.len() {
                with(&|other| {
                    works_mut(&mut other.rounds[at])[part].wqes.remove(wqe);
                });
            }
            for receive in 0..work.receives.len() {
                with(&|other| {
                    works_mut(&mut other.rounds[at])[part]
                        .receives
                        .remove(receive);
                });
            }
        }
    }
    all
}

fn works(round: &Round) -> Vec<&Work> {
    match round {
        Round::Batch { work, .. } => vec![work],
        Round::Both(works) => works.iter().collect(),
        _ => vec![],
    }
}

fn works_mut(round: &mut Round) -> Vec<&mut Work> {
    match round {
        Round::Batch { work, .. } => vec![work],
        Round::Both(works) => works.iter_mut().collect(),
        _ => vec![],
    }
}
