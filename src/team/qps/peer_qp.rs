//! One QP to a peer, through all its lives.

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, QpContext, Status};
use crate::fabric::Rail;
use crate::fabric::{any_psn, far_from, first_psn};
use crate::gpu::{Gpu, MappedMmio};
use crate::team::error::TeamError;
use crate::verbs::{
    ImageAttr, Init, PathAttr, Probe, Qp, QpConfig, QpLayout, QpStatus, Reset, Rtr, Rts, SendAttr,
    State, TransitionError, VerbsError,
};

/// Bytes of a page of doorbell registers.
const PAGE_BYTES: usize = 4096;
/// The number of values of the HCA's 16-bit counter of WQEBBs. After a reset the HCA counts from 0, so a life begins at a multiple
/// of this.
const BASE_STEP: u64 = 1 << 16;

/// One QP to a peer.
#[derive(Debug)]
pub(in crate::team) struct PeerQp {
    /// The doorbell register as kernels reach it; none if a thread of the host rings. Dropped before the QP, which keeps the
    /// register.
    doorbell: Option<MappedMmio>,
    /// Address and lkey of the memory that swallows the results of atomics.
    sink: (u64, u32),
    /// The QP in its state. None only inside [`PeerQp::step`].
    stage: Option<Stage>,
    layout: QpLayout,
    ece: u32,
    ends: Ends,
    /// The address of the failure word, for `QpContext::failed`.
    failed: u64,
    /// First packet number of this side in its present life.
    psn: u32,
    /// The packet number that an earlier generation of the peer would have sent next.
    far: Option<u32>,
    /// The address of the other end; set once the other end has published it.
    path: Option<PathAttr>,
    log_peer_reads: Option<u8>,
    /// The WQEBB index at which the present life has begun.
    base: u64,
    /// The life that is being made, if any.
    next: Option<NextLife>,
    /// The QP was moved to Err, and has not been reset since.
    ended: bool,
    /// The indices that were skipped before the life that the memory is filled in for.
    skipped: Skipped,
    /// The probe of the life that is being made, or of the present one, has been posted.
    probed: bool,
}

/// The two ends that a QP connects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// Rank at the other end.
    pub(super) peer: u32,
    /// The rail at both ends.
    pub(super) rail: u32,
}

/// A QP, by its state.
#[derive(Debug)]
enum Stage {
    Reset(Qp<Reset>),
    Init(Qp<Init>),
    Rtr(Qp<Rtr>),
    Rts(Qp<Rts>),
}

/// The properties of the next life of a QP that are settled.
#[derive(Clone, Copy, Debug)]
struct NextLife {
    psn: u32,
    base: u64,
    skipped: Skipped,
    far: Option<u32>,
    /// The QP is reset, and its memory is filled in for this life.
    ready: bool,
}

/// WQEBB indices that never were posted, or never completed, because a recovery moved the indices on.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::team) struct Skipped {
    pub(in crate::team) posted: u64,
    pub(in crate::team) completed: u64,
}

impl PeerQp {
    /// Makes a QP in Init, with its memory filled in for `life`. Kernels that find it failed set the word at `failed`.
    pub(super) fn new(
        gpu: &dyn Gpu,
        rail: &Rail,
        shape: &QpConfig,
        ends: Ends,
        failed: u64,
        life: u32,
    ) -> Result<Self, TeamError> {
        let qp: Qp<Reset> = Qp::create(rail.pd(), rail.places(), shape)?;
        if let Some(events) = rail.events() {
            let subscribed = qp.subscribe(events, ends.peer.into());
            rail.told_of_failures(subscribed);
        }
        let (layout, ece) = (*qp.layout(), qp.ece());
        let doorbell = match layout.mailbox_addr {
            Some(_) => None,
            None => {
                let page = usize::try_from(layout.doorbell_page_addr).expect("a host address");
                let page = std::ptr::with_exposed_provenance_mut(page);
                Some(gpu.map_mmio(page, PAGE_BYTES)?)
            }
        };
        let mut peer_qp = Self {
            doorbell,
            sink: rail.sink(),
            stage: Some(Stage::Reset(qp)),
            layout,
            ece,
            ends,
            failed,
            psn: any_psn(),
            far: None,
            path: None,
            log_peer_reads: None,
            base: 0,
            next: None,
            ended: false,
            skipped: Skipped::default(),
            probed: false,
        };
        peer_qp.write_image(gpu, 0, life)?;
        peer_qp.init()?;
        Ok(peer_qp)
    }

    pub(in crate::team) fn layout(&self) -> &QpLayout {
        &self.layout
    }

    pub(in crate::team) fn qpn(&self) -> u32 {
        self.layout.qpn
    }

    pub(in crate::team) fn rail(&self) -> u32 {
        self.ends.rail
    }

