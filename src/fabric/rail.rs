//! One rail: an HCA of this rank, with its protection domain, its control heap and whatever the modes of its QPs need.

// UNSAFETY: gives memory that the rail owns to heaps and to the thread that rings.
#![expect(
    unsafe_code,
    reason = "heaps and mailboxes in memory that the rail owns"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::error::FabricError;
use super::offered::{Offered, memory_on};
use crate::gpu::{DeviceMemory, Gpu};
use crate::verbs::{
    AtomicSink, Context, ControlHeap, Doorbell, DoorbellProxy, Events, Export, HEAP_ALIGN,
    HeapRegion, MAILBOX_BYTES, Pd, QpConfig, QpPlaces, Queues, Rung, VerbsError,
};

/// The shape and the room of a rail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailConfig {
    /// The shape of the rail's QPs.
    pub(crate) shape: QpConfig,
    /// How the HCA reaches the memory of the QPs' queues.
    pub(crate) rung: Rung,
    /// The number of QPs for which a thread of the host rings, if [`RailConfig::shape`] says so.
    pub(crate) qps: usize,
    /// Bytes of device memory for the rail's QPs.
    pub(crate) control_bytes: usize,
    /// Bytes of host memory for the rail's QPs; 0 if their queues lie in device memory.
    pub(crate) host_bytes: usize,
}

/// What QPs and registrations on one HCA are made from.
#[derive(Debug)]
pub(crate) struct Rail {
    /// Where the HCA writes results of atomics for which no caller asked; None if the device has no atomics. It is declared before its
    /// heap, so that it is dropped first.
    sink: Option<AtomicSink>,
    shape: QpConfig,
    /// The thread that rings, with its mailboxes.
    proxy: Option<Arc<DoorbellProxy>>,
    /// The heap of queues in host memory.
    host: Option<Arc<ControlHeap>>,
    /// Events that the HCA reports by itself. None if it reports none.
    events: Option<Events>,
    /// True if a warning has said that the HCA does not tell of failed QPs.
    silent: AtomicBool,
    pd: Arc<Pd>,
    control: Control,
}

impl Rail {
    /// Makes a rail on the device `context`, in `domain` or a domain of its own. It reports no events yet.
    ///
    /// # Errors
    /// What the HCA or the device that runs kernels refuses. [`FabricError::Step`] if that is how the HCA reaches the memory of queues.
    pub(crate) fn new(
        context: &Arc<Context>,
        domain: Option<&Arc<Pd>>,
        gpu: &dyn Gpu,
        config: &RailConfig,
    ) -> Result<Self, FabricError> {
        let control = Control::new(context, gpu, config)?;
        let pd = match domain {
            Some(domain) => Arc::clone(domain),
            None => Pd::new(context)?,
        };
        let host = match config.shape.queues {
            Queues::Device => None,
            Queues::Host => Some(host_heap(context, gpu, config.host_bytes)?),
        };
        let proxy = match config.shape.doorbell {
            Doorbell::Mailbox => Some(proxy(gpu, config.qps)?),
            Doorbell::Record | Doorbell::NoRecord => None,
        };
        let sink = if context.caps().atomics {
            let sink = AtomicSink::new(&pd, host.as_ref().unwrap_or(control.heap()));
            Some(sink.map_err(of_memory)?)
        } else {
            None
        };
        Ok(Self {
            sink,
            shape: config.shape,
            proxy,
            host,
            events: None,
            silent: AtomicBool::new(false),
            pd,
            control,
        })
    }

    /// Returns the rail with events: it reports the state of the port and failures, if the HCA does.
    pub(crate) fn with_events(self) -> Self {
        let events = Events::open(self.context()).inspect_err(|error| {
            tracing::warn!("failures are found by completions and deadlines only: {error}");
        });
        Self {
            events: events.ok(),
            ..self
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.pd.context()
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Checks that the threads of the rail run.
    pub(crate) fn check(&self) -> Result<(), VerbsError> {
        self.proxy.as_ref().map_or(Ok(()), |proxy| proxy.check())
    }

    /// Returns the events that the HCA reports by itself.
    pub(crate) fn events(&self) -> Option<&Events> {
        self.events.as_ref()
    }

    /// Warns once if the HCA does not tell when QPs fail.
    pub(crate) fn told_of_failures(&self, subscribed: Result<(), VerbsError>) {
        if let Err(error) = subscribed
            && !self.silent.swap(true, Relaxed)
        {
            tracing::warn!("failures of QPs are found by completions and deadlines only: {error}");
        }
    }

    pub(crate) fn heap(&self) -> &Arc<ControlHeap> {
        self.control.heap()
    }

    /// Returns how the HCA reaches the memory of the rail's queues.
    pub(crate) fn export(&self) -> Option<&Export> {
        self.host.as_ref().unwrap_or(self.heap()).export()
    }

    /// Returns how many bytes of the rail's heaps are in use, in device and host memory.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let host = self.host.as_ref().map_or(0, |heap| heap.stats().live_bytes);
        self.heap().stats().live_bytes + host
    }

    /// Returns the rail's heaps by name: the control heap, and the heap of queues in host memory if there is one.
    pub(crate) fn heaps(&self) -> impl Iterator<Item = (&'static str, &ControlHeap)> {
        let host = self.host.iter().map(|heap| ("host heap", heap.as_ref()));
        std::iter::once(("control heap", self.heap().as_ref())).chain(host)
    }

    /// Returns the shape of the rail's QPs.
    pub(crate) fn shape(&self) -> &QpConfig {
        &self.shape
    }

    /// Returns where the rail's QPs take their memory from.
    pub(crate) fn places(&self) -> QpPlaces<'_> {
        QpPlaces {
            control: self.control.heap(),
            host: self.host.as_ref(),
            proxy: self.proxy.as_ref(),
        }
    }

