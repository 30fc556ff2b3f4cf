//! QPs in device memory without a NIC: context, flags, ring, and a word in place of the doorbell register.

use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of, cast_slice_mut};

use crate::error::BenchError;
use warpverbs::abi::{EMPTY_BYTE, MODE_WIDE_CQ, QpContext, WQEBB_BYTES, control_bytes, parked};
use warpverbs::gpu::{DeviceMemory, Gpu, HostMapped};

/// The memory of several QPs of the same shape.
#[derive(Debug)]
pub(super) struct Rings {
    gpu: Arc<dyn Gpu>,
    control: DeviceMemory,
    /// The words in place of the registers.
    _registers: Registers,
    depth: u32,
    mode: u32,
}

/// The memory in which doorbells are stored.
#[derive(Debug)]
enum Registers {
    Device(DeviceMemory),
    Host(HostMapped),
}

/// The number of bytes of a CQE (PRM "Completion Queue Entry").
const CQE_BYTES: u64 = 64;
/// The number of bytes from one register to the next: each has a line of its own.
const REGISTER_STRIDE: u64 = 128;

impl Rings {
    pub(super) fn new(
        gpu: &Arc<dyn Gpu>,
        count: u32,
        depth: u32,
        mode: u32,
        host_registers: bool,
    ) -> Result<Self, BenchError> {
        let bytes = usize::try_from(u64::from(count) * REGISTER_STRIDE).expect("a few QPs");
        let registers = if host_registers {
            Registers::Host(gpu.map_host(bytes)?)
        } else {
            Registers::Device(gpu.alloc(bytes, 128)?)
        };
        let first = match &registers {
            Registers::Device(memory) => memory.addr(),
            Registers::Host(memory) => memory.addr(),
        };
        let total = usize::try_from(u64::from(count) * stride(depth, mode)).expect("a few QPs");
        let rings = Self {
            gpu: Arc::clone(gpu),
            control: gpu.alloc(total, 4096)?,
            _registers: registers,
            depth,
            mode,
        };
        for qp in 0..count {
            let image = rings.image(qp, first + u64::from(qp) * REGISTER_STRIDE);
            gpu.write(rings.context_addr(qp), &image)?;
        }
        Ok(rings)
    }

    /// Returns the address of the first context.
    pub(super) fn addr(&self) -> u64 {
        self.control.addr()
    }

    /// Returns the number of bytes from one context to the next.
    pub(super) fn stride(&self) -> u64 {
        stride(self.depth, self.mode)
    }

    /// Returns the context of a QP as it is now.
    pub(super) fn context(&self, qp: u32) -> Result<QpContext, BenchError> {
        let mut context = [QpContext::zeroed()];
        let addr = self.context_addr(qp);
        self.gpu.read(addr, cast_slice_mut(&mut context))?;
        Ok(context[0])
    }

    /// Returns the first dword of each WQE in the ring of a QP, by slot.
    pub(super) fn controls(&self, qp: u32) -> Result<Vec<u32>, BenchError> {
        let wqe = WQEBB_BYTES as usize;
        let mut ring = vec![0; self.depth as usize * wqe];
        self.gpu.read(self.sq_addr(qp), &mut ring)?;
        let dword = |wqe: &[u8]| u32::from_be_bytes(wqe[..4].try_into().expect("four bytes"));
        Ok(ring.chunks_exact(wqe).map(dword).collect())
    }

    fn context_addr(&self, qp: u32) -> u64 {
        self.control.addr() + u64::from(qp) * self.stride()
    }

    fn flags_addr(&self, qp: u32) -> u64 {
        self.context_addr(qp) + size_of::<QpContext>() as u64
    }

    fn sq_addr(&self, qp: u32) -> u64 {
        self.flags_addr(qp) + 8 * u64::from(self.depth)
    }

    /// Returns what the memory of an unused QP contains.
    fn image(&self, qp: u32, register: u64) -> Vec<u8> {
        let base = self.context_addr(qp);
        let qpn = 0x100 + qp;
        let cqe = if has_wide_cq(self.mode) {
            base + control_bytes(self.depth)
        } else {
            base + QpContext::CQE_OFFSET as u64
        };
        let context = QpContext {
            sq: self.sq_addr(qp).into(),
            flags: self.flags_addr(qp).into(),
            dbrec: (base + QpContext::SQ_DBREC_OFFSET as u64).into(),
            doorbell: register.into(),
            cqe: cqe.into(),
            qpn_be: (qpn << 8).to_be(),
            mask: self.depth - 1,
            depth: self.depth,
            mode: self.mode,
            qpn,
            cqe_line: [EMPTY_BYTE; 128],
            ..QpContext::zeroed()
        };
        let bytes = usize::try_from(bytes_of_qp(self.depth, self.mode)).expect("a few MiB");
        let mut image = vec![EMPTY_BYTE; bytes];
        let flags = size_of::<QpContext>();
        image[..flags].copy_from_slice(bytes_of(&context));
        image[flags..flags + 8].copy_from_slice(&parked(0).to_ne_bytes());
        image
    }
}

fn has_wide_cq(mode: u32) -> bool {
    mode & MODE_WIDE_CQ != 0
}

/// Returns the number of bytes of a QP: context, flags and ring, and after them a CQ as long as the ring, if the QP has one.
fn bytes_of_qp(depth: u32, mode: u32) -> u64 {
    let cq = if has_wide_cq(mode) {
        u64::from(depth) * CQE_BYTES
    } else {
        0
    };
    control_bytes(depth) + cq
}

fn stride(depth: u32, mode: u32) -> u64 {
    bytes_of_qp(depth, mode).next_multiple_of(4096)
}
