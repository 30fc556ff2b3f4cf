//! How engines find each other, and the connections that are refused before anything is made.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use test_support::counts::full;
use test_support::limits::HANG;
use warpverbs::internal::engine::{Engine, EngineKey, HostError, Outcome};

use crate::rig::{End, LOOPBACK, as_other, config, connect, frame, listens, message};

/// Returns what the engine at `address` answers a hello with other QPs or another name than its own.
fn answer(address: SocketAddr, change: impl Fn(&str) -> String) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let theirs = message(&mut stream);
    let other = as_other(&theirs, "a");
    stream.write_all(&frame(&change(&other))).unwrap();
    message(&mut stream)
}

#[test]
fn a_peer_that_announces_what_cannot_be_is_refused_with_value_and_limit() {
    let end = End::new(config("a"), 4096);
    let address = listens(&end.engine);
    for qps in ["0", "9", "4294967296", "18446744073709551615"] {
        let wanted = format!("\"qps\":{qps}");
        let said = answer(address, |hello| hello.replace("\"qps\":4", &wanted));
        let expected = format!("it wants {qps} QPs; they must be 1 to 8");
        assert!(said.contains(&expected), "{said}");
    }
    let said = answer(address, |hello| {
        hello.replace("\"name\":\"a\"", "\"name\":\"\"")
    });
    assert!(said.contains("its name has 0 bytes"), "{said}");
    let said = answer(address, |hello| hello.replace("\"mtu\":", "\"mtu\":9"));
    assert!(said.contains("MTU code"), "{said}");
    let said = answer(address, |_| "\"ready\"".to_owned());
    assert!(said.contains("did not begin with a hello"), "{said}");
    assert!(
        end.engine.accept(Duration::ZERO).is_none(),
        "none of them is a peer"
    );
}

#[test]
fn what_strangers_say_is_one_line_of_plain_text() {
    let end = End::new(config("a"), 4096);
    let address = listens(&end.engine);
    let said = answer(address, |hello| {
        hello.replace("\"name\":\"a\"", "\"name\":\"a\\nERROR forged\"")
    });
    assert!(said.contains("has a control character"), "{said}");
    let listener = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            message(&mut stream);
            let refused = r#"{"refused":"\u001b[2J\nERROR forged"}"#;
            stream.write_all(&frame(refused)).unwrap();
        });
        let said = end.engine.connect(&address).unwrap_err().to_string();
        assert!(
            said.ends_with(r"it refuses: \u{1b}[2J\nERROR forged"),
            "{said}"
        );
    });
}

#[test]
fn an_engine_of_another_version_is_refused_with_both_numbers() {
    for key in [None, Some(EngineKey::new([7; 32]))] {
        let end = End::new(config("a").with_key(key.clone()), 4096);
        // A frame of the version before.
        let mut earlier = frame("\"ready\"");
        earlier[4] = 6;
        let said_of = |error: HostError| {
            let said = error.to_string();
            let both = said.contains("version 6") && said.contains("speaks 7");
            assert!(both, "{said}");
        };
        let listener = std::net::TcpListener::bind(LOOPBACK).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&earlier).unwrap();
                // It reads the version of the engine, whatever that has said.
                let mut head = [0; 6];
                stream.read_exact(&mut head).unwrap();
                head
            });
            said_of(end.engine.connect(&address).unwrap_err());
            assert_eq!(other.join().unwrap(), *b"WVEN\x07\0");
        });
        // The other way round: one of before reads the version of this one.
        let address = listens(&end.engine);
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&earlier).unwrap();
        let mut head = [0; 6];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head, *b"WVEN\x07\0", "key {}", key.is_some());
        assert!(end.engine.accept(Duration::ZERO).is_none());
    }
}