    /// Returns address and lkey of the sink, or zeros if there is no sink.
    pub(crate) fn sink(&self) -> (u64, u32) {
        let sink = self.sink.as_ref();
        sink.map_or((0, 0), |sink| (sink.addr(), sink.lkey()))
    }
}

/// Returns a heap of `bytes` bytes of host memory that kernels reach.
fn host_heap(
    context: &Arc<Context>,
    gpu: &dyn Gpu,
    bytes: usize,
) -> Result<Arc<ControlHeap>, FabricError> {
    let memory = gpu.map_host(bytes).map_err(FabricError::of_step)?;
    let region = HeapRegion::host(memory.addr(), memory.host_addr(), bytes);
    // SAFETY: the heap keeps the memory as its owner; no code has a reference into it but to atomics.
    let heap = unsafe { ControlHeap::over(context, &region, Some(Box::new(memory))) };
    heap.map_err(of_memory)
}

/// Returns the error of an HCA that refuses memory. It is the error of a step, because the HCA may reach other memory.
fn of_memory(error: VerbsError) -> FabricError {
    if error.is_refusal() {
        FabricError::of_step(error)
    } else {
        FabricError::Verbs(error)
    }
}

/// Starts a thread that rings for `qps` QPs.
fn proxy(gpu: &dyn Gpu, qps: usize) -> Result<Arc<DoorbellProxy>, FabricError> {
    let mailbox = usize::try_from(MAILBOX_BYTES).expect("a cache line");
    let bytes = qps.max(1) * mailbox;
    let memory = gpu.map_host(bytes)?;
    let (addr, host_addr) = (memory.addr(), memory.host_addr());
    let owner: Option<Box<dyn std::any::Any + Send + Sync>> = Some(Box::new(memory));
    // SAFETY: as in `host_heap`.
    Ok(unsafe { DoorbellProxy::start(addr, host_addr, bytes, None, owner) }?)
}

/// The control heap, and the memory in which it lies.
#[derive(Debug)]
struct Control {
    heap: Option<Arc<ControlHeap>>,
    memory: Option<DeviceMemory>,
}

impl Control {
    /// Makes the control heap. If the queues are in host memory, it holds contexts and flags only, and the HCA does not reach it.
    fn new(
        context: &Arc<Context>,
        gpu: &dyn Gpu,
        config: &RailConfig,
    ) -> Result<Self, FabricError> {
        let align = usize::try_from(HEAP_ALIGN).expect("a page");
        let bytes = config.control_bytes;
        let rung = match config.shape.queues {
            Queues::Device => Some(config.rung),
            Queues::Host => None,
        };
        let memory = memory_on(gpu, rung.unwrap_or(Rung::Address), bytes, align, false)?;
        let offered = rung.map(|rung| Offered::on(&memory, rung)).transpose()?;
        let dmabuf = offered.as_ref().and_then(Offered::dmabuf);
        let region = HeapRegion::device(memory.addr(), bytes).with_umem(rung.is_some());
        // SAFETY: `memory` is device memory, to which no Rust reference exists, and the offer is of that same memory. `drop` frees
        // it after the heap, or never.
        let heap = unsafe { ControlHeap::on(context, &region, dmabuf.as_ref()) };
        Ok(Self {
            heap: Some(heap.map_err(of_memory)?),
            memory: Some(memory),
        })
    }

    fn heap(&self) -> &Arc<ControlHeap> {
        self.heap.as_ref().expect("taken in drop only")
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let left = self
            .heap
            .take()
            .map_or(0, |heap| Arc::strong_count(&heap) - 1);
        if left != 0 {
            // A QP that the HCA would not destroy still uses its rings, so no other QP ever gets them.
            tracing::error!("{left} users of the control heap are left: its memory is kept");
            std::mem::forget(self.memory.take());
        }
    }
}
