//! Regions through their life, over memory of the process and over descriptors, as the device model has them.

// UNSAFETY: registers memory and maps descriptors.
#![expect(unsafe_code, reason = "plays the software side of a device")]

use mlx5_prm::cqe::{Cqe64, CqeOpcode, ErrCqe, Syndrome};
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca::device::{Access, MrChange};
use softhca_rig::{Memory, Pair, Shape, data, raddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const FULL: Access = Access(0xf);
const LOCAL_ONLY: Access = Access::LOCAL_WRITE;

/// One WRITE of 8 bytes from the start of a's data to `va` under `rkey`.
fn write(pair: &mut Pair, va: u64, rkey: u32) -> Result<(), Syndrome> {
    pair.a.write(0, 8, va, rkey);
    ended(&pair.a.run(1)[0])
}

fn ended(cqe: &Cqe64) -> Result<(), Syndrome> {
    match cqe.opcode() {
        CqeOpcode::REQ => Ok(()),
        _ => Err(Syndrome(bytemuck::cast::<Cqe64, ErrCqe>(*cqe).syndrome)),
    }
}

fn memfd(bytes: i64) -> OwnedFd {
    // SAFETY: a C string and flags; a descriptor that no other code owns.
    unsafe {
        let fd = libc::memfd_create(c"buffer".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        assert_eq!(libc::ftruncate(fd, bytes), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn pread(fd: RawFd, offset: i64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    // SAFETY: the buffer has room.
    let got = unsafe { libc::pread(fd, out.as_mut_ptr().cast(), bytes, offset) };
    assert_eq!(usize::try_from(got), Ok(bytes));
    out
}

#[test]
fn a_region_may_change_rights_domain_and_memory_under_the_same_keys() {
    let mut pair = Pair::new(Shape::default());
    pair.a.data.write(0, b"anything");
    let (va, keys) = (pair.b.data.address(), pair.b.keys);
    let change = |pair: &Pair, change, memory| {
        // SAFETY: the memory outlives the region.
        unsafe { pair.b.context.rereg_mr(keys.lkey, change, memory) }
    };
    let rights = |access| MrChange {
        access: Some(access),
        ..MrChange::default()
    };
    change(&pair, rights(LOCAL_ONLY), None).unwrap();
    let refused = write(&mut pair, va, keys.rkey);
    assert_eq!(refused, Err(Syndrome::REMOTE_ACCESS_ERR));

    let mut pair = Pair::new(Shape::default());
    pair.a.data.write(0, b"anything");
    let (va, keys) = (pair.b.data.address(), pair.b.keys);
    let other = Memory::new(8192);
    let iova = 0x7000_0000;
    // SAFETY: `other` outlives the region: it was declared after the pair, but the last change below takes it back.
    let moved = unsafe {
        let memory = Some((other.address(), 4096, iova));
        pair.b
            .context
            .rereg_mr(keys.lkey, MrChange::default(), memory)
    };
    moved.unwrap();
    write(&mut pair, iova + 8, keys.rkey).unwrap();
    assert_eq!(other.read(8, 8), b"anything");
    pair.assert_clean();
    assert_eq!(pair.b.context.live_objects().mr, 1);
    // Refused changes leave the region as it was: a domain that does not exist, memory that is not mapped.
    let no_domain = MrChange {
        pdn: Some(0x99_9999),
        ..MrChange::default()
    };
    // SAFETY: both are refused.
    unsafe {
        let context = &pair.b.context;
        let refused = context.rereg_mr(keys.lkey, no_domain, None).unwrap_err();
        assert_eq!(refused.errno(), libc::ENOENT);
        let nowhere = Some((0x1000, 4096, iova));
        let refused = context.rereg_mr(keys.lkey, MrChange::default(), nowhere);
        assert_eq!(refused.unwrap_err().errno(), libc::EFAULT);
    }
    write(&mut pair, iova, keys.rkey).unwrap();
    let pdn = pair.b.context.alloc_pd().unwrap();
    let domain = MrChange {
        pdn: Some(pdn),
        ..MrChange::default()
    };
    // SAFETY: back to memory that the pair owns.
    unsafe {
        let memory = Some((va, 4096, va));
        pair.b.context.rereg_mr(keys.lkey, domain, memory).unwrap();
    }
    let busy = pair.b.context.dealloc_pd(pdn).unwrap_err();
    assert_eq!(busy.errno(), libc::EBUSY);
    let refused = write(&mut pair, va, keys.rkey);
    assert_eq!(refused, Err(Syndrome::REMOTE_ACCESS_ERR));
}

#[test]
fn memory_that_may_not_be_written_is_registered_for_reading_only() {
    let pair = Pair::new(Shape::default());
    let memory = Memory::new(4096);
    let address = memory.address();
    // SAFETY: a mapping of this test.
    unsafe {
        let start = std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
        assert_eq!(libc::mprotect(start, 4096, libc::PROT_READ), 0);
    }
    let (context, pdn) = (&pair.a.context, pair.a.pdn);
    for (access, errno) in [
        (Access(0), None),
        (Access::REMOTE_READ, None),
        (Access::LOCAL_WRITE, Some(libc::EFAULT)),
        (Access::MW_BIND, Some(libc::EFAULT)),
    ] {
        // SAFETY: the memory outlives the region.
        let made = unsafe { context.reg_mr(pdn, address, 4096, address, access) };
        assert_eq!(made.as_ref().err().map(softhca::DeviceError::errno), errno);
        if let Ok(keys) = made {
            context.dereg_mr(keys.lkey).unwrap();
        }
    }
    // SAFETY: refused.
    let umem = unsafe { context.reg_umem(address, 4096, Access(0)) };
    assert_eq!(umem.unwrap_err().errno(), libc::EFAULT);
}

#[test]
fn a_region_of_a_memfd_is_the_file_and_lives_without_the_descriptor() {
    let mut pair = Pair::new(Shape::default());
    let file = memfd(16384);
    let (context, pdn) = (pair.b.context.clone(), pair.b.pdn);
    let copy = file.try_clone().unwrap();
    let iova = 0x10_0000_0100;
    let keys = context
        .reg_dmabuf_mr(pdn, copy.as_raw_fd(), 4096 + 256, 8000, iova, FULL)
        .unwrap();
    drop(copy);
    pair.a.data.write(0, b"to file!");
    write(&mut pair, iova + 7992, keys.rkey).unwrap();
    assert_eq!(pread(file.as_raw_fd(), 4096 + 256 + 7992, 8), b"to file!");
    pair.assert_clean();
    let refused = write(&mut pair, iova + 7993, keys.rkey);
    assert_eq!(refused, Err(Syndrome::REMOTE_ACCESS_ERR));
    context.dereg_mr(keys.lkey).unwrap();
    assert!(context.dereg_mr(keys.lkey).is_err());

    let umem = context.reg_dmabuf_umem(file.as_raw_fd(), 0, 16384).unwrap();
    context.dereg_umem(umem).unwrap();
}

#[test]
fn descriptors_of_anything_else_are_refused_as_the_kernel_refuses_them() {
    let pair = Pair::new(Shape::default());
    let (context, pdn) = (&pair.a.context, pair.a.pdn);
    let short = memfd(4096);
    let plain = std::fs::File::open("/proc/self/exe").unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    for (fd, bytes, errno) in [
        (-1, 4096, libc::EBADF),
        (9999, 4096, libc::EBADF),
        (plain.as_raw_fd(), 4096, libc::EINVAL),
        (null.as_raw_fd(), 4096, libc::EINVAL),
        (short.as_raw_fd(), 4097, libc::EINVAL),
        (short.as_raw_fd(), 0, libc::EINVAL),
        (short.as_raw_fd(), u64::MAX, libc::EINVAL),
    ] {
        let refused = context
            .reg_dmabuf_mr(pdn, fd, 0, bytes, 0, FULL)
            .unwrap_err();
        assert_eq!(refused.errno(), errno, "{fd} {bytes:#x}: {refused}");
        let refused = context.reg_dmabuf_umem(fd, 0, bytes).unwrap_err();
        assert_eq!(refused.errno(), errno, "{fd} {bytes:#x}: {refused}");
    }
}

#[test]
fn the_null_key_takes_what_a_read_brings_and_sends_zeroes() {
    let mut pair = Pair::new(Shape::default());
    let null = 0x8000;
    pair.b.data.write(0, &[7; 64]);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    // 32 bytes to nowhere, 32 bytes to memory.
    let rest = [
        raddr(remote, rkey),
        data(32, null, 0xdead_0000),
        data(32, pair.a.keys.lkey, pair.a.data.address()),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    ended(&pair.a.run(1)[0]).unwrap();
    assert_eq!(pair.a.data.read(0, 64), [[7; 32], [0; 32]].concat());
    let rest = [raddr(remote, rkey), data(16, null, 0)].concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    ended(&pair.a.run(1)[0]).unwrap();
    assert_eq!(pair.b.data.read(0, 32), [[0; 16], [7; 16]].concat());
    pair.assert_clean();
    assert_eq!(
        write(&mut pair, remote, null),
        Err(Syndrome::REMOTE_ACCESS_ERR)
    );
}

#[test]
fn a_region_over_4_gib_reaches_to_its_last_byte() {
    const BYTES: usize = 5 << 30;
    let mut pair = Pair::new(Shape::default());
    let memory = Memory::new(BYTES);
    let address = memory.address();
    let context = pair.b.context.clone();
    // SAFETY: ended below.
    let keys = unsafe { context.reg_mr(pair.b.pdn, address, BYTES as u64, address, FULL) };
    let keys = keys.unwrap();
    pair.a.data.write(0, b"the last");
    write(&mut pair, address + BYTES as u64 - 8, keys.rkey).unwrap();
    assert_eq!(memory.read(BYTES - 8, 8), b"the last");
    context.dereg_mr(keys.lkey).unwrap();
}

#[test]
fn a_region_longer_than_the_device_takes_is_refused() {
    const LOG: u8 = 16;
    let config = HcaConfig {
        log_max_mr: LOG,
        ..HcaConfig::default()
    };
    let pair = Pair::with(&config, Shape::default(), Shape::default());
    let context = &pair.b.context;
    let (pdn, longest) = (context.alloc_pd().unwrap(), 1 << LOG);
    let memory = Memory::new(2 << LOG);
    let register = |bytes| {
        // SAFETY: the memory outlives the pair's use of it: nobody names these keys.
        unsafe { context.reg_mr(pdn, memory.address(), bytes, memory.address(), FULL) }
    };
    let before = context.live_objects().mr;
    let refused = register(longest + 1).unwrap_err();
    assert_eq!(refused.errno(), libc::EINVAL, "{refused}");
    assert!(refused.to_string().contains("0x10001"), "{refused}");
    assert_eq!(context.live_objects().mr, before);
    let keys = register(longest).unwrap();
    let longer = Some((memory.address(), longest + 1, memory.address()));
    // SAFETY: as above.
    let refused = unsafe { context.rereg_mr(keys.lkey, MrChange::default(), longer) };
    assert_eq!(refused.unwrap_err().errno(), libc::EINVAL);
    context.dereg_mr(keys.lkey).unwrap();
}
