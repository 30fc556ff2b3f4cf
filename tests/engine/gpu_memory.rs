//! Regions in memory of a GPU that makes no copies: all that the NIC does with them, and that no copy of a thread takes its place.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use softhca::HcaConfig;
use test_support::limits::HANG;
use warpverbs::gpu::{Gpu, GpuError, RdmaSupport};
use warpverbs::internal::engine::{
    AnyMemory, Behind, Descriptor, Engine, EngineConfig, EngineError, EnginePath, GpuMemory,
    HostError, HostMemory, Kind, Operation, OperationStatus, Options, Outcome, Peer, PeerPath,
    ProviderError, RegionId, Remote, Rights, Side, Status, TransferId,
};

use crate::gpu_rig::{Posed, Sealed, gpu, refusal, seal};
use crate::rig::{End, SHORT, config, connect};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const KINDS: [Kind; 2] = [Kind::Write, Kind::Read];
/// Remote access error.
pub(crate) const ACCESS: u8 = 0x13;

pub(crate) fn operation(kind: Kind, local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind,
        local,
        remote,
        bytes,
    }
}

/// Two ends whose host memory goes by copies, and memory of a GPU at each.
pub(crate) struct Both {
    pub(crate) ends: [End; 2],
    pub(crate) gpus: [Sealed; 2],
    pub(crate) regions: [RegionId; 2],
    pub(crate) to_b: Peer,
    pub(crate) to_a: Peer,
}

impl Both {
    fn new(path: EnginePath, bytes: u64) -> Self {
        Self::of(
            [config("a"), config("b")].map(|it| it.with_engine_path(path)),
            &gpu(),
            bytes,
        )
    }

    fn of(configs: [EngineConfig; 2], gpu: &Arc<dyn Gpu>, bytes: u64) -> Self {
        Self::over(configs, [(), ()].map(|()| Sealed::new(gpu, bytes)))
    }

    /// With this memory of GPUs, and as much of the host's.
    pub(crate) fn over(configs: [EngineConfig; 2], gpus: [Sealed; 2]) -> Self {
        let bytes = gpus[0].memory.bytes();
        let ends = configs.map(|config| End::new(config.with_workers(2), bytes));
        let [to_b, to_a] = connect(&ends[0], &ends[1]);
        let register = |nth: usize| ends[nth].engine.register(&gpus[nth].memory).unwrap();
        let regions = [0, 1].map(register);
        let descriptor = |nth: usize| {
            let descriptor = ends[nth].engine.descriptor(regions[nth]).unwrap();
            Descriptor::from_bytes(&descriptor.to_bytes()).unwrap()
        };
        assert!(descriptor(0).rkeys.is_of_gpu());
        to_a.import(&descriptor(0)).unwrap();
        to_b.import(&descriptor(1)).unwrap();
        Self {
            ends,
            gpus,
            regions,
            to_b,
            to_a,
        }
    }

    /// Returns what becomes of this transfer of `a`.
    #[track_caller]
    pub(crate) fn concluded(&self, id: TransferId) -> Outcome {
        self.ends[0].concluded(id)
    }

    pub(crate) fn engine(&self, nth: usize) -> &Engine {
        &self.ends[nth].engine
    }

    /// Where byte 0 of the GPU's memory is, or of the host's.
    pub(crate) fn first(&self, nth: usize, is_of_gpu: bool) -> u64 {
        if is_of_gpu {
            self.gpus[nth].at(0)
        } else {
            self.ends[nth].at(0)
        }
    }

    pub(crate) fn fill(&self, nth: usize, is_of_gpu: bool, seed: u64) -> Vec<u8> {
        if is_of_gpu {
            self.gpus[nth].fill(seed)
        } else {
            self.ends[nth].fill(seed)
        }
    }

    pub(crate) fn bytes(&self, nth: usize, is_of_gpu: bool) -> Vec<u8> {
        if is_of_gpu {
            self.gpus[nth].bytes()
        } else {
            self.ends[nth].bytes()
        }
    }
}

