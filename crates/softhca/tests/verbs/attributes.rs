//! Attributes of queues made by verbs: what is set is what is shown, and what does not fit is refused.

use crate::rdma_core::frame::{Attribute, Frame, MANDATORY};
use crate::rdma_core::pair::{CAP, Pair};
use crate::rdma_core::queue_pair::{Path, QpAttr, RC, steps};
use crate::rdma_core::verbs::address;
use crate::rdma_core::{Device, Memory};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{QueryQpIn, QueryQpOut};

#[test]
fn query_gives_what_modify_has_set() {
    let pair = Pair::new();
    let qp = pair.pd.create_qp(RC, CAP, &pair.cq, &pair.cq).unwrap();
    assert_eq!(qp.query().state, 0);
    let init = QpAttr {
        state: 1,
        access: 0x2 | 0x4,
        port: 1,
        ..QpAttr::default()
    };
    qp.modify(&init, steps::INIT).unwrap();
    let seen = qp.query();
    assert_eq!((seen.state, seen.port), (1, 1));
    assert_eq!(seen.access, 0x2, "reads need resources of the responder");
    let path = Path {
        gid: pair.device.gid(3).unwrap(),
        flow_label: 0x12345,
        gid_index: 3,
        hop_limit: 9,
        traffic_class: 0x68,
        sl: 5,
        is_global: 1,
        port: 1,
        ..Path::default()
    };
    let rtr = QpAttr {
        state: 2,
        mtu: 3,
        remote_qpn: 0x00ab_cdef,
        rq_psn: 0x12_3456,
        max_dest_rd_atomic: 8,
        min_rnr_timer: 17,
        path,
        ..init
    };
    qp.modify(&rtr, steps::RTR).unwrap();
    let rts = QpAttr {
        state: 3,
        timeout: 18,
        retry_count: 5,
        rnr_retry: 6,
        sq_psn: 0x65_4321,
        max_rd_atomic: 2,
        ..rtr
    };
    qp.modify(&rts, steps::RTS).unwrap();
    let seen = qp.query();
    let expected = QpAttr {
        current_state: 3,
        access: 0x2 | 0x4,
        cap: seen.cap,
        ..rts
    };
    assert_eq!(seen, expected);
    assert!(seen.cap.send_wr >= CAP.send_wr && seen.cap.recv_wr >= CAP.recv_wr);
    // Back to reset: nothing of it is left.
    let reset = QpAttr::default();
    qp.modify(&reset, 1).unwrap();
    assert_eq!(qp.query().remote_qpn, 0);
    qp.destroy().unwrap();
    pair.end();
}

#[test]
fn no_fewer_reads_at_once_are_allowed_than_were_asked_for() {
    let pair = Pair::new();
    let path = Path {
        gid: pair.device.gid(3).unwrap(),
        gid_index: 3,
        hop_limit: 1,
        is_global: 1,
        port: 1,
        ..Path::default()
    };
    // The context has powers of two.
    for (asked, kept) in [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 4),
        (5, 8),
        (8, 8),
        (9, 16),
        (15, 16),
        (16, 16),
    ] {
        let qp = pair.pd.create_qp(RC, CAP, &pair.cq, &pair.cq).unwrap();
        let init = QpAttr {
            state: 1,
            access: 0xf,
            port: 1,
            ..QpAttr::default()
        };
        qp.modify(&init, steps::INIT).unwrap();
        let rtr = QpAttr {
            state: 2,
            mtu: 3,
            remote_qpn: 5,
            max_dest_rd_atomic: asked,
            path,
            ..init
        };
        qp.modify(&rtr, steps::RTR).unwrap();
        let rts = QpAttr {
            state: 3,
            max_rd_atomic: asked,
            ..rtr
        };
        qp.modify(&rts, steps::RTS).unwrap();
        let seen = qp.query();
        assert_eq!(
            (seen.max_rd_atomic, seen.max_dest_rd_atomic),
            (kept, kept),
            "{asked} were asked for"
        );
        qp.destroy().unwrap();
    }
    pair.end();
}

