// Three ranks, which are threads, call all the time in a group. Rank 2 dies; the others go on, with its expert at one of them; it
// comes back as the next generation, with its expert; in the end rank 1 leaves. A scalar loop says what must come out of every
// call, bit for bit.
// Run: groups STORE_DIRECTORY, under a software HCA or with a ConnectX.
enum { RANKS = 3, HIDDEN = 64, EXPERTS = 3, TOP_K = 2, MAX_TOKENS = 4, ROWS = RANKS * MAX_TOKENS, VICTIM = 2, LONG = 90000 };

#include "two.h"

// ---- Threads meet ----

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
// `said_gone`: a survivor has found that the victim is gone; the others follow what it proposes.
static uint32_t arrived, last_call, said_gone, views_seen[RANKS];

static uint32_t get(const uint32_t *place) {
    pthread_mutex_lock(&mutex);
    const uint32_t value = *place;
    pthread_mutex_unlock(&mutex);
    return value;
}

static void set(uint32_t *place, uint32_t value) {
    pthread_mutex_lock(&mutex);
    *place = value;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

// Waits for all ranks. The test ends the program if one does not come.
static void meet(void) {
    pthread_mutex_lock(&mutex);
    const uint32_t round = arrived++ / RANKS;
    pthread_cond_broadcast(&changed);
    while (arrived < (round + 1) * RANKS) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

// Waits until both others have seen view `epoch`.
static void until_seen(uint32_t epoch) {
    pthread_mutex_lock(&mutex);
    while (views_seen[0] < epoch || views_seen[1] < epoch) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

// ---- Where experts are ----

// Expert e is at member e, and again from the first on when there are fewer.
static uint32_t place(const uint32_t *members, uint32_t count, uint32_t id) { return members[id % count]; }

static uint32_t rule(void *context, const uint32_t *members, uint32_t count, uint32_t *counts, uint32_t *experts, uint32_t room) {
    uint32_t used = 0;
    must(context == &last_call && room >= EXPERTS, "what the rule was given");
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        counts[rank] = 0;
        for (uint32_t id = 0; id < EXPERTS; ++id) {
            if (place(members, count, id) != rank) continue;
            experts[used++] = id;
            ++counts[rank];
        }
    }
    return used;
}

// ---- One rank ----

enum { MOST_VIEWS = 16 };

typedef struct {
    uint32_t epoch, first, count, members[RANKS], generations[RANKS];
} view;

typedef struct {
    wv_team *team;
    wv_moe *moe;
    wv_call *call;
    wv_group *group;
    uint32_t rank, calls, seen;
    view views[MOST_VIEWS];
    int fenced, resumed, ended;
    void *y, *out, *valid;
    wv_dispatch_input input;
    wv_dispatch_output output;
    wv_combine_input back;
    wv_combine_output combined;
} rank_state;

// Takes the next event, or says why there is none within `timeout_ms`.
static wv_status take_event(rank_state *r, uint32_t timeout_ms) {
    wv_group_event event;
    WV_INIT(&event);
    const wv_status status = wv_group_next_event(r->group, &event, timeout_ms);
    if (status != WV_OK) return status;
    must(event.text != NULL && event.text[0] != 0 && event.kind != WV_EVENT_OTHER, "an event has a kind, and words");
    if (event.kind == WV_EVENT_SUSPECTED && event.rank == VICTIM && (event.cause == WV_CAUSE_UNHEARD || event.cause == WV_CAUSE_OVER)) set(&said_gone, 1);
    if (event.kind == WV_EVENT_FENCED && event.member_count == 1 && event.members[0] == VICTIM) r->fenced = 1;
    if (event.kind == WV_EVENT_RESUMED) r->resumed = 1;
    if (event.kind == WV_EVENT_ENDED) r->ended = (int)event.state;
    if (event.kind != WV_EVENT_VIEWED) return WV_OK;
    must(r->seen < MOST_VIEWS && event.member_count <= RANKS && event.generations != NULL, "a view has members");
    view *const v = &r->views[r->seen++];
    v->epoch = event.epoch;
    v->first = event.call;
    v->count = event.member_count;
    memcpy(v->members, event.members, event.member_count * sizeof(uint32_t));
    memcpy(v->generations, event.generations, event.member_count * sizeof(uint32_t));
    if (r->rank != VICTIM) set(&views_seen[r->rank], v->epoch);
    return WV_OK;
}

// Takes the events that are there.
static wv_status take_events(rank_state *r) {
    for (;;) {
        const wv_status status = take_event(r, 0);
        if (status != WV_OK) return status;
    }
}

// The view in which call `number` runs: kernels had it before the call began.
static const view *view_of(rank_state *r, uint32_t number) {
    const view *found = NULL;
    const wv_status status = take_events(r);
    must(status == WV_TIMEOUT, "the group goes on");
    for (uint32_t i = 0; i < r->seen; ++i) {
        if (r->views[i].first <= number) found = &r->views[i];
    }
    must(found != NULL, "a call runs in a view");
    return found;
}

static void make_layer(rank_state *r) {
    // A rank that joins makes the same windows as the founders, alone.
    wv_window window;
    WV_INIT(&window);
    check(wv_window_create(r->team, WV_WINDOW_ANY, 64, &window), "wv_window_create");
    must(window.address != NULL && window.kernel.id == 0, "the first window");
    wv_moe_config config = shape();
    config.local_experts = EXPERTS;
    check(wv_moe_create(r->team, "layer", &config, &r->moe), "wv_moe_create");
    check(wv_moe_place_by(r->moe, rule, &last_call), "wv_moe_place_by");
    wv_deadlines deadlines;
    WV_INIT(&deadlines);
    deadlines.change_ns = (uint64_t)LONG * 1000000;
    check(wv_moe_set_deadlines(r->moe, &deadlines), "wv_moe_set_deadlines");
    check(wv_call_create(r->moe, &r->call), "wv_call_create");
    const size_t rows = EXPERTS * ROWS;
    make_input(r->team, &r->input);
    WV_INIT(&r->output);
    WV_INIT(&r->back);
    WV_INIT(&r->combined);
    r->output.recv_x = device(r->team, rows * ROW_BYTES);
    r->output.counts = (uint32_t *)device(r->team, EXPERTS * sizeof(uint32_t));
    r->output.src_info = (uint32_t *)device(r->team, rows * sizeof(uint32_t));
    r->output.layout_range = (uint64_t *)device(r->team, EXPERTS * RANKS * sizeof(uint64_t));
    r->y = device(r->team, rows * ROW_BYTES);
    r->out = device(r->team, MAX_TOKENS * ROW_BYTES);
    r->valid = device(r->team, MAX_TOKENS);
    r->back.y = r->y;
    r->combined.out = r->out;
    r->combined.token_valid = (uint8_t *)r->valid;
}

// A lease outlives what a busy machine may take from the thread that renews it.
static void start_group(rank_state *r) {
    wv_group_config config;
    WV_INIT(&config);
    config.lease_ttl_ms = 10000;
    config.error_bound_ms = 500;
    check(wv_group_start(r->moe, &config, &r->group), "wv_group_start");
    check(wv_group_wait(r->group, WV_GROUP_SERVING, LONG), "wv_group_wait");
}

static wv_team_config patient(uint32_t rank) {
    wv_team_config config = of_rank(rank);
    config.deadline_ms = 20000;
    return config;
}

static void found(rank_state *r, uint32_t rank) {
    memset(r, 0, sizeof *r);
    r->rank = rank;
    const wv_team_config config = patient(rank);
    check(wv_team_open(&config, &r->team), "wv_team_open");
    make_layer(r);
    start_group(r);
    wv_group *second = NULL;
    refused(wv_group_start(r->moe, NULL, &second), WV_GENERATION_OVER, "has had its group");
    refused(wv_group_suspect(r->group, rank, "x"), WV_BAD_ARGUMENT, "cannot be suspected here");
    refused(wv_group_suspect(r->group, 1 - rank % 2, NULL), WV_BAD_ARGUMENT, "why is null");
    refused(wv_group_wait(r->group, WV_GROUP_LEFT, 10), WV_TIMEOUT, "not Left");
    refused(wv_group_wait(r->group, 9, 10), WV_BAD_ARGUMENT, "state is 9");
}

static void come_back(rank_state *r) {
    memset(r, 0, sizeof *r);
    r->rank = VICTIM;
    const wv_team_config config = patient(VICTIM);
    check(wv_team_join(&config, LONG, &r->team), "wv_team_join");
    wv_team_info info;
    WV_INIT(&info);
    check(wv_team_get_info(r->team, &info), "wv_team_get_info");
    must(info.generation == 2 && info.rank == VICTIM && info.ranks == RANKS, "the second generation of its rank");
    refused(wv_team_barrier(r->team, "late"), WV_UNSUPPORTED, "joined later");
    make_layer(r);
    start_group(r);
}

static void give_back(rank_state *r) {
    check(wv_group_destroy(r->group), "wv_group_destroy");
    refused(wv_group_destroy(r->group), WV_BAD_HANDLE, "no wv_group that lives");
    check(wv_call_destroy(r->call), "wv_call_destroy");
    check(wv_moe_destroy(r->moe), "wv_moe_destroy");
    check(wv_team_close(r->team, NULL), "wv_team_close");
}

// ---- Calls ----

// The experts of each rank in the order of the choices, rounded once; then the ranks in their order, rounded once.
static uint16_t scalar(const view *v, const batch *in, uint32_t t, uint32_t i) {
    float total = 0.0f;
    for (uint32_t rank = 0; rank < RANKS; ++rank) {
        float sum = 0.0f;
        int any = 0;
        for (uint32_t k = 0; k < TOP_K; ++k) {
            const uint32_t id = (uint32_t)in->experts[t][k];
            if (place(v->members, v->count, id) != rank) continue;
            sum += in->weights[t][k] * wide(expert(id, in->x[t][i]));
            any = 1;
        }
        if (any) total += wide(narrow(sum));
    }
    return narrow(total);
}

static void make_batch(rank_state *r, batch *out) {
    uint64_t state = ((uint64_t)++r->calls << 32) + r->rank + 5;
    memset(out, 0, sizeof *out);
    out->tokens = MAX_TOKENS;
    for (uint32_t t = 0; t < out->tokens; ++t) {
        draw_token(&state, out->x[t]);
        for (uint32_t k = 0; k < TOP_K; ++k) {
            out->experts[t][k] = (int32_t)((t + r->calls + k) % EXPERTS);
            out->weights[t][k] = draw_weight(&state);
        }
    }
}

// What this rank's experts of that view make of what they received.
static void compute(rank_state *r, const view *v) {
    uint32_t counts[EXPERTS], local = 0;
    check(wv_device_read(r->team, counts, r->output.counts, sizeof counts), "counts");
    for (uint32_t id = 0; id < EXPERTS; ++id) {
        if (place(v->members, v->count, id) != r->rank) continue;
        for (uint32_t row = 0; row < counts[local]; ++row) {
            uint16_t x[HIDDEN];
            const size_t at = ((size_t)local * ROWS + row) * ROW_BYTES;
            must(row < ROWS, "no more rows than there is room for");
            check(wv_device_read(r->team, x, (const char *)r->output.recv_x + at, ROW_BYTES), "recv_x");
            for (uint32_t i = 0; i < HIDDEN; ++i) x[i] = expert(id, x[i]);
            check(wv_device_write(r->team, (char *)r->y + at, x, ROW_BYTES), "y");
        }
        ++local;
    }
}

// One call; its number goes to `number`. Returns the view in which it went through for every rank, or NULL.
static const view *one_call(rank_state *r, uint32_t *number) {
    batch in;
    make_batch(r, &in);
    write_input(r->team, &in, &r->input);
    check(wv_dispatch(r->call, &r->input, &r->output, NULL), "wv_dispatch");
    finish(r->team);
    wv_call_report report;
    WV_INIT(&report);
    wv_status status = wv_report(r->call, &report);
    must(status == WV_OK || status == WV_INCOMPLETE, "a report");
    const view *const v = view_of(r, report.call);
    *number = report.call;
    if (status == WV_OK) compute(r, v);
    check(wv_combine(r->call, &r->back, &r->combined, NULL), "wv_combine");
    finish(r->team);
    status = wv_report(r->call, &report);
    must(status == WV_OK || status == WV_INCOMPLETE, "a report");
    if (status != WV_OK) return NULL;
    uint16_t out[MAX_TOKENS][HIDDEN];
    uint8_t valid[MAX_TOKENS];
    check(wv_device_read(r->team, out, r->out, sizeof out), "out");
    check(wv_device_read(r->team, valid, r->valid, sizeof valid), "token_valid");
    for (uint32_t t = 0; t < in.tokens; ++t) {
        must(valid[t] == 1, "no token of a complete call is lost");
        for (uint32_t i = 0; i < HIDDEN; ++i) same(r->rank, report.call, t, i, out[t][i], scalar(v, &in, t, i));
    }
    return v;
}

// Calls until `whole` calls of `members` ranks have gone through.
static void call_whole(rank_state *r, uint32_t whole, uint32_t members) {
    uint32_t number = 0;
    while (whole > 0) {
        const view *const v = one_call(r, &number);
        if (v != NULL && v->count == members) --whole;
    }
    if (r->rank == 0 && r->seen >= 3) set(&last_call, number + 5);
}

// Calls until all ranks have made the same ones.
static void call_to_the_end(rank_state *r) {
    uint32_t number = 0;
    do {
        one_call(r, &number);
    } while (get(&last_call) == 0 || number < get(&last_call));
}

static void check_views(rank_state *r) {
    must(r->seen == 3, "three views");
    must(r->views[0].epoch == 1 && r->views[0].count == 3 && r->views[1].count == 2 && r->views[2].count == 3, "one dies, one comes");
    must(r->views[2].members[VICTIM] == VICTIM && r->views[2].generations[VICTIM] == 2, "as the second generation");
    must(r->views[2].generations[0] == 1 && r->views[2].generations[1] == 1, "the others stayed");
    must(r->fenced && r->resumed, "how it went");
    wv_group_counters counters;
    refused(wv_group_get_counters(r->group, NULL), WV_BAD_ARGUMENT, "counters is 0x0");
    counters.size = 3;
    refused(wv_group_get_counters(r->group, &counters), WV_BAD_STRUCT, "size of counters is 3");
    WV_INIT(&counters);
    check(wv_group_get_counters(r->group, &counters), "wv_group_get_counters");
    must(counters.views == 3 && counters.promises >= 2, "two changes behind the first view");
    must(counters.suspicions >= 1 && counters.connections >= 1, "one rank was gone, and its successor was connected");
    must(counters.parted == 0 && counters.partings == counters.unions, "what was parted is united again");
    // A program that knows the first of them only.
    wv_group_counters two = counters;
    two.size = offsetof(wv_group_counters, promises);
    two.views = two.proposals = 0;
    two.promises = 77;
    check(wv_group_get_counters(r->group, &two), "wv_group_get_counters");
    must(two.views == 3 && two.promises == 77, "no more than there is room for");
}

// Rank 1 goes; the others see it go.
static void last_view(rank_state *r) {
    wv_group_view now;
    uint32_t members[RANKS] = {9, 9, 9}, generations[RANKS] = {9, 9, 9};
    WV_INIT(&now);
    if (r->rank == 1) {
        check(wv_group_leave(r->group, LONG), "wv_group_leave");
        must(take_events(r) == WV_LEFT && r->ended == WV_GROUP_LEFT, "the last event says how it ended");
        must(take_event(r, LONG) == WV_LEFT, "nothing more is waited for");
        refused(wv_group_wait(r->group, WV_GROUP_SERVING, LONG), WV_LEFT, "Left");
        check(wv_group_get_view(r->group, &now, NULL, NULL, 0), "wv_group_get_view");
        must(now.state == WV_GROUP_LEFT, "it has left");
    } else {
        while (r->views[r->seen - 1].epoch < 4) must(take_event(r, LONG) == WV_OK, "an event of the next view");
        check(wv_group_wait_view(r->group, 4, LONG), "wv_group_wait_view");
        check(wv_group_get_view(r->group, &now, members, generations, 1), "wv_group_get_view");
        must(now.member_count == 2 && members[0] == 0 && members[1] == 9, "no more members than there is room for");
        check(wv_group_get_view(r->group, &now, members, generations, RANKS), "wv_group_get_view");
        must(now.epoch == 4 && now.state == WV_GROUP_SERVING && now.member_count == 2, "the view without it");
        must(members[1] == VICTIM && generations[0] == 1 && generations[1] == 2 && generations[2] == 9, "and its members");
    }
}

static void *rank_main(void *argument) {
    rank_state r;
    found(&r, *(const uint32_t *)argument);
    call_whole(&r, 3, 3);
    if (r.rank == VICTIM) {
        // As if its process had ended: it gives its lease back, and no rank hears of it any more.
        check(wv_group_destroy(r.group), "wv_group_destroy");
        until_seen(2);
        check(wv_call_destroy(r.call), "wv_call_destroy");
        check(wv_moe_destroy(r.moe), "wv_moe_destroy");
        check(wv_team_close(r.team, NULL), "wv_team_close");
        come_back(&r);
    } else {
        call_whole(&r, 3, 2);
    }
    call_whole(&r, 3, 3);
    call_to_the_end(&r);
    if (r.rank != VICTIM) check_views(&r);
    meet();
    must(get(&said_gone) == 1, "a survivor has said that the rank is gone");
    last_view(&r);
    // No rank takes memory away that others still write to.
    meet();
    give_back(&r);
    return NULL;
}

int main(int argc, char **argv) {
    (void)open_team;
    const int wrong = run_ranks(argc, argv, rank_main);
    if (wrong != 0) return wrong;
    printf("groups: a rank died, came back and left\n");
    return 0;
}
