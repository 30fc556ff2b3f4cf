//! Late ranks, refused calls, lost words: no rank reads torn rows, no rank hangs, and reports name what is lost.

// UNSAFETY: launches a kernel of the tests on buffers of the test.
#![expect(unsafe_code, reason = "launch of a test kernel")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use test_support::limits::HANG;

use test_support::moe::{
    Hcas, MIXED, Setup, Traffic, batch, batches, check_dispatch, expert, join, on_threads,
};
use test_support::reference;
use warpverbs::abi::{DevicePtr, Outcome, Status};
use warpverbs::gpu::{DeviceMemory, Launch};
use warpverbs::internal::moe_abi::DispatchSendParams;
use warpverbs::moe::{Batch, Deadlines, Moe, MoeCall, MoeConfig, Workspace};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(4)
    .with_top_k(2)
    .with_max_tokens(12);

/// Every token reaches both ranks.
const FULL: Traffic = Traffic {
    percent_none: 0,
    percent_empty: 0,
};

/// Deadline of calls in which no rank is late: a wait for a late rank would take all of it.
const DEADLINE: Duration = HANG;
/// Of a call whose wait must run into it.
const SHORT_DEADLINE: Duration = Duration::from_millis(400);

/// Ranks that one thread drives phase by phase, so that a test decides which rank is late.
struct Ranks {
    moes: Vec<Arc<Moe>>,
    hcas: Hcas,
}

impl Ranks {
    fn new(ranks: u32) -> Self {
        let mut setup = Setup::adverse(ranks);
        setup.team.deadline = DEADLINE;
        let hcas = Hcas::new(&setup);
        let moes = on_threads(&setup, &hcas, |rank, own, store| {
            let team = join(setup.team.with_rank(rank), own, store).unwrap();
            Moe::new(&team, "layer", SHAPE).unwrap()
        });
        Self { moes, hcas }
    }

    fn works(&self) -> Vec<Workspace> {
        self.moes
            .iter()
            .map(|moe| Workspace::new(moe).unwrap())
            .collect()
    }

    /// Waits until the HCAs are at rest: posted writes have landed.
    fn settle(&self) {
        self.hcas.settle();
    }

    /// Calls of `rank` that begin from now on wait for so long.
    fn set_deadline(&self, rank: usize, deadline: Duration) {
        self.moes[rank]
            .set_deadlines(&Deadlines::new(deadline))
            .unwrap();
    }

    fn end(self) {
        drop(self.moes);
        self.hcas.check();
    }
}

/// One whole call of all ranks, driven by one thread. All ranks take part, so it is complete.
fn whole_call(ranks: &Ranks, works: &mut [Workspace], seed: u64, call: u32) {
    let inputs = batches(&ranks.moes[0], MIXED, seed, call);
    for (work, batch) in works.iter_mut().zip(&inputs) {
        work.send(batch).unwrap();
    }
    for (moe, work) in ranks.moes.iter().zip(works.iter_mut()) {
        let sources = work.receive().unwrap();
        check_dispatch(moe, &inputs, work, &sources, &format!("call {call}"));
        work.experts(expert).unwrap();
    }
    for work in works.iter_mut() {
        work.send_back().unwrap();
    }
    for work in works.iter_mut() {
        work.receive_back().unwrap();
        work.call().check().unwrap();
    }
}

/// What rank 0 does while rank 1 is late: it sends call 2 and gives up on the answer; then calls 3 and 4.
struct Late {
    /// What rank 0 sent in call 2.
    sent: Vec<Batch>,
    /// Rank 1's open call 2.
    work: Workspace,
}

