//! The names of requests, by which their completions name them: the queue, and the index in it.

use crate::verbs::PlainCompletion;

/// The bit of a request of the receive queue.
const RECEIVE: u64 = 1 << 62;
/// The bit of a request that stands for nothing: it makes the NIC look at a QP in error.
const MARK: u64 = 1 << 63;

/// A request of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// The request of the send queue with this index, modulo 2^16.
    Send(u16),
    /// The request of the receive queue with this index, modulo 2^16.
    Receive(u16),
    /// A request that stands for nothing.
    Mark,
}

impl Name {
    /// Returns the name of a request of the send queue.
    pub(super) fn of_send(index: u64) -> Self {
        Self::Send(low(index))
    }

    /// Returns the name of a request of the receive queue.
    pub(super) fn of_receive(index: u64) -> Self {
        Self::Receive(low(index))
    }

    /// Returns the number that stands for the name.
    pub(super) fn id(self) -> u64 {
        match self {
            Self::Send(index) => index.into(),
            Self::Receive(index) => RECEIVE | u64::from(index),
            Self::Mark => MARK,
        }
    }

    /// Returns the request that a completion is of.
    pub(super) fn of(completion: &PlainCompletion) -> Self {
        let id = completion.id;
        if id & MARK != 0 {
            Self::Mark
        } else if id & RECEIVE != 0 {
            Self::of_receive(id)
        } else {
            Self::of_send(id)
        }
    }
}

/// Returns the low 16 bits of an index.
pub(super) fn low(index: u64) -> u16 {
    let [a, b, ..] = index.to_le_bytes();
    u16::from_le_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_has_the_name_of_its_request() {
        let of = |name: Name| {
            Name::of(&PlainCompletion {
                qpn: 1,
                id: name.id(),
                immediate: None,
                failed: None,
            })
        };
        for index in [0, 1, 0xffff] {
            assert_eq!(of(Name::Send(index)), Name::Send(index));
            assert_eq!(of(Name::Receive(index)), Name::Receive(index));
        }
        assert_eq!(of(Name::Mark), Name::Mark);
        assert_eq!(Name::of_send(0x1_0002), Name::Send(2));
    }
}
