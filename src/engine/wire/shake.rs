//! The handshake of engines that share a key, by Noise. After it all that goes and comes is encrypted (`seal`).
//!
//! The pattern is `NNpsk0`. Each end makes a key for this connection alone, and proves by its first message that it has the
//! shared key. A recorded handshake that is sent again opens nothing. A shared key that becomes known later opens no recorded
//! connection. The end that connects speaks first. An end refuses a message that was not made with the key before it says or
//! makes anything. The other end then gets one frame that is no valid frame of the handshake.

use snow::{Builder, HandshakeState};

use crate::config::EngineKey;
use crate::engine::error::Distrust;
use crate::engine::wire::error::WireError;
use crate::engine::wire::form::NOISE;
use crate::engine::wire::frames::{Stage, prologue};
use crate::engine::wire::messages::Wire;
use crate::engine::wire::seal::{Role, Seal, TAG};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The bytes of each of the two messages: a public key and a tag.
const HANDSHAKE: usize = 32 + TAG;
/// The body of a frame that refuses the handshake.
const REFUSAL: [u8; 1] = [0];

/// The purpose of a connection. A handshake for one purpose is not valid for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Purpose {
    /// A connection for messages of engines.
    Engine,
    /// A connection for words of programs.
    Words,
}

/// Shakes hands. After it all that goes and comes is encrypted. After an error this end has accepted nothing that the other end has said.
pub(in crate::engine) fn shake(
    wire: &mut Wire,
    key: &EngineKey,
    role: Role,
    purpose: Purpose,
) -> Result<(), WireError> {
    wire.expect(Stage::Noise);
    match exchange(wire, begin(key, role, purpose)?, role) {
        Ok(seal) => wire.protect(seal),
        Err(error) => {
            if let WireError::Distrust(_) | WireError::Magic(_) | WireError::Version(_) = error {
                // An end of another version learns the version of this end by this frame. The other end may be gone.
                let _ = wire.send_frame(NOISE, &REFUSAL);
            }
            Err(error)
        }
    }
}

fn exchange(wire: &mut Wire, mut state: HandshakeState, role: Role) -> Result<Seal, WireError> {
    if role == Role::Connects {
        wire.send_frame(NOISE, &write(&mut state)?)?;
    }
    read(&mut state, &wire.receive_noise()?)?;
    if role == Role::Accepts {
        wire.send_frame(NOISE, &write(&mut state)?)?;
    }
    Seal::new(state)
}

fn begin(key: &EngineKey, role: Role, purpose: Purpose) -> Result<HandshakeState, WireError> {
    let prologue = match purpose {
        Purpose::Engine => prologue().to_vec(),
        Purpose::Words => [&prologue()[..], b"words"].concat(),
    };
    let builder = Builder::new(PATTERN.parse()?)
        .psk(0, key.bytes())?
        .prologue(&prologue)?;
    Ok(match role {
        Role::Connects => builder.build_initiator()?,
        Role::Accepts => builder.build_responder()?,
    })
}

fn write(state: &mut HandshakeState) -> Result<[u8; HANDSHAKE], WireError> {
    let mut message = [0; HANDSHAKE];
    state.write_message(&[], &mut message)?;
    Ok(message)
}

