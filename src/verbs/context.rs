//! An open device.

// UNSAFETY: calls into libibverbs and libmlx5 with the device's context.
#![expect(unsafe_code, reason = "calls into libibverbs and libmlx5")]

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::adopt::{self, Adoption};
use super::caps::Caps;
use super::counters::CounterSet;
use super::device::{DeviceInfo, DeviceList, DeviceSelector};
use super::error::{CommandError, VerbsError};
use super::gid::{Gid, GidEntry};
use super::port::PortInfo;
use super::uar::{DoorbellRegister, Pages};
use crate::config::GidChoice;
use crate::sys::Rdma;
use crate::sys::bindings::{
    MLX5DV_CONTEXT_FLAGS_DEVX, ibv_context, ibv_device, mlx5dv_context_attr,
};

/// So many ports a device is asked for.
const MOST_PORTS: u8 = 8;

/// An open device with DevX, an active port and everything that the runtime needs of it. Every object made through it keeps it
/// open.
pub struct Context {
    info: DeviceInfo,
    caps: Caps,
    port: PortInfo,
    gids: Vec<GidEntry>,
    /// The GID that was named.
    named_gid: Option<GidEntry>,
    /// Doorbell registers in use, by page.
    pages: Mutex<Pages>,
    /// The register that QPs share which ask for that.
    pub(super) shared_register: Mutex<Weak<DoorbellRegister>>,
    /// The counter set of this context's QPs.
    pub(super) own_counters: Mutex<Weak<CounterSet>>,
    /// The device has refused it.
    pub(super) counters_refused: AtomicBool,
    /// The device has refused a command that names the port of a bond again.
    pub(super) port_again_refused: AtomicBool,
    /// Closed last, if it was opened here.
    open: OpenDevice,
}

impl Context {
    /// Opens a device, reads its capabilities, its first active port and that port's GIDs, and checks them.
    ///
    /// # Errors
    ///
    /// [`VerbsError::NoDevice`] names every device of the machine and why it is not suitable. With a device selected by name, the
    /// reason itself: [`VerbsError::Call`], [`VerbsError::Command`] or [`VerbsError::Capability`].
    pub fn open(selector: &DeviceSelector) -> Result<Arc<Self>, VerbsError> {
        Self::open_port(selector, None)
    }

    /// The same with this port of the device; without one, its first that is active.
    ///
    /// # Errors
    ///
    /// As [`Context::open`].
    pub fn open_port(selector: &DeviceSelector, port: Option<u8>) -> Result<Arc<Self>, VerbsError> {
        Self::open_with_gid(selector, port, &GidChoice::Auto)
    }

    /// As [`Context::open_port`], to speak from the GID that `gid` names.
    ///
    /// # Errors
    ///
    /// As [`Context::open`]; [`VerbsError::BadArgument`] with the table if no entry of it is that GID.
    pub fn open_with_gid(
        selector: &DeviceSelector,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Arc<Self>, VerbsError> {
        let list = DeviceList::new(Rdma::load()?)?;
        let mut found = Vec::new();
        for (device, info) in list.in_order(*selector == DeviceSelector::Auto) {
            let wanted = match selector {
                DeviceSelector::Auto => true,
                DeviceSelector::Name(name) => *name == info.name,
            };
            let name = info.name.clone();
            let opened = wanted.then(|| Self::open_device(device, info, port, gid));
            let reason = match opened {
                Some(Ok(context)) => return Ok(Arc::new(context)),
                Some(Err(error)) if *selector != DeviceSelector::Auto => return Err(error),
                Some(Err(error)) => error.to_string(),
                None => "has another name".to_owned(),
            };
            found.push(format!("{name}: {reason}"));
        }
        Err(VerbsError::NoDevice {
            wanted: selector.to_string(),
            found,
        })
    }

    /// Takes a device that the application has opened, with its first active port. The application closes it, and has to keep it
    /// open until [`adopted`](super::adopted) counts it no more. A team or a QP that was made on it may be the last to let it go.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for null, or for a context that is adopted already: clone the first result instead. Also
    /// [`VerbsError::Capability`] for a context of another copy of libibverbs than the one loaded here. The same for a context of
    /// another provider than libmlx5, or without DevX. As [`Context::open`].
    ///
    /// # Safety
    ///
    /// `raw` is null or a `struct ibv_context *` that is open, and stays open until the result, and everything that was made through
    /// it, has been dropped.
    pub unsafe fn adopt(raw: *mut c_void) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { Self::adopt_with_gid(raw, None, &GidChoice::Auto) }
    }

