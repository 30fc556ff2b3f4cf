//! Tests of the services other than RC on the same link.

use super::*;
use crate::transport::Target;

#[test]
fn xrc_is_as_reliable_and_every_receive_names_its_srq() {
    for seed in 0..40 {
        let (initial, mut model) = model(seed, 60);
        for (tag, (_, operation)) in (0..).zip(&mut model.operations) {
            operation.to = Target::Srq(tag % 3);
        }
        let services = (Service::XrcInitiator, Service::XrcTarget);
        let sends: Vec<_> = model
            .operations
            .iter()
            .filter(|(_, operation)| matches!(operation.kind, OperationKind::Send { .. }))
            .map(|(_, operation)| operation.to)
            .collect();
        let first_psn = fastrand::Rng::with_seed(seed).u32(..);
        let link = Link::between(services, seed, ROUGH, first_psn, initial);
        let mut link = check_on(link, seed, ROUGH, first_psn, model);
        link.far.srqs.dedup(); // a request that met no receive WQE comes again
        let mut named: Vec<_> = sends
            .iter()
            .map(|to| match to {
                Target::Srq(srqn) => Some(*srqn),
                other => panic!("{other:?}"),
            })
            .collect();
        named.dedup();
        assert_eq!(link.far.srqs, named, "seed {seed}");
    }
}

#[test]
fn over_a_rough_link_uc_delivers_whole_messages_or_none() {
    let services = (Service::Uc, Service::Uc);
    let (mut sent, mut delivered, mut broken) = (0, 0, 0);
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut link = Link::between(services, seed, ROUGH, random.u32(..), vec![0; MEMORY]);
        link.far.receives = vec![0; 200].into();
        let operations: Vec<(TestWqe, Operation)> = (0..40)
            .map(|tag| {
                // One to five packets. All bytes of a message are equal, and no two messages are alike.
                let bytes = random.usize(1..1280);
                let data = vec![u8::try_from(tag + 1).unwrap(); bytes];
                let operation = if random.bool() {
                    send(bytes)
                } else {
                    write(0, bytes)
                };
                (TestWqe::new(tag, data), operation)
            })
            .collect();
        let sends: Vec<Vec<u8>> = operations
            .iter()
            .filter(|(_, operation)| matches!(operation.kind, OperationKind::Send { .. }))
            .map(|(wqe, _)| wqe.data.clone())
            .collect();
        link.run(operations);
        let completed: Vec<_> = (0..40).map(|tag| (tag, Ok(()))).collect();
        assert_eq!(
            link.near.completed, completed,
            "seed {seed}: the sender never knows"
        );
        assert_eq!(link.far.refused, None, "seed {seed}");
        for (_, message) in &link.far.received {
            assert!(
                sends.contains(message),
                "seed {seed}: {} bytes that no QP sent",
                message.len()
            );
        }
        sent += sends.len();
        delivered += link.far.received.len();
        broken += usize::from(link.far.begun);
    }
    assert!(
        delivered > sent / 4 && delivered < sent && broken > 0,
        "{delivered} of {sent}, {broken} broken"
    );
}

#[test]
fn over_a_clean_link_uc_delivers_everything_in_order() {
    let services = (Service::Uc, Service::Uc);
    let mut link = Link::between(services, 1, CLEAN, 0xff_fff0, vec![0; MEMORY]);
    link.far.receives = vec![0; 41].into();
    let with = SendWith::Immediate(9);
    let mut operations: Vec<_> = (0..40)
        .map(|tag| (TestWqe::new(tag, vec![1; 100 * tag]), send(100 * tag)))
        .collect();
    operations.push((
        TestWqe::new(40, vec![7; 3000]),
        operation(
            OperationKind::Write {
                va: 64,
                rkey: RKEY,
                immediate: Some(9),
            },
            3000,
        ),
    ));
    link.run(operations);
    let lengths: Vec<u32> = link.far.received.iter().map(|(got, _)| got.bytes).collect();
    let expected: Vec<u32> = (0..40).map(|tag| 100 * tag).chain([3000]).collect();
    assert_eq!(lengths, expected);
    assert_eq!(link.far.received[40].0.with, with);
    assert_eq!(link.far.memory[64..3064], [7; 3000]);
    assert_eq!(
        link.responder.poll_transmit(QPN, &mut link.far, &mut []),
        None
    );
}
