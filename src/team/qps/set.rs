//! The QPs to one peer, `qps_per_peer` of them, and the steps that take them down and bring them up. Founders, a rank that joins,
//! its successor, a recovery and a reunion take the same steps.

use serde::{Deserialize, Serialize};

use super::failures::Failures;
use super::peer_qp::{Ends, PeerQp};
use crate::abi::{RAIL_SHIFT, Status};
use crate::fabric::Rail;
use crate::gpu::Gpu;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::rails::{Carriers, RailSet};
use crate::verbs::{PathAttr, Probe, SendAttr};

/// The data by which the other end reaches one QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::team) struct QpOffer {
    pub(in crate::team) qpn: u32,
    /// First packet number of this QP, unless it is too near to `far` of the other end.
    pub(in crate::team) psn: u32,
    /// The packet number that the former other end would have sent next; none if the QP had no other end.
    pub(in crate::team) far: Option<u32>,
    /// Options of enhanced connection establishment that the QP has; 0 if its device knows none.
    pub(in crate::team) ece: u32,
}

/// The way to a port of a peer.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Way {
    /// The path, without QP and packet number.
    pub(in crate::team) path: PathAttr,
    /// log2 of the reads and atomics that the port takes at once.
    pub(in crate::team) log_reads: u8,
}

/// The result of the probes of an attempt, for each rail that carries the attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::team) struct Heard {
    /// Rails on which each QP was answered.
    pub(in crate::team) answered: RailSet,
    /// Rails with a QP that the HCA has given up.
    pub(in crate::team) failed: RailSet,
    /// Rails that have neither failed nor answered on each QP.
    pub(in crate::team) pending: RailSet,
    /// The first QP that the HCA has given up.
    pub(in crate::team) first: Option<GivenUp>,
}

/// A QP that the HCA has given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::team) struct GivenUp {
    /// The number of the QP among the QPs to its peer.
    pub(in crate::team) qp: u32,
    pub(in crate::team) syndrome: u32,
}

/// The QPs to one peer; none for the rank itself.
#[derive(Debug, Default)]
pub(in crate::team) struct Qps {
    peer_qps: Vec<PeerQp>,
    /// Rails that the present life leaves out.
    without: RailSet,
}

impl Qps {
    /// Makes the QPs to `peer`, in Init, for their `life`. QP i is on rail i mod rails.
    pub(in crate::team) fn new(
        gpu: &dyn Gpu,
        rails: &[Rail],
        config: &TeamConfig,
        failures: &Failures,
        peer: u32,
        life: u32,
    ) -> Result<Self, TeamError> {
        if peer == config.rank {
            return Ok(Self::default());
        }
        let numbers = (0u32..).zip(rails).cycle();
        let peer_qps = (0usize..).zip(numbers).take(config.qps_per_peer as usize);
        let peer_qps = peer_qps.map(|(place, (number, rail))| {
            let place = u32::try_from(place / rails.len()).ok();
            let lag_port = config.path.lag_port.unwrap_or(0);
            let shape = rail.shape().with_lag_port(lag_port).with_place(place);
            let ends = Ends { peer, rail: number };
            PeerQp::new(gpu, rail, &shape, ends, failures.addr(peer), life)
        });
        Ok(Self {
            peer_qps: peer_qps.collect::<Result<_, TeamError>>()?,
            without: RailSet::EMPTY,
        })
    }

    pub(in crate::team) fn into_peer_qps(self) -> Vec<PeerQp> {
        self.peer_qps
    }

    pub(in crate::team) fn peer_qps(&self) -> &[PeerQp] {
        &self.peer_qps
    }

    /// Returns QP `i`.
    pub(in crate::team) fn get(&self, i: u32) -> Result<&PeerQp, TeamError> {
        let limit = || format!("below {}", self.peer_qps.len());
        let peer_qp = self.peer_qps.get(i as usize);
        peer_qp.ok_or_else(|| TeamError::limit("QP number", i, limit()))
    }

