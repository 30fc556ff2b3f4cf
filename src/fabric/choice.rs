//! The ladders: the ways in which a rank can do something, the best first, and what each lower step costs. A rank takes the best step that
//! its devices do not refuse.

use std::fmt;

use crate::config::{Doorbell, SignalOrder};
use crate::verbs::Rung;

/// Something that a rank does in one of several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Matter {
    /// How the HCA hears of work.
    Doorbells,
    /// In which memory rings, doorbell records and CQEs lie, and how the HCA reaches it.
    Queues,
    /// In which memory windows lie, and how the HCA reaches it.
    Windows,
    /// How a signal is kept after the data that it announces.
    Signals,
}

/// A step of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A step of [`Matter::Doorbells`].
    Doorbell(Doorbell),
    /// A step of [`Matter::Queues`] or [`Matter::Windows`].
    Memory(Rung),
    /// A step of [`Matter::Signals`].
    Signal(SignalOrder),
}

/// A row of a ladder: a step, what it costs against the steps above it, and what a device needs so that it does not refuse it.
type Row = (Step, &'static str, &'static str);

const DOORBELLS: [Row; 3] = [
    (
        Step::Doorbell(Doorbell::NoRecord),
        "",
        "firmware with send_dbr_mode_no_dbr_ext, and send queues no longer than it allows (WARPVERBS_LOG_DEPTH)",
    ),
    (
        Step::Doorbell(Doorbell::Record),
        "a fence and a store more for each doorbell",
        "a driver that maps the NIC's registers for kernels: nvidia.ko with NVreg_RegistryDwords=\"PeerMappingOverride=1;\", or root",
    ),
    (
        Step::Doorbell(Doorbell::Mailbox),
        "a thread of the host, and the time until it looks, in each doorbell",
        "pinned host memory, and a thread",
    ),
];

const QUEUES: [Row; 4] = [
    (Step::Memory(Rung::DmabufPcie), "", ACROSS_PCIE),
    (
        Step::Memory(Rung::Dmabuf),
        "",
        "a GPU whose driver exports DMA-BUFs (nvidia-open), and UMEMs by DMA-BUF: Linux 6.0 or OFED 23.07, and rdma-core 44",
    ),
    (Step::Memory(Rung::Address), "", PEERMEM),
    (
        Step::Memory(Rung::Host),
        "a way across PCIe for each WQE and each look at a completion",
        LOCKED,
    ),
];

const WINDOWS: [Row; 4] = [
    (Step::Memory(Rung::DmabufPcie), "", ACROSS_PCIE),
    (
        Step::Memory(Rung::Dmabuf),
        "",
        "a GPU whose driver exports DMA-BUFs (nvidia-open), and regions by DMA-BUF: Linux 5.12 or DOCA-OFED, and rdma-core 34",
    ),
    (Step::Memory(Rung::Address), "", PEERMEM),
    (
        Step::Memory(Rung::Host),
        "a way across PCIe for each byte that kernels read or write",
        LOCKED,
    ),
];

const SIGNALS: [Row; 3] = [
    (
        Step::Signal(SignalOrder::Inline),
        "",
        "an HCA that places data in order, PCI writes in order (mlxconfig PCI_WR_ORDERING=per_mkey), and a GPU that shows its \
         kernels an HCA's writes in their order",
    ),
    (
        Step::Signal(SignalOrder::Swap),
        "an atomic operation for each signal",
        "an HCA with masked atomics of 8 bytes, which it keeps after earlier writes",
    ),
    (
        Step::Signal(SignalOrder::Flush),
        "a round trip of the data before each signal",
        "nothing",
    ),
];

const ACROSS_PCIE: &str =
    "a driver of CUDA 12.8 or later (release 570), and a GPU whose driver exports DMA-BUFs";
const PEERMEM: &str = "the kernel module nvidia_peermem, on a kernel with peer-memory clients (DOCA-OFED's, Ubuntu's)";
const LOCKED: &str = "pinned host memory that kernels and this process have at one address, within the limit of locked memory (ulimit -l)";

impl Matter {
    /// All matters.
    pub const ALL: [Self; 4] = [Self::Doorbells, Self::Queues, Self::Windows, Self::Signals];

    /// Returns the ladder of this matter, the best step first.
    #[must_use]
    pub fn ladder(self) -> Vec<Step> {
        self.rows().iter().map(|(step, ..)| *step).collect()
    }

