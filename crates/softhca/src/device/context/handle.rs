//! The handle of an opened device.

use crate::device::command::{self, Class};
use crate::device::config::EventSupport;
use crate::device::context::refuse::{no_context, own, refuse_busy};
use crate::device::counts::ObjectCounts;
use crate::device::error::DeviceError;
use crate::device::event::Event;
use crate::device::executor::execution::Execution;
use crate::device::faults::FailCommand;
use crate::device::limits;
use crate::device::names::DevxObject;
use crate::device::objects::uar::UarSpace;
use crate::device::state::users::{close_xrcd, pd_users};
use crate::device::state::{ContextState, HcaState};
use crate::device::table::Table;
use crate::device::world::World;
use crate::engine;
use mlx5_prm::cmd::Opcode;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// An opened device. Clones are the same context. [`Context::close`] ends it, as does dropping the last clone.
///
/// [`DeviceError::errno`] gives the `errno` values of its errors.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    world: Arc<World>,
    hca: usize,
    id: u32,
    space: Arc<UarSpace>,
}

impl Context {
    /// Offset of the first UAR page in the memfd. The bytes before it are free for other uses.
    pub const FIRST_UAR_OFFSET: u64 = UarSpace::FIRST_OFFSET;

    /// Opens a device.
    ///
    /// # Errors
    ///
    /// The device does not exist; there is no memory for the UAR space; a fault fails the call ([`FailCommand::ALLOC_UCTX`]).
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        Self::open_in(World::of_process(), name)
    }

    /// Opens a device of `world`.
    pub(crate) fn open_in(world: &Arc<World>, name: &str) -> Result<Self, DeviceError> {
        let mut fabric = world.lock();
        let number = fabric
            .by_name(name)
            .map(|slot| slot.state.number)
            .ok_or(DeviceError::NoDevice)?;
        let hca = fabric.hca(number).ok_or(DeviceError::NoDevice)?;
        hca.strike(Opcode(FailCommand::ALLOC_UCTX))?;
        let space = Arc::new(UarSpace::new()?);
        let limit = hca.contexts.limit();
        let id = hca
            .contexts
            .insert(ContextState {
                space: Arc::clone(&space),
                pages: Table::new(0, UarSpace::PAGES),
                handler: None,
                event_fds: 0,
            })
            .ok_or(DeviceError::Full {
                what: "context",
                limit,
            })?;
        drop(fabric);
        // An engine without an open device sleeps until this kick. From now on doorbells may come.
        engine::kick();
        Ok(Self {
            inner: Arc::new(Inner {
                world: Arc::clone(world),
                hca: number,
                id,
                space,
            }),
        })
    }

    /// Returns the memfd that is the UAR space. It lives as long as the context. Duplicate the descriptor to hand it out.
    #[must_use]
    pub fn uar_fd(&self) -> BorrowedFd<'_> {
        self.inner.space.fd()
    }

    /// Writes `bytes`, which the opener may read, at `offset` of [`Context::uar_fd`], before [`Context::FIRST_UAR_OFFSET`].
    pub(crate) fn publish(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.space.publish(offset, bytes)
    }

    /// Ends the context and all its objects. Later calls on clones find no objects.
    pub fn close(&self) {
        self.inner.close();
    }

    /// Returns the numbers of live objects of the device, in all contexts.
    #[must_use]
    pub fn live_objects(&self) -> ObjectCounts {
        let mut fabric = self.inner.world.lock();
        fabric
            .hca(self.inner.hca)
            .map_or_else(ObjectCounts::default, |hca| hca.live())
    }

    /// Makes a protection domain. Returns its number.
    ///
    /// # Errors
    ///
    /// No domain is left; a fault fails the call (`ALLOC_PD`).
    pub fn alloc_pd(&self) -> Result<u32, DeviceError> {
        self.with(|hca, context| {
            hca.strike(Opcode::ALLOC_PD)?;
            let limit = hca.pds.limit();
            hca.pds
                .insert(context)
                .ok_or(DeviceError::Full { what: "PD", limit })
        })
    }

    /// Ends a protection domain.
    ///
    /// # Errors
    ///
    /// Regions, keys or QPs use the domain (busy).
    pub fn dealloc_pd(&self, pdn: u32) -> Result<(), DeviceError> {
        self.with(|hca, context| {
            own(hca.pds.get(pdn) == Some(&context), "PD", pdn)?;
            refuse_busy("PD", pdn, pd_users(hca, pdn))?;
            hca.strike(Opcode::DEALLOC_PD)?;
            hca.pds.remove(pdn);
            Ok(())
        })
    }

    /// Gives the context the right to DevX.
    ///
    /// # Errors
    ///
    /// A fault fails the call ([`FailCommand::DEVX`]).
    pub fn allow_devx(&self) -> Result<(), DeviceError> {
        self.with(|hca, _| hca.strike(Opcode(FailCommand::DEVX)))
    }

    /// Returns the number of the event queue of a completion vector.
    ///
    /// # Errors
    ///
    /// The vector does not exist; a fault fails the call ([`FailCommand::QUERY_EQN`]).
    pub fn eqn(&self, vector: u32) -> Result<u32, DeviceError> {
        self.with(|hca, _| {
            hca.strike(Opcode(FailCommand::QUERY_EQN))?;
            if vector >= limits::COMPLETION_VECTORS {
                return Err(DeviceError::Range {
                    what: "completion vector",
                    value: vector.into(),
                    limit: (limits::COMPLETION_VECTORS - 1).into(),
                });
            }
            Ok(limits::FIRST_EQN + vector)
        })
    }

    /// Returns whether a port is active. A fault or a test may take a port down.
    #[must_use]
    pub fn port_is_up(&self, port: u8) -> bool {
        let mut fabric = self.inner.world.lock();
        fabric
            .hca(self.inner.hca)
            .is_some_and(|hca| !hca.is_down(port))
    }

    /// Returns whether programs may subscribe to events of objects if `of_object`, otherwise to events of the device.
    #[must_use]
    pub fn tells_events(&self, of_object: bool) -> bool {
        let mut fabric = self.inner.world.lock();
        fabric
            .hca(self.inner.hca)
            .is_some_and(|hca| match hca.told {
                EventSupport::All => true,
                EventSupport::Device => !of_object,
                EventSupport::None => false,
            })
    }

    /// Sets the function that gets the [`Event`]s of this context's objects. The function must not block.
    pub fn set_event_handler(&self, handler: impl Fn(Event) + Send + Sync + 'static) {
        let mut fabric = self.inner.world.lock();
        if let Some(hca) = fabric.hca(self.inner.hca)
            && let Some(open) = hca.contexts.get_mut(self.inner.id)
        {
            open.handler = Some(Arc::new(handler));
        }
    }

    /// Counts an event descriptor of this context in or out. Descriptors are made outside of the device, but count as objects.
    pub fn count_event_fd(&self, opened: bool) {
        let mut fabric = self.inner.world.lock();
        if let Some(hca) = fabric.hca(self.inner.hca)
            && let Some(open) = hca.contexts.get_mut(self.inner.id)
        {
            open.event_fds = if opened {
                open.event_fds + 1
            } else {
                open.event_fds.saturating_sub(1)
            };
        }
    }

    /// Runs `call` on the HCA, if this context is still open.
    pub(crate) fn with<T>(
        &self,
        call: impl FnOnce(&mut HcaState, u32) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let mut fabric = self.inner.world.lock();
        let now_ns = fabric.clock.now_ns();
        let hca = fabric.hca(self.inner.hca).ok_or(DeviceError::NoDevice)?;
        if hca.contexts.get(self.inner.id).is_none() {
            return Err(no_context(self.inner.id));
        }
        hca.now_ns = now_ns;
        let done = call(hca, self.inner.id)?;
        fabric.write_through(self.inner.hca)?;
        Ok(done)
    }

    /// Executes a command that is given as bytes.
    pub(super) fn execute(
        &self,
        class: Class,
        object: Option<DevxObject>,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<Option<DevxObject>, DeviceError> {
        let mut fabric = self.inner.world.lock();
        command::execute(
            &mut fabric,
            self.inner.hca,
            self.inner.id,
            class,
            object,
            input,
            output,
        )
    }

    /// Returns whether the HCA is external, so that it takes memory by its address alone.
    pub(super) fn is_external(&self) -> bool {
        let mut fabric = self.inner.world.lock();
        let hca = fabric.hca(self.inner.hca);
        hca.is_some_and(|hca| hca.execution == Execution::External)
    }
}

