//! Access Control Services of PCI bridges. PCIe base specification, "ACS Extended Capability".

use super::tree::Tree;
use warpverbs::topology::{PciAddress, PciDevice};

/// The setting of a bridge that says if it redirects peer-to-peer requests or completions upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Redirect {
    On,
    Off,
}

/// The offset of the extended capabilities, and the length of the configuration space.
const EXTENDED: usize = 0x100;
const SPACE: usize = 0x1000;
/// The id of the ACS capability, the offset of its control register, and in that the bits P2P Request Redirect and P2P Completion Redirect.
const ACS: u32 = 0x000d;
const CONTROL: usize = 6;
const REDIRECTS: u16 = 0b1100;

/// Returns the bridges on the way between two functions, below the last bridge that they share. If they share none, it returns all bridges
/// of both.
pub(super) fn between(one: &PciDevice, other: &PciDevice) -> Vec<PciAddress> {
    let pairs = one.bridges.iter().zip(&other.bridges);
    let is_same_root = one.host_bridge == other.host_bridge;
    let common = if is_same_root {
        pairs.take_while(|(one, other)| one == other).count()
    } else {
        0
    };
    let below = one.bridges[common..].iter().chain(&other.bridges[common..]);
    below.copied().collect()
}

/// Returns the setting of the bridge, or None if the extended part of its configuration cannot be read.
pub(super) fn redirect(tree: &Tree, bridge: PciAddress) -> Option<Redirect> {
    let config = tree.bytes(&format!("sys/bus/pci/devices/{bridge}/config"))?;
    if config.len() <= EXTENDED {
        return None;
    }
    Some(redirect_of(&config))
}

fn redirect_of(config: &[u8]) -> Redirect {
    let word = |at: usize| {
        let bytes = config.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    };
    let mut at = EXTENDED;
    // Each capability takes 4 bytes at least, so a chain in a loop ends, too.
    for _ in 0..SPACE / 4 {
        let Some(head) = word(at).filter(|head| *head != 0 && *head != u32::MAX) else {
            break;
        };
        if head & 0xffff == ACS {
            let control = word(at + 4).unwrap_or(0) >> (8 * (CONTROL - 4));
            let redirects = control & u32::from(REDIRECTS) != 0;
            return if redirects {
                Redirect::On
            } else {
                Redirect::Off
            };
        }
        at = (head >> 20) as usize & !3;
        if at < EXTENDED {
            break;
        }
    }
    Redirect::Off
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a configuration space with these words.
    fn space(words: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = vec![0; SPACE];
        for (at, word) in words {
            bytes[*at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_redirect_is_found_behind_other_capabilities() {
        let aer = 0x0001 | 1 << 16 | 0x148 << 20;
        let acs = 0x000d | 1 << 16;
        let control =
            |bits: u32| space(&[(0x100, aer), (0x148, acs), (0x14c, bits << 16 | 0x005f)]);
        assert_eq!(redirect_of(&control(0x1d)), Redirect::On);
        assert_eq!(redirect_of(&control(0x08)), Redirect::On);
        assert_eq!(redirect_of(&control(0x13)), Redirect::Off, "no redirect");
        assert_eq!(redirect_of(&control(0)), Redirect::Off);
    }

    #[test]
    fn a_chain_that_ends_nowhere_ends() {
        for chain in [
            space(&[]),
            space(&[(0x100, 0x0001 | 0x100 << 20)]),
            space(&[(0x100, 0x0001 | 0xffc << 20)]),
            space(&[(0x100, u32::MAX)]),
            space(&[(0x100, 0x0001 | 0x040 << 20)]),
            vec![0; 0x102],
        ] {
            assert_eq!(redirect_of(&chain), Redirect::Off);
        }
        // The configuration ends in the middle of the capability.
        let mut cut = space(&[(0x100, 0x000d)]);
        cut.truncate(0x106);
        assert_eq!(redirect_of(&cut), Redirect::Off);
    }
}
