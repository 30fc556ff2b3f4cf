//! What two engines say to each other, beside a record of what engines of before said. A version of the wire never changes: engines of one
//! version connect, whichever of them is newer.
//!
//! tests/data/engine has a record for each version that is still spoken: a line for each message, with the end that has said it. Two
//! engines of the commit that a record names have said it, in the conversation of [`conversation`].

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use serde_json::{Value, json};
use test_support::limits::HANG;
use warpverbs::internal::engine::{HostMemory, Outcome};

use crate::rig::{End, LOOPBACK, config, connect_by, frame, listens, message, other_qps};

const BYTES: u64 = 4096;
/// The record of version 7.
const RECORD: &str = include_str!("../data/engine/wire-7.jsonl");
/// The ends of a connection.
const ENDS: [&str; 2] = ["connects", "accepts"];
/// The messages with which each end begins: hello, offers, ready, and the number of the first notice that it waits for.
const GREETING: usize = 4;
/// The bytes of a frame's head.
const HEAD: usize = 12;
/// The kind of a frame that carries a notice.
const NOTICE: u8 = 2;

/// A message, and the end that has said it.
#[derive(Clone, Debug)]
struct Said {
    by: String,
    message: Value,
}

/// Returns the messages of a record. Its first line says which commit has made it.
fn record() -> Vec<Said> {
    let lines = RECORD.lines().skip(1);
    let said = lines.map(|line| {
        let line: Value = serde_json::from_str(line).expect(line);
        Said {
            by: line["by"].as_str().expect("an end").to_owned(),
            message: line["message"].clone(),
        }
    });
    said.collect()
}

/// Passes the frames of one end on, and tells each. Ends with the stream.
fn pass_on(by: &str, mut from: TcpStream, mut to: TcpStream, tell: &Sender<Said>) {
    let mut head = [0; HEAD];
    while from.read_exact(&mut head).is_ok() {
        let length = u32::from_le_bytes(head[8..].try_into().unwrap());
        let mut body = vec![0; length as usize];
        from.read_exact(&mut body).unwrap();
        let message = match head[6] {
            NOTICE => json!({ "notice": body }),
            _ => serde_json::from_slice(&body).unwrap(),
        };
        let by = by.to_owned();
        tell.send(Said { by, message }).unwrap();
        // The other end may have gone.
        let sent = to.write_all(&head).and_then(|()| to.write_all(&body));
        if sent.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Lets two engines connect, move bytes, lose and mend their only QP, exchange a notice, and end. Returns what they have said.
fn conversation() -> Vec<Said> {
    let [a, b] = ["a", "b"].map(|name| End::new(config(name).with_qps(1), BYTES));
    let relay = TcpListener::bind(LOOPBACK).unwrap();
    let address = relay.local_addr().unwrap().to_string();
    let beyond = listens(&b.engine);
    let (tell, told) = channel();
    let relays = thread::spawn(move || {
        let near = relay.accept().unwrap().0;
        let far = TcpStream::connect(beyond).unwrap();
        let ways = [(ENDS[0], &near, &far), (ENDS[1], &far, &near)];
        let ways = ways.map(|(by, from, to)| {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let tell = tell.clone();
            thread::spawn(move || pass_on(by, from, to, &tell))
        });
        ways.into_iter().for_each(|way| way.join().unwrap());
    });
    let [to_b, to_a] = connect_by(&address, &a, &b);
    let moves = |expected: Outcome, remote: u64| {
        let id = to_b.write(a.at(0), remote, BYTES).unwrap();
        assert_eq!(a.concluded(id), expected);
    };
    moves(Outcome::Done, b.at(0));
    let gone = Arc::new(HostMemory::new(BYTES).unwrap());
    let region = b.engine.register(&gone).unwrap();
    to_b.import(&b.engine.descriptor(region).unwrap()).unwrap();
    b.engine.deregister(region).unwrap();
    moves(Outcome::Failed, gone.address());
    moves(Outcome::Done, b.at(0));
    to_a.notify(b"from the other end").unwrap();
    let notice = a.engine.notice(HANG).expect("a notice");
    assert_eq!(&notice.bytes[..], b"from the other end");
    assert_eq!(to_b.close(), 0);
    assert!(b.engine.peer_gone(HANG).is_some());
    relays.join().unwrap();
    told.into_iter().collect()
}

/// Returns what a message is made of: the names of its fields and variants, and the kinds of its values.
fn shape(message: &Value) -> Value {
    match message {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), shape(value)));
            json!(fields.collect::<BTreeMap<_, _>>())
        }
        // Lists of one kind differ in length.
        Value::Array(values) => match values.first() {
            Some(first) if values.iter().all(|it| shape(it) == shape(first)) => {
                json!([shape(first)])
            }
            _ => values.iter().map(shape).collect(),
        },
        Value::Null => json!(null),
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
    }
}

