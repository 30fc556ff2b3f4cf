//! What only the tests and measurements of this workspace need of the library. It may change in any version, and programs do
//! without it.
//!
//! The traits have methods of public types that the documentation does not show.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::abi::render;

/// What the kernels of dispatch and combine share with the host, and no kernel of a program.
pub mod moe_abi {
    pub use crate::abi::moe::*;
    pub use crate::abi::moe_calls::*;
    pub use crate::abi::moe_words::*;
}

/// The host engine, and its parts.
pub mod engine {
    pub use crate::engine::parts::*;
    pub use crate::engine::*;
}

/// Queues that a thread of the host posts to.
pub mod provider {
    pub use crate::provider::mlx5::{BareLanes, BareWrite, Mlx5, Mlx5Lane, Mlx5Reaper};
    pub use crate::provider::sink::{Sink, SinkLane, SinkReaper};
    pub use crate::provider::{
        Cause, Chain, Completed, Completion, HostMemory, Lane, LocalRange, Posted, Provider,
        ProviderError, Reaper, Stop, Tag, Verb, Wake, Work,
    };
}

pub use crate::memheap::{Block, MemHeap};
use crate::moe::{Batch, Moe, MoeError, View, Workspace};

pub use crate::sys::bindings;
pub use crate::team::hello::reader::RecordReader;
use crate::team::{Store, StoreError, Team, TeamConfig, TeamError};
use crate::verbs::Rung;

/// The text of `kernels/include/warpverbs/abi.h`.
#[must_use]
pub fn abi_header() -> String {
    render::render()
}

/// Hands over the wake word and the kick hook of a software HCA that is linked into this program. For launches that start
/// later.
pub fn connect(wake: &'static AtomicU32, kick: extern "C" fn()) {
    crate::gpu::simt::connect(wake, kick);
}

/// Tells the ranks of a team, which meet in `store`, why `rank` has given up, for a rank that cannot tell it itself.
///
/// # Errors
/// The store's.
pub fn tell_failure(store: &dyn Store, rank: u32, message: &str) -> Result<(), StoreError> {
    crate::team::tell_failure(store, rank, message)
}

