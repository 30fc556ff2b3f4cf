//! What the model demands of what the kernels left behind.

use std::time::Duration;

use bytemuck::Zeroable;
use models::moe::signals::pattern::{COMBINE, DISPATCH};
use test_support::reference;
use warpverbs::abi::Outcome;
use warpverbs::internal::moe_abi::{MoeContext, MoeSignal, SIGNALS_PER_PEER};
use warpverbs::moe::{Batch, Source};

use super::{CALLS, Outcomes, SHAPE};
use test_support::moe::expert;

impl Outcomes {
    /// Returns what became of `kind` of a call from `from` to `to`, as the sender has it.
    fn sent(&self, kind: usize, call: usize, from: usize, to: usize) -> bool {
        let peer = &self.records[from][call].report.peers[to];
        let outcome = [peer.dispatch_sent, peer.combine_sent][kind];
        outcome == Outcome::SENT && self.ran(kind, true, from, call)
    }

    /// Returns whether the phase has run: the fields of a handle that it has not reached are old.
    fn ran(&self, kind: usize, sends: bool, rank: usize, call: usize) -> bool {
        let phases = 2 * u32::from(kind == COMBINE) + 1 + u32::from(!sends);
        self.records[rank][call].report.stage.0 >= phases
    }

    fn received(&self, kind: usize, call: usize, from: usize, to: usize) -> Outcome {
        let peer = &self.records[to][call].report.peers[from];
        if self.ran(kind, false, to, call) {
            [peer.dispatch_received, peer.combine_received][kind]
        } else {
            Outcome::NONE
        }
    }

