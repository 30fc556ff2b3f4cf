//! A MoE layer at one rank: its buffers, and the launches of the four phases.

// UNSAFETY: launches kernels on addresses that the caller vouches for.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::layout::Layout;
use super::state;
use super::{MoeCall, MoeConfig, MoeError, Placement};
use crate::abi::{
    CombineReceiveParams, CombineSendParams, DevicePtr, DispatchReceiveParams, DispatchSendParams,
    MoeContext,
};
use crate::gpu::{DeviceMemory, Event, HostMapped, Launch};
use crate::team::{Sharing, Team};

/// Least depth of a send queue: a batch of a warp's 32 puts and a signal is at most a quarter of it.
const LEAST_LOG_DEPTH: u8 = 8;

/// Blocks and threads of the MoE kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks; all of them must fit on the device at once.
    pub blocks: u32,
    /// Threads of a block, a multiple of 32.
    pub threads: u32,
}

/// A MoE layer at one rank. Its phases run in the order in which they are launched; all ranks launch the same ones.
#[derive(Debug)]
pub struct Moe {
    team: Arc<Team>,
    config: MoeConfig,
    placement: Placement,
    /// Context, state per peer, views with their tables of experts.
    state: DeviceMemory,
    /// Words shared with kernels that run.
    _board: HostMapped,
    grid: Grid,
    seed: AtomicU64,
}

/// Input of a dispatch: device addresses, contents as in [`DispatchSendParams`].
#[derive(Clone, Copy, Debug)]
pub struct DispatchInput {
    /// Tokens, BF16 `[tokens, hidden]`, a multiple of 16.
    pub x: u64,
    /// Choices, i32 `[tokens, top_k]`.
    pub experts: u64,
    /// Weights, f32 `[tokens, top_k]`.
    pub weights: u64,
    /// Number of tokens.
    pub tokens: u32,
}

/// Output of a dispatch: device addresses, contents as in [`DispatchReceiveParams`].
#[derive(Clone, Copy, Debug)]
pub struct DispatchOutput {
    /// Tokens by expert, BF16 `[local experts, ranks · max_tokens, hidden]`, a multiple of 16.
    pub recv_x: u64,
    /// Rows of each local expert, u32.
    pub counts: u64,
    /// Row of its rank's input that each row is, u32 `[local experts, ranks · max_tokens]`.
    pub src_info: u64,
    /// Begin and count of the rows of each rank, u64 `[local experts, ranks]`.
    pub layout_range: u64,
}

