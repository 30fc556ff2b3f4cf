//! How a signal is kept after the data that it stands for. The order is chosen by what the devices promise, and is the same at all
//! ranks.

use std::fmt;
use std::sync::Arc;

use crate::abi::MoeOrder;
use crate::config::SignalOrder;
use crate::fabric::{Choice, Matter, RefusedStep, Step};
use crate::gpu::{Gpu, GpuError, RdmaSupport, WriteOrdering};
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::verbs::{Caps, Context, DataOrder, Rung};

impl SignalOrder {
    /// The orders, the cheapest first.
    pub(in crate::team) const ALL: [Self; 3] = [Self::Inline, Self::Swap, Self::Flush];

    /// Returns whether a device has unconditional swaps of 8 bytes.
    fn swaps(caps: &Caps) -> bool {
        caps.atomics && caps.masked_atomics
    }

    /// Returns the code of the order that kernels read.
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

/// The devices and settings that the order of signals depends on.
#[derive(Clone, Copy, Debug)]
pub(in crate::team) struct Devices<'a> {
    pub(in crate::team) contexts: &'a [Arc<Context>],
    pub(in crate::team) gpu: &'a dyn Gpu,
    /// The way in which the HCAs reach windows.
    pub(in crate::team) windows: Rung,
    /// The configuration says that PCI writes of an HCA are relaxed by force.
    pub(in crate::team) pci_relaxed: bool,
}

/// The order of signals that a rank would take alone.
#[derive(Clone, Debug)]
pub(in crate::team) struct Signals {
    /// The order that the rank would take, with the reasons against cheaper orders.
    pub(in crate::team) choice: Choice,
    /// The orders that the rank can take, the cheapest first: the order that was asked for, or all that its devices keep.
    pub(in crate::team) kept: Vec<SignalOrder>,
}

impl Signals {
    /// Returns the choice that all ranks make: `order`. `lacking` holds cheaper orders, each with a rank that does not keep it.
    pub(in crate::team) fn settled(
        self,
        order: SignalOrder,
        lacking: Vec<(SignalOrder, u32)>,
    ) -> Choice {
        let Choice {
            matter,
            mut refused,
            ..
        } = self.choice;
        refused.extend(lacking.into_iter().map(|(better, rank)| RefusedStep {
            step: Step::Signal(better),
            reason: format!("rank {rank} does not keep it"),
        }));
        Choice {
            matter,
            step: Step::Signal(order),
            refused,
        }
    }
}

/// Returns the order that `config` asks for, or else the cheapest that all devices keep. Refuses an order that the devices do not
/// keep.
pub(in crate::team) fn choose(
    config: &TeamConfig,
    devices: Devices<'_>,
) -> Result<Signals, TeamError> {
    let caps = || devices.contexts.iter().map(|context| context.caps());
    let gpu = gpu_refusal(devices.gpu.rdma(), devices.windows);
    let refusal = |order| refusal(order, caps(), devices.pci_relaxed, gpu.as_deref());
    let signals = |order, refused, kept| Signals {
        choice: Choice {
            matter: Matter::Signals,
            step: Step::Signal(order),
            refused,
        },
        kept,
    };
    let Some(asked) = config.modes.moe_order else {
        let kept = SignalOrder::ALL.into_iter();
        let kept = kept.filter(|order| refusal(*order).is_none()).collect();
        let (best, refused) = best(refusal);
        return Ok(signals(best, refused, kept));
    };
    let reason = match config.order_unchecked {
        // The order needs no check, but a swap needs a device that has it.
        true if asked == SignalOrder::Swap => caps().find_map(no_swap),
        true => None,
        false => refusal(asked),
    };
    match reason {
        None => Ok(signals(asked, Vec::new(), vec![asked])),
        Some(reason) => Err(TeamError::Order {
            asked,
            reason,
            best: best(refusal).0,
        }),
    }
}