fn read(state: &mut HandshakeState, message: &[u8]) -> Result<(), WireError> {
    // No message of this version has a payload.
    let read = match message.len() {
        HANDSHAKE => state.read_message(message, &mut []).is_ok(),
        _ => false,
    };
    if read {
        Ok(())
    } else {
        Err(Distrust::Wrong.into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use test_basics::limits::HANG;

    use super::*;
    use crate::engine::limits::MOST_NOTICE_BYTES;
    use crate::engine::wire::form::{HEAD, MOST_NOISE, NOTICE, SEALED};
    use crate::engine::wire::frames::{Frames, head, put};
    use crate::engine::wire::messages::Message;
    use crate::engine::wire::notices::Record;
    use crate::engine::wire::seal::MOST_PLAIN;

    const KEY: EngineKey = EngineKey::new([7; 32]);
    const OTHER: EngineKey = EngineKey::new([8; 32]);

    /// Returns the results of two ends with these keys, of which the first connects. Each sends one message and receives one.
    fn met(keys: [Option<&EngineKey>; 2]) -> [Result<Message, WireError>; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (from, _) = listener.accept().unwrap();
        let meet = |stream: TcpStream, key: Option<&EngineKey>, role| {
            let mut wire = Wire::new(stream.into(), HANG);
            if let Some(key) = key {
                shake(&mut wire, key, role, Purpose::Engine)?;
            }
            wire.send(&Message::Ready)?;
            wire.receive()
        };
        let [first, second] = keys;
        std::thread::scope(|scope| {
            let to = scope.spawn(move || meet(to, first, Role::Connects));
            let from = meet(from, second, Role::Accepts);
            [to.join().unwrap(), from]
        })
    }

    #[test]
    fn ends_hear_each_other_with_one_key_or_none_and_others_learn_why() {
        for key in [None, Some(&KEY)] {
            for heard in met([key; 2]) {
                assert_eq!(heard.unwrap(), Message::Ready);
            }
        }
        let refusals = |keys| {
            met(keys).map(|heard| match heard {
                Err(WireError::Distrust(distrust)) => distrust,
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(refusals([Some(&KEY), Some(&OTHER)]), [Distrust::Wrong; 2]);
        let keyed = [Distrust::Clear, Distrust::Keyed];
        assert_eq!(refusals([Some(&KEY), None]), keyed);
        assert_eq!(
            refusals([None, Some(&KEY)]),
            [Distrust::Keyed, Distrust::Clear]
        );
    }

    /// Returns two ends that have shaken hands, and the messages of their handshake.
    fn sealed() -> ([Seal; 2], [[u8; HANDSHAKE]; 2]) {
        let [mut to, mut from] =
            [Role::Connects, Role::Accepts].map(|role| begin(&KEY, role, Purpose::Engine).unwrap());
        let first = write(&mut to).unwrap();
        read(&mut from, &first).unwrap();
        let second = write(&mut from).unwrap();
        read(&mut to, &second).unwrap();
        (
            [to, from].map(|state| Seal::new(state).unwrap()),
            [first, second],
        )
    }

    #[test]
    fn frames_of_any_length_travel_in_short_records_that_are_unreadable() {
        let ([mut to, mut from], _) = sealed();
        let mut frames = Frames::default();
        for length in [
            0,
            1,
            MOST_PLAIN - HEAD,
            MOST_PLAIN - HEAD + 1,
            MOST_NOTICE_BYTES,
        ] {
            let record = Record {
                number: 1,
                transfer: None,
                bytes: vec![b'x'; length].into(),
            };
            let (mut plain, mut sent) = (Vec::new(), Vec::new());
            put(NOTICE, &record.to_bytes(), &mut plain).unwrap();
            to.seal(&plain, &mut sent).unwrap();
            let mut at = 0;
            while let Some((kind, end)) = head(&sent[at..]).unwrap() {
                assert!(kind == SEALED && end <= HEAD + usize::from(MOST_NOISE));
                at += end;
            }
            assert_eq!(at, sent.len());
            assert!(sent.windows(8).all(|bytes| bytes != b"xxxxxxxx"));
            for bytes in sent.chunks(1000) {
                from.open(bytes, frames.end()).unwrap();
            }
            assert!(!from.is_begun());
            let (_, body) = frames.take().unwrap().expect("a whole one");
            assert!(Record::from_bytes(body).unwrap() == record);
        }
    }

    #[test]
    fn a_handshake_that_is_flipped_cut_longer_or_sent_again_opens_nothing() {
        let ([mut to, _], [first, _]) = sealed();
        let accepts = || begin(&KEY, Role::Accepts, Purpose::Engine).unwrap();
        let refuses = |state: &mut HandshakeState, message: &[u8]| {
            matches!(
                read(state, message),
                Err(WireError::Distrust(Distrust::Wrong))
            )
        };
        for bit in 0..8 * HANDSHAKE {
            let mut flipped = first;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(refuses(&mut accepts(), &flipped), "bit {bit}");
        }
        for length in 0..HANDSHAKE {
            assert!(refuses(&mut accepts(), &first[..length]), "{length} bytes");
        }
        assert!(refuses(&mut accepts(), &[&first[..], &[0]].concat()));
        // This is the answer to another first message.
        let mut connects = begin(&KEY, Role::Connects, Purpose::Engine).unwrap();
        write(&mut connects).unwrap();
        let (_, [_, answer]) = sealed();
        assert!(refuses(&mut connects, &answer));
        // The first message is taken again. Messages that were sent after it are not.
        let mut again = accepts();
        read(&mut again, &first).unwrap();
        write(&mut again).unwrap();
        let mut sent = Vec::new();
        to.seal(b"hello", &mut sent).unwrap();
        let mut frames = Frames::default();
        let opened = Seal::new(again).unwrap().open(&sent, frames.end());
        assert!(matches!(opened, Err(WireError::Distrust(Distrust::Wrong))));
        assert!(frames.is_empty());
        // One of these is of another version of the frames, and one is for another purpose.
        let other = Builder::new(PATTERN.parse().unwrap())
            .psk(0, KEY.bytes())
            .and_then(|builder| builder.prologue(b"WVEN\x03\x00"))
            .and_then(Builder::build_initiator);
        let words = begin(&KEY, Role::Connects, Purpose::Words).unwrap();
        for mut other in [other.unwrap(), words] {
            let message = write(&mut other).unwrap();
            assert!(refuses(&mut accepts(), &message));
        }
    }

    /// Changes some bytes at random.
    fn damage(random: &mut fastrand::Rng, bytes: &mut Vec<u8>) {
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len().max(1));
            match random.u32(0..5) {
                _ if bytes.is_empty() => bytes.push(random.u8(..)),
                0 => bytes[at] ^= 1 << random.u32(0..8),
                1 => bytes[at] = random.u8(..),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, random.u8(..)),
                _ => {
                    let again = bytes[at..].to_vec();
                    bytes.extend(again);
                }
            }
        }
    }

    #[test]
    fn damaged_records_open_nothing_but_whole_records_before_the_damage() {
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let ([mut to, mut from], handshake) = sealed();
        let mut opened_some = 0;
        for _ in 0..if full { 1_000_000 } else { 100_000 } {
            if random.u32(0..16) == 0 {
                let mut message = handshake[0].to_vec();
                damage(&mut random, &mut message);
                let read = read(
                    &mut begin(&KEY, Role::Accepts, Purpose::Engine).unwrap(),
                    &message,
                );
                assert_eq!(read.is_ok(), message == handshake[0], "seed {seed}");
                continue;
            }
            // The other end takes each attempt as if no attempt had come before it.
            from.forget_attempts_of(&to);
            let (mut plain, mut sent) = (Vec::new(), Vec::new());
            for _ in 0..random.usize(1..4) {
                let part: Vec<u8> = (0..random.usize(1..40)).map(|_| random.u8(..)).collect();
                to.seal(&part, &mut sent).unwrap();
                plain.extend(part);
            }
            let whole = sent.clone();
            damage(&mut random, &mut sent);
            let mut frames = Frames::default();
            let opened = from.open(&sent, frames.end());
            let left = frames.left();
            assert!(plain.starts_with(left), "seed {seed}");
            assert_eq!(left == plain, sent.starts_with(&whole), "seed {seed}");
            assert!(sent != whole || opened.is_ok(), "seed {seed}");
            opened_some += u32::from(!left.is_empty());
        }
        assert!(opened_some > 1000, "seed {seed}: {opened_some}");
    }
}
