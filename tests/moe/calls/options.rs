//! What a caller may choose call by call: how wide its ids and counters are, which of its arrays are changed in place.

// UNSAFETY: launches phases on buffers of the test.
#![expect(unsafe_code, reason = "launches on buffers of the test")]

use std::sync::Arc;

use test_support::device::read;
use test_support::limits::HANG;
use test_support::moe::{Setup, Traffic, batch, run};
use test_support::reference;
use warpverbs::abi::{MoeCause, Outcome, Status};
use warpverbs::gpu::{DeviceMemory, Event, Gpu};
use warpverbs::moe::{
    Batch, CallReport, CombineInput, CombineOutput, DispatchInput, DispatchOutput, Format, Moe,
    MoeCall, MoeConfig, MoeError, Returns, RowLayout, Scales, bf16,
};

pub(crate) const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(6)
    .with_top_k(3)
    .with_max_tokens(7);
pub(crate) const BUSY: Traffic = Traffic {
    percent_none: 15,
    percent_empty: 0,
};

/// Buffers of all inputs and outputs of one rank's calls.
pub(crate) struct Io {
    pub(crate) moe: Arc<Moe>,
    /// What its calls say of their tokens.
    config: MoeConfig,
    pub(crate) call: MoeCall,
    x: DeviceMemory,
    ids: DeviceMemory,
    weights: DeviceMemory,
    recv_x: DeviceMemory,
    recv_scales: DeviceMemory,
    counts: DeviceMemory,
    src_info: DeviceMemory,
    layout_range: DeviceMemory,
    recv_experts: DeviceMemory,
    recv_weights: DeviceMemory,
    y: DeviceMemory,
    out: DeviceMemory,
    valid: DeviceMemory,
}

impl Io {
    pub(crate) fn new(moe: &Arc<Moe>) -> Self {
        Self::sized(moe, *moe.config())
    }

    /// As large as a layer of `config` needs them.
    pub(crate) fn sized(moe: &Arc<Moe>, config: MoeConfig) -> Self {
        let (row, tokens) = (config.hidden as usize * 2, config.max_tokens as usize);
        let ranks = moe.team().ranks();
        let local = config.room(ranks) as usize;
        let rows = local * ranks as usize * tokens;
        let choices = tokens * config.top_k as usize;
        let alloc = |bytes: usize| moe.team().gpu().alloc(bytes, 128).unwrap();
        Self {
            config,
            call: moe.call().unwrap(),
            x: alloc(tokens * row),
            ids: alloc(choices * 8),
            weights: alloc(choices * 4),
            recv_x: alloc(rows * row),
            recv_scales: alloc(rows * row),
            counts: alloc(local.max(ranks as usize) * 4),
            src_info: alloc(rows * 4),
            layout_range: alloc(local * ranks as usize * 8),
            recv_experts: alloc(ranks as usize * choices * 4),
            recv_weights: alloc(ranks as usize * choices * 4),
            y: alloc(rows * row),
            out: alloc(tokens * row),
            valid: alloc(tokens),
            moe: Arc::clone(moe),
        }
    }

    pub(crate) fn gpu(&self) -> &Arc<dyn Gpu> {
        self.moe.team().gpu()
    }

    /// Writes `batch` with ids of 64 bits, of which `change` may make others.
    pub(crate) fn input(&self, batch: &Batch, change: impl FnOnce(&mut [i64])) -> DispatchInput {
        let mut ids: Vec<i64> = batch.experts.iter().map(|id| i64::from(*id)).collect();
        change(&mut ids);
        let gpu = self.gpu();
        gpu.write(self.x.addr(), bytemuck::cast_slice(&batch.x))
            .unwrap();
        gpu.write(self.ids.addr(), bytemuck::cast_slice(&ids))
            .unwrap();
        gpu.write(self.weights.addr(), bytemuck::cast_slice(&batch.weights))
            .unwrap();
        let tokens = u32::try_from(batch.tokens(&self.config)).unwrap();
        let layer = self.moe.config();
        let own_tokens = self.config.max_tokens != layer.max_tokens;
        DispatchInput::default()
            .with_format((self.config.format != layer.format).then_some(self.config.format))
            .with_max_tokens(if own_tokens {
                self.config.max_tokens
            } else {
                0
            })
            .with_x(self.x.addr())
            // Some bytes, for formats that have scales.
            .with_x_scales(self.x.addr())
            .with_experts(self.ids.addr())
            .with_ids_64(true)
            .with_weights(self.weights.addr())
            .with_tokens(tokens)
    }

