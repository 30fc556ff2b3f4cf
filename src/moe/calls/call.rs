//! A handle: the device memory that follows one call through its four phases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use bytemuck::Zeroable;

use crate::abi::{DevicePtr, MoeHandle, MoeHandlePeer};
use crate::gpu::{DeviceMemory, Gpu, Stream};
use crate::moe::calls::arguments::Arguments;
use crate::moe::config::MoeConfig;
use crate::moe::difference::Difference;
use crate::moe::error::MoeError;
use crate::moe::layout::HandleLayout;
use crate::moe::report::CallReport;
use crate::team::Team;

/// The handle of one call at a time. A program with two calls open at once has two handles: with two micro-batches, or if it
/// receives a combine after it has sent the next dispatch.
#[derive(Debug)]
pub struct MoeCall {
    gpu: Arc<dyn Gpu>,
    memory: DeviceMemory,
    layout: HandleLayout,
    rank: u32,
    ranks: u32,
    /// The stage, as a number of [`Launched`].
    launched: AtomicU8,
    deadline: OwnDeadline,
    /// The knowledge of the layer about the arguments of its calls.
    arguments: Arc<Arguments>,
}

/// The deadline that the newest call of a handle has of its own, ns; 0: none.
#[derive(Debug, Default)]
pub(in crate::moe) struct OwnDeadline(AtomicU64);

impl OwnDeadline {
    /// Keeps the deadline of a dispatch that begins, and returns it; zero if it has none of its own.
    pub(in crate::moe) fn of_dispatch(&self, own: Option<Duration>) -> Duration {
        let own = own.unwrap_or_default();
        let ns = u64::try_from(own.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(ns, Ordering::Relaxed);
        own
    }

    /// Returns the deadline of a combine that begins: its own, which is kept then, or else that of its dispatch.
    pub(in crate::moe) fn of_combine(&self, own: Option<Duration>) -> Duration {
        own.map_or_else(|| self.get(), |own| self.of_dispatch(Some(own)))
    }

    /// Returns the deadline of the phase that follows.
    pub(in crate::moe) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The stage of a handle, as the host knows it from launches. The device decides ([`MoeHandle::stage`]); the host uses this to
/// refuse a launch early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::moe) enum Launched {
    /// Any other state: a combine that is launched now may be the first.
    Open,
    /// The send phase of a combine was launched.
    SentBack,
    /// Both phases of a combine were launched: the rows of the dispatch are used up.
    Combined,
    /// Some launch was recorded into a graph: the host cannot know when and how often it runs.
    InGraphs,
}

/// A kind of launch that changes how far a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::moe) enum Launching {
    /// A phase of dispatch, or both.
    Dispatch,
    /// The send phase of combine. `sure`: the launch has nothing that the device might refuse.
    SendBack { sure: bool },
    /// The receive phase of combine.
    ReceiveBack,
    /// Both phases of combine. `sure` as in `SendBack`.
    Combine { sure: bool },
}

impl Launched {
    const ALL: [Self; 4] = [Self::Open, Self::SentBack, Self::Combined, Self::InGraphs];

    /// Returns the state after `what`; `records`: the stream records the launch into a graph. Refuses a combine of a dispatch that
    /// has been combined.
    fn after(self, what: Launching, records: bool) -> Result<Self, MoeError> {
        let combines = matches!(what, Launching::SendBack { .. } | Launching::Combine { .. });
        Ok(match (self, what) {
            (Self::InGraphs, _) => Self::InGraphs,
            _ if records => Self::InGraphs,
            (Self::Combined, _) if combines => return Err(MoeError::CombinedAlready),
            (_, Launching::SendBack { sure: true }) => Self::SentBack,
            (_, Launching::Combine { sure: true })
            | (Self::SentBack | Self::Combined, Launching::ReceiveBack) => Self::Combined,
            _ => Self::Open,
        })
    }
}

impl MoeCall {
    pub(in crate::moe) fn new(
        team: &Team,
        config: &MoeConfig,
        arguments: &Arc<Arguments>,
    ) -> Result<Self, MoeError> {
        let gpu = Arc::clone(team.gpu());
        let layout = HandleLayout::new(config, team.ranks());
        let bytes = usize::try_from(layout.bytes).expect("checked with the shape");
        let memory = gpu.alloc(bytes, 128)?;
        let at = |offset: u64| memory.addr() + offset;
        let handle = MoeHandle {
            peers: DevicePtr::new(at(layout.peers)),
            row_of: DevicePtr::new(at(layout.row_of)),
            token_of: DevicePtr::new(at(layout.token_of)),
            sources: DevicePtr::new(at(layout.sources)),
            picks: DevicePtr::new(at(layout.picks)),
            chosen: DevicePtr::new(at(layout.chosen)),
            weights: DevicePtr::new(at(layout.weights)),
            ..MoeHandle::zeroed()
        };
        gpu.write(memory.addr(), bytemuck::bytes_of(&handle))?;
        Ok(Self {
            gpu,
            memory,
            layout,
            rank: team.rank(),
            ranks: team.ranks(),
            launched: AtomicU8::new(Launched::Open as u8),
            deadline: OwnDeadline::default(),
            arguments: Arc::clone(arguments),
        })
    }