    /// Returns the variable that names a step of this matter.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Doorbells => "WARPVERBS_DOORBELL",
            Self::Queues => "WARPVERBS_QUEUES",
            Self::Windows => "WARPVERBS_MEMORY",
            Self::Signals => "WARPVERBS_MOE_ORDER",
        }
    }

    fn rows(self) -> &'static [Row] {
        match self {
            Self::Doorbells => &DOORBELLS,
            Self::Queues => &QUEUES,
            Self::Windows => &WINDOWS,
            Self::Signals => &SIGNALS,
        }
    }

    fn row(self, step: Step) -> Option<&'static Row> {
        self.rows().iter().find(|(of, ..)| *of == step)
    }
}

impl fmt::Display for Matter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Doorbells => "doorbells",
            Self::Queues => "queues",
            Self::Windows => "windows",
            Self::Signals => "signals",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Doorbell(Doorbell::NoRecord) => f.write_str("by the GPU, without a record"),
            Self::Doorbell(Doorbell::Record) => f.write_str("by the GPU"),
            Self::Doorbell(Doorbell::Mailbox) => f.write_str("by a host thread"),
            Self::Memory(Rung::Host) => f.write_str("in host memory"),
            Self::Memory(rung) => write!(f, "by {rung}"),
            Self::Signal(order) => write!(f, "{order}"),
        }
    }
}

/// A step that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedStep {
    /// The step that was tried.
    pub step: Step,
    /// Why a device refused it, or has no such step.
    pub reason: String,
}

impl fmt::Display for RefusedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)
    }
}

/// The step that a rank has chosen in one matter. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Choice {
    /// The question that was decided.
    pub matter: Matter,
    /// The step that the rank takes.
    pub step: Step,
    /// The steps above it, each with the reason why it is not taken. Empty if the configuration names the step.
    pub refused: Vec<RefusedStep>,
}

impl Choice {
    /// Returns what the step costs against the steps above it. Returns None if it costs nothing more.
    #[must_use]
    pub fn price(&self) -> Option<&'static str> {
        let row = self.matter.row(self.step);
        row.map(|(_, price, _)| *price)
            .filter(|price| !price.is_empty())
    }

    /// Returns what the next better step needs. Returns None if the best step is taken.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        let better = self.refused.last()?;
        self.matter.row(better.step).map(|(.., takes)| *takes)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.matter, self.step)?;
        if let Some(price) = self.price() {
            write!(f, ", which costs {price}")?;
        }
        for (n, refused) in self.refused.iter().enumerate() {
            write!(f, "{}{refused}", if n == 0 { " (not " } else { "; not " })?;
        }
        if let Some(remedy) = self.remedy() {
            write!(f, "; the step above takes {remedy}")?;
        }
        f.write_str(if self.refused.is_empty() { "" } else { ")" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ladder_names_each_step_once_and_says_what_it_takes() {
        for matter in Matter::ALL {
            let ladder = matter.ladder();
            for (at, step) in ladder.iter().enumerate() {
                assert!(!ladder[..at].contains(step), "{matter} {step}");
                let (_, price, takes) = matter.row(*step).unwrap();
                assert!(!takes.is_empty(), "{matter} {step}");
                assert!(
                    at != 0 || price.is_empty(),
                    "{matter}: the best step costs nothing"
                );
            }
            assert!(!matter.row(*ladder.last().unwrap()).unwrap().1.is_empty());
        }
    }

    #[test]
    fn a_choice_is_one_line_with_price_reasons_and_remedy() {
        let step = Step::Memory(Rung::Dmabuf);
        let mut choice = Choice {
            matter: Matter::Queues,
            step,
            refused: Vec::new(),
        };
        assert_eq!(choice.to_string(), "queues by dmabuf");
        assert_eq!((choice.price(), choice.remedy()), (None, None));
        choice.step = Step::Memory(Rung::Host);
        choice.refused = [step, Step::Memory(Rung::Address)]
            .map(|step| RefusedStep {
                step,
                reason: "no".to_owned(),
            })
            .into();
        let text = choice.to_string();
        let price = "queues in host memory, which costs a way across PCIe for each WQE";
        assert!(text.starts_with(price), "{text}");
        let reasons = " (not by dmabuf: no; not by address: no; the step above takes the kernel module nvidia_peermem";
        assert!(text.contains(reasons) && text.ends_with(')'), "{text}");
    }
}
