//! Programs that are no engine and send back, or pass on, what engines say. None of them is a peer by its own words, and none is reached
//! within the machine. An engine without a key takes a relay for a peer, since nothing tells it from a proxy: by the NIC.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use test_support::limits::HANG;
use test_support::process::Process;
use warpverbs::internal::engine::{EngineConfig, EngineKey, EnginePath, PeerPath};

use crate::cable::Cable;
use crate::descriptors::descriptor;
use crate::local_processes;
use crate::rig::{End, LOOPBACK, as_beside, as_other, config, frame, listens, message, moves};

const BYTES: u64 = 4096;
const PATHS: [EnginePath; 2] = [EnginePath::Auto, EnginePath::Nic];

/// What a stranger does to a message that it sends back or passes on.
type Change = fn(&str) -> String;

fn same(message: &str) -> String {
    message.to_owned()
}

fn other_name(message: &str) -> String {
    message.replace("\"name\":\"a\"", "\"name\":\"b\"")
}

/// As if the other end said it, with a nonce of its own.
fn as_another(message: &str) -> String {
    as_other(message, "b")
}

/// The other end said it, so that both ends of a relay take each other for one connection.
fn as_connecting(message: &str) -> String {
    message.replace("\"end\":\"accepts\"", "\"end\":\"connects\"")
}

/// Engines that could be fooled: by each path, with and without a list of names.
fn engines() -> impl Iterator<Item = EngineConfig> {
    PATHS.into_iter().flat_map(|path| {
        let open = config("a").with_engine_path(path);
        [
            open.clone(),
            open.with_allow(vec!["a".to_owned(), "b".to_owned()]),
        ]
    })
}

/// Sends each message back, changed, until the stream ends. The last message.
fn echo(mut stream: TcpStream, change: Change) -> String {
    let mut last = String::new();
    while let Some(said) = try_message(&mut stream) {
        if stream.write_all(&frame(&change(&said))).is_err() {
            break;
        }
        last = said;
    }
    let _ = stream.shutdown(Shutdown::Both);
    last
}

/// The next message, until the stream ends.
fn try_message(stream: &mut TcpStream) -> Option<String> {
    let mut first = [0];
    match stream.peek(&mut first) {
        Ok(1) => Some(message(stream)),
        _ => None,
    }
}

/// Returns what the engine says of one that listens, sends everything back like this, and is connected to.
fn said_of_listener(end: &End, change: Change) -> String {
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let stranger = thread::spawn(move || echo(listener.accept().unwrap().0, change));
    let refused = end.engine.connect(&address).unwrap_err().to_string();
    stranger.join().unwrap();
    refused
}

/// Returns what the engine says of one that connects to it and sends everything back like this.
fn said_of_client(address: SocketAddr, change: Change) -> String {
    echo(TcpStream::connect(address).unwrap(), change)
}

#[test]
fn one_that_sends_everything_back_is_no_peer() {
    for config in engines() {
        let end = End::new(config, BYTES);
        let address = listens(&end.engine);
        for change in [same as Change, other_name] {
            let said = said_of_listener(&end, change);
            assert!(
                said.contains("it sends back what this engine says"),
                "{said}"
            );
            let said = said_of_client(address, change);
            assert!(
                said.contains("it sends back what this engine says"),
                "{said}"
            );
        }
        // With a hello of its own it has no QP and no board.
        for said in [
            said_of_listener(&end, as_another),
            said_of_client(address, as_another),
        ] {
            assert!(said.contains("which is this engine's own"), "{said}");
        }
        assert!(end.engine.accept(Duration::ZERO).is_none());
    }
}

#[test]
fn one_that_sends_everything_back_has_no_key() {
    let key = EngineKey::new([7; 32]);
    for path in PATHS {
        let end = End::new(
            config("a")
                .with_engine_path(path)
                .with_key(Some(key.clone())),
            BYTES,
        );
        let listener = TcpListener::bind(LOOPBACK).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stranger = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut back = stream.try_clone().unwrap();
            let _ = std::io::copy(&mut stream, &mut back);
        });
        let said = end.engine.connect(&address).unwrap_err().to_string();
        assert!(said.contains("key"), "{said}");
        stranger.join().unwrap();
    }
}

#[test]
fn a_stranger_that_claims_to_be_of_this_machine_gets_no_seat() {
    let own = config("a").with_engine_path(EnginePath::Auto);
    let end = End::new(own, BYTES);
    let address = listens(&end.engine);
    // Of this process, and of another one: what an engine of it has said on another connection.
    let hello_of = |address: &str| message(&mut TcpStream::connect(address).unwrap());
    let process = local_processes::start("serves open own b");
    let said = process.says();
    let (there, _) = said.split_once(' ').unwrap();
    let claims = [hello_of(&address.to_string()), hello_of(there)];
    // More than there are seats.
    for nth in 0..300 {
        let claim = &claims[nth % 2];
        let mut stream = TcpStream::connect(address).unwrap();
        let hello = message(&mut stream);
        let beside = as_beside(&hello, &format!("stranger {nth}"), Some(claim));
        stream.write_all(&frame(&beside)).unwrap();
        let vouch = message(&mut stream);
        assert!(vouch.starts_with("{\"vouch\":["), "{vouch}");
        stream.write_all(&frame(&vouch)).unwrap();
        assert_eq!(message(&mut stream), "{\"seat\":null}");
    }
    // A peer that shows its board has one.
    let peer = end.engine.connect(there).unwrap();
    assert_eq!(peer.path(), PeerPath::Machine);
}

