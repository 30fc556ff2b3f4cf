//! What a program must not do: each is refused, and reported with the name of the rule.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut, with_exposed_provenance_mut};

use libfabric_abi::bindings::*;
use libfabric_abi::errors::{
    FI_EACCES, FI_EBADFLAGS, FI_EBUSY, FI_EFAULT, FI_EINVAL, FI_EMSGSIZE, FI_ENOAV, FI_ENOCQ,
    FI_ENODATA, FI_ENOSYS, FI_EOPBADSTATE, FI_EOPNOTSUPP, FI_ETOOSMALL,
};
use libfabric_abi::later::{FI_MR_DMABUF, fi_cq_attr, fi_mr_attr, fi_mr_dmabuf, fi_mr_memory};
use libfabric_abi::{Version, calls, later};
use softofi::Rule;

use crate::rig::{End, Fabric, Kind, Memory, Pair, Work, softofi, until, was_reported};

/// The error of a post that must be refused, positive.
fn refused(posted: Result<usize, isize>) -> c_int {
    c_int::try_from(-posted.unwrap_err()).unwrap()
}

#[test]
fn a_closed_object_is_refused_and_named() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    pair.here.close();
    assert_eq!(refused(pair.here.try_write(&pair.work(8))), FI_EOPBADSTATE);
    assert!(was_reported(Rule::ClosedHandle, "(endpoint)"));
    // SAFETY: the library keeps what C sees of an object, and refuses it.
    let closed = unsafe { calls::fi_close(&raw mut (*pair.here.ep).fid) };
    assert_eq!(closed, -FI_EOPBADSTATE);
}

#[test]
fn an_endpoint_works_when_it_is_bound_and_enabled() {
    let fabric = Fabric::soft("again=0");
    let end = End::bound(&fabric, 64, FI_WAIT_NONE);
    let memory = Memory::new(&fabric, 64);
    let work = Work {
        memory: &memory,
        offset: 0,
        bytes: 8,
        peer: 0,
        remote: memory.remote(0),
        data: None,
    };
    assert_eq!(refused(end.try_write(&work)), FI_EOPBADSTATE);
    assert!(was_reported(Rule::NotEnabled, ""));
    let mut bare = null_mut();
    // SAFETY: objects of this library, opened here and closed once.
    unsafe {
        let opened = calls::fi_endpoint(fabric.domain, fabric.info, &raw mut bare, null_mut());
        assert_eq!(opened, 0);
        let enable = || calls::fi_enable(&raw mut (*bare).fid);
        assert_eq!(enable(), -FI_ENOCQ);
        let queue = &raw mut (*end.cq).fid;
        assert_eq!(calls::fi_ep_bind(bare, queue, FI_TRANSMIT), 0);
        assert_eq!(enable(), -FI_ENOAV);
        assert_eq!(calls::fi_ep_bind(bare, queue, 0), -FI_EBADFLAGS);
        assert_eq!(calls::fi_close(&raw mut (*bare).fid), 0);
        assert_eq!(calls::fi_enable(&raw mut (*end.ep).fid), 0);
        assert_eq!(calls::fi_enable(&raw mut (*end.ep).fid), -FI_EOPBADSTATE);
        let bound = calls::fi_ep_bind(end.ep, queue, FI_TRANSMIT);
        assert_eq!(bound, -FI_EOPBADSTATE);
    }
    assert!(was_reported(Rule::Enabled, ""));
}

