//! The examples of the README are files of this repository, shown whole; each of them runs here.

// UNSAFETY: launches the user kernel of the README.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytemuck::{Pod, Zeroable};
use softhca::Hca;
use test_support::limits::HANG;
use warpverbs::abi::{Status, Window};
use warpverbs::gpu::{GpuSelector, Launch};
use warpverbs::team::{MemoryStore, Store, Team, TeamConfig};
use warpverbs::verbs::{Context, DeviceSelector};

mod two_ranks {
    include!("two_ranks.rs");

    pub(crate) fn run() {
        main().unwrap();
    }
}

/// Held by tests whose ranks take the best HCA of the process: those of others would be as good.
static HCAS: Mutex<()> = Mutex::new(());

const README: &str = include_str!("../../../README.md");
const HALF: usize = 1024;

#[test]
fn the_readme_shows_the_files_that_run_here() {
    for (language, file) in [
        ("rust", include_str!("two_ranks.rs")),
        (
            "cuda",
            include_str!("../../../crates/test-support/kernels/exchange.cu"),
        ),
    ] {
        let shown = format!("```{language}\n{}```\n", file.replace("\r\n", "\n"));
        assert!(
            README.contains(&shown),
            "README.md does not show this file as it is now:\n{file}"
        );
    }
}

#[test]
fn two_ranks_dispatch_and_combine() {
    let _alone = HCAS.lock().unwrap_or_else(PoisonError::into_inner);
    let hca = Hca::new().unwrap();
    two_ranks::run();
    // Each rank has a token for an expert of the other: dispatch and combine each send a row and its signal.
    let posted = hca.counters().wqes;
    assert!(
        posted >= 2 * 4,
        "the HCA carries what ranks send: {posted} WQEs"
    );
}

/// `ExchangeParams` of the kernel.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct ExchangeParams {
    team: u64,
    window: Window,
    status: u64,
}

#[test]
fn a_kernel_of_a_user_exchanges_a_kibibyte() {
    let _alone = HCAS.lock().unwrap_or_else(PoisonError::into_inner);
    let _hca = Hca::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let received: Vec<Vec<u8>> = thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let store = Arc::clone(&store);
            scope.spawn(move || exchange(rank, store))
        });
        ranks.map(|rank| rank.join().unwrap()).into()
    });
    assert_eq!(received, [vec![2; HALF], vec![1; HALF]]);
}

/// Rank r sends bytes that are all r + 1; what it received.
fn exchange(rank: u32, store: Arc<dyn Store>) -> Vec<u8> {
    let device = Context::open(&DeviceSelector::Auto).unwrap();
    let gpu = test_support::kernels::open(GpuSelector::Simt).unwrap();
    let config = TeamConfig::new(rank, 2)
        .with_deadline(HANG)
        .with_timeout(HANG);
    let team = Team::join(config, &device, &gpu, store).unwrap();
    let window = team.window(2 * HALF as u64 + 8).unwrap();
    let status = gpu.alloc(4, 4).unwrap();
    let fill = u8::try_from(rank + 1).unwrap();
    gpu.write(window.base, &[fill; HALF]).unwrap();
    team.barrier("filled").unwrap();
    assert!(!team.is_direct(1 - rank).unwrap(), "nobody asked for it");
    let params = ExchangeParams {
        team: team.context_addr(),
        window,
        status: status.addr(),
    };
    let warp = Launch::new("exchange", 1, 32);
    // SAFETY: the parameters are the kernel's; team, window and status live until its event is done.
    let event = unsafe { gpu.launch(&warp, bytemuck::bytes_of(&params)) }.unwrap();
    gpu.wait(&event, HANG).unwrap();
    let mut ended = [0; 4];
    gpu.read(status.addr(), &mut ended).unwrap();
    assert_eq!(u32::from_ne_bytes(ended), Status::OK.0, "rank {rank}");
    let mut received = vec![0; HALF];
    gpu.read(window.base + HALF as u64, &mut received).unwrap();
    team.barrier("done").unwrap();
    received
}
