//! How memory reaches the HCA: dmabufs, addresses, and what is reported of it. A memfd is the dmabuf of the software HCA.

// UNSAFETY: maps a memfd, registers it, and reads it by address.
#![expect(unsafe_code, reason = "mmap and registered memory")]

use std::fs::File;
use std::os::fd::{AsFd, FromRawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_prm::cmd::{Opcode, Status};
use mlx5_prm::cqe::CqeOpcode;
use warpverbs::verbs::{
    Access, AtomicSink, ControlHeap, Dmabuf, HeapRegion, Mr, Qp, QpConfig, Rung, VerbsError,
};

use crate::poster::{End, Poster, WINDOW};
use test_support::hca::hca;
use test_support::node::{Node, connect};

/// Shared memory with a descriptor; unmapped when dropped.
struct Shared {
    file: File,
    addr: u64,
    bytes: usize,
}

impl Shared {
    fn new(bytes: usize) -> Self {
        // SAFETY: a C string and flags; the descriptor is new and owned by no other code.
        let file = unsafe {
            let fd = libc::memfd_create(c"export".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.set_len(bytes as u64).unwrap();
        // SAFETY: a new mapping of the file's length, at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&file),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        Self {
            file,
            addr: start.expose_provenance() as u64,
            bytes,
        }
    }

    fn dmabuf(&self, pcie: bool) -> Dmabuf<'_> {
        Dmabuf {
            fd: self.file.as_fd(),
            offset: 0,
            pcie,
        }
    }

    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        let addr = usize::try_from(self.addr).unwrap() + at;
        // SAFETY: inside the mapping, which `self` keeps; only accessed by atomics and by the HCA.
        unsafe { AtomicU8::from_ptr(std::ptr::with_exposed_provenance_mut(addr)) }
            .load(Ordering::Acquire)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(usize::try_from(self.addr).unwrap());
        // SAFETY: mapped in `new`, and unmapped once.
        unsafe { libc::munmap(start, self.bytes) };
    }
}

#[test]
fn a_write_lands_in_memory_that_was_registered_by_its_dmabuf() {
    let ends = [End::new(), End::new()];
    let target = Shared::new(WINDOW as usize);
    let offered = [target.dmabuf(true)];
    let pd = &ends[1].node.pd;
    // SAFETY: `target` outlives the registration, and no code holds a reference to its memory.
    let mr = unsafe { Mr::exported(pd, target.addr, target.bytes as u64, Access::ALL, &offered) }
        .unwrap();
    assert_eq!(mr.export().rung, Rung::DmabufPcie);
    let qps = connect([&ends[0].node, &ends[1].node], &QpConfig::default()).unwrap();
    let mut poster = Poster::new(&ends[0], &qps[0], 0);
    ends[0].fill(0x77);
    let index = poster.write_to((mr.addr(), mr.rkey()), None);
    poster.ring();
    assert_eq!(poster.completion(index).opcode(), CqeOpcode::REQ);
    assert_eq!(
        (target.byte(0), target.byte(WINDOW as usize - 1)),
        (0x77, 0x77)
    );
}

#[test]
fn a_dmabuf_that_is_refused_is_reported_and_the_address_is_taken() {
    let end = End::new();
    let null = File::open("/dev/null").unwrap();
    let bad = Dmabuf {
        fd: null.as_fd(),
        offset: 0,
        pcie: false,
    };
    let (addr, bytes) = (end.window.addr(), u64::from(WINDOW));
    // SAFETY: the window outlives the registration.
    let mr = unsafe { Mr::exported(&end.node.pd, addr, bytes, Access::ALL, &[bad]) }.unwrap();
    let export = mr.export();
    assert_eq!((export.rung, export.refused.len()), (Rung::Address, 1));
    assert_eq!(export.refused[0].0, Rung::Dmabuf);
    let text = export.to_string();
    assert!(
        text.starts_with("address (not dmabuf: ibv_reg_dmabuf_mr on "),
        "{text}"
    );
    let unmapped = 0x1000;
    // SAFETY: no memory is mapped at the address, so nothing is accessed.
    let none = unsafe { Mr::exported(&end.node.pd, unmapped, bytes, Access::ALL, &[bad]) };
    let error = none.unwrap_err();
    assert!(matches!(error, VerbsError::Export { .. }), "{error}");
}

#[test]
fn a_dmabuf_control_heap_carries_a_qp_and_steps_down_where_queues_fail() {
    let hca = hca();
    let node = Node::open(&hca, 4096).unwrap();
    for (strike, rung) in [(false, Rung::DmabufPcie), (true, Rung::Dmabuf)] {
        let memory = Shared::new(1 << 18);
        let offered = [memory.dmabuf(true), memory.dmabuf(false)];
        let region = HeapRegion::device(memory.addr, memory.bytes).with_dmabufs(&offered);
        if strike {
            crate::fail(&hca, Opcode::CREATE_CQ, Status::BAD_PARAM, 5);
        }
        // SAFETY: `memory` outlives the heap, and no code holds a reference to it.
        let heap = unsafe { ControlHeap::over(&node.context, &region, None) }.unwrap();
        let export = heap.export().unwrap();
        assert_eq!(export.rung, rung, "{export}");
        assert_eq!(export.refused.len(), usize::from(strike));
        assert_eq!(hca.live_objects().umem, 2, "that of the node and this one");
        let qp = Qp::create(&node.pd, &heap, &QpConfig::default()).unwrap();
        assert_eq!(heap.stats().live_blocks, 3);
        let sink = AtomicSink::new(&node.pd, &heap).unwrap();
        assert!((memory.addr..memory.addr + (1 << 18)).contains(&sink.addr()));
        drop((qp, sink));
        assert_eq!(heap.stats().live_blocks, 0);
        drop(heap);
    }
    let live = hca.live_objects();
    assert_eq!((live.umem, live.cq, live.mr), (1, 0, 0));
}

#[test]
fn a_heap_the_hca_cannot_reach_holds_host_queue_contexts_but_no_queues() {
    let end = End::new();
    let node = &end.node;
    let memory = node.gpu.alloc(1 << 16, 4096).unwrap();
    let region = HeapRegion::device(memory.addr(), 1 << 16).with_umem(false);
    // SAFETY: the heap keeps the memory.
    let heap =
        unsafe { ControlHeap::over(&node.context, &region, Some(Box::new(memory))) }.unwrap();
    assert!(heap.export().is_none());
    let error = Qp::create(&node.pd, &heap, &QpConfig::default()).unwrap_err();
    assert!(error.to_string().contains("one without a UMEM"), "{error}");
    let error = AtomicSink::new(&node.pd, &heap).unwrap_err();
    assert!(error.to_string().contains("one without a UMEM"), "{error}");
    assert_eq!(heap.stats().live_blocks, 0);
    let places = node.places().with_control(&heap);
    let shape = QpConfig::default().with_queues(warpverbs::verbs::Queues::Host);
    let qp = Qp::create(&node.pd, places, &shape).unwrap();
    assert_eq!(heap.stats().live_blocks, 2, "context and flags");
    assert_eq!(
        qp.control_bytes(),
        shape.control_bytes() + shape.host_bytes()
    );
}
