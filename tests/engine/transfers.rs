//! Transfers between two engines on software HCAs: every byte, every report.

use std::time::Duration;

use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    Descriptor, EngineError, Kind, Operation, OperationStatus, Options, Outcome, Remote, Status,
};

use crate::drivers::{access, resets_by_a_wrong_key};
use crate::rig::{End, SHORT, Side, config, pair};

const MIB: u64 = 1 << 20;

fn operation(kind: Kind, local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind,
        local,
        remote,
        bytes,
    }
}

#[test]
pub(crate) fn every_byte_of_a_write_and_of_a_read_arrives_and_no_other_changes() {
    let (a, b, [to_b, _]) = pair(2 * MIB);
    for (seed, bytes) in (1..).zip([
        0,
        1,
        7,
        8,
        4095,
        4096,
        65_535,
        65_536,
        69_632,
        69_633,
        131_073,
        MIB + 3,
    ]) {
        for kind in [Kind::Write, Kind::Read] {
            let (mut here, mut there) = (a.fill(seed), b.fill(seed + 100));
            let (from, to) = (13, 57);
            let range = |at: usize| at..at + usize::try_from(bytes).unwrap();
            let id = match kind {
                Kind::Write => {
                    there[range(to)].copy_from_slice(&here[range(from)]);
                    to_b.write(a.at(13), b.at(57), bytes).unwrap()
                }
                Kind::Read => {
                    here[range(from)].copy_from_slice(&there[range(to)]);
                    to_b.read(a.at(13), b.at(57), bytes).unwrap()
                }
            };
            assert_eq!(a.concluded(id), Outcome::Done, "{kind:?} {bytes}");
            assert!(a.bytes() == here && b.bytes() == there, "{kind:?} {bytes}");
            let report = a.engine.report(id).unwrap();
            assert_eq!(report.operations, [OperationStatus::Done]);
            assert_eq!((report.bytes_landed, report.first), (bytes, None));
            assert_eq!(report.remote, Remote::Quiet);
            a.engine.release(id).unwrap();
            assert_eq!(a.engine.poll(id), Ok(Status::Unknown));
        }
    }
    assert_eq!(a.engine.in_use(), 0);
    assert_eq!(a.hca.findings(), Vec::<String>::new());
}

#[test]
pub(crate) fn vectors_of_writes_and_reads_move_every_byte_once_prepared_or_not() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (a, b, [to_b, _]) = pair(4 * MIB);
    for round in 0..20 {
        let (mut here, mut there) = (a.fill(seed ^ round), b.fill(!seed ^ round));
        let mut operations = Vec::new();
        // Tiles of 4 KiB: writes go from the first half to the first half, reads between the second halves.
        for tile in 0..512u64 {
            let bytes = random.u64(0..=4096);
            let local = (tile * 7 % 512) * 4096;
            let (kind, half) = if random.bool() {
                (Kind::Write, 0)
            } else {
                (Kind::Read, 2 * MIB)
            };
            operations.push(operation(
                kind,
                a.at(half + local),
                b.at(half + tile * 4096),
                bytes,
            ));
            let place = |at: u64| usize::try_from(half + at).unwrap();
            let bytes = usize::try_from(bytes).unwrap();
            let (own, other) = (place(local), place(tile * 4096));
            match kind {
                Kind::Write => there[other..other + bytes].copy_from_slice(&here[own..own + bytes]),
                Kind::Read => here[own..own + bytes].copy_from_slice(&there[other..other + bytes]),
            }
        }
        let id = match round % 2 {
            0 => to_b.submit(&operations, &Options::default()).unwrap(),
            _ => {
                let prepared = to_b.prepare(&operations).unwrap();
                let first = to_b.post(&prepared, &Options::default()).unwrap();
                assert_eq!(a.concluded(first), Outcome::Done, "seed {seed}");
                a.engine.release(first).unwrap();
                to_b.post(&prepared, &Options::default()).unwrap()
            }
        };
        assert_eq!(a.concluded(id), Outcome::Done, "seed {seed}");
        assert!(
            a.bytes() == here && b.bytes() == there,
            "seed {seed}, round {round}"
        );
        a.engine.release(id).unwrap();
    }
}

