//! UC, UD and XRC: what each service does with messages that fit and with those that do not, by memory and by packets.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode, Syndrome};
use mlx5_prm::qp::{QpState, Qpc};
use mlx5_prm::wqe::{CtrlSeg, DatagramSeg, WqeOpcode};
use softhca::device::Event;
use softhca::{Hca, HcaConfig};
use softhca_rig::patience::{QUIET, wait_until};
use softhca_rig::segments::{datagram, xrc};
use softhca_rig::{End, Kind, Pair, QKEY, QP_INDEX, SRQ_INDEX, Shape, data, inline, raddr};

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;

fn pair(loopback: bool, a: Shape, b: Shape) -> Pair {
    let config = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    Pair::with(&config, a, b)
}

fn shape(kind: Kind) -> Shape {
    Shape {
        kind,
        log_receive: (!matches!(kind, Kind::XrcInitiator | Kind::XrcTarget)).then_some(4),
        ..Shape::default()
    }
}

/// Returns a segment of the own data.
fn own(end: &End, offset: u64, bytes: u32) -> [u8; 16] {
    data(bytes, end.keys.lkey, end.data.address() + offset)
}

fn state(end: &End) -> u32 {
    end.query().state()
}

fn nothing_comes(end: &mut End) {
    let found = end.poll_for(QUIET, |_| true);
    assert!(found.is_none(), "{found:?}");
}

fn is_error(cqe: &Cqe64, opcode: CqeOpcode, index: u16, syndrome: Syndrome) {
    assert_eq!((cqe.opcode(), cqe.as_error().reason()), (opcode, syndrome));
    assert_eq!(cqe.wqe_counter.get(), index);
}

#[test]
fn uc_sends_and_writes_arrive() {
    for loopback in [true, false] {
        let mut pair = pair(loopback, shape(Kind::Uc), shape(Kind::Uc));
        let text: Vec<u8> = (0..5000u32).map(|n| n.to_be_bytes()[3]).collect();
        pair.a.data.write(0, &text);
        for _ in 0..3 {
            pair.b.post_receive(0x4000, 8192);
        }
        let rest = own(&pair.a, 0, 5000);
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        pair.a
            .write_wqe(WqeOpcode::SEND_IMM, 0, SIGNALLED | CtrlSeg::SE, 0x99, &[]);
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        pair.a.write(0, 5000, remote, rkey);
        let rest = [
            raddr(remote + 0x2000, rkey).as_slice(),
            &inline(&text[..20]),
        ]
        .concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE_IMM, 0, SIGNALLED, 0x77, &rest);
        for cqe in pair.a.run(4) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        }
        let cqes: Vec<Cqe64> = (0..3).map(|_| pair.b.completion()).collect();
        let seen: Vec<_> = cqes
            .iter()
            .map(|cqe| (cqe.opcode(), cqe.imm_inval_pkey.get(), cqe.byte_cnt.get()))
            .collect();
        let expected = [
            (CqeOpcode::RESP_SEND, 0, 5000),
            (CqeOpcode::RESP_SEND_IMM, 0x99, 0),
            (CqeOpcode::RESP_WR_IMM, 0x77, 20),
        ];
        assert_eq!(seen, expected);
        assert_eq!(cqes[1].op_own & 2, 2);
        assert_eq!(pair.b.data.read(0x4000, 5000), text);
        assert_eq!(pair.b.data.read(0, 5000), text);
        assert_eq!(pair.b.data.read(0x2000, 20), text[..20]);
        pair.assert_clean();
    }
}

#[test]
fn what_a_uc_receiver_cannot_take_is_gone_and_the_next_message_arrives() {
    for loopback in [true, false] {
        let mut pair = pair(loopback, shape(Kind::Uc), shape(Kind::Uc));
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        // No receive WQE; a key that is none.
        let rest = own(&pair.a, 0, 3000);
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        pair.a.write(0, 3000, remote, rkey ^ 1);
        for cqe in pair.a.run(2) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        }
        nothing_comes(&mut pair.b);
        assert_eq!(state(&pair.b), QpState::RTS.0.into());
        pair.b.post_receive(0, 64);
        let rest = inline(b"next");
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
        assert_eq!(pair.b.completion().byte_cnt.get(), 4);
        assert_eq!(pair.b.data.read(0, 4), b"next");
        assert_eq!(state(&pair.a), QpState::RTS.0.into());
    }
}

