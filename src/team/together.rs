//! What all founders make together, or none of them: windows, and a layer with its windows. A rank that joins later makes the same
//! alone.

use std::cell::OnceCell;
use std::fmt::Display;
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};

use super::window::{self, OwnedWindow, Place, Purpose, WindowRecord};
use super::{Team, TeamError, choices, told};
use crate::abi::Window;
use crate::fabric::FabricError;
use crate::gpu::DeviceMemory;

/// Windows that a MoE layer takes.
const WINDOWS_OF_A_LAYER: u32 = 3;

/// What a founder tells the others of what it has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    /// What all must have alike: name and value.
    agreed: Vec<(String, String)>,
    windows: Vec<WindowRecord>,
}

/// What one try makes at this rank. All of it goes with a try that fails.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    team: &'a Team,
    /// How many windows the team has.
    first: usize,
    made: Vec<OwnedWindow>,
    /// Key and pairs of name and value, by which ranks that join later compare theirs.
    agreed: Option<(String, Vec<(String, String)>)>,
}

impl Maker<'_> {
    /// All ranks must have these pairs of name and value alike; `topic` is used for nothing else.
    pub(crate) fn agree(&mut self, topic: String, pairs: Vec<(String, String)>) {
        self.agreed = Some((topic, pairs));
    }

    /// As [`Team::window`].
    pub(crate) fn window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make((bytes, &Place::New), Purpose::Any)
    }

    /// As [`Team::data_window`].
    pub(crate) fn data_window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make((bytes, &Place::New), Purpose::Data)
    }

    /// As [`Team::send_window`].
    pub(crate) fn send_window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make((bytes, &Place::New), Purpose::Send)
    }

    fn make(
        &mut self,
        (bytes, place): (u64, &Place),
        purpose: Purpose,
    ) -> Result<Window, TeamError> {
        let most = self.team.config.windows;
        let number = self.first + self.made.len();
        let id = u32::try_from(number).ok().filter(|id| *id < most);
        let id = id.ok_or_else(|| {
            let layers = most / WINDOWS_OF_A_LAYER;
            let limit =
                format!("at most {most} (WARPVERBS_WINDOWS): as many as {layers} MoE layers take");
            TeamError::limit("number of windows", number + 1, limit)
        })?;
        let owned = self
            .team
            .own_window(id, place, (window::length(bytes)?, purpose))?;
        let window = owned.window;
        self.made.push(owned);
        Ok(window)
    }
}

impl Team {
    /// Makes a window of `bytes` at every rank, zeroed. It lives as long as the team. Collective: the founders make their windows
    /// together, in the same order. A rank that joins later makes the same ones alone, before [`Team::hello`]. After an error no rank
    /// has the window, and all can make it again.
    ///
    /// # Errors
    /// A size outside the limits or different at another rank; more than [`TeamSettings::windows`](crate::config::TeamSettings::windows) windows; what HCA and device refuse.
    pub fn window(&self, bytes: u64) -> Result<Window, TeamError> {
        self.add_window((bytes, Place::New), Purpose::Any)
    }

    /// As [`Team::window`], for data that kernels read only behind a completion, or behind a signal in a window made by
    /// [`Team::window`]. The writes of such data may overtake each other on PCIe, so no kernel may poll it.
    ///
    /// # Errors
    /// As [`Team::window`].
    pub fn data_window(&self, bytes: u64) -> Result<Window, TeamError> {
        self.add_window((bytes, Place::New), Purpose::Data)
    }

    /// The same for memory that this rank sends from: no peer gets a key of it, and none can write it. It takes its number like
    /// any other.
    ///
    /// # Errors
    /// As [`Team::window`].
    pub fn send_window(&self, bytes: u64) -> Result<Window, TeamError> {
        self.add_window((bytes, Place::New), Purpose::Send)
    }

    /// As [`Team::window`], over memory that the caller has: of this rank's device, or of an application ([`Gpu::wrap_memory`](crate::gpu::Gpu::wrap_memory)). It
    /// keeps its contents, and begins at a multiple of 128. The other ranks may make the same window by [`Team::window`]. Kernels
    /// of other processes reach it by the HCA only.
    ///
    /// # Errors
    /// As [`Team::window`]; memory that the HCA does not reach as it reaches the windows before this one.
    pub fn window_over(&self, memory: DeviceMemory) -> Result<Window, TeamError> {
        let bytes = memory.bytes() as u64;
        self.add_window((bytes, Place::Given(Arc::new(memory))), Purpose::Any)
    }

    fn add_window(
        &self,
        (bytes, place): (u64, Place),
        purpose: Purpose,
    ) -> Result<Window, TeamError> {
        // Windows are made one after the other, so the next has the same number at all ranks.
        let number = self.windows().len();
        self.make_together(&format!("window-{number}"), |maker| {
            maker.make((bytes, &place), purpose)
        })
    }

