//! Grants: a peer gets a key of its own to read and write part of a registration. Programs carry grants as bytes.

use crate::engine::error::EngineError;
use crate::engine::kind::Rights;
use crate::engine::memory::carried::{Opened, seal};
use crate::engine::route::rails::RailKeys;

/// Bytes of a grant as [`Grant::to_bytes`] gives it. The size is part of the format.
pub const GRANT_BYTES: usize = 96;
/// The bits of a page's offset. Address and base of a grant have the same place in their pages.
const PAGE_BITS: u32 = 12;
/// The bits of the word with the rights that have the rights. Above them is the number of the base's page.
const RIGHTS_BITS: u32 = 8;
/// The first bytes of a grant, which name the form and its version.
const MAGIC: [u8; 4] = *b"WVG\x02";

/// What a peer needs to know of a grant. Programs carry it themselves, as bytes.
///
/// Operations name byte `k` of the grant as `address + k`. The address is no address of the owner's memory: every grant has
/// addresses of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number of the grant. No other grant of its owner ever has it.
    pub number: u64,
    /// The life of the engine that has given the grant.
    pub owner: u64,
    /// The life of the engine that has got the grant.
    pub peer: u64,
    /// The first byte, as operations name it.
    pub address: u64,
    /// The number of bytes.
    pub bytes: u64,
    /// The keys, by rail.
    pub rkeys: RailKeys,
    /// The rights of the key.
    pub rights: Rights,
}

impl Grant {
    /// Returns the bytes that a program carries to the peer, with a checksum.
    #[must_use]
    pub fn to_bytes(self) -> [u8; GRANT_BYTES] {
        let words = [
            self.number,
            self.owner,
            self.peer,
            self.address,
            self.bytes,
            self.rights.number() | (self.page() << RIGHTS_BITS),
        ];
        seal(MAGIC, self.rkeys, &words)
    }

    /// Returns the number of the page in which the base of the keys lies. 0: there is none, or requests name offsets.
    fn page(self) -> u64 {
        self.rkeys.base().unwrap_or(0) >> PAGE_BITS
    }

    /// Parses the bytes of a grant, from any source.
    ///
    /// # Errors
    /// [`EngineError::Grant`] says what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EngineError> {
        let bad = |what| EngineError::Grant { what };
        let whole = bytes.try_into();
        let whole = whole.map_err(|_| bad("its length is not 96 bytes"))?;
        let opened = Opened::<GRANT_BYTES>::new(MAGIC, whole).map_err(bad)?;
        let (address, bytes) = opened.range(32).map_err(bad)?;
        let word = opened.word(48);
        let rights = Rights::of_number(word & ((1 << RIGHTS_BITS) - 1));
        let (rkeys, page) = (opened.rkeys().map_err(bad)?, word >> RIGHTS_BITS);
        let base = match (rkeys.base(), page) {
            (base, 0) => base,
            (Some(_), page) if page >> (u64::BITS - PAGE_BITS) == 0 => {
                Some((page << PAGE_BITS) | (address % (1 << PAGE_BITS)))
            }
            _ => return Err(bad("its rights are not 1, 2 or 3")),
        };
        Ok(Self {
            number: opened.word(8),
            owner: opened.word(16),
            peer: opened.word(24),
            address,
            bytes,
            rkeys: rkeys.with_base(base),
            rights: rights.ok_or(bad("its rights are not 1, 2 or 3"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::kind::Kind;
    use crate::engine::memory::carried::checksum;
    use crate::verbs::Access;

    fn grant(rights: Rights) -> Grant {
        Grant {
            number: 7,
            owner: u64::MAX,
            peer: 3,
            address: 1 << 62,
            bytes: 4096,
            rkeys: RailKeys::from([0x1234_5678, 9, 8, 7, 6, 5, 4, 3]).with_near(0x81),
            rights,
        }
    }

    /// Makes a forged grant, with a checksum that is right.
    fn forged(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = grant(Rights::Read).to_bytes().to_vec();
        change(&mut bytes);
        let sum = checksum(&bytes[..88]);
        bytes[88..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_grant_comes_back_from_its_bytes() {
        for rights in Rights::ALL {
            let grant = grant(rights);
            assert_eq!(Grant::from_bytes(&grant.to_bytes()), Ok(grant));
            assert_eq!(Rights::of_number(rights.number()), Some(rights));
        }
        assert_eq!(Rights::of_number(0), None);
        assert_eq!(Rights::of_number(4), None);
    }

    #[test]
    fn what_requests_name_comes_back_with_a_grant() {
        let place = 0x7fff_1234_5000;
        for base in [
            Some(0),
            Some(place),
            Some(u64::MAX >> PAGE_BITS << PAGE_BITS),
        ] {
            let mut grant = grant(Rights::Both);
            grant.rkeys = grant.rkeys.with_base(base);
            assert_eq!(Grant::from_bytes(&grant.to_bytes()), Ok(grant));
            let named = grant.rkeys.named(grant.address, grant.address + 5);
            assert_eq!(Some(named), base.map(|base| base + 5));
        }
    }

    #[test]
    fn every_byte_of_a_grant_is_checked() {
        let whole = grant(Rights::Both).to_bytes();
        for at in 0..GRANT_BYTES {
            for bit in 0..8 {
                let mut bytes = whole;
                bytes[at] ^= 1 << bit;
                let refused = Grant::from_bytes(&bytes);
                assert!(
                    matches!(refused, Err(EngineError::Grant { .. })),
                    "{at} {bit}"
                );
            }
        }
        for bytes in [&whole[..95], &[whole.as_slice(), &[0]].concat(), &[]] {
            assert!(Grant::from_bytes(bytes).is_err(), "{}", bytes.len());
        }
        for bytes in [
            forged(|it| it[40..48].fill(0)),
            forged(|it| it[40..48].fill(0xff)),
            forged(|it| it[48] = 0),
            forged(|it| it[48] = 4),
            forged(|it| it[55] = 1),
            forged(|it| it[85] = 2),
            forged(|it| it[86] = 2),
            forged(|it| it[87] = 1),
            forged(|it| it[49] = 1),
            forged(|it| (it[86], it[55]) = (1, 0x10)),
        ] {
            assert!(Grant::from_bytes(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn rights_are_those_that_their_names_say() {
        for (rights, read, write) in [
            (Rights::Read, true, false),
            (Rights::Write, false, true),
            (Rights::Both, true, true),
        ] {
            assert_eq!(rights.allow(Kind::Read), read);
            assert_eq!(rights.allow(Kind::Write), write);
            assert_eq!(rights.access().contains(Access::REMOTE_READ), read);
            assert_eq!(rights.access().contains(Access::REMOTE_WRITE), write);
            assert!(!rights.access().contains(Access::REMOTE_ATOMIC));
        }
    }
}