/// Moves ranges of each length between each pair of memories with one of a GPU. No other byte changes. How many bytes were moved.
pub(crate) fn moves_every_byte(both: &Both, path: EnginePath) -> u64 {
    let mut moved = 0;
    for (seed, (here, there)) in (1..).zip([(true, false), (false, true), (true, true)]) {
        // The short ones would be carried by their WQEs.
        for bytes in [1, 8, 28, 4097, 65_536, MIB + 3] {
            for kind in KINDS {
                let (mut own, mut other) = (both.fill(0, here, seed), both.fill(1, there, !seed));
                let range = |at: usize| at..at + usize::try_from(bytes).unwrap();
                match kind {
                    Kind::Write => other[range(57)].copy_from_slice(&own[range(13)]),
                    Kind::Read => own[range(13)].copy_from_slice(&other[range(57)]),
                }
                let (local, remote) = (both.first(0, here) + 13, both.first(1, there) + 57);
                let one = operation(kind, local, remote, bytes);
                let id = both.to_b.submit(&[one], &Options::default()).unwrap();
                assert_eq!(both.concluded(id), Outcome::Done, "{path} {kind:?} {bytes}");
                assert!(
                    both.bytes(0, here) == own && both.bytes(1, there) == other,
                    "{path} {here} {there} {kind:?} {bytes}"
                );
                let report = both.engine(0).report(id).unwrap();
                assert_eq!((report.bytes_landed, report.first), (bytes, None));
                assert_eq!(report.remote, Remote::Quiet);
                both.engine(0).release(id).unwrap();
                moved += bytes;
            }
        }
    }
    moved
}

#[test]
fn every_byte_of_gpu_memory_arrives_by_the_nic_and_no_other_changes() {
    for path in [EnginePath::Nic, EnginePath::Auto] {
        let both = Both::new(path, 2 * MIB);
        let a = &both.ends[0];
        moves_every_byte(&both, path);
        // Of the rails: all slices went by QPs. Host memory of the same connection is copied.
        let all = a.engine.statistics().slices.posted;
        assert_eq!(a.engine.rails()[0].slices.posted, all, "{path}");
        let id = both.to_b.write(a.at(0), both.ends[1].at(0), 8).unwrap();
        assert_eq!(both.concluded(id), Outcome::Done);
        let by_nic = a.engine.rails()[0].slices.posted - all;
        let is_copied = both.to_b.path() == PeerPath::Process;
        assert_eq!(
            (is_copied, by_nic),
            (path == EnginePath::Auto, u64::from(!is_copied))
        );
    }
}

/// Vectors of pieces of host and GPU memory arrive whole, and no other byte changes.
pub(crate) fn moves_vectors(both: &Both) {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for kind in KINDS {
        let mut own = [false, true].map(|is_of_gpu| both.fill(0, is_of_gpu, random.u64(..)));
        let mut other = [false, true].map(|is_of_gpu| both.fill(1, is_of_gpu, random.u64(..)));
        let mut ids = Vec::new();
        // Each fourth transfer is of host memory alone, and is copied beside the others.
        for transfer in 0..32usize {
            let mut operations = Vec::new();
            for tile in 0..128usize {
                let at = (transfer * 128 + tile) * 256;
                let [here, there] = [(); 2].map(|()| transfer % 4 > 0 && random.bool());
                let bytes = random.usize(1..=256);
                let (from, to) = (at, ((transfer * 128 + 127 - tile) * 256));
                let (local, remote) = (&mut own[usize::from(here)], &mut other[usize::from(there)]);
                match kind {
                    Kind::Write => {
                        remote[to..to + bytes].copy_from_slice(&local[from..from + bytes]);
                    }
                    Kind::Read => {
                        local[from..from + bytes].copy_from_slice(&remote[to..to + bytes])
                    }
                }
                operations.push(operation(
                    kind,
                    both.first(0, here) + from as u64,
                    both.first(1, there) + to as u64,
                    bytes as u64,
                ));
            }
            ids.push(both.to_b.submit(&operations, &Options::default()).unwrap());
        }
        for id in ids {
            assert_eq!(both.concluded(id), Outcome::Done, "seed {seed}");
            both.engine(0).release(id).unwrap();
        }
        for is_of_gpu in [false, true] {
            let at = usize::from(is_of_gpu);
            assert!(both.bytes(0, is_of_gpu) == own[at], "{kind:?} seed {seed}");
            assert!(
                both.bytes(1, is_of_gpu) == other[at],
                "{kind:?} seed {seed}"
            );
        }
    }
}

