//! The state of HCAs that can reach each other by memory, as one value, and of each of them.

use super::checker::Checker;
use super::external;
use super::external::{Execution, Tables};
use super::faults::Faults;
use super::for_judges::srq::Srq;
use super::for_judges::xrcd::Xrcd;
use super::hca::{Counters, ObjectCounts, PortCounters};
use super::memory::Region;
use super::memory::keys::{self, Access, KeyError, KeyUser, Kind, MemoryKey, Umem};
use super::memory::pending_writes::{Arrival, DataOrder, PendingWrites};
use super::memory::regions;
use super::objects::cq::Cq;
use super::objects::qp::Qp;
use super::objects::table::Table;
use super::objects::uar::{MappedPage, UarSpace};
use super::objects::work::Work;
use super::{Event, EventSupport, HcaConfig};
use crate::engine;
use crate::engine::intake::watch::Watch;
use crate::engine::send::overlap::Flight;
use crate::sysfs::{Identity, MAX_PORTS, PortIdentity};
use crate::wire::endpoint::Endpoint;
use crate::wire::port::Port;
use file_memory::Gone;
use std::collections::VecDeque;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// What the device can hold. `QUERY_HCA_CAP` says so.
pub(crate) mod limits {
    pub(crate) const LOG_QPS: u32 = 15;
    pub(crate) const LOG_CQS: u32 = 15;
    pub(crate) const LOG_KEYS: u32 = 16;
    /// log2 of entries of an indirect key's list.
    pub(crate) const LOG_KEY_LIST: u32 = 16;
    pub(crate) const LOG_PDS: u32 = 15;
    pub(crate) const LOG_UMEMS: u32 = 16;
    pub(crate) const CONTEXTS: usize = 1024;
    /// log2 of WQEBBs of a send queue and of WQEs of a receive queue.
    pub(crate) const LOG_QUEUE: u32 = 15;
    /// log2 of 16-byte units of a receive WQE: 512 bytes.
    pub(crate) const LOG_RQ_STRIDE: u32 = 5;
    pub(crate) const LOG_CQ_ENTRIES: u32 = 22;
    /// log2 of shared receive queues, of either kind.
    pub(crate) const LOG_SRQS: u32 = 15;
    /// log2 of 16-byte units of a WQE of a shared receive queue: 1024 bytes.
    pub(crate) const LOG_SRQ_STRIDE: u32 = 6;
    pub(crate) const LOG_XRCDS: u32 = 10;
    /// Largest send WQE: 63 units of 16 bytes, rounded up to whole WQEBBs.
    pub(crate) const WQE_BYTES: u32 = 1024;
    /// log2 of the largest message.
    pub(crate) const LOG_MESSAGE: u32 = 30;
    /// log2 of outstanding reads and atomics.
    pub(crate) const LOG_READS: u32 = 4;
    /// Completion vectors; vector v has event queue `FIRST_EQN + v`.
    pub(crate) const COMPLETION_VECTORS: u32 = 4;
    pub(crate) const FIRST_EQN: u32 = 1;
}

/// Everything. The process has one, and each [simulation](super::Simulation) one of its own.
#[derive(Debug)]
pub(crate) struct Fabric {
    /// By number: the N of mlx5_N. A removed one leaves its place empty.
    pub(crate) hcas: Vec<Option<Slot>>,
    pub(crate) clock: Clock,
    /// What the executor of external HCAs knows.
    pub(crate) external: Tables,
}

/// Where the time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// CLOCK_MONOTONIC.
    Real,
    /// It stands still until a test moves it.
    Virtual(u64),
}

impl Clock {
    pub(crate) fn now_ns(self) -> u64 {
        match self {
            Self::Real => engine::now_ns(),
            Self::Virtual(now_ns) => now_ns,
        }
    }
}

/// An HCA and its wires. Apart, since a wire works on the HCA.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: HcaState,
    /// By port, from port 1 on.
    pub(crate) wires: Vec<Port<Work>>,
}

impl Fabric {
    pub(crate) const fn new(clock: Clock) -> Self {
        Self {
            hcas: Vec::new(),
            clock,
            external: Tables::new(),
        }
    }

    pub(crate) fn slot(&mut self, number: usize) -> Option<&mut Slot> {
        self.hcas.get_mut(number)?.as_mut()
    }

    pub(crate) fn hca(&mut self, number: usize) -> Option<&mut HcaState> {
        Some(&mut self.slot(number)?.state)
    }

    /// The HCA of this process that has the address.
    pub(crate) fn by_address(&self, ip: Ipv4Addr) -> Option<usize> {
        self.all()
            .find(|slot| slot.state.identity.has(ip))
            .map(|slot| slot.state.number)
    }

