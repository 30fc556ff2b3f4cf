//! How a signal is kept behind the data that it stands for: chosen by what the devices promise, the same at all ranks.

use std::fmt;
use std::sync::Arc;

use super::{TeamConfig, TeamError};
use crate::abi::MoeOrder;
pub use crate::config::SignalOrder;
use crate::verbs::{Caps, Context, DataOrder};

impl SignalOrder {
    const ALL: [Self; 3] = [Self::Inline, Self::Swap, Self::Flush];

    /// Whether a device keeps it.
    fn works(self, caps: &Caps) -> bool {
        match self {
            Self::Inline => caps.data_order == DataOrder::InOrder,
            Self::Swap => caps.data_order != DataOrder::FlushOnly && Self::swaps(caps),
            Self::Flush => true,
        }
    }

    /// Whether a device has unconditional swaps of 8 bytes.
    fn swaps(caps: &Caps) -> bool {
        caps.atomics && caps.masked_atomics
    }

    /// As kernels are told.
    #[must_use]
    pub(crate) fn code(self) -> MoeOrder {
        match self {
            Self::Inline => MoeOrder::INLINE_WRITE,
            Self::Swap => MoeOrder::SWAP,
            Self::Flush => MoeOrder::FLUSH,
        }
    }
}

impl fmt::Display for SignalOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inline => "inline",
            Self::Swap => "swap",
            Self::Flush => "flush",
        })
    }
}

/// What `config` asks for, if the devices keep it; else the cheapest that they all keep.
pub(super) fn choose(
    config: &TeamConfig,
    contexts: &[Arc<Context>],
) -> Result<SignalOrder, TeamError> {
    let caps = || contexts.iter().map(|context| context.caps());
    let Some(asked) = config.order else {
        return Ok(best(caps));
    };
    let refuses = |caps: &&Caps| match config.order_unchecked {
        // Without swaps there is nothing to show.
        true => asked == SignalOrder::Swap && !SignalOrder::swaps(caps),
        false => !asked.works(caps),
    };
    match caps().find(refuses) {
        None => Ok(asked),
        Some(caps) => Err(TeamError::Order {
            asked,
            data: caps.data_order,
            best: best(|| std::iter::once(caps)),
        }),
    }
}

fn best<'a, I: Iterator<Item = &'a Caps>>(caps: impl Fn() -> I) -> SignalOrder {
    let works = |order: &SignalOrder| caps().all(|caps| order.works(caps));
    let found = SignalOrder::ALL.into_iter().find(works);
    found.unwrap_or(SignalOrder::Flush)
}
