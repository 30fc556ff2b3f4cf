//! A MoE layer at one rank: its buffers, and the launches of its phases.

// UNSAFETY: launches kernels on addresses that the caller vouches for.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytemuck::bytes_of;

use super::calls::arguments::Arguments;
use super::calls::call::{Launched, Launching, MoeCall};
use super::calls::call_args::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, LaunchContext,
};
use super::calls::shape;
use super::calls::staging::CombineStaging;
use super::config::{Format, Grid, MoeConfig};
use super::difference::Difference;
use super::error::MoeError;
use super::layout::{Layout, StateLayout};
use super::making::fit::{agreed, fitting, with_room};
use super::making::grid;
use super::making::state::{self, Windows};
use super::members::control::Control;
use super::members::rule::PlacementRule;
use super::placement::{Capacity, Placement};
use super::sizes::not_made;
use crate::abi::{AbandonParams, CombineParams, DevicePtr, DispatchParams, SETS, Window};
use crate::gpu::{DeviceMemory, Event, Launch, Stream};
use crate::team::{Maker, Team, TeamError};

/// A MoE layer at one rank. Its phases run in the order in which they are launched. All ranks launch the same phases.
#[derive(Debug)]
pub struct Moe {
    /// The memory of the context, the state per peer, and the views with their tables of experts. `control` writes into it. It goes
    /// before the board, whose address the context has.
    state: DeviceMemory,
    /// The team, the views and the board.
    control: Control,
    config: MoeConfig,
    layout: Layout,
    /// The window that the NIC sends from.
    staging: Window,
    grid: Grid,
    seed: AtomicU64,
    arguments: Arc<Arguments>,
}

/// A launch of phases.
struct Phases<'a> {
    kernel: &'static str,
    /// The kind of launch, for the host's record of the handle.
    what: Launching,
    params: &'a [u8],
    /// The call's own deadline, or zero.
    deadline: Duration,
}

impl Moe {
    /// Makes a layer with the experts in contiguous blocks. Collective: `name` is used once, and all ranks make their layers in the
    /// same order. After an error no founder has the layer, and all can make it again by the same name, even with another shape.
    ///
    /// # Errors
    /// A shape outside the limits, or another one at another rank. An error of team or device, here or at another rank.
    pub fn new(team: &Arc<Team>, name: &str, config: MoeConfig) -> Result<Arc<Self>, MoeError> {
        let blocks = || Placement::blocks(config.experts, team.ranks());
        Self::made(team, name, config, blocks)
    }

    /// Makes a layer as [`Moe::new`] does, with any placement of the experts.
    ///
    /// # Errors
    /// As [`Moe::new`]. A placement that does not fit shape and team.
    pub fn with_placement(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: Placement,
    ) -> Result<Arc<Self>, MoeError> {
        Self::made(team, name, config, || placement)
    }

    /// Makes a layer with the placement that `placement` returns. `placement` is called once the shape is known to be inside its
    /// limits.
    fn made(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: impl FnOnce() -> Placement,
    ) -> Result<Arc<Self>, MoeError> {
        // If the shape does not fit, this rank gets its own error, even if another rank has failed the try before.
        let mut fits = Some(fitting(team, &config, placement));
        let made = team.make_together(&format!("layer/{name}"), |maker| match fits.take() {
            Some(fits) => Self::make(team, name, config, fits?, maker),
            None => unreachable!("it is taken once"),
        });
        if let Some(Err(error)) = fits {
            return Err(error);
        }
        let made = made.map_err(|error| match error {
            MoeError::Team(error) => MoeError::of_making(error),
            other => other,
        })?;
        made.arguments.made(team);
        Ok(Arc::new(made))
    }

