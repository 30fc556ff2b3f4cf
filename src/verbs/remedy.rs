//! What to do when a call of libibverbs or libmlx5 fails, by call and errno.
//!
//! Sources: ibv_reg_mr(3), ibv_open_device(3); `uverbs_open` and `ib_umem_get` of Linux; "GPUDirect RDMA" of the CUDA documentation.

use std::fmt;

use rustix::process::{Resource, getrlimit};

/// A line of the table: the beginning of the call's name, its errnos, and what to do.
type Row = (&'static str, &'static [i32], &'static str);

const DEVICE: &str = "mlx5dv_open_device";
const REGISTER: &[&str] = &["ibv_reg_mr", "ibv_reg_dmabuf_mr", "mlx5dv_devx_umem_reg"];

const TABLE: &[Row] = &[
    (
        DEVICE,
        &[libc::EPERM, libc::EACCES],
        "this user may not open the device's /dev/infiniband/uverbsN: give it read and write access; a container needs \
         --device=/dev/infiniband",
    ),
    (
        DEVICE,
        &[libc::ENOENT, libc::ENODEV, libc::ENXIO],
        "the device has no /dev/infiniband/uverbsN here: load the kernel modules ib_uverbs and mlx5_ib; a container needs \
         --device=/dev/infiniband",
    ),
    (
        DEVICE,
        &[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL],
        "the kernel or the firmware gives no DevX context: it takes Linux 5.1 or newer and a firmware with DevX on \
         (mlxconfig: UCTX_EN=1)",
    ),
    (
        "ibv_reg_dmabuf_mr",
        &[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL],
        "the kernel takes no DMA-BUF: regions by DMA-BUF need Linux 5.12 and rdma-core 34, or DOCA-OFED",
    ),
    (
        "mlx5dv_devx_umem_reg",
        &[libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL],
        "the kernel takes no such UMEM: UMEMs by DMA-BUF need Linux 6.0 or OFED 23.07, and rdma-core 44",
    ),
    (
        "ibv_reg_",
        &[libc::EFAULT],
        "the kernel does not reach these pages: GPU memory by its address needs the kernel module nvidia_peermem, which loads only on \
         kernels with peer-memory clients (DOCA-OFED's, Ubuntu's)",
    ),
    (
        "mlx5dv_devx_umem_reg",
        &[libc::EFAULT],
        "the kernel does not reach these pages: GPU memory by its address needs the kernel module nvidia_peermem, which loads only on \
         kernels with peer-memory clients (DOCA-OFED's, Ubuntu's); WARPVERBS_QUEUES=host keeps queues in host memory",
    ),
    (
        "ibv_create_ah",
        &[
            libc::ETIMEDOUT,
            libc::EHOSTUNREACH,
            libc::ENETUNREACH,
            libc::EINVAL,
        ],
        "no host answers for this GID: look whether the peer's interface is up, in the same VLAN, and whether `ip route get` and \
         `ip neigh` know its address",
    ),
    (
        "mlx5dv_devx_alloc_uar",
        &[libc::ENOMEM, libc::ENOSPC],
        "the device has no doorbell page left: fewer QPs, or fewer processes on the device",
    ),
];

/// What to do when `call` has failed with `errno`, if that is known; printed behind the reason, with a semicolon before it.
pub(super) struct Remedy {
    pub(super) call: &'static str,
    pub(super) errno: i32,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pins = REGISTER.iter().any(|call| self.call.starts_with(call));
        if pins && matches!(self.errno, libc::ENOMEM | libc::EPERM) {
            return write!(f, "; {}", Locked(getrlimit(Resource::Memlock).current));
        }
        let fits = |row: &&Row| self.call.starts_with(row.0) && row.1.contains(&self.errno);
        match TABLE.iter().find(fits) {
            Some((_, _, advice)) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// The limit of locked memory of this process, in bytes; none where there is no limit.
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
mod tests {
    use super::*;

    fn advice(call: &'static str, errno: i32) -> String {
        Remedy { call, errno }.to_string()
    }

    #[test]
    fn each_row_is_found_by_its_call_and_errno() {
        for (call, errnos, text) in TABLE {
            for &errno in *errnos {
                // An earlier row may say more of the same call.
                let found = advice(call, errno);
                let known = TABLE
                    .iter()
                    .any(|(_, _, other)| found == format!("; {other}"));
                let pins = found.contains("may lock");
                assert!(known || pins, "{call} {errno}: {found} ({text})");
            }
        }
    }

    #[test]
    fn what_is_refused_names_what_to_change() {
        let open = "mlx5dv_open_device (with DevX)";
        for (call, errno, words) in [
            (open, libc::EACCES, "--device=/dev/infiniband"),
            (open, libc::ENOENT, "mlx5_ib"),
            (open, libc::EOPNOTSUPP, "UCTX_EN=1"),
            ("ibv_reg_mr", libc::EFAULT, "nvidia_peermem"),
            ("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP, "Linux 5.12"),
            (
                "mlx5dv_devx_umem_reg_ex",
                libc::EFAULT,
                "WARPVERBS_QUEUES=host",
            ),
            ("mlx5dv_devx_umem_reg_ex", libc::EINVAL, "Linux 6.0"),
            ("ibv_create_ah", libc::ETIMEDOUT, "ip neigh"),
        ] {
            let text = advice(call, errno);
            assert!(
                text.starts_with("; ") && text.contains(words),
                "{call}: {text}"
            );
        }
        assert_eq!(advice("ibv_dealloc_pd", libc::EBUSY), "");
        assert_eq!(advice(open, libc::EIO), "");
    }

    #[test]
    fn a_limit_of_locked_memory_is_told_with_its_value() {
        assert!(
            Locked(Some(65_536))
                .to_string()
                .starts_with("this process may lock 64 KiB of memory: ")
        );
        assert!(
            Locked(Some(0))
                .to_string()
                .starts_with("this process may lock 0 KiB")
        );
        assert!(Locked(None).to_string().contains("any amount"));
        assert!(advice("ibv_reg_mr", libc::ENOMEM).contains("this process may lock"));
    }
}
