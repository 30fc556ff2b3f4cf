//! Ranges that are a source and a target of one transfer. Only a transfer to a peer of the same process can have such ranges: the addresses
//! of both ends are then of one memory.
//!
//! A READ whose target is the source of a READ of the same transfer is refused. The bytes that it reads depend on the order of
//! packets. WRITEs are allowed, and the report says so: the bytes where both meet are old or new.

use crate::engine::error::EngineError;
use crate::engine::kind::Kind;
use crate::engine::ledger::plan::Operation;

/// A range, its operation, and whether the operation writes it.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
    operation: u32,
    is_target: bool,
}

/// Returns whether a WRITE writes to memory from which a WRITE of the transfer reads. The peer is of this process.
///
/// # Errors
/// [`EngineError::ReadIntoItself`]. The plan refuses ranges that wrap.
pub(in crate::engine) fn check(operations: &[Operation]) -> Result<bool, EngineError> {
    if let Some([target, source]) = meeting(operations, Kind::Read) {
        return Err(EngineError::ReadIntoItself {
            operation: target.operation,
            reader: source.operation,
            address: target.first.max(source.first),
        });
    }
    Ok(meeting(operations, Kind::Write).is_some())
}

/// Returns a target and a source of operations of this kind that have bytes in common.
fn meeting(operations: &[Operation], kind: Kind) -> Option<[Span; 2]> {
    let spans = (0..).zip(operations).filter(|(_, it)| it.kind == kind);
    let spans = spans.flat_map(|(number, it)| spans_of(number, it));
    let around = |is_target| {
        let of = spans.clone().filter(|span| span.is_target == is_target);
        of.fold((u64::MAX, 0), |(first, last): (u64, u64), span| {
            (first.min(span.first), last.max(span.last))
        })
    };
    let (targets, sources) = (around(true), around(false));
    // This ends nearly all calls, before any memory is taken.
    if targets.1 < sources.0 || sources.1 < targets.0 {
        return None;
    }
    let mut all: Vec<Span> = spans.collect();
    all.sort_unstable_by_key(|span| span.first);
    // For sources and for targets: of the spans that have begun before, the one that ends last.
    let mut longest: [Option<Span>; 2] = [None; 2];
    for span in all {
        let [own, other] = if span.is_target { [0, 1] } else { [1, 0] };
        if let Some(before) = longest[other].filter(|before| before.last >= span.first) {
            return Some(if span.is_target {
                [span, before]
            } else {
                [before, span]
            });
        }
        if longest[own].is_none_or(|before| before.last < span.last) {
            longest[own] = Some(span);
        }
    }
    None
}

fn spans_of(operation: u32, it: &Operation) -> impl Iterator<Item = Span> + Clone {
    let last = |first: u64| first.checked_add(it.bytes.checked_sub(1)?);
    let span = |first: u64, is_target| {
        last(first).map(|last| Span {
            first,
            last,
            operation,
            is_target,
        })
    };
    let reads = it.kind == Kind::Read;
    [span(it.local, reads), span(it.remote, !reads)]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: Kind, local: u64, remote: u64, bytes: u64) -> Operation {
        Operation {
            kind,
            local,
            remote,
            bytes,
        }
    }

    /// Finds an overlap by comparing each byte.
    fn slowly(operations: &[Operation], kind: Kind) -> bool {
        let all = || operations.iter().filter(|it| it.kind == kind);
        let bytes =
            |from: fn(&Operation) -> u64| all().flat_map(move |it| from(it)..from(it) + it.bytes);
        bytes(|it| it.local).any(|here| bytes(|it| it.remote).any(|there| here == there))
    }

    #[test]
    fn what_meets_is_found_as_by_comparing_each_byte() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut met = [0; 2];
        for _ in 0..4000 {
            let operations: Vec<Operation> = (0..random.usize(1..6))
                .map(|_| {
                    let kind = if random.bool() {
                        Kind::Read
                    } else {
                        Kind::Write
                    };
                    operation(kind, random.u64(0..60), random.u64(0..60), random.u64(0..8))
                })
                .collect();
            let found = check(&operations);
            let expected = [Kind::Read, Kind::Write].map(|kind| slowly(&operations, kind));
            assert_eq!(found.is_err(), expected[0], "seed {seed}: {operations:?}");
            if let Ok(found) = found {
                assert_eq!(found, expected[1], "seed {seed}: {operations:?}");
            }
            met[0] += u32::from(expected[0]);
            met[1] += u32::from(expected[1]);
        }
        assert!(met.iter().all(|met| (100..3900).contains(met)), "{met:?}");
    }

    #[test]
    fn an_overlap_error_names_operations_and_byte_and_no_address_wraps() {
        let far = operation(Kind::Read, 0x1000, 0x8000, 16);
        let into = operation(Kind::Read, 0x800f, 0x20, 1);
        let found = check(&[far, into]).unwrap_err();
        let expected = EngineError::ReadIntoItself {
            operation: 1,
            reader: 0,
            address: 0x800f,
        };
        assert_eq!(found, expected);
        assert_eq!(
            check(&[far, operation(Kind::Read, 0x8010, 0x20, 1)]),
            Ok(false)
        );
        assert_eq!(check(&[operation(Kind::Read, 7, 7, 0)]), Ok(false));
        let top = operation(Kind::Read, u64::MAX, 0, 1);
        assert_eq!(check(&[top]), Ok(false));
        assert!(check(&[top, operation(Kind::Read, 4, u64::MAX, 1)]).is_err());
        assert_eq!(
            check(&[operation(Kind::Read, u64::MAX, u64::MAX, 2)]),
            Ok(false)
        );
    }
}
