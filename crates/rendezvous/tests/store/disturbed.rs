//! A store that delays its calls, holds them, lets changes happen late, and loses answers; and what stores promise through it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use rendezvous::{
    AroundStore, Known, LeaseId, Patient, Store, StoreAnswer, StoreCall, StoreCallKind, StoreError,
};
use test_basics::limits::HANG;

use crate::conformance::on_each;

/// What happens to calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Shortest delay of a call.
    pub(crate) least: Duration,
    /// Longest delay beyond that.
    pub(crate) delay: Duration,
    /// Of 100 calls, how many are not answered, each in one of four ways.
    pub(crate) lost: u32,
}

/// The way to a store, with faults.
#[derive(Clone, Debug)]
pub(crate) struct Disturbed {
    store: Arc<dyn Store>,
    faults: Faults,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    random: Mutex<fastrand::Rng>,
    /// Changes that are under way. Each holds only at the revision of its key that was looked at before.
    late: Mutex<Vec<Late>>,
    held: Mutex<bool>,
    released: Condvar,
    /// Calls that were begun.
    begun: AtomicU32,
}

#[derive(Debug)]
struct Late {
    call: StoreCall<'static>,
    seen: u64,
}

/// How a change ends.
#[derive(Clone, Copy)]
enum End {
    Answered,
    /// It is not sent.
    NotSent,
    /// It is lost on its way.
    LostBefore,
    /// Its answer is lost.
    LostAfter,
    /// It is made when other calls have passed it.
    Later,
}

impl Disturbed {
    pub(crate) fn new(store: Arc<dyn Store>, faults: Faults, seed: u64) -> Self {
        let shared = Shared {
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            late: Mutex::default(),
            held: Mutex::default(),
            released: Condvar::new(),
            begun: AtomicU32::new(0),
        };
        Self {
            store,
            faults,
            shared: Arc::new(shared),
        }
    }

    /// Holds all calls that begin from now on, or lets them go.
    fn hold(&self, held: bool) {
        *self.shared.held.lock().unwrap() = held;
        self.shared.released.notify_all();
    }

    /// Delays or holds a call, and makes late changes now and then.
    fn begin(&self) {
        self.shared.begun.fetch_add(1, Ordering::SeqCst);
        let held = self.shared.held.lock().unwrap();
        drop(self.shared.released.wait_while(held, |held| *held).unwrap());
        thread::sleep(self.faults.least);
        let most = u64::try_from(self.faults.delay.as_micros()).unwrap();
        if most != 0 {
            let delay = self.shared.random.lock().unwrap().u64(..=most);
            thread::sleep(Duration::from_micros(delay));
        }
        if self.shared.random.lock().unwrap().u32(..4) == 0 {
            self.arrive();
        }
    }

    /// The changes that are under way arrive.
    fn arrive(&self) {
        let mut late = self.shared.late.lock().unwrap();
        for Late { call, seen } in late.drain(..) {
            if self.revision(call.key()) == seen {
                drop(call.make(self.store.as_ref()));
            }
        }
    }

    fn revision(&self, key: &str) -> u64 {
        let found = self.store.changed_since(&[key], None, 0).unwrap();
        found.entries.first().map_or(0, |entry| entry.revision)
    }

    fn end(&self) -> End {
        let mut random = self.shared.random.lock().unwrap();
        if random.u32(..100) >= self.faults.lost {
            return End::Answered;
        }
        [End::NotSent, End::LostBefore, End::LostAfter, End::Later][random.usize(..4)]
    }

    fn read(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        self.begin();
        match self.end() {
            End::Answered => call.make(self.store.as_ref()),
            _ => Err(not_sent()),
        }
    }

