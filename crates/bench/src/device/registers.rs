//! The memory types as which a page of doorbell registers can be mapped for kernels. In the test a kernel rings doorbells while a thread of
//! the CPU exchanges the register with 0, as the software HCA does. No doorbell may be lost, and none may come twice.

// UNSAFETY: maps a page of shared memory, and launches the measuring kernel on it.
#![expect(unsafe_code, reason = "a page that stands for registers")]

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytemuck::{Zeroable, bytes_of, bytes_of_mut};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::Serialize;

use crate::device::abi::{PrimitiveParams, PrimitiveTime};
use crate::device::kernels::KERNELS;
use crate::error::BenchError;
use warpverbs::gpu::{Gpu, HostMapped, Launch, MappedMmio, RegisterKind};

/// The most bytes that a page of the machine has.
const PAGE: usize = 1 << 16;
/// The offset of the register in the page.
const REGISTER: usize = 0x800;

/// The results for one device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Registers {
    /// The label of the device.
    pub(crate) ran_on: String,
    /// True if times are those of hardware. If not, the report has no times.
    pub(crate) speed: bool,
    /// The number of doorbells that each way was given.
    pub(crate) doorbells: u32,
    /// The results, one for each way.
    pub(crate) ways: Vec<Way>,
}

/// One way to map the page of the register, and what became of its doorbells.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Way {
    /// `memory`, `io` (a page registered as either), or `host` (memory of the driver's).
    pub(crate) mapped_as: &'static str,
    /// Why the page cannot be mapped in this way. If it has a reason, all counts are 0.
    pub(crate) refused: Option<String>,
    /// The number of doorbells that the CPU took with the number that was due.
    pub(crate) taken: u64,
    /// The number of doorbells that the CPU took with another number.
    pub(crate) wrong: u64,
    /// The number of doorbells whose answer the kernel saw.
    pub(crate) answered: u64,
    /// The time from a doorbell to its answer, ns.
    pub(crate) ns: Option<f64>,
}

impl Registers {
    /// Returns the ways that could be mapped and that lost or garbled a doorbell.
    pub(crate) fn lossy(&self) -> impl Iterator<Item = &Way> {
        let all = u64::from(self.doorbells);
        self.ways.iter().filter(move |way| {
            way.refused.is_none() && ([way.taken, way.answered] != [all; 2] || way.wrong != 0)
        })
    }
}

/// Gives each way `doorbells` doorbells. All doorbells of a way together must be answered within `patience`.
///
/// # Errors
///
/// An error of the device, except that it refuses a mapping; an error of the kernel.
pub(crate) fn measure(
    gpu: &Arc<dyn Gpu>,
    doorbells: u32,
    patience: Duration,
) -> Result<Registers, BenchError> {
    gpu.add_kernels(&KERNELS)?;
    let speed = gpu.label() != "simt";
    let mut ways = Vec::new();
    for (mapped_as, kind) in [
        ("memory", Some(RegisterKind::Memory)),
        ("io", Some(RegisterKind::Io)),
        ("host", None),
    ] {
        let mut way = Way {
            mapped_as,
            refused: None,
            taken: 0,
            wrong: 0,
            answered: 0,
            ns: None,
        };
        match Register::new(gpu, kind) {
            Ok(register) => ring(gpu, &register, doorbells, patience, &mut way)?,
            Err(error) => way.refused = Some(error.to_string()),
        }
        if !speed {
            way.ns = None;
        }
        ways.push(way);
    }
    Ok(Registers {
        ran_on: gpu.label(),
        speed,
        doorbells,
        ways,
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn ring(
    gpu: &Arc<dyn Gpu>,
    register: &Register,
    doorbells: u32,
    patience: Duration,
    way: &mut Way,
) -> Result<(), BenchError> {
    let answer = gpu.map_host(8)?;
    let time = gpu.alloc(size_of::<PrimitiveTime>(), 128)?;
    let params = PrimitiveParams {
        host: answer.addr().into(),
        reg: register.addr.into(),
        time: time.addr().into(),
        deadline_ns: u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX),
        count: doorbells,
        ..PrimitiveParams::zeroed()
    };
    let ended = AtomicBool::new(false);
    let (word, answered) = (register.word(), answer.u64_at(0));
    let launch = Launch::new("wv_bench_ring_register", 1, 1).with_deadline(2 * patience);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| take(word, answered, &ended));
        // SAFETY: the parameters are those of the kernel, and what they name lives to the end of this function, past the wait.
        let ran = unsafe { gpu.launch(&launch, bytes_of(&params)) }
            .and_then(|event| gpu.wait(&event, 3 * patience));
        ended.store(true, Ordering::Release);
        (way.taken, way.wrong) = taker.join().expect("the taker does not panic");
        ran
    })?;
    let mut found = PrimitiveTime::zeroed();
    gpu.read(time.addr(), bytes_of_mut(&mut found))?;
    way.answered = found.value;
    if found.value > 0 {
        way.ns = Some((found.end_ns - found.start_ns) as f64 / found.value as f64);
    }
    Ok(())
}