/// Returns the first order that nothing speaks against, and the refused orders before it.
fn best(refusal: impl Fn(SignalOrder) -> Option<String>) -> (SignalOrder, Vec<RefusedStep>) {
    let mut refused = Vec::new();
    for order in [SignalOrder::Inline, SignalOrder::Swap] {
        match refusal(order) {
            None => return (order, refused),
            Some(reason) => refused.push(RefusedStep {
                step: Step::Signal(order),
                reason,
            }),
        }
    }
    (SignalOrder::Flush, refused)
}

/// Returns the reason against `order` on HCAs with `caps`; none if they keep it.
fn refusal<'a>(
    order: SignalOrder,
    mut caps: impl Iterator<Item = &'a Caps>,
    pci_relaxed: bool,
    gpu: Option<&str>,
) -> Option<String> {
    let order_of_data = |caps: &Caps| format!("a device places data {}", caps.data_order);
    match order {
        SignalOrder::Inline => {
            let out_of_order = caps.find(|caps| caps.data_order != DataOrder::InOrder);
            let forced = "PCI writes are relaxed by force (mlxconfig PCI_WR_ORDERING=force_relax)";
            out_of_order
                .map(order_of_data)
                .or_else(|| pci_relaxed.then(|| forced.to_owned()))
                .or_else(|| gpu.map(str::to_owned))
        }
        SignalOrder::Swap => caps.find_map(|caps| match caps.data_order {
            DataOrder::FlushOnly => Some(order_of_data(caps)),
            DataOrder::InOrder | DataOrder::AtomicsOrdered => no_swap(caps),
        }),
        SignalOrder::Flush => None,
    }
}

fn no_swap(caps: &Caps) -> Option<String> {
    if SignalOrder::swaps(caps) {
        None
    } else {
        Some(format!(
            "a device places data {}, and has no masked atomics of 8 bytes",
            caps.data_order
        ))
    }
}

/// Returns the reason why kernels on a GPU with this support do not see an HCA's writes in their order, in windows that the HCA
/// reaches as `windows` says; none if they do.
fn gpu_refusal(support: Result<RdmaSupport, GpuError>, windows: Rung) -> Option<String> {
    match support {
        _ if windows == Rung::Host => None,
        Ok(support) if support.write_ordering == WriteOrdering::None => Some(
            "the GPU does not show its kernels an HCA's writes in their order (GPU_DIRECT_RDMA_WRITES_ORDERING is none)"
                .to_owned(),
        ),
        Ok(_) => None,
        Err(error) => Some(format!(
            "the GPU does not say in which order it shows an HCA's writes: {error}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(write_ordering: WriteOrdering) -> Result<RdmaSupport, GpuError> {
        Ok(RdmaSupport {
            write_ordering,
            ..RdmaSupport::HOST
        })
    }

    #[test]
    fn a_gpu_that_shows_no_order_speaks_against_windows_in_its_memory_alone() {
        let device = [Rung::DmabufPcie, Rung::Dmabuf, Rung::Address];
        for rung in device {
            assert_eq!(gpu_refusal(support(WriteOrdering::Owner), rung), None);
            assert_eq!(gpu_refusal(support(WriteOrdering::AllDevices), rung), None);
            let none = gpu_refusal(support(WriteOrdering::None), rung).unwrap();
            assert!(none.contains("WRITES_ORDERING is none"), "{none}");
            let lost = GpuError::NoDevice {
                ordinal: 0,
                count: 0,
            };
            let silent = gpu_refusal(Err(lost), rung).unwrap();
            assert!(silent.contains("the driver knows 0"), "{silent}");
        }
        assert_eq!(gpu_refusal(support(WriteOrdering::None), Rung::Host), None);
    }

    #[test]
    fn whatever_speaks_against_inline_leaves_the_next_one_with_the_reason() {
        for (relaxed, gpu, reason) in [
            (true, None, "force_relax"),
            (false, Some("the GPU"), "the GPU"),
        ] {
            let (order, refused) = best(|order| refusal(order, std::iter::empty(), relaxed, gpu));
            assert_eq!(order, SignalOrder::Swap);
            let [inline] = &refused[..] else {
                panic!("{refused:?}");
            };
            assert_eq!(inline.step, Step::Signal(SignalOrder::Inline));
            assert!(inline.reason.contains(reason), "{inline}");
        }
    }
}
