//! The parts of a QP that every state has: its object, its memory and its CQs, how they are made, and the commands that change them.

use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, QpModifyIn, QpModifyOut, QueryQpIn, QueryQpOut};
use mlx5_prm::qpc::Qpc;

use crate::verbs::error::VerbsError;
use crate::verbs::events::Events;
use crate::verbs::memory::heap::ControlHeap;
use crate::verbs::memory::pd::Pd;
use crate::verbs::object::DevxObject;
use crate::verbs::qp::blocks::{Blocks, QpPlaces};
use crate::verbs::qp::cq::Cq;
use crate::verbs::qp::image::QpLayout;
use crate::verbs::qp::shape::{CqKind, Doorbell, QpConfig, Queues, Sharing};
use crate::verbs::qp::shared_cq::{CqShare, SharedCq};
use crate::verbs::uar::DoorbellRegister;

/// The code of `ts_format` for whatever clock the device's completions carry. No code reads those times.
const TS_FORMAT_DEFAULT: u32 = 1;

/// The parts of a QP that every state has.
pub(in crate::verbs::qp) struct QpCore {
    /// The HCA's object. It is the first field, so that it is destroyed before everything that it uses.
    object: DevxObject<QpMemory>,
    layout: QpLayout,
    config: QpConfig,
    /// The options of enhanced connection establishment that the HCA has for the QP, and the options in use with the present peer.
    ece: u32,
    used_ece: u32,
}

/// Everything that the HCA's QP uses, in the order in which it is taken down.
#[derive(Debug)]
struct QpMemory {
    /// The CQ of receives. None without a receive queue or with a shared CQ.
    recv_cq: Option<Cq<Arc<DoorbellRegister>>>,
    /// The CQ of sends, with the memory that QP and CQs use.
    cq: SendCq,
    pd: Arc<Pd>,
}

/// The CQ in which sends complete, with the blocks of the QP.
#[derive(Debug)]
enum SendCq {
    /// A CQ of this QP alone.
    Own(Cq<Blocks>),
    /// Shares of two CQs of many QPs, one for sends and one for receives. The blocks are dropped before the shares, so that a QP that takes
    /// the shares next finds room for its own blocks.
    Shared(Blocks, [CqShare; 2]),
}

impl SendCq {
    fn cqn(&self) -> u32 {
        match self {
            Self::Own(cq) => cq.cqn(),
            Self::Shared(_, [share, _]) => share.cqn(),
        }
    }

    /// Returns the number of the CQ in which receives complete, unless receives have a CQ of their own.
    fn recv_cqn(&self) -> u32 {
        match self {
            Self::Own(cq) => cq.cqn(),
            Self::Shared(_, [_, share]) => share.cqn(),
        }
    }

    fn blocks(&self) -> &Blocks {
        match self {
            Self::Own(cq) => cq.memory(),
            Self::Shared(blocks, _) => blocks,
        }
    }

    /// Returns [`Cq::produced`]. 0 for a shared CQ, whose reaper counts.
    fn produced(&self) -> Result<u32, VerbsError> {
        match self {
            Self::Own(cq) => cq.produced(),
            Self::Shared(..) => Ok(0),
        }
    }
}

impl QpCore {
    /// Creates the parts as [`Qp::create`](crate::verbs::Qp::create) says.
    pub(in crate::verbs::qp) fn create(
        pd: &Arc<Pd>,
        places: &QpPlaces<'_>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        config.check(context.name(), context.caps())?;
        let blocks = Blocks::alloc(context, places, config)?;
        let register = Arc::clone(&blocks.register);
        let recv_place = blocks.recv_cq();
        let place = blocks.send_cq();
        let cq = Cq::create(context, &place, blocks)?;
        let recv_cq = match recv_place {
            Some(place) => Some(Cq::create(context, &place, register)?),
            None => None,
        };
        let pd = Arc::clone(pd);
        let cq = SendCq::Own(cq);
        Self::create_with(QpMemory { recv_cq, cq, pd }, config)
    }

    /// Creates the parts as [`Qp::create_on`](crate::verbs::Qp::create_on) says.
    pub(in crate::verbs::qp) fn create_on(
        pd: &Arc<Pd>,
        heap: &Arc<ControlHeap>,
        [sends, receives]: [&Arc<SharedCq>; 2],
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        let config = QpConfig {
            sharing: Sharing::Exclusive,
            doorbell: Doorbell::Record,
            queues: Queues::Host,
            cq: CqKind::Collapsed,
            share_doorbell_register: false,
            ..*config
        };
        let context = pd.context();
        config.check(context.name(), context.caps())?;
        let share = sends.share(context, config.depth())?;
        let recv_share = receives.share(context, config.recv_depth())?;
        let blocks = Blocks::posted_by_host(context, heap, &config)?;
        let memory = QpMemory {
            recv_cq: None,
            cq: SendCq::Shared(blocks, [share, recv_share]),
            pd: Arc::clone(pd),
        };
        Self::create_with(memory, &config)
    }

    fn create_with(memory: QpMemory, config: &QpConfig) -> Result<Self, VerbsError> {
        let context = &Arc::clone(memory.pd.context());
        let input = create_input(&memory, config);
        let (object, out) = DevxObject::create::<_, CreateQpOut>(context.device(), &input, memory)?;
        let memory = object.memory();
        let recv_cqn = memory.recv_cq.as_ref().map(Cq::cqn);
        let (blocks, cqn) = (memory.cq.blocks(), memory.cq.cqn());
        let layout = blocks.layout(context.caps(), out.qpn(), cqn, recv_cqn);
        let ece = if context.caps().ece { out.ece() } else { 0 };
        Ok(Self {
            object,
            layout,
            config: *config,
            ece,
            used_ece: 0,
        })
    }

