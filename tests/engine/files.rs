//! Regions over a mapping of a file, which somebody truncates: operations on pages that are gone fail with their cause, by each path.
//! The process lives, and all else goes on.

// UNSAFETY: maps files.
#![expect(unsafe_code, reason = "mappings of files")]

use std::env;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use softhca::HcaConfig;
use test_support::mapped::MappedFile;
use test_support::process::Process;
use warpverbs::internal::engine::{
    Cause, EngineConfig, EnginePath, HostMemory, Kind, Operation, OperationStatus, Options,
    Outcome, Peer, PeerPath, ProviderError, RegionId,
};

use crate::descriptors::{descriptor, hex};
use crate::gpu_memory::Both;
use crate::gpu_rig::Copying;
use crate::rig::{End, config, connect, listens};

const PAGE: u64 = 4096;
const BYTES: u64 = 256 * PAGE;
const KINDS: [Kind; 2] = [Kind::Write, Kind::Read];
/// What a process that a test starts is to do.
const SPEC: &str = "WV_TEST_ENGINE_FILE";

/// A file without a name, and all of it as memory.
struct Mapped {
    file: File,
    memory: Arc<HostMemory>,
}

impl Mapped {
    fn new(how: i32) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len(BYTES).unwrap();
        let mapping = MappedFile::new(file.try_clone().unwrap(), how);
        let first = mapping.first();
        // SAFETY: the owner keeps the mapping; a page that the file lacks is what is tested.
        let memory = unsafe { HostMemory::over(first, BYTES, Some(Box::new(mapping))) };
        Self {
            file,
            memory: Arc::new(memory.unwrap()),
        }
    }

    fn at(&self, offset: u64) -> u64 {
        self.memory.address() + offset
    }

    fn fill(&self, byte: u8) {
        self.file.set_len(BYTES).unwrap();
        let bytes = vec![byte; usize::try_from(BYTES).unwrap()];
        self.memory.write(0, &bytes).unwrap();
    }

    fn all_are(&self, at: u64, bytes: u64, byte: u8) -> bool {
        let mut found = vec![!byte; usize::try_from(bytes).unwrap()];
        self.memory.read(at, &mut found).unwrap();
        found.iter().all(|it| *it == byte)
    }
}

fn on(path: EnginePath, name: &str) -> EngineConfig {
    config(name).with_engine_path(path).with_workers(2)
}

/// What an operation is about: which byte of the file, by way of which end's memory.
struct Place {
    kind: Kind,
    local: u64,
    remote: u64,
}

impl Place {
    fn operation(&self, skipped: u64, bytes: u64) -> Operation {
        Operation {
            kind: self.kind,
            local: self.local + skipped,
            remote: self.remote + skipped,
            bytes,
        }
    }
}

/// One operation of this end.
#[track_caller]
fn one(own: &End, peer: &Peer, operation: Operation) -> (Outcome, Option<Cause>) {
    let id = peer.submit(&[operation], &Options::default()).unwrap();
    let outcome = own.concluded(id);
    let report = own.engine.report(id).unwrap();
    own.engine.release(id).unwrap();
    (outcome, report.first.and_then(|first| first.cause))
}

/// The file of `place` has lost all after `kept`, in whole pages `gone`. Everything that is there is used, and nothing else.
fn uses(own: &End, peer: &Peer, place: &Place, sound: Operation, gone: u64, syndrome: u8) {
    let done = (Outcome::Done, None);
    if gone > 0 {
        // Up to the last byte of the last page.
        assert_eq!(one(own, peer, place.operation(0, gone)), done);
    }
    // Of each length that has a way of its own: carried by its WQE, short, and in many pages. It begins where all is gone, or
    // before that.
    for (at, bytes) in [
        (gone, 8),
        (gone + 13, 300),
        (gone, 100 * PAGE),
        (gone / 2, 100 * PAGE),
    ] {
        let (outcome, cause) = one(own, peer, place.operation(at, bytes));
        assert_eq!(outcome, Outcome::Failed, "{at} {bytes}");
        let cause = cause.unwrap();
        assert_eq!(cause.syndrome, syndrome, "{at} {bytes}: {cause}");
        if syndrome == Cause::SYSTEM {
            assert_eq!(cause.errno(), Some(libc::EFAULT), "{at} {bytes}: {cause}");
        }
        assert_eq!(one(own, peer, sound), done, "{at} {bytes}");
    }
    // Of a transfer with both, only one fails.
    let both = [sound, place.operation(gone, PAGE)];
    let id = peer.submit(&both, &Options::default()).unwrap();
    assert_eq!(own.concluded(id), Outcome::Failed);
    let operations = own.engine.report(id).unwrap().operations;
    assert_eq!(operations, [OperationStatus::Done, OperationStatus::Failed]);
}

