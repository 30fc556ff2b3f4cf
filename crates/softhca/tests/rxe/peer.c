/* One of two programs that exchange RDMA operations over one RC QP and check every byte, over libibverbs alone: one runs on
 * softhca, the other on Soft-RoCE.
 *
 *   peer DEVICE GID-INDEX MTU ROUNDS active|passive listen PORT
 *   peer DEVICE GID-INDEX MTU ROUNDS active|passive connect HOST PORT
 *
 * The active one posts SEND, WRITE (each also with immediate data), READ, FETCH_ADD and CMP_SWAP in batches; the passive one
 * posts receives, and looks at its memory on a word over the TCP connection. Each prints one line `@ok COUNTS`, or what
 * was wrong. */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 8, SLOT = 16384, AREA = BATCH * SLOT, SECONDS = 20 };
enum kind { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, FETCH_ADD, CMP_SWAP, END };
static const char *const names[] = {"SEND", "SEND_IMM", "WRITE", "WRITE_IMM", "READ", "FETCH_ADD", "CMP_SWAP"};

/* Area 0 is for what the active side keeps locally, area 1 for what the passive side gets; receives go to area 2. */
static unsigned char memory[3 * AREA] __attribute__((aligned(4096)));
static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static int channel = -1;

/* What a side sends the other before they start. */
struct address { uint32_t qpn, psn, rkey; uint64_t base; union ibv_gid gid; };
/* A batch that the active side has finished, or (kind READ) is about to do. */
struct batch { uint32_t kind, seed, bytes; };
static struct address remote;

static void fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  printf("@failed: ");
  vprintf(format, list);
  printf("\n");
  exit(1);
}

#define CHECK(what) do { if (!(what)) { perror(#what); fail("%s", #what); } } while (0)

static unsigned char byte_of(uint32_t seed, uint32_t at) { return (unsigned char)(seed * 37 + at * 7 + (at >> 8)); }
static void fill(unsigned char *to, uint32_t seed, uint32_t bytes) { for (uint32_t i = 0; i < bytes; i++) to[i] = byte_of(seed, i); }
static void expect(const unsigned char *have, uint32_t seed, uint32_t bytes, const char *what) {
  for (uint32_t i = 0; i < bytes; i++)
    if (have[i] != byte_of(seed, i)) fail("%s of %u bytes, seed %u: byte %u is %02x, not %02x", what, bytes, seed, i, have[i], byte_of(seed, i));
}

static void tell(const void *data, size_t bytes) { CHECK(write(channel, data, bytes) == (ssize_t)bytes); }
static void hear(void *data, size_t bytes) {
  for (size_t have = 0; have < bytes;) {
    ssize_t got = read(channel, (char *)data + have, bytes - have);
    if (got <= 0) fail("the other side is gone");
    have += (size_t)got;
  }
}

static void poll_one(struct ibv_wc *wc, const char *what) {
  time_t end = time(NULL) + SECONDS;
  int found;
  while ((found = ibv_poll_cq(cq, 1, wc)) == 0)
    if (time(NULL) > end) fail("no completion of %s within %d s", what, SECONDS);
  CHECK(found == 1);
  if (wc->status != IBV_WC_SUCCESS) fail("%s %lu: %s (vendor %#x)", what, (unsigned long)wc->wr_id, ibv_wc_status_str(wc->status), wc->vendor_err);
}

