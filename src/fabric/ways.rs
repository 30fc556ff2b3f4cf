//! Finds the step of each ladder that holds on the devices of a rank. Each step is tried with one QP and one page on each device, before
//! anything else is made.

// UNSAFETY: registers memory of its own with the HCA.
#![expect(unsafe_code, reason = "registration of memory that the trial owns")]

use std::sync::Arc;

use super::choice::{Choice, Matter, Step};
use super::error::FabricError;
use super::ladder::Ladder;
use super::offered::{Offered, memory_on};
use super::rail::{Rail, RailConfig};
use crate::config::{Doorbell, Memory, Queues};
use crate::gpu::{Gpu, GpuError};
use crate::verbs::{Access, Caps, Context, Mr, Pd, Qp, QpConfig, Rung, VerbsError};

/// Bytes of a page of doorbell registers, and of a window for a trial.
const PAGE_BYTES: usize = 4096;
/// Bytes of a heap for what does not belong to a QP, and for alignment.
const SPARE: u64 = 4096;

/// The steps that a configuration names. A step that it names is the only one that is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    pub(crate) doorbell: Option<Doorbell>,
    pub(crate) queues: Option<Queues>,
    pub(crate) windows: Option<Memory>,
    /// How HCAs reach device memory, in place of the first step that holds.
    pub(crate) rung: Option<Rung>,
}

/// How the HCAs of a rank hear of work and reach its memory. A step is left for all rails at once: if a GPU does not map the registers of
/// one HCA, the rank maps those of none; if one HCA does not reach device memory, the rank registers it with none.
#[derive(Clone, Debug)]
pub(crate) struct Ways {
    doorbells: Ladder,
    queues: Ladder,
    windows: Ladder,
}

impl Ways {
    /// Returns the best steps that hold with a QP of `shape`.
    ///
    /// # Errors
    /// Errors that are not of a step; if no step holds, all reasons.
    pub(crate) fn settle(
        allowed: &Allowed,
        shape: &QpConfig,
        contexts: &[Arc<Context>],
        gpu: &dyn Gpu,
    ) -> Result<Self, FabricError> {
        let mut ways = Self::best(allowed);
        ways.leave_no_record(contexts)?;
        for context in contexts {
            context.check_port()?;
            while let Err(refusal) = ways.try_qp(shape, context, gpu) {
                ways.leave(refusal)?;
            }
            while let Err(refusal) = ways.try_window(context, gpu) {
                ways.leave_windows(refusal)?;
            }
        }
        Ok(ways)
    }

    fn best(allowed: &Allowed) -> Self {
        let Allowed {
            doorbell,
            queues,
            windows,
            rung,
        } = *allowed;
        let is_open = |step: Step, is_host: bool| {
            is_host || rung.is_none_or(|only| step == Step::Memory(only))
        };
        Self {
            doorbells: Ladder::new(Matter::Doorbells, |step| {
                doorbell.is_none_or(|only| step == Step::Doorbell(only))
            }),
            queues: Ladder::new(Matter::Queues, |step| {
                let host = step == Step::Memory(Rung::Host);
                is_open(step, host) && queues.is_none_or(|only| host == (only == Queues::Host))
            }),
            windows: Ladder::new(Matter::Windows, |step| {
                let host = step == Step::Memory(Rung::Host);
                is_open(step, host) && windows.is_none_or(|only| host == (only == Memory::Host))
            }),
        }
    }

    /// Leaves the best doorbell step if no HCA can do without records.
    fn leave_no_record(&mut self, contexts: &[Arc<Context>]) -> Result<(), FabricError> {
        let can = |context: &Arc<Context>| Self::does_without(context.caps());
        let is_best = self.doorbells.step() == Step::Doorbell(Doorbell::NoRecord);
        match contexts.first() {
            Some(first) if is_best && !contexts.iter().any(can) => {
                let lacks = VerbsError::Capability {
                    device: first.name().to_owned(),
                    what: "send_dbr_mode_no_dbr_ext",
                    has: "0".to_owned(),
                    needed: "1 for a send queue without a doorbell record (Doorbell::NoRecord)"
                        .to_owned(),
                };
                self.doorbells.leave(lacks.into())
            }
            _ => Ok(()),
        }
    }

    fn does_without(caps: &Caps) -> bool {
        Doorbell::by_capability(caps) == Doorbell::NoRecord
    }

