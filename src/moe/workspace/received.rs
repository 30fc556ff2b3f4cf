//! The rows that a dispatch brought, read from its outputs in either layout, and the experts run on them.

use super::buffers::{Buffer, Buffers};
use super::encoded::EncodedRow;
use crate::moe::{Moe, MoeError, RankRow, RowLayout, Source, bf16};

/// One row of a local expert.
#[derive(Clone, Copy, Debug)]
struct Row {
    source: Source,
    /// The number of the row in `recv_x`.
    place: u64,
}

/// The rows of one dispatch.
#[derive(Debug, Default)]
pub(super) struct Received {
    /// The rows of each local expert.
    rows: Vec<Vec<Row>>,
    /// The rows that each rank sent, in the rank-major layout.
    by_rank: Vec<Vec<RankRow>>,
}

impl Received {
    /// Reads counts, sources and choices of the experts `held` from the outputs.
    pub(super) fn read(moe: &Moe, held: &[u32], buffers: &Buffers) -> Result<Self, MoeError> {
        match moe.config().layout {
            RowLayout::ExpertMajor => Self::read_by_expert(moe, held.len(), buffers),
            RowLayout::RankMajor => Self::read_by_rank(moe, held.len(), buffers),
        }
    }

    fn read_by_expert(moe: &Moe, local: usize, buffers: &Buffers) -> Result<Self, MoeError> {
        let (gpu, ranks) = (moe.team().gpu().as_ref(), moe.team().ranks());
        let room = u64::from(ranks) * u64::from(moe.config().max_tokens);
        let counts: Vec<u32> = buffers.read(gpu, Buffer::Counts, 0, local)?;
        let mut rows = vec![Vec::new(); local];
        for (local, rows) in rows
            .iter_mut()
            .enumerate()
            .filter(|(local, _)| counts[*local] != 0)
        {
            let first = local as u64 * u64::from(ranks);
            let ranges: Vec<u64> = buffers.read(gpu, Buffer::LayoutRange, first, ranks as usize)?;
            for (rank, range) in (0u32..).zip(ranges) {
                let (begin, count) = (range >> 32, range & u64::from(u32::MAX));
                let count = usize::try_from(count).expect("32 bits");
                let first = local as u64 * room + begin;
                let tokens: Vec<u32> = buffers.read(gpu, Buffer::SrcInfo, first, count)?;
                rows.extend((first..).zip(tokens).map(|(place, token)| Row {
                    source: Source { rank, token },
                    place,
                }));
            }
        }
        Ok(Self {
            rows,
            by_rank: Vec::new(),
        })
    }

    fn read_by_rank(moe: &Moe, local: usize, buffers: &Buffers) -> Result<Self, MoeError> {
        let (gpu, ranks) = (moe.team().gpu().as_ref(), moe.team().ranks());
        let (max_tokens, top_k) = (
            u64::from(moe.config().max_tokens),
            moe.config().top_k as usize,
        );
        let counts: Vec<u32> = buffers.read(gpu, Buffer::Counts, 0, ranks as usize)?;
        let mut rows = vec![Vec::new(); local];
        let mut by_rank = Vec::new();
        for (rank, count) in (0u32..).zip(counts) {
            let (first, count) = (u64::from(rank) * max_tokens, count as usize);
            let choice = first * top_k as u64;
            let tokens: Vec<u32> = buffers.read(gpu, Buffer::SrcInfo, first, count)?;
            let experts: Vec<i32> =
                buffers.read(gpu, Buffer::RecvExperts, choice, count * top_k)?;
            let weights: Vec<f32> =
                buffers.read(gpu, Buffer::RecvWeights, choice, count * top_k)?;
            let mut of_rank = Vec::with_capacity(count);
            let choices = experts.chunks_exact(top_k).zip(weights.chunks_exact(top_k));
            for ((place, token), (experts, weights)) in (first..).zip(tokens).zip(choices) {
                let source = Source { rank, token };
                for &local in experts.iter().filter(|local| **local >= 0) {
                    rows[local as usize].push(Row { source, place });
                }
                of_rank.push(RankRow {
                    token,
                    experts: experts.to_vec(),
                    weights: weights.to_vec(),
                });
            }
            by_rank.push(of_rank);
        }
        Ok(Self { rows, by_rank })
    }

    /// Returns the sources of the rows of each local expert.
    pub(super) fn sources(&self) -> Vec<Vec<Source>> {
        let of_expert = |rows: &Vec<Row>| rows.iter().map(|row| row.source).collect();
        self.rows.iter().map(of_expert).collect()
    }

    /// Returns the number in `recv_x` of row `row` of a local expert.
    pub(super) fn place(&self, local: usize, row: usize) -> u64 {
        self.rows[local][row].place
    }

    pub(super) fn by_rank(&self) -> &[Vec<RankRow>] {
        &self.by_rank
    }

    /// Runs `expert(id, x, row)` on every row that came, and writes the rows that it makes at `y`. `held` are the experts of this
    /// rank. By rank it writes the weighted sum over the experts of a row; with `unweighted` all weights are 1.
    pub(super) fn run(
        &self,
        moe: &Moe,
        held: &[u32],
        buffers: &Buffers,
        y: u64,
        unweighted: bool,
        mut expert: impl FnMut(u32, &EncodedRow, &mut [u16]) -> Result<(), MoeError>,
    ) -> Result<(), MoeError> {
        let gpu = moe.team().gpu().as_ref();
        let hidden = moe.config().hidden as usize;
        let x = |place: u64| EncodedRow::read(moe, buffers, place);
        let write = |place: u64, row: &[u16]| {
            gpu.write(y + place * hidden as u64 * 2, bytemuck::cast_slice(row))
        };
        let mut made = vec![0u16; hidden];
        if moe.config().layout == RowLayout::ExpertMajor {
            for (&id, rows) in held.iter().zip(&self.rows) {
                for row in rows {
                    expert(id, &x(row.place)?, &mut made)?;
                    write(row.place, &made)?;
                }
            }
            return Ok(());
        }
        for (rank, rows) in (0u64..).zip(&self.by_rank) {
            let first = rank * u64::from(moe.config().max_tokens);
            for (place, row) in (first..).zip(rows) {
                let x = x(place)?;
                let mut sum = vec![0f32; hidden];
                for (&local, &weight) in row.experts.iter().zip(&row.weights) {
                    let Ok(local) = usize::try_from(local) else {
                        continue;
                    };
                    expert(held[local], &x, &mut made)?;
                    let weight = if unweighted { 1.0 } else { weight };
                    for (sum, &made) in sum.iter_mut().zip(&made) {
                        *sum += weight * bf16::to_f32(made);
                    }
                }
                let sum: Vec<u16> = sum.into_iter().map(bf16::from_f32).collect();
                write(place, &sum)?;
            }
        }
        Ok(())
    }
}
