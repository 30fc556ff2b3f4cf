//! Queue pairs, with one type for each state.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{QpModifyIn, QpState};
use mlx5_prm::qpc::{Ads, Qpc};

use crate::verbs::context::Context;
use crate::verbs::counters::CounterSet;
use crate::verbs::error::VerbsError;
use crate::verbs::events::Events;
use crate::verbs::mailbox::Mailbox;
use crate::verbs::memory::heap::ControlHeap;
use crate::verbs::memory::pd::Pd;
use crate::verbs::qp::attr::{PathAttr, SendAttr, atomic_mode, udp_source_port};
use crate::verbs::qp::blocks::{Blocks, QpPlaces};
use crate::verbs::qp::core::{Change, QpCore};
use crate::verbs::qp::image::{ImageAttr, QpLayout};
use crate::verbs::qp::shape::QpConfig;
use crate::verbs::qp::shared_cq::SharedCq;
use crate::verbs::uar::DoorbellRegister;

/// States into which software moves a QP. `Err` is absent: the HCA enters it by itself, and every state has [`Qp::reset`] as the way out of
/// it.
pub trait State: sealed::Sealed + Send + Sync + 'static {}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* #[derive(Debug)] pub enum $name {} impl State for $name {} impl sealed::Sealed for $name {})*
    };
}

states! {
    /// Created, or reset after an error. Nothing runs, and its memory may be written.
    Reset,
    /// Has granted the peer its rights.
    Init,
    /// Knows its peer and executes the peer's requests.
    Rtr,
    /// Executes posted work too.
    Rts,
}

/// An RC queue pair in state `S`. No other QP shares its CQs, except in the engine, where a CQ serves many QPs. The drop of a `Qp` destroys
/// QP and CQs and gives the QP's blocks back to the control heap. If the HCA refuses that, the blocks stay taken.
///
/// A QP that is not ready cannot be asked to send:
///
/// ```compile_fail,E0599
/// # use warpverbs::verbs::{Qp, Reset, SendAttr};
/// fn too_early(qp: Qp<Reset>) {
///     let _ = qp.ready_to_send(&SendAttr::new(0));
/// }
/// ```
pub struct Qp<S: State> {
    core: Box<QpCore>,
    state: PhantomData<S>,
}

impl<S: State> fmt::Debug for Qp<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Qp<{}>({:#x} of {:?})",
            state_name::<S>(),
            self.qpn(),
            self.context()
        )
    }
}

/// A transition that failed, with the QP in its old state.
#[derive(Debug, thiserror::Error)]
#[error("QP {:#x} stays in {}: {source}", .qp.qpn(), state_name::<S>())]
pub struct TransitionError<S: State> {
    /// The QP in its old state.
    pub qp: Qp<S>,
    /// The error of the command.
    pub source: VerbsError,
}

/// Destroys the QP, for callers that give it up, and returns the error.
impl<S: State> From<Box<TransitionError<S>>> for VerbsError {
    fn from(error: Box<TransitionError<S>>) -> Self {
        error.source
    }
}

/// What the HCA says about a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpStatus {
    /// The QP's state, which may be `ERR` whatever the type says.
    pub state: QpState,
    /// Number of WQEBBs that the HCA has taken from the send queue, modulo 2^16.
    pub hw_sq_wqebb_counter: u16,
    /// Number of the next packet to send.
    pub next_send_psn: u32,
    /// Number of the next packet that the QP expects.
    pub next_rcv_psn: u32,
    /// Options of enhanced connection establishment in force. Before Ready To Receive these are the options that the QP has, then those
    /// that both ends have.
    pub ece: u32,
}