/// Takes these functions of libibverbs and libmlx5 away from this process, as if the libraries were older. Whether it was the first to
/// do so.
pub fn hide_functions(functions: &[&'static str]) -> bool {
    crate::sys::hide(functions)
}

/// Settings of [`TeamConfig`] that no program needs.
pub trait TeamConfigInternal {
    /// Returns whether its `order` is taken even where the device does not keep it: tests show that it breaks.
    fn set_order_unchecked(&mut self, unchecked: bool);

    /// The way in which HCAs reach device memory, in place of the first one that holds.
    fn set_rung(&mut self, rung: Option<Rung>);
}

impl TeamConfigInternal for TeamConfig {
    fn set_order_unchecked(&mut self, unchecked: bool) {
        self.order_unchecked = unchecked;
    }

    fn set_rung(&mut self, rung: Option<Rung>) {
        self.rung = rung;
    }
}

/// What tests and measurements need of a [`Team`].
pub trait TeamInternal {
    /// Commands that have gone to the HCAs through this team's contexts.
    fn commands(&self) -> u64;

    /// Bytes of device and pinned host memory that were ever taken on this team's device, plus the bytes of its heaps that QPs
    /// hold.
    fn bytes_allocated(&self) -> u64;

    /// Brings ranks back in the way of others, with new QPs for all, to be measured beside [`Team::connect_peer`].
    ///
    /// # Errors
    /// As [`Team::connect_peer`]; the team is of no use then.
    fn rebuild(&self, peers: &[(u32, u32)], round: u32) -> Result<Duration, TeamError>;

    /// The peers of whose QPs kernels have found one failed since the last call, and those that share a word with them.
    fn failing(&self) -> Vec<u32>;

    /// Closes what this rank has opened of the memory of `peer`, which has been failed; `false` if that is to be tried again.
    ///
    /// # Errors
    /// A rank that the team does not have; the device's.
    fn release_peer(&self, peer: u32) -> Result<bool, TeamError>;

    /// Brings this rank and the same generation of `peer` together again, as far as that can be done now. `true`: they are, and a
    /// write has been answered on each QP.
    ///
    /// # Errors
    /// [`TeamError::Unreached`], after which another attempt begins; [`TeamError::NotConnected`]; [`TeamError::Generation`];
    /// [`TeamError::Record`]; [`TeamError::Recovering`]; what HCA, device and store refuse. Call it again.
    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError>;

    /// Writes again the records of this generation for all ranks and for generation `generation` of `peer`, where the store holds
    /// another value.
    ///
    /// # Errors
    /// A rank that the team does not have; the store's.
    fn tell_again(&self, peer: u32, generation: u32) -> Result<(), TeamError>;

    /// Refuses `generation` of `peer` while the one before it may still store into windows of this rank.
    ///
    /// # Errors
    /// [`TeamError::StillRuns`]; [`TeamError::Absent`]; as [`Team::resolve_peer`].
    fn check_former(&self, peer: u32, generation: u32) -> Result<(), TeamError>;
}

impl TeamInternal for Team {
    fn commands(&self) -> u64 {
        Self::commands(self)
    }

    fn bytes_allocated(&self) -> u64 {
        Self::bytes_allocated(self)
    }

    fn rebuild(&self, peers: &[(u32, u32)], round: u32) -> Result<Duration, TeamError> {
        Self::rebuild(self, peers, round)
    }

    fn failing(&self) -> Vec<u32> {
        Self::failing(self)
    }

    fn release_peer(&self, peer: u32) -> Result<bool, TeamError> {
        Self::release_peer(self, peer)
    }

    fn reunite_peer(&self, peer: u32, generation: u32) -> Result<bool, TeamError> {
        Self::reunite_peer(self, peer, generation)
    }

    fn tell_again(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        Self::tell_again(self, peer, generation)
    }

    fn check_former(&self, peer: u32, generation: u32) -> Result<(), TeamError> {
        Self::check_former(self, peer, generation)
    }
}

/// Of [`Moe`]: what a group does to its layer by [`Layer`](crate::membership::Layer), with the errors of the layer; and schedules.
pub trait MoeInternal {
    /// Seed of the schedule of the kernels that are launched from now on, where they run on simt.
    fn set_schedule_seed(&self, seed: u64);

    /// Device address of the [`MoeContext`](moe_abi::MoeContext).
    fn context_addr(&self) -> u64;

    /// Makes `first` the number of the first call.
    ///
    /// # Errors
    /// The device's.
    fn begin_at(&self, first: u32) -> Result<(), MoeError>;

    /// Moves all counts on as if all calls up to `call` had been made in the present view, by ranks that sent each other nothing.
    /// Call it between two calls, at all ranks.
    ///
    /// # Errors
    /// The device's.
    fn leap_to(&self, call: u32) -> Result<(), MoeError>;

    /// The view in which `call` runs, or would begin now; none if it has ended with its view.
    fn view_of(&self, call: u32) -> Option<Arc<View>>;

    /// Forgets all words that this rank and `peer` have sent each other.
    ///
    /// # Errors
    /// `peer` is a member of a view that is needed, or is open to kernels; the device's.
    fn clear_peer(&self, peer: u32) -> Result<(), MoeError>;

    /// Returns whether calls that would be held end `aborted` at once instead.
    fn set_refuse(&self, refuse: bool);

    /// Returns whether this rank exchanges with no other.
    fn set_alone(&self, alone: bool);

    /// Stops the clocks against those ranks that have promised a change while it is prepared; none: no change is.
    ///
    /// # Errors
    /// [`MoeError::Rank`]: one that the team does not have.
    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), MoeError>;

    /// The ranks that kernels do not wait for, whatever they say.
    ///
    /// # Errors
    /// [`MoeError::Rank`]: one that the team does not have.
    fn set_suspects(&self, ranks: &[u32]) -> Result<(), MoeError>;
}

impl MoeInternal for Moe {
    fn set_schedule_seed(&self, seed: u64) {
        Self::set_schedule_seed(self, seed);
    }

    fn context_addr(&self) -> u64 {
        Self::context_addr(self)
    }

    fn begin_at(&self, first: u32) -> Result<(), MoeError> {
        self.control().begin_at(first)
    }

    fn leap_to(&self, call: u32) -> Result<(), MoeError> {
        self.control().leap_to(call)
    }

    fn view_of(&self, call: u32) -> Option<Arc<View>> {
        self.control().view_of(call)
    }

    fn clear_peer(&self, peer: u32) -> Result<(), MoeError> {
        self.control().clear_peer(peer)
    }

    fn set_refuse(&self, refuse: bool) {
        self.control().board().set_refuse(refuse);
    }

    fn set_alone(&self, alone: bool) {
        self.control().board().set_alone(alone);
    }

    fn set_preparing(&self, promised: Option<&[u32]>) -> Result<(), MoeError> {
        self.control().board().set_preparing(promised)
    }

    fn set_suspects(&self, ranks: &[u32]) -> Result<(), MoeError> {
        self.control().board().set_suspects(ranks)
    }
}

/// What tests and measurements need of a [`Workspace`].
pub trait WorkspaceInternal {
    /// As [`Workspace::send`] without looking at the expert ids, which the kernel then checks.
    ///
    /// # Errors
    /// Arrays of the wrong length, a layer of opaque tokens; the device's.
    fn send_unchecked(&mut self, batch: &Batch) -> Result<(), MoeError>;
}

impl WorkspaceInternal for Workspace {
    fn send_unchecked(&mut self, batch: &Batch) -> Result<(), MoeError> {
        Self::send_unchecked(self, batch)
    }
}
