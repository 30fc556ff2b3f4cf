//! A call with buffers of its own, for callers whose tokens are on the host: every method returns when its phase is done.

// UNSAFETY: launches phases on buffers that the workspace owns.
#![expect(unsafe_code, reason = "launches on buffers of the workspace")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::reference::{Batch, Source};
use super::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, Layout, Moe, MoeCall, MoeError,
};
use crate::gpu::{DeviceMemory, Event, GpuError, Stream};

/// Time between two looks at the other ranks while a phase runs.
const LOOK: Duration = Duration::from_millis(100);

/// Buffers and handle of one call at a time.
///
/// ```text
/// send(batch) -> receive() -> experts(..) -> send_back() -> receive_back()
/// ```
#[derive(Debug)]
pub struct Workspace {
    moe: Arc<Moe>,
    stream: Stream,
    call: Option<MoeCall>,
    /// By `Buffer`.
    buffers: Vec<DeviceMemory>,
    last: Option<Event>,
    tokens: u32,
}

/// Places in `Workspace::buffers`.
#[derive(Clone, Copy)]
enum Buffer {
    X,
    Experts,
    Weights,
    RecvX,
    Counts,
    SrcInfo,
    LayoutRange,
    Y,
    Out,
    Valid,
}

/// What combine gave back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Combined {
    /// BF16 bits, `[tokens, hidden]`.
    pub out: Vec<u16>,
    /// Whether all experts of a token have contributed.
    pub token_valid: Vec<bool>,
}

impl Workspace {
    /// Buffers for the largest call of `moe`.
    ///
    /// # Errors
    /// The device's.
    pub fn new(moe: &Arc<Moe>) -> Result<Self, MoeError> {
        let config = moe.config();
        let row_bytes = Layout::new(config, moe.team().ranks()).row_bytes;
        let tokens = u64::from(config.max_tokens);
        let choices = tokens * u64::from(config.top_k);
        let rows = moe.local_experts().len() as u64 * Self::rows_per_expert(moe);
        let bytes = [
            tokens * row_bytes,
            choices * size_of::<i32>() as u64,
            choices * size_of::<f32>() as u64,
            rows * row_bytes,
            moe.local_experts().len() as u64 * size_of::<u32>() as u64,
            rows * size_of::<u32>() as u64,
            rows / u64::from(config.max_tokens) * size_of::<u64>() as u64,
            rows * row_bytes,
            tokens * row_bytes,
            tokens,
        ];
        let alloc = |bytes: u64| {
            let bytes = usize::try_from(bytes.max(16)).unwrap_or(usize::MAX);
            moe.team().gpu().alloc(bytes, 128)
        };
        Ok(Self {
            moe: Arc::clone(moe),
            stream: moe.team().gpu().default_stream(),
            call: Some(moe.call()?),
            buffers: bytes.into_iter().map(alloc).collect::<Result<_, _>>()?,
            last: None,
            tokens: 0,
        })
    }

    /// The handle.
    ///
    /// # Panics
    /// Never: it is taken in `drop` only.
    #[must_use]
    pub fn call(&self) -> &MoeCall {
        self.call.as_ref().expect("taken in drop only")
    }

    /// The send phase of dispatch.
    ///
    /// # Errors
    /// A batch that does not fit the layer; the device's.
    pub fn send(&mut self, batch: &Batch) -> Result<(), MoeError> {
        batch.check(self.moe.config())?;
        self.send_unchecked(batch)
    }

