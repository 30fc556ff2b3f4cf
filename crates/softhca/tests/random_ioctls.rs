//! Random calls on a live context: plausible methods, attributes that are nearly right.
//!
//! The only test of its program: it closes descriptors that its calls have opened, and must know them.

mod rdma_core;

use std::collections::BTreeSet;
use std::os::fd::RawFd;

use rdma_core::frame::{Attribute, Frame};
use rdma_core::{Device, Memory};
use softhca::Hca;

/// Open descriptors of this process.
fn open_fds() -> BTreeSet<RawFd> {
    (3..4096).filter(|&fd| rdma_core::is_open(fd)).collect()
}

#[test]
fn random_attribute_sets_give_errors_and_never_a_crash() {
    const METHODS: &[(u16, u16)] = &[
        (0, 0),
        (0, 2),
        (0, 3),
        (0, 4),
        (0, 5),
        (0, 6),
        (1, 0),
        (1, 0x1000),
        (3, 0),
        (3, 1),
        (4, 0),
        (4, 1),
        (7, 1),
        (7, 3),
        (0x10, 0),
        (0x1000, 0x1000),
        (0x1000, 0x1002),
        (0x1000, 0x1003),
        (0x1001, 0x1000),
        (0x1001, 0x1001),
        (0x1001, 0x1002),
        (0x1001, 0x1003),
        (0x1001, 0x1004),
        (0x1004, 0x1000),
        (0x1002, 0x1000),
        (0x1002, 0x1001),
        (0x1005, 0x1000),
        (0x1008, 0x1000),
        (0x1008, 0x1001),
    ];
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    // Memory that outputs may land in and registrations may name.
    let memory = Memory::new(1 << 20);
    let inside = memory.address().expose_provenance() as u64;
    let open_before = open_fds();
    let mut succeeded = 0;
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    for round in 0..if full { 1_000_000 } else { 20_000 } {
        let &(object, method) = random.choice(METHODS).unwrap();
        let driver = object >= 0x1000 || method >= 0x1000 || random.u8(..4) == 0;
        let base = if driver { 0x1000 } else { 0 };
        let attributes: Vec<_> = (0..random.usize(..7))
            .map(|index| Attribute {
                id: if random.u8(..8) == 0 {
                    random.u16(..)
                } else {
                    base + u16::try_from(index).unwrap()
                },
                len: match random.u8(..6) {
                    0 => 0,
                    1 => 4,
                    2 => 8,
                    3 => random.u16(..64),
                    4 => random.u16(..5000),
                    _ => random.u16(..),
                },
                flags: random.u16(..2),
                reserved: u16::from(random.u8(..32) == 0),
                data: match random.u8(..8) {
                    0 => random.u64(..),
                    1 => random.u64(..0x1_0000),
                    2 => random.u64(..8),
                    3 => 0x8000_0000 | random.u64(..0x40),
                    4 => random.u64(..0x40),
                    _ => inside + random.u64(..1 << 19),
                },
            })
            .collect();
        // What a command finds in its input: often a real opcode.
        if random.bool() {
            let opcodes = [
                0x100u16, 0x200, 0x400, 0x500, 0x502, 0x50b, 0x705, 0x80e, 0x90c,
            ];
            let opcode = random.choice(opcodes).unwrap();
            memory.write(random.usize(..1 << 19), &opcode.to_be_bytes());
        }
        let errno = Frame::new(object, method, &attributes).send(device.command_fd());
        succeeded += u32::from(errno == 0);
        const EXPECTED: &[i32] = &[
            0,
            libc::EINVAL,
            libc::EAGAIN, // of an XRC domain that is not to be made
            libc::EFAULT,
            libc::ENOENT,
            libc::EBADF,
            libc::ENOSPC,
            libc::EBUSY,
            libc::ENOMEM,
            libc::EMFILE,
            libc::EOPNOTSUPP,
            libc::EPROTONOSUPPORT,
            libc::EREMOTEIO,
        ];
        assert!(
            EXPECTED.contains(&errno),
            "seed {seed} round {round}: errno {errno} of {object:#x}.{method:#x} {attributes:x?}"
        );
    }
    assert!(succeeded > 0, "seed {seed}: no call got past the checks");
    // Random calls have opened event descriptors.
    for fd in open_fds().difference(&open_before) {
        rdma_core::close(*fd);
    }
    drop(device);
    let live = hca.live_objects();
    assert_eq!(live.total(), 0, "seed {seed}: {live:?}");
}
