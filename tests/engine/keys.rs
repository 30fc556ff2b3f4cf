//! Engines with a key: one that has not the same is refused at both ends, and nothing is made for it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use softhca::device::FaultSpec;
use test_support::limits::HANG;
use warpverbs::internal::engine::{
    Distrust, EngineConfig, EngineKey, HostError, MOST_NOTICE_BYTES, Outcome,
};

use crate::rig::{End, LOOPBACK, config, connect, frame, listens};

const MIB: u64 = 1 << 20;

fn keyed(name: &str, byte: u8) -> EngineConfig {
    config(name).with_key(Some(EngineKey::new([byte; 32])))
}

/// The next QP that this end makes fails.
fn arm(end: &End) {
    let fault: FaultSpec = "cmd=CREATE_QP:status=0x5".parse().unwrap();
    end.hca.set_faults(&fault);
}

/// Returns whether it has made none since it was armed, which one with its key finds out. Then it can again.
fn made_none(end: &End, key: Option<u8>) -> bool {
    let name = format!("judge of {key:?}");
    let judge = match key {
        Some(byte) => keyed(&name, byte),
        None => config(&name),
    };
    let judge = End::new(judge, 4096);
    let address = listens(&end.engine).to_string();
    let fails = judge.engine.connect(&address).is_err();
    fails && judge.engine.connect(&address).is_ok()
}

/// Returns what the engine `from` says when it connects to `to`, to the last byte that it says of itself.
fn recorded(from: &End, to: &End) -> Vec<u8> {
    let address = listens(&to.engine);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let between = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        let tap = scope.spawn(|| {
            let (mut near, _) = listener.accept().unwrap();
            let mut far = TcpStream::connect(address).unwrap();
            let (mut back, mut here) = (far.try_clone().unwrap(), near.try_clone().unwrap());
            scope.spawn(move || {
                let _ = std::io::copy(&mut back, &mut here);
                let _ = here.shutdown(Shutdown::Write);
            });
            let (mut said, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = near.read(&mut bytes) {
                said.extend(&bytes[..count]);
                if far.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = far.shutdown(Shutdown::Write);
            said
        });
        let peer = from.engine.connect(&between).unwrap();
        peer.notify(b"a word in clear").unwrap();
        let taken = to.engine.notice(HANG).expect("it has come");
        assert_eq!(*taken.bytes, *b"a word in clear");
        let accepted = to.engine.accept(HANG).expect("it has connected");
        peer.break_off();
        accepted.break_off();
        tap.join().unwrap()
    })
}

#[test]
fn engines_with_one_key_transfer_as_without_and_send_nothing_readable() {
    let [a, b] = [("a", 7), ("b", 7)].map(|(name, key)| End::new(keyed(name, key), MIB));
    let said = recorded(&a, &b);
    let has = |text: &[u8]| said.windows(text.len()).any(|bytes| bytes == text);
    assert!(has(b"WVEN") && !has(b"incarnation") && !has(b"a word in clear"));
    let [to_b, to_a] = connect(&a, &b);
    let expected = a.fill(1);
    let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
    assert_eq!(a.concluded(id), Outcome::Done);
    assert!(b.bytes() == expected);
    // Longer than a record.
    let long: Vec<u8> = (0..MOST_NOTICE_BYTES)
        .map(|at| at.to_le_bytes()[0])
        .collect();
    for round in 0..20 {
        to_b.notify_wait(&long, HANG).unwrap();
        to_a.notify_wait(&long[round..], HANG).unwrap();
        assert!(*b.engine.notice(HANG).unwrap().bytes == *long);
        assert!(*a.engine.notice(HANG).unwrap().bytes == long[round..]);
    }
}

