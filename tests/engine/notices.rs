//! Notices: delivered once, in order, after the transfer that they were sent with, whatever becomes of that or of the connection.

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use softhca::HcaConfig;
use softhca::device::FaultSpec;
use test_basics::limits::until;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    EngineConfig, EngineError, Kind, MOST_NOTICE_BYTES, Notice, Operation, Options, Outcome, Peer,
};

use crate::cable::Cable;
use crate::rig::{End, SHORT, as_other, config, connect, frame, listens, message, other_qps, pair};

const MIB: u64 = 1 << 20;
/// The least room of an inbox.
const LEAST: u32 = 1 << 17;

/// With few QPs, so that many connections have room in a CQ.
fn small(name: &str) -> EngineConfig {
    config(name)
        .with_qps(1)
        .with_log_entries(14)
        .with_inbox(LEAST)
}

fn whole(a: &End, b: &End, kind: Kind) -> Operation {
    Operation {
        kind,
        local: a.at(0),
        remote: b.at(0),
        bytes: MIB,
    }
}

#[track_caller]
fn next(end: &End) -> Notice {
    end.engine.notice(HANG).expect("a notice")
}

#[test]
pub(crate) fn notices_of_any_bytes_and_length_come_once_and_in_order() {
    let (a, b, [to_b, to_a]) = pair(4096);
    let every: Vec<u8> = (0..=255).collect();
    let long = vec![0xa5; MOST_NOTICE_BYTES];
    let all = [&b""[..], b"\0", &every, &long, b"last"];
    for bytes in all {
        to_b.notify(bytes).unwrap();
        to_a.notify(bytes).unwrap();
    }
    for (end, peer) in [(&a, "b"), (&b, "a")] {
        for bytes in all {
            let notice = next(end);
            assert_eq!((&*notice.peer, notice.transfer), (peer, None));
            assert!(*notice.bytes == *bytes);
        }
        assert_eq!(end.engine.notice(SHORT), None);
    }
    let bytes = MOST_NOTICE_BYTES + 1;
    let refused = to_b.notify(&vec![0; bytes]).unwrap_err();
    assert_eq!(refused, EngineError::NoticeBytes { bytes });
}

#[test]
pub(crate) fn a_notice_comes_behind_the_last_byte_of_its_transfer() {
    let (a, b, [to_b, _]) = pair(MIB);
    let options = Options::default();
    for round in 0..50u64 {
        let expected = a.fill(round);
        let message = round.to_le_bytes();
        let write = [whole(&a, &b, Kind::Write)];
        let id = to_b
            .submit(&write, &options.with_notice(Some(&message)))
            .unwrap();
        let notice = next(&b);
        // Before this side has asked what became of it.
        assert!(b.bytes() == expected, "{round}");
        assert_eq!(*notice.bytes, message);
        let behind = notice.transfer.unwrap();
        assert_eq!((behind.outcome, behind.operation), (Outcome::Done, None));
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
    }
    // A READ's notice comes when the peer's memory is not read any more. An operation of no bytes has no WQE, and its notice
    // comes too.
    for operation in [
        whole(&a, &b, Kind::Read),
        Operation {
            bytes: 0,
            ..whole(&a, &b, Kind::Write)
        },
    ] {
        let id = to_b
            .submit(&[operation], &options.with_notice(Some(b"x")))
            .unwrap();
        assert_eq!(next(&b).transfer.unwrap().outcome, Outcome::Done);
        assert_eq!(a.concluded(id), Outcome::Done);
    }
    // A refused notice sends nothing, and takes no room.
    let nowhere = Operation {
        remote: 8,
        ..whole(&a, &b, Kind::Write)
    };
    for _ in 0..100 {
        let refused = to_b.submit(
            &[nowhere],
            &options.with_notice(Some(&vec![0; MOST_NOTICE_BYTES])),
        );
        assert!(matches!(refused, Err(EngineError::NotRegistered { .. })));
    }
    to_b.notify(b"next").unwrap();
    assert_eq!(*next(&b).bytes, *b"next");
}

