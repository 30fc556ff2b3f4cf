//! `Workspace`: the phases of a call, one after the other.

// UNSAFETY: launches phases on buffers that the workspace owns.
#![expect(unsafe_code, reason = "launches on buffers of the workspace")]

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::buffers::{Buffer, Buffers};
use super::encoded::{Encoded, EncodedRow, needs_bf16};
use super::options::CombineOptions;
use super::received::Received;
use super::results::{Combined, Statistics};
use crate::deadline::Looks;
use crate::gpu::{Event, GpuError, Stream};
use crate::moe::{
    Batch, CombineInput, CombineOutput, DispatchInput, DispatchOutput, Format, Moe, MoeCall,
    MoeError, Placement, RankRow, RowLayout, Source,
};

/// Time between two looks at the other ranks while a phase runs.
const LOOK: Duration = Duration::from_millis(100);

/// The buffers and the handle of one call at a time.
///
/// ```text
/// send(batch) -> receive() -> experts(..) -> send_back() -> receive_back()
/// ```
#[derive(Debug)]
pub struct Workspace {
    moe: Arc<Moe>,
    stream: Stream,
    call: Option<MoeCall>,
    buffers: Option<Buffers>,
    last: Option<Event>,
    tokens: u32,
    /// Which rank holds which expert in the last call that was sent.
    placement: Placement,
    modes: CombineOptions,
    received: Received,
}

