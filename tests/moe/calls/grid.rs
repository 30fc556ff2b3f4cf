//! The grid of the kernels: how often its blocks wait for each other, and that one which does not fit is refused.

use std::sync::Arc;

use softhca::Hca;
use test_support::moe::{Call, Hcas, MIXED, Setup, on_threads};
use test_support::ranks::{Meeting, contexts};
use warpverbs::gpu::Gpu;
use warpverbs::gpu::simt::{SimtGpu, SimtOptions};
use warpverbs::moe::{Grid, Moe, MoeConfig, MoeError, Returns};
use warpverbs::team::{JoinOptions, Store, Team, TeamConfig};

const SMALL: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(8)
    .with_top_k(2)
    .with_max_tokens(40);

/// Joins with kernels on `gpu`.
fn join(
    config: TeamConfig,
    own: &[Arc<Hca>],
    gpu: &Arc<SimtGpu>,
    store: Arc<dyn Store>,
) -> Arc<Team> {
    let contexts = contexts(own.iter().map(Arc::as_ref)).unwrap();
    let gpu: Arc<dyn Gpu> = Arc::<SimtGpu>::clone(gpu);
    JoinOptions::new(config)
        .with_contexts(&contexts)
        .with_gpu(&gpu)
        .with_store(store)
        .join()
        .unwrap()
}

/// Barriers of the grid of one launch of each phase, where all goes well: dispatch send and receive, combine send and receive.
fn barriers(setup: &Setup, config: MoeConfig) -> Vec<[u64; 4]> {
    let hcas = Hcas::new(setup);
    let end = Meeting::new(setup.team.ranks);
    let found = on_threads(setup, &hcas, |rank, own, store| {
        let _attendance = end.attend();
        let gpu = SimtGpu::open().unwrap();
        let team = join(setup.of_rank(rank), own, &gpu, store);
        let moe = Moe::new(&team, "layer", config).unwrap();
        let mut call = Call::new(&moe);
        for number in 1..=2 {
            call.send(MIXED, 5, number);
            call.receive();
            call.send_back();
            call.receive_back();
        }
        end.wait();
        let counts = gpu.counts();
        [
            "wv_moe_dispatch_send",
            "wv_moe_dispatch_receive",
            "wv_moe_combine_send",
            "wv_moe_combine_receive",
        ]
        .map(|kernel| {
            let counts = counts[kernel];
            assert_eq!(counts.launches, 2, "{kernel}");
            assert_eq!(counts.grid_syncs % 2, 0, "{kernel}: {counts:?}");
            counts.grid_syncs / 2
        })
    });
    hcas.check();
    found
}

#[test]
fn the_blocks_of_a_phase_meet_as_often_as_docs_say() {
    let setup = Setup::new(2);
    let rows = SMALL.with_returns(Returns::Rows);
    let narrow = SMALL.with_grid(Some(Grid {
        blocks: 3,
        threads: 32,
    }));
    for config in [SMALL, rows, narrow] {
        assert_eq!(barriers(&setup, config), [[2, 3, 2, 1]; 2]);
    }
}

#[test]
fn a_grid_that_does_not_fit_beside_other_ranks_is_refused_by_name() {
    let setup = Setup::new(5);
    let hcas = Hcas::new(&setup);
    let end = Meeting::new(5);
    let errors = on_threads(&setup, &hcas, |rank, own, store| {
        let _attendance = end.attend();
        let options = SimtOptions::default().with_resident_blocks(Some(4));
        let gpu = SimtGpu::with_options(&options).unwrap();
        let team = join(setup.of_rank(rank), own, &gpu, store);
        let error = Moe::new(&team, "layer", SMALL).unwrap_err();
        // All five ranks share the device until each has been refused.
        end.wait();
        error
    });
    hcas.check();
    let refused = |error: &MoeError| matches!(error, MoeError::Grid { .. });
    assert!(errors.iter().any(refused), "{errors:?}");
    for error in errors {
        // A rank that was refused says so to the others, which may hear of that before they look themselves.
        assert!(error.to_string().contains("do not fit"), "{error}");
        let MoeError::Grid {
            blocks,
            resident,
            ranks,
            each,
            ..
        } = &error
        else {
            continue;
        };
        assert_eq!((*blocks, *resident, *each), (1, 4, 0), "{error}");
        // Teams of other tests of this process may live on the device too.
        assert!(*ranks >= 5, "{error}");
    }
}
