//! What the two ends of a lane over libfabric tell each other.

use std::fmt::{self, Write as _};

use libfabric_abi::bindings::FI_MR_VIRT_ADDR;
use serde::{Deserialize, Serialize};

use super::error::{MOST_ADDRESS, OfiError};
use super::facts::{Facts, is_by_ip};
use crate::fabric::Unfit;

/// The most bytes of a name.
const MOST_NAME: usize = 255;

/// What an engine tells of one of its domains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfiPort {
    provider: String,
    fabric: String,
    domain: String,
    /// The form of addresses, `FI_SOCKADDR_IN` and others.
    addresses: u32,
    /// `FI_MR_VIRT_ADDR`, if peers name memory by its address. If not, they name the offset in its registration.
    mr_mode: i32,
    /// 0: unknown.
    speed_mbps: u32,
}

/// What one end tells the other of its endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfiOffer {
    /// The address, two digits for a byte.
    address: String,
    /// The tag that names the lane in the data of writes that count.
    pub(super) tag: u16,
    /// Where the first write of the other end goes.
    pub(super) greets: Greets,
}

/// Some bytes that the other end may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Greets {
    pub(super) remote: u64,
    pub(super) key: u32,
}

impl OfiPort {
    pub(super) fn of(facts: &Facts) -> Self {
        Self {
            provider: facts.provider.clone(),
            fabric: facts.fabric.clone(),
            domain: facts.domain.clone(),
            addresses: facts.addresses,
            mr_mode: facts.mr_mode & FI_MR_VIRT_ADDR,
            speed_mbps: facts.speed_mbps,
        }
    }

    /// Checks that an engine can have said this. The error says which value is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        let names = [
            ("provider", &self.provider),
            ("fabric", &self.fabric),
            ("domain", &self.domain),
        ];
        for (what, name) in names {
            let bytes = name.len();
            if !(1..=MOST_NAME).contains(&bytes) {
                return Err(format!(
                    "the name of its {what} has {bytes} bytes; they must be 1 to {MOST_NAME}"
                ));
            }
            if name.chars().any(char::is_control) {
                return Err(format!("the name of its {what} has a control character"));
            }
        }
        if self.mr_mode & !FI_MR_VIRT_ADDR != 0 {
            let found = self.mr_mode;
            return Err(format!(
                "its mr_mode is {found:#x}; it must be 0 or {FI_MR_VIRT_ADDR:#x}"
            ));
        }
        Ok(())
    }

    /// Checks whether endpoints of both domains reach each other.
    pub(crate) fn fits(&self, theirs: &Self) -> Result<(), Unfit> {
        let unfit = |what, own: &dyn ToString, theirs: &dyn ToString| {
            let (own, theirs) = (own.to_string(), theirs.to_string());
            Err(Unfit { what, own, theirs })
        };
        if self.provider != theirs.provider {
            return unfit("provider", &self.provider, &theirs.provider);
        }
        if self.addresses != theirs.addresses {
            return unfit("form of addresses", &self.addresses, &theirs.addresses);
        }
        // Networks of IP may be routed.
        if self.fabric != theirs.fabric && !is_by_ip(self.addresses) {
            return unfit("fabric", &self.fabric, &theirs.fabric);
        }
        Ok(())
    }

    /// Returns the speed of the link in Mbit/s, or 0 if it is unknown.
    pub(crate) const fn speed(&self) -> u32 {
        self.speed_mbps
    }

    /// Returns the name of the wire that both ends must have.
    pub(crate) fn wire(&self) -> String {
        format!("ofi:{}", self.provider)
    }

    /// Returns whether this is the domain of `other`, as far as an engine can know.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self == other
    }
}

impl OfiOffer {
    pub(super) fn new(address: &[u8], tag: u16, greets: Greets) -> Self {
        let mut text = String::with_capacity(2 * address.len());
        for byte in address {
            // A text takes all that is written to it.
            let _ = write!(text, "{byte:02x}");
        }
        Self {
            address: text,
            tag,
            greets,
        }
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> Result<Vec<u8>, OfiError> {
        let bad = || OfiError::Offer {
            found: self.to_string(),
        };
        let bytes = self.address.len() / 2;
        if !(1..=MOST_ADDRESS).contains(&bytes) {
            return Err(OfiError::Address { bytes });
        }
        let digits: Option<Vec<u8>> = self.address.chars().map(digit).collect();
        let digits = digits
            .filter(|digits| digits.len().is_multiple_of(2))
            .ok_or_else(bad)?;
        Ok(digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect())
    }

    /// Returns whether both offers have one address.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl fmt::Display for OfiOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other end may have said anything.
        let shown = self.address.chars().filter(char::is_ascii_alphanumeric);
        f.write_str(&shown.take(2 * MOST_ADDRESS).collect::<String>())
    }
}

