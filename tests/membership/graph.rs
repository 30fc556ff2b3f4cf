//! One call, captured once into a graph whose addresses never change, and replayed with inputs that change in place.

// UNSAFETY: launches kernels on buffers that live as long as the graph.
#![expect(unsafe_code, reason = "launches on buffers of the test")]

use std::sync::Arc;

use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{DeviceMemory, Gpu, Graph, Launch, Stream};
use warpverbs::internal::moe_abi::DemoExpertParams;
use warpverbs::moe::{
    Batch, CombineInput, CombineOutput, DispatchInput, DispatchOutput, Moe, MoeCall,
};

use crate::calls::{Call, judge};
use crate::fleet::LONG;
use test_support::moe::small::SHAPE;

/// A captured call: buffers, handle and graph of one rank.
pub(crate) struct Replays {
    graph: Graph,
    stream: Stream,
    call: MoeCall,
    moe: Arc<Moe>,
    gpu: Arc<dyn Gpu>,
    /// Tokens, experts and weights.
    input: [DeviceMemory; 3],
    /// Sums, and which of them are whole.
    output: [DeviceMemory; 2],
    /// Rows that come, their lists, and what experts make of them.
    _between: Vec<DeviceMemory>,
}

impl Replays {
    /// Captures dispatch, experts and combine.
    pub(crate) fn capture(moe: &Arc<Moe>) -> Self {
        let gpu = Arc::clone(moe.team().gpu());
        let (hidden, tokens) = (SHAPE.hidden as usize, SHAPE.max_tokens as usize);
        let ranks = moe.team().ranks();
        let local = SHAPE.room(ranks) as usize;
        let rows = local * ranks as usize * tokens;
        let choices = tokens * SHAPE.top_k as usize;
        let alloc = |bytes: usize| gpu.alloc(bytes.max(16), 128).unwrap();
        let input = [tokens * hidden * 2, choices * 4, choices * 4].map(alloc);
        let output = [tokens * hidden * 2, tokens].map(alloc);
        let sizes = [
            rows * hidden * 2,
            local * 4,
            rows * 4,
            local * ranks as usize * 8,
            rows * hidden * 2,
            local * 8,
        ];
        let between: Vec<DeviceMemory> = sizes.into_iter().map(alloc).collect();
        let at: Vec<u64> = between.iter().map(DeviceMemory::addr).collect();
        let factors: Vec<f32> = moe
            .local_experts()
            .iter()
            .flat_map(|&id| [0.5 + id as f32 / 64.0, 0.25])
            .collect();
        gpu.write(at[5], bytemuck::cast_slice(&factors)).unwrap();
        let call = moe.call().unwrap();
        let stream = gpu.stream().unwrap();
        let params = DemoExpertParams {
            x: DevicePtr::new(at[0]),
            y: DevicePtr::new(at[4]),
            counts: DevicePtr::new(at[1]),
            factors: DevicePtr::new(at[5]),
            local_experts: u32::try_from(moe.local_experts().len()).unwrap(),
            rows: ranks * SHAPE.max_tokens,
            hidden: SHAPE.hidden,
            reserved: 0,
        };
        let launch = Launch::new("wv_demo_expert", 1, 64).with_stream(Some(&stream));
        stream.begin_capture().unwrap();
        // SAFETY: the buffers have the sizes of the shape, and live as long as the graph.
        unsafe {
            let dispatch = DispatchInput::default()
                .with_x(input[0].addr())
                .with_experts(input[1].addr())
                .with_weights(input[2].addr())
                .with_tokens(SHAPE.max_tokens);
            let received = DispatchOutput::default()
                .with_recv_x(at[0])
                .with_counts(at[1])
                .with_src_info(at[2])
                .with_layout_range(at[3]);
            moe.dispatch(&stream, &call, &dispatch, &received).unwrap();
            gpu.launch(&launch, bytemuck::bytes_of(&params)).unwrap();
            let back = CombineInput::default().with_y(at[4]);
            let combined = CombineOutput::default()
                .with_out(output[0].addr())
                .with_token_valid(output[1].addr());
            moe.combine(&stream, &call, &back, &combined).unwrap();
        }
        let graph = stream.end_capture().unwrap();
        Self {
            graph,
            stream,
            call,
            moe: Arc::clone(moe),
            gpu,
            input,
            output,
            _between: between,
        }
    }

    /// Replays it with these tokens, filled up with such that choose no expert, and checks what it has brought.
    pub(crate) fn replay(&self, batch: &Batch) -> Call {
        let mut batch = batch.clone();
        let (tokens, top_k) = (SHAPE.max_tokens as usize, SHAPE.top_k as usize);
        batch.x.resize(tokens * SHAPE.hidden as usize, 0);
        batch.experts.resize(tokens * top_k, -1);
        batch.weights.resize(tokens * top_k, 1.0);
        let parts: [&[u8]; 3] = [
            bytemuck::cast_slice(&batch.x),
            bytemuck::cast_slice(&batch.experts),
            bytemuck::cast_slice(&batch.weights),
        ];
        for (memory, bytes) in self.input.iter().zip(parts) {
            self.gpu.write(memory.addr(), bytes).unwrap();
        }
        // SAFETY: what was captured lives as long as the graph, and the last replay is over.
        let event = unsafe { self.graph.launch(&self.stream) }.unwrap();
        event.wait(2 * LONG).unwrap();
        let mut out = vec![0u16; tokens * SHAPE.hidden as usize];
        let mut valid = vec![0u8; tokens];
        let bytes = bytemuck::cast_slice_mut(&mut out);
        self.gpu.read(self.output[0].addr(), bytes).unwrap();
        self.gpu.read(self.output[1].addr(), &mut valid).unwrap();
        let valid: Vec<bool> = valid.into_iter().map(|valid| valid != 0).collect();
        let report = self.call.report().unwrap();
        judge(&self.moe, report, &batch, (&out, &valid))
    }
}
