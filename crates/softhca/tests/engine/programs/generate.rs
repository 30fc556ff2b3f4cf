//! Programs from seeds: mostly right ones, with a wrong WQE now and then.

use super::fences::fence;
use super::program::{
    Atomic, Damage, Key, MEMORY, Operation, PART, Piece, Program, Receive, Remote, Rights, Round,
    Segment, Setup, With, Work, Wqe,
};
use fastrand::Rng;

/// How a program is to be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flavour {
    /// Memory to memory; otherwise packets.
    pub(crate) loopback: bool,
}

/// Which memory a batch uses. With both sides at work, nothing that one side uses is used by the other.
#[derive(Clone, Copy)]
struct Lanes {
    own: (u64, u64),
    target: (u64, u64),
    receive: (u64, u64),
    /// Nothing may fail.
    careful: bool,
}

const ANYWHERE: Lanes = Lanes {
    own: (0, MEMORY),
    target: (0, MEMORY),
    receive: (0, MEMORY),
    careful: false,
};
const APART: Lanes = Lanes {
    own: (0, MEMORY / 4),
    target: (MEMORY / 4, MEMORY / 4 * 3),
    receive: (MEMORY / 4 * 3, MEMORY),
    careful: true,
};

/// Inline data of a WQE in bytes, so that it stays below 63 units with the other segments that it may have.
const MOST_INLINE: u64 = 700;

pub(crate) fn generate(seed: u64, flavour: Flavour) -> Program {
    let mut rng = Rng::with_seed(seed);
    let rng = &mut rng;
    let setup = Setup {
        loopback: flavour.loopback,
        strict: rng.u8(..4) != 0,
        schedule_seed: (rng.u8(..4) == 0).then(|| rng.u64(..)),
        mtu: rng.u32(1..=5),
        latency_ns: if rng.bool() { 0 } else { rng.u64(1..30_000) },
        psn: if rng.bool() {
            rng.u32(..1 << 24)
        } else {
            (1 << 24) - rng.u32(1..40)
        },
        rnr_retry: rng.u32(..4),
        rights: [rights(rng), rights(rng)],
        start: 0,
    };
    let rounds = (0..rng.usize(1..6))
        .flat_map(|_| round(rng, &setup))
        .collect();
    let mut program = Program { setup, rounds };
    fence(&mut program);
    program
}

fn rights(rng: &mut Rng) -> Rights {
    let mut most = || rng.u8(..12) != 0;
    Rights {
        write: most(),
        read: most(),
        atomic: most(),
    }
}

fn round(rng: &mut Rng, setup: &Setup) -> Vec<Round> {
    let side = rng.usize(..2);
    let renew = Round::Renew {
        psn: rng.u32(..1 << 24),
    };
    // Between memories silence costs a look each 100 us.
    let quiet = !setup.loopback || rng.u8(..8) == 0;
    match rng.u8(..24) {
        0 if quiet => vec![Round::Silence { side }, batch(rng, 1 - side), renew],
        1 if quiet => vec![
            Round::ToError { side },
            batch(rng, side),
            batch(rng, 1 - side),
            renew,
        ],
        2 | 3 => vec![renew],
        4..8 if setup
            .rights
            .iter()
            .all(|rights| rights.write && rights.read && rights.atomic) =>
        {
            vec![renew, Round::Both([work(rng, APART), work(rng, APART)])]
        }
        _ => vec![batch(rng, side)],
    }
}

fn batch(rng: &mut Rng, side: usize) -> Round {
    Round::Batch {
        side,
        work: work(rng, ANYWHERE),
    }
}

/// WQEs for at most a ring, and receives for about as many as need one.
fn work(rng: &mut Rng, lanes: Lanes) -> Work {
    let mut wqes = Vec::new();
    let mut blocks = 0;
    for _ in 0..rng.usize(1..14) {
        let wqe = wqe(rng, lanes);
        blocks += wqe.blocks();
        if blocks > 60 {
            break;
        }
        wqes.push(wqe);
    }
    let wants = |wqe: &&Wqe| {
        matches!(
            wqe.operation,
            Operation::Send { .. }
                | Operation::Write {
                    immediate: Some(_),
                    ..
                }
        )
    };
    let wanted = wqes.iter().filter(wants).count();
    let spare = if lanes.careful { 0 } else { rng.usize(..3) };
    let missing = usize::from(!lanes.careful && rng.u8(..10) == 0);
    let receives = (0..(wanted + spare).saturating_sub(missing))
        .map(|_| receive(rng, lanes))
        .collect();
    Work { receives, wqes }
}

