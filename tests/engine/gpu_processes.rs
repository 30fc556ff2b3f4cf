//! Memory of a GPU in another process of this machine: a GPU of this one opens and copies it, and closes it when it is taken away.

use std::env;
use std::io;
use std::sync::Arc;

use test_support::fake_cuda::FakeDriver;
use test_support::limits::{HANG, until};
use test_support::process::Process;
use warpverbs::gpu::{Gpu, GpuSelector, open};
use warpverbs::internal::engine::{
    Descriptor, EngineError, EnginePath, GpuMemory, HostMemory, Kind, Options, Outcome, Peer,
    PeerPath, RegionId, Side,
};

use crate::descriptors::{descriptor, hex};
use crate::gpu_memory::{ACCESS, KINDS, operation};
use crate::rig::{End, config, listens};

const MIB: u64 = 1 << 20;
/// Of each memory.
const BYTES: u64 = MIB;
/// As `BYTES`, where mappings of this length are counted: tests run beside each other in one process.
const COUNTED: u64 = 2 * MIB;
/// What a process that a test starts is to do.
const SPEC: &str = "WV_TEST_GPU_PROCESS";

/// An engine with memory of a GPU, of which a part is registered, and of the host.
struct Served {
    end: End,
    gpu: Arc<dyn Gpu>,
    memory: Arc<GpuMemory>,
    region: RegionId,
}

impl Served {
    /// On the GPU that `auto`, `simt` or a number names. Other processes reach its memory if it is `shared`.
    fn new(name: &str, path: EnginePath, (gpu, is_shared, bytes): (&str, bool, u64)) -> Self {
        let host = if is_shared {
            HostMemory::shared(bytes)
        } else {
            HostMemory::new(bytes)
        };
        let config = config(name).with_engine_path(path).with_workers(2);
        let end = End::over(softhca::HcaConfig::default(), config, host.unwrap());
        let selector = match gpu {
            "simt" => GpuSelector::Simt,
            number => GpuSelector::Cuda(number.parse().unwrap()),
        };
        let gpu = open(selector).unwrap();
        let bytes = usize::try_from(bytes).unwrap();
        let memory = if is_shared {
            gpu.alloc_shared(bytes, 4096)
        } else {
            gpu.alloc(bytes, 4096)
        };
        let memory = GpuMemory::new(&gpu, &Arc::new(memory.unwrap())).unwrap();
        let memory = Arc::new(memory);
        let region = end.engine.register(&memory).unwrap();
        Self {
            end,
            gpu,
            memory,
            region,
        }
    }

    fn first(&self, is_of_gpu: bool) -> u64 {
        if is_of_gpu {
            self.memory.address()
        } else {
            self.end.at(0)
        }
    }

    fn fill(&self, is_of_gpu: bool, seed: u64) -> Vec<u8> {
        if !is_of_gpu {
            return self.end.fill(seed);
        }
        let mut bytes = vec![0; usize::try_from(self.memory.bytes()).unwrap()];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        self.gpu.write(self.memory.address(), &bytes).unwrap();
        bytes
    }

    fn bytes(&self, is_of_gpu: bool) -> Vec<u8> {
        if !is_of_gpu {
            return self.end.bytes();
        }
        let mut bytes = vec![0; usize::try_from(self.memory.bytes()).unwrap()];
        self.gpu.read(self.memory.address(), &mut bytes).unwrap();
        bytes
    }

    /// Connects to the process that has said this of itself. Descriptors of its host memory and of its GPU's.
    fn connect(&self, said: &str) -> (Peer, [Descriptor; 2]) {
        let mut words = said.split(' ');
        let peer = self.end.engine.connect(words.next().unwrap()).unwrap();
        let mut next = || {
            let region = descriptor(words.next().unwrap());
            peer.import(&region).unwrap();
            region
        };
        let both = [next(), next()];
        (peer, both)
    }
}

fn start(spec: &str) -> Process {
    Process::start("gpu_processes::an_engine_process", (SPEC, spec))
}

