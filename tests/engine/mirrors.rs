//! Counters that are mirrored to words of the program: for kernels that wait, by each way on which peers count.

use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of};
use softhca::HcaConfig;
use test_support::abi::conformance::{ConformanceEnd, ConformanceParams};
use test_support::abi::kernels::PutItem;
use test_support::device::{launch, read, test_gpu, upload};
use test_support::limits::{HANG, until};
use warpverbs::abi::{DevicePtr, Status, Window};
use warpverbs::engine::{
    EngineConfig, EngineError, EnginePath, HostError, HostMemory, Kind, Operation, Options,
    Outcome, ProviderError,
};
use warpverbs::gpu::{Event, Gpu, HostMapped};

use crate::rig::{End, config, connect, pair};

const COUNTER: u32 = 5;

fn counting() -> Options<'static> {
    Options::default().with_counter(Some(COUNTER))
}

fn write(local: u64, remote: u64, bytes: u64) -> Operation {
    Operation {
        kind: Kind::Write,
        local,
        remote,
        bytes,
    }
}

fn word(memory: &HostMemory, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    memory.read(offset, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Memory that kernels reach too, for an engine: where it lies for either.
#[expect(unsafe_code, reason = "memory of the device")]
fn mapped(gpu: &dyn Gpu, bytes: usize) -> (HostMemory, u64) {
    let mapped: HostMapped = gpu.map_host(bytes).unwrap();
    let address = mapped.addr();
    let first = std::ptr::with_exposed_provenance_mut(usize::try_from(mapped.host_addr()).unwrap());
    // SAFETY: the mapping goes with the memory, which registrations hold. Tests read and write it by copies.
    let memory = unsafe { HostMemory::over(first, bytes as u64, Some(Box::new(mapped))) };
    (memory.unwrap(), address)
}

/// Starts the kernel that waits for the word, and compares what is after each of its values.
#[expect(unsafe_code, reason = "a kernel")]
fn watch(gpu: &dyn Gpu, params: &ConformanceParams) -> Event {
    let spec = launch("wv_test_conformance_watch", 1, 1, 1);
    // SAFETY: the kernel reads and writes memory that the caller keeps until it has ended.
    unsafe { gpu.launch(&spec, bytes_of(params)) }.unwrap()
}

/// A kernel waits for each value of a word while peers count; the data of as many WRITEs must have landed.
fn a_kernel_waits(path: EnginePath) {
    const PAGES: u64 = 96;
    const PAGE: u64 = 1024;
    let gpu = test_gpu();
    let bytes = PAGES * PAGE;
    let (memory, address) = mapped(&*gpu, usize::try_from(bytes + 8).unwrap());
    // The word lies after the data, in the same mapping.
    let config = |name| config(name).with_engine_path(path).with_slice(4096);
    let b = End::over(HcaConfig::default(), config("b"), memory);
    let a = End::new(config("a"), bytes);
    let words = (1..=bytes / 8).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let expected: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    a.memory.write(0, &expected).unwrap();
    let [to_b, _to_a] = connect(&a, &b);
    let counter = b.engine.counter(COUNTER).unwrap();
    let mirror = counter.mirror(&b.memory, bytes).unwrap();

    let items: Vec<PutItem> = (0..PAGES)
        .map(|page| PutItem {
            src_offset: page * PAGE,
            dst_offset: page * PAGE,
            bytes: PAGE,
        })
        .collect();
    let list = upload(&*gpu, bytemuck::cast_slice(&items));
    let ends = upload(&*gpu, bytes_of(&ConformanceEnd::zeroed()));
    let params = ConformanceParams {
        window: Window {
            base: address,
            bytes: bytes + 8,
            ..Window::zeroed()
        },
        items: DevicePtr::new(list.addr()),
        count: PAGES,
        signal_offset: bytes,
        deadline_ns: HANG.as_nanos().try_into().unwrap(),
        ends: DevicePtr::new(ends.addr()),
        rounds: u32::try_from(PAGES).unwrap(),
        batch: 1,
        ..ConformanceParams::zeroed()
    };
    let event = watch(&*gpu, &params);
    // One after the other: the kernel looks at page n when the word says n + 1.
    for page in 0..PAGES {
        let operation = write(a.at(page * PAGE), b.at(page * PAGE), PAGE);
        let id = to_b.submit(&[operation], &counting()).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
    }
    gpu.wait(&event, HANG).unwrap();
    let ends: Vec<ConformanceEnd> = read(&*gpu, ends.addr(), 1);
    assert_eq!((ends[0].status, ends[0].done), (Status::OK, 0));
    assert_eq!(word(&b.memory, bytes), PAGES);
    drop(mirror);
}

#[test]
fn a_kernel_waits_for_the_word_while_writes_of_the_nic_count() {
    a_kernel_waits(EnginePath::Nic);
}

#[test]
fn a_kernel_waits_for_the_word_while_copies_of_a_peer_count() {
    a_kernel_waits(EnginePath::Auto);
}

#[test]
fn a_word_says_what_its_counter_says_from_first_to_last() {
    let (a, b, [to_b, _]) = pair(4096);
    let one = |count: usize| {
        let all = vec![write(a.at(0), b.at(0), 8); count];
        let id = to_b.submit(&all, &counting()).unwrap();
        assert_eq!(a.concluded(id), Outcome::Done);
        a.engine.release(id).unwrap();
    };
    let counter = b.engine.counter(COUNTER).unwrap();
    let words = Arc::new(HostMemory::new(64).unwrap());
    let says = |offset: u64, value: u64| {
        until(format!("word {offset} says {value}"), || {
            word(&words, offset) == value
        });
    };
    one(3);
    assert_eq!(counter.wait(3, HANG), Some(3));
    // The word counts what came before at once.
    let first = counter.mirror(&words, 8).unwrap();
    assert_eq!(word(&words, 8), 3);
    let other = b.engine.counter(COUNTER + 1).unwrap();
    let second = other.mirror(&words, 24).unwrap();
    let both = counter.mirror(&words, 40).unwrap();
    one(5);
    says(8, 8);
    says(40, 8);
    assert_eq!(word(&words, 24), 0);
    assert_eq!(counter.reset(), 8);
    says(8, 0);
    drop(first);
    one(2);
    says(40, 2);
    assert_eq!(word(&words, 8), 0);
    one(4);
    // What was counted last is written before the engine is closed.
    assert_eq!(counter.wait(6, HANG), Some(6));
    let _ = b.engine.close();
    assert_eq!(word(&words, 40), 6);
    let closed = counter.mirror(&words, 0).unwrap_err();
    assert!(matches!(closed, HostError::Refused(EngineError::Closing)));
    drop((second, both));
}

#[test]
fn a_word_that_is_not_aligned_or_lies_outside_is_refused() {
    let b = End::new(EngineConfig::new("b"), 4096);
    let counter = b.engine.counter(COUNTER).unwrap();
    for offset in [4089, 4096, u64::MAX - 7, u64::MAX] {
        let refused = counter.mirror(&b.memory, offset).unwrap_err();
        let HostError::Provider(ProviderError::Range {
            offset: at,
            bytes,
            has,
        }) = refused
        else {
            panic!("{refused}");
        };
        assert_eq!((at, bytes, has), (offset, 8, 4096));
    }
    for offset in [1, 4, 4087] {
        let refused = counter.mirror(&b.memory, offset).unwrap_err().to_string();
        let address = b.at(offset);
        let expected = format!("a word at {address:#x}; it must be at a multiple of 8");
        assert_eq!(refused, expected);
    }
    // Nothing was written.
    assert_eq!(b.bytes(), vec![0; 4096]);
}
