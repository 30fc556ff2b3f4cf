//! What a team does, in one line: how payload reaches the peers, and how the QPs work. `JoinOptions::join` logs it.

use crate::fabric::Reach;
use crate::team::parts::Parts;
use crate::verbs::{CqKind, Doorbell, Queues, Sharing};

/// Returns what this rank has joined as and what carries its payload, in one line.
pub(in crate::team) fn summary(own: &Parts) -> String {
    let config = &own.config;
    let shape = own.rails[0].shape();
    let reaches = own.peers.all().iter().map(|peer| peer.state().reach);
    let direct = reaches.filter(|reach| *reach != Reach::Hca).count();
    let peers = config.ranks as usize - 1;
    let peers = if config.joins() {
        format!("its {peers} peers connect later")
    } else {
        format!("{} peers by QP, {direct} direct", peers - direct)
    };
    let names = own.rails.iter().map(|rail| rail.context().name());
    let memory = match own.rails[0].export() {
        Some(export) => export.rung.to_string(),
        None => "no HCA".to_owned(),
    };
    format!(
        "rank {} of {}, generation {}, on {} and {}: {peers}; {} QPs to each, depth {}, {}, {}, queues in {} memory, \
         {}, {} receive WQEs, signals {}, control heap by {memory}",
        config.rank,
        config.ranks,
        config.generation,
        own.gpu.label(),
        names.collect::<Vec<_>>().join(", "),
        config.qps_per_peer,
        shape.depth(),
        match shape.sharing {
            Sharing::Shared => "shared by all threads",
            Sharing::Exclusive => "for one thread or warp",
            Sharing::Cta => "for one block",
        },
        match shape.doorbell {
            Doorbell::Record => "doorbell with record",
            Doorbell::NoRecord => "doorbell without record",
            Doorbell::Mailbox => "doorbell by a host thread",
        },
        match shape.queues {
            Queues::Device => "device",
            Queues::Host => "host",
        },
        match shape.cq {
            CqKind::Collapsed => "one CQE",
            CqKind::Wide => "one CQE per WQE",
        },
        shape.log_recv_depth.map_or(0, |log| 1u32 << log),
        own.choices.order(),
    )
}
