//! Ranks that come, die and come back, driven from one thread: nothing happens but what the test does.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use warpverbs::abi::{PeerEntry, Status};
use warpverbs::team::{MemoryStore, RankSet, Store, Team, TeamConfig, TeamError};

use crate::rank::{PATIENCE, Put, Rank, WORDS};
use test_support::fleet::{Hcas, Setup};

/// The ranks that live, by place.
pub(crate) struct DrivenFleet<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) hcas: &'a Hcas,
    pub(crate) store: Arc<dyn Store>,
    ranks: Vec<Option<Rank<'a>>>,
}

impl<'a> DrivenFleet<'a> {
    /// A team whose founders are `members`.
    pub(crate) fn found(setup: &'a Setup, hcas: &'a Hcas, members: RankSet) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Self::found_in(setup, hcas, members, store)
    }

    /// As `found`, in this store.
    pub(crate) fn found_in(
        setup: &'a Setup,
        hcas: &'a Hcas,
        members: RankSet,
        store: Arc<dyn Store>,
    ) -> Self {
        Self::found_with(setup, hcas, members, store, |_| ())
    }

    /// As `found_in`, with founders that each change what they ask for.
    pub(crate) fn found_by(
        setup: &'a Setup,
        hcas: &'a Hcas,
        members: RankSet,
        change: impl Fn(&mut TeamConfig) + Sync,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Self::found_with(setup, hcas, members, store, change)
    }

    fn found_with(
        setup: &'a Setup,
        hcas: &'a Hcas,
        members: RankSet,
        store: Arc<dyn Store>,
        change: impl Fn(&mut TeamConfig) + Sync,
    ) -> Self {
        let mut fleet = Self {
            setup,
            hcas,
            store,
            ranks: (0..setup.team.ranks).map(|_| None).collect(),
        };
        let config = |rank| {
            let mut config = setup.of_rank(rank).with_members(Some(members));
            change(&mut config);
            config
        };
        let founders: Vec<Rank<'a>> = thread::scope(|scope| {
            let start = |rank: u32| {
                let (config, store) = (config(rank), Arc::clone(&fleet.store));
                scope.spawn(move || Rank::alone(config, hcas.of(rank), store).unwrap())
            };
            let threads: Vec<_> = members.iter().map(start).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.collect()
        });
        for founder in founders {
            let place = founder.number() as usize;
            fleet.ranks[place] = Some(founder);
        }
        fleet
    }

    /// The rank that lives in this place.
    pub(crate) fn rank(&self, rank: u32) -> &Rank<'a> {
        self.ranks[rank as usize].as_ref().expect("it lives")
    }

    pub(crate) fn living(&self) -> RankSet {
        let lives = |rank: &u32| self.ranks[*rank as usize].is_some();
        (0..self.setup.team.ranks).filter(lives).collect()
    }

    /// Ends a rank as SIGKILL would: its HCA objects go, and no other rank gets a word.
    pub(crate) fn kill(&mut self, rank: u32) {
        self.ranks[rank as usize] = None;
    }

    /// The team of a rank that lives no more in the fleet.
    pub(crate) fn leave(&mut self, rank: u32) -> Arc<Team> {
        self.ranks[rank as usize].take().expect("it lives").team
    }

    /// Every living rank gives `rank` up.
    pub(crate) fn fail(&self, rank: u32) {
        for other in self.living().without(rank).iter() {
            self.rank(other).team.fail_peer(rank).unwrap();
        }
    }

    /// Returns how generation `generation` of `rank` joins.
    pub(crate) fn joining(&self, rank: u32, generation: u32) -> TeamConfig {
        let members = self.living().without(rank);
        self.setup.of_rank(rank).joining(generation, members)
    }

    /// Generation `generation` of `rank` comes, alone.
    pub(crate) fn come(&mut self, rank: u32, generation: u32) {
        let config = self.joining(rank, generation);
        let new = Rank::alone(config, self.hcas.of(rank), Arc::clone(&self.store)).unwrap();
        new.team.hello().unwrap();
        self.settle(new);
    }

    /// A rank that has come takes its place.
    pub(crate) fn settle(&mut self, new: Rank<'a>) {
        let place = new.number() as usize;
        self.ranks[place] = Some(new);
    }

    /// Connects `rank` with every other that lives.
    pub(crate) fn connect(&self, rank: u32) {
        let pairs: Vec<_> = self
            .living()
            .without(rank)
            .iter()
            .map(|other| (rank, other))
            .collect();
        self.connect_pairs(&pairs).unwrap();
    }

    /// Connects both ends of these pairs, each call only looking, until all are.
    pub(crate) fn connect_pairs(&self, pairs: &[(u32, u32)]) -> Result<(), TeamError> {
        let start = Instant::now();
        let ends = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]);
        let mut left: Vec<(u32, u32)> = ends.collect();
        while !left.is_empty() {
            assert!(start.elapsed() < PATIENCE, "{left:?} are not connected");
            let mut later = Vec::new();
            for (from, to) in left {
                match self.connect_end(from, to) {
                    Ok(()) => {}
                    Err(TeamError::Absent { .. }) => later.push((from, to)),
                    Err(error) => return Err(error),
                }
            }
            left = later;
        }
        Ok(())
    }

    /// What `from` does to connect with the generation of `to` that lives.
    pub(crate) fn connect_end(&self, from: u32, to: u32) -> Result<(), TeamError> {
        let generation = self.rank(to).team.config().generation;
        self.rank(from)
            .team
            .connect_peer(to, generation, Duration::ZERO)
    }

    /// `rank` and all others let kernels post to each other.
    pub(crate) fn open(&self, rank: u32) {
        for other in self.living().without(rank).iter() {
            self.rank(rank).team.open_peer(other).unwrap();
            self.rank(other).team.open_peer(rank).unwrap();
        }
    }

    /// `rank` dies, is given up, comes back as `generation`, and works again.
    pub(crate) fn replace(&mut self, rank: u32, generation: u32) {
        self.kill(rank);
        self.fail(rank);
        self.come(rank, generation);
        self.connect(rank);
        self.open(rank);
    }

    /// Puts words from each end of the pair to the other on each QP, and looks whether they have arrived.
    pub(crate) fn talk(&self, a: u32, b: u32) {
        for (from, to) in [(a, b), (b, a)] {
            for qp in 0..self.rank(from).team.config().qps_per_peer {
                let dst_word = WORDS / 2 + 64 * qp;
                let put = Put {
                    qp,
                    dst_word,
                    ..Put::new(to, 20)
                };
                let seen = self.rank(from).put(&put).finish()[0];
                assert_eq!(
                    (seen.status, seen.done, seen.failed),
                    (Status::OK, 20, 0),
                    "{seen:?}"
                );
                let wrong = self.rank(to).wrong_words(from, dst_word, 20);
                assert_eq!(wrong, Vec::<u32>::new(), "rank {from} to {to}");
                // Zeros again, for the next time.
                let at = self.rank(to).window.base + 8 * u64::from(dst_word);
                self.rank(to).gpu.write(at, &[0; 160]).unwrap();
            }
        }
    }

    /// Every pair that lives.
    pub(crate) fn talk_all(&self) {
        for a in self.living().iter() {
            for b in self.living().iter().filter(|b| *b > a) {
                self.talk(a, b);
            }
        }
    }

    /// Returns what a rank knows of `peer` that a kernel or a graph may have captured: addresses and numbers of its QPs.
    pub(crate) fn captured(&self, rank: u32, peer: u32) -> Vec<[u64; 8]> {
        let qps = 0..self.setup.team.qps_per_peer;
        let of = |qp| {
            let context = self.rank(rank).qp(peer, qp);
            [
                self.rank(rank).qp_addr(peer, qp),
                context.sq.addr(),
                context.flags.addr(),
                context.dbrec.addr(),
                context.doorbell.addr(),
                context.cqe.addr(),
                context.qpn.into(),
                context.depth.into(),
            ]
        };
        qps.map(of).collect()
    }

    /// The entry of `peer` in the peer table of `rank`, for its first window on `rail`.
    pub(crate) fn entry(&self, rank: u32, peer: u32, rail: u32) -> PeerEntry {
        let rank = self.rank(rank);
        let place = u64::from(rail * self.setup.team.ranks + peer);
        let at = rank.tables().peers.addr() + place * size_of::<PeerEntry>() as u64;
        rank.read(at, 1)[0]
    }
}
