//! Sockets that carry whole Ethernet frames.
//!
//! The sockets use libc: rustix has neither the options of packet sockets nor their addresses.

// UNSAFETY: packet sockets and send/recv with flags are not in std.
#![expect(unsafe_code, reason = "packet sockets of libc")]

use crate::link::Mac;
use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A non-blocking socket with one frame per message.
#[derive(Debug)]
pub struct FrameSocket(OwnedFd);

impl FrameSocket {
    /// Opens a socket with one frame per UDP datagram, as in QEMU's `-netdev dgram`.
    ///
    /// # Errors
    /// The local address cannot be used.
    pub fn over_udp(local: SocketAddr, remote: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(local)?;
        socket.connect(remote)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket.into()))
    }

    /// Opens a socket for the frames of a network interface that are for a host at `mac`. The interface itself has another address.
    ///
    /// # Errors
    /// The interface does not exist, or there is no right to see its frames (`CAP_NET_RAW`).
    pub fn on_interface(name: &str, mac: Mac) -> io::Result<Self> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let c_name = CString::new(name).map_err(invalid)?;
        // SAFETY: a C string.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        let index = i32::try_from(index).map_err(|_| io::Error::last_os_error())?;
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // Protocol 0: no frame comes before the socket is bound to the interface.
        // SAFETY: a plain system call.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by no other code.
        let socket = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        socket.set_option(libc::PACKET_IGNORE_OUTGOING, &1)?;
        let mut address = [0; 8];
        address[..6].copy_from_slice(&mac);
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: MR_UNICAST,
            mr_alen: 6,
            mr_address: address,
        };
        socket.set_option(libc::PACKET_ADD_MEMBERSHIP, &membership)?;
        let here = libc::sockaddr_ll {
            sll_family: AF_PACKET,
            sll_protocol: ALL_PROTOCOLS.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: an address of the length given.
        let result = unsafe { libc::bind(fd, (&raw const here).cast(), bytes_of(&here)) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(socket)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes no more for now. After other errors the frame is lost.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        for attempt in 0.. {
            let fd = self.0.as_raw_fd();
            // SAFETY: pointer and length of `frame`.
            let sent = unsafe { libc::send(fd, frame.as_ptr().cast(), frame.len(), SEND_FLAGS) };
            if sent >= 0 {
                break;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // An earlier frame found no receiver. The kernel has not looked at this frame.
                Some(libc::ECONNREFUSED) if attempt == 0 => {}
                Some(libc::ENOBUFS) => return Err(io::ErrorKind::WouldBlock.into()),
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives a frame. Returns its length, which may be more than fits, or `None` if none has arrived.
    ///
    /// # Errors
    /// The socket is broken, or the interface is gone.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let fd = self.0.as_raw_fd();
            // SAFETY: the pointer and the length are those of `frame`, which this function alone uses.
            let bytes = unsafe {
                libc::recv(
                    fd,
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                )
            };
            if let Ok(bytes) = usize::try_from(bytes) {
                return Ok(Some(bytes));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                // A frame of this socket found no receiver, or the interface was down for a while.
                Some(libc::EINTR | libc::ECONNREFUSED | libc::ENETDOWN) => {}
                _ => return Err(error),
            }
        }
    }

    fn set_option<T>(&self, name: i32, value: &T) -> io::Result<()> {
        // SAFETY: `value` is readable for its length.
        let result = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_PACKET,
                name,
                std::ptr::from_ref(value).cast(),
                bytes_of(value),
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "C structs of a few bytes")]
const fn bytes_of<T>(_: &T) -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

const SEND_FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
const MR_UNICAST: u16 = 3;
const AF_PACKET: u16 = 17;
const ALL_PROTOCOLS: u16 = 3;
const _: () = {
    assert!(MR_UNICAST as i32 == libc::PACKET_MR_UNICAST);
    assert!(AF_PACKET as i32 == libc::AF_PACKET);
    assert!(ALL_PROTOCOLS as i32 == libc::ETH_P_ALL);
};
