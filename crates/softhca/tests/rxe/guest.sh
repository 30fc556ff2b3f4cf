# shellcheck shell=dash
# Runs in the Soft-RoCE guest: brings up its two networks and the RDMA device rxe0, then runs each line that comes over the
# serial line and says `@done STATUS`.
#
# eth0 is the wire between rxe and softhca; eth1 is QEMU's own network, for the TCP connections of the programs.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
stty raw -echo -onlcr </dev/console
ip link set lo up
ip link set eth0 mtu 4400 up
ip addr add 10.0.0.2/24 dev eth0
ip link set eth1 up
ip addr add 10.0.2.15/24 dev eth1
rdma link add rxe0 type rxe netdev eth0 || echo "@failed to make rxe0"
for _ in $(seq 100); do
    grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && grep -q 0a00:0002 /sys/class/infiniband/rxe0/ports/1/gids/1 && break
    sleep 0.05
done
echo "@ready $(cut -d' ' -f1 /proc/uptime) $(uname -r)"
while IFS= read -r line; do
    eval "$line" </dev/null
    echo "@done $?"
done