    /// Makes something at all founders together, or at none: what `make` makes at this rank, with its windows. `topic` is used for
    /// nothing else. After an error all founders may make it again, and nothing is left of the try that failed.
    ///
    /// # Errors
    /// Those of `make`, at every rank; what differs between ranks; ranks that do not come or have failed for good; the store's.
    pub(crate) fn make_together<T, E>(
        &self,
        topic: &str,
        make: impl FnOnce(&mut Maker<'_>) -> Result<T, E>,
    ) -> Result<T, E>
    where
        E: From<TeamError> + Display,
    {
        // What is posted by a rank without these threads does not run: it has failed for good.
        told(&self.exchange, self.check_threads())?;
        let mut windows = self.windows();
        let mut maker = Maker {
            team: self,
            first: windows.len(),
            made: Vec::new(),
            agreed: None,
        };
        let (rank, joins) = (self.config.rank, self.exchange.joins());
        if joins {
            let made = make(&mut maker)?;
            if let Some((topic, pairs)) = &maker.agreed {
                self.exchange.agree(topic, pairs)?;
            }
            let words = maker.made.iter().map(|_| Vec::new()).collect();
            windows.extend(self.tell_kernels(maker.made, words)?);
            return Ok(made);
        }
        let own = &OnceCell::new();
        let prepare = move || {
            let made = make(&mut maker)?;
            let agreed = match &maker.agreed {
                None => Vec::new(),
                Some((topic, pairs)) => {
                    self.exchange.put(&format!("{topic}/{rank}"), pairs)?;
                    pairs.clone()
                }
            };
            let word = Word {
                agreed,
                windows: maker.made.iter().map(OwnedWindow::record).collect(),
            };
            let word = own.get_or_init(|| word);
            Ok::<_, E>(((made, maker.made), word.clone()))
        };
        let first = u32::try_from(windows.len()).unwrap_or(u32::MAX);
        let check = |rank, word: &Word| match own.get() {
            Some(own) => self.check_word(own, rank, word, first),
            None => Ok(()),
        };
        let ((made, owned), words) = self.meet(topic, prepare, check)?;
        let records = (0..owned.len()).map(|window| {
            let of_rank = words.iter();
            of_rank
                .map(|(rank, word)| (*rank, word.windows[window].clone()))
                .collect()
        });
        // All others have it. What the device refuses here ends this rank for good.
        let told_kernels = self.tell_kernels(owned, records.collect());
        windows.extend(told(&self.exchange, told_kernels)?);
        Ok(made)
    }

    /// Compares what `rank` tells with what this rank does; `first` is the number of the first window.
    fn check_word(&self, own: &Word, rank: u32, word: &Word, first: u32) -> Result<(), TeamError> {
        self.exchange.same(&own.agreed, rank, &word.agreed)?;
        if own.windows.len() != word.windows.len() {
            let (mine, theirs) = (own.windows.len(), word.windows.len());
            let what = "number of windows made together";
            let [mine, theirs] = [mine, theirs].map(|count| count.to_string());
            return Err(self.exchange.mismatch(what, mine, rank, theirs));
        }
        let windows = (first..).zip(own.windows.iter().zip(&word.windows));
        windows.into_iter().try_for_each(|(id, (own, theirs))| {
            theirs.check(own, id, self.config.ranks, rank, &self.exchange)
        })
    }

    /// Meets the other founders ([`Exchange::meet`](super::exchange::Exchange::meet)).
    pub(super) fn meet<T, W, E>(
        &self,
        topic: &str,
        prepare: impl FnOnce() -> Result<(T, W), E>,
        check: impl Fn(u32, &W) -> Result<(), TeamError>,
    ) -> Result<(T, Vec<(u32, W)>), E>
    where
        W: Serialize + serde::de::DeserializeOwned,
        E: From<TeamError> + Display,
    {
        let meetings = || self.meetings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tries = meetings().get(topic).copied().unwrap_or_default();
        let met = self.exchange.meet(topic, &mut tries, prepare, check);
        meetings().insert(topic.to_owned(), tries);
        met
    }

    /// Gives kernels the rows of windows, with what the founders have told of each.
    fn tell_kernels(
        &self,
        mut made: Vec<OwnedWindow>,
        records: Vec<Vec<(u32, WindowRecord)>>,
    ) -> Result<Vec<OwnedWindow>, TeamError> {
        let peers = self.links.all().iter().map(|peer| {
            let state = peer.state();
            let visitor = state.visitor.as_ref();
            (state.reach, visitor.map(|(_, identity)| identity.clone()))
        });
        let peers: Vec<_> = peers.collect();
        for (owned, records) in made.iter_mut().zip(records) {
            let (entries, direct) = owned.entries(self.gpu.as_ref(), &self.config, records, &peers);
            self.tables
                .add_window(&entries, &direct, &owned.lkeys_be())?;
        }
        Ok(made)
    }

    /// Makes the memory of a window. What refuses the first one has all of them lie a step lower.
    fn own_window(
        &self,
        id: u32,
        place: &Place,
        what: (usize, Purpose),
    ) -> Result<OwnedWindow, TeamError> {
        place.check()?;
        let of = (&self.living, self.rails.as_slice());
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = (id, ways.window_rung(), place);
            match OwnedWindow::new(self.gpu.as_ref(), of, &self.config, at, what) {
                Ok(owned) => return Ok(owned),
                Err(refusal @ FabricError::Step(_)) if id == 0 => {
                    ways.leave_windows(refusal)?;
                    let [.., windows] = ways.choices();
                    choices::tell([windows], &[]);
                }
                Err(other) => return Err(other.into()),
            }
        }
    }
}