#[test]
fn contexts_are_of_the_library_until_they_come_back() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    let work = pair.work(8);
    let contexts = Box::leak(Box::new([fi_context2::default(); 2]));
    let first: *mut c_void = contexts.as_mut_ptr().cast();
    let mut seen = pair.seen();
    pair.here.try_write_with(&work, first).unwrap();
    let again = pair.here.try_write_with(&work, first);
    // It may have been told of by then, but nobody has read that.
    assert_eq!(refused(again), FI_EINVAL);
    let middle = first.cast::<u8>().wrapping_add(32).cast();
    assert_eq!(refused(pair.here.try_write_with(&work, middle)), FI_EINVAL);
    let address = format!("{:#x}", first.addr());
    assert!(was_reported(Rule::ContextInUse, &address));
    seen.wait(0, first.addr());
    pair.here.try_write_with(&work, first).unwrap();
    seen.wait(0, first.addr());
    let odd = first.cast::<u8>().wrapping_add(1).cast();
    assert_eq!(refused(pair.here.try_write_with(&work, odd)), FI_EINVAL);
    assert!(was_reported(Rule::ContextUnaligned, ""));
    assert_eq!(
        refused(pair.here.try_write_with(&work, null_mut())),
        FI_EINVAL
    );
    assert!(was_reported(Rule::ContextMissing, ""));
    pair.here.try_write_with(&work, first).unwrap();
    // SAFETY: memory of the test, which it must leave alone; nothing refers to it.
    unsafe { first.cast::<u64>().write_volatile(7) };
    seen.wait(0, first.addr());
    assert!(was_reported(Rule::ContextOverwritten, &address));
}

#[test]
fn a_range_is_inside_the_registration_that_it_names() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    let mut work = pair.work(64);
    work.offset = 1;
    assert_eq!(refused(pair.here.try_write(&work)), FI_EINVAL);
    assert!(was_reported(Rule::OutsideRegistration, "64 bytes"));
    let unread = Memory::with_access(&fabric, 64, FI_REMOTE_WRITE);
    work.offset = 0;
    work.memory = &unread;
    assert_eq!(refused(pair.here.try_write(&work)), FI_EACCES);
    assert!(was_reported(Rule::LocalAccess, ""));
}

/// A write with any descriptor.
fn write_with(pair: &Pair<'_>, descriptor: *mut c_void, bytes: usize) -> isize {
    let context = std::ptr::from_mut(Box::leak(Box::new(fi_context2::default())));
    let remote = pair.far.remote(0);
    // SAFETY: refused before anything is read.
    unsafe {
        calls::fi_write(
            pair.here.ep,
            pair.near.address(),
            bytes,
            descriptor,
            pair.peer,
            remote.address,
            remote.key,
            context.cast(),
        )
    }
}

#[test]
fn a_descriptor_is_given_and_of_a_registration_that_is_open() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    assert_eq!(write_with(&pair, null_mut(), 8), -(FI_EINVAL as isize));
    assert!(was_reported(Rule::NoDescriptor, ""));
    let closed = Memory::new(&fabric, 64).descriptor();
    for descriptor in [closed, with_exposed_provenance_mut(0x1234)] {
        assert_eq!(write_with(&pair, descriptor, 8), -(FI_EINVAL as isize));
        let words = format!("{:#x}", descriptor.addr());
        assert!(was_reported(Rule::UnknownDescriptor, &words));
    }
}

#[test]
fn limits_of_the_profile_hold() {
    let fabric = Fabric::soft("again=0");
    let pair = Pair::new(&fabric, 64);
    let long = write_with(&pair, pair.near.descriptor(), (1 << 30) + 1);
    assert_eq!(long, -(FI_EMSGSIZE as isize));
    let remote = pair.far.remote(0);
    let ranges = [libc::iovec {
        iov_base: pair.near.address(),
        iov_len: 8,
    }; 2];
    let mut descriptors = [pair.near.descriptor(); 2];
    // SAFETY: refused before anything is read; arrays of the test.
    let (vector, inline) = unsafe {
        let first = ranges.as_ptr();
        let descriptors = descriptors.as_mut_ptr();
        let (address, key) = (remote.address, remote.key);
        let vector = calls::fi_writev(
            pair.here.ep,
            first,
            descriptors,
            2,
            pair.peer,
            address,
            key,
            null_mut(),
        );
        let near = pair.near.address();
        let inline = calls::fi_inject_write(pair.here.ep, near, 8, pair.peer, address, key);
        (vector, inline)
    };
    assert_eq!(vector, -(FI_EINVAL as isize));
    assert!(was_reported(Rule::TooManyRanges, "(2, of 1)"));
    assert_eq!(inline, -(FI_EINVAL as isize));
    assert!(was_reported(Rule::Inline, "(8 bytes, of 0)"));
    let work = Work {
        data: Some(1 << 32),
        ..pair.work(8)
    };
    assert_eq!(refused(pair.here.try_write(&work)), FI_EINVAL);
    assert!(was_reported(Rule::CqData, "0x100000000"));
    let nobody = Work {
        peer: 77,
        ..pair.work(8)
    };
    assert_eq!(refused(pair.here.try_write(&nobody)), FI_EINVAL);
    assert!(was_reported(Rule::UnknownAddress, "(77)"));
}

