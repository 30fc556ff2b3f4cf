//! One layer with buffers of its own, all outputs of which are read as they are and held against the oracles.

// UNSAFETY: launches phases on buffers that live to the end of each step.
#![expect(unsafe_code, reason = "launches of the MoE kernels")]

use std::sync::Arc;

use moe_reference::oracle::by_expert::{self, ByExpert};
use moe_reference::oracle::by_rank::{self, ByRank};
use moe_reference::oracle::combine::{self, Weights};
use moe_reference::oracle::digest::Digest;
use moe_reference::oracle::{Case, Finding, Wire, payload};
use test_support::device::read;
use test_support::limits::HANG;
use warpverbs::gpu::{DeviceMemory, Event, Gpu};
use warpverbs::moe::{
    CombineInput, CombineOutput, DispatchInput, DispatchOutput, Moe, MoeCall, RowLayout, Scales,
    bf16,
};

use crate::cell::{Cell, Data};

/// A NaN in BF16 and in FP8.
const POISON: u8 = 0xff;

/// Returns what an expert makes of a number.
fn expert(id: u32, x: f32) -> f32 {
    x * (0.5 + id as f32 / 64.0) + 0.25
}

/// Layer, handle and buffers of one rank.
pub(crate) struct Raw {
    moe: Arc<Moe>,
    call: MoeCall,
    cell: Cell,
    stats: Vec<u64>,
    buffers: Vec<DeviceMemory>,
}

/// Places in `Raw::buffers`.
#[derive(Clone, Copy)]
enum At {
    X,
    XScales,
    Experts,
    Weights,
    RecvX,
    RecvScales,
    Counts,
    SrcInfo,
    Ranges,
    RecvExperts,
    RecvWeights,
    Stats,
    Active,
    Y,
    Out,
    Valid,
}

impl Raw {
    pub(crate) fn new(moe: &Arc<Moe>, cell: Cell) -> Self {
        let case = cell.case(0, 0);
        let (row, scale) = payload::arrives(&case);
        let (tokens, choices) = (case.max_tokens, case.max_tokens * case.top_k);
        let received = case.rows_of_an_expert();
        let rows = match cell.layout {
            RowLayout::ExpertMajor => case.room * received,
            RowLayout::RankMajor => received,
        };
        let bytes = [
            tokens * row.max(case.hidden * 2),
            tokens * scale,
            choices * 4,
            choices * 4,
            rows * row,
            rows * scale,
            case.room.max(case.ranks()) * 4,
            rows * 4,
            case.room * case.ranks() * 8,
            received * case.top_k * 4,
            received * case.top_k * 4,
            case.room * 8,
            case.ranks() * 4,
            rows * case.hidden * 2,
            tokens * case.hidden * 2,
            tokens,
        ];
        let gpu = moe.team().gpu();
        let alloc = |bytes: usize| gpu.alloc(bytes.max(16), 128).unwrap();
        let raw = Self {
            moe: Arc::clone(moe),
            call: moe.call().unwrap(),
            cell,
            stats: vec![0; case.room],
            buffers: bytes.into_iter().map(alloc).collect(),
        };
        raw.write(At::Stats, &vec![0; case.room * 8]);
        raw
    }

    /// One call with the inputs of `case`: everything that comes out is checked. What came out, as one number that no order of
    /// rows changes.
    pub(crate) fn step(&mut self, case: &Case) -> Result<Digest, Finding> {
        let rank = self.moe.team().rank() as usize;
        self.dispatch(case, rank);
        let mut digest = match self.cell.layout {
            RowLayout::ExpertMajor => self.check_by_expert(case, rank)?,
            RowLayout::RankMajor => self.check_by_rank(case, rank)?,
        };
        by_expert::active(case, rank, &self.read(At::Active, case.ranks()))?;
        let stats: Vec<u64> = self.read(At::Stats, case.room);
        by_expert::statistics(case, rank, &self.stats, &stats)?;
        self.stats = stats;

        self.combine();
        let tokens = case.tokens(rank);
        let out: Vec<u16> = self.read(At::Out, tokens * case.hidden);
        let of = |e: u32, x: &[f32], y: &mut [f32]| {
            y.iter_mut().zip(x).for_each(|(y, x)| *y = expert(e, *x));
        };
        let want = combine::reference(case, rank, Weights::Dispatch, false, of);
        combine::check(case, &out, &want, limit(self.cell.data))?;
        combine::token_valid(case, rank, &self.read(At::Valid, tokens))?;
        digest.add(&[u64::MAX], bytemuck::cast_slice(&out));
        Ok(digest)
    }