    pub(in crate::verbs::qp) fn layout(&self) -> &QpLayout {
        &self.layout
    }

    pub(in crate::verbs::qp) fn config(&self) -> &QpConfig {
        &self.config
    }

    pub(in crate::verbs::qp) fn ece(&self) -> u32 {
        self.ece
    }

    pub(in crate::verbs::qp) fn pd(&self) -> &Arc<Pd> {
        &self.object.memory().pd
    }

    pub(in crate::verbs::qp) fn blocks(&self) -> &Blocks {
        self.object.memory().cq.blocks()
    }

    pub(in crate::verbs::qp) fn subscribe(
        &self,
        events: &Events,
        cookie: u64,
    ) -> Result<(), VerbsError> {
        events.subscribe_qp(&self.object, cookie)
    }

    pub(in crate::verbs::qp) fn destroy(self) -> Result<(), VerbsError> {
        self.object.destroy()
    }

    /// Uses the options of enhanced connection establishment that the peer has too.
    pub(in crate::verbs::qp) fn agree_on_ece(&mut self, peers: u32) {
        self.used_ece = self.ece & peers;
    }

    /// Notes in the layout how many completions both CQs hold so far. The QP is in Reset, so no more come.
    pub(in crate::verbs::qp) fn note_produced(&mut self) -> Result<(), VerbsError> {
        let memory = self.object.memory();
        let received = memory.recv_cq.as_ref().map_or(Ok(0), Cq::produced)?;
        self.layout.produced = memory.cq.produced()?;
        if let Some(recv) = &mut self.layout.recv {
            recv.produced = received;
        }
        Ok(())
    }

    pub(in crate::verbs::qp) fn modify(
        &self,
        opcode: Opcode,
        change: &Change,
    ) -> Result<(), VerbsError> {
        let input = QpModifyIn::default()
            .with_opcode(opcode.0.into())
            .with_qpn(self.layout.qpn)
            .with_opt_param_mask(change.options)
            .with_ece(match opcode {
                Opcode::INIT2RTR_QP | Opcode::RTR2RTS_QP => self.used_ece,
                _ => 0,
            })
            .with_qpc(change.qpc);
        self.object.modify::<_, QpModifyOut>(&input).map(drop)
    }

    pub(in crate::verbs::qp) fn query(&self) -> Result<QueryQpOut, VerbsError> {
        let input = QueryQpIn::default()
            .with_opcode(u32::from(Opcode::QUERY_QP.0))
            .with_qpn(self.layout.qpn);
        self.object.query(&input)
    }
}

/// The fields that a command changes in the context of a QP.
#[derive(Default)]
pub(in crate::verbs::qp) struct Change {
    pub(in crate::verbs::qp) qpc: Qpc,
    /// The optional fields that count, as bits.
    pub(in crate::verbs::qp) options: u32,
}

/// Makes a change without optional fields.
impl From<Qpc> for Change {
    fn from(qpc: Qpc) -> Self {
        Self { qpc, options: 0 }
    }
}

fn create_input(memory: &QpMemory, config: &QpConfig) -> CreateQpIn {
    let blocks = memory.cq.blocks();
    let caps = memory.pd.context().caps();
    let in_order = config.data_in_order && caps.qp_data_in_order;
    let recv_cq = memory.recv_cq.as_ref();
    let mut qpc = Qpc::default()
        .with_st(Qpc::ST_RC)
        .with_pm_state(Qpc::PM_STATE_MIGRATED)
        .with_pd(memory.pd.pdn())
        .with_log_sq_size(config.log_depth.into())
        .with_rq_type(Qpc::RQ_TYPE_NONE)
        .with_cqn_snd(memory.cq.cqn())
        .with_cqn_rcv(recv_cq.map_or(memory.cq.recv_cqn(), Cq::cqn))
        .with_uar_page(blocks.register.page_id())
        .with_ts_format(TS_FORMAT_DEFAULT)
        .with_data_in_order(in_order.into())
        .with_lag_tx_port_affinity(config.lag_port_of(caps, None).into())
        .with_send_dbr_mode(match config.doorbell {
            Doorbell::Record | Doorbell::Mailbox => Qpc::SEND_DBR_MODE_RECORD,
            Doorbell::NoRecord => Qpc::SEND_DBR_MODE_NONE,
        });
    if let Some(log) = config.log_recv_depth {
        // A receive WQE has a stride of 16 bytes, which is one data segment.
        qpc = qpc
            .with_rq_type(Qpc::RQ_TYPE_REGULAR)
            .with_log_rq_size(log.into())
            .with_log_rq_stride(0);
    }
    let (umem_id, offset) = blocks.dbrec();
    qpc = qpc
        .with_dbr_umem_valid(1)
        .with_dbr_umem_id(umem_id)
        .with_dbr_addr(offset);
    let (umem_id, offset) = blocks.wq();
    CreateQpIn::default()
        .with_opcode(u32::from(Opcode::CREATE_QP.0))
        .with_qpc(qpc)
        .with_wq_umem_offset(offset)
        .with_wq_umem_id(umem_id)
        .with_wq_umem_valid(1)
}
