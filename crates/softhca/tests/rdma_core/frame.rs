//! Verbs ioctls, made by hand.

use std::os::fd::RawFd;

const RDMA_VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;
pub(crate) const MANDATORY: u16 = 1;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attribute {
    pub(crate) id: u16,
    pub(crate) len: u16,
    pub(crate) flags: u16,
    pub(crate) reserved: u16,
    pub(crate) data: u64,
}

/// A call in its bytes; `length` and `count` say what they say, true or not.
pub(crate) struct Frame(pub(crate) Vec<u64>);

impl Frame {
    pub(crate) fn new(object: u16, method: u16, attributes: &[Attribute]) -> Self {
        let length = u16::try_from(24 + attributes.len() * 16).unwrap();
        let count = u16::try_from(attributes.len()).unwrap();
        let mut words = vec![word([length, object, method, count]), 0, 1];
        for attribute in attributes {
            words.push(word([
                attribute.id,
                attribute.len,
                attribute.flags,
                attribute.reserved,
            ]));
            words.push(attribute.data);
        }
        Self(words)
    }

    /// `errno`, or 0.
    pub(crate) fn send(&mut self, fd: RawFd) -> i32 {
        send(fd, self.0.as_mut_ptr().expose_provenance() as u64)
    }
}

pub(crate) fn word(halves: [u16; 4]) -> u64 {
    halves
        .iter()
        .rev()
        .fold(0, |word, &half| word << 16 | u64::from(half))
}

/// Sends the frame at `address`: `errno`, or 0.
pub(crate) fn send(fd: RawFd, address: u64) -> i32 {
    super::ioctl(fd, RDMA_VERBS_IOCTL, address)
}
