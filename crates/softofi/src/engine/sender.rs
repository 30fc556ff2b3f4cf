//! The initiator's side of an endpoint.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use fastrand::Rng;
use file_memory::Gone;
use libfabric_abi::bindings::{FI_READ, FI_RMA, FI_WRITE};
use libfabric_abi::errors::FI_EAGAIN;

use super::address::Address;
use super::contexts;
use super::dice::{Purpose, dice, hits, up_to};
use super::frame::{HAS_DATA, Head, kind};
use super::link::Link;
use super::memory;
use super::operation::{Fault, Kind, Operation, Order, Part, cut};
use super::peer::{Own, Peer, Ready};
use crate::config::{Config, Dead};
use crate::counts::Count;
use crate::failure::Failure;
use crate::objects::{Entry, Queue};
use crate::rules::Rule;

pub(crate) struct Sender {
    own: Own,
    config: Arc<Config>,
    queue: Arc<Queue>,
    peers: HashMap<Address, Peer>,
    operations: BTreeMap<u64, Operation>,
    /// Of the next operation.
    number: u64,
    refusals: Rng,
    /// Of operations whose completion was lost: the program never gets them back.
    lost_contexts: Vec<usize>,
}

impl Sender {
    pub(crate) fn new(own: Own, config: Arc<Config>, queue: Arc<Queue>) -> Self {
        Self {
            refusals: dice(config.seed, Purpose::Refusal, own.ordinal, 0),
            own,
            config,
            queue,
            peers: HashMap::new(),
            operations: BTreeMap::new(),
            number: 0,
            lost_contexts: Vec::new(),
        }
    }

    /// Takes an operation, or refuses it for now.
    pub(crate) fn post(&mut self, order: Order, now: Instant) -> Result<(), c_int> {
        if order.marks {
            contexts::check(order.context)?;
        }
        let peer = self.peers.entry(order.peer);
        let peer = peer.or_insert_with(|| Peer::new(order.peer, now));
        peer.posts += 1;
        let is_new = peer.posts <= u64::from(self.config.warmup);
        if hits(&mut self.refusals, self.config.again) || is_new {
            Count::Refused.add();
            return Err(FI_EAGAIN);
        }
        if self.operations.len() >= self.config.queue {
            Count::Full.add();
            return Err(FI_EAGAIN);
        }
        Count::Posts.add();
        if order.marks {
            contexts::take(order.context);
        }
        self.queue.begin();
        self.number += 1;
        peer.begin(now);
        let mut dice = dice(
            self.config.seed,
            Purpose::Operation,
            self.own.ordinal,
            self.number,
        );
        let parts = cut(&order, self.config.pieces, &mut dice);
        let mut operation = Operation::new(order, parts, fault(&self.config, &mut dice));
        for part in shuffled(operation.parts.len(), &mut dice) {
            if operation.fault == Fault::Early && operation.withheld.is_none() {
                operation.withheld = Some(part);
                continue;
            }
            peer.wait(Ready {
                due: now + up_to(&mut dice, self.config.late / 2),
                operation: self.number,
                part,
            });
        }
        self.operations.insert(self.number, operation);
        Ok(())
    }

