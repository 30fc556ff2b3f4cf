//! `qps_per_peer` QPs from this rank to every other place of the team, and the steps that take down and bring up those to one
//! peer. The steps are the same for founders, a rank that joins, its successor, a recovery and a reunion.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::attempts::Reunion;
use super::exchange::Exchange;
use super::failures::Failures;
use super::hello::{Hello, Offer, QpOffer, VERSION, Wanted, WindowOffer, hello_key};
use super::link::Link;
use super::rails::{Carriers, RailSet};
use super::{TeamConfig, TeamError};
use crate::abi::{RAIL_SHIFT, Status};
use crate::config::PathConfig;
use crate::fabric::Rail;
use crate::fabric::{Identity, PortRecord, Reach, patience};
use crate::gpu::Gpu;
use crate::verbs::{PathAttr, SendAttr, VerbsError};

/// All QPs of a rank.
#[derive(Debug)]
pub(super) struct Links {
    /// What this rank tells of itself, but for windows.
    pub(super) hello: Hello,
    peers: Vec<PeerLinks>,
    /// Set by kernels; behind the QPs, whose contexts name it.
    failures: Failures,
    /// How patient QPs are, by rail.
    send: Vec<SendAttr>,
    path: PathConfig,
}

/// The QPs to one peer; none for the rank itself.
#[derive(Debug)]
pub(super) struct PeerLinks {
    /// Held while a life ends or is made: one at a time.
    work: Mutex<()>,
    /// Held for single steps.
    state: Mutex<PeerState>,
}

/// What changes of the QPs to one peer.
#[derive(Debug, Default)]
pub(super) struct PeerState {
    pub(super) links: Vec<Link>,
    /// Lives of the QPs before this one: recoveries and replacements, as kernels see them.
    pub(super) life: u32,
    /// Recoveries since the QPs were connected with this generation: both ends count the same.
    pub(super) recoveries: u32,
    /// Why another life is being made.
    pub(super) making: Option<Making>,
    /// Rails that this life leaves out.
    pub(super) without: RailSet,
    /// How often a reunion was tried.
    pub(super) reunion: Reunion,
    /// When the probes of its attempt were posted.
    pub(super) probed: Option<Instant>,
    /// The generation for which QPs and keys of this life were published; 0: none yet.
    pub(super) told: u32,
    /// The generation whose QPs these are connected with; 0: none yet.
    pub(super) connected: u32,
    /// The host has given the generation up, and no other was begun with.
    pub(super) failed: bool,
    /// Since when the QPs are connected with a newcomer, until the first proof has succeeded.
    pub(super) introduced: Option<Instant>,
    /// How kernels get at its windows.
    pub(super) reach: Reach,
    /// The generation that may store into windows of this rank, until it is over.
    pub(super) visitor: Option<(u32, Identity)>,
    /// The newest generation whose hello was read: how its rails are reached.
    pub(super) known: Option<Known>,
    /// What its records say is to be read again, since QPs that were connected by them have failed.
    pub(super) doubted: bool,
    /// Its windows as they were read again, by window and rail, for the next grace period.
    pub(super) places: Option<Vec<(u64, u32)>>,
    /// What this rank has written for a generation of it last, until kernels post to that generation: another writer may change it
    /// meanwhile.
    pub(super) said: Option<Said>,
}

/// A record for one generation of a peer, as this rank has written it.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) generation: u32,
    pub(super) key: String,
    pub(super) text: Vec<u8>,
}

/// Why another life of the QPs to a peer is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Making {
    /// For the same generation.
    Recovery,
    /// For the same generation, in this attempt of a reunion.
    Reunion(u64),
    /// For this generation.
    Peer(u32),
}

/// How a generation of a peer is reached.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) generation: u32,
    pub(super) identity: Identity,
    pub(super) reach: Reach,
    /// By rail.
    ways: Vec<Way>,
}

/// The way to a port of a peer.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// Without QP and packet number.
    path: PathAttr,
    /// log2 of the reads and atomics that the port takes at once.
    log_reads: u8,
}

