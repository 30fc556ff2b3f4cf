//! Programs that once went wrong, in their smallest form.

use super::program::{
    Damage, Key, MEMORY, Operation, Piece, Program, Receive, Remote, Rights, Round, Segment, Setup,
    With, Work, Wqe,
};

/// Over packets, one batch after the other; the sides take turns as listed.
fn program(batches: Vec<(usize, Vec<Receive>, Vec<Wqe>)>) -> Program {
    let all = Rights {
        write: true,
        read: true,
        atomic: true,
    };
    let batch = |(side, receives, wqes)| Round::Batch {
        side,
        work: Work { receives, wqes },
    };
    Program {
        setup: Setup {
            loopback: false,
            strict: true,
            schedule_seed: None,
            mtu: 3,
            latency_ns: 1000,
            psn: 7,
            rnr_retry: 1,
            rights: [all; 2],
            start: 0,
        },
        rounds: batches.into_iter().map(batch).collect(),
    }
}

fn wqe(operation: Operation, segments: Vec<Segment>) -> Wqe {
    Wqe {
        operation,
        local: segments.into_iter().map(Piece::Memory).collect(),
        signalled: true,
        solicited: false,
        fence: false,
        damage: None,
    }
}

fn piece(at: u64, bytes: u32) -> Segment {
    Segment {
        key: Key::All,
        at,
        bytes,
    }
}

fn remote(at: u64) -> Remote {
    Remote { key: Key::All, at }
}

fn read(bytes: u32) -> Wqe {
    wqe(
        Operation::Read {
            from: remote(0x100),
        },
        vec![piece(0x4000, bytes)],
    )
}

fn write(to: Remote) -> Wqe {
    wqe(
        Operation::Write {
            to,
            immediate: None,
        },
        vec![piece(0, 64)],
    )
}

/// Ends beyond the side's memory.
fn nowhere(bytes: u32) -> Segment {
    piece(MEMORY - 8, bytes)
}

/// Returns a WQE that makes no sense fails after the READ before it, which is not answered yet.
pub(crate) fn nonsense_behind_a_read() -> Program {
    let nonsense = Wqe {
        damage: Some(Damage::Opcode(0x2f)),
        ..read(8)
    };
    program(vec![(0, vec![], vec![read(9000), nonsense, read(8)])])
}

/// So does one that is not where it should be.
pub(crate) fn a_stray_behind_a_read() -> Program {
    let stray = Wqe {
        damage: Some(Damage::Index(5)),
        ..read(8)
    };
    program(vec![(0, vec![], vec![read(9000), stray, read(8)])])
}

/// A READ that was accepted is answered though the request after it is refused.
pub(crate) fn a_refusal_behind_a_read() -> Program {
    program(vec![(
        0,
        vec![],
        vec![read(9000), write(remote(MEMORY)), read(8)],
    )])
}

/// A receive WQE that holds half a message is flushed with the others.
pub(crate) fn half_a_message() -> Program {
    let send = wqe(
        Operation::Send {
            with: With::Nothing,
        },
        vec![piece(0, 2000), nowhere(100)],
    );
    let receive = || Receive {
        segments: vec![piece(0x2000, 4000)],
    };
    program(vec![
        (0, vec![receive(), receive()], vec![send]),
        (1, vec![], vec![write(remote(0))]),
    ])
}

/// Returns what is after a fenced NOP starts after the READ before it, which fails.
pub(crate) fn a_fenced_nop() -> Program {
    let fails = wqe(
        Operation::Read {
            from: remote(0x100),
        },
        vec![piece(0x4000, 8), nowhere(100)],
    );
    let nop = Wqe {
        fence: true,
        ..wqe(Operation::Nop, vec![])
    };
    program(vec![(0, vec![], vec![fails, nop, write(remote(0x3000))])])
}

/// Returns a message of inline data and segments in turns, of several packets, whose last segment has no memory after it.
pub(crate) fn half_a_mixed_message() -> Program {
    let inline = |byte: u8| Piece::Inline(vec![byte; 100]);
    let send = Wqe {
        local: vec![
            inline(1),
            Piece::Memory(piece(0, 2000)),
            inline(2),
            Piece::Memory(nowhere(100)),
        ],
        ..wqe(
            Operation::Send {
                with: With::Nothing,
            },
            vec![],
        )
    };
    let receive = Receive {
        segments: vec![piece(0x2000, 4000)],
    };
    program(vec![(0, vec![receive], vec![send, read(8)])])
}

/// Returns a peer that does not answer: its HCA has no connected QP at all.
pub(crate) fn silence() -> Program {
    let mut program = program(vec![(0, vec![], vec![read(8), write(remote(0))])]);
    program.rounds.insert(0, Round::Silence { side: 1 });
    program
}
