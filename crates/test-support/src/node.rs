//! One end of connections on a software HCA, and QPs between two of them.

// UNSAFETY: registers memory with the software HCA; words of host memory that kernels reach.
#![expect(unsafe_code, reason = "registered memory, atomics in host memory")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::device::test_gpu;
use crate::hca::kick;
use softhca::Hca;
use warpverbs::gpu::{DeviceMemory, Gpu, MappedMmio};
use warpverbs::verbs::{
    Access, AddressVector, Context, ControlHeap, DeviceSelector, DoorbellProxy, Gid, HeapRegion,
    ImageAttr, InfinibandAddress, LinkLayer, Mr, PathAttr, Pd, Qp, QpConfig, QpLayout, QpPlaces,
    Reset, Rts, SendAttr, VerbsError,
};

/// The number of bytes of a page of doorbell registers.
const PAGE_BYTES: usize = 4096;

/// A piece of registered device memory.
pub struct Window {
    mr: Mr,
    /// The memory, which is freed last.
    memory: DeviceMemory,
}

impl Window {
    /// Returns the address of the first byte.
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Returns the local key.
    pub fn lkey(&self) -> u32 {
        self.mr.lkey()
    }

    /// Returns the key that peers name.
    pub fn rkey(&self) -> u32 {
        self.mr.rkey()
    }
}

/// One end of connections: an open device, a protection domain, and a control heap in device memory.
#[derive(Debug)]
pub struct Node {
    /// The control heap in device memory.
    pub heap: Arc<ControlHeap>,
    /// A control heap in host memory; only after [`Node::with_host`].
    pub host: Option<Arc<ControlHeap>>,
    /// The thread that rings for mailboxes; only after [`Node::with_host`].
    pub proxy: Option<Arc<DoorbellProxy>>,
    /// The protection domain of the node's QPs and windows.
    pub pd: Arc<Pd>,
    /// Pages of doorbell registers as kernels reach them, by their address in this process. This field stands before the device, with which
    /// libmlx5 unmaps the pages.
    registers: Mutex<BTreeMap<u64, MappedMmio>>,
    /// Host memory of this node: the address for kernels, the address for this process, and the number of bytes.
    host_memory: Vec<(u64, u64, usize)>,
    /// The open device.
    pub context: Arc<Context>,
    /// The GPU on which the node's kernels run.
    pub gpu: Arc<dyn Gpu>,
}

impl Node {
    /// Opens `hca` and registers a control heap of `heap_bytes` bytes.
    pub fn open(hca: &Hca, heap_bytes: usize) -> Result<Self, VerbsError> {
        let context = Context::open(&DeviceSelector::Name(hca.name().to_owned()))?;
        Self::on(Pd::new(&context)?, heap_bytes)
    }

    /// As `open`, on port `port` of the HCA.
    pub fn open_port(hca: &Hca, port: u8, heap_bytes: usize) -> Result<Self, VerbsError> {
        let selector = DeviceSelector::Name(hca.name().to_owned());
        let context = Context::open_port(&selector, Some(port))?;
        Self::on(Pd::new(&context)?, heap_bytes)
    }

    /// As `open`, in a protection domain of the caller.
    pub fn on(pd: Arc<Pd>, heap_bytes: usize) -> Result<Self, VerbsError> {
        let gpu = test_gpu();
        let region = gpu.alloc(heap_bytes, 4096).expect("device memory");
        let context = Arc::clone(pd.context());
        // SAFETY: the region lives as long as its owner, and is only ever accessed by the device or by copies.
        let heap = unsafe { ControlHeap::owning(&context, region.addr(), heap_bytes, region) }?;
        Ok(Self {
            heap,
            host: None,
            proxy: None,
            pd,
            registers: Mutex::default(),
            host_memory: Vec::new(),
            context,
            gpu,
        })
    }