    /// Makes this rank's part of a layer. It is freed again if another rank cannot make its own part.
    fn make(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: Placement,
        maker: &mut Maker<'_>,
    ) -> Result<Self, MoeError> {
        let config = with_room(config, &placement)?;
        let agreed = agreed(&config, &placement);
        if !team.config().joins() {
            // A rank that joins later meets no other rank, so it publishes no arguments.
            team.wants(name, &agreed)?;
        }
        maker.agree(format!("moe-{name}"), agreed.clone());
        let grid = grid::choose(team.gpu().as_ref(), config.grid, team.teams_on_device())?;
        let layout = Layout::new(&config, team.ranks());
        let lacks = |what, bytes| {
            move |error: MoeError| not_made(error, what, bytes, &config, team.ranks())
        };
        let window = |made: Result<Window, TeamError>, what, bytes| {
            made.map_err(MoeError::from).map_err(lacks(what, bytes))
        };
        let slots = maker.data_window(layout.slots);
        let slots = window(
            slots,
            "memory for slots that peers write into",
            layout.slots,
        )?;
        let staging = maker.send_window(layout.staging);
        let staging = window(staging, "memory that the NIC sends from", layout.staging)?;
        let signals = maker.window(layout.signals);
        let signals = window(signals, "memory for signals", layout.signals)?;
        let windows = Windows {
            slots,
            staging,
            signals,
        };
        let capacity = Capacity {
            experts: config.experts,
            ranks: team.ranks(),
            room: config.room(team.ranks()),
        };
        let rule = PlacementRule::new(placement, capacity);
        let bytes = StateLayout::new(&config, team.ranks()).bytes;
        let (state, control) = state::write(team, &config, &layout, &windows, rule)
            .map_err(lacks("memory for its state", bytes))?;
        let arguments = Arguments::new(team, name, &config, agreed, control.launches());
        Ok(Self {
            control,
            config,
            state,
            layout,
            staging,
            grid,
            seed: AtomicU64::new(0),
            arguments: Arc::new(arguments),
        })
    }

    /// Returns the team whose QPs and windows the layer uses.
    #[must_use]
    pub fn team(&self) -> &Arc<Team> {
        self.control.team()
    }

    /// Returns the control of the layer: which ranks take part, and what kernels are told of that.
    #[doc(hidden)]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the shape of the layer.
    #[must_use]
    pub fn config(&self) -> &MoeConfig {
        &self.config
    }

    /// Returns the bytes and offsets of the layer's buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the blocks and threads of the kernels.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Sets the seed of the schedule of kernels that are launched from now on, if they run on simt.
    #[doc(hidden)]
    pub fn set_schedule_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Returns the device address of the [`MoeContext`](crate::abi::MoeContext).
    #[must_use]
    #[doc(hidden)]
    pub fn context_addr(&self) -> u64 {
        self.state.addr()
    }

