//! Verbs ioctls.

// UNSAFETY: maps the memory that ioctls point into, and makes them.
#![expect(
    unsafe_code,
    reason = "ioctls that point into memory at a known address"
)]

use super::input::Input;
use softhca::Hca;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// Where the memory lies that attributes and structs point into: what a corpus knows must be true in every run.
pub const ARENA: u64 = 0x1000_0000_0000;
/// Bytes of the memory that ioctls point into.
const ARENA_BYTES: usize = 1 << 16;
/// Where in it the frame of a call is built.
const FRAME: usize = ARENA_BYTES - 4096;
const RDMA_VERBS_IOCTL: libc::c_ulong = 0xc018_1b01;

/// How many bytes of calls, the calls, and then what the arena holds. A call: object, method, attributes; an attribute: what
/// its data is, id, length, flags, data.
pub fn ioctls(data: &[u8]) {
    static HCA: OnceLock<Hca> = OnceLock::new();
    let hca = HCA.get_or_init(|| Hca::new().unwrap());
    let before = open_fds();
    let mut input = Input(data);
    let calls = usize::from(input.u16() % 2048);
    let mut calls = Input(input.piece(calls));
    arena_write(0, &[0; ARENA_BYTES]);
    arena_write(0, &input.0[..input.0.len().min(FRAME)]);

    let number = hca.name().trim_start_matches("mlx5_");
    let node = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/dev/infiniband/uverbs{number}"))
        .unwrap();
    let fd = node.as_raw_fd();
    establish(fd);
    while !calls.is_empty() {
        let (object, method, count) = (calls.u16(), calls.u16(), u16::from(calls.u8() % 12));
        let mut frame = header(object, method, count);
        for _ in 0..count {
            let (what, id, length, flags) = (calls.u8(), calls.u16(), calls.u16(), calls.u8());
            let value = u64::from(calls.u32());
            let data = if what & 1 == 0 {
                value
            } else {
                ARENA + value % ARENA_BYTES as u64
            };
            frame.extend(attribute(id, length, u16::from(flags & 1), data));
        }
        send(fd, &frame);
    }
    drop(node);
    close_others(&before);
    assert_eq!(hca.live_objects().total(), 0);
}

/// The call that must come first, as libmlx5 makes it.
fn establish(fd: i32) {
    let request: Vec<u8> = [16u32, 4, 1, 0, 1, 0]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .chain(0x2u64.to_ne_bytes())
        .collect();
    let place = FRAME - 512;
    let saved = arena_read(place, 512);
    arena_write(place, &request);
    let at = ARENA + place as u64;
    let mut frame = header(0, 3, 2);
    frame.extend(attribute(0x1000, 32, 1, at));
    frame.extend(attribute(0x1001, 72, 1, at + 64));
    assert_eq!(send(fd, &frame), 0, "the context is not established");
    arena_write(place, &saved);
}

fn header(object: u16, method: u16, count: u16) -> Vec<u8> {
    let words = [24 + count * 16, object, method, count];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(0u64.to_ne_bytes());
    bytes.extend(1u64.to_ne_bytes()); // mlx5
    bytes
}

fn attribute(id: u16, length: u16, flags: u16, data: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (at, word) in [id, length, flags, 0].iter().enumerate() {
        bytes[at * 2..at * 2 + 2].copy_from_slice(&word.to_ne_bytes());
    }
    bytes[8..].copy_from_slice(&data.to_ne_bytes());
    bytes
}

/// Makes the call; 0 or `errno`.
fn send(fd: i32, frame: &[u8]) -> i32 {
    arena_write(FRAME, frame);
    // SAFETY: the device checks addresses; those that it is given are numbers below 2^32, where nothing is mapped, or lie
    // in the arena.
    match unsafe { libc::ioctl(fd, RDMA_VERBS_IOCTL, ARENA + FRAME as u64) } {
        0 => 0,
        _ => std::io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

/// Returns the arena, mapped once for the life of the process.
fn arena() -> *mut u8 {
    static MAPPED: OnceLock<usize> = OnceLock::new();
    let address = *MAPPED.get_or_init(|| {
        let wanted = std::ptr::without_provenance_mut(usize::try_from(ARENA).unwrap());
        // SAFETY: a fresh mapping at an address where nothing is mapped.
        let base = unsafe {
            libc::mmap(
                wanted,
                ARENA_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        assert_eq!(base, wanted, "{}", std::io::Error::last_os_error());
        base.expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(address)
}

fn arena_write(offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= ARENA_BYTES);
    // SAFETY: inside the arena; the device does not use it while no call is made and no queue lies in it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), arena().add(offset), bytes.len()) };
}

fn arena_read(offset: usize, bytes: usize) -> Vec<u8> {
    assert!(offset + bytes <= ARENA_BYTES);
    let mut out = vec![0; bytes];
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(arena().add(offset), out.as_mut_ptr(), bytes) };
    out
}

fn open_fds() -> Vec<i32> {
    // SAFETY: F_GETFD takes no argument.
    (3..200)
        .filter(|fd| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0)
        .collect()
}

/// Calls have opened event descriptors. Nothing else in the process may open one meanwhile.
fn close_others(before: &[i32]) {
    // The device's own end of each is the older one, and goes with the caller's.
    for fd in (3..200).rev().filter(|fd| !before.contains(fd)) {
        // SAFETY: opened by a call of the input, which has ended.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) >= 0 {
                libc::close(fd);
            }
        }
    }
}
