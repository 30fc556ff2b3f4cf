// What needs no other rank: structs of other headers, names of statuses, handles that are none.
// Run: structs STORE_DIRECTORY
#include "common.h"

static wv_moe_config shape(void) {
    wv_moe_config config;
    WV_INIT(&config);
    config.hidden = 64;
    config.experts = 4;
    config.top_k = 2;
    config.max_tokens = 8;
    return config;
}

static uint64_t recv_bytes(const wv_moe_config *config) {
    wv_bytes bytes;
    WV_INIT(&bytes);
    check(wv_required_bytes(config, 2, &bytes), "wv_required_bytes");
    return bytes.recv_x;
}

// A program with another header than the library's.
static void sizes(void) {
    struct {
        wv_moe_config known;
        uint32_t more[2];
    } newer;
    wv_moe_config config = shape();
    const uint64_t want = recv_bytes(&config);
    must(config.size == sizeof config && want == 2 * 16 * 64 * 2, "recv_x is [2, 16, 64] of BF16");

    // Shorter: what lies after its end is not looked at.
    config.format = 77;
    config.layout = 77;
    config.reserved = 77;
    config.size = offsetof(wv_moe_config, format);
    must(recv_bytes(&config) == want, "fields that are not there have their defaults");

    // Longer.
    memset(&newer, 0, sizeof newer);
    newer.known = shape();
    newer.known.size = sizeof newer;
    must(recv_bytes(&newer.known) == want, "zeros that the library does not know are defaults");
    newer.more[1] = 3;
    wv_bytes bytes;
    WV_INIT(&bytes);
    refused(wv_required_bytes(&newer.known, 2, &bytes), WV_BAD_STRUCT, "of config is 0x3; it must be 0");

    // None.
    config = shape();
    config.size = 0;
    refused(wv_required_bytes(&config, 2, &bytes), WV_BAD_STRUCT, "size of config is 0; it must be that of a wv_moe_config");
    config.size = 18;
    refused(wv_required_bytes(&config, 2, &bytes), WV_BAD_STRUCT, "size of config is 18; it must be");
    config.size = SIZE_MAX;
    refused(wv_required_bytes(&config, 2, &bytes), WV_BAD_STRUCT, "up to 4096");

    // Answers are filled as far as they go.
    config = shape();
    WV_INIT(&bytes);
    bytes.size = offsetof(wv_bytes, recv_x);
    bytes.recv_x = 99;
    check(wv_required_bytes(&config, 2, &bytes), "wv_required_bytes");
    must(bytes.handle != 0 && bytes.recv_x == 99 && bytes.size == offsetof(wv_bytes, recv_x), "no byte behind the end");
    bytes.size = 0;
    refused(wv_required_bytes(&config, 2, &bytes), WV_BAD_STRUCT, "size of bytes is 0");
    config.reserved = 1;
    WV_INIT(&bytes);
    refused(wv_required_bytes(&config, 2, &bytes), WV_BAD_ARGUMENT, "reserved is 1");
}

static void statuses(void) {
    must(strcmp(wv_status_name(WV_OK), "WV_OK") == 0, "the name of a status is that of the header");
    must(strcmp(wv_status_name(WV_EXPELLED), "WV_EXPELLED") == 0, "of each");
    must(strcmp(wv_status_text(WV_OUT_OF_MEMORY), "no memory is left") == 0, "and what it means");
    must(strcmp(wv_status_name(12345), "WV_?") == 0 && wv_status_text(-1) != NULL, "a number that is none has words too");
    // Their numbers never change.
    must(WV_BAD_ARGUMENT == 1 && WV_TIMEOUT == 7 && WV_PEER_ABSENT == 16 && WV_EXPELLED == 24 && WV_STORE_FAILED == 32, "");
    must(WV_NO_HCA == 48 && WV_OUT_OF_RING == 54 && WV_PANIC == 64 && WV_OTHER == 65, "the numbers of statuses");
}

