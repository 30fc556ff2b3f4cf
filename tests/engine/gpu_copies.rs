//! Memory of a GPU that the GPU copies within a process, in place of the NIC: every byte, and what becomes of a copy that cannot be.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use warpverbs::internal::engine::{
    EngineError, EnginePath, Kind, Options, Outcome, PeerPath, Rights, Side,
};

use crate::gpu_memory::{
    ACCESS, Both, MIB, counts_and_tells_behind_bytes, moves_every_byte, moves_vectors, operation,
};
use crate::gpu_rig::Copying;
use crate::rig::config;

/// Memory of one GPU at both ends.
fn both(path: EnginePath, bytes: u64) -> (Both, Arc<Copying>) {
    let gpu = Copying::new("one");
    let gpus = [(), ()].map(|()| gpu.sealed(bytes));
    (of_gpus(path, gpus), gpu)
}

fn of_gpus(path: EnginePath, gpus: [crate::gpu_rig::Sealed; 2]) -> Both {
    let configs = [config("a"), config("b")].map(|it| it.with_engine_path(path));
    Both::over(configs, gpus)
}

/// WQEs that the HCA of `a` has had of slices.
fn by_nic(both: &Both) -> u64 {
    both.engine(0).rails()[0].slices.posted
}

#[test]
fn a_gpu_copies_its_memory_within_a_process_and_the_nic_moves_no_byte() {
    for path in [EnginePath::Auto, EnginePath::Local] {
        let (both, gpu) = both(path, 2 * MIB);
        assert_eq!(both.to_b.path(), PeerPath::Process);
        let copied = moves_every_byte(&both, path);
        assert_eq!(gpu.copied.load(Ordering::Relaxed), copied);
        assert_eq!(by_nic(&both), 0, "{path}");
    }
}

#[test]
fn vectors_across_host_and_gpu_regions_are_copied_whole() {
    let (both, gpu) = both(EnginePath::Auto, MIB);
    moves_vectors(&both);
    assert!(gpu.copied.load(Ordering::Relaxed) > 0);
    assert_eq!(by_nic(&both), 0);
}

#[test]
fn counters_and_notices_stand_behind_bytes_that_a_gpu_has_copied() {
    let (both, _gpu) = both(EnginePath::Local, MIB);
    counts_and_tells_behind_bytes(&both);
    assert_eq!(by_nic(&both), 0);
}

#[test]
fn what_a_gpu_refuses_to_copy_goes_by_the_nic() {
    for path in [EnginePath::Auto, EnginePath::Local] {
        let (both, gpu) = both(path, MIB);
        both.gpus[1].fill(1);
        let expected = both.gpus[0].fill(2);
        gpu.refuses.store(true, Ordering::Relaxed);
        let write = || both.to_b.write(both.gpus[0].at(0), both.gpus[1].at(0), MIB);
        let id = write().unwrap();
        assert_eq!(both.concluded(id), Outcome::Done, "{path}");
        let report = both.engine(0).report(id).unwrap();
        let cause = report.first.expect("it has failed once").cause.unwrap();
        assert_eq!(cause.errno(), Some(libc::EIO));
        assert!(both.gpus[1].bytes() == expected, "{path}");
        let posted = by_nic(&both);
        assert!(posted > 0, "{path}");
        // The next one is copied.
        gpu.refuses.store(false, Ordering::Relaxed);
        let expected = both.gpus[0].fill(3);
        let id = write().unwrap();
        assert_eq!(both.concluded(id), Outcome::Done);
        assert!(both.gpus[1].bytes() == expected);
        assert_eq!(by_nic(&both), posted);
    }
}

#[test]
fn gpus_that_do_not_reach_each_other_leave_their_memory_to_the_nic() {
    for path in [EnginePath::Auto, EnginePath::Local] {
        let gpus = [Copying::new("one"), Copying::new("other")];
        let both = of_gpus(path, gpus.each_ref().map(|gpu| gpu.sealed(MIB)));
        let expected = both.gpus[0].fill(3);
        let one = [operation(
            Kind::Write,
            both.gpus[0].at(0),
            both.gpus[1].at(0),
            MIB,
        )];
        let submitted = both.to_b.submit(&one, &Options::default());
        if path == EnginePath::Local {
            let side = Side::Local;
            assert_eq!(submitted.unwrap_err(), EngineError::LocalGpu { side });
            assert_eq!(
                both.to_b.prepare(&one).unwrap_err(),
                EngineError::LocalGpu { side }
            );
        } else {
            assert_eq!(both.concluded(submitted.unwrap()), Outcome::Done);
            assert!(both.gpus[1].bytes() == expected);
            assert!(by_nic(&both) > 0);
        }
        // Each copies to and from memory of the host, its own and that of the peer.
        let mut copied = [0, 0];
        for (here, there) in [(true, false), (false, true)] {
            let expected = both.fill(0, here, 4);
            let id = both
                .to_b
                .write(both.first(0, here), both.first(1, there), MIB);
            assert_eq!(both.concluded(id.unwrap()), Outcome::Done);
            assert!(both.bytes(1, there) == expected);
            copied[usize::from(there)] += MIB;
        }
        assert_eq!(gpus.map(|gpu| gpu.copied.load(Ordering::Relaxed)), copied);
    }
}

#[test]
fn a_gpu_region_that_is_taken_away_is_copied_no_more() {
    let (both, gpu) = both(EnginePath::Auto, MIB);
    let one = [operation(
        Kind::Write,
        both.gpus[0].at(0),
        both.gpus[1].at(0),
        MIB,
    )];
    let prepared = both.to_b.prepare(&one).unwrap();
    let id = both.to_b.post(&prepared, &Options::default()).unwrap();
    assert_eq!(both.concluded(id), Outcome::Done);
    both.engine(1).deregister(both.regions[1]).unwrap();
    let before = both.gpus[1].fill(5);
    let copied = gpu.copied.load(Ordering::Relaxed);
    let id = both.to_b.post(&prepared, &Options::default()).unwrap();
    assert_eq!(both.concluded(id), Outcome::Failed);
    let first = both.engine(0).report(id).unwrap().first.unwrap();
    assert_eq!(first.cause.unwrap().syndrome, ACCESS);
    assert!(both.gpus[1].bytes() == before);
    assert_eq!(gpu.copied.load(Ordering::Relaxed), copied);
    // Its own side is as it was.
    both.engine(0).deregister(both.regions[0]).unwrap();
}

#[test]
fn a_grant_of_gpu_memory_is_for_the_nic_where_the_gpu_copies_too() {
    let (both, gpu) = both(EnginePath::Auto, MIB);
    let expected = both.gpus[1].fill(9);
    let address = both.gpus[1].at(5000);
    let grant = both
        .to_a
        .grant(address, 70_001, Rights::Read, None)
        .unwrap();
    both.to_b.import_grant(&grant).unwrap();
    let read = || both.to_b.read(both.gpus[0].at(1), grant.address, 70_001);
    let id = read().unwrap();
    assert_eq!(both.concluded(id), Outcome::Done);
    assert!(both.gpus[0].bytes()[1..70_002] == expected[5000..75_001]);
    assert_eq!(gpu.copied.load(Ordering::Relaxed), 0);
    both.engine(1).revoke(&grant).unwrap();
    let before = both.gpus[0].fill(10);
    let id = read().unwrap();
    assert_eq!(both.concluded(id), Outcome::Failed);
    assert!(both.gpus[0].bytes() == before);
}