    /// Leaves these rails out from now on, instead of those left out before.
    pub(in crate::team) fn leave_out(&mut self, without: RailSet) {
        self.without = without;
    }

    /// Returns the rails that carry what is posted to the peer in this life.
    pub(in crate::team) fn carriers(&self) -> Carriers {
        let rails = self.peer_qps.iter().map(|peer_qp| peer_qp.rail() + 1).max();
        Carriers::but(rails.unwrap_or(0), self.without)
    }

    /// Returns the QPs that are connected in this life, each with its number.
    fn carrying(&mut self) -> impl Iterator<Item = (usize, &mut PeerQp)> {
        let carriers = self.carriers();
        let peer_qps = self.peer_qps.iter_mut().enumerate();
        peer_qps.filter(move |(_, peer_qp)| carriers.carries(peer_qp.rail()))
    }

    /// Returns the device addresses of the contexts to which kernels post, `qps` of them; 0 where there is no QP.
    pub(in crate::team) fn contexts(&self, qps: u32) -> Vec<u64> {
        let carriers = self.carriers();
        let numbers = (0..qps).take(self.peer_qps.len());
        let at = |i: u32| {
            let peer_qp = &self.peer_qps[carriers.qp(i, qps) as usize];
            peer_qp.layout().context_addr
        };
        let mut row: Vec<u64> = numbers.map(at).collect();
        row.resize(qps as usize, 0);
        row
    }

    /// Returns the numbers that the QPs at the other end have, by QP.
    pub(in crate::team) fn remote_qpns(&self) -> Vec<u32> {
        self.peer_qps.iter().map(PeerQp::remote_qpn).collect()
    }

    /// Returns whether all QPs have been reset for the life that is being made.
    pub(in crate::team) fn is_reset(&self) -> bool {
        self.peer_qps.iter().all(PeerQp::is_reset)
    }

    /// Returns how the other end reaches each QP.
    pub(in crate::team) fn offers(&self) -> Vec<QpOffer> {
        let qp = |peer_qp: &PeerQp| QpOffer {
            qpn: peer_qp.qpn(),
            psn: peer_qp.psn(),
            far: peer_qp.far(),
            ece: peer_qp.ece(),
        };
        self.peer_qps.iter().map(qp).collect()
    }

    /// Moves all QPs that take anything from the peer to Err, also those of a life that is being made, and releases their waiters.
    pub(in crate::team) fn end(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        self.end_those(gpu, |_| true)
    }

    /// As [`Qps::end`], for the life that is over: QPs that have been reset for the next life stay as they are.
    pub(in crate::team) fn end_life(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        self.end_those(gpu, |peer_qp| !peer_qp.is_reset())
    }

    fn end_those(
        &mut self,
        gpu: &dyn Gpu,
        which: impl Fn(&PeerQp) -> bool,
    ) -> Result<(), TeamError> {
        let mut peer_qps: Vec<&mut PeerQp> = self
            .peer_qps
            .iter_mut()
            .filter(|peer_qp| which(peer_qp))
            .collect();
        peer_qps.iter_mut().try_for_each(|peer_qp| peer_qp.end())?;
        peer_qps
            .iter()
            .try_for_each(|peer_qp| peer_qp.release(gpu, Status::ABORTED))
    }

    /// Resets the QPs, and fills in their memory for the next life, number `life`. Call it only in the grace period. For the first
    /// `asked` QPs it asks the HCA which packet numbers are in use.
    ///
    /// All QPs begin the life at the same index. What is posted to a QP may go by another QP in the next life, and that QP must
    /// recognise a ticket of this life.
    pub(in crate::team) fn reset(
        &mut self,
        gpu: &dyn Gpu,
        life: u32,
        asked: usize,
    ) -> Result<(), TeamError> {
        // A life has no more bits in the peer table than this, and a context holds as many.
        let life = life & ((1 << RAIL_SHIFT) - 1);
        let mut base = 0;
        for peer_qp in &self.peer_qps {
            base = peer_qp.least_base(gpu)?.max(base);
        }
        for (number, peer_qp) in self.peer_qps.iter_mut().enumerate() {
            peer_qp.reset(gpu, base, life, number < asked)?;
        }
        Ok(())
    }