    /// As [`Context::adopt`], with this port, to speak from the GID that `gid` names.
    ///
    /// # Errors
    ///
    /// As [`Context::adopt`] and [`Context::open_with_gid`].
    ///
    /// # Safety
    ///
    /// As [`Context::adopt`].
    pub unsafe fn adopt_with_gid(
        raw: *mut c_void,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Arc<Self>, VerbsError> {
        let rdma = Rdma::load()?;
        // SAFETY: the caller's promise.
        let (raw, device) = unsafe { adopt::checked(rdma, raw) }?;
        // SAFETY: a device outlives the contexts of it.
        let info = unsafe { DeviceInfo::of(rdma, device) };
        info.check_provider()?;
        let open = OpenDevice {
            rdma,
            raw,
            adoption: Some(Adoption::of_context(raw, &info.name)?),
            name: info.name.clone(),
            commands: AtomicU64::new(0),
        };
        let context = Self::with(open, info, port, gid).map_err(adopt::without_devx)?;
        Ok(Arc::new(context))
    }

    fn open_device(
        device: NonNull<ibv_device>,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Self, VerbsError> {
        info.check_provider()?;
        let open = OpenDevice::new(device, &info.name)?;
        Self::with(open, info, port, gid)
    }

    /// Asks an open device what it is.
    fn with(
        open: OpenDevice,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Self, VerbsError> {
        let port = match port {
            Some(port) => PortInfo::query(&open, &info, port)?,
            None => first_active(&open, &info)?,
        };
        let caps = Caps::query(&open, port.link_layer)?;
        let gids = GidEntry::query(&open, &port)?;
        let named_gid = GidEntry::named(&gids, gid, &info.name, &port)?;
        Ok(Self {
            info,
            caps,
            port,
            gids,
            named_gid,
            pages: Mutex::default(),
            shared_register: Mutex::default(),
            own_counters: Mutex::default(),
            counters_refused: AtomicBool::new(false),
            port_again_refused: AtomicBool::new(false),
            open,
        })
    }

    /// Kernel name, `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// What the list says about the device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Capabilities, as read and checked at opening.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// The port, as it was at opening.
    #[must_use]
    pub fn port(&self) -> &PortInfo {
        &self.port
    }

    /// All GIDs of the port, as they were at opening.
    #[must_use]
    pub fn gids(&self) -> &[GidEntry] {
        &self.gids
    }

    /// The GID at `index` of the port's table.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] if the table has no entry at `index`.
    pub fn gid(&self, index: u32) -> Result<Gid, VerbsError> {
        self.source_gid(Some(index)).map(|entry| entry.gid)
    }

    /// The entry at `index` of the port's table; without an index [`Context::own_gid`].
    pub(crate) fn source_gid(&self, index: Option<u32>) -> Result<GidEntry, VerbsError> {
        let Some(index) = index else {
            return self.own_gid();
        };
        let entry = self.gids.iter().find(|entry| entry.index == index);
        entry.copied().ok_or_else(|| {
            let known: Vec<_> = self.gids.iter().map(|entry| entry.index).collect();
            VerbsError::argument("GID index", index, format!("one of {known:?}"))
        })
    }

    /// The GID that the runtime speaks from: the one that was named when the device was opened. Else on Ethernet RoCEv2, routable
    /// before link-local, IPv4 before IPv6, lowest index first; on InfiniBand the first.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the port has none.
    pub fn own_gid(&self) -> Result<GidEntry, VerbsError> {
        let chosen = self
            .named_gid
            .or_else(|| GidEntry::choose(&self.gids, self.port.link_layer));
        chosen.ok_or_else(|| self.lacks_gid("a RoCEv2 GID: an IP address on the port's interface"))
    }

    /// The RoCEv2 GID from which packets reach `remote`: of the same address family, as [`Context::own_gid`] chooses.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the port has none.
    pub fn roce_v2_gid_towards(&self, remote: &Gid) -> Result<GidEntry, VerbsError> {
        let own = self.named_gid.as_ref().map(std::slice::from_ref);
        GidEntry::towards(own.unwrap_or(&self.gids), remote).ok_or_else(|| {
            self.lacks_gid(format!("a RoCEv2 GID of the address family of {remote}"))
        })
    }

    fn lacks_gid(&self, needed: impl ToString) -> VerbsError {
        let of_roce_v2 = self.gids.iter().filter(|entry| entry.roce_v2).count();
        let has = format!("{} entries, {of_roce_v2} of RoCEv2", self.gids.len());
        self.open.lacks("GID table", has, needed)
    }

    /// Refuses a port that has gone down since the device was opened.
    pub(crate) fn check_port(&self) -> Result<(), VerbsError> {
        PortInfo::query(&self.open, &self.info, self.port.number).map(drop)
    }

    pub(super) fn rdma(&self) -> &'static Rdma {
        self.open.rdma
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.open.raw()
    }

    /// Number of the event queue that CQs are created on; the runtime never arms one, so it stays silent.
    pub(super) fn event_queue(&self) -> Result<u32, VerbsError> {
        let mut eqn = u32::MAX;
        // SAFETY: the context is open, and `eqn` lives through the call.
        let errno = unsafe {
            self.rdma()
                .mlx5dv_devx_query_eqn(self.raw(), 0, &raw mut eqn)
        };
        match errno {
            0 if eqn < 1 << 8 => Ok(eqn),
            0 => Err(self.bad_reply("eqn", eqn, "a number of 8 bits")),
            errno => Err(self.failed("mlx5dv_devx_query_eqn", errno)),
        }
    }

    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commands that have gone to the HCA through this context, refused ones too: those of QPs, CQs, keys, UMEMs and PDs.
    /// Address handles, events and what was asked when the device was opened by libibverbs itself are not counted.
    #[must_use]
    pub(crate) fn commands(&self) -> u64 {
        self.open.commands.load(Ordering::Relaxed)
    }

    pub(super) fn count_command(&self) {
        self.open.count_command();
    }

    /// Something is left on the device that the HCA would not end. An application that has handed its context over keeps it: the
    /// context stays counted. The kernel ends what is left on one that was opened here when that is closed.
    pub(super) fn keep_adopted(self: &Arc<Self>) {
        if self.open.adoption.is_some() {
            std::mem::forget(Arc::clone(self));
        }
    }

    pub(super) fn device(&self) -> &OpenDevice {
        &self.open
    }

    /// A failed call of libibverbs on this device.
    pub(super) fn failed(&self, call: &'static str, errno: i32) -> VerbsError {
        self.open.failed(call, errno)
    }

    /// A refused command of this device.
    pub(super) fn refused(&self, source: CommandError) -> VerbsError {
        self.open.refused(source)
    }

    /// A reply of this device that cannot be.
    pub(super) fn bad_reply(
        &self,
        what: &'static str,
        value: impl ToString,
        limit: impl ToString,
    ) -> VerbsError {
        VerbsError::BadReply {
            device: self.info.name.clone(),
            what,
            value: value.to_string(),
            limit: limit.to_string(),
        }
    }
}

/// The first port of a device that is active; what keeps each from it, if none is.
fn first_active(device: &OpenDevice, info: &DeviceInfo) -> Result<PortInfo, VerbsError> {
    let mut first = None;
    for number in 1..=MOST_PORTS {
        match PortInfo::query(device, info, number) {
            Ok(port) => return Ok(port),
            // No such port: the one before was the last.
            Err(VerbsError::Call { .. } | VerbsError::BadArgument { .. }) if first.is_some() => {
                break;
            }
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| device.lacks("port", "none", "an active one")))
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.info.name)
    }
}

