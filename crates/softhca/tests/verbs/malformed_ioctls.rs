//! Ioctls that no library would send: each gives an error number, none does harm.

use crate::rdma_core::frame::{Attribute, Frame, MANDATORY, send, word};
use crate::rdma_core::{Device, Memory, ioctl};
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

/// Returns a call that would make a completion queue of 16 entries in `memory`.
fn create_cq(memory: &Memory, out: u64) -> Vec<Attribute> {
    let address = memory.address().expose_provenance() as u64;
    let mut driver = [0u8; 32];
    driver[..8].copy_from_slice(&address.to_ne_bytes());
    driver[8..16].copy_from_slice(&(address + 8192).to_ne_bytes());
    driver[16..20].copy_from_slice(&64u32.to_ne_bytes());
    driver[22..24].copy_from_slice(&2u16.to_ne_bytes());
    driver[24..26].copy_from_slice(&1u16.to_ne_bytes());
    memory.write(12288, &driver);
    let attribute = |id, len, data| Attribute {
        id,
        len,
        flags: MANDATORY,
        data,
        ..Attribute::default()
    };
    vec![
        attribute(0, 0, 0),
        attribute(1, 4, 15),
        attribute(2, 8, 0x5a5a),
        attribute(4, 4, 0),
        attribute(6, 4, out),
        attribute(0x1000, 32, address + 12288),
        attribute(0x1001, 8, out + 8),
    ]
}

#[test]
fn completion_queues_are_refused_where_the_kernel_refuses_them() {
    let (hca, device) = opened();
    let fd = device.command_fd();
    let memory = Memory::new(1 << 14);
    let mut reply = [0u64; 4];
    let out = reply.as_mut_ptr().expose_provenance() as u64;
    let create = |change: &dyn Fn(&mut Vec<Attribute>)| {
        let mut attributes = create_cq(&memory, out);
        change(&mut attributes);
        Frame::new(3, 0, &attributes).send(fd)
    };
    let driver = |at: usize, bytes: &[u8]| {
        let mut attributes = create_cq(&memory, out);
        memory.write(12288 + at, bytes);
        Frame::new(3, 0, &attributes.split_off(0)).send(fd)
    };
    assert_eq!(create(&|_| ()), 0);
    let before = hca.live_objects();
    assert_eq!(create(&|a| a[1].data = u64::MAX), libc::EINVAL, "entries");
    assert_eq!(create(&|a| a[1].data = 1 << 23), libc::EINVAL, "entries");
    assert_eq!(create(&|a| a[3].data = 77), libc::EINVAL, "vector");
    assert_eq!(create(&|a| a[5].len = 8), libc::EINVAL, "short driver data");
    assert_eq!(create(&|a| a[5].data = 8), libc::EFAULT);
    assert_eq!(
        create(&|a| a[4].data = 8),
        libc::EFAULT,
        "no room for the reply"
    );
    let channel = |fd: u64| {
        create(&|attributes| {
            attributes.push(Attribute {
                id: 3,
                flags: MANDATORY,
                data: fd,
                ..Attribute::default()
            });
        })
    };
    assert_eq!(channel(0), libc::EBADF, "no completion channel");
    let flags = |flags: u64| {
        create(&|attributes| {
            attributes.push(Attribute {
                id: 5,
                len: 4,
                flags: MANDATORY,
                data: flags,
                ..Attribute::default()
            });
        })
    };
    assert_eq!(flags(3), 0);
    assert_eq!(flags(4), libc::EOPNOTSUPP);
    let mut before = before;
    before.cq += 1;
    before.umem += 2;
    assert_eq!(driver(0, &8u64.to_ne_bytes()), libc::EFAULT, "ring");
    assert_eq!(driver(8, &12u64.to_ne_bytes()), libc::EFAULT, "record");
    assert_eq!(driver(16, &65u32.to_ne_bytes()), libc::EINVAL, "entry size");
    assert_eq!(driver(20, &[1]), libc::EOPNOTSUPP, "compression");
    assert_eq!(driver(22, &0u16.to_ne_bytes()), libc::EINVAL, "static UAR");
    assert_eq!(driver(24, &999u16.to_ne_bytes()), libc::EINVAL, "UAR page");
    assert_eq!(driver(28, &[1]), libc::EINVAL, "reserved");
    assert_eq!(hca.live_objects(), before, "what was refused left nothing");
}