impl Qp<Reset> {
    /// Creates a QP and its CQs: one doorbell register, three to six blocks, two or three commands.
    ///
    /// A control heap alone is enough for [`Queues::Device`](crate::verbs::Queues) without mailboxes. [`Qp::write_image`] writes the bytes
    /// that the memory must hold before [`Qp::init`].
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a shape that the device does not have, a heap of another context or a missing place.
    /// [`VerbsError::Capability`] for a mode that the device lacks. Otherwise the error of the step that failed. After an error everything
    /// that was made has been taken down.
    pub fn create<'a>(
        pd: &Arc<Pd>,
        places: impl Into<QpPlaces<'a>>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        QpCore::create(pd, &places.into(), config).map(Self::of)
    }

    /// Creates a QP to which this process posts, in the host memory of `heap`, and whose sends and receives complete in `cqs`. Whatever
    /// `config` says, the QP has [`Queues::Host`](crate::verbs::Queues) and a doorbell record.
    ///
    /// # Errors
    ///
    /// As [`Qp::create`]; [`VerbsError::BadArgument`] if a CQ has no room for all that the QP can post.
    pub(crate) fn create_on(
        pd: &Arc<Pd>,
        heap: &Arc<ControlHeap>,
        cqs: [&Arc<SharedCq>; 2],
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        QpCore::create_on(pd, heap, cqs, config).map(Self::of)
    }

    /// Writes everything that the QP's memory must hold before the QP leaves Reset. It writes host memory itself, and device memory by
    /// `device`, which copies bytes to an address. No kernel uses the QP meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of `device`.
    ///
    /// # Panics
    ///
    /// As [`QpLayout::context`].
    pub fn write_image<E>(
        &self,
        attr: &ImageAttr,
        mut device: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let parts = self.layout().image(attr);
        self.blocks().write(&parts, &mut device)?;
        if let Some(mailbox) = self.blocks().mailbox() {
            mailbox.set(attr.base);
        }
        Ok(())
    }

    /// Moves the QP from Reset to Init, which grants the peer its rights.
    ///
    /// # Errors
    ///
    /// The HCA's answer, with the QP in its old state.
    pub fn init(self) -> Result<Qp<Init>, Box<TransitionError<Reset>>> {
        let port = self.context().port();
        let change = port.pkey(self.config().pkey).map(|(pkey_index, _)| {
            let path = Ads::default()
                .with_vhca_port_num(port.number.into())
                .with_pkey_index(pkey_index.into());
            self.rights()
                .with_pm_state(Qpc::PM_STATE_MIGRATED)
                .with_counter_set_id(self.counters().map_or(0, |set| set.id().into()))
                .with_lag_tx_port_affinity(self.lag_port())
                .with_primary_address_path(path)
                .into()
        });
        self.advance(Opcode::RST2INIT_QP, change)
    }
}

impl Qp<Init> {
    /// Moves the QP from Init to Ready To Receive. From then on it executes the peer's requests.
    ///
    /// # Errors
    ///
    /// What is wrong with `path`, or the HCA's answer, with the QP in its old state.
    pub fn ready_to_receive(
        mut self,
        path: &PathAttr,
    ) -> Result<Qp<Rtr>, Box<TransitionError<Init>>> {
        self.core.agree_on_ece(path.ece);
        let change = self.receive_fields(path);
        self.advance(Opcode::INIT2RTR_QP, change)
    }

    fn receive_fields(&self, path: &PathAttr) -> Result<Change, VerbsError> {
        let context = self.context();
        let mtu = path.check(context.port())?;
        let caps = context.caps();
        let source_port = udp_source_port(caps, self.qpn(), path.remote_qpn, path.rail);
        let pd = self.core.pd();
        let (pkey_index, _) = context.port().pkey(self.config().pkey)?;
        let ads = path.address.path(pd, source_port)?;
        let ads = ads.with_pkey_index(pkey_index.into());
        let qpc = self
            .rights()
            .with_mtu(mtu as u32)
            .with_log_msg_max(u32::from(caps.log_max_msg).min(30))
            .with_remote_qpn(path.remote_qpn)
            .with_next_rcv_psn(path.psn)
            .with_dp_ordering_force(caps.dp_ordering_force.into())
            .with_min_rnr_nak(path.min_rnr_timer.into())
            .with_log_rra_max(caps.log_max_ra_res_qp.into())
            .with_primary_address_path(ads);
        let rights = QpModifyIn::OPT_RRE | QpModifyIn::OPT_RWE | QpModifyIn::OPT_RAE;
        Ok(match self.lag_port() {
            port if port != 0 && caps.init2_lag_tx_port_affinity => Change {
                qpc: qpc.with_lag_tx_port_affinity(port),
                options: rights | QpModifyIn::OPT_LAG_TX_AFF,
            },
            _ => Change {
                qpc,
                options: rights,
            },
        })
    }
}

