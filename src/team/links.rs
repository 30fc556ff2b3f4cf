//! The full mesh: `qps_per_peer` QPs from this rank to every other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::exchange::Exchange;
use super::{TeamConfig, TeamError};
use crate::gpu::{Gpu, MappedMmio};
use crate::verbs::{
    ControlHeap, Gid, ImageAttr, Init, Mtu, PathAttr, Pd, Qp, QpConfig, Reset, Rts, SendAttr,
    State, TransitionError, VerbsError,
};

/// Bytes of a page of doorbell registers.
const PAGE_BYTES: usize = 4096;
/// Retransmission timeout on the software HCA, 4.096 us · 2^17 = 0.5 s: the process behind it may wait for a core.
const SOFT_ACK_TIMEOUT: u8 = 17;

/// One QP to a peer.
#[derive(Debug)]
struct Link<S: State> {
    /// Its doorbell register as kernels reach it. Before the QP, which keeps the register.
    doorbell: MappedMmio,
    qp: Qp<S>,
    /// First packet number of this side.
    psn: u32,
}

/// All QPs of a rank.
#[derive(Debug)]
pub(super) struct Links {
    /// By peer; none for the rank itself.
    links: Vec<Vec<Link<Rts>>>,
}

/// What a rank tells of its QPs.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct LinksRecord {
    gid: [u8; 16],
    /// Code of the port's MTU.
    mtu: u32,
    /// By peer, then by number: QP number and first packet number.
    qps: Vec<Vec<(u32, u32)>>,
}

impl Links {
    /// Makes all QPs of this rank and connects them with those of the others. Returns when every rank can send.
    pub(super) fn connect(
        exchange: &Exchange,
        gpu: &dyn Gpu,
        pd: &Arc<Pd>,
        heap: &Arc<ControlHeap>,
        config: &TeamConfig,
    ) -> Result<Self, TeamError> {
        let context = pd.context();
        let mut made = Vec::new();
        for peer in 0..config.ranks {
            let count = if peer == config.rank {
                0
            } else {
                config.qps_per_peer
            };
            let links = (0..count).map(|_| make(gpu, pd, heap, config));
            made.push(links.collect::<Result<Vec<_>, TeamError>>()?);
        }
        let own = LinksRecord {
            gid: context.roce_v2_gid()?.gid.0,
            mtu: context.port().active_mtu as u32,
            qps: made
                .iter()
                .map(|links| links.iter().map(|link| (link.qp.qpn(), link.psn)).collect())
                .collect(),
        };
        let check = |rank, record: &LinksRecord| check_record(exchange, rank, record, config);
        let records = exchange.all_checked("links", &own, check)?;

        let send = SendAttr {
            timeout: config
                .ack_timeout
                .unwrap_or(match context.info().is_soft() {
                    true => SOFT_ACK_TIMEOUT,
                    false => SendAttr::new(0).timeout,
                }),
            ..SendAttr::new(0)
        };
        let mut links = Vec::new();
        for (links_to_peer, record) in made.into_iter().zip(&records) {
            let theirs = record.qps.get(config.rank as usize).into_iter().flatten();
            let pairs = links_to_peer.into_iter().zip(theirs);
            let mtu = Mtu::from_code(record.mtu.min(own.mtu));
            let ready = pairs.map(|(link, &(qpn, psn))| {
                let path = PathAttr {
                    mtu,
                    ..PathAttr::new(qpn, Gid(record.gid), psn)
                };
                ready(link, &path, &send)
            });
            links.push(ready.collect::<Result<Vec<_>, VerbsError>>()?);
        }
        exchange.barrier("connected")?;
        Ok(Self { links })
    }

    /// Device addresses of the contexts: `[peer][qps_per_peer]`, 0 where there is no QP.
    pub(super) fn contexts(&self, config: &TeamConfig) -> Vec<u64> {
        let each = config.qps_per_peer as usize;
        let row = |links: &Vec<Link<Rts>>| {
            let mut row: Vec<u64> = links
                .iter()
                .map(|link| link.qp.layout().context_addr)
                .collect();
            row.resize(each, 0);
            row
        };
        self.links.iter().flat_map(row).collect()
    }

    /// Every QP.
    pub(super) fn qps(&self) -> impl Iterator<Item = &Qp<Rts>> {
        self.links.iter().flatten().map(|link| &link.qp)
    }
}

/// A QP in Init, with its memory filled in.
fn make(
    gpu: &dyn Gpu,
    pd: &Arc<Pd>,
    heap: &Arc<ControlHeap>,
    config: &TeamConfig,
) -> Result<Link<Init>, TeamError> {
    let shape = QpConfig {
        log_depth: config.log_depth,
        ..QpConfig::default()
    };
    let qp: Qp<Reset> = Qp::create(pd, heap, &shape)?;
    let layout = *qp.layout();
    let page = usize::try_from(layout.doorbell_page_addr).expect("a host address");
    let page = std::ptr::with_exposed_provenance_mut(page);
    let doorbell = gpu.map_mmio(page, PAGE_BYTES)?;
    let image = ImageAttr {
        doorbell: doorbell.addr() + (layout.doorbell_addr - layout.doorbell_page_addr),
        atomic_sink: 0,
        atomic_sink_lkey: 0,
        generation: 0,
        base: 0,
    };
    for part in layout.image(&image) {
        gpu.write(part.addr, &part.bytes)?;
    }
    Ok(Link {
        doorbell,
        qp: moved(qp.init())?,
        psn: fastrand::u32(..1 << 24),
    })
}

fn ready(link: Link<Init>, path: &PathAttr, send: &SendAttr) -> Result<Link<Rts>, VerbsError> {
    let qp = moved(link.qp.ready_to_receive(path))?;
    let send = SendAttr {
        psn: link.psn,
        ..*send
    };
    Ok(Link {
        doorbell: link.doorbell,
        qp: moved(qp.ready_to_send(&send))?,
        psn: link.psn,
    })
}

/// The QP in its new state; one that did not move is destroyed.
fn moved<S: State, T: State>(
    result: Result<Qp<T>, Box<TransitionError<S>>>,
) -> Result<Qp<T>, VerbsError> {
    result.map_err(|stuck| stuck.source)
}

/// What comes out of the store is checked before it is used; numbers and GID by the transitions.
fn check_record(
    exchange: &Exchange,
    rank: u32,
    record: &LinksRecord,
    config: &TeamConfig,
) -> Result<(), TeamError> {
    let refuse = |reason: String| Err(exchange.record(rank, "links", &reason));
    if record.qps.len() != config.ranks as usize {
        return refuse(format!(
            "{} peers; the team has {}",
            record.qps.len(),
            config.ranks
        ));
    }
    for (peer, qps) in (0u32..).zip(&record.qps) {
        let wanted = if peer == rank {
            0
        } else {
            config.qps_per_peer as usize
        };
        if qps.len() != wanted {
            return refuse(format!(
                "{} QPs to rank {peer}; it must be {wanted}",
                qps.len()
            ));
        }
    }
    if Mtu::from_code(record.mtu).is_none() {
        return refuse(format!("MTU code {}; it must be 1 to 5", record.mtu));
    }
    Ok(())
}