    /// Whether operations to this peer are under way.
    pub(crate) fn uses(&self, peer: &Address) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.under_way > 0)
    }

    /// Does all that can be done now.
    pub(crate) fn step(&mut self, ready: &OwnedFd, now: Instant) {
        let addresses: Vec<Address> = self.peers.keys().copied().collect();
        for address in addresses {
            // It is put back: what it says concerns operations, which know it by its address.
            let Some(mut peer) = self.peers.remove(&address) else {
                continue;
            };
            self.listen(&mut peer, now);
            self.bury(&mut peer, address, now);
            peer.connect(self.own, ready, now);
            while let Some(part) = peer.next(now) {
                self.send(&mut peer, part);
            }
            if let Some(link) = &mut peer.link {
                link.flush(ready);
            }
            self.peers.insert(address, peer);
        }
        self.tell_early(now);
    }

    /// When there is something to do, if nothing comes from peers.
    pub(crate) fn next_work(&self) -> Option<Instant> {
        let config = &self.config;
        let peers = self.peers.values();
        peers
            .filter_map(|peer| peer.next_work(config.dead_after, config.timeout))
            .min()
    }

    /// Drops all operations without a word. Some parts have left by then, with the bytes that memory has now.
    pub(crate) fn close(mut self, ready: &OwnedFd) {
        let mut dice = dice(
            self.config.seed,
            Purpose::Close,
            self.own.ordinal,
            self.number,
        );
        for (_, mut peer) in std::mem::take(&mut self.peers) {
            while let Some(part) = peer.next_of_all() {
                if dice.bool() {
                    self.send(&mut peer, part);
                }
            }
            if let Some(link) = &mut peer.link {
                link.flush(ready);
            }
        }
        for operation in self.operations.values().filter(|it| !it.is_told) {
            Count::DroppedOperations.add();
            self.queue.end();
            if operation.order.marks {
                contexts::release(operation.order.context);
            }
        }
        for context in self.lost_contexts {
            contexts::release(context);
        }
    }

    fn listen(&mut self, peer: &mut Peer, now: Instant) {
        let Some(mut link) = peer.link.take() else {
            return;
        };
        link.fill();
        while let Some((head, bytes)) = link.next() {
            peer.hear(now);
            if matches!(head.kind, kind::LANDED | kind::BYTES | kind::FAILED) {
                peer.has_ended_one();
            }
            self.hear(peer, &head, bytes);
        }
        if link.has_ended() {
            peer.lose(now);
        } else {
            peer.link = Some(link);
        }
    }

    /// An answer to a part.
    fn hear(&mut self, peer: &mut Peer, head: &Head, bytes: &[u8]) {
        let Some(operation) = self.operations.get_mut(&head.operation) else {
            return;
        };
        let Some(part) = operation.parts.get(head.part as usize).copied() else {
            return;
        };
        let failed = match head.kind {
            kind::ARRIVED => {
                operation.arrived += 1;
                None
            }
            kind::LANDED => {
                operation.landed += 1;
                None
            }
            kind::BYTES => {
                operation.landed += 1;
                take_bytes(operation, part, bytes).err()
            }
            kind::FAILED => {
                let number = u32::try_from(head.data).unwrap_or(u32::MAX);
                Some(Failure::of_number(number).unwrap_or(Failure::TargetMemory))
            }
            _ => None,
        };
        match failed {
            Some(failure) => self.fail(peer, head.operation, failure),
            None => self.advance(peer, head.operation),
        }
    }

    /// Tells of an operation when it is time, and forgets it when it is over.
    fn advance(&mut self, peer: &mut Peer, number: u64) {
        let Some(operation) = self.operations.get_mut(&number) else {
            return;
        };
        if operation.is_due() {
            operation.is_told = true;
            tell(
                &self.queue,
                self.own,
                operation,
                None,
                &mut self.lost_contexts,
            );
        }
        if operation.is_over() {
            self.operations.remove(&number);
            peer.under_way -= 1;
        }
    }

    fn fail(&mut self, peer: &mut Peer, number: u64, failure: Failure) {
        if let Some(mut operation) = self.operations.remove(&number) {
            peer.under_way -= 1;
            if !operation.is_told {
                let lost = &mut self.lost_contexts;
                tell(&self.queue, self.own, &mut operation, Some(failure), lost);
            }
        }
    }

    /// Ends what was under way to a peer that is gone or silent.
    fn bury(&mut self, peer: &mut Peer, address: Address, now: Instant) {
        let is_dead = peer
            .gone
            .is_some_and(|gone| now >= gone + self.config.dead_after);
        if !is_dead && !peer.is_overdue(self.config.timeout, now) {
            return;
        }
        let failure = if peer.has_answered {
            Failure::Unresponsive
        } else {
            Failure::Unreachable
        };
        let of_peer = self.operations.iter();
        let of_peer = of_peer.filter(|(_, it)| it.order.peer == address && !it.is_silent);
        let numbers: Vec<u64> = of_peer.map(|(number, _)| *number).collect();
        for number in numbers {
            let mut dice = dice(self.config.seed, Purpose::Close, self.own.ordinal, number);
            let is_silent = match self.config.dead {
                Dead::Error => false,
                Dead::Silent => true,
                Dead::Mixed => dice.bool(),
            };
            if is_silent {
                if let Some(operation) = self.operations.get_mut(&number) {
                    operation.is_silent = true;
                }
                peer.under_way -= 1;
            } else {
                self.fail(peer, number, failure);
            }
        }
        peer.reset();
    }

    /// Sends a part, with the bytes that memory has now.
    fn send(&mut self, peer: &mut Peer, ready: Ready) {
        let Some(link) = &mut peer.link else {
            return;
        };
        let Some(operation) = self.operations.get_mut(&ready.operation) else {
            return;
        };
        let Some(part) = operation.parts.get(ready.part as usize).copied() else {
            return;
        };
        match put(link, operation, ready, part) {
            Ok(()) => {
                operation.sent += 1;
                peer.has_sent();
                self.advance(peer, ready.operation);
            }
            Err(_) => {
                if !operation.is_told {
                    Rule::MemoryGone.broken(format_args!("({:#x})", part.near));
                }
                self.fail(peer, ready.operation, Failure::OwnMemory);
            }
        }
    }

    /// Planted: operations of one part are told of before it has left.
    fn tell_early(&mut self, now: Instant) {
        for (&number, operation) in &mut self.operations {
            if operation.is_due() && operation.withheld.is_some() {
                operation.is_told = true;
                tell(
                    &self.queue,
                    self.own,
                    operation,
                    None,
                    &mut self.lost_contexts,
                );
            }
            if operation.is_told
                && let Some(part) = operation.withheld.take()
                && let Some(peer) = self.peers.get_mut(&operation.order.peer)
            {
                Count::Early.add();
                peer.wait(Ready {
                    due: now + self.config.early_by,
                    operation: number,
                    part,
                });
            }
        }
    }
}

