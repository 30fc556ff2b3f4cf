// Two ranks, which are threads, with experts that are replicated, then moved while the layer lives. Rows lie by rank, and the
// experts write into the layer's own memory. A scalar loop says what must come out, bit for bit.
// Run: placed STORE_DIRECTORY, under a software HCA or with a ConnectX.
enum { RANKS = 2, HIDDEN = 64, EXPERTS = 5, TOP_K = 3, MAX_TOKENS = 8, ROWS = RANKS * MAX_TOKENS, ROOM = 4, CALLS = 6, MOVED = 4 };

#include "two.h"

// Slots of each rank, and their experts. Expert 1 is at both ranks all the time; expert 4 is nowhere at first.
static const uint32_t first_counts[RANKS] = {3, 2}, first_experts[] = {0, 1, 2, 1, 3};
static const uint32_t then_counts[RANKS] = {2, 4}, then_experts[] = {3, 1, 4, 2, 1, 0};
static const wv_placement first_table = {sizeof(wv_placement), first_counts, first_experts},
                          then_table = {sizeof(wv_placement), then_counts, then_experts};

static const wv_placement *table_of(uint32_t call) { return call < MOVED ? &first_table : &then_table; }

// The experts of `rank`.
static const uint32_t *held(const wv_placement *table, uint32_t rank) {
    return table->experts + (rank == 0 ? 0 : table->counts[0]);
}

static int holds(const wv_placement *table, uint32_t rank, int32_t id) {
    for (uint32_t slot = 0; slot < table->counts[rank]; ++slot) {
        if ((int32_t)held(table, rank)[slot] == id) return 1;
    }
    return 0;
}

// The rank that serves a choice of `source`: itself if it can. RANKS: nobody.
static uint32_t server(const wv_placement *table, uint32_t source, int32_t id) {
    if (holds(table, source, id)) return source;
    return holds(table, 1 - source, id) ? 1 - source : (uint32_t)RANKS;
}

static void make_batch(uint32_t rank, uint32_t call, batch *out) {
    uint64_t state = ((uint64_t)call << 32) + rank + 77;
    memset(out, 0, sizeof *out);
    out->tokens = draw(&state) % (MAX_TOKENS + 1);
    for (uint32_t t = 0; t < out->tokens; ++t) {
        draw_token(&state, out->x[t]);
        const uint32_t first = draw(&state) % EXPERTS;
        for (uint32_t k = 0; k < TOP_K; ++k) {
            out->experts[t][k] = draw(&state) % 5 == 0 ? -1 : (int32_t)((first + k) % EXPERTS);
            out->weights[t][k] = draw_weight(&state);
        }
    }
}