#[test]
fn a_receive_wqe_that_is_too_short_ends_an_unreliable_receiver() {
    for loopback in [true, false] {
        for (kind, front) in [(Kind::Uc, 0), (Kind::Ud, 40)] {
            let mut pair = pair(loopback, shape(kind), shape(kind));
            pair.b.post_receive(0, front + 7);
            pair.b.post_receive(0, 64);
            let to = match kind {
                Kind::Ud => datagram(pair.hca_b.gid(), pair.b.qpn, QKEY).to_vec(),
                _ => vec![],
            };
            let rest = [to.as_slice(), &inline(b"8 bytes.")].concat();
            pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
            assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
            let cqe = pair.b.completion();
            is_error(&cqe, CqeOpcode::RESP_ERR, 0, Syndrome::LOCAL_LENGTH_ERR);
            let cqe = pair.b.completion();
            is_error(&cqe, CqeOpcode::RESP_ERR, 1, Syndrome::WR_FLUSH_ERR);
            assert_eq!(state(&pair.b), QpState::ERR.0.into());
        }
    }
}

#[test]
fn each_service_refuses_foreign_opcodes_and_only_its_send_queue_ends() {
    for loopback in [true, false] {
        for (kind, opcode) in [
            (Kind::Uc, WqeOpcode::RDMA_READ),
            (Kind::Uc, WqeOpcode::ATOMIC_FA),
            (Kind::Uc, WqeOpcode::SEND_INVAL),
            (Kind::Ud, WqeOpcode::RDMA_WRITE),
            (Kind::Ud, WqeOpcode::RDMA_READ),
        ] {
            let mut pair = pair(loopback, shape(kind), shape(kind));
            let index = pair.a.write_wqe(opcode, 0, SIGNALLED, 0, &[0; 48]);
            let flushed = pair.a.nop(false);
            let cqes = pair.a.run(2);
            is_error(
                &cqes[0],
                CqeOpcode::REQ_ERR,
                index,
                Syndrome::LOCAL_QP_OP_ERR,
            );
            is_error(
                &cqes[1],
                CqeOpcode::REQ_ERR,
                flushed,
                Syndrome::WR_FLUSH_ERR,
            );
            assert_eq!(state(&pair.a), QpState::SQER.0.into(), "{kind:?} {opcode}");

            // It receives still, and sends again after the command.
            pair.a.post_receive(0, 64);
            send_text(&mut pair.b, &pair.hca_a.gid(), pair.a.qpn, b"in");
            assert_eq!(pair.b.run(1)[0].opcode(), CqeOpcode::REQ);
            assert_eq!(pair.a.completion().opcode(), CqeOpcode::RESP_SEND);
            pair.a.modify(Opcode::SQERR2RTS_QP, Qpc::default()).unwrap();
            pair.b.post_receive(0, 64);
            send_text(&mut pair.a, &pair.hca_b.gid(), pair.b.qpn, b"out");
            assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
            assert_eq!(pair.b.completion().opcode(), CqeOpcode::RESP_SEND);
        }
    }
}

/// Writes a SEND of inline bytes, of a UC or UD end.
fn send_text(end: &mut End, gid: &[u8; 16], qpn: u32, text: &[u8]) -> u16 {
    let to = match end.shape.kind {
        Kind::Ud => datagram(*gid, qpn, QKEY).to_vec(),
        _ => vec![],
    };
    let rest = [to.as_slice(), &inline(text)].concat();
    end.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest)
}