impl Workspace {
    /// Makes a workspace with buffers for the largest call of `moe`.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(moe: &Arc<Moe>) -> Result<Self, MoeError> {
        let work = Self {
            moe: Arc::clone(moe),
            stream: moe.team().gpu().default_stream(),
            call: Some(moe.call()?),
            buffers: Some(Buffers::new(moe)?),
            last: None,
            tokens: 0,
            placement: moe.placement(),
            modes: CombineOptions::default(),
            received: Received::default(),
        };
        for (buffer, count) in [
            (Buffer::RecvStats, moe.config().room(moe.team().ranks())),
            (Buffer::DispatchWait, moe.team().ranks()),
            (Buffer::CombineWait, moe.team().ranks()),
        ] {
            work.write(buffer, &vec![0u64; count as usize])?;
        }
        Ok(work)
    }

    /// Returns the handle.
    ///
    /// # Panics
    /// Never: `drop` alone takes the handle.
    #[must_use]
    pub fn call(&self) -> &MoeCall {
        self.call.as_ref().expect("taken in drop only")
    }

    /// Returns which rank holds which expert in the last call that was sent.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns the experts of this rank in the last call that was sent.
    fn held(&self) -> &[u32] {
        self.placement.of_rank(self.moe.team().rank())
    }

    /// Sets how calls are combined from now on.
    pub fn set_combine_options(&mut self, modes: CombineOptions) {
        self.modes = modes;
    }

    /// Runs the send phase of dispatch. A layer of FP8 casts the tokens.
    ///
    /// # Errors
    /// A batch that does not fit the layer. A layer of opaque tokens. Errors of the device.
    pub fn send(&mut self, batch: &Batch) -> Result<(), MoeError> {
        batch.check(self.moe.config())?;
        self.send_unchecked(batch)
    }

    /// As `send`, but does not check the expert ids. The kernel checks them.
    ///
    /// # Errors
    /// Arrays of the wrong length. A layer of opaque tokens. Errors of the device.
    #[doc(hidden)]
    pub fn send_unchecked(&mut self, batch: &Batch) -> Result<(), MoeError> {
        batch.check_lengths(self.moe.config())?;
        if matches!(self.moe.config().format, Format::Opaque { .. }) {
            return Err(needs_bf16());
        }
        self.write(Buffer::X, &batch.x)?;
        self.send_written(&batch.experts, &batch.weights, false)
    }

    /// Runs the send phase of dispatch with tokens in the layer's own format: FP8 that the caller has made, opaque bytes, or BF16.
    ///
    /// # Errors
    /// Tokens that do not fit the layer. Errors of the device.
    pub fn send_encoded(&mut self, tokens: &Encoded) -> Result<(), MoeError> {
        tokens.check(&self.moe)?;
        self.write(Buffer::X, &tokens.x)?;
        self.write(Buffer::XScales, &tokens.scales)?;
        let quantized = matches!(self.moe.config().format, Format::Fp8(_));
        self.send_written(&tokens.experts, &tokens.weights, quantized)
    }

    /// Runs the send phase of dispatch with the tokens that are in `Buffer::X`.
    fn send_written(
        &mut self,
        experts: &[i32],
        weights: &[f32],
        quantized: bool,
    ) -> Result<(), MoeError> {
        let tokens = experts.len() / self.moe.config().top_k as usize;
        self.tokens = u32::try_from(tokens).expect("at most max_tokens");
        self.write(Buffer::Experts, experts)?;
        self.write(Buffer::Weights, weights)?;
        let input = DispatchInput {
            x: self.addr(Buffer::X),
            x_scales: self.addr(Buffer::XScales),
            experts: self.addr(Buffer::Experts),
            weights: self.addr(Buffer::Weights),
            tokens: self.tokens,
            no_combine: self.modes.no_combine,
            quantized,
            ..DispatchInput::default()
        };
        // SAFETY: the buffers have the sizes of the largest call and are freed after the event, see `drop`. No code writes to
        // them before `wait` returns.
        let event = unsafe { self.moe.dispatch_send(&self.stream, self.call(), &input) }?;
        self.wait(event)?;
        // A call that no view covers gets no rows, so any placement serves.
        let view = self.moe.control().view_of(self.call().report()?.call);
        self.placement = view.map_or_else(|| self.moe.placement(), |view| view.placement.clone());
        Ok(())
    }

    /// Runs the receive phase of dispatch. Returns the sources of the rows of each local expert, in either layout.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn receive(&mut self) -> Result<Vec<Vec<Source>>, MoeError> {
        let output = DispatchOutput {
            recv_x: self.addr(Buffer::RecvX),
            recv_scales: self.addr(Buffer::RecvScales),
            counts: self.addr(Buffer::Counts),
            src_info: self.addr(Buffer::SrcInfo),
            layout_range: self.addr(Buffer::LayoutRange),
            recv_experts: self.addr(Buffer::RecvExperts),
            recv_weights: self.addr(Buffer::RecvWeights),
            recv_stats: self.addr(Buffer::RecvStats),
            wait_ns: self.addr(Buffer::DispatchWait),
            active: self.addr(Buffer::Arrived),
            ..DispatchOutput::default()
        };
        // SAFETY: as in `send_written`.
        let event = unsafe {
            self.moe
                .dispatch_receive(&self.stream, self.call(), &output)
        }?;
        self.wait(event)?;
        self.received = Received::read(&self.moe, self.held(), self.buffers())?;
        Ok(self.received.sources())
    }

    /// Runs `expert(id, x, y)` on the host for every received row. `expert` computes `y` from `x`, both BF16 bits; FP8 is rounded
    /// to BF16. By rank, the row that goes back is the weighted sum over the experts of a token, added in ascending k and rounded
    /// once.
    ///
    /// # Errors
    /// A layer of opaque tokens. Errors of the device.
    pub fn experts(
        &mut self,
        mut expert: impl FnMut(u32, &[u16], &mut [u16]),
    ) -> Result<(), MoeError> {
        let format = self.moe.config().format;
        self.run_experts(|id, row, y| {
            expert(id, &row.to_bf16(format)?, y);
            Ok(())
        })
    }

    /// As `experts`, with rows in the format in which they came, which may be any.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn experts_encoded(
        &mut self,
        mut expert: impl FnMut(u32, &EncodedRow, &mut [u16]),
    ) -> Result<(), MoeError> {
        self.run_experts(|id, row, y| {
            expert(id, row, y);
            Ok(())
        })
    }

    fn run_experts(
        &mut self,
        expert: impl FnMut(u32, &EncodedRow, &mut [u16]) -> Result<(), MoeError>,
    ) -> Result<(), MoeError> {
        let y = self.y()?;
        let unweighted = self.modes.unweighted;
        self.received.run(
            &self.moe,
            self.held(),
            self.buffers(),
            y,
            unweighted,
            expert,
        )
    }

    /// Runs the send phase of combine.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn send_back(&mut self) -> Result<(), MoeError> {
        let input = CombineInput {
            y: if self.modes.zero_copy {
                0
            } else {
                self.addr(Buffer::Y)
            },
            zero_copy: self.modes.zero_copy,
            copy_from: self.addr(Buffer::Y),
            unweighted: self.modes.unweighted,
            ..CombineInput::default()
        };
        // SAFETY: as in `send_written`.
        let event = unsafe { self.moe.combine_send(&self.stream, self.call(), &input) }?;
        self.wait(event)
    }

    /// Runs the receive phase of combine, and returns what came back.
    ///
    /// # Errors
    /// Weights of the wrong length. Errors of the device.
    pub fn receive_back(&mut self) -> Result<Combined, MoeError> {
        let choices = self.tokens as usize * self.moe.config().top_k as usize;
        let mut weights = 0;
        if let Some(late) = &self.modes.weights {
            if late.len() != choices {
                return Err(MoeError::Length {
                    what: "the weights of combine",
                    got: late.len(),
                    want: choices,
                });
            }
            self.write(Buffer::LateWeights, late)?;
            weights = self.addr(Buffer::LateWeights);
        }
        let output = CombineOutput {
            out: self.addr(Buffer::Out),
            token_valid: self.addr(Buffer::Valid),
            weights,
            wait_ns: self.addr(Buffer::CombineWait),
            active: self.addr(Buffer::Contributed),
            renormalise: self.modes.renormalise,
            ..CombineOutput::default()
        };
        // SAFETY: as in `send_written`.
        let event = unsafe { self.moe.combine_receive(&self.stream, self.call(), &output) }?;
        self.wait(event)?;
        let tokens = self.tokens as usize;
        let hidden = self.moe.config().hidden as usize;
        let token_valid: Vec<u8> = self.read(Buffer::Valid, tokens)?;
        Ok(Combined {
            out: self.read(Buffer::Out, tokens * hidden)?,
            token_valid: token_valid.into_iter().map(|valid| valid != 0).collect(),
        })
    }

    /// Returns row `row` of local expert `local` as the last dispatch brought it, as BF16 bits, in either layout. By expert it also
    /// returns a row that the dispatch did not write.
    ///
    /// # Errors
    /// A layer of opaque tokens. Errors of the device.
    pub fn received(&self, local: usize, row: usize) -> Result<Vec<u16>, MoeError> {
        let format = self.moe.config().format;
        self.received_encoded(local, row)?.to_bf16(format)
    }

    /// Returns rows `rows` of local expert `local`, each as [`Workspace::received`] returns it. By expert the rows come from the
    /// device in one copy, and scales of FP8 in one copy for each word of a row's scales.
    ///
    /// # Errors
    /// A layer of opaque tokens. Errors of the device.
    pub fn received_rows(
        &self,
        local: usize,
        rows: Range<usize>,
    ) -> Result<Vec<Vec<u16>>, MoeError> {
        let format = self.moe.config().format;
        let encoded = match self.moe.config().layout {
            RowLayout::ExpertMajor => {
                let place = local as u64 * self.rows_of_expert() + rows.start as u64;
                EncodedRow::read_rows(&self.moe, self.buffers(), place, rows.len())?
            }
            RowLayout::RankMajor => {
                let one = |row| self.received_encoded(local, row);
                rows.map(one).collect::<Result<_, _>>()?
            }
        };
        encoded.iter().map(|row| row.to_bf16(format)).collect()
    }

    /// As [`Workspace::received`], with the row in the layer's own format.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn received_encoded(&self, local: usize, row: usize) -> Result<EncodedRow, MoeError> {
        let place = match self.moe.config().layout {
            RowLayout::ExpertMajor => local as u64 * self.rows_of_expert() + row as u64,
            RowLayout::RankMajor => self.received.place(local, row),
        };
        EncodedRow::read(&self.moe, self.buffers(), place)
    }

    /// Returns row `place` of `recv_x` as BF16 bits, even if dispatch has not written that row.
    ///
    /// # Errors
    /// A layer of opaque tokens. Errors of the device.
    pub fn output_row(&self, place: u64) -> Result<Vec<u16>, MoeError> {
        let row = EncodedRow::read(&self.moe, self.buffers(), place)?;
        row.to_bf16(self.moe.config().format)
    }

    /// Returns the rows of the last dispatch by the rank that sent them, in the rank-major layout.
    #[must_use]
    pub fn rank_rows(&self) -> &[Vec<RankRow>] {
        self.received.by_rank()
    }

    /// Returns for each rank whether the last dispatch received its rows.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn arrived(&self) -> Result<Vec<bool>, MoeError> {
        self.flags(Buffer::Arrived)
    }

    /// Returns for each rank whether the last combine added its rows.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn contributed(&self) -> Result<Vec<bool>, MoeError> {
        self.flags(Buffer::Contributed)
    }

    /// Returns what all calls so far have counted.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn statistics(&self) -> Result<Statistics, MoeError> {
        let ranks = self.moe.team().ranks();
        let room = self.moe.config().room(ranks) as usize;
        Ok(Statistics {
            rows: self.read(Buffer::RecvStats, room)?,
            dispatch_wait_ns: self.read(Buffer::DispatchWait, ranks as usize)?,
            combine_wait_ns: self.read(Buffer::CombineWait, ranks as usize)?,
        })
    }

    /// Returns the device addresses of `recv_x`, `counts` and `y`, for an expert kernel between [`Workspace::receive`] and
    /// [`Workspace::send_back`].
    #[must_use]
    pub fn expert_buffers(&self) -> [u64; 3] {
        [Buffer::RecvX, Buffer::Counts, Buffer::Y].map(|buffer| self.addr(buffer))
    }

    /// Returns the address at which the experts write: the buffer, or with zero-copy the layer's memory for this call, if its
    /// dispatch has offered that memory.
    ///
    /// # Errors
    /// Zero-copy in a layer without it. Errors of the device.
    pub fn y(&self) -> Result<u64, MoeError> {
        if !self.modes.zero_copy {
            return Ok(self.addr(Buffer::Y));
        }
        let report = self.call().report()?;
        let staging = self.moe.combine_staging(report.call % crate::abi::SETS)?;
        Ok(if report.offered {
            staging.addr
        } else {
            self.addr(Buffer::Y)
        })
    }

    /// Waits until `event` is done, and looks at the other ranks meanwhile. If a rank gives up, device calls are aborted.
    ///
    /// # Errors
    /// The failure of the kernel, or of another rank.
    pub fn wait(&mut self, event: Event) -> Result<(), MoeError> {
        let event = self.last.insert(event);
        let longest = self.moe.team().config().deadline.saturating_mul(3);
        let mut looks = Looks::within(longest.saturating_add(Duration::from_secs(90)));
        let mut peers = Ok(());
        loop {
            let left = looks.next().unwrap_or(Duration::ZERO);
            match self.moe.team().gpu().wait(event, LOOK.min(left)) {
                Err(GpuError::Timeout { .. }) if !left.is_zero() => {
                    if peers.is_ok() {
                        // If the store does not answer, that says nothing about the other ranks, and calls do not need the store.
                        peers = self.moe.team().check_peers_at_once();
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

    fn rows_of_expert(&self) -> u64 {
        u64::from(self.moe.team().ranks()) * u64::from(self.moe.config().max_tokens)
    }

    fn flags(&self, buffer: Buffer) -> Result<Vec<bool>, MoeError> {
        let flags: Vec<u32> = self.read(buffer, self.moe.team().ranks() as usize)?;
        Ok(flags.into_iter().map(|flag| flag != 0).collect())
    }

    fn buffers(&self) -> &Buffers {
        self.buffers.as_ref().expect("taken in drop only")
    }

    fn addr(&self, buffer: Buffer) -> u64 {
        self.buffers().addr(buffer)
    }

    fn write<T: bytemuck::Pod>(&self, buffer: Buffer, numbers: &[T]) -> Result<(), MoeError> {
        let gpu = self.moe.team().gpu().as_ref();
        self.buffers().write(gpu, buffer, numbers)
    }

    fn read<T: bytemuck::Pod>(&self, buffer: Buffer, count: usize) -> Result<Vec<T>, MoeError> {
        let gpu = self.moe.team().gpu().as_ref();
        self.buffers().read(gpu, buffer, 0, count)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.last.as_ref().is_some_and(|event| !event.is_done()) {
            // A kernel that has not ended still uses the buffers, the handle and the layer.
            tracing::error!("a kernel still runs: its buffers are kept");
            std::mem::forget(self.buffers.take());
            std::mem::forget(self.call.take());
            std::mem::forget(Arc::clone(&self.moe));
        }
    }
}
