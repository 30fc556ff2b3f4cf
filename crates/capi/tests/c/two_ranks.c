// Two ranks, which are threads, dispatch and combine through the C ABI; a scalar loop says what must come out, bit for bit.
// Run: two_ranks STORE_DIRECTORY, under a software HCA or with a ConnectX.
enum { RANKS = 2, HIDDEN = 64, EXPERTS = 5, TOP_K = 2, MAX_TOKENS = 8, ROWS = RANKS * MAX_TOKENS, CALLS = 6 };

#include "two.h"

static void make_batch(uint32_t rank, uint32_t call, batch *out) {
    uint64_t state = ((uint64_t)call << 32) + rank + 1;
    memset(out, 0, sizeof *out);
    out->tokens = draw(&state) % (MAX_TOKENS + 1);
    for (uint32_t t = 0; t < out->tokens; ++t) {
        draw_token(&state, out->x[t]);
        const uint32_t first = draw(&state) % EXPERTS, other = (first + 1 + draw(&state) % (EXPERTS - 1)) % EXPERTS;
        out->experts[t][0] = (int32_t)first;
        out->experts[t][1] = draw(&state) % 4 == 0 ? -1 : (int32_t)other;
        for (uint32_t k = 0; k < TOP_K; ++k) out->weights[t][k] = draw_weight(&state);
    }
}

// Experts 0, 1, 2 live at rank 0, experts 3, 4 at rank 1.
static uint32_t home(int32_t id) { return id < 3 ? 0 : 1; }

// The experts of each rank in the order of the choices, rounded once; then the ranks in their order, rounded once.
static uint16_t scalar(const batch *in, uint32_t t, uint32_t i) {
    float total = 0.0f;
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        float sum = 0.0f;
        int any = 0;
        for (uint32_t k = 0; k < TOP_K; ++k) {
            const int32_t id = in->experts[t][k];
            if (id < 0 || home(id) != rank) continue;
            sum += in->weights[t][k] * wide(expert((uint32_t)id, in->x[t][i]));
            any = 1;
        }
        if (any) total += wide(narrow(sum));
    }
    return narrow(total);
}

// ---- One rank ----

typedef struct {
    wv_team *team;
    wv_moe *moe;
    wv_call *call;
    uint32_t rank, local[EXPERTS], locals;
    void *recv_x, *y, *out, *valid;
    uint32_t *counts;
    wv_dispatch_input input;
    wv_dispatch_output output;
    wv_combine_input back;
    wv_combine_output combined;
} rank_state;

static void allocate(rank_state *r) {
    const size_t rows = (size_t)r->locals * ROWS;
    make_input(r->team, &r->input);
    r->recv_x = device(r->team, rows * ROW_BYTES);
    r->y = device(r->team, rows * ROW_BYTES);
    r->out = device(r->team, MAX_TOKENS * ROW_BYTES);
    r->valid = device(r->team, MAX_TOKENS);
    r->counts = (uint32_t *)device(r->team, r->locals * sizeof(uint32_t));
    WV_INIT(&r->output);
    r->output.recv_x = r->recv_x;
    r->output.counts = r->counts;
    r->output.src_info = (uint32_t *)device(r->team, rows * sizeof(uint32_t));
    r->output.layout_range = (uint64_t *)device(r->team, (size_t)r->locals * RANKS * sizeof(uint64_t));
    WV_INIT(&r->back);
    r->back.y = r->y;
    WV_INIT(&r->combined);
    r->combined.out = r->out;
    r->combined.token_valid = (uint8_t *)r->valid;
}