    pub(crate) fn output(&self) -> DispatchOutput {
        DispatchOutput::default()
            .with_recv_x(self.recv_x.addr())
            .with_recv_scales(self.recv_scales.addr())
            .with_format(Some(self.config.format))
            .with_counts(self.counts.addr())
            .with_src_info(self.src_info.addr())
            .with_layout_range(self.layout_range.addr())
            .with_recv_experts(self.recv_experts.addr())
            .with_recv_weights(self.recv_weights.addr())
    }

    pub(crate) fn sums(&self) -> CombineOutput {
        CombineOutput::default()
            .with_out(self.out.addr())
            .with_token_valid(self.valid.addr())
    }

    fn wait(&self, event: Result<Event, MoeError>) {
        self.gpu().wait(&event.unwrap(), HANG).unwrap();
    }

    /// Both phases of dispatch.
    pub(crate) fn dispatch(&self, input: &DispatchInput, output: &DispatchOutput) -> CallReport {
        let stream = self.gpu().stream().unwrap();
        // SAFETY: the buffers have the sizes of the shape, and the launch is waited for.
        self.wait(unsafe { self.moe.dispatch(&stream, &self.call, input, output) });
        self.call.report().unwrap()
    }

    /// Both phases of combine, of experts that give back what they got. What came out.
    pub(crate) fn combine(&self, output: &CombineOutput) -> Vec<u16> {
        let mut rows = vec![0u8; self.y.bytes()];
        self.gpu().read(self.recv_x.addr(), &mut rows).unwrap();
        self.gpu().write(self.y.addr(), &rows).unwrap();
        let input = CombineInput::default().with_y(self.y.addr());
        let stream = self.gpu().stream().unwrap();
        // SAFETY: as in `dispatch`.
        self.wait(unsafe { self.moe.combine(&stream, &self.call, &input, output) });
        let config = &self.config;
        let count = (config.max_tokens * config.hidden) as usize;
        read(self.gpu().as_ref(), self.out.addr(), count)
    }

    /// Combine gave what the reference gives for `batch`.
    pub(crate) fn check(&self, batch: &Batch, out: &[u16], what: &str) {
        let report = self.call.report().unwrap();
        assert!(report.is_complete(), "{what}: {report}");
        let (config, rank) = (&self.config, self.moe.team().rank());
        let same = |_: u32, x: &[u16], y: &mut [u16]| y.copy_from_slice(x);
        let want = reference::combine(config, &self.moe.placement(), rank, batch, same);
        assert_eq!(out[..want.len()], want, "{what}");
    }
}

/// A layer of `config` at each of `ranks`, with its buffers.
fn each(ranks: u32, config: MoeConfig, body: impl Fn(&Io) + Sync) {
    run(&Setup::adverse(ranks), |team| {
        let moe = Moe::new(team, "layer", config).unwrap();
        body(&Io::new(&moe));
        // No rank goes while another waits for its words.
        team.barrier("end").unwrap();
    });
}

#[test]
fn ids_of_64_bits_choose_as_those_of_32_do() {
    each(3, SHAPE, |io| {
        let rank = io.moe.team().rank();
        for call in 1..=4 {
            let own = batch(&SHAPE, BUSY, 5, call, rank);
            let what = format!("call {call}, rank {rank}");
            let mut input = io.input(&own, |_| ());
            if call % 2 == 0 {
                let ids = bytemuck::cast_slice(&own.experts);
                io.gpu().write(io.ids.addr(), ids).unwrap();
                input = input.with_ids_64(false);
            }
            io.dispatch(&input, &io.output());
            let out = io.combine(&io.sums());
            io.check(&own, &out, &what);
        }
    });
}

