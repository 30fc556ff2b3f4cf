//! Queues made by verbs, through unmodified libibverbs: data, events, attributes.

mod rdma_core;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{QueryQpIn, QueryQpOut};
use rdma_core::frame::{Attribute, Frame, MANDATORY};
use rdma_core::verbs::{Cap, Channel, Cq, Path, Qp, QpAttr, RC, Send, address, is_readable, steps};
use rdma_core::{Device, Memory, Mr, Pd};
use softhca::Hca;

const CAP: Cap = Cap {
    send_wr: 16,
    recv_wr: 16,
    send_sge: 2,
    recv_sge: 2,
    inline: 0,
};
const SEND: u32 = 2;
const WRITE: u32 = 0;

/// Two connected queue pairs of one device, in the order in which they may be taken down.
struct Pair {
    a: Qp,
    b: Qp,
    cq: Cq,
    receive_cq: Cq,
    channel: Channel,
    mr: Mr,
    pd: Pd,
    memory: Memory,
    device: Device,
    hca: Hca,
}

impl Pair {
    fn new() -> Self {
        let hca = Hca::new().unwrap();
        let device = Device::open(hca.name()).unwrap();
        let pd = device.alloc_pd().unwrap();
        let memory = Memory::new(1 << 16);
        let mr = pd.reg_mr(&memory, 0xf).unwrap();
        let channel = device.create_channel();
        let cq = device.create_cq(256, None).unwrap();
        let receive_cq = device.create_cq(64, Some(&channel)).unwrap();
        let a = pd.create_qp(RC, CAP, &cq, &cq).unwrap();
        let b = pd.create_qp(RC, CAP, &cq, &receive_cq).unwrap();
        let gid = device.gid(3).unwrap();
        a.connect(gid, b.qpn());
        b.connect(gid, a.qpn());
        Self {
            a,
            b,
            cq,
            receive_cq,
            channel,
            mr,
            pd,
            memory,
            device,
            hca,
        }
    }

    /// A message of 8 bytes from `a`, of which `b` knows.
    fn send(&self, wr_id: u64, solicited: bool) {
        let at = address(&self.memory);
        self.b.post_recv(wr_id, &self.mr, at + 4096, 64);
        self.a.post_send(Send {
            wr_id,
            from: &self.mr,
            address: at,
            bytes: 8,
            opcode: SEND,
            solicited,
            remote: (0, 0),
        });
    }

    /// The same, and waits until both sides have completed.
    fn send_and_wait(&self, wr_id: u64) {
        self.send(wr_id, false);
        assert_eq!(self.cq.wait().wr_id, wr_id);
        let received = self.receive_cq.wait();
        assert_eq!((received.wr_id, received.bytes), (wr_id, 8));
    }

    /// Ends everything; nothing is left.
    fn end(self) {
        self.a.destroy().unwrap();
        self.b.destroy().unwrap();
        self.cq.destroy().unwrap();
        self.receive_cq.destroy().unwrap();
        self.channel.destroy().unwrap();
        self.mr.dereg().unwrap();
        assert!(self.pd.dealloc().is_ok());
        drop(self.device);
        assert_eq!(self.hca.live_objects().total(), 0);
        assert_eq!(self.hca.findings(), [""; 0]);
    }
}

#[test]
fn a_message_arrives_and_everything_can_be_taken_down() {
    let pair = Pair::new();
    pair.memory.write(0, b"8 bytes.");
    pair.send_and_wait(5);
    let mut seen = [0; 8];
    pair.memory.read(4096, &mut seen);
    assert_eq!(&seen, b"8 bytes.");
    assert!(pair.cq.poll().is_none());
    pair.end();
}

#[test]
fn an_armed_queue_tells_its_channel_once() {
    let pair = Pair::new();
    pair.send_and_wait(1);
    assert!(!is_readable(pair.channel.fd(), 20), "not armed");
    pair.receive_cq.arm(false);
    assert!(!is_readable(pair.channel.fd(), 20), "nothing new");
    pair.send_and_wait(2);
    assert_eq!(pair.channel.wait(), pair.receive_cq.0);
    pair.receive_cq.acknowledge(1);
    pair.send_and_wait(3);
    assert!(!is_readable(pair.channel.fd(), 20), "armed once, told once");
    // What came in between tells at once.
    pair.send(4, false);
    pair.cq.wait();
    pair.receive_cq.arm(false);
    assert_eq!(pair.channel.wait(), pair.receive_cq.0);
    pair.receive_cq.acknowledge(1);
    assert_eq!(pair.receive_cq.wait().wr_id, 4);
    pair.end();
}

#[test]
fn armed_for_solicited_messages_others_do_not_tell() {
    let pair = Pair::new();
    pair.receive_cq.arm(true);
    pair.send_and_wait(1);
    assert!(!is_readable(pair.channel.fd(), 20));
    pair.send(2, true);
    assert_eq!(pair.channel.wait(), pair.receive_cq.0);
    pair.receive_cq.acknowledge(1);
    pair.end();
}

