//! Which status says which cause: every variant of every error of the library has an arm here, and some share a status.
//!
//! The enums are `#[non_exhaustive]`, so a match must have an arm for variants of a later version:
//! [`WV_OTHER`](wv_status::WV_OTHER). A test of `tests/c` reads the enums and finds each present variant named in this file.

use std::error::Error as StdError;

use warpverbs::config::ConfigError;
use warpverbs::engine::{EngineError, HostError, OfiError, ProviderError};
use warpverbs::error::{Error, ThreadPanicked};
use warpverbs::gpu::GpuError;
use warpverbs::membership::{GroupError, GroupState};
use warpverbs::moe::MoeError;
use warpverbs::team::{StoreError, TeamError};
use warpverbs::verbs::VerbsError;

use crate::status::Failure;
use crate::status::wv_status::{self, *};

/// The cause of an error of any part.
pub(crate) fn of(error: &Error) -> wv_status {
    if let Some(error) = error.downcast_ref::<TeamError>() {
        return of_team(error);
    }
    if let Some(error) = error.downcast_ref::<MoeError>() {
        return of_moe(error);
    }
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return of_store(error);
    }
    if let Some(error) = error.downcast_ref::<VerbsError>() {
        return of_verbs(error);
    }
    if let Some(error) = error.downcast_ref::<GpuError>() {
        return of_gpu(error);
    }
    if let Some(error) = error.downcast_ref::<HostError>() {
        return of_host(error);
    }
    if let Some(error) = error.downcast_ref::<EngineError>() {
        return of_engine(error);
    }
    match error.downcast_ref::<ThreadPanicked>() {
        Some(_) => WV_PANIC,
        None => WV_OTHER,
    }
}

/// An error becomes a failure of its cause, in its own words.
macro_rules! failures {
    ($($error:ty => $cause:expr),* $(,)?) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new($cause(&error), error.to_string())
            }
        })*
    };
}

failures! {
    Error => of,
    ConfigError => of_config,
    TeamError => of_team,
    MoeError => of_moe,
    StoreError => of_store,
    GpuError => of_gpu,
    GroupError => of_group,
    HostError => of_host,
    EngineError => of_engine,
    ProviderError => of_provider,
}

fn of_config(error: &ConfigError) -> wv_status {
    match error {
        ConfigError::NoRank
        | ConfigError::Number { .. }
        | ConfigError::Word { .. }
        | ConfigError::Form { .. }
        | ConfigError::NotText { .. } => WV_BAD_CONFIG,
        _ => WV_OTHER,
    }
}

fn of_team(error: &TeamError) -> wv_status {
    match error {
        TeamError::UnknownRank { .. } | TeamError::Limit { .. } | TeamError::Batch { .. } => {
            WV_BAD_ARGUMENT
        }
        TeamError::RankTaken { .. } => WV_RANK_TAKEN,
        TeamError::Mismatch { .. } | TeamError::Differs { .. } => WV_PEER_MISMATCH,
        TeamError::PeerFailed { .. }
        | TeamError::PeerEnded { .. }
        | TeamError::PeerClosed { .. } => WV_PEER_FAILED,
        TeamError::Absent { .. } => WV_PEER_ABSENT,
        TeamError::LeftOut { .. } => WV_EXPELLED,
        TeamError::Record { .. } => WV_STORE_FOREIGN,
        TeamError::Guarded { .. } | TeamError::Recovering { .. } => WV_BUSY,
        TeamError::Generation { .. } => WV_GENERATION_OVER,
        TeamError::StillRuns { .. } => WV_PEER_RUNS,
        TeamError::NotConnected { .. } | TeamError::Unreached { .. } => WV_PEER_NOT_CONNECTED,
        TeamError::Late { .. } | TeamError::Order { .. } | TeamError::NoWay { .. } => {
            WV_UNSUPPORTED
        }
        TeamError::RingSpace { .. } => WV_OUT_OF_RING,
        TeamError::Device(error) => of(error),
        TeamError::Store(error) => of_store(error),
        TeamError::Verbs(error) | TeamError::NoPath { source: error, .. } => of_verbs(error),
        TeamError::Gpu(error) => of_gpu(error),
        _ => WV_OTHER,
    }
}

