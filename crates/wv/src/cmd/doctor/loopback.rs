//! `--loopback`: a kernel moves data from a NIC to itself, on each way that works.

use std::sync::Arc;

use super::check::Look;
use super::couple::{self, Member, Transfer};
use super::pair::Pair;
use warpverbs::config::{Doorbell, Memory, QpModes, Queues};
use warpverbs::gpu::{self, Gpu};
use warpverbs::team::Step;
use warpverbs::verbs::Context;

/// How much is moved at once.
const SIZES: [u64; 4] = [64 << 10, 512 << 10, 2 << 20, 8 << 20];
/// The largest of them. A window has what is sent, and behind it what has come.
const MOST: u64 = SIZES[SIZES.len() - 1];
/// All lanes of the warp share them.
const LANES: u32 = 32;

/// A way from the kernel to the NIC, and where what is moved lies.
struct Way {
    name: &'static str,
    doorbell: Option<Doorbell>,
    queues: Queues,
    memory: Memory,
}

const WAYS: [Way; 5] = [
    Way {
        name: "doorbell by the GPU, queues in device memory",
        doorbell: None,
        queues: Queues::Device,
        memory: Memory::Device,
    },
    Way {
        name: "doorbell by mailbox, queues in device memory",
        doorbell: Some(Doorbell::Mailbox),
        queues: Queues::Device,
        memory: Memory::Device,
    },
    Way {
        name: "doorbell by the GPU, queues in host memory",
        doorbell: None,
        queues: Queues::Host,
        memory: Memory::Device,
    },
    Way {
        name: "doorbell by mailbox, queues in host memory",
        doorbell: Some(Doorbell::Mailbox),
        queues: Queues::Host,
        memory: Memory::Device,
    },
    Way {
        name: "doorbell by mailbox, queues and data in host memory",
        doorbell: Some(Doorbell::Mailbox),
        queues: Queues::Host,
        memory: Memory::Host,
    },
];

/// Takes all ways of a pair.
pub(super) fn look(pair: &Pair) -> Look {
    let opened = pair.nic().context().and_then(|context| {
        let is_soft = context.info().is_soft();
        let gpu = gpu::open_bare(pair.selector(), is_soft).map_err(|error| error.to_string())?;
        Ok((context, gpu))
    });
    let (context, gpu) = match opened {
        Ok(opened) => opened,
        Err(why) => return Look::not_looked(why),
    };
    let outcomes = WAYS.map(|way| (way.name, run(&way, context, &gpu)));
    let good: Vec<&str> = outcomes
        .iter()
        .filter(|(_, moved)| moved.is_ok())
        .map(|(name, _)| *name)
        .collect();
    let bad = outcomes
        .iter()
        .filter_map(|(name, moved)| Some(format!("{name}: {}", moved.as_ref().err()?)));
    let bad: Vec<String> = bad.collect();
    let all = format!(
        "{} to {} KiB in each direction, every byte compared",
        SIZES[0] >> 10,
        MOST >> 10
    );
    match (good.is_empty(), bad.is_empty()) {
        (_, true) => Look::ok(format!("{all}: {}", good.join("; "))),
        (false, false) => Look::degraded(format!("{}; {all}: {}", bad.join("; "), good.join("; "))),
        (true, false) => Look::missing(bad.join("; ")),
    }
}

/// Moves all sizes both ways; what differs, or why nothing moved.
fn run(way: &Way, context: &Arc<Context>, gpu: &Arc<dyn Gpu>) -> Result<(), String> {
    let modes = QpModes::default()
        .with_doorbell(way.doorbell)
        .with_queues(Some(way.queues))
        .with_memory(Some(way.memory));
    let members = couple::join(context, gpu, &modes, 2 * MOST)?;
    if way.doorbell.is_none() && members.iter().any(rings_by_host) {
        return Err("the GPU does not map the register".to_owned());
    }
    for (seed, bytes) in (1..).zip(SIZES) {
        for from in 0..2 {
            moved(&members, from, bytes, 2 * seed + from as u64)?;
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
