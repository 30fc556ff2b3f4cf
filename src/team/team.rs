//! [`Team`]: what a program asks of the team as a whole. `peer.rs` has the functions for one peer.

use std::fmt::Display;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rendezvous::{MemoryStore, Store, StoreError, open_store};

use super::change::{replace, retell};
use super::config::TeamConfig;
use super::error::TeamError;
use super::meeting::program::{CallShape, Differs, Launches, Wants};
use super::meeting::{arguments, living};
use super::parts::Parts;
use super::qps::close::CloseReport;
use super::ranks::RankSet;
use super::report;
use super::report::paths::RankPath;
use super::start;
use super::together::{self, Maker};
use super::windows::window::{Place, Purpose};
use crate::abi::Window;
use crate::config::{Config, SignalOrder};
use crate::fabric::{Choice, Rail};
use crate::gpu::{DeviceMemory, Gpu};
use crate::verbs::{Events, Export, HeapStats};

/// The team as one rank holds it; [`JoinOptions`](super::JoinOptions) join it. Dropping it destroys the QPs and frees the windows
/// ([`Team::close`] does so with a report). No kernel may use QPs or windows any more. A [`Team::barrier`] before the drop makes
/// sure that no peer still writes to the windows.
#[derive(Debug)]
pub struct Team {
    parts: Parts,
}

