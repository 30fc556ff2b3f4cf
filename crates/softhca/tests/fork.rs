//! A forked child shares descriptors with its parent; it must not take the parent's objects down.
//!
//! The only test of its program, since a fork copies one thread of it.

// UNSAFETY: fork.
#![expect(unsafe_code, reason = "fork, and what a child may do after it")]

mod rdma_core;

use std::io;

use rdma_core::Device;
use softhca::Hca;

#[test]
fn a_forked_child_closes_its_copies_and_the_parent_keeps_its_objects() {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    let pd = device.alloc_pd().unwrap();
    let before = hca.live_objects();
    let node = format!(
        "/dev/infiniband/uverbs{}\0",
        hca.name().trim_start_matches("mlx5_")
    );
    let fd = device.command_fd();
    // SAFETY: the child asks libibverbs once, makes system calls and ends by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let imported = Device::import(fd).is_ok();
        // SAFETY: a descriptor of this process and a C string.
        let status = unsafe {
            if imported {
                4
            } else if libc::close(fd) != 0 {
                1
            } else if libc::open(node.as_ptr().cast(), libc::O_RDWR) >= 0 {
                2
            } else {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::ENODEV) => 0,
                    _ => 3,
                }
            }
        };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: a child of this process and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(
        status, 0,
        "1: close failed, 2: open succeeded, 3: not ENODEV, 4: import succeeded"
    );
    assert_eq!(hca.live_objects(), before);
    pd.dealloc().ok().unwrap();
    drop(device);
    assert_eq!(hca.live_objects().total(), 0);
}
