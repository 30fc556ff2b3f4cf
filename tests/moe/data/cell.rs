//! The cells of the shape grid, and the inputs of each.

use moe_reference::oracle::{Case, Input, Wire};
use test_support::reference;
use warpverbs::moe::{Format, MoeConfig, Placement, Returns, RowLayout, Scales, bf16};
use warpverbs::team::SignalOrder;

use test_support::grid::{self, Point};

/// What tokens are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    Bf16,
    Fp8(Scales),
    /// FP8 that the caller gives.
    Quantized,
    Opaque,
}

/// How tokens choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choose {
    Uniform,
    Zipf,
    AllToOne,
    RoundRobin,
    OneRankEmpty,
    Missing,
}

/// Which ranks hold which experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    /// Contiguous blocks.
    Blocks,
    /// Each at one rank, neighbours at different ranks, in descending order within a rank.
    Moved,
    /// Every second one at two ranks.
    Replicated,
}

const DATA: [Data; 6] = [
    Data::Bf16,
    Data::Fp8(Scales::F32),
    Data::Fp8(Scales::PowerOfTwo),
    Data::Fp8(Scales::Ue8m0),
    Data::Quantized,
    Data::Opaque,
];
const LAYOUTS: [RowLayout; 2] = [RowLayout::ExpertMajor, RowLayout::RankMajor];
const RETURNS: [Returns; 2] = [Returns::Sums, Returns::Rows];
const ROUTINGS: [Choose; 6] = [
    Choose::Uniform,
    Choose::Zipf,
    Choose::AllToOne,
    Choose::RoundRobin,
    Choose::OneRankEmpty,
    Choose::Missing,
];
const RANKS: [u32; 7] = [1, 2, 3, 4, 5, 8, 16];
const ORDERS: [SignalOrder; 3] = [SignalOrder::Inline, SignalOrder::Swap, SignalOrder::Flush];
const TABLES: [Table; 3] = [Table::Blocks, Table::Moved, Table::Replicated];

/// Values in each dimension: data, layout, returns, fused, zero-copy, routing, ranks, rest, order, table.
const SIZES: [usize; 10] = [6, 2, 2, 2, 2, 6, 7, 2, 3, 3];
/// Of these the first so many are run in every combination by a full run, which draws the others.
const CROSSED: usize = 8;

/// Elements of a token.
const HIDDEN: u32 = 256;
const MAX_TOKENS: u32 = 6;
/// Bytes of a token's scales where they are opaque.
const OPAQUE_SCALES: u32 = 12;

/// One cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) data: Data,
    pub(crate) layout: RowLayout,
    pub(crate) returns: Returns,
    /// Both phases in one launch.
    pub(crate) fused: bool,
    pub(crate) zero_copy: bool,
    pub(crate) choose: Choose,
    pub(crate) ranks: u32,
    /// The experts do not divide by the ranks.
    pub(crate) rest: bool,
    /// How signals are kept after data, on HCAs that promise no more than it needs.
    pub(crate) order: SignalOrder,
    pub(crate) table: Table,
}

impl Cell {
    fn at(point: &Point) -> Self {
        Self {
            data: DATA[point[0]],
            layout: LAYOUTS[point[1]],
            returns: RETURNS[point[2]],
            fused: point[3] == 1,
            zero_copy: point[4] == 1,
            choose: ROUTINGS[point[5]],
            ranks: RANKS[point[6]],
            rest: point[7] == 1,
            order: ORDERS[point[8]],
            table: TABLES[point[9]],
        }
    }

    /// Returns whether such a layer and call exist. A rank alone has no peer to signal, and one place for its experts.
    fn exists(self) -> bool {
        let by_rank = self.layout == RowLayout::RankMajor;
        let rows = self.returns == Returns::Rows;
        let alone = self.ranks == 1
            && (self.rest || self.order != SignalOrder::Inline || self.table != Table::Blocks);
        !(alone || by_rank && rows || self.zero_copy && !by_rank && !rows)
    }

    pub(crate) fn config(self) -> MoeConfig {
        let even = if self.ranks == 1 { 4 } else { 2 * self.ranks };
        MoeConfig::BF16
            .with_hidden(HIDDEN)
            .with_experts(even + u32::from(self.rest))
            .with_top_k(3)
            .with_max_tokens(MAX_TOKENS)
            .with_format(match self.data {
                Data::Bf16 => Format::Bf16,
                Data::Fp8(scales) => Format::Fp8(scales),
                Data::Quantized => Format::Fp8(Scales::F32),
                Data::Opaque => Format::Opaque {
                    payload_bytes: HIDDEN * 2,
                    scale_bytes: OPAQUE_SCALES,
                },
            })
            .with_layout(self.layout)
            .with_returns(self.returns)
    }

    pub(crate) fn placement(self) -> Placement {
        let experts = self.config().experts;
        let mut held = vec![Vec::new(); self.ranks as usize];
        match self.table {
            Table::Blocks => return Placement::blocks(experts, self.ranks),
            Table::Moved => {
                for expert in (0..experts).rev() {
                    held[(expert % self.ranks) as usize].push(expert);
                }
            }
            Table::Replicated => {
                for expert in 0..experts {
                    held[(expert % self.ranks) as usize].push(expert);
                    if expert % 2 == 0 {
                        held[((expert + 1) % self.ranks) as usize].push(expert);
                    }
                }
            }
        }
        Placement::from_slots(experts, held).expect("no expert is twice at a rank")
    }

