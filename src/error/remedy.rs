//! What to do when the kernel, an HCA or the CUDA driver refuses a call: one table, by call, kind of memory and reason.
//!
//! Sources: ibv_reg_mr(3), ibv_open_device(3); `uverbs_open`, `ib_umem_get`, `mlx5_cmd_check`, `cmd_status_to_err` and
//! `cmd_status_str` of Linux. "Command Return Status" of the programmer's manual of the HCA. "Error Handling" and "Device Memory"
//! of the CUDA driver API. "GPUDirect RDMA" and "Multi-Process Service" of the CUDA documentation. "Container Toolkit", driver
//! capabilities.

pub(crate) mod lack;

use std::path::Path;
use std::{fmt, fs};

use rustix::process::{Resource, getrlimit};

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// What the kernel or a library answered.
    Errno(i32),
    /// Status byte of a command's reply; [`NO_REPLY`] if the device wrote none.
    Status(u8),
    /// `CUresult`.
    Cuda(u32),
}

/// The status in a reply buffer that the device has not written.
const NO_REPLY: u8 = 0xff;

/// How the memory is named that a call registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// By an address, behind which memory of a GPU may lie.
    Address,
    /// By a DMA-BUF.
    Dmabuf,
    /// By an address of host memory.
    Host,
}