    fn change(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        self.begin();
        // A late change and one of another thread are not made at once: the store itself keeps that, by the revision.
        let mut late = self.shared.late.lock().unwrap();
        let end = self.end();
        if matches!(end, End::Answered) {
            return call.make(self.store.as_ref());
        }
        let seen = self.revision(call.key());
        match end {
            End::Answered | End::NotSent => return Err(not_sent()),
            End::LostBefore => {}
            End::LostAfter => drop(call.make(self.store.as_ref())),
            End::Later => late.push(Late {
                call: call.clone().into_owned(),
                seen,
            }),
        }
        Err(no_answer(seen))
    }

    /// Returns a change of a lease or of a folder: it is made at once or not at all.
    fn change_at_once(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        self.begin();
        match self.end() {
            End::Answered => return call.make(self.store.as_ref()),
            End::NotSent => return Err(not_sent()),
            End::LostBefore => {}
            End::LostAfter | End::Later => drop(call.make(self.store.as_ref())),
        }
        Err(no_answer(self.revision(call.key())))
    }
}

fn no_answer(seen: u64) -> StoreError {
    StoreError::NoAnswer {
        store: "disturbed".to_owned(),
        waited: Duration::ZERO,
        seen,
        cause: "planted".to_owned(),
    }
}

fn not_sent() -> StoreError {
    StoreError::Unreachable {
        store: "disturbed".to_owned(),
        waited: Duration::ZERO,
        cause: "planted".to_owned(),
    }
}

impl AroundStore for Disturbed {
    fn inner(&self) -> &dyn Store {
        self.store.as_ref()
    }

    fn with_bound(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            ..self.clone()
        })
    }

    fn around(&self, call: &StoreCall<'_>) -> Result<StoreAnswer, StoreError> {
        match call.kind {
            StoreCallKind::Put
            | StoreCallKind::CompareAndSet
            | StoreCallKind::Remove
            | StoreCallKind::PutLeased { .. } => self.change(call),
            _ if call.reads() => self.read(call),
            _ => self.change_at_once(call),
        }
    }
}

const LOSSY: Faults = Faults {
    least: Duration::ZERO,
    delay: Duration::ZERO,
    lost: 40,
};

/// Runs `check` on each store through faults, with a few seeds.
fn with_faults(check: impl Fn(&Disturbed, &str, &mut fastrand::Rng)) {
    on_each(|store| {
        for round in 0..3 {
            let seed = fastrand::u64(..);
            eprintln!("seed {seed}");
            let disturbed = Disturbed::new(Arc::clone(&store), LOSSY, seed);
            let mut random = fastrand::Rng::with_seed(!seed);
            check(&disturbed, &format!("round-{round}"), &mut random);
        }
    });
}

/// What one key can be, by the answers to its only writer.
#[derive(Debug, Default)]
struct Possible {
    now: Option<Vec<u8>>,
    pending: Vec<Pending>,
}

/// A change that may be made at any time, while the key is as it was when the change was sent.
#[derive(Debug)]
struct Pending {
    value: Option<Vec<u8>>,
    /// The key was not set, as it may be again: a key that is not set has no revision.
    on_nothing: bool,
}

impl Possible {
    /// It was changed by what was sent after the first `sent` pending changes, which do nothing at its new revision.
    fn is(&mut self, value: Option<Vec<u8>>, sent: usize) {
        self.now = value;
        let before = self
            .pending
            .drain(..sent)
            .filter(|before| before.on_nothing);
        let before: Vec<Pending> = before.collect();
        self.pending.splice(..0, before);
    }

    /// It was found so.
    fn found(&mut self, value: Option<Vec<u8>>) {
        if value != self.now {
            let made = self.pending.iter().position(|made| made.value == value);
            let made = made.unwrap_or_else(|| panic!("{value:?}: {self:?}"));
            // Those after it may have been sent when the key was so already.
            self.is(value, made + 1);
        }
    }

    fn told(&mut self, result: Result<bool, StoreError>, value: Option<Vec<u8>>) {
        match result {
            Ok(true) => self.is(value, self.pending.len()),
            // It was not as expected, since something pending was made.
            Ok(false) => assert!(!self.pending.is_empty() || self.now.is_none(), "{self:?}"),
            Err(error) if error.known() == Known::Unknown => self.pending.push(Pending {
                value,
                // Pending changes may have removed it.
                on_nothing: self.now.is_none()
                    || self.pending.iter().any(|pending| pending.value.is_none()),
            }),
            Err(error) => assert!(error.is_unanswered(), "{error}"),
        }
    }
}

