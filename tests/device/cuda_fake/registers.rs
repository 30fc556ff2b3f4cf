//! Pages of doorbell registers.

use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use test_support::limits::HANG;
use warpverbs::gpu::cuda::CudaGpu;
use warpverbs::gpu::{Gpu, GpuError, RegisterKind};

use super::{fake, gpu, says};

/// `CU_MEMHOSTREGISTER_PORTABLE` and `_DEVICEMAP`; as I/O memory besides.
const AS_MEMORY: &str = "3";
const AS_IO: &str = "7";

/// Memory of this process that begins at a multiple of 64 KiB.
struct Pages {
    _memory: Vec<u8>,
    start: *mut u8,
}

impl Pages {
    fn new() -> Self {
        let mut memory = vec![0; 4 * 65_536];
        let start = memory.as_mut_ptr();
        let start = start.map_addr(|addr| addr.next_multiple_of(65_536));
        Self {
            _memory: memory,
            start,
        }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }
}

/// Flags with which pages were registered, in turn.
fn flags(registered: &[String]) -> Vec<&str> {
    let last = |call: &String| call.rfind(' ').map(|at| at + 1);
    let flags = registered.iter().map(|call| &call[last(call).unwrap()..]);
    flags.collect()
}

#[test]
fn a_page_of_memory_is_registered_as_memory_once_for_all_its_users() {
    fake("").run(|fake| {
        let (gpu, again) = (gpu(), gpu());
        let pages = Pages::new();
        let first = gpu.map_mmio(pages.at(0x800), 8).unwrap();
        let second = gpu.map_mmio(pages.at(0xa00), 8).unwrap();
        // Another rank of this process with the same HCA.
        let third = again.map_mmio(pages.at(0), 4096).unwrap();
        assert_eq!(second.addr() - first.addr(), 0x200);
        assert_eq!(first.addr() - third.addr(), 0x800);
        let registered = fake.calls("cuMemHostRegister_v2");
        assert_eq!(flags(&registered), [AS_MEMORY], "{registered:?}");
        drop((first, third));
        assert!(fake.calls("cuMemHostUnregister").is_empty());
        drop(second);
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 1);
        // It can come again.
        drop(gpu.map_mmio(pages.at(0x800), 8).unwrap());
        drop((gpu, again));
        assert_eq!(fake.calls("cuDevicePrimaryCtxRelease_v2"), ["0 left 0"]);
    });
}

#[test]
fn a_measurement_registers_a_page_as_what_it_says() {
    fake("").run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        for kind in [RegisterKind::Io, RegisterKind::Memory] {
            drop(gpu.map_mmio_as(pages.at(0x800), 8, kind).unwrap());
        }
        let registered = fake.calls("cuMemHostRegister_v2");
        assert_eq!(flags(&registered), [AS_IO, AS_MEMORY], "{registered:?}");
    });
}

#[test]
fn two_devices_of_a_process_share_the_registration_of_a_page() {
    fake("devices 2").run(|fake| {
        let (one, other) = (gpu(), CudaGpu::open(1).unwrap());
        let pages = Pages::new();
        let first = one.map_mmio(pages.at(0), 8).unwrap();
        let second = other.map_mmio(pages.at(0), 8).unwrap();
        drop((first, one));
        // The device that it was registered with has been closed by all others.
        drop((second, other));
        assert_eq!(fake.calls("cuMemHostRegister_v2").len(), 1);
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 1);
        let released = fake.calls("cuDevicePrimaryCtxRelease_v2");
        assert!(
            released.iter().all(|one| one.ends_with("left 0")),
            "{released:?}"
        );
    });
}

/// A page is let go of and taken again at once: it is never registered twice, which the driver would refuse.
#[test]
fn a_page_that_comes_back_while_it_goes_is_registered_behind_that() {
    fake("").run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        let page = gpu.map_mmio(pages.at(0), 8).unwrap();
        let start = pages.at(0).expose_provenance();
        let hold = fake.hold();
        fake.set(&format!("hold cuMemHostUnregister {}", hold.path()));
        thread::scope(|scope| {
            scope.spawn(|| drop(page));
            let held = hold.entered();
            let (done, mapped) = mpsc::channel();
            let gpu = &gpu;
            scope.spawn(move || {
                let again = gpu.map_mmio(std::ptr::with_exposed_provenance_mut(start), 8);
                done.send(again.map(|page| page.addr())).unwrap();
            });
            // Long enough for a refusal, had it come.
            let early = mapped.recv_timeout(Duration::from_millis(200));
            fake.set("");
            drop(held);
            let again = early.unwrap_or_else(|_| mapped.recv_timeout(HANG).unwrap());
            assert_eq!(again.unwrap(), start as u64);
        });
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 2);
    });
}

