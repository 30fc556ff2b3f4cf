//! What can go wrong on the way to an HCA.

use mlx5_prm::cmd::{Opcode, Status};

use crate::error::remedy::{MemoryKind, OnDevice, Reason, Remedy, lack};
use crate::error::{Error, Part, ThreadPanicked, ThreadRefused};
use crate::memheap::HeapError;
use crate::sys::{LoadError, MissingFunction};
use crate::verbs::gid::Gid;
use crate::verbs::rung::Rung;

/// The name of a queue length that is too long for a queue without a doorbell record.
pub(super) const DEPTH_WITHOUT_RECORD: &str = "log_depth without a doorbell record";

/// The call that opens a device with DevX.
pub(super) const OPEN_WITH_DEVX: &str = "mlx5dv_open_device (with DevX)";

/// The name of the library that drives a device, as of a capability.
pub(super) const PROVIDER: &str = "provider";

/// A command that the HCA refused, or that never reached it.
///
/// Reply buffers start as 0xff, so a reply that the HCA did not write is status 0xff, never success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{opcode} refused: {}", self.answer())]
#[non_exhaustive]
pub struct CommandError {
    /// The command.
    pub opcode: Opcode,
    /// Status byte of the reply, or [`CommandError::NO_REPLY`] if the device wrote none.
    pub status: Status,
    /// Syndrome of the reply: the firmware's reason.
    pub syndrome: u32,
    /// The kernel's answer; 0 if the kernel accepted the command.
    pub errno: i32,
}

impl CommandError {
    /// The status of a reply buffer that the HCA did not write.
    pub const NO_REPLY: Status = Status(0xff);

    fn remedy(&self) -> String {
        let remedy = Remedy {
            call: &self.opcode.to_string(),
            memory: None,
            reason: Reason::Status(self.status.0),
        };
        remedy.to_string()
    }

    fn answer(&self) -> String {
        let errno = match self.errno {
            0 => String::new(),
            errno => format!(" ({})", std::io::Error::from_raw_os_error(errno)),
        };
        if self.status == Self::NO_REPLY {
            return format!("no reply{errno}");
        }
        format!(
            "status {}, syndrome {:#010x}{errno}",
            self.status, self.syndrome
        )
    }
}

