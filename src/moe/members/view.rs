//! Views: the ranks that take part from one call on, and the ranks that hold each expert. A layer holds several. So calls in
//! flight, and those that a rank which is behind has still to make, end in theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, ExpertHome, ExpertSlots, MOE_VIEWS, MoeView};
use crate::deadline::Looks;
use crate::gpu::{Gpu, GpuError};
use crate::moe::{Moe, MoeError, Placement};

const VIEWS: usize = MOE_VIEWS as usize;
/// Time between two looks at the calls that have ended.
const LOOK: Duration = Duration::from_millis(1);

/// A view as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// First call that runs in it.
    pub first: u32,
    /// Membership epoch; words carry its low 16 bits.
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
pub(in crate::moe) struct Views {
    tables: [ViewTables; VIEWS],
    written: Mutex<Written>,
}

/// A view that the device has.
#[derive(Clone, Debug)]
struct Entry {
    view: Arc<View>,
    /// Its number among all views of the layer; not 0.
    serial: u32,
    /// Its first call; once calls have run in it for long, a later one, at most 2^30 behind them (`MoeBoard::in_force`). So it
    /// compares with calls for however long the view stands.
    begins: u32,
    /// Kernels have reported that a call has run in it.
    in_force: bool,
    /// Its tables.
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

/// The views written to the device: up to as many as the layer has places, the oldest first. The first one is written at the start.
#[derive(Debug)]
struct Written(Vec<Entry>);

impl Written {
    fn newest(&self) -> &Entry {
        self.0.last().expect("a layer has a view from its begin")
    }

    /// The views, the newest first, and with each the last call that may run in it; none if all later ones may.
    fn views(&self) -> impl Iterator<Item = (&Entry, Option<u32>)> {
        self.0.iter().rev().scan(None, |behind, entry| {
            let last = behind.replace(entry.begins.wrapping_sub(1));
            Some((entry, last))
        })
    }

    /// Number of the next view: not 0, which is none.
    fn next_serial(&self) -> u32 {
        self.newest().serial.wrapping_add(1).max(1)
    }

    /// Puts `entry` into its place, instead of the newest view, the oldest view or none.
    fn put(&mut self, entry: Entry) {
        self.0.retain(|old| old.place != entry.place);
        self.0.push(entry);
    }

    /// Takes down what kernels say of the view in force: its serial and its first call.
    fn learn(&mut self, serial: u32, begins: u32) {
        for entry in self.0.iter_mut().filter(|entry| entry.serial == serial) {
            entry.begins = begins;
            entry.in_force = true;
        }
    }

    /// The view that covers `call`. Behind one whose first call is no more compared no call of an older one is left.
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

/// Whether call `a` is newer than call `b`. Numbers wrap.
pub(in crate::moe) fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Views {
    /// Writes the first view; `rank` is this one.
    pub(in crate::moe) fn new(
        gpu: &dyn Gpu,
        tables: [ViewTables; VIEWS],
        rank: u32,
        view: View,
    ) -> Result<Self, GpuError> {
        let newest = Entry::new(view, 1, 0);
        tables[0].write(gpu, rank, &newest)?;
        Ok(Self {
            tables,
            written: Mutex::new(Written(vec![newest])),
        })
    }

    /// The present view begins at `first`: no rank has made a call.
    pub(in crate::moe) fn begin_at(&self, gpu: &dyn Gpu, first: u32) -> Result<(), GpuError> {
        let mut written = self.written();
        let Entry { serial, place, .. } = *written.newest();
        let at = self.tables[place].view + std::mem::offset_of!(MoeView, first) as u64;
        gpu.write(at, bytemuck::bytes_of(&first))?;
        let view = View::clone(&written.newest().view);
        written.put(Entry::new(View { first, ..view }, serial, place));
        Ok(())
    }

    /// The same, and it is `view`.
    pub(in crate::moe) fn begin_in(
        &self,
        gpu: &dyn Gpu,
        rank: u32,
        view: View,
    ) -> Result<(), GpuError> {
        let mut written = self.written();
        let entry = Entry::new(view, written.next_serial(), written.newest().place);
        self.tables[entry.place].write(gpu, rank, &entry)?;
        written.put(entry);
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Nothing panics between two stores.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewTables {
    /// Kernels that look meanwhile find no view in this place.
    fn write(&self, gpu: &dyn Gpu, rank: u32, entry: &Entry) -> Result<(), GpuError> {
        let serial_at = self.view + std::mem::offset_of!(MoeView, serial) as u64;
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
        // Behind all of it: pairs with the acquire fence of the kernel that finds the serial.
        write_serial(entry.serial)
    }
}

impl Moe {
    /// The newest view: that of all calls from `first` on.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.views().written().newest().view)
    }

    /// The view in which `call` runs, or would begin now. None: it is older than all of them, so it has ended.
    #[must_use]
    pub(crate) fn view_of(&self, call: u32) -> Option<Arc<View>> {
        self.written().view_of(call).cloned()
    }

    /// What the device has, as far as its calls have come.
    fn written(&self) -> MutexGuard<'_, Written> {
        let mut written = self.views().written();
        if let Some((serial, begins)) = self.board().view_in_force() {
            written.learn(serial, begins);
        }
        written
    }

    /// Which rank holds which expert, in the newest view.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.view().placement.clone()
    }

