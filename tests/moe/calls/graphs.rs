//! Calls on the caller's streams: launched without waiting, fused or in phases. They are captured into graphs of any number of
//! calls, which are replayed with inputs that change in place.

// UNSAFETY: launches phases, experts and graphs on buffers of the test.
#![expect(unsafe_code, reason = "launches on buffers of the test")]

use std::sync::{Arc, Barrier};

use test_support::limits::HANG;

use test_support::moe::{MIXED, Setup, batch, expert, run};
use test_support::reference;
use warpverbs::abi::DevicePtr;
use warpverbs::gpu::{
    DeviceMemory, Event, Gpu, GpuError, GpuSelector, Graph, Launch, Stream, open,
};
use warpverbs::internal::moe_abi::DemoExpertParams;
use warpverbs::moe::{
    Batch, CombineInput, CombineOutput, DispatchInput, DispatchOutput, Moe, MoeCall, MoeConfig,
    MoeError,
};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(32)
    .with_experts(5)
    .with_top_k(2)
    .with_max_tokens(6);

/// The buffers and the handle of one call at one rank, and what the experts here compute.
struct Io {
    moe: Arc<Moe>,
    gpu: Arc<dyn Gpu>,
    call: MoeCall,
    x: DeviceMemory,
    experts: DeviceMemory,
    weights: DeviceMemory,
    recv_x: DeviceMemory,
    counts: DeviceMemory,
    src_info: DeviceMemory,
    layout_range: DeviceMemory,
    y: DeviceMemory,
    out: DeviceMemory,
    valid: DeviceMemory,
    factors: DeviceMemory,
}

impl Io {
    fn new(moe: &Arc<Moe>) -> Self {
        let gpu = Arc::clone(moe.team().gpu());
        let (hidden, tokens) = (SHAPE.hidden as usize, SHAPE.max_tokens as usize);
        let ranks = moe.team().ranks() as usize;
        // Also for the places that this rank has no expert for.
        let local = SHAPE.room(moe.team().ranks()) as usize;
        let rows = local * ranks * tokens;
        let choices = tokens * SHAPE.top_k as usize;
        let alloc = |bytes: usize| gpu.alloc(bytes.max(16), 128).unwrap();
        let factors = alloc(local * 8);
        let numbers: Vec<f32> = moe
            .local_experts()
            .iter()
            .flat_map(|&id| [0.5 + id as f32 / 64.0, 0.25])
            .collect();
        if !numbers.is_empty() {
            gpu.write(factors.addr(), bytemuck::cast_slice(&numbers))
                .unwrap();
        }
        Self {
            moe: Arc::clone(moe),
            call: moe.call().unwrap(),
            x: alloc(tokens * hidden * 2),
            experts: alloc(choices * 4),
            weights: alloc(choices * 4),
            recv_x: alloc(rows * hidden * 2),
            counts: alloc(local * 4),
            src_info: alloc(rows * 4),
            layout_range: alloc(local * ranks * 8),
            y: alloc(rows * hidden * 2),
            out: alloc(tokens * hidden * 2),
            valid: alloc(tokens),
            factors,
            gpu,
        }
    }

    fn several(moe: &Arc<Moe>, count: usize) -> Vec<Self> {
        (0..count).map(|_| Self::new(moe)).collect()
    }

    /// Changes the input in place, and takes away what the last call gave.
    fn write(&self, batch: &Batch) {
        let write = |memory: &DeviceMemory, bytes: &[u8]| {
            self.gpu.write(memory.addr(), bytes).unwrap();
        };
        write(&self.x, bytemuck::cast_slice(&batch.x));
        write(&self.experts, bytemuck::cast_slice(&batch.experts));
        write(&self.weights, bytemuck::cast_slice(&batch.weights));
        write(&self.out, &vec![0xee; self.out.bytes()]);
        write(&self.valid, &vec![0xee; self.valid.bytes()]);
    }

