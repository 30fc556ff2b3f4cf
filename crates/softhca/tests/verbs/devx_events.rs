//! Events that a program with DevX subscribes to, and queries that are answered through a descriptor.

// UNSAFETY: takes over descriptors that calls have opened.
#![expect(unsafe_code, reason = "descriptors from numbers")]

use crate::rdma_core::frame::{Attribute, Frame, MANDATORY};
use crate::rdma_core::verbs::{LONG_MS, is_readable};
use crate::rdma_core::{Device, Memory};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::cq::{Cqc, CreateCqIn, CreateCqOut, QueryCqIn, QueryCqOut};
use softhca::Hca;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

const PORT_CHANGE: u16 = 0x09;
const INTERNAL_ERROR: u16 = 0x08;

fn attribute(id: u16, len: u16, data: u64) -> Attribute {
    Attribute {
        id,
        len,
        flags: MANDATORY,
        data,
        ..Attribute::default()
    }
}

/// Opens a descriptor by the method whose first attribute takes it.
fn open(device: &Device, object: u16, attributes: &[Attribute]) -> File {
    let mut frame = Frame::new(object, 0x1000, attributes);
    assert_eq!(frame.send(device.command_fd()), 0);
    let fd = RawFd::try_from(frame.0[4]).unwrap();
    // SAFETY: a descriptor that the call has just opened for us.
    unsafe { File::from_raw_fd(fd) }
}

fn open_events(device: &Device, omit_data: bool) -> File {
    let attributes = [
        attribute(0x1000, 0, 0),
        attribute(0x1001, 4, omit_data.into()),
    ];
    open(device, 0x1005, &attributes)
}

/// `errno` of a subscription to an event of the device.
fn subscribe(device: &Device, events: &File, kind: u16, cookie: u64, more: &[Attribute]) -> i32 {
    let mut attributes = vec![
        attribute(0x1000, 0, events.as_raw_fd().try_into().unwrap()),
        attribute(0x1002, 2, kind.into()),
        attribute(0x1004, 8, cookie),
    ];
    attributes.extend(more);
    Frame::new(0x1000, 0x1003, &attributes).send(device.command_fd())
}

fn eventfd() -> File {
    // SAFETY: opens a descriptor, which no other code owns.
    unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) }
}

#[test]
fn port_and_device_events_reach_all_subscribers() {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    let mut with_data = open_events(&device, false);
    let mut without = open_events(&device, true);
    let mut counter = eventfd();
    let redirected = attribute(0x1003, 4, counter.as_raw_fd().try_into().unwrap());
    assert_eq!(subscribe(&device, &with_data, PORT_CHANGE, 0xaa, &[]), 0);
    assert_eq!(subscribe(&device, &without, PORT_CHANGE, 0xbb, &[]), 0);
    assert_eq!(subscribe(&device, &without, INTERNAL_ERROR, 0xcc, &[]), 0);
    assert_eq!(
        subscribe(&device, &without, PORT_CHANGE, 0, &[redirected]),
        0
    );

    hca.set_port(false);
    hca.set_port(true);
    for sub_kind in [1, 4] {
        let mut record = [0; 200];
        assert!(is_readable(with_data.as_raw_fd(), LONG_MS));
        assert_eq!(with_data.read(&mut record).unwrap(), 72, "one at a time");
        assert_eq!(record[..8], 0xaau64.to_ne_bytes());
        assert_eq!((record[8 + 1], record[8 + 3]), (0x09, sub_kind));
        assert_eq!(record[8 + 40], 0x10, "port 1");
        assert_eq!(without.read(&mut record).unwrap(), 8);
        assert_eq!(record[..8], 0xbbu64.to_ne_bytes());
    }
    let mut count = [0; 8];
    assert!(is_readable(counter.as_raw_fd(), LONG_MS));
    counter.read_exact(&mut count).unwrap();
    assert!(u64::from_ne_bytes(count) >= 1);
    // The same, as verbs has it: port error, port active.
    assert_eq!(device.async_event(), (1, 10));
    assert_eq!(device.async_event(), (1, 9));

    hca.die();
    assert!(is_readable(without.as_raw_fd(), LONG_MS));
    without.read_exact(&mut count).unwrap();
    assert_eq!(count, 0xccu64.to_ne_bytes());
    assert_eq!(device.async_event().1, 8);
}