    /// Makes a handle for calls of the layer.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn call(&self) -> Result<MoeCall, MoeError> {
        MoeCall::new(self.team(), &self.config, &self.arguments)
    }

    /// Launches the send phase of dispatch in `stream`: it takes the number of the call and sends the tokens.
    ///
    /// # Errors
    /// Too many tokens. An address that is not valid. Errors of the device.
    ///
    /// # Safety
    /// The addresses are device memory of the size that the shape needs. Memory, handle and layer stay until the event is done, and
    /// no code writes to the input before that. Phases of one handle run in order: in one stream, or with events between them. So
    /// do all phases of a layer that send. A recorded graph is launched once for each of its replays.
    pub unsafe fn dispatch_send(
        &self,
        stream: &Stream,
        call: &MoeCall,
        input: &DispatchInput,
    ) -> Result<Event, MoeError> {
        let params = input.params(&self.config, self.subject(call))?;
        self.arguments.use_shape(input.format, input.max_tokens);
        let phases = Phases {
            kernel: "wv_moe_dispatch_send",
            what: Launching::Dispatch,
            params: bytes_of(&params),
            deadline: call.deadline().of_dispatch(input.deadline),
        };
        // SAFETY: the caller's promise; the context, the windows and the QPs belong to `self` and its team.
        let event = unsafe { self.launch(stream, call, &phases) }?;
        self.count(call);
        Ok(event)
    }

    /// Launches the receive phase of dispatch: it waits for the tokens of every peer and lays them out.
    ///
    /// # Errors
    /// An address that is not valid. Errors of the device.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn dispatch_receive(
        &self,
        stream: &Stream,
        call: &MoeCall,
        output: &DispatchOutput,
    ) -> Result<Event, MoeError> {
        let params = output.params(&self.config, self.subject(call))?;
        let phases = Phases {
            kernel: "wv_moe_dispatch_receive",
            what: Launching::Dispatch,
            params: bytes_of(&params),
            deadline: call.deadline().get(),
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch(stream, call, &phases) }
    }

    /// Launches both phases of dispatch as one kernel.
    ///
    /// # Errors
    /// As [`Moe::dispatch_send`] and [`Moe::dispatch_receive`].
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn dispatch(
        &self,
        stream: &Stream,
        call: &MoeCall,
        input: &DispatchInput,
        output: &DispatchOutput,
    ) -> Result<Event, MoeError> {
        let of = |format: Option<Format>| format.unwrap_or(self.config.format);
        if of(input.format) != of(output.format) {
            return Err(MoeError::Option {
                what: "a format for one call",
                needs: "the same in DispatchInput and DispatchOutput",
            });
        }
        let params = DispatchParams {
            send: input.params(&self.config, self.subject(call))?,
            receive: output.params(&self.config, self.subject(call))?,
        };
        self.arguments.use_shape(input.format, input.max_tokens);
        let phases = Phases {
            kernel: "wv_moe_dispatch",
            what: Launching::Dispatch,
            params: bytes_of(&params),
            deadline: call.deadline().of_dispatch(input.deadline),
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        let event = unsafe { self.launch(stream, call, &phases) }?;
        self.count(call);
        Ok(event)
    }

    /// Launches the send phase of combine: it adds up `y` per token and returns the sums. `y` is the experts' output, laid out as
    /// `recv_x` was.
    ///
    /// # Errors
    /// [`MoeError::CombinedAlready`] if the host knows that the handle's dispatch has been combined. For a handle that was recorded
    /// into a graph only the device knows that, and its report says `invalid`. An address that is not valid. Errors of the device.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn combine_send(
        &self,
        stream: &Stream,
        call: &MoeCall,
        input: &CombineInput,
    ) -> Result<Event, MoeError> {
        let params = input.params(&self.config, self.subject(call))?;
        let phases = Phases {
            kernel: "wv_moe_combine_send",
            what: Launching::SendBack {
                sure: input.is_sure(),
            },
            params: bytes_of(&params),
            deadline: call.deadline().of_combine(input.deadline),
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch(stream, call, &phases) }
    }

    /// Launches the receive phase of combine: it waits for every peer and adds up the rows that came back.
    ///
    /// # Errors
    /// An address that is not valid. Errors of the device.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn combine_receive(
        &self,
        stream: &Stream,
        call: &MoeCall,
        output: &CombineOutput,
    ) -> Result<Event, MoeError> {
        let params = output.params(&self.config, self.subject(call))?;
        let phases = Phases {
            kernel: "wv_moe_combine_receive",
            what: Launching::ReceiveBack,
            params: bytes_of(&params),
            deadline: call.deadline().get(),
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch(stream, call, &phases) }
    }

    /// Launches both phases of combine as one kernel.
    ///
    /// # Errors
    /// As [`Moe::combine_send`] and [`Moe::combine_receive`].
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn combine(
        &self,
        stream: &Stream,
        call: &MoeCall,
        input: &CombineInput,
        output: &CombineOutput,
    ) -> Result<Event, MoeError> {
        let params = CombineParams {
            send: input.params(&self.config, self.subject(call))?,
            receive: output.params(&self.config, self.subject(call))?,
        };
        let phases = Phases {
            kernel: "wv_moe_combine",
            what: Launching::Combine {
                sure: input.is_sure(),
            },
            params: bytes_of(&params),
            deadline: call.deadline().of_combine(input.deadline),
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch(stream, call, &phases) }
    }

    /// Launches the end of a call that turns out to have no combine. The call has then ended, so a change of membership does not
    /// wait for it. A call with [`DispatchInput::no_combine`](super::DispatchInput::no_combine) ends in the receive phase of its
    /// dispatch, without this. All ranks abandon the same calls, each after that receive phase. A rank that combines instead waits
    /// for the others until its deadline. A combine of an abandoned call ends `invalid`. A call that has come to its combine is not
    /// abandoned.
    ///
    /// # Errors
    /// Errors of the device.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`]; no other phase of the layer runs meanwhile.
    pub unsafe fn abandon(&self, stream: &Stream, call: &MoeCall) -> Result<Event, MoeError> {
        let subject = self.subject(call);
        let params = AbandonParams {
            moe: subject.moe,
            handle: subject.handle,
        };
        self.team().check_threads()?;
        let spec = Launch {
            stream: Some(stream),
            seed: self.seed.load(Ordering::Relaxed),
            ..Launch::new("wv_moe_abandon", 1, 32)
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        Ok(unsafe { self.team().gpu().launch(&spec, bytes_of(&params)) }?)
    }

    fn subject(&self, call: &MoeCall) -> LaunchContext {
        LaunchContext {
            moe: DevicePtr::new(self.state.addr()),
            handle: DevicePtr::new(call.addr()),
            active: self.control.board().active_addr(),
            ranks: self.team().ranks(),
        }
    }

    /// Counts a dispatch that was launched with handle `call`, or notes one that was recorded into a graph.
    fn count(&self, call: &MoeCall) {
        let in_graph = call.stage() == Launched::InGraphs;
        self.control.launches().count(in_graph);
    }

    /// Tells the other ranks the shape of calls that follow. The first dispatch of a shape does so, too. A program that must not
    /// use the store in a launch calls this before.
    ///
    /// # Errors
    /// A shape that the slots of the layer do not hold.
    pub fn announce(&self, format: Option<Format>, max_tokens: u32) -> Result<(), MoeError> {
        let call = shape::of_call(&self.config, self.team().ranks(), format, max_tokens)?;
        self.arguments.announce(format, call.max_tokens);
        Ok(())
    }

    /// Returns the difference in arguments that caused the newest fault, if one did. It asks the store, once for each fault, so
    /// call it when [`Moe::faults`] has news. A rank that finds a difference publishes it for the others.
    #[must_use]
    pub fn difference(&self) -> Option<Difference> {
        let fault = self.control.board().last_fault()?;
        self.arguments.explain(&fault)
    }

    /// Returns for each set the memory into which calls may write what their combine sends. A call has one of the two sets, and
    /// [`DispatchOutput::staging`](super::DispatchOutput::staging) tells kernels which, without the host. It says 0 if the call may
    /// use neither, since an HCA still reads the rows of an earlier call.
    ///
    /// # Errors
    /// [`MoeError::Option`] in a layer that sends back sums, since the layer makes these itself.
    pub fn combine_stagings(&self) -> Result<[CombineStaging; SETS as usize], MoeError> {
        Ok([self.combine_staging(0)?, self.combine_staging(1)?])
    }

    /// Returns the memory into which a call of `set` may write what its combine sends with `COMBINE_ZERO_COPY`. The set is the
    /// number of the call modulo 2. Kernels find the number in `MoeHandle::call`, and the host in
    /// [`CallReport::call`](super::CallReport::call). The addresses stay the same while the layer lives. They are not for a call
    /// with fewer tokens than the layer was made for ([`DispatchInput::max_tokens`](super::DispatchInput::max_tokens)).
    ///
    /// # Errors
    /// [`MoeError::Option`] in a layer that sends back sums, since the layer makes these itself. A set that does not exist.
    pub fn combine_staging(&self, set: u32) -> Result<CombineStaging, MoeError> {
        let (ranks, window) = (self.team().ranks(), self.staging.base);
        CombineStaging::new(&self.config, &self.layout, ranks, window, set)
    }

    /// # Safety
    /// As [`Gpu::launch`](crate::gpu::Gpu::launch).
    unsafe fn launch(
        &self,
        stream: &Stream,
        call: &MoeCall,
        phases: &Phases<'_>,
    ) -> Result<Event, MoeError> {
        self.team().check_threads()?;
        let stage = call.after(phases.what, stream)?;
        let spec = Launch {
            cooperative: true,
            stream: Some(stream),
            seed: self.seed.load(Ordering::Relaxed),
            // Every wait of a phase ends by itself. This deadline only stops a kernel whose wait does not.
            deadline: self.control.board().longest_launch(phases.deadline),
            ..Launch::new(phases.kernel, self.grid.blocks, self.grid.threads)
        };
        // SAFETY: the caller's promise.
        let event = unsafe { self.team().gpu().launch(&spec, phases.params) }?;
        call.launched(stage);
        Ok(event)
    }
}