impl Links {
    /// Makes all QPs of this rank; they are not connected.
    pub(super) fn new(
        gpu: &dyn Gpu,
        rails: &[Rail],
        config: &TeamConfig,
        agreed: Vec<(String, String)>,
        (identity, costs): (Identity, Vec<String>),
    ) -> Result<Self, TeamError> {
        let failures = Failures::new(gpu, config.ranks)?;
        let port = |rail: &Rail| PortRecord::of(rail.context(), &config.path);
        let ports: Vec<PortRecord> = rails.iter().map(port).collect::<Result<_, VerbsError>>()?;
        let mut peers = Vec::new();
        for peer in 0..config.ranks {
            peers.push(PeerLinks {
                work: Mutex::new(()),
                state: Mutex::new(PeerState {
                    links: make(gpu, rails, config, &failures, peer, 0)?,
                    ..PeerState::default()
                }),
            });
        }
        Ok(Self {
            hello: Hello {
                version: VERSION,
                rails: ports,
                identity,
                agreed,
                costs,
                windows: None,
                offers: Vec::new(),
            },
            peers,
            failures,
            send: rails
                .iter()
                .map(|rail| patience(&config.path, rail.context().info().is_soft()))
                .collect(),
            path: config.path,
        })
    }

    /// Connects the QPs of a founder with those of the others. Returns when every founder can send, with the costs that founders
    /// of lower rank on the same machine tell.
    pub(super) fn found(
        &mut self,
        exchange: &Exchange,
        rails: &[Rail],
        config: &TeamConfig,
    ) -> Result<Vec<String>, TeamError> {
        let generation = config.generation;
        for peer in config.members().without(config.rank).iter() {
            let mut state = self.peers[peer as usize].state();
            state.told = generation;
            self.hello.offers.push(state.offer(peer, Vec::new()));
        }
        let wanted = self.wanted(exchange, config);
        let key = |rank| hello_key(rank, generation);
        let hellos = exchange.all_checked("hello", key, &self.hello, |rank, hello| {
            wanted.check_hello(rank, "hello", hello, &[])
        })?;
        let process = |(peer, hello): &(u32, Hello)| (*peer, hello.identity.process().clone());
        exchange.watch(hellos.iter().map(process).collect());
        let own = self.hello.identity.process();
        let before = hellos
            .iter()
            .filter(|(peer, hello)| *peer < config.rank && own.is_beside(hello.identity.process()));
        let told = before.flat_map(|(_, hello)| hello.costs.clone()).collect();
        for (peer, hello) in hellos {
            if peer == config.rank {
                continue;
            }
            let mut offers = hello.offers.iter();
            let Some(offer) = offers.find(|offer| offer.rank == config.rank) else {
                let reason = format!("it offers nothing to rank {}", config.rank);
                return Err(exchange.record(peer, "hello", &reason));
            };
            wanted.check_offer(peer, "hello", offer, &[])?;
            let known = self.known(rails, (peer, generation), &hello)?;
            let mut state = self.peers[peer as usize].state();
            state.receive(&known, &offer.qps)?;
            state.send(&self.send, &offer.qps)?;
            state.finish(0);
            state.connected = generation;
            state.reach = known.reach;
            state.admit(generation, known.reach, &known.identity);
        }
        exchange.barrier("connected")?;
        Ok(told)
    }

    /// The QPs, for the caller to end, and the words that their contexts name.
    pub(super) fn into_peers(self) -> (Vec<PeerLinks>, Failures) {
        (self.peers, self.failures)
    }

    /// What records of others are compared with.
    pub(super) fn wanted<'a>(&'a self, exchange: &'a Exchange, config: &TeamConfig) -> Wanted<'a> {
        Wanted {
            exchange,
            own: (config.rank, config.generation),
            hello: &self.hello,
            qps_per_peer: config.qps_per_peer,
            path: config.path,
        }
    }

    /// How this rank reaches the generation that published `hello`, which was checked. May take as long as ARP does.
    pub(super) fn known(
        &self,
        rails: &[Rail],
        (peer, generation): (u32, u32),
        hello: &Hello,
    ) -> Result<Known, TeamError> {
        let way = |(number, rail): (usize, &Rail)| -> Result<Way, VerbsError> {
            let (own, theirs) = (&self.hello.rails[number], &hello.rails[number]);
            let class = rail.context().traffic_class(self.path.traffic_class);
            let number = u8::try_from(number).expect("at most 16 rails");
            let path = own.path(theirs, &self.path, class.value, number);
            Ok(Way {
                path: path.with_address(path.address.resolved(rail.pd())?),
                log_reads: own.reads_with(theirs),
            })
        };
        Ok(Known {
            generation,
            reach: self.hello.identity.reach(&hello.identity),
            identity: hello.identity.clone(),
            ways: rails
                .iter()
                .enumerate()
                .map(way)
                .collect::<Result<_, _>>()
                .map_err(|source| TeamError::NoPath { peer, source })?,
        })
    }