#[test]
fn operations_on_pages_that_are_gone_fail_within_a_process_and_by_the_nic() {
    // Remote access error, local protection error.
    const NIC: [u8; 2] = [0x13, 0x04];
    const COPIES: [u8; 2] = [Cause::SYSTEM; 2];
    let paths = [
        (EnginePath::Nic, PeerPath::Nic, NIC),
        (EnginePath::Local, PeerPath::Process, COPIES),
    ];
    for (path, found, syndromes) in paths {
        for how in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
            let (a, b) = (
                End::new(on(path, "a"), BYTES),
                End::new(on(path, "b"), BYTES),
            );
            let [to_b, _] = connect(&a, &b);
            assert_eq!(to_b.path(), found);
            let files = [(), ()].map(|()| Mapped::new(how));
            a.engine.register(&files[0].memory).unwrap();
            let there = b.engine.register(&files[1].memory).unwrap();
            to_b.import(&b.engine.descriptor(there).unwrap()).unwrap();
            for (is_local, file) in [true, false].into_iter().zip(&files) {
                for kind in KINDS {
                    let (place, syndrome) = if is_local {
                        ((file.at(0), b.at(0)), syndromes[1])
                    } else {
                        ((a.at(0), file.at(0)), syndromes[0])
                    };
                    let (local, remote) = place;
                    let place = Place {
                        kind,
                        local,
                        remote,
                    };
                    let sound = Place {
                        kind,
                        local: a.at(0),
                        remote: b.at(0),
                    };
                    let sound = sound.operation(0, 64);
                    // All of it; whole pages; to a point within a page, whose rest is there and zero.
                    for kept in [0, 9 * PAGE, 9 * PAGE - 1000] {
                        file.fill(0x77);
                        file.file.set_len(kept).unwrap();
                        let gone = kept.next_multiple_of(PAGE);
                        uses(&a, &to_b, &place, sound, gone, syndrome);
                    }
                    // And again when the file has all of it.
                    file.fill(0x78);
                    let whole = place.operation(0, BYTES);
                    assert_eq!(one(&a, &to_b, whole), (Outcome::Done, None));
                }
            }
        }
    }
}

#[test]
fn a_gpu_is_let_near_no_page_that_is_gone() {
    let gpu = Copying::new("one");
    let gpus = [(), ()].map(|()| gpu.sealed(BYTES));
    let configs = ["a", "b"].map(|name| on(EnginePath::Local, name));
    let both = Both::over(configs, gpus);
    let file = Mapped::new(libc::MAP_SHARED);
    both.engine(0).register(&file.memory).unwrap();
    for kind in KINDS {
        let place = |local| Place {
            kind,
            local,
            remote: both.first(1, true),
        };
        let sound = place(both.first(0, false)).operation(0, 64);
        file.fill(0x77);
        file.file.set_len(9 * PAGE - 1000).unwrap();
        let there = place(file.at(0));
        let copied = gpu.copied.load(Ordering::Relaxed);
        uses(
            &both.ends[0],
            &both.to_b,
            &there,
            sound,
            9 * PAGE,
            Cause::SYSTEM,
        );
        assert!(gpu.copied.load(Ordering::Relaxed) > copied);
        // The GPU's bytes come to where the file is.
        let expected = both.fill(1, true, 3);
        let read = Operation {
            kind: Kind::Read,
            ..there.operation(0, 9 * PAGE)
        };
        let done = (Outcome::Done, None);
        assert_eq!(one(&both.ends[0], &both.to_b, read), done);
        let mut found = vec![0; usize::try_from(9 * PAGE).unwrap()];
        file.memory.read(0, &mut found).unwrap();
        assert!(found == expected[..found.len()]);
    }
}

#[test]
fn what_is_before_a_write_that_fails_keeps_its_bytes() {
    for path in [EnginePath::Nic, EnginePath::Local] {
        let (a, b) = (
            End::new(on(path, "a"), BYTES),
            End::new(on(path, "b"), BYTES),
        );
        let [to_b, _] = connect(&a, &b);
        let file = Mapped::new(libc::MAP_SHARED);
        let there = b.engine.register(&file.memory).unwrap();
        to_b.import(&b.engine.descriptor(there).unwrap()).unwrap();
        file.fill(3);
        file.file.set_len(9 * PAGE).unwrap();
        let place = Place {
            kind: Kind::Write,
            local: a.at(0),
            remote: file.at(8 * PAGE),
        };
        let (outcome, _) = one(&a, &to_b, place.operation(0, 3 * PAGE));
        assert_eq!(outcome, Outcome::Failed, "{path}");
        assert!(file.all_are(0, 8 * PAGE, 3), "{path}");
    }
}