/// Takes doorbells until the kernel has ended, and answers each. Returns how many had the number that was due, and how many had not.
fn take(register: &AtomicU64, answer: &AtomicU64, ended: &AtomicBool) -> (u64, u64) {
    let (mut taken, mut wrong) = (0, 0);
    loop {
        // Acquire: pairs with the release in `ring`. Before the look, so that the last doorbell is not missed.
        let last = ended.load(Ordering::Acquire);
        match register.swap(0, Ordering::AcqRel) {
            0 if last => return (taken, wrong),
            0 => std::thread::yield_now(),
            value => {
                if value == taken + 1 {
                    taken += 1;
                } else {
                    wrong += 1;
                }
                answer.store(value, Ordering::Release);
            }
        }
    }
}

/// A word that stands for a register, with its address for kernels and its address for the CPU.
struct Register {
    addr: u64,
    word: NonNull<u64>,
    _memory: Memory,
}

/// The memory that contains a register.
#[expect(dead_code, reason = "kept for as long as the register")]
enum Memory {
    Page(MappedMmio, Page),
    Host(HostMapped),
}

impl Register {
    /// Returns a register in a page of shared memory that is registered as `kind`, or in host memory of the driver if `kind` is None.
    fn new(gpu: &Arc<dyn Gpu>, kind: Option<RegisterKind>) -> Result<Self, BenchError> {
        let Some(kind) = kind else {
            let memory = gpu.map_host(PAGE)?;
            let word = memory.u64_at(REGISTER).as_ptr();
            return Ok(Self {
                addr: memory.addr() + REGISTER as u64,
                word: NonNull::new(word).expect("memory of this process"),
                _memory: Memory::Host(memory),
            });
        };
        let page = Page::new()?;
        // The register lies inside the bytes of the page.
        let host = page.0.as_ptr().wrapping_add(REGISTER);
        let mapped = gpu.map_mmio_as(host, 8, kind)?;
        Ok(Self {
            addr: mapped.addr(),
            word: NonNull::new(host.cast()).expect("a mapped page"),
            _memory: Memory::Page(mapped, page),
        })
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of memory that lives as long as `self`; all access is atomic, here and in kernels.
        unsafe { AtomicU64::from_ptr(self.word.as_ptr()) }
    }
}

/// A page of shared memory, as the pages of the software HCA's registers are.
struct Page(NonNull<u8>);

impl Page {
    fn new() -> Result<Self, BenchError> {
        let refused = |error: io::Error| BenchError::Wrong {
            case: "a page of registers".to_owned(),
            detail: error.to_string(),
        };
        let file = memfd_create(c"wv-bench-registers", MemfdFlags::CLOEXEC);
        let file = file.map_err(|errno| refused(errno.into()))?;
        ftruncate(&file, PAGE as u64).map_err(|errno| refused(errno.into()))?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                rights,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(start.cast()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Self(first)),
            _ => Err(refused(io::Error::last_os_error())),
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: this page's own mapping, unmapped once, after its registration.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

impl fmt::Display for Registers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            ran_on, doorbells, ..
        } = self;
        writeln!(
            f,
            "registers on {ran_on}: {doorbells} doorbells, each answered by the CPU"
        )?;
        if !self.speed {
            writeln!(
                f,
                "kernels ran on the CPU: counts are real, and no time is shown"
            )?;
        }
        writeln!(
            f,
            "{:<10} {:>10} {:>8} {:>10} {:>10}  refused",
            "mapped as", "taken", "wrong", "answered", "ns"
        )?;
        for way in &self.ways {
            let ns = way
                .ns
                .map_or_else(|| "-".to_owned(), |ns| format!("{ns:.0}"));
            let Way {
                mapped_as,
                taken,
                wrong,
                answered,
                ..
            } = way;
            let refused = way.refused.as_deref().unwrap_or("no");
            writeln!(
                f,
                "{mapped_as:<10} {taken:>10} {wrong:>8} {answered:>10} {ns:>10}  {refused}"
            )?;
        }
        for way in self.lossy() {
            let Way {
                mapped_as,
                taken,
                wrong,
                answered,
                ..
            } = way;
            writeln!(
                f,
                "{mapped_as}: of {doorbells} doorbells the CPU took {taken} in turn, {wrong} came wrong, and the kernel saw \
                 {answered} answers: not to be used on this machine"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::gpu::simt::SimtGpu;

    #[test]
    fn each_doorbell_is_taken_once_whatever_the_register_lies_in() {
        let gpu: Arc<dyn Gpu> = SimtGpu::open().unwrap();
        let found = measure(&gpu, 500, Duration::from_secs(60)).unwrap();
        assert_eq!(found.lossy().count(), 0, "{found}");
        let there: Vec<_> = found
            .ways
            .iter()
            .map(|way| (way.mapped_as, way.refused.is_none()))
            .collect();
        assert_eq!(there, [("memory", true), ("io", false), ("host", true)]);
        assert!(found.ways.iter().all(|way| way.ns.is_none()));
    }

    #[test]
    fn a_way_that_loses_or_doubles_a_doorbell_is_named() {
        let way = |taken, wrong, answered| Way {
            mapped_as: "io",
            refused: None,
            taken,
            wrong,
            answered,
            ns: None,
        };
        for (way, lossy) in [
            (way(9, 0, 9), 0),
            (way(8, 0, 9), 1),
            (way(9, 1, 9), 1),
            (way(9, 0, 8), 1),
        ] {
            let found = Registers {
                ran_on: "a GPU".to_owned(),
                speed: true,
                doorbells: 9,
                ways: vec![way],
            };
            assert_eq!(found.lossy().count(), lossy, "{found}");
            let told = found.to_string().contains("io: of 9 doorbells");
            assert_eq!(told, lossy == 1, "{found}");
        }
    }
}