/// Pages of the kernel that every process has: marked as registers of a device are. None where they are not marked.
fn io_page() -> Option<usize> {
    let maps = fs::read_to_string("/proc/self/smaps").ok()?;
    let mut start = None;
    for line in maps.lines() {
        if line.ends_with("[vvar]") {
            start = usize::from_str_radix(line.split_once('-')?.0, 16).ok();
        } else if line.starts_with("VmFlags:") {
            let marked = line.split(' ').any(|flag| flag == "io");
            if let Some(start) = start.take().filter(|_| marked) {
                return Some(start);
            }
        }
    }
    None
}

#[test]
fn a_page_of_a_device_is_registered_as_io_memory() {
    let Some(page) = io_page() else {
        println!("skipped: registers as I/O memory: this kernel marks no page so");
        return;
    };
    let _ = page;
    fake("").run(|fake| {
        let gpu = gpu();
        // Another process has it elsewhere.
        let page = io_page().unwrap();
        let mapped = gpu.map_mmio(std::ptr::with_exposed_provenance_mut(page), 8);
        mapped.unwrap();
        assert_eq!(flags(&fake.calls("cuMemHostRegister_v2")), [AS_IO]);
    });
}

#[test]
fn a_refused_page_is_not_tried_another_way_and_the_error_tells_remedies() {
    fake("").run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        fake.set("refuse cuMemHostRegister_v2 800");
        let error = gpu.map_mmio(pages.at(0), 8).unwrap_err();
        assert!(matches!(error, GpuError::Doorbell { .. }), "{error:?}");
        let ways = [
            "as memory",
            "CUDA_ERROR_NOT_PERMITTED (800)",
            "doorbell = mailbox",
        ];
        says(&error, &ways);
        assert_eq!(flags(&fake.calls("cuMemHostRegister_v2")), [AS_MEMORY]);
        if let Some(page) = io_page() {
            let page = std::ptr::with_exposed_provenance_mut(page);
            let error = gpu.map_mmio(page, 8).unwrap_err();
            let ways = [
                "as I/O memory",
                "(800)",
                "PeerMappingOverride=1",
                "root",
                "6.12",
            ];
            says(&error, &ways);
            assert_eq!(
                flags(&fake.calls("cuMemHostRegister_v2")),
                [AS_MEMORY, AS_IO]
            );
        } else {
            println!("left out: registers as I/O memory: this kernel marks no page so");
        }
        // Nothing is kept of a page that was refused.
        fake.set("");
        gpu.map_mmio(pages.at(0), 8).unwrap();
    });
}

#[test]
fn a_page_whose_address_the_driver_does_not_tell_is_given_back() {
    fake("").run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        fake.set("refuse cuMemHostGetDevicePointer_v2 801");
        let error = gpu.map_mmio(pages.at(0), 8).unwrap_err();
        says(
            &error,
            &["cuMemHostGetDevicePointer", "NOT_SUPPORTED (801)"],
        );
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 1);
        fake.set("");
        gpu.map_mmio(pages.at(0), 8).unwrap();
    });
}

#[test]
fn what_is_no_register_is_refused_by_value_and_limit() {
    fake("").run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        for (at, bytes) in [
            (std::ptr::null_mut(), 8),
            (pages.at(4), 8),
            (pages.at(0), 0),
            (pages.at(8), 4096),
            (pages.at(0), 4097),
            (pages.at(0), usize::MAX),
        ] {
            let error = gpu.map_mmio(at, bytes).unwrap_err();
            let asked = format!("{bytes} bytes at {at:p}");
            says(&error, &["register page", &asked, "within a page of 4096"]);
        }
        assert!(fake.calls("cuMemHostRegister_v2").is_empty());
    });
}

/// As Arm servers have them: sixteen pages of an HCA lie in one of the machine, and the driver registers that.
#[test]
fn registers_of_one_page_share_its_registration_where_pages_are_long() {
    fake("").with_page(65_536).run(|fake| {
        let gpu = gpu();
        let pages = Pages::new();
        let first = gpu.map_mmio(pages.at(4096), 4096).unwrap();
        let second = gpu.map_mmio(pages.at(15 * 4096), 4096).unwrap();
        assert_eq!(second.addr() - first.addr(), 14 * 4096);
        let third = gpu.map_mmio(pages.at(65_536), 4096).unwrap();
        let registered = fake.calls("cuMemHostRegister_v2");
        let expected = [pages.at(0), pages.at(65_536)];
        assert_eq!(registered, expected.map(|page| format!("{page:p} 65536 3")));
        drop((first, second, third));
        assert_eq!(fake.calls("cuMemHostUnregister").len(), 2);
    });
}
