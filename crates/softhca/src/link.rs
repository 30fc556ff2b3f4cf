//! The link layer of a port, which decides by which names peers find each other.
//!
//! On **Ethernet** (`RoCE`, the default) an HCA is found by the GIDs of [`crate::envelope`]. On **`InfiniBand`** it has a
//! LID, which paths name without a GRH, and one GID (index 0), which paths name with one:
//!
//! | name | made of | the address behind it |
//! |---|---|---|
//! | LID, 1 to 0xbfff | the low 16 bits of an IPv4 address | the upper 16 bits of the asker's own address, then the LID |
//! | port GUID | EUI-64 of the MAC: `0200:AAff:feBB:CCDD` | `AA.BB.CC.DD` |
//! | GID 0 | `fe80::/64`, then the port GUID | as the GUID |
//!
//! So a subnet is a /16 of addresses, and an HCA finds a peer without asking any node. The subnet has no subnet manager (`sm_lid` is 1, a
//! subnet manager that does not answer) and no management datagrams. LMC and partition keys are those that the HCA was made with.
//!
//! A port with LMC n owns 2^n addresses, so that it has as many LIDs. Its first address ends with n zero bits, and its GUID and GID are
//! made of that address. The path bits of a QP (or of a datagram) name the LID that its packets leave from. A QP takes packets that come to
//! that LID and from the LID that its path names, and no other packets.
//!
//! A carrier knows neither LIDs nor GIDs: on both link layers its packets are `RoCEv2` over IPv4. A datagram that was sent without a GRH
//! sets bit 0 of the first reserved byte of its DETH. So its receiver gets no GRH either. The service level, and the fields of a GRH other
//! than its GIDs, are not carried. A receiver sees service level 0 and hop limit 64.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;
use thiserror::Error;

/// A link layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// Ethernet: `RoCE`.
    #[default]
    Ethernet,
    /// `InfiniBand`: LIDs, and GIDs where a GRH is used.
    InfiniBand,
}

impl Link {
    /// The values that `SOFTHCA_LINK` may have, in words.
    pub(crate) const EXPECTED: &'static str = "ib or eth";

    pub(crate) fn is_infiniband(self) -> bool {
        self == Self::InfiniBand
    }
}

/// The error for a text that names no link layer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no link layer: {expected}", expected = Link::EXPECTED)]
pub struct UnknownLink(pub String);

impl FromStr for Link {
    type Err = UnknownLink;

    fn from_str(text: &str) -> Result<Self, UnknownLink> {
        match text {
            "eth" => Ok(Self::Ethernet),
            "ib" => Ok(Self::InfiniBand),
            _ => Err(UnknownLink(text.to_owned())),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "eth",
            Self::InfiniBand => "ib",
        })
    }
}

/// The last unicast LID.
pub(crate) const LAST_LID: u16 = 0xbfff;

/// The LID of the subnet manager, which does not answer.
pub(crate) const SM_LID: u16 = 1;

/// The largest LMC.
pub(crate) const MAX_LMC: u8 = 7;

/// Returns the address that belongs to the LID with these path bits. `first` is the first address of the port.
pub(crate) fn address_with(first: Ipv4Addr, path_bits: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(first) | u32::from(path_bits))
}

/// Returns the first of the 2^`lmc` addresses that include `ip`.
pub(crate) fn first_address(ip: Ipv4Addr, lmc: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(ip) >> lmc << lmc)
}

/// Returns the low 16 bits of an address.
pub(crate) fn low_bits(ip: Ipv4Addr) -> u16 {
    let [_, _, c, d] = ip.octets();
    u16::from_be_bytes([c, d])
}

/// Returns the LID of an address; `None` if the address has no LID.
pub(crate) fn lid(ip: Ipv4Addr) -> Option<u16> {
    let lid = low_bits(ip);
    (1..=LAST_LID).contains(&lid).then_some(lid)
}

/// Returns the EUI-64 of the MAC address that belongs to an IPv4 address.
pub(crate) fn guid(ip: Ipv4Addr) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac_of(ip);
    [a, b, c, 0xff, 0xfe, d, e, f]
}

/// Returns GID 0 of the HCA at `ip` on `InfiniBand`.
pub(crate) fn gid(ip: Ipv4Addr) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[8..].copy_from_slice(&guid(ip));
    gid
}

