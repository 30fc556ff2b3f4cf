//! The UDP carrier, with an unconnected socket for each address of an HCA. It sends and receives batches of packets per system call.
//!
//! A socket is bound to an address and port 4791, so the source port, which routers take as flow label, is 4791 too. IP_MTU_DISCOVER=DO
//! gives identification 0 and DF, as the ICRC assumes. A packet that is too large for the path goes in fragments, without DF. A receiver
//! that has a socket, too, assumes the usual fields for it. The kernel drops packets that do not fit into a receiver's buffer, without a
//! report.
//!
//! On the loopback network and over IPv6, several packets are sent and received as one message, if the kernel has UDP GSO and GRO. These
//! packets follow each other, go to one destination and have one size. Other packets have one message each. All buffers are allocated once.
//!
//! The crate rustix has no recvmmsg, and its control messages are not those of GSO and GRO.

// UNSAFETY: sendmmsg, recvmmsg and setsockopt take pointers to arrays that live on the stack or in this module's buffers.
#![expect(unsafe_code, reason = "batched socket calls of libc")]

mod name;
mod queue;

use super::carrier::{Carrier, CarrierCounters, PacketSink, Receiver};
use crate::envelope::{Kept, Source};
use crate::subnet::Ipv6Subnet;
use name::SocketName;
use queue::{Run, SendQueue};
use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Requested size of socket buffers; the kernel may give less (`net.core.rmem_max`).
pub const SOCKET_BUFFER_BYTES: u32 = 8 << 20;

/// Number of messages per system call.
const BATCH: usize = 8;
/// Length of a buffer for one control message that holds an integer.
const CONTROL_BYTES: usize = 32;

/// The sockets of one HCA with their buffers.
#[derive(Debug)]
pub struct UdpCarrier {
    /// The IPv4 sockets by their path bits.
    ipv4: Vec<UdpSocket>,
    ipv6: Option<(UdpSocket, Ipv6Subnet)>,
    queue: SendQueue,
    received: Box<[u8]>,
    buffer_bytes: usize,
    counters: CarrierCounters,
}

impl UdpCarrier {
    /// Returns a carrier over a socket that is bound to an HCA's IPv4 address.
    ///
    /// # Errors
    /// The kernel refuses to make the socket non-blocking or to set DF.
    pub fn new(socket: UdpSocket) -> io::Result<Self> {
        Self::with_buffers(socket, SOCKET_BUFFER_BYTES)
    }