#[test]
fn an_id_of_64_bits_that_is_no_expert_is_refused_where_those_of_32_are() {
    let past = i64::from(SHAPE.experts);
    // What is given, and what the report says of it. The low halves of the third to the sixth are an expert, none, and -1.
    let wrong = [
        (past, past),
        (-2, -2),
        (1 << 32, i64::from(i32::MAX)),
        ((1 << 40) + 3, i64::from(i32::MAX)),
        (i64::from(u32::MAX), i64::from(i32::MAX)),
        (-(1 << 32) - 1, i64::from(i32::MIN)),
        (i64::MAX, i64::from(i32::MAX)),
        (i64::MIN, i64::from(i32::MIN)),
    ];
    each(2, SHAPE, |io| {
        let rank = io.moe.team().rank();
        for (call, (id, told)) in (1..).zip(wrong) {
            let mut own = batch(&SHAPE, BUSY, 6, call, rank);
            if rank == 0 {
                own.experts[..3].copy_from_slice(&[0, 5, -1]);
            }
            let change = |ids: &mut [i64]| {
                if rank == 0 {
                    ids[2] = id;
                }
            };
            let report = io.dispatch(&io.input(&own, change), &io.output());
            let what = format!("id {id} at rank {rank}: {report}");
            if rank == 0 {
                assert_eq!(report.phases[0], Status::INVALID, "{what}");
                assert_eq!(report.refused, Some((0, i32::try_from(told).unwrap())));
                let fault = report.fault.as_ref().expect(&what);
                let who = (fault.cause, fault.peer, fault.phase);
                assert_eq!(who, (MoeCause::REFUSED, None, 0), "{what}");
            } else {
                // Nothing comes, and it gets a word that says so.
                let came = report.peers[0].dispatch_received;
                assert_eq!(came, Outcome::NOT_SENT, "{what}");
            }
            io.combine(&io.sums());
        }
        // The same expert twice, and then a call of which all is right.
        let own = batch(&SHAPE, BUSY, 6, 50, rank);
        let input = io.input(&own, |ids| ids[..3].fill(4));
        let report = io.dispatch(&input, &io.output());
        assert_eq!(report.refused, Some((0, 4)), "{report}");
        io.combine(&io.sums());
        let own = batch(&SHAPE, BUSY, 6, 51, rank);
        io.dispatch(&io.input(&own, |_| ()), &io.output());
        let out = io.combine(&io.sums());
        io.check(&own, &out, &format!("rank {rank}"));
    });
}

#[test]
fn a_mask_in_place_loses_absent_ranks_and_gains_none() {
    // By rank: its mask. Each value that is not 0 counts as 1, and stays what it is.
    let masks = [[7, 1, 0], [1, 9, 1], [1, 1, 1]];
    each(3, SHAPE, |io| {
        let rank = io.moe.team().rank() as usize;
        let active = io.gpu().alloc(3 * 4, 128).unwrap();
        let told = |values: &[u32; 3]| {
            let bytes = bytemuck::cast_slice(values);
            io.gpu().write(active.addr(), bytes).unwrap();
        };
        let left = || read::<u32>(io.gpu().as_ref(), active.addr(), 3);
        let output = io.output().with_active(active.addr());
        let sums = io.sums().with_active(active.addr());
        let own = |call| batch(&SHAPE, BUSY, 7, call, io.moe.team().rank());

        // Rank 0 masks rank 2, which learns from the words of both that nothing comes.
        told(&masks[rank]);
        let input = io.input(&own(1), |_| ()).with_active(active.addr());
        io.dispatch(&input, &output.with_active_in_place(true));
        let want = [[7, 1, 0], [1, 9, 1], [0, 1, 1]][rank];
        assert_eq!(left(), want, "rank {rank}, dispatch");
        io.combine(&sums.with_active_in_place(true));
        assert_eq!(left(), want, "rank {rank}, combine");

        // All take part again. No rank is added to a mask in place, and every rank is active without one.
        let input = io.input(&own(2), |_| ());
        told(&[5, 0, 6]);
        io.dispatch(&input, &output.with_active_in_place(true));
        assert_eq!(left(), [5, 0, 6], "rank {rank}, dispatch of all");
        io.combine(&sums);
        assert_eq!(left(), [1, 1, 1], "rank {rank}, combine of all");
        let input = io.input(&own(3), |_| ());
        io.dispatch(&input, &output);
        told(&[0, 5, 0]);
        io.combine(&sums.with_active_in_place(true));
        assert_eq!(left(), [0, 5, 0], "rank {rank}, combine in place");
    });
}

