"""Each entry of the GID table through libibverbs: traffic, answers to datagrams, and addresses that lead nowhere."""

import errno
from ipaddress import IPv6Address

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

QKEY = 0x11


def route(index, gid):
    return AHAttr(port_num=1, is_global=True, gr=GlobalRoute(dgid=gid, sgid_index=index), dlid=0)


def queue_pair(pd, cq, kind):
    init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap(10, 10, 1, 1))
    attr = QPAttr(port_num=1)
    attr.qkey = QKEY
    return QP(pd, init, attr)


def connect(qp, peer, address):
    attr = QPAttr(port_num=1)
    attr.dest_qp_num, attr.path_mtu = peer, e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 6, 8, 1, 7
    attr.ah_attr = address
    qp.to_rts(attr)


def completions(cq, count):
    found = []
    while len(found) < count:
        found += cq.poll(1)[1]
    return found


def error_of(call):
    try:
        call()
    except PyverbsRDMAError as error:
        return error.error_code
    except PyverbsError as error:
        return str(error)
    return 0


def datagram_header(gids, index):
    """The first 40 bytes of a datagram that the HCA has sent to itself, and its work completion."""
    sender, receiver = (queue_pair(pd, cq, e.IBV_QPT_UD) for _ in range(2))
    receiver.post_recv(RecvWR(sg=[SGE(mr.buf, 200, mr.lkey)], num_sge=1))
    send = SendWR(sg=[SGE(mr.buf + 1000, 8, mr.lkey)], num_sge=1)
    send.set_wr_ud(AH(pd, attr=route(index, gids[index])), receiver.qp_num, QKEY)
    sender.post_send(send)
    received = [entry for entry in completions(cq, 2) if entry.opcode & e.IBV_WC_RECV][0]
    assert received.status == e.IBV_WC_SUCCESS and received.wc_flags & e.IBV_WC_GRH
    return mr.read(40, 0), received


context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 50)
mr = MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
gids = [context.query_gid(1, index) for index in range(4)]
types = [context.query_gid_ex(1, index).gid_type for index in range(4)]
v1, v2 = e.IBV_GID_TYPE_ROCE_V1, e.IBV_GID_TYPE_ROCE_V2
assert types == [v1, v2, v1, v2], types
assert gids[0].gid == gids[1].gid and gids[2].gid == gids[3].gid

for index in range(4):
    one, two = (queue_pair(pd, cq, e.IBV_QPT_RC) for _ in range(2))
    connect(one, two.qp_num, route(index, gids[index]))
    connect(two, one.qp_num, route(index, gids[index]))
    asked = one.query(e.IBV_QP_AV)[0].ah_attr
    assert (asked.sgid_index, asked.dgid) == (index, gids[index].gid), asked
    mr.write("A" * 8, 8, 1000)
    two.post_recv(RecvWR(sg=[SGE(mr.buf, 8, mr.lkey)], num_sge=1))
    one.post_send(SendWR(sg=[SGE(mr.buf + 1000, 8, mr.lkey)], num_sge=1))
    assert all(entry.status == e.IBV_WC_SUCCESS for entry in completions(cq, 2))
    assert mr.read(8, 0) == b"A" * 8
    print(f"index {index} carries")

# libibverbs reads the header of a datagram for the way back, and finds the entry that it came to by GID and type.
for index in range(4):
    header, received = datagram_header(gids, index)
    if index == 3:
        assert header[:20] == bytes(20) and header[20] == 0x45 and header[29] == 17, header
    else:
        assert header[0] >> 4 == 6 and header[6] == (0x1B if types[index] == v1 else 17), header
        groups = [header[at : at + 2].hex() for at in range(8, 24, 2)]
        assert GID(":".join(groups)).gid == gids[index].gid, header
        assert header[24:] == header[8:24], header
    AH(pd, wc=received, grh=mr.buf, port_num=1)
    print(f"index {index} can be answered")

nobody = GID("0000:0000:0000:0000:0000:ffff:7f09:fefe")
nobody_local = GID("fe80:0000:0000:0000:0000:7fff:fe09:fefe")
for index in range(4):
    qp = queue_pair(pd, cq, e.IBV_QPT_RC)
    connect(qp, 0x77, route(index, nobody if index > 1 else nobody_local))
    qp.post_send(SendWR(sg=[SGE(mr.buf, 8, mr.lkey)], num_sge=1))
    assert completions(cq, 1)[0].status == e.IBV_WC_RETRY_EXC_ERR
    print(f"index {index}: nobody answers")

malformed = ["::", "::ffff:0.0.0.0", "::ffff:224.0.0.1", "ff02::1", "2001:db8::1", "fe80::1"]
malformed = [GID(IPv6Address(text).exploded) for text in malformed]
addresses = [(index, gid, errno.EHOSTUNREACH) for index in range(4) for gid in malformed]
# As Linux has it: both ends of one IP version, but where v1 finds the MAC in the GID.
addresses += [(0, gids[2], errno.EINVAL), (1, gids[3], errno.EINVAL), (3, gids[1], errno.EINVAL)]
addresses += [(2, gids[0], 0), (4, gids[3], errno.EINVAL)]
for index, gid, why in addresses:
    qp = queue_pair(pd, cq, e.IBV_QPT_RC)
    found = error_of(lambda: connect(qp, 0x77, route(index, gid)))
    assert found == why, (index, gid.gid, found, why)
    found = error_of(lambda: AH(pd, attr=route(index, gid)))
    assert (found == 0) == (why == 0), (index, gid.gid, found)
print(len(addresses), "addresses judged")
print("done")