#[test]
fn slots_are_taken_all_or_nothing_and_polls_free_none() {
    let (a, b, [to_b, _]) = pair(MIB);
    let mut ids = Vec::new();
    for _ in 0..64 {
        ids.push(to_b.write(a.at(0), b.at(0), 4096).unwrap());
    }
    let full = to_b.write(a.at(0), b.at(0), 4096);
    assert_eq!(full, Err(EngineError::WouldBlock { slots: 64 }));
    let mut left = ids.clone();
    while !left.is_empty() {
        let first = a
            .engine
            .wait_any(&left, HANG)
            .unwrap()
            .expect("one is concluded");
        left.swap_remove(first);
    }
    let mut all = Vec::new();
    for _ in 0..2 {
        a.engine.poll_many(&ids, &mut all).unwrap();
        assert_eq!(all, [Status::Concluded(Outcome::Done); 64]);
    }
    // Concluded is not released.
    assert_eq!(
        to_b.write(a.at(0), b.at(0), 1),
        Err(EngineError::WouldBlock { slots: 64 })
    );
    a.engine.release(ids[7]).unwrap();
    let id = to_b.write(a.at(0), b.at(0), 1).unwrap();
    assert_eq!(a.engine.poll(ids[7]), Ok(Status::Unknown));
    assert_eq!(a.concluded(id), Outcome::Done);
}

#[test]
pub(crate) fn an_unknown_remote_key_fails_only_its_own_transfer_and_gives_the_cause() {
    let (a, b, [to_b, to_a]) = pair(MIB);
    let mut forged = b.engine.descriptor(b.region).unwrap();
    to_b.forget(forged.address);
    let mut rkeys = *forged.rkeys.all();
    rkeys[0] ^= 0x5a00;
    forged.rkeys = rkeys.into();
    to_b.import(&forged).unwrap();
    let id = to_b.write(a.at(0), b.at(0), 300_000).unwrap();
    assert_eq!(a.concluded(id), Outcome::Failed);
    let report = a.engine.report(id).unwrap();
    assert_eq!(report.operations, [OperationStatus::Failed]);
    let first = report.first.expect("a cause");
    // Of the peer's NIC: the first that is no flush.
    assert_eq!(first.cause.unwrap().syndrome, access(), "{report:?}");
    assert_eq!((first.operation, report.bytes_landed), (0, 0));
    assert_eq!(report.remote, Remote::Quiet, "both ends have reset");
    // One QP has failed, and none tries what is wrong by itself. With the right key all goes on.
    // Of 64 KiB, the default, it has 5 slices.
    let expected = resets_by_a_wrong_key(5);
    until("the pairs are used again", || {
        let resets = to_b.resets();
        expected.contains(&resets) && to_a.resets() == resets
    });
    assert!(to_b.is_open() && to_a.is_open());
    to_b.forget(forged.address);
    to_b.import(&b.engine.descriptor(b.region).unwrap())
        .unwrap();
    let id = to_b.write(a.at(0), b.at(0), 300_000).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
}

