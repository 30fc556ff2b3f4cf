//! Memory, and what other processes and HCAs are shown of it.

use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use cudarc::driver::sys;
use test_support::limits::HANG;
use warpverbs::gpu::cuda::{CudaGpu, CudaOptions, MemoryLocation};
use warpverbs::gpu::{CopyPiece, Gpu, GpuError};

use super::{fake, gpu, says};

#[test]
fn device_memory_is_zero_aligned_bounded_and_reads_back() {
    // As a driver may: allocations that begin at no page.
    fake("bases 256").run(|_| {
        let gpu = gpu();
        for align in [1, 256, 4096, 2 << 20] {
            // Longer than the pinned buffer, and no multiple of it.
            let memory = gpu.alloc((3 << 20) + 7, align).unwrap();
            assert!(memory.addr().is_multiple_of(align as u64));
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
    });
}

#[test]
fn too_little_memory_names_what_was_asked_for_and_what_is_free() {
    fake("name a fake\nmemory 1048576").run(|_| {
        let gpu = gpu();
        let _taken = gpu.alloc(65_536, 64).unwrap();
        let error = gpu.alloc(4 << 20, 64).unwrap_err();
        assert!(matches!(error, GpuError::OutOfMemory { .. }), "{error:?}");
        let free = "983040 of 1048576 bytes are free on a fake";
        says(
            &error,
            &["4194304 bytes", free, "CUDA_ERROR_OUT_OF_MEMORY (2)"],
        );
        // The longest and the one that just fits.
        let error = gpu.alloc(usize::MAX, 4096).unwrap_err();
        assert!(matches!(error, GpuError::OutOfMemory { .. }), "{error:?}");
        gpu.alloc(983_040, 64).unwrap();
        gpu.alloc(983_041, 64).unwrap_err();
    });
}

#[test]
fn pinned_memory_begins_at_a_page_wherever_the_driver_puts_it() {
    fake("").run(|_| {
        let gpu = gpu();
        for align in [1, 256, 4096, 65_536, 2 << 20] {
            for bytes in [1, 256, 4095, 4097] {
                let memory = gpu.alloc_host(bytes, align).unwrap();
                assert!(memory.addr().is_multiple_of(align.max(4096) as u64));
                let mut out = vec![1; bytes];
                gpu.read(memory.addr(), &mut out).unwrap();
                assert!(out.iter().all(|byte| *byte == 0));
                gpu.write(memory.addr(), &vec![7; bytes]).unwrap();
                gpu.write(memory.addr() + 1, &out).unwrap_err();
            }
        }
        let words = gpu.map_host(4096).unwrap();
        assert!(words.host_addr().is_multiple_of(4096));
        words.u64_at(4088).store(7, Ordering::Relaxed);
    });
}

#[test]
fn refused_pinned_memory_is_reported_by_what_was_asked_for() {
    fake("").run(|fake| {
        let gpu = gpu();
        fake.set("refuse cuMemHostAlloc 2");
        for error in [
            gpu.map_host(12_345).unwrap_err(),
            gpu.alloc_host(12_345, 64).unwrap_err(),
        ] {
            says(
                &error,
                &["pinned host memory for 12345 bytes", "OUT_OF_MEMORY (2)"],
            );
        }
    });
}

#[test]
fn memory_that_could_not_be_prepared_is_given_back() {
    fake("").run(|fake| {
        let gpu = gpu();
        for call in [
            "cuMemsetD8Async",
            "cuStreamSynchronize",
            "cuPointerSetAttribute",
        ] {
            fake.set(&format!("refuse {call} 719"));
            says(
                &gpu.alloc(64, 64).unwrap_err(),
                &[call, "LAUNCH_FAILED (719)"],
            );
        }
        fake.set("");
        assert_eq!(fake.calls("cuMemFree_v2").len(), 3);
        drop(gpu);
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn a_copy_that_fails_names_the_call() {
    fake("").run(|fake| {
        let gpu = gpu();
        let memory = gpu.alloc(64, 64).unwrap();
        fake.set("refuse cuMemcpyAsync 700");
        let write = gpu.write(memory.addr(), &[1]).unwrap_err();
        let read = gpu.read(memory.addr(), &mut [0]).unwrap_err();
        for error in [write, read] {
            says(&error, &["cuMemcpyAsync", "ILLEGAL_ADDRESS (700)"]);
        }
    });
}

/// `cuMemFree` waits for all kernels of the device, and a kernel that hangs ends when the host writes its abort word.
#[test]
fn memory_that_waits_to_be_freed_does_not_hold_up_a_write() {
    fake("").run(|fake| {
        let gpu = gpu();
        let (freed, abort) = (gpu.alloc(64, 64).unwrap(), gpu.alloc(64, 64).unwrap());
        let hold = fake.hold();
        fake.set(&format!("hold cuMemFree_v2 {}", hold.path()));
        thread::scope(|scope| {
            scope.spawn(|| drop(freed));
            let held = hold.entered();
            let (done, written) = mpsc::channel();
            scope.spawn({
                let (gpu, abort) = (&gpu, &abort);
                move || {
                    gpu.write(abort.addr(), &[1; 4]).unwrap();
                    let mut out = [0; 4];
                    gpu.read(abort.addr(), &mut out).unwrap();
                    gpu.map_host(64).unwrap();
                    drop(gpu.alloc_host(64, 64).unwrap());
                    done.send(out).unwrap();
                }
            });
            let written = written.recv_timeout(HANG / 4);
            fake.set("");
            drop(held);
            assert_eq!(
                written,
                Ok([1; 4]),
                "the write waits for the memory to be freed"
            );
        });
    });
}

#[test]
fn memory_that_is_freed_is_outside_at_once() {
    fake("").run(|_| {
        let gpu = gpu();
        let memory = gpu.alloc(64, 64).unwrap();
        let addr = memory.addr();
        drop(memory);
        let error = gpu.write(addr, &[1]).unwrap_err();
        assert!(matches!(error, GpuError::BadRange { .. }), "{error}");
    });
}

#[test]
fn a_device_without_one_address_space_gives_no_host_memory() {
    fake("no-uva").run(|_| {
        let gpu = gpu();
        let error = gpu.alloc_host(64, 64).unwrap_err();
        says(&error, &["no unified addressing"]);
        let mapped = gpu.map_host(64).unwrap();
        assert_ne!(mapped.addr(), mapped.host_addr());
        // Copies go by the address of the device.
        let memory = gpu.alloc(64, 64).unwrap();
        gpu.write(memory.addr(), &[3; 64]).unwrap();
    });
}

#[test]
fn whole_pages_are_exported_as_descriptors_that_begin_with_the_memory() {
    fake("bases 256").run(|fake| {
        let gpu = gpu();
        let memory = gpu.alloc(3 * 4096 + 1, 4096).unwrap();
        gpu.write(memory.addr() + 4096, &[7; 8]).unwrap();
        let exported = memory.dmabufs().unwrap();
        assert_eq!(exported.len(), 2);
        assert!(exported[0].pcie && !exported[1].pcie);
        let own = std::fs::read_link(format!("/proc/self/fd/{}", raw(&exported[1].fd))).unwrap();
        assert!(own.to_string_lossy().contains("fake-cuda"), "{own:?}");
        assert_eq!(at(&exported[1].fd, 4096), [7; 8]);
        // Both are the same memory, and stay it.
        gpu.write(memory.addr() + 8192, &[9; 8]).unwrap();
        for one in &exported {
            assert_eq!(at(&one.fd, 8192), [9; 8]);
        }
        let asked = fake.calls("cuMemGetHandleForAddressRange");
        assert!(asked[1].contains(" 16384 1 0"), "{asked:?}");
        let odd = gpu.alloc(8192, 256).unwrap().dmabufs().unwrap();
        assert!(odd.is_empty(), "it need not begin at a page: {odd:?}");
    });
}

#[test]
fn a_driver_without_the_flag_exports_plainly_and_a_refusal_is_an_error() {
    fake("").run(|fake| {
        let gpu = gpu();
        let memory = gpu.alloc(4096, 4096).unwrap();
        fake.set("refuse cuMemGetHandleForAddressRange 1 1 1");
        let exported = memory.dmabufs().unwrap();
        assert_eq!(exported.len(), 1);
        assert!(!exported[0].pcie);
        fake.set("refuse cuMemGetHandleForAddressRange 801");
        let error = memory.dmabufs().unwrap_err();
        says(
            &error,
            &["cuMemGetHandleForAddressRange", "NOT_SUPPORTED (801)"],
        );
        fake.set("attribute 124 0");
        assert!(memory.dmabufs().unwrap().is_empty());
        assert!(!gpu.rdma().unwrap().dmabuf);
    });
}

/// Copies between addresses wait for their end, also after one that is refused.
#[test]
fn copies_between_addresses_end_before_their_caller_goes_on() {
    fake("").run(|fake| {
        let gpu = gpu();
        let memory = gpu.alloc(1 << 20, 128).unwrap();
        let bytes: Vec<u8> = (0..=250).cycle().take(100_000).collect();
        let mut back = vec![0_u8; bytes.len()];
        let piece = |to: u64, from: u64| CopyPiece {
            to,
            from,
            bytes: bytes.len() as u64,
        };
        let (at, host) = (memory.addr() + 3, bytes.as_ptr().addr() as u64);
        let to = back.as_mut_ptr().addr() as u64;
        #[expect(unsafe_code, reason = "copies by address")]
        // SAFETY: both ends of each piece are memory of this test, and no reference to them is used during a call.
        let copy = |pieces: &[CopyPiece]| unsafe { gpu.copy(pieces) };
        let before = fake.calls("cuStreamSynchronize").len();
        copy(&[piece(at, host), piece(at + 200_000, at)]).unwrap();
        copy(&[piece(to, at + 200_000)]).unwrap();
        assert!(back == bytes);
        assert_eq!(fake.calls("cuStreamSynchronize").len(), before + 2);
        copy(&[]).unwrap();
        fake.set("refuse cuMemcpyAsync 1");
        let error = copy(&[piece(at, host), piece(at, host)]).unwrap_err();
        says(&error, &["cuMemcpyAsync", "INVALID_VALUE (1)"]);
        assert_eq!(fake.calls("cuStreamSynchronize").len(), before + 4);
    });
}

/// As Arm servers have them: what begins at a page for the HCA begins at one of the machine.
#[test]
fn on_a_machine_with_long_pages_memory_is_exported_in_long_pages() {
    fake("bases 4096").with_page(65_536).run(|fake| {
        let gpu = gpu();
        let memory = gpu.alloc(4096, 4096).unwrap();
        assert!(memory.addr().is_multiple_of(65_536), "{:#x}", memory.addr());
        assert_eq!(memory.dmabufs().unwrap().len(), 2);
        let asked = fake.calls("cuMemGetHandleForAddressRange");
        assert!(asked[1].contains(" 65536 1 0"), "{asked:?}");
    });
}

/// The argument of the other process of the next test.
const OTHER: &str = "WV_TEST_OTHER_PROCESS";

#[test]
#[ignore = "is started by the test below"]
fn the_other_process() {
    let told = std::env::var(OTHER).expect("the test below starts this");
    let (location, handle) = told.split_once(' ').unwrap();
    let gpu = gpu_at(location);
    let opened = gpu.open_memory(&serde_json::from_str(handle).unwrap());
    let opened = opened.unwrap();
    assert_eq!(opened.bytes(), 1 << 20);
    // SAFETY: memory of the driver of these tests is memory of the host, mapped while `opened` lives; the owner waits.
    #[expect(unsafe_code, reason = "stands in for a kernel that stores")]
    unsafe {
        let addr = usize::try_from(opened.addr() + 8).unwrap();
        std::ptr::with_exposed_provenance_mut::<u32>(addr).write_volatile(42);
    }
    drop(opened);
    println!("stored");
}

fn gpu_at(location: &str) -> std::sync::Arc<CudaGpu> {
    let location = match location {
        "host" => MemoryLocation::Host,
        _ => MemoryLocation::Device,
    };
    let options = CudaOptions::default().with_location(location);
    CudaGpu::with_options(0, &options).unwrap()
}

#[test]
fn another_process_opens_memory_by_its_name_and_a_wrong_name_is_refused() {
    fake("bases 256").run(|_| {
        for location in ["device", "host"] {
            let gpu = gpu_at(location);
            let memory = gpu.alloc_shared(1 << 20, 128).unwrap();
            let handle = serde_json::to_string(&memory.handle().unwrap().unwrap()).unwrap();
            let output = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "memory::the_other_process",
                    "--ignored",
                    "--nocapture",
                ])
                .env(OTHER, format!("{location} {handle}"))
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(text.contains("stored"), "{location}: {text}{errors}");
            let mut out = [0; 16];
            gpu.read(memory.addr(), &mut out).unwrap();
            assert_eq!(out[8..12], 42_u32.to_ne_bytes(), "{location}");
            assert_eq!((&out[..8], &out[12..]), (&[0; 8][..], &[0; 4][..]));
            // One byte more than the memory has.
            let longer = handle.replace("1048576", "1048577");
            assert_ne!(longer, handle);
            let error = gpu.open_memory(&serde_json::from_str(&longer).unwrap());
            let error = error.unwrap_err();
            assert!(matches!(error, GpuError::NotOpened { .. }), "{error}");
        }
    });
}

fn raw(fd: &impl AsFd) -> i32 {
    use std::os::fd::AsRawFd;
    fd.as_fd().as_raw_fd()
}

/// Eight bytes of a file.
fn at(fd: &impl AsFd, offset: u64) -> [u8; 8] {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::from(fd.as_fd().try_clone_to_owned().unwrap());
    let mut out = [0; 8];
    file.read_exact_at(&mut out, offset).unwrap();
    out
}

/// Memory of the program, in the context of `gpu`.
#[expect(unsafe_code, reason = "calls of the fake driver")]
pub(crate) fn memory_of_the_program(gpu: &CudaGpu, bytes: usize) -> u64 {
    // Makes the primary context current.
    gpu.facts().unwrap();
    let mut addr = 0;
    // SAFETY: `addr` is written during the call.
    let made = unsafe { sys::cuMemAlloc_v2(&raw mut addr, bytes) };
    assert_eq!(made, sys::CUresult::CUDA_SUCCESS);
    addr
}

#[test]
fn memory_of_the_program_is_checked_reached_and_not_freed() {
    fake("devices 2\nname a fake").run(|fake| {
        let gpus = [0, 1].map(|ordinal| CudaGpu::open(ordinal).unwrap());
        let bytes = 3 * 4096;
        let addr = memory_of_the_program(&gpus[0], bytes);
        let other = memory_of_the_program(&gpus[1], bytes);
        #[expect(unsafe_code, reason = "memory that is never freed")]
        // SAFETY: no code frees the memory, and no reference to it exists.
        let wrap = |addr, bytes| unsafe { gpus[0].wrap_memory(addr, bytes) };
        let freed = fake.calls("cuMemFree_v2").len();
        let memory = wrap(addr, bytes).unwrap();
        gpus[0].write(addr + 1, &[7; 99]).unwrap();
        let mut out = [0; 99];
        gpus[0].read(addr + 1, &mut out).unwrap();
        assert_eq!(out, [7; 99]);
        assert_eq!(memory.dmabufs().unwrap().len(), 2);
        says(
            &wrap(addr, 8).unwrap_err(),
            &["memory of the caller is 8 bytes"],
        );
        drop(memory);
        gpus[0].read(addr, &mut out).unwrap_err();
        // Memory that begins within a page has no export, and no memory lies after the end.
        assert!(wrap(addr + 256, 256).unwrap().dmabufs().unwrap().is_empty());
        says(
            &wrap(addr + 4096, 1 << 30).unwrap_err(),
            &["1073741824 bytes", "are left there"],
        );
        says(
            &wrap(other, bytes).unwrap_err(),
            &[
                "memory of the caller is of CUDA device 1",
                "memory of CUDA device 0",
            ],
        );
        says(&wrap(64, 8).unwrap_err(), &["cuPointerGetAttribute"]);
        assert_eq!(fake.calls("cuMemFree_v2").len(), freed);
    });
}

#[test]
fn memory_that_is_lent_to_hcas_overlaps_and_keeps_its_place_in_a_page() {
    fake("devices 1\nname a fake").run(|fake| {
        let gpu = CudaGpu::open(0).unwrap();
        let bytes = 3 * 4096;
        let addr = memory_of_the_program(&gpu, bytes);
        #[expect(unsafe_code, reason = "memory that is never freed")]
        // SAFETY: no code frees the memory, and no reference to it exists.
        let lend = |addr, bytes| unsafe { gpu.lend_memory(addr, bytes) };
        let whole = lend(addr, bytes).unwrap();
        let inside = lend(addr + 4096 + 256, 256).unwrap();
        gpu.check_range(addr, 1).unwrap_err();
        for (memory, offset) in [(&whole, 0), (&inside, 256)] {
            let dmabufs = memory.dmabufs().unwrap();
            let found: Vec<_> = dmabufs.iter().map(|it| (it.pcie, it.offset)).collect();
            assert_eq!(found, [(true, offset), (false, offset)]);
        }
        says(
            &lend(addr + 4096, 1 << 30).unwrap_err(),
            &["1073741824 bytes", "are left there"],
        );
        says(&lend(addr, 0).unwrap_err(), &["is 0 bytes"]);
        assert!(fake.calls("cuMemFree_v2").is_empty());
    });
}

#[test]
fn an_allocation_has_a_number_that_no_other_has_and_writes_are_flushed() {
    fake("devices 1\nname a fake").run(|fake| {
        let gpu = CudaGpu::open(0).unwrap();
        let [first, second] = [4096, 4096].map(|bytes| gpu.alloc(bytes, 4096).unwrap());
        let number = |addr| gpu.buffer_id(addr).unwrap();
        let known = number(first.addr());
        assert!(known.is_some() && known == number(first.addr() + 4095));
        assert!(number(second.addr()).is_some_and(|other| Some(other) != known));
        assert_eq!(number(64), None);
        gpu.flush_writes().unwrap();
        assert_eq!(fake.calls("cuFlushGPUDirectRDMAWrites"), ["0 100"]);
    });
}