#[test]
fn subscriptions_that_make_no_sense_are_refused() {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    let events = open_events(&device, false);
    let refused = |kind, more: &[Attribute]| subscribe(&device, &events, kind, 0, more);
    assert_eq!(refused(0x04, &[]), libc::EOPNOTSUPP, "of no device");
    assert_eq!(refused(0x77, &[]), libc::EOPNOTSUPP);
    let object = attribute(0x1001, 0, 999_999);
    assert_eq!(refused(0x04, &[object]), libc::ENOENT);
    let no_eventfd = attribute(0x1003, 4, events.as_raw_fd().try_into().unwrap());
    assert_eq!(refused(PORT_CHANGE, &[no_eventfd]), libc::EINVAL);
    let closed = attribute(0x1003, 4, 0x7fff_fff0);
    assert_eq!(refused(PORT_CHANGE, &[closed]), libc::EBADF);
    let not_for_events = open(&device, 0x1004, &[attribute(0x1000, 0, 0)]);
    assert_eq!(
        subscribe(&device, &not_for_events, PORT_CHANGE, 0, &[]),
        libc::EBADF
    );
}

#[test]
fn an_asynchronous_query_is_answered_through_its_descriptor() {
    let hca = Hca::new().unwrap();
    let device = Device::open(hca.name()).unwrap();
    let memory = Memory::new(1 << 14);
    let umem = device.reg_umem(&memory, 1).unwrap();
    let uar = device.alloc_uar(0).unwrap();
    let cqc = Cqc::default()
        .with_log_cq_size(4)
        .with_uar_page(uar.page_id)
        .with_c_eqn(device.eqn(0).unwrap())
        .with_dbr_umem_id(umem.id());
    let input = CreateCqIn::default()
        .with_opcode(Opcode::CREATE_CQ.0.into())
        .with_cqc(cqc)
        .with_cq_umem_offset(4096)
        .with_cq_umem_id(umem.id());
    let mut output = CreateCqOut::default();
    let cq = device
        .create(input.as_bytes(), output.as_bytes_mut())
        .unwrap();
    let handle = cq.handle();
    let mut answers = open(&device, 0x1004, &[attribute(0x1000, 0, 0)]);
    let query = QueryCqIn::default()
        .with_opcode(Opcode::QUERY_CQ.0.into())
        .with_cqn(output.cqn());
    memory.write(8192, query.as_bytes());
    let from = memory.address().expose_provenance() as u64 + 8192;
    let send = |number: u64, bytes: u64| {
        let attributes = [
            attribute(0x1000, 0, handle.into()),
            attribute(0x1001, 16, from),
            attribute(0x1002, 0, answers.as_raw_fd().try_into().unwrap()),
            attribute(0x1003, 8, number),
            attribute(0x1004, 2, bytes),
        ];
        Frame::new(0x1001, 0x1004, &attributes).send(device.command_fd())
    };
    assert_eq!(send(0x1234, 0x110), 0);
    assert_eq!(send(0x5678, 16), 0);
    assert_eq!(send(1, 8), libc::EINVAL, "no room for a header");
    assert_eq!(send(1, 0xffff), libc::EINVAL, "more than a packet");
    let mut record = [0; 1024];
    assert_eq!(answers.read(&mut record).unwrap(), 8 + 0x110);
    assert_eq!(record[..8], 0x1234u64.to_ne_bytes());
    let answer = QueryCqOut::from_prefix(&record[8..]);
    assert_eq!((answer.status(), answer.cqc().log_cq_size()), (0, 4));
    assert_eq!(answers.read(&mut record).unwrap(), 8 + 16);
    assert_eq!(record[..8], 0x5678u64.to_ne_bytes());
    cq.destroy().map_err(|(_, error)| error).unwrap();
}
