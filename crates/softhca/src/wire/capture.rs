//! Captures: the packets that crossed the wire, as a file that Wireshark reads.
//!
//! The file is pcapng with Ethernet frames, times in nanoseconds and the direction of each frame. If the carrier has no frames, this module
//! makes the headers. They have the MAC addresses that follow from the IP addresses, and the IPv4 header for which the ICRC was computed.
//! So the ICRC that Wireshark and scapy compute agrees with that of the packet.
//!
//! Each HCA has a file of its own. Each packet is in the file once, also a packet that the HCA sends to itself. The first HCA that asks for
//! FILE gets it, the next HCA, of whatever process, gets FILE.2, then FILE.3 and so on: no existing file is overwritten. Every batch is
//! written at once, so that the file of a killed process is whole up to then.
//!
//! The crate pcap-file does not replace the 40 lines that write blocks. Version 2.0 brings six crates (byteorder, syn 1, thiserror 1), and
//! its successor is a release candidate. It takes a packet as one slice, so headers and payload would be copied once more.

use super::carrier::{Carrier, CarrierCounters, PacketSink, Receiver};
use super::frame::{Route, headers};
use crate::envelope::{Destination, Kept, Source};
use crate::link;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Number of file names that are tried.
const ATTEMPTS: u32 = 10_000;
/// Number of bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Towards the HCA.
    Inbound,
    /// Away from the HCA.
    Outbound,
}

/// A capture file that is being written.
#[derive(Debug)]
pub struct Capture {
    /// The file; `None` once a write has failed.
    file: Option<File>,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl Capture {
    /// Makes the file for an interface `name`: `path`, or if that exists `path.2` and so on.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(path: &Path, name: &str) -> io::Result<Self> {
        let (file, path) = create_new(path)?;
        let mut capture = Self {
            file: Some(file),
            path,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        };
        put_block(&mut capture.buffer, SECTION, |body| {
            body.extend(0x1a2b_3c4d_u32.to_le_bytes());
            body.extend([1, 0, 0, 0]); // version 1.0
            body.extend(u64::MAX.to_le_bytes()); // length not given
        });
        put_block(&mut capture.buffer, INTERFACE, |body| {
            body.extend([ETHERNET, 0, 0, 0, 0, 0, 0, 0]); // no limit to the length of a frame
            put_option(body, OPTION_NAME, name.as_bytes());
            put_option(body, OPTION_RESOLUTION, &[9]); // nanoseconds
            put_option(body, OPTION_END, &[]);
        });
        capture.write()?;
        Ok(capture)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a frame that consists of `parts`.
    pub fn frame(&mut self, direction: Direction, parts: &[&[u8]]) {
        if self.file.is_none() {
            return;
        }
        let since_epoch = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let time_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX);
        let [low, high] = [time_ns & 0xffff_ffff, time_ns >> 32].map(low_32);
        let bytes = low_32(parts.iter().map(|part| part.len() as u64).sum());
        put_block(&mut self.buffer, PACKET, |body| {
            for word in [0, high, low, bytes, bytes] {
                body.extend(word.to_le_bytes());
            }
            parts.iter().for_each(|part| body.extend(*part));
            body.resize(body.len().next_multiple_of(4), 0);
            let direction = match direction {
                Direction::Inbound => 1u32,
                Direction::Outbound => 2,
            };
            put_option(body, OPTION_FLAGS, &direction.to_le_bytes());
            put_option(body, OPTION_END, &[]);
        });
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Writes the added packets. If that fails it prints the error, and the capture ends.
    pub fn flush(&mut self) {
        if let Err(error) = self.write() {
            eprintln!("softhca: the capture {} ends: {error}", self.path.display());
            self.file = None;
            self.buffer = Vec::new();
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if let (Some(file), false) = (&mut self.file, self.buffer.is_empty()) {
            file.write_all(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }
}

/// Makes the first of `path`, `path.2`, `path.3` that does not exist.
fn create_new(path: &Path) -> io::Result<(File, PathBuf)> {
    for number in 1..=ATTEMPTS {
        let mut name = OsString::from(path);
        if number > 1 {
            name.push(format!(".{number}"));
        }
        match File::create_new(&name) {
            Ok(file) => return Ok((file, name.into())),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{} and {ATTEMPTS} more exist", path.display()),
    ))
}

// Block types, link type and options of pcapng (draft-ietf-opsawg-pcapng).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const ETHERNET: u8 = 1;
const OPTION_END: u16 = 0;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;

/// Writes a block: type, length, body, length.
fn put_block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = low_32((out.len() - start + 4) as u64).to_le_bytes();
    out.extend(length);
    out[start + 4..start + 8].copy_from_slice(&length);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Returns the low 32 bits of `value`.
fn low_32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// A carrier whose packets are captured.
#[derive(Debug)]
pub struct Tap {
    inner: Box<dyn Carrier>,
    capture: Capture,
    address: Ipv4Addr,
    /// The LMC of the port on `InfiniBand`; otherwise 0.
    lmc: u8,
}

impl Tap {
    /// Returns a carrier that captures what passes through `inner`, the carrier of the HCA at `address`.
    pub fn new(inner: Box<dyn Carrier>, capture: Capture, address: Ipv4Addr) -> Self {
        Self {
            inner,
            capture,
            address,
            lmc: 0,
        }
    }

    /// Returns this carrier for an HCA with 2^`lmc` addresses.
    #[must_use]
    pub fn with_lmc(self, lmc: u8) -> Self {
        Self { lmc, ..self }
    }
}

impl Carrier for Tap {
    fn receive(&mut self, now_ns: u64, packet: &mut Receiver<'_>) -> io::Result<bool> {
        let (first, lmc) = (self.address, self.lmc);
        let result = self.inner.receive(now_ns, &mut |source, payload| {
            // Packets of the HCA to itself were captured when they were sent.
            if link::first_address(*source.address.ip(), lmc) != first {
                let arrived = link::address_with(first, source.path_bits);
                let headers = headers(&Route::between(source, arrived), payload);
                self.capture.frame(Direction::Inbound, &[&headers, payload]);
            }
            packet(source, payload);
        });
        self.capture.flush();
        result
    }

    fn sink(&mut self) -> &mut dyn PacketSink {
        self
    }

    fn flush(&mut self, now_ns: u64) -> bool {
        self.capture.flush();
        self.inner.flush(now_ns)
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.inner.deadline_ns()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.inner.descriptors()
    }

    fn counters(&self) -> CarrierCounters {
        self.inner.counters()
    }

    fn buffer_bytes(&self) -> Option<usize> {
        self.inner.buffer_bytes()
    }

    fn kept(&self) -> Kept {
        self.inner.kept()
    }
}

impl PacketSink for Tap {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.inner.sink().slot()
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        let sink = self.inner.sink();
        if let Some(payload) = sink.slot().and_then(|slot| slot.get(..bytes)) {
            let source = Source {
                envelope: destination.envelope,
                ..Source::of_hca(link::address_with(self.address, destination.path_bits))
            };
            let route = Route::between(source, destination.address);
            let headers = headers(&route, payload);
            self.capture
                .frame(Direction::Outbound, &[&headers, payload]);
        }
        sink.commit(bytes, destination);
    }
}

#[cfg(test)]
mod tests;