#[test]
fn a_datagram_brings_its_header_and_names_its_sender() {
    for loopback in [true, false] {
        let mut pair = pair(loopback, shape(Kind::Ud), shape(Kind::Ud));
        let text: Vec<u8> = (0..4096u32).map(|n| n.to_be_bytes()[3]).collect();
        pair.a.data.write(0, &text);
        let to = datagram(pair.hca_b.gid(), pair.b.qpn, QKEY);
        // With the most significant bit set, the key of the sending QP counts.
        let by_own_key = datagram(pair.hca_b.gid(), pair.b.qpn, DatagramSeg::OWN_QKEY | 5);
        for bytes in [0u32, 1, 4096] {
            pair.b.post_receive(0x100, 40 + bytes);
            let rest = [to.as_slice(), &own(&pair.a, 0, bytes)].concat();
            let rest = if bytes == 0 { &by_own_key[..] } else { &rest };
            let opcode = WqeOpcode::SEND_IMM;
            pair.a.write_wqe(opcode, 0, SIGNALLED, bytes + 3, rest);
            let sent = pair.a.run(1)[0];
            assert_eq!(
                (sent.opcode(), sent.byte_cnt.get()),
                (CqeOpcode::REQ, bytes)
            );
            let cqe = pair.b.completion();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND_IMM);
            assert_eq!(cqe.byte_cnt.get(), bytes + 40);
            assert_eq!(cqe.imm_inval_pkey.get(), bytes + 3);
            assert_eq!(cqe.flags_rqpn.get() & 0xff_ffff, pair.a.qpn);
            assert_eq!(cqe.flags_rqpn.get() >> 28 & 3, 1, "there is a GRH");
            assert_eq!(cqe.srqn_uidx.get(), QP_INDEX);
            let header = pair.b.data.read(0x100 + 20, 20);
            assert_eq!((header[0], header[9]), (0x45, 17));
            assert_eq!(header[12..16], pair.hca_a.gid()[12..]);
            assert_eq!(header[16..20], pair.hca_b.gid()[12..]);
            assert_eq!(
                pair.b.data.read(0x100 + 40, bytes as usize),
                text[..bytes as usize]
            );
        }
        pair.assert_clean();
    }
}

#[test]
fn datagrams_without_a_receiver_are_gone_and_a_too_long_one_stays() {
    for loopback in [true, false] {
        let mut pair = pair(loopback, shape(Kind::Ud), shape(Kind::Ud));
        let (gid, qpn) = (pair.hca_b.gid(), pair.b.qpn);
        let mut nowhere = gid;
        nowhere[15] ^= 0x40;
        // No receive WQE, then another key, another QP, another address.
        send_text(&mut pair.a, &gid, qpn, b"early");
        pair.a.run(1);
        nothing_comes(&mut pair.b);
        pair.b.post_receive(0, 64);
        for to in [
            datagram(gid, qpn, QKEY + 1),
            datagram(gid, qpn + 1, QKEY),
            datagram(nowhere, qpn, QKEY),
        ] {
            let rest = [to.as_slice(), &inline(b"lost")].concat();
            pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        }
        for cqe in pair.a.run(3) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        }
        nothing_comes(&mut pair.b);
        let findings = pair.hca_b.findings();
        assert!(
            findings.iter().any(|text| text.contains("queue key")),
            "{findings:?}"
        );
        send_text(&mut pair.a, &gid, qpn, b"found");
        pair.a.run(1);
        assert_eq!(pair.b.completion().byte_cnt.get(), 45);

        let rest = [datagram(gid, qpn, QKEY).as_slice(), &own(&pair.a, 0, 4097)].concat();
        let index = pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        let cqe = pair.a.run(1)[0];
        is_error(&cqe, CqeOpcode::REQ_ERR, index, Syndrome::LOCAL_LENGTH_ERR);
    }
}

#[test]
fn datagrams_to_both_sides_of_the_process_end_in_order() {
    let mut pair = pair(true, shape(Kind::Ud), shape(Kind::Ud));
    let mut abroad = pair.hca_b.gid();
    abroad[15] ^= 0x40; // behind the socket
    for round in 0..20 {
        let gid = if round % 2 == 0 {
            pair.hca_b.gid()
        } else {
            abroad
        };
        pair.b.post_receive(0, 64);
        send_text(&mut pair.a, &gid, pair.b.qpn, b"x");
        if round % 5 == 4 {
            pair.a.post();
        }
    }
    pair.a.post();
    for index in 0..20u16 {
        let cqe = pair.a.completion();
        assert_eq!(
            (cqe.opcode(), cqe.wqe_counter.get()),
            (CqeOpcode::REQ, index * 2)
        );
    }
}

