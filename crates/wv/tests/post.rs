//! `wv bench post` where kernels run: `./x gpu` packs this program for a machine with a GPU.

use std::time::Duration;

use warpverbs::gpu::{GpuSelector, RdmaSupport, open};
use warpverbs_bench::device::post::{PostOptions, all_cases, measure};

/// On whatever `./x gpu` found: the sink looks at every WQE that was rung for.
#[test]
fn posting_is_whole_and_in_order_where_kernels_run() {
    let name = std::env::var("WARPVERBS_TEST_GPU").unwrap_or_else(|_| "simt".to_owned());
    let gpu = open(name.parse::<GpuSelector>().unwrap()).unwrap();
    let simt = gpu.label() == "simt";
    if simt {
        assert_eq!(gpu.rdma().unwrap(), RdmaSupport::HOST);
    }
    let options = PostOptions {
        calls: if simt { 40 } else { 20_000 },
        depth: 256,
        bytes: 8,
        signal_every: 8,
        host_doorbell: true,
        check: true,
        deadline: Duration::from_secs(60),
    };
    let blocks = if simt { &[2][..] } else { &[1, 7, 64] };
    measure(&gpu, &options, &all_cases(blocks)).unwrap();
}
