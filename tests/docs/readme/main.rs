//! The examples of the README, of kernels/README.md and of docs/kernel.md are files of this repository; each of them runs here or in `python/tests`.

// UNSAFETY: launches the kernels of these documents.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytemuck::{Pod, Zeroable};
use softhca::Hca;
use test_support::limits::HANG;
use warpverbs::abi::{Status, Window};
use warpverbs::gpu::{GpuSelector, Launch};
use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig};
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
const KERNELS: &str = include_str!("../../../kernels/README.md");
const KERNEL: &str = include_str!("../../../docs/kernel.md");
const HALF: usize = 1024;

/// The README is read to its end.
const MOST_LINES: usize = 200;

#[test]
fn the_readme_is_short() {
    let lines = README.lines().count();
    assert!(
        lines <= MOST_LINES,
        "README.md has {lines} lines, at most {MOST_LINES} are allowed: move a part to docs/"
    );
}

/// The function of `python/examples/two_ranks.py` that the README shows; `python/tests/test_package.py` runs the file.
fn python_rank() -> &'static str {
    let file = include_str!("../../../python/examples/two_ranks.py");
    let start = file.find("def rank(").expect("the function");
    let end = file.find("\n\nif __name__").expect("the main program");
    file[start..end].trim_end()
}

#[test]
fn the_documents_show_the_files_that_run_here() {
    let hello = include_str!("../../../crates/test-support/kernels/hello.cu");
    let exchange = include_str!("../../../crates/test-support/kernels/exchange.cu");
    for (document, text, language, code) in [
        ("README.md", README, "rust", include_str!("two_ranks.rs")),
        ("README.md", README, "python", python_rank()),
        ("README.md", README, "cuda", hello),
        ("kernels/README.md", KERNELS, "cuda", hello),
        ("docs/kernel.md", KERNEL, "cuda", exchange),
    ] {
        let shown = format!("```{language}\n{}\n```\n", code.trim_end());
        assert!(
            text.contains(&shown),
            "{document} does not show this code as it is now:\n{code}"
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

/// `ExchangeParams` and `HelloParams` of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    team: u64,
    window: Window,
    status: u64,
}

#[test]
fn the_kernel_of_the_readme_puts_8_bytes_to_the_next_rank() {
    let windows = on_two_ranks("hello");
    let eight = |byte| [byte; 8];
    assert_eq!(
        windows.map(|window| window[8..16].to_vec()),
        [eight(2), eight(1)]
    );
}

#[test]
fn a_kernel_of_a_user_exchanges_a_kibibyte() {
    let windows = on_two_ranks("exchange");
    let received = windows.map(|window| window[HALF..2 * HALF].to_vec());
    assert_eq!(received, [vec![2; HALF], vec![1; HALF]]);
}

/// Launches a kernel of one warp at two ranks at the same time; the windows afterwards. The first half of the window of rank r is
/// filled with r + 1.
fn on_two_ranks(kernel: &str) -> [Vec<u8>; 2] {
    let _alone = HCAS.lock().unwrap_or_else(PoisonError::into_inner);
    let _hca = Hca::new().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let store = Arc::clone(&store);
            scope.spawn(move || on_one_rank(kernel, rank, store))
        });
        ranks.map(|rank| rank.join().unwrap())
    })
}

fn on_one_rank(kernel: &str, rank: u32, store: Arc<dyn Store>) -> Vec<u8> {
    let device = Context::open(&DeviceSelector::Auto).unwrap();
    let gpu = test_support::kernels::open(GpuSelector::Simt).unwrap();
    let config = TeamConfig::new(rank, 2)
        .with_deadline(HANG)
        .with_join_timeout(HANG);
    let team = JoinOptions::new(config)
        .with_contexts([&device])
        .with_gpu(&gpu)
        .with_store(store)
        .join()
        .unwrap();
    let window = team.window(2 * HALF as u64 + 8).unwrap();
    let status = gpu.alloc(4, 4).unwrap();
    let fill = u8::try_from(rank + 1).unwrap();
    gpu.write(window.base, &[fill; HALF]).unwrap();
    team.barrier("filled").unwrap();
    assert!(!team.is_direct(1 - rank).unwrap(), "no setting asks for it");
    let params = Params {
        team: team.context_addr(),
        window,
        status: status.addr(),
    };
    let threads = if kernel == "hello" { 1 } else { 32 };
    let launch = Launch::new(kernel, 1, threads);
    // SAFETY: the parameters are the kernel's; team, window and status live until its event is done.
    let event = unsafe { gpu.launch(&launch, bytemuck::bytes_of(&params)) }.unwrap();
    gpu.wait(&event, HANG).unwrap();
    let mut ended = [0; 4];
    gpu.read(status.addr(), &mut ended).unwrap();
    assert_eq!(u32::from_ne_bytes(ended), Status::OK.0, "rank {rank}");
    team.barrier("done").unwrap();
    let mut bytes = vec![0; 2 * HALF];
    gpu.read(window.base, &mut bytes).unwrap();
    bytes
}
