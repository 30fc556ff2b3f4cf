//! Keys for part of a region: indirect keys, each made by one command, which pins no memory.
//!
//! PRM "Memory Key" (access mode KLM) and "CREATE_MKEY": the list of pieces stands after the input. The kernel's `devx.c` lets programs
//! make such keys (`devx_handle_mkey_create`), and its driver for vDPA makes them with the same fields (`create_indirect_key`). When the
//! command that destroys a key has returned, the key is dead: "DESTROY_MKEY".

use std::sync::Arc;

use bytemuck::Zeroable;
use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::mkey::{CreateMkeyIn, CreateMkeyOut, Mkc};
use mlx5_prm::umr::Klm;

use crate::verbs::error::VerbsError;
use crate::verbs::memory::mr::Access;
use crate::verbs::memory::pd::Pd;
use crate::verbs::object::DevxObject;

/// The largest number of bytes of a piece. The PRM allows 2^31; the kernel cuts at this number too.
const PIECE_BYTES: u64 = 1 << 30;
/// The number of pieces in a unit of 64 bytes. A list is filled up to whole units.
const UNIT: usize = 4;
/// The largest number of pieces in a command of DevX, whose length is a number of 16 bits.
const MOST_PIECES: u64 =
    ((u16::MAX as usize - CreateMkeyIn::BYTES) / size_of::<Klm>() / UNIT * UNIT) as u64;

/// The range of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// lkey of the region.
    pub(crate) lkey: u32,
    /// Address of the first byte.
    pub(crate) address: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// The address by which requests name the first byte.
    pub(crate) named: u64,
}

/// A key for part of a region. Its drop ends the key for all users.
#[derive(Debug)]
pub(crate) struct RangeKey {
    object: DevxObject<Arc<Pd>>,
    rkey: u32,
}

impl RangeKey {
    /// Makes a key with these remote rights, whose low byte is `tag`. The region has the local rights, and stays registered as long as the
    /// key exists.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for no bytes, or more pieces than the device's lists have; [`VerbsError::Command`].
    pub(crate) fn create(
        pd: &Arc<Pd>,
        range: &KeyRange,
        access: Access,
        tag: u8,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        let most = 1u64 << context.caps().log_max_klm_list_size.min(63);
        check(range, most.min(MOST_PIECES))?;
        let input = input(pd.pdn(), range, access, tag);
        let (object, out): (_, CreateMkeyOut) =
            DevxObject::create_with(context.device(), &input, Arc::clone(pd))?;
        let rkey = out.mkey_index() << 8 | u32::from(tag);
        Ok(Self { object, rkey })
    }

    /// Returns the key for peers.
    pub(crate) fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Ends the key for all users. After a failure the caller may call again.
    pub(crate) fn destroy(&mut self) -> Result<(), VerbsError> {
        self.object.try_destroy()
    }
}

fn check(range: &KeyRange, most: u64) -> Result<(), VerbsError> {
    let KeyRange {
        address,
        bytes,
        named,
        ..
    } = *range;
    let pieces = bytes.div_ceil(PIECE_BYTES);
    let ends = [address, named].map(|first| first.checked_add(bytes));
    if pieces == 0 || pieces > most || ends.contains(&None) {
        let value = format!("{bytes} bytes at {address:#x}, named {named:#x}");
        let limit = format!("1 to {most} pieces of {PIECE_BYTES} bytes, without wrapping around");
        return Err(VerbsError::argument("range of a key", value, limit));
    }
    Ok(())
}