/// Calls 1 (whole) and 2, of which rank 1 has sent its dispatch but received nothing; rank 0 has given up on its combine.
fn rank_1_falls_behind(ranks: &Ranks, seed: u64) -> (Late, Workspace) {
    let mut works = ranks.works();
    whole_call(ranks, &mut works, seed, 1);
    let sent = vec![
        batch(&SHAPE, FULL, seed, 2, 0),
        batch(&SHAPE, FULL, seed, 2, 1),
    ];
    let (mut one, mut zero) = (works.remove(1), works.remove(0));
    // Rank 0 finds the rows of rank 1 when it looks: it waits in vain for the combine only.
    ranks.set_deadline(0, SHORT_DEADLINE);
    one.send(&sent[1]).unwrap();
    zero.send(&sent[0]).unwrap();
    ranks.settle();
    zero.receive().unwrap();
    zero.experts(expert).unwrap();
    zero.send_back().unwrap();
    zero.receive_back().unwrap();
    let report = zero.call().report().unwrap();
    assert_eq!(report.phases[3], Status::TIMEOUT, "{report}");
    assert_eq!(report.peers[1].combine_received, Outcome::GAVE_UP);
    ranks.set_deadline(0, DEADLINE);
    // As in a change of members: else each call of a rank that awaits no member begins at its deadline.
    ranks.moes[0].set_limit(Some(100));
    (Late { sent, work: one }, zero)
}

#[test]
fn a_late_rank_finds_its_rows_whole_and_catches_up() {
    let ranks = Ranks::new(2);
    let (mut late, mut zero) = rank_1_falls_behind(&ranks, 1);
    // Call 3 goes into the other set, which rank 1 has released; call 4 has no credit, so nothing is sent.
    for call in 3..=4 {
        zero.send(&batch(&SHAPE, FULL, 1, call, 0)).unwrap();
        let sent = zero.call().report().unwrap().peers[1].dispatch_sent;
        assert_eq!(
            sent,
            if call == 3 {
                Outcome::SENT
            } else {
                Outcome::SKIPPED
            }
        );
        let start = Instant::now();
        zero.receive().unwrap();
        assert!(
            start.elapsed() < DEADLINE,
            "a suspect is looked at, not waited for"
        );
        zero.send_back().unwrap();
        zero.receive_back().unwrap();
    }
    // Rank 1 goes on: call 2 is as it was sent.
    let sources = late.work.receive().unwrap();
    check_dispatch(
        &ranks.moes[1],
        &late.sent,
        &late.work,
        &sources,
        "call 2 at the late rank",
    );
    late.work.send_back().unwrap();
    late.work.receive_back().unwrap();
    // In call 3 it has rows of rank 0, in call 4 it gets a word that none come. Neither costs it a deadline.
    for call in 3..=4 {
        let start = Instant::now();
        late.work.send(&batch(&SHAPE, FULL, 1, call, 1)).unwrap();
        late.work.receive().unwrap();
        late.work.send_back().unwrap();
        late.work.receive_back().unwrap();
        let report = late.work.call().report().unwrap();
        let want = if call == 3 {
            Outcome::ACCEPTED
        } else {
            Outcome::NOT_SENT
        };
        assert_eq!(report.peers[0].dispatch_received, want, "{report}");
        assert!(
            start.elapsed() < DEADLINE,
            "call {call} took {:?}",
            start.elapsed()
        );
    }
    // From here on both take part again.
    let mut works = vec![zero, late.work];
    for call in 5..=8 {
        whole_call(&ranks, &mut works, 1, call);
    }
    drop(works);
    ranks.end();
}

#[test]
fn tokens_that_lost_an_expert_are_marked_and_the_others_are_right() {
    let ranks = Ranks::new(2);
    let (_late, mut zero) = rank_1_falls_behind(&ranks, 2);
    let own = batch(
        &SHAPE,
        Traffic {
            percent_none: 30,
            ..FULL
        },
        77,
        3,
        0,
    );
    zero.send(&own).unwrap();
    zero.receive().unwrap();
    zero.experts(expert).unwrap();
    zero.send_back().unwrap();
    let combined = zero.receive_back().unwrap();
    let moe = &ranks.moes[0];
    let mut here = own.clone();
    for (token, valid) in combined.token_valid.iter().enumerate() {
        let row = token * 2..(token + 1) * 2;
        let mut lost = false;
        for choice in &mut here.experts[row] {
            if moe.placement().of_rank(1).contains(&choice.unsigned_abs()) && *choice >= 0 {
                lost = true;
                *choice = -1;
            }
        }
        assert_eq!(*valid, !lost, "token {token}");
    }
    // What rank 0 added up is exactly what its own experts contributed.
    assert_eq!(
        combined.out,
        reference::combine(&SHAPE, &moe.placement(), 0, &here, expert)
    );
    drop(zero);
    drop(_late);
    ranks.end();
}

