//! The state of one HCA: contexts, objects, counters and faults.

use crate::device::check::Checker;
use crate::device::check::flight::Flight;
use crate::device::counts::{Counters, ObjectCounts};
use crate::device::executor::execution::Execution;
use crate::device::faults::{Faults, Strike, ends_something};
use crate::device::memory::keys::{KeyUser, Kind, MemoryKey, Umem};
use crate::device::memory::pending_writes::{Arrival, DataOrder, PendingWrites};
use crate::device::memory::{Access, KeyError, Region, keys, regions};
use crate::device::objects::cq::Cq;
use crate::device::objects::qp::Qp;
use crate::device::objects::srq::Srq;
use crate::device::objects::uar::{Uar, UarSpace};
use crate::device::objects::watch::Watch;
use crate::device::objects::xrcd::Xrcd;
use crate::device::table::Table;
use crate::device::{DeviceError, Event, EventSupport, HcaConfig, limits};
use crate::sysfs::{Identity, MAX_PORTS, PortIdentity};
use file_memory::Gone;
use gpuhca_abi::KEYS;
use mlx5_prm::cmd::Opcode;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The state of one HCA: contexts, objects, counters and faults.
pub(crate) struct HcaState {
    pub(crate) number: usize,
    pub(crate) identity: Identity,
    /// True if a WQE runs only after its doorbell.
    pub(crate) strict: bool,
    /// The executor of the WQEs of this HCA.
    pub(crate) execution: Execution,
    /// True if QPs towards HCAs of this process send no packets, if the other HCA wants that, too.
    pub(crate) loopback: bool,
    /// Random numbers that draw the order of work; None: round-robin.
    pub(crate) lottery: Option<fastrand::Rng>,
    /// True if the owner's handle is gone.
    pub(crate) orphan: bool,
    pub(crate) contexts: Table<ContextState>,
    /// Protection domains, each with the context that it belongs to.
    pub(crate) pds: Table<u32>,
    pub(crate) keys: Table<MemoryKey>,
    pub(crate) umems: Table<Umem>,
    pub(crate) uars: Table<Uar>,
    pub(crate) cqs: Table<Cq>,
    pub(crate) qps: Table<Qp>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) xrcds: Table<Xrcd>,
    /// Low byte of the last key.
    pub(crate) variant: u8,
    pub(crate) counters: Counters,
    pub(crate) checker: Checker,
    pub(crate) faults: Faults,
    /// Inputs of the commands that were executed, if the owner has asked for a recording.
    pub(crate) recorded: Option<Vec<Vec<u8>>>,
    /// The promised order of data. `order_force`: whether a QP can ask for data in order.
    pub(crate) order: DataOrder,
    pub(crate) order_force: bool,
    /// log2 of the most bytes of a memory region.
    pub(crate) log_max_mr: u8,
    /// Options of enhanced connection establishment (ECE) that QPs have.
    pub(crate) ece: u32,
    /// Number of counter sets that the device says it has. None of them can be had.
    pub(crate) counter_sets: u32,
    /// The events to which programs may subscribe.
    pub(crate) told: EventSupport,
    /// Bytes that peers have written and that memory has not got yet.
    pub(crate) pending_writes: PendingWrites,
    /// QPs with work, the next first.
    pub(crate) ready: VecDeque<u32>,
    /// The time of the engine's present turn or of the last call.
    pub(crate) now_ns: u64,
    /// The time until which the engine leaves this HCA alone.
    pub(crate) paused_until_ns: u64,
    /// Operations under way that change remote bytes, if the checker looks for overlaps.
    pub(crate) flights: Vec<Flight>,
    /// The time of the next look for doorbell records that have moved without a doorbell. `scan_pending` says that the last look found such
    /// a record.
    pub(crate) next_scan_ns: u64,
    pub(crate) scan_pending: bool,
    /// True if there are faults of packets.
    pub(crate) faulty_packets: bool,
    /// For each port, true if the port is down, so that it neither sends nor receives packets.
    pub(crate) ports_down: [bool; MAX_PORTS as usize],
    /// True if the device has failed for good.
    pub(crate) dead: bool,
    /// Events to deliver, with the context that gets them.
    pub(crate) events: Vec<(u32, Event)>,
    /// QPs whose operation waits for its peer, each with the end of its wait.
    pub(crate) stalled: Vec<(u64, u32)>,
    /// CQs whose event is held back, each with the time at which it is due.
    pub(crate) moderated: Vec<(u64, u32)>,
    /// True if the engine has written something that software may wait for: a completion or bytes of a peer.
    pub(crate) news: bool,
    /// Scratch of the engine: the local memory of an operation.
    pub(crate) pieces: Vec<Region>,
    /// Scratch of the engine: the memory that a peer's operation names.
    pub(crate) granted: Vec<Region>,
    /// Scratch of the engine: the WQE just fetched.
    pub(crate) wqe: Box<[u8; limits::WQE_BYTES as usize]>,
    /// Scratch of the engine: doorbells just taken (page, register, value).
    pub(crate) rung: Vec<(u32, usize, u64)>,
    /// The choice of UAR pages that the engine looks at.
    pub(crate) watch: Watch,
}

