//! Queue pairs, one type per state.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, QpModifyIn, QpModifyOut, QpState};
use mlx5_prm::qp::{QueryQpIn, QueryQpOut};
use mlx5_prm::qpc::{Ads, Qpc};

use super::command::DevxObject;
use super::context::{Context, PORT};
use super::cq::{Cq, CqPlace};
use super::error::VerbsError;
use super::heap::{ControlBlock, ControlHeap};
use super::image::QpLayout;
use super::path::resolve_mac;
use super::pd::Pd;
use super::qp_attr::{PathAttr, SendAttr, atomic_mode, udp_source_port};
use super::qp_config::QpConfig;
use super::uar::DoorbellRegister;
use crate::abi::{QpContext, WQEBB_BYTES};

/// States that software moves a QP through. `Err` is absent: the HCA enters it by itself, and the way out is [`Qp::reset`],
/// which every state has.
pub trait State: sealed::Sealed + Send + Sync + 'static {}

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])* #[derive(Debug)] pub enum $name {} impl State for $name {} impl sealed::Sealed for $name {})*
    };
}

states! {
    /// Created, or reset after an error. Nothing runs; its memory may be written.
    Reset,
    /// Has its rights.
    Init,
    /// Knows its peer and executes the peer's requests.
    Rtr,
    /// Executes posted work too.
    Rts,
}

/// An RC queue pair in state `S`, without a receive queue, with a CQ of one entry that nobody shares. Dropping it destroys
/// QP and CQ and gives its blocks back to the control heap; if the HCA refuses that, the blocks stay taken.
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

/// What every state has.
struct QpCore {
    /// First, so that the HCA's object goes before everything that it uses.
    object: DevxObject<QpMemory>,
    layout: QpLayout,
    config: QpConfig,
}

/// What the HCA's QP uses, in the order in which it is taken down.
#[derive(Debug)]
struct QpMemory {
    cq: Cq<QueueMemory>,
    pd: Arc<Pd>,
}

/// What both the CQ and the QP use.
#[derive(Debug)]
struct QueueMemory {
    register: Arc<DoorbellRegister>,
    context: ControlBlock,
    flags: ControlBlock,
    sq: ControlBlock,
}

/// A transition that failed, with the QP as it was.
#[derive(Debug, thiserror::Error)]
#[error("QP {:#x} stays in {}: {source}", .qp.qpn(), state_name::<S>())]
pub struct TransitionError<S: State> {
    /// The QP, unmoved.
    pub qp: Qp<S>,
    /// Why.
    pub source: VerbsError,
}

/// For callers that give the QP up: it is destroyed.
impl<S: State> From<Box<TransitionError<S>>> for VerbsError {
    fn from(error: Box<TransitionError<S>>) -> Self {
        error.source
    }
}

/// What the HCA says about a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStatus {
    /// Its state, which may be `ERR` whatever the type says.
    pub state: QpState,
    /// WQEBBs that the HCA has taken from the send queue, modulo 2^16.
    pub hw_sq_wqebb_counter: u16,
    /// Number of the next packet sent.
    pub next_send_psn: u32,
    /// Number of the next packet expected.
    pub next_rcv_psn: u32,
}