#[test]
fn an_endpoint_posts_what_its_capabilities_have() {
    let kind = Kind::soft("again=0");
    let fabric = Fabric::open_with(&kind, |hints| {
        hints.caps = FI_RMA | FI_READ | FI_REMOTE_WRITE
    });
    let fabric = fabric.unwrap();
    let pair = Pair::new(&fabric, 64);
    assert_eq!(refused(pair.here.try_write(&pair.work(8))), FI_EOPNOTSUPP);
    assert!(was_reported(Rule::Capability, ""));
    // The target does not let itself be read.
    let mut seen = pair.seen();
    let context = pair.here.read(&pair.work(8), &mut seen);
    assert_eq!(seen.wait(0, context).error, FI_EACCES);
    // SAFETY: refused before anything is read.
    let sent = unsafe {
        let send = (*(*pair.here.ep).msg).send.unwrap();
        send(pair.here.ep, null(), 0, null_mut(), pair.peer, null_mut())
    };
    assert_eq!(sent, -(FI_EOPNOTSUPP as isize));
}

#[test]
fn what_is_in_use_does_not_close() {
    let fabric = Fabric::soft("again=0");
    let end = End::new(&fabric);
    let (domain, of_domain) = (fabric.domain, fabric.fabric);
    // SAFETY: refused, since it is in use.
    unsafe {
        for object in [
            &raw mut (*end.cq).fid,
            &raw mut (*end.av).fid,
            &raw mut (*domain).fid,
            &raw mut (*of_domain).fid,
        ] {
            assert_eq!(calls::fi_close(object), -FI_EBUSY);
        }
    }
    for what in [
        "completion queue",
        "address vector",
        "the domain",
        "the fabric",
    ] {
        assert!(was_reported(Rule::CloseInUse, what), "{what}");
    }
}

#[test]
fn what_is_no_address_gets_no_number() {
    let fabric = Fabric::soft("");
    let end = End::new(&fabric);
    let mut addresses = [0u8; 64];
    addresses[..32].copy_from_slice(&end.address());
    let mut numbers = [7u64; 2];
    let mut room = 31;
    // SAFETY: two addresses and places for two numbers; a place with its room.
    let (inserted, named) = unsafe {
        let first = addresses.as_ptr().cast();
        let inserted = calls::fi_av_insert(end.av, first, 2, numbers.as_mut_ptr(), 0, null_mut());
        let place = addresses.as_mut_ptr().cast();
        (inserted, calls::fi_getname(end.ep, place, &raw mut room))
    };
    assert_eq!(inserted, 1);
    assert_eq!(numbers, [0, libfabric_abi::FI_ADDR_NOTAVAIL]);
    assert!(was_reported(Rule::BadAddress, ""));
    assert_eq!((named, room), (-FI_ETOOSMALL, 32));
}

#[test]
fn an_address_with_work_under_way_stays() {
    let fabric = Fabric::soft("profile=efa,again=0");
    let pair = Pair::new(&fabric, 64);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(8), &mut seen);
    let mut peer = pair.peer;
    // SAFETY: a number of the test.
    let mut remove = || unsafe { calls::fi_av_remove(pair.here.av, &raw mut peer, 1, 0) };
    assert_eq!(remove(), -FI_EBUSY);
    seen.wait(0, context);
    assert_eq!(remove(), 0);
    assert_eq!(remove(), -FI_EINVAL);
}

