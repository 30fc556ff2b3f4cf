//! One kernel for each GPU of a machine: the claim of a name that only one process has.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::GpuhcaError;
use warpverbs::gpu::Gpu;

/// A claimed name. It is an abstract socket, so the system frees the name when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Claim {
    _socket: UnixListener,
}

impl Claim {
    /// Claims `name`, or the name of `gpu`.
    pub(super) fn take(name: Option<&str>, gpu: &dyn Gpu) -> Result<Self, GpuhcaError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = match name {
            Some(name) => name.to_owned(),
            // Each process that runs kernels on its CPU has devices of its own, so each device gets a name of its own.
            None if gpu.label() == "simt" => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                format!("simt-{}-{number}", process::id())
            }
            None => gpu.device_id(),
        };
        let user = rustix::process::getuid().as_raw();
        let address = SocketAddr::from_abstract_name(format!("gpuhca-{user}-{name}"));
        match address.and_then(|address| UnixListener::bind_addr(&address)) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(GpuhcaError::Claimed { name })
            }
            Err(source) => Err(GpuhcaError::Claim { name, source }),
        }
    }
}