/// The reasons of a row; without any, all of its sort.
#[derive(Clone, Copy, Debug)]
enum Reasons {
    Errno(&'static [i32]),
    Status(&'static [u8]),
    Cuda(&'static [u32]),
}

impl Reasons {
    fn contain(self, reason: Reason) -> bool {
        fn any<T: PartialEq>(of: &[T], one: &T) -> bool {
            of.is_empty() || of.contains(one)
        }
        match (self, reason) {
            (Self::Errno(of), Reason::Errno(one)) => any(of, &one),
            (Self::Status(of), Reason::Status(one)) => any(of, &one),
            (Self::Cuda(of), Reason::Cuda(one)) => any(of, &one),
            _ => false,
        }
    }
}

/// A row of the table: the beginning of the call's name, the reasons, and what to do. A row for one kind of memory also has that
/// kind. `{locked}` in it is the limit of locked memory. Empty, the error itself says what to do.
type Row = (&'static str, Option<MemoryKind>, Reasons, &'static str);

use MemoryKind::{Address, Dmabuf, Host};
use Reasons::{Cuda, Errno, Status};

/// The first row that fits is taken.
const TABLE: &[Row] = &[
    // ---- Calls of libibverbs and libmlx5, by errno
    (
        "mlx5dv_open_device",
        None,
        Errno(&[libc::EPERM, libc::EACCES]),
        "this user may not open the device's /dev/infiniband/uverbsN: give it read and write access; a container needs \
         --device=/dev/infiniband",
    ),
    (
        "mlx5dv_open_device",
        None,
        Errno(&[libc::ENOENT, libc::ENODEV, libc::ENXIO]),
        "the device has no /dev/infiniband/uverbsN here: load the kernel modules ib_uverbs and mlx5_ib; a container needs \
         --device=/dev/infiniband",
    ),
    (
        "mlx5dv_open_device",
        None,
        Errno(&[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL]),
        "the kernel or the firmware gives no DevX context: it takes Linux 5.1 or newer and a firmware with DevX on \
         (mlxconfig: UCTX_EN=1)",
    ),
    (
        "",
        Some(Dmabuf),
        Errno(&[libc::ENOMEM]),
        "the exporter has no room to map these pages for the device (nvidia-smi -q -d MEMORY: BAR1), or the device has no memory key \
         left",
    ),
    (
        "ibv_reg_",
        None,
        Errno(&[libc::ENOMEM, libc::EPERM]),
        LOCKED_MEMORY,
    ),
    (
        "mlx5dv_devx_umem_reg",
        None,
        Errno(&[libc::ENOMEM, libc::EPERM]),
        LOCKED_MEMORY,
    ),
    (
        "ibv_reg_dmabuf_mr",
        Some(Dmabuf),
        Errno(&[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL]),
        "the kernel takes no DMA-BUF: regions by DMA-BUF need Linux 5.12 and rdma-core 34, or DOCA-OFED",
    ),
    (
        "mlx5dv_devx_umem_reg",
        Some(Dmabuf),
        Errno(&[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL]),
        "the kernel takes no such UMEM: UMEMs by DMA-BUF need Linux 6.0 or OFED 23.07, and rdma-core 44",
    ),
    (
        "ibv_reg_",
        Some(Address),
        Errno(&[libc::EFAULT]),
        "the kernel does not reach these pages: GPU memory by its address needs the kernel module nvidia_peermem, which loads only on \
         kernels with peer-memory clients (DOCA-OFED's, Ubuntu's); WARPVERBS_MEMORY=host keeps windows in host memory",
    ),
    (
        "mlx5dv_devx_umem_reg",
        Some(Address),
        Errno(&[libc::EFAULT]),
        "the kernel does not reach these pages: GPU memory by its address needs the kernel module nvidia_peermem, which loads only on \
         kernels with peer-memory clients (DOCA-OFED's, Ubuntu's); WARPVERBS_QUEUES=host keeps queues in host memory",
    ),
    (
        "",
        Some(Dmabuf),
        Errno(&[libc::EFAULT, libc::EBADF]),
        "the DMA-BUF does not hold these pages: the exporter has freed or moved them, or the descriptor is of something else",
    ),
    (
        "",
        Some(Host),
        Errno(&[libc::EFAULT]),
        "these pages of the process are not mapped for it to write: whoever allocated them has freed or protected them",
    ),
    (
        "ibv_create_ah",
        None,
        Errno(&[
            libc::ETIMEDOUT,
            libc::EHOSTUNREACH,
            libc::ENETUNREACH,
            libc::EINVAL,
        ]),
        "no host answers for this GID: look whether the peer's interface is up, in the same VLAN, and whether `ip route get` and \
         `ip neigh` know its address",
    ),
    (
        "mlx5dv_devx_alloc_uar",
        None,
        Errno(&[libc::ENOMEM, libc::ENOSPC, libc::EAGAIN]),
        "the device has no doorbell page left: fewer QPs, or fewer processes on the device",
    ),
    (
        "",
        None,
        Errno(&[libc::EBUSY]),
        "an object that was made of it still exists: end objects in the reverse order of their making",
    ),
    (
        "",
        None,
        Errno(&[libc::EIO, libc::ENODEV]),
        "the device answers no more: dmesg (mlx5_core) says whether it was reset, pulled or has failed; start the rank again when it \
         is back",
    ),
    (
        "",
        None,
        Errno(&[libc::EMFILE, libc::ENFILE]),
        "this process may have no descriptor left (ulimit -n)",
    ),
    (
        "",
        None,
        Errno(&[libc::ENOMEM, libc::EAGAIN]),
        "the machine, the container (docker run --memory; rdma.max of the cgroup) or the device has no room left for it",
    ),
    (
        "",
        None,
        Errno(&[]),
        "the kernel's log (dmesg: mlx5_core, mlx5_ib) may say more",
    ),
    // ---- Commands of the HCA, by status
    (
        "CREATE_QP",
        None,
        Status(&[0x08, 0x0f]),
        "the device has no room for another QP: fewer QPs to each peer (WARPVERBS_QPS_PER_PEER), shorter ones (WARPVERBS_LOG_DEPTH), \
         or fewer processes on the device",
    ),
    (
        "CREATE_CQ",
        None,
        Status(&[0x08, 0x0f]),
        "the device has no room for another CQ: fewer QPs to each peer (WARPVERBS_QPS_PER_PEER), or fewer processes on the device",
    ),
    (
        "CREATE_MKEY",
        None,
        Status(&[0x08, 0x0f]),
        "the device has no memory key left: fewer grants to peers at a time, or fewer processes on the device",
    ),
    (
        "ALLOC_Q_COUNTER",
        None,
        Status(&[0x08, 0x0f]),
        "the device has no counter set left: fewer processes on the device",
    ),
    (
        "INIT2RTR_QP",
        None,
        Status(&[0x03]),
        "the firmware does not take this way to the peer: on a bond it may want one port for all QPs (WARPVERBS_LAG_PORT=1); else \
         compare GIDs, MTU and partition keys of both ports (wv doctor)",
    ),
    (
        "RTS2RTS_QP",
        None,
        Status(&[0x02, 0x03]),
        "the firmware does not let a QP name its port of the bond again: without WARPVERBS_LAG_PORT ports are taken in turn, and such a \
         refusal is no error",
    ),
    (
        "",
        None,
        Status(&[0x01]),
        "the firmware has failed: dmesg (mlx5_core) says how, and mlxfwreset -d DEVICE reset starts it again; a later one may not fail",
    ),
    (
        "",
        None,
        Status(&[0x02]),
        "the firmware does not know this command: mlxfwmanager --online -u writes a later one",
    ),
    (
        "",
        None,
        Status(&[0x50, 0x51]),
        "the firmware has this command, or its answer, in another length: a later firmware or a later release of this library may agree",
    ),
    (
        "",
        None,
        Status(&[0x03]),
        "the firmware does not take a value; its syndrome tells NVIDIA's support which. A later firmware may (mlxfwmanager --online -u)",
    ),
    (
        "",
        None,
        Status(&[0x04, 0x07]),
        "the device starts, is reset or has failed: dmesg (mlx5_core) says which; start the rank again when it is back",
    ),
    (
        "",
        None,
        Status(&[0x08, 0x0f]),
        "a limit of the device is reached, or it has no such object left: fewer processes on the device",
    ),
    (
        "",
        None,
        Status(&[0x06]),
        "another object that was made of it still exists: end objects in the reverse order of their making",
    ),
    (
        "",
        None,
        Status(&[0x05, 0x09, 0x0a, 0x10]),
        "the device knows the object no more, or in another state: dmesg (mlx5_core) says whether it was reset meanwhile; start the \
         rank again",
    ),
    (
        "",
        None,
        Status(&[NO_REPLY]),
        "the command did not reach the firmware: dmesg (mlx5_core) says whether the device was reset, pulled or has failed",
    ),
    (
        "",
        None,
        Status(&[]),
        "the kernel's log (dmesg: mlx5_core) may say more",
    ),
    // ---- Calls of the CUDA driver, by code
    // `GpuError::NoStart`, `Doorbell` and `OldDriver` have advice of their own.
    ("cuInit", None, Cuda(&[]), ""),
    ("cuMemHostRegister", None, Cuda(&[]), ""),
    (CUDA_LOAD, None, Cuda(&[UNSUPPORTED_PTX_VERSION]), ""),
    (
        CUDA_OPEN,
        None,
        Cuda(&[DEVICE_UNAVAILABLE]),
        "another process has the GPU for itself, or none may (its compute mode is exclusive or prohibited): give each rank a GPU of its \
         own, or allow several with nvidia-smi -c DEFAULT or by MPS",
    ),
    (
        CUDA_OPEN,
        None,
        Cuda(&[OUT_OF_MEMORY]),
        "the GPU has no memory left for a context: nvidia-smi shows which processes have it",
    ),
    (
        CUDA_OPEN,
        None,
        Cuda(&[INVALID_DEVICE]),
        "of a GPU in MIG mode a process sees instances only: name one with CUDA_VISIBLE_DEVICES=MIG-UUID (nvidia-smi -L lists them)",
    ),
    (
        CUDA_OPEN,
        None,
        Cuda(&[SYSTEM_NOT_READY]),
        "on a machine with NVSwitch the GPU waits for the service nvidia-fabricmanager, which must run in the driver's release",
    ),
    (
        CUDA_EXPORT,
        None,
        Cuda(&[INVALID_VALUE, NOT_SUPPORTED, NOT_PERMITTED]),
        "the driver exports no such DMA-BUF: it takes the open kernel modules (nvidia-open) of CUDA 11.7 or later, and of CUDA 12.8 or \
         later where it is made for PCIe",
    ),
    (
        CUDA_EXPORT,
        None,
        Cuda(&[OUT_OF_MEMORY, OPERATING_SYSTEM]),
        "this process may have no descriptor left (ulimit -n)",
    ),
    (
        "cuMemHostAlloc",
        None,
        Cuda(&[OUT_OF_MEMORY, OPERATING_SYSTEM]),
        "pinned memory counts against the memory of the machine and of the container (docker run --memory, limits of the pod)",
    ),
    (
        CUDA_LOAD,
        None,
        Cuda(&[JIT_COMPILER_NOT_FOUND]),
        "the driver's compiler of PTX, libnvidia-ptxjitcompiler.so.1, is not found: a container needs \
         NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    (
        CUDA_LOAD,
        None,
        Cuda(&[JIT_COMPILATION_DISABLED]),
        "CUDA_DISABLE_PTX_JIT turns the compilation of PTX off: unset it",
    ),
    (
        CUDA_LOAD,
        None,
        Cuda(&[NO_BINARY_FOR_GPU]),
        "the GPU is older than every architecture that the kernels were made for: it takes one of compute capability 8.0 or later",
    ),
    (
        "",
        None,
        Cuda(&[ECC_UNCORRECTABLE]),
        "the GPU's memory has errors that ECC does not correct: end its processes and reset it with nvidia-smi -r; nvidia-smi -q -d ECC \
         counts them",
    ),
    (
        "",
        None,
        Cuda(&[NOT_INITIALIZED]),
        "a process that was forked cannot use the CUDA of the one that forked it: start ranks as programs of their own, or by spawn",
    ),
    (
        "",
        None,
        Cuda(&[ILLEGAL_ADDRESS, LAUNCH_FAILED]),
        "a kernel of this process has failed, and with it everything that it has on the GPU: compute-sanitizer shows which one and where",
    ),
    (
        "",
        None,
        Cuda(&[OUT_OF_MEMORY]),
        "nvidia-smi shows which processes have the memory of the GPU; fewer QPs (WARPVERBS_QPS_PER_PEER) and shorter ones \
         (WARPVERBS_LOG_DEPTH) take less",
    ),
    (
        "",
        None,
        Cuda(&[]),
        "nvidia-smi and the kernel's log (NVRM) may say more",
    ),
];

const LOCKED_MEMORY: &str = "{locked}";

const CUDA_OPEN: &str = "cuDevicePrimaryCtxRetain";
const CUDA_EXPORT: &str = "cuMemGetHandleForAddressRange";
const CUDA_LOAD: &str = "cuModuleLoadData";

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const DEVICE_UNAVAILABLE: u32 = 46;
const INVALID_DEVICE: u32 = 101;
const NO_BINARY_FOR_GPU: u32 = 209;
const ECC_UNCORRECTABLE: u32 = 214;
const JIT_COMPILER_NOT_FOUND: u32 = 221;
const UNSUPPORTED_PTX_VERSION: u32 = 222;
const JIT_COMPILATION_DISABLED: u32 = 223;
const OPERATING_SYSTEM: u32 = 304;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_FAILED: u32 = 719;
const NOT_PERMITTED: u32 = 800;
const NOT_SUPPORTED: u32 = 801;
const SYSTEM_NOT_READY: u32 = 802;

/// What to do when a call was refused; printed after the reason, with a semicolon before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remedy<'a> {
    /// The function, or the command by name.
    pub(crate) call: &'a str,
    /// What it was to register; none of another call.
    pub(crate) memory: Option<MemoryKind>,
    pub(crate) reason: Reason,
}

impl Remedy<'_> {
    fn fits(&self, (call, memory, reasons, _): &Row) -> bool {
        self.call.starts_with(call)
            && (memory.is_none() || *memory == self.memory)
            && reasons.contain(self.reason)
    }
}

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = TABLE.iter().find(|row| self.fits(row));
        match row.map_or("", |(.., advice)| advice) {
            "" => Ok(()),
            LOCKED_MEMORY => write!(f, "; {}", Locked(getrlimit(Resource::Memlock).current)),
            advice => write!(f, "; {advice}"),
        }
    }
}

