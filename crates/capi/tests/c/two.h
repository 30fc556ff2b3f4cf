// Ranks, which are threads, and what a call of them is given. Included after the shape: RANKS, HIDDEN, EXPERTS, TOP_K,
// MAX_TOKENS. Inputs follow from rank and call, expert e computes y = x * (e + 1) / 4.
#ifndef WARPVERBS_TEST_TWO_H
#define WARPVERBS_TEST_TWO_H

#include "common.h"

static const size_t ROW_BYTES = HIDDEN * sizeof(uint16_t);
static const char *store_url;

typedef struct {
    uint32_t tokens;
    uint16_t x[MAX_TOKENS][HIDDEN];
    int32_t experts[MAX_TOKENS][TOP_K];
    float weights[MAX_TOKENS][TOP_K];
} batch;

static uint16_t expert(uint32_t id, uint16_t x) { return narrow(wide(x) * ((float)(id + 1) / 4.0f)); }

static void draw_token(uint64_t *state, uint16_t x[HIDDEN]) {
    for (uint32_t i = 0; i < HIDDEN; ++i) x[i] = narrow((float)(draw(state) % 2001) / 250.0f - 4.0f);
}

static float draw_weight(uint64_t *state) { return (float)(draw(state) % 1000) / 999.0f; }

static wv_team_config of_rank(uint32_t rank) {
    wv_team_config config;
    WV_INIT(&config);
    config.ranks = RANKS;
    config.rank = rank;
    config.store = store_url;
    config.gpu = "simt";
    config.deadline_ms = 60000;
    config.join_timeout_ms = 60000;
    config.settings = "mtu=1024; windows=8";
    return config;
}

static wv_team *open_team(uint32_t rank) {
    const wv_team_config config = of_rank(rank);
    wv_team *team = NULL;
    check(wv_team_open(&config, &team), "wv_team_open");
    return team;
}

static wv_moe_config shape(void) {
    wv_moe_config config;
    WV_INIT(&config);
    config.hidden = HIDDEN;
    config.experts = EXPERTS;
    config.top_k = TOP_K;
    config.max_tokens = MAX_TOKENS;
    return config;
}

static void finish(wv_team *team) { check(wv_stream_synchronize(team, NULL, 150000), "wv_stream_synchronize"); }

// Memory for the inputs of a call.
static void make_input(wv_team *team, wv_dispatch_input *input) {
    WV_INIT(input);
    input->x = device(team, MAX_TOKENS * ROW_BYTES);
    input->experts = (const int32_t *)device(team, MAX_TOKENS * TOP_K * sizeof(int32_t));
    input->weights = (const float *)device(team, MAX_TOKENS * TOP_K * sizeof(float));
}

static void write_input(wv_team *team, const batch *in, wv_dispatch_input *input) {
    check(wv_device_write(team, (void *)input->x, in->x, sizeof in->x), "x");
    check(wv_device_write(team, (void *)input->experts, in->experts, sizeof in->experts), "experts");
    check(wv_device_write(team, (void *)input->weights, in->weights, sizeof in->weights), "weights");
    input->tokens = in->tokens;
}

// Ends the program where an element of a call is not what the scalar loop says.
static void same(uint32_t rank, uint32_t call, uint32_t token, uint32_t element, uint16_t got, uint16_t want) {
    if (got == want) return;
    fprintf(stderr, "rank %u call %u token %u element %u: %#x, the scalar loop has %#x\n", (unsigned)rank, (unsigned)call,
            (unsigned)token, (unsigned)element, (unsigned)got, (unsigned)want);
    exit(1);
}

// Prints how many work requests the HCA has run, if it counts them as the software HCA does.
static void print_wqes(void) {
    char path[4096], text[32];
    const char *tree = getenv("SYSFS_PATH");
    snprintf(path, sizeof path, "%s/class/infiniband/mlx5_0/ports/1/hw_counters/tx_wqes", tree != NULL ? tree : "/sys");
    const int file = open(path, O_RDONLY);
    if (file < 0) return;
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0) return;
    text[length] = 0;
    printf("WQEs of mlx5_0: %s", text);
}

// Runs all ranks; nonzero if the command line or a thread is not what it must be.
static int run_ranks(int argc, char **argv, void *(*rank_main)(void *)) {
    static char url[4096];
    static uint32_t numbers[RANKS];
    pthread_t threads[RANKS];
    if (argc != 2 || snprintf(url, sizeof url, "file://%s", argv[1]) >= (int)sizeof url) return 2;
    store_url = url;
    for (int i = 0; i < RANKS; ++i) {
        numbers[i] = (uint32_t)i;
        if (pthread_create(&threads[i], NULL, rank_main, &numbers[i]) != 0) return 2;
    }
    for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
    print_wqes();
    return 0;
}

#endif
