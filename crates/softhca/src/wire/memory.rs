//! A network in memory: HCAs joined by queues, for tests whose runs must all be alike.
//!
//! A packet arrives `latency_ns` after the flush that sent it, by the clock that the caller gives. Packets of one sender arrive in the
//! order in which they were sent, packets of several senders in the order of their flushes. No packet is lost, except packets to an address
//! that no HCA has.

use super::carrier::{Carrier, CarrierCounters, MAX_PACKET_BYTES, PacketSink, Receiver};
use super::icrc::ROCE_PORT;
use crate::envelope::{Destination, Envelope, Kept, Source};
use crate::link;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of packets that a carrier holds before a flush, and that it hands over in one call.
const BATCH: usize = 64;

/// A network. Clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    latency_ns: u64,
    /// The HCAs by their first addresses.
    places: Arc<Mutex<BTreeMap<Ipv4Addr, Place>>>,
}

/// An HCA on the network.
#[derive(Debug)]
struct Place {
    /// The HCA has 2^`lmc` addresses.
    lmc: u8,
    arrivals: VecDeque<Flying>,
}

/// A packet on its way.
#[derive(Debug)]
struct Flying {
    arrives_ns: u64,
    source: Ipv4Addr,
    envelope: Envelope,
    /// The path bits of the receiver's address to which the packet goes.
    path_bits: u8,
    bytes: Vec<u8>,
}

impl Network {
    /// Returns a network on which a packet takes this long.
    #[must_use]
    pub fn with_latency(latency_ns: u64) -> Self {
        Self {
            latency_ns,
            ..Self::default()
        }
    }

    /// Connects an HCA that has `address`. Returns `None` if the address is taken.
    #[must_use]
    pub fn plug(&self, address: Ipv4Addr) -> Option<MemoryCarrier> {
        self.plug_range(address, 0)
    }

    /// Connects an HCA that has 2^`lmc` addresses from `address` on, which ends with `lmc` zero bits. Returns `None` if an address is
    /// taken.
    #[must_use]
    pub fn plug_range(&self, address: Ipv4Addr, lmc: u8) -> Option<MemoryCarrier> {
        let mut places = self.lock();
        let last = link::address_with(address, (1u8 << lmc) - 1);
        let is_taken =
            owner(&mut places, address).is_some() || places.range(address..=last).next().is_some();
        if is_taken {
            return None;
        }
        let arrivals = VecDeque::new();
        places.insert(address, Place { lmc, arrivals });
        drop(places);
        Some(MemoryCarrier {
            network: self.clone(),
            address,
            slot: Box::new([0; MAX_PACKET_BYTES]),
            leaving: Vec::with_capacity(BATCH),
            counters: CarrierCounters::default(),
        })
    }

    /// Returns the number of packets on their way to any HCA.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let places = self.lock();
        places.values().map(|place| place.arrivals.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ipv4Addr, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the HCA that has `address`, with its first address.
fn owner(
    places: &mut BTreeMap<Ipv4Addr, Place>,
    address: Ipv4Addr,
) -> Option<(Ipv4Addr, &mut Place)> {
    let (first, place) = places.range_mut(..=address).next_back()?;
    (link::first_address(address, place.lmc) == *first).then_some((*first, place))
}

/// The place of one HCA on a [`Network`]. Dropping it frees the address.
#[derive(Debug)]
pub struct MemoryCarrier {
    network: Network,
    address: Ipv4Addr,
    slot: Box<[u8; MAX_PACKET_BYTES]>,
    /// Packets that were put into the sink and not flushed.
    leaving: Vec<(Destination, Vec<u8>)>,
    counters: CarrierCounters,
}

impl MemoryCarrier {
    fn next_arrival(&self, now_ns: u64) -> Option<Flying> {
        let mut places = self.network.lock();
        let queue = &mut places.get_mut(&self.address)?.arrivals;
        let has_come = queue.front()?.arrives_ns <= now_ns;
        has_come.then(|| queue.pop_front())?
    }
}

impl Carrier for MemoryCarrier {
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool> {
        for _ in 0..BATCH {
            // The lock is not held while the packet is handled, since the handler may send.
            let Some(next) = self.next_arrival(now_ns) else {
                return Ok(false);
            };
            self.counters.receive_calls += 1;
            let address = SocketAddrV4::new(next.source, ROCE_PORT);
            let source = Source {
                envelope: next.envelope,
                path_bits: next.path_bits,
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
        let mut places = self.network.lock();
        for (destination, bytes) in self.leaving.drain(..) {
            let Some((first, place)) = owner(&mut places, destination.address) else {
                self.counters.refused += 1;
                continue;
            };
            self.counters.send_calls += 1;
            let [.., first] = first.octets();
            let [.., to] = destination.address.octets();
            place.arrivals.push_back(Flying {
                arrives_ns,
                source: link::address_with(self.address, destination.path_bits),
                envelope: destination.envelope,
                path_bits: first ^ to,
                bytes,
            });
        }
        true
    }

    fn is_blocked(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn deadline_ns(&self) -> Option<u64> {
        let places = self.network.lock();
        Some(places.get(&self.address)?.arrivals.front()?.arrives_ns)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![]
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
    fn an_address_has_one_owner_and_packets_without_one_count_as_refused() {
        let network = Network::default();
        let (mut here, there) = (network.plug(HERE).unwrap(), network.plug(THERE).unwrap());
        assert!(network.plug(THERE).is_none());
        drop(there);
        send(&mut here, 0, THERE, b"lost");
        assert_eq!((here.counters().refused, network.in_flight()), (1, 0));
        assert!(network.plug(THERE).is_some());
    }

    #[test]
    fn an_hca_with_several_addresses_gets_what_is_sent_to_each() {
        let network = Network::default();
        let first = Ipv4Addr::new(10, 0, 0, 8);
        let mut here = network.plug_range(first, 3).unwrap();
        let mut there = network.plug(THERE).unwrap();
        for taken in [8, 11, 15] {
            assert!(network.plug(Ipv4Addr::new(10, 0, 0, taken)).is_none());
        }
        assert!(network.plug_range(Ipv4Addr::new(10, 0, 0, 0), 4).is_none());
        assert!(network.plug(Ipv4Addr::new(10, 0, 0, 16)).is_some());
        for last in [8, 13, 15, 16] {
            send(&mut there, 0, Ipv4Addr::new(10, 0, 0, last), &[last]);
        }
        let mut arrived_at = vec![];
        let mut packet = |source: Source, bytes: &[u8]| {
            arrived_at.push((source.path_bits, bytes[0]));
        };
        here.receive(0, &mut packet).unwrap();
        assert_eq!(arrived_at, [(0, 8), (5, 13), (7, 15)]);
        let to = Destination {
            path_bits: 6,
            ..THERE.into()
        };
        here.commit(1, to);
        here.flush(0);
        let [.., last] = arrived(&mut there, 0)[0].0.octets();
        assert_eq!(last, 14);
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
