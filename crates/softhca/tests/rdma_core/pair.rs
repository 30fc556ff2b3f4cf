//! Two connected queue pairs of one device, made by verbs.

use super::queue_pair::{Cap, Qp, RC, Send};
use super::verbs::{Channel, Cq, address};
use super::{Device, Memory, Mr, Pd};
use softhca::Hca;

pub(crate) const CAP: Cap = Cap {
    send_wr: 16,
    recv_wr: 16,
    send_sge: 2,
    recv_sge: 2,
    inline: 0,
};
pub(crate) const SEND: u32 = 2;
pub(crate) const WRITE: u32 = 0;

/// Two connected queue pairs of one device, in the order in which they may be taken down.
pub(crate) struct Pair {
    pub(crate) a: Qp,
    pub(crate) b: Qp,
    pub(crate) cq: Cq,
    pub(crate) receive_cq: Cq,
    pub(crate) channel: Channel,
    pub(crate) mr: Mr,
    pub(crate) pd: Pd,
    pub(crate) memory: Memory,
    pub(crate) device: Device,
    pub(crate) hca: Hca,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let pair =
            Self::unconnected(|_, pd, send, receive| pd.create_qp(RC, CAP, send, receive).unwrap());
        pair.connect();
        pair
    }

    /// Queue pairs that `make` makes, with a completion queue for sends and one for receives.
    pub(crate) fn unconnected(make: impl Fn(&Device, &Pd, &Cq, &Cq) -> Qp) -> Self {
        let hca = Hca::new().unwrap();
        let device = Device::open(hca.name()).unwrap();
        let pd = device.alloc_pd().unwrap();
        let memory = Memory::new(1 << 16);
        let mr = pd.reg_mr(&memory, 0xf).unwrap();
        let channel = device.create_channel();
        let cq = device.create_cq(256, None).unwrap();
        let receive_cq = device.create_cq(64, Some(&channel)).unwrap();
        let a = make(&device, &pd, &cq, &cq);
        let b = make(&device, &pd, &cq, &receive_cq);
        Self {
            a,
            b,
            cq,
            receive_cq,
            channel,
            mr,
            pd,
            memory,
            device,
            hca,
        }
    }

    /// Connects the queue pairs with each other.
    pub(crate) fn connect(&self) {
        let gid = self.device.gid(3).unwrap();
        self.a.connect(gid, self.b.qpn());
        self.b.connect(gid, self.a.qpn());
    }

    /// A message of 8 bytes from `a`, of which `b` knows.
    pub(crate) fn send(&self, wr_id: u64, solicited: bool) {
        let at = address(&self.memory);
        self.b.post_recv(wr_id, &self.mr, at + 4096, 64);
        self.a.post_send(Send {
            wr_id,
            from: &self.mr,
            address: at,
            bytes: 8,
            opcode: SEND,
            solicited,
            remote: (0, 0),
        });
    }

    /// As `send`, and waits until both sides have completed.
    pub(crate) fn send_and_wait(&self, wr_id: u64) {
        self.send(wr_id, false);
        assert_eq!(self.cq.wait().wr_id, wr_id);
        let received = self.receive_cq.wait();
        assert_eq!((received.wr_id, received.bytes), (wr_id, 8));
    }

    /// Ends everything; nothing is left.
    pub(crate) fn end(self) {
        self.a.destroy().unwrap();
        self.b.destroy().unwrap();
        self.cq.destroy().unwrap();
        self.receive_cq.destroy().unwrap();
        self.channel.destroy().unwrap();
        self.mr.dereg().unwrap();
        assert!(self.pd.dealloc().is_ok());
        drop(self.device);
        assert_eq!(self.hca.live_objects().total(), 0);
        assert_eq!(self.hca.findings(), [""; 0]);
    }
}
