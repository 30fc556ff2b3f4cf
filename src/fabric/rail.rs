//! One rail: an HCA of this rank, with its protection domain, its control heap and what its modes of QPs need.

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

/// What a rail has room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RailConfig {
    /// The shape of its QPs.
    pub(crate) shape: QpConfig,
    /// How the HCA reaches the memory of their queues.
    pub(crate) rung: Rung,
    /// QPs that a thread of the host rings for, where [`RailConfig::shape`] says so.
    pub(crate) qps: usize,
    /// Device memory of its QPs.
    pub(crate) control_bytes: usize,
    /// Host memory of its QPs; 0 if their queues lie in device memory.
    pub(crate) host_bytes: usize,
}

/// Everything on one HCA that QPs and registrations are made from.
#[derive(Debug)]
pub(crate) struct Rail {
    /// Where results of atomics go that no caller asked for; none if the device has no atomics. Before its heap.
    sink: Option<AtomicSink>,
    shape: QpConfig,
    /// The thread that rings, with mailboxes.
    proxy: Option<Arc<DoorbellProxy>>,
    /// Queues in host memory.
    host: Option<Arc<ControlHeap>>,
    /// Events that the HCA reports by itself; none if it reports none.
    events: Option<Events>,
    /// That it does not tell of its QPs has been said.
    silent: AtomicBool,
    pd: Arc<Pd>,
    control: Control,
}

impl Rail {
    /// A rail on the device `context`, in `domain` or one of its own, which reports no events yet.
    ///
    /// # Errors
    /// What the HCA refuses, or the device that runs kernels; [`FabricError::Step`] where that is how it reaches the memory of queues.
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

    /// As `new`, which reports the port and failures where the HCA does.
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

    /// Whether the threads of the rail run.
    pub(crate) fn check(&self) -> Result<(), VerbsError> {
        self.proxy.as_ref().map_or(Ok(()), |proxy| proxy.check())
    }

    /// Events that the HCA reports by itself.
    pub(crate) fn events(&self) -> Option<&Events> {
        self.events.as_ref()
    }

    /// Says once if the HCA does not tell when QPs fail.
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

    /// Returns how the HCA reaches the memory of its queues.
    pub(crate) fn export(&self) -> Option<&Export> {
        self.host.as_ref().unwrap_or(self.heap()).export()
    }

    /// Bytes that are taken of its heaps, in device and host memory.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let host = self.host.as_ref().map_or(0, |heap| heap.stats().live_bytes);
        self.heap().stats().live_bytes + host
    }

    /// Its heaps by name: the control heap, and the heap of queues in host memory if the rail has one.
    pub(crate) fn heaps(&self) -> impl Iterator<Item = (&'static str, &ControlHeap)> {
        let host = self.host.iter().map(|heap| ("host heap", heap.as_ref()));
        std::iter::once(("control heap", self.heap().as_ref())).chain(host)
    }

    /// Returns the shape of its QPs.
    pub(crate) fn shape(&self) -> &QpConfig {
        &self.shape
    }

    /// Where its QPs take their memory from.
    pub(crate) fn places(&self) -> QpPlaces<'_> {
        QpPlaces {
            control: self.control.heap(),
            host: self.host.as_ref(),
            proxy: self.proxy.as_ref(),
        }
    }

    /// Address and lkey of the sink; zeros without a sink.
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

/// Returns what the HCA says of memory that it is to reach: it may reach other memory.
fn of_memory(error: VerbsError) -> FabricError {
    if error.is_refusal() {
        FabricError::of_step(error)
    } else {
        FabricError::Verbs(error)
    }
}

/// Returns a thread that rings for `qps` QPs.
fn proxy(gpu: &dyn Gpu, qps: usize) -> Result<Arc<DoorbellProxy>, FabricError> {
    let mailbox = usize::try_from(MAILBOX_BYTES).expect("a cache line");
    let bytes = qps.max(1) * mailbox;
    let memory = gpu.map_host(bytes)?;
    let (addr, host_addr) = (memory.addr(), memory.host_addr());
    let owner: Option<Box<dyn std::any::Any + Send + Sync>> = Some(Box::new(memory));
    // SAFETY: as in `host_heap`.
    Ok(unsafe { DoorbellProxy::start(addr, host_addr, bytes, None, owner) }?)
}

/// The control heap and the memory it lies in.
#[derive(Debug)]
struct Control {
    heap: Option<Arc<ControlHeap>>,
    memory: Option<DeviceMemory>,
}

impl Control {
    /// With host queues it holds contexts and flags alone, and the HCA does not reach it.
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
