//! Keys: ranges, rights, owners, and keys that name other keys.

use super::*;
use crate::device::memory::tests_region;
use crate::device::memory::translation::tests::klm;
use crate::device::memory::translation::{Mode, RawEntry};

const USER: KeyUser = KeyUser { pdn: 3, qpn: 0x40 };

fn key(access: Access, iova: u64, bytes: u64, backing: Backing) -> MemoryKey {
    MemoryKey {
        context: 0,
        pdn: 3,
        variant: 0x11,
        iova,
        bytes,
        backing,
        access,
        mapping: None,
        kind: Kind::Region,
        free: false,
        qpn: None,
        remote_invalidate: false,
    }
}

fn direct(access: Access, iova: u64, address: u64, bytes: u64) -> MemoryKey {
    let region = tests_region(address, bytes);
    key(access, iova, bytes, Backing::Direct(region))
}

/// Returns the pieces that the key gives: (address, bytes).
fn parts(
    keys: &Table<MemoryKey>,
    key: u32,
    va: u64,
    bytes: u64,
    need: Access,
) -> Result<Vec<(u64, u64)>, KeyError> {
    let mut out = Vec::new();
    resolve(keys, key, USER, va, bytes, need, &mut out)?;
    Ok(out
        .iter()
        .map(|part| (part.address(), part.bytes()))
        .collect())
}

fn table(all: impl IntoIterator<Item = MemoryKey>) -> (Table<MemoryKey>, Vec<u32>) {
    let mut keys = Table::new(1, 64);
    let numbers = all
        .into_iter()
        .map(|key| {
            let variant = u32::from(key.variant);
            keys.insert(key).unwrap() << 8 | variant
        })
        .collect();
    (keys, numbers)
}

fn indirect(access: Access, iova: u64, bytes: u64, entries: &[RawEntry]) -> MemoryKey {
    let list = Translation::new(Mode::Klm, entries.len());
    let list = list.with(0, entries).unwrap();
    key(access, iova, bytes, Backing::Indirect(Box::new(list)))
}

#[test]
fn a_key_covers_exactly_its_range_for_its_domain_and_rights() {
    let access = Access::REMOTE_WRITE.with(Access::LOCAL_READ);
    let (keys, numbers) = table([direct(access, 0x1000, 0x7000, 0x100)]);
    let key = numbers[0];
    let ok = |va, bytes| parts(&keys, key, va, bytes, Access::REMOTE_WRITE).is_ok();
    assert!(ok(0x1000, 0x100));
    assert!(ok(0x10ff, 1));
    assert!(ok(0x1100, 0));
    assert!(!ok(0x10ff, 2));
    assert!(!ok(0xfff, 1));
    assert!(!ok(u64::MAX, 2));
    let stranger = KeyUser { pdn: 4, ..USER };
    assert_eq!(
        resolve(
            &keys,
            key,
            stranger,
            0x1000,
            1,
            Access::REMOTE_WRITE,
            &mut Vec::new()
        ),
        Err(KeyError::OtherDomain { own: 4, key: 3 })
    );
    assert_eq!(
        parts(&keys, key, 0x1000, 1, Access::REMOTE_READ),
        Err(KeyError::Right(Access::REMOTE_READ))
    );
    assert_eq!(
        parts(&keys, key ^ 1, 0x1000, 1, access),
        Err(KeyError::Stale { now: key })
    );
    assert_eq!(
        parts(&keys, key, 0x1010, 4, Access::LOCAL_READ),
        Ok(vec![(0x7010, 4)])
    );
}

#[test]
fn an_indirect_key_gives_the_pieces_behind_it_under_their_local_rights() {
    let local = Access::LOCAL_READ.with(Access::LOCAL_WRITE);
    let (mut keys, numbers) = table([
        direct(local, 0x1000, 0x7000, 0x100),
        direct(Access::LOCAL_READ, 0, 0x9000, 0x100),
    ]);
    let entries = [klm(numbers[0], 0x1080, 0x40), klm(numbers[1], 0x10, 0x20)];
    let all = local.with(Access::REMOTE_READ).with(Access::REMOTE_WRITE);
    let outer = keys.insert(indirect(all, 0x5000, 0x60, &entries)).unwrap() << 8 | 0x11;
    let entries = [klm(outer, 0x5030, 0x20); 2];
    let nested = keys.insert(indirect(all, 0, 0x40, &entries)).unwrap() << 8 | 0x11;
    assert_eq!(
        parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_READ),
        Ok(vec![(0x70b0, 0x10), (0x9010, 0x10)])
    );
    assert_eq!(
        parts(&keys, outer, 0x5000, 0x40, Access::REMOTE_WRITE),
        Ok(vec![(0x7080, 0x40)])
    );
    assert_eq!(
        parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_WRITE),
        Err(KeyError::Right(Access::LOCAL_WRITE))
    );
    assert_eq!(
        parts(&keys, nested, 0x18, 0x10, Access::REMOTE_READ),
        Ok(vec![(0x9018, 8), (0x70b0, 8)])
    );
    assert!(parts(&keys, outer, 0x5060, 1, Access::REMOTE_READ).is_err());
    keys.remove(numbers[1] >> 8);
    assert_eq!(
        parts(&keys, outer, 0x5030, 0x20, Access::REMOTE_READ),
        Err(KeyError::NoKey)
    );
}

#[test]
fn a_key_behind_itself_ends_in_a_refusal() {
    let all = Access::LOCAL_READ.with(Access::REMOTE_READ);
    let own = [klm(1 << 8 | 0x11, 0, 8)];
    let (keys, numbers) = table([indirect(all, 0, 8, &own)]);
    assert_eq!(
        parts(&keys, numbers[0], 0, 8, Access::REMOTE_READ),
        Err(KeyError::TooDeep)
    );
}

#[test]
fn a_free_key_and_that_of_another_qp_give_nothing() {
    let mut free = direct(Access::REMOTE_READ, 0, 0x7000, 8);
    free.free = true;
    let mut other = direct(Access::REMOTE_READ, 0, 0x7000, 8);
    other.qpn = Some(0x41);
    let mut own = direct(Access::REMOTE_READ, 0, 0x7000, 8);
    own.qpn = Some(USER.qpn);
    let (keys, numbers) = table([free, other, own]);
    let outcome = |key| parts(&keys, key, 0, 8, Access::REMOTE_READ);
    assert_eq!(outcome(numbers[0]), Err(KeyError::Free));
    let refused = KeyError::OtherQp {
        own: 0x40,
        key: 0x41,
    };
    assert_eq!(outcome(numbers[1]), Err(refused));
    assert_eq!(outcome(numbers[2]), Ok(vec![(0x7000, 8)]));
}

#[test]
fn a_list_shorter_than_its_key_ends_in_a_refusal() {
    let all = Access::LOCAL_READ.with(Access::REMOTE_READ);
    let (mut keys, numbers) = table([direct(all, 0, 0x7000, 8)]);
    let short = indirect(all, 0, 16, &[klm(numbers[0], 0, 8)]);
    let short = keys.insert(short).unwrap() << 8 | 0x11;
    assert_eq!(
        parts(&keys, short, 0, 16, Access::REMOTE_READ),
        Err(KeyError::ListEnds { offset: 8 })
    );
}
