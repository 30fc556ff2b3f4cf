//! What a peer says of its domains and endpoints, damaged on the way or made to harm. With `WV_TEST_FULL=1` a million of each.

use fastrand::Rng;
use libfabric_abi::bindings::{FI_ADDR_EFA, FI_MR_VIRT_ADDR, FI_SOCKADDR_IN};

use crate::provider::ofi::error::MOST_ADDRESS;
use crate::provider::ofi::facts::Facts;
use crate::provider::ofi::offer::{Greets, OfiOffer, OfiPort};
use crate::provider::{HostOffer, HostPort};

/// The longest text of an error: about twice an address.
const MOST_TEXT: usize = 1000;
/// Numbers at limits, and what no field takes.
const NUMBERS: [&str; 10] = [
    "0",
    "-1",
    "255",
    "65536",
    "4294967296",
    "18446744073709551616",
    "1e9",
    "null",
    "\"\"",
    "[]",
];

fn tries() -> u32 {
    if std::env::var_os("WV_TEST_FULL").is_some() {
        1_000_000
    } else {
        20_000
    }
}

fn name(random: &mut Rng) -> String {
    let length = random.usize(1..12);
    (0..length).map(|_| random.alphanumeric()).collect()
}

fn port(random: &mut Rng) -> HostPort {
    HostPort::Ofi(OfiPort::of(&Facts {
        provider: name(random),
        fabric: name(random),
        domain: name(random),
        addresses: random.choice([FI_ADDR_EFA, FI_SOCKADDR_IN]).unwrap(),
        mr_mode: random.choice([0, FI_MR_VIRT_ADDR]).unwrap(),
        speed_mbps: random.u32(..),
        ..Facts::default()
    }))
}

fn offer(random: &mut Rng) -> HostOffer {
    let length = match random.u32(0..8) {
        0 => random.usize(0..=MOST_ADDRESS + 1),
        _ => random.usize(1..40),
    };
    let address: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
    let greets = Greets {
        remote: random.u64(..),
        key: random.u32(..),
    };
    HostOffer::Ofi(OfiOffer::new(&address, random.u16(..), greets))
}

/// Damages a text at up to three places.
fn damage(text: String, random: &mut Rng) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    for _ in 0..random.u32(0..4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.usize(..bytes.len());
        match random.u32(0..6) {
            0 => bytes[at] ^= 1 << random.u32(0..8),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.u8(..)),
            3 => {
                bytes.remove(at);
            }
            4 => put_number(&mut bytes, at, random),
            _ => {
                // Fields come twice, or the text is longer.
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
        }
    }
    bytes
}

/// Puts another value in the place of the number that follows.
fn put_number(bytes: &mut Vec<u8>, at: usize, random: &mut Rng) {
    let Some(begins) = bytes[at..].iter().position(u8::is_ascii_digit) else {
        return;
    };
    let begins = at + begins;
    let digits = bytes[begins..].iter().take_while(|it| it.is_ascii_digit());
    let ends = begins + digits.count();
    let number = random.choice(NUMBERS).unwrap();
    drop(bytes.splice(begins..ends, number.bytes()));
}

/// The text of an error goes into logs and to programs.
fn is_harmless(text: &str) -> bool {
    (1..=MOST_TEXT).contains(&text.len()) && !text.chars().any(char::is_control)
}

#[test]
fn of_damaged_ports_each_is_refused_or_one_that_an_engine_can_say() {
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..tries() {
        let own = port(&mut random);
        assert_eq!(own.check(), Ok(()), "seed {seed}");
        let text = serde_json::to_string(&own).unwrap();
        let bytes = damage(text, &mut random);
        let Ok(found) = serde_json::from_slice::<HostPort>(&bytes) else {
            refused += 1;
            continue;
        };
        if let Err(text) = found.check() {
            assert!(is_harmless(&text), "seed {seed}: {text:?}");
            refused += 1;
            continue;
        }
        taken += 1;
        let wire = found.wire();
        let name = wire.strip_prefix("ofi:").map_or(0, str::len);
        assert!((1..=255).contains(&name), "seed {seed}: {wire:?}");
        assert!(!wire.chars().any(char::is_control), "seed {seed}: {wire:?}");
        let text = serde_json::to_string(&found).unwrap();
        let again: HostPort = serde_json::from_str(&text).unwrap();
        assert_eq!(again, found, "seed {seed}");
    }
    assert!(
        refused > 1000 && taken > 1000,
        "seed {seed}: {refused} {taken}"
    );
}

#[test]
fn of_damaged_offers_each_is_refused_or_has_an_address_of_its_length() {
    let seed = fastrand::u64(..);
    let mut random = Rng::with_seed(seed);
    let at = port(&mut random);
    let (mut refused, mut taken) = (0, 0);
    for _ in 0..tries() {
        let text = serde_json::to_string(&offer(&mut random)).unwrap();
        let bytes = damage(text, &mut random);
        let Ok(found) = serde_json::from_slice::<HostOffer>(&bytes) else {
            refused += 1;
            continue;
        };
        assert!(is_harmless(&found.to_string()), "seed {seed}: {found}");
        if let Err(error) = found.check(&at) {
            let text = error.to_string();
            assert!(is_harmless(&text), "seed {seed}: {text:?}");
            refused += 1;
            continue;
        }
        taken += 1;
        let HostOffer::Ofi(offer) = &found else {
            panic!("seed {seed}: an offer of another wire is taken: {found}");
        };
        let address = offer.address().unwrap();
        let length = address.len();
        assert!((1..=MOST_ADDRESS).contains(&length), "seed {seed}");
        let again = OfiOffer::new(&address, offer.tag, offer.greets);
        assert_eq!(again, *offer, "seed {seed}");
    }
    assert!(
        refused > 1000 && taken > 1000,
        "seed {seed}: {refused} {taken}"
    );
}
