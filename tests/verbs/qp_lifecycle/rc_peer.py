"""An RC QP of pyverbs whose peer is a QP of another program. Each sends the other one line of JSON, and this one follows its
orders: `write`, `read`, `look`, `end`, one word a line."""

import json
import sys
from ipaddress import IPv6Address

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

BYTES = 4096
PSN = 0xABCDE
LOOKS = 100_000_000


def tell(**words):
    print(json.dumps(words), flush=True)


def heard():
    return json.loads(sys.stdin.readline())


def fields(of):
    """What a struct of verbs holds, by the names of its fields; no structs within it."""
    names = (name for name in dir(of) if not name.startswith("_"))
    values = {name: getattr(of, name) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value is None or isinstance(value, int | str)
    }


def address(peer):
    route = None
    if peer["gid"] is not None:
        route = GlobalRoute(
            dgid=GID(IPv6Address(peer["gid"]).exploded),
            sgid_index=peer["gid_index"],
            hop_limit=64,
        )
    is_global = route is not None
    return AHAttr(
        port_num=1,
        is_global=is_global,
        gr=route,
        dlid=peer["lid"],
        sl=peer["service_level"],
    )


def post(qp, cq, operation, place, peer):
    request = SendWR(
        opcode=operation, num_sge=1, sg=[place], send_flags=e.IBV_SEND_SIGNALED
    )
    request.set_wr_rdma(peer["rkey"], peer["addr"])
    qp.post_send(request)
    for _ in range(LOOKS):
        count, found = cq.poll()
        if count:
            return found[0].status
    return "no completion"


def main():
    context = Context(name=sys.argv[1])
    port, pd, cq = context.query_port(1), PD(context), CQ(context, 16)
    rights = (
        e.IBV_ACCESS_LOCAL_WRITE
        | e.IBV_ACCESS_REMOTE_WRITE
        | e.IBV_ACCESS_REMOTE_READ
        | e.IBV_ACCESS_REMOTE_ATOMIC
    )
    mr = MR(pd, BYTES, rights)
    mr.write("p" * BYTES, BYTES)
    # The QP goes to Init with these rights when it is made.
    init = QPAttr(port_num=1)
    init.qp_access_flags = rights
    shape = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(16, 1, 1, 1))
    qp = QP(pd, shape, init)
    index = int(sys.argv[2])
    gid = str(context.query_gid(1, index))
    tell(qpn=qp.qp_num, psn=PSN, gid=gid, lid=port.lid, addr=mr.buf, rkey=mr.rkey)
    peer = heard()
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu, attr.rq_psn, attr.sq_psn = (
        peer["qpn"],
        e.IBV_MTU_1024,
        peer["psn"],
        PSN,
    )
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 17, 7, 7
    attr.ah_attr = address(peer)
    qp.to_rts(attr)
    now, _ = qp.query(0x1FFFFF)
    # The port stands in the address, too.
    tell(**(fields(now) | fields(now.ah_attr) | fields(now.cap)))
    place = SGE(mr.buf, BYTES, mr.lkey)
    for line in sys.stdin:
        word = line.strip()
        if word == "write":
            mr.write("w" * BYTES, BYTES)
            tell(status=post(qp, cq, e.IBV_WR_RDMA_WRITE, place, peer))
        elif word == "read":
            tell(status=post(qp, cq, e.IBV_WR_RDMA_READ, place, peer))
        elif word == "look":
            tell(bytes=sorted(set(mr.read(BYTES, 0).decode("latin1"))))
        else:
            break


main()