/// A refusal or failure of `verbs`. Everything that the failed call had made has been taken down again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// libmlx5 cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No device fits the selection.
    #[error("no RDMA device {wanted}: {}", Self::seen(.found))]
    NoDevice {
        /// The device that the caller asked for.
        wanted: String,
        /// Each device of the machine, with the reason why it cannot be used.
        found: Vec<String>,
    },
    /// The installed libibverbs or libmlx5 is too old to have a function that the call needs.
    #[error(transparent)]
    Missing(#[from] MissingFunction),
    /// A libibverbs or libmlx5 call failed.
    #[error(
        "{call} on {device}: {}{}",
        std::io::Error::from_raw_os_error(*.errno),
        OnDevice { device, remedy: Remedy { call, memory: kind(*.memory), reason: Reason::Errno(*.errno) } }
    )]
    Call {
        /// The function.
        call: &'static str,
        /// The device that the call was for.
        device: String,
        /// The error number of the call.
        errno: i32,
        /// The rung on which the call was to reach memory. None if the call registers no memory.
        memory: Option<Rung>,
    },
    /// The kernel finds no MAC address to which packets for a peer go.
    #[error(
        "no MAC for {} from {} on {device}{}: {}{}",
        address(.peer),
        address(.own),
        behind(.interface),
        std::io::Error::from_raw_os_error(*.errno),
        Remedy { call: "ibv_create_ah", memory: None, reason: Reason::Errno(*.errno) }
    )]
    NoMac {
        /// The device that was to send.
        device: String,
        /// The network interface of the own GID, if sysfs names it.
        interface: Option<String>,
        /// The GID that packets come from.
        own: Gid,
        /// The GID for which the kernel found no MAC.
        peer: Gid,
        /// The kernel's error number.
        errno: i32,
    },
    /// The HCA refused a command.
    #[error("{device}: {source}{}", .source.remedy())]
    Command {
        /// The device that refused.
        device: String,
        /// Opcode, status and syndrome.
        source: CommandError,
    },
    /// The device lacks a capability, or has too little of it.
    #[error("{device}: {what} is {has}, needed: {needed}{}", lack::of_capability(.what))]
    Capability {
        /// The device that lacks it.
        device: String,
        /// PRM name of the capability or attribute.
        what: &'static str,
        /// The value that the device has.
        has: String,
        /// The value that is needed.
        needed: String,
    },
    /// A value of the caller or of a peer is out of its range.
    #[error("{what} is {value}; it must be {limit}")]
    BadArgument {
        /// The name of the value.
        what: &'static str,
        /// The value that was given, in words.
        value: String,
        /// The values that are allowed.
        limit: String,
    },
    /// The device gave an answer that is impossible.
    #[error("{device}: {what} is {value}; it must be {limit}{}", lack::OF_REPLY)]
    BadReply {
        /// The device that answered.
        device: String,
        /// The name of the value.
        what: &'static str,
        /// The value of the answer, in words.
        value: String,
        /// The values that are possible.
        limit: String,
    },
    /// The HCA accepts none of the ways to memory that its owner offers.
    #[error("no way to the memory: {}", Self::rungs(.refused))]
    Export {
        /// Each rung of the ladder, with the reason of its refusal.
        refused: Vec<(Rung, VerbsError)>,
    },
    /// A thread of the host could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadRefused),
    /// A thread of the host that the call needs has panicked.
    #[error(transparent)]
    Panicked(#[from] ThreadPanicked),
    /// The control heap is full.
    #[error("control heap: {0}{advice}", advice = Self::of_heap(.0))]
    Heap(#[from] HeapError),
}

impl VerbsError {
    /// Returns the HCA's answer, if this error is one.
    #[must_use]
    pub fn command(&self) -> Option<&CommandError> {
        match self {
            Self::Command { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Notes that a failed call was to register memory on `rung`.
    pub(super) fn on(self, rung: Rung) -> Self {
        match self {
            Self::Call {
                call,
                device,
                errno,
                ..
            } => Self::Call {
                call,
                device,
                errno,
                memory: Some(rung),
            },
            other => other,
        }
    }

    /// Returns whether the kernel, the HCA or a library refused a request that it received. It might accept the request for other memory or
    /// in another form. Other errors were found before any request.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Call { .. } | Self::Command { .. } | Self::Missing(_) | Self::Export { .. }
        )
    }

    /// Returns whether the HCA may make the same QP with a doorbell record. That is so if it refused a QP without one for a parameter,
    /// since all other parameters were checked before, or for its length.
    pub(crate) fn is_of_no_record(&self) -> bool {
        match self {
            Self::Command { source, .. } => {
                (source.opcode, source.status) == (Opcode::CREATE_QP, Status::BAD_PARAM)
            }
            Self::BadArgument { what, .. } => *what == DEPTH_WITHOUT_RECORD,
            _ => false,
        }
    }

    /// Returns whether the device or the machine lacks what DevX takes. libibverbs alone may drive the device then.
    pub(crate) fn is_without_devx(&self) -> bool {
        match self {
            Self::Load(_) | Self::NoDevice { .. } => true,
            Self::Call { call, .. } => *call == OPEN_WITH_DEVX,
            Self::Capability { what, .. } => *what == PROVIDER,
            Self::Command { source, .. } => source.status == CommandError::NO_REPLY,
            _ => false,
        }
    }

    pub(crate) fn argument(what: &'static str, value: impl ToString, limit: impl ToString) -> Self {
        Self::BadArgument {
            what,
            value: value.to_string(),
            limit: limit.to_string(),
        }
    }

    fn rungs(refused: &[(Rung, Self)]) -> String {
        let each = refused.iter();
        let each = each.map(|(rung, reason)| format!("{rung}: {reason}"));
        each.collect::<Vec<_>>().join("; ")
    }

    /// Returns advice for an error of the heap. A wrong offset or length is no lack of room.
    fn of_heap(error: &HeapError) -> &'static str {
        match error {
            HeapError::Full { .. } => lack::OF_HEAP,
            _ => "",
        }
    }

    fn seen(found: &[String]) -> String {
        match found {
            [] => format!("none is listed; {}", lack::OF_NO_DEVICE),
            found => found.join("; "),
        }
    }
}

/// Returns the `errno` of this thread's last failed call, or EIO if the call set none.
pub(super) fn last_errno() -> i32 {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(errno) if errno != 0 => errno,
        _ => libc::EIO,
    }
}

