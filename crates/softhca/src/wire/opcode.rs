//! BTH opcodes: four services with one list of operations, and the opcodes of softhca's own.
//!
//! An opcode byte is `service[7:5] | operation[4:0]` (IBTA volume 1, "Base Transport Header", OpCode field; annex A14 for XRC). The
//! constants here are those of RC. [`BthOpcode::of_service`] gives the opcode of an operation in another service, if that service has the
//! operation. UC has WRITEs and SENDs, UD only SENDs in one packet, XRC all operations of RC.
//!
//! Services 6 and 7 (0xc0 to 0xff) are set aside for manufacturers. The masked atomics of mlx5 have no standard wire form. So softhcas use
//! 0xc0 and 0xc1 (RC) and 0xe0 and 0xe1 (XRC) among themselves, with the header [`super::headers::MaskedAtomicEth`]. No other device
//! understands these opcodes.

use crate::transport::Service;
use std::fmt;

/// The opcode byte of a BTH, as received. It may have any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BthOpcode(pub u8);

/// The position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The packet is the first of several.
    First,
    /// The packet is neither first nor last.
    Middle,
    /// The packet is the last of several.
    Last,
    /// The packet is the whole message.
    Only,
}

impl Position {
    /// Returns the position of packet `index` of `count`.
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 >= count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// Returns whether a message starts with this packet.
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns whether a message ends with this packet.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl BthOpcode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every opcode of RC that this crate sends or understands.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name of an RC opcode, or `None` if this crate does not know the opcode.
            const fn rc_name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// First packet of a SEND.
    SEND_FIRST = 0x00,
    /// Middle packet of a SEND.
    SEND_MIDDLE = 0x01,
    /// Last packet of a SEND.
    SEND_LAST = 0x02,
    /// Last packet of a SEND, with immediate data.
    SEND_LAST_IMM = 0x03,
    /// A SEND in one packet.
    SEND_ONLY = 0x04,
    /// A SEND in one packet, with immediate data.
    SEND_ONLY_IMM = 0x05,
    /// First packet of an RDMA WRITE.
    WRITE_FIRST = 0x06,
    /// Middle packet of an RDMA WRITE.
    WRITE_MIDDLE = 0x07,
    /// Last packet of an RDMA WRITE.
    WRITE_LAST = 0x08,
    /// Last packet of an RDMA WRITE, with immediate data.
    WRITE_LAST_IMM = 0x09,
    /// An RDMA WRITE in one packet.
    WRITE_ONLY = 0x0a,
    /// An RDMA WRITE in one packet, with immediate data.
    WRITE_ONLY_IMM = 0x0b,
    /// An RDMA READ request.
    READ_REQUEST = 0x0c,
    /// First packet of an RDMA READ response.
    READ_RESPONSE_FIRST = 0x0d,
    /// Middle packet of an RDMA READ response.
    READ_RESPONSE_MIDDLE = 0x0e,
    /// Last packet of an RDMA READ response.
    READ_RESPONSE_LAST = 0x0f,
    /// An RDMA READ response in one packet.
    READ_RESPONSE_ONLY = 0x10,
    /// Acknowledge: ACK, NAK or RNR NAK by its AETH.
    ACKNOWLEDGE = 0x11,
    /// Response to an atomic: AETH and the original value.
    ATOMIC_ACKNOWLEDGE = 0x12,
    /// Request for a 64-bit compare and swap.
    COMPARE_SWAP = 0x13,
    /// Request for a 64-bit fetch and add.
    FETCH_ADD = 0x14,
    /// Last packet of a SEND that invalidates a key.
    SEND_LAST_INVALIDATE = 0x16,
    /// A SEND in one packet that invalidates a key.
    SEND_ONLY_INVALIDATE = 0x17,
    /// Request for a masked compare and swap of 4 or 8 bytes, between softhcas only.
    MASKED_COMPARE_SWAP = 0xc0,
    /// Request for a masked fetch and add of 4 or 8 bytes, between softhcas only.
    MASKED_FETCH_ADD = 0xc1,
}

impl BthOpcode {
    /// Congestion notification of RoCEv2 (annex A17): BTH and 16 reserved bytes. This crate recognizes and ignores it.
    pub const CONGESTION: Self = Self(0x81);