impl Inner {
    fn close(&self) {
        let mut fabric = self.world.lock();
        let engine = fabric.engine;
        let Some(slot) = fabric.slot(self.hca) else {
            return;
        };
        let id = self.id;
        // Objects are removed in the order in which they use each other: users first.
        for qpn in slot.state.qps.numbers(|qp| qp.context == id) {
            command::remove_qp(engine, slot, qpn);
        }
        let hca = &mut slot.state;
        for srqn in hca.srqs.numbers(|srq| srq.context == id) {
            command::remove_srq(hca, srqn);
        }
        for number in hca.xrcds.numbers(|xrcd| xrcd.is_open_in(id)) {
            while hca
                .xrcds
                .get(number)
                .is_some_and(|xrcd| xrcd.is_open_in(id))
            {
                close_xrcd(hca, number, id);
            }
        }
        for cqn in hca.cqs.numbers(|cq| cq.context == id) {
            command::remove_cq(hca, cqn);
        }
        for key in hca.keys.numbers(|key| key.context == id) {
            hca.keys.remove(key);
        }
        for umem in hca.umems.numbers(|umem| umem.context == id) {
            hca.umems.remove(umem);
        }
        for uar in hca.uars.numbers(|uar| uar.context == id) {
            hca.uars.remove(uar);
        }
        for pdn in hca.pds.numbers(|owner| *owner == id) {
            hca.pds.remove(pdn);
        }
        hca.contexts.remove(id);
        // This function has no caller that could take the error of a failed executor. If the executor still ran something of this context,
        // that would be the executor's own defect.
        let _ = fabric.write_through(self.hca);
        fabric.sweep(self.hca);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("hca", &self.inner.hca)
            .field("id", &self.inner.id)
            .finish()
    }
}