/// An opened device.
pub(crate) struct ContextState {
    pub(crate) space: Arc<UarSpace>,
    /// The pages of the space that are in use.
    pub(crate) pages: Table<()>,
    pub(crate) handler: Option<Arc<dyn Fn(Event) + Send + Sync>>,
    pub(crate) event_fds: usize,
}

impl HcaState {
    pub(crate) fn new(number: usize, identity: Identity, config: &HcaConfig) -> Self {
        // Each HCA has its own range of numbers. So a number that is used with the wrong HCA names no object there.
        let lane = u32::from(identity.first().ip).wrapping_mul(0x9e37_79b1) >> 25 << 16;
        let checker = Checker::new(&identity.name, &config.check);
        let keys = match config.execution {
            Execution::Engine => 1 << limits::LOG_KEYS,
            Execution::External => KEYS as usize,
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

    /// Appends to `out` the memory that `key` gives `user`, piece by piece.
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

    /// Returns the promised order of the data of QP `qpn`.
    pub(crate) fn order_of(&self, qpn: u32) -> DataOrder {
        let asks = |qp: &Qp| qp.qpc.dp_ordering_force() != 0 && qp.qpc.dp_ordering_1() == 0;
        if self.order_force && self.qps.get(qpn).is_some_and(asks) {
            DataOrder::InOrder
        } else {
            self.order
        }
    }

    /// Takes bytes that a peer writes by way of QP `qpn` and `rkey`. The adversary decides when they are placed.
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

    /// Puts a QP into the list of QPs with work.
    pub(crate) fn schedule(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && !qp.send.scheduled
        {
            qp.send.scheduled = true;
            self.ready.push_back(qpn);
        }
    }

    /// Returns the low byte for a new key.
    pub(crate) fn next_variant(&mut self) -> u8 {
        self.variant = self.variant.wrapping_add(1);
        self.variant
    }

    /// Makes the checker forget a QP that is gone or was reset.
    pub(crate) fn forget_qp(&mut self, qpn: u32) {
        self.checker.forget(qpn);
        self.flights.retain(|flight| flight.qpn != qpn);
    }

    /// Returns whether `bytes` is more than a memory region may have.
    pub(crate) fn is_over_long(&self, bytes: u64) -> bool {
        1u64.checked_shl(self.log_max_mr.into())
            .is_some_and(|most| bytes > most)
    }

    /// Ends a memory key, by its index.
    pub(crate) fn end_key(&mut self, index: u32) {
        if let Some(ended) = self.keys.remove(index) {
            let key = index << 8 | u32::from(ended.variant);
            self.checker
                .key_ended(key, ended.iova, ended.bytes, self.now_ns);
        }
    }

    /// Notes an event for context `context`.
    pub(crate) fn raise(&mut self, context: u32, event: Event) {
        self.events.push((context, event));
    }

    /// Returns the port of a QP; the first port if no such QP exists.
    pub(crate) fn port_of(&self, qpn: u32) -> &PortIdentity {
        let qp = self.qps.get(qpn);
        qp.map_or(self.identity.first(), |qp| self.identity.port_of(&qp.qpc))
    }

    /// Returns whether a port is down.
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

impl HcaState {
    /// Makes the engine leave this HCA alone for `time`.
    pub(in crate::device) fn freeze(&mut self, now_ns: u64, time: Duration) {
        let time = time.as_nanos().try_into().unwrap_or(u64::MAX);
        self.paused_until_ns = now_ns.saturating_add(time);
    }

    /// Returns whether QPs towards HCAs of this process need no packets.
    pub(crate) fn uses_memory(&self) -> bool {
        self.loopback && !self.faulty_packets
    }

    /// Counts a call that the kernel turns into a command. Returns the failure that a fault asks for, if one does.
    pub(crate) fn strike(&mut self, opcode: Opcode) -> Result<(), DeviceError> {
        if self.dead && !ends_something(opcode) {
            return Err(DeviceError::Dead { opcode });
        }
        match self.faults.strike(opcode) {
            None => Ok(()),
            Some(Strike::NoMemory) => Err(DeviceError::NoMemory { opcode }),
            Some(Strike::Refused(status, syndrome)) => Err(DeviceError::Failed {
                opcode,
                status,
                syndrome,
            }),
        }
    }
}