    /// Returns a carrier as [`Self::new`] does, with socket buffers of `bytes`, as far as the kernel allows it.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn with_buffers(socket: UdpSocket, bytes: u32) -> io::Result<Self> {
        discover_mtu(&socket, Ipv4Addr::UNSPECIFIED.into(), Discovery::Whole)?;
        let joins = prepare(&socket, bytes)?;
        let buffer_bytes = receive_buffer(&socket)?;
        Ok(Self {
            ipv4: vec![socket],
            ipv6: None,
            buffer_bytes,
            queue: SendQueue::new(joins),
            received: vec![0; BATCH * (1 << 16)].into_boxed_slice(),
            counters: CarrierCounters::default(),
        })
    }

    /// Returns this carrier with a second socket, which is bound to the HCA's address of `subnet`.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn with_ipv6(self, socket: UdpSocket, subnet: Ipv6Subnet) -> io::Result<Self> {
        discover_mtu(&socket, Ipv6Addr::UNSPECIFIED.into(), Discovery::Whole)?;
        prepare(&socket, SOCKET_BUFFER_BYTES)?;
        Ok(Self {
            ipv6: Some((socket, subnet)),
            ..self
        })
    }

    /// Returns this carrier with more sockets, which are bound to the IPv4 addresses after the HCA's first address.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn with_more(mut self, sockets: Vec<UdpSocket>) -> io::Result<Self> {
        for socket in &sockets {
            discover_mtu(socket, Ipv4Addr::UNSPECIFIED.into(), Discovery::Whole)?;
            prepare(socket, SOCKET_BUFFER_BYTES)?;
        }
        self.ipv4.extend(sockets);
        Ok(self)
    }

    /// Returns whether packets wait for the socket to become writable.
    fn waits(&self) -> bool {
        self.queue.sent < self.queue.runs.len()
    }

    /// Returns all sockets.
    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        let ipv6 = self.ipv6.iter().map(|(socket, _)| socket);
        self.ipv4.iter().chain(ipv6)
    }

    /// Returns the socket of a run; the socket of the first address if the run has none of its own.
    fn socket_of(&self, run: Option<&Run>) -> &UdpSocket {
        match (run, &self.ipv6) {
            (Some(run), Some((ipv6, _))) if run.destination.is_ipv6() => ipv6,
            (Some(run), _) => self
                .ipv4
                .get(usize::from(run.path_bits))
                .unwrap_or(&self.ipv4[0]),
            (None, _) => &self.ipv4[0],
        }
    }

    /// Returns the socket of the next run that is to be sent.
    fn next_socket(&self) -> &UdpSocket {
        self.socket_of(self.queue.runs.get(self.queue.sent))
    }

    /// Hands the kernel up to [`BATCH`] runs of one socket. Returns how many it took.
    fn send_batch(&mut self) -> io::Result<usize> {
        // SAFETY: all-zero is a valid value of each of these C structs (null pointers, zero lengths).
        let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { zeroed() };
        let mut names = [SocketName::default(); BATCH];
        let mut controls = [Control([0; CONTROL_BYTES]); BATCH];
        let socket = self.next_socket().as_raw_fd();
        let runs = &self.queue.runs[self.queue.sent..];
        let of_socket = runs.iter().take(BATCH);
        let count = of_socket
            .take_while(|run| self.socket_of(Some(run)).as_raw_fd() == socket)
            .count();
        for (index, run) in runs.iter().take(count).enumerate() {
            names[index] = SocketName::of(run.destination);
            let data = &mut self.queue.bytes[run.start..run.start + run.bytes];
            parts[index] = libc::iovec {
                iov_base: data.as_mut_ptr().cast(),
                iov_len: data.len(),
            };
            let header = &mut messages[index].msg_hdr;
            header.msg_name = std::ptr::from_mut(&mut names[index]).cast();
            header.msg_namelen = names[index].length();
            header.msg_iov = &mut parts[index];
            header.msg_iovlen = 1;
            if run.bytes > run.segment_bytes {
                header.msg_control = controls[index].0.as_mut_ptr().cast();
                header.msg_controllen = put_segment(&mut controls[index], run.segment_bytes);
            }
        }
        // SAFETY: the first `count` headers point to a name, an iovec, a control buffer and data of the lengths given. These live
        // until the end of this function. `count` is at most the array's length.
        let sent = unsafe {
            libc::sendmmsg(
                socket,
                messages.as_mut_ptr(),
                u32::try_from(count).unwrap_or(BATCH_COUNT),
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Handles that the kernel has refused the first unsent run. If the run has several packets, they are tried one by one. If the run has
    /// one packet, the packet is sent in fragments. If the kernel refuses the fragments, too, the packet is lost.
    fn after_refusal(&mut self, error: &io::Error) {
        let run = self.queue.runs[self.queue.sent];
        if run.bytes > run.segment_bytes {
            if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL)) {
                self.queue.stop_joining(); // this path cannot segment
            }
            self.queue.split();
            return;
        }
        let is_sent = error.raw_os_error() == Some(libc::EMSGSIZE) && self.send_in_fragments(&run);
        if !is_sent {
            self.counters.refused += 1;
        }
        self.queue.sent += 1;
    }

    /// Sends a run of one packet in fragments of the size that the path takes. Returns whether the kernel has taken it. If the kernel has
    /// no room for it, the packet is lost, as it may be on the way.
    fn send_in_fragments(&mut self, run: &Run) -> bool {
        let name = SocketName::of(run.destination);
        let socket = self.socket_of(Some(run));
        if discover_mtu(socket, run.destination, Discovery::None).is_err() {
            return false;
        }
        let data = &self.queue.bytes[run.start..run.start + run.bytes];
        // SAFETY: data and name of the lengths given, which live until the call returns.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                data.as_ptr().cast(),
                data.len(),
                libc::MSG_DONTWAIT,
                (&raw const name).cast(),
                name.length(),
            )
        };
        // If the option could be set, it can be set back.
        let _ = discover_mtu(socket, run.destination, Discovery::Whole);
        sent >= 0
    }
}