    /// The same without looking at the expert ids, which the kernel then checks.
    ///
    /// # Errors
    /// Arrays of the wrong length; the device's.
    pub fn send_unchecked(&mut self, batch: &Batch) -> Result<(), MoeError> {
        batch.check_lengths(self.moe.config())?;
        let tokens = batch.tokens(self.moe.config());
        self.tokens = u32::try_from(tokens).expect("at most max_tokens");
        self.write(Buffer::X, bytemuck::cast_slice(&batch.x))?;
        self.write(Buffer::Experts, bytemuck::cast_slice(&batch.experts))?;
        self.write(Buffer::Weights, bytemuck::cast_slice(&batch.weights))?;
        let input = DispatchInput {
            x: self.addr(Buffer::X),
            experts: self.addr(Buffer::Experts),
            weights: self.addr(Buffer::Weights),
            tokens: self.tokens,
            ..DispatchInput::default()
        };
        // SAFETY: the buffers have the sizes of the largest call and are freed after the event, see `drop`; nobody writes to
        // them before `wait` returns.
        let event = unsafe { self.moe.dispatch_send(&self.stream, self.call(), &input) }?;
        self.wait(event)
    }

    /// The receive phase of dispatch: the sources of the rows of each local expert.
    ///
    /// # Errors
    /// The device's.
    pub fn receive(&mut self) -> Result<Vec<Vec<Source>>, MoeError> {
        let output = DispatchOutput {
            recv_x: self.addr(Buffer::RecvX),
            counts: self.addr(Buffer::Counts),
            src_info: self.addr(Buffer::SrcInfo),
            layout_range: self.addr(Buffer::LayoutRange),
            ..DispatchOutput::default()
        };
        // SAFETY: as in `send_unchecked`.
        let event = unsafe {
            self.moe
                .dispatch_receive(&self.stream, self.call(), &output)
        }?;
        self.wait(event)?;
        self.sources()
    }

    /// Runs `expert(id, x, y)` on the host for every received row: `y` is what the expert makes of `x`, BF16 bits.
    ///
    /// # Errors
    /// The device's.
    pub fn experts(
        &mut self,
        mut expert: impl FnMut(u32, &[u16], &mut [u16]),
    ) -> Result<(), MoeError> {
        let moe = Arc::clone(&self.moe);
        let mut y = vec![0u16; moe.config().hidden as usize];
        for (local, (&id, sources)) in moe.local_experts().iter().zip(self.sources()?).enumerate() {
            for row in 0..sources.len() {
                let x = self.received(local, row)?;
                expert(id, &x, &mut y);
                let at = self.row_addr(Buffer::Y, local, row);
                moe.team().gpu().write(at, bytemuck::cast_slice(&y))?;
            }
        }
        Ok(())
    }

    /// The send phase of combine.
    ///
    /// # Errors
    /// The device's.
    pub fn send_back(&mut self) -> Result<(), MoeError> {
        let input = CombineInput {
            y: self.addr(Buffer::Y),
            ..CombineInput::default()
        };
        // SAFETY: as in `send_unchecked`.
        let event = unsafe { self.moe.combine_send(&self.stream, self.call(), &input) }?;
        self.wait(event)
    }

    /// The receive phase of combine.
    ///
    /// # Errors
    /// The device's.
    pub fn receive_back(&mut self) -> Result<Combined, MoeError> {
        let output = CombineOutput {
            out: self.addr(Buffer::Out),
            token_valid: self.addr(Buffer::Valid),
            ..CombineOutput::default()
        };
        // SAFETY: as in `send_unchecked`.
        let event = unsafe { self.moe.combine_receive(&self.stream, self.call(), &output) }?;
        self.wait(event)?;
        let tokens = self.tokens as usize;
        let mut out = vec![0u16; tokens * self.moe.config().hidden as usize];
        let mut token_valid = vec![0u8; tokens];
        self.read(self.addr(Buffer::Out), bytemuck::cast_slice_mut(&mut out))?;
        self.read(self.addr(Buffer::Valid), &mut token_valid)?;
        Ok(Combined {
            out,
            token_valid: token_valid.into_iter().map(|valid| valid != 0).collect(),
        })
    }

