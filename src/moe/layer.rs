//! A MoE layer at one rank: its buffers, and the launches of its phases.

// UNSAFETY: launches kernels on addresses that the caller vouches for.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytemuck::bytes_of;

use super::board::Board;
use super::call::Launching;
use super::call_args::LaunchContext;
use super::grid;
use super::in_group::PlacementRule;
use super::layout::Layout;
use super::state;
use super::view::Views;
use super::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, Format, Grid, MoeCall, MoeConfig,
    MoeError, Placement,
};
use crate::abi::{AbandonParams, CombineParams, DevicePtr, DispatchParams, Window};
use crate::gpu::{DeviceMemory, Event, Launch, Stream};
use crate::team::{Sharing, Team};

/// Least depth of a send queue: a batch of a warp's 32 puts and a signal is at most a quarter of it.
const LEAST_LOG_DEPTH: u8 = 8;

/// A MoE layer at one rank. Its phases run in the order in which they are launched; all ranks launch the same ones.
#[derive(Debug)]
pub struct Moe {
    team: Arc<Team>,
    config: MoeConfig,
    /// Context, state per peer, views with their tables of experts.
    state: DeviceMemory,
    layout: Layout,
    /// What the NIC sends from.
    staging: Window,
    /// Words shared with kernels that run.
    board: Board,
    views: Views,
    rule: PlacementRule,
    grid: Grid,
    seed: AtomicU64,
}

impl Moe {
    /// Makes a layer with the experts in contiguous blocks. Collective: `name` is used once, and all ranks make their layers in
    /// the same order.
    ///
    /// # Errors
    /// A shape outside the limits or different at another rank; what team and device refuse.
    pub fn new(team: &Arc<Team>, name: &str, config: MoeConfig) -> Result<Arc<Self>, MoeError> {
        let blocks = || Placement::blocks(config.experts, team.ranks());
        Self::made(team, name, config, blocks)
    }

    /// The same with any placement of the experts.
    ///
    /// # Errors
    /// As [`Moe::new`]; a placement that does not fit shape and team.
    pub fn with_placement(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: Placement,
    ) -> Result<Arc<Self>, MoeError> {
        Self::made(team, name, config, || placement)
    }

    /// The same with the placement that `placement` makes of a shape inside its limits.
    fn made(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: impl FnOnce() -> Placement,
    ) -> Result<Arc<Self>, MoeError> {
        let made = Self::make(team, name, config, placement);
        if let Err(error) = &made
            && !matches!(error, MoeError::Team(_))
        {
            team.give_up(&error.to_string());
        }
        made.map(Arc::new)
    }

    fn make(
        team: &Arc<Team>,
        name: &str,
        config: MoeConfig,
        placement: impl FnOnce() -> Placement,
    ) -> Result<Self, MoeError> {
        config.check(team.ranks())?;
        let placement = placement();
        if team.config().log_depth < LEAST_LOG_DEPTH {
            return Err(MoeError::Shape {
                name: "the team's log_depth",
                value: team.config().log_depth.into(),
                least: LEAST_LOG_DEPTH.into(),
                most: 15,
            });
        }
        if team.config().modes.sharing != Sharing::Shared {
            return Err(MoeError::Sharing {
                sharing: format!("{:?}", team.config().modes.sharing),
            });
        }
        if placement.experts() != config.experts as usize
            || placement.ranks() != team.ranks() as usize
        {
            return Err(MoeError::Placement {
                experts: placement.experts(),
                ranks: placement.ranks(),
                want_experts: config.experts,
                want_ranks: team.ranks(),
            });
        }
        let config = with_room(config, &placement)?;
        team.agree(
            &format!("moe-{name}"),
            &[
                ("hidden".to_owned(), config.hidden.to_string()),
                ("experts".to_owned(), config.experts.to_string()),
                ("top-k".to_owned(), config.top_k.to_string()),
                ("max_tokens".to_owned(), config.max_tokens.to_string()),
                ("format".to_owned(), format!("{:?}", config.format)),
                ("layout".to_owned(), format!("{:?}", config.layout)),
                ("returns".to_owned(), format!("{:?}", config.returns)),
                ("local_experts".to_owned(), config.local_experts.to_string()),
                (
                    "placement of the experts".to_owned(),
                    placement.fingerprint(),
                ),
            ],
        )?;
        let grid = grid::choose(team.gpu().as_ref(), config.grid, team.teams_on_device())?;
        let layout = Layout::new(&config, team.ranks());
        let slots = team.data_window(layout.slots)?;
        let staging = team.send_window(layout.staging)?;
        let signals = team.window(layout.signals)?;
        let windows = [slots, staging, signals];
        let (state, board, views) = state::write(team, &config, &placement, &layout, windows)?;
        Ok(Self {
            team: Arc::clone(team),
            config,
            state,
            layout,
            staging,
            board,
            views,
            rule: PlacementRule::new(placement),
            grid,
            seed: AtomicU64::new(0),
        })
    }

    /// The team whose QPs and windows the layer uses.
    #[must_use]
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &MoeConfig {
        &self.config
    }