#[test]
fn transitions_without_their_attributes_are_refused() {
    let pair = Pair::new();
    let qp = pair.pd.create_qp(RC, CAP, &pair.cq, &pair.cq).unwrap();
    let refused = |attr: &QpAttr, mask| {
        let error = qp.modify(attr, mask).unwrap_err();
        error.raw_os_error().unwrap()
    };
    let init = QpAttr {
        state: 1,
        port: 1,
        ..QpAttr::default()
    };
    let rtr = QpAttr { state: 2, ..init };
    assert_eq!(refused(&rtr, steps::RTR), libc::EINVAL, "from reset");
    for missing in [0x8, 0x10, 0x20] {
        assert_eq!(refused(&init, steps::INIT & !missing), libc::EINVAL);
    }
    let other_port = QpAttr { port: 2, ..init };
    assert_eq!(refused(&other_port, steps::INIT), libc::EINVAL);
    assert_eq!(refused(&init, steps::INIT | 0x40), libc::EINVAL, "Q_Key");
    qp.modify(&init, steps::INIT).unwrap();
    let path = Path {
        gid: pair.device.gid(3).unwrap(),
        gid_index: 3,
        is_global: 1,
        port: 1,
        ..Path::default()
    };
    let good = QpAttr {
        mtu: 5,
        path,
        max_dest_rd_atomic: 1,
        ..rtr
    };
    for (what, bad) in [
        ("mtu", QpAttr { mtu: 6, ..good }),
        (
            "depth",
            QpAttr {
                max_dest_rd_atomic: 17,
                ..good
            },
        ),
        (
            "no GID",
            QpAttr {
                path: Path {
                    is_global: 0,
                    ..path
                },
                ..good
            },
        ),
        (
            "port",
            QpAttr {
                path: Path { port: 3, ..path },
                ..good
            },
        ),
        (
            "GID",
            QpAttr {
                path: Path {
                    gid_index: 200,
                    ..path
                },
                ..good
            },
        ),
    ] {
        assert_eq!(refused(&bad, steps::RTR), libc::EINVAL, "{what}");
        assert_eq!(qp.query().state, 1, "{what}");
    }
    qp.modify(&good, steps::RTR).unwrap();
    qp.destroy().unwrap();
    pair.end();
}

#[test]
fn devx_commands_read_queues_of_verbs() {
    let pair = Pair::new();
    pair.send_and_wait(1);
    pair.send_and_wait(2);
    let memory = Memory::new(4096);
    let at = address(&memory);
    let attribute = |id, len, data| Attribute {
        id,
        len,
        flags: MANDATORY,
        data,
        ..Attribute::default()
    };
    let query = |handle: u32, input: &[u8]| {
        memory.write(0, input);
        let attributes = [
            attribute(0x1000, 0, handle.into()),
            attribute(0x1001, 16, at),
            attribute(0x1002, 0x110, at + 1024),
        ];
        Frame::new(0x1001, 0x1003, &attributes).send(pair.device.command_fd())
    };
    let of_qp = QueryQpIn::default()
        .with_opcode(Opcode::QUERY_QP.0.into())
        .with_qpn(pair.a.qpn());
    assert_eq!(query(pair.a.handle(), of_qp.as_bytes()), 0);
    let mut output = QueryQpOut::default();
    memory.read(1024, output.as_bytes_mut());
    assert_eq!(output.qpc().remote_qpn(), pair.b.qpn());
    assert_eq!(output.qpc().hw_sq_wqebb_counter(), 2);
    // A handle of another object does not do.
    assert_eq!(query(pair.b.handle(), of_qp.as_bytes()), libc::EINVAL);
    assert_eq!(query(pair.cq.handle(), of_qp.as_bytes()), libc::EINVAL);
    pair.end();
}

/// `errno` of a command of the interface before ioctls, with its struct and that of the driver.
fn command(device: &Device, number: u64, core: &[u8], driver: &[u8]) -> i32 {
    let memory = Memory::new(4096);
    memory.write(0, core);
    memory.write(512, driver);
    let at = address(&memory);
    let attribute = |id, len: usize, data| Attribute {
        id,
        len: len.try_into().unwrap(),
        flags: MANDATORY,
        data,
        ..Attribute::default()
    };
    // Up to 8 bytes travel in the attribute; none of these structs is that short.
    let mut attributes = vec![
        attribute(0, core.len(), at),
        attribute(1, 256, at + 1024),
        attribute(2, 8, number),
    ];
    if !driver.is_empty() {
        attributes.push(attribute(0x1000, driver.len(), at + 512));
    }
    Frame::new(0, 0, &attributes).send(device.command_fd())
}

