//! Kernels that are started and stopped, one after the other in this process: ends, refusals, and kernels and posters that are wrong
//! on purpose.

use std::env;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuhca::{Gpuhca, GpuhcaError, Options};
use softhca::device::Execution;
use test_support::abi::conformance as abi;
use test_support::abi::conformance::ConformanceParams;
use test_support::abi::kernels::PutItem;
use test_support::bench::{Bench, HALF, SIGNALS};
use test_support::device::{launch, test_gpu};
use test_support::external::{linked_softhca, start};
use test_support::limits::until;
use test_support::pair::Pair;
use test_support::table::{Cell, Scope};
use warpverbs::abi::Status;
use warpverbs::verbs::{Doorbell, QpConfig};

/// One kernel at a time is attached in a process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair(words: usize) -> Pair {
    Pair::external(words, &QpConfig::default().with_log_depth(8))
}

fn short(pair: &Pair, count: u32) -> Vec<(Status, u32)> {
    let mut params = pair.params(count, 1);
    params.deadline_ns = 300_000_000;
    pair.run("wv_test_put_words", 8, 1, &params)
}

#[test]
fn a_stop_midway_ends_every_wait_by_its_deadline_and_a_new_kernel_works() {
    let _turn = turn();
    let hca = start(|options| options);
    let first = pair(8 * 4);
    assert_eq!(short(&first, 4), [(Status::OK, 4); 8]);
    hca.stop().unwrap();
    let ends = short(&first, 4);
    assert!(
        ends.iter().all(|end| *end == (Status::TIMEOUT, 0)),
        "{ends:?}"
    );
    // Commands that end objects work without a kernel.
    drop(first);
    let hca = start(|options| options);
    let second = pair(8 * 4);
    assert_eq!(short(&second, 4), [(Status::OK, 4); 8]);
    assert_eq!(second.wrong_words(), [0; 0]);
    drop(second);
    hca.stop().unwrap();
}

#[test]
fn the_deadline_ends_the_kernel() {
    let _turn = turn();
    let hca = start(|options| options.with_deadline(Duration::from_millis(20)));
    until("the kernel has ended", || !hca.is_running());
    hca.stop().unwrap();
}

#[test]
fn a_second_kernel_in_a_process_and_options_out_of_range_are_refused() {
    let _turn = turn();
    let hca = start(|options| options);
    let again = |change: fn(Options) -> Options| {
        let gpu = test_gpu();
        let options = change(Options::on(gpu.as_ref()));
        Gpuhca::start(gpu, linked_softhca(), &options)
            .unwrap_err()
            .to_string()
    };
    let busy = again(|options| options);
    assert!(busy.contains("softhca does not take gpuhca"), "{busy}");
    let blocks = again(|options| options.with_blocks(0));
    assert_eq!(blocks, "blocks is 0; it must be 1 to 1024");
    assert!(again(|options| options.with_blocks(1025)).contains("1025"));
    assert_eq!(hca.label(), "gpuhca+simt");
    hca.stop().unwrap();
}

#[test]
fn a_doorbell_that_is_the_beginning_of_a_wqe_runs_up_to_its_end() {
    let _turn = turn();
    let hca = start(|options| options);
    let config = QpConfig::default()
        .with_log_depth(8)
        .with_doorbell(Doorbell::NoRecord);
    let pair = Pair::external(8 * 4, &config);
    assert_eq!(short(&pair, 1), [(Status::OK, 1); 8]);
    let qp = pair.context();
    let slot = |index: u64| qp.sq.addr() + (index & u64::from(qp.mask)) * 64;
    // The last WQE once more, under the next index, after its word has gone at the peer.
    let mut wqe: Vec<u8> = pair.ends[0].read(slot(qp.resv - 1), 64);
    let index = u16::try_from(qp.resv & 0xffff).unwrap();
    wqe[1..3].copy_from_slice(&index.to_be_bytes());
    pair.ends[0].write_at(slot(qp.resv), &wqe);
    let there = u64::from_be_bytes(wqe[16..24].try_into().unwrap());
    let word = || pair.ends[1].read::<u64>(there, 1)[0];
    let put = word();
    assert_ne!(put, 0, "a word was put");
    pair.ends[1].write_at(there, &[0; 8]);
    assert_ne!(wqe[7] & 0x3f, 0, "the WQE has a length");
    pair.ring(u64::from_le_bytes(wqe[..8].try_into().unwrap()));
    until("the word is there again", || word() == put);
    assert_eq!(pair.ends[0].hca.counters().wqes, qp.resv + 1);
    assert_eq!(pair.findings(), [""; 0]);
    drop(pair);
    hca.stop().unwrap();
}

/// What a process of its own is to do.
const TASK: &str = "GPUHCA_TEST_CLAIM";

