//! Bytes: the table in the documents, the published formula beside it, the limits of a shape, buffers beyond 32 GiB.

use std::fmt::Write;

use moe_reference::Asked;
use test_support::moe::{Setup, batch, expert, run};
use test_support::reference::{choose, combine_asked};
use warpverbs::moe::{
    CombineOptions, Format, Moe, MoeConfig, Returns, RowLayout, Scales, Workspace, required_bytes,
};

/// 128 tokens × 7168, top-8, 256 experts.
const PUBLISHED: MoeConfig = MoeConfig::BF16
    .with_hidden(7168)
    .with_experts(256)
    .with_top_k(8)
    .with_max_tokens(128);

/// The modes of the table.
fn modes() -> Vec<(&'static str, MoeConfig)> {
    let fp8 = PUBLISHED.with_format(Format::Fp8(Scales::F32));
    let rows = |config: MoeConfig| config.with_returns(Returns::Rows);
    let by_rank = |config: MoeConfig| config.with_layout(RowLayout::RankMajor);
    vec![
        ("BF16, by expert, sums", PUBLISHED),
        ("BF16, by expert, rows of all experts", rows(PUBLISHED)),
        ("BF16, by rank", by_rank(PUBLISHED)),
        ("FP8, by expert, sums", fp8),
        ("FP8, by expert, rows of all experts", rows(fp8)),
        ("FP8, by rank", by_rank(fp8)),
    ]
}

/// MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// Returns what DeepEP's low-latency buffer takes by its published formula (`get_low_latency_rdma_size_hint`), for any number of ranks.
fn deepep(config: &MoeConfig) -> u64 {
    let (tokens, hidden) = (u64::from(config.max_tokens), u64::from(config.hidden));
    let experts = u64::from(config.experts);
    let dispatch = 16 + (2 * hidden).max(hidden + 4 * hidden / 128);
    let combine = 4 * hidden / 128 + 2 * hidden;
    let send = (tokens * dispatch).max(experts * tokens * combine);
    let receive = (experts * tokens * dispatch).max(experts * tokens * combine);
    let total = 2 * send + 2 * receive + 2 * (4 * experts).next_multiple_of(128);
    total.next_multiple_of(128)
}

/// The table of docs/moe.md.
fn table() -> String {
    let mut table = String::from(
        "| mode | ranks | slots | staging | handle | library, 2 handles | caller: `recv_x` | caller: `y` |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for (name, config) in modes() {
        for ranks in [8, 64] {
            let bytes = required_bytes(&config, ranks).unwrap();
            let numbers = [
                bytes.slots,
                bytes.staging,
                bytes.handle,
                bytes.library(2),
                bytes.recv_x + bytes.recv_scales,
                bytes.y,
            ];
            let cells = numbers.map(|bytes| mib(bytes).to_string()).join(" | ");
            writeln!(table, "| {name} | {ranks} | {cells} |").unwrap();
        }
    }
    let published = mib(deepep(&PUBLISHED));
    let rows = u64::from(PUBLISHED.experts / 8) * 8 * 128 * 7168;
    writeln!(
        table,
        "| DeepEP, low latency, BF16 | any | | | | {published} | {} | {} |",
        mib(rows * 2),
        mib(rows * 2)
    )
    .unwrap();
    table
}

#[test]
fn the_documents_hold_the_table_of_bytes() {
    let text = include_str!("../../../docs/moe.md");
    let table = table();
    assert!(text.contains(&table), "docs/moe.md should hold:\n\n{table}");
}

#[test]
fn the_published_formula_gives_the_published_sizes() {
    assert_eq!(deepep(&PUBLISHED), 1_908_410_368);
    let larger = PUBLISHED.with_experts(288);
    assert_eq!(deepep(&larger), 2_146_961_664);
}

#[test]
fn the_published_shape_takes_the_bytes_of_its_parts() {
    let (slot, row) = (128 + 14_336, 14_336);
    let received = 8 * 128;
    let sums = required_bytes(&PUBLISHED, 8).unwrap();
    assert_eq!(sums.slots, 2 * received * (slot + row));
    assert_eq!(sums.staging, 4 * 128 * slot + 2 * received * row);
    assert_eq!(sums.signals, 8 * 4 * 32);
    assert_eq!(sums.recv_x, 32 * received * row);
    assert_eq!(sums.y, sums.recv_x);
    let [_, (_, rows), (_, by_rank), ..] = modes()[..] else {
        unreachable!()
    };
    let rows = required_bytes(&rows, 8).unwrap();
    assert_eq!(rows.slots, 2 * received * (slot + 8 * row));
    assert_eq!(rows.staging, 4 * 128 * slot + 2 * (8 + 32) * received * row);
    let by_rank = required_bytes(&by_rank, 8).unwrap();
    assert_eq!((by_rank.slots, by_rank.staging), (sums.slots, sums.staging));
    assert_eq!(
        (by_rank.recv_x, by_rank.y),
        (received * row, received * row)
    );
}

#[test]
fn the_largest_shape_of_every_mode_has_a_size_and_any_larger_is_an_error() {
    for (name, config) in modes() {
        let largest = config
            .with_hidden(16_384)
            .with_experts(4096)
            .with_top_k(32)
            .with_max_tokens(65_534)
            .with_local_experts(64);
        let bytes = required_bytes(&largest, 1024).unwrap();
        assert!(bytes.slots > 1 << 41, "{name}: {bytes:?}");
        assert!(bytes.library(2) > bytes.slots + bytes.staging, "{name}");
        let refused = |config: MoeConfig, ranks: u32| required_bytes(&config, ranks).unwrap_err();
        let more = [
            (largest.with_experts(4097), 1024),
            (largest.with_top_k(33), 1024),
            (largest.with_max_tokens(65_535), 1024),
            (largest.with_local_experts(65), 1024),
            (largest, 1025),
        ];
        for (config, ranks) in more {
            let text = refused(config, ranks).to_string();
            assert!(text.contains("; it must be"), "{name}: {text}");
        }
    }
}

#[test]
fn buffers_beyond_32_gib_are_addressed_to_their_last_set() {
    const FAR: u64 = 32 << 30;
    let shape = MoeConfig::BF16
        .with_hidden(16_384)
        .with_experts(18)
        .with_top_k(9)
        .with_max_tokens(65_534);
    let rows = shape.with_returns(Returns::Rows);
    let small = shape.with_max_tokens(3);
    run(&Setup::adverse(2), |team| {
        let moe = Moe::new(team, "layer", rows).unwrap();
        assert!(moe.layout().slots > 2 * FAR && moe.layout().staging > 2 * FAR);
        let staging = [0, 1].map(|set| moe.combine_staging(set).unwrap().addr);
        assert!(staging[1] - staging[0] > FAR);
        let mut work = Workspace::new(&moe).unwrap();
        work.set_combine_options(CombineOptions::default().with_zero_copy(true));
        // Call 1 uses set 1, the one further away.
        for call in 1..=2 {
            let own = batch(&small, test_support::moe::MIXED, 4, call, team.rank());
            work.send(&own).unwrap();
            work.receive().unwrap();
            work.experts(expert).unwrap();
            work.send_back().unwrap();
            let got = work.receive_back().unwrap();
            work.call().check().unwrap();
            let (config, placement) = (moe.config(), &moe.placement());
            let chosen = choose(config, placement, team.rank(), &own, |_| true);
            let asked = Asked::default();
            let want = combine_asked(config, placement, &own, &chosen, |_| true, asked, expert);
            assert!(got.out == want.out, "call {call}, rank {}", team.rank());
        }
    });
}