static void open_rank(rank_state *r, uint32_t rank) {
    memset(r, 0, sizeof *r);
    r->team = open_team(rank);
    uint32_t ranks = 0;
    check(wv_team_rank(r->team, &r->rank, &ranks), "wv_team_rank");
    must(r->rank == rank && ranks == RANKS, "rank and ranks are those asked for");

    const wv_moe_config config = shape();
    wv_bytes bytes;
    WV_INIT(&bytes);
    check(wv_required_bytes(&config, RANKS, &bytes), "wv_required_bytes");
    must(bytes.recv_x == 3 * ROWS * (uint64_t)ROW_BYTES, "recv_x is [3, ROWS, HIDDEN] of BF16");
    check(wv_moe_create(r->team, "layer", &config, &r->moe), "wv_moe_create");
    check(wv_moe_local_experts(r->moe, r->local, EXPERTS, &r->locals), "wv_moe_local_experts");
    must(r->locals == (rank == 0 ? 3u : 2u) && r->local[0] == (rank == 0 ? 0u : 3u), "experts lie in blocks");
    check(wv_call_create(r->moe, &r->call), "wv_call_create");
    allocate(r);
}

// What this rank's experts make of what they received, on the host.
static void compute(rank_state *r) {
    uint32_t counts[EXPERTS];
    check(wv_device_read(r->team, counts, r->counts, r->locals * sizeof counts[0]), "counts");
    for (uint32_t e = 0; e < r->locals; ++e) {
        must(counts[e] <= ROWS, "no more rows than there is room for");
        for (uint32_t row = 0; row < counts[e]; ++row) {
            uint16_t x[HIDDEN];
            const size_t at = ((size_t)e * ROWS + row) * ROW_BYTES;
            check(wv_device_read(r->team, x, (const char *)r->recv_x + at, ROW_BYTES), "recv_x");
            for (uint32_t i = 0; i < HIDDEN; ++i) x[i] = expert(r->local[e], x[i]);
            check(wv_device_write(r->team, (char *)r->y + at, x, ROW_BYTES), "y");
        }
    }
}

// Every second call in one launch for dispatch and one for combine, the others phase by phase.
static void launch_dispatch(rank_state *r, int fused) {
    if (fused) {
        check(wv_dispatch(r->call, &r->input, &r->output, NULL), "wv_dispatch");
    } else {
        check(wv_dispatch_send(r->call, &r->input, NULL), "wv_dispatch_send");
        check(wv_dispatch_receive(r->call, &r->output, NULL), "wv_dispatch_receive");
    }
}

static void launch_combine(rank_state *r, int fused) {
    if (fused) {
        check(wv_combine(r->call, &r->back, &r->combined, NULL), "wv_combine");
    } else {
        check(wv_combine_send(r->call, &r->back, NULL), "wv_combine_send");
        check(wv_combine_receive(r->call, &r->combined, NULL), "wv_combine_receive");
    }
}

static void one_call(rank_state *r, uint32_t number) {
    batch in;
    make_batch(r->rank, number, &in);
    write_input(r->team, &in, &r->input);
    // On the CPU kernels reach any memory of the process: every third call has tokens and sums in memory of malloc.
    const int own = number % 3 == 0;
    const void *const x = r->input.x;
    uint16_t *const heap = (uint16_t *)malloc(sizeof in.x + MAX_TOKENS * ROW_BYTES);
    must(heap != NULL && (uintptr_t)heap % 16 == 0, "memory of malloc is aligned");
    if (own) {
        memcpy(heap, in.x, sizeof in.x);
        r->input.x = heap;
        r->combined.out = heap + sizeof in.x / sizeof *heap;
    }
    launch_dispatch(r, number % 2 == 0);
    finish(r->team);
    compute(r);
    launch_combine(r, number % 2 == 0);
    finish(r->team);
    if (own) check(wv_device_write(r->team, r->out, r->combined.out, MAX_TOKENS * ROW_BYTES), "out");
    r->input.x = x;
    r->combined.out = r->out;
    free(heap);

    wv_call_report report;
    WV_INIT(&report);
    check(wv_report(r->call, &report), "wv_report");
    must(report.call == number && report.phases == 4, "the report is of this call, all of it");
    must(report.complete == 1 && report.troubled_ranks == 0, "the call is complete");
    uint16_t out[MAX_TOKENS][HIDDEN];
    uint8_t valid[MAX_TOKENS];
    check(wv_device_read(r->team, out, r->out, sizeof out), "out");
    check(wv_device_read(r->team, valid, r->valid, sizeof valid), "token_valid");
    for (uint32_t t = 0; t < in.tokens; ++t) {
        must(valid[t] == 1, "every token is valid");
        for (uint32_t i = 0; i < HIDDEN; ++i) {
            const uint16_t want = scalar(&in, t, i);
            same(r->rank, number, t, i, out[t][i], want);
        }
    }
}