#[test]
pub(crate) fn a_transfer_that_is_not_done_is_reported_with_its_cause() {
    const NO_ANSWER: u8 = 0x15;
    let options = Options::default();
    for qps in [1, 2] {
        let a = End::new(config("a").with_retry(0).with_qps(qps), MIB);
        let b = End::new(config("b"), MIB);
        let [to_b, _to_a] = connect(&a, &b);
        let fault = format!("cqe=wqe#1:syndrome={NO_ANSWER:#x}");
        a.hca.set_faults(&fault.parse::<FaultSpec>().unwrap());
        let write = [whole(&a, &b, Kind::Write)];
        let id = to_b
            .submit(&write, &options.with_notice(Some(b"kv")))
            .unwrap();
        // With one QP the connection is over: its last words are that.
        let notice = next(&b);
        assert_eq!(a.concluded(id), Outcome::Failed);
        let behind = notice.transfer.unwrap();
        assert_eq!(behind.outcome, Outcome::Failed);
        assert_eq!(behind.operation, Some(0));
        assert_eq!(behind.cause.unwrap().syndrome, NO_ANSWER);
        assert_eq!(to_b.is_open(), qps > 1);
    }
    let hca = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    let a = End::on(hca.clone(), config("a").with_grace(SHORT), MIB);
    let b = End::on(hca, config("b"), MIB);
    let [to_b, _to_a] = connect(&a, &b);
    b.hca
        .set_faults(&"partition=*".parse::<FaultSpec>().unwrap());
    let late = options.with_deadline(Some(SHORT));
    let write = [whole(&a, &b, Kind::Write)];
    let id = to_b
        .submit(&write, &late.with_notice(Some(b"late")))
        .unwrap();
    let found = next(&b).transfer.unwrap().outcome;
    assert_eq!(
        (found, a.concluded(id)),
        (Outcome::TimedOut, Outcome::TimedOut)
    );
    let id = to_b
        .submit(&write, &options.with_notice(Some(b"no")))
        .unwrap();
    a.engine.cancel(id).unwrap();
    let found = next(&b).transfer.unwrap().outcome;
    assert_eq!(
        (found, a.concluded(id)),
        (Outcome::Cancelled, Outcome::Cancelled)
    );
}

#[test]
fn a_full_inbox_is_met_at_the_sender_and_holds_up_no_other() {
    let a = End::new(config("a"), 4096);
    let (full, free) = (
        End::new(config("full").with_inbox(LEAST), 4096),
        End::new(config("free").with_inbox(LEAST), 4096),
    );
    let [to_full, from_full] = connect(&a, &full);
    let [to_free, _] = connect(&a, &free);
    let long = vec![7; MOST_NOTICE_BYTES];
    to_full.notify(&long).unwrap();
    let refused = to_full.notify(&long).unwrap_err();
    let expected = EngineError::InboxFull {
        peer: "full".to_owned(),
        bytes: MOST_NOTICE_BYTES,
        used: MOST_NOTICE_BYTES as u64 + 64,
        most: LEAST.into(),
    };
    assert_eq!(refused, expected);
    // A transfer with such a notice does not begin either.
    let write = [whole(&a, &full, Kind::Write)];
    let refused = to_full.submit(&write, &Options::default().with_notice(Some(&long)));
    assert_eq!(refused, Err(expected.clone()));
    assert_eq!(to_full.notify_wait(&long, SHORT), Err(expected));
    for _ in 0..20 {
        to_free.notify_wait(&long, HANG).unwrap();
        assert!(*next(&free).bytes == *long);
        // Room comes back with the news that it was taken.
        to_free.notify_wait(&long, HANG).unwrap();
        assert!(*next(&free).bytes == *long);
        to_free.notify_wait(b"", HANG).unwrap();
        assert!(next(&free).bytes.is_empty());
        until("there is room", || to_free.notify(b"").is_ok());
        assert!(next(&free).bytes.is_empty());
    }
    from_full.notify(b"the other way").unwrap();
    assert_eq!(*next(&a).bytes, *b"the other way");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| to_full.notify_wait(&long, HANG));
        assert!(*next(&full).bytes == *long);
        waits.join().unwrap().unwrap();
    });
    assert!(*next(&full).bytes == *long);
}