    /// Device addresses of the contexts: `[peer][qps_per_peer]`, 0 without a QP.
    pub(super) fn contexts(&self, config: &TeamConfig) -> Vec<u64> {
        let row = |peer: &PeerLinks| peer.state().contexts(config);
        self.peers.iter().flat_map(row).collect()
    }

    /// By rank.
    pub(super) fn all(&self) -> &[PeerLinks] {
        &self.peers
    }

    pub(super) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// How patient they are, by rail.
    pub(super) fn patience(&self) -> &[SendAttr] {
        &self.send
    }
}

impl PeerLinks {
    pub(super) fn into_state(self) -> Mutex<PeerState> {
        self.state
    }

    /// For a single step: the holder waits for no other rank and no kernel.
    pub(super) fn state(&self) -> MutexGuard<'_, PeerState> {
        // Links are whole between two steps, so a panic elsewhere under the lock has broken nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to end a life and make another; none while another thread does.
    pub(super) fn try_work(&self) -> Option<MutexGuard<'_, ()>> {
        match self.work.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

impl PeerState {
    /// The rails by which goes what is posted to the peer in this life.
    pub(super) fn carriers(&self) -> Carriers {
        let rails = self.links.iter().map(|link| link.rail() + 1).max();
        Carriers::but(rails.unwrap_or(0), self.without)
    }

    /// The QPs that are connected in this life, each with its number.
    pub(super) fn carrying(&mut self) -> impl Iterator<Item = (usize, &mut Link)> {
        let carriers = self.carriers();
        let links = self.links.iter_mut().enumerate();
        links.filter(move |(_, link)| carriers.carries(link.rail()))
    }

    /// Device addresses of the contexts to which kernels post, `qps_per_peer`; 0 without a QP.
    pub(super) fn contexts(&self, config: &TeamConfig) -> Vec<u64> {
        let (carriers, qps) = (self.carriers(), config.qps_per_peer);
        let numbers = (0..qps).take(self.links.len());
        let at = |i: u32| {
            self.links[carriers.qp(i, qps) as usize]
                .layout()
                .context_addr
        };
        let mut row: Vec<u64> = numbers.map(at).collect();
        row.resize(config.qps_per_peer as usize, 0);
        row
    }

    /// What is offered to generation `told` of `peer`.
    pub(super) fn offer(&self, peer: u32, windows: Vec<WindowOffer>) -> Offer {
        Offer {
            version: VERSION,
            rank: peer,
            generation: self.told,
            qps: self.qps(),
            windows,
        }
    }

    /// By QP: its number at the other end.
    pub(super) fn remote_qpns(&self) -> Vec<u32> {
        self.links.iter().map(Link::remote_qpn).collect()
    }

    /// Whether all have been reset for the life that is being made.
    pub(super) fn is_reset(&self) -> bool {
        self.links.iter().all(Link::is_reset)
    }

    /// By QP.
    pub(super) fn qps(&self) -> Vec<QpOffer> {
        let qp = |link: &Link| QpOffer {
            qpn: link.qpn(),
            psn: link.psn(),
            far: link.far(),
            ece: link.ece(),
        };
        self.links.iter().map(qp).collect()
    }

    /// All QPs that take anything from the peer go to Err, also those of a life that is being made, and their waiters are released.
    /// QPs whose numbers were never published stay as they are.
    pub(super) fn fence(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        self.failed = self.told != 0;
        self.doubted |= self.connected != 0 && self.connected == self.told;
        self.end(gpu, |_| true)
    }

    /// The same with the QPs of the life that is over; those that have been reset stay as they are.
    pub(super) fn end_life(&mut self, gpu: &dyn Gpu) -> Result<(), TeamError> {
        self.end(gpu, |link| !link.is_reset())
    }

    fn end(&mut self, gpu: &dyn Gpu, which: impl Fn(&Link) -> bool) -> Result<(), TeamError> {
        if self.told == 0 {
            return Ok(());
        }
        let mut links: Vec<&mut Link> = self.links.iter_mut().filter(|link| which(link)).collect();
        links.iter_mut().try_for_each(|link| link.end())?;
        links
            .iter()
            .try_for_each(|link| link.release(gpu, Status::ABORTED))
    }

