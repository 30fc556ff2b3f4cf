//! Address vectors: numbers for addresses of peers.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_ops_av, fid_av};

calls! {
    /// Takes addresses, which stand one after the other, and writes a number for each. It returns how many it took.
    fn fi_av_insert(av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut u64, flags: u64, context: *mut c_void)
        -> c_int = fi_ops_av.insert of (*av).ops;

    /// Gives numbers back.
    fn fi_av_remove(av: *mut fid_av, fi_addr: *mut u64, count: usize, flags: u64) -> c_int
        = fi_ops_av.remove of (*av).ops;

    /// Writes the address behind a number; `addrlen` is the room, and then the length.
    fn fi_av_lookup(av: *mut fid_av, fi_addr: u64, addr: *mut c_void, addrlen: *mut usize) -> c_int
        = fi_ops_av.lookup of (*av).ops;
}