fn put(link: &mut Link, operation: &Operation, ready: Ready, part: Part) -> Result<(), Gone> {
    let order = &operation.order;
    let is_write = order.kind == Kind::Write;
    let mut head = Head::new(if is_write { kind::WRITE } else { kind::READ });
    head.operation = ready.operation;
    head.part = ready.part;
    head.parts = u32::try_from(operation.parts.len()).unwrap_or(u32::MAX);
    head.address = part.address;
    head.key = part.key;
    head.bytes = u32::try_from(part.bytes).unwrap_or(u32::MAX);
    head.total = order.bytes() as u64;
    if let Some(data) = order.data {
        head.flags = HAS_DATA;
        head.data = u64::from(data);
    }
    let bytes = if is_write { part.bytes } else { 0 };
    link.put(head, bytes, |room| memory::read(part.near, room))
}

/// The bytes of a part of a read. Memory that the program has taken back in the meantime is left alone.
fn take_bytes(operation: &Operation, part: Part, bytes: &[u8]) -> Result<(), Failure> {
    if bytes.len() != part.bytes {
        return Err(Failure::TargetMemory);
    }
    let mut registrations = operation.order.registrations.iter();
    if operation.is_told && !registrations.all(|it| it.is_open()) {
        return Ok(());
    }
    memory::write(bytes, part.near).map_err(|_| {
        Rule::MemoryGone.broken(format_args!("({:#x})", part.near));
        Failure::OwnMemory
    })
}

/// Puts the completion of an operation into its queue, once, or as its fault says.
fn tell(
    queue: &Queue,
    own: Own,
    operation: &mut Operation,
    failure: Option<Failure>,
    lost: &mut Vec<usize>,
) {
    operation.in_use.clear();
    queue.end();
    let order = &operation.order;
    let kind = match order.kind {
        Kind::Read => FI_READ,
        Kind::Write => FI_WRITE,
    };
    let entry = Entry {
        endpoint: own.ordinal,
        context: order.context,
        flags: FI_RMA | kind,
        bytes: order.bytes(),
        data: 0,
        failure,
        releases: order.marks,
    };
    if failure.is_some() {
        Count::Errors.add();
        queue.push(entry);
        return;
    }
    if operation.fault == Fault::Lost {
        Count::Lost.add();
        if order.marks {
            lost.push(order.context);
        }
        return;
    }
    if !order.told.wanted {
        if order.marks {
            contexts::release(order.context);
        }
        return;
    }
    Count::Completions.add();
    queue.push(entry.clone());
    if operation.fault == Fault::Double {
        Count::Doubled.add();
        queue.push(Entry {
            releases: false,
            ..entry
        });
    }
}

fn fault(config: &Config, dice: &mut Rng) -> Fault {
    if hits(dice, config.early) {
        Fault::Early
    } else if hits(dice, config.lost) {
        Fault::Lost
    } else if hits(dice, config.double) {
        Fault::Double
    } else {
        Fault::None
    }
}

/// Numbers of parts, in any order.
fn shuffled(parts: usize, dice: &mut Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(parts).unwrap_or(u32::MAX)).collect();
    dice.shuffle(&mut order);
    order
}