/// Returns the value of a digit as [`OfiOffer::new`] writes it.
fn digit(digit: char) -> Option<u8> {
    let is_one = matches!(digit, '0'..='9' | 'a'..='f');
    let value = digit.to_digit(16).filter(|_| is_one)?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use libfabric_abi::bindings::{FI_ADDR_EFA, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

    use super::*;

    const GREETS: Greets = Greets { remote: 0, key: 1 };

    fn port(fabric: &str, addresses: u32) -> OfiPort {
        OfiPort::of(&Facts {
            provider: "p".to_owned(),
            fabric: fabric.to_owned(),
            domain: "d".to_owned(),
            addresses,
            mr_mode: !0,
            ..Facts::default()
        })
    }

    #[test]
    fn an_address_comes_back_from_json_and_its_length_has_limits() {
        for bytes in [1, 16, MOST_ADDRESS] {
            let address: Vec<u8> = (0..bytes).map(|_| fastrand::u8(..)).collect();
            let offer = OfiOffer::new(&address, 7, GREETS);
            let json = serde_json::to_string(&offer).unwrap();
            let read: OfiOffer = serde_json::from_str(&json).unwrap();
            assert_eq!((read.address(), read.tag), (Ok(address), 7));
        }
        for bytes in [0, MOST_ADDRESS + 1] {
            let refused = OfiOffer::new(&vec![0; bytes], 7, GREETS).address();
            assert_eq!(refused, Err(OfiError::Address { bytes }));
            let text = format!("an address of {bytes} bytes; it must be 1 to 256");
            assert_eq!(refused.unwrap_err().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for address in ["0", "012", "0G", "+1", " 1", "FF", "ä", "0ä"] {
            let offer = OfiOffer {
                address: address.to_owned(),
                tag: 0,
                greets: GREETS,
            };
            assert!(offer.address().is_err(), "{address}");
        }
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..fastrand::usize(0..40))
                .map(|_| fastrand::u8(..))
                .collect();
            let address = String::from_utf8_lossy(&bytes).into_owned();
            let offer = OfiOffer {
                address,
                tag: 0,
                greets: GREETS,
            };
            if let Ok(address) = offer.address() {
                assert_eq!(OfiOffer::new(&address, 0, GREETS), offer);
            }
        }
    }

    #[test]
    fn ports_of_one_provider_fit_where_their_addresses_do() {
        let four = port("a", FI_SOCKADDR_IN);
        assert_eq!(four.fits(&port("b", FI_SOCKADDR_IN)), Ok(()));
        assert_eq!(four.check(), Ok(()));
        let unfit = four.fits(&port("a", FI_SOCKADDR_IN6)).unwrap_err();
        assert_eq!(unfit.what, "form of addresses");
        let direct = port("efa-direct", FI_ADDR_EFA);
        let unfit = direct.fits(&port("efa", FI_ADDR_EFA)).unwrap_err();
        assert_eq!(
            (unfit.what, &*unfit.own, &*unfit.theirs),
            ("fabric", "efa-direct", "efa")
        );
        let other = OfiPort {
            provider: "q".to_owned(),
            ..four.clone()
        };
        assert_eq!(four.fits(&other).unwrap_err().what, "provider");
        assert_eq!(
            (four.wire(), other.wire()),
            ("ofi:p".to_owned(), "ofi:q".to_owned())
        );
    }

    #[test]
    fn names_and_modes_that_no_engine_says_are_refused() {
        for bad in [
            OfiPort {
                provider: String::new(),
                ..port("a", 0)
            },
            OfiPort {
                domain: "d".repeat(256),
                ..port("a", 0)
            },
            OfiPort {
                fabric: "a\n".to_owned(),
                ..port("a", 0)
            },
            OfiPort {
                mr_mode: 1,
                ..port("a", 0)
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
