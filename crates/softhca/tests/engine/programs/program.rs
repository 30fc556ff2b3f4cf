//! A program: what software posts, in terms of its own, before it becomes bytes.

use std::fmt;

/// Bytes of data memory of a side, all of which the key [`Key::All`] covers.
pub(crate) const MEMORY: u64 = 1 << 16;
/// What [`Key::Part`] covers, and by which address peers name its start.
pub(crate) const PART: std::ops::Range<u64> = 1 << 13..5 << 13;
pub(crate) const PART_IOVA: u64 = 0x7700_0000;
/// Receive WQEs of a queue.
pub(crate) const LOG_RECEIVES: u32 = 4;
/// WQEBBs of a send queue.
pub(crate) const LOG_DEPTH: u32 = 6;

/// Everything that is done, in order.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) setup: Setup,
    pub(crate) rounds: Vec<Round>,
}

/// How the two ends are made.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Memory to memory; otherwise packets.
    pub(crate) loopback: bool,
    pub(crate) strict: bool,
    pub(crate) schedule_seed: Option<u64>,
    pub(crate) mtu: u32,
    /// How long a packet takes.
    pub(crate) latency_ns: u64,
    pub(crate) psn: u32,
    /// Below 7, which is for ever.
    pub(crate) rnr_retry: u32,
    /// What the QP of each side lets its peer do.
    pub(crate) rights: [Rights; 2],
    /// Send index and receive index that the rings have reached before the program begins.
    pub(crate) start: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    pub(crate) write: bool,
    pub(crate) read: bool,
    pub(crate) atomic: bool,
}

/// One thing that software does before it waits until the device rests.
#[derive(Clone, Debug)]
pub(crate) enum Round {
    /// Posts receives at the peer of `side`, then WQEs of `side`.
    Batch { side: usize, work: Work },
    /// Both sides at once; what they touch is apart.
    Both([Work; 2]),
    /// Both ends to reset and connected again.
    Renew { psn: u32 },
    /// One end to reset: it does not answer any more.
    Silence { side: usize },
    /// One end to the error state.
    ToError { side: usize },
}

/// What is posted for one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// At the peer.
    pub(crate) receives: Vec<Receive>,
    pub(crate) wqes: Vec<Wqe>,
}

/// A receive WQE.
#[derive(Clone, Debug)]
pub(crate) struct Receive {
    pub(crate) segments: Vec<Segment>,
}

/// A send WQE.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) operation: Operation,
    /// Own data, one piece after the other.
    pub(crate) local: Vec<Piece>,
    pub(crate) signalled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    pub(crate) damage: Option<Damage>,
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Nop,
    Write { to: Remote, immediate: Option<u32> },
    Read { from: Remote },
    Atomic { at: Remote, atomic: Atomic },
    Send { with: With },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum With {
    Nothing,
    Immediate(u32),
    /// A key of the peer; none of [`Key`] is one that peers may invalidate.
    Invalidate(Key),
}

/// Operands; those of 4 bytes are in the low half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Atomic {
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        add: u64,
    },
    MaskedCompareSwap {
        bytes: u64,
        compare: u64,
        swap: u64,
        compare_mask: u64,
        swap_mask: u64,
    },
    MaskedFetchAdd {
        bytes: u64,
        add: u64,
        boundary: u64,
    },
}

impl Atomic {
    pub(crate) fn bytes(&self) -> u64 {
        match *self {
            Self::CompareSwap { .. } | Self::FetchAdd { .. } => 8,
            Self::MaskedCompareSwap { bytes, .. } | Self::MaskedFetchAdd { bytes, .. } => bytes,
        }
    }
}

/// A place in the peer's memory: `at` bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) key: Key,
    pub(crate) at: u64,
}

/// A piece of own memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) key: Key,
    pub(crate) at: u64,
    pub(crate) bytes: u32,
}

/// A piece of own data.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// It lies in the WQE itself.
    Inline(Vec<u8>),
    Memory(Segment),
}

impl Piece {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Memory(segment) => segment.bytes.into(),
        }
    }

    /// Units of 16 bytes in the WQE.
    fn units(&self) -> u64 {
        match self {
            Self::Inline(bytes) => (4 + bytes.len() as u64).div_ceil(16),
            Self::Memory(_) => 1,
        }
    }
}

/// Keys that each side has for its data memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// All of it, every right.
    All,
    /// [`PART`] of it, every right, at [`PART_IOVA`].
    Part,
    /// The device may only read, as may the peer.
    ReadOnly,
    /// The peer may only write.
    WriteOnly,
    /// The peer may nothing.
    NoRemote,
    /// Of a protection domain that is not the QP's.
    OtherDomain,
    /// Was registered once.
    Gone,
    /// [`Key::All`] with another low byte.
    Stale,
}

impl Key {
    pub(crate) const EVERY: [Self; 8] = [
        Self::All,
        Self::Part,
        Self::ReadOnly,
        Self::WriteOnly,
        Self::NoRemote,
        Self::OtherDomain,
        Self::Gone,
        Self::Stale,
    ];