    /// The HCA of this name that has an owner.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Slot> {
        self.all()
            .find(|slot| slot.state.identity.name == name && !slot.state.orphan)
    }

    /// Places the writes of peers, before a look from outside, or before their destination ends.
    pub(crate) fn settle(&mut self) {
        for slot in self.hcas.iter_mut().flatten() {
            slot.state.pending_writes.force_all();
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.hcas.iter().flatten()
    }

    /// Removes an HCA whose owner has let go, once no program has it open.
    pub(crate) fn sweep(&mut self, number: usize) {
        if let Some(slot) = self.hcas.get_mut(number)
            && slot
                .as_ref()
                .is_some_and(|slot| slot.state.orphan && slot.state.contexts.len() == 0)
        {
            *slot = None;
            // Its objects ended with its contexts; only its part of the tables is left.
            let _ = self.write_through(number);
        }
    }
}

impl Slot {
    pub(crate) fn counters(&self) -> Counters {
        let mut counters = Counters {
            findings: self.state.checker.total(),
            ..self.state.counters
        };
        for wire in self.wires.iter().map(Port::counters) {
            counters.packets_sent += wire.packets_sent;
            counters.packets_received += wire.packets_received;
            counters.retransmissions += wire.retransmissions;
            counters.duplicates += wire.duplicates;
        }
        counters
    }

    /// Counters of a port, if the HCA has it.
    pub(crate) fn port_counters(&self, port: u8) -> Option<PortCounters> {
        let place = usize::from(port).checked_sub(1)?;
        Some(PortCounters {
            is_down: self.state.is_down(port),
            wqes: *self.state.counters.wqes_by_port.get(place)?,
            lids: self.wires.get(place)?.lids().to_vec(),
            wire: self.wires.get(place)?.counters(),
        })
    }

    /// The wire of the port that a QP is for, and the HCA that the wire works on.
    pub(crate) fn wire_of(&mut self, qpn: u32) -> (&mut Port<Work>, &mut HcaState) {
        let port = self.state.port_of(qpn).number;
        let place = usize::from(port) - 1;
        (&mut self.wires[place], &mut self.state)
    }

    /// The QPs of the wire of the port that a QP is for.
    pub(crate) fn endpoint_of(&mut self, qpn: u32) -> &mut Endpoint<Work> {
        self.wire_of(qpn).0.endpoint()
    }
}

/// The state of one HCA: contexts, objects, counters and faults.
pub(crate) struct HcaState {
    pub(crate) number: usize,
    pub(crate) identity: Identity,
    /// A WQE runs only after its doorbell.
    pub(crate) strict: bool,
    /// The executor of its WQEs.
    pub(crate) execution: Execution,
    /// QPs towards HCAs of this process that want it, too, send no packets.
    pub(crate) loopback: bool,
    /// Order of work is drawn by lot.
    pub(crate) lottery: Option<fastrand::Rng>,
    /// The owner's handle is gone.
    pub(crate) orphan: bool,
    pub(crate) contexts: Table<ContextState>,
    /// Protection domains: the context that each belongs to.
    pub(crate) pds: Table<u32>,
    pub(crate) keys: Table<MemoryKey>,
    pub(crate) umems: Table<Umem>,
    pub(crate) uars: Table<Uar>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) xrcds: Table<Xrcd>,
    /// Low byte of the next key.
    pub(crate) variant: u8,
    pub(crate) counters: Counters,
    pub(crate) checker: Checker,
    pub(crate) faults: Faults,
    /// Inputs of the commands that were executed, if a judge wants them.
    pub(crate) recorded: Option<Vec<Vec<u8>>>,
    /// What it promises about the order of data, and whether a QP can ask for more.
    pub(crate) order: DataOrder,
    pub(crate) order_force: bool,
    /// log2 of the most bytes of a memory region.
    pub(crate) log_max_mr: u8,
    /// Options of enhanced connection establishment.
    pub(crate) ece: u32,
    /// Counter sets that programs are to believe in.
    pub(crate) counter_sets: u32,
    /// Which events programs may subscribe to.
    pub(crate) told: EventSupport,
    /// What peers have written and memory has not got yet.
    pub(crate) pending_writes: PendingWrites,
    /// QPs with work, next first.
    pub(crate) ready: VecDeque<u32>,
    /// The time of the engine's turn.
    pub(crate) now_ns: u64,
    /// The engine leaves this HCA alone until then.
    pub(crate) paused_until_ns: u64,
    /// Operations under way that change remote bytes, if the checker wants to know.
    pub(crate) flights: Vec<Flight>,
    /// When doorbell records are looked at next that no doorbell came for, and whether one of them is.
    pub(crate) next_scan_ns: u64,
    pub(crate) scan_pending: bool,
    /// Packets to be sent meet faults.
    pub(crate) faulty_packets: bool,
    /// Ports that are down: packets are neither sent nor received.
    pub(crate) ports_down: [bool; MAX_PORTS as usize],
    /// The device has failed for good.
    pub(crate) dead: bool,
    /// Events to deliver, with the context that gets them.
    pub(crate) events: Vec<(u32, Event)>,
    /// QPs whose operation waits for its peer, and until when.
    pub(crate) stalled: Vec<(u64, u32)>,
    /// CQs whose event is held back, and until when.
    pub(crate) moderated: Vec<(u64, u32)>,
    /// Software may have something new to see: a completion or bytes of a peer.
    pub(crate) news: bool,
    /// Scratch of the engine: local memory of an operation.
    pub(crate) pieces: Vec<Region>,
    /// Scratch of the engine: memory that a peer's operation names.
    pub(crate) granted: Vec<Region>,
    /// Scratch of the engine: the WQE just fetched.
    pub(crate) wqe: Box<[u8; limits::WQE_BYTES as usize]>,
    /// Scratch of the engine: doorbells just taken (page, register, value).
    pub(crate) rung: Vec<(u32, usize, u64)>,
    /// Which UAR pages the engine looks at.
    pub(crate) watch: Watch,
}

