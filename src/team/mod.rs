//! Ranks, windows, the peer table in device memory, the rendezvous store.
//!
//! [`Team::join`] is collective: every rank makes its QPs to every other, they exchange numbers through the store and
//! connect. What kernels need is then in device memory, behind one address that does not move. A rank that fails in a
//! collective call tells the others, which end soon after with its error.

// UNSAFETY: gives device memory that the team owns to the control heap.
#![expect(unsafe_code, reason = "control heap over memory that the team owns")]

mod config;
mod error;
mod exchange;
mod links;
mod store;
mod tables;
mod window;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::abi::{QpContext, Window};
use crate::config::Config;
use crate::error::Error;
use crate::gpu::{self, DeviceMemory, Gpu, GpuSelector};
use crate::verbs::{Context, ControlHeap, DeviceSelector, HEAP_ALIGN, HeapStats, Pd};

pub use config::{MAX_QPS_PER_PEER, MAX_RANKS, MAX_WINDOWS, TeamConfig};
pub use error::TeamError;
use exchange::Exchange;
use links::Links;
pub use store::{FileStore, MemoryStore, Store, StoreError, open_store};
use tables::Tables;
use window::OwnedWindow;

/// The team as one rank holds it. Dropping it destroys the QPs and frees the windows: no kernel may use them any more, and a
/// [`Team::barrier`] before makes sure that no peer writes to them.
#[derive(Debug)]
pub struct Team {
    config: TeamConfig,
    exchange: Exchange,
    gpu: Arc<dyn Gpu>,
    tables: Tables,
    links: Links,
    windows: Mutex<Vec<OwnedWindow>>,
    pd: Arc<Pd>,
    control: Control,
}

/// The control heap and the memory it lies in.
#[derive(Debug)]
struct Control {
    heap: Option<Arc<ControlHeap>>,
    memory: Option<DeviceMemory>,
}

impl Team {
    /// Joins the team that meets in `store`, as rank `config.rank`, with the device `context` and kernels on `gpu`.
    ///
    /// # Errors
    /// What is wrong here, or at another rank ([`TeamError::PeerFailed`]), or between two ([`TeamError::Mismatch`]); ranks
    /// that do not come within `config.timeout`. Everything that was made has been taken down again.
    pub fn join(
        config: TeamConfig,
        context: &Arc<Context>,
        gpu: &Arc<dyn Gpu>,
        store: Arc<dyn Store>,
    ) -> Result<Arc<Self>, TeamError> {
        let exchange = Exchange::new(store, config.rank, config.ranks, config.timeout);
        let joined = Self::join_with(config, context, gpu, &exchange);
        told(&exchange, joined).map(Arc::new)
    }

    /// Joins as `config` says: opens the device, the GPU and the store that it names. A team of one needs no store.
    ///
    /// # Errors
    /// What cannot be opened; as [`Team::join`].
    pub fn start(config: &Config) -> Result<Arc<Self>, Error> {
        let store: Arc<dyn Store> = match (config.ranks, config.store.as_str()) {
            (1, "") => Arc::new(MemoryStore::new()),
            (_, url) => open_store(url, &config.run_id)?,
        };
        let selector = match config.device.as_str() {
            "auto" => DeviceSelector::Auto,
            name => DeviceSelector::Name(name.to_owned()),
        };
        let team = TeamConfig {
            qps_per_peer: config.qps_per_peer,
            log_depth: config.log_depth,
            timeout: config.join_timeout,
            deadline: config.deadline,
            ..TeamConfig::new(config.rank, config.ranks)
        };
        let open = || -> Result<_, Error> {
            let context = Context::open(&selector)?;
            let gpu = gpu::open_for(config.gpu.parse::<GpuSelector>()?, context.info().is_soft())?;
            Ok((context, gpu))
        };
        match open() {
            Ok((context, gpu)) => Ok(Self::join(team, &context, &gpu, store)?),
            Err(error) => {
                let exchange = Exchange::new(store, config.rank, config.ranks, config.join_timeout);
                exchange.fail_with(&error.to_string());
                Err(error)
            }
        }
    }

    fn join_with(
        config: TeamConfig,
        context: &Arc<Context>,
        gpu: &Arc<dyn Gpu>,
        exchange: &Exchange,
    ) -> Result<Self, TeamError> {
        config.check()?;
        exchange.enter()?;
        exchange.agree("config", &config.agreed())?;
        let pd = Pd::new(context)?;
        let control = Control::new(context, gpu.as_ref(), &config)?;
        let links = Links::connect(exchange, gpu.as_ref(), &pd, control.heap(), &config)?;
        let tables = Tables::new(gpu, &config, &links.contexts(&config))?;
        Ok(Self {
            config,
            exchange: exchange.clone(),
            gpu: Arc::clone(gpu),
            tables,
            links,
            windows: Mutex::default(),
            pd,
            control,
        })
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.config.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.config.ranks
    }

    /// How it was joined.
    #[must_use]
    pub fn config(&self) -> &TeamConfig {
        &self.config
    }

