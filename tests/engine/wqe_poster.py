"""Posts by libmlx5 through pyverbs on a QP that is its own peer, and prints the WQEs of libmlx5 as JSON: one line."""

import json
import socket
import struct
import sys

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

BYTES = 4096
LOOKS = 100_000_000
IMMEDIATE = 0x01020304
# What the memory has at first.
CONTENTS = bytes(at % 251 for at in range(BYTES))
# What is posted: opcode, whether it is signalled, offset at the peer, local pieces, whether the WQE carries them.
POSTS = [
    (e.IBV_WR_RDMA_WRITE, True, 1024, [(0, 64)], False),
    (e.IBV_WR_RDMA_READ, True, 2048, [(64, 128)], False),
    (e.IBV_WR_RDMA_WRITE_WITH_IMM, True, 3072, [(0, 32)], False),
    (e.IBV_WR_RDMA_WRITE, False, 1536, [(0, 16), (32, 16)], False),
    (e.IBV_WR_RDMA_WRITE, True, 1600, [(0, 16), (32, 16), (256, 8)], False),
    (e.IBV_WR_RDMA_WRITE, False, 1700, [(3, 28)], True),
    (e.IBV_WR_RDMA_WRITE, False, 1800, [(1, 8), (37, 5)], True),
    (e.IBV_WR_RDMA_WRITE, True, 1900, [(9, 1)], True),
]


def writable():
    for line in open("/proc/self/maps"):
        place, rights = line.split()[:2]
        if rights.startswith("rw"):
            first, end = (int(part, 16) for part in place.split("-"))
            yield first, end


def wqe(remote, rkey, blocks):
    """The WQE whose second segment is this one: WQEs begin at multiples of 64 bytes."""
    segment = struct.pack(">QII", remote, rkey, 0)
    for first, end in writable():
        try:
            memory = open("/proc/self/mem", "rb")
            memory.seek(first)
            held = memory.read(end - first)
        except OSError:
            continue
        at = held.find(segment)
        while at >= 0:
            if (first + at) % 64 == 16:
                return held[at - 16 : at - 16 + 64 * blocks].hex()
            at = held.find(segment, at + 1)
    return None


def main():
    context = Context(name=sys.argv[1])
    pd, cq = PD(context), CQ(context, 16)
    rights = (
        e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
    )
    mr = MR(pd, BYTES, rights)
    mr.write(CONTENTS, BYTES)
    init = QPAttr(port_num=1)
    init.qp_access_flags = rights
    shape = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(32, 4, 4, 1, 28), sq_sig_all=0)
    qp = QP(pd, shape, init)
    index = 3
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.rq_psn, attr.sq_psn = (
        qp.qp_num,
        e.IBV_MTU_1024,
        7,
        7,
    )
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 17, 7, 7
    gid = GID(str(context.query_gid(1, index)))
    route = GlobalRoute(dgid=gid, sgid_index=index, hop_limit=64)
    attr.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    qp.to_rts(attr)
    qp.post_recv(RecvWR(num_sge=1, sg=[SGE(mr.buf + 4000, 8, mr.lkey)]))
    wqes = []
    for opcode, signalled, offset, pieces, carried in POSTS:
        places = [SGE(mr.buf + start, length, mr.lkey) for start, length in pieces]
        flags = e.IBV_SEND_SIGNALED if signalled else 0
        flags |= e.IBV_SEND_INLINE if carried else 0
        request = SendWR(
            opcode=opcode, num_sge=len(places), sg=places, send_flags=flags
        )
        if opcode == e.IBV_WR_RDMA_WRITE_WITH_IMM:
            # In the order of the network.
            request.imm_data = socket.htonl(IMMEDIATE)
        request.set_wr_rdma(mr.rkey, mr.buf + offset)
        qp.post_send(request)
        blocks = 1 + (not carried and 2 + len(pieces) > 4)
        wqes.append(wqe(mr.buf + offset, mr.rkey, blocks))
    statuses = []
    # Five are signalled, and one immediate arrives.
    for _ in range(LOOKS):
        count, found = cq.poll()
        statuses += [one.status for one in found] if count else []
        if len(statuses) == 6:
            break
    print(
        json.dumps(
            dict(
                qpn=qp.qp_num,
                addr=mr.buf,
                lkey=mr.lkey,
                rkey=mr.rkey,
                wqes=wqes,
                statuses=statuses,
            )
        )
    )


main()