/// The context of libibverbs; closed when dropped, unless the application closes it.
pub(super) struct OpenDevice {
    rdma: &'static Rdma,
    raw: NonNull<ibv_context>,
    /// None: it was opened here.
    adoption: Option<Adoption>,
    name: String,
    /// Commands to the HCA so far.
    commands: AtomicU64,
}

// SAFETY: libibverbs contexts may be used from any thread, also at the same time (ibv_open_device(3), "thread safe").
unsafe impl Send for OpenDevice {}
// SAFETY: as for Send.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    fn new(device: NonNull<ibv_device>, name: &str) -> Result<Self, VerbsError> {
        let rdma = Rdma::load()?;
        let mut attr = mlx5dv_context_attr {
            flags: MLX5DV_CONTEXT_FLAGS_DEVX,
            comp_mask: 0,
        };
        // SAFETY: `device` is in a list that the caller has not freed; `attr` lives through the call.
        let raw = unsafe { rdma.mlx5dv_open_device(device.as_ptr(), &raw mut attr) };
        match NonNull::new(raw) {
            Some(raw) => Ok(Self {
                rdma,
                raw,
                adoption: None,
                name: name.to_owned(),
                commands: AtomicU64::new(0),
            }),
            None => Err(VerbsError::Call {
                call: "mlx5dv_open_device (with DevX)",
                device: name.to_owned(),
                errno: last_errno(),
                memory: None,
            }),
        }
    }

    pub(super) fn rdma(&self) -> &'static Rdma {
        self.rdma
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.raw.as_ptr()
    }

    /// Takes down that a command goes to the HCA now, whatever it says.
    pub(super) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, call: &'static str, errno: i32) -> VerbsError {
        VerbsError::Call {
            call,
            device: self.name.clone(),
            errno,
            memory: None,
        }
    }

    pub(super) fn refused(&self, source: CommandError) -> VerbsError {
        VerbsError::Command {
            device: self.name.clone(),
            source,
        }
    }

    /// Something that the device lacks.
    pub(super) fn lacks(
        &self,
        what: &'static str,
        has: impl ToString,
        needed: impl ToString,
    ) -> VerbsError {
        VerbsError::Capability {
            device: self.name.clone(),
            what,
            has: has.to_string(),
            needed: needed.to_string(),
        }
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.adoption.is_some() {
            return;
        }
        // SAFETY: the context is open, and every object of it holds a reference to `self`'s owner, so none is left.
        let errno = unsafe { self.rdma.ibv_close_device(self.raw.as_ptr()) };
        if errno != 0 {
            tracing::error!("{}", self.failed("ibv_close_device", errno));
        }
    }
}

/// `errno` of this thread's last failed call; EIO if the call set none.
pub(super) fn last_errno() -> i32 {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(errno) if errno != 0 => errno,
        _ => libc::EIO,
    }
}