fn of_moe(error: &MoeError) -> wv_status {
    match error {
        MoeError::Shape { .. }
        | MoeError::Multiple { .. }
        | MoeError::Length { .. }
        | MoeError::Tokens { .. }
        | MoeError::ExpertRange { .. }
        | MoeError::ExpertTwice { .. }
        | MoeError::Placement { .. }
        | MoeError::SlotExpert { .. }
        | MoeError::ReplicaTwice { .. }
        | MoeError::Policy { .. }
        | MoeError::Address { .. }
        | MoeError::Rank { .. }
        | MoeError::NotMember { .. }
        | MoeError::Slot { .. }
        | MoeError::CombinedAlready
        | MoeError::ViewOrder { .. } => WV_BAD_ARGUMENT,
        MoeError::Sharing { .. } | MoeError::Option { .. } | MoeError::Grid { .. } => {
            WV_UNSUPPORTED
        }
        MoeError::ViewInUse { .. }
        | MoeError::PeerMember { .. }
        | MoeError::PeerNeeded { .. }
        | MoeError::PeerOpen { .. } => WV_BUSY,
        MoeError::Call(_) => WV_INCOMPLETE,
        MoeError::Arguments(_) => WV_PEER_MISMATCH,
        MoeError::Team(error) => of_team(error),
        MoeError::Gpu(error) => of_gpu(error),
        MoeError::NotMade { source, .. } => of_moe(source),
        _ => WV_OTHER,
    }
}

fn of_store(error: &StoreError) -> wv_status {
    match error {
        StoreError::Url { .. }
        | StoreError::Missing { .. }
        | StoreError::Shared { .. }
        | StoreError::PlainPassword { .. }
        | StoreError::Tls { .. }
        | StoreError::Refused { .. }
        | StoreError::Key { .. }
        | StoreError::TooLong { .. }
        | StoreError::TooMany { .. }
        | StoreError::Ttl { .. }
        | StoreError::NoLeases { .. }
        | StoreError::Run { .. } => WV_STORE_REFUSED,
        StoreError::OtherRun { .. }
        | StoreError::OtherRecord { .. }
        | StoreError::NotARecord { .. } => WV_STORE_FOREIGN,
        StoreError::Unreachable { .. }
        | StoreError::NoAnswer { .. }
        | StoreError::Late { .. }
        | StoreError::Foreign { .. }
        | StoreError::Interrupted { .. }
        | StoreError::Thread(_)
        | StoreError::Io { .. } => WV_STORE_FAILED,
        StoreError::Timeout { .. } => WV_TIMEOUT,
        StoreError::Panicked(_) => WV_PANIC,
        _ => WV_OTHER,
    }
}

fn of_verbs(error: &VerbsError) -> wv_status {
    match error {
        VerbsError::Load(_)
        | VerbsError::Missing(_)
        | VerbsError::NoDevice { .. }
        | VerbsError::Capability { .. } => WV_NO_HCA,
        VerbsError::Call { .. }
        | VerbsError::NoMac { .. }
        | VerbsError::Command { .. }
        | VerbsError::BadReply { .. }
        | VerbsError::Export { .. } => WV_HCA_REFUSED,
        VerbsError::BadArgument { .. } => WV_BAD_ARGUMENT,
        VerbsError::Thread(_) | VerbsError::Heap(_) => WV_OUT_OF_MEMORY,
        VerbsError::Panicked(_) => WV_PANIC,
        _ => WV_OTHER,
    }
}

