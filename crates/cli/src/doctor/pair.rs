//! The checks of each GPU with each NIC.

use std::cell::OnceCell;
use std::rc::Rc;

use super::acs::{self, Redirect};
use super::check::{Check, Look, Text};
use super::gpu::Gpu;
use super::loopback;
use super::nic::Nic;
use super::steps::Steps;
use super::told::Report;
use super::tree::Tree;
use warpverbs::gpu::GpuSelector;
use warpverbs::team::Matter;
use warpverbs::topology::{Distance, Machine, PciAddress, Reason, Wish};

/// The id of the check that gets more time than the others.
pub(super) const LOOPBACK_ID: &str = "pair-loopback";

pub(super) const CHECKS: &[Check<Pair>] = &[
    Check {
        id: "pair-auto",
        what: "the NIC that auto takes",
        why: "WARPVERBS_DEVICE=auto takes the nearest active port of the machine's link layer, then the fastest.",
        mend: "WARPVERBS_DEVICE=NAME:PORT names another one, ^NAME leaves one out.",
        look: auto,
    },
    Check {
        id: "pair-distance",
        what: "distance",
        why: "What GPU and NIC exchange crosses the PCIe switches between them; across a host bridge or sockets it is slower, often by half.",
        mend: "WARPVERBS_DEVICE=auto takes a nearer NIC if the machine has one. Else move the card to a slot behind the GPU's switch.",
        look: distance,
    },
    Check {
        id: "pair-acs",
        what: "ACS redirect on the way",
        why: "A bridge with ACS redirect sends what GPU and NIC exchange up to the host bridge and back.",
        mend: "setpci -s BRIDGE ECAP_ACS+6.w=0 for each bridge of the finding, as root after each boot; or ACS off in the firmware.",
        look: redirect,
    },
    Check {
        id: "pair-queues",
        what: "queues",
        why: "The NIC reads queues where the GPU writes them: in GPU memory by DMA-BUF or by address, else in host memory. The latter \
              costs a trip across PCIe per post.",
        mend: "See gpu-dmabuf, peer-memory and kernel; WARPVERBS_QUEUES=host keeps queues in host memory.",
        look: queues,
    },
    Check {
        id: "pair-windows",
        what: "windows",
        why: "The NIC reads and writes data in windows: in GPU memory by DMA-BUF or by address.",
        mend: "See gpu-dmabuf, gpu-direct, peer-memory and kernel; WARPVERBS_MEMORY=host keeps windows in host memory.",
        look: windows,
    },
    Check {
        id: "pair-doorbells",
        what: "doorbells",
        why: "A GPU that maps the NIC's register rings by itself; else a thread of the host rings for it, some microseconds later.",
        mend: "See nvreg, or run as root; WARPVERBS_DOORBELL=mailbox takes the thread without trying.",
        look: doorbells,
    },
    Check {
        id: "pair-signals",
        what: "signals",
        why: "The order of writes, a swap or a flush keeps a signal after its data. A swap or flush costs a round trip.",
        mend: "See nic-order and gpu-ordering; WARPVERBS_MOE_ORDER chooses.",
        look: signals,
    },
];

/// The GPUs and NICs that make the pairs.
struct All {
    tree: Tree,
    machine: Machine,
    gpus: Vec<Gpu>,
    nics: Vec<Nic>,
}

/// A GPU, or the CPU in its place, with a NIC.
pub(super) struct Pair {
    all: Rc<All>,
    /// The index of the GPU in `all`; None for the CPU in its place.
    gpu: Option<usize>,
    nic: usize,
    steps: OnceCell<Result<Steps, Look>>,
}

impl Pair {
    fn name(&self) -> String {
        match self.gpu() {
            Some(gpu) => format!("{} with {}", gpu.name(), self.nic().name),
            None => format!("CPU with {}", self.nic().name),
        }
    }

    fn address(&self) -> Option<PciAddress> {
        self.gpu().map(|gpu| gpu.gpu.slot.pci)
    }

    /// Returns the PCI addresses of GPU and NIC, if both have one.
    fn addresses(&self) -> Option<(PciAddress, PciAddress)> {
        self.address().zip(self.nic().device.as_ref()?.pci)
    }

    /// Returns whether the GPU is the first of the GPUs that are nearest to the NIC. Data is moved only for that one, once for each NIC.
    fn is_nearest(&self) -> bool {
        let nic = self.nic().device.as_ref().and_then(|device| device.pci);
        let distance = |gpu: &Gpu| {
            let known = nic.and_then(|nic| self.all.machine.distance(gpu.gpu.slot.pci, nic));
            // A GPU or NIC without a known place counts as the farthest.
            known.map_or((true, None), |distance| (false, Some(distance)))
        };
        let gpus = self.all.gpus.iter().enumerate();
        let nearest = gpus.min_by_key(|(_, gpu)| distance(gpu));
        nearest.map(|(number, _)| number) == self.gpu
    }

    /// Returns the port that `auto` takes for this GPU.
    fn best(&self) -> Option<(String, u8)> {
        let gpus: Vec<_> = self
            .all
            .gpus
            .iter()
            .map(|gpu| Some(gpu.gpu.slot.pci))
            .collect();
        let wish = Wish {
            place: self.gpu().map_or(0, |gpu| gpu.gpu.slot.ordinal as usize),
            gpus: &gpus,
            ..Wish::default()
        };
        let listed = |name: &str| {
            self.all
                .nics
                .iter()
                .any(|nic| nic.name == name && nic.is_listed())
        };
        let choice = wish.choose(&self.all.machine, |device, _| match listed(&device.name) {
            true => Ok(()),
            false => Err(Reason::NotListed),
        });
        let first = choice.candidates.into_iter().next()?;
        Some((first.device, first.port))
    }

