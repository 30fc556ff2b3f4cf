//! Dispatch and combine in a test. Batches are made so that every rank can make those of all ranks, and each call is compared with the
//! reference implementation (crate `moe-reference`).

pub mod small;

use std::sync::Arc;

use warpverbs::moe::{Batch, Combined, Moe, MoeConfig, Source, Workspace, bf16};

use crate::reference;

pub use crate::fleet::{Hcas, Setup, adversary, join, on_threads, run};

/// Computes what the experts of the tests make of a token. It depends on the expert and the token.
pub fn expert(id: u32, x: &[u16], y: &mut [u16]) {
    let scale = 0.5 + id as f32 / 64.0;
    for (y, &x) in y.iter_mut().zip(x) {
        *y = bf16::from_f32(bf16::to_f32(x) * scale + 0.25);
    }
}

/// How tokens choose in a generated batch.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// The number of choices of 100 that are -1.
    pub percent_none: u32,
    /// The number of batches of 100 that have no token.
    pub percent_empty: u32,
}

/// Traffic with some missing choices, and some ranks without a token.
pub const MIXED: Traffic = Traffic {
    percent_none: 20,
    percent_empty: 15,
};

/// Returns a batch of tokens that differ in every element. Equal arguments give equal batches.
pub fn batch(config: &MoeConfig, traffic: Traffic, seed: u64, call: u32, rank: u32) -> Batch {
    let mut random = fastrand::Rng::with_seed(seed ^ u64::from(call) << 40 ^ u64::from(rank) << 20);
    let tokens = if random.u32(..100) < traffic.percent_empty {
        0
    } else {
        random.u32(1..=config.max_tokens)
    };
    let mut batch = Batch::default();
    for _ in 0..tokens {
        let x = (0..config.hidden).map(|_| bf16::from_f32(random.f32() * 8.0 - 4.0));
        batch.x.extend(x);
        let mut ids: Vec<i32> = (0..i32::try_from(config.experts).unwrap()).collect();
        random.shuffle(&mut ids);
        for &id in &ids[..config.top_k as usize] {
            let none = random.u32(..100) < traffic.percent_none;
            batch.experts.push(if none { -1 } else { id });
            batch.weights.push(random.f32());
        }
    }
    batch
}

/// Returns the batches of all ranks in one call.
pub fn batches(moe: &Moe, traffic: Traffic, seed: u64, call: u32) -> Vec<Batch> {
    let one = |rank| batch(moe.config(), traffic, seed, call, rank);
    (0..moe.team().ranks()).map(one).collect()
}

/// Checks M1: the rows of each expert are those of the reference implementation, in its order, with every element.
pub fn check_dispatch(
    moe: &Moe,
    batches: &[Batch],
    work: &Workspace,
    got: &[Vec<Source>],
    what: &str,
) {
    let config = moe.config();
    let want = reference::dispatch(config, work.placement(), batches, moe.team().rank());
    assert_eq!(got, want, "{what}: sources");
    for (local, sources) in want.iter().enumerate() {
        for (row, source) in sources.iter().enumerate() {
            let x = work.received(local, row).unwrap();
            let sent = batches[source.rank as usize].token(config, source.token as usize);
            assert_eq!(x, sent, "{what}: expert {local} row {row} from {source:?}");
        }
    }
}

/// Checks M2: the sums equal those of the reference implementation bit for bit, and every token is valid.
pub fn check_combine(moe: &Moe, batch: &Batch, got: &Combined, what: &str) {
    let rank = moe.team().rank();
    let want = reference::combine(moe.config(), &moe.placement(), rank, batch, expert);
    assert_eq!(got.out, want, "{what}");
    assert!(
        got.token_valid.iter().all(|valid| *valid),
        "{what}: {:?}",
        got.token_valid
    );
}

/// The BF16 bits of a NaN.
const POISON: u16 = 0x7fed;

/// One call of one rank in a test, with its workspace, its inputs and a name for them. It runs phase by phase, and every phase is checked.
pub struct Call {
    moe: Arc<Moe>,
    work: Workspace,
    batches: Vec<Batch>,
    what: String,
}

impl Call {
    /// Returns a call with a workspace of its own.
    pub fn new(moe: &Arc<Moe>) -> Self {
        Self {
            moe: Arc::clone(moe),
            work: Workspace::new(moe).unwrap(),
            batches: Vec::new(),
            what: String::new(),
        }
    }

    /// Draws the batches of all ranks and sends the batch of this rank.
    pub fn send(&mut self, traffic: Traffic, seed: u64, call: u32) {
        let rank = self.moe.team().rank();
        self.what = format!("seed {seed}, call {call}, rank {rank}");
        self.batches = batches(&self.moe, traffic, seed, call);
        self.moe.set_schedule_seed(seed ^ u64::from(call));
        self.work.send(&self.batches[rank as usize]).unwrap();
        self.complete();
    }

    /// Receives, and checks that the right rows came and that nothing else was written.
    pub fn receive(&mut self) {
        self.poison();
        let sources = self.work.receive().unwrap();
        self.complete();
        check_dispatch(&self.moe, &self.batches, &self.work, &sources, &self.what);
        let room = (self.moe.team().ranks() * self.moe.config().max_tokens) as usize;
        for (local, rows) in sources.iter().enumerate() {
            for row in rows.len()..room {
                let x = self.work.received(local, row).unwrap();
                assert!(
                    x.iter().all(|x| *x == POISON),
                    "{}: expert {local} row {row} was touched",
                    self.what
                );
            }
        }
    }

    /// Fills the output of dispatch with a number that no token has, so that writes to it show.
    fn poison(&self) {
        let config = self.moe.config();
        let rows =
            self.moe.local_experts().len() * (self.moe.team().ranks() * config.max_tokens) as usize;
        let poison = vec![POISON; rows * config.hidden as usize];
        if !poison.is_empty() {
            let [recv_x, ..] = self.work.expert_buffers();
            self.moe
                .team()
                .gpu()
                .write(recv_x, bytemuck::cast_slice(&poison))
                .unwrap();
        }
    }

    /// Runs the experts and sends their rows back.
    pub fn send_back(&mut self) {
        self.work.experts(expert).unwrap();
        self.work.send_back().unwrap();
        self.complete();
    }

    /// Receives what the experts made, and compares the sums.
    pub fn receive_back(&mut self) {
        let combined = self.work.receive_back().unwrap();
        self.complete();
        let own = &self.batches[self.moe.team().rank() as usize];
        check_combine(&self.moe, own, &combined, &self.what);
    }

    fn complete(&self) {
        let report = self.work.call().report().unwrap();
        assert!(report.is_complete(), "{}: {report}", self.what);
    }
}