fn of_gpu(error: &GpuError) -> wv_status {
    match error {
        GpuError::NoDriver { .. }
        | GpuError::NoStart { .. }
        | GpuError::NoDevice { .. }
        | GpuError::OldDriver(_)
        | GpuError::Compile { .. }
        | GpuError::NoPtx { .. }
        | GpuError::NotForDevice { .. } => WV_NO_GPU,
        GpuError::Driver { .. } | GpuError::NotOpened { .. } | GpuError::Doorbell { .. } => {
            WV_GPU_REFUSED
        }
        GpuError::BadArgument { .. }
        | GpuError::BadRange { .. }
        | GpuError::UnknownKernel { .. }
        | GpuError::KernelClash { .. }
        | GpuError::BadLaunch { .. }
        | GpuError::Capture { .. }
        | GpuError::Captured { .. } => WV_BAD_ARGUMENT,
        GpuError::OutOfMemory { .. } | GpuError::Thread(_) => WV_OUT_OF_MEMORY,
        GpuError::Kernel { .. } | GpuError::Poisoned { .. } => WV_KERNEL_FAILED,
        GpuError::Panicked(_) => WV_PANIC,
        GpuError::Timeout { .. } => WV_TIMEOUT,
        _ => WV_OTHER,
    }
}

fn of_group(error: &GroupError) -> wv_status {
    match error {
        GroupError::Bound { .. } => WV_BAD_CONFIG,
        GroupError::Differs { .. } => WV_PEER_MISMATCH,
        GroupError::Taken { .. } => WV_GENERATION_OVER,
        GroupError::Record { .. } => WV_STORE_FOREIGN,
        GroupError::State { state, .. } => of_state(*state).unwrap_or(WV_TIMEOUT),
        GroupError::Suspect { .. } => WV_BAD_ARGUMENT,
        GroupError::Thread(_) => WV_OUT_OF_MEMORY,
        GroupError::Panicked(_) => WV_PANIC,
        GroupError::Layer(error) => of_layer(error.as_ref()),
        GroupError::Team(error) => of_team(error),
        GroupError::Store(error) => of_store(error),
        _ => WV_OTHER,
    }
}

