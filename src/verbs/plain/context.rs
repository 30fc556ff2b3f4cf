//! An open device without DevX.

// UNSAFETY: calls into libibverbs with the device's context.
#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::config::GidChoice;
use crate::sys::Rdma;
use crate::sys::bindings::{
    IBV_ATOMIC_NONE, IBV_TRANSPORT_IB, ibv_context, ibv_device, ibv_device_attr,
};
use crate::verbs::device::list::{DeviceInfo, DeviceList};
use crate::verbs::device::open::OpenDevice;
use crate::verbs::device::own_port::OwnPort;
use crate::verbs::device::port::PortInfo;
use crate::verbs::error::VerbsError;

/// The largest log2 of the number of reads and atomics of a QP. A port's record has no larger one.
const MOST_LOG_READS: u32 = 7;

/// An open device of any provider of libibverbs, with an active port. Every object made through it keeps it open.
pub struct PlainContext {
    own: OwnPort,
    limits: PlainLimits,
    device: Arc<OpenDevice>,
}

/// The limits of a device, as `ibv_query_device` and `ibv_query_port` say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainLimits {
    /// The most requests of a send queue, and of a receive queue.
    pub(crate) requests: u32,
    /// The most local ranges of a request.
    pub(crate) ranges: u32,
    /// The most entries of a CQ.
    pub(crate) entries: u32,
    /// The most bytes of a region.
    pub(crate) region: u64,
    /// The most bytes of a message.
    pub(crate) message: u32,
    /// log2 of the reads that a QP has under way at once, as requester.
    pub(crate) log_own_reads: u8,
    /// True if peers may do atomics.
    pub(crate) atomics: bool,
}

impl PlainContext {
    /// Opens the device of this name with this port, or with its first active port. `gid` is the choice of the own GID.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Load`] without libibverbs. [`VerbsError::NoDevice`] names every device of the machine. [`VerbsError::Capability`] for
    /// a device without QPs of type RC or without reads, and for a port that is not active. [`VerbsError::BadArgument`] with the port's GID
    /// table if no entry fits `gid`. [`VerbsError::Call`].
    pub fn open(name: &str, port: Option<u8>, gid: &GidChoice) -> Result<Arc<Self>, VerbsError> {
        let list = DeviceList::new(Rdma::load_verbs()?)?;
        let mut found = Vec::new();
        for (device, info) in list.in_order(false) {
            if info.name == name {
                return Self::open_device(device, info, port, gid);
            }
            found.push(format!("{}: has another name", info.name));
        }
        Err(VerbsError::NoDevice {
            wanted: name.to_owned(),
            found,
        })
    }

    fn open_device(
        device: NonNull<ibv_device>,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the device is in a list that the caller has not freed; its transport does not change.
        let transport = unsafe { device.as_ref() }.transport_type;
        let open = OpenDevice::open_plain(Rdma::load_verbs()?, device, &info.name)?;
        if transport != IBV_TRANSPORT_IB {
            let needed = "0 (InfiniBand or RoCE): QPs of type RC";
            return Err(open.lacks("transport_type", transport, needed));
        }
        let own = OwnPort::query(&open, info, port, gid)?;
        let attr = query(&open)?;
        let message = PortInfo::most_message(&open, own.port().number)?;
        let theirs = log_reads(&open, "max_qp_rd_atom", attr.max_qp_rd_atom)?;
        let limits = PlainLimits {
            requests: positive(attr.max_qp_wr),
            ranges: positive(attr.max_sge),
            entries: positive(attr.max_cqe),
            region: match attr.max_mr_size {
                0 => u64::MAX,
                bytes => bytes,
            },
            message,
            log_own_reads: log_reads(&open, "max_qp_init_rd_atom", attr.max_qp_init_rd_atom)?,
            atomics: attr.atomic_cap != IBV_ATOMIC_NONE,
        };
        Ok(Arc::new(Self {
            own: own.with_log_reads(theirs),
            limits,
            device: open,
        }))
    }

    /// Returns the name that the kernel gives the device, for example `bnxt_re0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.own.info().name
    }

    /// Returns what the list of devices says about the device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.own.info()
    }

    /// Returns the port, as it was at opening.
    #[must_use]
    pub fn port(&self) -> &PortInfo {
        self.own.port()
    }

    /// Returns the port with its addresses.
    pub(crate) fn own_port(&self) -> &OwnPort {
        &self.own
    }

    pub(crate) fn limits(&self) -> &PlainLimits {
        &self.limits
    }

    pub(super) fn rdma(&self) -> &'static Rdma {
        self.device.rdma()
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.device.raw()
    }

    /// Returns the error of a failed call of libibverbs on this device.
    pub(super) fn failed(&self, call: &'static str, errno: i32) -> VerbsError {
        self.device.failed(call, errno)
    }
}

/// Returns what the device says of itself.
fn query(device: &OpenDevice) -> Result<ibv_device_attr, VerbsError> {
    let mut attr = std::mem::MaybeUninit::<ibv_device_attr>::zeroed();
    // SAFETY: the context is open, and `attr` lives through the call.
    let errno = unsafe {
        device
            .rdma()
            .ibv_query_device(device.raw(), attr.as_mut_ptr())
    };
    match errno {
        // SAFETY: all fields are integers and the buffer was zeroed, so every bit is initialised and valid.
        0 => Ok(unsafe { attr.assume_init() }),
        errno => Err(device.failed("ibv_query_device", errno.abs())),
    }
}

/// Returns the number, or 0 for a negative one.
fn positive(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Returns log2 of a number of reads at once, rounded down.
fn log_reads(device: &OpenDevice, what: &'static str, most: i32) -> Result<u8, VerbsError> {
    let log = positive(most).checked_ilog2();
    let log = log.ok_or_else(|| device.lacks(what, most, "at least 1"))?;
    Ok(u8::try_from(log.min(MOST_LOG_READS)).unwrap_or(0))
}

impl fmt::Debug for PlainContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PlainContext({})", self.name())
    }
}