    /// Leaves the step to which `refusal` belongs.
    ///
    /// # Errors
    /// `refusal` itself if it belongs to no step, or to the only one that the configuration allows; otherwise all steps with their reasons.
    pub(crate) fn leave(&mut self, refusal: FabricError) -> Result<(), FabricError> {
        let doorbell = self.doorbells.step();
        match refusal {
            FabricError::Step(reason) => self.queues.leave(*reason),
            FabricError::Gpu(GpuError::Doorbell { .. })
                if doorbell != Step::Doorbell(Doorbell::Mailbox) =>
            {
                let FabricError::Gpu(reason) = refusal else {
                    return Err(refusal);
                };
                self.doorbells.leave(FabricError::Gpu(reason.clone()))?;
                // A QP with a record uses the same register, so that step is left too.
                if self.doorbells.step() == Step::Doorbell(Doorbell::Record) {
                    self.doorbells.leave(FabricError::Gpu(reason))
                } else {
                    Ok(())
                }
            }
            FabricError::Verbs(reason)
                if doorbell == Step::Doorbell(Doorbell::NoRecord) && reason.is_of_no_record() =>
            {
                self.doorbells.leave(FabricError::Verbs(reason))
            }
            other => Err(other),
        }
    }

    /// Leaves the present step of windows.
    ///
    /// # Errors
    /// As [`Ways::leave`].
    pub(crate) fn leave_windows(&mut self, refusal: FabricError) -> Result<(), FabricError> {
        match refusal {
            FabricError::Step(reason) => self.windows.leave(*reason),
            other => Err(other),
        }
    }

    /// Returns how QPs on a device with `caps` ring.
    pub(crate) fn doorbell(&self, caps: &Caps) -> Doorbell {
        match self.doorbells.step() {
            // A device without this capability takes a record instead. If the configuration names the step, such a device refuses it by
            // name.
            Step::Doorbell(Doorbell::NoRecord)
                if self.doorbells.is_free() && !Self::does_without(caps) =>
            {
                Doorbell::Record
            }
            Step::Doorbell(doorbell) => doorbell,
            _ => Doorbell::Record,
        }
    }

    /// Returns in which memory queues lie.
    pub(crate) fn queues(&self) -> Queues {
        match rung_of(&self.queues) {
            Rung::Host => Queues::Host,
            _ => Queues::Device,
        }
    }

    /// Returns how HCAs reach queues.
    pub(crate) fn queue_rung(&self) -> Rung {
        rung_of(&self.queues)
    }

    /// Returns how HCAs reach windows.
    pub(crate) fn window_rung(&self) -> Rung {
        rung_of(&self.windows)
    }

    /// Returns the choices of doorbells, queues and windows.
    pub(crate) fn choices(&self) -> [&Choice; 3] {
        [&self.doorbells, &self.queues, &self.windows].map(Ladder::choice)
    }

    /// Makes a QP with the present steps, and takes it down again.
    fn try_qp(
        &self,
        shape: &QpConfig,
        context: &Arc<Context>,
        gpu: &dyn Gpu,
    ) -> Result<(), FabricError> {
        let shape = QpConfig {
            doorbell: self.doorbell(context.caps()),
            queues: self.queues(),
            ..*shape
        };
        let bytes = |of_qp: u64| {
            let bytes = (of_qp.next_multiple_of(128) + SPARE).next_multiple_of(SPARE);
            usize::try_from(bytes).expect("a QP of at most 2^15 WQEBBs")
        };
        let config = RailConfig {
            shape,
            rung: self.queue_rung(),
            qps: 1,
            control_bytes: bytes(shape.control_bytes()),
            host_bytes: bytes(shape.host_bytes()),
        };
        let rail = Rail::new(context, None, gpu, &config)?;
        let qp: Qp<_> = Qp::create(rail.pd(), rail.places(), &shape).map_err(|error| {
            let of_record = shape.doorbell == Doorbell::NoRecord && error.is_of_no_record();
            if error.is_refusal() && !of_record {
                FabricError::of_step(error)
            } else {
                FabricError::Verbs(error)
            }
        })?;
        if shape.doorbell != Doorbell::Mailbox {
            let page = usize::try_from(qp.layout().doorbell_page_addr).expect("a host address");
            gpu.map_mmio(std::ptr::with_exposed_provenance_mut(page), PAGE_BYTES)?;
        }
        Ok(())
    }

    /// Registers a page with the present step, and deregisters it again.
    fn try_window(&self, context: &Arc<Context>, gpu: &dyn Gpu) -> Result<(), FabricError> {
        let rung = self.window_rung();
        let memory = memory_on(gpu, rung, PAGE_BYTES, PAGE_BYTES, false)?;
        let offered = Offered::on(&memory, rung)?;
        let pd = Pd::new(context)?;
        let (addr, bytes) = (memory.addr(), memory.bytes() as u64);
        let dmabuf = offered.dmabuf();
        // SAFETY: what is offered is this memory, which no Rust reference points into, and which is dropped after the registration.
        let tried = unsafe { Mr::on(&pd, addr, bytes, Access::ALL, rung, dmabuf.as_ref()) };
        match tried {
            Ok(mut mr) => Ok(mr.deregister()?),
            Err(error) if error.is_refusal() => Err(FabricError::of_step(error)),
            Err(error) => Err(error.into()),
        }
    }
}

fn rung_of(ladder: &Ladder) -> Rung {
    match ladder.step() {
        Step::Memory(rung) => rung,
        _ => Rung::Address,
    }
}
