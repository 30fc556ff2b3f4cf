//! The form in which programs carry descriptions of memory. It has, in this order: four bytes that name the form, the first rkey, words,
//! the other rkeys, a bit for each near rail, 1 for memory of a GPU, 1 if requests do not name the memory by its addresses, and a checksum.

use crate::engine::limits::MOST_RAILS;
use crate::engine::route::rails::RailKeys;

const WORD: usize = 8;
const KEY: usize = 4;
/// Bytes of the keys of all rails but the first, in whole words.
const OTHER_KEYS: usize = MOST_RAILS * KEY;

/// Returns a description in `BYTES` bytes, which hold as many words as fit beside the rest of the form.
pub(in crate::engine) fn seal<const BYTES: usize>(
    form: [u8; 4],
    rkeys: RailKeys,
    words: &[u64],
) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (head, keys) = bytes[..BYTES - WORD].split_at_mut(BYTES - WORD - OTHER_KEYS);
    let [first, others @ ..] = rkeys.all();
    head[..KEY].copy_from_slice(&form);
    head[KEY..WORD].copy_from_slice(&first.to_le_bytes());
    for (place, word) in head[WORD..].chunks_exact_mut(WORD).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    for (place, key) in keys.chunks_exact_mut(KEY).zip(others) {
        place.copy_from_slice(&key.to_le_bytes());
    }
    keys[OTHER_KEYS - KEY] = rkeys.near();
    keys[OTHER_KEYS - KEY + 1] = rkeys.is_of_gpu().into();
    keys[OTHER_KEYS - KEY + 2] = rkeys.base().is_some().into();
    let sum = checksum(&bytes[..BYTES - WORD]);
    bytes[BYTES - WORD..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The bytes of a description whose form and checksum are right.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Opened<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Opened<BYTES> {
    /// Checks form and checksum of `bytes`. The error says what is wrong.
    pub(in crate::engine) fn new(form: [u8; 4], bytes: [u8; BYTES]) -> Result<Self, &'static str> {
        let opened = Self(bytes);
        if bytes[..4] != form {
            return Err("it is none of this version");
        }
        if opened.word(BYTES - WORD) != checksum(&bytes[..BYTES - WORD]) {
            return Err("its checksum is wrong");
        }
        Ok(opened)
    }

    /// Returns the rkeys. If requests do not name the memory by its addresses, they name offsets. The error says what is wrong with them.
    pub(in crate::engine) fn rkeys(&self) -> Result<RailKeys, &'static str> {
        let mut keys = [0; MOST_RAILS];
        let others = BYTES - WORD - OTHER_KEYS;
        let places = [KEY].into_iter().chain((others..).step_by(KEY));
        for (key, at) in keys.iter_mut().zip(places) {
            let word = self.0.get(at..at + KEY).and_then(|it| it.try_into().ok());
            *key = u32::from_le_bytes(word.unwrap_or_default());
        }
        match self.0[BYTES - WORD - KEY..BYTES - WORD] {
            [near, of_gpu @ (0 | 1), based @ (0 | 1), 0] => {
                let keys = RailKeys::from(keys).with_near(near).with_gpu(of_gpu == 1);
                Ok(keys.with_base((based == 1).then_some(0)))
            }
            _ => Err("bytes behind its keys are not 0"),
        }
    }

    /// Returns the word that begins at this byte.
    pub(in crate::engine) fn word(&self, at: usize) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.0[at..at + WORD]);
        u64::from_le_bytes(word)
    }

    /// Returns the address at this byte and the length after it. The error says what is wrong with them.
    pub(in crate::engine) fn range(&self, at: usize) -> Result<(u64, u64), &'static str> {
        let (address, length) = (self.word(at), self.word(at + WORD));
        if length == 0 || address.checked_add(length).is_none() {
            Err("its range is empty or ends behind the last address")
        } else {
            Ok((address, length))
        }
    }
}

