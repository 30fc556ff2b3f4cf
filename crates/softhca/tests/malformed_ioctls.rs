//! Ioctls that no library would send: each gives an error number, none does harm.

mod rdma_core;

use rdma_core::frame::{Attribute, Frame, MANDATORY, send, word};
use rdma_core::{Device, ioctl};
use softhca::Hca;

fn opened() -> (Hca, Device) {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    (hca, device)
}

#[test]
fn a_broken_frame_gives_the_error_of_the_kernel() {
    let (_hca, device) = opened();
    let fd = device.command_fd();
    assert_eq!(send(fd, 0), libc::EFAULT);
    assert_eq!(send(fd, u64::MAX - 8), libc::EFAULT);
    assert_eq!(ioctl(fd, 0x5401, 0), libc::ENOTTY);

    let good = || Frame::new(0, 2, &[]);
    let broken = |change: &dyn Fn(&mut Frame)| {
        let mut frame = good();
        change(&mut frame);
        frame.send(fd)
    };
    // Mandatory attributes are missing.
    assert_eq!(broken(&|_| ()), libc::EINVAL);
    // The length does not fit the number of attributes, or a page.
    assert_eq!(broken(&|frame| frame.0[0] += 1), libc::EINVAL);
    assert_eq!(broken(&|frame| frame.0[0] += 1 << 48), libc::EINVAL);
    assert_eq!(
        broken(&|frame| frame.0[0] = word([24 + 300 * 16, 0, 2, 300])),
        libc::EINVAL
    );
    // Reserved fields, another driver.
    assert_eq!(broken(&|frame| frame.0[1] = 1), libc::EPROTONOSUPPORT);
    assert_eq!(
        broken(&|frame| frame.0[2] = 1 << 32 | 1),
        libc::EPROTONOSUPPORT
    );
    assert_eq!(broken(&|frame| frame.0[2] = 2), libc::EINVAL);
    // No such object, no such method.
    assert_eq!(Frame::new(0x999, 0, &[]).send(fd), libc::EPROTONOSUPPORT);
    assert_eq!(Frame::new(0, 99, &[]).send(fd), libc::EPROTONOSUPPORT);
}

#[test]
fn attributes_are_checked_as_the_kernel_checks_them() {
    let (_hca, device) = opened();
    let fd = device.command_fd();
    let mut reply = [0u64; 8];
    let port = Attribute {
        id: 0,
        len: 8,
        flags: MANDATORY,
        data: 1,
        ..Attribute::default()
    };
    let response = Attribute {
        id: 1,
        len: 48,
        flags: MANDATORY,
        data: reply.as_mut_ptr().expose_provenance() as u64,
        ..Attribute::default()
    };
    let query_port = |attributes: &[Attribute]| Frame::new(0, 2, attributes).send(fd);
    assert_eq!(query_port(&[port, response]), 0);
    assert_eq!(query_port(&[response, port]), 0);
    assert_eq!(query_port(&[port]), libc::EINVAL);
    assert_eq!(query_port(&[port, port, response]), libc::EINVAL);
    assert_eq!(
        query_port(&[Attribute { data: 2, ..port }, response]),
        libc::EINVAL
    );
    assert_eq!(
        query_port(&[Attribute { len: 0, ..port }, response]),
        libc::EINVAL
    );
    assert_eq!(
        query_port(&[port, Attribute { len: 8, ..response }]),
        libc::EINVAL
    );
    assert_eq!(
        query_port(&[
            port,
            Attribute {
                reserved: 1,
                ..response
            }
        ]),
        libc::EINVAL
    );
    assert_eq!(
        query_port(&[
            port,
            Attribute {
                data: 16,
                ..response
            }
        ]),
        libc::EFAULT
    );

    let unknown = Attribute {
        id: 77,
        ..Attribute::default()
    };
    assert_eq!(query_port(&[port, response, unknown]), 0, "not mandatory");
    let unknown = Attribute {
        flags: MANDATORY,
        ..unknown
    };
    assert_eq!(
        query_port(&[port, response, unknown]),
        libc::EPROTONOSUPPORT
    );

    // A longer number is a newer one: fine as long as the rest is zero.
    let mut longer = [1u64, 0];
    let long_port = |longer: &mut [u64; 2]| Attribute {
        len: 16,
        data: longer.as_mut_ptr().expose_provenance() as u64,
        ..port
    };
    let attribute = long_port(&mut longer);
    assert_eq!(query_port(&[attribute, response]), 0);
    longer[1] = 5;
    let attribute = long_port(&mut longer);
    assert_eq!(query_port(&[attribute, response]), libc::EOPNOTSUPP);
}

#[test]
fn handles_of_the_wrong_kind_are_refused() {
    let (_hca, device) = opened();
    let fd = device.command_fd();
    let destroy = |object: u16, method: u16, id: u16, handle: u64| {
        let attribute = Attribute {
            id,
            flags: MANDATORY,
            data: handle,
            ..Attribute::default()
        };
        Frame::new(object, method, &[attribute]).send(fd)
    };
    // libmlx5 holds UAR handles, so a small number is one of those.
    let uar = (1..64).find(|&handle| destroy(1, 0, 0, handle) == libc::EINVAL);
    assert!(uar.is_some(), "a UAR handle is no PD handle");
    assert_eq!(destroy(1, 0, 0, 0), libc::ENOENT);
    assert_eq!(destroy(7, 1, 0, 123_456), libc::ENOENT);
    assert_eq!(destroy(7, 1, 0, u64::MAX), libc::EINVAL);
    assert_eq!(destroy(0x1001, 0x1001, 0x1000, 123_456), libc::ENOENT);
}

#[test]
fn nothing_works_before_the_context_is_established() {
    let hca = Hca::new().unwrap();
    let number = hca.name().trim_start_matches("mlx5_").to_owned();
    let node = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/dev/infiniband/uverbs{number}"))
        .unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&node);
    let mut reply = [0u64; 8];
    let out = reply.as_mut_ptr().expose_provenance() as u64;
    let attribute = |id, len, data| Attribute {
        id,
        len,
        flags: MANDATORY,
        data,
        ..Attribute::default()
    };
    let mut query_port = Frame::new(0, 2, &[attribute(0, 8, 1), attribute(1, 48, out)]);
    assert_eq!(query_port.send(fd), libc::EINVAL);
    // The probe of rdma-core: a command without its structs.
    let mut probe = Frame::new(0, 0, &[attribute(2, 8, 1)]);
    assert_eq!(probe.send(fd), libc::ENOSPC);
    let mut unknown = Frame::new(0, 0, &[attribute(2, 8, 0x22)]);
    assert_eq!(unknown.send(fd), libc::EOPNOTSUPP);
    drop(node);
    assert_eq!(hca.live_objects().total(), 0);
}