    /// Returns the GPU on which kernels of this pair run.
    fn selector(&self) -> GpuSelector {
        match (self.gpu(), std::env::var("WARPVERBS_GPU").as_deref()) {
            (Some(gpu), _) => GpuSelector::Cuda(gpu.gpu.slot.ordinal),
            (None, Ok("simt-dmabuf")) => GpuSelector::SimtDmabuf,
            (None, _) => GpuSelector::Simt,
        }
    }

    fn nic(&self) -> &Nic {
        &self.all.nics[self.nic]
    }

    fn gpu(&self) -> Option<&Gpu> {
        self.gpu.map(|gpu| &self.all.gpus[gpu])
    }

    fn look(&self, with_loopback: bool, report: &mut Report) {
        let is_quiet = self
            .best()
            .is_some_and(|(device, _)| device != self.nic().name);
        for check in CHECKS {
            report.one(&self.name(), &check.text(), is_quiet, || (check.look)(self));
        }
        if with_loopback && self.is_nearest() {
            report.one(&self.name(), &LOOPBACK, is_quiet, || {
                loopback::look(self.nic(), self.selector())
            });
        }
    }

    fn step(&self, matter: Matter) -> Look {
        match self
            .steps
            .get_or_init(|| Steps::of(self.nic(), self.selector()))
        {
            Ok(steps) => steps.look(matter),
            Err(look) => look.clone(),
        }
    }
}

/// Checks all pairs. The text leaves out pairs whose NIC `auto` does not take.
pub(super) fn look(tree: &Tree, with_loopback: bool, report: &mut Report) {
    let all = Rc::new(All {
        nics: Nic::all(tree),
        gpus: Gpu::all(tree).unwrap_or_default(),
        machine: tree.topology(),
        tree: tree.clone(),
    });
    let gpus = (0..all.gpus.len()).map(Some);
    let gpus = gpus.chain(all.gpus.is_empty().then_some(None));
    for gpu in gpus {
        for nic in 0..all.nics.len() {
            let pair = Pair {
                all: Rc::clone(&all),
                gpu,
                nic,
                steps: OnceCell::new(),
            };
            pair.look(with_loopback, report);
        }
    }
}

/// The check that the option `--loopback` asks for.
pub(super) const LOOPBACK: Text = Text {
    id: LOOPBACK_ID,
    what: "data of a kernel from the NIC to itself (--loopback)",
    why: "It proves the whole way: a kernel posts, the NIC gets the doorbell, reads and writes memory, and the kernel sees the end.",
    mend: "The finding names the step that fails; dmesg and the check of that step say more. WARPVERBS_DOORBELL=mailbox and \
           WARPVERBS_QUEUES=host leave out the register and queues in GPU memory.",
};

fn auto(pair: &Pair) -> Look {
    match pair.best() {
        Some((device, port)) if device == pair.nic().name => {
            Look::ok(format!("this one, port {port}"))
        }
        Some((device, port)) => Look::ok(format!("{device} port {port}")),
        None => Look::missing("none: no NIC that libibverbs lists has an active port"),
    }
}

fn distance(pair: &Pair) -> Look {
    let distance = pair
        .addresses()
        .and_then(|(gpu, nic)| pair.all.machine.distance(gpu, nic));
    match (pair.gpu(), distance) {
        (None, _) => Look::ok("no GPU"),
        (_, Some(distance)) => Look::ok_if(distance <= Distance::Pxb, distance.to_string()),
        (Some(_), None)
            if pair
                .nic()
                .device
                .as_ref()
                .is_none_or(|device| device.pci.is_none()) =>
        {
            Look::ok("the NIC has no place in the PCI tree")
        }
        (Some(_), None) => Look::not_looked("the GPU has no place in the PCI tree"),
    }
}

fn redirect(pair: &Pair) -> Look {
    let devices = pair.addresses().and_then(|(gpu, nic)| {
        pair.all
            .machine
            .pci_device(gpu)
            .zip(pair.all.machine.pci_device(nic))
    });
    let Some((gpu, nic)) = devices else {
        return Look::ok("no PCI way between them");
    };
    let bridges = acs::between(gpu, nic);
    let mut unread = Vec::new();
    let mut on = Vec::new();
    for bridge in &bridges {
        match acs::redirect(&pair.all.tree, *bridge) {
            Some(Redirect::On) => on.push(bridge.to_string()),
            Some(Redirect::Off) => {}
            None => unread.push(bridge.to_string()),
        }
    }
    match (on.is_empty(), unread.is_empty()) {
        (false, _) => Look::degraded(format!("on at {}", on.join(", "))),
        (true, false) => Look::not_looked(format!(
            "the configuration of {} can be read by root alone",
            unread.join(", ")
        )),
        (true, true) => Look::ok(format!("off at {} bridges", bridges.len())),
    }
}

fn queues(pair: &Pair) -> Look {
    pair.step(Matter::Queues)
}

fn windows(pair: &Pair) -> Look {
    pair.step(Matter::Windows)
}

fn doorbells(pair: &Pair) -> Look {
    pair.step(Matter::Doorbells)
}

fn signals(pair: &Pair) -> Look {
    pair.step(Matter::Signals)
}
