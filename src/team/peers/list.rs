//! The hello of this rank, and all its peers.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::state::{Contact, PeerState};
use crate::config::PathConfig;
use crate::fabric::{Identity, PortRecord, Rail, patience};
use crate::gpu::Gpu;
use crate::team::config::TeamConfig;
use crate::team::error::TeamError;
use crate::team::hello::{Hello, Wanted};
use crate::team::holder::Holder;
use crate::team::limits::VERSION;
use crate::team::meeting::exchange::Exchange;
use crate::team::qps::failures::Failures;
use crate::team::qps::set::{Qps, Way};
use crate::team::ranks::RankSet;
use crate::verbs::{SendAttr, VerbsError};

/// The peers of a rank, and its hello.
#[derive(Debug)]
pub(in crate::team) struct Peers {
    rank: u32,
    /// The hello of this rank, without its windows.
    hello: Hello,
    /// The hello of this rank as it was written to the store, if this rank joins a running team. A founder has none.
    told: Mutex<Option<Vec<u8>>>,
    peers: Vec<Peer>,
    /// The words by which kernels report failures. Dropped after the QPs, whose contexts name it.
    failures: Failures,
    /// The attributes that say how long QPs try before they give a peer up, by rail.
    send: Vec<SendAttr>,
    path: PathConfig,
}

/// What a rank tells of itself in its hello, besides its ports.
#[derive(Clone, Debug)]
pub(in crate::team) struct Introduction {
    /// Settings that all ranks must have alike: name and value.
    pub(in crate::team) agreed: Vec<(String, String)>,
    pub(in crate::team) identity: Identity,
    /// Choices of the rank that cost something, in words.
    pub(in crate::team) costs: Vec<String>,
}

/// One peer. The entry of the rank itself has no QPs.
#[derive(Debug)]
pub(in crate::team) struct Peer {
    /// The lock held while a life of the QPs ends or is made: one thread at a time.
    work: Mutex<()>,
    /// The lock held for single steps.
    state: Mutex<PeerState>,
}

impl Peers {
    /// Makes the QPs of this rank to all peers. They are not connected yet.
    pub(in crate::team) fn new(
        gpu: &dyn Gpu,
        rails: &[Rail],
        config: &TeamConfig,
        introduction: Introduction,
    ) -> Result<Self, TeamError> {
        let failures = Failures::new(gpu, config.ranks)?;
        let port = |rail: &Rail| PortRecord::of(rail.context().own_port(), &config.path);
        let ports: Vec<PortRecord> = rails.iter().map(port).collect::<Result<_, VerbsError>>()?;
        let peer = |peer| {
            let qps = Qps::new(gpu, rails, config, &failures, peer, 0)?;
            let state = PeerState {
                qps,
                ..PeerState::default()
            };
            Ok(Peer {
                work: Mutex::new(()),
                state: Mutex::new(state),
            })
        };
        let peers = (0..config.ranks).map(peer);
        let peers: Vec<Peer> = peers.collect::<Result<_, TeamError>>()?;
        let Introduction {
            agreed,
            identity,
            costs,
        } = introduction;
        Ok(Self {
            rank: config.rank,
            told: Mutex::default(),
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

    /// Puts the offers of this founder to `founders`, which have the same `generation`, into its hello.
    pub(in crate::team) fn offer_to_founders(&mut self, founders: RankSet, generation: u32) {
        for rank in founders.iter() {
            let mut state = self.peers[rank as usize].state();
            state.told = generation;
            let offer = state.offer(rank, Vec::new());
            drop(state);
            self.hello.offers.push(offer);
        }
    }

    /// Returns the QPs, for the caller to end, and the failure words that their contexts name.
    pub(in crate::team) fn into_qps(self) -> (Vec<Qps>, Failures) {
        let qps = self.peers.into_iter().map(|peer| {
            let state = peer.state.into_inner();
            state.unwrap_or_else(PoisonError::into_inner).qps
        });
        (qps.collect(), self.failures)
    }

    /// Returns the peer with rank `peer`. Refuses this rank itself, and ranks that the team does not have.
    pub(in crate::team) fn get(&self, peer: u32) -> Result<&Peer, TeamError> {
        if peer == self.rank {
            let limit = format!("another rank than this, {peer}");
            return Err(TeamError::limit("peer", peer, limit));
        }
        let ranks = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        let found = self.peers.get(peer as usize);
        found.ok_or(TeamError::UnknownRank { rank: peer, ranks })
    }

    /// Returns the hello of this rank, without its windows.
    pub(in crate::team) fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Keeps the hello of a rank that joins later, as it is written to the store.
    pub(in crate::team) fn keep_told(&self, text: Vec<u8>) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Returns the hello that [`Peers::keep_told`] kept; none if it kept none.
    pub(in crate::team) fn told(&self) -> Option<Vec<u8>> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }

    /// Returns what this rank compares the records of other ranks with.
    pub(in crate::team) fn wanted<'a>(
        &'a self,
        exchange: &'a Exchange,
        config: &TeamConfig,
    ) -> Wanted<'a> {
        Wanted {
            exchange,
            own: config.holder(),
            hello: &self.hello,
            qps_per_peer: config.qps_per_peer,
            path: config.path,
        }
    }

    /// Returns how this rank reaches the generation that published `hello`, which was checked. This may take as long as ARP does.
    pub(in crate::team) fn contact(
        &self,
        rails: &[Rail],
        of: Holder,
        hello: &Hello,
    ) -> Result<Contact, TeamError> {
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
        Ok(Contact {
            generation: of.generation,
            reach: self.hello.identity.reach(&hello.identity),
            identity: hello.identity.clone(),
            ways: rails
                .iter()
                .enumerate()
                .map(way)
                .collect::<Result<_, _>>()
                .map_err(|source| TeamError::NoPath {
                    peer: of.rank,
                    source,
                })?,
        })
    }

    /// Returns the device addresses of the QP contexts, `[peer][qps_per_peer]`; 0 where there is no QP.
    pub(in crate::team) fn contexts(&self, qps_per_peer: u32) -> Vec<u64> {
        let row = |peer: &Peer| peer.state().qps.contexts(qps_per_peer);
        self.peers.iter().flat_map(row).collect()
    }

    /// Returns the entries of all ranks, by rank.
    pub(in crate::team) fn all(&self) -> &[Peer] {
        &self.peers
    }

    pub(in crate::team) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// Returns how long QPs try before they give a peer up, by rail.
    pub(in crate::team) fn patience(&self) -> &[SendAttr] {
        &self.send
    }
}

impl Peer {
    /// Locks the state for a single step. The holder of the lock waits for no other rank and no kernel.
    pub(in crate::team) fn state(&self) -> MutexGuard<'_, PeerState> {
        // The state is whole between two steps, so a panic elsewhere under the lock has broken nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the right to end a life of the QPs and make another; none while another thread has it.
    pub(in crate::team) fn try_work(&self) -> Option<MutexGuard<'_, ()>> {
        match self.work.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}
