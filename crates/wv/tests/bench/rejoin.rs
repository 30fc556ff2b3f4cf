//! What it costs the others that a rank comes back, as `wv bench rejoin` counts it.

use softhca::HcaConfig;
use warpverbs_bench::ranks::rejoin::{self, RejoinCase};

use test_support::ranks;

#[test]
fn the_measurement_of_a_return_counts_the_same() {
    let hcas = ranks::hcas(4, &HcaConfig::default());
    let devices: Vec<String> = hcas.iter().map(|hca| hca.name().to_owned()).collect();
    let case = RejoinCase {
        ranks: 4,
        qps_per_peer: 4,
        rounds: 2,
    };
    let rows = rejoin::measure(&case, &devices).unwrap();
    let [replace, rebuild] = &rows[..] else {
        panic!("{rows:?}");
    };
    // Three windows, of which one is of no peer: four commands for keys.
    assert_eq!(
        (replace.commands, replace.bytes),
        (5 * 4 + 8, 0),
        "{rows:?}"
    );
    assert!(rebuild.commands > 3 * replace.commands, "{rows:?}");
    assert!(
        replace.stall_ms == 0.0 && rebuild.stall_ms > 0.0,
        "{rows:?}"
    );
    let report = rejoin::RejoinReport {
        ran_on: "softhca+simt",
        rows,
    };
    println!("{report}");
    ranks::check(&hcas);
}