// Every function with a handle that is null, and one that never lived.
static void handles(void) {
    wv_team *const teams[] = {NULL, (wv_team *)(uintptr_t)0x7001};
    wv_moe *const moes[] = {NULL, (wv_moe *)(uintptr_t)0x7001};
    wv_call *const calls[] = {NULL, (wv_call *)(uintptr_t)0x7001};
    wv_group *const groups[] = {NULL, (wv_group *)(uintptr_t)0x7001};
    const wv_status wanted[] = {WV_BAD_ARGUMENT, WV_BAD_HANDLE};
    for (int i = 0; i < 2; ++i) {
        const wv_status want = wanted[i];
        wv_team *const t = teams[i];
        const char *const team = "team is ";
        refused(wv_team_get_info(t, NULL), want, team);
        refused(wv_team_check(t), want, team);
        refused(wv_team_rank(t, NULL, NULL), want, team);
        refused(wv_team_barrier(t, "x"), want, team);
        refused(wv_team_announce(t), want, team);
        refused(wv_stream_synchronize(t, NULL, 1), want, team);
        refused(wv_device_alloc(t, 1, NULL), want, team);
        refused(wv_device_free(t, NULL), want, team);
        refused(wv_device_write(t, NULL, NULL, 1), want, team);
        refused(wv_device_read(t, NULL, NULL, 1), want, team);
        refused(wv_window_create(t, WV_WINDOW_ANY, 8, NULL), want, team);
        refused(wv_window_get(t, 0, NULL), want, team);
        refused(wv_launch(t, NULL, NULL, 0, NULL), want, team);
        refused(wv_peer_get_info(t, 0, NULL), want, team);
        refused(wv_peer_fail(t, 0), want, team);
        refused(wv_peer_recover(t, 0, NULL), want, team);
        refused(wv_peer_connect(t, 0, 1, 1), want, team);
        refused(wv_peer_open(t, 0), want, team);
        refused(wv_moe_create(t, "x", NULL, NULL), want, team);
        refused(wv_moe_create_placed(t, "x", NULL, NULL, NULL), want, team);
        wv_moe *const m = moes[i];
        refused(wv_moe_local_experts(m, NULL, 0, NULL), want, "moe is ");
        refused(wv_moe_set_deadlines(m, NULL), want, "moe is ");
        refused(wv_moe_set_view(m, NULL, 1), want, "moe is ");
        refused(wv_moe_place_by(m, NULL, NULL), want, "moe is ");
        refused(wv_combine_staging(m, 0, NULL), want, "moe is ");
        refused(wv_call_create(m, NULL), want, "moe is ");
        refused(wv_group_start(m, NULL, NULL), want, "moe is ");
        wv_call *const c = calls[i];
        refused(wv_report(c, NULL), want, "call is ");
        refused(wv_dispatch_send(c, NULL, NULL), want, "call is ");
        refused(wv_dispatch_receive(c, NULL, NULL), want, "call is ");
        refused(wv_dispatch(c, NULL, NULL, NULL), want, "call is ");
        refused(wv_combine_send(c, NULL, NULL), want, "call is ");
        refused(wv_combine_receive(c, NULL, NULL), want, "call is ");
        refused(wv_combine(c, NULL, NULL, NULL), want, "call is ");
        wv_group *const g = groups[i];
        refused(wv_group_get_view(g, NULL, NULL, NULL, 0), want, "group is ");
        refused(wv_group_get_counters(g, NULL), want, "group is ");
        refused(wv_group_wait(g, WV_GROUP_SERVING, 1), want, "group is ");
        refused(wv_group_wait_view(g, 1, 1), want, "group is ");
        refused(wv_group_suspect(g, 0, "x"), want, "group is ");
        refused(wv_group_leave(g, 1), want, "group is ");
        refused(wv_group_next_event(g, NULL, 1), want, "group is ");
    }
    // NULL is given back without effect, what never lived is not.
    check(wv_team_close(NULL, NULL), "wv_team_close");
    check(wv_moe_destroy(NULL), "wv_moe_destroy");
    check(wv_call_destroy(NULL), "wv_call_destroy");
    check(wv_group_destroy(NULL), "wv_group_destroy");
    refused(wv_team_close(teams[1], NULL), WV_BAD_HANDLE, "team is 0x7001, which is no wv_team that lives");
    refused(wv_moe_destroy(moes[1]), WV_BAD_HANDLE, "no wv_moe that lives");
    refused(wv_call_destroy(calls[1]), WV_BAD_HANDLE, "no wv_call that lives");
    refused(wv_group_destroy(groups[1]), WV_BAD_HANDLE, "no wv_group that lives");
}

