"""Shared receive queues through libibverbs: order, limit, events. Prints each step; a wrong one raises."""

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR


def queue_pair(pd, cq, srq=None):
    init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=QPCap(10, 10, 1, 1))
    return QP(pd, init, QPAttr(port_num=1))


def towards(context, peer):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = peer.qp_num, e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 6, 14, 7, 7
    route = GlobalRoute(dgid=context.query_gid(1, 3), sgid_index=3)
    attr.ah_attr = AHAttr(port_num=1, is_global=True, gr=route, dlid=0)
    return attr


def completions(cq, count):
    found = []
    while len(found) < count:
        found += cq.poll(1)[1]
    return found


def await_event(context, wanted):
    event = context.get_async_event()
    assert event.event_type == wanted, (event.event_type, wanted)
    event.ack()


context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 50)
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=10)))
sender, receiver = queue_pair(pd, cq), queue_pair(pd, cq, srq)
sender.to_rts(towards(context, receiver))
receiver.to_rts(towards(context, sender))
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)

srq.query()
try:
    srq.modify(SrqAttr(srq_limit=1000), e.IBV_SRQ_LIMIT)
    raise AssertionError("a limit beyond the queue was taken")
except PyverbsRDMAError as error:
    print("limit beyond the queue:", error)

for number in range(4):
    srq.post_recv(RecvWR(wr_id=100 + number, sg=[SGE(mr.buf, 100, mr.lkey)], num_sge=1))
srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
for number in range(2):
    sender.post_send(SendWR(wr_id=number, sg=[SGE(mr.buf, 10, mr.lkey)], num_sge=1))
ended = completions(cq, 4)
assert all(entry.status == e.IBV_WC_SUCCESS for entry in ended)
received = [entry.wr_id for entry in ended if entry.opcode & e.IBV_WC_RECV]
assert received == [100, 101], received
await_event(context, e.IBV_EVENT_SRQ_LIMIT_REACHED)
print("limit told")

# Around the list many times, each WQE given back by its completion.
for number in range(200):
    srq.post_recv(RecvWR(wr_id=1000 + number, sg=[SGE(mr.buf, 100, mr.lkey)], num_sge=1))
    sender.post_send(SendWR(wr_id=number, sg=[SGE(mr.buf, 10, mr.lkey)], num_sge=1))
    ended = completions(cq, 2)
    assert all(entry.status == e.IBV_WC_SUCCESS for entry in ended)
    received = [entry.wr_id for entry in ended if entry.opcode & e.IBV_WC_RECV]
    expected = 102 + number if number < 2 else 998 + number
    assert received == [expected], (number, received)
print("200 around the list")

receiver.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
await_event(context, e.IBV_EVENT_QP_LAST_WQE_REACHED)
assert cq.poll(1)[0] == 0, "WQEs of a shared queue are not flushed"
drain = QPAttr(qp_state=e.IBV_QPS_SQD)
drain.en_sqd_async_notify = 1
sender.modify(drain, e.IBV_QP_STATE | e.IBV_QP_EN_SQD_ASYNC_NOTIFY)
await_event(context, e.IBV_EVENT_SQ_DRAINED)
print("last WQE and drained told")
receiver.close()
sender.close()
srq.close()
print("done")