impl Qp<Rtr> {
    /// Moves the QP from Ready To Receive to Ready To Send. From then on it executes posted work.
    ///
    /// # Errors
    ///
    /// What is wrong with `attr`, or the HCA's answer, with the QP. It may be in Ready To Send then: [`Qp::reset`] leads out.
    pub fn ready_to_send(self, attr: &SendAttr) -> Result<Qp<Rts>, Box<TransitionError<Rtr>>> {
        let own = self.context().caps().log_max_ra_req_qp;
        let log_sra_max = attr.log_peer_reads.map_or(own, |theirs| own.min(theirs));
        let change = attr.check().map(|()| {
            let path = Ads::default().with_ack_timeout(attr.timeout.into());
            Qpc::default()
                .with_next_send_psn(attr.psn)
                .with_retry_count(attr.retry.into())
                .with_rnr_retry(attr.rnr_retry.into())
                .with_log_ack_req_freq(attr.log_ack_req_freq.into())
                .with_log_sra_max(log_sra_max.into())
                .with_primary_address_path(path)
                .into()
        });
        let qp: Qp<Rts> = self.advance(Opcode::RTR2RTS_QP, change)?;
        if let Err(source) = qp.name_port_again() {
            let qp = qp.into_state();
            return Err(Box::new(TransitionError { qp, source }));
        }
        let blocks = qp.blocks();
        if let Some(mailbox) = blocks.mailbox() {
            mailbox.open(qp.qpn(), &blocks.register);
        }
        Ok(qp)
    }
}

impl Qp<Rts> {
    /// Names the port of the bond again (NCCL #2315): some firmware keeps the port named on the way to Ready To Receive only until here.
    /// If the port was taken in turn, a refusal is no error.
    fn name_port_again(&self) -> Result<(), VerbsError> {
        let context = self.context();
        let is_named = self.config().lag_port != 0;
        let takes_it = context.caps().rts2rts_lag_tx_port_affinity
            && (is_named || context.bond().takes_port_again());
        match self.lag_port() {
            port if port != 0 && takes_it => {
                let change = Change {
                    qpc: Qpc::default().with_lag_tx_port_affinity(port),
                    options: QpModifyIn::OPT_LAG_TX_AFF,
                };
                match self.core.modify(Opcode::RTS2RTS_QP, &change) {
                    Err(error) if !is_named => context.bond().leave_port(error),
                    named => named,
                }
            }
            _ => Ok(()),
        }
    }
}

impl<S: State> Qp<S> {
    /// Returns the port of the link aggregation group by which packets leave; 0 if the QP names no port.
    fn lag_port(&self) -> u32 {
        let caps = self.context().caps();
        self.config().lag_port_of(caps, Some(self.qpn())).into()
    }

    /// Moves the QP from any state to Reset, the first step of a recovery. The HCA forgets all posted WQEs and counts from 0 again. Before
    /// the QP leaves Reset, its memory must hold [`QpLayout::image`] with a new base, made from the layout *after* this call. A wide CQ,
    /// and the CQ of a receive queue, go on where they were.
    ///
    /// When this returns, no thread looks at the QP's mailbox any more.
    ///
    /// # Errors
    ///
    /// The HCA's answer, with the QP. It may be in Reset then; to call again does no harm.
    pub fn reset(mut self) -> Result<Qp<Reset>, Box<TransitionError<S>>> {
        let rings = self.blocks().mailbox().is_some_and(Mailbox::close);
        let done = self.core.modify(Opcode::TO_RST_QP, &Change::default());
        match done.and_then(|()| self.core.note_produced()) {
            Ok(()) => Ok(self.into_state()),
            Err(source) => {
                let blocks = self.blocks();
                if let Some(mailbox) = blocks.mailbox().filter(|_| rings) {
                    mailbox.open(self.qpn(), &blocks.register);
                }
                Err(Box::new(TransitionError { qp: self, source }))
            }
        }
    }

    /// Moves the QP from any state but Reset to Err: it sends, receives and acknowledges nothing any more, and everything that was posted
    /// completes in error. Returns when the HCA has done so. [`Qp::reset`] is the way out.
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn to_error(&self) -> Result<(), VerbsError> {
        self.core.modify(Opcode::TO_ERR_QP, &Change::default())
    }