#[test]
fn rows_are_counted_in_32_bits_where_that_is_asked() {
    for config in [SHAPE, SHAPE.with_layout(RowLayout::RankMajor)] {
        each(2, config, |io| {
            let rank = io.moe.team().rank();
            let experts = io.moe.local_experts().len();
            let gpu = io.gpu();
            // One counter more than experts, which no kernel may touch; the first one is about to wrap.
            let mut want = vec![7u32; experts + 1];
            want[0] = u32::MAX;
            let stats = gpu.alloc(want.len() * 4, 128).unwrap();
            gpu.write(stats.addr(), bytemuck::cast_slice(&want))
                .unwrap();
            let wide = gpu.alloc(experts * 8, 128).unwrap();
            gpu.write(wide.addr(), &vec![0; experts * 8]).unwrap();
            let mut before = vec![0u64; experts];
            for call in 1..=4 {
                let batches: Vec<Batch> = (0..2)
                    .map(|rank| batch(&config, BUSY, 8, call, rank))
                    .collect();
                let own = &batches[rank as usize];
                let narrow = call % 2 == 1;
                let at = if narrow { stats.addr() } else { wide.addr() };
                let output = io.output().with_recv_stats(at).with_stats_32(narrow);
                io.dispatch(&io.input(own, |_| ()), &output);
                let rows = reference::dispatch(&config, &io.moe.placement(), &batches, rank);
                for (local, rows) in rows.iter().enumerate() {
                    if narrow {
                        let rows = u32::try_from(rows.len()).unwrap();
                        want[local] = want[local].wrapping_add(rows);
                    } else {
                        before[local] += rows.len() as u64;
                    }
                }
                let what = format!("{:?}, call {call}, rank {rank}", config.layout);
                let got: Vec<u32> = read(gpu.as_ref(), stats.addr(), want.len());
                assert_eq!(got, want, "{what}");
                let got: Vec<u64> = read(gpu.as_ref(), wide.addr(), experts);
                assert_eq!(got, before, "{what}");
                io.combine(&io.sums());
            }
        });
    }
}