    /// The experts of this rank in the newest view, in the order of their local numbers.
    #[must_use]
    pub fn local_experts(&self) -> Vec<u32> {
        self.view().placement.of_rank(self.team().rank()).to_vec()
    }

    /// Makes `view` that of all calls from `view.first` on. Calls before it run, and end, in the view that they have. All
    /// ranks set the same, and see to it that no call from `view.first` on starts before ([`Moe::set_limit`]).
    ///
    /// It takes the place of the oldest view, and waits up to `timeout` until no call needs that one. A view that begins at the
    /// same call as the newest view replaces it at once if no call runs in the newest view. None runs in it if none has begun, or
    /// if the limit holds calls back.
    ///
    /// # Errors
    /// A view that does not begin behind the newest one, or without this rank, or whose experts do not fit the layer;
    /// [`MoeError::ViewInUse`]; the device's.
    pub fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.check_view(view)?;
        let mut looks = Looks::within(timeout);
        loop {
            let left = looks.next().unwrap_or(Duration::ZERO);
            let mut written = self.written();
            match self.place_for(&written, view.first) {
                Ok(place) => {
                    let gpu = self.team().gpu().as_ref();
                    let entry = Entry::new(view.clone(), written.next_serial(), place);
                    self.views().tables[place].write(gpu, self.team().rank(), &entry)?;
                    written.put(entry);
                    return Ok(());
                }
                Err(MoeError::ViewInUse { .. }) if !left.is_zero() => {}
                Err(error) => return Err(error),
            }
            drop(written);
            std::thread::sleep(LOOK.min(left));
        }
    }

    /// Whether a view from `first` on would not wait for calls.
    pub(in crate::moe) fn has_place(&self, first: u32) -> bool {
        let place = self.place_for(&self.written(), first);
        !matches!(place, Err(MoeError::ViewInUse { .. }))
    }

    /// Where a view from `first` on may be written now.
    fn place_for(&self, written: &Written, first: u32) -> Result<usize, MoeError> {
        let newest = written.newest();
        let begins = newest.begins;
        let begun = newest.in_force || !self.is_held(first) && !newer(first, self.started());
        if first == begins && !begun {
            return Ok(newest.place);
        }
        if !newer(first, begins) {
            return Err(MoeError::ViewOrder {
                first,
                newest: begins,
            });
        }
        let finished = self.finished();
        match written.views().nth(VIEWS - 1) {
            Some((oldest, Some(needed))) if newer(needed, finished) => Err(MoeError::ViewInUse {
                first: oldest.begins,
                needed,
                finished,
            }),
            Some((oldest, _)) => Ok(oldest.place),
            None => Ok(written.0.len()),
        }
    }

    /// Forgets all words between this rank and `peer`, for a new generation of it: its signals here, what was sent to it last,
    /// suspicion. Its QPs are in Err or have been reset, so nothing of the old one can arrive.
    ///
    /// # Errors
    /// `peer` is a member of the newest view, or of a view in which a call still runs. Or kernels may still post to it
    /// ([`Team::fail_peer`](crate::team::Team::fail_peer)). Or the device fails. Then nothing is forgotten.
    pub(crate) fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        let closed = self.team().is_closed(peer)?;
        let written = self.written();
        let finished = self.finished();
        let theirs = |it: &(&Entry, Option<u32>)| it.0.view.members.contains(&peer);
        for (entry, last) in written.views().filter(theirs) {
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
        let guards = self.team().guards(peer)?;
        if !closed || guards != 0 {
            return Err(MoeError::PeerOpen { peer, guards });
        }
        self.board().clear_peer(peer)
    }

    pub(in crate::moe) fn check_view(&self, view: &View) -> Result<(), MoeError> {
        let (rank, ranks) = (self.team().rank(), self.team().ranks());
        if let Some(&rank) = view.members.iter().find(|member| **member >= ranks) {
            return Err(MoeError::Rank { rank, ranks });
        }
        if !view.members.contains(&rank) {
            return Err(MoeError::NotMember { rank });
        }
        self.check_placement(&view.placement)
    }

    /// Refuses a placement that does not fit shape and team.
    pub(in crate::moe) fn check_placement(&self, placement: &Placement) -> Result<(), MoeError> {
        let (config, ranks) = (self.config(), self.team().ranks());
        let fits = placement.experts() == config.experts as usize
            && placement.ranks() == ranks as usize
            && placement.most_local() <= config.room(ranks);
        match fits {
            true => Ok(()),
            false => Err(MoeError::Placement {
                experts: placement.experts(),
                ranks: placement.ranks(),
                want_experts: config.experts,
                want_ranks: ranks,
            }),
        }
    }
}
