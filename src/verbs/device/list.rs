//! The RDMA devices of the machine, and the choice of one.

// UNSAFETY: walks the device list of libibverbs.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::PathBuf;
use std::ptr::NonNull;

use crate::sys::bindings::ibv_device;
use crate::sys::{MissingFunction, Rdma};
use crate::topology::{Machine, RdmaDevice, RdmaPort, Reason, Wish, sysfs_text};
use crate::verbs::error::{VerbsError, last_errno};

/// One RDMA device, as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// Whether libmlx5 drives it.
    pub mlx5: bool,
    /// `board_id` of sysfs; empty without one.
    pub board: String,
    /// `fw_ver` of sysfs; empty without one.
    pub firmware: String,
    /// Its folder of sysfs.
    pub(in crate::verbs) path: PathBuf,
}

impl DeviceInfo {
    /// # Safety
    ///
    /// `device` is one of libibverbs, and stays alive through the call.
    pub(in crate::verbs) unsafe fn of(rdma: &'static Rdma, device: NonNull<ibv_device>) -> Self {
        // SAFETY: the caller's promise; libibverbs does not change it.
        let entry = unsafe { device.as_ref() };
        let path = PathBuf::from(text(&entry.ibdev_path));
        let attribute = |name| {
            let text = std::fs::read_to_string(path.join(name)).unwrap_or_default();
            text.trim_end().to_owned()
        };
        Self {
            name: text(&entry.name),
            // SAFETY: as above.
            mlx5: unsafe { rdma.mlx5dv_is_supported(device.as_ptr()) },
            board: attribute("board_id"),
            firmware: attribute("fw_ver"),
            path,
        }
    }

    /// Refuses a device that libmlx5 does not drive.
    pub(in crate::verbs) fn check_provider(&self) -> Result<(), VerbsError> {
        if self.mlx5 {
            return Ok(());
        }
        Err(VerbsError::Capability {
            device: self.name.clone(),
            what: "provider",
            has: "another one".to_owned(),
            needed: "libmlx5".to_owned(),
        })
    }

