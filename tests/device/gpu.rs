//! What only a CUDA GPU can show: `cargo test --test gpu -- --ignored` on a machine that has one, or `./x gpu`, which packs
//! this program for one. Kernels against the software HCA are in tests/verbs/put.rs and its like, which run on a GPU with
//! WARPVERBS_TEST_GPU.
#![cfg(feature = "cuda")]
// UNSAFETY: launches a kernel.
#![expect(unsafe_code, reason = "launch of a kernel on memory of the test")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use warpverbs::gpu::cuda::{Compile, CudaGpu, CudaOptions, CudaSource, MemoryLocation};
use warpverbs::gpu::{CopyPiece, DeviceMemory, Event, Gpu, GpuError, Launch, Stream};

fn gpu() -> Arc<CudaGpu> {
    CudaGpu::open(0).expect("CUDA device 0")
}

#[test]
#[ignore = "needs a GPU"]
fn every_kernel_of_the_checked_in_ptx_loads() {
    let gpu = gpu();
    println!("{}: {:?}", gpu.label(), gpu.kernels().collect::<Vec<_>>());
    assert!(gpu.kernels().count() > 0);
}

#[test]
#[ignore = "needs a GPU"]
fn device_memory_is_zero_aligned_bounded_and_reads_back() {
    let gpu = gpu();
    // Longer than the pinned buffer, and no multiple of it.
    let memory = gpu.alloc((3 << 20) + 7, 2 << 20).unwrap();
    assert!(memory.addr().is_multiple_of(2 << 20));
    let mut out = vec![1; memory.bytes()];
    gpu.read(memory.addr(), &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == 0));
    let bytes: Vec<u8> = (0..=255).cycle().take(memory.bytes()).collect();
    gpu.write(memory.addr(), &bytes).unwrap();
    gpu.read(memory.addr(), &mut out).unwrap();
    assert!(out == bytes);
    let outside = gpu.write(memory.addr() + 1, &bytes).unwrap_err();
    assert!(matches!(outside, GpuError::BadRange { .. }), "{outside}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_register_page_is_registered_once_for_all_its_users() {
    let gpu = gpu();
    // An ordinary page, like those of the software HCA.
    let page = vec![0u8; 2 * 4096];
    let start = page
        .as_ptr()
        .cast_mut()
        .map_addr(|addr| addr.next_multiple_of(4096));
    let first = gpu.map_mmio(start.wrapping_add(0x800), 8).unwrap();
    let second = gpu.map_mmio(start.wrapping_add(0xa00), 8).unwrap();
    assert_eq!(second.addr() - first.addr(), 0x200);
    drop(first);
    drop(second);
    gpu.map_mmio(start.wrapping_add(0x800), 8).unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn host_mapped_words_have_an_address_on_the_device() {
    let host = gpu().map_host(4096).unwrap();
    host.u64_at(8).store(7, SeqCst);
    assert_ne!(host.addr(), 0);
    assert_eq!(host.u32_at(8).load(SeqCst), 7);
}

/// By their names. On a GPU without a compiler the refusal says how to get it, and the test counts as skipped.
#[test]
#[ignore = "needs a GPU"]
fn kernels_from_nvrtc_are_those_of_the_ptx() {
    let options = CudaOptions::default().with_compile(Compile::Nvrtc);
    match CudaGpu::with_options(0, &options) {
        Ok(compiled) => {
            let names: Vec<_> = compiled.kernels().collect();
            assert_eq!(names, gpu().kernels().collect::<Vec<_>>());
        }
        Err(error @ GpuError::Compile { .. }) => {
            assert!(error.to_string().contains("WARPVERBS_NVRTC"), "{error}");
            println!("skipped: kernels through NVRTC: {error}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// PTX by hand: stores 42 where its parameter points to.
const STORE: CudaSource<'_> = CudaSource {
    name: "store.ptx",
    text: ".version 7.0\n.target sm_80\n.address_size 64\n\
        .visible .entry store(\n.param .u64 where\n)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n\
        ld.param.u64 %a, [where];\nmov.u32 %v, 42;\nst.global.u32 [%a], %v;\nret;\n}\n",
};

#[test]
#[ignore = "needs a GPU"]
fn a_kernel_of_a_user_runs_on_device_and_on_host_memory() {
    for location in [MemoryLocation::Device, MemoryLocation::Host] {
        let options = CudaOptions::default()
            .with_location(location)
            .with_ptx(&[STORE]);
        let gpu = CudaGpu::with_options(0, &options).unwrap();
        let word = gpu.alloc(4, 4096).unwrap();
        // SAFETY: the kernel takes one address, of a word that lives to the end of the turn.
        let event = unsafe { gpu.launch(&Launch::new("store", 1, 1), &word.addr().to_ne_bytes()) };
        gpu.wait(&event.unwrap(), Duration::from_secs(10)).unwrap();
        let mut out = [0; 4];
        gpu.read(word.addr(), &mut out).unwrap();
        assert_eq!(u32::from_ne_bytes(out), 42, "{location:?}");
    }
}

/// PTX by hand: multiplies the number that its parameter points to by 3 and adds 1, so that order and number of launches show.
const STEP: CudaSource<'_> = CudaSource {
    name: "step.ptx",
    text: ".version 7.0\n.target sm_80\n.address_size 64\n\
        .visible .entry step(\n.param .u64 where\n)\n{\n.reg .b64 %a;\n.reg .b32 %v;\n\
        ld.param.u64 %a, [where];\nld.global.u32 %v, [%a];\nmad.lo.u32 %v, %v, 3, 1;\n\
        st.global.u32 [%a], %v;\nret;\n}\n",
};

/// A device with the kernels `step` (v = 3v + 1) and `store` (v = 42), and one number on it.
struct Steps {
    gpu: Arc<CudaGpu>,
    word: DeviceMemory,
}

impl Steps {
    fn new() -> Self {
        let gpu = CudaGpu::with_ptx(0, &[STEP, STORE]).unwrap();
        let word = gpu.alloc(4, 4).unwrap();
        Self { gpu, word }
    }

    fn launch(&self, kernel: &str, stream: &Stream) -> Event {
        let launch = Launch::new(kernel, 1, 1).with_stream(Some(stream));
        // SAFETY: both kernels take one address, of a word that lives as long as `self`, which outlives every event.
        unsafe { self.gpu.launch(&launch, &self.word.addr().to_ne_bytes()) }.unwrap()
    }

    fn set(&self, value: u32) {
        let bytes = value.to_ne_bytes();
        self.gpu.write(self.word.addr(), &bytes).unwrap();
    }

    fn get(&self) -> u32 {
        let mut out = [0; 4];
        self.gpu.read(self.word.addr(), &mut out).unwrap();
        u32::from_ne_bytes(out)
    }
}

#[test]
#[ignore = "needs a GPU"]
fn streams_run_in_order_and_wait_for_events_of_others() {
    let steps = Steps::new();
    let (a, b) = (steps.gpu.stream().unwrap(), steps.gpu.stream().unwrap());
    for round in 0..100 {
        steps.set(round);
        let event = steps.launch("store", &a);
        b.wait(&event).unwrap();
        let event = steps.launch("step", &b);
        a.wait(&event).unwrap();
        steps.launch("step", &a);
        a.record().unwrap().wait(Duration::from_secs(10)).unwrap();
        assert_eq!(steps.get(), (42 * 3 + 1) * 3 + 1, "round {round}");
    }
    // SAFETY: null is the default stream of CUDA.
    let legacy = unsafe { steps.gpu.wrap_stream(std::ptr::null_mut()) }.unwrap();
    let event = steps.launch("store", &legacy);
    event.wait(Duration::from_secs(10)).unwrap();
    assert_eq!(steps.get(), 42);
}

#[test]
#[ignore = "needs a GPU"]
fn a_captured_graph_runs_as_often_as_it_is_launched() {
    let steps = Steps::new();
    let (a, b) = (steps.gpu.stream().unwrap(), steps.gpu.stream().unwrap());
    steps.set(7);
    a.begin_capture().unwrap();
    let again = a.begin_capture().unwrap_err();
    assert!(matches!(again, GpuError::Capture { .. }), "{again}");
    let first = steps.launch("step", &a);
    let captured = first.wait(Duration::from_secs(1)).unwrap_err();
    assert!(matches!(captured, GpuError::Captured { .. }), "{captured}");
    b.wait(&first).unwrap();
    let second = steps.launch("step", &b);
    a.wait(&second).unwrap();
    steps.launch("step", &a);
    // Memory may come and go during a capture.
    drop(steps.gpu.alloc(1 << 16, 256).unwrap());
    let graph = a.end_capture().unwrap();
    assert_eq!((graph.len(), steps.get()), (3, 7), "nothing has run yet");
    let mut want = 7u32;
    for stream in [&a, &b, &steps.gpu.default_stream(), &a] {
        for _ in 0..5 {
            // SAFETY: the word lives until the end of the test, which waits.
            let event = unsafe { graph.launch(stream) }.unwrap();
            event.wait(Duration::from_secs(10)).unwrap();
            for _ in 0..3 {
                want = want.wrapping_mul(3).wrapping_add(1);
            }
        }
        assert_eq!(steps.get(), want);
    }
    let none = a.end_capture().unwrap_err();
    assert!(matches!(none, GpuError::Capture { .. }), "{none}");
}

#[test]
#[ignore = "needs a GPU"]
fn a_capture_with_an_open_branch_is_refused_and_streams_work_again() {
    let steps = Steps::new();
    let (a, b) = (steps.gpu.stream().unwrap(), steps.gpu.stream().unwrap());
    a.begin_capture().unwrap();
    b.wait(&steps.launch("step", &a)).unwrap();
    steps.launch("step", &b);
    let error = a.end_capture().unwrap_err();
    assert!(matches!(error, GpuError::Capture { .. }), "{error}");
    for stream in [&a, &b] {
        let event = steps.launch("store", stream);
        event.wait(Duration::from_secs(10)).unwrap();
    }
    assert_eq!(steps.get(), 42);
}

#[test]
#[ignore = "needs a GPU"]
fn the_device_says_how_a_peer_reaches_its_memory() {
    let gpu = gpu();
    let support = gpu.rdma().unwrap();
    println!("{}: {support:?}", gpu.label());
    let memory = gpu.alloc(1 << 20, 2 << 20).unwrap();
    let exported = memory.dmabufs();
    println!("{exported:?}");
    if !support.dmabuf {
        assert!(exported.unwrap().is_empty());
    }
    let odd = gpu.alloc(8192, 256).unwrap().dmabufs().unwrap();
    assert!(odd.is_empty(), "it need not begin at a page: {odd:?}");
}

#[test]
#[ignore = "needs a GPU"]
fn memory_that_is_lent_to_hcas_has_a_number_and_its_place_in_a_page() {
    let gpu = gpu();
    let memory = gpu.alloc(1 << 20, 2 << 20).unwrap();
    for skip in [0, 256, 8192 + 512] {
        // SAFETY: `memory` lives longer, and no reference to it exists.
        let lent = unsafe { gpu.lend_memory(memory.addr() + skip, 4096) }.unwrap();
        let dmabufs = lent.dmabufs();
        println!("{skip}: {dmabufs:?}");
        let dmabufs = dmabufs.into_iter().flatten();
        dmabufs.for_each(|it| assert_eq!(it.offset, skip % 4096));
    }
    let number = |addr| gpu.buffer_id(addr).unwrap();
    let (addr, known) = (memory.addr(), number(memory.addr()));
    assert!(known.is_some() && known == number(addr + 9000));
    assert_eq!(number(64), None);
    drop(memory);
    let other = gpu.alloc(1 << 20, 2 << 20).unwrap();
    println!(
        "{addr:#x} was {known:?}, {:#x} is {:?}",
        other.addr(),
        number(other.addr())
    );
    assert_ne!(number(other.addr()), known);
    let flushed = gpu.flush_writes();
    println!("{flushed:?}");
    assert!(flushed.is_ok() || !gpu.rdma().unwrap().flush_by_host);
}

/// The argument of the other process of a test: location, and a handle to store to; or none, and it prints one of its own.
const OTHER: &str = "WV_TEST_OTHER_PROCESS";

fn shared_gpu(location: MemoryLocation) -> Arc<CudaGpu> {
    let options = CudaOptions::default()
        .with_location(location)
        .with_ptx(&[STORE]);
    CudaGpu::with_options(0, &options).unwrap()
}

fn location_of(word: &str) -> MemoryLocation {
    match word {
        "host" => MemoryLocation::Host,
        _ => MemoryLocation::Device,
    }
}

/// Returns what the other process has printed.
fn other_process(told: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env(OTHER, told)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}{errors}");
    text
}

#[test]
#[ignore = "is started by the test below"]
fn the_other_process() {
    let told = std::env::var(OTHER).expect("the test below starts this");
    let (location, handle) = told.split_once(' ').unwrap();
    let gpu = shared_gpu(location_of(location));
    if handle.is_empty() {
        let memory = gpu.alloc_shared(4096, 128).unwrap();
        let handle = memory.handle().unwrap().unwrap();
        println!("told: {}", serde_json::to_string(&handle).unwrap());
        return;
    }
    let opened = gpu.open_memory(&serde_json::from_str(handle).unwrap());
    let opened = opened.unwrap();
    let launch = Launch::new("store", 1, 1);
    // SAFETY: the kernel stores one word where the memory lies, which stays open until it has ended.
    let event = unsafe { gpu.launch(&launch, &(opened.addr() + 8).to_ne_bytes()) }.unwrap();
    gpu.wait(&event, Duration::from_secs(20)).unwrap();
    // Pages of which the driver knows nothing.
    let bytes = copied();
    copy(&*gpu, opened.addr() + 4096, bytes.as_ptr().addr() as u64);
}

/// Returns what is copied.
fn copied() -> Vec<u8> {
    (0..=250).cycle().take(200_000).collect()
}

/// Copies as many bytes.
fn copy(gpu: &dyn Gpu, to: u64, from: u64) {
    let bytes = copied().len() as u64;
    let half = bytes / 2 + 1;
    let piece = |at: u64, bytes| CopyPiece {
        to: to + at,
        from: from + at,
        bytes,
    };
    // SAFETY: the caller's memory has the bytes at both ends.
    unsafe { gpu.copy(&[piece(0, half), piece(half, bytes - half)]) }.unwrap();
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_copies_between_its_memory_and_pages_of_the_host() {
    let gpu = gpu();
    let memories = [(); 2].map(|()| gpu.alloc(1 << 20, 128).unwrap());
    let bytes = copied();
    let mut back = vec![0_u8; bytes.len()];
    copy(&*gpu, memories[0].addr() + 3, bytes.as_ptr().addr() as u64);
    copy(&*gpu, memories[1].addr() + 70_001, memories[0].addr() + 3);
    copy(
        &*gpu,
        back.as_mut_ptr().addr() as u64,
        memories[1].addr() + 70_001,
    );
    assert!(back == bytes);
    assert_eq!(gpu.copies_within(), Some("cuda"));
}

#[test]
#[ignore = "needs a GPU"]
fn another_process_stores_into_shared_memory_and_a_dead_one_shares_none() {
    for location in ["device", "host"] {
        let gpu = shared_gpu(location_of(location));
        let memory = gpu.alloc_shared(1 << 20, 128).unwrap();
        let handle = memory.handle().unwrap().unwrap();
        other_process(&format!(
            "{location} {}",
            serde_json::to_string(&handle).unwrap()
        ));
        let mut out = [0; 16];
        gpu.read(memory.addr(), &mut out).unwrap();
        assert_eq!(out[..8], [0; 8], "{location}");
        assert_eq!(out[8..12], 42_u32.to_ne_bytes(), "{location}");
        let mut bytes = copied();
        gpu.read(memory.addr() + 4096, &mut bytes).unwrap();
        assert!(bytes == copied(), "{location}");
        let told = other_process(&format!("{location} "));
        let (_, stale) = told.split_once("told: ").unwrap();
        let stale = serde_json::from_str(stale.lines().next().unwrap()).unwrap();
        let error = gpu.open_memory(&stale).unwrap_err();
        assert!(
            matches!(error, GpuError::NotOpened { .. }),
            "{location}: {error}"
        );
    }
}