    fn dispatch(&self, case: &Case, rank: usize) {
        let input = &case.inputs[rank];
        for buffer in [
            At::X,
            At::RecvX,
            At::RecvScales,
            At::SrcInfo,
            At::Y,
            At::Out,
            At::Active,
        ] {
            self.write(buffer, &vec![POISON; self.buffers[buffer as usize].bytes()]);
        }
        self.write(At::X, &input.x);
        self.write(At::XScales, &input.scales);
        self.write(At::Experts, bytemuck::cast_slice(&input.experts));
        self.write(At::Weights, bytemuck::cast_slice(&input.weights));
        let input = DispatchInput::default()
            .with_x(self.addr(At::X))
            .with_x_scales(self.addr(At::XScales))
            .with_experts(self.addr(At::Experts))
            .with_weights(self.addr(At::Weights))
            .with_tokens(u32::try_from(case.tokens(rank)).unwrap())
            .with_quantized(self.cell.data == Data::Quantized);
        let output = DispatchOutput::default()
            .with_recv_x(self.addr(At::RecvX))
            .with_recv_scales(self.addr(At::RecvScales))
            .with_counts(self.addr(At::Counts))
            .with_src_info(self.addr(At::SrcInfo))
            .with_layout_range(self.addr(At::Ranges))
            .with_recv_experts(self.addr(At::RecvExperts))
            .with_recv_weights(self.addr(At::RecvWeights))
            .with_recv_stats(self.addr(At::Stats))
            .with_active(self.addr(At::Active));
        let (moe, stream) = (&self.moe, self.gpu().default_stream());
        if self.cell.fused {
            // SAFETY: the buffers have the sizes of the shape and live longer than the event, see `wait`; no other code uses
            // them.
            self.wait(unsafe { moe.dispatch(&stream, &self.call, &input, &output) }.unwrap());
        } else {
            // SAFETY: as above.
            self.wait(unsafe { moe.dispatch_send(&stream, &self.call, &input) }.unwrap());
            // SAFETY: as above.
            self.wait(unsafe { moe.dispatch_receive(&stream, &self.call, &output) }.unwrap());
        }
    }

    /// Checks what came, and computes the experts.
    fn check_by_expert(&self, case: &Case, rank: usize) -> Result<Digest, Finding> {
        let (room, (row, scale)) = (case.rows_of_an_expert(), payload::arrives(case));
        let held = self.moe.local_experts().len();
        let mut counts: Vec<u32> = self.read(At::Counts, case.room);
        counts[held..].fill(0);
        let out = ByExpert {
            recv_x: self.read(At::RecvX, case.room * room * row),
            recv_scales: self.read(At::RecvScales, case.room * room * scale),
            counts,
            src_info: self.read(At::SrcInfo, case.room * room),
            layout_range: self.read(At::Ranges, case.room * case.ranks()),
            poison: POISON,
        };
        by_expert::check(case, rank, &out)?;
        let mut digest = Digest::default();
        let mut y = vec![0xffff_u16; case.room * room * case.hidden];
        for local in 0..held {
            let id = case.expert_at(rank, u32::try_from(local).unwrap()).unwrap();
            for source in 0..case.ranks() {
                let range = out.layout_range[local * case.ranks() + source];
                let begin = usize::try_from(range >> 32).unwrap();
                for place in begin..begin + usize::try_from(range & 0xffff_ffff).unwrap() {
                    let at = local * room + place;
                    let x = &out.recv_x[at * row..][..row];
                    let scales = by_expert::scales_of(case, &out, local, place);
                    let token = out.src_info[at];
                    let key = [u64::from(id), source as u64, token.into()];
                    digest.add(&key, &[x, &scales].concat());
                    let to = &mut y[at * case.hidden..][..case.hidden];
                    for (y, x) in to.iter_mut().zip(payload::values(case, x, &scales)) {
                        *y = bf16::from_f32(expert(id, x));
                    }
                }
            }
        }
        self.gpu()
            .write(self.y(), bytemuck::cast_slice(&y))
            .unwrap();
        Ok(digest)
    }

