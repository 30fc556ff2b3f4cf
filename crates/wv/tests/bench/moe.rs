//! What a step puts on the wire, counted by the HCAs and by the QPs, against what it needs.

use std::fs;
use std::process::Command;

use softhca::{HcaConfig, device};
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::moe::MoeConfig;
use warpverbs::verbs::{Context, DeviceSelector};

use warpverbs_bench::ranks::moe::bandwidth::{self, BandwidthCase};
use warpverbs_bench::ranks::moe::{
    HcaCounts, MoeCase, MoeReport, MoeRow, Routing, lower_bound, measure,
};

use test_support::ranks;

/// Returns what the HCA named so has counted.
fn read(hca: &str) -> Option<HcaCounts> {
    let counters = device::counters(hca)?;
    Some(HcaCounts {
        wqes: counters.wqes,
        doorbells: counters.doorbells,
        signals: counters.inline_write_requests + counters.atomic_requests,
        bytes: counters.bytes_sent,
    })
}

fn counted(size: u32, tokens: u32, routing: Routing) -> (MoeCase, Vec<MoeRow>) {
    let case = MoeCase {
        ranks: size,
        config: MoeConfig::BF16
            .with_hidden(7168)
            .with_experts(256)
            .with_top_k(8)
            .with_max_tokens(tokens),
        routing,
        seed: 1,
    };
    let hcas = ranks::hcas(size as usize, &HcaConfig::default());
    let names: Vec<String> = hcas.iter().map(|hca| hca.name().to_owned()).collect();
    let rows = measure(&case, &names, &read).unwrap();
    ranks::check(&hcas);
    (case, rows)
}

#[test]
fn eight_ranks_post_one_row_per_token_and_rank_and_one_signal_per_peer() {
    for routing in [Routing::Uniform, Routing::Grouped] {
        let (case, rows) = counted(8, 12, routing);
        let [dispatch, combine] = &rows[..] else {
            panic!("{rows:?}")
        };
        let (tokens, peers) = (lower_bound(&case, false) / 14_336, 8 * 7);
        assert_eq!(dispatch.counted.signals, peers, "{case}");
        assert_eq!(dispatch.counted.wqes, tokens + peers, "{case}");
        // At most 12 rows for a peer: they share one doorbell with their signal.
        assert_eq!(dispatch.counted.doorbells, peers, "{case}");
        assert_eq!(combine.counted.signals, peers, "{case}");
        assert!(combine.counted.wqes <= 2 * peers, "{case}: {combine:?}");
        assert_eq!(combine.counted.doorbells, peers, "{case}");
        let report = MoeReport::new(rows);
        assert_eq!(report.objections, Vec::<String>::new(), "{report}");
    }
}

#[test]
fn the_hcas_that_a_case_lacks_are_asked_for() {
    let case = MoeCase {
        ranks: 2,
        config: MoeConfig::BF16
            .with_hidden(8)
            .with_experts(2)
            .with_top_k(1)
            .with_max_tokens(1),
        routing: Routing::Uniform,
        seed: 1,
    };
    let error = measure(&case, &["one".to_owned()], &read).unwrap_err();
    assert_eq!(
        error.to_string(),
        "number of HCAs is 1; it must be 2 or more, one for each rank"
    );
}

#[test]
fn the_kernels_of_one_rank_run_alone_in_both_formats_without_simt_figures() {
    let hcas = ranks::hcas(1, &HcaConfig::default());
    let case = BandwidthCase {
        tokens: 5,
        hidden: 256,
        experts: 4,
        top_k: 2,
        calls: 2,
    };
    let context = Context::open(&DeviceSelector::Name(hcas[0].name().to_owned())).unwrap();
    let gpu = gpu::open(GpuSelector::Simt).unwrap();
    let found = bandwidth::measure(&case, &context, &gpu).unwrap();
    let bytes: Vec<u64> = found.rows.iter().map(|row| row.bytes).collect();
    // BF16 has 512 bytes; FP8 256, and two scales.
    let (bf16, fp8) = (512, 256 + 8);
    let want = [
        [bf16 + bf16, 3 * bf16, 3 * bf16, 2 * bf16],
        [bf16 + fp8, 3 * fp8, 3 * bf16, 2 * bf16],
    ];
    assert_eq!(
        bytes,
        want.concat()
            .iter()
            .map(|bytes| 5 * bytes)
            .collect::<Vec<u64>>()
    );
    assert!(found.rows.iter().all(|row| row.seconds.is_none()));
    assert!(found.to_string().contains("simt is no hardware"), "{found}");
    drop((context, gpu));
    ranks::check(&hcas);
}

#[test]
fn the_command_runs_the_kernels_of_one_rank_alone_in_device_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let json = scratch.path().join("alone.json");
    let output = Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "moe", "--alone", "--gpu", "simt", "--json"])
        .arg(&json)
        .env("XDG_RUNTIME_DIR", scratch.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{output:?}");
    assert!(!text.contains("counts of one rank"), "{text}");
    assert!(text.contains("windows by address"), "{text}");
    let found: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(found["ran_on"], "simt");
    assert_eq!(found["rows"], serde_json::json!([]));
    assert_eq!(found["bandwidth"][0]["windows"], "by address");
    assert_eq!(found["bandwidth"][0]["rows"].as_array().unwrap().len(), 8);
}