    /// Returns whether this is the software HCA.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.board.starts_with("SOFTHCA")
    }

    /// Returns the NUMA node that it is on, where the system says it.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        let text = sysfs_text(&self.path.join("device/numa_node"))
            .ok()
            .flatten()?;
        text.trim().parse().ok()
    }

    /// Returns the CPUs near it, as the system lists them, where it does.
    pub(crate) fn local_cpus(&self) -> Option<String> {
        sysfs_text(&self.path.join("device/local_cpulist"))
            .ok()
            .flatten()
    }

    /// Returns the network interface of a GID of a port, where sysfs says it.
    pub(in crate::verbs) fn interface(&self, port: u8, gid_index: u32) -> Option<String> {
        let file = format!("ports/{port}/gid_attrs/ndevs/{gid_index}");
        let text = sysfs_text(&self.path.join(file)).ok().flatten()?;
        let name = text.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Returns the first `length` partition keys of a port; 0 for one that sysfs does not show. Where `ibv_query_pkey(3)` looks.
    pub(in crate::verbs) fn pkeys(&self, port: u8, length: u16) -> Vec<u16> {
        let table = self.path.join(format!("ports/{port}/pkeys"));
        let key = |index: u16| -> Option<u16> {
            let text = sysfs_text(&table.join(index.to_string())).ok().flatten()?;
            u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        (0..length).map(|index| key(index).unwrap_or(0)).collect()
    }
}

/// Which device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSelector {
    /// A device that DevX can drive and that has an active port. Its link layer is that of the machine's fastest port. Among
    /// several the fastest one, then the first by name.
    #[default]
    Auto,
    /// The device of this name.
    Name(String),
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("that DevX can drive, with an active port"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// All RDMA devices of this machine, mlx5 or not, in the order of libibverbs.
///
/// # Errors
///
/// [`VerbsError::Load`] without libmlx5, [`VerbsError::Call`] if the list cannot be had.
pub fn device_list() -> Result<Vec<DeviceInfo>, VerbsError> {
    let list = DeviceList::new(Rdma::load()?)?;
    Ok(list
        .devices()
        .iter()
        .map(|device| list.info(*device))
        .collect())
}

/// Functions that the installed libibverbs and libmlx5 are too old for, and without which the runtime works in another way.
///
/// # Errors
///
/// [`VerbsError::Load`] without libmlx5.
pub fn missing_functions() -> Result<Vec<MissingFunction>, VerbsError> {
    Ok(Rdma::load()?.missing())
}

/// The list of libibverbs, which must be freed after the devices wanted have been opened.
pub(in crate::verbs) struct DeviceList {
    rdma: &'static Rdma,
    /// None if the system has no InfiniBand at all.
    list: Option<NonNull<*mut ibv_device>>,
    count: usize,
}

impl DeviceList {
    pub(in crate::verbs) fn new(rdma: &'static Rdma) -> Result<Self, VerbsError> {
        let mut count = 0;
        // SAFETY: `count` is written during the call.
        let list = unsafe { rdma.ibv_get_device_list(&raw mut count) };
        match (NonNull::new(list), usize::try_from(count)) {
            (Some(list), Ok(count)) => Ok(Self {
                rdma,
                list: Some(list),
                count,
            }),
            // No InfiniBand in this kernel: no device, which is an answer and not a failure.
            (None, _) if last_errno() == libc::ENOSYS => Ok(Self {
                rdma,
                list: None,
                count: 0,
            }),
            _ => Err(VerbsError::Call {
                call: "ibv_get_device_list",
                device: "this machine".to_owned(),
                errno: last_errno(),
                memory: None,
            }),
        }
    }

    pub(in crate::verbs) fn devices(&self) -> Vec<NonNull<ibv_device>> {
        let Some(list) = self.list else {
            return Vec::new();
        };
        (0..self.count)
            // SAFETY: the list has `count` entries and is not freed before `self` is dropped.
            .filter_map(|nth| NonNull::new(unsafe { *list.as_ptr().add(nth) }))
            .collect()
    }

    /// All devices: in the order of the list, or with the best one first.
    pub(in crate::verbs) fn in_order(
        &self,
        best_first: bool,
    ) -> Vec<(NonNull<ibv_device>, DeviceInfo)> {
        let devices = self.devices().into_iter();
        let mut devices: Vec<_> = devices.map(|device| (device, self.info(device))).collect();
        if !best_first {
            return devices;
        }
        let is_mlx5 = |name: &str| {
            devices
                .iter()
                .any(|(_, info)| info.mlx5 && info.name == name)
        };
        let usable = |device: &RdmaDevice, _: &RdmaPort| {
            if is_mlx5(&device.name) {
                Ok(())
            } else {
                Err(Reason::Provider)
            }
        };
        let choice = Wish::default().choose(&Machine::of_this_process(), usable);
        let best = choice.candidates;
        devices.sort_by_key(|(_, info)| {
            let place = best
                .iter()
                .position(|candidate| candidate.device == info.name);
            place.unwrap_or(usize::MAX)
        });
        devices
    }

    pub(in crate::verbs) fn info(&self, device: NonNull<ibv_device>) -> DeviceInfo {
        // SAFETY: `device` comes from this list, which keeps it alive and does not change it.
        unsafe { DeviceInfo::of(self.rdma, device) }
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if let Some(list) = self.list.take() {
            // SAFETY: the list is freed once; nothing that points into it outlives `self`.
            unsafe { self.rdma.ibv_free_device_list(list.as_ptr()) };
        }
    }
}

/// The string in a fixed array, up to its NUL or its end.
pub(in crate::verbs) fn text(array: &[c_char]) -> String {
    let bytes: &[u8] = bytemuck::cast_slice(array);
    CStr::from_bytes_until_nul(bytes)
        .map_or_else(|_| String::from_utf8_lossy(bytes), CStr::to_string_lossy)
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_nul_ends_with_its_array() {
        let array: [c_char; 4] = bytemuck::cast(*b"mlx5");
        assert_eq!(text(&array), "mlx5");
        let array: [c_char; 4] = bytemuck::cast(*b"rx\0e");
        assert_eq!(text(&array), "rx");
    }

    #[test]
    fn the_board_tells_the_software_hca() {
        let device = |board: &str| DeviceInfo {
            name: "mlx5_0".to_owned(),
            mlx5: true,
            board: board.to_owned(),
            firmware: String::new(),
            path: PathBuf::new(),
        };
        assert!(device("SOFTHCA0000000001").is_soft());
        assert!(!device("MT_0000000838").is_soft());
    }
}