/// Returns the command with its list.
fn input(pdn: u32, range: &KeyRange, access: Access, tag: u8) -> Vec<u8> {
    let KeyRange {
        lkey,
        address,
        bytes,
        named,
    } = *range;
    let starts = (0..bytes).step_by(1 << 30);
    let mut list: Vec<Klm> = starts
        .map(|at| Klm {
            byte_count: Be32::new(piece_bytes(bytes - at)),
            mkey: Be32::new(lkey),
            address: Be64::new(address + at),
        })
        .collect();
    let pieces = octwords(list.len());
    list.resize(list.len().next_multiple_of(UNIT), Klm::zeroed());
    let bit = |right| u32::from(access.contains(right));
    let mkc = Mkc::default()
        .with_access_mode_1_0(Mkc::ACCESS_MODE_KLM)
        .with_rr(bit(Access::REMOTE_READ))
        .with_rw(bit(Access::REMOTE_WRITE))
        .with_a(bit(Access::REMOTE_ATOMIC))
        .with_lr(1)
        .with_lw(bit(Access::LOCAL_WRITE))
        .with_qpn(Mkc::ANY_QP)
        .with_mkey_7_0(tag.into())
        .with_pd(pdn)
        .with_start_addr(named)
        .with_len(bytes)
        .with_translations_octword_size(octwords(list.len()));
    let input = CreateMkeyIn::default()
        .with_opcode(Opcode::CREATE_MKEY.0.into())
        .with_mkc(mkc)
        .with_translations_octword_actual_size(pieces);
    let mut bytes = input.as_bytes().to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&list));
    bytes
}

fn piece_bytes(left: u64) -> u32 {
    u32::try_from(left.min(PIECE_BYTES)).unwrap_or(u32::MAX)
}

/// Returns the octwords of a list: one for each entry. `check` has limited their number.
fn octwords(entries: usize) -> u32 {
    u32::try_from(entries).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Access = Access::REMOTE_READ;

    fn range(bytes: u64) -> KeyRange {
        KeyRange {
            lkey: 0x1234_5678,
            address: 0x7f00_0000_1000,
            bytes,
            named: 0x4000_0000_0000_2000,
        }
    }

    #[test]
    fn the_command_has_the_literal_bytes_of_the_manual() {
        let access = READ | Access::REMOTE_WRITE | Access::LOCAL_WRITE;
        let bytes = input(7, &range(0x4000_0001), access, 0x42);
        assert_eq!(bytes.len(), 0x110 + 64);
        let mut expected = vec![0; 0x110 + 64];
        expected[..2].copy_from_slice(&[0x02, 0x00]);
        // The context of the key: rw, rr, lw, lr and KLM; any QP, tag; domain; first address; length; room of the list.
        expected[0x12..0x14].copy_from_slice(&[0b0011_1110, 0]);
        expected[0x14..0x18].copy_from_slice(&[0xff, 0xff, 0xff, 0x42]);
        expected[0x1f] = 7;
        expected[0x20..0x28].copy_from_slice(&[0x40, 0, 0, 0, 0, 0, 0x20, 0]);
        expected[0x28..0x30].copy_from_slice(&[0, 0, 0, 0, 0x40, 0, 0, 1]);
        expected[0x47] = 4;
        // The number of entries that count.
        expected[0x63] = 2;
        // Two pieces of 16 bytes: length, key, address.
        expected[0x110..0x118].copy_from_slice(&[0x40, 0, 0, 0, 0x12, 0x34, 0x56, 0x78]);
        expected[0x118..0x120].copy_from_slice(&[0, 0, 0x7f, 0, 0, 0, 0x10, 0]);
        expected[0x120..0x128].copy_from_slice(&[0, 0, 0, 1, 0x12, 0x34, 0x56, 0x78]);
        expected[0x128..0x130].copy_from_slice(&[0, 0, 0x7f, 0, 0x40, 0, 0x10, 0]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_range_of_no_bytes_of_too_many_or_behind_the_last_address_is_refused() {
        check(&range(1), 1).unwrap();
        check(&range(PIECE_BYTES), 1).unwrap();
        check(&range(MOST_PIECES * PIECE_BYTES), MOST_PIECES).unwrap();
        for (range, most) in [
            (range(0), 1),
            (range(PIECE_BYTES + 1), 1),
            (
                KeyRange {
                    address: u64::MAX,
                    ..range(2)
                },
                1,
            ),
            (
                KeyRange {
                    named: u64::MAX,
                    ..range(2)
                },
                1,
            ),
        ] {
            let refused = check(&range, most).unwrap_err();
            assert!(
                matches!(refused, VerbsError::BadArgument { .. }),
                "{refused}"
            );
        }
    }
}