impl Team {
    /// Returns the store that `config` names. For a team of one rank that names none, it is in memory of this process.
    ///
    /// # Errors
    /// As [`open_store`].
    pub fn open_store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
        match (config.ranks, config.store.as_str()) {
            (1, "") => Ok(Arc::new(MemoryStore::new())),
            (_, url) => open_store(url, &config.run_id),
        }
    }

    /// Ends the team of this rank. It moves the QPs to Err, and waits within
    /// [`TeamSettings::deadline`](crate::config::TeamSettings::deadline) until the HCA has nothing of them left to send. It
    /// destroys the QPs, then frees the windows. As after a drop, no kernel may use the team any more. Peers see the same as when a
    /// rank ends.
    ///
    /// # Errors
    ///
    /// Returns the team back if another holder of it is left: a layer, or a copy of the handle.
    pub fn close(self: Arc<Self>) -> Result<CloseReport, Arc<Self>> {
        Arc::try_unwrap(self).map(|team| start::close(team.parts))
    }

    /// Returns the rank of this process, from 0 on.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.parts.config.rank
    }

    /// Returns the number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.parts.config.ranks
    }

    /// Returns the configuration with which this rank joined.
    #[must_use]
    pub fn config(&self) -> &TeamConfig {
        &self.parts.config
    }

    /// Returns the device that kernels of this rank run on.
    #[must_use]
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.parts.gpu
    }

    /// Returns the number of teams of this process whose kernels run on the device of this team, this team included.
    pub(crate) fn teams_on_device(&self) -> u32 {
        crate::fabric::teams_on(&self.parts.gpu.device_id())
    }

    /// Returns the device address of the [`TeamContext`](crate::abi::TeamContext).
    #[must_use]
    pub fn context_addr(&self) -> u64 {
        self.parts.tables.addr()
    }

    /// Returns how signals are kept after data. All ranks use the same way.
    #[must_use]
    pub fn signal_order(&self) -> SignalOrder {
        self.parts.choices.order()
    }

    /// Returns the number of rails, which is the number of HCAs of each rank.
    #[must_use]
    pub fn rails(&self) -> usize {
        self.parts.rails.len()
    }

    /// Returns the statistics of the control heap of `rail`; none if the team has no such rail.
    #[must_use]
    pub fn rail_stats(&self, rail: usize) -> Option<HeapStats> {
        self.parts.rails.get(rail).map(|rail| rail.heap().stats())
    }

    /// Returns the statistics of the control heap of the first rail.
    #[must_use]
    pub fn control_stats(&self) -> HeapStats {
        self.parts.rails[0].heap().stats()
    }

    /// Returns a map of the heaps of all rails for a person to read: the figures of each heap, then its live blocks and free
    /// extents by offset.
    #[must_use]
    pub fn control_heap_dump(&self) -> String {
        let mut map = String::new();
        for (number, rail) in self.parts.rails.iter().enumerate() {
            for (name, heap) in rail.heaps() {
                map += &format!("rail {number}, {name}, {}", heap.dump());
            }
        }
        map
    }

    /// Returns what this rank has joined as and what carries its payload, in one line.
    ///
    /// A peer counts as direct if both ranks asked for it and are beside each other. [`Team::is_direct`] tells whether the memory
    /// of the peer could be opened.
    #[must_use]
    pub fn summary(&self) -> String {
        report::summary::summary(&self.parts)
    }

    /// Returns the ways of this rank's traffic, by rail. Reads sysfs anew.
    #[must_use]
    pub fn paths(&self) -> Vec<RankPath> {
        report::paths::paths(&self.parts)
    }

    /// Returns what this rank has chosen in each matter: the step that it takes, its cost, and why the rank did not take the steps above.
    #[must_use]
    pub fn choices(&self) -> Vec<Choice> {
        self.parts.choices.all()
    }

    /// Returns how the HCA of each rail reaches this rank's memory: name of the memory, rail, and rung of the ladder. The heap of
    /// queues comes first, then the windows by number.
    #[must_use]
    pub fn exports(&self) -> Vec<(String, usize, Export)> {
        let heaps = self
            .parts
            .rails
            .iter()
            .enumerate()
            .filter_map(|(rail, of)| {
                let export = of.export()?;
                Some(("control heap".to_owned(), rail, export.clone()))
            });
        let windows = self.parts.windows.exports().into_iter();
        let windows = windows.map(|(id, rail, export)| (format!("window {id}"), rail, export));
        heaps.chain(windows).collect()
    }

    /// Returns the number of commands that have gone to the HCAs through this team's contexts: to make, move, query and destroy
    /// QPs, CQs and keys. An address handle takes no command.
    #[must_use]
    #[doc(hidden)]
    pub fn commands(&self) -> u64 {
        self.parts
            .rails
            .iter()
            .map(|rail| rail.context().commands())
            .sum()
    }

    /// Returns the bytes of device and pinned host memory that were ever allocated on this team's device, plus the bytes of its
    /// heaps that QPs hold. If two calls return the same number, nothing was allocated between them.
    #[must_use]
    #[doc(hidden)]
    pub fn bytes_allocated(&self) -> u64 {
        let heaps: u64 = self.parts.rails.iter().map(Rail::heap_bytes).sum();
        self.parts.gpu.allocated() + heaps
    }

    /// Makes a window of `bytes` at every rank, zeroed. It lives as long as the team. Collective: the founders make their windows
    /// together, in the same order. A rank that joins later makes the same ones alone, before [`Team::hello`]. After an error no rank
    /// has the window, and all can make it again.
    ///
    /// # Errors
    /// A size outside the limits, or another one at another rank. More than
    /// [`TeamSettings::windows`](crate::config::TeamSettings::windows) windows. Errors of the HCA and the device.
    pub fn window(&self, bytes: u64) -> Result<Window, TeamError> {
        together::add_window(&self.parts, bytes, Place::New, Purpose::Any)
    }

    /// As [`Team::window`], for data that kernels read only after a completion, or after a signal in a window made by
    /// [`Team::window`]. The writes of such data may overtake each other on PCIe, so no kernel may poll it.
    ///
    /// # Errors
    /// As [`Team::window`].
    pub fn data_window(&self, bytes: u64) -> Result<Window, TeamError> {
        together::add_window(&self.parts, bytes, Place::New, Purpose::Data)
    }

    /// As `data_window`, for memory that this rank sends from: no peer gets a key of it, and no peer can write it. It is numbered
    /// with the other windows.
    ///
    /// # Errors
    /// As [`Team::window`].
    pub fn send_window(&self, bytes: u64) -> Result<Window, TeamError> {
        together::add_window(&self.parts, bytes, Place::New, Purpose::Send)
    }

    /// As [`Team::window`], over memory that the caller has: of this rank's device, or of an application
    /// ([`Gpu::wrap_memory`](crate::gpu::Gpu::wrap_memory)). The memory keeps its contents, and begins at a multiple of 128. The
    /// other ranks may make the same window by [`Team::window`]. Kernels of other processes reach it by the HCA only.
    ///
    /// # Errors
    /// As [`Team::window`]; memory that the HCA does not reach as it reaches the windows before this one.
    pub fn window_over(&self, memory: DeviceMemory) -> Result<Window, TeamError> {
        let (bytes, place) = (memory.bytes() as u64, Place::Given(Arc::new(memory)));
        together::add_window(&self.parts, bytes, place, Purpose::Any)
    }

    /// Makes something at all founders, or at none: each calls `make`, which also makes the windows that belong to it. `topic` is
    /// used for nothing else. If a try fails, nothing is left of it, and the founders may try again.
    ///
    /// # Errors
    /// Errors of `make`, at every rank. Ranks make different things. Ranks do not come, or have failed for good. Errors of the
    /// store.
    pub(crate) fn make_together<T, E>(
        &self,
        topic: &str,
        make: impl FnOnce(&mut Maker<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<TeamError> + Display,
    {
        together::make_together(&self.parts, topic, make)
    }

    /// Waits until every founder has called `barrier` with the same `name`, which is used once. After an error all founders may
    /// call it again.
    ///
    /// # Errors
    /// [`TeamError::Late`] for a rank that joined later. Ranks that do not come within the team's timeout, or have failed.
    pub fn barrier(&self, name: &str) -> Result<(), TeamError> {
        let Parts {
            exchange, meetings, ..
        } = &self.parts;
        exchange.only_founders("a barrier")?;
        exchange.tell_error(self.check_threads())?;
        let topic = format!("barrier/{name}");
        let met = meetings.meet(exchange, &topic, || Ok(((), ())), |_, ()| Ok(()));
        met.map(drop)
    }

    /// Returns the founders that go on, the same set at all of them. Every living founder calls it, with a `name` that is used
    /// once. The caller waits for the ranks in `awaited`, until their processes have ended or the team's timeout has passed. It
    /// publishes no failure: the team is left as it was.
    ///
    /// [`TeamError::LeftOut`] if the others go on without this rank. [`TeamError::Differs`] if another rank refuses what this rank
    /// wants ([`Team::wants`]); then no set was settled. [`TeamError::Late`] for a rank that joined later. Errors of the store.
    pub fn living(&self, name: &str, awaited: RankSet) -> Result<RankSet, TeamError> {
        self.check_threads()?;
        living::living(&self.parts.exchange, name, awaited)
    }

    /// Returns an error if another rank has published that it gives up.
    ///
    /// # Errors
    /// The error of the other rank. [`VerbsError::Panicked`](crate::verbs::VerbsError::Panicked) if a thread that rings doorbells
    /// for this rank does not run any more.
    pub fn check_peers(&self) -> Result<(), TeamError> {
        self.check_threads()?;
        self.parts.exchange.failure()
    }

    /// As `check_peers`, but passes over the other ranks if the store does not answer at once. For a rank whose call runs.
    pub(crate) fn check_peers_at_once(&self) -> Result<(), TeamError> {
        self.check_threads()?;
        self.parts.exchange.failure_at_once()
    }

    /// Returns an error if the process of another founder has ended, as far as this machine can see. A process that is killed
    /// publishes no failure. This call cannot see processes of other machines. It also reports a rank that was replaced, so a group
    /// does not make this call.
    ///
    /// # Errors
    /// [`TeamError::PeerEnded`].
    pub fn check_processes(&self) -> Result<(), TeamError> {
        self.parts.exchange.check_processes()
    }

    /// Returns the other founders whose processes have ended, as far as this machine can see. The limits are those of
    /// [`Team::check_processes`].
    #[must_use]
    pub fn ended_ranks(&self) -> Vec<u32> {
        self.parts.exchange.ended().map(|(rank, _)| rank).collect()
    }

    /// Returns an error if a thread that rings doorbells for this rank does not run. Each launch of a layer and each collective
    /// call asks, too.
    ///
    /// # Errors
    /// [`VerbsError::Panicked`](crate::verbs::VerbsError::Panicked): nothing that is posted completes any more.
    pub(crate) fn check_threads(&self) -> Result<(), TeamError> {
        self.parts.check_threads()
    }

    /// Tells the other ranks that this rank takes part in nothing any more, before it closes the team while they may still wait for
    /// it. Their collective calls then end with [`TeamError::PeerClosed`] at once.
    pub fn tell_closed(&self) {
        self.parts.exchange.tell_closed();
    }

    /// Returns the other founders that have called [`Team::tell_closed`].
    ///
    /// # Errors
    /// The store's.
    pub fn closed_ranks(&self) -> Result<Vec<u32>, TeamError> {
        Ok(self.parts.exchange.closed()?.collect())
    }

    /// Tells the other ranks that this rank gives up, and why.
    pub fn give_up(&self, message: &str) {
        self.parts.exchange.fail_with(message);
    }

    /// Sets the longest wait of device calls that start from now on.
    ///
    /// # Errors
    /// The device's.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), TeamError> {
        self.parts.tables.write_deadline(deadline)
    }

    /// Ends every wait of every running and later device call with `aborted`.
    ///
    /// # Errors
    /// The device's.
    pub fn abort(&self) -> Result<(), TeamError> {
        self.parts.tables.write_abort()?;
        let mut peers = self.parts.peers.all().iter();
        peers.try_for_each(|peer| peer.state().qps.write_abort(self.parts.gpu.as_ref(), true))
    }

    /// Returns the store in which the ranks meet.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.parts.exchange.store()
    }

    /// Returns the events of the HCA of each rail, by number of the rail: what the HCA tells without being asked.
    pub(crate) fn hca_events(&self) -> impl Iterator<Item = (usize, &Events)> {
        let rails = self.parts.rails.iter().enumerate();
        rails.filter_map(|(number, rail)| Some((number, rail.events()?)))
    }

    /// Returns the peers of which kernels have found a QP failed since the last call, and the peers that share a word with them.
    #[doc(hidden)]
    pub fn failing(&self) -> Vec<u32> {
        self.parts.peers.failures().take()
    }

    /// Publishes that the program of this rank makes `layer` with these arguments now.
    ///
    /// # Errors
    /// The store's.
    pub fn wants(&self, layer: &str, arguments: &[(String, String)]) -> Result<(), TeamError> {
        arguments::wants(&self.parts.exchange, layer, arguments)
    }

    /// Notes that this rank has made `layer`.
    pub(crate) fn has_made(&self, layer: &str, launches: Weak<Launches>) {
        self.parts.exchange.program().has_made(layer, launches);
    }

    /// Returns whether this rank has made `layer`.
    pub(crate) fn has_layer(&self, layer: &str) -> bool {
        self.parts.exchange.program().has_layer(layer)
    }

    /// Returns what `rank` makes, or has made last, if the record can be read now.
    pub(crate) fn wants_of(&self, rank: u32) -> Option<Wants> {
        arguments::wants_of(&self.parts.exchange, rank)
    }

    /// Publishes the shapes of this rank's calls of `layer`.
    pub(crate) fn tell_shapes(&self, layer: &str, shapes: &[CallShape]) {
        arguments::tell_shapes(&self.parts.exchange, layer, shapes);
    }

    /// Returns the shapes of the calls of `layer` by `rank`, without the layer's own shape, if the record can be read now.
    pub(crate) fn shapes_of(&self, layer: &str, rank: u32) -> Option<Vec<CallShape>> {
        arguments::shapes_of(&self.parts.exchange, layer, rank)
    }

    /// Publishes a difference between ranks that this rank has found.
    pub(crate) fn tell_differs(&self, found: &Differs) {
        arguments::tell_differs(&self.parts.exchange, found);
    }

    /// Returns whether the store has just left a question of this rank about the others unanswered.
    pub(crate) fn asks_in_vain(&self) -> bool {
        self.parts.exchange.is_silent()
    }

    /// Returns the difference that `rank` has found last, if the record can be read now.
    pub(crate) fn differs_of(&self, rank: u32) -> Option<Differs> {
        arguments::differs_of(&self.parts.exchange, rank)
    }

    /// Publishes the addresses, settings and windows of this generation as record `hello/RANK.GENERATION`. A rank that joins later
    /// calls it when all its windows are made; members need the record in [`Team::connect_peer`]. For a founder it does nothing:
    /// founders publish their hellos when they meet.
    ///
    /// # Errors
    /// Errors of the store, also for a record that is too long.
    pub fn hello(&self) -> Result<(), TeamError> {
        match replace::hello_record(&self.parts)? {
            Some((key, text)) => Ok(self.parts.exchange.store().put(&key, &text)?),
            None => Ok(()),
        }
    }

    /// Returns the key and the value of the record that [`Team::hello`] writes, for a caller that writes it; none for a founder.
    pub(crate) fn hello_record(&self) -> Result<Option<(String, Vec<u8>)>, TeamError> {
        replace::hello_record(&self.parts)
    }

    /// Writes again, into a store that has lost them, the records of this rank that newcomers read.
    pub(crate) fn tell_all_again(&self) -> Result<(), TeamError> {
        retell::tell_all_again(&self.parts)
    }

    /// Returns the team of the rank that has these parts.
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    /// Returns what this rank has of the team.
    pub(super) fn parts(&self) -> &Parts {
        &self.parts
    }
}