    /// All that is wrong.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let ranks = self.moes.len();
        for call in 0..usize::from(CALLS) {
            for to in 0..ranks {
                for from in 0..ranks {
                    self.check_pair(call, from, to, &mut faults);
                }
                self.check_rows(call, to, &mut faults);
                self.check_sums(call, to, &mut faults);
            }
        }
        self.settle();
        faults.extend(self.words());
        faults
    }

    /// All that is wrong with the words as they are now.
    fn words(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let ranks = self.moes.len();
        for to in 0..ranks {
            for from in (0..ranks).filter(|from| *from != to) {
                self.check_words(from, to, &mut faults);
            }
        }
        faults
    }

    /// E1, K1: what the receiver concluded is what the sender did.
    fn check_pair(&self, call: usize, from: usize, to: usize, faults: &mut Vec<String>) {
        for kind in [DISPATCH, COMBINE] {
            let sent = self.sent(kind, call, from, to);
            let received = self.received(kind, call, from, to);
            let name = ["dispatch", "combine"][kind];
            let number = call + 1;
            if received == Outcome::ACCEPTED && !sent {
                faults.push(format!(
                    "E1: {name} {number} of {from} accepted by {to}, not sent"
                ));
            }
            if received == Outcome::NOT_SENT && sent {
                faults.push(format!(
                    "K1: {name} {number} of {from} was sent, {to} takes it for not sent"
                ));
            }
        }
    }

    /// C1: the rows of a call are those of the ranks whose dispatch was accepted, and whole.
    fn check_rows(&self, call: usize, to: usize, faults: &mut Vec<String>) {
        let Some(rows) = &self.records[to][call].rows else {
            return;
        };
        let batches: Vec<Batch> = self.records.iter().map(|r| r[call].batch.clone()).collect();
        let rank = self.moes[to].team().rank();
        let all = reference::dispatch(&SHAPE, &self.moes[to].placement(), &batches, rank);
        let here = |source: &Source| {
            self.received(DISPATCH, call, source.rank as usize, to) == Outcome::ACCEPTED
        };
        let row = |source: Source| {
            let x = batches[source.rank as usize].token(&SHAPE, source.token as usize);
            (source, x.to_vec())
        };
        let want: Vec<Vec<(Source, Vec<u16>)>> = all
            .into_iter()
            .map(|sources| sources.into_iter().filter(here).map(row).collect())
            .collect();
        if *rows != want {
            let number = call + 1;
            faults.push(format!(
                "C1: dispatch {number} at {to}: {rows:?}, not {want:?}"
            ));
        }
    }

    /// M3: a token is valid if all its experts' ranks got it, processed it, and their sums were added; and the sums are those.
    fn check_sums(&self, call: usize, me: usize, faults: &mut Vec<String>) {
        let record = &self.records[me][call];
        let Some(back) = &record.back else {
            return;
        };
        let placement = &self.moes[me].placement();
        let served = |peer: usize| {
            self.sent(DISPATCH, call, me, peer)
                && self.received(DISPATCH, call, me, peer) == Outcome::ACCEPTED
                && self.sent(COMBINE, call, peer, me)
                && self.received(COMBINE, call, peer, me) == Outcome::ACCEPTED
        };
        let rank = self.moes[me].team().rank();
        let mut chosen = reference::choose(&SHAPE, placement, rank, &record.batch, |_| true);
        let mut valid = Vec::new();
        for slots in chosen.chunks_exact_mut(SHAPE.top_k as usize) {
            let mut all = true;
            for slot in slots {
                let home = slot.map(|slot| placement.homes()[slot as usize]);
                if !home.is_some_and(|home| served(home.rank as usize)) {
                    all = false;
                    *slot = None;
                }
            }
            valid.push(all);
        }
        let want = reference::combine_chosen(&SHAPE, placement, &record.batch, &chosen, expert);
        let number = call + 1;
        if back.token_valid != valid {
            let got = &back.token_valid;
            faults.push(format!("M3: call {number} at {me}: {got:?}, not {valid:?}"));
        }
        if back.out != want {
            faults.push(format!(
                "M3: call {number} at {me}: sums of what was not processed"
            ));
        }
    }

    /// Words at rest: data words name the last call sent, skips name only what was not sent and all of it that is newer.
    fn check_words(&self, from: usize, to: usize, faults: &mut Vec<String>) {
        let team = self.moes[to].team();
        let mut context = MoeContext::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut context);
        team.gpu()
            .read(self.moes[to].context_addr(), bytes)
            .unwrap();
        let mut signals = [MoeSignal::zeroed(); SIGNALS_PER_PEER as usize];
        let at = context.layer.signals.base + (from * size_of_val(&signals)) as u64;
        let bytes = bytemuck::cast_slice_mut(&mut signals);
        team.gpu().read(at, bytes).unwrap();
        for (index, signal) in signals.iter().enumerate() {
            let kind = index / 2;
            let calls = (1..=usize::from(CALLS)).filter(|call| call % 2 == index % 2);
            let sent = |call: &usize| self.sent(kind, call - 1, from, to);
            let last = calls.clone().filter(sent).max().unwrap_or(0);
            let word = |bits: u64| usize::try_from(bits & 0xffff_ffff).expect("32 bits");
            let data = word(signal.data >> 16);
            if data != last {
                faults.push(format!(
                    "word {index} of {from} at {to}: call {data}, sent {last}"
                ));
            }
            let (first, number) = (word(signal.not_sent >> 32), word(signal.not_sent));
            for call in calls {
                let named = first <= call && call < first + 2 * number;
                let ran = self.ran(kind, true, from, call - 1);
                if named && sent(&call) || ran && call > last && !named {
                    faults.push(format!(
                        "word {index} of {from} at {to}: last sent {last}, not sent from {first} {number}, call {call}"
                    ));
                }
            }
        }
    }

    pub(super) fn complete(&self) -> bool {
        let mut records = self.records.iter().flatten();
        records.all(|record| record.report.is_complete())
    }

    /// Waits until the HCAs are at rest: posted writes have landed.
    fn settle(&self) {
        for hca in self.hcas.all() {
            hca.pause(Duration::ZERO);
        }
        self.hcas.settle();
    }

    pub(super) fn end(self) {
        drop(self.moes);
        self.hcas.check();
    }
}
