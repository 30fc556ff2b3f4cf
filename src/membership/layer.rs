//! The calls from a group to its layer. They set and read the words that host and kernels share, and do not depend on what the
//! layer computes.

use std::error::Error;
use std::fmt::Debug;

/// Why a layer could not do what it was asked.
pub type LayerError = Box<dyn Error + Send + Sync>;

/// A view as one rank runs its calls in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerView<'a> {
    /// Number of the view.
    pub epoch: u32,
    /// First call that runs in this view.
    pub first: u32,
    /// All members, by rank slot. The list is equal at every rank.
    pub members: &'a [u32],
    /// The members with which this rank exchanges: itself, and all members from which it is not parted.
    pub reached: &'a [u32],
}

/// A layer whose calls run in the views of a group. It counts its calls on the device. It holds at least two views, so a call ends
/// in the view in which it began, also when a newer view came. No method waits for kernels or for other ranks.
pub trait Layer: Send + Sync + Debug {
    /// Lets no call start whose number is above `limit`; with none, every call may start. Returns the last call that has started,
    /// read after a sequentially consistent fence.
    fn set_limit(&self, limit: Option<u32>) -> u32;

    /// Returns the last call that has taken its number.
    fn started(&self) -> u32;

    /// Returns the last call that has ended; all calls before it have ended as well.
    fn finished(&self) -> u32;

    /// Returns whether the layer can take a view from `first` on. It can when no call needs the oldest view any more, because the new view
    /// takes its place. A rank whose layer has no place promises no further view until its calls have made a place.
    fn has_place(&self, first: u32) -> bool;

    /// Sets the view of all calls from `first` on. The group calls this only when the layer has a place for it.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn set_view(&self, view: &LayerView<'_>) -> Result<(), LayerError>;

    /// Sets the first view of a rank that joins others, as [`Layer::set_view`] does. `first` is the number of the rank's first call.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn begin(&self, view: &LayerView<'_>) -> Result<(), LayerError>;

    /// Forgets the state of `peer` and clears all words that it has written. Another rank takes its slot, or the same rank is connected
    /// anew. The QPs to the peer are in Err, and every call that exchanged with it has ended.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn clear_peer(&self, peer: u32) -> Result<(), LayerError>;

    /// Returns the ranks for which kernels have waited in vain, and from which nothing has arrived since.
    fn suspected(&self) -> Vec<u32>;

    /// Returns the number of calls so far that found no free send buffer, and so sent nothing. The row of the rank tells it to other ranks.
    /// A layer without such buffers returns 0.
    fn unbuffered(&self) -> u32 {
        0
    }

    /// Returns one number for each rank slot. A number differs from the last read if something of that rank has arrived since. The group
    /// reads the numbers four times in each time to live of a lease.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn heard(&self) -> Result<Vec<u64>, LayerError>;

    /// Sets the ranks for which kernels do not wait, whatever arrives from them.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn set_suspects(&self, ranks: &[u32]) -> Result<(), LayerError>;

    /// Sets whether this rank exchanges with no other member, although other members may live. The results of such a rank's calls are of no
    /// use to other ranks. The view that brings the rank back begins after all calls that the rank has made. So its calls wait for their
    /// deadline, or until this changes.
    fn set_alone(&self, alone: bool);

    /// Sets the ranks that have promised the change that is being prepared. The clocks against these ranks stand still meanwhile. None: no
    /// change is being prepared.
    ///
    /// # Errors
    /// [`LayerError`] of the layer.
    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), LayerError>;

    /// Sets whether calls that would be held end at once instead, marked `aborted`.
    fn set_refuse(&self, refuse: bool);
}