#[test]
fn a_queue_with_an_unread_event_is_destroyed_without_waiting_for_it() {
    let pair = Pair::new();
    let other = pair.device.create_cq(8, Some(&pair.channel)).unwrap();
    let c = pair.pd.create_qp(RC, CAP, &other, &other).unwrap();
    // A flushed receive is an event of the other queue.
    let mut attr = QpAttr {
        state: 1,
        port: 1,
        ..QpAttr::default()
    };
    c.modify(&attr, steps::INIT).unwrap();
    c.post_recv(9, &pair.mr, address(&pair.memory), 8);
    other.arm(false);
    attr.state = 6;
    c.modify(&attr, 1).unwrap();
    assert_eq!(other.wait().status, 5);
    assert!(is_readable(pair.channel.fd(), 1000));
    pair.receive_cq.arm(false);
    pair.send_and_wait(1);
    c.destroy().unwrap();
    other.destroy().unwrap();
    // The event of the queue that is still there has stayed.
    assert_eq!(pair.channel.wait(), pair.receive_cq.0);
    pair.receive_cq.acknowledge(1);
    assert!(!is_readable(pair.channel.fd(), 0));
    pair.end();
}

#[test]
fn entries_that_wait_move_along_when_a_queue_is_resized() {
    let pair = Pair::new();
    for (round, entries) in [200, 64, 1000, 16].into_iter().enumerate() {
        let first = 10 * round as u64;
        for wr_id in first..first + 5 {
            pair.send(wr_id, false);
            assert_eq!(pair.cq.wait().wr_id, wr_id);
        }
        pair.receive_cq.resize(entries).unwrap();
        assert!(pair.receive_cq.entries() >= entries);
        for wr_id in first + 5..first + 10 {
            pair.send(wr_id, false);
            assert_eq!(pair.cq.wait().wr_id, wr_id);
        }
        for wr_id in first..first + 10 {
            assert_eq!(pair.receive_cq.wait().wr_id, wr_id, "round {round}");
        }
        assert!(pair.receive_cq.poll().is_none());
    }
    pair.end();
}

#[test]
fn a_refused_request_is_an_event_of_the_queue_pair_that_refused_it() {
    let pair = Pair::new();
    let at = address(&pair.memory);
    pair.a.post_send(Send {
        wr_id: 1,
        from: &pair.mr,
        address: at,
        bytes: 8,
        opcode: WRITE,
        solicited: false,
        remote: (at, 0x1234_5678),
    });
    const REMOTE_ACCESS: u32 = 10;
    assert_eq!(pair.cq.wait().status, REMOTE_ACCESS);
    const ACCESS_ERROR: u32 = 3;
    let about = pair.b.0.expose_provenance() as u64;
    assert_eq!(pair.device.async_event(), (about, ACCESS_ERROR));
    assert!(!is_readable(pair.device.async_fd(), 0));
    assert_eq!(pair.a.query().state, 6);
    assert_eq!(pair.b.query().state, 6);
    let findings = pair.hca.findings();
    assert!(findings[0].contains("0x12345678"), "{findings:?}");
    // Events that were read are acknowledged, so these return.
    pair.a.destroy().unwrap();
    pair.b.destroy().unwrap();
    pair.cq.destroy().unwrap();
    pair.receive_cq.destroy().unwrap();
}

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
fn more_queue_pairs_than_registers_all_run() {
    let pair = Pair::new();
    let gid = pair.device.gid(3).unwrap();
    let many: Vec<(Qp, Qp)> = (0..40)
        .map(|_| {
            let make = || pair.pd.create_qp(RC, CAP, &pair.cq, &pair.cq).unwrap();
            let (a, b) = (make(), make());
            a.connect(gid, b.qpn());
            b.connect(gid, a.qpn());
            (a, b)
        })
        .collect();
    let at = address(&pair.memory);
    for round in 0..10 {
        for (a, b) in &many {
            for (own, peer) in [(a, b), (b, a)] {
                own.post_send(Send {
                    wr_id: peer.qpn().into(),
                    from: &pair.mr,
                    address: at,
                    bytes: 8,
                    opcode: WRITE,
                    solicited: false,
                    remote: (at + 8192, pair.mr.lkey()),
                });
            }
            if round % 2 == 0 {
                continue;
            }
            // In the other rounds the doorbells come one behind the other.
            for _ in 0..2 {
                assert_eq!(pair.cq.wait().status, 0);
            }
        }
        if round % 2 == 0 {
            for _ in 0..2 * many.len() {
                assert_eq!(pair.cq.wait().status, 0, "round {round}");
            }
        }
    }
    for (a, b) in many {
        a.destroy().unwrap();
        b.destroy().unwrap();
    }
    pair.end();
}

#[test]
fn objects_in_use_cannot_be_destroyed() {
    let pair = Pair::new();
    let busy = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    let cq = Cq(pair.cq.0);
    busy(cq.destroy().unwrap_err());
    let Pair { pd, device, .. } = pair;
    let (_pd, error) = pd.dealloc().unwrap_err();
    busy(error);
    drop(device);
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
