//! The layer in front of a carrier's queue.

use super::layer::invert;
use super::{Direction, Fate, FaultLayer};
use crate::wire::endpoint::PacketSink;
use crate::wire::icrc::ROCE_PORT;
use std::net::{Ipv4Addr, SocketAddrV4};

/// A sink whose packets meet the faults of a layer on their way out.
#[derive(Debug)]
pub struct FaultySink<'a, S> {
    /// The faults.
    pub layer: &'a mut FaultLayer,
    /// Where packets go that pass.
    pub inner: &'a mut S,
    /// The time.
    pub now_ns: u64,
}

impl<S: PacketSink> FaultySink<'_, S> {
    /// Sends what was late and is due.
    pub fn release(&mut self) {
        let inner = &mut *self.inner;
        self.layer
            .release(self.now_ns, Direction::Out, |peer, packet| {
                let Some(slot) = inner.slot() else {
                    return false;
                };
                slot[..packet.len()].copy_from_slice(packet);
                inner.commit(packet.len(), *peer.ip());
                true
            });
    }
}

impl<S: PacketSink> PacketSink for FaultySink<'_, S> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.inner.slot()
    }

    fn commit(&mut self, bytes: usize, destination: Ipv4Addr) {
        // The space that was filled: nothing was committed since.
        let Some(packet) = self.inner.slot().and_then(|slot| slot.get_mut(..bytes)) else {
            return;
        };
        let peer = SocketAddrV4::new(destination, ROCE_PORT);
        match self.layer.judge(self.now_ns, Direction::Out, peer, packet) {
            Fate::Pass => self.inner.commit(bytes, destination),
            Fate::Damaged { at, bits } => {
                invert(packet, at, bits);
                self.inner.commit(bytes, destination);
            }
            Fate::Gone => {}
        }
    }
}