impl Carrier for UdpCarrier {
    fn receive(&mut self, _: u64, packet: &mut Receiver<'_>) -> io::Result<bool> {
        let (received, counters) = (&mut self.received, &mut self.counters);
        let mut more = false;
        for (socket, path_bits) in self.ipv4.iter().zip(0..=u8::MAX) {
            let mut arrived = |source: Source, datagram: &[u8]| {
                packet(
                    Source {
                        path_bits,
                        ..source
                    },
                    datagram,
                );
            };
            more |= receive_batch(socket, None, received, counters, &mut arrived)?;
        }
        if let Some((socket, subnet)) = &self.ipv6 {
            more |= receive_batch(socket, Some(*subnet), received, counters, packet)?;
        }
        Ok(more)
    }

    fn sink(&mut self) -> &mut dyn PacketSink {
        &mut self.queue
    }

    fn flush(&mut self, _: u64) -> bool {
        while self.waits() {
            match self.send_batch() {
                Ok(runs) => {
                    self.counters.send_calls += 1;
                    self.queue.sent += runs;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => return false,
                    Some(libc::EINTR) => {}
                    _ => self.after_refusal(&error),
                },
            }
        }
        self.queue.clear();
        true
    }

    fn is_blocked(&self) -> bool {
        self.waits()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let next = self.next_socket();
        let others = self
            .sockets()
            .filter(|socket| socket.as_raw_fd() != next.as_raw_fd());
        std::iter::once(next)
            .chain(others)
            .map(AsFd::as_fd)
            .collect()
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }

    fn buffer_bytes(&self) -> Option<usize> {
        Some(self.buffer_bytes)
    }

    fn kept(&self) -> Kept {
        match self.ipv6 {
            None => Kept::Ipv4,
            Some(_) => Kept::Udp,
        }
    }
}

/// Takes up to [`BATCH`] messages from a socket. Returns true if there may be more.
fn receive_batch(
    socket: &UdpSocket,
    subnet: Option<Ipv6Subnet>,
    received: &mut [u8],
    counters: &mut CarrierCounters,
    packet: &mut Receiver<'_>,
) -> io::Result<bool> {
    // SAFETY: all-zero is a valid value of each of these C structs (null pointers, zero lengths).
    let (mut parts, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
        unsafe { zeroed() };
    let mut names = [SocketName::default(); BATCH];
    let mut controls = [Control([0; CONTROL_BYTES]); BATCH];
    let buffers = received.chunks_exact_mut(1 << 16);
    for ((((message, name), part), control), buffer) in messages
        .iter_mut()
        .zip(&mut names)
        .zip(&mut parts)
        .zip(&mut controls)
        .zip(buffers)
    {
        *part = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        let header = &mut message.msg_hdr;
        header.msg_name = std::ptr::from_mut(name).cast();
        header.msg_namelen = SocketName::ROOM;
        header.msg_iov = part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES;
    }
    // SAFETY: every header points to a name, an iovec, a control buffer and a data buffer of the lengths given. These live until
    // the end of this function, and no other code borrows them.
    let count = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            BATCH_COUNT,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
        )
    };
    let Ok(count) = usize::try_from(count) else {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(false),
            Some(libc::EINTR) => Ok(true),
            _ => Err(error),
        };
    };
    counters.receive_calls += 1;
    for index in 0..count {
        let message = &messages[index];
        let Some(source) = names[index].source(subnet) else {
            counters.foreign += 1;
            continue;
        };
        let start = index << 16;
        let bytes = usize::try_from(message.msg_len).unwrap_or(0).min(1 << 16);
        let data = &received[start..start + bytes];
        let segment = received_segment(&message.msg_hdr).unwrap_or(bytes).max(1);
        data.chunks(segment)
            .for_each(|datagram| packet(source, datagram));
    }
    Ok(count == BATCH)
}

