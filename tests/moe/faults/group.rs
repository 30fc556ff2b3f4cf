//! Ranks that a test drives phase by phase: those that live at the same time, the others not at all.

use std::mem::offset_of;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytemuck::Zeroable;
use softhca::{FaultSpec, Hca};
use test_support::reference;
use warpverbs::abi::{QpContext, Status, TeamContext};
use warpverbs::internal::moe_abi::{MoeContext, MoeSignal, SETS, SIGNALS_PER_PEER};
use warpverbs::moe::{
    Batch, CallReport, Combined, Deadlines, Moe, MoeConfig, Placement, Source, View, Workspace,
};
use warpverbs::team::TeamConfig;

use test_support::moe::{Hcas, Setup, batch, check_dispatch, expert, join, on_threads};

/// The layer of all these tests.
pub(crate) use test_support::moe::small::{SHAPE, TRAFFIC};

/// Longest wait for a place for a view.
const SET_VIEW: Duration = Duration::from_secs(20);

/// All ranks of a team, in one process.
pub(crate) struct Group {
    pub(crate) moes: Vec<Arc<Moe>>,
    pub(crate) works: Vec<Workspace>,
    hcas: Hcas,
}

impl Group {
    pub(crate) fn new(ranks: u32, deadline: Duration) -> Self {
        // The HCA gives up on a dead peer before the shortest deadline of these tests.
        Self::with(ranks, deadline, Some(15), SHAPE)
    }

    /// HCAs that are as patient as `ack_timeout` says, and a layer of this shape.
    pub(crate) fn with(
        ranks: u32,
        deadline: Duration,
        ack_timeout: Option<u8>,
        shape: MoeConfig,
    ) -> Self {
        Self::tuned(ranks, shape, |team| {
            team.deadline = deadline;
            team.path.ack_timeout = ack_timeout;
        })
    }

    pub(crate) fn tuned(ranks: u32, shape: MoeConfig, tune: impl FnOnce(&mut TeamConfig)) -> Self {
        Self::faulty(ranks, shape, tune, None)
    }

    /// As `tuned`, over HCAs with these faults, of which the test may make others.
    pub(crate) fn faulty(
        ranks: u32,
        shape: MoeConfig,
        tune: impl FnOnce(&mut TeamConfig),
        faults: Option<FaultSpec>,
    ) -> Self {
        let mut setup = Setup::adverse(ranks);
        tune(&mut setup.team);
        let hcas = Hcas::new(&setup);
        if let Some(faults) = faults {
            hcas.all().for_each(|hca| hca.set_faults(&faults));
        }
        let moes = on_threads(&setup, &hcas, |rank, own, store| {
            let team = join(setup.team.with_rank(rank), own, store).unwrap();
            let placement = Placement::blocks(SHAPE.experts, ranks);
            let config = shape.with_local_experts(SHAPE.experts);
            // Room for every expert at every rank: a view may move them anywhere.
            Moe::with_placement(&team, "layer", config, placement).unwrap()
        });
        let works = moes
            .iter()
            .map(|moe| Workspace::new(moe).unwrap())
            .collect();
        Self { moes, works, hcas }
    }

    pub(crate) fn ranks(&self) -> Vec<u32> {
        (0..self.moes[0].team().ranks()).collect()
    }

    /// `body` for each of `ranks`, all at the same time; results in their order.
    pub(crate) fn each<T: Send>(
        &mut self,
        ranks: &[u32],
        body: impl Fn(u32, &mut Workspace) -> T + Sync,
    ) -> Vec<T> {
        let body = &body;
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (rank, work) in (0u32..).zip(&mut self.works) {
                if ranks.contains(&rank) {
                    threads.push(scope.spawn(move || body(rank, work)));
                }
            }
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }

    /// The batches of all ranks in `call`.
    pub(crate) fn batches(&self, seed: u64, call: u32) -> Vec<Batch> {
        let one = |rank: &u32| batch(&SHAPE, TRAFFIC, seed, call, *rank);
        self.ranks().iter().map(one).collect()
    }