/// An opened device.
pub(crate) struct ContextState {
    pub(crate) space: Arc<UarSpace>,
    /// Pages of the space: the UAR page id of each.
    pub(crate) pages: Table<()>,
    pub(crate) handler: Option<Arc<dyn Fn(Event) + Send + Sync>>,
    pub(crate) event_fds: usize,
}

/// A UAR page.
#[derive(Debug)]
pub(crate) struct Uar {
    pub(crate) context: u32,
    /// Which page of the context's space.
    pub(crate) index: u32,
    pub(crate) page: MappedPage,
    /// Completion queues that are armed through the page, and QPs that are rung through it.
    pub(crate) cqs: Vec<u32>,
    pub(crate) qps: Vec<UarUser>,
}

/// A QP that is rung through a UAR page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UarUser {
    pub(crate) qpn: u32,
    /// The register that it was last rung through; `None` before the first doorbell.
    pub(crate) register: Option<usize>,
}

impl HcaState {
    pub(crate) fn new(number: usize, identity: Identity, config: &HcaConfig) -> Self {
        // Each HCA has numbers of its own, so that a number taken to the wrong HCA names no object of it.
        let lane = u32::from(identity.first().ip).wrapping_mul(0x9e37_79b1) >> 25 << 16;
        let checker = Checker::new(&identity.name, &config.check);
        let keys = match config.execution {
            Execution::Engine => 1 << limits::LOG_KEYS,
            Execution::External => external::KEYS as usize,
        };
        Self {
            number,
            identity,
            strict: config.strict,
            execution: config.execution,
            loopback: config.loopback && config.pcap.is_none(),
            lottery: config
                .schedule_seed
                .map(|seed| fastrand::Rng::with_seed(seed ^ number as u64)),
            orphan: false,
            contexts: Table::new(1, limits::CONTEXTS),
            pds: Table::new(lane + 1, 1 << limits::LOG_PDS),
            keys: Table::new(lane + 0x100, keys),
            umems: Table::new(lane + 1, 1 << limits::LOG_UMEMS),
            uars: Table::new(1, UarSpace::PAGES),
            cqs: Table::new(lane + 0x400, 1 << limits::LOG_CQS),
            qps: Table::new(lane + 0x40, 1 << limits::LOG_QPS),
            srqs: Table::new(lane + 0x80, 1 << limits::LOG_SRQS),
            xrcds: Table::new(lane + 1, 1 << limits::LOG_XRCDS),
            variant: 0x11,
            counters: Counters::default(),
            checker,
            faults: Faults::default(),
            recorded: None,
            order: config.order,
            order_force: config.order_force,
            log_max_mr: config.log_max_mr,
            ece: config.ece,
            counter_sets: u32::from(config.counter_sets_are_taken),
            told: config.events,
            pending_writes: PendingWrites::new(config.adversary, number),
            ready: VecDeque::new(),
            now_ns: 0,
            paused_until_ns: 0,
            flights: Vec::new(),
            next_scan_ns: 0,
            scan_pending: false,
            faulty_packets: false,
            ports_down: [false; MAX_PORTS as usize],
            dead: false,
            events: Vec::new(),
            stalled: Vec::new(),
            moderated: Vec::new(),
            news: false,
            pieces: Vec::new(),
            granted: Vec::new(),
            wqe: Box::new([0; limits::WQE_BYTES as usize]),
            rung: Vec::new(),
            watch: Watch::default(),
        }
    }