#[test]
fn an_xrc_initiator_names_the_queue_that_a_message_goes_to() {
    for loopback in [true, false] {
        let target = Shape {
            log_srq: Some(4),
            ..shape(Kind::XrcTarget)
        };
        let mut pair = pair(loopback, shape(Kind::XrcInitiator), target);
        let (lkey, address) = (pair.b.keys.lkey, pair.b.data.address());
        let queue = pair.b.srq.as_mut().unwrap();
        let number = queue.number;
        let indices: Vec<u16> = (0..3).map(|_| queue.post(&[(64, lkey, address)])).collect();
        let named = xrc(number);
        let rest = [named.as_slice(), &inline(b"send")].concat();
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        let (remote, rkey) = (address + 0x100, pair.b.keys.rkey);
        let rest = [named.as_slice(), &raddr(remote, rkey), &inline(b"write")].concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE_IMM, 0, SIGNALLED, 4, &rest);
        let rest = [
            named.as_slice(),
            &raddr(remote, rkey),
            &own(&pair.a, 0x200, 5),
        ]
        .concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_READ, 0, SIGNALLED, 0, &rest);
        for cqe in pair.a.run(3) {
            assert_eq!(cqe.opcode(), CqeOpcode::REQ);
        }
        assert_eq!(pair.a.data.read(0x200, 5), b"write");
        for (opcode, index) in [CqeOpcode::RESP_SEND, CqeOpcode::RESP_WR_IMM]
            .into_iter()
            .zip(&indices)
        {
            let cqe = pair.b.completion();
            assert_eq!((cqe.opcode(), cqe.wqe_counter.get()), (opcode, *index));
            assert_eq!(cqe.srqn_uidx.get(), SRQ_INDEX);
            assert_eq!(cqe.sop_drop_qpn.get() & 0xff_ffff, pair.b.qpn);
        }
        pair.assert_clean();

        // A queue that is none of the domain.
        let rest = [xrc(number + 1).as_slice(), &inline(b"send")].concat();
        let index = pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &rest);
        let cqe = pair.a.run(1)[0];
        is_error(
            &cqe,
            CqeOpcode::REQ_ERR,
            index,
            Syndrome::REMOTE_INVAL_REQ_ERR,
        );
        assert_eq!(state(&pair.a), QpState::ERR.0.into());
        assert_eq!(state(&pair.b), QpState::ERR.0.into());
    }
}

#[test]
fn a_drained_send_queue_is_reported_once_and_goes_on_where_it_was() {
    for loopback in [true, false] {
        let mut pair = pair(loopback, shape(Kind::Rc), shape(Kind::Rc));
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        pair.a.write(0, 4096, remote, rkey);
        pair.a.run(1);
        pair.a.modify(Opcode::RTS2SQD_QP, Qpc::default()).unwrap();
        let drained = Event::QpSqDrained(pair.a.qpn);
        wait_until("the event", || !pair.a.events.lock().unwrap().is_empty());
        assert_eq!(state(&pair.a), QpState::SQD.0.into());
        pair.a.write(0, 8, remote, rkey);
        pair.a.post();
        nothing_comes(&mut pair.a);
        assert_eq!(*pair.a.events.lock().unwrap(), [drained]);
        pair.a.modify(Opcode::SQD_RTS_QP, Qpc::default()).unwrap();
        assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
        assert_eq!(*pair.a.events.lock().unwrap(), [drained]);
        pair.assert_clean();
    }
}

/// Waits until the events of an end are these.
fn await_events(end: &End, expected: &[Event]) {
    wait_until(&format!("{expected:?}"), || {
        end.events.lock().unwrap().len() >= expected.len()
    });
    assert_eq!(*end.events.lock().unwrap(), expected);
}

#[test]
fn a_request_before_rts_is_reported_once() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let hca_a = Hca::with_config(config.clone()).unwrap();
        let hca_b = Hca::with_config(config).unwrap();
        let mut a = End::new(&hca_a, shape(Kind::Rc));
        let mut b = End::new(&hca_b, shape(Kind::Rc));
        a.connect(hca_b.gid(), b.qpn, 3);
        b.init();
        b.ready_to_receive(hca_a.gid(), a.qpn, 3);
        b.post_receive(0, 64);
        a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &inline(b"first"));
        let (remote, rkey) = (b.data.address(), b.keys.rkey);
        a.write(0, 8, remote, rkey);
        assert!(a.run(2).iter().all(|cqe| cqe.opcode() == CqeOpcode::REQ));
        await_events(&b, &[Event::QpEstablished(b.qpn)]);
    }
}

#[test]
fn qps_of_a_queue_that_overruns_are_reported_as_lost() {
    let small = Shape {
        log_cq: Some(1),
        ..shape(Kind::Rc)
    };
    let mut pair = pair(true, small, shape(Kind::Rc));
    for _ in 0..3 {
        pair.a.nop(true);
    }
    pair.a.post();
    let (cqn, qpn) = (pair.a.cqn, pair.a.qpn);
    await_events(&pair.a, &[Event::CqError(cqn), Event::QpFatal(qpn)]);
    assert_eq!(state(&pair.a), QpState::ERR.0.into());
}
