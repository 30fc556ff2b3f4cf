//! Replacing one peer: a new generation of it, or the first one in its place. QPs and keys of other peers stay untouched.
//!
//! Both ends call [`Team::connect_peer`], in any order. A rank whose QPs to that place were for an earlier generation ends their
//! life and makes the next (`life.rs`). A rank that has offered nothing to that place yet skips this step. Then each publishes
//! what it offers the other, waits for the other's, checks it, and begins the life.
//!
//! Ring, flags, CQE, context and QP numbers of a rank that stays do not change. Nothing is allocated. A rank that stays issues
//! five commands for each QP, for its transitions from Err to Rts, and eight more. Two of these are for each window and rail of
//! which the peer has keys; the rest ask for packet numbers in use. Those of the QPs that are asked about are followed by numbers
//! at least 2^22 away. The others' are anywhere: an old packet meets the new window once in 2^24 then, and is refused by its key,
//! as any is.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::hello::{Hello, Offer, WindowOffer, WindowShape, hello_key, welcome_key};
use super::life::Keeps;
use super::links::{Known, Making, PeerState, Said};
use super::{Team, TeamError};
use crate::deadline::deadline_in;

impl Team {
    /// Publishes the addresses, settings and windows of this generation as record `hello/RANK.GENERATION`. A rank that joins later
    /// calls it when all its windows are made; members need the record in [`Team::connect_peer`]. Founders have published it when
    /// they met.
    ///
    /// # Errors
    /// The store's, a record that is too long among them.
    pub fn hello(&self) -> Result<(), TeamError> {
        match self.hello_record()? {
            Some((key, text)) => Ok(self.exchange.store().put(&key, &text)?),
            None => Ok(()),
        }
    }

    /// That record, key and value, for a caller that writes it; none of a founder.
    pub(crate) fn hello_record(&self) -> Result<Option<(String, Vec<u8>)>, TeamError> {
        if !self.config.joins() {
            return Ok(None);
        }
        let key = hello_key(self.rank(), self.config.generation);
        let hello = Hello {
            windows: Some(self.window_shapes()),
            identity: self.links.hello.identity.renewed(),
            ..self.links.hello.clone()
        };
        let text = self.exchange.text(&key, &hello)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        *told = Some(text.clone());
        Ok(Some((key, text)))
    }