    /// Where kernels of this rank run.
    #[must_use]
    pub fn gpu(&self) -> &Arc<dyn Gpu> {
        &self.gpu
    }

    /// Device address of the [`TeamContext`](crate::abi::TeamContext).
    #[must_use]
    pub fn context_addr(&self) -> u64 {
        self.tables.addr()
    }

    /// What the control heap holds.
    #[must_use]
    pub fn control_stats(&self) -> HeapStats {
        self.control.heap().stats()
    }

    /// Makes a window of `bytes` at every rank, zeroed. It lives as long as the team. Collective: all ranks make their windows
    /// in the same order.
    ///
    /// # Errors
    /// A size outside the limits or different at another rank; more than [`MAX_WINDOWS`] windows; what HCA and device refuse.
    pub fn window(&self, bytes: u64) -> Result<Window, TeamError> {
        let mut windows = self.windows();
        let made = self.make_window(windows.len(), bytes);
        let owned = told(&self.exchange, made)?;
        let window = owned.window;
        windows.push(owned);
        Ok(window)
    }

    fn make_window(&self, made: usize, bytes: u64) -> Result<OwnedWindow, TeamError> {
        let id = u32::try_from(made)
            .ok()
            .filter(|id| *id < MAX_WINDOWS)
            .ok_or_else(|| {
                TeamError::limit(
                    "number of windows",
                    made + 1,
                    format!("at most {MAX_WINDOWS}"),
                )
            })?;
        let gpu = self.gpu.as_ref();
        let owned = OwnedWindow::new(&self.exchange, gpu, &self.pd, &self.config, id, bytes)?;
        self.tables.write_window(id, &owned.entries)?;
        Ok(owned)
    }

    /// Compares `pairs` of name and value between all ranks, under a `topic` that is used once. Collective.
    ///
    /// # Errors
    /// The first difference, by both ranks and both values.
    pub fn agree(&self, topic: &str, pairs: &[(String, String)]) -> Result<(), TeamError> {
        told(&self.exchange, self.exchange.agree(topic, pairs))
    }

    /// Waits until every rank has called it with the same `name`, which is used once.
    ///
    /// # Errors
    /// Ranks that do not come within the team's timeout, or have failed.
    pub fn barrier(&self, name: &str) -> Result<(), TeamError> {
        told(&self.exchange, self.exchange.barrier(name))
    }

    /// Whether another rank has told that it gives up.
    ///
    /// # Errors
    /// Its error.
    pub fn check_peers(&self) -> Result<(), TeamError> {
        self.exchange.failure()
    }

    /// Tells the others that this rank gives up, and why.
    pub fn give_up(&self, message: &str) {
        self.exchange.fail_with(message);
    }

    /// Sets the longest wait of device calls that start from now on.
    ///
    /// # Errors
    /// The device's.
    pub fn set_deadline(&self, deadline: Duration) -> Result<(), TeamError> {
        self.tables.write_config(deadline, false)
    }

    /// Ends every wait of every running and later device call with `aborted`.
    ///
    /// # Errors
    /// The device's.
    pub fn abort(&self) -> Result<(), TeamError> {
        self.tables.write_config(self.config.deadline, true)?;
        for qp in self.links.qps() {
            let word = std::mem::offset_of!(QpContext, abort) as u64;
            let one = 1u32.to_le_bytes();
            self.gpu.write(qp.layout().context_addr + word, &one)?;
        }
        Ok(())
    }

    fn windows(&self) -> MutexGuard<'_, Vec<OwnedWindow>> {
        // A panic elsewhere under the lock leaves the list whole.
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    fn new(context: &Arc<Context>, gpu: &dyn Gpu, config: &TeamConfig) -> Result<Self, TeamError> {
        let bytes = match config.control_bytes {
            0 => config.needed_control_bytes(),
            bytes => bytes,
        };
        let length = usize::try_from(bytes)
            .map_err(|_| TeamError::limit("control_bytes", bytes, usize::MAX))?;
        let align = usize::try_from(HEAP_ALIGN).expect("a page");
        let memory = gpu.alloc(length, align)?;
        // SAFETY: `memory` is device memory, to which no Rust reference exists; `drop` frees it after the heap, or never.
        let heap = unsafe { ControlHeap::new(context, memory.addr(), length) }?;
        Ok(Self {
            heap: Some(heap),
            memory: Some(memory),
        })
    }

    fn heap(&self) -> &Arc<ControlHeap> {
        self.heap.as_ref().expect("taken in drop only")
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let left = self
            .heap
            .take()
            .map_or(0, |heap| Arc::strong_count(&heap) - 1);
        if left != 0 {
            // A QP that the HCA would not destroy still uses its rings, so they are never given to anybody else.
            tracing::error!("{left} users of the control heap are left: its memory is kept");
            std::mem::forget(self.memory.take());
        }
    }
}

/// Passes `result` on; an error that began here is told to the other ranks.
fn told<T>(exchange: &Exchange, result: Result<T, TeamError>) -> Result<T, TeamError> {
    if let Err(error) = &result
        && !error.is_remote()
    {
        exchange.fail_with(&error.to_string());
    }
    result
}