#[test]
fn a_refused_routing_sends_nothing_and_the_peers_hear_that_at_once() {
    for (bad, value) in [(SHAPE.experts as i32, "4"), (-2, "-2"), (1, "1")] {
        let ranks = Ranks::new(2);
        let mut works = ranks.works();
        whole_call(&ranks, &mut works, 3, 1);
        let mut wrong = batch(&SHAPE, FULL, 3, 2, 0);
        wrong.experts[6] = 1;
        wrong.experts[7] = bad;
        works[0].send_unchecked(&wrong).unwrap();
        let message = works[0].call().check().unwrap_err().to_string();
        assert!(
            message.contains(&format!("token 3 chooses expert {value}, which is")),
            "{message}"
        );
        let start = Instant::now();
        works[1].send(&batch(&SHAPE, FULL, 3, 2, 1)).unwrap();
        for work in &mut works {
            work.receive().unwrap();
            work.experts(expert).unwrap();
        }
        let outcome = works[1].call().report().unwrap().peers[0].dispatch_received;
        assert_eq!(outcome, Outcome::NOT_SENT);
        for work in &mut works {
            work.send_back().unwrap();
        }
        let back: Vec<_> = works
            .iter_mut()
            .map(|work| work.receive_back().unwrap())
            .collect();
        assert!(
            start.elapsed() < DEADLINE,
            "no rank waits for a deadline: {:?}",
            start.elapsed()
        );
        assert!(
            back[1].token_valid.iter().all(|valid| *valid),
            "rank 0 has worked for rank 1"
        );
        assert!(
            back[0].token_valid.iter().all(|valid| !*valid),
            "nothing of rank 0 was sent"
        );
        for call in 3..=6 {
            whole_call(&ranks, &mut works, 3, call);
        }
        drop(works);
        ranks.end();
    }
}

#[test]
fn a_phase_out_of_turn_ends_invalid_and_touches_nothing() {
    let ranks = Ranks::new(1);
    let mut works = ranks.works();
    works[0].send_back().unwrap();
    let report = works[0].call().report().unwrap();
    assert_eq!(report.phases[2], Status::INVALID);
    for call in 1..=2 {
        whole_call(&ranks, &mut works, 4, call);
    }
    let before = works[0].call().report().unwrap().call;
    works[0].receive_back().unwrap();
    assert_eq!(works[0].call().report().unwrap().call, before);
    drop(works);
    ranks.end();
}

#[test]
fn an_aborted_team_ends_every_wait_long_before_its_deadline() {
    let ranks = Ranks::new(2);
    let mut works = ranks.works();
    works[0].send(&batch(&SHAPE, FULL, 5, 1, 0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            ranks.moes[0].team().abort().unwrap();
        });
        works[0].receive().unwrap();
    });
    let report = works[0].call().report().unwrap();
    assert_eq!(report.phases[1], Status::ABORTED, "{report}");
    drop(works);
    ranks.end();
}

#[test]
fn an_aborted_team_stays_aborted_behind_a_new_deadline() {
    let ranks = Ranks::new(2);
    let mut works = ranks.works();
    let team = ranks.moes[0].team();
    team.abort().unwrap();
    team.set_deadline(Duration::from_secs(1)).unwrap();
    works[0].send(&batch(&SHAPE, FULL, 5, 1, 0)).unwrap();
    works[0].receive().unwrap();
    let report = works[0].call().report().unwrap();
    assert_eq!(report.phases[1], Status::ABORTED, "{report}");
    drop(works);
    ranks.end();
}