    /// Returns the service of this opcode, and the RC opcode of its operation; `None` if no service of this crate has the opcode.
    pub const fn split(self) -> Option<(WireService, Self)> {
        let (service, rc) = match self.0 >> 5 {
            0 => (WireService::Rc, self),
            1 => (WireService::Uc, Self(self.0 & 0x1f)),
            3 => (WireService::Ud, Self(self.0 & 0x1f)),
            5 => (WireService::Xrc, Self(self.0 & 0x1f)),
            6 => (WireService::Rc, self),
            7 => (WireService::Xrc, Self(self.0 & 0xdf)),
            _ => return None,
        };
        if service.knows(rc) {
            Some((service, rc))
        } else {
            None
        }
    }

    /// Returns the opcode of this RC opcode's operation in `service`. It has no meaning if [`WireService::knows`] returns false.
    pub const fn of_service(self, service: WireService) -> Self {
        Self(
            self.0
                | match service {
                    WireService::Rc => 0,
                    WireService::Uc => 0x20,
                    WireService::Ud => 0x60,
                    WireService::Xrc if self.0 >= 0xc0 => 0x20,
                    WireService::Xrc => 0xa0,
                },
        )
    }

    /// Returns whether a responder sends this opcode. Responses answer and never ask.
    pub const fn is_response(self) -> bool {
        matches!(self.0, 0x0d..=0x12 | 0xad..=0xb2)
    }
}

/// The services that the opcodes of packets distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WireService {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection, in both directions.
    Xrc,
}

impl WireService {
    /// All services.
    pub const ALL: [Self; 4] = [Self::Rc, Self::Uc, Self::Ud, Self::Xrc];

    /// Returns whether the service has the operation of this RC opcode.
    pub const fn knows(self, rc: BthOpcode) -> bool {
        match self {
            Self::Rc | Self::Xrc => rc.rc_name().is_some(),
            Self::Uc => rc.0 <= BthOpcode::WRITE_ONLY_IMM.0,
            Self::Ud => matches!(rc, BthOpcode::SEND_ONLY | BthOpcode::SEND_ONLY_IMM),
        }
    }
}

impl From<Service> for WireService {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::Rc,
            Service::Uc => Self::Uc,
            Service::Ud => Self::Ud,
            Service::XrcInitiator | Service::XrcTarget => Self::Xrc,
        }
    }
}

impl fmt::Debug for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.split() {
            Some((WireService::Rc, rc)) => f.write_str(rc.rc_name().unwrap_or_default()),
            Some((service, rc)) => write!(f, "{service:?} {}", rc.rc_name().unwrap_or_default()),
            None if *self == Self::CONGESTION => f.write_str("CONGESTION"),
            None => write!(f, "opcode {:#04x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_found_from_index_and_count() {
        assert_eq!(Position::of(0, 1), Position::Only);
        assert_eq!(Position::of(0, 2), Position::First);
        assert_eq!(Position::of(1, 3), Position::Middle);
        assert_eq!(Position::of(2, 3), Position::Last);
    }

    #[test]
    fn an_opcode_prints_its_name_or_its_number() {
        assert_eq!(format!("{:?}", BthOpcode::WRITE_ONLY), "WRITE_ONLY");
        assert_eq!(format!("{:?}", BthOpcode(0x64)), "Ud SEND_ONLY");
        assert_eq!(format!("{:?}", BthOpcode(0xe1)), "Xrc MASKED_FETCH_ADD");
        assert_eq!(format!("{:?}", BthOpcode(0x6a)), "opcode 0x6a");
    }

    #[test]
    fn opcodes_of_all_services_split_into_service_and_operation() {
        let known: Vec<u8> = (0..=255)
            .filter(|byte| BthOpcode(*byte).split().is_some())
            .collect();
        let expected: Vec<u8> = (0x00..=0x14)
            .chain(0x16..=0x17)
            .chain(0x20..=0x2b)
            .chain(0x64..=0x65)
            .chain(0xa0..=0xb4)
            .chain(0xb6..=0xb7)
            .chain([0xc0, 0xc1, 0xe0, 0xe1])
            .collect();
        assert_eq!(known, expected);
        for byte in known {
            let (service, rc) = BthOpcode(byte).split().unwrap();
            assert_eq!(rc.of_service(service), BthOpcode(byte));
        }
    }

    #[test]
    fn responses_differ_from_requests() {
        let responses: Vec<_> = (0..=255)
            .map(BthOpcode)
            .filter(|op| op.is_response())
            .collect();
        assert_eq!(responses.len(), 12, "{responses:?}");
        assert!(responses.iter().all(|op| op.split().is_some()));
    }
}
