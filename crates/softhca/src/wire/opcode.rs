//! BTH opcodes of the reliable connected service, and the two of our own.
//!
//! An opcode byte is `service[7:5] | operation[4:0]` (IBTA volume 1, "Base Transport Header", OpCode field). Service 0 is
//! RC. Services 6 and 7 (0xc0 to 0xff) are set aside for manufacturers; the masked atomics of mlx5 have no standard wire
//! form, so softhcas use 0xc0 and 0xc1 among themselves, with the header [`super::headers::MaskedAtomicEth`]. No other device
//! understands them.

use std::fmt;

/// The opcode byte of a BTH, as received: any value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BthOpcode(pub u8);

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// The place of packet `index` of `count`.
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 >= count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }

    /// A message starts with this packet.
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// A message ends with this packet.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        impl BthOpcode {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every opcode that this crate sends or understands.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The name, or `None` for an opcode that this crate does not know.
            pub const fn name(self) -> Option<&'static str> {
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
    /// 64-bit compare and swap.
    COMPARE_SWAP = 0x13,
    /// 64-bit fetch and add.
    FETCH_ADD = 0x14,
    /// Last packet of a SEND that invalidates a key.
    SEND_LAST_INVALIDATE = 0x16,
    /// A SEND in one packet that invalidates a key.
    SEND_ONLY_INVALIDATE = 0x17,
    /// Masked compare and swap of 4 or 8 bytes, between softhcas only.
    MASKED_COMPARE_SWAP = 0xc0,
    /// Masked fetch and add of 4 or 8 bytes, between softhcas only.
    MASKED_FETCH_ADD = 0xc1,
}

impl BthOpcode {
    /// Sent by a responder: it answers and never asks.
    pub const fn is_response(self) -> bool {
        matches!(self.0, 0x0d..=0x12)
    }
}

impl fmt::Debug for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
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
        assert_eq!(format!("{:?}", BthOpcode(0x64)), "opcode 0x64");
    }

    #[test]
    fn responses_are_told_from_requests() {
        let responses: Vec<_> = BthOpcode::ALL
            .iter()
            .filter(|op| op.is_response())
            .collect();
        assert_eq!(responses.len(), 6, "{responses:?}");
    }
}