    /// Rights as verbs count them: local write 1, remote write 2, read 4, atomic 8. `None`: good for nothing.
    pub(crate) fn access(self) -> Option<u32> {
        match self {
            Self::All | Self::Part => Some(15),
            Self::ReadOnly => Some(4),
            Self::WriteOnly => Some(3),
            Self::NoRemote => Some(1),
            Self::OtherDomain | Self::Gone | Self::Stale => None,
        }
    }

    /// Returns the bytes of data memory that it covers.
    pub(crate) fn range(self) -> std::ops::Range<u64> {
        if self == Self::Part { PART } else { 0..MEMORY }
    }
}

/// What is wrong with the bytes of a WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Damage {
    /// An opcode that no device knows.
    Opcode(u8),
    /// An opcode modifier that no masked atomic has.
    OpMod(u8),
    /// An index that is off by so much.
    Index(u16),
    /// Another QP's number.
    Qpn(u32),
    /// `ds` is 0.
    NoSize,
    /// `ds` is 1: the control segment alone.
    Cut,
    /// Inline data says that it is longer than the WQE.
    InlineLength,
}

impl Damage {
    /// Where the next WQE begins is not known.
    pub(crate) fn hides_the_rest(self) -> bool {
        matches!(self, Self::Index(_) | Self::Qpn(_) | Self::NoSize)
    }
}

impl Wqe {
    /// Returns the number by which mlx5 knows the operation.
    pub(crate) fn opcode(&self) -> u8 {
        match (self.damage, &self.operation) {
            (Some(Damage::Opcode(opcode)), _) => opcode,
            (_, Operation::Nop) => 0,
            (
                _,
                Operation::Write {
                    immediate: None, ..
                },
            ) => 8,
            (
                _,
                Operation::Write {
                    immediate: Some(_), ..
                },
            ) => 9,
            (_, Operation::Read { .. }) => 0x10,
            (_, Operation::Atomic { atomic, .. }) => match atomic {
                Atomic::CompareSwap { .. } => 0x11,
                Atomic::FetchAdd { .. } => 0x12,
                Atomic::MaskedCompareSwap { .. } => 0x14,
                Atomic::MaskedFetchAdd { .. } => 0x15,
            },
            (
                _,
                Operation::Send {
                    with: With::Nothing,
                },
            ) => 0xa,
            (
                _,
                Operation::Send {
                    with: With::Immediate(_),
                },
            ) => 0xb,
            (
                _,
                Operation::Send {
                    with: With::Invalidate(_),
                },
            ) => 1,
        }
    }

    /// Units of 16 bytes, as a whole one has.
    pub(crate) fn units(&self) -> u64 {
        let fixed = match &self.operation {
            Operation::Nop => return 1,
            Operation::Write { .. } | Operation::Read { .. } => 2,
            Operation::Atomic {
                atomic: Atomic::MaskedCompareSwap { bytes: 8, .. },
                ..
            } => 4,
            Operation::Atomic { .. } => 3,
            Operation::Send { .. } => 1,
        };
        fixed + self.local.iter().map(Piece::units).sum::<u64>()
    }

    /// Returns the pieces that lie in memory.
    pub(crate) fn segments(&self) -> Vec<Segment> {
        let segment = |piece: &Piece| match piece {
            Piece::Inline(_) => None,
            Piece::Memory(segment) => Some(*segment),
        };
        self.local.iter().filter_map(segment).collect()
    }

    /// Some of its data lies in the WQE itself.
    pub(crate) fn has_inline(&self) -> bool {
        let is_inline = |piece: &Piece| matches!(piece, Piece::Inline(_));
        self.local.iter().any(is_inline)
    }

    /// The operation writes to own memory.
    pub(crate) fn takes_results(&self) -> bool {
        matches!(
            self.operation,
            Operation::Read { .. } | Operation::Atomic { .. }
        )
    }

    /// WQEBBs that it takes in the ring, as the device sees it.
    pub(crate) fn blocks(&self) -> u16 {
        let units = if self.damage == Some(Damage::Cut) {
            1
        } else {
            self.units()
        };
        units.div_ceil(4).try_into().unwrap()
    }
}

/// A line for each thing that is done.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.setup)?;
        for (number, round) in self.rounds.iter().enumerate() {
            let works = match round {
                Round::Batch { side, work } => vec![(*side, work)],
                Round::Both([first, second]) => vec![(0, first), (1, second)],
                other => {
                    writeln!(f, "{number}: {other:x?}")?;
                    continue;
                }
            };
            for (side, work) in works {
                for receive in &work.receives {
                    writeln!(
                        f,
                        "{number}: side {} receives {:x?}",
                        1 - side,
                        receive.segments
                    )?;
                }
                for wqe in &work.wqes {
                    writeln!(f, "{number}: side {side} {wqe:x?}")?;
                }
            }
        }
        Ok(())
    }
}