#[test]
fn the_device_says_where_combine_sends_from_also_after_replays() {
    let config = SHAPE.with_returns(Returns::Rows);
    each(2, config, |io| {
        let rank = io.moe.team().rank();
        let gpu = io.gpu();
        let places = io.moe.combine_stagings().unwrap();
        assert_ne!(places[0].addr, places[1].addr);
        let told = gpu.alloc(8, 128).unwrap();
        let output = io.output().with_staging(told.addr());
        let own = batch(&config, BUSY, 9, 1, rank);
        let input = io.input(&own, |_| ());
        // An odd number of calls in the graph: the set of each changes from replay to replay.
        let stream = gpu.stream().unwrap();
        stream.begin_capture().unwrap();
        // SAFETY: the buffers have the sizes of the shape, and each replay is waited for.
        unsafe { io.moe.dispatch(&stream, &io.call, &input, &output) }.unwrap();
        let graph = stream.end_capture().unwrap();
        for replay in 1..=3 {
            // SAFETY: as above.
            let event = unsafe { graph.launch(&stream) }.unwrap();
            gpu.wait(&event, HANG).unwrap();
            let report = io.call.report().unwrap();
            assert_eq!(report.call, replay, "{report}");
            let place = places[(report.call % 2) as usize];
            let at: Vec<u64> = read(gpu.as_ref(), told.addr(), 1);
            assert_eq!(at, [place.addr], "call {replay} of rank {rank}");
            // Combine sends back the rows in that memory.
            let mut rows = vec![0u8; io.recv_x.bytes()];
            gpu.read(io.recv_x.addr(), &mut rows).unwrap();
            gpu.write(at[0], &rows).unwrap();
            let here = CombineInput::default().with_y(at[0]).with_zero_copy(true);
            // SAFETY: as above.
            io.wait(unsafe { io.moe.combine(&stream, &io.call, &here, &io.sums()) });
            let count = own.x.len();
            let out: Vec<u16> = read(gpu.as_ref(), io.out.addr(), count);
            io.check(&own, &out, &format!("call {replay}, rank {rank}"));
        }
        // Out of turn the call has no staging memory.
        // SAFETY: as above.
        io.wait(unsafe { io.moe.dispatch_receive(&stream, &io.call, &output) });
        assert_eq!(read::<u64>(gpu.as_ref(), told.addr(), 1), [0]);
    });
    each(1, SHAPE, |io| {
        let output = io.output().with_staging(128);
        let stream = io.gpu().stream().unwrap();
        // SAFETY: it is refused before it is launched.
        let refused = unsafe { io.moe.dispatch_receive(&stream, &io.call, &output) };
        let text = refused.err().unwrap().to_string();
        assert!(text.starts_with("zero-copy: needs a layer that"), "{text}");
    });
}

#[test]
fn the_number_of_faults_tells_that_there_is_news() {
    each(2, SHAPE, |io| {
        let rank = io.moe.team().rank();
        assert_eq!((io.moe.faults(), io.moe.last_fault()), (0, None));
        for call in 1..=3 {
            let own = batch(&SHAPE, BUSY, 10, call, rank);
            let before = io.moe.faults();
            // Rank 0 is refused in its second call.
            let bad = call == 2 && rank == 0;
            let change = |ids: &mut [i64]| {
                if bad {
                    ids[0] = -7;
                }
            };
            let report = io.dispatch(&io.input(&own, change), &io.output());
            let news = io.moe.faults() != before;
            assert_eq!(news, call == 2, "call {call} of rank {rank}: {report}");
            if news {
                assert_eq!(io.moe.last_fault(), report.fault, "rank {rank}");
            }
            io.combine(&io.sums());
        }
    });
}

#[test]
fn a_second_combine_of_a_dispatch_is_refused_by_name_and_writes_nothing() {
    each(2, SHAPE, |io| {
        let rank = io.moe.team().rank();
        let stream = io.gpu().stream().unwrap();
        for call in 1..=3 {
            let own = batch(&SHAPE, BUSY, 11, call, rank);
            io.dispatch(&io.input(&own, |_| ()), &io.output());
            let out = io.combine(&io.sums());
            let input = CombineInput::default().with_y(io.y.addr());
            // SAFETY: the buffers have the sizes of the shape; both are refused before they are launched.
            let again = unsafe {
                [
                    io.moe.combine(&stream, &io.call, &input, &io.sums()),
                    io.moe.combine_send(&stream, &io.call, &input),
                ]
            };
            for refused in again {
                let error = refused.err().unwrap();
                assert!(matches!(error, MoeError::CombinedAlready), "{error}");
            }
            io.check(&own, &out, &format!("call {call}, rank {rank}"));
            let left: Vec<u16> = read(io.gpu().as_ref(), io.out.addr(), out.len());
            assert_eq!(left, out);
        }
    });
}

/// A layer with room for more than most of its calls ask for.
const LARGE: MoeConfig = MoeConfig::BF16
    .with_hidden(256)
    .with_experts(6)
    .with_top_k(3)
    .with_max_tokens(40);

