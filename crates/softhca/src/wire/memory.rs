//! A network in memory: HCAs joined by queues, for tests that must run the same every time.
//!
//! A packet arrives `latency_ns` after the flush that sent it, by the clock that the caller gives. Packets of one sender arrive
//! in the order in which they were sent, those of several in the order of their flushes. Nothing is lost, except packets to an
//! address that no HCA has.

use super::carrier::{Carrier, CarrierCounters, MAX_PACKET_BYTES, PacketSink, Receiver, Source};
use super::envelope::{Destination, Envelope, Kept};
use super::icrc::ROCE_PORT;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Packets that a carrier holds before a flush, and hands over in one call.
const BATCH: usize = 64;

/// A network. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    latency_ns: u64,
    arrivals: Arc<Mutex<BTreeMap<Ipv4Addr, VecDeque<Flying>>>>,
}

/// A packet under way.
#[derive(Debug)]
struct Flying {
    arrives_ns: u64,
    source: Ipv4Addr,
    envelope: Envelope,
    bytes: Vec<u8>,
}

impl Network {
    /// A network on which a packet takes this long.
    #[must_use]
    pub fn with_latency(latency_ns: u64) -> Self {
        Self {
            latency_ns,
            ..Self::default()
        }
    }

    /// Connects an HCA that has `address`; `None` if the address is taken.
    #[must_use]
    pub fn plug(&self, address: Ipv4Addr) -> Option<MemoryCarrier> {
        let mut arrivals = self.lock();
        if arrivals.contains_key(&address) {
            return None;
        }
        arrivals.insert(address, VecDeque::new());
        drop(arrivals);
        Some(MemoryCarrier {
            network: self.clone(),
            address,
            slot: Box::new([0; MAX_PACKET_BYTES]),
            leaving: Vec::with_capacity(BATCH),
            counters: CarrierCounters::default(),
        })
    }

    /// Packets under way to any HCA.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.lock().values().map(VecDeque::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ipv4Addr, VecDeque<Flying>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one HCA on a [`Network`]. Dropping it gives the address back.
#[derive(Debug)]
pub struct MemoryCarrier {
    network: Network,
    address: Ipv4Addr,
    slot: Box<[u8; MAX_PACKET_BYTES]>,
    /// Put into the sink, not flushed.
    leaving: Vec<(Destination, Vec<u8>)>,
    counters: CarrierCounters,
}

impl MemoryCarrier {
    fn next_arrival(&self, now_ns: u64) -> Option<Flying> {
        let mut arrivals = self.network.lock();
        let queue = arrivals.get_mut(&self.address)?;
        let has_come = queue.front()?.arrives_ns <= now_ns;
        has_come.then(|| queue.pop_front())?
    }
}

impl Carrier for MemoryCarrier {
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool> {
        for _ in 0..BATCH {
            // The lock is not held while the packet is handled: that may send.
            let Some(next) = self.next_arrival(now_ns) else {
                return Ok(false);
            };
            self.counters.receive_calls += 1;
            let address = SocketAddrV4::new(next.source, ROCE_PORT);
            let source = Source {
                envelope: next.envelope,
                ..Source::from(address)
            };
            packet(source, &next.bytes);
        }
        Ok(true)
    }

    fn sink(&mut self) -> &mut dyn PacketSink {
        self
    }

    fn flush(&mut self, now_ns: u64) -> bool {
        let arrives_ns = now_ns.saturating_add(self.network.latency_ns);
        let mut arrivals = self.network.lock();
        for (destination, bytes) in self.leaving.drain(..) {
            let Some(queue) = arrivals.get_mut(&destination.address) else {
                self.counters.refused += 1;
                continue;
            };
            self.counters.send_calls += 1;
            queue.push_back(Flying {
                arrives_ns,
                source: self.address,
                envelope: destination.envelope,
                bytes,
            });
        }
        true
    }

    fn is_blocked(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn deadline_ns(&self) -> Option<u64> {
        let arrivals = self.network.lock();
        Some(arrivals.get(&self.address)?.front()?.arrives_ns)
    }

    fn descriptors(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None, None]
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }

    fn kept(&self) -> Kept {
        Kept::Udp
    }
}

impl PacketSink for MemoryCarrier {
    fn slot(&mut self) -> Option<&mut [u8]> {
        (self.leaving.len() < BATCH).then_some(&mut self.slot[..])
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        self.leaving
            .push((destination, self.slot[..bytes].to_vec()));
    }
}

impl Drop for MemoryCarrier {
    fn drop(&mut self) {
        self.network.lock().remove(&self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn send(carrier: &mut MemoryCarrier, now_ns: u64, destination: Ipv4Addr, bytes: &[u8]) {
        let sink = carrier.sink();
        sink.slot().unwrap()[..bytes.len()].copy_from_slice(bytes);
        sink.commit(bytes.len(), destination.into());
        assert!(carrier.is_blocked());
        assert!(carrier.flush(now_ns) && !carrier.is_blocked());
    }

    fn arrived(carrier: &mut MemoryCarrier, now_ns: u64) -> Vec<(Ipv4Addr, Vec<u8>)> {
        let mut all = vec![];
        carrier
            .receive(now_ns, &mut |source, bytes| {
                all.push((*source.address.ip(), bytes.to_vec()));
            })
            .unwrap();
        all
    }

    #[test]
    fn packets_arrive_in_order_after_the_latency_and_not_before() {
        let network = Network::with_latency(100);
        let (mut here, mut there) = (network.plug(HERE).unwrap(), network.plug(THERE).unwrap());
        send(&mut here, 50, THERE, b"one");
        send(&mut here, 60, THERE, b"two");
        assert_eq!((network.in_flight(), there.deadline_ns()), (2, Some(150)));
        assert_eq!(arrived(&mut there, 149), []);
        assert_eq!(arrived(&mut there, 150), [(HERE, b"one".to_vec())]);
        assert_eq!(arrived(&mut there, 1000), [(HERE, b"two".to_vec())]);
        assert_eq!(there.deadline_ns(), None);
    }

    #[test]
    fn an_address_has_one_owner_and_what_goes_to_nobody_counts_as_refused() {
        let network = Network::default();
        let (mut here, there) = (network.plug(HERE).unwrap(), network.plug(THERE).unwrap());
        assert!(network.plug(THERE).is_none());
        drop(there);
        send(&mut here, 0, THERE, b"lost");
        assert_eq!((here.counters().refused, network.in_flight()), (1, 0));
        assert!(network.plug(THERE).is_some());
    }

    #[test]
    fn a_full_sink_takes_no_more_before_a_flush() {
        let network = Network::default();
        let mut here = network.plug(HERE).unwrap();
        for _ in 0..BATCH {
            here.slot().unwrap();
            here.commit(1, HERE.into());
        }
        assert!(here.slot().is_none());
        here.flush(0);
        assert_eq!(arrived(&mut here, 0).len(), BATCH);
    }
}