/// The remedy of a call on a device, with the name of its node where sysfs says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnDevice<'a> {
    /// Name of the RDMA device.
    pub(crate) device: &'a str,
    pub(crate) remedy: Remedy<'a>,
}

impl fmt::Display for OnDevice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.remedy.to_string();
        match text
            .contains(NODE)
            .then(|| node_of(Path::new(SYSFS), self.device))
        {
            Some(Some(node)) => f.write_str(&text.replace(NODE, &node)),
            _ => f.write_str(&text),
        }
    }
}

/// Stands in the table for the name of a device's node.
const NODE: &str = "uverbsN";

const SYSFS: &str = "/sys/class/infiniband_verbs";

/// Returns the node by which programs open `device`: what the kernel calls it, whether a container shows it below /dev or not.
fn node_of(root: &Path, device: &str) -> Option<String> {
    let nodes = fs::read_dir(root).ok()?.flatten();
    let is_of = |node: &fs::DirEntry| {
        let of = fs::read_to_string(node.path().join("ibdev"));
        of.is_ok_and(|name| name.trim_end() == device)
    };
    nodes
        .filter_map(|node| Some((node.file_name().into_string().ok()?, node)))
        .find(|(name, node)| name.starts_with("uverbs") && is_of(node))
        .map(|(name, _)| name)
}

/// The limit of locked memory of this process, in bytes; none without a limit.
struct Locked(Option<u64>);

impl fmt::Display for Locked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(
                f,
                "this process may lock {} KiB of memory: raise it (ulimit -l unlimited; docker run --ulimit memlock=-1 or --cap-add=IPC_LOCK; \
                 LimitMEMLOCK=infinity of systemd)",
                bytes / 1024
            ),
            None => f.write_str(
                "this process may lock any amount of memory, so the machine or the device has none left for these pages",
            ),
        }
    }
}

#[cfg(test)]
mod tests;