#[test]
fn vectors_across_host_and_gpu_regions_arrive_whole_beside_copies() {
    moves_vectors(&Both::new(EnginePath::Auto, MIB));
}

#[test]
fn a_slice_of_gpu_memory_whose_qp_fails_goes_on_another_and_not_by_a_copy() {
    let both = Both::new(EnginePath::Auto, MIB);
    let expected = both.gpus[0].fill(3);
    both.ends[0]
        .hca
        .set_faults(&"cqe=wqe#2:syndrome=0x15".parse().unwrap());
    let (local, remote) = (both.gpus[0].at(0), both.gpus[1].at(0));
    let id = both.to_b.write(local, remote, MIB).unwrap();
    assert_eq!(both.concluded(id), Outcome::Done);
    assert!(
        both.engine(0).report(id).unwrap().first.is_some(),
        "it has failed once"
    );
    assert!(both.gpus[1].bytes() == expected);
    assert!(both.engine(0).statistics().retried > 0);
}

/// Counters and notices that follow bytes from memory of a GPU to memory of a GPU come after them.
pub(crate) fn counts_and_tells_behind_bytes(both: &Both) {
    let counter = both.engine(1).counter(3).unwrap();
    let counting = Options::default().with_counter(Some(3));
    for round in 0..20 {
        let expected = both.gpus[0].fill(round);
        let pages = (0..64).map(|page| page * 4096);
        let page = |at| operation(Kind::Write, both.gpus[0].at(at), both.gpus[1].at(at), 4096);
        let pages: Vec<Operation> = pages.map(page).collect();
        let id = both.to_b.submit(&pages, &counting).unwrap();
        let sum = 64 * (round + 1);
        assert_eq!(counter.wait(sum, HANG), Some(sum));
        assert!(both.gpus[1].bytes()[..64 * 4096] == expected[..64 * 4096]);
        assert_eq!(both.concluded(id), Outcome::Done);
        both.engine(0).release(id).unwrap();
        let whole = operation(Kind::Write, both.gpus[0].at(0), both.gpus[1].at(0), MIB);
        let id = both
            .to_b
            .submit(&[whole], &Options::default().with_notice(Some(b"behind")))
            .unwrap();
        let notice = both.engine(1).notice(HANG).expect("it comes");
        assert!(matches!(
            notice.transfer,
            Some(Behind {
                outcome: Outcome::Done,
                ..
            })
        ));
        assert!(both.gpus[1].bytes() == expected);
        assert_eq!(both.concluded(id), Outcome::Done);
        both.engine(0).release(id).unwrap();
    }
}

#[test]
fn counters_and_notices_stand_behind_bytes_in_gpu_memory() {
    counts_and_tells_behind_bytes(&Both::new(EnginePath::Auto, MIB));
}

#[test]
fn a_revoked_grant_of_gpu_memory_is_read_no_more() {
    for path in [EnginePath::Nic, EnginePath::Auto] {
        let both = Both::new(path, MIB);
        let expected = both.gpus[1].fill(9);
        let address = both.gpus[1].at(5000);
        let grant = both
            .to_a
            .grant(address, 70_001, Rights::Read, None)
            .unwrap();
        assert!(grant.rkeys.is_of_gpu());
        both.to_b.import_grant(&grant).unwrap();
        let id = both
            .to_b
            .read(both.gpus[0].at(1), grant.address, 70_001)
            .unwrap();
        assert_eq!(both.concluded(id), Outcome::Done);
        assert!(both.gpus[0].bytes()[1..70_002] == expected[5000..75_001]);
        both.engine(1).revoke(&grant).unwrap();
        both.gpus[1].fill(10);
        let before = both.gpus[0].bytes();
        let id = both
            .to_b
            .read(both.gpus[0].at(1), grant.address, 70_001)
            .unwrap();
        assert_eq!(both.concluded(id), Outcome::Failed, "{path}");
        let first = both.engine(0).report(id).unwrap().first.unwrap();
        assert_eq!(first.cause.unwrap().syndrome, ACCESS);
        assert!(both.gpus[0].bytes() == before);
    }
}

