//! What the model remembers: the account, slices, workers, QPs, what the user has seen, and what may still go wrong.

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
    /// Its WQE is in a queue of the HCA, or its CQE is not reaped yet.
    pub(super) fn is_with_hca(self) -> bool {
        matches!(
            self,
            Self::Posted | Self::Landed | Self::Completed | Self::Flushed
        )
    }

    /// It is handed out and not finished.
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
}

const AT: [At; 6] = [
    At::Pull,
    At::Post,
    At::Refused,
    At::Conclude,
    At::Tell,
    At::Late,
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
    /// In the error state; packets of before may still land.
    Error,
    /// Both ends have reset the pair.
    Fenced,
}

const QPS: [Qp; 4] = [Qp::None, Qp::Ready, Qp::Error, Qp::Fenced];

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
    pub(super) notice: Notice,
}

/// How far a cancel is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Cancel {
    #[default]
    No,
    /// It comes at any moment.
    Ahead,
    /// A mutant's: the closer has stored the new count, and looks next.
    Looks,
    /// It has settled the account; some worker concludes.
    LeftToWorker,
}

const CANCELS: [Cancel; 4] = [
    Cancel::No,
    Cancel::Ahead,
    Cancel::Looks,
    Cancel::LeftToWorker,
];

/// Everything that a step may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State<A> {
    pub(super) account: A,
    pub(super) slices: [Slice; SLICES],
    pub(super) workers: [Worker; WORKERS],
    pub(super) qps: [Qp; WORKERS],
    pub(super) user: User,
    /// Left of what may go wrong.
    pub(super) retries: u8,
    pub(super) qp_fails: bool,
    pub(super) post_fails: bool,
    pub(super) cancel: Cancel,
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
            user: User::default(),
            retries: self.retries,
            qp_fails: self.qp_fails,
            post_fails: self.post_fails,
            cancel: match self.cancel {
                true => Cancel::Ahead,
                false => Cancel::No,
            },
            expected: self.slices,
        }
    }

    pub(super) fn slices<'a>(&self, state: &'a State<A>) -> &'a [Slice] {
        &state.slices[..usize::from(self.slices)]
    }
}

impl<A: Account> State<A> {
    pub(super) fn has_ready_qp(&self) -> bool {
        self.qps.contains(&Qp::Ready)
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
        code_user(&mut self.user, codec);
        codec.byte(&mut self.retries, 2);
        codec.flag(&mut self.qp_fails);
        codec.flag(&mut self.post_fails);
        choice(&mut self.cancel, &CANCELS, codec);
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
    choice(&mut user.notice, &NOTICES, codec);
}
