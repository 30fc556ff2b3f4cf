//! Faults that the owner of an HCA asks for.

use crate::device::faults::{CommandFault, FailCommand, FaultSpec};
use crate::device::hca::Hca;
use crate::device::world::World;
use crate::engine;
use crate::wire::faults::{FaultCounts, FaultLayer, Recorded};
use crate::wire::icrc::{Flow, ICRC_BYTES};
use crate::wire::port::Port;
use crate::wire::psn::Psn;
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

    /// Returns what has happened to packets so far.
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

    /// Returns the inputs of all commands since [`Self::record_commands`], which ends with this.
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

    /// As `set_port`, with a port of this number. Nothing happens to one that the HCA does not have.
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

    /// Returns the packets that were kept.
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

/// Returns the packet for another QP and with another number.
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