    /// Returns how far the handle is, by its launches.
    pub(in crate::moe) fn stage(&self) -> Launched {
        Launched::ALL[usize::from(self.launched.load(Ordering::Relaxed))]
    }

    /// Returns how far the handle is after `what` was launched in `stream`, for [`MoeCall::launched`].
    pub(in crate::moe) fn after(
        &self,
        what: Launching,
        stream: &Stream,
    ) -> Result<Launched, MoeError> {
        self.stage().after(what, stream.is_capturing()?)
    }

    /// Notes that the handle is at `stage`. Launches of one handle follow each other, so only one thread writes at a time.
    pub(in crate::moe) fn launched(&self, stage: Launched) {
        self.launched.store(stage as u8, Ordering::Relaxed);
    }

    pub(in crate::moe) fn deadline(&self) -> &OwnDeadline {
        &self.deadline
    }

    /// Returns the device address of the [`MoeHandle`].
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Reads how the call went so far. The phases in question have ended.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn report(&self) -> Result<CallReport, MoeError> {
        let mut handle = MoeHandle::zeroed();
        self.gpu
            .read(self.addr(), bytemuck::bytes_of_mut(&mut handle))?;
        let mut peers = vec![MoeHandlePeer::zeroed(); self.ranks as usize];
        let at = self.addr() + self.layout.peers;
        self.gpu.read(at, bytemuck::cast_slice_mut(&mut peers))?;
        Ok(CallReport::new(self.rank, &handle, peers))
    }

    /// Returns the difference in arguments that caused the fault of `report`, a report of this handle, if one did. It asks the
    /// store, once for each call.
    #[must_use]
    pub fn difference(&self, report: &CallReport) -> Option<Difference> {
        self.arguments.explain(report.fault.as_ref()?)
    }

    /// Returns the report if everything went through, and an error otherwise. It asks the store why a rank was missed, once for
    /// each call.
    ///
    /// # Errors
    /// [`MoeError::Arguments`] if ranks differ in what they pass, otherwise [`MoeError::Call`]. Errors of the device.
    pub fn check(&self) -> Result<CallReport, MoeError> {
        let report = self.report()?;
        if report.is_complete() {
            return Ok(report);
        }
        Err(match self.difference(&report) {
            Some(found) => MoeError::Arguments(Box::new(found)),
            None => MoeError::Call(Box::new(report)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches these one after the other, and returns for each whether it was let through.
    fn let_through(all: &[Launching]) -> Vec<bool> {
        let mut stage = Launched::Open;
        let one = |what: &Launching| match stage.after(*what, false) {
            Ok(next) => {
                stage = next;
                true
            }
            Err(error) => {
                assert!(error.to_string().starts_with("combine: the dispatch of"));
                false
            }
        };
        all.iter().map(one).collect()
    }

    #[test]
    fn a_second_combine_of_one_dispatch_is_refused_and_nothing_else_is() {
        use Launching::{Combine, Dispatch, ReceiveBack, SendBack};
        let (combine, back) = (Combine { sure: true }, SendBack { sure: true });
        assert_eq!(
            let_through(&[Dispatch, combine, combine, back, Dispatch, combine]),
            [true, true, false, false, true, true]
        );
        assert_eq!(
            let_through(&[Dispatch, back, ReceiveBack, combine, ReceiveBack, back]),
            [true, true, true, false, true, false]
        );
        // A combine that the device may refuse may be launched again.
        let unsure = Combine { sure: false };
        assert_eq!(let_through(&[Dispatch, unsure, combine]), [true; 3]);
        assert_eq!(let_through(&[Dispatch, back, back]), [true; 3]);
        assert_eq!(let_through(&[Dispatch, ReceiveBack, combine]), [true; 3]);
        assert_eq!(
            let_through(&[combine, Dispatch, combine]),
            [true; 3],
            "a combine out of turn is the device's to refuse"
        );
    }

    #[test]
    fn a_phase_that_receives_waits_as_long_as_the_one_that_sent() {
        let [hour, second] = [3600, 1].map(Duration::from_secs);
        let own = OwnDeadline::default();
        assert_eq!(own.of_dispatch(Some(hour)), hour);
        assert_eq!(own.get(), hour);
        assert_eq!(own.of_combine(None), hour);
        assert_eq!(own.of_combine(Some(second)), second);
        assert_eq!(own.get(), second);
        assert_eq!(own.of_dispatch(None), Duration::ZERO);
        assert_eq!((own.get(), own.of_combine(None)), Default::default());
        assert!(own.of_dispatch(Some(Duration::MAX)) > own.get());
        assert_eq!(own.get(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn of_a_handle_in_a_graph_the_host_says_nothing() {
        let combine = Launching::Combine { sure: true };
        let graph = Launched::Open.after(Launching::Dispatch, true).unwrap();
        assert_eq!(graph, Launched::InGraphs);
        let once = graph.after(combine, false).unwrap();
        assert_eq!(once.after(combine, false).unwrap(), Launched::InGraphs);
        for (place, stage) in Launched::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place);
        }
    }
}