/// Returns the FNV-1a checksum. It finds bytes that were damaged on their way, and keeps out no forger.
pub(in crate::engine) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::error::EngineError;
    use crate::engine::kind::Rights;
    use crate::engine::memory::grant::Grant;
    use crate::engine::memory::regions::Descriptor;

    fn keys(random: &mut fastrand::Rng) -> RailKeys {
        let keys: [u32; MOST_RAILS] = std::array::from_fn(|_| random.u32(..));
        let keys = RailKeys::from(keys).with_near(random.u8(..));
        let keys = keys.with_gpu(random.bool());
        keys.with_base(random.bool().then_some(0))
    }

    /// Returns a range of at least one byte that does not wrap.
    fn range(random: &mut fastrand::Rng) -> (u64, u64) {
        let address = random.u64(..u64::MAX);
        (address, random.u64(1..=u64::MAX - address))
    }

    /// Changes bits, bytes, words or the length. Every second time the checksum is made right again, as a forger does.
    fn mutated(mut bytes: Vec<u8>, random: &mut fastrand::Rng) -> Vec<u8> {
        for _ in 0..random.usize(1..5) {
            let at = random.usize(..bytes.len());
            match random.u32(0..8) {
                0..=2 => bytes[at] ^= 1 << random.u32(0..8),
                3 => bytes[at] = random.u8(..),
                4 => {
                    let at = at / WORD * WORD;
                    let word = *random.choice(&[0, 1, u64::MAX, 1 << 63]).unwrap_or(&0);
                    let end = (at + WORD).min(bytes.len());
                    bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                }
                5 => bytes.truncate(at.max(1)),
                6 => bytes.insert(at, random.u8(..)),
                _ => {
                    let other = random.usize(..bytes.len());
                    bytes.swap(at, other);
                }
            }
        }
        if random.bool()
            && let Some(end) = bytes.len().checked_sub(WORD)
        {
            let sum = checksum(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Checks that bytes that are taken keep their meaning, and that their range lies inside the address space.
    fn take(
        bytes: &[u8],
        taken: Result<(Vec<u8>, u64, u64), EngineError>,
        counts: &mut [u64; 2],
    ) -> Result<(), String> {
        match taken {
            Ok((again, address, length)) => {
                counts[0] += 1;
                if again != bytes {
                    return Err(format!("{bytes:?} are taken as {again:?}"));
                }
                if length > 0 && address.checked_add(length).is_some() {
                    Ok(())
                } else {
                    Err(format!("{length} bytes at {address:#x}"))
                }
            }
            Err(EngineError::Descriptor { .. } | EngineError::Grant { .. }) => {
                counts[1] += 1;
                Ok(())
            }
            Err(other) => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn of_mutated_descriptors_and_grants_each_is_refused_or_means_its_bytes() {
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut counts = [[0; 2]; 2];
        for _ in 0..if full { 1_000_000 } else { 1_000 } {
            let (address, length) = range(&mut random);
            let descriptor = Descriptor {
                incarnation: random.u64(..),
                address,
                bytes: length,
                rkeys: keys(&mut random),
            };
            let bytes = mutated(descriptor.to_bytes().to_vec(), &mut random);
            let taken = Descriptor::from_bytes(&bytes);
            let taken = taken.map(|it| (it.to_bytes().to_vec(), it.address, it.bytes));
            take(&bytes, taken, &mut counts[0]).unwrap_or_else(|why| panic!("{why}, seed {seed}"));
            let grant = Grant {
                number: random.u64(..),
                owner: random.u64(..),
                peer: random.u64(..),
                address,
                bytes: length,
                rkeys: keys(&mut random),
                rights: *random.choice(&Rights::ALL).unwrap_or(&Rights::Read),
            };
            let bytes = mutated(grant.to_bytes().to_vec(), &mut random);
            let taken = Grant::from_bytes(&bytes);
            let taken = taken.map(|it| (it.to_bytes().to_vec(), it.address, it.bytes));
            take(&bytes, taken, &mut counts[1]).unwrap_or_else(|why| panic!("{why}, seed {seed}"));
        }
        println!("taken and refused, of descriptors and of grants: {counts:?}");
        let all = counts.as_flattened();
        assert!(
            all.iter().all(|count| *count > 0),
            "{counts:?}, seed {seed}"
        );
    }
}