#[test]
#[ignore = "is started by the tests below"]
fn an_engine_process() {
    let spec = env::var(SPEC).expect("started by a test");
    let words: Vec<&str> = spec.split(' ').collect();
    let bytes = words[2].parse().unwrap();
    let memory = (words[0], words[1] == "shared", bytes);
    let own = Served::new("b", EnginePath::Auto, memory);
    let address = listens(&own.end.engine);
    let said = |region| hex(&own.end.engine.descriptor(region).unwrap().to_bytes());
    let (host, device) = (said(own.end.region), said(own.region));
    println!("said: {address} {host} {device}");
    for line in io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let is_of_gpu = words.get(1) == Some(&"gpu");
        let seed = words.get(2).map_or(0, |it| it.parse().unwrap());
        let answer = match words[0] {
            "fill" => {
                own.fill(is_of_gpu, seed);
                "filled"
            }
            "drop" => {
                own.end.engine.deregister(own.region).unwrap();
                "dropped"
            }
            _ => {
                let mut expected = vec![0; usize::try_from(own.memory.bytes()).unwrap()];
                fastrand::Rng::with_seed(seed).fill(&mut expected);
                if own.bytes(is_of_gpu) == expected {
                    "same"
                } else {
                    "other"
                }
            }
        };
        println!("said: {answer}");
    }
}

/// Moves all bytes between each pair of memories with one of a GPU. How many WQEs went to the HCA.
fn move_all(own: &Served, other: &mut Process, (peer, theirs): (&Peer, &[Descriptor; 2])) -> u64 {
    let word = |is_of_gpu: bool| if is_of_gpu { "gpu" } else { "host" };
    for (seed, (here, there)) in (1..).zip([(true, false), (false, true), (true, true)]) {
        for kind in KINDS {
            let (own_seed, their_seed) = (2 * seed, 2 * seed + 1);
            let mut expected = own.fill(here, own_seed);
            assert_eq!(
                other.asked(&format!("fill {} {their_seed}", word(there))),
                "filled"
            );
            let remote = theirs[usize::from(there)].address;
            let one = operation(kind, own.first(here), remote, own.memory.bytes());
            let id = peer.submit(&[one], &Options::default()).unwrap();
            assert_eq!(
                own.end.concluded(id),
                Outcome::Done,
                "{kind:?} {here} {there}"
            );
            if kind == Kind::Read {
                fastrand::Rng::with_seed(their_seed).fill(&mut expected);
            }
            assert!(own.bytes(here) == expected, "{kind:?} {here} {there}");
            let seed = if kind == Kind::Read {
                their_seed
            } else {
                own_seed
            };
            let asked = format!("compare {} {seed}", word(there));
            assert_eq!(other.asked(&asked), "same", "{kind:?} {here} {there}");
            own.end.engine.release(id).unwrap();
        }
    }
    own.end.engine.rails()[0].slices.posted
}

/// Files that this process has mapped and that are as long as the memories. A CUDA allocation that begins at a page is a little longer.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_one = |line: &str| {
        let mut range = line.split([' ', '-']);
        let mut next = || u64::from_str_radix(range.next()?, 16).ok();
        let bounds = next().zip(next());
        let fits = |(first, end): (u64, u64)| (COUNTED..COUNTED + MIB).contains(&(end - first));
        line.contains("/memfd:") && bounds.is_some_and(fits)
    };
    maps.lines().filter(|line| is_one(line)).count()
}

fn memory_goes_by_copies_until_it_is_taken_away(gpu: &str) {
    let mut other = start(&format!("{gpu} shared {COUNTED}"));
    let said = other.says();
    for path in [EnginePath::Local, EnginePath::Auto] {
        let own = Served::new(&format!("a {path}"), path, (gpu, true, COUNTED));
        let (peer, theirs) = own.connect(&said);
        assert_eq!(peer.path(), PeerPath::Machine);
        let before = mapped();
        assert_eq!(
            move_all(&own, &mut other, (&peer, &theirs)),
            0,
            "{gpu} {path}"
        );
        // That of the host and that of the GPU.
        assert_eq!(mapped(), before + 2, "{gpu} {path}");
        if path == EnginePath::Auto {
            let one = [operation(
                Kind::Write,
                own.first(true),
                theirs[1].address,
                4096,
            )];
            let prepared = peer.prepare(&one).unwrap();
            assert_eq!(other.asked("drop"), "dropped");
            until("what the peer has taken away is closed", || {
                mapped() == before + 1
            });
            let id = peer.post(&prepared, &Options::default()).unwrap();
            assert_eq!(own.end.concluded(id), Outcome::Failed);
            let first = own.end.engine.report(id).unwrap().first.unwrap();
            assert_eq!(first.cause.unwrap().syndrome, ACCESS);
        }
        assert_eq!(own.end.engine.close().cut_off, 0);
        drop((peer, own));
        assert_eq!(mapped(), 0, "{gpu} {path}");
    }
}

