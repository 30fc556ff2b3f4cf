//! Faults that were asked for: what the software above sees of them, and that the transport makes good what it can.

use mlx5_prm::cmd::{Opcode, Status};
use mlx5_prm::cqe::{Cqe64, CqeOpcode, Syndrome};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, WqeOpcode};
use softhca::device::{CommandFault, CommandOutcome, Context, DeviceError, Event, FaultSpec};
use softhca::{Hca, HcaConfig};
use softhca_rig::patience::{HANG, wait_until};
use softhca_rig::{End, Pair, Shape, data, raddr};
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

fn spec(text: &str) -> FaultSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// Two HCAs that send packets to each other, and both have these faults.
fn faulty(text: &str, shape: Shape) -> Pair {
    let config = HcaConfig {
        loopback: false,
        faults: Some(spec(text)),
        ..HcaConfig::default()
    };
    Pair::with(&config, shape.clone(), shape)
}

/// Two HCAs that send packets, without faults yet.
fn clean(shape: Shape) -> Pair {
    faulty("", shape)
}

/// 1.5 s of patience: tests of giving up.
fn impatient() -> Shape {
    Shape {
        ack_timeout: 10,
        retry_count: 2,
        ..Shape::default()
    }
}

fn is_error(cqe: &Cqe64, syndrome: Syndrome) {
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    assert_eq!(cqe.as_error().reason(), syndrome);
}