    /// Returns the options of enhanced connection establishment that the QP has.
    pub(in crate::team) fn ece(&self) -> u32 {
        self.ece
    }

    /// Returns the QP number of the other end; 0 before it is known.
    pub(in crate::team) fn remote_qpn(&self) -> u32 {
        self.path.map_or(0, |path| path.remote_qpn)
    }

    /// Returns the first packet number: of the life that is being made, or else of the present one.
    pub(in crate::team) fn psn(&self) -> u32 {
        self.next.map_or(self.psn, |next| next.psn)
    }

    /// Returns the packet number that the peer would have sent next in the life before; none if the QP had no peer.
    pub(in crate::team) fn far(&self) -> Option<u32> {
        self.next.map_or(self.far, |next| next.far)
    }

    pub(in crate::team) fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// Sets the path to the other end, and log2 of the reads and atomics that the other end takes at once.
    pub(in crate::team) fn set_path(&mut self, path: PathAttr, log_reads: u8) {
        self.path = Some(path);
        self.log_peer_reads = Some(log_reads);
    }

    /// Returns what the HCA says about the QP.
    pub(in crate::team) fn query(&self) -> Result<QpStatus, VerbsError> {
        match self.stage.as_ref().expect("whole between two steps") {
            Stage::Reset(qp) => qp.query(),
            Stage::Init(qp) => qp.query(),
            Stage::Rtr(qp) => qp.query(),
            Stage::Rts(qp) => qp.query(),
        }
    }

    /// Returns the rank at the other end.
    pub(in crate::team) fn peer(&self) -> u32 {
        self.ends.peer
    }

    /// Returns whether the QP takes anything from the peer, or did so until it ended.
    pub(in crate::team) fn is_connected(&self) -> bool {
        matches!(self.stage, Some(Stage::Rtr(_) | Stage::Rts(_)))
    }

    /// Returns two counts of WQEBBs of the send queue, both modulo 2^16: those that the HCA has taken, and those that were rung.
    pub(in crate::team) fn sent(&self) -> Result<(u32, u32), VerbsError> {
        let context = match self.stage.as_ref().expect("whole between two steps") {
            Stage::Reset(qp) => qp.query_context(),
            Stage::Init(qp) => qp.query_context(),
            Stage::Rtr(qp) => qp.query_context(),
            Stage::Rts(qp) => qp.query_context(),
        }?;
        Ok((context.hw_sq_wqebb_counter(), context.sw_sq_wqebb_counter()))
    }

    /// Destroys the QP of this link, whatever its state.
    pub(in crate::team) fn destroy(self) -> Result<(), VerbsError> {
        // Kernels do not ring any more.
        drop(self.doorbell);
        match self.stage.expect("whole between two steps") {
            Stage::Reset(qp) => qp.destroy(),
            Stage::Init(qp) => qp.destroy(),
            Stage::Rtr(qp) => qp.destroy(),
            Stage::Rts(qp) => qp.destroy(),
        }
    }

    /// Moves the QP to Err, unless it takes nothing from a peer yet. If it had been reset for the next life, it must be reset
    /// again.
    pub(in crate::team) fn end(&mut self) -> Result<(), VerbsError> {
        match self.stage.as_ref().expect("whole between two steps") {
            Stage::Rtr(qp) if !self.ended => qp.to_error(),
            Stage::Rts(qp) if !self.ended => qp.to_error(),
            _ => return Ok(()),
        }?;
        self.ended = true;
        if let Some(next) = &mut self.next {
            next.ready = false;
        }
        Ok(())
    }

    /// Returns whether the QP has been reset for the life that is being made.
    pub(in crate::team) fn is_reset(&self) -> bool {
        self.next.is_some_and(|next| next.ready)
    }

    /// Reads the context of the QP from device memory.
    pub(in crate::team) fn context(&self, gpu: &dyn Gpu) -> Result<QpContext, TeamError> {
        let mut context = QpContext::zeroed();
        gpu.read(
            self.layout.context_addr,
            bytemuck::bytes_of_mut(&mut context),
        )?;
        Ok(context)
    }

    /// Raises `status` as the failure of the QP, unless it has failed already. Every wait on the QP then ends.
    ///
    /// The host has no compare-and-swap on device memory, so a kernel may latch a failure between the look and the store, which
    /// then replaces it. That loses the cause and nothing else:
    ///
    /// - The word goes from 0 to a failure in either case, and never back before the reset, which comes after the grace period. So
    ///   every wait and post ends, and no kernel counts a WQE as done that is not.
    /// - The host writes error and syndrome by one aligned store of 8 bytes, so no kernel sees a mixture of two failures.
    /// - A kernel that latches later finds the host's word and leaves it. `QpContext::errors` counts a replaced failure.
    /// - Of two callers one may get the cause and the other `status`. Both know that the outcome is unknown: the QP is in Err.
    pub(in crate::team) fn release(&self, gpu: &dyn Gpu, status: Status) -> Result<(), TeamError> {
        let at = self.layout.context_addr + std::mem::offset_of!(QpContext, err) as u64;
        let mut word = [0u32; 2];
        gpu.read(at, bytemuck::cast_slice_mut(&mut word))?;
        if word[0] == Status::OK.0 {
            // Error and syndrome are one word of 8 bytes.
            gpu.write(at, bytemuck::cast_slice(&[status.0, 0]))?;
        }
        Ok(())
    }