#[test]
pub(crate) fn a_cancel_and_a_deadline_end_a_transfer_once_and_the_buffers_are_quiet() {
    let (a, b, [to_b, _]) = pair(64 * MIB);
    let mut seen = [0u32; 3];
    for round in 0..40u64 {
        let whole = operation(Kind::Write, a.at(0), b.at(0), 64 * MIB - 1);
        let options = match round % 2 {
            0 => Options::default(),
            _ => Options::default().with_deadline(Some(Duration::from_micros(round * 20))),
        };
        let id = to_b.submit(&[whole], &options).unwrap();
        if round % 2 == 0 {
            a.engine.cancel(id).unwrap();
        }
        let outcome = a.concluded(id);
        let report = a.engine.report(id).unwrap();
        match outcome {
            Outcome::Done => seen[0] += 1,
            Outcome::Cancelled => seen[1] += 1,
            Outcome::TimedOut => seen[2] += 1,
            Outcome::Failed => panic!("{report:?}"),
        }
        assert_eq!(report.first, None);
        let is_whole = report.bytes_landed == 64 * MIB - 1;
        assert_eq!(outcome == Outcome::Done, is_whole, "{report:?}");
        // After the conclusion nothing lands: bytes that the test writes now stay.
        b.memory.write(0, &[0xca; 4096]).unwrap();
        b.memory.write(64 * MIB - 4096, &[0xca; 4096]).unwrap();
        a.engine.cancel(id).unwrap();
        a.engine.release(id).unwrap();
        let fence = to_b.write(a.at(0), b.at(MIB), 8).unwrap();
        assert_eq!(a.concluded(fence), Outcome::Done);
        a.engine.release(fence).unwrap();
        let bytes = b.bytes();
        let canary = |range: std::ops::Range<usize>| bytes[range].iter().all(|byte| *byte == 0xca);
        assert!(
            canary(0..4096) && canary(bytes.len() - 4096..bytes.len()),
            "round {round}"
        );
    }
    println!("done, cancelled, timed out: {seen:?}");
    assert!(seen[1] > 0, "a cancel came in time");
}

#[test]
fn what_is_no_transfer_is_refused_with_its_value_and_nothing_is_done() {
    let (a, b, [to_b, _]) = pair(MIB);
    let (own, other) = (a.at(0), b.at(0));
    let submit = |operations: &[Operation]| {
        to_b.submit(operations, &Options::default())
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        submit(&[]),
        "0 operations in a transfer; they must be 1 to 65536"
    );
    let many = vec![operation(Kind::Write, own, other, 1); 65_537];
    assert!(submit(&many).starts_with("65537 operations"));
    for (local, remote, bytes) in [
        (own, other, MIB + 1),
        (own + MIB, other, 1),
        (own - 1, other, 8),
        (own, other - 1, 8),
        (own, other + MIB - 4, 8),
    ] {
        let text = submit(&[operation(Kind::Write, local, remote, bytes)]);
        assert!(text.contains("is in no registered region"), "{text}");
    }
    let text = submit(&[operation(Kind::Read, u64::MAX, other, 2)]);
    assert!(text.contains("behind the last address"), "{text}");
    assert_eq!(a.engine.in_use(), 0, "nothing is left of them");
    let id = to_b.write(own, other, 0).unwrap();
    assert_eq!(a.engine.poll(id), Ok(Status::Concluded(Outcome::Done)));
    assert!(matches!(
        b.engine.poll(id),
        Err(EngineError::ForeignId { .. })
    ));
    assert_eq!(a.engine.wait_any(&[], SHORT), Ok(None));
}

#[test]
pub(crate) fn registrations_share_a_region_and_transfers_keep_it_while_they_use_it() {
    let (a, b, [to_b, _]) = pair(32 * MIB);
    let again = a.engine.register(&a.memory).unwrap();
    assert_ne!(again, a.region);
    assert_eq!(
        a.engine.descriptor(again).unwrap(),
        a.engine.descriptor(a.region).unwrap()
    );
    a.engine.deregister(again).unwrap();
    let text = a.engine.deregister(again).unwrap_err().to_string();
    assert!(text.contains("was taken away"), "{text}");
    let id = to_b.write(a.at(0), b.at(0), 32 * MIB).unwrap();
    // It may be over by now: then the region goes.
    let mut is_gone = a.engine.deregister(a.region).is_ok();
    assert_eq!(a.concluded(id), Outcome::Done);
    is_gone |= a.engine.deregister(a.region).is_ok();
    assert!(is_gone);
    let gone = to_b.write(a.at(0), b.at(0), 8).unwrap_err();
    assert!(matches!(gone, EngineError::NotRegistered { .. }), "{gone}");
    let again = a.engine.register(&a.memory).unwrap();
    assert!(a.engine.descriptor(again).is_ok());
    let id = to_b.write(a.at(0), b.at(0), 8).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
}