    /// Reads the hello of generation `generation` of `peer`, checks it and finds the addresses behind it. This may take as long
    /// as ARP takes. The same is part of [`Team::connect_peer`] if it has not been done: call this function earlier, at a moment
    /// when waiting does no harm.
    ///
    /// # Errors
    /// [`TeamError::Absent`] if no hello is found within `patience`. For settings that do not fit: [`TeamError::Mismatch`]. For
    /// records that do not fit, also of another run or version: [`TeamError::Record`]. Also errors of the HCA.
    pub fn resolve_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        self.check_generation(&links.state(), peer, generation)?;
        let deadline = deadline_in(patience);
        self.known(peer, generation, deadline).map(drop)
    }

    /// Connects the QPs to generation `generation` of `peer`: the first in its place, or another one than before, whose QPs
    /// and keys end here. That generation calls it for this one, too. Other peers' QPs go on working. The peer stays closed
    /// until [`Team::open_peer`].
    ///
    /// Waits at most for `patience`, for kernels and for the other end; with none it only looks. After an error it may be
    /// called again, and goes on from where it was, or called for a later generation. Once it has succeeded, calling it again
    /// does nothing.
    ///
    /// What was in flight to the former generation has an unknown outcome, and its tickets are `stale_life`. Kernels
    /// that post to the peer hold guards of it while they do, or have ended.
    ///
    /// # Errors
    /// As [`Team::resolve_peer`]. Also [`TeamError::Guarded`] if kernels do not drop their guards, and [`TeamError::Absent`] if
    /// the other end does not come. Also [`TeamError::StillRuns`] while the former generation could store into windows of this
    /// rank. Also [`TeamError::Generation`] for a generation that is over, [`TeamError::Recovering`], and what HCA, device and
    /// store refuse.
    pub fn connect_peer(
        &self,
        peer: u32,
        generation: u32,
        patience: Duration,
    ) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        let Some(_only) = links.try_work() else {
            return Err(TeamError::Recovering { peer });
        };
        let deadline = deadline_in(patience);
        self.check_generation(&links.state(), peer, generation)?;
        if links.state().is_connected_with(generation) {
            return Ok(());
        }
        let known = self.known(peer, generation, deadline)?;
        self.prepare(peer, &known, deadline)?;
        let own = (self.rank(), self.config.generation);
        let mut state = links.state();
        let offer = self.offer_to(&mut state, peer, &known);
        drop(state);
        self.tell_welcome(
            peer,
            generation,
            &welcome_key(own, (peer, generation)),
            &offer,
        )?;
        let theirs = self.welcome_of((peer, generation), deadline)?;
        // The other end may have read by now what another writer has put there, and reads it again when the QPs have failed.
        let said = links.state().said.clone();
        if let Some(said) = said {
            self.exchange.put_again(&said.key, &said.text)?;
        }

        let mut state = links.state();
        // The host may have given it up meanwhile.
        self.check_generation(&state, peer, generation)?;
        let begun = self.begin_life(&mut state, peer, &known, &theirs);
        match begun {
            Ok(()) => (state.introduced, state.probed) = (Some(Instant::now()), None),
            // The hello may have been another writer's, whatever it says: the next try reads it again.
            Err(_) => state.known = None,
        }
        begun
    }

    /// Writes what this rank offers generation `generation` of `peer`, unless it has written just that before. Where another writer
    /// changes it, [`Team::tell_again`] writes it anew.
    fn tell_welcome(
        &self,
        peer: u32,
        generation: u32,
        key: &str,
        offer: &Offer,
    ) -> Result<(), TeamError> {
        let text = self.exchange.text(key, offer)?;
        let links = self.peer(peer)?;
        let stands = |said: &Said| said.key == key && said.text == text;
        if links.state().said.as_ref().is_some_and(stands) {
            return Ok(());
        }
        self.exchange.put_text(key, &text)?;
        links.state().said = Some(Said {
            generation,
            key: key.to_owned(),
            text,
        });
        Ok(())
    }

    /// Lets kernels take guards of `peer` and post to it, from [`Team::connect_peer`] on.
    ///
    /// # Errors
    /// [`TeamError::NotConnected`]; a rank that the team does not have.
    pub fn open_peer(&self, peer: u32) -> Result<(), TeamError> {
        // Held, so that no thread fails the peer in between.
        let mut state = self.peer(peer)?.state();
        match state.connected != 0 && state.is_connected_with(state.told) {
            true => self.tables.open(peer),
            false => return Err(TeamError::NotConnected { peer }),
        }
        // The other end has read it, or it would not have answered.
        state.said = None;
        Ok(())
    }

    /// Whether the QPs to `peer` are connected, with generation [`Team::peer_generation`], and have not been failed.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn is_connected(&self, peer: u32) -> Result<bool, TeamError> {
        let state = self.peer(peer)?.state();
        Ok(state.connected != 0 && state.is_connected_with(state.told))
    }

    /// The generation of `peer` that the QPs are for, or were; 0 if no generation has ever come.
    ///
    /// # Errors
    /// A rank that the team does not have.
    pub fn peer_generation(&self, peer: u32) -> Result<u32, TeamError> {
        Ok(self.peer(peer)?.state().told)
    }

    /// The newest generation of `peer` with which the QPs were ever connected; 0 if they never were.
    pub(crate) fn connected_generation(&self, peer: u32) -> Result<u32, TeamError> {
        Ok(self.peer(peer)?.state().connected)
    }

    /// What stands in the store of the records by which this rank and generation `generation` of `peer` meet, in words: of this end,
    /// and of the other. For the report on a pair that does not meet.
    pub(crate) fn words(&self, peer: u32, generation: u32) -> [String; 2] {
        let (own, other) = ((self.rank(), self.config.generation), (peer, generation));
        let wanted = self.links.wanted(&self.exchange, &self.config);
        let shapes = self.window_shapes();
        let of = |from: (u32, u32), to: (u32, u32)| {
            let key = hello_key(from.0, from.1);
            let hello = match self.exchange.read_versioned::<Hello>(from.0, &key) {
                Ok(None) => format!("'{key}' is missing"),
                Ok(Some(hello)) => match wanted.check_hello(from.0, &key, &hello, &shapes) {
                    Ok(()) => format!("'{key}' stands"),
                    Err(error) => format!("'{key}' does not fit ({error})"),
                },
                Err(error) => format!("'{key}' cannot be read ({error})"),
            };
            let key = welcome_key(from, to);
            let welcome = match self.exchange.read_versioned::<Offer>(from.0, &key) {
                Ok(None) => format!("'{key}' is missing"),
                Ok(Some(_)) => format!("'{key}' stands"),
                Err(error) => format!("'{key}' cannot be read ({error})"),
            };
            format!("{hello}, {welcome}")
        };
        [of(own, other), of(other, own)]
    }

    /// Refuses a generation that is over.
    fn check_generation(
        &self,
        state: &PeerState,
        peer: u32,
        generation: u32,
    ) -> Result<(), TeamError> {
        let (newest, recovers) = match state.making {
            Some(Making::Peer(making)) => (making.max(state.told), false),
            Some(Making::Recovery | Making::Reunion(_)) => (state.told, true),
            None => (state.told, false),
        };
        let over = state.failed || recovers;
        // A later one that was never connected makes none over: of two processes that take one place either may be the one that goes.
        let least = match over || newest == state.connected {
            true => newest.saturating_add(u32::from(over)),
            false => state.connected.saturating_add(1),
        };
        let least = least.max(1);
        match generation < least {
            true => Err(TeamError::Generation {
                peer,
                generation,
                least,
            }),
            false => Ok(()),
        }
    }

    /// How generation `generation` of `peer` is reached.
    pub(super) fn known(
        &self,
        peer: u32,
        generation: u32,
        deadline: Instant,
    ) -> Result<Known, TeamError> {
        let links = self.peer(peer)?;
        let found = links.state().known.clone();
        if let Some(known) = found.filter(|known| known.generation == generation) {
            return Ok(known);
        }
        let key = hello_key(peer, generation);
        let read = || self.exchange.read_versioned(peer, &key);
        let hello: Hello = self.exchange.until(peer, &key, deadline, read)?;
        let wanted = self.links.wanted(&self.exchange, &self.config);
        wanted.check_hello(peer, &key, &hello, &self.window_shapes())?;
        let known = self.links.known(&self.rails, (peer, generation), &hello)?;
        links.state().known = Some(known.clone());
        Ok(known)
    }

    /// Reads again how generation `generation` of `peer`, the one that the QPs are for, is reached, and what it offers. What was read
    /// before may have been another writer's, and the peer has written its own again since. Where its records are missing, or
    /// cannot be, all stays as it was.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn read_again(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        let links = self.peer(peer)?;
        links.state().doubted = false;
        let (known, offer) = match self.told_now(peer, generation) {
            Ok(Some(told)) => told,
            Ok(None) => return Ok(()),
            Err(error @ TeamError::Store(_)) if !error.counts_as_missing() => {
                links.state().doubted = true;
                return Err(error);
            }
            Err(error) => {
                tracing::debug!("what rank {peer} has told stays as it was read first: {error}");
                return Ok(());
            }
        };
        let mut state = links.state();
        state.lead_to(&known, &offer.qps);
        // Founders tell their windows elsewhere.
        state.places = (!offer.windows.is_empty()).then(|| self.places(&offer));
        Ok(())
    }

    /// What the records of generation `generation` of `peer` say at the moment, which was checked.
    fn told_now(&self, peer: u32, generation: u32) -> Result<Option<(Known, Offer)>, TeamError> {
        let own = (self.rank(), self.config.generation);
        let wanted = self.links.wanted(&self.exchange, &self.config);
        let key = hello_key(peer, generation);
        let Some(hello) = self.exchange.read_versioned::<Hello>(peer, &key)? else {
            return Ok(None);
        };
        wanted.check_hello(peer, &key, &hello, &self.window_shapes())?;
        let of_founder = |offer: &&Offer| (offer.rank, offer.generation) == own;
        let offer = match hello.offers.iter().find(of_founder) {
            Some(offer) => {
                wanted.check_offer(peer, &key, offer, &[])?;
                offer.clone()
            }
            None => {
                let key = welcome_key((peer, generation), own);
                let Some(offer) = self.exchange.read_versioned(peer, &key)? else {
                    return Ok(None);
                };
                wanted.check_offer(peer, &key, &offer, &self.window_shapes())?;
                offer
            }
        };
        let known = self.links.known(&self.rails, (peer, generation), &hello)?;
        Ok(Some((known, offer)))
    }

    /// Brings QPs and keys to a state in which this rank can offer them to generation `generation`: it has offered them to no
    /// other.
    fn prepare(&self, peer: u32, known: &Known, deadline: Instant) -> Result<(), TeamError> {
        let generation = known.generation;
        let links = self.peer(peer)?;
        let mut state = links.state();
        if state.told == 0 {
            state.told = generation;
        }
        if state.told == generation && state.making.is_none() {
            return Ok(());
        }
        drop(state);
        self.next_life(peer, Keeps::Qps(known), deadline)
    }

    /// What `peer` offers this generation.
    fn welcome_of(&self, peer: (u32, u32), deadline: Instant) -> Result<Offer, TeamError> {
        let key = welcome_key(peer, (self.rank(), self.config.generation));
        let read = || self.exchange.read_versioned(peer.0, &key);
        let offer = self.exchange.until(peer.0, &key, deadline, read)?;
        let wanted = self.links.wanted(&self.exchange, &self.config);
        wanted.check_offer(peer.0, &key, &offer, &self.window_shapes())?;
        Ok(offer)
    }

    /// Address and key of each window and rail, as the peer table holds them.
    pub(super) fn places(&self, theirs: &Offer) -> Vec<(u64, u32)> {
        let rail = |window: &WindowOffer, rail: usize| match window.rkeys.get(rail) {
            Some(rkey) => (window.base, rkey.to_be()),
            None => (0, 0),
        };
        let windows = theirs.windows.iter();
        windows
            .flat_map(|window| (0..self.rails.len()).map(move |number| rail(window, number)))
            .collect()
    }

    pub(super) fn offers_of_windows(&self, peer: u32) -> Vec<WindowOffer> {
        self.windows()
            .iter()
            .map(|window| window.offer(peer))
            .collect()
    }

    pub(super) fn window_shapes(&self) -> Vec<WindowShape> {
        self.windows()
            .iter()
            .map(super::OwnedWindow::shape)
            .collect()
    }
}
