//! UC: the responder answers nothing, and drops broken messages.
//!
//! Source: IBTA volume 1, "Responder: Unreliable Connected". A message is carried out as its packets come. A packet that is not
//! the next one ends the message without a word. A packet that starts a message is taken whatever its number, and the count goes
//! on from that number. The receive WQE of a broken SEND is used by the next.

use super::{Arrival, Progress, Responder};
use crate::engine::transport::Device;
use crate::wire::packet::{Body, Packet};

impl Responder {
    /// Handles a request packet of an unreliable connection.
    pub(super) fn on_unreliable<D: Device>(
        &mut self,
        qpn: u32,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Arrival {
        let starts = matches!(
            packet.body,
            Body::Send { starts: true, .. } | Body::Write { start: Some(_), .. }
        );
        if starts {
            self.progress = Progress::None;
            self.expected = packet.head.psn;
        } else if packet.head.psn != self.expected || matches!(self.progress, Progress::None) {
            self.progress = Progress::None;
            return Arrival::OutOfOrder;
        }
        match self.execute(qpn, packet, device) {
            Ok(packets) => {
                self.expected = self.expected.add(packets);
                Arrival::Executed
            }
            Err(_) => {
                self.progress = Progress::None;
                Arrival::Dropped
            }
        }
    }
}
