//! Keys, rights and DMA-BUFs.

use std::os::fd::AsRawFd;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use libfabric_abi::bindings::*;
use libfabric_abi::errors::{FI_EACCES, FI_EBUSY, FI_EINVAL, FI_ENOTCONN};
use libfabric_abi::later::{FI_MR_DMABUF, fi_mr_attr, fi_mr_dmabuf, fi_mr_memory};
use libfabric_abi::{calls, later};
use softofi::{Count, Failure, Rule};

use crate::rig::{End, Fabric, Memory, Pair, Remote, Work, was_reported, watch};

#[test]
fn keys_are_of_32_bits_and_come_back_after_a_close() {
    let fabric = Fabric::soft("");
    let first = Memory::new(&fabric, 64);
    let key = first.key();
    assert!(key > 0 && u32::try_from(key).is_ok());
    drop(first);
    let second = Memory::new(&fabric, 64);
    assert_eq!(second.key(), key, "a late reader meets other memory");
    assert!(watch().count(Count::KeysAgain) > 0);
}

#[test]
fn memory_that_is_closed_or_too_short_is_a_bad_address_for_peers() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    let mut seen = pair.seen();
    let short = Memory::new(&fabric, 32);
    let closed = {
        let memory = Memory::new(&fabric, 64);
        memory.remote(0)
    };
    for remote in [
        short.remote(0),
        short.remote(33),
        closed,
        Remote {
            address: 0,
            key: u64::MAX,
        },
    ] {
        let work = Work {
            remote,
            ..pair.work(64)
        };
        let context = pair.here.write(&work, &mut seen);
        let done = seen.wait(0, context);
        assert_eq!(done.error, FI_EINVAL, "{remote:?}");
        assert_eq!(done.provider_error, Failure::BadAddress.provider_error());
        assert!(done.provider_error >= 4096);
    }
}

#[test]
fn peers_have_the_rights_that_the_registration_gives() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    let mut seen = pair.seen();
    let readable = Memory::with_access(&fabric, 64, FI_REMOTE_READ);
    let work = Work {
        remote: readable.remote(0),
        ..pair.work(64)
    };
    let context = pair.here.write(&work, &mut seen);
    assert_eq!(seen.wait(0, context).error, FI_EACCES);
    let context = pair.here.read(&work, &mut seen);
    assert_eq!(seen.wait(0, context).error, 0);
}

#[test]
fn an_initiator_must_be_in_the_vector_of_the_target() {
    for (profile, refuses) in [("efa-direct", true), ("efa", false)] {
        let fabric = Fabric::soft(&format!("profile={profile},again=0"));
        let (here, there) = (End::new(&fabric), End::new(&fabric));
        let (near, far) = (Memory::new(&fabric, 8), Memory::new(&fabric, 8));
        let work = Work {
            memory: &near,
            offset: 0,
            bytes: 8,
            peer: here.insert(&there.address()),
            remote: far.remote(0),
            data: None,
        };
        let mut seen = crate::rig::Seen::new(&[&here, &there]);
        let context = here.write(&work, &mut seen);
        let expected = if refuses { FI_ENOTCONN } else { 0 };
        assert_eq!(seen.wait(0, context).error, expected, "{profile}");
        there.insert(&here.address());
        let context = here.write(&work, &mut seen);
        assert_eq!(seen.wait(0, context).error, 0, "{profile}");
    }
}

#[test]
fn a_dmabuf_is_recorded_and_is_memory_of_its_file() {
    const PAGE: usize = 4096;
    let fabric = Fabric::soft("again=0,hmem=1");
    let pair = Pair::new(&fabric, 64);
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let file = std::fs::File::from(rustix::fs::memfd_create("dmabuf", flags).unwrap());
    file.set_len(2 * PAGE as u64).unwrap();
    let base = 0x7000_0000_0000;
    let dmabuf = fi_mr_dmabuf {
        fd: file.as_raw_fd(),
        offset: 100,
        len: PAGE,
        base_addr: with_exposed_provenance_mut(base),
    };
    let attr = fi_mr_attr {
        memory: fi_mr_memory {
            dmabuf: &raw const dmabuf,
        },
        iov_count: 1,
        access: FI_REMOTE_WRITE | FI_REMOTE_READ,
        iface: FI_HMEM_CUDA,
        ..fi_mr_attr::default()
    };
    let mut mr = null_mut();
    // SAFETY: an attribute that lives here, of an API version that has it.
    let opened = unsafe { later::fi_mr_regattr(fabric.domain, &attr, FI_MR_DMABUF, &raw mut mr) };
    assert_eq!(opened, 0);
    // SAFETY: opened a moment ago.
    let key = unsafe { calls::fi_mr_key(mr) };
    let watch = watch();
    let mut records = (0..).map_while(|number| watch.dmabuf(number));
    let record = records.find(|it| it.base == base as u64).unwrap();
    assert_eq!(
        (record.offset, record.len, record.error),
        (100, PAGE as u64, 0)
    );
    assert_eq!(record.iface, FI_HMEM_CUDA);
    pair.near.set(b"into the file");
    let work = Work {
        bytes: 13,
        remote: Remote {
            address: base as u64 + 100 + 7,
            key,
        },
        ..pair.work(13)
    };
    let mut seen = pair.seen();
    let context = pair.here.write(&work, &mut seen);
    assert_eq!(seen.wait(0, context).error, 0);
    let mut found = [0u8; 13];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 107).unwrap();
    assert_eq!(&found, b"into the file");
    // SAFETY: closed once.
    assert_eq!(unsafe { calls::fi_close(&raw mut (*mr).fid) }, 0);
}

#[test]
fn a_file_that_cannot_be_mapped_is_recorded_with_its_error() {
    let fabric = Fabric::soft("");
    let dmabuf = fi_mr_dmabuf {
        fd: -1,
        offset: 0,
        len: 4096,
        base_addr: with_exposed_provenance_mut(0x6000_0000_0000),
    };
    let attr = fi_mr_attr {
        memory: fi_mr_memory {
            dmabuf: &raw const dmabuf,
        },
        iov_count: 1,
        access: FI_REMOTE_WRITE,
        ..fi_mr_attr::default()
    };
    let mut mr = null_mut();
    // SAFETY: an attribute that lives here, of an API version that has it.
    let opened = unsafe { later::fi_mr_regattr(fabric.domain, &attr, FI_MR_DMABUF, &raw mut mr) };
    assert_eq!(opened, -libc::EBADF);
    let watch = watch();
    let mut records = (0..).map_while(|number| watch.dmabuf(number));
    assert!(records.any(|it| it.fd == -1 && it.error == libc::EBADF));
}

#[test]
fn a_registration_that_an_operation_uses_does_not_close() {
    // Nothing moves while nobody calls.
    let fabric = Fabric::soft("profile=efa,again=0");
    let pair = Pair::new(&fabric, 64);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(64), &mut seen);
    // SAFETY: open; refused while the write is under way, else it would be closed twice.
    let closed = unsafe { calls::fi_close(pair.near.fid()) };
    assert_eq!(closed, -FI_EBUSY);
    assert!(was_reported(Rule::CloseInUse, "the registration"));
    assert_eq!(seen.wait(0, context).error, 0);
}
