//! The full mesh: `qps_per_peer` QPs from this rank to every other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::identity::Identity;
use super::link::Link;
use super::rail::Rail;
use super::{TeamConfig, TeamError};
use crate::gpu::Gpu;
use crate::verbs::{Gid, Mtu, PathAttr, SendAttr, VerbsError};

/// Retransmission timeout on the software HCA, 4.096 us · 2^17 = 0.5 s: the process behind it may wait for a core.
const SOFT_ACK_TIMEOUT: u8 = 17;

/// All QPs of a rank.
#[derive(Debug)]
pub(super) struct Links {
    peers: Vec<PeerLinks>,
    /// How patient QPs are, by rail.
    send: Vec<SendAttr>,
}

/// The QPs to one peer; none for the rank itself.
#[derive(Debug)]
pub(super) struct PeerLinks {
    /// Held through a recovery: one at a time.
    recovery: Mutex<()>,
    /// Held for single steps.
    state: Mutex<PeerState>,
    /// Ranks that share a process and a device.
    pub(super) direct: bool,
}

/// What changes of the QPs to one peer.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    pub(super) links: Vec<Link>,
    /// Recoveries so far.
    pub(super) generation: u32,
}

/// What a rank tells of its QPs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LinksRecord {
    rails: Vec<RailRecord>,
    identity: Identity,
    /// By peer, then by number: QP number and first packet number.
    qps: Vec<Vec<(u32, u32)>>,
}

/// One HCA of a rank.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct RailRecord {
    gid: [u8; 16],
    /// Code of the port's MTU.
    mtu: u32,
}

impl Links {
    /// Makes all QPs of this rank and connects them with those of the others. Returns when every rank can send.
    pub(super) fn connect(
        exchange: &Exchange,
        gpu: &dyn Gpu,
        rails: &[Rail],
        config: &TeamConfig,
    ) -> Result<Self, TeamError> {
        let mut made = Vec::new();
        for peer in 0..config.ranks {
            made.push(make(gpu, rails, config, peer)?);
        }
        let own = LinksRecord {
            rails: rails.iter().map(rail_record).collect::<Result<_, _>>()?,
            identity: Identity::new(gpu),
            qps: made
                .iter()
                .map(|links| links.iter().map(|link| (link.qpn(), link.psn())).collect())
                .collect(),
        };
        let check = |rank, record: &LinksRecord| check_record(exchange, rank, record, &own);
        let records = exchange.all_checked("links", &own, check)?;

        let send: Vec<SendAttr> = rails.iter().map(|rail| patience(rail, config)).collect();
        let mut peers = Vec::new();
        for (mut links, record) in made.into_iter().zip(&records) {
            let theirs = record.qps.get(config.rank as usize).into_iter().flatten();
            for ((number, link), &(qpn, psn)) in links.iter_mut().enumerate().zip(theirs) {
                let rail = number % rails.len();
                link.set_path(path(&own.rails[rail], &record.rails[rail], qpn, rail));
                link.ready_to_receive(psn)?;
                link.ready_to_send(&send[rail])?;
            }
            peers.push(PeerLinks {
                recovery: Mutex::new(()),
                state: Mutex::new(PeerState {
                    links,
                    generation: 0,
                }),
                direct: config.direct && record.identity == own.identity,
            });
        }
        exchange.barrier("connected")?;
        Ok(Self { peers, send })
    }

    /// Device addresses of the contexts: `[peer][qps_per_peer]`, 0 where there is no QP.
    pub(super) fn contexts(&self, config: &TeamConfig) -> Vec<u64> {
        let each = config.qps_per_peer as usize;
        let row = |peer: &PeerLinks| {
            let state = peer.state();
            let mut row: Vec<u64> = state
                .links
                .iter()
                .map(|link| link.layout().context_addr)
                .collect();
            row.resize(each, 0);
            row
        };
        self.peers.iter().flat_map(row).collect()
    }

    /// By rank.
    pub(super) fn all(&self) -> &[PeerLinks] {
        &self.peers
    }

    /// How patient QPs of `rail` are.
    pub(super) fn patience(&self, rail: usize) -> &SendAttr {
        &self.send[rail]
    }
}

impl PeerLinks {
    /// For a single step: nobody waits for other ranks or kernels while it is held.
    pub(super) fn state(&self) -> MutexGuard<'_, PeerState> {
        // Links are whole between two steps, so a panic elsewhere under the lock has broken nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to recover; none while another thread does.
    pub(super) fn try_recovery(&self) -> Option<MutexGuard<'_, ()>> {
        match self.recovery.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// The QPs to `peer` in Init: QP i on rail i mod rails.
fn make(
    gpu: &dyn Gpu,
    rails: &[Rail],
    config: &TeamConfig,
    peer: u32,
) -> Result<Vec<Link>, TeamError> {
    if peer == config.rank {
        return Ok(Vec::new());
    }
    let numbers = (0u32..).zip(rails).cycle();
    let links = numbers.take(config.qps_per_peer as usize);
    links
        .map(|(number, rail)| Link::new(gpu, rail, (peer, number)))
        .collect()
}

fn rail_record(rail: &Rail) -> Result<RailRecord, VerbsError> {
    let context = rail.context();
    Ok(RailRecord {
        gid: context.roce_v2_gid()?.gid.0,
        mtu: context.port().active_mtu as u32,
    })
}

fn patience(rail: &Rail, config: &TeamConfig) -> SendAttr {
    let default = SendAttr::new(0);
    let timeout = config
        .ack_timeout
        .unwrap_or(match rail.context().info().is_soft() {
            true => SOFT_ACK_TIMEOUT,
            false => default.timeout,
        });
    SendAttr { timeout, ..default }
}

fn path(own: &RailRecord, theirs: &RailRecord, qpn: u32, rail: usize) -> PathAttr {
    PathAttr {
        mtu: Mtu::from_code(theirs.mtu.min(own.mtu)),
        rail: u8::try_from(rail).expect("at most 16 rails"),
        ..PathAttr::new(qpn, Gid(theirs.gid), 0)
    }
}

/// What comes out of the store is checked before it is used; numbers and GIDs by the transitions.
fn check_record(
    exchange: &Exchange,
    rank: u32,
    record: &LinksRecord,
    own: &LinksRecord,
) -> Result<(), TeamError> {
    let refuse = |reason: String| Err(exchange.record(rank, "links", &reason));
    let (ranks, rails) = (own.qps.len(), own.rails.len());
    if record.qps.len() != ranks {
        return refuse(format!("{} peers; the team has {ranks}", record.qps.len()));
    }
    if record.rails.len() != rails {
        return refuse(format!(
            "{} rails; the team has {rails}",
            record.rails.len()
        ));
    }
    let each = own.qps.iter().map(Vec::len).max().unwrap_or(0);
    for (peer, qps) in (0u32..).zip(&record.qps) {
        let wanted = if peer == rank { 0 } else { each };
        if qps.len() != wanted {
            return refuse(format!(
                "{} QPs to rank {peer}; it must be {wanted}",
                qps.len()
            ));
        }
    }
    for rail in &record.rails {
        if Mtu::from_code(rail.mtu).is_none() {
            return refuse(format!("MTU code {}; it must be 1 to 5", rail.mtu));
        }
    }
    Ok(())
}