#[test]
fn across_connections_of_the_same_lives_none_is_lost_and_none_comes_twice() {
    let seed = fastrand::u64(..1 << 32);
    let mut random = fastrand::Rng::with_seed(seed);
    let (a, b) = (End::new(small("a"), 4096), End::new(small("b"), 4096));
    let address = listens(&b.engine).to_string();
    let mut peers: Vec<(Peer, Cable)> = Vec::new();
    let next_one = |peers: &mut Vec<(Peer, Cable)>| {
        let cable = Cable::to(&address);
        let peer = a.engine.connect(&cable.address).unwrap();
        b.engine.accept(HANG).expect("it has connected");
        peers.push((peer, cable));
    };
    next_one(&mut peers);
    let (mut sent, mut taken) = (0u64, 0u64);
    let take = |taken: &mut u64, most| {
        let Some(notice) = b.engine.notice(most) else {
            return false;
        };
        assert_eq!(*notice.bytes, taken.to_le_bytes(), "seed {seed}");
        *taken += 1;
        true
    };
    for _ in 0..400 {
        match random.u32(0..24) {
            0 if peers.len() < 3 => next_one(&mut peers),
            1 => {
                let (peer, cable) = peers.swap_remove(random.usize(..peers.len()));
                if random.bool() {
                    cable.cut()
                } else {
                    peer.break_off()
                }
                if peers.is_empty() {
                    next_one(&mut peers);
                }
            }
            2..6 => {
                take(&mut taken, Duration::ZERO);
            }
            _ => {
                let (peer, _) = &peers[random.usize(..peers.len())];
                match peer.notify(&sent.to_le_bytes()) {
                    Ok(()) => sent += 1,
                    Err(EngineError::PeerGone { .. }) => {
                        peers.retain(|(peer, _)| peer.is_open());
                        if peers.is_empty() {
                            next_one(&mut peers);
                        }
                    }
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            }
        }
    }
    next_one(&mut peers);
    while taken < sent {
        assert!(take(&mut taken, HANG), "seed {seed}: {taken} of {sent}");
    }
    assert!(!take(&mut taken, SHORT), "seed {seed}");
    println!("seed {seed}: {sent} notices");
}

#[test]
fn what_a_close_finds_is_sent_before_the_end() {
    let a = End::new(config("a"), 4096);
    let b = End::new(config("b"), 4096);
    let [to_b, _to_a] = connect(&a, &b);
    for number in 0..1000u32 {
        to_b.notify(&number.to_le_bytes()).unwrap();
    }
    assert_eq!(a.engine.close().cut_off, 0);
    assert!(matches!(to_b.notify(b""), Err(EngineError::Closing)));
    let gone = b.engine.peer_gone(HANG).expect("a is gone");
    assert_eq!(gone.name, "a");
    // All that was accepted stands before that.
    for number in 0..1000u32 {
        let notice = b
            .engine
            .notice(Duration::ZERO)
            .expect("it came before the end");
        assert_eq!(*notice.bytes, number.to_le_bytes());
    }
    assert_eq!(b.engine.notice(Duration::ZERO), None);
}

#[test]
fn both_ends_send_all_that_they_have_when_they_part() {
    // Together more than the system and the ends keep of it under way.
    const EACH: u64 = 256;
    let room = |name| config(name).with_inbox(1 << 25);
    let (a, b) = (End::new(room("a"), 4096), End::new(room("b"), 4096));
    let address = listens(&b.engine).to_string();
    let cable = Cable::to(&address);
    let to_b = a.engine.connect(&cable.address).unwrap();
    let to_a = b.engine.accept(HANG).expect("it has connected");
    cable.hold();
    let mut bytes = vec![0; MOST_NOTICE_BYTES];
    for number in 0..EACH {
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        to_b.notify(&bytes).unwrap();
        to_a.notify(&bytes).unwrap();
    }
    to_b.break_off();
    to_a.break_off();
    cable.release();
    for end in [&a, &b] {
        for number in 0..EACH {
            let notice = next(end);
            assert_eq!(notice.bytes[..8], number.to_le_bytes());
            assert_eq!(notice.bytes.len(), MOST_NOTICE_BYTES);
        }
    }
}

#[test]
fn a_connection_ends_also_while_the_other_end_never_stops_talking() {
    let end = End::new(config("a").with_qps(1), 4096);
    let stream = stranger(&end);
    stream.set_read_timeout(Some(HANG)).unwrap();
    let peer = end.engine.accept(HANG).expect("it has connected");
    let talk = frame("{\"taken\":0}").repeat(4096);
    let [mut to, mut from] = [(); 2].map(|()| stream.try_clone().unwrap());
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // More than the system keeps: the engine is reading it.
            for _ in 0..200 {
                to.write_all(&talk).unwrap();
            }
            begun.send(()).unwrap();
            while to.write_all(&talk).is_ok() {}
        });
        begins.recv_timeout(HANG).unwrap();
        peer.break_off();
        let hears = scope.spawn(move || while message(&mut from) != "\"end\"" {});
        let heard = hears.join();
        // The talk ends, whatever was heard.
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        heard.expect("the engine ends the connection");
    });
}