impl Io {
    /// A whole call; all that came out of it, as bytes that say nothing of the layer.
    fn outputs(&self, batch: &Batch) -> Vec<Vec<u8>> {
        let gpu = self.gpu();
        let outputs = [
            &self.recv_x,
            &self.recv_scales,
            &self.counts,
            &self.src_info,
            &self.layout_range,
            &self.recv_experts,
            &self.recv_weights,
            &self.out,
            &self.valid,
        ];
        for memory in outputs {
            gpu.write(memory.addr(), &vec![0xee; memory.bytes()])
                .unwrap();
        }
        let report = self.dispatch(&self.input(batch, |_| ()), &self.output());
        assert!(report.is_complete(), "{:?}: {report}", self.config);
        let y: Vec<u16> = (0..self.y.bytes() / 2)
            .map(|at| bf16::from_f32((at * 7 % 101) as f32))
            .collect();
        gpu.write(self.y.addr(), bytemuck::cast_slice(&y)).unwrap();
        let input = CombineInput::default().with_y(self.y.addr());
        let stream = gpu.stream().unwrap();
        // SAFETY: the buffers have the sizes of the call, and the launch is waited for.
        self.wait(unsafe { self.moe.combine(&stream, &self.call, &input, &self.sums()) });
        let report = self.call.report().unwrap();
        assert!(report.is_complete(), "{:?}: {report}", self.config);
        let bytes = |memory: &DeviceMemory| read(gpu.as_ref(), memory.addr(), memory.bytes());
        outputs.map(bytes).to_vec()
    }
}

#[test]
fn a_call_with_another_format_or_fewer_tokens_equals_a_layer_of_its_own() {
    let opaque = Format::Opaque {
        payload_bytes: 208,
        scale_bytes: 20,
    };
    let fp8 = Format::Fp8(Scales::F32);
    let packed = Format::Fp8(Scales::Ue8m0);
    let shapes = [
        (Format::Bf16, 40),
        (fp8, 40),
        (packed, 5),
        (Format::Bf16, 1),
        (opaque, 33),
        (Format::Bf16, 17),
    ];
    let layouts = [
        (RowLayout::ExpertMajor, Returns::Sums),
        (RowLayout::ExpertMajor, Returns::Rows),
        (RowLayout::RankMajor, Returns::Sums),
    ];
    for (layout, returns) in layouts {
        let large = LARGE.with_layout(layout).with_returns(returns);
        let mut setup = Setup::adverse(2);
        setup.team.windows = 30;
        run(&setup, |team| {
            let rank = team.rank();
            let moe = Moe::new(team, "large", large).unwrap();
            // One handle for all of them.
            let mut io = Io::new(&moe);
            for (number, (format, max_tokens)) in (1..).zip(shapes.iter().cycle().take(9)) {
                let own = large.with_format(*format).with_max_tokens(*max_tokens);
                let batch = batch(&own, BUSY, 12, number, rank);
                io = Io {
                    call: io.call,
                    ..Io::sized(&moe, own)
                };
                let got = io.outputs(&batch);
                let layer = Moe::new(team, &format!("own{number}"), own).unwrap();
                let want = Io::new(&layer).outputs(&batch);
                for (place, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!(got == want, "{own:?}, rank {rank}: output {place}");
                }
            }
            team.barrier("end").unwrap();
        });
    }
}

