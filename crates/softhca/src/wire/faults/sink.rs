//! The fault layer in front of a carrier's queue.

use super::layer::invert;
use super::{Fate, FaultLayer};
use crate::envelope::{Destination, Source};
use crate::wire::carrier::PacketSink;
use crate::wire::faults::spec::Direction;
use crate::wire::icrc::ROCE_PORT;
use std::net::SocketAddrV4;

/// A sink whose packets meet the faults of a layer on their way out.
pub(crate) struct FaultySink<'a> {
    pub(crate) layer: &'a mut FaultLayer,
    /// The queue that gets the packets that pass.
    pub(crate) inner: &'a mut dyn PacketSink,
    pub(crate) now_ns: u64,
}

impl FaultySink<'_> {
    /// Sends late packets that are due.
    pub(crate) fn release(&mut self) {
        let inner = &mut *self.inner;
        self.layer
            .release(self.now_ns, Direction::Out, |peer, packet| {
                let Some(slot) = inner.slot() else {
                    return false;
                };
                slot[..packet.len()].copy_from_slice(packet);
                inner.commit(
                    packet.len(),
                    Destination {
                        address: *peer.address.ip(),
                        envelope: peer.envelope,
                        path_bits: peer.path_bits,
                    },
                );
                true
            });
    }
}

impl PacketSink for FaultySink<'_> {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.inner.slot()
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        // This is the space that was filled: nothing has been committed since.
        let Some(packet) = self.inner.slot().and_then(|slot| slot.get_mut(..bytes)) else {
            return;
        };
        let peer = Source {
            envelope: destination.envelope,
            path_bits: destination.path_bits,
            ..Source::from(SocketAddrV4::new(destination.address, ROCE_PORT))
        };
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