impl Qp<Reset> {
    /// Creates a QP and its CQ: one doorbell register, three blocks of `heap`, two commands.
    ///
    /// What `heap` must hold before [`Qp::init`] is [`QpLayout::image`] of [`Qp::layout`].
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a shape that the device does not have or a heap of another context; else what failed,
    /// after everything that was made has been taken down.
    pub fn create(
        pd: &Arc<Pd>,
        heap: &Arc<ControlHeap>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        config.check(context.name(), context.caps())?;
        config.check_built()?;
        if !Arc::ptr_eq(context, heap.context()) {
            return Err(VerbsError::argument(
                "control heap",
                heap.context().name(),
                format!("one of the context of the PD, {}", context.name()),
            ));
        }
        let register = match config.share_doorbell_register {
            true => DoorbellRegister::shared(context)?,
            false => DoorbellRegister::alloc(context)?,
        };
        let depth = u64::from(config.depth());
        let queue = QueueMemory {
            context: heap.alloc(size_of::<QpContext>() as u64, 128)?,
            flags: heap.alloc(depth * size_of::<u64>() as u64, 128)?,
            sq: heap.alloc(depth * u64::from(WQEBB_BYTES), 128)?,
            register,
        };
        let place = CqPlace {
            umem_id: heap.umem_id(),
            cqe_offset: queue.context.offset() + QpContext::CQE_OFFSET as u64,
            dbrec_offset: queue.context.offset() + QpContext::CQ_DBREC_OFFSET as u64,
            uar_page: queue.register.page_id(),
        };
        let cq = Cq::create(context, &place, queue)?;
        let input = create_input(pd, heap, config, &cq);
        let pd = Arc::clone(pd);
        let memory = QpMemory { cq, pd };
        let (object, out) = DevxObject::create::<_, CreateQpOut>(context, &input, memory)?;
        let layout = layout(context, out.qpn(), config, &object.memory().cq);
        let core = QpCore {
            object,
            layout,
            config: *config,
        };
        Ok(Self {
            core: Box::new(core),
            state: PhantomData,
        })
    }

    /// Reset to Init: grants the peer its rights.
    ///
    /// # Errors
    ///
    /// The QP back, with the HCA's answer.
    pub fn init(self) -> Result<Qp<Init>, Box<TransitionError<Reset>>> {
        let path = Ads::default().with_vhca_port_num(u32::from(PORT));
        let qpc = self
            .rights()
            .with_pm_state(Qpc::PM_STATE_MIGRATED)
            .with_counter_set_id(self.core.config.counter_set.unwrap_or(0).into())
            .with_primary_address_path(path);
        self.advance(Opcode::RST2INIT_QP, Ok((qpc, 0)))
    }
}

impl Qp<Init> {
    /// Init to Ready To Receive: from here on the peer's requests are executed.
    ///
    /// # Errors
    ///
    /// The QP back, with what is wrong with `path`, or the HCA's answer.
    pub fn ready_to_receive(self, path: &PathAttr) -> Result<Qp<Rtr>, Box<TransitionError<Init>>> {
        let fields = self.receive_fields(path);
        self.advance(Opcode::INIT2RTR_QP, fields)
    }

    fn receive_fields(&self, path: &PathAttr) -> Result<(Qpc, u32), VerbsError> {
        let context = self.context();
        let mtu = path.check(context.port())?;
        let gid_index = match path.gid_index {
            Some(index) => context.gid(index).map(|_| index)?,
            None => context.roce_v2_gid()?.index,
        };
        let gid_index = u8::try_from(gid_index)
            .map_err(|_| VerbsError::argument("GID index", gid_index, u8::MAX))?;
        let mac = resolve_mac(&self.core.object.memory().pd, path, gid_index)?;
        let caps = context.caps();
        let source_port = udp_source_port(caps, self.qpn(), path.remote_qpn, path.rail);
        let ads = Ads::default()
            .with_vhca_port_num(u32::from(PORT))
            .with_src_addr_index(gid_index.into())
            .with_rgid_rip(path.remote_gid.0)
            .with_rmac(mac)
            .with_hop_limit(path.hop_limit.into())
            .with_tclass(path.traffic_class.into())
            .with_dscp(u32::from(path.traffic_class >> 2))
            .with_eth_prio(path.priority.into())
            .with_udp_sport(source_port.into());
        let qpc = self
            .rights()
            .with_mtu(mtu as u32)
            .with_log_msg_max(u32::from(caps.log_max_msg).min(30))
            .with_remote_qpn(path.remote_qpn)
            .with_next_rcv_psn(path.psn)
            .with_min_rnr_nak(path.min_rnr_timer.into())
            .with_log_rra_max(caps.log_max_ra_res_qp.into())
            .with_primary_address_path(ads);
        let rights = QpModifyIn::OPT_RRE | QpModifyIn::OPT_RWE | QpModifyIn::OPT_RAE;
        Ok((qpc, rights))
    }
}

