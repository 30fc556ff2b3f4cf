//! Queues made by verbs, through unmodified libibverbs: data, events, sharing.

use crate::rdma_core::pair::{CAP, Pair, WRITE};
use crate::rdma_core::queue_pair::{Qp, QpAttr, RC, Send, steps};
use crate::rdma_core::verbs::{Cq, LONG_MS, address, is_readable};

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
    assert!(!is_readable(pair.channel.fd(), 20), "armed once, one event");
    // An entry that came in between raises the event at once.
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
    assert!(is_readable(pair.channel.fd(), LONG_MS));
    pair.receive_cq.arm(false);
    pair.send_and_wait(1);
    c.destroy().unwrap();
    other.destroy().unwrap();
    // The event of the queue that has not been destroyed has stayed.
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
            // In the other rounds the doorbells come one after the other.
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