/// The send phase of a dispatch through a kernel of the test, with its buffers.
struct OwnSend {
    _buffers: Vec<DeviceMemory>,
}

impl OwnSend {
    fn launch(moe: &Arc<Moe>, call: &MoeCall, batch: &Batch, kernel: &str, seed: u64) -> Self {
        let gpu = Arc::clone(moe.team().gpu());
        let arrays: [&[u8]; 3] = [
            bytemuck::cast_slice(&batch.x),
            bytemuck::cast_slice(&batch.experts),
            bytemuck::cast_slice(&batch.weights),
        ];
        let buffers: Vec<DeviceMemory> = arrays
            .iter()
            .map(|bytes| {
                let memory = gpu.alloc(bytes.len(), 128).unwrap();
                gpu.write(memory.addr(), bytes).unwrap();
                memory
            })
            .collect();
        let params = DispatchSendParams {
            moe: DevicePtr::new(moe.context_addr()),
            handle: DevicePtr::new(call.addr()),
            x: DevicePtr::new(buffers[0].addr()),
            experts: DevicePtr::new(buffers[1].addr()),
            weights: DevicePtr::new(buffers[2].addr()),
            tokens: u32::try_from(batch.tokens(moe.config())).unwrap(),
            ..DispatchSendParams::default()
        };
        let grid = moe.grid();
        let launch = Launch::new(kernel, grid.blocks, grid.threads)
            .with_cooperative(true)
            .with_seed(seed);
        // SAFETY: the buffers have the sizes that the parameters say, and stay until the kernel has ended, below.
        let event = unsafe { gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap();
        gpu.wait(&event, HANG).unwrap();
        Self { _buffers: buffers }
    }
}

/// Returns whether the late rank found its call 2 as it was sent. Rank 0 has sent meanwhile, or is sending, call 4 into the same set
/// through `kernel`.
fn late_rank_sees_call_2(kernel: &str, seed: u64) -> bool {
    let ranks = Ranks::new(2);
    let (mut late, mut zero) = rank_1_falls_behind(&ranks, seed);
    zero.send(&batch(&SHAPE, FULL, seed, 3, 0)).unwrap();
    let call_4 = batch(&SHAPE, FULL, seed, 4, 0);
    ranks.moes[1].set_schedule_seed(seed);
    let send = || OwnSend::launch(&ranks.moes[0], zero.call(), &call_4, kernel, seed);
    let sources = if seed.is_multiple_of(2) {
        drop(send());
        ranks.settle();
        late.work.receive().unwrap()
    } else {
        // Both at the same time, one of them a little ahead.
        let head_start = Duration::from_micros(fastrand::Rng::with_seed(seed).u64(..400));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                std::thread::sleep(head_start);
                late.work.receive().unwrap()
            });
            drop(send());
            reader.join().unwrap()
        })
    };
    let moe = &ranks.moes[1];
    let want = reference::dispatch(&SHAPE, &moe.placement(), &late.sent, 1);
    let whole = sources == want
        && want.iter().enumerate().all(|(local, rows)| {
            rows.iter().enumerate().all(|(row, source)| {
                let x = late.work.received(local, row).unwrap();
                x == late.sent[source.rank as usize].token(&SHAPE, source.token as usize)
            })
        });
    drop(late);
    drop(zero);
    ranks.end();
    whole
}

#[test]
fn a_dispatch_without_credits_is_caught_by_a_late_rank() {
    let seeds = 0..5u64;
    for seed in seeds.clone() {
        assert!(
            late_rank_sees_call_2("wv_moe_dispatch_send", seed),
            "seed {seed}"
        );
    }
    let caught: Vec<u64> = seeds
        .filter(|&seed| !late_rank_sees_call_2("wv_test_moe_dispatch_send_no_credit", seed))
        .collect();
    let seen = [0, 2, 4].iter().all(|seed| caught.contains(seed));
    assert!(seen, "slots were overwritten unseen: {caught:?}");
    eprintln!("caught by seeds {caught:?}");
}
