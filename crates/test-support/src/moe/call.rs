//! A call that is checked phase by phase.

use std::sync::Arc;

use warpverbs::moe::{Batch, Moe, Workspace};

use super::check::{check_combine, check_dispatch, expert};
use super::traffic::{Traffic, batches};

/// One call of one rank in a test, with its workspace, its inputs and a name for them. It runs phase by phase, and every phase is checked.
pub struct Call {
    moe: Arc<Moe>,
    work: Workspace,
    batches: Vec<Batch>,
    what: String,
}

/// The BF16 bits of a NaN.
const POISON: u16 = 0x7fed;

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