    /// Row `row` of local expert `local` as dispatch brought it, BF16 bits.
    ///
    /// # Errors
    /// The device's.
    pub fn received(&self, local: usize, row: usize) -> Result<Vec<u16>, MoeError> {
        let mut x = vec![0u16; self.moe.config().hidden as usize];
        self.read(
            self.row_addr(Buffer::RecvX, local, row),
            bytemuck::cast_slice_mut(&mut x),
        )?;
        Ok(x)
    }

    /// Device addresses of `recv_x`, `counts` and `y`, for an expert kernel between [`Workspace::receive`] and
    /// [`Workspace::send_back`].
    #[must_use]
    pub fn expert_buffers(&self) -> [u64; 3] {
        [Buffer::RecvX, Buffer::Counts, Buffer::Y].map(|buffer| self.addr(buffer))
    }

    /// Waits until `event` is done, and looks at the other ranks meanwhile: when one gives up, device calls are aborted.
    ///
    /// # Errors
    /// The kernel's failure, or that of another rank.
    pub fn wait(&mut self, event: Event) -> Result<(), MoeError> {
        let event = self.last.insert(event);
        let limit =
            Instant::now() + self.moe.team().config().deadline * 3 + Duration::from_secs(90);
        let mut peers = Ok(());
        loop {
            match self.moe.team().gpu().wait(event, LOOK) {
                Err(GpuError::Timeout { .. }) if Instant::now() < limit => {
                    if peers.is_ok() {
                        peers = self.moe.team().check_peers();
                        if peers.is_err() {
                            self.moe.team().abort()?;
                        }
                    }
                }
                ended => {
                    peers?;
                    return Ok(ended?);
                }
            }
        }
    }

    /// Rows that each local expert has room for.
    fn rows_per_expert(moe: &Moe) -> u64 {
        u64::from(moe.team().ranks()) * u64::from(moe.config().max_tokens)
    }

    fn sources(&self) -> Result<Vec<Vec<Source>>, MoeError> {
        let room = Self::rows_per_expert(&self.moe);
        let ranks = self.moe.team().ranks();
        let of_expert = |local: u64| {
            let mut ranges = vec![0u64; ranks as usize];
            let at = self.addr(Buffer::LayoutRange) + local * u64::from(ranks) * 8;
            self.read(at, bytemuck::cast_slice_mut(&mut ranges))?;
            let mut sources = Vec::new();
            for (rank, range) in (0u32..).zip(ranges) {
                let (begin, count) = (range >> 32, range & u64::from(u32::MAX));
                let count = usize::try_from(count).expect("32 bits");
                let mut tokens = vec![0u32; count];
                let at = self.addr(Buffer::SrcInfo) + (local * room + begin) * 4;
                self.read(at, bytemuck::cast_slice_mut(&mut tokens))?;
                sources.extend(tokens.into_iter().map(|token| Source { rank, token }));
            }
            Ok(sources)
        };
        (0..self.moe.local_experts().len() as u64)
            .map(of_expert)
            .collect()
    }

    fn row_addr(&self, buffer: Buffer, local: usize, row: usize) -> u64 {
        let row = local as u64 * Self::rows_per_expert(&self.moe) + row as u64;
        self.addr(buffer) + row * u64::from(self.moe.config().hidden) * 2
    }

    fn addr(&self, buffer: Buffer) -> u64 {
        self.buffers[buffer as usize].addr()
    }

    fn write(&self, buffer: Buffer, bytes: &[u8]) -> Result<(), MoeError> {
        Ok(self.moe.team().gpu().write(self.addr(buffer), bytes)?)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), MoeError> {
        if bytes.is_empty() {
            return Ok(());
        }
        Ok(self.moe.team().gpu().read(at, bytes)?)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.last.as_ref().is_some_and(|event| !event.is_done()) {
            // A kernel that would not end still uses all of this.
            tracing::error!("a kernel still runs: its buffers are kept");
            std::mem::forget(std::mem::take(&mut self.buffers));
            std::mem::forget(self.call.take());
            std::mem::forget(Arc::clone(&self.moe));
        }
    }
}