static uint16_t scalar(const wv_placement *table, uint32_t source, const batch *in, uint32_t t, uint32_t i, int *whole) {
    float total = 0.0f;
    *whole = 1;
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        float sum = 0.0f;
        int any = 0;
        for (uint32_t k = 0; k < TOP_K; ++k) {
            const int32_t id = in->experts[t][k];
            if (id < 0) continue;
            const uint32_t at = server(table, source, id);
            if (at == (uint32_t)RANKS) *whole = 0;
            if (at != rank) continue;
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
    uint32_t rank;
    wv_dispatch_input input;
    wv_dispatch_output output;
    wv_combine_output combined;
} rank_state;

static void open_rank(rank_state *r, uint32_t rank) {
    memset(r, 0, sizeof *r);
    r->rank = rank;
    r->team = open_team(rank);
    wv_moe_config by_rank = shape();
    by_rank.layout = WV_LAYOUT_RANK_MAJOR;
    by_rank.local_experts = ROOM;
    static const uint32_t twice[] = {0, 1, 1, 1, 3}, many[RANKS] = {65536, 1};
    const wv_placement wrong = {sizeof wrong, first_counts, twice}, long_one = {sizeof long_one, many, first_experts};
    wv_moe *none = NULL;
    refused(wv_moe_create_placed(r->team, "layer", &by_rank, NULL, &none), WV_BAD_ARGUMENT, "placement is null");
    refused(wv_moe_create_placed(r->team, "layer", &by_rank, &wrong, &none), WV_BAD_ARGUMENT, "rank 0 holds expert 1 twice");
    refused(wv_moe_create_placed(r->team, "layer", &by_rank, &long_one, &none), WV_BAD_ARGUMENT, "is 65537");
    must(none == NULL, "a refused call makes nothing");
    check(wv_moe_create_placed(r->team, "layer", &by_rank, &first_table, &r->moe), "wv_moe_create_placed");
    uint32_t local[EXPERTS], count = 0;
    check(wv_moe_local_experts(r->moe, local, EXPERTS, &count), "wv_moe_local_experts");
    must(count == first_counts[rank], "as many experts as the table says");
    must(memcmp(local, held(&first_table, rank), count * sizeof local[0]) == 0, "the experts that the table says");
    check(wv_call_create(r->moe, &r->call), "wv_call_create");
    make_input(r->team, &r->input);
    WV_INIT(&r->output);
    WV_INIT(&r->combined);
    r->output.recv_x = device(r->team, ROWS * ROW_BYTES);
    r->output.counts = (uint32_t *)device(r->team, RANKS * sizeof(uint32_t));
    r->output.src_info = (uint32_t *)device(r->team, ROWS * sizeof(uint32_t));
    r->output.recv_experts = (int32_t *)device(r->team, ROWS * TOP_K * sizeof(int32_t));
    r->output.recv_weights = (float *)device(r->team, ROWS * TOP_K * sizeof(float));
    r->combined.out = device(r->team, MAX_TOKENS * ROW_BYTES);
    r->combined.token_valid = (uint8_t *)device(r->team, MAX_TOKENS);
}

// What this rank's experts make of each row, weighted and summed, goes where the NIC sends it from.
static void compute(rank_state *r, uint32_t number, const wv_staging *staging) {
    uint32_t counts[RANKS];
    check(wv_device_read(r->team, counts, r->output.counts, sizeof counts), "counts");
    const uint32_t *experts = held(table_of(number), r->rank);
    for (uint32_t source = 0; source < RANKS; ++source) {
        must(counts[source] <= MAX_TOKENS, "no more rows than there is room for");
        for (uint32_t row = 0; row < counts[source]; ++row) {
            const size_t at = (size_t)source * MAX_TOKENS + row;
            uint16_t x[HIDDEN];
            int32_t local[TOP_K];
            float weights[TOP_K];
            check(wv_device_read(r->team, x, (const char *)r->output.recv_x + at * ROW_BYTES, ROW_BYTES), "recv_x");
            check(wv_device_read(r->team, local, r->output.recv_experts + at * TOP_K, sizeof local), "recv_experts");
            check(wv_device_read(r->team, weights, r->output.recv_weights + at * TOP_K, sizeof weights), "recv_weights");
            for (uint32_t i = 0; i < HIDDEN; ++i) {
                float sum = 0.0f;
                for (uint32_t k = 0; k < TOP_K; ++k) {
                    if (local[k] >= 0) sum += weights[k] * wide(expert(experts[local[k]], x[i]));
                }
                x[i] = narrow(sum);
            }
            const size_t to = ((size_t)source * staging->rows + row) * (size_t)staging->row_bytes;
            check(wv_device_write(r->team, (char *)staging->address + to, x, ROW_BYTES), "staging");
        }
    }
}

static void one_call(rank_state *r, uint32_t number) {
    batch in;
    make_batch(r->rank, number, &in);
    write_input(r->team, &in, &r->input);
    check(wv_dispatch(r->call, &r->input, &r->output, NULL), "wv_dispatch");
    finish(r->team);
    wv_call_report report;
    WV_INIT(&report);
    check(wv_report(r->call, &report), "wv_report");
    must(report.call == number && report.phases == 2, "dispatch of this call is over");
    wv_staging staging;
    WV_INIT(&staging);
    check(wv_combine_staging(r->moe, report.call % 2, &staging), "wv_combine_staging");
    must(staging.blocks == RANKS && staging.rows == MAX_TOKENS && staging.row_bytes == ROW_BYTES, "staging lies by rank");
    compute(r, number, &staging);
    wv_combine_input back;
    WV_INIT(&back);
    back.y = staging.address;
    back.flags = WV_COMBINE_ZERO_COPY;
    check(wv_combine(r->call, &back, &r->combined, NULL), "wv_combine");
    finish(r->team);

    uint16_t out[MAX_TOKENS][HIDDEN];
    uint8_t valid[MAX_TOKENS];
    check(wv_device_read(r->team, out, r->combined.out, sizeof out), "out");
    check(wv_device_read(r->team, valid, r->combined.token_valid, sizeof valid), "token_valid");
    for (uint32_t t = 0; t < in.tokens; ++t) {
        for (uint32_t i = 0; i < HIDDEN; ++i) {
            int whole = 0;
            const uint16_t want = scalar(table_of(number), r->rank, &in, t, i, &whole);
            must(valid[t] == whole, "a token is valid if all its experts are somewhere");
            same(r->rank, number, t, i, out[t][i], want);
        }
    }
}

// From call MOVED on the experts are elsewhere, and expert 4 is there.
static void move_experts(rank_state *r) {
    static const uint32_t members[RANKS] = {0, 1}, crowded_counts[RANKS] = {0, 5}, crowded[] = {0, 1, 2, 3, 4};
    wv_view view;
    WV_INIT(&view);
    view.first = MOVED;
    view.epoch = 1;
    view.members = members;
    view.member_count = RANKS;
    const wv_placement crowd = {sizeof crowd, crowded_counts, crowded};
    view.placement = &crowd;
    refused(wv_moe_set_view(r->moe, &view, 60000), WV_BAD_ARGUMENT, "placement");
    view.member_count = UINT32_MAX;
    refused(wv_moe_set_view(r->moe, &view, 60000), WV_BAD_ARGUMENT, "view.member_count is 4294967295; it must be at most");
    view.member_count = RANKS;
    view.placement = &then_table;
    view.first = 0;
    refused(wv_moe_set_view(r->moe, &view, 60000), WV_BAD_ARGUMENT, "the newest one begins at call 1");
    view.first = MOVED;
    check(wv_moe_set_view(r->moe, &view, 60000), "wv_moe_set_view");
    uint32_t local[EXPERTS], count = 0;
    check(wv_moe_local_experts(r->moe, local, EXPERTS, &count), "wv_moe_local_experts");
    must(count == then_counts[r->rank], "as many experts as the new table says");
    must(memcmp(local, held(&then_table, r->rank), count * sizeof local[0]) == 0, "the experts that it says");
    // No rank launches call MOVED before all have set it.
    check(wv_team_barrier(r->team, "moved"), "wv_team_barrier");
}

static void *rank_main(void *argument) {
    rank_state r;
    open_rank(&r, *(const uint32_t *)argument);
    for (uint32_t number = 1; number <= CALLS; ++number) {
        if (number == MOVED) move_experts(&r);
        one_call(&r, number);
    }
    wv_staging staging;
    WV_INIT(&staging);
    refused(wv_combine_staging(r.moe, 2, &staging), WV_BAD_ARGUMENT, "set is 2; it must be 0 to 1");
    check(wv_team_barrier(r.team, "done"), "wv_team_barrier");
    check(wv_call_destroy(r.call), "wv_call_destroy");
    check(wv_moe_destroy(r.moe), "wv_moe_destroy");
    check(wv_team_close(r.team, NULL), "wv_team_close");
    return NULL;
}

int main(int argc, char **argv) {
    const int wrong = run_ranks(argc, argv, rank_main);
    if (wrong != 0) return wrong;
    printf("placed experts: %d calls equal the scalar loop\n", (int)CALLS);
    return 0;
}