    fn wire(self) -> Wire {
        let hidden = HIDDEN as usize;
        match self.data {
            Data::Fp8(scales) => Wire::Cast(reference::scales(scales)),
            Data::Bf16 => Wire::AsIs {
                row_bytes: hidden * 2,
                scale_bytes: 0,
                fp8: false,
            },
            Data::Quantized => Wire::AsIs {
                row_bytes: hidden,
                scale_bytes: hidden / 128 * 4,
                fp8: true,
            },
            Data::Opaque => Wire::AsIs {
                row_bytes: hidden * 2,
                scale_bytes: OPAQUE_SCALES as usize,
                fp8: false,
            },
        }
    }

    /// The inputs of all ranks in call `call`. Tokens without a choice are NaN in every element.
    pub(crate) fn case(self, seed: u64, call: u32) -> Case {
        let config = self.config();
        let inputs = (0..self.ranks).map(|rank| self.input(seed, call, rank));
        let mut case = reference::case(&config, &self.placement(), inputs.collect());
        case.wire = self.wire();
        case
    }

    fn input(self, seed: u64, call: u32, rank: u32) -> Input {
        let mut random =
            fastrand::Rng::with_seed(seed ^ u64::from(call) << 40 ^ u64::from(rank) << 20);
        let config = self.config();
        let tokens = match self.choose {
            Choose::OneRankEmpty if rank == self.ranks / 2 => 0,
            Choose::AllToOne => MAX_TOKENS,
            _ => random.u32(1..=MAX_TOKENS),
        };
        let mut input = Input::default();
        for token in 0..tokens {
            let chosen = self.chosen(&mut random, rank, token, config.experts);
            let none = chosen.iter().all(|expert| *expert < 0);
            input.experts.extend(chosen);
            input.weights.extend((0..3).map(|_| 0.1 + random.f32()));
            self.token(&mut random, none, &mut input);
        }
        input
    }

    fn token(self, random: &mut fastrand::Rng, none: bool, input: &mut Input) {
        if self.data == Data::Quantized {
            let finite = |random: &mut fastrand::Rng| random.u8(..0x7f) | random.u8(..) & 0x80;
            input
                .x
                .extend((0..HIDDEN).map(|_| if none { 0x7f } else { finite(random) }));
            let scales = (0..HIDDEN / 128).flat_map(|_| (random.f32() + 0.01).to_le_bytes());
            input.scales.extend(scales);
            return;
        }
        let number = |random: &mut fastrand::Rng| bf16::from_f32(random.f32() * 8.0 - 4.0);
        let bits = (0..HIDDEN).map(|_| if none { 0x7fed } else { number(random) });
        input.x.extend(bits.flat_map(u16::to_le_bytes));
        if self.data == Data::Opaque {
            input
                .scales
                .extend((0..OPAQUE_SCALES).map(|_| random.u8(..)));
        }
    }

    /// The three choices of a token.
    fn chosen(self, random: &mut fastrand::Rng, rank: u32, token: u32, experts: u32) -> [i32; 3] {
        let id = |expert: u32| i32::try_from(expert).expect("few experts");
        let mut any = || {
            let mut ids: Vec<u32> = (0..experts).collect();
            random.shuffle(&mut ids);
            [id(ids[0]), id(ids[1]), id(ids[2])]
        };
        match self.choose {
            Choose::Uniform | Choose::OneRankEmpty => any(),
            Choose::AllToOne => [0, 1, 2],
            Choose::RoundRobin => {
                let first = (rank * MAX_TOKENS + token) * 3;
                [0, 1, 2].map(|k| id((first + k) % experts))
            }
            Choose::Zipf => {
                let mut left: Vec<u32> = (0..experts).collect();
                [(); 3].map(|()| {
                    let total: f32 = left.iter().map(|expert| 1.0 / (*expert + 1) as f32).sum();
                    let mut at = random.f32() * total;
                    let hit = left.iter().position(|expert| {
                        at -= 1.0 / (*expert + 1) as f32;
                        at <= 0.0
                    });
                    id(left.remove(hit.unwrap_or(left.len() - 1)))
                })
            }
            Choose::Missing => {
                let chosen = any();
                // By token: none at all, one of each place, two, and so on.
                let pattern = (token + rank) % 8;
                [0, 1, 2].map(|k| if pattern >> k & 1 == 1 { chosen[k] } else { -1 })
            }
        }
    }
}

/// All cells that exist.
pub(crate) fn cells() -> Vec<Point> {
    grid::all(&SIZES, |point| Cell::at(point).exists())
}

/// The cells of a run: a sample that covers every pair of values, or all combinations of the first dimensions. Each has a value
/// of the others that the seed draws.
pub(crate) fn taken(existing: &[Point], seed: u64, full: bool) -> Vec<Cell> {
    let points = if full {
        grid::one_of_each(existing, CROSSED, seed)
    } else {
        grid::sample(existing, seed)
    };
    points.iter().map(Cell::at).collect()
}