#[test]
fn a_descriptor_of_another_life_or_damaged_on_its_way_is_refused() {
    let (a, b, [to_b, _]) = pair(MIB);
    let good = b.engine.descriptor(b.region).unwrap();
    assert_eq!(Descriptor::from_bytes(&good.to_bytes()), Ok(good));
    to_b.import(&good).unwrap();
    let foreign = a.engine.descriptor(a.region).unwrap();
    let refused = to_b.import(&foreign).unwrap_err();
    assert!(
        matches!(refused, EngineError::Incarnation { .. }),
        "{refused}"
    );
    let inside = Descriptor {
        address: good.address + 8,
        bytes: 16,
        ..good
    };
    let refused = to_b.import(&inside).unwrap_err();
    assert!(matches!(refused, EngineError::Overlap { .. }), "{refused}");
    let bytes = good.to_bytes();
    for length in 0..bytes.len() {
        assert!(
            Descriptor::from_bytes(&bytes[..length]).is_err(),
            "{length}"
        );
    }
    for bit in 0..8 * bytes.len() {
        let mut bytes = bytes;
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Descriptor::from_bytes(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
pub(crate) fn a_close_drains_what_runs_and_reports_what_was() {
    let (a, b, [to_b, to_a]) = pair(32 * MIB);
    let id = to_b.write(a.at(0), b.at(0), 32 * MIB).unwrap();
    let expected = a.fill(3);
    let End {
        side: Side { engine, memory, .. },
        hca,
        context,
    } = a;
    let report = engine.close();
    assert_eq!((report.cut_off, report.done), (0, 1), "{report:?}");
    assert_eq!(
        (report.failed, report.cancelled, report.timed_out),
        (0, 0, 0)
    );
    assert_eq!(
        to_b.write(memory.address(), b.at(0), 8),
        Err(EngineError::Closing)
    );
    drop((id, expected, context));
    // The other end ends too, whatever is done first with what.
    drop(to_b);
    let report = b.engine.close();
    assert_eq!(report.cut_off, 0);
    assert!(!to_a.is_open());
    assert_eq!(hca.findings(), Vec::<String>::new());
}

#[test]
fn a_value_outside_its_limits_is_refused_by_name() {
    let end = End::new(config("a"), 4096);
    let refused = |config| {
        let made = warpverbs::internal::engine::Engine::new(&end.context, config);
        made.unwrap_err().to_string()
    };
    let good = || config("b");
    for (config, reason) in [
        (good().with_qps(0), "qps is 0; it must be 1 to 8"),
        (good().with_qps(9), "qps is 9; it must be 1 to 8"),
        (good().with_workers(9), "workers is 9; it must be 1 to 8"),
        (good().with_chain(65), "chain is 65; it must be 1 to 64"),
        (good().with_reap(0), "reap is 0; it must be 1 to 256"),
        (good().with_gather(17), "gather is 17; it must be 1 to 16"),
        (
            good().with_transfers(0),
            "transfers is 0; it must be 1 to 65536",
        ),
        (
            good().with_log_depth(16),
            "log_depth is 16; it must be 8 to 15",
        ),
        (
            good().with_log_entries(7),
            "log_entries is 7; it must be 8 to 22",
        ),
        (good().with_peers(0), "peers is 0; it must be 1 to 65536"),
        (
            good().with_name(String::new()),
            "length of the name of an engine is 0; it must be 1 to 255",
        ),
        (
            good().with_slice(4095),
            "slices of 4095 bytes; they must be 4096 to 1073741824",
        ),
    ] {
        assert_eq!(refused(config), reason);
    }
}
