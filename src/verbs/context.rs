//! An open device.

// UNSAFETY: takes a context that the application has opened.
#![expect(unsafe_code, reason = "a context of libibverbs by address")]

use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::config::GidChoice;
use crate::sys::Rdma;
use crate::sys::bindings::{ibv_context, ibv_device};
use crate::verbs::bond::Bond;
use crate::verbs::counters::{CounterSet, OwnCounters};
use crate::verbs::device::adopt;
use crate::verbs::device::caps::Caps;
use crate::verbs::device::gids::GidEntry;
use crate::verbs::device::list::{DeviceInfo, DeviceList, DeviceSelector};
use crate::verbs::device::open::OpenDevice;
use crate::verbs::device::own_port::OwnPort;
use crate::verbs::device::port::PortInfo;
use crate::verbs::device::traffic_class::TrafficClass;
use crate::verbs::error::VerbsError;
use crate::verbs::gid::Gid;
use crate::verbs::uar::Registers;

/// An open device with DevX, an active port and the properties that the runtime needs. Every object made through it keeps it open.
pub struct Context {
    own: OwnPort,
    caps: Caps,
    registers: Registers,
    counters: OwnCounters,
    bond: Bond,
    /// The open device. If it was opened here, it is closed with the last object made through it.
    device: Arc<OpenDevice>,
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

    /// Opens a device as `open` does, with this port; without one, with its first active port.
    ///
    /// # Errors
    ///
    /// As [`Context::open`].
    pub fn open_port(selector: &DeviceSelector, port: Option<u8>) -> Result<Arc<Self>, VerbsError> {
        Self::open_with_gid(selector, port, &GidChoice::Auto)
    }

    /// Opens a device as [`Context::open_port`] does, with `gid` as the choice of the own GID.
    ///
    /// # Errors
    ///
    /// As [`Context::open`]; [`VerbsError::BadArgument`] with the port's GID table if no entry fits `gid`.
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

    /// Adopts a device that the application has opened, with its first active port. The application closes the device itself, and keeps it
    /// open until [`adopted`](crate::verbs::adopted) returns 0 for it. The last user may be a team or a QP that was made on it.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for null, or for a context that is adopted already: clone the first result instead.
    /// [`VerbsError::Capability`] for a context of another copy of libibverbs than the one loaded here, of another provider than libmlx5,
    /// or without DevX. The errors of [`Context::open`].
    ///
    /// # Safety
    ///
    /// `raw` is null or an open `struct ibv_context *`. It stays open until the result, and everything made through the result, has been
    /// dropped.
    pub unsafe fn adopt(raw: *mut c_void) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the caller's promise.
        unsafe { Self::adopt_with_gid(raw, None, &GidChoice::Auto) }
    }

    /// Adopts a device as [`Context::adopt`] does, with this port and with `gid` as the choice of the own GID.
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
        let device = OpenDevice::adopt(rdma, raw, &info.name)?;
        let context = Self::with(device, info, port, gid).map_err(adopt::without_devx)?;
        Ok(Arc::new(context))
    }

    fn open_device(
        device: NonNull<ibv_device>,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Self, VerbsError> {
        info.check_provider()?;
        let device = OpenDevice::open(device, &info.name)?;
        Self::with(device, info, port, gid)
    }

    /// Reads the properties of an open device.
    fn with(
        device: Arc<OpenDevice>,
        info: DeviceInfo,
        port: Option<u8>,
        gid: &GidChoice,
    ) -> Result<Self, VerbsError> {
        let own = OwnPort::query(&device, info, port, gid)?;
        let caps = Caps::query(&device, own.port().link_layer)?;
        let registers = Registers::new(&device, own.info().is_soft());
        let counters = OwnCounters::new(&device, caps.counter_sets);
        Ok(Self {
            own: own.with_log_reads(caps.log_max_ra_res_qp),
            caps,
            registers,
            counters,
            bond: Bond::default(),
            device,
        })
    }

    /// Returns the name that the kernel gives the device, for example `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.own.info().name
    }

    /// Returns what the list of devices says about the device.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.own.info()
    }

    /// Returns the capabilities, as read and checked at opening.
    #[must_use]
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Returns the port, as it was at opening.
    #[must_use]
    pub fn port(&self) -> &PortInfo {
        self.own.port()
    }

    /// Returns all GIDs of the port, as they were at opening.
    #[must_use]
    pub fn gids(&self) -> &[GidEntry] {
        self.own.gids()
    }

    /// Returns the GID at `index` of the port's table.
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] if the table has no entry at `index`.
    pub fn gid(&self, index: u32) -> Result<Gid, VerbsError> {
        self.source_gid(Some(index)).map(|entry| entry.gid)
    }

    /// Returns the entry at `index` of the port's table. Without an index, returns [`Context::own_gid`].
    pub(crate) fn source_gid(&self, index: Option<u32>) -> Result<GidEntry, VerbsError> {
        self.own.source_gid(index)
    }

    /// Returns the own GID of the runtime's packets. If the caller named one at opening, it is that GID. Otherwise, on Ethernet, it is a
    /// RoCEv2 GID: a routable one before a link-local one, IPv4 before IPv6, the lowest index first. On InfiniBand it is the first GID.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the port has none.
    pub fn own_gid(&self) -> Result<GidEntry, VerbsError> {
        self.own.own_gid()
    }

    /// Returns the RoCEv2 GID from which packets reach `remote`: one of the same address family, chosen as [`Context::own_gid`] chooses.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the port has none.
    pub fn roce_v2_gid_towards(&self, remote: &Gid) -> Result<GidEntry, VerbsError> {
        self.own.roce_v2_gid_towards(remote)
    }

    /// Returns the traffic class of this port's packets: `wanted`, else what the system has set for the port, else 0.
    #[must_use]
    pub fn traffic_class(&self, wanted: Option<u8>) -> TrafficClass {
        self.own.traffic_class(wanted)
    }

    /// Refuses a port that has gone down since the device was opened.
    pub(crate) fn check_port(&self) -> Result<(), VerbsError> {
        let (info, port) = (self.own.info(), self.own.port());
        PortInfo::query(&self.device, info, port.number).map(drop)
    }

    /// Returns the port with its addresses.
    pub(crate) fn own_port(&self) -> &OwnPort {
        &self.own
    }

    pub(super) fn device(&self) -> &Arc<OpenDevice> {
        &self.device
    }

    pub(super) fn registers(&self) -> &Registers {
        &self.registers
    }

    pub(super) fn counters(&self) -> &OwnCounters {
        &self.counters
    }

    pub(super) fn bond(&self) -> &Bond {
        &self.bond
    }

    pub(super) fn rdma(&self) -> &'static Rdma {
        self.device.rdma()
    }

    pub(super) fn raw(&self) -> *mut ibv_context {
        self.device.raw()
    }

    /// Returns the number of commands that have gone to the HCA through this context, refused ones included: commands for QPs, CQs, keys,
    /// UMEMs and PDs. Not counted are address handles, events, and what libibverbs itself asked when the device was opened.
    #[must_use]
    pub(crate) fn commands(&self) -> u64 {
        self.device.commands()
    }

    pub(super) fn count_command(&self) {
        self.device.count_command();
    }

    /// Returns the error of a failed call of libibverbs on this device.
    pub(super) fn failed(&self, call: &'static str, errno: i32) -> VerbsError {
        self.device.failed(call, errno)
    }
}

impl CounterSet {
    /// Returns the context's counter set, after making it if it does not exist yet.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Capability`] if the device has no counter sets; the HCA's answer.
    pub fn of(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        context.counters.get()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.name())
    }
}
