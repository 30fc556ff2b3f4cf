//! A thousand times a device is opened and closed, with objects, and nothing is left: descriptors, mappings, memory.
//!
//! The only test of its program: it looks at the whole process.

mod rdma_core;

use rdma_core::queue_pair::{Cap, RC};
use rdma_core::{Device, Memory};
use softhca::Hca;
use std::fs;

const CAP: Cap = Cap {
    send_wr: 16,
    recv_wr: 16,
    send_sge: 1,
    recv_sge: 1,
    inline: 0,
};

/// What the process has.
#[derive(Debug)]
struct Footprint {
    fds: usize,
    mappings: usize,
    resident_kib: usize,
}

fn footprint() -> Footprint {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Footprint {
        fds: fs::read_dir("/proc/self/fd").unwrap().count(),
        mappings: fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count(),
        resident_kib: resident.unwrap(),
    }
}

/// Everything that a program makes, used in no way, and ended in order; or the device closed over it.
fn cycle(name: &str, memory: &Memory, orderly: bool) {
    let device = Device::open(name).unwrap();
    let pd = device.alloc_pd().unwrap();
    let mr = pd.reg_mr(memory, 15).unwrap();
    let umem = device.reg_umem(memory, 1).unwrap();
    let uar = device.alloc_uar(0).unwrap();
    let cq = device.create_cq(64, None).unwrap();
    let qp = pd.create_qp(RC, CAP, &cq, &cq).unwrap();
    drop((uar, umem));
    if orderly {
        qp.destroy().unwrap();
        cq.destroy().unwrap();
        mr.dereg().unwrap();
        pd.dealloc().map_err(|(_, error)| error).unwrap();
    }
    drop(device);
}

#[test]
fn a_thousand_opens_and_closes_leave_everything_as_it_was() {
    let hca = Hca::new().unwrap();
    let memory = Memory::new(1 << 16);
    for _ in 0..50 {
        cycle(hca.name(), &memory, true);
    }
    let before = footprint();
    for _ in 0..1000 {
        cycle(hca.name(), &memory, true);
    }
    let after = footprint();
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "{live:?}");
    assert_eq!(after.fds, before.fds, "{before:?} {after:?}");
    // The allocator may have mapped another arena or two.
    assert!(
        after.mappings <= before.mappings + 4,
        "{before:?} {after:?}"
    );
    assert!(
        after.resident_kib <= before.resident_kib + 1024,
        "{before:?} {after:?}"
    );

    // Objects that the program does not destroy go with the device: the HCA keeps none, whatever libmlx5 leaks.
    for _ in 0..20 {
        cycle(hca.name(), &memory, false);
    }
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "{live:?}");
    assert_eq!(footprint().fds, before.fds);
}
