// Three ranks, which are threads, gather what each has in windows, by the example kernel of the library
// (kernels/example/ring_all_gather.cu), as a program's own kernels would. Between gathers a pair of ranks fails and recovers.
// Run: windows STORE_DIRECTORY, under a software HCA or with a ConnectX.
enum { RANKS = 3, HIDDEN = 64, EXPERTS = 3, TOP_K = 1, MAX_TOKENS = 1, CHUNK = 256, GATHERS = 6 };

#include "two.h"

#ifdef __cplusplus
#include <warpverbs/abi.h>

// What kernels take is what the header says.
static_assert(sizeof(wv_kernel_window) == sizeof(wv::Window), "length");
static_assert(offsetof(wv_kernel_window, lkey_be) == offsetof(wv::Window, lkey_be), "lkey_be");
static_assert(offsetof(wv_kernel_window, base) == offsetof(wv::Window, base), "base");
static_assert(offsetof(wv_kernel_window, bytes) == offsetof(wv::Window, bytes), "bytes");
#endif

// `AllGatherParams` of the kernel.
typedef struct {
    void *team;
    wv_kernel_window window;
    uint64_t chunk_bytes;
    uint64_t call;
    uint32_t *status;
} gather_params;

typedef struct {
    wv_team *team;
    uint32_t rank;
    wv_team_info info;
    wv_window window;
    uint32_t *status;
} rank_state;

static uint8_t byte_of(uint32_t rank, uint32_t call, uint32_t i) { return (uint8_t)(rank * 83 + call * 31 + i * 7 + 1); }

static void make_windows(rank_state *r) {
    const size_t bytes = RANKS * CHUNK + 8 * RANKS;
    wv_window other;
    WV_INIT(&r->window);
    WV_INIT(&other);
    check(wv_window_create(r->team, WV_WINDOW_ANY, bytes, &r->window), "wv_window_create");
    check(wv_window_create(r->team, WV_WINDOW_DATA, 64, &other), "wv_window_create");
    must(other.kind == WV_WINDOW_DATA && other.kernel.id == 1 && other.bytes == 64, "the second window");
    check(wv_window_create(r->team, WV_WINDOW_SEND, 8192, &other), "wv_window_create");
    must(r->window.bytes == bytes && r->window.kernel.id == 0, "the first window");
    must((uintptr_t)r->window.address == r->window.kernel.base && r->window.kernel.bytes == bytes, "of one address");
    WV_INIT(&other);
    check(wv_window_get(r->team, 0, &other), "wv_window_get");
    must(memcmp(&other, &r->window, sizeof other) == 0, "the same again");
    check(wv_window_get(r->team, 2, &other), "wv_window_get");
    must(other.kind == WV_WINDOW_SEND && other.bytes == 8192, "the third window");
    refused(wv_window_get(r->team, 3, &other), WV_BAD_ARGUMENT, "number is 3; it must be below 3");
    WV_INIT(&r->info);
    check(wv_team_get_info(r->team, &r->info), "wv_team_get_info");
    must(r->info.windows == 3 && r->info.rank == r->rank && r->info.ranks == RANKS, "the team");
    uint8_t zeros[RANKS * CHUNK], found[RANKS * CHUNK];
    memset(zeros, 0, sizeof zeros);
    check(wv_device_read(r->team, found, r->window.address, sizeof found), "window");
    must(memcmp(found, zeros, sizeof found) == 0, "a window begins as zeros");
    // From here on the kernels of others write to it.
    check(wv_team_barrier(r->team, "looked"), "wv_team_barrier");
}

static void gather(rank_state *r, uint32_t call) {
    uint8_t chunk[CHUNK], found[RANKS][CHUNK];
    for (uint32_t i = 0; i < CHUNK; ++i) chunk[i] = byte_of(r->rank, call, i);
    check(wv_device_write(r->team, (char *)r->window.address + r->rank * CHUNK, chunk, CHUNK), "own chunk");
    gather_params params;
    memset(&params, 0, sizeof params);
    params.team = r->info.context;
    params.window = r->window.kernel;
    params.chunk_bytes = CHUNK;
    params.call = call;
    params.status = r->status;
    wv_launch_config launch;
    WV_INIT(&launch);
    launch.kernel = "ring_all_gather";
    launch.block[0] = 32;
    check(wv_launch(r->team, &launch, &params, sizeof params, NULL), "wv_launch");
    finish(r->team);
    uint32_t status = 99;
    check(wv_device_read(r->team, &status, r->status, sizeof status), "status");
    must(status == 0, "the kernel ended well");
    check(wv_device_read(r->team, found, r->window.address, sizeof found), "window");
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        for (uint32_t i = 0; i < CHUNK; ++i) must(found[rank][i] == byte_of(rank, call, i), "every rank's chunk is here");
    }
    char name[32];
    must(snprintf(name, sizeof name, "gathered-%u", (unsigned)call) < (int)sizeof name, "a name");
    check(wv_team_barrier(r->team, name), "wv_team_barrier");
}

static wv_peer_info peer_info(rank_state *r, uint32_t peer) {
    wv_peer_info info;
    WV_INIT(&info);
    check(wv_peer_get_info(r->team, peer, &info), "wv_peer_get_info");
    return info;
}

// Ranks 0 and 1 lose each other and come back; rank 2 sees nothing of it.
static void fail_and_recover(rank_state *r) {
    const uint32_t peer = 1 - r->rank;
    wv_peer_info info = peer_info(r, peer);
    must(info.generation == 1 && info.connected == 1 && info.closed == 0 && info.guards == 0, "connected at first");
    check(wv_peer_connect(r->team, peer, 1, 0), "connected as it is");
    check(wv_peer_fail(r->team, peer), "wv_peer_fail");
    info = peer_info(r, peer);
    must(info.connected == 0 && info.closed == 1, "nothing is posted to it");
    refused(wv_peer_open(r->team, peer), WV_PEER_NOT_CONNECTED, "is not connected");
    refused(wv_peer_connect(r->team, peer, 1, 0), WV_GENERATION_OVER, "comes back as generation 2 or later");
    uint32_t times = 0;
    check(wv_peer_recover(r->team, peer, &times), "wv_peer_recover");
    must(times == 1, "once");
    info = peer_info(r, peer);
    must(info.generation == 1 && info.connected == 1 && info.closed == 0, "connected again");
    check(wv_peer_recover(r->team, peer, NULL), "wv_peer_recover");
}

static void *rank_main(void *argument) {
    rank_state r;
    memset(&r, 0, sizeof r);
    r.rank = *(const uint32_t *)argument;
    r.team = open_team(r.rank);
    make_windows(&r);
    r.status = (uint32_t *)device(r.team, sizeof(uint32_t));
    for (uint32_t call = 1; call <= GATHERS; ++call) {
        gather(&r, call);
        if (call == GATHERS / 2 && r.rank < 2) fail_and_recover(&r);
    }
    check(wv_team_check(r.team), "wv_team_check");
    check(wv_team_close(r.team, NULL), "wv_team_close");
    return NULL;
}

int main(int argc, char **argv) {
    (void)make_input;
    (void)write_input;
    (void)same;
    (void)expert;
    (void)draw_token;
    (void)draw_weight;
    (void)shape;
    const int wrong = run_ranks(argc, argv, rank_main);
    if (wrong != 0) return wrong;
    printf("windows: 3 ranks gather %d times\n", (int)GATHERS);
    return 0;
}