#[test]
fn queue_pairs_are_refused_where_the_kernel_refuses_them() {
    let (hca, device) = opened();
    let fd = device.command_fd();
    let memory = Memory::new(1 << 14);
    let address = memory.address().expose_provenance() as u64;
    let mut reply = [0u64; 8];
    let out = reply.as_mut_ptr().expose_provenance() as u64;
    let pd = device.alloc_pd().unwrap();
    let mut queue = create_cq(&memory, out);
    assert_eq!(Frame::new(3, 0, &queue).send(fd), 0);
    queue.clear();
    let attribute = |id, len, data| Attribute {
        id,
        len,
        flags: MANDATORY,
        data,
        ..Attribute::default()
    };
    let create = |change: &dyn Fn(&mut Vec<Attribute>), at: usize, bytes: &[u8]| {
        let mut driver = [0u8; 56];
        driver[..8].copy_from_slice(&address.to_ne_bytes());
        driver[8..16].copy_from_slice(&(address + 8192).to_ne_bytes());
        driver[16..20].copy_from_slice(&16u32.to_ne_bytes());
        driver[20..24].copy_from_slice(&16u32.to_ne_bytes());
        driver[24..28].copy_from_slice(&4u32.to_ne_bytes());
        driver[28..32].copy_from_slice(&(1u32 << 10).to_ne_bytes());
        driver[36..40].copy_from_slice(&1u32.to_ne_bytes());
        driver[at..at + bytes.len()].copy_from_slice(bytes);
        memory.write(12288, &driver);
        memory.write(12288 + 64, &[0; 20]);
        let mut attributes = vec![
            attribute(0, 0, 0),
            attribute(2, 0, pd.handle().into()),
            attribute(4, 0, 0),
            attribute(5, 0, 0),
            attribute(7, 8, 0x5a5a),
            attribute(8, 20, address + 12288 + 64),
            attribute(9, 8, 2),
            attribute(0xd, 20, out),
            attribute(0xe, 4, out + 24),
            attribute(0x1000, 56, address + 12288),
            attribute(0x1001, 40, out + 24),
        ];
        // The handle of the queue is the one after the PD's.
        attributes[2].data = u64::from(pd.handle()) + 1;
        attributes[3].data = u64::from(pd.handle()) + 1;
        change(&mut attributes);
        Frame::new(4, 0, &attributes).send(fd)
    };
    let same: &dyn Fn(&mut Vec<Attribute>) = &|_| ();
    let before = hca.live_objects();
    for (what, outcome, errno) in [
        ("no PD", create(&|a| a[1].data = 9999, 0, &[]), libc::ENOENT),
        (
            "a PD that is a CQ",
            create(&|a| a[1].data += 1, 0, &[]),
            libc::EINVAL,
        ),
        (
            "a CQ that is a PD",
            create(&|a| a[2].data -= 1, 0, &[]),
            libc::EINVAL,
        ),
        (
            "no CQ given",
            create(&|a| a.retain(|x| x.id != 4), 0, &[]),
            libc::EINVAL,
        ),
        (
            "raw packets",
            create(&|a| a[6].data = 8, 0, &[]),
            libc::EOPNOTSUPP,
        ),
        (
            "driver",
            create(&|a| a[6].data = 0xff, 0, &[]),
            libc::EOPNOTSUPP,
        ),
        (
            "flags",
            create(&|a| a.push(attribute(0xa, 4, 4)), 0, &[]),
            libc::EOPNOTSUPP,
        ),
        ("no reply", create(&|a| a[7].data = 8, 0, &[]), libc::EFAULT),
        ("ring", create(same, 0, &8u64.to_ne_bytes()), libc::EFAULT),
        ("record", create(same, 8, &8u64.to_ne_bytes()), libc::EFAULT),
        (
            "send blocks",
            create(same, 16, &15u32.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "send blocks",
            create(same, 16, &u32::MAX.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "receive WQEs",
            create(same, 20, &17u32.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "receive shift",
            create(same, 24, &60u32.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "no page index",
            create(same, 28, &0u32.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "user index",
            create(same, 32, &u32::MAX.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "UAR page",
            create(same, 36, &u32::MAX.to_ne_bytes()),
            libc::EINVAL,
        ),
        (
            "UAR page",
            create(same, 36, &99u32.to_ne_bytes()),
            libc::EINVAL,
        ),
    ] {
        assert_eq!(outcome, errno, "{what}");
    }
    assert_eq!(hca.live_objects(), before, "what was refused left nothing");
    assert_eq!(create(same, 0, &[]), 0);
    assert_eq!(hca.live_objects().qp, before.qp + 1);
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
    let mut unknown = Frame::new(0, 0, &[attribute(2, 8, 0x1e)]);
    assert_eq!(unknown.send(fd), libc::EOPNOTSUPP);
    drop(node);
    assert_eq!(hca.live_objects().total(), 0);
}
