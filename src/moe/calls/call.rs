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

/// The handle of one call at a time. A program with two calls open at once (two micro-batches, or a combine received after the
/// next dispatch is sent) has two.
#[derive(Debug)]
pub struct MoeCall {
    gpu: Arc<dyn Gpu>,
    memory: DeviceMemory,
    layout: HandleLayout,
    rank: u32,
    ranks: u32,
    /// A [`Launched`].
    launched: AtomicU8,
    deadline: OwnDeadline,
    /// Those of the layer's calls.
    arguments: Arc<Arguments>,
}

/// The deadline that the newest phases of a handle have of their own, ns; 0: none.
#[derive(Debug, Default)]
pub(in crate::moe) struct OwnDeadline(AtomicU64);

impl OwnDeadline {
    /// A dispatch begins, with this one.
    pub(in crate::moe) fn of_dispatch(&self, own: Option<Duration>) -> Duration {
        let own = own.unwrap_or_default();
        let ns = u64::try_from(own.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(ns, Ordering::Relaxed);
        own
    }

    /// Its combine begins, which may have another one.
    pub(in crate::moe) fn of_combine(&self, own: Option<Duration>) -> Duration {
        own.map_or_else(|| self.get(), |own| self.of_dispatch(Some(own)))
    }

    /// That of the phase which follows.
    pub(in crate::moe) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// How far a handle is, as the host knows from its launches. The device has the last word ([`MoeHandle::stage`]); this is for what
/// can be refused before it is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::moe) enum Launched {
    /// Anything else: a combine that is launched now may be the first.
    Open,
    /// A combine was sent.
    SentBack,
    /// And received: what the dispatch has brought is spent.
    Combined,
    /// Some launch was recorded into a graph: the host cannot know how often it runs, and when.
    InGraphs,
}

/// A launch that the host takes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::moe) enum Launching {
    /// Phases of dispatch.
    Dispatch,
    /// The send phase of combine. `sure`: it has nothing that the device might refuse.
    SendBack { sure: bool },
    /// The receive phase of combine.
    ReceiveBack,
    /// Both phases of combine.
    Combine { sure: bool },
}

impl Launched {
    const ALL: [Self; 4] = [Self::Open, Self::SentBack, Self::Combined, Self::InGraphs];

    /// After `what`, in a stream that records it or runs it. Refuses a combine of what has been combined.
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

    /// Returns how far it is, by its launches.
    pub(in crate::moe) fn stage(&self) -> Launched {
        Launched::ALL[usize::from(self.launched.load(Ordering::Relaxed))]
    }

    /// Returns how far it is when `what` has been launched in `stream`, for [`MoeCall::launched`].
    pub(in crate::moe) fn after(
        &self,
        what: Launching,
        stream: &Stream,
    ) -> Result<Launched, MoeError> {
        self.stage().after(what, stream.is_capturing()?)
    }

    /// Notes that `stage` has been launched. Launches of one handle follow each other, so only one thread writes at a time.
    pub(in crate::moe) fn launched(&self, stage: Launched) {
        self.launched.store(stage as u8, Ordering::Relaxed);
    }

    pub(in crate::moe) fn deadline(&self) -> &OwnDeadline {
        &self.deadline
    }

    /// Device address of the [`MoeHandle`].
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.memory.addr()
    }

    /// Returns how the call went so far. The phases that are asked about have ended.
    ///
    /// # Errors
    /// The device's.
    pub fn report(&self) -> Result<CallReport, MoeError> {
        let mut handle = MoeHandle::zeroed();
        self.gpu
            .read(self.addr(), bytemuck::bytes_of_mut(&mut handle))?;
        let mut peers = vec![MoeHandlePeer::zeroed(); self.ranks as usize];
        let at = self.addr() + self.layout.peers;
        self.gpu.read(at, bytemuck::cast_slice_mut(&mut peers))?;
        Ok(CallReport::new(self.rank, &handle, peers))
    }

    /// Whether the fault of `report`, of this handle, is one of arguments in which ranks differ. Asks the store, once for each call.
    #[must_use]
    pub fn difference(&self, report: &CallReport) -> Option<Difference> {
        self.arguments.explain(report.fault.as_ref()?)
    }

    /// The report as an error unless everything went through. Asks the store why a rank was missed, once for each call.
    ///
    /// # Errors
    /// [`MoeError::Arguments`] where ranks differ in what they pass, else [`MoeError::Call`]; the device's.
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

    /// Launches these one after the other; whether each is let through.
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
        // What the device may refuse may be called again.
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
