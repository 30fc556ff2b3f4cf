//! A QP as the wire of its HCA keeps it: a connection or a sender of datagrams, and its place in the queues.

use crate::envelope::Destination;
use crate::partition::PkeyTable;
use crate::transport::{Device, Operation, Service};
use crate::wire::datagram::Datagrams;
use crate::wire::packet::{Packet, Transport};
use crate::wire::requester::{Completion, Requester};
use crate::wire::responder::Responder;
use std::net::Ipv4Addr;

#[derive(Debug)]
pub(super) struct Qp<W> {
    pub(super) kind: Kind<W>,
    /// The partition key of the QP.
    pub(super) pkey: u16,
    /// True if the QP stands in `ready`.
    pub(super) is_ready: bool,
    /// True if the QP stands in its destination's `waiting`.
    pub(super) is_waiting: bool,
    /// Time of the earliest entry of the QP in `timers`.
    pub(super) armed_ns: u64,
    /// Number of packets of this QP that its destination's window counts.
    pub(super) accounted: u32,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are connections, and a box would cost each packet a look"
)]
pub(super) enum Kind<W> {
    Connected(Connection<W>),
    Datagram(Datagrams<W>),
}

#[derive(Debug)]
pub(super) struct Connection<W> {
    pub(super) remote: Destination,
    pub(super) service: Service,
    /// The responder. `None` once the QP is in the error state without having refused a request, and always in an XRC initiator.
    pub(super) responder: Option<Responder>,
    /// The requester. `None` before Rts, and always in an XRC target.
    pub(super) requester: Option<Requester<W>>,
}

impl<W> Qp<W> {
    pub(super) fn new(kind: Kind<W>) -> Self {
        Self {
            kind,
            pkey: PkeyTable::DEFAULT_PKEY,
            is_ready: false,
            is_waiting: false,
            armed_ns: u64::MAX,
            accounted: 0,
        }
    }

    /// Returns the only address that the QP exchanges packets with; None for datagrams.
    pub(super) fn remote(&self) -> Option<Ipv4Addr> {
        match &self.kind {
            Kind::Connected(connection) => Some(connection.remote.address),
            Kind::Datagram(_) => None,
        }
    }

    /// Returns the path bits of the only own address that the QP uses; None for datagrams.
    pub(super) fn path_bits(&self) -> Option<u8> {
        match &self.kind {
            Kind::Connected(connection) => Some(connection.remote.path_bits),
            Kind::Datagram(_) => None,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        match &self.kind {
            Kind::Connected(connection) => connection
                .requester
                .as_ref()
                .is_some_and(Requester::has_room),
            Kind::Datagram(datagrams) => datagrams.has_room(),
        }
    }

    pub(super) fn submit(&mut self, wqe: W, operation: Operation) -> Result<(), W> {
        match &mut self.kind {
            Kind::Connected(connection) => match &mut connection.requester {
                Some(requester) => requester.submit(wqe, operation),
                None => Err(wqe),
            },
            Kind::Datagram(datagrams) => datagrams.submit(wqe, operation),
        }
    }

    /// Handles that the engine has put the QP into the error state.
    pub(super) fn fail(&mut self) {
        match &mut self.kind {
            Kind::Connected(connection) => {
                connection
                    .responder
                    .take_if(|responder| !responder.has_refused());
                if let Some(requester) = &mut connection.requester {
                    requester.flush();
                }
            }
            Kind::Datagram(datagrams) => datagrams.flush(),
        }
    }

    fn take_completion(&mut self) -> Option<Completion<W>> {
        match &mut self.kind {
            Kind::Connected(connection) => connection.requester.as_mut()?.take_completion(),
            Kind::Datagram(datagrams) => datagrams.take_completion(),
        }
    }

    /// Reports the operations that are over to the device.
    pub(super) fn report<D: Device<Wqe = W>>(&mut self, qpn: u32, device: &mut D) {
        while let Some(completion) = self.take_completion() {
            device.complete(qpn, completion.wqe, completion.outcome);
        }
    }

    /// Returns whether the QP would send something if its destination had room.
    pub(super) fn has_work(&self) -> bool {
        match &self.kind {
            Kind::Connected(connection) => {
                let responder = connection.responder.as_ref();
                let requester = connection.requester.as_ref();
                responder.is_some_and(Responder::has_answer)
                    || (!self.is_waiting && requester.is_some_and(Requester::wants_to_send))
            }
            Kind::Datagram(datagrams) => datagrams.wants_to_send(),
        }
    }
}

impl<W> Connection<W> {
    /// Returns whether the packet is of this connection's service and goes in a direction that this end takes.
    pub(super) fn takes(&self, packet: &Packet<'_>) -> bool {
        matches!(
            (self.service, packet.head.transport),
            (Service::Rc, Transport::Rc)
                | (Service::Uc, Transport::Uc)
                | (Service::XrcTarget, Transport::XrcRequest(_))
                | (Service::XrcInitiator, Transport::XrcResponse)
        )
    }
}