fn wqe(rng: &mut Rng, lanes: Lanes) -> Wqe {
    let bytes = length(rng);
    let operation = match rng.u8(..18) {
        0 => Operation::Nop,
        1..5 => Operation::Write {
            to: remote(rng, lanes, bytes, 1),
            immediate: (rng.u8(..3) == 0).then(|| rng.u32(..)),
        },
        5..9 => Operation::Read {
            from: remote(rng, lanes, bytes, 1),
        },
        9..13 => {
            let atomic = atomic(rng);
            Operation::Atomic {
                at: remote(rng, lanes, atomic.bytes(), atomic.bytes()),
                atomic,
            }
        }
        _ => Operation::Send {
            with: match rng.u8(..3) {
                0 => With::Nothing,
                1 => With::Immediate(rng.u32(..)),
                _ if !lanes.careful && rng.u8(..20) == 0 => {
                    With::Invalidate(Key::EVERY[rng.usize(..Key::EVERY.len())])
                }
                _ => With::Nothing,
            },
        },
    };
    let local = match &operation {
        Operation::Nop => vec![],
        Operation::Atomic { atomic, .. } => segments(rng, lanes, atomic.bytes(), 2),
        Operation::Read { .. } => segments(rng, lanes, bytes, 5),
        _ => match rng.u8(..8) {
            0 | 1 if bytes <= MOST_INLINE => inline(rng, bytes),
            0..5 => mixed(rng, lanes, bytes),
            _ => segments(rng, lanes, bytes, 5),
        },
    };
    let mut wqe = Wqe {
        operation,
        local,
        signalled: rng.u8(..4) != 0,
        solicited: rng.u8(..4) == 0,
        fence: rng.u8(..6) == 0,
        damage: None,
    };
    if !lanes.careful && rng.u8(..40) == 0 {
        spoil(rng, &mut wqe);
    }
    wqe
}

/// Something is wrong with the WQE itself.
fn spoil(rng: &mut Rng, wqe: &mut Wqe) {
    let masked = matches!(
        wqe.operation,
        Operation::Atomic {
            atomic: Atomic::MaskedCompareSwap { .. } | Atomic::MaskedFetchAdd { .. },
            ..
        }
    );
    let takes_address = !matches!(wqe.operation, Operation::Nop | Operation::Send { .. });
    match rng.u8(..9) {
        0 => wqe.damage = Some(Damage::Opcode([0x2f, 0x0e, 0x1f][rng.usize(..3)])),
        1 if masked => wqe.damage = Some(Damage::OpMod([0, 7, 10, 255][rng.usize(..4)])),
        2 => wqe.damage = Some(Damage::Index(rng.u16(1..))),
        3 => wqe.damage = Some(Damage::Qpn(rng.u32(..1 << 24))),
        4 => wqe.damage = Some(Damage::NoSize),
        5 if takes_address => wqe.damage = Some(Damage::Cut),
        6 if wqe.has_inline() => wqe.damage = Some(Damage::InlineLength),
        7 if wqe.takes_results() => {
            let at = rng.usize(..=wqe.local.len());
            wqe.local.insert(at, Piece::Inline(vec![7; 4]));
        }
        8 if matches!(wqe.operation, Operation::Read { .. }) => {
            wqe.local = vec![Piece::Inline(vec![1; 8])]
        }
        _ => {}
    }
}

/// Nothing, a few bytes, around the edges of packets, or many.
fn length(rng: &mut Rng) -> u64 {
    match rng.u8(..10) {
        0 => 0,
        1..4 => rng.u64(1..64),
        4..6 => (256 << rng.u32(..5)) * rng.u64(1..3) + rng.u64(..3) - 1,
        6 => rng.u64(1..MEMORY / 4),
        _ => rng.u64(1..1000),
    }
}

/// Returns a place for `bytes` bytes in a lane.
fn place(rng: &mut Rng, lane: (u64, u64), bytes: u64, boundary: u64) -> u64 {
    let room = (lane.1 - lane.0).saturating_sub(bytes);
    lane.0 + rng.u64(..=room) / boundary * boundary
}

/// Returns a key and a place for it, which mostly fit.
fn named(rng: &mut Rng, lane: (u64, u64), careful: bool, bytes: u64, boundary: u64) -> (Key, u64) {
    let at = place(rng, lane, bytes, boundary);
    let inside = PART.start <= at && at + bytes <= PART.end;
    if inside && rng.u8(..4) == 0 {
        return (Key::Part, at);
    }
    if careful || rng.u8(..40) != 0 {
        return (Key::All, at);
    }
    match rng.u8(..4) {
        0 => (Key::All, MEMORY - rng.u64(..8) * boundary),
        1 => (Key::Part, at),
        2 => (Key::All, at + rng.u64(..2)),
        _ => (Key::EVERY[rng.usize(..Key::EVERY.len())], at),
    }
}

fn remote(rng: &mut Rng, lanes: Lanes, bytes: u64, boundary: u64) -> Remote {
    let (key, at) = named(rng, lanes.target, lanes.careful, bytes, boundary);
    Remote { key, at }
}