#[test]
fn a_program_that_copies_memory_whose_pages_are_gone_gets_an_error() {
    let file = Mapped::new(libc::MAP_SHARED);
    let part = HostMemory::part(&file.memory, PAGE, PAGE).unwrap();
    file.fill(5);
    file.file.set_len(PAGE).unwrap();
    let address = part.address();
    let mut bytes = [0; 8];
    for outcome in [part.write(16, &[1; 8]), part.read(16, &mut bytes)] {
        let error = outcome.unwrap_err();
        let (at, count) = (address + 16, 8);
        assert!(
            matches!(error, ProviderError::Gone { address, bytes } if (address, bytes) == (at, count)),
            "{error}"
        );
    }
    file.memory.write(PAGE - 8, &[1; 8]).unwrap();
    file.memory.read(PAGE - 8, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 8]);
}

/// A process with an engine, a file as its region, and a region besides.
struct Other {
    process: Process,
    address: String,
    file: u64,
    memory: u64,
    descriptors: [String; 2],
}

impl Other {
    fn start() -> Self {
        let process = Process::start("files::an_engine_with_a_file", (SPEC, "serves"));
        let said = process.says();
        let [address, file, memory]: [&str; 3] =
            said.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let descriptors = [file, memory].map(str::to_owned);
        let [file, memory] = [file, memory].map(|it| descriptor(it).address);
        Self {
            address: address.to_owned(),
            process,
            file,
            memory,
            descriptors,
        }
    }

    fn connect(&self, own: &End) -> Peer {
        let peer = own.engine.connect(&self.address).unwrap();
        for said in &self.descriptors {
            peer.import(&descriptor(said)).unwrap();
        }
        peer
    }
}

#[test]
#[ignore = "is started by the test below"]
fn an_engine_with_a_file() {
    env::var(SPEC).expect("started by a test");
    // Memory that other processes map.
    let memory = HostMemory::shared(BYTES).unwrap();
    let own = End::over(HcaConfig::default(), on(EnginePath::Auto, "b"), memory);
    let file = Mapped::new(libc::MAP_SHARED);
    let region = own.engine.register(&file.memory).unwrap();
    let said = |region: RegionId| hex(&own.engine.descriptor(region).unwrap().to_bytes());
    let address = listens(&own.engine);
    println!("said: {address} {} {}", said(region), said(own.region));
    for line in io::stdin().lines() {
        file.fill(0x77);
        file.file.set_len(line.unwrap().parse().unwrap()).unwrap();
        println!("said: truncated");
    }
}

#[test]
fn operations_on_pages_that_are_gone_fail_between_processes() {
    let mut other = Other::start();
    let own = End::new(on(EnginePath::Local, "a"), BYTES);
    let peer = other.connect(&own);
    assert_eq!(peer.path(), PeerPath::Machine);
    let here = Mapped::new(libc::MAP_SHARED);
    own.engine.register(&here.memory).unwrap();
    for kind in KINDS {
        let place = |local, remote| Place {
            kind,
            local,
            remote,
        };
        let sound = place(own.at(0), other.memory).operation(0, 64);
        for kept in [0, 9 * PAGE, 9 * PAGE - 1000] {
            let gone = kept.next_multiple_of(PAGE);
            // The kernel copies to and from a file of the peer.
            assert_eq!(other.process.asked(&kept.to_string()), "truncated");
            let there = place(own.at(0), other.file);
            uses(&own, &peer, &there, sound, gone, Cause::SYSTEM);
            // This process has mapped the peer's memory, and copies to and from a file of its own.
            here.fill(0x77);
            here.file.set_len(kept).unwrap();
            let mapped = place(here.at(0), other.memory);
            uses(&own, &peer, &mapped, sound, gone, Cause::SYSTEM);
            // The kernel copies, and both ends are gone.
            let both = place(here.at(0), other.file);
            let (outcome, cause) = one(&own, &peer, both.operation(gone, 8));
            let errno = cause.and_then(|cause| cause.errno());
            assert_eq!((outcome, errno), (Outcome::Failed, Some(libc::EFAULT)));
        }
    }
}
