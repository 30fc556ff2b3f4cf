//! `--loopback`: a kernel moves data from a NIC to itself, in each way that works.

use std::fmt;
use std::sync::Arc;

use super::check::Look;
use super::couple::{self, Member, Transfer};
use super::nic::Nic;
use warpverbs::config::{Doorbell, Memory, QpModes, Queues};
use warpverbs::gpu::{self, Gpu, GpuSelector};
use warpverbs::team::Step;
use warpverbs::verbs::{Context, Rung};

/// The numbers of bytes that are moved at once.
const SIZES: [u64; 4] = [64 << 10, 512 << 10, 2 << 20, 8 << 20];
/// The largest of these sizes. A window has the bytes that are sent, and after them the bytes that are received.
const MOST: u64 = SIZES[SIZES.len() - 1];
/// The lanes of the warp, which share the bytes.
const LANES: u32 = 32;

/// A way from the kernel to the NIC, and the memory of the moved bytes.
#[derive(Clone, Copy)]
struct Way {
    doorbell: Option<Doorbell>,
    queues: Queues,
    memory: Memory,
    /// How the NIC reaches device memory. None: in the way that a team would choose.
    rung: Option<Rung>,
}

/// The ways in which a NIC may reach device memory.
const RUNGS: [Rung; 3] = [Rung::DmabufPcie, Rung::Dmabuf, Rung::Address];
/// Who rings the doorbells: the GPU, or a thread of the host.
const DOORBELLS: [Option<Doorbell>; 2] = [None, Some(Doorbell::Mailbox)];

impl Way {
    /// Returns the ways with queues and data in device memory, one for each rung of the ladder and each doorbell.
    fn by_rung() -> impl Iterator<Item = Self> {
        RUNGS.into_iter().flat_map(|rung| {
            DOORBELLS.map(|doorbell| Self {
                doorbell,
                queues: Queues::Device,
                memory: Memory::Device,
                rung: Some(rung),
            })
        })
    }

    /// Returns the ways with queues in host memory.
    fn by_host() -> impl Iterator<Item = Self> {
        let way = |doorbell, memory| Self {
            doorbell,
            queues: Queues::Host,
            memory,
            rung: None,
        };
        let device = DOORBELLS.map(|doorbell| way(doorbell, Memory::Device));
        let host = way(Some(Doorbell::Mailbox), Memory::Host);
        device.into_iter().chain([host])
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.doorbell {
            None => "doorbell by the GPU, ",
            Some(_) => "doorbell by mailbox, ",
        })?;
        match (self.rung, self.queues, self.memory) {
            (Some(rung), ..) => write!(f, "queues and data by {rung}"),
            (None, Queues::Host, Memory::Host) => f.write_str("queues and data in host memory"),
            (None, Queues::Host, Memory::Device) => f.write_str("queues in host memory"),
            (None, Queues::Device, _) => f.write_str("queues in device memory"),
        }
    }
}

/// Why no data was moved in a way.
enum Refusal {
    /// The NIC cannot reach the memory in this way, or its doorbell cannot be rung in this way.
    Absent(String),
    /// The NIC can reach the memory and its doorbell can be rung, but the bytes did not arrive.
    Failed(String),
}

/// Tries all ways between `nic` and kernels on `gpu`.
pub(super) fn look(nic: &Nic, gpu: GpuSelector) -> Look {
    let opened = nic.context().and_then(|context| {
        let is_soft = context.info().is_soft();
        let gpu = gpu::open_bare(gpu, is_soft).map_err(|error| error.to_string())?;
        Ok((context, gpu))
    });
    let (context, gpu) = match opened {
        Ok(opened) => opened,
        Err(why) => return Look::not_looked(why),
    };
    let mut outcomes = Outcomes::default();
    for way in Way::by_rung() {
        outcomes.take(way, run(&way, context, &gpu));
    }
    outcomes.close_rungs();
    for way in Way::by_host() {
        outcomes.take(way, run(&way, context, &gpu));
    }
    outcomes.told()
}

/// Which ways have carried bytes and which have not, in words.
#[derive(Default)]
struct Outcomes {
    good: Vec<String>,
    bad: Vec<String>,
    /// The ways on which no team was made, each with its rung of the ladder.
    unmade: Vec<(Rung, String)>,
    /// The rungs that this machine does not have.
    absent: Vec<Rung>,
}