impl Qp<Rtr> {
    /// Ready To Receive to Ready To Send: from here on posted work is executed.
    ///
    /// # Errors
    ///
    /// The QP back, with what is wrong with `attr`, or the HCA's answer.
    pub fn ready_to_send(self, attr: &SendAttr) -> Result<Qp<Rts>, Box<TransitionError<Rtr>>> {
        let log_sra_max = self.context().caps().log_max_ra_req_qp;
        let fields = attr.check().map(|()| {
            let path = Ads::default().with_ack_timeout(attr.timeout.into());
            let qpc = Qpc::default()
                .with_next_send_psn(attr.psn)
                .with_retry_count(attr.retry.into())
                .with_rnr_retry(attr.rnr_retry.into())
                .with_log_ack_req_freq(attr.log_ack_req_freq.into())
                .with_log_sra_max(log_sra_max.into())
                .with_primary_address_path(path);
            (qpc, 0)
        });
        self.advance(Opcode::RTR2RTS_QP, fields)
    }
}

impl<S: State> Qp<S> {
    /// Any state to Reset: the first step of a recovery. The HCA forgets all that was posted and counts from 0 again; before
    /// the QP leaves Reset its memory must hold [`QpLayout::image`] with a new base.
    ///
    /// # Errors
    ///
    /// The QP back, with the HCA's answer.
    pub fn reset(self) -> Result<Qp<Reset>, Box<TransitionError<S>>> {
        self.advance(Opcode::TO_RST_QP, Ok((Qpc::default(), 0)))
    }

    /// Any state but Reset to Err: nothing is sent, received or acknowledged any more, and all that was posted completes in
    /// error. Returns when the HCA has done so; the way out is [`Qp::reset`].
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn to_error(&self) -> Result<(), VerbsError> {
        self.modify(Opcode::TO_ERR_QP, (Qpc::default(), 0))
    }

    /// Asks the HCA. A command of some hundred microseconds on silicon.
    ///
    /// # Errors
    ///
    /// The HCA's answer.
    pub fn query(&self) -> Result<QpStatus, VerbsError> {
        let input = QueryQpIn::default()
            .with_opcode(u32::from(Opcode::QUERY_QP.0))
            .with_qpn(self.qpn());
        let out = self.core.object.query::<_, QueryQpOut>(&input)?;
        let qpc = out.qpc();
        #[expect(clippy::cast_possible_truncation, reason = "fields of 4 and 16 bits")]
        Ok(QpStatus {
            state: QpState(qpc.state() as u8),
            hw_sq_wqebb_counter: qpc.hw_sq_wqebb_counter() as u16,
            next_send_psn: qpc.next_send_psn(),
            next_rcv_psn: qpc.next_rcv_psn(),
        })
    }

    /// Destroys QP and CQ, for whoever wants to know whether that worked; a plain drop logs.
    ///
    /// # Errors
    ///
    /// The kernel's answer; the QP's memory is then kept for ever.
    pub fn destroy(self) -> Result<(), VerbsError> {
        self.core.object.destroy()
    }