    pub(crate) fn send(&mut self, ranks: &[u32], batches: &[Batch]) {
        self.each(ranks, |rank, work| {
            work.send(&batches[rank as usize]).unwrap();
        });
    }

    /// The receive phase of dispatch and the experts. At `rank`, the rows are those of `seen(rank)`.
    pub(crate) fn receive(
        &mut self,
        ranks: &[u32],
        batches: &[Batch],
        seen: impl Fn(u32) -> Vec<u32> + Sync,
    ) {
        let moes = self.moes.clone();
        let what = format!("{ranks:?}");
        self.each(ranks, |rank, work| {
            let sources: Vec<Vec<Source>> = work.receive().unwrap();
            let from = seen(rank);
            let there: Vec<Batch> = (0u32..)
                .zip(batches)
                .map(|(source, batch)| match from.contains(&source) {
                    true => batch.clone(),
                    false => Batch::default(),
                })
                .collect();
            let report = work.call().report().unwrap();
            let what = format!("rank {rank} of {what}, which sees {from:?}: {report}");
            check_dispatch(&moes[rank as usize], &there, work, &sources, &what);
            work.experts(expert).unwrap();
        });
    }

    pub(crate) fn send_back(&mut self, ranks: &[u32]) {
        self.each(ranks, |_, work| work.send_back().unwrap());
    }

    /// The receive phase of combine. At `rank`, what came back is that of the experts of `seen(rank)`, and the tokens that chose
    /// others are marked.
    pub(crate) fn receive_back(
        &mut self,
        ranks: &[u32],
        batches: &[Batch],
        seen: impl Fn(u32) -> Vec<u32> + Sync,
    ) {
        let moes = self.moes.clone();
        self.each(ranks, |rank, work| {
            let combined = work.receive_back().unwrap();
            let report = work.call().report().unwrap();
            let what = format!("rank {rank} of {ranks:?}: {report}");
            let own = &batches[rank as usize];
            let moe = &moes[rank as usize];
            check_combined(moe, work.placement(), own, &combined, &seen(rank), &what);
        });
    }

    /// A call of all of `ranks`, which see each other, with no trouble. A suspect is not waited for, so its words come first.
    pub(crate) fn whole_call(&mut self, ranks: &[u32], seed: u64, call: u32) {
        let batches = self.batches(seed, call);
        self.whole_call_among(ranks, &batches);
        for rank in self.ranks() {
            if ranks.contains(&rank) && ranks.len() == self.moes.len() {
                self.works[rank as usize].call().check().unwrap();
            }
        }
    }

    /// A call of `ranks` that brings each of them all that they have sent, and nothing of others.
    pub(crate) fn whole_call_among(&mut self, ranks: &[u32], batches: &[Batch]) {
        let suspicion = self.moes.iter().any(|moe| !moe.suspected().is_empty());
        self.send(ranks, batches);
        if suspicion {
            self.settle();
        }
        self.receive(ranks, batches, |_| ranks.to_vec());
        self.send_back(ranks);
        self.receive_back(ranks, batches, |_| ranks.to_vec());
    }

    /// `ranks` set a view of `members`, whose first call is `first`. The experts stay where they are.
    pub(crate) fn set_view(&self, ranks: &[u32], first: u32, epoch: u32, members: &[u32]) {
        for &rank in ranks {
            let moe = &self.moes[rank as usize];
            let view = View {
                first,
                epoch,
                members: members.to_vec(),
                placement: moe.placement(),
            };
            moe.set_view(&view, SET_VIEW).unwrap();
        }
    }

    /// Calls that begin from now on wait for so long at every rank.
    pub(crate) fn set_deadline(&self, deadline: Duration) {
        for moe in &self.moes {
            moe.set_deadlines(&Deadlines::new(deadline)).unwrap();
        }
    }

    pub(crate) fn report(&self, rank: u32) -> CallReport {
        self.works[rank as usize].call().report().unwrap()
    }

    /// The HCA of `rank`.
    pub(crate) fn hca(&self, rank: u32) -> Arc<Hca> {
        Arc::clone(&self.hcas.of(rank)[0])
    }

