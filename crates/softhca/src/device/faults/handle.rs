//! How the owner of an HCA makes things go wrong.

use super::super::state::{HcaState, Slot};
use super::super::{DeviceError, Event};
use super::{CommandFault, FailCommand, FaultSpec, Strike, TimedFault, ends_something};
use crate::device::hca::Hca;
use crate::device::hca::world::World;
use crate::engine;
use crate::wire::faults::{FaultCounts, FaultLayer, Recorded};
use crate::wire::icrc::{Flow, ICRC_BYTES};
use crate::wire::port::Port;
use crate::wire::psn::Psn;
use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::QpState;
use std::time::Duration;
use thiserror::Error;

/// A packet that cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Nothing can expect the packet.
    #[error("QP {qpn:#x} does not receive packets")]
    NotReceiving {
        /// The QP.
        qpn: u32,
    },
    /// It has no room for a BTH and an ICRC.
    #[error("a packet of {bytes} bytes is shorter than the {limit} of header and ICRC")]
    Short {
        /// Its length.
        bytes: usize,
        /// The shortest.
        limit: usize,
    },
}

impl Hca {
    /// From now on these faults happen, in place of those of an earlier spec. Those of packets concern QPs that are
    /// connected from now on: they send packets even to HCAs of the same process.
    pub fn set_faults(&self, spec: &FaultSpec) {
        self.with_time(|slot, now_ns| slot.set_faults(spec, now_ns));
        engine::kick();
    }

    /// What has happened to packets so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.with_time(|slot, _| {
            let layers = slot.wires.iter().filter_map(Port::faults_if_any);
            layers.map(FaultLayer::counts).sum()
        })
    }

    /// Lets a command fail that is still to come. Failures asked for earlier stay.
    pub fn fail_command(&self, fault: FailCommand) {
        self.fail(fault.into());
    }

    /// Takes down the inputs of commands from now on, at most 4,096 of them.
    pub fn record_commands(&self) {
        self.with_time(|slot, _| slot.state.recorded = Some(Vec::new()));
    }

    /// The inputs of all commands since [`Self::record_commands`], which ends with this.
    #[must_use]
    pub fn recorded_commands(&self) -> Vec<Vec<u8>> {
        self.with_time(|slot, _| slot.state.recorded.take().unwrap_or_default())
    }

    /// [`Self::fail_command`], with other ways to fail.
    pub fn fail(&self, fault: CommandFault) {
        self.with_time(|slot, _| slot.state.faults.add(fault));
    }

    /// The engine ignores this HCA for so long: doorbells stay where they are, packets in the socket. A further call replaces
    /// what is left; [`Duration::ZERO`] ends it.
    pub fn pause(&self, duration: Duration) {
        self.with_time(|slot, now_ns| {
            slot.state.freeze(now_ns, duration);
            slot.state.now_ns = now_ns;
        });
        self.write_through();
        engine::kick();
    }

    /// Takes port 1 down or brings it up. While it is down no packets pass, and QPs towards it find it silent.
    pub fn set_port(&self, up: bool) {
        self.set_port_of(1, up);
    }

    /// The same with a port of this number. Nothing happens to one that the HCA does not have.
    pub fn set_port_of(&self, port: u8, up: bool) {
        self.with_time(|slot, _| slot.set_port(port, up));
        self.write_through();
        engine::kick();
    }

    /// The device fails for good: no more completions, and of the commands only those that end objects succeed.
    pub fn die(&self) {
        self.with_time(|slot, _| slot.die());
        self.write_through();
        engine::kick();
    }

    /// Keeps copies of the packets that arrive for `qpn` from now on, up to 4096, and forgets those kept before; `None` keeps
    /// no more. Packets that this process brings from memory to memory are none.
    pub fn record_packets(&self, qpn: Option<u32>) {
        self.with_time(|slot, _| {
            for wire in &mut slot.wires {
                wire.faults().record(qpn);
            }
        });
    }

    /// The packets that were kept.
    #[must_use]
    pub fn recorded_packets(&self) -> Vec<Recorded> {
        self.with_time(|slot, _| {
            let layers = slot.wires.iter().filter_map(Port::faults_if_any);
            layers.flat_map(FaultLayer::recorded).cloned().collect()
        })
    }

    /// Lets a recorded packet arrive again, changed so that it is for `qpn` and has the number that `qpn` expects next, with a
    /// right ICRC. Such a packet is left of an earlier connection and meets a new one of the same place.
    ///
    /// # Errors
    ///
    /// See [`ReplayError`].
    pub fn replay_packet(&self, packet: &Recorded, qpn: u32) -> Result<(), ReplayError> {
        self.with_time(|slot, now_ns| {
            let own = slot.state.port_of(qpn).ip;
            let wire = slot.wire_of(qpn).0;
            let expected = wire
                .endpoint()
                .expected_psn(qpn)
                .ok_or(ReplayError::NotReceiving { qpn })?;
            let flow = Flow::inbound(&packet.source, own);
            let again = Recorded {
                source: packet.source,
                bytes: readdressed(&packet.bytes, qpn, expected, &flow)?,
            };
            wire.faults().inject(now_ns, &again);
            Ok(())
        })?;
        engine::kick();
        Ok(())
    }
}

