//! Views: who takes part from one call on, and who holds which expert. A layer has two, so that calls in flight end in the one
//! in which they began.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;

use super::{Moe, MoeError, Placement};
use crate::abi::{DevicePtr, ExpertHome, ExpertSlots, MOE_VIEWS, MoeView};
use crate::gpu::{Gpu, GpuError};
use crate::team::deadline_in;

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
    /// Who holds which expert.
    pub placement: Placement,
}

/// Device addresses of one view and its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewTables {
    pub(super) view: u64,
    pub(super) homes: u64,
    pub(super) experts: u64,
    pub(super) replicas: u64,
}

/// The views of a layer: where they lie, and what the device has there.
#[derive(Debug)]
pub(super) struct Views {
    tables: [ViewTables; VIEWS],
    written: Mutex<Written>,
}

/// What was written, by place. One is there from the begin.
#[derive(Debug)]
struct Written([Option<Arc<View>>; VIEWS]);

impl Written {
    /// Place of the newest view.
    fn newest_place(&self) -> usize {
        let first = |place: usize| self.0[place].as_ref().map(|view| view.first);
        let begins_later = first(1).is_some_and(|one| first(0).is_none_or(|zero| newer(one, zero)));
        usize::from(begins_later)
    }

    fn newest(&self) -> &Arc<View> {
        let newest = self.0[self.newest_place()].as_ref();
        newest.expect("a layer has a view from its begin")
    }

    /// The other one, if there is one.
    fn older(&self) -> Option<&Arc<View>> {
        self.0[1 - self.newest_place()].as_ref()
    }
}

/// Whether call `a` is newer than call `b`. Numbers wrap.
pub(super) fn newer(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

impl Views {
    /// Writes the first view; `rank` is this one.
    pub(super) fn new(
        gpu: &dyn Gpu,
        tables: [ViewTables; VIEWS],
        rank: u32,
        view: View,
    ) -> Result<Self, GpuError> {
        tables[0].write(gpu, rank, &view)?;
        Ok(Self {
            tables,
            written: Mutex::new(Written([Some(Arc::new(view)), None])),
        })
    }

    /// The view that is there begins at `first`: nobody has made a call.
    pub(super) fn begin_at(&self, gpu: &dyn Gpu, first: u32) -> Result<(), GpuError> {
        let mut written = self.written();
        let place = written.newest_place();
        let at = self.tables[place].view + std::mem::offset_of!(MoeView, first) as u64;
        gpu.write(at, bytemuck::bytes_of(&first))?;
        let view = View::clone(written.newest());
        written.0[place] = Some(Arc::new(View { first, ..view }));
        Ok(())
    }

    /// The same, and it is `view`.
    pub(super) fn begin_in(&self, gpu: &dyn Gpu, rank: u32, view: View) -> Result<(), GpuError> {
        let mut written = self.written();
        let place = written.newest_place();
        self.tables[place].write(gpu, rank, &view)?;
        written.0[place] = Some(Arc::new(view));
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        // Each change is one store.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ViewTables {
    fn write(&self, gpu: &dyn Gpu, rank: u32, view: &View) -> Result<(), GpuError> {
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
        gpu.write(self.view, bytemuck::bytes_of(&words))
    }
}

impl Moe {
    /// The newest view: that of all calls from `first` on.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        Arc::clone(self.views().written().newest())
    }

    /// The view in which `call` runs, or would begin now. None: it is older than both views, so it has ended.
    #[must_use]
    pub(crate) fn view_of(&self, call: u32) -> Option<Arc<View>> {
        let written = self.views().written();
        let views = [Some(written.newest()), written.older()];
        let covers = |view: &&Arc<View>| !newer(view.first, call);
        views.into_iter().flatten().find(covers).cloned()
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
    /// Waits up to `timeout` until no call needs the older one of the two views, whose place it takes. A view that begins where
    /// the newest one does takes its place at once, if no call runs in that: none has begun, or the limit holds them back.
    ///
    /// # Errors
    /// A view that does not begin behind the newest one, or without this rank, or whose experts do not fit the layer;
    /// [`MoeError::ViewInUse`]; the device's.
    pub fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.check_view(view)?;
        let until = deadline_in(timeout);
        loop {
            let mut written = self.views().written();
            match self.place_for(&written, view.first) {
                Ok(place) => {
                    let gpu = self.team().gpu().as_ref();
                    self.views().tables[place].write(gpu, self.team().rank(), view)?;
                    written.0[place] = Some(Arc::new(view.clone()));
                    return Ok(());
                }
                Err(MoeError::ViewInUse { .. }) if Instant::now() < until => {}
                Err(error) => return Err(error),
            }
            drop(written);
            std::thread::sleep(LOOK);
        }
    }

    /// Where a view from `first` on may be written now.
    fn place_for(&self, written: &Written, first: u32) -> Result<usize, MoeError> {
        let (place, begins) = (written.newest_place(), written.newest().first);
        if first == begins && (self.is_held(first) || newer(first, self.started())) {
            return Ok(place);
        }
        if !newer(first, begins) {
            return Err(MoeError::ViewOrder {
                first,
                newest: begins,
            });
        }
        // Every call of the older view has ended, when all before the newer one have.
        let (needed, finished) = (begins.wrapping_sub(1), self.finished());
        match written.older().is_some() && newer(needed, finished) {
            true => Err(MoeError::ViewInUse {
                first: begins,
                needed,
                finished,
            }),
            false => Ok(1 - place),
        }
    }

    /// Forgets all that this rank and `peer` have told each other, for a new generation of it: its signals here, what was sent
    /// to it last, what it was told, suspicion. Its QPs are in Err or have been reset, so nothing of the old one can arrive.
    ///
    /// # Errors
    /// `peer` is a member of the newest view, or of one in which a call still runs, or kernels may still post to it
    /// ([`Team::fail_peer`](crate::team::Team::fail_peer)); the device's. Then nothing is forgotten.
    pub(crate) fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        let closed = self.team().is_closed(peer)?;
        let written = self.views().written();
        let (newest, finished) = (written.newest(), self.finished());
        if newest.members.contains(&peer) {
            let first = newest.first;
            return Err(MoeError::PeerMember { peer, first });
        }
        let needed = newest.first.wrapping_sub(1);
        let older = written.older();
        if older.is_some_and(|view| view.members.contains(&peer)) && newer(needed, finished) {
            return Err(MoeError::PeerNeeded {
                peer,
                needed,
                finished,
            });
        }
        let guards = self.team().guards(peer)?;
        if !closed || guards != 0 {
            return Err(MoeError::PeerOpen { peer, guards });
        }
        self.board().clear_peer(peer)
    }

    pub(super) fn check_view(&self, view: &View) -> Result<(), MoeError> {
        let (rank, ranks) = (self.team().rank(), self.team().ranks());
        if let Some(&rank) = view.members.iter().find(|member| **member >= ranks) {
            return Err(MoeError::Rank { rank, ranks });
        }
        if !view.members.contains(&rank) {
            return Err(MoeError::NotMember { rank });
        }
        let (placement, config) = (&view.placement, self.config());
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