#[test]
fn a_writer_and_readers_agree_on_its_changes() {
    with_faults(|store, folder, random| {
        let mut keys: BTreeMap<String, Possible> = BTreeMap::new();
        for step in 0..200u32 {
            let key = format!("{folder}/{}", random.u32(..3));
            let possible = keys.entry(key.clone()).or_default();
            let value = step.to_string().into_bytes();
            match random.u32(..4) {
                0 => {
                    let put = store.put(&key, &value).map(|()| true);
                    possible.told(put, Some(value));
                }
                1 => {
                    let set = store.compare_and_set(&key, possible.now.as_deref(), &value);
                    if let Ok(false) = set {
                        assert!(!possible.pending.is_empty(), "{possible:?}");
                    }
                    possible.told(set, Some(value));
                }
                2 => {
                    let removed = store.remove(&key);
                    possible.told(removed, None);
                }
                _ => match store.try_get(&key) {
                    Ok(found) => possible.found(found),
                    Err(error) => assert_eq!(error.known(), Known::NotDone, "{error}"),
                },
            }
        }
        store.arrive();
        for (key, possible) in &mut keys {
            possible.found(store.store.try_get(key).unwrap());
        }
    });
}

#[test]
fn counts_of_many_threads_lie_between_the_sure_and_the_unknown() {
    const EACH: u32 = 30;
    with_faults(|store, folder, _| {
        let key = &format!("{folder}/n");
        store.store.put(key, b"0").unwrap();
        let (told, unknown) = (&AtomicU32::new(0), &AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let Ok(old) = store.try_get(key) else {
                            continue;
                        };
                        let old = old.unwrap();
                        let next = String::from_utf8_lossy(&old).parse::<u32>().unwrap() + 1;
                        let next = next.to_string();
                        match store.compare_and_set(key, Some(&old), next.as_bytes()) {
                            Ok(done) => told.fetch_add(done.into(), Ordering::Relaxed),
                            Err(error) if error.known() == Known::Unknown => {
                                unknown.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(_) => 0,
                        };
                    }
                });
            }
        });
        store.arrive();
        let counted = store.store.try_get(key).unwrap().unwrap();
        let counted: u32 = String::from_utf8(counted).unwrap().parse().unwrap();
        let (told, unknown) = (
            told.load(Ordering::Relaxed),
            unknown.load(Ordering::Relaxed),
        );
        assert!(
            (told..=told + unknown).contains(&counted),
            "{counted} counted, {told} told, {unknown} unknown"
        );
    });
}

/// The known state of a lease, by the answers to the calls for it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    No,
    /// This one, or none if an end of it was not answered.
    This(LeaseId, bool),
    /// A lease may have been taken whose name no caller knows.
    Unnamed,
}