static void post_receive(uint32_t slot) {
  struct ibv_sge sge = {(uintptr_t)memory + 2 * AREA + slot * SLOT, SLOT, mr->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
  CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Posts one batch of `kind` and waits for its completions. */
static void run_batch(enum kind kind, uint32_t seed, uint32_t bytes) {
  static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP};
  struct ibv_wc wc;
  for (uint32_t i = 0; i < BATCH; i++) {
    struct ibv_sge sge = {(uintptr_t)memory + i * SLOT, bytes, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = opcodes[kind], .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.imm_data = htonl(seed + i);
    uint64_t at = remote.base + AREA + i * SLOT;
    if (kind == FETCH_ADD || kind == CMP_SWAP) {
      wr.wr.atomic.remote_addr = remote.base + AREA; /* all on one word */
      wr.wr.atomic.rkey = remote.rkey;
      /* Adds seed + i; swaps i + 1 for i, but the last one compares with what is not there. */
      wr.wr.atomic.compare_add = kind == FETCH_ADD ? seed + i : (i == BATCH - 1 ? ~0ull : i);
      wr.wr.atomic.swap = i + 1;
    } else {
      wr.wr.rdma.remote_addr = at;
      wr.wr.rdma.rkey = remote.rkey;
    }
    if (kind < READ) fill(memory + i * SLOT, seed + i, bytes);
    else memset(memory + i * SLOT, 0xee, bytes);
    CHECK(!ibv_post_send(qp, &wr, &bad));
  }
  for (uint32_t i = 0; i < BATCH; i++) {
    poll_one(&wc, names[kind]);
    if (wc.wr_id != i) fail("completion of %s %lu, not %u", names[kind], (unsigned long)wc.wr_id, i);
  }
}

static void active(uint32_t rounds, uint32_t mtu) {
  const uint32_t sizes[] = {1, 7, mtu, 3 * mtu + 5};
  uint32_t counts[END] = {0}, seed = 1;
  char answer;
  for (uint32_t round = 0; round < rounds; round++)
    for (enum kind kind = SEND; kind < END; kind++) {
      const uint32_t bytes = kind >= FETCH_ADD ? 8 : sizes[(round + kind) % 4];
      struct batch batch = {kind, seed, bytes};
      if (kind >= READ) { /* the passive side prepares its memory */
        tell(&batch, sizeof batch);
        hear(&answer, 1);
      }
      run_batch(kind, seed, bytes);
      uint64_t sum = 0;
      for (uint32_t i = 0; i < BATCH; i++) {
        uint64_t have;
        memcpy(&have, memory + i * SLOT, 8);
        if (kind == READ) expect(memory + i * SLOT, seed + i, bytes, "READ");
        if (kind == FETCH_ADD && have != sum) fail("FETCH_ADD %u found %lu, not %lu", i, (unsigned long)have, (unsigned long)sum);
        if (kind == CMP_SWAP && have != i) fail("CMP_SWAP %u found %lu", i, (unsigned long)have);
        sum += seed + i;
      }
      tell(&batch, sizeof batch);
      hear(&answer, 1);
      counts[kind] += BATCH;
      seed += BATCH;
    }
  struct batch end = {END, 0, 0};
  tell(&end, sizeof end);
  printf("@ok");
  for (enum kind kind = SEND; kind < END; kind++) printf(" %s=%u", names[kind], counts[kind]);
  printf("\n");
}

/* Looks at what a batch did here. */
static void verify(const struct batch *batch) {
  struct ibv_wc wc;
  for (uint32_t i = 0; i < BATCH; i++) {
    const unsigned char *slot = memory + AREA + i * SLOT;
    const char *what = names[batch->kind];
    if (batch->kind == SEND || batch->kind == SEND_IMM || batch->kind == WRITE_IMM) {
      poll_one(&wc, what);
      if ((batch->kind == WRITE_IMM) != (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)) fail("%s came as opcode %d", what, wc.opcode);
      if (wc.byte_len != batch->bytes) fail("%s of %u bytes came as %u", what, batch->bytes, wc.byte_len);
      if (batch->kind != SEND && (!(wc.wc_flags & IBV_WC_WITH_IMM) || ntohl(wc.imm_data) != batch->seed + i)) fail("%s without its immediate", what);
      if (batch->kind != WRITE_IMM) slot = memory + 2 * AREA + wc.wr_id * SLOT;
      post_receive((uint32_t)wc.wr_id);
    }
    if (batch->kind <= WRITE_IMM) expect(slot, batch->seed + i, batch->bytes, what);
  }
  uint64_t word, sum = 0;
  memcpy(&word, memory + AREA, 8);
  for (uint32_t i = 0; i < BATCH; i++) sum += batch->seed + i;
  if (batch->kind == FETCH_ADD && word != sum) fail("after FETCH_ADD the word is %lu, not %lu", (unsigned long)word, (unsigned long)sum);
  if (batch->kind == CMP_SWAP && word != BATCH - 1) fail("after CMP_SWAP the word is %lu", (unsigned long)word);
}

static void passive(void) {
  struct batch batch;
  uint32_t batches = 0;
  for (;; batches++) {
    hear(&batch, sizeof batch);
    if (batch.kind == END) break;
    if (batch.kind >= READ) {
      memset(memory + AREA, 0, 8);
      if (batch.kind == READ)
        for (uint32_t i = 0; i < BATCH; i++) fill(memory + AREA + i * SLOT, batch.seed + i, batch.bytes);
      tell("r", 1);
      hear(&batch, sizeof batch);
    }
    verify(&batch);
    if (batch.kind < READ) memset(memory + AREA, 0x55, AREA);
    tell("v", 1);
  }
  printf("@ok batches=%u\n", batches);
}

static void open_channel(const char *how, char **arguments) {
  int one = 1;
  struct sockaddr_in to = {.sin_family = AF_INET};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(fd >= 0);
  if (!strcmp(how, "listen")) {
    to.sin_port = htons((uint16_t)atoi(arguments[0]));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    CHECK(!bind(fd, (struct sockaddr *)&to, sizeof to) && !listen(fd, 1));
    printf("@listens\n");
    channel = accept(fd, NULL, NULL);
    close(fd);
  } else {
    CHECK(inet_aton(arguments[0], &to.sin_addr));
    to.sin_port = htons((uint16_t)atoi(arguments[1]));
    CHECK(!connect(fd, (struct sockaddr *)&to, sizeof to));
    channel = fd;
  }
  CHECK(channel >= 0);
  setsockopt(channel, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct timeval limit = {2 * SECONDS, 0};
  setsockopt(channel, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static struct ibv_context *open_device(const char *name) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  for (int i = 0; list && i < count; i++)
    if (!strcmp(ibv_get_device_name(list[i]), name)) return ibv_open_device(list[i]);
  fail("no device %s among %d", name, count);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 8) fail("usage: see the source");
  setvbuf(stdout, NULL, _IOLBF, 0);
  const uint8_t gid_index = (uint8_t)atoi(argv[2]);
  const uint32_t mtu = (uint32_t)atoi(argv[3]);
  struct ibv_context *context = open_device(argv[1]);
  CHECK(context);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  CHECK(pd);
  CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  CHECK(mr = ibv_reg_mr(pd, memory, sizeof memory, rights));
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .cap = {32, 32, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  CHECK(qp = ibv_create_qp(pd, &init));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)rights};
  CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));

  struct address own = {.qpn = qp->qp_num, .psn = 0xfffff0 + (uint32_t)(getpid() & 7), .rkey = mr->rkey, .base = (uintptr_t)memory};
  CHECK(!ibv_query_gid(context, 1, gid_index, &own.gid));
  open_channel(argv[6], argv + 7);
  tell(&own, sizeof own);
  hear(&remote, sizeof remote);

  memset(&attr, 0, sizeof attr);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = mtu == 4096 ? IBV_MTU_4096 : mtu == 1024 ? IBV_MTU_1024 : IBV_MTU_256;
  attr.dest_qp_num = remote.qpn;
  attr.rq_psn = remote.psn;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 12;
  attr.ah_attr = (struct ibv_ah_attr){.is_global = 1, .port_num = 1, .grh = {.dgid = remote.gid, .sgid_index = gid_index, .hop_limit = 64}};
  CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = own.psn;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
  if (!strcmp(argv[5], "passive"))
    for (uint32_t slot = 0; slot < BATCH; slot++) post_receive(slot);
  char ready;
  tell("r", 1);
  hear(&ready, 1);
  if (!strcmp(argv[5], "active")) active((uint32_t)atoi(argv[4]), mtu);
  else passive();
  /* The other side may still want an answer to what it repeats. */
  tell("e", 1);
  hear(&ready, 1);
  CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
  return 0;
}