#[test]
fn ranks_whose_calls_have_other_shapes_name_each_other_and_take_no_rows() {
    let fp8 = LARGE.with_format(Format::Fp8(Scales::F32));
    // What rank 1 says, and how many tokens each rank has; the others say what the layer was made for.
    let odd = [
        (fp8, 3),
        (LARGE.with_max_tokens(39), 3),
        (LARGE.with_max_tokens(4), 9),
    ];
    each(3, LARGE, |io| {
        let rank = io.moe.team().rank();
        for (number, (shape, tokens)) in (1..).zip(odd) {
            let mine = if rank == 1 { shape } else { LARGE };
            let count = if rank == 1 { tokens.min(4) } else { tokens };
            // Every token goes to every rank.
            let own = Batch {
                x: vec![0x3f80; count * 256],
                experts: [0, 2, 4].repeat(count),
                weights: vec![0.5; 3 * count],
            };
            let io = Io {
                call: io.moe.call().unwrap(),
                ..Io::sized(&io.moe, mine)
            };
            let report = io.dispatch(&io.input(&own, |_| ()), &io.output());
            let what = format!("{shape:?}, rank {rank}: {report}");
            assert_eq!(report.phases[1], Status::INVALID, "{what}");
            let fault = report.fault.as_ref().expect(&what);
            assert_eq!(fault.cause, MoeCause::SHAPE, "{what}");
            for peer in [0, 1, 2] {
                let other = peer != rank && (peer == 1 || rank == 1);
                let cause = report.peers[peer as usize].cause;
                let want = if other {
                    MoeCause::SHAPE
                } else {
                    MoeCause::NONE
                };
                assert_eq!(cause, want, "peer {peer}: {what}");
            }
            let counts: Vec<u32> = read(io.gpu().as_ref(), io.counts.addr(), 2);
            // Of those that agree: ranks 0 and 2 have each other's rows, rank 1 its own.
            let agree = if rank == 1 { count } else { 2 * count };
            assert_eq!(counts.iter().sum::<u32>() as usize, agree, "{what}");
            io.combine(&io.sums());
            let valid: Vec<u8> = read(io.gpu().as_ref(), io.valid.addr(), count);
            assert!(valid.iter().all(|valid| *valid == 0), "{what}");
            let again = io.moe.call().unwrap();
            // The next call, in which all say the same, is whole.
            let io = Io {
                call: again,
                ..Io::sized(&io.moe, LARGE.with_max_tokens(10))
            };
            let own = batch(&io.config, BUSY, 13, number, rank);
            io.dispatch(&io.input(&own, |_| ()), &io.output());
            let out = io.combine(&io.sums());
            io.check(&own, &out, &what);
        }
    });
}

#[test]
fn a_call_of_both_phases_has_one_format() {
    each(1, LARGE, |io| {
        let format = Some(Format::Fp8(Scales::F32));
        let own = batch(&LARGE, BUSY, 14, 1, 0);
        let input = io.input(&own, |_| ()).with_format(format);
        let stream = io.gpu().stream().unwrap();
        // SAFETY: it is refused before it is launched.
        let refused = unsafe { io.moe.dispatch(&stream, &io.call, &input, &io.output()) };
        assert_eq!(
            refused.err().unwrap().to_string(),
            "a format for one call: needs the same in DispatchInput and DispatchOutput"
        );
    });
}

#[test]
fn a_call_received_behind_a_later_one_says_so_and_the_later_one_is_whole() {
    each(2, SHAPE, |io| {
        let rank = io.moe.team().rank();
        let later = Io::new(&io.moe);
        let batches = [1, 2].map(|number| batch(&SHAPE, BUSY, 11, number, rank));
        let stream = io.gpu().stream().unwrap();
        for (io, batch) in [(io, &batches[0]), (&later, &batches[1])] {
            let input = io.input(batch, |_| {});
            // SAFETY: the buffers have the sizes of the shape, and the launch is waited for.
            io.wait(unsafe { io.moe.dispatch_send(&stream, &io.call, &input) });
        }
        for io in [&later, io] {
            // SAFETY: as above.
            io.wait(unsafe { io.moe.dispatch_receive(&stream, &io.call, &io.output()) });
        }
        let report = io.call.report().unwrap();
        assert!(!report.is_complete(), "{report}");
        let phase =
            "dispatch receive did nothing, since a later call of the layer was received before";
        assert!(report.to_string().contains(phase), "{report}");
        assert!(io.call.check().is_err());
        let out = later.combine(&later.sums());
        later.check(&batches[1], &out, "the later call");
    });
}
