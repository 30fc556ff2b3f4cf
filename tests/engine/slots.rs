//! Ids of transfers: the model runs on the runtime's word, and no id ever gets the outcome of another transfer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use models::engine::account as model;
use models::engine::slots::{self, Held, Parts};
use models::explore::search;
use warpverbs::internal::engine::{
    EngineError, MOST_SLOTS, Outcome, SlotWord, Slots, Status, TransferId,
};

/// The runtime's word as the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Word(SlotWord);

impl slots::SlotWord for Word {
    /// By the transitions that lead to it.
    fn of(parts: Parts) -> Self {
        let mut word = SlotWord::default();
        for generation in 1..=parts.generation {
            word = word.take().expect("it is free");
            if generation < parts.generation {
                let ended = word.conclude(Outcome::Done).expect("it is pending");
                word = ended.release(generation).expect("it is concluded");
            }
        }
        if let Held::Ended(outcome) = parts.held {
            word = word.conclude(of_model(outcome)).expect("it is pending");
        }
        assert_eq!(
            slots::SlotWord::parts(Self(word)),
            parts,
            "no transitions lead there"
        );
        Self(word)
    }

    fn parts(self) -> Parts {
        let generation = self.0.generation();
        let held = match self.0.poll(generation) {
            Status::Pending => Held::Pending,
            Status::Concluded(outcome) => Held::Ended(to_model(outcome)),
            Status::Unknown => Held::Free,
        };
        Parts { generation, held }
    }

    fn take(self) -> Option<Self> {
        self.0.take().map(Self)
    }

    fn conclude(self, outcome: model::Outcome) -> Option<Self> {
        self.0.conclude(of_model(outcome)).map(Self)
    }

    fn release(self, generation: u64) -> Option<Self> {
        self.0.release(generation).map(Self)
    }

    fn poll(self, generation: u64) -> slots::Status {
        match self.0.poll(generation) {
            Status::Pending => slots::Status::Pending,
            Status::Concluded(outcome) => slots::Status::Ended(to_model(outcome)),
            Status::Unknown => slots::Status::Unknown,
        }
    }
}

fn of_model(outcome: model::Outcome) -> Outcome {
    match outcome {
        model::Outcome::Done => Outcome::Done,
        model::Outcome::Failed => Outcome::Failed,
        model::Outcome::Cancelled => Outcome::Cancelled,
        model::Outcome::TimedOut => Outcome::TimedOut,
    }
}

fn to_model(outcome: Outcome) -> model::Outcome {
    match outcome {
        Outcome::Done => model::Outcome::Done,
        Outcome::Failed => model::Outcome::Failed,
        Outcome::Cancelled => model::Outcome::Cancelled,
        Outcome::TimedOut => model::Outcome::TimedOut,
    }
}

#[test]
fn the_model_of_ids_holds_on_the_word_of_the_runtime() {
    let slot = slots::three_uses::<Word>();
    let found = search(&slot);
    assert!(found.violation.is_none(), "{:?}", found.violation);
    assert_eq!(Some(found.states), slot.states);
}

const OUTCOMES: [Outcome; 4] = [
    Outcome::Done,
    Outcome::Failed,
    Outcome::Cancelled,
    Outcome::TimedOut,
];

#[test]
fn polling_changes_nothing_and_a_released_id_is_unknown() {
    let slots = Slots::new(7, 1).unwrap();
    for outcome in OUTCOMES {
        let id = slots.take().unwrap();
        assert_eq!(slots.take(), None, "the only slot is out");
        for _ in 0..2 {
            assert_eq!(slots.poll(id), Ok(Status::Pending));
        }
        assert_eq!(slots.release(id), Err(EngineError::Pending { id }));
        assert_eq!(slots.conclude(id, outcome), Ok(true));
        assert_eq!(slots.conclude(id, Outcome::Done), Ok(false), "once");
        for _ in 0..2 {
            assert_eq!(slots.poll(id), Ok(Status::Concluded(outcome)));
        }
        for _ in 0..2 {
            assert_eq!(slots.release(id), Ok(()));
            assert_eq!(slots.poll(id), Ok(Status::Unknown));
        }
        assert_eq!(slots.conclude(id, Outcome::Done), Ok(false), "released");
        assert_eq!(slots.in_use(), 0);
    }
}