#[test]
fn damaged_hellos_make_nothing_and_a_good_one_is_taken_behind_them() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let (a, b) = (End::new(config("a"), 4096), End::new(config("b"), 4096));
    let address = listens(&b.engine);
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).unwrap();
        let mut bytes = frame(&as_other(&message(&mut stream), "a"));
        for _ in 0..random.usize(1..8) {
            let at = random.usize(..bytes.len());
            match random.u32(0..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        // It may have refused what came before all of it has.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert!(b.engine.accept(Duration::ZERO).is_none(), "seed {seed}");
    assert_eq!(a.engine.connect(&address.to_string()).unwrap().name(), "b");
}

#[test]
fn the_smaller_number_of_qps_counts_whatever_the_workers_are() {
    // All pairs by each number of workers; or as many as meet each number of QPs of either end by each number of workers.
    let sample = |own: u32, theirs: u32, nth: u32| (own * 3 + nth * 2) % 8 == theirs % 8;
    let mut tried = 0;
    for (nth, workers) in (0..).zip([1, 2, 4]) {
        for own in 1..=8u32 {
            for theirs in 1..=8u32 {
                if full() || sample(own, theirs, nth) {
                    tried += 1;
                    moves((own, theirs), workers);
                }
            }
        }
    }
    assert_eq!(tried, if full() { 64 * 3 } else { 8 * 3 });
}

/// Two engines with these numbers of QPs write and read all of a region, each way.
fn moves((own, theirs): (u32, u32), workers: u32) {
    let a = End::new(config("a").with_qps(own).with_workers(workers), 1 << 20);
    let other = config("b").with_qps(theirs).with_workers(workers);
    let b = End::new(other, 1 << 20);
    let [to_b, to_a] = connect(&a, &b);
    let qps = u64::from(own.min(theirs));
    assert_eq!([to_b.qps(), to_a.qps()], [qps; 2]);
    let case = format!("{own} and {theirs} QPs, {workers} workers");
    for (nth, (from, to, peer)) in (1..).zip([(&a, &b, &to_b), (&b, &a, &to_a)]) {
        let expected = from.fill(nth);
        let id = peer.write(from.at(0), to.at(0), 1 << 20).unwrap();
        assert_eq!(from.concluded(id), Outcome::Done, "{case}");
        assert!(to.bytes() == expected, "{case}");
        let expected = to.fill(nth + 2);
        let id = peer.read(from.at(0), to.at(0), 1 << 20).unwrap();
        assert_eq!(from.concluded(id), Outcome::Done, "{case}");
        assert!(from.bytes() == expected, "{case}");
    }
}

#[test]
fn without_a_key_an_engine_listens_on_loopback_only_by_default() {
    let end = End::new(config("a"), 4096);
    let anywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let refused = end.engine.listen(anywhere.into()).unwrap_err();
    assert!(matches!(refused, HostError::Insecure { .. }), "{refused}");
    let open = Engine::new(&end.context, config("b").with_insecure(true)).unwrap();
    let found = open.listen(anywhere.into()).unwrap();
    assert!(!found.to_string().ends_with(":0"), "{found}");
}

#[test]
fn without_a_listener_or_an_engine_behind_it_the_reason_is_said() {
    let end = End::new(
        config("a").with_connect_timeout(Duration::from_secs(2)),
        4096,
    );
    let listener = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap();
    let said = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
        });
        let said = end
            .engine
            .connect(&address.to_string())
            .unwrap_err()
            .to_string();
        other.join().unwrap();
        said
    });
    assert!(
        said.contains("does an engine listen at this address?"),
        "{said}"
    );
    drop(listener);
    let said = end
        .engine
        .connect(&address.to_string())
        .unwrap_err()
        .to_string();
    assert!(said.contains("refused"), "{said}");
    for place in ["", "127.0.0.1", "127.0.0.1:99999"] {
        assert!(end.engine.connect(place).is_err(), "{place}");
    }
    assert!(
        end.engine
            .accept(HANG.min(Duration::from_millis(1)))
            .is_none()
    );
}