// A team of one, with places for others.
static void alone(const char *folder) {
    char url[4096];
    must(snprintf(url, sizeof url, "file://%s", folder) < (int)sizeof url, "a path");
    wv_team_config config;
    WV_INIT(&config);
    config.ranks = 2;
    config.gpu = "simt";
    config.store = url;
    config.founders = 3;
    wv_team *team = NULL;
    refused(wv_team_open(&config, &team), WV_BAD_ARGUMENT, "founders is 3; it must be at most ranks, which is 2");
    config.founders = 1;
    config.rank = 1;
    refused(wv_team_open(&config, &team), WV_BAD_ARGUMENT, "others call wv_team_join");
    refused(wv_team_join(&config, 1, &team), WV_TIMEOUT, "no group meets in the store");
    refused(wv_team_join(NULL, 1, &team), WV_BAD_ARGUMENT, "config is null");
    config.store = "file:///there/is/no/such/folder";
    refused(wv_team_join(&config, 1, &team), WV_STORE_REFUSED, "does not exist");
    config.store = url;
    config.rank = 0;
    config.device = "mlx5_77";
    refused(wv_team_open(&config, &team), WV_NO_HCA, "no RDMA device mlx5_77");
    must(team == NULL, "a refused call makes nothing");
}

// In a store of its own, since a rank has given up in that of `alone`.
static void founder(void) {
    wv_team_config config;
    WV_INIT(&config);
    config.ranks = 1;
    config.gpu = "simt";
    wv_team *team = NULL;
    check(wv_team_open(&config, &team), "wv_team_open");
    wv_team_info info;
    WV_INIT(&info);
    check(wv_team_get_info(team, &info), "wv_team_get_info");
    must(info.rank == 0 && info.ranks == 1 && info.generation == 1 && info.rails == 1 && info.windows == 0, "a founder alone");
    must(info.context != NULL && info.deadline_ns == 1000000000, "where kernels find the team, and how long they wait");
    check(wv_team_check(team), "wv_team_check");
    wv_window window;
    WV_INIT(&window);
    refused(wv_window_create(team, 3, 8, &window), WV_BAD_ARGUMENT, "kind is 3; it must be one of WV_WINDOW_");
    refused(wv_window_create(team, WV_WINDOW_ANY, 8, NULL), WV_BAD_ARGUMENT, "window is ");
    refused(wv_window_get(team, 0, &window), WV_BAD_ARGUMENT, "number is 0; it must be below 0");
    wv_launch_config launch;
    WV_INIT(&launch);
    refused(wv_launch(team, &launch, NULL, 0, NULL), WV_BAD_ARGUMENT, "launch.kernel is null");
    launch.kernel = "no_such_kernel";
    refused(wv_launch(team, &launch, NULL, 0, NULL), WV_BAD_ARGUMENT, "no_such_kernel");
    launch.cooperative = 2;
    refused(wv_launch(team, &launch, NULL, 0, NULL), WV_BAD_ARGUMENT, "launch.cooperative is 2");
    wv_peer_info peer;
    WV_INIT(&peer);
    refused(wv_peer_get_info(team, 1, &peer), WV_BAD_ARGUMENT, "rank 1 is unknown");
    refused(wv_peer_fail(team, 0), WV_BAD_ARGUMENT, "peer is 0; it must be another rank");
    wv_moe_config layer = shape();
    wv_moe *moe = NULL;
    check(wv_moe_create(team, "layer", &layer, &moe), "wv_moe_create");
    wv_group_config patience;
    WV_INIT(&patience);
    patience.lease_ttl_ms = 1;
    wv_group *group = NULL;
    refused(wv_group_start(moe, &patience, &group), WV_BAD_CONFIG, "lease_ttl is 1ms; it must be 50ms to");
    wv_deadlines deadlines;
    WV_INIT(&deadlines);
    deadlines.steady_ns = 5000000;
    check(wv_moe_set_deadlines(moe, &deadlines), "wv_moe_set_deadlines");
    check(wv_moe_destroy(moe), "wv_moe_destroy");
    check(wv_team_close(team, NULL), "wv_team_close");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    sizes();
    statuses();
    handles();
    alone(argv[1]);
    founder();
    printf("structs, statuses and handles are as the header says\n");
    return 0;
}