    /// Combine equals the reference bit for bit, and the call is complete.
    fn check(&self, batch: &Batch, what: &str) {
        let report = self.call.report().unwrap();
        assert!(report.is_complete(), "{what}: {report}");
        let tokens = SHAPE.max_tokens as usize;
        let mut out = vec![0u16; tokens * SHAPE.hidden as usize];
        let mut valid = vec![0u8; tokens];
        let bytes = bytemuck::cast_slice_mut(&mut out);
        self.gpu.read(self.out.addr(), bytes).unwrap();
        self.gpu.read(self.valid.addr(), &mut valid).unwrap();
        let want = reference::combine(
            &SHAPE,
            &self.moe.placement(),
            self.moe.team().rank(),
            batch,
            expert,
        );
        assert_eq!(out, want, "{what}");
        assert_eq!(valid, vec![1; tokens], "{what}");
    }

    fn input(&self) -> DispatchInput {
        DispatchInput::default()
            .with_x(self.x.addr())
            .with_experts(self.experts.addr())
            .with_weights(self.weights.addr())
            .with_tokens(SHAPE.max_tokens)
    }

    fn output(&self) -> DispatchOutput {
        DispatchOutput::default()
            .with_recv_x(self.recv_x.addr())
            .with_counts(self.counts.addr())
            .with_src_info(self.src_info.addr())
            .with_layout_range(self.layout_range.addr())
    }

    fn combine_input(&self) -> CombineInput {
        CombineInput::default().with_y(self.y.addr())
    }

    fn combine_output(&self) -> CombineOutput {
        CombineOutput::default()
            .with_out(self.out.addr())
            .with_token_valid(self.valid.addr())
    }

    // The launches. The buffers have the sizes of the shape, and every test waits for the last event before they go.

    fn dispatch(&self, stream: &Stream) -> Event {
        let (input, output) = (self.input(), self.output());
        // SAFETY: as said above.
        unsafe { self.moe.dispatch(stream, &self.call, &input, &output) }.unwrap()
    }

    fn combine(&self, stream: &Stream) -> Event {
        let (input, output) = (self.combine_input(), self.combine_output());
        // SAFETY: as said above.
        unsafe { self.moe.combine(stream, &self.call, &input, &output) }.unwrap()
    }

    fn send(&self, stream: &Stream) -> Event {
        // SAFETY: as said above.
        unsafe { self.moe.dispatch_send(stream, &self.call, &self.input()) }.unwrap()
    }

    fn receive(&self, stream: &Stream) -> Event {
        let output = self.output();
        // SAFETY: as said above.
        unsafe { self.moe.dispatch_receive(stream, &self.call, &output) }.unwrap()
    }

    fn send_back(&self, stream: &Stream) -> Event {
        let input = self.combine_input();
        // SAFETY: as said above.
        unsafe { self.moe.combine_send(stream, &self.call, &input) }.unwrap()
    }

    fn receive_back(&self, stream: &Stream) -> Event {
        let output = self.combine_output();
        // SAFETY: as said above.
        unsafe { self.moe.combine_receive(stream, &self.call, &output) }.unwrap()
    }