/// Returns the shapes of what one end has said. A message that is only a name keeps it. How often an end says what its program has taken
/// is up to the clock, so that is left out.
fn shapes(all: &[Said], end: &str) -> Vec<Value> {
    let own = all.iter().filter(|said| said.by == end);
    let own = own.filter(|said| said.message.get("taken").is_none());
    let shapes = own.map(|said| match &said.message {
        name @ Value::String(_) => name.clone(),
        other => shape(other),
    });
    shapes.collect()
}

#[test]
fn engines_speak_as_those_of_the_record_did() {
    let (now, before) = (conversation(), record());
    for end in ENDS {
        let [now, before] = [&now, &before].map(|all| shapes(all, end));
        assert_eq!(now, before, "the end that {end}");
    }
}

/// Says what an end of the record has said in its handshake, and hears as many messages of an engine. Returns these.
fn play(mut stream: TcpStream, end: &str) -> Vec<Said> {
    let other = ENDS.iter().find(|it| **it != end).unwrap();
    let mut heard = Vec::new();
    let own = record().into_iter().filter(|said| said.by == end);
    for Said { message: says, .. } in own.take(GREETING) {
        let says = says.to_string();
        let says = if says.starts_with("{\"offers\"") {
            // The engine under test may have this number itself.
            other_qps(&says)
        } else {
            says
        };
        stream.write_all(&frame(&says)).unwrap();
        let message = message(&mut stream);
        heard.push(Said {
            by: (*other).to_owned(),
            message: serde_json::from_str(&message).expect(&message),
        });
    }
    heard
}

/// The engine under test has said what the other end of the record had said to the end that was played.
fn check_heard(heard: &[Said], played: &str) {
    let other = ENDS.iter().find(|it| **it != played).unwrap();
    let expected: Vec<Value> = shapes(&record(), other)
        .into_iter()
        .take(heard.len())
        .collect();
    assert_eq!(shapes(heard, other), expected);
}

#[test]
fn an_engine_of_before_connects_to_one_of_now() {
    let now = End::new(config("b").with_qps(1), BYTES);
    let before = TcpStream::connect(listens(&now.engine)).unwrap();
    let heard = play(before.try_clone().unwrap(), "connects");
    let peer = now.engine.accept(HANG).expect("it has connected");
    assert_eq!(peer.name(), "a");
    check_heard(&heard, "connects");
    before.shutdown(Shutdown::Both).unwrap();
}

#[test]
fn an_engine_of_now_connects_to_one_of_before() {
    let now = End::new(config("a").with_qps(1), BYTES);
    let listener = TcpListener::bind(LOOPBACK).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let before = thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        let heard = play(stream.try_clone().unwrap(), "accepts");
        (heard, stream)
    });
    let peer = now.engine.connect(&address).unwrap();
    let (heard, before) = before.join().unwrap();
    assert_eq!(peer.name(), "b");
    check_heard(&heard, "accepts");
    before.shutdown(Shutdown::Both).unwrap();
}
