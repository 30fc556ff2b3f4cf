//! The windows of a rank.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::shown::{WindowOffer, WindowShape};
use super::window::OwnedWindow;
use crate::fabric::{Identity, Rail, Reach};
use crate::gpu::Gpu;
use crate::verbs::{Export, VerbsError};

/// The windows of a rank, by number.
#[derive(Debug, Default)]
pub(in crate::team) struct Windows(Mutex<Vec<OwnedWindow>>);

impl Windows {
    /// Returns the list itself, for a caller that adds windows.
    pub(in crate::team) fn lock(&self) -> MutexGuard<'_, Vec<OwnedWindow>> {
        // A panic elsewhere under the lock leaves the list whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::team) fn into_vec(self) -> Vec<OwnedWindow> {
        let windows = self.0.into_inner();
        windows.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is the same at all ranks of each window.
    pub(in crate::team) fn shapes(&self) -> Vec<WindowShape> {
        self.lock().iter().map(OwnedWindow::shape).collect()
    }

    /// Returns what this rank offers `peer` of each window.
    pub(in crate::team) fn offers(&self, peer: u32) -> Vec<WindowOffer> {
        let windows = self.lock();
        windows.iter().map(|window| window.offer(peer)).collect()
    }

    /// Returns how many keys `peer` has, of all windows.
    pub(in crate::team) fn keys_of(&self, peer: u32) -> usize {
        self.lock().iter().map(|window| window.keys_of(peer)).sum()
    }

    /// Gives `peer` new keys for `life` and takes the old ones back. After a failure a call for the same life goes on.
    pub(in crate::team) fn renew(
        &self,
        rails: &[Rail],
        peer: u32,
        life: u32,
    ) -> Result<(), VerbsError> {
        let mut windows = self.lock();
        windows
            .iter_mut()
            .try_for_each(|window| window.renew(rails, peer, life))
    }

    /// Opens the windows that `peer` offers. Returns for each window the address at which kernels load and store from now on; 0 if
    /// they cannot.
    pub(in crate::team) fn open(
        &self,
        gpu: &dyn Gpu,
        peer: u32,
        reach: Reach,
        identity: &Identity,
        told: &[WindowOffer],
    ) -> Vec<u64> {
        let mut windows = self.lock();
        let pairs = windows.iter_mut().zip(told);
        pairs
            .map(|(own, told)| own.open(gpu, peer, reach, identity, told))
            .collect()
    }

    /// Closes what this rank has opened of the memory of `peer`.
    pub(in crate::team) fn close(&self, peer: u32) {
        let mut windows = self.lock();
        windows.iter_mut().for_each(|window| window.close(peer));
    }

    /// Returns how the HCA of each rail reaches each window: number of the window, rail, and export.
    pub(in crate::team) fn exports(&self) -> Vec<(u32, usize, Export)> {
        let windows = self.lock();
        let of_rails = windows.iter().flat_map(|window| {
            let id = window.window().id;
            let exports = window.exports().into_iter().enumerate();
            exports.map(move |(rail, export)| (id, rail, export))
        });
        of_rails.collect()
    }
}