    pub(crate) fn live(&self) -> ObjectCounts {
        let regions = self.keys.iter().filter(|(_, key)| key.kind == Kind::Region);
        let mr = regions.count();
        let windows = self.keys.iter().filter(|(_, key)| key.kind == Kind::Window);
        let mw = windows.count();
        ObjectCounts {
            context: self.contexts.len(),
            pd: self.pds.len(),
            mr,
            mw,
            mkey: self.keys.len() - mr - mw,
            umem: self.umems.len(),
            uar: self.uars.len(),
            cq: self.cqs.len(),
            qp: self.qps.len(),
            srq: self.srqs.len(),
            xrcd: self.xrcds.len(),
            eq: 0,
            event_fd: self.contexts.iter().map(|(_, open)| open.event_fds).sum(),
        }
    }

    /// The memory that `key` gives `user`, piece by piece, appended to `out`.
    pub(crate) fn resolve(
        &self,
        key: u32,
        user: KeyUser,
        va: u64,
        bytes: u64,
        need: Access,
        out: &mut Vec<Region>,
    ) -> Result<(), KeyError> {
        keys::resolve(&self.keys, key, user, va, bytes, need, out)
    }

    /// The promised order of the data of QP `qpn`.
    pub(crate) fn order_of(&self, qpn: u32) -> DataOrder {
        let asks = |qp: &Qp| qp.qpc.dp_ordering_force() != 0 && qp.qpc.dp_ordering_1() == 0;
        match self.order_force && self.qps.get(qpn).is_some_and(asks) {
            true => DataOrder::InOrder,
            false => self.order,
        }
    }

    /// Takes bytes that a peer writes by way of QP `qpn` and `rkey`: they are placed when the adversary likes.
    ///
    /// # Errors
    ///
    /// A page is gone already.
    pub(crate) fn accept(
        &mut self,
        qpn: u32,
        rkey: u32,
        targets: &[Region],
        data: Vec<u8>,
    ) -> Result<(), Gone> {
        regions::check(targets)?;
        let relaxed = keys::find(&self.keys, rkey)
            .is_ok_and(|key| key.access.covers(Access::RELAXED_ORDERING));
        let arrival = Arrival {
            targets: targets.to_vec(),
            data,
            relaxed,
        };
        let order = self.order_of(qpn);
        self.pending_writes.accept(qpn, order, arrival, self.now_ns);
        Ok(())
    }

    /// Puts a QP into the list of those with work.
    pub(crate) fn schedule(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !qp.send.scheduled
        {
            qp.send.scheduled = true;
            self.ready.push_back(qpn);
        }
    }

    /// Low byte of a new key.
    pub(crate) fn next_variant(&mut self) -> u8 {
        self.variant = self.variant.wrapping_add(1);
        self.variant
    }

    /// A QP is gone, or was reset: the checker forgets it.
    pub(crate) fn forget_qp(&mut self, qpn: u32) {
        self.checker.forget(qpn);
        self.flights.retain(|flight| flight.qpn != qpn);
    }

    /// Ends a memory key, by its index.
    /// Whether no memory region has so many bytes.
    pub(crate) fn is_over_long(&self, bytes: u64) -> bool {
        1u64.checked_shl(self.log_max_mr.into())
            .is_some_and(|most| bytes > most)
    }

    pub(crate) fn end_key(&mut self, index: u32) {
        if let Some(ended) = self.keys.remove(index) {
            let key = index << 8 | u32::from(ended.variant);
            self.checker
                .key_ended(key, ended.iova, ended.bytes, self.now_ns);
        }
    }

    /// Notes an event for the context of a QP.
    pub(crate) fn raise(&mut self, context: u32, event: Event) {
        self.events.push((context, event));
    }

    /// The port that a QP is for; the first if no such QP exists.
    pub(crate) fn port_of(&self, qpn: u32) -> &PortIdentity {
        let qp = self.qps.get(qpn);
        qp.map_or(self.identity.first(), |qp| self.identity.port_of(&qp.qpc))
    }

    /// Whether a port is down.
    pub(crate) fn is_down(&self, port: u8) -> bool {
        let place = usize::from(port).checked_sub(1);
        place
            .and_then(|place| self.ports_down.get(place))
            .is_some_and(|down| *down)
    }

    /// Notes an event for each program that has the device open.
    pub(crate) fn raise_for_all(&mut self, event: Event) {
        let contexts = self.contexts.iter().map(|(context, _)| (context, event));
        self.events.extend(contexts);
    }
}

impl fmt::Debug for HcaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcaState")
            .field("identity", &self.identity)
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextState")
            .field("space", &self.space)
            .field("event_fds", &self.event_fds)
            .finish_non_exhaustive()
    }
}