#[test]
fn where_copies_alone_are_allowed_gpu_memory_is_refused() {
    let both = Both::new(EnginePath::Local, MIB);
    let (own, other) = (&both.ends[0], &both.ends[1]);
    for (local, remote, side) in [
        (both.gpus[0].at(0), other.at(0), Side::Local),
        (own.at(0), both.gpus[1].at(0), Side::Remote),
    ] {
        for kind in KINDS {
            let one = [operation(kind, local, remote, 8)];
            let refused = both.to_b.submit(&one, &Options::default()).unwrap_err();
            assert_eq!(refused, EngineError::LocalGpu { side });
        }
    }
    let text = EngineError::LocalGpu { side: Side::Local }.to_string();
    assert!(text.contains("WARPVERBS_ENGINE_PATH is local"), "{text}");
    let one = [operation(Kind::Write, own.at(0), both.gpus[1].at(0), 8)];
    assert_eq!(
        both.to_b.prepare(&one).unwrap_err(),
        EngineError::LocalGpu { side: Side::Remote }
    );
    // Nothing is left of them, and host memory is copied.
    assert_eq!(own.engine.in_use(), 0);
    let expected = own.fill(1);
    let id = both.to_b.write(own.at(0), other.at(0), MIB).unwrap();
    assert_eq!(both.concluded(id), Outcome::Done);
    assert!(other.bytes() == expected);
    both.engine(0).deregister(both.regions[0]).unwrap();
}

#[test]
fn a_prepared_transfer_of_gpu_memory_is_posted_by_the_nic() {
    let both = Both::new(EnginePath::Auto, MIB);
    let expected = both.ends[0].fill(4);
    let whole = operation(Kind::Write, both.ends[0].at(0), both.gpus[1].at(0), MIB);
    let prepared = both.to_b.prepare(&[whole]).unwrap();
    for _ in 0..3 {
        both.gpus[1].fill(5);
        let id = both.to_b.post(&prepared, &Options::default()).unwrap();
        assert_eq!(both.concluded(id), Outcome::Done);
        assert!(both.gpus[1].bytes() == expected);
        both.engine(0).release(id).unwrap();
    }
    let slices = both.engine(0).rails()[0].slices.posted;
    assert_eq!(slices, both.engine(0).statistics().slices.posted);
}

/// Of a GPU that shows writes after a flush.
fn flushed() -> (Both, Arc<Posed>) {
    let posed = Posed::unordered();
    let gpu: Arc<dyn Gpu> = Arc::<Posed>::clone(&posed);
    let configs = [config("a"), config("b")].map(|it| it.with_engine_path(EnginePath::Auto));
    (Both::of(configs, &gpu, MIB), posed)
}

