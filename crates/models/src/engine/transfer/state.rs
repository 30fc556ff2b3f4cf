//! What the model remembers: the account, slices, workers, QPs, the peer, what the user has seen, and what may still go wrong.

use super::Transfer;
use crate::engine::account::{Account, Fields, Outcome};
use crate::explore::Codec;

pub(super) const SLICES: usize = 4;
pub(super) const WORKERS: usize = 3;

/// Where a slice is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    NotHanded,
    /// A worker has it.
    InHand,
    Posted,
    Landed,
    /// The HCA has reported it as done.
    Completed,
    /// The HCA has reported it as failed.
    Flushed,
    /// Some worker is to post it again.
    ToRetry,
    Done,
    Failed,
}

const PLACES: [Place; 9] = [
    Place::NotHanded,
    Place::InHand,
    Place::Posted,
    Place::Landed,
    Place::Completed,
    Place::Flushed,
    Place::ToRetry,
    Place::Done,
    Place::Failed,
];

impl Place {
    /// Returns whether the WQE of the slice is in a queue of the HCA, or its CQE is not reaped yet.
    pub(super) fn is_with_hca(self) -> bool {
        matches!(
            self,
            Self::Posted | Self::Landed | Self::Completed | Self::Flushed
        )
    }

    /// Returns whether the slice is handed out and not finished.
    pub(super) fn is_under_way(self) -> bool {
        self.is_with_hca() || matches!(self, Self::InHand | Self::ToRetry)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) place: Place,
    /// The worker that has it or had it last, and so the QP.
    pub(super) worker: u8,
    /// 1 + the QP that still has packets of an earlier try under way, or 0.
    pub(super) packets: u8,
}

impl Slice {
    pub(super) fn waits_for_retry(&self) -> bool {
        self.place == Place::ToRetry
    }
}

/// What a worker does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    Pull,
    Post,
    /// The rest of its chain was refused for good.
    Refused,
    Conclude,
    Tell,
    /// A mutant's: the account was read and is written next.
    Late,
    /// It has panicked.
    Dead,
}

const AT: [At; 7] = [
    At::Pull,
    At::Post,
    At::Refused,
    At::Conclude,
    At::Tell,
    At::Late,
    At::Dead,
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Worker {
    pub(super) at: At,
    /// The slices that it has in hand.
    pub(super) first: u8,
    pub(super) count: u8,
    /// Store buffer: a cause that is not visible yet, or 0.
    pub(super) cause: u8,
    /// Store buffer of a mutant: 1 + the expected count, or 0.
    pub(super) expected: u8,
    /// What it concludes; between two conclusions what the account said last, as in the reference.
    pub(super) outcome: Option<Outcome>,
}

impl Worker {
    /// It goes on at `at` with nothing in hand; its stores stay where they are.
    pub(super) fn goes(&mut self, at: At, outcome: Option<Outcome>) {
        *self = Self {
            at,
            first: 0,
            count: 0,
            outcome,
            ..*self
        };
    }

    /// It goes to post these.
    pub(super) fn takes(&mut self, first: u8, count: u8) {
        self.goes(At::Post, None);
        (self.first, self.count) = (first, count);
    }

    pub(super) fn hand(self) -> std::ops::Range<usize> {
        usize::from(self.first)..usize::from(self.first + self.count)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Qp {
    /// The two ends have agreed on fewer.
    #[default]
    None,
    Ready,
    /// Ready, as far as workers know, and nothing of it moves.
    Stalled,
    /// In the error state; packets of before may still land.
    Error,
    /// Both ends have reset the pair.
    Fenced,
}

const QPS: [Qp; 5] = [Qp::None, Qp::Ready, Qp::Stalled, Qp::Error, Qp::Fenced];

impl Qp {
    /// It takes slices.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Stalled)
    }
}

/// What this side knows of the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Peer {
    #[default]
    Reachable,
    /// It answers nothing any more; packets may still land in its memory.
    Lost,
    /// This side has noticed, and waits for no answer.
    GivenUp,
}

const PEERS: [Peer; 3] = [Peer::Reachable, Peer::Lost, Peer::GivenUp];

/// What the other side does when it has lost this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Remote {
    #[default]
    There,
    /// Its QPs to this side are reset.
    Reset,
    /// Its program has learned that this side is gone, and uses the memory for something else.
    Told,
    /// A mutant's: the same, and its QPs are not reset yet.
    ToldEarly,
}

const REMOTES: [Remote; 4] = [
    Remote::There,
    Remote::Reset,
    Remote::Told,
    Remote::ToldEarly,
];

/// How far the notice is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Notice {
    #[default]
    No,
    Sent,
    There,
}

const NOTICES: [Notice; 3] = [Notice::No, Notice::Sent, Notice::There];

/// What the user has of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    /// The status was polled.
    pub(super) has_seen: bool,
    pub(super) status: Option<Outcome>,
    /// Result fields; 0: not written.
    pub(super) cause: u8,
    /// How often it was concluded.
    pub(super) concluded: u8,
    /// The report says `remote: unknown`: bytes may still land at the other end.
    pub(super) is_remote_unknown: bool,
    pub(super) notice: Notice,
}

/// The steps that remain after a cancel or a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closer {
    #[default]
    Nothing,
    /// A mutant's: the closer has stored the new count, and looks next.
    Looks,
    /// It has settled the account; some worker concludes.
    LeftToWorker,
}