    /// Where everything lies in its buffers.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn staging_addr(&self) -> u64 {
        self.staging.base
    }

    /// Blocks and threads of the kernels.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Seed of the schedule of the kernels that are launched from now on, where they run on simt.
    pub(crate) fn set_schedule_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Device address of the [`MoeContext`](crate::abi::MoeContext).
    #[must_use]
    pub(crate) fn context_addr(&self) -> u64 {
        self.state.addr()
    }

    /// A handle.
    ///
    /// # Errors
    /// The device's.
    pub fn call(&self) -> Result<MoeCall, MoeError> {
        MoeCall::new(&self.team, &self.config)
    }

    /// Launches the send phase of dispatch in `stream`: takes the number of the call and sends the tokens.
    ///
    /// # Errors
    /// Too many tokens, an address that cannot be; the device's.
    ///
    /// # Safety
    /// The addresses are device memory of the size that the shape needs. Memory, handle and layer stay until the event is done,
    /// and no code writes to the input before. Phases of one handle run in order: in one stream, or with events between them; so
    /// do all phases of a layer that send. What a graph recorded is launched once for each of its replays.
    pub unsafe fn dispatch_send(
        &self,
        stream: &Stream,
        call: &MoeCall,
        input: &DispatchInput,
    ) -> Result<Event, MoeError> {
        let params = input.params(&self.config, self.subject(call))?;
        let deadline = call.deadline().of_dispatch(input.deadline);
        // SAFETY: the caller's promise; the context, the windows and the QPs belong to `self` and its team.
        unsafe {
            let (kernel, what) = ("wv_moe_dispatch_send", Launching::Dispatch);
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
    }

    /// Launches the receive phase of dispatch: waits for the tokens of every peer and lays them out.
    ///
    /// # Errors
    /// An address that cannot be; the device's.
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
        let deadline = call.deadline().get();
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe {
            let (kernel, what) = ("wv_moe_dispatch_receive", Launching::Dispatch);
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
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
        let deadline = call.deadline().of_dispatch(input.deadline);
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe {
            let (kernel, what) = ("wv_moe_dispatch", Launching::Dispatch);
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
    }

    /// Launches the send phase of combine: adds up `y` (the experts' output, laid out as `recv_x` was) per token and returns it.
    ///
    /// # Errors
    /// [`MoeError::CombinedAlready`] where the host knows that the handle's dispatch has been combined. For a handle that was
    /// recorded into a graph only the device knows it, and its report says `invalid`. An address that cannot be; the device's.
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
        let deadline = call.deadline().of_combine(input.deadline);
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe {
            let sure = input.is_sure();
            let (kernel, what) = ("wv_moe_combine_send", Launching::SendBack { sure });
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
    }

    /// Launches the receive phase of combine: waits for every peer and adds up what came back.
    ///
    /// # Errors
    /// An address that cannot be; the device's.
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
        let deadline = call.deadline().get();
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe {
            let (kernel, what) = ("wv_moe_combine_receive", Launching::ReceiveBack);
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
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
        let deadline = call.deadline().of_combine(input.deadline);
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe {
            let sure = input.is_sure();
            let (kernel, what) = ("wv_moe_combine", Launching::Combine { sure });
            self.launch(stream, (call, what), kernel, bytes_of(&params), deadline)
        }
    }

    /// Launches the end of a call that turns out to have no combine. With it the call has ended, as one of
    /// [`DispatchInput::no_combine`](super::DispatchInput::no_combine) has with the receive phase of its dispatch. So a change of
    /// membership does not wait for it. All ranks abandon the same calls, each behind that receive phase. A rank that combines
    /// waits for the others until its deadline. A combine of an abandoned call ends `invalid`; a call that has come to its
    /// combine is not abandoned.
    ///
    /// # Errors
    /// The device's.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`]; no other phase of the layer runs meanwhile.
    pub unsafe fn abandon(&self, stream: &Stream, call: &MoeCall) -> Result<Event, MoeError> {
        let subject = self.subject(call);
        let params = AbandonParams {
            moe: subject.moe,
            handle: subject.handle,
        };
        self.team.check_threads()?;
        let spec = Launch {
            stream: Some(stream),
            seed: self.seed.load(Ordering::Relaxed),
            ..Launch::new("wv_moe_abandon", 1, 32)
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        Ok(unsafe { self.team.gpu().launch(&spec, bytes_of(&params)) }?)
    }

    fn subject(&self, call: &MoeCall) -> LaunchContext {
        LaunchContext {
            moe: DevicePtr::new(self.state.addr()),
            handle: DevicePtr::new(call.addr()),
            active: self.board.active_addr(),
            ranks: self.team.ranks(),
        }
    }

    pub(super) fn rule(&self) -> &PlacementRule {
        &self.rule
    }

    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    /// # Safety
    /// As [`Gpu::launch`](crate::gpu::Gpu::launch).
    unsafe fn launch(
        &self,
        stream: &Stream,
        (call, what): (&MoeCall, Launching),
        kernel: &str,
        params: &[u8],
        deadline: Duration,
    ) -> Result<Event, MoeError> {
        self.team.check_threads()?;
        let stage = call.after(what, stream)?;
        let spec = Launch {
            cooperative: true,
            stream: Some(stream),
            seed: self.seed.load(Ordering::Relaxed),
            // Every wait of a phase ends by itself; this only stops a kernel that does not.
            deadline: self.board.longest_launch(deadline),
            ..Launch::new(kernel, self.grid.blocks, self.grid.threads)
        };
        // SAFETY: the caller's promise.
        let event = unsafe { self.team.gpu().launch(&spec, params) }?;
        call.launched(stage);
        Ok(event)
    }
}

/// The shape with its room for expert slots filled in: what it says, or as much as `placement` needs.
fn with_room(config: MoeConfig, placement: &Placement) -> Result<MoeConfig, MoeError> {
    let needed = placement.most_local();
    if config.local_experts != 0 && needed > config.local_experts {
        return Err(MoeError::Shape {
            name: "number of expert slots of a rank",
            value: needed,
            least: 0,
            most: config.local_experts,
        });
    }
    let local_experts = config.local_experts.max(needed);
    Ok(MoeConfig {
        local_experts,
        ..config
    })
}