/// Bytes of numbers of 32 bits.
fn words(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

#[test]
fn commands_that_change_queues_are_refused_where_the_kernel_refuses_them() {
    const RESIZE: u64 = 0x13;
    const QUERY: u64 = 0x19;
    const MODIFY: u64 = 0x1a;
    const MODIFY_EXTENDED: u64 = 0x8000_001a;
    const MODERATE: u64 = 0x8000_0039;
    let pair = Pair::new();
    let send = |number, core: &[u8], driver: &[u8]| command(&pair.device, number, core, driver);
    let (cq, qp) = (pair.receive_cq.handle(), pair.a.handle());

    // Response pointer, handle, entries; address of the ring, size of an entry.
    let resize = |handle, entries| words(&[0, 0, handle, entries]);
    let ring = |address: u64, size: u32| [&address.to_ne_bytes()[..], &words(&[size, 0])].concat();
    let here = address(&pair.memory);
    assert_eq!(send(RESIZE, &resize(cq, 31)[..12], &[]), libc::ENOSPC);
    assert_eq!(
        send(RESIZE, &resize(999_999, 31), &ring(here, 64)),
        libc::ENOENT
    );
    assert_eq!(send(RESIZE, &resize(qp, 31), &ring(here, 64)), libc::EINVAL);
    assert_eq!(send(RESIZE, &resize(cq, 0), &ring(here, 64)), libc::EINVAL);
    assert_eq!(
        send(RESIZE, &resize(cq, u32::MAX), &ring(here, 64)),
        libc::EINVAL
    );
    assert_eq!(send(RESIZE, &resize(cq, 31), &ring(here, 65)), libc::EINVAL);
    assert_eq!(
        send(RESIZE, &resize(cq, 31), &ring(here, 64 | 1 << 16)),
        libc::EINVAL
    );
    assert_eq!(send(RESIZE, &resize(cq, 31), &ring(8, 64)), libc::EFAULT);
    assert_eq!(
        send(RESIZE, &resize(cq, 31), &ring(here + 8, 64)),
        libc::EINVAL
    );

    // Handle, mask, count and period, reserved.
    let moderate = |mask, count_and_period| words(&[cq, mask, count_and_period, 0]);
    assert_eq!(send(MODERATE, &moderate(1, 8 | 100 << 16), &[]), 0);
    assert_eq!(send(MODERATE, &moderate(0, 0), &[]), libc::EINVAL);
    assert_eq!(send(MODERATE, &moderate(2, 0), &[]), libc::EOPNOTSUPP);
    assert_eq!(
        send(MODERATE, &moderate(1, 0x1000 << 16), &[]),
        libc::EINVAL
    );
    assert_eq!(send(MODERATE, &words(&[qp, 1, 0, 0]), &[]), libc::EINVAL);
    assert_eq!(send(MODERATE, &moderate(1, 0), &[]), 0);

    assert_eq!(send(QUERY, &words(&[0, 0, cq, 0]), &[]), libc::EINVAL);
    assert_eq!(send(QUERY, &words(&[0, 0, 999_999, 0]), &[]), libc::ENOENT);
    assert_eq!(send(QUERY, &words(&[0, 0, qp, 0]), &[]), 0);

    // Two paths of 32 bytes, handle, mask, and the rest.
    let modify = |handle, mask, state: u8| {
        let mut bytes = vec![0; 120];
        bytes[64..72].copy_from_slice(&words(&[handle, mask]));
        bytes[96] = state;
        bytes
    };
    let error = modify(qp, 1, 6);
    assert_eq!(send(MODIFY, &error[..104], &[]), libc::ENOSPC);
    assert_eq!(
        send(MODIFY, &modify(qp, 1 << 25, 0)[..112], &[]),
        libc::EOPNOTSUPP
    );
    assert_eq!(send(MODIFY, &modify(qp, 1, 7)[..112], &[]), libc::EINVAL);
    assert_eq!(send(MODIFY, &modify(qp, 1, 2)[..112], &[]), libc::EINVAL);
    assert_eq!(send(MODIFY, &modify(cq, 1, 6)[..112], &[]), libc::EINVAL);
    let driver = |mask: u32| words(&[mask, 0, 0, 0]);
    let rate = modify(qp, 1 << 25, 0);
    assert_eq!(send(MODIFY_EXTENDED, &rate, &driver(0)), libc::EINVAL);
    assert_eq!(send(MODIFY_EXTENDED, &error, &driver(1)), libc::EOPNOTSUPP);
    assert_eq!(pair.a.query().state, 3, "nothing of it was done");
    assert_eq!(send(MODIFY_EXTENDED, &error, &driver(0)), 0);
    assert_eq!(pair.a.query().state, 6);
    pair.end();
}
