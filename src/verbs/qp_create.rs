//! Making a QP: its memory, its CQs, and the command.

use std::sync::Arc;

use mlx5_prm::cmd::Opcode;
use mlx5_prm::qp::{CreateQpIn, CreateQpOut, Qpc};

use super::blocks::{Blocks, QpPlaces};
use super::command::DevxObject;
use super::cq::Cq;
use super::error::VerbsError;
use super::heap::ControlHeap;
use super::pd::Pd;
use super::qp::{Qp, QpCore, QpMemory, Reset, SendCq};
use super::qp_config::{CqKind, Doorbell, QpConfig, Queues, Sharing};
use super::shared_cq::SharedCq;

/// `ts_format`: whatever clock the device's completions carry; no code reads it.
const TS_FORMAT_DEFAULT: u32 = 1;

impl Qp<Reset> {
    /// Creates a QP and its CQs: one doorbell register, three to six blocks, two or three commands.
    ///
    /// A control heap alone is a place for [`Queues::Device`](super::Queues) without mailboxes. [`Qp::write_image`] writes the
    /// bytes that the memory must hold before [`Qp::init`].
    ///
    /// # Errors
    ///
    /// [`VerbsError::BadArgument`] for a shape that the device does not have, a heap of another context or a missing place. Also
    /// [`VerbsError::Capability`] for a mode that the device lacks. Else the error of the step that failed, after everything that
    /// was made has been taken down.
    pub fn create<'a>(
        pd: &Arc<Pd>,
        places: impl Into<QpPlaces<'a>>,
        config: &QpConfig,
    ) -> Result<Self, VerbsError> {
        let context = pd.context();
        config.check(context.name(), context.caps())?;
        let blocks = Blocks::alloc(context, &places.into(), config)?;
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

    /// Creates a QP that this process posts to, in the host memory of `heap`, and whose sends and receives complete in `cqs`. It is
    /// one of [`Queues::Host`](super::Queues) with a doorbell record, whatever else `config` says of that.
    ///
    /// # Errors
    ///
    /// As [`Qp::create`]; [`VerbsError::BadArgument`] if a CQ has no room for all that the QP can post.
    pub(crate) fn create_on(
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
        let (object, out) = DevxObject::create::<_, CreateQpOut>(context, &input, memory)?;
        let memory = object.memory();
        let recv_cqn = memory.recv_cq.as_ref().map(Cq::cqn);
        let layout = memory
            .cq
            .blocks()
            .layout(out.qpn(), memory.cq.cqn(), recv_cqn);
        let ece = match context.caps().ece {
            true => out.ece(),
            false => 0,
        };
        Ok(Self::made(QpCore {
            object,
            layout,
            config: *config,
            ece,
            used_ece: 0,
        }))
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
        // A stride of 16 bytes: one data segment.
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
