//! What a group tells a layer, and asks it: the words that host and kernels share, without knowing what the layer computes.

use std::error::Error;
use std::fmt::Debug;

/// Why a layer could not do what it was asked.
pub type LayerError = Box<dyn Error + Send + Sync>;

/// A view as one rank runs its calls in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerView<'a> {
    /// Its number.
    pub epoch: u32,
    /// First call that runs in it.
    pub first: u32,
    /// All members, by rank slot: the same at every rank.
    pub members: &'a [u32],
    /// The members with which this rank exchanges: itself, and all from which it is not parted.
    pub reached: &'a [u32],
}

/// A layer whose calls run in the views of a group. It counts its calls on the device, and holds two views or more, so that calls
/// that have begun, and those that it is behind, end in theirs. No method waits for kernels or for other ranks.
pub trait Layer: Send + Sync + Debug {
    /// Lets no call start whose number is above `limit`; with none, every call may. Returns the last call that has started, as
    /// it is behind a sequentially consistent fence.
    fn set_limit(&self, limit: Option<u32>) -> u32;

    /// The last call that has taken its number.
    fn started(&self) -> u32;

    /// The last call that has ended, and all before it.
    fn finished(&self) -> u32;

    /// Whether it can take a view from `first` on: no call needs the oldest one, whose place that takes. A rank whose layer has no
    /// place promises no further view until its calls have made one.
    fn has_place(&self, first: u32) -> bool;

    /// The view of all calls from `first` on. Asked for only when the layer has a place for it.
    ///
    /// # Errors
    /// The layer's.
    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError>;

    /// The same for the first view of a rank that joins others: `first` is the number of its first call.
    ///
    /// # Errors
    /// The layer's.
    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError>;

    /// Forgets all that is known of `peer` and all that it has written: another rank takes its slot, or the same rank is connected
    /// anew. The QPs to it are in Err, and every call that exchanged with it has ended.
    ///
    /// # Errors
    /// The layer's.
    fn clear_peer(&self, peer: u32) -> Result<(), LayerError>;

    /// The ranks that kernels have waited for in vain, and that have said nothing new since.
    fn suspected(&self) -> Vec<u32>;

    /// By rank slot a number that is another one when something of that rank has arrived since it was read last. Read four times
    /// in each time to live of a lease.
    ///
    /// # Errors
    /// The layer's.
    fn heard(&self) -> Result<Vec<u64>, LayerError>;

    /// The ranks that kernels do not wait for, whatever they say.
    ///
    /// # Errors
    /// The layer's.
    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError>;

    /// Whether this rank exchanges with no other member, whoever of them lives. Calls of such a rank are of use to nobody, and the view
    /// that brings it back begins behind all that it has made, so they wait for their deadline or until this changes.
    fn set_alone(&self, alone: bool);

    /// While a change is prepared, the clocks against the ranks that have promised it stand still. None: no change is.
    ///
    /// # Errors
    /// The layer's.
    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError>;

    /// Whether calls that would be held end at once instead, `aborted`.
    fn set_refuse(&self, refuse: bool);
}
