"""Fetch-and-adds through pyverbs between two processes: `fetch_add.py -g INDEX -n COUNT -p PORT [SERVER]`.

The client adds 1 to a word of the server COUNT times, one after the other, and prints the median time of one in microseconds.
The server checks the sum."""

import argparse
import socket
import statistics
import struct
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

parser = argparse.ArgumentParser()
parser.add_argument("-g", type=int, default=3)
parser.add_argument("-n", type=int, default=2000)
parser.add_argument("-p", type=int, required=True)
parser.add_argument("server", nargs="?")
options = parser.parse_args()

context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 16)
access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
mr = MR(pd, 4096, access)
mr.write(struct.pack("=Q", 0), 8)
attr = QPAttr(port_num=1)
attr.qp_access_flags = access
qp = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(16, 16, 1, 1)), attr)

FORMAT = "!IQI39s"
mine = struct.pack(FORMAT, qp.qp_num, mr.buf, mr.rkey, str(context.query_gid(1, options.g)).encode())


def exchange(connection):
    connection.sendall(mine)
    number, address, rkey, gid = struct.unpack(FORMAT, connection.recv(len(mine), socket.MSG_WAITALL))
    attr = QPAttr(port_num=1)
    attr.qp_access_flags = access
    attr.dest_qp_num, attr.path_mtu = number, e.IBV_MTU_1024
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 6, 18, 7, 7
    route = GlobalRoute(dgid=GID(gid.decode()), sgid_index=options.g)
    attr.ah_attr = AHAttr(port_num=1, is_global=True, gr=route, dlid=0)
    qp.to_rts(attr)
    # Both ends receive before either sends.
    connection.sendall(b"1")
    connection.recv(1, socket.MSG_WAITALL)
    return address, rkey


if options.server is None:
    with socket.create_server(("", options.p)) as listener:
        connection = listener.accept()[0]
    exchange(connection)
    connection.recv(1)
    total = struct.unpack("=Q", mr.read(8, 0))[0]
    assert total == options.n, f"the word holds {total}, {options.n} were added"
else:
    connection = socket.create_connection((options.server, options.p))
    address, rkey = exchange(connection)
    times = []
    for number in range(options.n):
        wr = SendWR(wr_id=number, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)])
        wr.set_wr_atomic(rkey, address, 1)
        start = time.perf_counter_ns()
        qp.post_send(wr)
        found = []
        while not found:
            found = cq.poll(1)[1]
        times.append((time.perf_counter_ns() - start) / 1000)
        assert found[0].status == e.IBV_WC_SUCCESS, found[0]
    connection.sendall(b"1")
    print(f"median {statistics.median(times):.2f} us")