    /// Sets the QPs `theirs` that these QPs lead to in their next life, by the way of each rail.
    pub(in crate::team) fn lead_to(&mut self, ways: &[Way], theirs: &[QpOffer]) {
        for ((number, peer_qp), qp) in self.peer_qps.iter_mut().enumerate().zip(theirs) {
            let Way { path, log_reads } = ways[number % ways.len()];
            peer_qp.set_path(path.with_remote_qpn(qp.qpn).with_ece(qp.ece), log_reads);
        }
    }

    /// Moves the QPs that carry traffic to Rtr: they take what `theirs` send.
    pub(in crate::team) fn receive(&mut self, theirs: &[QpOffer]) -> Result<(), TeamError> {
        for (number, peer_qp) in self.carrying() {
            let Some(qp) = theirs.get(number) else { break };
            peer_qp.init()?;
            peer_qp.ready_to_receive(qp.psn)?;
        }
        Ok(())
    }

    /// Moves the QPs that carry traffic to Rts.
    pub(in crate::team) fn send(
        &mut self,
        patience: &[SendAttr],
        theirs: &[QpOffer],
    ) -> Result<(), TeamError> {
        for (number, peer_qp) in self.carrying() {
            let Some(qp) = theirs.get(number) else { break };
            peer_qp.ready_to_send(qp.far, &patience[number % patience.len()])?;
        }
        Ok(())
    }

    /// Makes the life that was being made the present one.
    pub(in crate::team) fn commit(&mut self) {
        self.peer_qps.iter_mut().for_each(PeerQp::commit);
    }

    /// Posts a probe on each connected QP, unless that has been done.
    pub(in crate::team) fn post_probes(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        for (_, peer_qp) in self.carrying() {
            peer_qp.post_probe(gpu)?;
        }
        Ok(())
    }

    /// Counts the probes, which have completed, so that kernels post after them. May be called again.
    pub(in crate::team) fn count_probes(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        for (_, peer_qp) in self.carrying() {
            peer_qp.count_probe(gpu)?;
        }
        Ok(())
    }

    /// Returns what the probes say of each rail.
    pub(in crate::team) fn heard(&mut self, gpu: &dyn Gpu) -> Result<Heard, TeamError> {
        let mut heard = Heard::default();
        let mut all = RailSet::EMPTY;
        for (qp, peer_qp) in self.carrying() {
            let rail = peer_qp.rail();
            all.insert(rail);
            match peer_qp.probe(gpu)? {
                Probe::Done => heard.answered.insert(rail),
                Probe::Pending => heard.pending.insert(rail),
                Probe::Failed(syndrome) => {
                    heard.failed.insert(rail);
                    let qp = u32::try_from(qp).expect("at most 64 QPs");
                    heard.first = heard.first.or(Some(GivenUp { qp, syndrome }));
                }
            }
        }
        heard.pending = heard.pending.without(heard.failed);
        heard.answered = all.without(heard.failed).without(heard.pending);
        Ok(heard)
    }

    /// Releases kernels that still post to QPs of a rail that is left out.
    pub(in crate::team) fn release_left_out(&self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        let carriers = self.carriers();
        let peer_qps = self.peer_qps.iter();
        peer_qps
            .filter(|peer_qp| !carriers.carries(peer_qp.rail()))
            .try_for_each(|peer_qp| peer_qp.release(gpu, Status::ABORTED))
    }

    /// Sets or clears the abort word of each QP.
    pub(in crate::team) fn write_abort(&self, gpu: &dyn Gpu, abort: bool) -> Result<(), TeamError> {
        let mut peer_qps = self.peer_qps.iter();
        peer_qps.try_for_each(|peer_qp| peer_qp.write_abort(gpu, abort))
    }
}
