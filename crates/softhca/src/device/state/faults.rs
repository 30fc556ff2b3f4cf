//! The effects of faults on an HCA and its wires, at the time that they were asked for.

use crate::device::Event;
use crate::device::faults::{FaultSpec, TimedFault};
use crate::device::state::Slot;
use mlx5_prm::qp::QpState;

impl Slot {
    /// Sets the faults of the HCA. See [`Hca::set_faults`](crate::device::Hca::set_faults).
    pub(crate) fn set_faults(&mut self, spec: &FaultSpec, now_ns: u64) {
        self.state.faults.set(spec, now_ns);
        self.state.faulty_packets = !spec.packets.is_empty();
        for (wire, port) in self.wires.iter_mut().zip(self.state.identity.ports()) {
            if self.state.faulty_packets || wire.faults_if_any().is_some() {
                // Ports with the same spec have different random numbers.
                let seed = spec.seed ^ u64::from(u32::from(port.ip)) << 32;
                wire.faults().set(seed, &spec.packets, now_ns);
            }
        }
        // Faults that are due at once take effect before any other call.
        self.on_clock(now_ns);
    }

    /// Carries out the timed faults that are due.
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

    /// Takes a port down or brings it up. Each program that has the device open gets an event.
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

    /// Makes the device fail for good: QPs stop without a completion, commands fail, and each program that has the device open gets an
    /// event.
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