#[test]
fn one_that_waits_for_room_learns_that_the_peer_is_gone() {
    let (a, b) = (End::new(small("a"), 4096), End::new(small("b"), 4096));
    let address = listens(&b.engine).to_string();
    let cable = Cable::to(&address);
    let peer = a.engine.connect(&cable.address).unwrap();
    b.engine.accept(HANG).expect("it has connected");
    let long = vec![7; MOST_NOTICE_BYTES];
    peer.notify(&long).unwrap();
    assert!(matches!(
        peer.notify_wait(&long, SHORT),
        Err(EngineError::InboxFull { .. })
    ));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| peer.notify_wait(&long, HANG));
        cable.cut();
        let found = waits.join().unwrap();
        assert!(
            matches!(found, Err(EngineError::PeerGone { .. })),
            "{found:?}"
        );
    });
}

/// The stream of one that is no engine, and has connected as if it were the engine `b`.
fn stranger(end: &End) -> TcpStream {
    let listening = listens(&end.engine);
    let mut stream = TcpStream::connect(listening).unwrap();
    let hello = message(&mut stream);
    stream.write_all(&frame(&as_other(&hello, "b"))).unwrap();
    let offers = message(&mut stream);
    stream.write_all(&frame(&other_qps(&offers))).unwrap();
    assert_eq!(message(&mut stream), "\"ready\"");
    stream.write_all(&frame("\"ready\"")).unwrap();
    stream
}