#[test]
fn one_without_the_key_is_refused_at_both_ends_and_no_qp_is_made() {
    let b = End::new(keyed("b", 7), 4096);
    let other = End::new(keyed("other", 8), 4096);
    let clear = End::new(config("clear"), 4096);
    for end in [&b, &other, &clear] {
        arm(end);
    }
    for (from, to, why) in [
        (&other, &b, Distrust::Wrong),
        (&b, &other, Distrust::Wrong),
        (&clear, &b, Distrust::Keyed),
        (&b, &clear, Distrust::Clear),
    ] {
        let address = listens(&to.engine).to_string();
        match from.engine.connect(&address).unwrap_err() {
            HostError::Distrusted { peer, distrust } => {
                assert_eq!((peer, distrust), (address, why));
            }
            error => panic!("{error}"),
        }
        assert!(to.engine.accept(Duration::ZERO).is_none());
    }
    for (end, key) in [(&b, Some(7)), (&other, Some(8)), (&clear, None)] {
        assert!(made_none(end, key), "{key:?}");
    }
}

#[test]
fn what_was_recorded_flipped_or_cut_is_no_peer_and_makes_nothing() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let [a, b] = ["a", "b"].map(|name| End::new(keyed(name, 7), 4096));
    let said = recorded(&a, &b);
    let address = listens(&b.engine);
    arm(&b);
    let refused = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        // It may have refused what came before all of it has.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        let is_late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_late, "seed {seed}: it is still waited for");
    };
    refused(&said);
    for _ in 0..4 {
        refused(&said[..random.usize(..said.len())]);
    }
    let first = 12 + 48;
    for at in 0..first {
        let mut flipped = said[..first].to_vec();
        flipped[at] ^= 1 << random.u32(0..8);
        refused(&flipped);
        refused(&said[..at]);
    }
    refused(&frame("\"ready\""));
    assert!(b.engine.accept(Duration::ZERO).is_none(), "seed {seed}");
    assert!(made_none(&b, Some(7)), "seed {seed}");
}

#[test]
fn an_end_that_goes_on_with_no_handshake_is_waited_for_until_the_deadline() {
    let [a, b] = ["a", "b"].map(|name| {
        let short = keyed(name, 7).with_connect_timeout(Duration::from_millis(30));
        End::new(short, 4096)
    });
    let silent = TcpListener::bind(LOOPBACK).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let refused = a.engine.connect(&address).unwrap_err().to_string();
    assert!(refused.contains("no answer within 30ms"), "{refused}");
    let mut stream = TcpStream::connect(listens(&b.engine)).unwrap();
    stream.write_all(b"WVEN\x07\0\x03\0\x30\0\0\0half").unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it has ended it");
}

#[test]
fn beside_63_that_stop_half_way_a_good_one_connects() {
    for key in [None, Some(EngineKey::new([7; 32]))] {
        // Each of them would be waited for longer than a test may take.
        let [a, b] = ["a", "b"].map(|name| End::new(config(name).with_key(key.clone()), 4096));
        let address = listens(&b.engine);
        let halves: [&[u8]; 4] = [
            b"",
            b"WVEN",
            b"WVEN\x07\0\x03\0\x30\0\0\0half",
            b"WVEN\x07\0\x01\0",
        ];
        let half = |nth: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(halves[nth % halves.len()]).unwrap();
            stream
        };
        let mut open: Vec<TcpStream> = (0..63).map(half).collect();
        let begin = Instant::now();
        let peer = a.engine.connect(&address.to_string()).unwrap();
        println!(
            "key {}: connected in {:?} beside 63",
            key.is_some(),
            begin.elapsed()
        );
        assert_eq!(peer.name(), "b");
        assert_eq!(b.engine.accept(HANG).unwrap().name(), "a");
        // What the other end says first is all that it has said: it has ended none.
        for stream in &mut open {
            stream.set_nonblocking(true).unwrap();
            let mut said = [0; 4096];
            let found = loop {
                match stream.read(&mut said) {
                    Ok(1..) => {}
                    found => break found,
                }
            };
            assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        }
    }
}