#[test]
fn a_holder_and_readers_agree_on_its_leases() {
    let ttl = Duration::from_secs(600);
    with_faults(|store, folder, random| {
        let mut keys = [Holds::No; 3];
        for step in 0..200u32 {
            let number = random.usize(..keys.len());
            let key = format!("{folder}/leased/{number}");
            let holds = keys[number];
            let told = match (random.u32(..4), holds) {
                (0, _) | (_, Holds::No | Holds::Unnamed) => {
                    match store.take_lease(&key, &step.to_le_bytes(), ttl) {
                        Ok(Some(id)) => {
                            let held = matches!(holds, Holds::This(_, true));
                            assert!(!held, "step {step}: {holds:?}, and it was taken again");
                            Ok(Holds::This(id, true))
                        }
                        Ok(None) => {
                            assert_ne!(holds, Holds::No, "step {step}: another holds it");
                            Ok(match holds {
                                Holds::This(id, _) => Holds::This(id, true),
                                _ => holds,
                            })
                        }
                        Err(error) => Err((error, holds.or_taken())),
                    }
                }
                (1, Holds::This(id, sure)) => match store.renew_lease(&key, id) {
                    Ok(true) => Ok(Holds::This(id, true)),
                    Ok(false) => {
                        assert!(!sure, "step {step}: it is gone, and was not ended");
                        Ok(Holds::No)
                    }
                    Err(error) => Err((error, holds)),
                },
                (2, Holds::This(id, sure)) => match store.put_leased(&key, b"more", id) {
                    Ok(true) => Ok(Holds::This(id, true)),
                    Ok(false) => {
                        assert!(!sure, "step {step}: it is gone, and was not ended");
                        Ok(Holds::No)
                    }
                    Err(error) => Err((error, holds)),
                },
                (_, Holds::This(id, _)) => match store.end_lease(&key, id) {
                    Ok(()) => Ok(Holds::No),
                    Err(error) => Err((error, Holds::This(id, false))),
                },
            };
            keys[number] = told.unwrap_or_else(|(error, unknown)| match error.known() {
                Known::Unknown => unknown,
                _ => holds,
            });
            store.arrive();
            let found = store.store.try_get(&key).unwrap().is_some();
            match keys[number] {
                Holds::No => assert!(!found, "step {step}: {key} is there"),
                Holds::This(_, true) => assert!(found, "step {step}: {key} is gone"),
                Holds::This(_, false) => {}
                // No call can name it.
                Holds::Unnamed => {
                    store.store.remove(&key).unwrap();
                    keys[number] = Holds::No;
                }
            }
        }
        // Whatever was not answered, a folder that was removed with an answer is empty.
        let removed = (0..100).any(|_| store.remove_below(&format!("{folder}/leased")).is_ok());
        assert!(removed, "none of 100 calls was answered");
        store.arrive();
        let left = store.store.list(&format!("{folder}/leased")).unwrap();
        assert!(left.is_empty(), "{left:?}");
    });
}

impl Holds {
    /// What a call to take it that was not answered leaves.
    fn or_taken(self) -> Self {
        match self {
            Self::No | Self::This(_, false) => Self::Unnamed,
            held => held,
        }
    }
}

#[test]
fn a_patient_caller_gets_its_answers_and_what_stays_unknown_is_said() {
    with_faults(|store, folder, _| {
        let patient = Patient::new(Arc::new(store.clone()), HANG);
        for step in 0..5u32 {
            let (key, value) = (format!("{folder}/{step}"), step.to_string().into_bytes());
            let mut possible = Possible::default();
            possible.told(patient.put(&key, &value).map(|()| true), Some(value));
            possible.found(patient.try_get(&key).unwrap());
            let set = patient.compare_and_set(&key, possible.now.as_deref(), b"next");
            possible.told(set, Some(b"next".to_vec()));
            possible.found(patient.try_get(&key).unwrap());
        }
        let listed = patient.list(folder).unwrap();
        assert!(listed.len() <= 5, "{listed:?}");
    });
}

#[test]
fn a_call_that_is_held_holds_up_no_other_handle() {
    on_each(|store| {
        let held = Disturbed::new(Arc::clone(&store), Faults::default(), 1);
        held.hold(true);
        let answered = &AtomicBool::new(false);
        thread::scope(|scope| {
            let call = scope.spawn(|| {
                let set = held.compare_and_set("k", None, b"held").unwrap();
                answered.store(true, Ordering::SeqCst);
                set
            });
            while held.shared.begun.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            store.put("k", b"free").unwrap();
            assert_eq!(store.try_get("k").unwrap().unwrap(), b"free");
            assert!(!answered.load(Ordering::SeqCst));
            held.hold(false);
            assert!(!call.join().unwrap(), "it came after the other");
        });
        assert_eq!(store.try_get("k").unwrap().unwrap(), b"free");
    });
}