    /// The HCA of `rank` is gone.
    pub(crate) fn unplug(&self, rank: u32) {
        self.hcas.of(rank)[0].set_port(false);
    }

    /// Brings the ports of `rank` up again.
    pub(crate) fn plug(&self, rank: u32) {
        self.hcas.of(rank)[0].set_port(true);
    }

    /// Waits until the HCAs are at rest: what was posted has landed, unless its peer is silent.
    pub(crate) fn settle(&self) {
        self.hcas.settle();
    }

    /// The last word of `writer` to `reader` of a kind, in the set of `call`.
    pub(crate) fn signal(&self, reader: u32, writer: u32, kind: u32, call: u32) -> MoeSignal {
        let mut signal = MoeSignal::zeroed();
        let gpu = self.moes[reader as usize].team().gpu();
        let at = self.signal_addr(reader, writer, kind, call);
        gpu.read(at, bytemuck::bytes_of_mut(&mut signal)).unwrap();
        signal
    }

    /// Writes `signal` over the reader's word, as if later signals had not come.
    pub(crate) fn put_signal(
        &self,
        reader: u32,
        writer: u32,
        kind: u32,
        call: u32,
        signal: &MoeSignal,
    ) {
        let gpu = self.moes[reader as usize].team().gpu();
        let at = self.signal_addr(reader, writer, kind, call);
        gpu.write(at, bytemuck::bytes_of(signal)).unwrap();
    }

    fn signal_addr(&self, reader: u32, writer: u32, kind: u32, call: u32) -> u64 {
        let place = writer * SIGNALS_PER_PEER + kind * SETS + call % SETS;
        self.context(reader).layer.signals.base + u64::from(place) * size_of::<MoeSignal>() as u64
    }

    /// The layer of `rank` as its kernels see it.
    pub(crate) fn context(&self, rank: u32) -> MoeContext {
        let moe = &self.moes[rank as usize];
        let mut context = MoeContext::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut context);
        moe.team().gpu().read(moe.context_addr(), bytes).unwrap();
        context
    }

    /// All QPs of `rank` to `peer` have failed in this way, as kernels see it.
    pub(crate) fn fail_qps(&self, rank: u32, peer: u32, (status, syndrome): (Status, u32)) {
        let team = self.moes[rank as usize].team();
        let mut context = TeamContext::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut context);
        team.gpu().read(team.context_addr(), bytes).unwrap();
        for i in 0..context.qps_per_peer {
            let mut qp = 0u64;
            let place = u64::from(peer * context.qps_per_peer + i);
            let bytes = bytemuck::bytes_of_mut(&mut qp);
            team.gpu()
                .read(context.qps.addr() + 8 * place, bytes)
                .unwrap();
            let at = qp + offset_of!(QpContext, err) as u64;
            let word = [status.0, syndrome];
            team.gpu().write(at, bytemuck::cast_slice(&word)).unwrap();
        }
    }

    /// Longest time for which a phase of the call has waited at `rank`, by the device's clock.
    pub(crate) fn waited(&self, rank: u32) -> Duration {
        let report = self.report(rank);
        let waits = report.peers.iter().flat_map(|peer| peer.waited);
        Duration::from_nanos(u64::from(waits.max().unwrap_or(0)) << 10)
    }

    pub(crate) fn end(self) {
        drop(self.works);
        drop(self.moes);
        self.hcas.check();
    }
}

/// `combined` is what the experts of `seen` have made of `own`, and exactly the tokens that chose others are marked.
pub(crate) fn check_combined(
    moe: &Moe,
    placement: &Placement,
    own: &Batch,
    combined: &Combined,
    seen: &[u32],
    what: &str,
) {
    let (rank, there) = (moe.team().rank(), |rank: u32| seen.contains(&rank));
    let want = reference::combine_seen(moe.config(), placement, rank, own, there, expert);
    assert_eq!(
        combined.token_valid, want.token_valid,
        "{what}, sees {seen:?}"
    );
    assert_eq!(combined.out, want.out, "{what}, sees {seen:?}");
}