/// Returns the address that belongs to an `InfiniBand` GID; `None` if no HCA can have that GID.
pub(crate) fn address_of_gid(of: &[u8; 16]) -> Option<Ipv4Addr> {
    let [.., a, _, _, b, c, d] = *of;
    let ip = Ipv4Addr::new(a, b, c, d);
    (gid(ip) == *of && lid(ip).is_some() && !ip.is_multicast()).then_some(ip)
}

/// Returns the address that an `InfiniBand` path of the HCA at `own` names. A path with a GRH names an HCA by its GID and by one of its
/// LIDs. A path without a GRH names an HCA by the LID alone. If there is a GID, LID 0 stands for the first LID of the port.
///
/// Returns `None` if no HCA can have that address. Examples are a multicast LID, a GID of another form, LID 0 without a GID, and a pair of
/// LID and GID that no single HCA has, whatever its LMC.
pub(crate) fn peer(own: Ipv4Addr, rlid: u16, grh: Option<&[u8; 16]>) -> Option<Ipv4Addr> {
    if let Some(gid) = grh {
        let ip = address_of_gid(gid)?;
        if rlid == 0 {
            return Some(ip);
        }
        let [path_bits, rest] = [low_bits(ip) ^ rlid, low_bits(ip)];
        let most = 1u16 << rest.trailing_zeros().min(MAX_LMC.into());
        let path_bits = u8::try_from(path_bits).ok()?;
        return (u16::from(path_bits) < most).then(|| address_with(ip, path_bits));
    }
    let [a, b, ..] = own.octets();
    let [c, d] = rlid.to_be_bytes();
    let ip = Ipv4Addr::new(a, b, c, d);
    lid(ip).map(|_| ip)
}

/// A MAC address.
pub type Mac = [u8; 6];

/// Returns the MAC address of the HCA at `ip`. It is locally administered, and unique because the IP address is unique.
#[must_use]
pub const fn mac_of(ip: Ipv4Addr) -> Mac {
    let [a, b, c, d] = ip.octets();
    [0x02, 0x00, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 20, 1, 2);

    #[test]
    fn every_name_of_an_hca_leads_to_its_address() {
        let far = Ipv4Addr::new(10, 20, 0xbf, 0xff);
        assert_eq!(lid(far), Some(0xbfff));
        assert_eq!(peer(OWN, 0xbfff, None), Some(far));
        assert_eq!(peer(OWN, 0xbfff, Some(&gid(far))), Some(far));
        assert_eq!(peer(OWN, 0, Some(&gid(far))), Some(far));
        // With LMC 2 or more a port has LID 0x304 and LID 0x307, and with LMC 7 LID 0x380 and LID 0x3ff.
        for (first, lid, path_bits) in [(0x04, 0x0307, 3), (0x80, 0x03ff, 127)] {
            let first = Ipv4Addr::new(10, 20, 3, first);
            let found = address_with(first, path_bits);
            assert_eq!(peer(OWN, lid, Some(&gid(first))), Some(found));
            assert_eq!(first_address(found, 7), first_address(first, 7));
        }
        assert_eq!(first_address(far, 3).octets(), [10, 20, 0xbf, 0xf8]);
        assert_eq!(gid(far)[..9], [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn names_that_no_hca_has_lead_nowhere() {
        for lid in [0, 0xc000, 0xfffe, 0xffff] {
            assert_eq!(peer(OWN, lid, None), None, "{lid:#x}");
        }
        let far = Ipv4Addr::new(10, 20, 3, 4);
        for lid in [0x0303, 0x0308, 0x0404, 0xffff] {
            assert_eq!(peer(OWN, lid, Some(&gid(far))), None, "{lid:#x}");
        }
        let widest = Ipv4Addr::new(10, 20, 4, 0);
        assert_eq!(peer(OWN, 0x0480, Some(&gid(widest))), None);
        assert_eq!(peer(OWN, 0, Some(&far.to_ipv6_mapped().octets())), None);
        let mut other_prefix = gid(far);
        other_prefix[7] = 1;
        assert_eq!(peer(OWN, 0, Some(&other_prefix)), None);
        assert_eq!(peer(OWN, 0, Some(&gid(Ipv4Addr::new(10, 20, 0, 0)))), None);
    }

    #[test]
    fn a_link_layer_is_read_as_it_is_written() {
        for link in [Link::Ethernet, Link::InfiniBand] {
            assert_eq!(link.to_string().parse(), Ok(link));
        }
        assert_eq!(
            "IB".parse::<Link>().unwrap_err().to_string(),
            "\"IB\" is no link layer: ib or eth"
        );
    }
}