// What is refused takes no call number, so that the ranks stay in step.
static void refusals(rank_state *r) {
    wv_dispatch_input wrong = r->input;
    wrong.tokens = MAX_TOKENS + 1;
    refused(wv_dispatch_send(r->call, &wrong, NULL), WV_BAD_ARGUMENT, "9 tokens in a call; max_tokens is 8");
    wrong.tokens = 1;
    wrong.x = (const char *)r->input.x + 2;
    refused(wv_dispatch_send(r->call, &wrong, NULL), WV_BAD_ARGUMENT, "it must be a device address that is a multiple of 16");
    wrong = r->input;
    wrong.flags = 64;
    refused(wv_dispatch_send(r->call, &wrong, NULL), WV_BAD_ARGUMENT, "is 0x40");
    refused(wv_dispatch_send(r->call, NULL, NULL), WV_BAD_ARGUMENT, "input is null");
    refused(wv_dispatch_send(r->call, &r->input, &wrong), WV_BAD_ARGUMENT, "null, since kernels run on the CPU");
    refused(wv_moe_create(r->team, NULL, NULL, NULL), WV_BAD_ARGUMENT, "name is null");
    wv_staging staging;
    WV_INIT(&staging);
    refused(wv_combine_staging(r->moe, 0, &staging), WV_UNSUPPORTED, "zero-copy: needs a layer that sends rows as they are");
    refused(wv_device_free(r->team, &wrong), WV_BAD_ARGUMENT, "one that wv_device_alloc has given");
    refused(wv_device_read(r->team, &wrong, &wrong, 8), WV_BAD_ARGUMENT, "not inside a live device allocation");
    // More than there can be is refused before memory is taken for it.
    static const size_t beyond[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 2, (size_t)1 << 46};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; ++i) {
        refused(wv_device_read(r->team, &wrong, r->out, beyond[i]), WV_BAD_ARGUMENT, "not inside a live device allocation");
        refused(wv_device_write(r->team, r->out, &wrong, beyond[i]), WV_BAD_ARGUMENT, "not inside a live device allocation");
    }
    void *none = NULL;
    for (size_t i = 0; i < 3; ++i) {
        must(wv_device_alloc(r->team, beyond[i], &none) != WV_OK && none == NULL, "too much memory is refused");
    }
    wv_call_report report;
    WV_INIT(&report);
    refused(wv_report(r->call, &report), WV_INCOMPLETE, "call 0 of rank");
    must(report.call == 0 && report.complete == 0, "no call yet");
    uint32_t count = 0;
    check(wv_moe_local_experts(r->moe, NULL, 0, &count), "only the number of experts");
    must(count == r->locals, "as many as there are");
}