    /// Checks what came, and computes the weighted sums of the experts.
    fn check_by_rank(&self, case: &Case, rank: usize) -> Result<Digest, Finding> {
        let (rows, (row, scale)) = (case.rows_of_an_expert(), payload::arrives(case));
        let out = ByRank {
            recv_x: self.read(At::RecvX, rows * row),
            recv_scales: self.read(At::RecvScales, rows * scale),
            counts: self.read(At::Counts, case.ranks()),
            src_info: self.read(At::SrcInfo, rows),
            recv_experts: self.read(At::RecvExperts, rows * case.top_k),
            recv_weights: self.read(At::RecvWeights, rows * case.top_k),
            poison: POISON,
        };
        by_rank::check(case, rank, &out)?;
        let mut digest = Digest::default();
        let mut y = vec![0xffff_u16; rows * case.hidden];
        for source in 0..case.ranks() {
            for place in 0..out.counts[source] as usize {
                let at = source * case.max_tokens + place;
                let x = &out.recv_x[at * row..][..row];
                let scales = &out.recv_scales[at * scale..][..scale];
                // In one number: rows have an order here.
                digest.add(&[source as u64, at as u64], &[x, scales].concat());
                let mut sums = vec![0f32; case.hidden];
                for k in 0..case.top_k {
                    let local = out.recv_experts[at * case.top_k + k];
                    let Ok(local) = u32::try_from(local) else {
                        continue;
                    };
                    let id = case.expert_at(rank, local).unwrap();
                    let weight = out.recv_weights[at * case.top_k + k];
                    for (sum, x) in sums.iter_mut().zip(payload::values(case, x, scales)) {
                        *sum += weight * expert(id, x);
                    }
                }
                let to = &mut y[at * case.hidden..][..case.hidden];
                to.iter_mut()
                    .zip(sums)
                    .for_each(|(y, sum)| *y = bf16::from_f32(sum));
            }
        }
        self.gpu()
            .write(self.y(), bytemuck::cast_slice(&y))
            .unwrap();
        Ok(digest)
    }

    /// Where the experts write: memory of this test, or of the layer.
    fn y(&self) -> u64 {
        if !self.cell.zero_copy {
            return self.addr(At::Y);
        }
        let set = self.call.report().unwrap().call % 2;
        self.moe.combine_staging(set).unwrap().addr
    }

    fn combine(&self) {
        let input = CombineInput::default()
            .with_y(self.y())
            .with_zero_copy(self.cell.zero_copy);
        let output = CombineOutput::default()
            .with_out(self.addr(At::Out))
            .with_token_valid(self.addr(At::Valid));
        let (moe, stream) = (&self.moe, self.gpu().default_stream());
        if self.cell.fused {
            // SAFETY: as in `dispatch`.
            self.wait(unsafe { moe.combine(&stream, &self.call, &input, &output) }.unwrap());
        } else {
            // SAFETY: as in `dispatch`.
            self.wait(unsafe { moe.combine_send(&stream, &self.call, &input) }.unwrap());
            // SAFETY: as in `dispatch`.
            self.wait(unsafe { moe.combine_receive(&stream, &self.call, &output) }.unwrap());
        }
        let report = self.call.report().unwrap();
        assert!(report.is_complete(), "{report}");
    }

    /// Ends the test if a kernel does not end: it would still use the buffers.
    fn wait(&self, event: Event) {
        if let Err(error) = self.gpu().wait(&event, HANG) {
            eprintln!("a kernel does not end: {error}");
            std::process::abort();
        }
    }

    fn gpu(&self) -> &Arc<dyn Gpu> {
        self.moe.team().gpu()
    }

    fn addr(&self, at: At) -> u64 {
        self.buffers[at as usize].addr()
    }

    fn write(&self, at: At, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.gpu().write(self.addr(at), bytes).unwrap();
        }
    }

    fn read<T: bytemuck::Pod>(&self, at: At, count: usize) -> Vec<T> {
        match count {
            0 => vec![],
            _ => read(self.gpu().as_ref(), self.addr(at), count),
        }
    }
}

fn limit(data: Data) -> f64 {
    match data {
        Data::Fp8(Scales::F32) => combine::FP8_LIMIT,
        Data::Fp8(_) => combine::POWER_OF_TWO_LIMIT,
        Data::Bf16 | Data::Quantized | Data::Opaque => combine::BF16_LIMIT,
    }
}

/// What travels is what the cell says.
#[test]
fn cells_of_every_format_have_inputs_of_their_shape() {
    let cell = |data| Cell {
        data,
        ..crate::grid::SIMPLE
    };
    for (data, row) in [
        (Data::Bf16, 512),
        (Data::Quantized, 256),
        (Data::Opaque, 512),
    ] {
        let case = cell(data).case(1, 1);
        assert!(matches!(case.wire, Wire::AsIs { row_bytes, .. } if row_bytes == row));
        for rank in 0..case.ranks() {
            assert_eq!(case.inputs[rank].x.len(), case.tokens(rank) * row);
        }
    }
}