impl Moe {
    /// Makes a layer with the experts in contiguous blocks. Collective: `name` is used once, and all ranks make their layers in
    /// the same order.
    ///
    /// # Errors
    /// A shape outside the limits or different at another rank; what team and device refuse.
    pub fn new(team: &Arc<Team>, name: &str, config: MoeConfig) -> Result<Arc<Self>, MoeError> {
        let placement = Placement::blocks(config.experts, team.ranks());
        Self::with_placement(team, name, config, placement)
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
        placement: Placement,
    ) -> Result<Self, MoeError> {
        config.check(team.ranks())?;
        if team.config().log_depth < LEAST_LOG_DEPTH {
            return Err(MoeError::Shape {
                name: "the team's log_depth",
                value: team.config().log_depth.into(),
                least: LEAST_LOG_DEPTH.into(),
                most: 15,
            });
        }
        if team.config().sharing != Sharing::Shared {
            return Err(MoeError::Sharing {
                sharing: format!("{:?}", team.config().sharing),
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
        let homes: Vec<u32> = placement.homes().iter().map(|home| home.rank).collect();
        team.agree(
            &format!("moe-{name}"),
            &[
                ("hidden".to_owned(), config.hidden.to_string()),
                ("experts".to_owned(), config.experts.to_string()),
                ("top-k".to_owned(), config.top_k.to_string()),
                ("max_tokens".to_owned(), config.max_tokens.to_string()),
                ("placement of the experts".to_owned(), format!("{homes:?}")),
            ],
        )?;
        let layout = Layout::new(&config, team.ranks());
        let slots = team.window(layout.slots)?;
        let staging = team.window(layout.staging)?;
        let signals = team.window(layout.signals)?;
        let windows = [slots, staging, signals];
        let (state, board) = state::write(team, &config, &placement, &layout, windows)?;
        let on_cpu = team.gpu().label() == "simt";
        let (blocks, threads) = if on_cpu { (2, 128) } else { (32, 256) };
        Ok(Self {
            team: Arc::clone(team),
            config,
            placement,
            state,
            _board: board,
            grid: Grid { blocks, threads },
            seed: AtomicU64::new(0),
        })
    }

    /// The team.
    #[must_use]
    pub fn team(&self) -> &Arc<Team> {
        &self.team
    }

    /// The shape.
    #[must_use]
    pub fn config(&self) -> &MoeConfig {
        &self.config
    }

    /// Which rank holds which expert.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The experts of this rank, in the order of their local numbers.
    #[must_use]
    pub fn local_experts(&self) -> &[u32] {
        self.placement.of_rank(self.team.rank())
    }

    /// Blocks and threads of the kernels.
    #[must_use]
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Seed of the schedule of the kernels that are launched from now on, where they run on simt.
    pub fn set_schedule_seed(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }

    /// Device address of the [`MoeContext`].
    #[must_use]
    pub fn context_addr(&self) -> u64 {
        self.state.addr()
    }

    /// A handle.
    ///
    /// # Errors
    /// The device's.
    pub fn call(&self) -> Result<MoeCall, MoeError> {
        MoeCall::new(&self.team, &self.config)
    }

    /// Launches the send phase of dispatch: takes the number of the call and sends the tokens.
    ///
    /// # Errors
    /// Too many tokens, an address that cannot be; the device's.
    ///
    /// # Safety
    /// The addresses are device memory of the size that the shape needs; it, the handle and the layer stay until the event is
    /// done, and nobody writes to the input before. Phases of one handle are launched in order.
    pub unsafe fn dispatch_send(
        &self,
        call: &MoeCall,
        input: &DispatchInput,
    ) -> Result<Event, MoeError> {
        if input.tokens > self.config.max_tokens {
            return Err(MoeError::Tokens {
                tokens: input.tokens as usize,
                max_tokens: self.config.max_tokens,
            });
        }
        vectors("x", input.x)?;
        let params = DispatchSendParams {
            moe: self.context(),
            handle: DevicePtr::new(call.addr()),
            x: DevicePtr::new(input.x),
            experts: DevicePtr::new(input.experts),
            weights: DevicePtr::new(input.weights),
            tokens: input.tokens,
            ..DispatchSendParams::default()
        };
        // SAFETY: the caller's promise; the context, the windows and the QPs belong to `self` and its team.
        unsafe { self.launch("wv_moe_dispatch_send", bytemuck::bytes_of(&params)) }
    }

    /// Launches the receive phase of dispatch: waits for the tokens of every peer and lays them out by expert.
    ///
    /// # Errors
    /// An address that cannot be; the device's.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn dispatch_receive(
        &self,
        call: &MoeCall,
        output: &DispatchOutput,
    ) -> Result<Event, MoeError> {
        vectors("recv_x", output.recv_x)?;
        let params = DispatchReceiveParams {
            moe: self.context(),
            handle: DevicePtr::new(call.addr()),
            recv_x: DevicePtr::new(output.recv_x),
            counts: DevicePtr::new(output.counts),
            src_info: DevicePtr::new(output.src_info),
            layout_range: DevicePtr::new(output.layout_range),
            ..DispatchReceiveParams::default()
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch("wv_moe_dispatch_receive", bytemuck::bytes_of(&params)) }
    }

    /// Launches the send phase of combine: adds up `y` (the experts' output, laid out as `recv_x` was) per token and returns it.
    ///
    /// # Errors
    /// An address that cannot be; the device's.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn combine_send(&self, call: &MoeCall, y: u64) -> Result<Event, MoeError> {
        vectors("y", y)?;
        let params = CombineSendParams {
            moe: self.context(),
            handle: DevicePtr::new(call.addr()),
            y: DevicePtr::new(y),
            ..CombineSendParams::default()
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch("wv_moe_combine_send", bytemuck::bytes_of(&params)) }
    }

    /// Launches the receive phase of combine: waits for every peer and adds up `out`, BF16 `[tokens, hidden]`; `token_valid` is
    /// one byte per token.
    ///
    /// # Errors
    /// An address that cannot be; the device's.
    ///
    /// # Safety
    /// As [`Moe::dispatch_send`].
    pub unsafe fn combine_receive(
        &self,
        call: &MoeCall,
        out: u64,
        token_valid: u64,
    ) -> Result<Event, MoeError> {
        vectors("out", out)?;
        let params = CombineReceiveParams {
            moe: self.context(),
            handle: DevicePtr::new(call.addr()),
            out: DevicePtr::new(out),
            token_valid: DevicePtr::new(token_valid),
            ..CombineReceiveParams::default()
        };
        // SAFETY: the caller's promise, as in `dispatch_send`.
        unsafe { self.launch("wv_moe_combine_receive", bytemuck::bytes_of(&params)) }
    }

    fn context(&self) -> DevicePtr<MoeContext> {
        DevicePtr::new(self.state.addr())
    }

    /// # Safety
    /// As [`Gpu::launch`](crate::gpu::Gpu::launch).
    pub(super) unsafe fn launch(&self, kernel: &str, params: &[u8]) -> Result<Event, MoeError> {
        let spec = Launch {
            cooperative: true,
            seed: self.seed.load(Ordering::Relaxed),
            // Every wait of a phase ends at the team's deadline or at twice that; this only stops a kernel that does not.
            deadline: self.team.config().deadline * 3 + Duration::from_secs(60),
            ..Launch::new(kernel, self.grid.blocks, self.grid.threads)
        };
        // SAFETY: the caller's promise.
        Ok(unsafe { self.team.gpu().launch(&spec, params) }?)
    }
}

/// Kernels read and write these in vectors of 16 bytes.
fn vectors(what: &'static str, address: u64) -> Result<(), MoeError> {
    match address != 0 && address.is_multiple_of(16) {
        true => Ok(()),
        false => Err(MoeError::Address { what, address }),
    }
}