/// The packet for another QP and with another number.
fn readdressed(packet: &[u8], qpn: u32, psn: Psn, flow: &Flow) -> Result<Vec<u8>, ReplayError> {
    /// BTH and ICRC.
    const LEAST: usize = 12 + ICRC_BYTES;
    let mut bytes = packet.to_vec();
    let length = bytes.len();
    let short = ReplayError::Short {
        bytes: length,
        limit: LEAST,
    };
    if length < LEAST {
        return Err(short);
    }
    bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&psn.value().to_be_bytes()[1..]);
    let (covered, icrc) = bytes.split_last_chunk_mut::<ICRC_BYTES>().ok_or(short)?;
    *icrc = flow.icrc(covered).to_le_bytes();
    Ok(bytes)
}

/// [`Hca::set_faults`] for every HCA of the process.
pub(crate) fn set_faults_of_all(spec: &FaultSpec) {
    let mut fabric = World::of_process().lock();
    let now_ns = fabric.clock.now_ns();
    for slot in fabric.hcas.iter_mut().flatten() {
        slot.set_faults(spec, now_ns);
    }
    drop(fabric);
    engine::kick();
}

impl Slot {
    /// See [`Hca::set_faults`].
    pub(crate) fn set_faults(&mut self, spec: &FaultSpec, now_ns: u64) {
        self.state.faults.set(spec, now_ns);
        self.state.faulty_packets = !spec.packets.is_empty();
        for (wire, port) in self.wires.iter_mut().zip(self.state.identity.ports()) {
            if self.state.faulty_packets || wire.faults_if_any().is_some() {
                // Ports with the same spec have different luck.
                let seed = spec.seed ^ u64::from(u32::from(port.ip)) << 32;
                wire.faults().set(seed, &spec.packets, now_ns);
            }
        }
        // Faults that are due at once take effect before any other call.
        self.on_clock(now_ns);
    }

    /// Whatever time has brought.
    pub(crate) fn on_clock(&mut self, now_ns: u64) {
        while let Some(fault) = self.state.faults.due_event(now_ns) {
            match fault {
                TimedFault::PortDown(port) => self.set_port(port, false),
                TimedFault::PortUp(port) => self.set_port(port, true),
                TimedFault::Freeze(time) => self.state.freeze(now_ns, time),
                TimedFault::Fatal => self.die(),
            }
        }
    }

    /// A port goes down or comes up; each program that has the device open gets an event.
    pub(crate) fn set_port(&mut self, port: u8, up: bool) {
        let place = usize::from(port).wrapping_sub(1);
        let Some(wire) = self.wires.get_mut(place) else {
            return;
        };
        if self.state.is_down(port) != up || self.state.dead {
            return;
        }
        self.state.ports_down[place] = !up;
        wire.faults().set_down(!up);
        self.state.raise_for_all(if up {
            Event::PortActive(port)
        } else {
            Event::PortDown(port)
        });
    }

    /// The device fails for good: QPs stop without a word, commands fail, and each program that has it open gets an event.
    pub(crate) fn die(&mut self) {
        let hca = &mut self.state;
        if hca.dead {
            return;
        }
        hca.dead = true;
        hca.ports_down.fill(true);
        for wire in &mut self.wires {
            wire.faults().set_down(true);
        }
        for qpn in hca.qps.numbers(|_| true) {
            if let Some(qp) = hca.qps.get_mut(qpn) {
                qp.state = QpState::ERR;
                qp.wire_must_fail = true;
            }
            hca.schedule(qpn);
        }
        hca.raise_for_all(Event::DeviceFatal);
    }
}

impl HcaState {
    /// The engine leaves it alone for so long.
    fn freeze(&mut self, now_ns: u64, time: Duration) {
        let time = time.as_nanos().try_into().unwrap_or(u64::MAX);
        self.paused_until_ns = now_ns.saturating_add(time);
    }

    /// QPs towards HCAs of this process need no packets.
    pub(crate) fn uses_memory(&self) -> bool {
        self.loopback && !self.faulty_packets
    }

    /// A failure that was asked for, of a call that the kernel turns into a command.
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
