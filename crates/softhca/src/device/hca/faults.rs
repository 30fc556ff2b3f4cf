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

/// The reason why a packet cannot be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The QP does not receive packets, so it cannot expect this one.
    #[error("QP {qpn:#x} does not receive packets")]
    NotReceiving {
        /// The number of the QP.
        qpn: u32,
    },
    /// The packet is too short for a BTH and an ICRC.
    #[error("a packet of {bytes} bytes is shorter than the {limit} of header and ICRC")]
    Short {
        /// The length of the packet.
        bytes: usize,
        /// The shortest length.
        limit: usize,
    },
}

impl Hca {
    /// Sets the faults of the HCA, in place of those of an earlier spec. Faults of packets concern QPs that are connected from now on: they
    /// send packets even to HCAs of the same process.
    pub fn set_faults(&self, spec: &FaultSpec) {
        self.with_time(|slot, now_ns| slot.set_faults(spec, now_ns));
        engine::kick();
    }

    /// Returns how many packets each kind of fault has struck so far.
    #[must_use]
    pub fn fault_counts(&self) -> FaultCounts {
        self.with_time(|slot, _| {
            let layers = slot.wires.iter().filter_map(Port::faults_if_any);
            layers.map(FaultLayer::counts).sum()
        })
    }

    /// Makes a command fail that is still to come. Failures that were set earlier stay.
    pub fn fail_command(&self, fault: FailCommand) {
        self.fail(fault.into());
    }

    /// Records the inputs of commands from now on, at most 4,096 of them.
    pub fn record_commands(&self) {
        self.with_time(|slot, _| slot.state.recorded = Some(Vec::new()));
    }

    /// Returns the inputs of all commands since [`Self::record_commands`], and ends the recording.
    #[must_use]
    pub fn recorded_commands(&self) -> Vec<Vec<u8>> {
        self.with_time(|slot, _| slot.state.recorded.take().unwrap_or_default())
    }

    /// Makes a command fail as [`Self::fail_command`] does, with a choice of how it fails.
    pub fn fail(&self, fault: CommandFault) {
        self.with_time(|slot, _| slot.state.faults.add(fault));
    }

    /// Makes the engine ignore this HCA for `duration`: doorbells stay in their registers, packets in the socket. A further call replaces
    /// the time that is left; [`Duration::ZERO`] ends the pause.
    pub fn pause(&self, duration: Duration) {
        self.with_time(|slot, now_ns| {
            slot.state.freeze(now_ns, duration);
            slot.state.now_ns = now_ns;
        });
        self.write_through();
        engine::kick();
    }

    /// Takes port 1 down or brings it up. While the port is down no packets pass, and QPs that reach their peers through it find the peers
    /// silent.
    pub fn set_port(&self, up: bool) {
        self.set_port_of(1, up);
    }

    /// Takes port `port` down or brings it up, as `set_port` does with port 1. If the HCA lacks the port, nothing happens.
    pub fn set_port_of(&self, port: u8, up: bool) {
        self.with_time(|slot, _| slot.set_port(port, up));
        self.write_through();
        engine::kick();
    }

    /// Makes the device fail for good: no more completions, and of the commands only those that end objects succeed.
    pub fn die(&self) {
        self.with_time(|slot, _| slot.die());
        self.write_through();
        engine::kick();
    }

    /// Keeps copies of the packets that arrive for `qpn` from now on, up to 4096, and forgets those kept before. `None` stops the
    /// recording. Operations that this process carries out from memory to memory have no packets.
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

    /// Lets a recorded packet arrive again. It is changed so that it is for `qpn`, has the sequence number that `qpn` expects next, and has
    /// a right ICRC. Such a packet is a leftover of an earlier connection that reaches a new QP with the same number.
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

/// Returns the packet with QP `qpn` and sequence number `psn`, and with a right ICRC.
fn readdressed(packet: &[u8], qpn: u32, psn: Psn, flow: &Flow) -> Result<Vec<u8>, ReplayError> {
    /// Length of BTH and ICRC.
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

/// Sets the faults of every HCA of the process, as [`Hca::set_faults`] does.
pub(crate) fn set_faults_of_all(spec: &FaultSpec) {
    let mut fabric = World::of_process().lock();
    let now_ns = fabric.clock.now_ns();
    for slot in fabric.hcas.iter_mut().flatten() {
        slot.set_faults(spec, now_ns);
    }
    drop(fabric);
    engine::kick();
}