    /// Whether they are connected with this generation and work, for all that this rank knows.
    pub(super) fn is_connected_with(&self, generation: u32) -> bool {
        let present = self.connected == generation && self.told == generation;
        present && self.making.is_none() && !self.failed
    }

    /// Whether a life is being made for another generation.
    pub(super) fn is_for_another(&self) -> bool {
        matches!(self.making, Some(Making::Peer(_)))
    }

    /// Begins to make another life, or goes on with it. What had been made for another reason is given up. All rails carry the new
    /// one, unless the two ends come to something else before they connect.
    pub(super) fn begin(&mut self, making: Making) {
        if self.making != Some(making) {
            if self.making.is_some() {
                self.life = self.life.wrapping_add(1);
            }
            for link in &mut self.links {
                link.commit();
            }
            (self.without, self.probed, self.introduced) = (RailSet::EMPTY, None, None);
            self.making = Some(making);
        }
    }

    /// The life that is being made.
    pub(super) fn next_life(&self) -> u32 {
        self.life.wrapping_add(1)
    }

    /// To Reset, with the memory of the next life. In the grace period. Of the first `asked` QPs the HCA is asked which packet
    /// numbers are in use.
    ///
    /// All begin at one index. A QP number may lead to another QP in the next life, and that QP must recognise a ticket of this
    /// life.
    pub(super) fn reset(&mut self, gpu: &dyn Gpu, asked: usize) -> Result<(), TeamError> {
        // The peer table has room for so many bits; a context holds as many.
        let life = self.next_life() & ((1 << RAIL_SHIFT) - 1);
        let mut base = 0;
        for link in &self.links {
            base = link.least_base(gpu)?.max(base);
        }
        for (number, link) in self.links.iter_mut().enumerate() {
            link.reset(gpu, (base, life), number < asked)?;
        }
        Ok(())
    }

    /// To Rtr: what `theirs` send is taken.
    pub(super) fn receive(&mut self, known: &Known, theirs: &[QpOffer]) -> Result<(), TeamError> {
        self.lead_to(known, theirs);
        self.receive_again(theirs)
    }

    /// The QPs lead to these from their next life on.
    pub(super) fn lead_to(&mut self, known: &Known, theirs: &[QpOffer]) {
        for ((number, link), qp) in self.links.iter_mut().enumerate().zip(theirs) {
            let Way { path, log_reads } = known.ways[number % known.ways.len()];
            link.set_path(path.with_remote_qpn(qp.qpn).with_ece(qp.ece), log_reads);
        }
    }

    /// The same from the QPs that these were connected with before.
    pub(super) fn receive_again(&mut self, theirs: &[QpOffer]) -> Result<(), TeamError> {
        for (number, link) in self.carrying() {
            let Some(qp) = theirs.get(number) else { break };
            link.init()?;
            link.ready_to_receive(qp.psn)?;
        }
        Ok(())
    }

    /// To Rts.
    pub(super) fn send(
        &mut self,
        patience: &[SendAttr],
        theirs: &[QpOffer],
    ) -> Result<(), TeamError> {
        for (number, link) in self.carrying() {
            let Some(qp) = theirs.get(number) else { break };
            link.ready_to_send(qp.far, &patience[number % patience.len()])?;
        }
        Ok(())
    }

    /// The life that was being made, number `life`, is the present one.
    pub(super) fn finish(&mut self, life: u32) {
        self.links.iter_mut().for_each(Link::commit);
        self.life = life;
        self.making = None;
        self.failed = false;
    }
}

/// The QPs to `peer` in Init, for their `life`: QP i on rail i mod rails.
pub(super) fn make(
    gpu: &dyn Gpu,
    rails: &[Rail],
    config: &TeamConfig,
    failures: &Failures,
    peer: u32,
    life: u32,
) -> Result<Vec<Link>, TeamError> {
    if peer == config.rank {
        return Ok(Vec::new());
    }
    let numbers = (0u32..).zip(rails).cycle();
    let links = (0usize..).zip(numbers).take(config.qps_per_peer as usize);
    links
        .map(|(place, (number, rail))| {
            let place = u32::try_from(place / rails.len()).ok();
            let lag_port = config.path.lag_port.unwrap_or(0);
            let shape = rail.shape().with_lag_port(lag_port).with_place(place);
            Link::new(gpu, rail, &shape, (peer, number), failures.addr(peer), life)
        })
        .collect()
}
