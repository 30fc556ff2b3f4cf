//! A shared receive queue as libmlx5 keeps one: a list of WQEs, posted at its head and given back at its tail. Or a
//! ring, as UCX keeps it.

use super::{Memory, create, data};
use mlx5_prm::cmd::Opcode;
use mlx5_prm::srq::{
    ArmXrcSrqIn, CreateRmpIn, CreateXrcSrqIn, ModifyRmpIn, NumberIn, QueryRmpOut, Rmpc, Wq, XrcSrqc,
};
use mlx5_prm::wqe::DataSeg;
use softhca::device::{Access, Context, DeviceError, DevxObject};
use std::sync::atomic::Ordering;

const LOG_STRIDE: u32 = 6;
const RING: usize = 4096;

/// A shared receive queue with its ring.
pub struct SharedQueue {
    /// The SRQ number, for the contexts of QPs.
    pub number: u32,
    /// What ends it.
    pub object: DevxObject,
    context: Context,
    memory: Memory,
    /// Of a ring the number of the next WQE, of a list its place.
    head: u16,
    tail: u16,
    counter: u16,
    is_ring: bool,
}

/// Which kind.
#[derive(Clone, Copy, Debug)]
pub enum SharedKind {
    /// A receive memory pool whose WQEs name each other.
    List,
    /// A receive memory pool that is a ring.
    Ring,
    /// A list of an XRC domain.
    Xrc(Xrc),
}

/// What makes an SRQ one of an XRC domain.
#[derive(Clone, Copy, Debug)]
pub struct Xrc {
    /// The domain.
    pub xrcd: u32,
    /// Where its receives complete.
    pub cqn: u32,
    /// What a receive's completion names it by.
    pub user_index: u32,
}

impl SharedQueue {
    /// A queue of 2^`log` WQEs.
    pub fn new(context: &Context, pdn: u32, log: u32, kind: SharedKind) -> Self {
        let memory = Memory::new(RING + ((1 << LOG_STRIDE) << log).max(4096));
        #[expect(
            unsafe_code,
            reason = "registers memory that outlives the registration"
        )]
        // SAFETY: the queue owns the memory, and the context is closed before it goes.
        let umem =
            unsafe { context.reg_umem(memory.address(), memory.bytes(), Access(1)) }.unwrap();
        let input = input(pdn, umem, log, kind);
        let (object, number) = create(context, &input).unwrap();
        let tail = u16::try_from((1u32 << log) - 1).unwrap();
        let queue = Self {
            number,
            object,
            context: context.clone(),
            memory,
            head: 0,
            tail,
            counter: 0,
            is_ring: matches!(kind, SharedKind::Ring),
        };
        for index in 0..tail {
            // The links of a ring are not for following.
            queue.link(index, if queue.is_ring { 0xffff } else { index + 1 });
        }
        queue
    }

    fn at(index: u16) -> usize {
        RING + (usize::from(index) << LOG_STRIDE)
    }

    /// Writes into the WQE at `index` which one is next.
    pub fn link(&self, index: u16, next: u16) {
        self.memory.write(Self::at(index) + 2, &next.to_be_bytes());
    }

    /// Writes a WQE of up to three segments (bytes, lkey, address) at the head. The index that its completion has.
    pub fn write(&mut self, segments: &[(u32, u32, u64)]) -> u16 {
        let index = self.head;
        let place = if self.is_ring {
            index & self.tail
        } else {
            assert_ne!(self.head, self.tail, "the list is full");
            index
        };
        let mut units: Vec<u8> = segments
            .iter()
            .flat_map(|(bytes, lkey, address)| data(*bytes, *lkey, *address))
            .collect();
        if segments.len() < 3 {
            units.extend(data(0, DataSeg::INVALID_LKEY, 0));
        }
        self.memory.write(Self::at(place) + 16, &units);
        let next = self.memory.read(Self::at(place) + 2, 2);
        self.head = if self.is_ring {
            index.wrapping_add(1)
        } else {
            u16::from_be_bytes([next[0], next[1]])
        };
        self.counter = self.counter.wrapping_add(1);
        index
    }

    /// Publishes to the device how many WQEs were written.
    pub fn record(&self) {
        self.record_as(self.counter);
    }

    /// Writes `counter` into the doorbell record.
    pub fn record_as(&self, counter: u16) {
        self.memory
            .dword(0)
            .store(u32::from(counter).to_be(), Ordering::Release);
    }

    /// [`Self::write`], and publishes it to the device.
    pub fn post(&mut self, segments: &[(u32, u32, u64)]) -> u16 {
        let index = self.write(segments);
        self.record();
        index
    }

    /// A WQE is complete: it may be posted again, after all others that are free.
    pub fn free(&mut self, index: u16) {
        self.link(self.tail, index);
        self.tail = index;
    }

    /// Asks for an event when fewer than `limit` are left.
    pub fn arm(&self, limit: u32) -> Result<(), DeviceError> {
        let DevxObject::Rmp(_) = self.object else {
            let input = ArmXrcSrqIn::default()
                .with_opcode(Opcode::ARM_XRC_SRQ.0.into())
                .with_op_mod(1)
                .with_xrc_srqn(self.number)
                .with_lwm(limit);
            return self
                .context
                .devx_modify(self.object, input.as_bytes(), &mut [0; 16]);
        };
        let rmpc = Rmpc::default()
            .with_state(Rmpc::STATE_RDY)
            .with_wq(Wq::default().with_lwm(limit));
        let input = ModifyRmpIn::default()
            .with_opcode(Opcode::MODIFY_RMP.0.into())
            .with_rmp_state(Rmpc::STATE_RDY)
            .with_rmpn(self.number)
            .with_bitmask_lwm(1)
            .with_ctx(rmpc);
        self.context
            .devx_modify(self.object, input.as_bytes(), &mut [0; 16])
    }

    /// Its context, as the device has it.
    pub fn query(&self) -> Rmpc {
        let input = NumberIn::default()
            .with_opcode(Opcode::QUERY_RMP.0.into())
            .with_number(self.number);
        let mut output = [0xff; QueryRmpOut::BYTES];
        self.context
            .devx_query(self.object, input.as_bytes(), &mut output)
            .unwrap();
        *QueryRmpOut::from_bytes(&output).unwrap().rmp_context()
    }
}