#[test]
fn a_counter_counts_when_the_gpu_is_flushed_and_not_before() {
    let (both, posed) = flushed();
    let counter = both.engine(1).counter(3).unwrap();
    let word = Arc::new(HostMemory::new(8).unwrap());
    let _mirror = counter.mirror(&word, 0).unwrap();
    let said = || {
        let mut bytes = [0; 8];
        word.read(0, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let counting = Options::default().with_counter(Some(3));
    for round in 1..5 {
        let gate = posed.gate();
        let page = operation(Kind::Write, both.ends[0].at(0), both.gpus[1].at(0), 4096);
        let id = both.to_b.submit(&[page], &counting).unwrap();
        gate.begun();
        assert_eq!(
            both.concluded(id),
            Outcome::Done,
            "the sender waits for no flush"
        );
        assert_eq!((counter.wait(round, SHORT), said()), (None, round - 1));
        gate.end(Ok(()));
        assert_eq!(counter.wait(round, HANG), Some(round));
        test_support::limits::until("the word says it", || said() == round);
        both.engine(0).release(id).unwrap();
    }
}

#[test]
fn a_notice_is_delivered_when_the_gpu_is_flushed_and_not_before() {
    let (both, posed) = flushed();
    let gate = posed.gate();
    let page = operation(Kind::Write, both.ends[0].at(0), both.gpus[1].at(0), 4096);
    let id = both
        .to_b
        .submit(&[page], &Options::default().with_notice(Some(b"it")))
        .unwrap();
    gate.begun();
    assert_eq!(both.concluded(id), Outcome::Done);
    assert_eq!(both.engine(1).notice(SHORT), None);
    gate.end(Ok(()));
    assert_eq!(
        &*both.engine(1).notice(HANG).expect("it comes").bytes,
        b"it"
    );
}

#[test]
fn a_read_into_a_gpu_is_concluded_behind_its_flush_and_its_region_is_busy() {
    let (both, posed) = flushed();
    let expected = both.ends[1].fill(3);
    let gate = posed.gate();
    let id = both
        .to_b
        .read(both.gpus[0].at(0), both.ends[1].at(0), MIB)
        .unwrap();
    gate.begun();
    assert_eq!(both.engine(0).poll(id), Ok(Status::Pending));
    let (number, users) = (both.regions[0].number(), 1);
    match both.engine(0).deregister(both.regions[0]) {
        Err(HostError::Refused(busy)) => assert_eq!(busy, EngineError::Busy { number, users }),
        other => panic!("{other:?}"),
    }
    let late = both.engine(0).deregister_wait(both.regions[0], SHORT);
    assert!(
        matches!(late, Err(HostError::Refused(EngineError::Busy { .. }))),
        "{late:?}"
    );
    gate.end(Ok(()));
    assert_eq!(both.concluded(id), Outcome::Done);
    assert!(both.gpus[0].bytes() == expected);
    both.engine(0)
        .deregister_wait(both.regions[0], HANG)
        .unwrap();
    // Without memory of the GPU no thread flushes: one that did would wait at this gate in vain.
    both.engine(1).deregister(both.regions[1]).unwrap();
    let _gate = posed.gate();
    let id = both
        .to_b
        .read(both.ends[0].at(0), both.ends[1].at(0), MIB)
        .unwrap();
    assert_eq!(both.concluded(id), Outcome::Done);
}

#[test]
fn what_is_not_flushed_is_neither_done_nor_counted() {
    let (both, posed) = flushed();
    let gate = posed.gate();
    let id = both
        .to_b
        .read(both.gpus[0].at(0), both.ends[1].at(0), 8)
        .unwrap();
    gate.begun();
    gate.end(Err(refusal()));
    assert_eq!(both.concluded(id), Outcome::Failed);
    let report = both.engine(0).report(id).unwrap();
    assert_eq!(report.operations, [OperationStatus::Failed]);
    let cause = report.first.unwrap().cause.unwrap();
    assert_eq!((cause.errno(), report.bytes_landed), (Some(libc::EIO), 0));
    // At a receiver the connection ends, and the counter says nothing.
    let counter = both.engine(1).counter(3).unwrap();
    let gate = posed.gate();
    let page = operation(Kind::Write, both.ends[0].at(0), both.gpus[1].at(0), 4096);
    let counting = Options::default().with_counter(Some(3));
    both.to_b.submit(&[page], &counting).unwrap();
    gate.begun();
    gate.end(Err(refusal()));
    let gone = both.engine(0).peer_gone(HANG);
    assert!(gone.is_some_and(|gone| gone.name == "b"));
    assert_eq!(counter.read(), 0);
}

fn refused<T: std::fmt::Debug>(result: Result<T, HostError>) -> EngineError {
    match result.unwrap_err() {
        HostError::Refused(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn tensors_of_one_buffer_share_its_registration_and_go_with_the_last() {
    let end = End::new(config("a"), 4096);
    let before = end.hca.live_objects().mr;
    let whole = Sealed::new(&gpu(), MIB).memory;
    let part = |at, bytes| Arc::new(GpuMemory::part(&whole, at, bytes).unwrap());
    let mut tensors: Vec<Arc<GpuMemory>> = (0..50).map(|nth| part(nth * 4000, 3000)).collect();
    tensors.insert(7, Arc::clone(&whole));
    let regions = end.engine.register_all(&tensors).unwrap();
    let later = end.engine.register(&tensors[3]).unwrap();
    assert_eq!(end.hca.live_objects().mr, before + 1);
    for region in regions {
        end.engine.deregister(region).unwrap();
    }
    assert_eq!(end.hca.live_objects().mr, before + 1);
    end.engine.deregister(later).unwrap();
    assert_eq!(end.hca.live_objects().mr, before);
    // Alone each has its own, wherever it begins; both kinds stand in one list.
    let host = Arc::new(HostMemory::new(MIB).unwrap());
    let mixed = [
        AnyMemory::from(&tensors[3]),
        AnyMemory::from(&host),
        (&tensors[5]).into(),
    ];
    let regions = end.engine.register_all(&mixed).unwrap();
    assert_eq!(end.hca.live_objects().mr, before + 3);
    let kinds = regions
        .iter()
        .map(|it| end.engine.descriptor(*it).unwrap().rkeys.is_of_gpu());
    assert!(kinds.eq([true, false, true]));
    for (offset, bytes) in [(MIB, 1), (0, MIB + 1), (u64::MAX, 2), (0, 0)] {
        let refused = GpuMemory::part(&whole, offset, bytes);
        assert!(refused.is_err(), "{offset} {bytes}");
    }
}

#[test]
fn an_address_that_was_freed_and_used_again_is_no_hit() {
    let posed = Posed::new(RdmaSupport::HOST);
    let gpu: Arc<dyn Gpu> = Arc::<Posed>::clone(&posed);
    let end = End::new(config("a"), 4096);
    let before = end.hca.live_objects().mr;
    let memory = Arc::new(gpu.alloc(8192, 4096).unwrap());
    posed.buffer.store(7, Ordering::Relaxed);
    let tensor = || Arc::new(GpuMemory::new(&gpu, &memory).unwrap());
    let (first, same) = (tensor(), tensor());
    let regions = [&first, &same].map(|it| end.engine.register(it).unwrap());
    assert_eq!(end.hca.live_objects().mr, before + 1);
    // The program frees it, and gets the same address for other memory.
    posed.buffer.store(8, Ordering::Relaxed);
    let other = tensor();
    let inside = Arc::new(GpuMemory::part(&other, 100, 8).unwrap());
    let (address, bytes) = (other.address(), other.bytes());
    let freed = |address, bytes| EngineError::Freed {
        address,
        bytes,
        region: regions[0].number(),
    };
    assert_eq!(refused(end.engine.register(&other)), freed(address, bytes));
    assert_eq!(
        refused(end.engine.register(&inside)),
        freed(address + 100, 8)
    );
    assert_eq!(end.hca.live_objects().mr, before + 1);
    for region in regions {
        end.engine.deregister(region).unwrap();
    }
    end.engine.register(&other).unwrap();
    end.engine.register(&inside).unwrap();
    assert_eq!(end.hca.live_objects().mr, before + 1);
}

#[test]
fn memory_is_of_one_kind_as_long_as_a_region_has_it() {
    let (end, gpu) = (End::new(config("a"), 4096), gpu());
    let device = Arc::new(gpu.alloc(8192, 4096).unwrap());
    let memory = Arc::new(GpuMemory::new(&gpu, &device).unwrap());
    let first = std::ptr::with_exposed_provenance_mut(usize::try_from(memory.address()).unwrap());
    #[expect(unsafe_code, reason = "device memory of simt")]
    // SAFETY: memory of simt is memory of this process, which `device` keeps.
    let host = unsafe { HostMemory::over(first, 8192, None) };
    let host = Arc::new(host.unwrap());
    let refused_as = |result, registered| match refused(result) {
        EngineError::OtherKind {
            registered: found,
            bytes: 8192,
            ..
        } => {
            assert_eq!(found, registered);
        }
        other => panic!("{other}"),
    };
    let region = end.engine.register(&host).unwrap();
    refused_as(end.engine.register(&memory), "the host");
    end.engine.deregister(region).unwrap();
    let region = end.engine.register(&memory).unwrap();
    refused_as(end.engine.register(&host), "a GPU");
    end.engine.deregister(region).unwrap();
    let both = [AnyMemory::from(&host), AnyMemory::from(&memory)];
    assert!(end.engine.register_all(&both).is_err());
    end.engine.register(&host).unwrap();
}

#[test]
fn memory_that_hca_or_gpu_do_not_give_is_refused_with_the_reason() {
    let end = End::new(config("a"), 4096);
    let before = end.hca.live_objects().mr;
    let provider = |result: Result<RegionId, HostError>| match result.unwrap_err() {
        HostError::Provider(error) => error,
        other => panic!("{other:?}"),
    };
    // It has no DMA-BUF, and the HCA does not reach its address.
    let plain: Arc<dyn Gpu> = warpverbs::gpu::simt::SimtGpu::open().unwrap();
    let memory = Arc::new(plain.alloc(4096, 4096).unwrap());
    seal(&memory);
    let sealed = Arc::new(GpuMemory::new(&plain, &memory).unwrap());
    let refused = provider(end.engine.register(&sealed));
    assert!(refused.to_string().contains("ibv_reg_mr"), "{refused}");
    // The driver has neither.
    let nothing = RdmaSupport {
        registration: false,
        ..RdmaSupport::HOST
    };
    let posed: Arc<dyn Gpu> = Posed::new(nothing);
    let memory = Arc::new(GpuMemory::new(&posed, &Arc::new(posed.alloc(64, 64).unwrap())).unwrap());
    end.engine.register(&memory).unwrap();
    #[expect(unsafe_code, reason = "memory of the test")]
    // SAFETY: `memory` is allocated as long as this is used.
    let lent = unsafe { GpuMemory::over(&posed, memory.address(), 64, None) };
    let other = End::new(config("b"), 4096);
    let refused = provider(other.engine.register(&Arc::new(lent.unwrap())));
    assert!(
        matches!(refused, ProviderError::NotOffered { bytes: 64, .. }),
        "{refused}"
    );
    // What is written is never shown for sure.
    let mut unordered = RdmaSupport::HOST;
    unordered.write_ordering = warpverbs::gpu::WriteOrdering::None;
    let posed: Arc<dyn Gpu> = Posed::new(unordered);
    let memory = Arc::new(posed.alloc(64, 64).unwrap());
    let refused = GpuMemory::new(&posed, &memory).unwrap_err();
    assert!(
        matches!(refused, ProviderError::NoFlush { .. }),
        "{refused}"
    );
    // Of another device.
    let refused = GpuMemory::new(&plain, &memory).unwrap_err();
    assert!(
        matches!(refused, ProviderError::Gpu(GpuError::BadRange { .. })),
        "{refused}"
    );
    assert_eq!(end.hca.live_objects().mr, before + 1);
}

#[test]
fn gpu_memory_is_kept_until_its_region_and_its_engine_let_it_go() {
    let (gpu, kept) = (gpu(), Arc::new(()));
    let memory = Sealed::new(&gpu, MIB);
    let lend = || {
        let owner = Box::new(Arc::clone(&kept));
        #[expect(unsafe_code, reason = "memory of the test")]
        // SAFETY: `memory` lives longer.
        let lent = unsafe { GpuMemory::over(&gpu, memory.at(0), 4096, Some(owner)) };
        lent.unwrap()
    };
    drop(lend());
    assert_eq!(Arc::strong_count(&kept), 1);
    let hca = HcaConfig::default();
    let end = End::on(hca, config("a"), 4096);
    let whole = end.engine.register(&memory.memory).unwrap();
    let region = end.engine.register(&Arc::new(lend())).unwrap();
    // It shares the registration, which keeps the whole.
    end.engine.deregister(region).unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
    let strong = Arc::strong_count(&memory.memory);
    assert!(strong > 1);
    end.engine.deregister(whole).unwrap();
    assert_eq!(Arc::strong_count(&memory.memory), 1);
    end.engine.register(&memory.memory).unwrap();
    let _report = end.engine.close();
    assert_eq!(Arc::strong_count(&memory.memory), 1);
}