/// `bytes` bytes in up to `most` segments, or in a wrong number of bytes.
fn segments(rng: &mut Rng, lanes: Lanes, bytes: u64, most: u64) -> Vec<Piece> {
    let mut left = bytes;
    let mut segments = Vec::new();
    let count = rng.u64(1..=most);
    for n in 0..count {
        let take = if n + 1 == count {
            left
        } else {
            rng.u64(..=left)
        };
        if take == 0 {
            continue;
        }
        segments.push(segment(rng, lanes, take));
        left -= take;
    }
    if !lanes.careful && rng.u8(..200) == 0 {
        segments.truncate(4);
        segments.push(wrong_length(rng));
    }
    segments
}

/// `bytes` bytes of own memory.
fn segment(rng: &mut Rng, lanes: Lanes, bytes: u64) -> Piece {
    let (key, at) = named(rng, lanes.own, lanes.careful, bytes, 1);
    Piece::Memory(Segment {
        key,
        at,
        bytes: u32::try_from(bytes).unwrap(),
    })
}

/// Returns a segment that makes a message too long, or longer than its target.
fn wrong_length(rng: &mut Rng) -> Piece {
    // None stands for 2^31.
    let bytes = [0, 1 << 30, 3][rng.usize(..3)];
    Piece::Memory(Segment {
        key: Key::All,
        at: 0,
        bytes,
    })
}

/// Inline data and segments in any order, `bytes` bytes in all; one in 200 has a wrong number of bytes.
fn mixed(rng: &mut Rng, lanes: Lanes, bytes: u64) -> Vec<Piece> {
    let (mut room, mut left) = (MOST_INLINE, bytes);
    let mut pieces = Vec::new();
    let count = rng.u64(2..=8);
    for n in 0..count {
        // Half of the pieces are short: headers.
        let most = if rng.bool() { left.min(64) } else { left };
        let take = if n + 1 == count {
            left
        } else {
            rng.u64(..=most)
        };
        if take <= room && rng.bool() {
            pieces.push(inline_piece(rng, take));
            room -= take;
        } else if take > 0 {
            pieces.push(segment(rng, lanes, take));
        }
        left -= take;
    }
    if !lanes.careful && rng.u8(..200) == 0 {
        pieces.insert(rng.usize(..=pieces.len()), wrong_length(rng));
    }
    pieces
}

fn inline_piece(rng: &mut Rng, bytes: u64) -> Piece {
    Piece::Inline((0..bytes).map(|_| rng.u8(..)).collect())
}

/// `bytes` bytes of inline data, in one segment or in two.
fn inline(rng: &mut Rng, bytes: u64) -> Vec<Piece> {
    let first = if rng.u8(..4) == 0 {
        rng.u64(..=bytes)
    } else {
        bytes
    };
    let mut pieces = vec![inline_piece(rng, first)];
    if first < bytes {
        pieces.push(inline_piece(rng, bytes - first));
    }
    pieces
}

fn atomic(rng: &mut Rng) -> Atomic {
    // Small numbers, so that comparisons succeed now and then.
    let mut number = || {
        if rng.bool() {
            rng.u64(..3)
        } else {
            rng.u64(..)
        }
    };
    let (a, b, c, d) = (number(), number(), number(), number());
    let bytes = if rng.bool() { 4 } else { 8 };
    let cut = |value: u64| {
        if bytes == 4 {
            value & 0xffff_ffff
        } else {
            value
        }
    };
    match rng.u8(..4) {
        0 => Atomic::CompareSwap {
            compare: a,
            swap: b,
        },
        1 => Atomic::FetchAdd { add: a },
        2 => Atomic::MaskedCompareSwap {
            bytes,
            compare: cut(a),
            swap: cut(b),
            compare_mask: cut(c),
            swap_mask: cut(d),
        },
        _ => Atomic::MaskedFetchAdd {
            bytes,
            add: cut(a),
            boundary: cut(b),
        },
    }
}

/// Mostly longer than any message; some of its segments are empty.
fn receive(rng: &mut Rng, lanes: Lanes) -> Receive {
    let most = MEMORY / 4;
    let short = !lanes.careful && rng.u8(..30) == 0;
    let first = if short {
        rng.u64(..200)
    } else {
        rng.u64(1..=most)
    };
    let mut sizes = vec![first];
    if rng.bool() {
        sizes.push(0);
    }
    if !short {
        // In the same quarter of memory even if the batch is careful.
        sizes.push(most - first);
    }
    let segments = sizes.into_iter().map(|bytes| {
        let (key, at) = named(rng, lanes.receive, lanes.careful, bytes, 1);
        Segment {
            key,
            at,
            bytes: u32::try_from(bytes).unwrap(),
        }
    });
    Receive {
        segments: segments.collect(),
    }
}