/// Passes on all that comes at either of two connections, changed until both ends have begun to take each other for peers.
fn crossed(addresses: [SocketAddr; 2], change: Change) -> [TcpStream; 2] {
    let mut ends = addresses.map(|to| TcpStream::connect(to).unwrap());
    let streams = [ends[0].try_clone().unwrap(), ends[1].try_clone().unwrap()];
    let said = [0, 1].map(|of: usize| message(&mut ends[of]));
    for (to, said) in [(1, &said[0]), (0, &said[1])] {
        let _ = ends[to].write_all(&frame(&change(said)));
    }
    let [one, other] = ends;
    for (mut from, mut to) in [
        (one.try_clone().unwrap(), other.try_clone().unwrap()),
        (other, one),
    ] {
        thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    streams
}

/// What engines that have both accepted say of each other.
fn said_of_crossed(addresses: [SocketAddr; 2]) -> [String; 2] {
    let mut ends = addresses.map(|to| TcpStream::connect(to).unwrap());
    let said = [0, 1].map(|of: usize| message(&mut ends[of]));
    ends[0].write_all(&frame(&said[1])).unwrap();
    ends[1].write_all(&frame(&said[0])).unwrap();
    [0, 1].map(|of: usize| message(&mut ends[of]))
}

#[test]
fn connections_to_listeners_that_are_crossed_are_refused_or_go_by_the_nic() {
    for config in engines() {
        let end = End::new(config.clone(), BYTES);
        let address = listens(&end.engine);
        let mut other = config;
        other.name = "b".to_owned();
        let other = End::new(other, BYTES);
        let another = listens(&other.engine);
        for addresses in [[address; 2], [address, another]] {
            for said in said_of_crossed(addresses) {
                assert!(said.contains("it says that it accepted"), "{said}");
            }
            // Where each is told that the other has connected, nothing tells the relay from a proxy.
            let streams = crossed(addresses, as_connecting);
            let by = [
                &end,
                if addresses[0] == addresses[1] {
                    &end
                } else {
                    &other
                },
            ];
            for end in by {
                let peer = end
                    .engine
                    .accept(HANG)
                    .expect("it takes a relay for a peer");
                assert_eq!(peer.path(), PeerPath::Nic);
            }
            for stream in streams {
                // The other copy may have ended it.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        assert!(end.engine.accept(Duration::ZERO).is_none(), "no other");
    }
}

#[test]
fn a_peer_beyond_a_relay_is_reached_by_the_nic() {
    let auto = || config("a").with_engine_path(EnginePath::Auto);
    let own = End::new(auto(), BYTES);
    // Of this process, without a relay and beyond one.
    let other = End::new(auto(), BYTES);
    let address = listens(&other.engine).to_string();
    let cable = Cable::to(&address);
    for (to, path) in [
        (&address, PeerPath::Process),
        (&cable.address, PeerPath::Nic),
    ] {
        let peer = own.engine.connect(to).unwrap();
        assert_eq!(peer.path(), path);
        let back = other.engine.accept(HANG).unwrap();
        assert_eq!(back.path(), path);
        let region = other.engine.descriptor(other.region).unwrap();
        peer.import(&region).unwrap();
        moves(&own, &peer, other.at(0));
    }
    // Of another process. HCAs of two processes exchange nothing here, so only the path is looked at.
    let process: Process = local_processes::start("serves open own b");
    let said = process.says();
    let (address, region) = said.split_once(' ').unwrap();
    let cable = Cable::to(address);
    let at = descriptor(region).address;
    let mut by = Vec::new();
    for to in [address, &cable.address] {
        let peer = own.engine.connect(to).unwrap();
        peer.import(&descriptor(region)).unwrap();
        if peer.path() == PeerPath::Machine {
            moves(&own, &peer, at);
        }
        by.push(peer.path());
    }
    assert_eq!(by, [PeerPath::Machine, PeerPath::Nic]);
}

#[test]
fn an_engine_that_connects_to_itself_is_its_own_peer() {
    for (path, expected) in [
        (EnginePath::Auto, PeerPath::Process),
        (EnginePath::Nic, PeerPath::Nic),
    ] {
        let end = End::new(config("a").with_engine_path(path), BYTES);
        let address = listens(&end.engine).to_string();
        let peer = end.engine.connect(&address).unwrap();
        assert_eq!(peer.path(), expected);
        assert_eq!(end.engine.accept(HANG).unwrap().path(), expected);
    }
}