    fn compute(&self, stream: &Stream) -> Event {
        let params = DemoExpertParams {
            x: DevicePtr::new(self.recv_x.addr()),
            y: DevicePtr::new(self.y.addr()),
            counts: DevicePtr::new(self.counts.addr()),
            factors: DevicePtr::new(self.factors.addr()),
            local_experts: u32::try_from(self.moe.local_experts().len()).unwrap(),
            rows: self.moe.team().ranks() * SHAPE.max_tokens,
            hidden: SHAPE.hidden,
            reserved: 0,
        };
        let launch = Launch::new("wv_demo_expert", 1, 64).with_stream(Some(stream));
        // SAFETY: as said above.
        unsafe { self.gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap()
    }
}

/// The input of one rank in one call: always `max_tokens` tokens, since a graph fixes their number. Those that the generator
/// did not make choose no expert.
fn padded(seed: u64, call: u32, rank: u32) -> Batch {
    let mut batch = batch(&SHAPE, MIXED, seed, call, rank);
    let (tokens, top_k) = (SHAPE.max_tokens as usize, SHAPE.top_k as usize);
    batch.x.resize(tokens * SHAPE.hidden as usize, 0);
    batch.experts.resize(tokens * top_k, -1);
    batch.weights.resize(tokens * top_k, 1.0);
    batch
}

/// Launches some calls; what is launched may be captured.
type Program = fn(&Stream, &Stream, &[Io]);

/// Dispatch, experts, combine: two launches of the library for each call.
fn fused(stream: &Stream, _: &Stream, ios: &[Io]) {
    for io in ios {
        io.dispatch(stream);
        io.compute(stream);
        io.combine(stream);
    }
}

/// Phases apart; a combine is received after the send of the next dispatch.
fn hook(stream: &Stream, _: &Stream, ios: &[Io]) {
    ios[0].send(stream);
    for (i, io) in ios.iter().enumerate() {
        io.receive(stream);
        io.compute(stream);
        io.send_back(stream);
        if let Some(next) = ios.get(i + 1) {
            next.send(stream);
        }
        io.receive_back(stream);
    }
}

/// Two micro-batches: while the experts of one compute in a stream of their own, the other travels.
fn two_batches(stream: &Stream, compute: &Stream, ios: &[Io]) {
    let computed = |io: &Io, received: &Event| {
        compute.wait(received).unwrap();
        io.compute(compute)
    };
    for pair in ios.chunks(2) {
        let [one, two] = pair else {
            panic!("an odd number of micro-batches")
        };
        one.send(stream);
        two.send(stream);
        let first = computed(one, &one.receive(stream));
        let second = computed(two, &two.receive(stream));
        stream.wait(&first).unwrap();
        one.send_back(stream);
        stream.wait(&second).unwrap();
        two.send_back(stream);
        one.receive_back(stream);
        two.receive_back(stream);
    }
}

fn capture(stream: &Stream, launches: impl FnOnce()) -> Graph {
    stream.begin_capture().unwrap();
    launches();
    stream.end_capture().unwrap()
}

/// What a test replays.
struct Plan {
    program: Program,
    ranks: u32,
    /// Calls in the graph.
    calls: usize,
    replays: u32,
    /// An eager call after every second replay.
    eager: bool,
    seed: u64,
}

impl Plan {
    /// Every replay has inputs of its own, written in place, and is checked against the reference.
    fn run(&self) {
        let what = format!("{} calls, seed {}", self.calls, self.seed);
        run(&Setup::adverse(self.ranks), |team| {
            let moe = Moe::new(team, "layer", SHAPE).unwrap();
            moe.set_schedule_seed(self.seed);
            let rank = team.rank();
            let (stream, compute) = (team.gpu().stream().unwrap(), team.gpu().stream().unwrap());
            let ios = Io::several(&moe, self.calls);
            let alone = Io::new(&moe);
            let graph = capture(&stream, || (self.program)(&stream, &compute, &ios));
            let mut number = 0;
            let mut next = |io: &Io| {
                number += 1;
                let batch = padded(self.seed, number, rank);
                io.write(&batch);
                batch
            };
            for replay in 0..self.replays {
                let what = format!("{what}, rank {rank}, replay {replay}");
                let batches: Vec<Batch> = ios.iter().map(&mut next).collect();
                // SAFETY: buffers, handles and layer live to the end of this closure.
                let event = unsafe { graph.launch(&stream) }.unwrap();
                event
                    .wait(HANG)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                for (io, batch) in ios.iter().zip(&batches) {
                    io.check(batch, &what);
                }
                if self.eager && replay % 2 == 0 {
                    let batch = next(&alone);
                    fused(&stream, &compute, std::slice::from_ref(&alone));
                    stream.record().unwrap().wait(HANG).unwrap();
                    alone.check(&batch, &format!("{what}, the eager call behind it"));
                }
            }
        });
    }
}

const REPLAYS: u32 = 50;

#[test]
fn a_graph_of_any_number_of_fused_calls_is_right_in_every_replay() {
    for (calls, ranks) in [(1, 2), (1, 3), (2, 2), (3, 3), (5, 2)] {
        Plan {
            program: fused,
            ranks,
            calls,
            replays: REPLAYS,
            eager: false,
            seed: calls as u64,
        }
        .run();
    }
}

#[test]
fn a_graph_of_phases_is_right_in_every_replay() {
    for (calls, ranks) in [(1, 3), (2, 2), (3, 2), (5, 3)] {
        Plan {
            program: hook,
            ranks,
            calls,
            replays: REPLAYS,
            eager: false,
            seed: 10 + calls as u64,
        }
        .run();
    }
}

#[test]
fn two_micro_batches_in_one_graph_overlap_and_are_right() {
    for (calls, ranks) in [(2, 2), (2, 3), (4, 2)] {
        Plan {
            program: two_batches,
            ranks,
            calls,
            replays: REPLAYS,
            eager: false,
            seed: 20 + u64::from(ranks),
        }
        .run();
    }
}

#[test]
fn eager_calls_between_replays_take_their_numbers_from_the_same_row() {
    for (program, calls, ranks) in [(fused as Program, 3, 2), (hook, 2, 3)] {
        Plan {
            program,
            ranks,
            calls,
            replays: REPLAYS,
            eager: true,
            seed: 30 + calls as u64,
        }
        .run();
    }
}

#[test]
fn no_launch_of_a_call_waits_for_the_device() {
    let launched = Barrier::new(2);
    run(&Setup::adverse(2), |team| {
        let moe = Moe::new(team, "layer", SHAPE).unwrap();
        let (stream, compute) = (team.gpu().stream().unwrap(), team.gpu().stream().unwrap());
        let ios = Io::several(&moe, 4);
        let batches: Vec<Batch> = (1..=4).map(|call| padded(40, call, team.rank())).collect();
        for (io, batch) in ios.iter().zip(&batches) {
            io.write(batch);
        }
        // Rank 0 has launched four whole calls before rank 1 launches its first phase: none of them can end before.
        if team.rank() == 1 {
            launched.wait();
        }
        fused(&stream, &compute, &ios[..2]);
        two_batches(&stream, &compute, &ios[2..]);
        let end = stream.record().unwrap();
        if team.rank() == 0 {
            assert!(!end.is_done(), "no rank has answered yet");
            launched.wait();
        }
        end.wait(HANG).unwrap();
        for (io, batch) in ios.iter().zip(&batches) {
            io.check(batch, &format!("rank {}", team.rank()));
        }
    });
}

#[test]
fn what_a_launch_refuses_takes_no_call_number() {
    run(&Setup::adverse(1), |team| {
        let moe = Moe::new(team, "layer", SHAPE).unwrap();
        let io = Io::new(&moe);
        let stream = team.gpu().stream().unwrap();
        let foreign = open(GpuSelector::Simt).unwrap();
        // SAFETY: as for `Io`; none of these runs.
        let refused = unsafe {
            let of = moe.dispatch(
                &foreign.stream().unwrap(),
                &io.call,
                &io.input(),
                &io.output(),
            );
            assert!(
                matches!(of, Err(MoeError::Gpu(GpuError::BadArgument { .. }))),
                "{of:?}"
            );
            let without = io.output().with_counts(0);
            moe.dispatch(&stream, &io.call, &io.input(), &without)
        };
        let message = refused.unwrap_err().to_string();
        assert!(message.starts_with("counts is at 0x0"), "{message}");
        let batch = padded(50, 1, 0);
        io.write(&batch);
        fused(&stream, &stream, std::slice::from_ref(&io));
        stream.record().unwrap().wait(HANG).unwrap();
        io.check(&batch, "the first call");
        assert_eq!(io.call.report().unwrap().call, 1);
    });
}
