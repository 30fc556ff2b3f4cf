//! Views: the ranks that take part from one call on, and the ranks that hold each expert. A layer keeps several views. So calls in
//! flight end in their own views, and so do calls that a slower rank has still to make.

use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, ExpertHome, ExpertSlots, MOE_VIEWS, MoeView};
use crate::deadline::Looks;
use crate::gpu::{Gpu, GpuError};
use crate::moe::error::MoeError;
use crate::moe::members::board::{Board, newer};
use crate::moe::placement::Placement;

pub(super) const VIEWS: usize = MOE_VIEWS as usize;
/// Time between two looks at the calls that have ended.
const LOOK: Duration = Duration::from_millis(1);

/// A view of a layer, as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// The first call that runs in the view.
    pub first: u32,
    /// The epoch of membership; words carry its low 16 bits.
    pub epoch: u32,
    /// The ranks that take part.
    pub members: Vec<u32>,
    /// The ranks that hold each expert.
    pub placement: Placement,
}

/// Device addresses of one view and its tables.
#[derive(Clone, Copy, Debug)]
pub(in crate::moe) struct ViewTables {
    pub(in crate::moe) view: u64,
    pub(in crate::moe) homes: u64,
    pub(in crate::moe) experts: u64,
    pub(in crate::moe) replicas: u64,
}

/// The views of a layer: their tables, and the copies on the device.
#[derive(Debug)]
pub(super) struct Views {
    gpu: Arc<dyn Gpu>,
    /// The rank of this process.
    rank: u32,
    tables: [ViewTables; VIEWS],
    written: Mutex<Written>,
}

/// A view that the device has.
#[derive(Clone, Debug)]
struct Entry {
    view: Arc<View>,
    /// The number of the view among all views of the layer; not 0.
    serial: u32,
    /// The first call of the view. Once calls have run in the view for long, it is a later call, at most 2^30 before them
    /// (`MoeBoard::in_force`). So it compares with calls for however long the view stands.
    begins: u32,
    /// Kernels have reported that a call has run in the view.
    in_force: bool,
    /// The number of the tables that the view is written to.
    place: usize,
}

impl Entry {
    fn new(view: View, serial: u32, place: usize) -> Self {
        Self {
            begins: view.first,
            view: Arc::new(view),
            serial,
            in_force: false,
            place,
        }
    }
}

/// The views written to the device, the oldest first: at most as many as the layer has places. The first view is written when the
/// layer is made.
#[derive(Debug)]
struct Written(Vec<Entry>);

impl Written {
    fn newest(&self) -> &Entry {
        self.0.last().expect("a layer has a view from its begin")
    }

    /// Returns the views, the newest first, each with the last call that may run in it; with None if all later calls may.
    fn views(&self) -> impl Iterator<Item = (&Entry, Option<u32>)> {
        self.0.iter().rev().scan(None, |later, entry| {
            let last = later.replace(entry.begins.wrapping_sub(1));
            Some((entry, last))
        })
    }

    /// Returns the serial of the next view. It is never 0, which stands for no view.
    fn next_serial(&self) -> u32 {
        self.newest().serial.wrapping_add(1).max(1)
    }

    /// Adds `entry` as the newest view, instead of the view that was in its place, if any.
    fn put(&mut self, entry: Entry) {
        self.0.retain(|old| old.place != entry.place);
        self.0.push(entry);
    }

    /// Notes what kernels report of the view in force: its serial and its first call.
    fn learn(&mut self, serial: u32, begins: u32) {
        for entry in self.0.iter_mut().filter(|entry| entry.serial == serial) {
            entry.begins = begins;
            entry.in_force = true;
        }
    }

    /// Returns the place to which a view from `first` on may be written now.
    fn place_for(&self, first: u32, board: &Board) -> Result<usize, MoeError> {
        let newest = self.newest();
        let begins = newest.begins;
        let begun = newest.in_force || !board.is_held(first) && !newer(first, board.started());
        if first == begins && !begun {
            return Ok(newest.place);
        }
        if !newer(first, begins) {
            return Err(MoeError::ViewOrder {
                first,
                newest: begins,
            });
        }
        let finished = board.finished();
        match self.views().nth(VIEWS - 1) {
            Some((oldest, Some(needed))) if newer(needed, finished) => Err(MoeError::ViewInUse {
                first: oldest.begins,
                needed,
                finished,
            }),
            Some((oldest, _)) => Ok(oldest.place),
            None => Ok(self.0.len()),
        }
    }