impl Outcomes {
    fn take(&mut self, way: Way, moved: Result<(), Refusal>) {
        match (moved, way.rung) {
            (Ok(()), _) => self.good.push(way.to_string()),
            (Err(Refusal::Absent(why)), Some(rung)) => {
                self.unmade.push((rung, format!("{way}: {why}")));
            }
            (Err(Refusal::Absent(why) | Refusal::Failed(why)), _) => {
                self.bad.push(format!("{way}: {why}"));
            }
        }
    }

    /// Sorts the failures of the ways by rung, once all rungs were tried. A rung on which no way works is absent, and a machine needs at
    /// least one rung.
    fn close_rungs(&mut self) {
        let unmade = std::mem::take(&mut self.unmade);
        let of = |rung| unmade.iter().filter(move |(other, _)| *other == rung);
        let is_absent = |rung: &Rung| of(*rung).count() == DOORBELLS.len();
        self.absent = RUNGS.into_iter().filter(is_absent).collect();
        let has_none = self.absent.len() == RUNGS.len();
        let told = |(rung, _): &&(Rung, String)| has_none || !self.absent.contains(rung);
        let bad = unmade.iter().filter(told).map(|(_, why)| why.clone());
        self.bad.extend(bad);
    }

    fn told(self) -> Look {
        let Self {
            good, bad, absent, ..
        } = self;
        let absent: Vec<String> = absent.iter().map(Rung::to_string).collect();
        let without = if absent.is_empty() {
            String::new()
        } else {
            format!("; not offered here: {}", absent.join(", "))
        };
        let all = format!(
            "{} to {} KiB in each direction, every byte compared",
            SIZES[0] >> 10,
            MOST >> 10
        );
        let (good_ways, bad_ways) = (good.join("; "), bad.join("; "));
        match (good.is_empty(), bad.is_empty()) {
            (_, true) => Look::ok(format!("{all}: {good_ways}{without}")),
            (false, false) => Look::degraded(format!("{bad_ways}; {all}: {good_ways}{without}")),
            (true, false) => Look::missing(bad_ways),
        }
    }
}

/// Moves all sizes in both directions. Returns what differs, or why nothing was moved.
fn run(way: &Way, context: &Arc<Context>, gpu: &Arc<dyn Gpu>) -> Result<(), Refusal> {
    let modes = QpModes::default()
        .with_doorbell(way.doorbell)
        .with_queues(Some(way.queues))
        .with_memory(Some(way.memory));
    let joined = couple::join(context, gpu, (&modes, way.rung), 2 * MOST);
    let members = joined.map_err(Refusal::Absent)?;
    if way.doorbell.is_none() && members.iter().any(rings_by_host) {
        let why = "the GPU does not map the register".to_owned();
        return Err(Refusal::Failed(why));
    }
    for (seed, bytes) in (1..).zip(SIZES) {
        for from in 0..2 {
            let moved = moved(&members, from, bytes, 2 * seed + from as u64);
            moved.map_err(Refusal::Failed)?;
        }
    }
    Ok(())
}

fn rings_by_host(member: &Member) -> bool {
    let mailbox = Step::Doorbell(Doorbell::Mailbox);
    let choices = member.team.choices();
    choices.iter().any(|choice| choice.step == mailbox)
}

/// Moves `bytes` bytes from one rank to the other, and compares them.
fn moved(members: &[Member; 2], from: usize, bytes: u64, seed: u64) -> Result<(), String> {
    let length = usize::try_from(bytes).expect("8 MiB");
    let mut sent = vec![0; length];
    fastrand::Rng::with_seed(seed).fill(&mut sent);
    let (sender, receiver) = (&members[from], &members[1 - from]);
    sender.write(0, &sent)?;
    receiver.write(MOST, &vec![0; length])?;
    let what = Transfer {
        peer: receiver.team.rank(),
        qp: 0,
        from: 0,
        to: MOST,
        bytes,
        lanes: LANES,
    };
    let told = |why| format!("{} KiB from rank {from}: {why}", bytes >> 10);
    sender.put(&what).map_err(told)?;
    let mut came = vec![0; length];
    receiver.read(MOST, &mut came)?;
    match sent.iter().zip(&came).position(|(sent, came)| sent != came) {
        None => Ok(()),
        Some(at) => Err(told(format!(
            "byte {at} is {:#04x} and was sent as {:#04x}",
            came[at], sent[at]
        ))),
    }
}
