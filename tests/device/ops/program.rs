//! Calls: by hand and at random.

use test_support::abi::ops::{
    OPS_ADD, OPS_FENCE, OPS_MORE, OPS_SIGNALLED, OPS_WAIT, OPS_WAIT_DATA, OpItem, OpKind, OpStep,
};

use crate::rig::Call;

/// Where things lie in a window of WINDOW bytes: sources, which no operation writes; targets; fetched bytes; words of atomics and
/// signals; their old values.
pub(crate) const SOURCES: u64 = 0;
pub(crate) const TARGETS: u64 = 256 << 10;
pub(crate) const FETCHED: u64 = 512 << 10;
pub(crate) const WORDS: u64 = 768 << 10;
pub(crate) const RESULTS: u64 = 832 << 10;
pub(crate) const WINDOW: u64 = 896 << 10;
const AREA: u64 = 256 << 10;

/// A step of `kind` that is signalled and waited for.
pub(crate) fn step(kind: OpKind) -> OpStep {
    OpStep {
        kind,
        options: OPS_SIGNALLED | OPS_WAIT,
        ..OpStep::default()
    }
}

/// A step that reads what came back.
pub(crate) fn step_back(kind: OpKind) -> OpStep {
    OpStep {
        options: OPS_SIGNALLED | OPS_WAIT_DATA,
        ..step(kind)
    }
}

/// Lengths worth trying.
pub(crate) const LENGTHS: [u64; 9] = [1, 3, 4, 28, 29, 64, 333, 4096, 4101];

/// Places that are given out one after the other, so that what the threads of a step write never overlaps.
struct Cursor {
    at: u64,
    end: u64,
}

impl Cursor {
    fn new(area: u64, bytes: u64) -> Self {
        Self {
            at: area,
            end: area + bytes,
        }
    }

    /// The next `bytes` bytes at a multiple of `align`, after a gap of up to `gap`.
    fn take(&mut self, rng: &mut fastrand::Rng, bytes: u64, align: u64, gap: u64) -> Option<u64> {
        let at = (self.at + rng.u64(0..=gap)).next_multiple_of(align);
        if at + bytes > self.end {
            return None;
        }
        self.at = at + bytes;
        Some(at)
    }
}

/// Kinds that a direct path has too.
const BOTH: [OpKind; 7] = [
    OpKind::PUT,
    OpKind::PUT_VALUE,
    OpKind::SIGNAL,
    OpKind::PUT_SIGNAL,
    OpKind::GET,
    OpKind::AMO,
    OpKind::QUIET,
];
/// Those of QPs only.
const QP_ONLY: [OpKind; 3] = [OpKind::PUT_TWO, OpKind::FLUSH, OpKind::FENCE];

/// A random call of a scope of `width` threads. The ranges that it writes do not overlap within the call. It reads only bytes that
/// were written before the program, or for which the program waits.
pub(crate) fn random_call(rng: &mut fastrand::Rng, width: u32, direct: bool) -> Call {
    let kinds = if direct {
        &BOTH[..]
    } else {
        &[&BOTH[..], &QP_ONLY].concat()
    };
    let kind = kinds[rng.usize(..kinds.len())];
    let mut call = Call {
        step: step_back(kind),
        items: Vec::new(),
    };
    let held = rng.u8(0..4) == 0;
    if held && kind != OpKind::AMO && kind != OpKind::GET {
        // The wait of a later step, or the last quiet, rings for it.
        call.step.options = (OPS_SIGNALLED * rng.u32(0..2)) | (OPS_MORE * rng.u32(0..2));
    }
    call.step.options |= OPS_FENCE * rng.u32(0..2);
    call.step.bytes = match kind {
        OpKind::PUT_VALUE => [4, 8, 12, 16, 24, 28][rng.usize(0..6)],
        _ => [4, 8][rng.usize(0..2)],
    };
    call.step.options |= OPS_ADD * rng.u32(0..2);
    call.step.amo = rng.u32(0..6);
    let gap = [0, 0, 40][rng.usize(0..3)];
    let mut targets = Cursor::new(TARGETS, AREA);
    let mut fetched = Cursor::new(FETCHED, AREA);
    let mut results = Cursor::new(RESULTS, 32 << 10);
    for _ in 0..rng.u32(1..=width) {
        let word = u64::from(call.step.bytes);
        let mut item = OpItem {
            bytes: LENGTHS[rng.usize(..LENGTHS.len())],
            second_bytes: LENGTHS[rng.usize(..LENGTHS.len())],
            signal: WORDS + 8 * rng.u64(0..4),
            value: rng.u64(..),
            compare: rng.u64(..),
            ..OpItem::default()
        };
        item.local = SOURCES + rng.u64(0..AREA - item.bytes);
        item.second = SOURCES + rng.u64(0..AREA - item.second_bytes);
        let place = match kind {
            OpKind::PUT_VALUE => targets.take(rng, word, 4, gap),
            OpKind::PUT_TWO => targets.take(rng, item.bytes + item.second_bytes, 1, gap),
            // The threads of a direct path are not in order: each has a word of its own.
            OpKind::AMO if direct => Some(WORDS + word * call.items.len() as u64),
            OpKind::AMO => Some(WORDS + word * rng.u64(0..8)),
            OpKind::GET => Some(TARGETS + rng.u64(0..AREA - item.bytes)),
            _ => targets.take(rng, item.bytes, 1, gap),
        };
        let Some(place) = place else { break };
        item.remote = place;
        let local = match kind {
            OpKind::GET => fetched.take(rng, item.bytes, 1, gap),
            OpKind::AMO => results.take(rng, word, word, gap),
            _ => Some(item.local),
        };
        let Some(local) = local else { break };
        item.local = local;
        call.items.push(item);
    }
    call
}

/// The call that waits for everything before it.
pub(crate) fn quiet() -> Call {
    Call {
        step: OpStep {
            kind: OpKind::QUIET,
            ..OpStep::default()
        },
        items: vec![OpItem::default()],
    }
}