/// Makes a socket non-blocking, with buffers of `bytes` as far as the kernel allows it, and lets it join packets. Returns whether the
/// kernel can join packets that are sent.
fn prepare(socket: &UdpSocket, bytes: u32) -> io::Result<bool> {
    socket.set_nonblocking(true)?;
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    for (force, plain) in [
        (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ] {
        if set_option(socket, libc::SOL_SOCKET, force, bytes).is_err() {
            set_option(socket, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    if let Err(error) = set_option(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
        && error.raw_os_error() != Some(libc::ENOPROTOOPT)
    {
        return Err(error);
    }
    Ok(set_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok())
}

/// The kernel's handling of a packet that is larger than its path takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Discovery {
    /// The kernel refuses the packet.
    Whole,
    /// The kernel cuts the packet into fragments.
    None,
}

/// Sets `discovery` for a socket of the family of `address`.
fn discover_mtu(socket: &UdpSocket, address: IpAddr, discovery: Discovery) -> io::Result<()> {
    let (level, option, whole, none) = match address {
        IpAddr::V4(_) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
            libc::IP_PMTUDISC_DONT,
        ),
        IpAddr::V6(_) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
            libc::IPV6_PMTUDISC_DONT,
        ),
    };
    let value = match discovery {
        Discovery::Whole => whole,
        Discovery::None => none,
    };
    set_option(socket, level, option, value)
}

fn set_option(socket: &UdpSocket, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` is readable for the length given, and the file descriptor is open as long as `socket` is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(&value).cast(),
            INT_BYTES,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the size of the receive buffer, as the kernel counts it.
fn receive_buffer(socket: &UdpSocket) -> io::Result<usize> {
    let mut value: i32 = 0;
    let mut length = INT_BYTES;
    // SAFETY: `value` is writable for the length given, and the file descriptor is open as long as `socket` is borrowed.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            std::ptr::from_mut(&mut value).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(usize::try_from(value).unwrap_or(0))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Space for one control message, aligned as its header must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Writes a control message that asks for segments of `bytes` each. Returns the length of the control data.
fn put_segment(control: &mut Control, bytes: usize) -> usize {
    let value = u16::try_from(bytes).unwrap_or(u16::MAX);
    let header = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: the buffer is aligned for a cmsghdr and larger than CMSG_SPACE(2); all of it belongs to `control`.
    unsafe {
        (*header).cmsg_len = libc::CMSG_LEN(U16_BYTES) as usize;
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(value);
        libc::CMSG_SPACE(U16_BYTES) as usize
    }
}

/// Returns the size of the segments that were joined into a received message, if they were.
fn received_segment(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the control buffer that `header` points to and set its length. The CMSG functions stay within
    // it. A UDP_GRO message holds an int.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(found) = control.as_ref() {
            if found.cmsg_level == libc::SOL_UDP && found.cmsg_type == libc::UDP_GRO {
                return usize::try_from(libc::CMSG_DATA(control).cast::<i32>().read_unaligned())
                    .ok();
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    None
}

const BATCH_COUNT: u32 = 8;
const INT_BYTES: u32 = 4;
const U16_BYTES: u32 = 2;
const _: () = assert!(BATCH_COUNT as usize == BATCH);

#[cfg(test)]
mod tests;
