//! Fences where a program needs them.
//!
//! A READ or an atomic is under way while later WQEs run. Software that uses its result, or writes what it reads, sets the fence
//! bit: a READ whose answer was lost runs again. So must a program that is to have one outcome. After a READ whose result has no
//! place, what follows may have been carried out before that is found.

use super::program::{Operation, Piece, Program, Round, Segment, Work, Wqe};
use super::reference::{LOCAL_WRITE, Side};

/// A range of a side's memory.
type Span = (u64, u64);

#[derive(Default)]
struct Outstanding {
    /// Where results go.
    results: Vec<Span>,
    /// What READs read.
    sources: Vec<Span>,
    /// A result has no place.
    fails: bool,
}

/// Sets the fence bit of every WQE that needs it.
pub(crate) fn fence(program: &mut Program) {
    let works = program.rounds.iter_mut().flat_map(|round| match round {
        Round::Batch { work, .. } => vec![work],
        Round::Both(works) => works.iter_mut().collect(),
        _ => vec![],
    });
    works.for_each(fence_work);
}

fn fence_work(work: &mut Work) {
    // Receives of earlier rounds may be used as well: a WQE that consumes one may write anywhere.
    let mut outstanding = Outstanding::default();
    for wqe in &mut work.wqes {
        let own = own(wqe);
        let hit = outstanding.fails
            || touches(&outstanding.results, &own)
            || match remote(wqe) {
                Some((span, writes)) => writes && touches(&outstanding.sources, &[span]),
                None => false,
            }
            || consumes(wqe) && !outstanding.sources.is_empty();
        wqe.fence |= hit;
        if wqe.fence {
            outstanding = Outstanding::default();
        }
        if wqe.takes_results() {
            outstanding.results.extend(own);
            let bytes = wqe.local.iter().map(Piece::bytes).sum();
            outstanding.fails |=
                !wqe.has_inline() && Side::pieces(&wqe.segments(), bytes, LOCAL_WRITE).is_none();
        }
        if let Operation::Read { .. } = wqe.operation {
            outstanding
                .sources
                .extend(remote(wqe).map(|(span, _)| span));
        }
    }
}

fn touches(spans: &[Span], others: &[Span]) -> bool {
    spans
        .iter()
        .any(|(start, end)| others.iter().any(|(from, to)| start < to && from < end))
}

fn span(segment: &Segment) -> Span {
    (segment.at, segment.at + u64::from(segment.bytes))
}

/// Own memory that a WQE uses.
fn own(wqe: &Wqe) -> Vec<Span> {
    wqe.segments().iter().map(span).collect()
}

/// The peer's memory that a WQE names, and whether the WQE writes it.
fn remote(wqe: &Wqe) -> Option<(Span, bool)> {
    let bytes: u64 = wqe.local.iter().map(Piece::bytes).sum();
    match &wqe.operation {
        Operation::Nop | Operation::Send { .. } => None,
        Operation::Write { to, .. } => Some(((to.at, to.at + bytes), true)),
        Operation::Read { from } => Some(((from.at, from.at + bytes), false)),
        Operation::Atomic { at, .. } => Some(((at.at, at.at + bytes), true)),
    }
}

fn consumes(wqe: &Wqe) -> bool {
    matches!(wqe.operation, Operation::Send { .. })
}