/// Returns the command that makes a queue whose record is at offset 0 of `umem` and whose WQEs are at 4096.
pub fn input(pdn: u32, umem: u32, log: u32, kind: SharedKind) -> Vec<u8> {
    let wq_type = match kind {
        SharedKind::Ring => Wq::TYPE_CYCLIC,
        _ => Wq::TYPE_LINKED_LIST,
    };
    let SharedKind::Xrc(xrc) = kind else {
        let wq = Wq::default()
            .with_wq_type(wq_type)
            .with_pd(pdn)
            .with_log_wq_stride(LOG_STRIDE)
            .with_log_wq_sz(log)
            .with_dbr_umem_id(umem)
            .with_wq_umem_id(umem)
            .with_wq_umem_offset(RING as u64);
        let rmpc = Rmpc::default().with_state(Rmpc::STATE_RDY).with_wq(wq);
        let input = CreateRmpIn::default()
            .with_opcode(Opcode::CREATE_RMP.0.into())
            .with_ctx(rmpc);
        return input.as_bytes().to_vec();
    };
    let srqc = XrcSrqc::default()
        .with_log_xrc_srq_size(log)
        .with_log_rq_stride(LOG_STRIDE - 4)
        .with_xrcd(xrc.xrcd)
        .with_cqn(xrc.cqn)
        .with_user_index(xrc.user_index)
        .with_pd(pdn)
        .with_dbr_umem_id(umem);
    let input = CreateXrcSrqIn::default()
        .with_opcode(Opcode::CREATE_XRC_SRQ.0.into())
        .with_xrc_srq_context_entry(srqc)
        .with_xrc_srq_umem_offset(RING as u64)
        .with_xrc_srq_umem_id(umem);
    input.as_bytes().to_vec()
}