#[test]
fn gpu_memory_of_another_process_goes_by_copies_until_it_is_taken_away() {
    memory_goes_by_copies_until_it_is_taken_away("simt");
}

/// A driver without a GPU: two processes, and handles of CUDA IPC.
#[test]
fn an_allocation_of_cuda_is_opened_once_and_copied_by_the_driver() {
    FakeDriver::new("").run(|_| memory_goes_by_copies_until_it_is_taken_away("0"));
}

#[test]
fn gpu_memory_that_other_processes_do_not_open_goes_by_the_nic() {
    let mut other = start(&format!("simt own {BYTES}"));
    let said = other.says();
    let own = Served::new("a", EnginePath::Auto, ("simt", false, BYTES));
    let (peer, theirs) = own.connect(&said);
    assert_eq!(peer.path(), PeerPath::Machine);
    assert!(move_all(&own, &mut other, (&peer, &theirs)) > 0);
    assert_eq!(own.end.engine.close().cut_off, 0);
    // Nor are copies alone enough.
    let own = Served::new("c", EnginePath::Local, ("simt", false, BYTES));
    let (peer, theirs) = own.connect(&said);
    for (local, remote, side) in [
        (own.first(true), theirs[0].address, Side::Local),
        (own.first(false), theirs[1].address, Side::Remote),
    ] {
        let one = [operation(Kind::Write, local, remote, 8)];
        let refused = peer.submit(&one, &Options::default()).unwrap_err();
        assert_eq!(refused, EngineError::LocalGpu { side });
    }
}

#[test]
fn an_engine_without_gpu_memory_leaves_that_of_others_to_the_nic() {
    let mut other = start(&format!("simt shared {BYTES}"));
    let said = other.says();
    let own = Served::new("a", EnginePath::Auto, ("simt", true, BYTES));
    own.end.engine.deregister(own.region).unwrap();
    let (peer, theirs) = own.connect(&said);
    let expected = own.end.fill(8);
    let id = peer.write(own.end.at(0), theirs[1].address, BYTES).unwrap();
    assert_eq!(own.end.concluded(id), Outcome::Done);
    assert_eq!(other.asked("compare gpu 8"), "same");
    let posted = own.end.engine.rails()[0].slices.posted;
    assert!(posted > 0 && expected.len() as u64 == BYTES);
    // With such memory its GPU copies.
    let region = own.end.engine.register(&own.memory).unwrap();
    own.end.fill(9);
    let id = peer.write(own.end.at(0), theirs[1].address, BYTES).unwrap();
    assert_eq!(own.end.concluded(id), Outcome::Done);
    assert_eq!(other.asked("compare gpu 9"), "same");
    assert_eq!(own.end.engine.rails()[0].slices.posted, posted);
    own.end.engine.deregister(region).unwrap();
}

#[test]
fn copies_to_gpu_memory_of_a_killed_process_end_with_the_reason() {
    let mut other = start(&format!("simt shared {BYTES}"));
    let said = other.says();
    let own = Served::new("a", EnginePath::Local, ("simt", true, BYTES));
    let (peer, theirs) = own.connect(&said);
    // More than is copied before the end.
    let ids = KINDS.map(|kind| {
        let one = operation(kind, own.first(true), theirs[1].address, BYTES);
        peer.submit(&vec![one; 65_536], &Options::default())
            .unwrap()
    });
    other.kill();
    for id in ids {
        assert_eq!(own.end.concluded(id), Outcome::Failed);
        let report = own.end.engine.report(id).unwrap();
        let cause = report.first.and_then(|first| first.cause);
        let errno = cause.and_then(|cause| cause.errno());
        assert_eq!(errno, Some(libc::ESRCH), "{cause:?}");
        assert!(report.bytes_landed < 65_536 * BYTES);
    }
    let gone = own
        .end
        .engine
        .peer_gone(HANG)
        .expect("the engine reports it");
    assert_eq!(gone.name, "b");
}