fn fetch_add(end: &mut End, at: [u8; 16]) {
    let operands = AtomicSeg {
        swap_add: 1.into(),
        compare: 0.into(),
    };
    let result = data(8, end.keys.lkey, end.data.address());
    let rest = [at.as_slice(), bytemuck::bytes_of(&operands), &result].concat();
    end.write_wqe(WqeOpcode::ATOMIC_FA, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
}

#[test]
fn writes_reads_and_atomics_end_right_on_a_bad_network() {
    let seed = fastrand::u64(..);
    // The 100th packet is lost whatever the seed.
    let text = format!(
        "seed={seed},drop-out=#100,drop=1%,dup=0.5%,reorder=1%,corrupt=0.5%,delay=10us..300us@2%"
    );
    println!("{text}");
    let shape = Shape {
        log_depth: 8,
        data_bytes: 1 << 20,
        ..Shape::default()
    };
    let mut pair = faulty(&text, shape);
    let mut random = fastrand::Rng::with_seed(seed);
    let bytes: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    pair.a.data.write(8, &bytes);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let counter = 400_000;
    for _ in 0..20 {
        fetch_add(&mut pair.a, raddr(remote + counter, rkey));
    }
    pair.a.write(8, 300_000, remote + 8, rkey);
    let back = pair.a.data.address() + 500_000;
    let rest = [
        raddr(remote + 8, rkey),
        data(300_000, pair.a.keys.lkey, back),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    for _ in 0..20 {
        fetch_add(&mut pair.a, raddr(remote + counter, rkey));
    }
    for cqe in pair.a.run(42) {
        assert_eq!(cqe.opcode(), CqeOpcode::REQ, "{text}");
    }
    assert!(pair.b.data.read(8, 300_000) == bytes, "{text}");
    assert!(pair.a.data.read(500_000, 300_000) == bytes, "{text}");
    let word = pair.b.data.word(400_000).load(Ordering::Acquire);
    assert_eq!(word, 40, "each atomic once; {text}");
    pair.assert_clean();
    let counts = pair.hca_a.fault_counts();
    assert!(counts.dropped > 0, "{counts:?} {text}");
    assert!(pair.hca_a.counters().retransmissions > 0, "{text}");
}

#[test]
fn damaged_packets_are_dropped_by_the_receiver_and_sent_again() {
    let mut pair = clean(Shape::default());
    pair.hca_b.set_faults(&spec("corrupt-in=#1"));
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write_inline(&[5; 8], remote, rkey);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(pair.b.data.read(0, 8), [5; 8]);
    assert_eq!(pair.hca_b.fault_counts().corrupted, 1);
    // More than one where the engine came to the answer late.
    assert!(pair.hca_a.counters().retransmissions >= 1);
}

#[test]
fn a_partition_ends_in_exceeded_retries_and_may_let_the_request_arrive() {
    for (text, arrives) in [
        ("partition-out=PEER", false),
        ("partition-in=PEER", true),
        ("partition=*", false),
    ] {
        let mut pair = clean(impatient());
        let text = text.replace("PEER", &pair.hca_b.ip().to_string());
        pair.hca_a.set_faults(&spec(&text));
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        pair.a.write_inline(&[6; 8], remote, rkey);
        is_error(&pair.a.run(1)[0], Syndrome::TRANSPORT_RETRY_EXC_ERR);
        let written = pair.b.data.read(0, 8) == [6; 8];
        assert_eq!(written, arrives, "{text}");
    }
}

#[test]
fn a_partition_of_other_ranks_harms_no_rank() {
    let mut pair = clean(Shape::default());
    pair.hca_a.set_faults(&spec("partition=203.0.113.9"));
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write_inline(&[6; 8], remote, rkey);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
}

#[test]
fn faults_of_packets_make_hcas_of_one_process_send_packets() {
    let hca_a = Hca::new().unwrap();
    let hca_b = Hca::new().unwrap();
    hca_b.set_faults(&spec("drop=#1"));
    let mut a = End::new(&hca_a, Shape::default());
    let b = End::new(&hca_b, Shape::default());
    a.connect(hca_b.gid(), b.qpn, 7);
    b.connect(hca_a.gid(), a.qpn, 7);
    a.write_inline(&[6; 8], b.data.address(), b.keys.rkey);
    assert_eq!(a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(hca_b.fault_counts().dropped, 1);
    // More than one where the engine came to the answer late.
    assert!(hca_a.counters().retransmissions >= 1);
}

#[test]
fn a_packet_of_an_old_connection_with_the_number_due_counts_as_new() {
    let mut pair = clean(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.hca_b.record_packets(Some(pair.b.qpn));
    pair.a.write_inline(&[1; 8], remote, rkey);
    pair.a.run(1);
    pair.hca_b.record_packets(None);
    pair.a.write_inline(&[2; 8], remote, rkey);
    pair.a.run(1);
    assert_eq!(pair.b.data.read(0, 8), [2; 8]);
    let kept = pair.hca_b.recorded_packets();
    assert_eq!(kept.len(), 1);

    // A duplicate changes nothing; one with the number that is due does.
    pair.hca_b.replay_packet(&kept[0], pair.b.qpn).unwrap();
    wait_until("the replay is carried out", || {
        pair.b.data.read(0, 8) == [1; 8]
    });
    assert_eq!(pair.hca_b.fault_counts().replayed, 1);
    let error = pair
        .hca_b
        .replay_packet(&kept[0], pair.b.qpn + 1)
        .unwrap_err();
    assert!(error.to_string().contains("does not receive"), "{error}");
}

#[test]
fn the_nth_wqe_ends_with_the_given_syndrome_and_later_ones_are_flushed() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let mut pair = Pair::with(&config, Shape::default(), Shape::default());
        pair.hca_a.set_faults(&spec("cqe=wqe#3:syndrome=0x15"));
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        for _ in 0..5 {
            pair.a.write_inline(&[1; 8], remote, rkey);
        }
        let cqes = pair.a.run(5);
        assert_eq!(cqes[0].opcode(), CqeOpcode::REQ);
        assert_eq!(cqes[1].opcode(), CqeOpcode::REQ);
        is_error(&cqes[2], Syndrome::TRANSPORT_RETRY_EXC_ERR);
        assert_eq!(cqes[2].wqe_counter.get(), 2);
        is_error(&cqes[3], Syndrome::WR_FLUSH_ERR);
        is_error(&cqes[4], Syndrome::WR_FLUSH_ERR);
        assert_eq!(pair.a.query().state(), u32::from(QpState::ERR.0));
    }
}

#[test]
fn a_completion_can_be_missing_and_another_late_with_all_behind_it() {
    let mut pair = Pair::new(Shape::default());
    pair.hca_a.set_faults(&spec("cqe=drop#2,cqe=delay#4:100ms"));
    for _ in 0..6 {
        pair.a.nop(true);
    }
    let begin = Instant::now();
    let seen: Vec<u16> = pair
        .a
        .run(5)
        .iter()
        .map(|cqe| cqe.wqe_counter.get())
        .collect();
    assert_eq!(seen, [0, 2, 3, 4, 5]);
    assert!(begin.elapsed() >= Duration::from_millis(99));
    pair.a.nop(true);
    assert_eq!(pair.a.run(1)[0].wqe_counter.get(), 6);
}

#[test]
fn commands_fail_by_spec_and_by_call() {
    let hca = Hca::with_config(HcaConfig {
        faults: Some(spec(
            "cmd=ALLOC_PD#2:status=0x8:syndrome=0x1234,enomem=ALLOC_UCTX#2",
        )),
        ..HcaConfig::default()
    })
    .unwrap();
    let context = Context::open(hca.name()).unwrap();
    context.alloc_pd().unwrap();
    let error = context.alloc_pd().unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::Failed {
                status: Status::LIM_ERR,
                syndrome: 0x1234,
                ..
            }
        ),
        "{error}"
    );
    context.alloc_pd().unwrap();
    let error = Context::open(hca.name()).unwrap_err();
    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
    Context::open(hca.name()).unwrap();

    hca.fail(CommandFault {
        opcode: Some(Opcode::ALLOC_PD.0),
        nth: 1,
        outcome: CommandOutcome::NoMemory,
    });
    let pd = [0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut output = [0; 16];
    let error = context.devx_create(&pd, &mut output).unwrap_err();
    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
    context.devx_create(&pd, &mut output).unwrap();
}

#[test]
fn the_port_falls_and_rises_by_the_clock_and_the_hca_freezes() {
    let hca = Hca::new().unwrap();
    let context = Context::open(hca.name()).unwrap();
    let (sender, events) = channel();
    context.set_event_handler(move |event| {
        let _ = sender.send((event, Instant::now()));
    });
    let begin = Instant::now();
    hca.set_faults(&spec(
        "port-up@60ms,port-down@20ms,freeze@80ms+100ms,fatal@100ms",
    ));
    let mut seen = Vec::new();
    for (event, at_ms) in [
        (Event::PortDown(1), 20),
        (Event::PortActive(1), 60),
        (Event::DeviceFatal, 180),
    ] {
        let (found, at) = events.recv_timeout(HANG).unwrap();
        seen.push(found);
        assert_eq!(found, event, "{seen:?}");
        assert!(at - begin >= Duration::from_millis(at_ms), "{event:?}");
    }
    assert_eq!(context.alloc_pd().unwrap_err().errno(), libc::EIO);
}