    /// Sets or clears the abort word of the QP.
    pub(in crate::team) fn write_abort(&self, gpu: &dyn Gpu, abort: bool) -> Result<(), TeamError> {
        let at = self.layout.context_addr + std::mem::offset_of!(QpContext, abort) as u64;
        Ok(gpu.write(at, &u32::from(abort).to_le_bytes())?)
    }

    /// Returns the least index at which the next life may begin: after all that the present life has posted.
    pub(in crate::team) fn least_base(&self, gpu: &dyn Gpu) -> Result<u64, TeamError> {
        match self.next {
            Some(next) => Ok(next.base),
            None => Ok(self.context(gpu)?.resv.next_multiple_of(BASE_STEP)),
        }
    }

    /// Moves the QP to Reset from any state, with the memory of a new life that begins at index `base`. No thread may use the QP.
    /// After a failure it may be called again. If `asks`, the call queries the HCA for the packet numbers in use, and takes next
    /// numbers that are far from them. Otherwise the next numbers are random.
    pub(in crate::team) fn reset(
        &mut self,
        gpu: &dyn Gpu,
        base: u64,
        life: u32,
        asks: bool,
    ) -> Result<(), TeamError> {
        let next = match self.next {
            Some(next) => next,
            None => self.plan_next(gpu, base, asks)?,
        };
        self.next = Some(next);
        if next.ready {
            return Ok(());
        }
        self.step(|stage| match stage {
            Stage::Reset(qp) => (Stage::Reset(qp), Ok(())),
            Stage::Init(qp) => moved(qp.reset(), Stage::Reset, Stage::Init),
            Stage::Rtr(qp) => moved(qp.reset(), Stage::Reset, Stage::Rtr),
            Stage::Rts(qp) => moved(qp.reset(), Stage::Reset, Stage::Rts),
        })?;
        (self.ended, self.probed) = (false, false);
        self.write_image(gpu, next.base, life)?;
        self.next = Some(NextLife {
            ready: true,
            ..next
        });
        Ok(())
    }

    fn plan_next(&self, gpu: &dyn Gpu, base: u64, asks: bool) -> Result<NextLife, TeamError> {
        let context = self.context(gpu)?;
        let (psn, far) = match self.stage.as_ref().expect("whole between two steps") {
            // Nothing was sent or received in this life, but its number was published.
            Stage::Reset(_) | Stage::Init(_) => (far_from(self.psn), self.far),
            Stage::Rtr(_) | Stage::Rts(_) if asks => {
                let status = self.query()?;
                (far_from(status.next_send_psn), Some(status.next_rcv_psn))
            }
            Stage::Rtr(_) | Stage::Rts(_) => (any_psn(), None),
        };
        Ok(NextLife {
            psn,
            far,
            base,
            skipped: Skipped {
                posted: self.skipped.posted + (base - context.resv),
                completed: self.skipped.completed + (base - context.cons),
            },
            ready: false,
        })
    }

    /// Moves the QP from Reset to Init, unless it is further.
    pub(in crate::team) fn init(&mut self) -> Result<(), VerbsError> {
        self.step(|stage| match stage {
            Stage::Reset(qp) => moved(qp.init(), Stage::Init, Stage::Reset),
            further => (further, Ok(())),
        })
    }

    /// Moves the QP from Init to Rtr, unless it is further. The other end has published that its first packet has number `psn`.
    pub(in crate::team) fn ready_to_receive(&mut self, psn: u32) -> Result<(), VerbsError> {
        let psn = first_psn(psn, self.far());
        let path = self.path.expect("told before");
        let path = PathAttr { psn, ..path };
        self.step(|stage| match stage {
            Stage::Init(qp) => moved(qp.ready_to_receive(&path), Stage::Rtr, Stage::Init),
            further => (further, Ok(())),
        })
    }

    /// Moves the QP from Rtr to Rts, unless it is further. The other end has published that packets near `far` may be left of an
    /// earlier life.
    pub(in crate::team) fn ready_to_send(
        &mut self,
        far: Option<u32>,
        send: &SendAttr,
    ) -> Result<(), VerbsError> {
        let send = SendAttr {
            psn: first_psn(self.psn(), far),
            log_peer_reads: self.log_peer_reads,
            ..*send
        };
        self.step(|stage| match stage {
            Stage::Rtr(qp) => moved(qp.ready_to_send(&send), Stage::Rts, Stage::Rtr),
            further => (further, Ok(())),
        })
    }

