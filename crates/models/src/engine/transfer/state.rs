//! What the model remembers: the account, slices, workers, QPs, the peer, what the user has seen, and what may still go wrong.

use super::configurations::Transfer;
use crate::engine::account::{Account, Fields, Outcome};
use crate::explore::Codec;

pub(super) const SLICES: usize = 4;
pub(super) const WORKERS: usize = 3;

/// The state of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    NotHanded,
    /// A worker has taken the slice.
    InHand,
    Posted,
    Landed,
    /// The HCA has reported the slice as done.
    Completed,
    /// The HCA has reported the slice as failed.
    Flushed,
    /// Some worker is to post the slice again.
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
    /// The worker that has the slice or had it last. Its QP has the same number.
    pub(super) worker: u8,
    /// 1 + the number of the QP that still has packets of an earlier try under way, or 0.
    pub(super) packets: u8,
}

impl Slice {
    pub(super) fn waits_for_retry(&self) -> bool {
        self.place == Place::ToRetry
    }
}

/// The next step of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    Pull,
    Post,
    /// The rest of the worker's chain was refused for good.
    Refused,
    Conclude,
    Tell,
    /// Only in a mutant: the worker has read the account and writes it next.
    Late,
    /// The worker has panicked.
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
    /// The slices that the worker has in hand: the first, and how many.
    pub(super) first: u8,
    pub(super) count: u8,
    /// The store buffer: a cause that is not visible yet, or 0.
    pub(super) cause: u8,
    /// The store buffer of a mutant: 1 + the expected count, or 0.
    pub(super) expected: u8,
    /// The outcome with which the worker concludes. Between two conclusions it is what the account said last, as in the reference
    /// implementation.
    pub(super) outcome: Option<Outcome>,
}

impl Worker {
    /// Lets the worker go on at `at` with nothing in hand. Its store buffer stays as it is.
    pub(super) fn goes(&mut self, at: At, outcome: Option<Outcome>) {
        *self = Self {
            at,
            first: 0,
            count: 0,
            outcome,
            ..*self
        };
    }

    /// Lets the worker go on to post these slices.
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
    /// The two ends have agreed on fewer QPs, so this one does not exist.
    #[default]
    None,
    Ready,
    /// The QP is ready, as far as workers know, but moves nothing.
    Stalled,
    /// The QP is in the error state. Packets sent before may still land.
    Error,
    /// Both ends have reset the pair.
    Fenced,
}

const QPS: [Qp; 5] = [Qp::None, Qp::Ready, Qp::Stalled, Qp::Error, Qp::Fenced];

impl Qp {
    /// Returns whether the QP takes slices.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Ready | Self::Stalled)
    }
}

/// What this side knows of the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Peer {
    #[default]
    Reachable,
    /// The peer answers nothing any more. Packets may still land in its memory.
    Lost,
    /// This side has noticed that the peer is lost, and waits for no answer.
    GivenUp,
}

const PEERS: [Peer; 3] = [Peer::Reachable, Peer::Lost, Peer::GivenUp];

/// What the other side has done since it lost this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Remote {
    #[default]
    There,
    /// The other side has reset its QPs to this side.
    Reset,
    /// The program of the other side has learned that this side is gone, and uses the memory for something else.
    Told,
    /// Only in a mutant: the program has learned that, though the QPs are not reset yet.
    ToldEarly,
}

const REMOTES: [Remote; 4] = [
    Remote::There,
    Remote::Reset,
    Remote::Told,
    Remote::ToldEarly,
];

/// How far the notice is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Notice {
    #[default]
    No,
    Sent,
    There,
}

const NOTICES: [Notice; 3] = [Notice::No, Notice::Sent, Notice::There];

/// What the user can see of the transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    /// True if the user has polled the status.
    pub(super) has_seen: bool,
    pub(super) status: Option<Outcome>,
    /// The written result fields; 0: none is written.
    pub(super) cause: u8,
    /// How often the transfer was concluded.
    pub(super) concluded: u8,
    /// True if the report says `remote: unknown`: bytes may still land at the other end.
    pub(super) is_remote_unknown: bool,
    pub(super) notice: Notice,
}

/// The steps that remain after a cancel or a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Closer {
    #[default]
    Nothing,
    /// Only in a mutant: the closer has stored the new count, and looks next.
    Looks,
    /// The closer has settled the account, and some worker concludes.
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
    /// How often each kind of failure may still happen.
    pub(super) retries: u8,
    pub(super) qp_failures: u8,
    pub(super) reuses: u8,
    pub(super) stalls: u8,
    pub(super) panics: u8,
    pub(super) post_fails: bool,
    pub(super) peer_is_lost: bool,
    pub(super) cancel: bool,
    pub(super) deadline: bool,
    /// Only in a mutant: whether the one look after the grace is still to come.
    pub(super) looks: bool,
    /// Only in a mutant: the number of slices to be finished, in a word of its own.
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

/// Codes a value of `all`, by its index.
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