/// Returns the kind of memory on a rung, for the choice of a remedy.
fn kind(memory: Option<Rung>) -> Option<MemoryKind> {
    memory.map(|rung| match rung {
        Rung::DmabufPcie | Rung::Dmabuf => MemoryKind::Dmabuf,
        Rung::Address => MemoryKind::Address,
        Rung::Host => MemoryKind::Host,
    })
}

/// Returns a GID in the form in which people write it.
fn address(gid: &Gid) -> String {
    gid.ipv4()
        .map_or_else(|| gid.to_string(), |it| it.to_string())
}

fn behind(interface: &Option<String>) -> String {
    interface
        .as_ref()
        .map_or_else(String::new, |name| format!(" ({name})"))
}

impl From<VerbsError> for Error {
    fn from(error: VerbsError) -> Self {
        Self::new(Part::Verbs, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_was_never_written_is_not_success() {
        let error = CommandError {
            opcode: Opcode::CREATE_QP,
            status: CommandError::NO_REPLY,
            syndrome: u32::MAX,
            errno: 5,
        };
        let text = error.to_string();
        assert!(
            text.starts_with("CREATE_QP (0x500) refused: no reply (Input/output error"),
            "{text}"
        );
    }

    #[test]
    fn a_refusal_has_status_and_syndrome() {
        let error = CommandError {
            opcode: Opcode::INIT2RTR_QP,
            status: Status::BAD_PARAM,
            syndrome: 0x00ab_cdef,
            errno: 0,
        };
        assert_eq!(
            error.to_string(),
            "INIT2RTR_QP (0x503) refused: status BAD_PARAM (0x3), syndrome 0x00abcdef"
        );
    }

    #[test]
    fn a_call_that_fails_says_what_to_do() {
        let error = VerbsError::Call {
            call: "ibv_reg_mr",
            device: "mlx5_0".to_owned(),
            errno: libc::EFAULT,
            memory: None,
        };
        for (rung, told) in [
            (Rung::Address, "the kernel does not reach these pages"),
            (Rung::DmabufPcie, "the DMA-BUF does not hold these pages"),
            (Rung::Host, "these pages of the process are not mapped"),
        ] {
            let text = error.clone().on(rung).to_string();
            let begin = format!("ibv_reg_mr on mlx5_0: Bad address (os error 14); {told}");
            assert!(text.starts_with(&begin), "{text}");
        }
    }

    #[test]
    fn a_command_that_fails_says_what_to_do() {
        let error = VerbsError::Command {
            device: "mlx5_0".to_owned(),
            source: CommandError {
                opcode: Opcode::CREATE_QP,
                status: Status::NO_RES,
                syndrome: 0,
                errno: 0,
            },
        };
        let text = error.to_string();
        assert!(
            text.contains(
                "refused: status NO_RES (0xf), syndrome 0x00000000; the device has no room"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_mac_that_is_not_found_names_both_addresses_and_the_interface() {
        let gid = |text: &str| Gid(text.parse::<std::net::Ipv6Addr>().unwrap().octets());
        let error = VerbsError::NoMac {
            device: "mlx5_0".to_owned(),
            interface: Some("ens3".to_owned()),
            own: gid("::ffff:10.1.0.7"),
            peer: gid("fd00::8"),
            errno: libc::ETIMEDOUT,
        };
        let text = error.to_string();
        let begin = "no MAC for fd00::8 from 10.1.0.7 on mlx5_0 (ens3): Connection timed out";
        assert!(
            text.starts_with(begin) && text.contains("ip neigh"),
            "{text}"
        );
    }

    #[test]
    fn no_device_says_what_there_is() {
        let error = VerbsError::NoDevice {
            wanted: "mlx5_7".to_owned(),
            found: vec!["mlx5_0: another name".to_owned()],
        };
        assert_eq!(
            error.to_string(),
            "no RDMA device mlx5_7: mlx5_0: another name"
        );
    }

    /// Returns the number of a variant, and words of its advice.
    fn mended(error: &VerbsError) -> (usize, &'static str) {
        match error {
            VerbsError::Load(_) => (0, "apt-get install"),
            VerbsError::NoDevice { .. } => (1, "wv sim"),
            VerbsError::Missing(_) => (2, "install that or a later one"),
            VerbsError::Call { .. } => (3, "give it read and write access"),
            VerbsError::NoMac { .. } => (4, "ip neigh"),
            VerbsError::Command { .. } => (5, "fewer QPs"),
            VerbsError::Capability { .. } => (6, "WARPVERBS_DEVICE"),
            VerbsError::BadArgument { .. } => (7, "it must be"),
            VerbsError::BadReply { .. } => (8, "a later release"),
            VerbsError::Export { .. } => (9, "nvidia_peermem"),
            VerbsError::Thread(_) => (10, "ulimit -u"),
            VerbsError::Panicked(_) => (11, "made anew"),
            VerbsError::Heap(HeapError::Full { .. }) => (12, "WARPVERBS_CONTROL_BYTES=0"),
            VerbsError::Heap(_) => (13, "it must be"),
        }
    }

    fn call(call: &'static str, errno: i32) -> VerbsError {
        VerbsError::Call {
            call,
            device: "mlx5_0".to_owned(),
            errno,
            memory: None,
        }
    }

    #[test]
    fn every_error_says_what_to_do() {
        let no = || "no".to_owned();
        let gid = Gid([0; 16]);
        let mut heap = crate::memheap::MemHeap::new(4096);
        let errors = [
            VerbsError::Load(LoadError {
                library: "libmlx5",
                tried: vec![no()],
            }),
            VerbsError::NoDevice {
                wanted: no(),
                found: Vec::new(),
            },
            VerbsError::Missing(MissingFunction {
                function: "ibv_reg_dmabuf_mr",
                release: 34,
            }),
            call("mlx5dv_open_device", libc::EACCES),
            VerbsError::NoMac {
                device: no(),
                interface: None,
                own: gid,
                peer: gid,
                errno: libc::ETIMEDOUT,
            },
            VerbsError::Command {
                device: no(),
                source: CommandError {
                    opcode: Opcode::CREATE_QP,
                    status: Status::NO_RES,
                    syndrome: 0,
                    errno: 0,
                },
            },
            VerbsError::Capability {
                device: no(),
                what: "cq_oi",
                has: no(),
                needed: no(),
            },
            VerbsError::argument("port", 3, "1 to 2"),
            VerbsError::BadReply {
                device: no(),
                what: "eqn",
                value: no(),
                limit: no(),
            },
            VerbsError::Export {
                refused: vec![(
                    Rung::Address,
                    call("ibv_reg_mr", libc::EFAULT).on(Rung::Address),
                )],
            },
            VerbsError::Thread(ThreadRefused {
                thread: no(),
                reason: no(),
            }),
            VerbsError::Panicked(ThreadPanicked::new("a", &"b")),
            heap.alloc(8192, 64).unwrap_err().into(),
            heap.alloc(0, 64).unwrap_err().into(),
            heap.alloc(64, 3).unwrap_err().into(),
        ];
        let mut shown = [false; 14];
        for error in errors {
            let (place, words) = mended(&error);
            shown[place] = true;
            let text = error.to_string();
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(shown, [true; 14]);
    }
}