#[test]
fn of_two_processes_that_ask_for_the_same_gpuhca_the_second_is_refused() {
    let _turn = turn();
    let claim = |name: &str| {
        let gpu = test_gpu();
        let options = Options::on(gpu.as_ref()).with_name(name);
        Gpuhca::start(gpu, linked_softhca(), &options)
    };
    if let Ok(name) = env::var(TASK) {
        match claim(&name) {
            Err(GpuhcaError::Claimed { name: claimed }) => println!("refused: {claimed}"),
            other => println!("{other:?}"),
        }
        return;
    }
    let name = format!("test-{}", std::process::id());
    let hca = claim(&name).unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "of_two_processes_that_ask_for_the_same_gpuhca_the_second_is_refused",
            "--nocapture",
        ])
        .env(TASK, &name)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains(&format!("refused: {name}")),
        "{text}"
    );
    hca.stop().unwrap();
    claim(&name).unwrap().stop().unwrap();
}

/// Returns what shows that this poster breaks the protocol; nothing if nothing does.
fn symptoms(kernel: &str, seed: u64) -> Vec<String> {
    let pair = pair(8 * 300);
    // The HCA sleeps until the ring is full, which is when a slot can be taken too early.
    pair.ends[0].hca.pause(Duration::from_secs(600));
    let mut params = pair.params(300, 0);
    params.deadline_ns = 1_000_000_000;
    let event = pair.ends[0].start(&launch(kernel, 1, 8, seed), &params);
    until("the ring is full", || {
        pair.context().resv >= 256 || event.is_done()
    });
    pair.ends[0].hca.pause(Duration::ZERO);
    let ends = pair.ends[0].finish(&event, 8);
    let mut found = pair.findings();
    let wrong = pair.wrong_words();
    if !wrong.is_empty() {
        found.push(format!("{} words did not arrive", wrong.len()));
    }
    let bad = ends.iter().filter(|end| end.0 != Status::OK);
    found.extend(bad.map(|end| format!("a thread ended with {}", end.0)));
    found
}

#[test]
fn posters_that_publish_too_early_or_use_a_slot_too_early_are_caught() {
    let _turn = turn();
    let hca = start(|options| options);
    for kernel in ["wv_test_mutant_publish_first", "wv_test_mutant_early_reuse"] {
        let caught = (0..20).map(|seed| (seed, symptoms(kernel, seed)));
        let caught = caught.into_iter().find(|(_, found)| !found.is_empty());
        let (seed, found) = caught.unwrap_or_else(|| panic!("no seed shows {kernel}"));
        println!("{kernel}, seed {seed}: {:?}", &found[..found.len().min(3)]);
    }
    hca.stop().unwrap();
}

/// Puts 4 KiB, and a signal after them if `at_signal`; whether bytes are missing when the signal has come, or when the put is
/// complete.
fn told_too_early(bench: &Bench, at_signal: bool) -> bool {
    const BYTES: u64 = 4096;
    bench.clear();
    let item = PutItem {
        src_offset: 0,
        dst_offset: HALF,
        bytes: BYTES,
    };
    let params = ConformanceParams {
        operation: if at_signal {
            abi::CONFORMANCE_PUT_SIGNAL
        } else {
            abi::CONFORMANCE_PUT
        },
        end: abi::CONFORMANCE_END_WAIT,
        ..bench.params(0, &[item])
    };
    let event = bench.start(0, &bench.cell.kernel(), bench.cell.solo(), &params);
    if at_signal {
        until("the signal has come", || {
            bench.bytes(1, SIGNALS, 8) != [0; 8]
        });
    } else {
        bench.pair.ends[0].wait(&event);
    }
    let missing = bench.bytes(1, HALF, BYTES) != bench.bytes(0, 0, BYTES);
    bench.pair.ends[0].wait(&event);
    missing
}

#[test]
fn an_hca_that_signals_or_completes_before_the_data_is_there_is_caught() {
    let _turn = turn();
    let config = QpConfig::default()
        .with_log_depth(8)
        .with_log_recv_depth(Some(6));
    let plain = |cell: &Cell| cell.scope == Scope::Thread && cell.config() == config;
    let cell = Cell::all()
        .into_iter()
        .find(plain)
        .expect("a row of threads on a shared QP");
    for (kernel, at_signal, wrong) in [
        ("gpuhca_serve", true, false),
        ("gpuhca_serve", false, false),
        ("gpuhca_data_late", true, true),
        ("gpuhca_completes_early", false, true),
    ] {
        let hca = start(|options| options.with_kernel(kernel));
        let bench = Bench::on(Execution::External, cell, 1, 0, 7);
        let caught = (0..20).any(|_| told_too_early(&bench, at_signal));
        assert_eq!(caught, wrong, "{kernel}");
        drop(bench);
        hca.stop().unwrap();
    }
}