#[test]
fn of_many_peers_one_that_takes_nothing_holds_up_no_other() {
    const EACH: u64 = 1250;
    let hub = End::new(small("hub"), 4096);
    let ends: Vec<End> = (0..8)
        .map(|nth| End::new(small(&format!("{nth}")), 4096))
        .collect();
    let peers: Vec<[Peer; 2]> = ends.iter().map(|end| connect(end, &hub)).collect();
    // The hub sends to one that takes nothing until its inbox is full.
    let stopped = &peers[0][1];
    let mut stuck = 0u64;
    while stopped.notify(&[0; 1000]).is_ok() {
        stuck += 1;
    }
    assert!(stuck > 100, "{stuck}");
    let begin = Instant::now();
    let (mut slowest, mut times) = (Duration::ZERO, Vec::new());
    std::thread::scope(|scope| {
        for (peer, _) in peers.iter().map(|[there, _]| there).zip(0u64..) {
            scope.spawn(move || {
                for number in 0..EACH {
                    let sent = begin.elapsed().as_nanos();
                    let sent = u64::try_from(sent).unwrap();
                    let bytes = [number, sent].map(u64::to_le_bytes);
                    peer.notify_wait(bytes.as_flattened(), HANG).unwrap();
                }
            });
        }
        let mut due: HashMap<String, u64> = HashMap::new();
        let mut last = Instant::now();
        for _ in 0..8 * EACH {
            let notice = next(&hub);
            let due = due.entry(notice.peer).or_default();
            let (number, sent) = notice.bytes.split_at(8);
            assert_eq!(number, due.to_le_bytes());
            let sent = u64::from_le_bytes(sent.try_into().unwrap());
            times.push(begin.elapsed() - Duration::from_nanos(sent));
            *due += 1;
            slowest = slowest.max(last.elapsed());
            last = Instant::now();
        }
        assert!(due.values().all(|due| *due == EACH), "{due:?}");
    });
    let took = begin.elapsed();
    times.sort_unstable();
    let [median, p99, longest] =
        [times.len() / 2, times.len() * 99 / 100, times.len() - 1].map(|at| times[at]);
    println!(
        "{} notices of 8 peers in {took:?}, longest gap {slowest:?}; from the sender's call to the receiver's: median {median:?}, p99 {p99:?}, longest {longest:?}",
        8 * EACH
    );
    for _ in 0..stuck {
        assert_eq!(next(&ends[0]).bytes.len(), 1000);
    }
}

#[test]
fn a_peer_that_breaks_the_rules_loses_its_connection_with_a_reason() {
    let record = |number: u64, bytes: &[u8]| {
        let mut body = number.to_le_bytes().to_vec();
        body.extend([0; 8]);
        body.extend(bytes);
        let mut framed = frame("");
        framed[6] = 2;
        framed[8..].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        framed.extend(body);
        framed
    };
    let good = record(0, b"good");
    let long = record(0, &vec![0; MOST_NOTICE_BYTES]);
    let mut unknown = record(0, b"");
    unknown[20] = 9;
    let cases: [(&[Vec<u8>], &str, usize); 7] = [
        (&[record(1, b"")], "notice 1; it must be one up to 0", 0),
        (
            &[good.clone(), record(2, b"")],
            "notice 2; it must be one up to 1",
            1,
        ),
        (
            &[
                good.clone(),
                long,
                record(1, &[0; 1 << 16]),
                record(2, &[0; 1 << 16]),
            ],
            "has announced room for 131072",
            2,
        ),
        (&[unknown], "it must be 0, or an outcome of 1 to 4", 0),
        (
            &[good.clone(), good.clone(), frame("{\"taken\":1}")],
            "0 were sent",
            1,
        ),
        (&[frame("{\"accepted\":1}")], "0 were sent", 0),
        (
            &[frame("{\"accepted\":0}"), frame("{\"accepted\":0}")],
            "has said twice",
            0,
        ),
    ];
    for (frames, reason, accepted) in cases {
        let end = End::new(config("a").with_qps(1).with_inbox(LEAST), 4096);
        let mut stream = stranger(&end);
        for frame in frames {
            stream.write_all(frame).unwrap();
        }
        // It says nothing more, so that nothing is waited for.
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let gone = end.engine.peer_gone(HANG).expect("it is no peer any more");
        assert!(gone.reason.contains(reason), "{reason}: {gone:?}");
        let mut found = 0;
        while end.engine.notice(Duration::ZERO).is_some() {
            found += 1;
        }
        assert_eq!(found, accepted, "{reason}");
    }
}
