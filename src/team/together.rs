//! What founders make together, each at its rank or none at all: windows, and a layer with its windows. A rank that joins later
//! makes the same windows and layers alone.

use std::cell::OnceCell;
use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::error::TeamError;
use super::parts::Parts;
use super::windows::window::{OwnedWindow, Place, Plan, Purpose, Site, WindowRecord};
use crate::abi::Window;

/// The number of windows that a MoE layer takes.
const WINDOWS_OF_A_LAYER: u32 = 3;

/// The record in which a founder tells the others what it has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Word {
    /// Pairs of name and value that all ranks must have alike.
    agreed: Vec<(String, String)>,
    windows: Vec<WindowRecord>,
}

/// The windows and settings that one try makes at this rank. If the try fails, they are dropped.
#[derive(Debug)]
pub(crate) struct Maker<'a> {
    own: &'a Parts,
    /// The number of windows that the team had before this try.
    first: usize,
    made: Vec<OwnedWindow>,
    /// The key of a record, and its pairs of name and value. Ranks that join later compare their pairs with it.
    agreed: Option<(String, Vec<(String, String)>)>,
}

impl Maker<'_> {
    /// Sets the pairs of name and value that all ranks must have alike. They are published under `topic`, which is used for nothing
    /// else.
    pub(crate) fn agree(&mut self, topic: String, pairs: Vec<(String, String)>) {
        self.agreed = Some((topic, pairs));
    }

    /// As [`Team::window`](crate::team::Team::window).
    pub(crate) fn window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make(bytes, Place::New, Purpose::Any)
    }

    /// As [`Team::data_window`](crate::team::Team::data_window).
    pub(crate) fn data_window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make(bytes, Place::New, Purpose::Data)
    }

    /// As [`Team::send_window`](crate::team::Team::send_window).
    pub(crate) fn send_window(&mut self, bytes: u64) -> Result<Window, TeamError> {
        self.make(bytes, Place::New, Purpose::Send)
    }

    fn make(&mut self, bytes: u64, place: Place, purpose: Purpose) -> Result<Window, TeamError> {
        let most = self.own.config.windows;
        let number = self.first + self.made.len();
        let id = u32::try_from(number).ok().filter(|id| *id < most);
        let id = id.ok_or_else(|| {
            let layers = most / WINDOWS_OF_A_LAYER;
            let limit =
                format!("at most {most} (WARPVERBS_WINDOWS): as many as {layers} MoE layers take");
            TeamError::limit("number of windows", number + 1, limit)
        })?;
        let plan = Plan::new(place, bytes, purpose)?;
        let site = Site {
            gpu: self.own.gpu.as_ref(),
            team: &self.own.living,
            rails: &self.own.rails,
            config: &self.own.config,
        };
        // If a device refuses window 0 in one way of reaching memory, `make_window` takes the next way, for all windows.
        let owned = self
            .own
            .choices
            .make_window(id == 0, |rung| OwnedWindow::new(&site, &plan, id, rung))?;
        let window = owned.window();
        self.made.push(owned);
        Ok(window)
    }
}

/// Makes a window at all founders together, or at none.
pub(in crate::team) fn add_window(
    own: &Parts,
    bytes: u64,
    place: Place,
    purpose: Purpose,
) -> Result<Window, TeamError> {
    // Windows are made one after the other, so the next has the same number at all ranks.
    let number = own.windows.lock().len();
    make_together(own, &format!("window-{number}"), |maker| {
        maker.make(bytes, place, purpose)
    })
}