#[test]
fn an_id_of_another_engine_is_refused_by_every_call() {
    let [one, other] = [1, 2].map(|engine| Slots::new(engine, 4).unwrap());
    let id = one.take().unwrap();
    let own = other.take().unwrap();
    let refused = EngineError::ForeignId { id, engine: 2 };
    assert_eq!(other.poll(id), Err(refused.clone()));
    assert_eq!(other.conclude(id, Outcome::Done), Err(refused.clone()));
    assert_eq!(other.release(id), Err(refused));
    assert_eq!(other.poll(own), Ok(Status::Pending));
}

#[test]
fn an_engine_has_one_slot_or_more_up_to_its_limit() {
    for count in [0, MOST_SLOTS + 1, u32::MAX] {
        let refused = Slots::new(0, count).unwrap_err();
        assert_eq!(refused, EngineError::Slots { count });
        assert!(refused.to_string().contains("1 to 65536"), "{refused}");
    }
    let slots = Slots::new(0, MOST_SLOTS).unwrap();
    let ids: Vec<TransferId> = std::iter::from_fn(|| slots.take()).collect();
    assert_eq!(ids.len(), MOST_SLOTS as usize);
    let mut numbers: Vec<u32> = ids.iter().map(|id| id.slot()).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..MOST_SLOTS));
}

/// Few slots, used again and again: every id that was ever given out gets the outcome of its own transfer.
#[test]
fn old_ids_get_the_end_of_their_own_transfer_only() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let slots = Slots::new(3, 5).unwrap();
    let mut known: VecDeque<(TransferId, Status)> = VecDeque::new();
    for step in 0..200_000 {
        let place = format!("seed {seed}, step {step}");
        if random.u32(0..4) == 0 {
            let pending = known
                .iter()
                .filter(|(_, status)| *status != Status::Unknown);
            let has_room = pending.count() < 5;
            let taken = slots.take();
            assert_eq!(taken.is_some(), has_room, "{place}");
            known.extend(taken.map(|id| (id, Status::Pending)));
        }
        if known.is_empty() {
            continue;
        }
        let which = random.usize(0..known.len());
        let (id, status) = &mut known[which];
        match random.u32(0..3) {
            0 => {
                let outcome = OUTCOMES[random.usize(0..4)];
                let is_first = *status == Status::Pending;
                assert_eq!(slots.conclude(*id, outcome), Ok(is_first), "{place}");
                if is_first {
                    *status = Status::Concluded(outcome);
                }
            }
            1 => {
                let expected = match *status {
                    Status::Pending => Err(EngineError::Pending { id: *id }),
                    _ => Ok(()),
                };
                assert_eq!(slots.release(*id), expected, "{place}");
                if expected.is_ok() {
                    *status = Status::Unknown;
                }
            }
            _ => {}
        }
        assert_eq!(slots.poll(*id), Ok(*status), "{place}");
        if known.len() > 64 && known[0].1 == Status::Unknown {
            known.pop_front();
        }
    }
}

/// Two threads use the slots while two others poll the ids that were given out last.
#[test]
fn a_polled_id_changes_only_to_unknown_while_its_slot_is_used_again() {
    let slots = Slots::new(9, 2).unwrap();
    let rounds = AtomicU64::new(0);
    let last: [std::sync::Mutex<Option<(TransferId, Outcome)>>; 2] = Default::default();
    let uses = |place: usize| {
        for round in 0..20_000usize {
            let Some(id) = slots.take() else { continue };
            let outcome = OUTCOMES[(round + place) % 4];
            *last[place].lock().unwrap() = Some((id, outcome));
            assert_eq!(slots.conclude(id, outcome), Ok(true));
            assert_eq!(slots.release(id), Ok(()));
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    };
    let polls = || {
        for round in 0..20_000 {
            let Some((id, outcome)) = *last[round % 2].lock().unwrap() else {
                continue;
            };
            let mut before = Status::Pending;
            for _ in 0..3 {
                let status = slots.poll(id).unwrap();
                let expected = match before {
                    Status::Pending => true,
                    Status::Concluded(_) => status != Status::Pending,
                    Status::Unknown => status == Status::Unknown,
                };
                assert!(expected, "{id:?} was {before:?}, is {status:?}");
                let is_own = !matches!(status, Status::Concluded(other) if other != outcome);
                assert!(is_own, "{id:?} ended {outcome:?}, is {status:?}");
                before = status;
            }
        }
    };
    thread::scope(|scope| {
        for place in 0..2 {
            scope.spawn(move || uses(place));
            scope.spawn(polls);
        }
    });
    assert!(rounds.into_inner() > 0);
    assert_eq!(slots.in_use(), 0);
}