/// The layer of a group of this library is a `Moe`.
fn of_layer(error: &(dyn StdError + Send + Sync + 'static)) -> wv_status {
    error.downcast_ref().map_or(WV_OTHER, of_moe)
}

fn of_host(error: &HostError) -> wv_status {
    match error {
        HostError::Refused(error) => of_engine(error),
        HostError::Provider(error) => of_provider(error),
        HostError::Listed { error, .. } => of_host(error),
        HostError::Connection { .. } => WV_PEER_NOT_CONNECTED,
        HostError::Distrusted { .. } => WV_PEER_NOT_CONNECTED,
        HostError::Insecure { .. } | HostError::KeyFile { .. } => WV_BAD_CONFIG,
        HostError::Store { error, .. } => of_store(error),
        HostError::UnknownName { .. } => WV_PEER_NOT_CONNECTED,
        HostError::NameTaken { .. } => WV_RANK_TAKEN,
        HostError::NoAddress { .. } | HostError::Listen { .. } => WV_BAD_ARGUMENT,
        _ => WV_OTHER,
    }
}

fn of_engine(error: &EngineError) -> wv_status {
    match error {
        EngineError::Slots { .. }
        | EngineError::Block { .. }
        | EngineError::Fragment { .. }
        | EngineError::SliceBytes { .. }
        | EngineError::Gather { .. }
        | EngineError::Devices { .. }
        | EngineError::SameDevice { .. }
        | EngineError::MixedWires { .. }
        | EngineError::FewQps { .. }
        | EngineError::Knob { .. } => WV_BAD_CONFIG,
        EngineError::Operations { .. }
        | EngineError::Pieces
        | EngineError::Slices { .. }
        | EngineError::Wraps { .. }
        | EngineError::ReadIntoItself { .. }
        | EngineError::NoticeBytes { .. }
        | EngineError::NotRegistered { .. }
        | EngineError::NotLocal { .. }
        | EngineError::Overlap { .. }
        | EngineError::RegionBytes { .. }
        | EngineError::Freed { .. }
        | EngineError::OtherKind { .. }
        | EngineError::LocalGpu { .. }
        | EngineError::Descriptor { .. }
        | EngineError::Grant { .. }
        | EngineError::GrantRange { .. }
        | EngineError::TimeToLive
        | EngineError::Right { .. }
        | EngineError::Counter { .. }
        | EngineError::Word { .. }
        | EngineError::CountedRead { .. }
        | EngineError::CountedParts { .. }
        | EngineError::PreparedUncounted
        | EngineError::PreparedElsewhere { .. }
        | EngineError::ForeignPrepared { .. } => WV_BAD_ARGUMENT,
        EngineError::ForeignId { .. }
        | EngineError::Released { .. }
        | EngineError::UnknownRegion { .. }
        | EngineError::ForeignRegion { .. }
        | EngineError::UnknownGrant { .. }
        | EngineError::Closing => WV_BAD_HANDLE,
        EngineError::Pending { .. } | EngineError::Busy { .. } => WV_BUSY,
        EngineError::WouldBlock { .. } | EngineError::InboxFull { .. } => WV_WOULD_BLOCK,
        EngineError::GrantSpace { .. }
        | EngineError::RegionNumbers
        | EngineError::EngineNumbers => WV_OUT_OF_MEMORY,
        EngineError::WorkerPanicked(_) => WV_PANIC,
        EngineError::PeerGone { .. } => WV_PEER_NOT_CONNECTED,
        EngineError::Incarnation { .. } | EngineError::ForeignGrant { .. } => WV_GENERATION_OVER,
        _ => WV_OTHER,
    }
}

fn of_provider(error: &ProviderError) -> wv_status {
    match error {
        ProviderError::Verbs(error) => of_verbs(error),
        ProviderError::Gpu(error) => of_gpu(error),
        ProviderError::NotOffered { .. }
        | ProviderError::NoFlush { .. }
        | ProviderError::Ofi(OfiError::NoGpuMemory { .. }) => WV_NO_GPU,
        ProviderError::Ofi(_) => WV_OTHER,
        ProviderError::System { .. } | ProviderError::Thread(_) => WV_OUT_OF_MEMORY,
        ProviderError::Memory { .. } | ProviderError::Range { .. } | ProviderError::Gone { .. } => {
            WV_BAD_ARGUMENT
        }
        _ => WV_OTHER,
    }
}

/// What the end of a group means; none if it has not ended.
pub(crate) fn of_state(state: GroupState) -> Option<wv_status> {
    match state {
        GroupState::Joining | GroupState::Serving | GroupState::Changing => None,
        GroupState::Expelled => Some(WV_EXPELLED),
        GroupState::Left => Some(WV_LEFT),
        GroupState::Broken => Some(WV_PANIC),
        other => other.is_over().then_some(WV_OTHER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_cause_is_found_below_the_part_that_met_it() {
        let timeout = || StoreError::Timeout {
            key: "x".to_owned(),
            waited: Duration::ZERO,
        };
        let cause = |error: Error| of(&error);
        assert_eq!(cause(timeout().into()), WV_TIMEOUT);
        assert_eq!(cause(TeamError::Store(timeout()).into()), WV_TIMEOUT);
        let memory = || GpuError::OutOfMemory {
            kind: "device",
            bytes: 1,
            detail: String::new(),
        };
        assert_eq!(
            cause(MoeError::Team(TeamError::Gpu(memory())).into()),
            WV_OUT_OF_MEMORY
        );
        let layer: Box<dyn StdError + Send + Sync> = Box::new(MoeError::Gpu(memory()));
        assert_eq!(of_group(&GroupError::Layer(layer)), WV_OUT_OF_MEMORY);
        let full = || EngineError::WouldBlock { slots: 1 };
        assert_eq!(cause(full().into()), WV_WOULD_BLOCK);
        assert_eq!(cause(HostError::from(full()).into()), WV_WOULD_BLOCK);
        let state = GroupError::State {
            state: GroupState::Expelled,
            wanted: GroupState::Serving,
            waited: Duration::ZERO,
            why: None,
        };
        assert_eq!(Failure::from(state).status, WV_EXPELLED);
    }
}
