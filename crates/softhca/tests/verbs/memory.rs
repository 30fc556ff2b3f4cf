//! Regions as unmodified libibverbs and libmlx5 register, change, share and query them.

use crate::rdma_core::{Device, Memory, Pd};
use softhca::Hca;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 2;
const REMOTE_ATOMIC: u32 = 8;
const PAGE: usize = 4096;

fn hca() -> (Hca, Device, Pd) {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    let pd = device.alloc_pd().unwrap();
    (hca, device, pd)
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[expect(unsafe_code, reason = "memfd_create")]
fn memfd(bytes: usize) -> File {
    // SAFETY: a C string and flags; a descriptor that no other code owns.
    let file = unsafe {
        let fd = libc::memfd_create(c"buffer".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_len(bytes as u64).unwrap();
    file
}

#[test]
fn registrations_are_refused_with_the_errno_of_the_kernel() {
    let (_hca, device, pd) = hca();
    let memory = Memory::new(2 * PAGE);
    let start = memory.address();
    let at = |offset| start.wrapping_add(offset);
    let nowhere: *mut u8 = std::ptr::without_provenance_mut(0x1000);
    let table = [
        ("plain", start, PAGE, LOCAL_WRITE, None),
        ("windows", start, PAGE, LOCAL_WRITE | 0x10, None),
        ("zero-based", start, PAGE, LOCAL_WRITE | 0x20, None),
        ("huge pages", start, PAGE, LOCAL_WRITE | 0x80, None),
        ("relaxed ordering", start, PAGE, LOCAL_WRITE | 1 << 20, None),
        ("no byte of a page", at(8), 0, LOCAL_WRITE, None),
        ("no page", start, 0, LOCAL_WRITE, Some(libc::EINVAL)),
        ("remote only", start, PAGE, REMOTE_WRITE, Some(libc::EINVAL)),
        (
            "atomic only",
            start,
            PAGE,
            REMOTE_ATOMIC,
            Some(libc::EINVAL),
        ),
        ("unknown flag", start, PAGE, 1 << 10, Some(libc::EINVAL)),
        ("on demand", start, PAGE, 0x41, Some(libc::EOPNOTSUPP)),
        ("not mapped", nowhere, PAGE, LOCAL_WRITE, Some(libc::EFAULT)),
        (
            "too far",
            at(PAGE),
            1 << 40,
            LOCAL_WRITE,
            Some(libc::EFAULT),
        ),
        (
            "around",
            at(0),
            usize::MAX - 8,
            LOCAL_WRITE,
            Some(libc::EINVAL),
        ),
    ];
    for (what, address, bytes, access, expected) in table {
        let iova = address.addr() as u64;
        let made = pd.reg_iova(address, bytes, iova, access);
        assert_eq!(
            made.as_ref().err().and_then(io::Error::raw_os_error),
            expected,
            "{what}"
        );
        if let Ok(mr) = made {
            mr.dereg().unwrap();
        }
    }
    let crooked = pd.reg_iova(start, PAGE, 0x10_0001, LOCAL_WRITE);
    assert_eq!(errno(crooked), Some(libc::EINVAL));
    assert_eq!(errno(device.advise(&pd)), Some(libc::EOPNOTSUPP));
    pd.dealloc().ok().unwrap();
}

#[test]
fn a_region_of_a_memfd_has_keys_and_keeps_its_domain_busy() {
    let (hca, device, pd) = hca();
    let file = memfd(4 * PAGE);
    let reg =
        |offset, bytes, iova, access| pd.reg_dmabuf(offset, bytes, iova, file.as_raw_fd(), access);
    let mr = reg(256, 8000, 0x10_0100, 0xf).unwrap();
    assert_eq!(mr.lkey(), mr.rkey());
    let (pd, busy) = pd.dealloc().err().unwrap();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    assert_eq!(hca.live_objects().mr, 1);
    mr.dereg().unwrap();

    let file_fd = file.as_raw_fd();
    let reg = |offset, bytes, iova, fd, access| {
        errno(
            pd.reg_dmabuf(offset, bytes, iova, fd, access)
                .map(|mr| mr.dereg()),
        )
    };
    assert_eq!(reg(0, PAGE, 0, file_fd, 1 | 1 << 20), None);
    assert_eq!(reg(0, PAGE, 0, 9999, 1), Some(libc::EBADF));
    assert_eq!(reg(0, 5 * PAGE, 0, file_fd, 1), Some(libc::EINVAL));
    assert_eq!(reg(0, PAGE, 1, file_fd, 1), Some(libc::EINVAL));
    assert_eq!(reg(0, PAGE, 0, file_fd, 2), Some(libc::EINVAL));
    assert_eq!(reg(0, PAGE, 0, file_fd, 0x11), Some(libc::EINVAL));
    pd.dealloc().ok().unwrap();

    let umem = device.reg_umem_dmabuf(file_fd, PAGE, PAGE).unwrap();
    assert_ne!(umem.id(), 0);
    let refused = device.reg_umem_dmabuf(file_fd, PAGE, 4 * PAGE);
    assert_eq!(errno(refused.map(drop)), Some(libc::EINVAL));
}

#[test]
fn a_region_is_changed_and_a_refused_change_leaves_it() {
    const TRANSLATION: i32 = 1;
    const DOMAIN: i32 = 2;
    const ACCESS: i32 = 4;
    let (_hca, device, pd) = hca();
    let other = device.alloc_pd().unwrap();
    let memory = Memory::new(4 * PAGE);
    let mr = pd.reg_mr(&memory, LOCAL_WRITE).unwrap();
    let keys = (mr.lkey(), mr.rkey());
    let start = memory.address();
    let nowhere: *mut u8 = std::ptr::without_provenance_mut(0x1000);
    let refused =
        |flags, address, bytes, access| errno(mr.rereg(flags, &pd, address, bytes, access));
    assert_eq!(refused(ACCESS, start, PAGE, 2), Some(libc::EINVAL));
    assert_eq!(refused(ACCESS, start, PAGE, 0x41), Some(libc::EOPNOTSUPP));
    assert_eq!(refused(TRANSLATION, nowhere, PAGE, 0), Some(libc::EFAULT));
    mr.rereg(DOMAIN | ACCESS, &other, start, PAGE, 0xf).unwrap();
    mr.rereg(TRANSLATION, &other, start, PAGE, 0).unwrap();
    assert_eq!((mr.lkey(), mr.rkey()), keys);
    pd.dealloc().ok().unwrap();
    let (other, busy) = other.dealloc().err().unwrap();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    mr.dereg().unwrap();
    other.dealloc().ok().unwrap();
}

#[test]
fn a_device_a_domain_and_a_region_are_imported_from_a_descriptor() {
    let (hca, device, pd) = hca();
    let memory = Memory::new(PAGE);
    let mr = pd.reg_mr(&memory, LOCAL_WRITE).unwrap();
    #[expect(unsafe_code, reason = "dup")]
    // SAFETY: a descriptor of this process.
    let copy = unsafe { libc::dup(device.command_fd()) };
    let imported = Device::import(copy).unwrap();
    let same_pd = imported.import_pd(pd.handle()).unwrap();
    assert_eq!(same_pd.pdn(), pd.pdn());
    let same_mr = same_pd.import_mr(mr.handle()).unwrap();
    assert_eq!((same_mr.lkey(), same_mr.rkey()), (mr.lkey(), mr.rkey()));
    assert_eq!(
        errno(same_pd.import_mr(0x7777).map(drop)),
        Some(libc::ENOENT)
    );
    assert_eq!(
        errno(same_pd.import_mr(pd.handle()).map(drop)),
        Some(libc::EINVAL)
    );
    assert_eq!(hca.live_objects().pd, 1);
    assert_eq!(hca.live_objects().context, 1);
    same_mr.unimport();
    same_pd.unimport();
    // The importer goes first; what it imported stays.
    drop(imported);
    assert_eq!(hca.live_objects().mr, 1);
    mr.dereg().unwrap();
    pd.dealloc().ok().unwrap();

    let file = memfd(PAGE);
    let not_ours = Device::import(file.as_raw_fd()).map(drop);
    assert_eq!(errno(not_ours), Some(libc::EINVAL));
}