    /// Makes the life that is being made the present one, if the QP has been reset for it. A life that was published and then given
    /// up becomes the present one in this way, too.
    pub(in crate::team) fn commit(&mut self) {
        if let Some(next) = self.next.take().filter(|next| next.ready) {
            self.psn = next.psn;
            self.far = next.far;
            self.base = next.base;
        }
    }

    /// Returns the index at which the life begins that is being made, or else the present life.
    fn life_base(&self) -> u64 {
        self.next.map_or(self.base, |next| next.base)
    }

    /// Posts a probe, unless that has been done. The QP is in Rts, and nothing else was posted in the life that is being made, or
    /// else in the present life.
    pub(in crate::team) fn post_probe(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        let doorbells = self.context(gpu)?.doorbells.wrapping_add(1);
        if let (Some(Stage::Rts(qp)), false) = (&self.stage, self.probed) {
            let base = self.life_base();
            qp.post_probe(base, doorbells, |addr, bytes| gpu.write(addr, bytes))?;
            self.probed = true;
        }
        Ok(())
    }

    /// Returns what has become of the probe.
    pub(in crate::team) fn probe(&self, gpu: &dyn Gpu) -> Result<Probe, TeamError> {
        match &self.stage {
            Some(Stage::Rts(qp)) if self.probed => Ok(qp.probe(|addr, out| gpu.read(addr, out))?),
            _ => Ok(Probe::Pending),
        }
    }

    /// Counts the probe, which has completed, so that kernels post after it. May be called again.
    pub(in crate::team) fn count_probe(&self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        if let Some(Stage::Rts(qp)) = &self.stage {
            let base = self.life_base();
            qp.count_probe(base, |addr, bytes| gpu.write(addr, bytes))?;
        }
        Ok(())
    }

    /// Fills in the memory of a life that begins at `base`. The QP is in Reset. Counters and the abort word keep their values from
    /// life to life.
    fn write_image(&mut self, gpu: &dyn Gpu, base: u64, life: u32) -> Result<(), TeamError> {
        let attr = ImageAttr {
            doorbell: self.doorbell.as_ref().map_or(0, |page| {
                page.addr() + (self.layout.doorbell_addr - self.layout.doorbell_page_addr)
            }),
            atomic_sink: self.sink.0,
            atomic_sink_lkey: self.sink.1,
            life,
            base,
        };
        let kept = match self.next {
            Some(_) => Some(self.context(gpu)?),
            None => None,
        };
        let Some(Stage::Reset(qp)) = &self.stage else {
            unreachable!("memory is filled in Reset only");
        };
        // CQs that are not collapsed go on where they were before the reset.
        self.layout = *qp.layout();
        let (own, peer, rail) = (self.layout.context_addr, self.ends.peer, self.ends.rail);
        let failed = DevicePtr::new(self.failed);
        let mut has_moved = false;
        let written = qp.write_image(&attr, |addr, bytes| {
            if addr != own {
                return gpu.write(addr, bytes);
            }
            let mut context: QpContext = bytemuck::pod_read_unaligned(bytes);
            context.peer = peer;
            context.rail = rail;
            context.failed = failed;
            if let Some(kept) = &kept {
                context.abort = kept.abort;
                context.doorbells = kept.doorbells;
                context.full_ring_ns = kept.full_ring_ns;
                context.errors = kept.errors;
            }
            gpu.write(addr, bytemuck::bytes_of(&context))?;
            has_moved = true;
            Ok(())
        });
        // The indices have moved even if the rest of the memory could not be written.
        if let Some(next) = self.next.filter(|_| has_moved) {
            self.skipped = next.skipped;
        }
        Ok(written?)
    }

    fn step(
        &mut self,
        step: impl FnOnce(Stage) -> (Stage, Result<(), VerbsError>),
    ) -> Result<(), VerbsError> {
        let stage = self.stage.take().expect("whole between two steps");
        let (stage, result) = step(stage);
        self.stage = Some(stage);
        result
    }
}

/// Returns the QP in its new state, or in its old state with the error.
fn moved<A: State, B: State>(
    result: Result<Qp<B>, Box<TransitionError<A>>>,
    done: fn(Qp<B>) -> Stage,
    stuck: fn(Qp<A>) -> Stage,
) -> (Stage, Result<(), VerbsError>) {
    match result {
        Ok(qp) => (done(qp), Ok(())),
        Err(error) => {
            let TransitionError { qp, source } = *error;
            (stuck(qp), Err(source))
        }
    }
}
