//! One end of connections on a software HCA, and QPs between two of them.

// UNSAFETY: registers memory with the software HCA.
#![expect(unsafe_code, reason = "registered memory")]

use std::sync::Arc;

use crate::device::test_gpu;
use crate::hca::kick;
use softhca::Hca;
use warpverbs::gpu::{DeviceMemory, Gpu};
use warpverbs::verbs::{
    Access, Context, ControlHeap, DeviceSelector, DoorbellProxy, Gid, HeapRegion, ImageAttr, Mr,
    PathAttr, Pd, Qp, QpConfig, QpPlaces, Reset, Rts, SendAttr, VerbsError,
};

/// Registered device memory.
pub struct Window {
    mr: Mr,
    /// Freed last.
    memory: DeviceMemory,
}

impl Window {
    /// Where it begins.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Its local key.
    pub fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    /// The key that peers name.
    pub fn rkey(&self) -> u32 {
        self.mr.rkey()
    }
}

/// One end of connections: an open device, a domain, a control heap in device memory.
#[derive(Debug)]
pub struct Node {
    /// Control memory in the device.
    pub heap: Arc<ControlHeap>,
    /// A heap in host memory, with [`Node::with_host`].
    pub host: Option<Arc<ControlHeap>>,
    /// Who rings for mailboxes, with [`Node::with_host`].
    pub proxy: Option<Arc<DoorbellProxy>>,
    /// The domain of its QPs and windows.
    pub pd: Arc<Pd>,
    /// The open device.
    pub context: Arc<Context>,
    /// Where its kernels run.
    pub gpu: Arc<dyn Gpu>,
}

impl Node {
    /// Opens `hca` and registers a control heap of `heap_bytes` bytes.
    pub fn open(hca: &Hca, heap_bytes: usize) -> Result<Self, VerbsError> {
        let gpu = test_gpu();
        let region = gpu.alloc(heap_bytes, 4096).expect("device memory");
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned()))?;
        let pd = Pd::new(&context)?;
        // SAFETY: the region lives as long as its owner, and is only ever accessed by the device or by copies.
        let heap = unsafe { ControlHeap::owning(&context, region.addr(), heap_bytes, region) }?;
        Ok(Self {
            heap,
            host: None,
            proxy: None,
            pd,
            context,
            gpu,
        })
    }

    /// The same with a heap of `bytes` bytes in host memory, and somebody who rings for mailboxes.
    pub fn with_host(self, bytes: usize) -> Result<Self, VerbsError> {
        let memory = self.gpu.map_host(bytes).expect("host memory");
        let region = HeapRegion::host(memory.addr(), memory.host_addr(), bytes);
        // SAFETY: the memory lives as long as its owner, and is only ever accessed by atomics, copies and the device.
        let host = unsafe { ControlHeap::over(&self.context, &region, Some(Box::new(memory))) }?;
        let mailboxes = self.gpu.map_host(4096).expect("host memory");
        let (addr, host_addr) = (mailboxes.addr(), mailboxes.host_addr());
        let owner = Some(Box::new(mailboxes) as Box<_>);
        // SAFETY: as for the heap.
        let proxy = unsafe { DoorbellProxy::start(addr, host_addr, 4096, Some(kick), owner) }?;
        Ok(Self {
            host: Some(host),
            proxy: Some(proxy),
            ..self
        })
    }

    /// Where QPs of this node take their memory from.
    pub fn places(&self) -> QpPlaces<'_> {
        QpPlaces::from(&self.heap)
            .with_host(self.host.as_ref())
            .with_proxy(self.proxy.as_ref())
    }

    /// A QP in Reset whose memory is as it must be.
    pub fn qp(&self, config: &QpConfig) -> Result<Qp<Reset>, VerbsError> {
        let qp = Qp::create(&self.pd, self.places(), config)?;
        self.write_image(&qp, 0);
        Ok(qp)
    }

    /// Writes what the QP's memory must hold before it leaves Reset.
    pub fn write_image(&self, qp: &Qp<Reset>, base: u64) {
        let attr = ImageAttr::new(qp.layout().doorbell_addr).with_base(base);
        qp.write_image(&attr, |addr, bytes| self.gpu.write(addr, bytes))
            .expect("control memory");
    }

    /// Device memory that peers may write, read and do atomics in.
    pub fn window(&self, bytes: usize) -> Result<Window, VerbsError> {
        let memory = self.gpu.alloc(bytes, 4096).expect("device memory");
        let (addr, bytes) = (memory.addr(), memory.bytes() as u64);
        // SAFETY: the memory is dropped after its registration, and only accessed through the device or by copies.
        let mr = unsafe { Mr::register(&self.pd, addr, bytes, Access::ALL) }?;
        Ok(Window { mr, memory })
    }

    /// The GID that QPs of this node speak from.
    pub fn gid(&self) -> Gid {
        self.context.roce_v2_gid().expect("a RoCEv2 GID").gid
    }
}

/// First packet numbers of the two ends.
pub const PSNS: [u32; 2] = [0x12_3456, 0xfe_dcba];

/// Brings up two QPs that are each other's peer.
pub fn connect(nodes: [&Node; 2], config: &QpConfig) -> Result<[Qp<Rts>; 2], VerbsError> {
    let [a, b] = [nodes[0].qp(config)?, nodes[1].qp(config)?];
    connect_reset(nodes, [a, b])
}

/// Brings up two QPs that are in Reset.
pub fn connect_reset(nodes: [&Node; 2], qps: [Qp<Reset>; 2]) -> Result<[Qp<Rts>; 2], VerbsError> {
    connect_with_retry(nodes, qps, SendAttr::new(PSNS[0]).retry)
}

/// The same with QPs that try `retry` times again to reach a peer that does not answer.
pub fn connect_with_retry(
    nodes: [&Node; 2],
    qps: [Qp<Reset>; 2],
    retry: u8,
) -> Result<[Qp<Rts>; 2], VerbsError> {
    let [a, b] = qps;
    let to_b = PathAttr::new(b.qpn(), nodes[1].gid(), PSNS[1]);
    let to_a = PathAttr::new(a.qpn(), nodes[0].gid(), PSNS[0]);
    let attr = |psn| SendAttr::new(psn).with_retry(retry);
    let a = a.init()?.ready_to_receive(&to_b)?;
    let b = b.init()?.ready_to_receive(&to_a)?;
    let a = a.ready_to_send(&attr(PSNS[0]))?;
    let b = b.ready_to_send(&attr(PSNS[1]))?;
    Ok([a, b])
}