#[test]
fn a_wait_object_and_a_format_must_be_there() {
    let fabric = Fabric::soft("");
    for (format, wait_obj) in [
        (FI_CQ_FORMAT_DATA, FI_WAIT_FD),
        (FI_CQ_FORMAT_TAGGED, FI_WAIT_NONE),
    ] {
        let mut attr = fi_cq_attr {
            format,
            wait_obj,
            ..fi_cq_attr::default()
        };
        let mut cq = null_mut();
        // SAFETY: an open domain, an attribute and a place.
        let opened =
            unsafe { later::fi_cq_open(fabric.domain, &mut attr, &raw mut cq, null_mut()) };
        assert_eq!(opened, -FI_ENOSYS);
    }
    assert!(was_reported(Rule::WaitObject, "") && was_reported(Rule::Format, ""));
}

#[test]
fn hints_that_do_not_serve_what_is_needed_find_nothing() {
    let kind = Kind::soft("");
    let find = |change: &dyn Fn(&mut fi_info)| {
        let found = Fabric::find(softofi(), &kind, |hints| change(hints));
        found.map(|info| {
            // SAFETY: a list of the library.
            unsafe { (softofi().fi_freeinfo)(info) };
        })
    };
    assert_eq!(find(&|_| ()), Ok(()));
    // SAFETY: attributes of hints of the library.
    let without: [&dyn Fn(&mut fi_info); 7] = unsafe {
        [
            &|hints| hints.mode = 0,
            &|hints| hints.caps |= FI_ATOMIC,
            &|hints| hints.caps |= FI_HMEM,
            &|hints| (*hints.domain_attr).mr_mode &= !FI_MR_LOCAL,
            &|hints| (*hints.domain_attr).mr_mode &= !FI_MR_PROV_KEY,
            &|hints| (*hints.tx_attr).msg_order = FI_ORDER_WAW,
            &|hints| (*hints.ep_attr).type_ = FI_EP_MSG,
        ]
    };
    for (number, change) in without.iter().enumerate() {
        assert_eq!(find(change), Err(-FI_ENODATA), "{number}");
    }
}

#[test]
fn an_api_version_above_the_librarys_is_refused() {
    let mut info = null_mut();
    // SAFETY: no texts, no hints, a place.
    let found = unsafe {
        let version = Version::new(2, 2).0;
        (softofi().fi_getinfo)(version, null(), null(), 0, null(), &raw mut info)
    };
    assert_eq!(found, -FI_ENOSYS);
    assert!(was_reported(Rule::ApiVersion, "(fi_getinfo: 2.2, not 2.1)"));
    assert!(info.is_null());
}

