//! WQEs of inline data and segments through unmodified libmlx5, which writes them into its ring and rings for them.

use crate::rdma_core::pair::Pair;
use crate::rdma_core::queue_pair::{Cap, RC};
use crate::rdma_core::raw::{RAW_WQE, UD};
use crate::rdma_core::verbs::address;
use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, DatagramSeg, InlineHeader, RaddrSeg, WqeOpcode};

const CAP: Cap = Cap {
    send_wr: 16,
    recv_wr: 16,
    send_sge: 2,
    recv_sge: 1,
    inline: 64,
};
const QKEY: u32 = 0x1111;
/// Payloads of messages; where they arrive; how long they are.
const FROM: usize = 0;
const TO: usize = 0x4000;
const PAYLOAD: u32 = 900;

/// Two queue pairs of one device that take raw WQEs, and payloads to send.
fn raw_pair(kind: u32) -> Pair {
    let pair = Pair::unconnected(|device, pd, send, receive| {
        device.create_raw_qp(pd, kind, CAP, send, receive).unwrap()
    });
    pair.memory.write(FROM, &sent(0, PAYLOAD));
    pair
}

impl Pair {
    /// `bytes` bytes of the payload from `at`.
    fn payload(&self, at: u32, bytes: u32) -> [u8; 16] {
        bytemuck::cast(DataSeg {
            byte_count: Be32::new(bytes),
            lkey: Be32::new(self.mr.lkey()),
            addr: Be64::new(address(&self.memory) + FROM as u64 + u64::from(at)),
        })
    }

    /// Posts at the first end, and waits for the completion.
    fn post(&self, opcode: WqeOpcode, wr_id: u64, rest: &[u8]) {
        let units = u8::try_from(1 + rest.len() / 16).unwrap();
        let mut ctrl = CtrlSeg::new(opcode, 0, self.a.qpn(), units);
        ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
        let wqe = [bytemuck::bytes_of(&ctrl), rest].concat();
        self.a.post_raw(wr_id, &wqe);
        let sent = self.cq.wait();
        assert_eq!((sent.wr_id, sent.status), (wr_id, 0), "{sent:?}");
        assert_eq!(sent.opcode, RAW_WQE);
    }

    fn arrived(&self, skip: usize, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.memory.read(TO + skip, &mut found);
        found
    }
}

fn inline(bytes: &[u8]) -> Vec<u8> {
    let header = InlineHeader::new(bytes.len().try_into().unwrap());
    let mut all = [bytemuck::bytes_of(&header), bytes].concat();
    all.resize(all.len().next_multiple_of(16), 0);
    all
}

/// Bytes of the payload.
fn sent(from: u32, bytes: u32) -> Vec<u8> {
    (from..from + bytes)
        .map(|at| (at * 7).to_le_bytes()[0])
        .collect()
}

/// More rounds than the ring has WQEBBs.
const ROUNDS: u8 = 100;

#[test]
fn a_connected_qp_posts_the_header_inline_and_the_payload_by_address() {
    let pair = raw_pair(RC);
    pair.connect();
    let at = address(&pair.memory) + TO as u64;
    for round in 0..ROUNDS {
        let header = [round; 70];
        let message = [header.as_slice(), &sent(0, PAYLOAD)].concat();
        pair.memory.write(TO, &[0; 1024]);
        pair.b.post_recv(round.into(), &pair.mr, at, 1024);
        let rest = [inline(&header), pair.payload(0, PAYLOAD).to_vec()].concat();
        pair.post(WqeOpcode::SEND, round.into(), &rest);
        let received = pair.receive_cq.wait();
        assert_eq!((received.status, received.bytes), (0, 970), "{received:?}");
        assert_eq!(pair.arrived(0, message.len()), message, "round {round}");

        let remote = RaddrSeg {
            raddr: Be64::new(at),
            rkey: Be32::new(pair.mr.lkey()),
            ..RaddrSeg::default()
        };
        let rest = [
            bytemuck::bytes_of(&remote),
            &pair.payload(5, 300),
            &inline(&header[..7]),
            &pair.payload(2, 11),
            &inline(&header),
        ]
        .concat();
        let message = [sent(5, 300).as_slice(), &header[..7], &sent(2, 11), &header].concat();
        pair.memory.write(TO, &[0; 1024]);
        pair.post(WqeOpcode::RDMA_WRITE, round.into(), &rest);
        assert_eq!(pair.arrived(0, message.len()), message, "round {round}");
    }
    pair.end();
}

#[test]
fn a_datagram_has_its_header_inline_and_its_payload_by_address() {
    const GRH: usize = 40;
    let pair = raw_pair(UD);
    pair.a.open_datagrams(QKEY);
    pair.b.open_datagrams(QKEY);
    let to = DatagramSeg {
        qkey: Be32::new(QKEY),
        dqp_dct: Be32::new(DatagramSeg::EXTENDED | pair.b.qpn()),
        hop_limit: 64,
        rgid: pair.device.gid(3).unwrap(),
        ..DatagramSeg::default()
    };
    let at = address(&pair.memory) + TO as u64;
    for round in 0..ROUNDS {
        let header = [round; 28];
        let message = [header.as_slice(), &sent(0, PAYLOAD), &header[..3]].concat();
        pair.memory.write(TO, &[0; 1024]);
        pair.b.post_recv(round.into(), &pair.mr, at, 1024);
        let rest = [
            bytemuck::bytes_of(&to),
            &inline(&header),
            &pair.payload(0, PAYLOAD),
            &inline(&header[..3]),
        ]
        .concat();
        pair.post(WqeOpcode::SEND, round.into(), &rest);
        let received = pair.receive_cq.wait();
        assert_eq!((received.status, received.bytes), (0, 971), "{received:?}");
        assert_eq!(pair.arrived(GRH, message.len()), message, "round {round}");
    }
    pair.end();
}