    /// QP number, 24 bits.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.core.layout.qpn
    }

    /// Where everything lies; the same for the life of the QP, through every reset.
    #[must_use]
    pub fn layout(&self) -> &QpLayout {
        &self.core.layout
    }

    /// Its shape.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        &self.core.config
    }

    /// Bytes of control heap that it takes.
    #[must_use]
    pub fn control_bytes(&self) -> u64 {
        let queue = self.core.object.memory().cq.memory();
        queue.context.bytes() + queue.flags.bytes() + queue.sq.bytes()
    }

    /// Its doorbell register.
    #[must_use]
    pub fn doorbell(&self) -> &Arc<DoorbellRegister> {
        &self.core.object.memory().cq.memory().register
    }

    fn context(&self) -> &Arc<Context> {
        self.core.object.context()
    }

    /// The peer may write, read and, where the device can, do atomics.
    fn rights(&self) -> Qpc {
        let caps = self.context().caps();
        Qpc::default()
            .with_rwe(1)
            .with_rre(1)
            .with_rae(caps.atomics.into())
            .with_atomic_mode(atomic_mode(caps))
    }

    fn modify(&self, opcode: Opcode, (qpc, options): (Qpc, u32)) -> Result<(), VerbsError> {
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(self.qpn())
            .with_opt_param_mask(options)
            .with_qpc(qpc);
        self.core
            .object
            .modify::<_, QpModifyOut>(&input)
            .map(|_| ())
    }

    fn advance<T: State>(
        self,
        opcode: Opcode,
        fields: Result<(Qpc, u32), VerbsError>,
    ) -> Result<Qp<T>, Box<TransitionError<S>>> {
        match fields.and_then(|fields| self.modify(opcode, fields)) {
            Ok(()) => Ok(Qp {
                core: self.core,
                state: PhantomData,
            }),
            Err(source) => Err(Box::new(TransitionError { qp: self, source })),
        }
    }
}

fn create_input(
    pd: &Pd,
    heap: &ControlHeap,
    config: &QpConfig,
    cq: &Cq<QueueMemory>,
) -> CreateQpIn {
    let queue = cq.memory();
    let in_order = config.data_in_order && pd.context().caps().qp_data_in_order;
    let qpc = Qpc::default()
        .with_st(Qpc::ST_RC)
        .with_pm_state(Qpc::PM_STATE_MIGRATED)
        .with_pd(pd.pdn())
        .with_log_sq_size(config.log_depth.into())
        .with_rq_type(Qpc::RQ_TYPE_NONE)
        .with_cqn_snd(cq.cqn())
        .with_cqn_rcv(cq.cqn())
        .with_uar_page(queue.register.page_id())
        .with_ts_format(TS_FORMAT_DEFAULT)
        .with_data_in_order(in_order.into())
        .with_lag_tx_port_affinity(config.lag_port.into())
        .with_dbr_umem_valid(1)
        .with_dbr_umem_id(heap.umem_id())
        .with_dbr_addr(queue.context.offset() + QpContext::SQ_DBREC_OFFSET as u64);
    CreateQpIn::default()
        .with_opcode(u32::from(Opcode::CREATE_QP.0))
        .with_qpc(qpc)
        .with_wq_umem_offset(queue.sq.offset())
        .with_wq_umem_id(heap.umem_id())
        .with_wq_umem_valid(1)
}

/// `ts_format`: whatever clock the device's completions carry; nobody reads it.
const TS_FORMAT_DEFAULT: u32 = 1;

fn layout(context: &Context, qpn: u32, config: &QpConfig, cq: &Cq<QueueMemory>) -> QpLayout {
    let queue = cq.memory();
    let context_addr = queue.context.addr();
    QpLayout {
        qpn,
        cqn: cq.cqn(),
        depth: config.depth(),
        context_addr,
        context_offset: queue.context.offset(),
        flags_addr: queue.flags.addr(),
        sq_addr: queue.sq.addr(),
        cqe_addr: context_addr + QpContext::CQE_OFFSET as u64,
        dbrec_addr: context_addr + QpContext::SQ_DBREC_OFFSET as u64,
        doorbell_addr: queue.register.addr(),
        doorbell_page_addr: queue.register.page_addr(),
        mode: config.mode(),
        atomics: context.caps().atomic_bits(),
    }
}

/// The last part of the state's type name.
fn state_name<S>() -> &'static str {
    let name = std::any::type_name::<S>();
    name.rsplit("::").next().unwrap_or(name)
}

mod sealed {
    pub trait Sealed {}
}