const CLOSERS: [Closer; 3] = [Closer::Nothing, Closer::Looks, Closer::LeftToWorker];

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what may still go wrong, each by itself"
)]
pub struct State<A> {
    pub(super) account: A,
    pub(super) slices: [Slice; SLICES],
    pub(super) workers: [Worker; WORKERS],
    pub(super) qps: [Qp; WORKERS],
    pub(super) peer: Peer,
    pub(super) remote: Remote,
    pub(super) user: User,
    pub(super) closer: Closer,
    /// Left of what may go wrong.
    pub(super) retries: u8,
    pub(super) qp_failures: u8,
    pub(super) reuses: u8,
    pub(super) stalls: u8,
    pub(super) panics: u8,
    pub(super) post_fails: bool,
    pub(super) peer_is_lost: bool,
    pub(super) cancel: bool,
    pub(super) deadline: bool,
    /// A mutant's: the one look after the grace is still to come.
    pub(super) looks: bool,
    /// A mutant's: how many slices are to be finished, in a word of its own.
    pub(super) expected: u8,
}

impl<A: Account> Transfer<A> {
    pub(super) fn begin(&self) -> State<A> {
        let mut qps = [Qp::None; WORKERS];
        qps[..usize::from(self.qps)].fill(Qp::Ready);
        State {
            account: A::of(Fields::default()),
            slices: [Slice::default(); SLICES],
            workers: [Worker::default(); WORKERS],
            qps,
            peer: Peer::default(),
            remote: Remote::default(),
            user: User::default(),
            closer: Closer::default(),
            retries: self.retries,
            qp_failures: self.qp_failures,
            reuses: self.reuses,
            stalls: self.stalls,
            panics: self.panics,
            post_fails: self.post_fails,
            peer_is_lost: self.peer_is_lost,
            cancel: self.cancel,
            deadline: self.deadline,
            looks: true,
            expected: self.slices,
        }
    }

    pub(super) fn slices<'a>(&self, state: &'a State<A>) -> &'a [Slice] {
        &state.slices[..usize::from(self.slices)]
    }
}

impl<A: Account> State<A> {
    pub(super) fn has_open_qp(&self) -> bool {
        self.qps.iter().any(|qp| qp.is_open())
    }

    pub(super) fn is_dead(&self, worker: usize) -> bool {
        self.workers[worker].at == At::Dead
    }

    pub(super) fn code(&mut self, codec: &mut impl Codec) {
        self.account = coded_account(self.account, codec);
        for slice in &mut self.slices {
            choice(&mut slice.place, &PLACES, codec);
            codec.byte(&mut slice.worker, 2);
            codec.byte(&mut slice.packets, 2);
        }
        for worker in &mut self.workers {
            choice(&mut worker.at, &AT, codec);
            for (field, bits) in [
                (&mut worker.first, 3),
                (&mut worker.count, 3),
                (&mut worker.cause, 2),
                (&mut worker.expected, 3),
            ] {
                codec.byte(field, bits);
            }
            choice(&mut worker.outcome, &OUTCOMES, codec);
        }
        for qp in &mut self.qps {
            choice(qp, &QPS, codec);
        }
        choice(&mut self.peer, &PEERS, codec);
        choice(&mut self.remote, &REMOTES, codec);
        code_user(&mut self.user, codec);
        choice(&mut self.closer, &CLOSERS, codec);
        for count in [
            &mut self.retries,
            &mut self.qp_failures,
            &mut self.reuses,
            &mut self.stalls,
            &mut self.panics,
        ] {
            codec.byte(count, 2);
        }
        for flag in [
            &mut self.post_fails,
            &mut self.peer_is_lost,
            &mut self.cancel,
            &mut self.deadline,
            &mut self.looks,
        ] {
            codec.flag(flag);
        }
        codec.byte(&mut self.expected, 3);
    }
}

const OUTCOMES: [Option<Outcome>; 5] = [
    None,
    Some(Outcome::Done),
    Some(Outcome::Failed),
    Some(Outcome::Cancelled),
    Some(Outcome::TimedOut),
];

/// One of `all`, by its place among them.
fn choice<T: Copy + PartialEq, const N: usize>(
    value: &mut T,
    all: &[T; N],
    codec: &mut impl Codec,
) {
    let place = all.iter().position(|one| one == value);
    let mut place = u8::try_from(place.expect("one of all")).unwrap();
    codec.byte(&mut place, usize::BITS - (N - 1).leading_zeros());
    *value = all[usize::from(place)];
}

fn coded_account<A: Account>(account: A, codec: &mut impl Codec) -> A {
    let mut fields = account.fields();
    for count in [&mut fields.handed, &mut fields.finished] {
        let mut small = u8::try_from(*count).unwrap();
        codec.byte(&mut small, 3);
        *count = u32::from(small);
    }
    for flag in [
        &mut fields.closed,
        &mut fields.failed,
        &mut fields.cancelled,
        &mut fields.timed_out,
    ] {
        codec.flag(flag);
    }
    A::of(fields)
}

fn code_user(user: &mut User, codec: &mut impl Codec) {
    codec.flag(&mut user.has_seen);
    choice(&mut user.status, &OUTCOMES, codec);
    codec.byte(&mut user.cause, 2);
    codec.byte(&mut user.concluded, 2);
    codec.flag(&mut user.is_remote_unknown);
    choice(&mut user.notice, &NOTICES, codec);
}