    /// Refuses to forget `peer` while it is a member of the newest view, or of a view with a call that is newer than `finished`.
    fn check_unneeded(&self, peer: u32, finished: u32) -> Result<(), MoeError> {
        let theirs = |it: &(&Entry, Option<u32>)| it.0.view.members.contains(&peer);
        for (entry, last) in self.views().filter(theirs) {
            match last {
                None => {
                    let first = entry.view.first;
                    return Err(MoeError::PeerMember { peer, first });
                }
                Some(needed) if newer(needed, finished) => {
                    return Err(MoeError::PeerNeeded {
                        peer,
                        needed,
                        finished,
                    });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the view that covers `call`. If the first call of a view has been moved on, all calls of older views have ended.
    fn view_of(&self, call: u32) -> Option<&Arc<View>> {
        for entry in self.0.iter().rev() {
            if !newer(entry.begins, call) {
                return Some(&entry.view);
            }
            if entry.begins != entry.view.first {
                return None;
            }
        }
        None
    }
}

impl Views {
    /// Writes the first view. `rank` is the rank of this process.
    pub(super) fn new(
        gpu: &Arc<dyn Gpu>,
        tables: [ViewTables; VIEWS],
        rank: u32,
        view: View,
    ) -> Result<Self, GpuError> {
        let newest = Entry::new(view, 1, 0);
        tables[0].write(gpu.as_ref(), rank, &newest)?;
        Ok(Self {
            gpu: Arc::clone(gpu),
            rank,
            tables,
            written: Mutex::new(Written(vec![newest])),
        })
    }

    /// Makes the present view begin at `first`. No rank has made a call yet.
    pub(super) fn begin_at(&self, first: u32) -> Result<(), GpuError> {
        let mut written = self.written();
        let Entry { serial, place, .. } = *written.newest();
        let at = self.tables[place].view + offset_of!(MoeView, first) as u64;
        self.gpu.write(at, bytemuck::bytes_of(&first))?;
        let view = View::clone(&written.newest().view);
        written.put(Entry::new(View { first, ..view }, serial, place));
        Ok(())
    }

    /// Replaces the present view by `view`. No rank has made a call yet.
    pub(super) fn begin_in(&self, view: View) -> Result<(), GpuError> {
        let mut written = self.written();
        let place = written.newest().place;
        self.write(&mut written, view, place)
    }

    /// Returns the newest view.
    pub(super) fn newest(&self) -> Arc<View> {
        Arc::clone(&self.written().newest().view)
    }

    /// Returns the view in which `call` runs, or would begin now. Returns None if `call` is older than all views, so that it has
    /// ended.
    pub(super) fn view_of(&self, call: u32, board: &Board) -> Option<Arc<View>> {
        self.known(board).view_of(call).cloned()
    }

    /// Writes `view` as the newest. It waits up to `timeout` until there is a place for it.
    pub(super) fn set(
        &self,
        view: &View,
        board: &Board,
        timeout: Duration,
    ) -> Result<(), MoeError> {
        let mut looks = Looks::within(timeout);
        loop {
            let left = looks.next().unwrap_or(Duration::ZERO);
            let mut written = self.known(board);
            match written.place_for(view.first, board) {
                Ok(place) => return Ok(self.write(&mut written, view.clone(), place)?),
                Err(MoeError::ViewInUse { .. }) if !left.is_zero() => {}
                Err(error) => return Err(error),
            }
            drop(written);
            std::thread::sleep(LOOK.min(left));
        }
    }

    /// Returns whether a view from `first` on would find a place without waiting for calls.
    pub(super) fn has_place(&self, first: u32, board: &Board) -> bool {
        let place = self.known(board).place_for(first, board);
        !matches!(place, Err(MoeError::ViewInUse { .. }))
    }

    /// Runs `forget` if no call needs `peer`. The lock keeps other threads from writing a view meanwhile.
    pub(super) fn without(
        &self,
        peer: u32,
        board: &Board,
        forget: impl FnOnce() -> Result<(), MoeError>,
    ) -> Result<(), MoeError> {
        let written = self.known(board);
        written.check_unneeded(peer, board.finished())?;
        forget()
    }

    fn write(&self, written: &mut Written, view: View, place: usize) -> Result<(), GpuError> {
        let entry = Entry::new(view, written.next_serial(), place);
        self.tables[place].write(self.gpu.as_ref(), self.rank, &entry)?;
        written.put(entry);
        Ok(())
    }

    /// Locks the views, after noting what kernels report of the view in force.
    fn known(&self, board: &Board) -> MutexGuard<'_, Written> {
        let mut written = self.written();
        if let Some((serial, begins)) = board.view_in_force() {
            written.learn(serial, begins);
        }
        written
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Nothing panics while the views are half changed.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewTables {
    /// Writes a view and its tables. Kernels that look meanwhile find no view in this place.
    fn write(&self, gpu: &dyn Gpu, rank: u32, entry: &Entry) -> Result<(), GpuError> {
        let serial_at = self.view + offset_of!(MoeView, serial) as u64;
        let write_serial = |serial: u32| gpu.write(serial_at, bytemuck::bytes_of(&serial));
        write_serial(0)?;
        let view = &entry.view;
        let placement = &view.placement;
        let number = |value: usize| u32::try_from(value).expect("as many as the tables have");
        let homes: Vec<ExpertHome> = placement
            .homes()
            .iter()
            .map(|home| ExpertHome {
                rank: home.rank,
                local: home.local,
            })
            .collect();
        let mut replicas: Vec<u32> = Vec::with_capacity(homes.len());
        let mut slots_of = |expert: u32| {
            let first = number(replicas.len());
            replicas.extend(placement.slots_of(expert.cast_signed()));
            let count = number(replicas.len()) - first;
            ExpertSlots { first, count }
        };
        let experts: Vec<ExpertSlots> = (0..number(placement.experts()))
            .map(&mut slots_of)
            .collect();
        gpu.write(self.homes, bytemuck::cast_slice(&homes))?;
        gpu.write(self.experts, bytemuck::cast_slice(&experts))?;
        gpu.write(self.replicas, bytemuck::cast_slice(&replicas))?;
        let mut words = MoeView {
            first: view.first,
            epoch: view.epoch & 0xffff,
            expert_slots: number(homes.len()),
            local_experts: number(placement.of_rank(rank).len()),
            homes: DevicePtr::new(self.homes),
            experts: DevicePtr::new(self.experts),
            replicas: DevicePtr::new(self.replicas),
            ..MoeView::zeroed()
        };
        for &member in &view.members {
            words.members[member as usize / 32] |= 1 << (member % 32);
        }
        gpu.write(self.view, bytemuck::bytes_of(&words))?;
        // The serial is written after all the rest. Pairs with the acquire fence of the kernel that finds the serial.
        write_serial(entry.serial)
    }
}
