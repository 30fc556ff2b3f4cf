//! One call on buffers of the test: inputs and outputs as bytes, in every format, laid out by expert.

// UNSAFETY: launches phases on buffers that the test owns and keeps until they have ended.
#![expect(unsafe_code, reason = "launches on buffers of the test")]

use std::sync::Arc;

use moe_reference::oracle::Input;
use moe_reference::oracle::by_expert::ByExpert;
use test_support::limits::HANG;
use warpverbs::gpu::{DeviceMemory, Event};
use warpverbs::moe::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, Layout, Moe, MoeCall,
};

/// What outputs are filled with before a call.
pub(crate) const POISON: u8 = 0x5a;

/// A call of one rank, with the memory that its launches use.
pub(crate) struct DeviceCall {
    moe: Arc<Moe>,
    pub(crate) call: MoeCall,
    layout: Layout,
    kept: Vec<DeviceMemory>,
    tokens: u32,
}

impl DeviceCall {
    pub(crate) fn new(moe: &Arc<Moe>) -> Self {
        Self {
            moe: Arc::clone(moe),
            call: moe.call().unwrap(),
            layout: Layout::new(moe.config(), moe.team().ranks()),
            kept: Vec::new(),
            tokens: 0,
        }
    }

    /// Rows of the output of one local expert.
    pub(crate) fn room(&self) -> usize {
        (self.moe.team().ranks() * self.moe.config().max_tokens) as usize
    }

    /// Expert slots that outputs have room for.
    pub(crate) fn experts(&self) -> usize {
        self.moe.config().local_experts as usize
    }

    /// Device memory with these bytes in it.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let gpu = self.moe.team().gpu();
        let memory = gpu.alloc(bytes.len().max(16), 128).unwrap();
        if !bytes.is_empty() {
            gpu.write(memory.addr(), bytes).unwrap();
        }
        let at = memory.addr();
        self.kept.push(memory);
        at
    }

    /// Device memory full of poison.
    fn room_for(&mut self, bytes: usize) -> u64 {
        self.put(&vec![POISON; bytes])
    }

    fn get<T: bytemuck::Pod>(&self, at: u64, count: usize) -> Vec<T> {
        let mut out = vec![T::zeroed(); count];
        if count > 0 {
            let bytes = bytemuck::cast_slice_mut(&mut out);
            self.moe.team().gpu().read(at, bytes).unwrap();
        }
        out
    }

    fn wait(&self, event: &Event) {
        let gpu = self.moe.team().gpu();
        gpu.wait(event, HANG).unwrap();
    }

    /// The send phase of dispatch.
    pub(crate) fn send(&mut self, input: &Input, quantized: bool) {
        self.try_send(input, quantized).unwrap();
    }

    /// As `send`; why the launch was refused.
    pub(crate) fn try_send(&mut self, input: &Input, quantized: bool) -> Result<(), String> {
        let top_k = self.moe.config().top_k as usize;
        self.tokens = u32::try_from(input.experts.len() / top_k).unwrap();
        let input = DispatchInput::default()
            .with_x(self.put(&input.x))
            .with_x_scales(self.put(&input.scales))
            .with_experts(self.put(bytemuck::cast_slice(&input.experts)))
            .with_weights(self.put(bytemuck::cast_slice(&input.weights)))
            .with_tokens(self.tokens)
            .with_quantized(quantized);
        let stream = self.moe.team().gpu().default_stream();
        // SAFETY: the buffers have the sizes of the shape and stay until `self` goes, after the event.
        let event = unsafe { self.moe.dispatch_send(&stream, &self.call, &input) };
        self.wait(&event.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// The receive phase of dispatch.
    pub(crate) fn receive(&mut self) -> ByExpert {
        let (experts, room) = (self.experts(), self.room());
        let ranks = self.moe.team().ranks() as usize;
        let row_bytes = usize::try_from(self.layout.row_bytes).unwrap();
        let scale_bytes = usize::try_from(self.layout.scale_bytes).unwrap();
        let rows = experts * room;
        let output = DispatchOutput::default()
            .with_recv_x(self.room_for(rows * row_bytes))
            .with_recv_scales(self.room_for(rows * scale_bytes))
            .with_counts(self.room_for(experts * 4))
            .with_src_info(self.room_for(rows * 4))
            .with_layout_range(self.room_for(experts * ranks * 8));
        let stream = self.moe.team().gpu().default_stream();
        // SAFETY: as in `send`.
        let event = unsafe { self.moe.dispatch_receive(&stream, &self.call, &output) }.unwrap();
        self.wait(&event);
        ByExpert {
            recv_x: self.get(output.recv_x, rows * row_bytes),
            recv_scales: self.get(output.recv_scales, rows * scale_bytes),
            counts: self.get(output.counts, experts),
            src_info: self.get(output.src_info, rows),
            layout_range: self.get(output.layout_range, experts * ranks),
            poison: POISON,
        }
    }

    /// Both phases of combine for `y`, BF16 bits in the places of the rows; BF16 bits by token, and which tokens are valid.
    pub(crate) fn combine(&mut self, y: &[u16]) -> (Vec<u16>, Vec<bool>) {
        let (tokens, hidden) = (self.tokens as usize, self.moe.config().hidden as usize);
        let input = CombineInput::default().with_y(self.put(bytemuck::cast_slice(y)));
        let output = CombineOutput::default()
            .with_out(self.room_for(tokens * hidden * 2))
            .with_token_valid(self.room_for(tokens));
        let stream = self.moe.team().gpu().default_stream();
        // SAFETY: as in `send`.
        let event = unsafe { self.moe.combine_send(&stream, &self.call, &input) }.unwrap();
        self.wait(&event);
        // SAFETY: as in `send`.
        let event = unsafe { self.moe.combine_receive(&stream, &self.call, &output) }.unwrap();
        self.wait(&event);
        let valid: Vec<u8> = self.get(output.token_valid, tokens);
        (
            self.get(output.out, tokens * hidden),
            valid.into_iter().map(|valid| valid == 1).collect(),
        )
    }
}