/// Makes something at all founders, or at none: each calls `make`, which also makes the windows that belong to it. `topic` is used
/// for nothing else. If a try fails, nothing is left of it, and the founders may try again.
///
/// # Errors
/// Errors of `make`, at every rank. Ranks make different things. Ranks do not come, or have failed for good. Errors of the store.
pub(in crate::team) fn make_together<T, E>(
    own: &Parts,
    topic: &str,
    make: impl FnOnce(&mut Maker<'_>) -> Result<T, E>,
) -> Result<T, E>
where
    E: From<TeamError> + Display,
{
    // If the threads that ring doorbells do not run, nothing that this rank posts completes: the rank has failed for good.
    own.exchange.tell_error(own.check_threads())?;
    let mut windows = own.windows.lock();
    let mut maker = Maker {
        own,
        first: windows.len(),
        made: Vec::new(),
        agreed: None,
    };
    let (rank, joins) = (own.config.rank, own.exchange.joins());
    if joins {
        let made = make(&mut maker)?;
        if let Some((topic, pairs)) = &maker.agreed {
            own.exchange.agree(topic, pairs)?;
        }
        let words = maker.made.iter().map(|_| Vec::new()).collect();
        windows.extend(tell_kernels(own, maker.made, words)?);
        return Ok(made);
    }
    let own_word = &OnceCell::new();
    let prepare = move || {
        let made = make(&mut maker)?;
        let agreed = match &maker.agreed {
            None => Vec::new(),
            Some((topic, pairs)) => {
                own.exchange.put(&format!("{topic}/{rank}"), pairs)?;
                pairs.clone()
            }
        };
        let windows = maker.made.iter().map(OwnedWindow::record).collect();
        let word = own_word.get_or_init(|| Word { agreed, windows });
        Ok::<_, E>(((made, maker.made), word.clone()))
    };
    let first = u32::try_from(windows.len()).unwrap_or(u32::MAX);
    let check = |rank, word: &Word| match own_word.get() {
        Some(mine) => check_word(own, mine, rank, word, first),
        None => Ok(()),
    };
    let ((made, owned), words) = own.meetings.meet(&own.exchange, topic, prepare, check)?;
    let records = (0..owned.len()).map(|window| {
        let of_rank = words.iter();
        of_rank
            .map(|(rank, word)| (*rank, word.windows[window].clone()))
            .collect()
    });
    // All other founders have the windows now. If the device refuses here, this rank has failed for good.
    let told_kernels = tell_kernels(own, owned, records.collect());
    windows.extend(own.exchange.tell_error(told_kernels)?);
    Ok(made)
}

/// Compares what `rank` has made with what this rank has made. `first` is the number of the first window.
fn check_word(
    own: &Parts,
    mine: &Word,
    rank: u32,
    word: &Word,
    first: u32,
) -> Result<(), TeamError> {
    own.exchange.same(&mine.agreed, rank, &word.agreed)?;
    if mine.windows.len() != word.windows.len() {
        let what = "number of windows made together";
        let counts = [mine.windows.len(), word.windows.len()];
        let [ours, theirs] = counts.map(|count| count.to_string());
        return Err(own.exchange.mismatch(what, ours, rank, theirs));
    }
    let windows = (first..).zip(mine.windows.iter().zip(&word.windows));
    windows.into_iter().try_for_each(|(id, (ours, theirs))| {
        theirs.check(ours, id, own.config.ranks, rank, &own.exchange)
    })
}

/// Writes the rows of the windows into the tables that kernels read. `records` holds what the founders have told of each window.
fn tell_kernels(
    own: &Parts,
    mut made: Vec<OwnedWindow>,
    records: Vec<Vec<(u32, WindowRecord)>>,
) -> Result<Vec<OwnedWindow>, TeamError> {
    let peers = own.peers.all().iter().map(|peer| {
        let state = peer.state();
        let visitor = state.visitor.as_ref();
        (state.reach, visitor.map(|visitor| visitor.identity.clone()))
    });
    let peers: Vec<_> = peers.collect();
    for (owned, records) in made.iter_mut().zip(records) {
        let (entries, direct) = owned.entries(own.gpu.as_ref(), &own.config, records, &peers);
        own.tables
            .add_window(&entries, &direct, &owned.lkeys_be())?;
    }
    Ok(made)
}