static void *rank_main(void *argument) {
    rank_state r;
    open_rank(&r, *(const uint32_t *)argument);
    refusals(&r);
    for (uint32_t number = 1; number <= CALLS; ++number) one_call(&r, number);
    // Nobody takes memory away that others still write to.
    check(wv_team_barrier(r.team, "done"), "wv_team_barrier");
    check(wv_call_destroy(r.call), "wv_call_destroy");
    refused(wv_call_destroy(r.call), WV_BAD_HANDLE, "no wv_call that lives");
    refused(wv_dispatch(r.call, &r.input, &r.output, NULL), WV_BAD_HANDLE, "no wv_call that lives");
    wv_team_end end;
    WV_INIT(&end);
    refused(wv_team_close(r.team, &end), WV_BUSY, "a layer of the team is left");
    check(wv_moe_destroy(r.moe), "wv_moe_destroy");
    refused(wv_moe_destroy(r.moe), WV_BAD_HANDLE, "no wv_moe that lives");
    check(wv_device_free(r.team, r.out), "wv_device_free");
    refused(wv_device_free(r.team, r.out), WV_BAD_ARGUMENT, "not free");
    refused(wv_moe_destroy((wv_moe *)r.team), WV_BAD_HANDLE, "no wv_moe that lives");
    check(wv_team_close(r.team, &end), "wv_team_close");
    must(end.drained > 0 && end.idle == 0, "the QPs to the other rank have drained");
    must(end.refused == 0 && end.leaked == 0 && end.words[0] == 0, "and nothing is left");
    refused(wv_team_close(r.team, &end), WV_BAD_HANDLE, "no wv_team that lives");
    refused(wv_team_barrier(r.team, "done"), WV_BAD_HANDLE, "no wv_team that lives");
    return NULL;
}

static void refused_teams(void) {
    wv_team_config wrong;
    WV_INIT(&wrong);
    wrong.ranks = 2;
    wrong.rank = 2;
    wv_team *team = NULL;
    refused(wv_team_open(&wrong, &team), WV_BAD_ARGUMENT, "rank is 2; it must be below ranks, which is 2");
    refused(wv_team_open(&wrong, NULL), WV_BAD_ARGUMENT, "team is ");
    refused(wv_team_open(NULL, &team), WV_BAD_CONFIG, "no rank");
    wrong.rank = 0;
    wrong.log_depth = 16;
    refused(wv_team_open(&wrong, &team), WV_BAD_CONFIG, "WARPVERBS_LOG_DEPTH is '16'");
    wrong.log_depth = 10;
    wrong.settings = "log_depth=11; mtu=1000";
    refused(wv_team_open(&wrong, &team), WV_BAD_CONFIG, "WARPVERBS_MTU is '1000'");
    wrong.settings = "colour=red";
    refused(wv_team_open(&wrong, &team), WV_BAD_ARGUMENT, "settings is colour");
    must(team == NULL, "a refused call makes nothing");
    wv_team_end end;
    memset(&end, 0, sizeof end);
    check(wv_team_close(NULL, &end), "closing nothing");
    check(wv_moe_destroy(NULL), "destroying nothing");
    check(wv_call_destroy(NULL), "destroying nothing");
}

// A team of one, so that no other rank hears of it.
static void refused_layers(void) {
    wv_team_config alone;
    WV_INIT(&alone);
    alone.ranks = 1;
    alone.gpu = "simt";
    wv_team *team = NULL;
    check(wv_team_open(&alone, &team), "a team of one");
    wv_moe_config huge = shape();
    huge.experts = UINT32_MAX;
    wv_moe *moe = NULL;
    refused(wv_moe_create(team, "huge", &huge, &moe), WV_BAD_ARGUMENT, "experts is 4294967295");
    must(moe == NULL, "a refused call makes nothing");
    wv_team_end end;
    memset(&end, 0, sizeof end);
    refused(wv_team_close(team, &end), WV_BAD_STRUCT, "size of end is 0");
    WV_INIT(&end);
    check(wv_team_close(team, &end), "wv_team_close");
    must(end.drained == 0 && end.idle == 0, "a team of one has no QPs");
}

int main(int argc, char **argv) {
    must(wv_abi_version() == WV_ABI_VERSION, "header and library are of one version");
    must(strcmp(wv_last_error(), "") == 0, "nothing has failed yet");
    refused_teams();
    refused_layers();
    const int wrong = run_ranks(argc, argv, rank_main);
    if (wrong != 0) return wrong;
    printf("two ranks: %d calls equal the scalar loop\n", (int)CALLS);
    return 0;
}