    /// Asks the HCA for the QP's state. On silicon the command takes some hundred microseconds.
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn query(&self) -> Result<QpStatus, VerbsError> {
        let out = self.core.query()?;
        let qpc = out.qpc();
        #[expect(clippy::cast_possible_truncation, reason = "fields of 4 and 16 bits")]
        Ok(QpStatus {
            state: QpState(qpc.state() as u8),
            hw_sq_wqebb_counter: qpc.hw_sq_wqebb_counter() as u16,
            next_send_psn: qpc.next_send_psn(),
            next_rcv_psn: qpc.next_rcv_psn(),
            ece: out.ece(),
        })
    }

    /// Returns the whole context as the HCA has it (PRM "Queue Pair Context"), with all settings and counters. It takes as long as
    /// [`Qp::query`].
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn query_context(&self) -> Result<Qpc, VerbsError> {
        Ok(*self.core.query()?.qpc())
    }

    /// Destroys the QP, and returns an error if that failed. A plain drop only logs the error.
    ///
    /// # Errors
    ///
    /// The kernel's answer. The QP's memory is then kept for ever.
    pub fn destroy(self) -> Result<(), VerbsError> {
        // Otherwise the thread that rings would go on for a QP that the HCA refuses to destroy.
        if let Some(mailbox) = self.blocks().mailbox() {
            mailbox.close();
        }
        self.core.destroy()
    }

    /// Makes `events`, of the same device, report with this cookie when the QP fails.
    ///
    /// # Errors
    ///
    /// [`VerbsError::Call`].
    pub fn subscribe(&self, events: &Events, cookie: u64) -> Result<(), VerbsError> {
        self.core.subscribe(events, cookie)
    }

    /// Returns the QP number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.layout().qpn
    }

    /// Returns the layout. It stays the same for the life of the QP, through every reset, except how many completions the CQs held.
    #[must_use]
    pub fn layout(&self) -> &QpLayout {
        self.core.layout()
    }

    /// Returns the options of enhanced connection establishment that the HCA has for the QP, each a bit; 0 if it knows none. For the peer's
    /// [`PathAttr::ece`].
    #[must_use]
    pub fn ece(&self) -> u32 {
        self.core.ece()
    }

    /// Returns the shape of the QP.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        self.core.config()
    }

    /// Returns the bytes of control heap that the QP takes, those of a heap in host memory included.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        self.blocks().bytes()
    }

    /// Returns the QP's doorbell register.
    #[must_use]
    pub fn doorbell(&self) -> &Arc<DoorbellRegister> {
        &self.blocks().register
    }

    /// Returns the counter set that counts the QP's packets. None if the device's own set counts them.
    #[must_use]
    pub fn counters(&self) -> Option<&Arc<CounterSet>> {
        self.blocks().counters.as_ref()
    }

    /// Returns the number of doorbells that the host has rung for the QP. None without a mailbox.
    #[must_use]
    pub fn mailbox_doorbells(&self) -> Option<u64> {
        self.blocks().mailbox().map(Mailbox::doorbells)
    }

    pub(in crate::verbs::qp) fn blocks(&self) -> &Blocks {
        self.core.blocks()
    }

    /// Returns the peer's rights: it may write, read and, if the device can, do atomics.
    fn rights(&self) -> Qpc {
        let caps = self.context().caps();
        Qpc::default()
            .with_rwe(1)
            .with_rre(1)
            .with_rae(caps.atomics.into())
            .with_atomic_mode(atomic_mode(caps))
    }

    fn advance<T: State>(
        self,
        opcode: Opcode,
        change: Result<Change, VerbsError>,
    ) -> Result<Qp<T>, Box<TransitionError<S>>> {
        match change.and_then(|change| self.core.modify(opcode, &change)) {
            Ok(()) => Ok(self.into_state()),
            Err(source) => Err(Box::new(TransitionError { qp: self, source })),
        }
    }

    fn context(&self) -> &Arc<Context> {
        self.core.pd().context()
    }

    fn of(core: QpCore) -> Self {
        Self {
            core: Box::new(core),
            state: PhantomData,
        }
    }

    /// Returns this QP in state `T`, into which the caller knows the HCA to have moved it.
    fn into_state<T: State>(self) -> Qp<T> {
        Qp {
            core: self.core,
            state: PhantomData,
        }
    }
}

/// Returns the last part of the state's type name.
fn state_name<S>() -> &'static str {
    let name = std::any::type_name::<S>();
    name.rsplit("::").next().unwrap_or(name)
}

mod sealed {
    pub trait Sealed {}
}
