//! The port and the whole device fail: which programs get an event, and what still works.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use softhca::HcaConfig;
use softhca::device::{Context, DeviceError, Event};
use softhca_rig::patience::{HANG, QUIET};
use softhca_rig::{Pair, Shape, create};
use std::sync::mpsc::{Receiver, channel};

fn events(context: &Context) -> Receiver<Event> {
    let (sender, receiver) = channel();
    context.set_event_handler(move |event| {
        let _ = sender.send(event);
    });
    receiver
}

fn next(events: &Receiver<Event>) -> Option<Event> {
    events.recv_timeout(HANG).ok()
}

/// 1.5 s of patience: tests of giving up.
fn impatient() -> Shape {
    Shape {
        ack_timeout: 10,
        retry_count: 2,
        ..Shape::default()
    }
}

#[test]
fn a_port_that_goes_down_silences_the_peer_over_memory_and_over_packets() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let mut pair = Pair::with(&config, impatient(), impatient());
        let heard = events(&pair.a.context);
        pair.hca_a.set_port(false);
        pair.hca_a.set_port(false);
        assert_eq!(
            next(&heard),
            Some(Event::PortDown(1)),
            "loopback {loopback}"
        );
        assert!(!pair.a.context.port_is_up(1));
        assert!(pair.b.context.port_is_up(1));
        let (remote, rkey) = (pair.a.data.address(), pair.a.keys.rkey);
        pair.b.write(0, 8, remote, rkey);
        let cqe = pair.b.run(1)[0];
        assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "loopback {loopback}");
        assert_eq!(cqe.as_error().reason(), Syndrome::TRANSPORT_RETRY_EXC_ERR);
        pair.hca_a.set_port(true);
        assert_eq!(
            next(&heard),
            Some(Event::PortActive(1)),
            "loopback {loopback}"
        );
        assert!(pair.a.context.port_is_up(1));
    }
}

#[test]
fn what_is_under_way_when_the_port_comes_back_in_time_ends_well() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let mut pair = Pair::with(&config, Shape::default(), Shape::default());
        pair.hca_b.set_port(false);
        pair.a.data.write(0, &[7; 8]);
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        pair.a.write(0, 8, remote, rkey);
        pair.a.post();
        assert!(pair.a.poll_for(QUIET, |_| true).is_none());
        pair.hca_b.set_port(true);
        assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
        assert_eq!(pair.b.data.read(0, 8), [7; 8]);
    }
}

#[test]
fn a_dead_device_completes_nothing_refuses_commands_and_lets_objects_go() {
    let mut pair = Pair::new(Shape::default());
    let heard = events(&pair.a.context);
    pair.hca_a.die();
    pair.hca_a.die();
    assert_eq!(next(&heard), Some(Event::DeviceFatal));
    pair.a.nop(true);
    pair.a.post();
    assert!(pair.a.poll_for(QUIET, |_| true).is_none());
    assert!(heard.try_recv().is_err(), "said once");

    let refused = pair.a.context.alloc_pd().unwrap_err();
    assert!(matches!(refused, DeviceError::Dead { .. }), "{refused}");
    assert_eq!(refused.errno(), libc::EIO);
    let query = mlx5_prm::qp::QueryQpIn::default()
        .with_opcode(mlx5_prm::cmd::Opcode::QUERY_QP.0.into())
        .with_qpn(pair.a.qpn);
    let mut output = [0; 64];
    let refused = pair
        .a
        .context
        .devx_query(
            softhca::device::DevxObject::Qp(pair.a.qpn),
            query.as_bytes(),
            &mut output,
        )
        .unwrap_err();
    assert_eq!(refused.errno(), libc::EIO);
    assert_eq!(output[0], 0xfe);
    assert_eq!(output[4..8], 0xbadd_00de_u32.to_be_bytes());
    let pd = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert!(create(&pair.a.context, &pd).is_err());

    pair.a
        .context
        .devx_destroy(softhca::device::DevxObject::Qp(pair.a.qpn))
        .unwrap();
    assert_eq!(pair.hca_a.live_objects().qp, 0);
    // The peer is not dead.
    assert!(pair.b.context.alloc_pd().is_ok());
}