    /// Adds a control heap of `bytes` bytes in host memory, and a thread that rings for mailboxes.
    pub fn with_host(self, bytes: usize) -> Result<Self, VerbsError> {
        let memory = self.gpu.map_host(bytes).expect("host memory");
        let queues = (memory.addr(), memory.host_addr(), bytes);
        let region = HeapRegion::host(queues.0, queues.1, bytes);
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
            host_memory: vec![queues, (addr, host_addr, 4096)],
            ..self
        })
    }

    /// Returns the heaps from which QPs of this node get their memory.
    pub fn places(&self) -> QpPlaces<'_> {
        QpPlaces::from(&self.heap)
            .with_host(self.host.as_ref())
            .with_proxy(self.proxy.as_ref())
    }

    /// Returns a new QP in Reset. Its memory contains all that it must contain before the QP leaves Reset.
    pub fn qp(&self, config: &QpConfig) -> Result<Qp<Reset>, VerbsError> {
        let qp = Qp::create(&self.pd, self.places(), config)?;
        self.write_image(&qp, 0);
        Ok(qp)
    }

    /// Writes what the QP's memory must contain before the QP leaves Reset.
    pub fn write_image(&self, qp: &Qp<Reset>, base: u64) {
        let attr = ImageAttr::new(self.doorbell(qp.layout())).with_base(base);
        qp.write_image(&attr, |addr, bytes| self.gpu.write(addr, bytes))
            .expect("control memory");
    }

    /// Returns the address at which kernels reach the doorbell register of a QP of this node, or 0 if a host thread rings.
    pub fn doorbell(&self, layout: &QpLayout) -> u64 {
        if layout.mailbox_addr.is_some() {
            return 0;
        }
        let page = layout.doorbell_page_addr;
        let mut registers = self.registers.lock().expect("no thread has panicked");
        let mapped = registers.entry(page).or_insert_with(|| {
            let host = usize::try_from(page).expect("an address");
            let host = std::ptr::with_exposed_provenance_mut(host);
            self.gpu
                .map_mmio(host, PAGE_BYTES)
                .expect("a register page")
        });
        mapped.addr() + (layout.doorbell_addr - page)
    }

    /// Writes bytes that kernels find at `addr`, in device memory or in host memory of this node. It writes whole words, of 8 bytes where
    /// possible.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        let Some(host) = self.of_host(addr, bytes.len()) else {
            self.gpu.write(addr, bytes).expect("control memory");
            return;
        };
        if host.addr().is_multiple_of(8) && bytes.len().is_multiple_of(8) {
            for (nth, word) in bytes.chunks_exact(8).enumerate() {
                // SAFETY: an aligned word of host memory, which the heap or the proxy of this node keeps. All access is atomic,
                // here, in kernels and by the HCA.
                let place = unsafe { AtomicU64::from_ptr(host.wrapping_add(8 * nth).cast()) };
                let word = word.try_into().expect("eight bytes");
                place.store(u64::from_ne_bytes(word), Ordering::Release);
            }
            return;
        }
        assert!(host.addr().is_multiple_of(4), "a word at {addr:#x}");
        let word = bytes.try_into().expect("a word of 4 bytes");
        // SAFETY: as above.
        let place = unsafe { AtomicU32::from_ptr(host.cast()) };
        place.store(u32::from_ne_bytes(word), Ordering::Release);
    }

    /// Reads bytes that kernels find at `addr`, in whole words as [`Node::write`] writes them.
    pub fn read(&self, addr: u64, out: &mut [u8]) {
        let Some(host) = self.of_host(addr, out.len()) else {
            self.gpu.read(addr, out).expect("control memory");
            return;
        };
        assert!(host.addr().is_multiple_of(8) && out.len().is_multiple_of(8));
        for (nth, word) in out.chunks_exact_mut(8).enumerate() {
            // SAFETY: as in `write`.
            let place = unsafe { AtomicU64::from_ptr(host.wrapping_add(8 * nth).cast()) };
            word.copy_from_slice(&place.load(Ordering::Acquire).to_ne_bytes());
        }
    }

    /// Returns where this process has `bytes` bytes that kernels find at `addr`, or None for device memory.
    fn of_host(&self, addr: u64, bytes: usize) -> Option<*mut u8> {
        let mut places = self.host_memory.iter();
        let host = places.find_map(|(start, host, length)| {
            let skip = addr.checked_sub(*start)?;
            (skip + bytes as u64 <= *length as u64).then_some(host + skip)
        })?;
        Some(std::ptr::with_exposed_provenance_mut(
            usize::try_from(host).expect("an address"),
        ))
    }

    /// Returns device memory in which peers may write, read and do atomics.
    pub fn window(&self, bytes: usize) -> Result<Window, VerbsError> {
        let memory = self.gpu.alloc(bytes, 4096).expect("device memory");
        let (addr, bytes) = (memory.addr(), memory.bytes() as u64);
        // SAFETY: the memory is dropped after its registration, and only accessed through the device or by copies.
        let mr = unsafe { Mr::register(&self.pd, addr, bytes, Access::ALL) }?;
        Ok(Window { mr, memory })
    }

    /// Returns the GID from which QPs of this node send.
    pub fn gid(&self) -> Gid {
        self.context.own_gid().expect("a GID").gid
    }

    /// Returns the address by which peers reach the port of this node.
    pub fn address(&self) -> AddressVector {
        let port = self.context.port();
        match port.link_layer {
            LinkLayer::Ethernet => self.gid().into(),
            LinkLayer::InfiniBand => InfinibandAddress::new(port.lid).into(),
        }
    }
}

/// The first packet numbers of the two ends.
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

/// As `connect_reset`, with QPs that try `retry` times again to reach a peer that does not answer.
pub fn connect_with_retry(
    nodes: [&Node; 2],
    qps: [Qp<Reset>; 2],
    retry: u8,
) -> Result<[Qp<Rts>; 2], VerbsError> {
    let [a, b] = qps;
    let to_b = PathAttr::new(b.qpn(), nodes[1].address(), PSNS[1]).with_ece(b.ece());
    let to_a = PathAttr::new(a.qpn(), nodes[0].address(), PSNS[0]).with_ece(a.ece());
    let attr = |psn| SendAttr::new(psn).with_retry(retry);
    let a = a.init()?.ready_to_receive(&to_b)?;
    let b = b.init()?.ready_to_receive(&to_a)?;
    let a = a.ready_to_send(&attr(PSNS[0]))?;
    let b = b.ready_to_send(&attr(PSNS[1]))?;
    Ok([a, b])
}
