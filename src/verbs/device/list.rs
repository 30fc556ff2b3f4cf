//! The RDMA devices of the machine, and the choice of a device.

// UNSAFETY: walks the device list of libibverbs.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::path::PathBuf;
use std::ptr::NonNull;

use crate::sys::bindings::ibv_device;
use crate::sys::{MissingFunction, Rdma};
use crate::topology::{Machine, RdmaDevice, RdmaPort, Reason, Wish, sysfs_text};
use crate::verbs::error::{PROVIDER, VerbsError, last_errno};

/// An RDMA device, as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Name that the kernel gives the device, for example `mlx5_0`.
    pub name: String,
    /// True if libmlx5 drives the device.
    pub mlx5: bool,
    /// Content of `board_id` in sysfs; empty without that file.
    pub board: String,
    /// Content of `fw_ver` in sysfs; empty without that file.
    pub firmware: String,
    /// The folder of the device in sysfs.
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
            mlx5: rdma.has_mlx5() && unsafe { rdma.mlx5dv_is_supported(device.as_ptr()) },
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
            what: PROVIDER,
            has: "another one".to_owned(),
            needed: "libmlx5".to_owned(),
        })
    }

    /// Returns whether the device is the software HCA.
    #[must_use]
    pub fn is_soft(&self) -> bool {
        self.board.starts_with("SOFTHCA")
    }

    /// Returns the NUMA node of the device, if the system names it.
    #[must_use]
    pub fn numa_node(&self) -> Option<u32> {
        let text = sysfs_text(&self.path.join("device/numa_node"))
            .ok()
            .flatten()?;
        text.trim().parse().ok()
    }

    /// Returns the CPUs near the device, as the system lists them, if it does.
    pub(crate) fn local_cpus(&self) -> Option<String> {
        sysfs_text(&self.path.join("device/local_cpulist"))
            .ok()
            .flatten()
    }

    /// Returns the network interface of a GID of a port, if sysfs names it.
    pub(in crate::verbs) fn interface(&self, port: u8, gid_index: u32) -> Option<String> {
        let file = format!("ports/{port}/gid_attrs/ndevs/{gid_index}");
        let text = sysfs_text(&self.path.join(file)).ok().flatten()?;
        let name = text.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// Returns the first `length` partition keys of a port, from the files that `ibv_query_pkey(3)` reads. A key that sysfs does not show
    /// is 0.
    pub(in crate::verbs) fn pkeys(&self, port: u8, length: u16) -> Vec<u16> {
        let table = self.path.join(format!("ports/{port}/pkeys"));
        let key = |index: u16| -> Option<u16> {
            let text = sysfs_text(&table.join(index.to_string())).ok().flatten()?;
            u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
        };
        (0..length).map(|index| key(index).unwrap_or(0)).collect()
    }
}

/// The choice of the device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSelector {
    /// A device that DevX can drive and that has an active port. Its link layer is that of the machine's fastest port. Among several such
    /// devices it is the fastest, then the first by name.
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

/// Returns all RDMA devices of this machine, mlx5 or not, in the order of libibverbs.
///
/// # Errors
///
/// [`VerbsError::Load`] without libmlx5, [`VerbsError::Call`] if libibverbs cannot make the list.
pub fn device_list() -> Result<Vec<DeviceInfo>, VerbsError> {
    listed_by(Rdma::load()?)
}

/// Checks that libmlx5 can be used, without a look at the devices.
///
/// # Errors
///
/// [`VerbsError::Load`].
pub(crate) fn check_mlx5() -> Result<(), VerbsError> {
    Rdma::load()?;
    Ok(())
}

/// Returns all RDMA devices of this machine as [`device_list`] does, also without libmlx5. Then no device is of mlx5.
///
/// # Errors
///
/// [`VerbsError::Load`] without libibverbs, [`VerbsError::Call`] if libibverbs cannot make the list.
pub(crate) fn plain_device_list() -> Result<Vec<DeviceInfo>, VerbsError> {
    match Rdma::load() {
        Ok(rdma) => listed_by(rdma),
        Err(_) => listed_by(Rdma::load_verbs()?),
    }
}

fn listed_by(rdma: &'static Rdma) -> Result<Vec<DeviceInfo>, VerbsError> {
    let list = DeviceList::new(rdma)?;
    let devices = list.devices();
    Ok(devices.iter().map(|device| list.info(*device)).collect())
}

/// Returns functions that the installed libibverbs and libmlx5 lack because they are too old. The runtime works without them, in another
/// way.
///
/// # Errors
///
/// [`VerbsError::Load`] without libmlx5.
pub fn missing_functions() -> Result<Vec<MissingFunction>, VerbsError> {
    Ok(Rdma::load()?.missing())
}

/// The device list of libibverbs. It must be freed after the wanted devices have been opened.
pub(in crate::verbs) struct DeviceList {
    rdma: &'static Rdma,
    /// The list. None if the system has no InfiniBand at all.
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
            // If this kernel has no InfiniBand, the list is empty. That is an answer and no failure.
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

    /// Returns all devices, in the order of the list or with the best device first.
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

/// Returns the string in a fixed array, up to its NUL or its end.
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
