//! HCAs that can reach each other by memory, as one value.

use super::tables::Tables;
use crate::clock::Clock;
use crate::device::counts::{Counters, PortCounters};
use crate::device::objects::work::Work;
use crate::device::state::hca::HcaState;
use crate::wire::endpoint::Endpoint;
use crate::wire::port::Port;
use std::fmt;
use std::net::Ipv4Addr;

/// All HCAs of a world. The process has one fabric, and each [simulation](crate::device::Simulation) has its own.
#[derive(Debug)]
pub(crate) struct Fabric {
    /// The HCAs by number: the N of mlx5_N. A removed HCA leaves its place empty.
    pub(crate) hcas: Vec<Option<Slot>>,
    pub(crate) clock: Clock,
    /// The tables of the executor of external HCAs, while one is attached.
    pub(super) external: Option<Tables>,
    /// The engine, as commands call it.
    pub(crate) engine: &'static dyn Engine,
}

/// The requests of commands to the engine.
pub(crate) trait Engine: fmt::Debug + Sync {
    /// Takes all doorbells of an HCA that programs have stored.
    fn take_doorbells(&self, hca: &mut HcaState);

    /// Moves a QP to the error state and flushes what it has outstanding.
    fn fail(&self, slot: &mut Slot, qpn: u32);
}

/// An HCA and its wires. The two are separate because a wire works on the HCA.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: HcaState,
    /// The wires of the ports, from port 1 on.
    pub(crate) wires: Vec<Port<Work>>,
}

impl Fabric {
    pub(crate) const fn new(clock: Clock, engine: &'static dyn Engine) -> Self {
        Self {
            hcas: Vec::new(),
            clock,
            external: None,
            engine,
        }
    }

    pub(crate) fn slot(&mut self, number: usize) -> Option<&mut Slot> {
        self.hcas.get_mut(number)?.as_mut()
    }

    pub(crate) fn hca(&mut self, number: usize) -> Option<&mut HcaState> {
        Some(&mut self.slot(number)?.state)
    }

    /// Returns the number of the HCA of this world that has the address.
    pub(crate) fn by_address(&self, ip: Ipv4Addr) -> Option<usize> {
        self.all()
            .find(|slot| slot.state.identity.has(ip))
            .map(|slot| slot.state.number)
    }

    /// Returns the HCA that has this name and an owner.
    pub(crate) fn by_name(&self, name: &str) -> Option<&Slot> {
        self.all()
            .find(|slot| slot.state.identity.name == name && !slot.state.orphan)
    }

    /// Places all pending writes of peers. This comes before a look from outside, and before their destination ends.
    pub(crate) fn settle(&mut self) {
        for slot in self.hcas.iter_mut().flatten() {
            slot.state.pending_writes.force_all();
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.hcas.iter().flatten()
    }

    /// Removes an HCA whose owner has dropped its handle, once no program has it open.
    pub(crate) fn sweep(&mut self, number: usize) {
        if let Some(slot) = self.hcas.get_mut(number)
            && slot
                .as_ref()
                .is_some_and(|slot| slot.state.orphan && slot.state.contexts.len() == 0)
        {
            *slot = None;
            // The objects of the HCA ended with its contexts. Only its part of the tables is left.
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

    /// Returns the counters of a port, if the HCA has the port.
    pub(crate) fn port_counters(&self, port: u8) -> Option<PortCounters> {
        let place = usize::from(port).checked_sub(1)?;
        Some(PortCounters {
            is_down: self.state.is_down(port),
            wqes: *self.state.counters.wqes_by_port.get(place)?,
            lids: self.wires.get(place)?.lids().to_vec(),
            wire: self.wires.get(place)?.counters(),
        })
    }

    /// Returns the wire of the port of a QP, and the HCA that the wire works on.
    pub(crate) fn wire_of(&mut self, qpn: u32) -> (&mut Port<Work>, &mut HcaState) {
        let port = self.state.port_of(qpn).number;
        let place = usize::from(port) - 1;
        (&mut self.wires[place], &mut self.state)
    }

    /// Returns the wire's endpoint, which holds the QPs, for the port of a QP.
    pub(crate) fn endpoint_of(&mut self, qpn: u32) -> &mut Endpoint<Work> {
        self.wire_of(qpn).0.endpoint()
    }
}
