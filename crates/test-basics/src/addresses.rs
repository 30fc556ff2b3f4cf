//! Addresses of this machine for simulated machines.

use std::net::{Ipv4Addr, UdpSocket};

/// Returns an address whose RoCE port is free now.
pub fn free_address() -> Ipv4Addr {
    loop {
        let [a, b, c, _] = fastrand::u32(..).to_be_bytes();
        let ip = Ipv4Addr::new(127, a | 1, b, c % 200 + 1);
        if UdpSocket::bind((ip, 4791)).is_ok() {
            return ip;
        }
    }
}
