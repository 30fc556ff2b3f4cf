//! Views: who takes part from one call on, and who holds which expert. A layer has two, so that calls in flight end in the one
//! in which they began.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Zeroable;

use super::{Moe, MoeError, Placement};
use crate::abi::{DevicePtr, ExpertHome, ExpertSlots, MOE_VIEWS, MoeView};
use crate::gpu::{Gpu, GpuError};

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

/// The views of a layer: where they lie, and from which call on each counts.
#[derive(Debug)]
pub(super) struct Views {
    tables: [ViewTables; VIEWS],
    first: Mutex<[Option<u32>; VIEWS]>,
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
        view: &View,
    ) -> Result<Self, GpuError> {
        tables[0].write(gpu, rank, view)?;
        Ok(Self {
            tables,
            first: Mutex::new([Some(view.first), None]),
        })
    }

    /// The first view begins at `first`: nobody has made a call.
    pub(super) fn begin_at(&self, gpu: &dyn Gpu, first: u32) -> Result<(), GpuError> {
        let at = self.tables[0].view + std::mem::offset_of!(MoeView, first) as u64;
        gpu.write(at, bytemuck::bytes_of(&first))?;
        self.first()[0] = Some(first);
        Ok(())
    }

    fn first(&self) -> MutexGuard<'_, [Option<u32>; VIEWS]> {
        // Each change is one store.
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Makes `view` that of all calls from `view.first` on. Calls before it run, and end, in the view that they have. All
    /// ranks set the same, and see to it that no call from `view.first` on starts before ([`Moe::set_limit`]).
    ///
    /// Waits up to `timeout` until no call needs the older one of the two views, whose place it takes.
    ///
    /// # Errors
    /// A view that does not begin behind the newest one, or without this rank, or whose experts do not fit the layer;
    /// [`MoeError::ViewInUse`]; the device's.
    pub fn set_view(&self, view: &View, timeout: Duration) -> Result<(), MoeError> {
        self.check_view(view)?;
        let views = self.views();
        let mut first = views.first();
        let newest =
            usize::from(first[1].is_some_and(|one| first[0].is_none_or(|zero| newer(one, zero))));
        let begins = first[newest].expect("a layer has a view from its begin");
        if !newer(view.first, begins) {
            return Err(MoeError::ViewOrder {
                first: view.first,
                newest: begins,
            });
        }
        // Every call of the older view has ended, when all before the newer one have.
        let (older, needed) = (1 - newest, begins.wrapping_sub(1));
        let until = Instant::now() + timeout;
        while first[older].is_some() && newer(needed, self.finished()) {
            if Instant::now() >= until {
                return Err(MoeError::ViewInUse {
                    first: begins,
                    needed,
                    finished: self.finished(),
                });
            }
            std::thread::sleep(LOOK);
        }
        let gpu = self.team().gpu().as_ref();
        views.tables[older].write(gpu, self.team().rank(), view)?;
        first[older] = Some(view.first);
        Ok(())
    }

    fn check_view(&self, view: &View) -> Result<(), MoeError> {
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