#[test]
fn a_dmabuf_needs_an_api_that_knows_it() {
    let fabric = Fabric::open_as(&Kind::soft("profile=efa"), Version::new(1, 19)).unwrap();
    let dmabuf = fi_mr_dmabuf {
        fd: 0,
        offset: 0,
        len: 8,
        base_addr: null_mut(),
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
    // SAFETY: an attribute that lives here.
    let opened = unsafe { later::fi_mr_regattr(fabric.domain, &attr, FI_MR_DMABUF, &raw mut mr) };
    assert_eq!(opened, -FI_EINVAL);
    assert!(was_reported(Rule::DmaBufVersion, "(1.19)"));
}

#[test]
fn both_fabrics_are_offered_and_the_older_api_has_one() {
    let kind = Kind::soft("profile=both,nics=2");
    let names = |version: Version| {
        let info = Fabric::find_as(softofi(), &kind, version, |_| ()).unwrap();
        let mut names = Vec::new();
        let mut next = info;
        // SAFETY: a list of the library, with names.
        unsafe {
            while let Some(info) = next.as_ref() {
                let text = |words| std::ffi::CStr::from_ptr(words).to_str().unwrap().to_owned();
                let fabric = text((*info.fabric_attr).name);
                let domain = text((*info.domain_attr).name);
                names.push(format!("{fabric} {}", domain.split('.').next().unwrap()));
                next = info.next;
            }
            (softofi().fi_freeinfo)(info);
        }
        names
    };
    let efa = ["efa softofi0-rdm", "efa softofi1-rdm"];
    let direct = ["efa-direct softofi0-rdm", "efa-direct softofi1-rdm"];
    assert_eq!(names(Version::new(2, 1)), [efa, direct].concat());
    assert_eq!(names(Version::new(1, 20)), efa);
}

/// Frames of a stranger: nonsense, and some that look as if they were some.
fn strange(dice: &mut fastrand::Rng, address: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if dice.bool() {
        // A greeting: the kind 1, 32 bytes of payload, the address.
        let mut head = [0u8; 64];
        head[0] = 1;
        head[4] = 32;
        bytes.extend(head);
        bytes.extend(address);
    }
    for _ in 0..dice.usize(..20) {
        let mut head = [0u8; 64];
        dice.fill(&mut head);
        head[..8].fill(0);
        head[0] = dice.u8(..9);
        let payload = dice.u8(..);
        head[4] = payload;
        head[40..44].copy_from_slice(&u32::from(payload).to_ne_bytes());
        bytes.extend(head);
        bytes.extend(std::iter::repeat_with(|| dice.u8(..)).take(usize::from(payload)));
    }
    bytes
}

#[test]
fn strangers_who_send_nonsense_change_nothing() {
    use std::io::Write;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};
    let seed = fastrand::u64(..);
    let mut dice = fastrand::Rng::with_seed(seed);
    let fabric = Fabric::soft("again=0,late_us=0");
    let pair = Pair::new(&fabric, 64);
    let address = pair.there.address();
    let digits: String = address.iter().map(|byte| format!("{byte:02x}")).collect();
    let name = SocketAddr::from_abstract_name(format!("softofi-{digits}")).unwrap();
    for _ in 0..1000 {
        let mut stranger = UnixStream::connect_addr(&name).unwrap();
        // It may be shown the door in the middle of it.
        let _ = stranger.write_all(&strange(&mut dice, &pair.here.address()));
    }
    assert_eq!(pair.far.bytes(), [0; 64], "seed {seed}");
    pair.near.set(&[4; 64]);
    let mut seen = pair.seen();
    let context = pair.here.write(&pair.work(64), &mut seen);
    assert_eq!(seen.wait(0, context).error, 0, "seed {seed}");
    assert_eq!(pair.far.bytes(), [4; 64], "seed {seed}");
}

#[test]
fn memory_that_goes_away_is_an_error_and_no_crash() {
    let kind = Kind::soft("profile=efa,again=0");
    // SAFETY: attributes of hints of the library.
    let fabric = Fabric::open_with(&kind, |hints| unsafe {
        (*hints.domain_attr).mr_mode &= !FI_MR_LOCAL;
    });
    let fabric = fabric.unwrap();
    let pair = Pair::new(&fabric, 64);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let remote = pair.far.remote(0);
    let context = std::ptr::from_mut(Box::leak(Box::new(fi_context2::default())));
    // SAFETY: new memory without a descriptor, which this profile takes. It is given back before anything moves.
    let posted = unsafe {
        let page = libc::mmap(null_mut(), 4096, rights, flags, -1, 0);
        page.expose_provenance();
        let (address, key) = (remote.address, remote.key);
        let (none, context) = (null_mut(), context.cast());
        let posted = calls::fi_write(
            pair.here.ep,
            page,
            64,
            none,
            pair.peer,
            address,
            key,
            context,
        );
        libc::munmap(page, 4096);
        posted
    };
    assert_eq!(posted, 0);
    let mut seen = pair.seen();
    let done = until("it fails", || {
        seen.look();
        seen.done[0].pop()
    });
    assert_eq!(done.error, FI_EFAULT);
    assert!(was_reported(Rule::MemoryGone, ""));
}
