"""A rank with nothing to do: 32 QPs, some of which have just sent to themselves. Says `idle` and sleeps until it is killed."""

import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 128)
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
mr = MR(pd, 4096, access)
qps = []
for _ in range(32):
    cap = QPCap(16, 16, 1, 1)
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = access
    qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), attr)
    attr.dest_qp_num, attr.path_mtu = qp.qp_num, e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 6, 18, 7, 7
    route = GlobalRoute(dgid=context.query_gid(1, 3), sgid_index=3)
    attr.ah_attr = AHAttr(port_num=1, is_global=True, gr=route, dlid=0)
    qp.to_rts(attr)
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)])
    wr.set_wr_rdma(mr.rkey, mr.buf + 64)
    qp.post_send(wr)
    while not cq.poll(1)[1]:
        pass
    qps.append(qp)
print("idle", flush=True)
time.sleep(600)
