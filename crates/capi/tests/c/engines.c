// Two host engines move memory of this program: vectors of writes and reads, by several threads, and everything that is refused.
// Run: engines STORE_DIRECTORY, under a software HCA or with a ConnectX.
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

enum { BYTES = 1 << 20, PAGES = 64, PAGE = 4096, THREADS = 4, ROUNDS = 25, LONG = 60000 };

typedef struct {
    wv_engine *engine;
    wv_engine_peer *peer;
    uint8_t *memory;
    uint64_t region;
    // Where the peer's memory lies.
    uint64_t remote;
} end;

static uint64_t at(const uint8_t *byte) { return (uint64_t)(uintptr_t)byte; }

static wv_engine *open_engine(const char *name, const char *settings) {
    wv_engine *engine = NULL;
    wv_engine_config config;
    WV_INIT(&config);
    config.name = name;
    config.settings = settings;
    config.drain_ms = LONG;
    check(wv_engine_open(&config, &engine), "wv_engine_open");
    must(engine != NULL, "there is an engine");
    return engine;
}

static end open_end(const char *name, const char *settings) {
    end e;
    memset(&e, 0, sizeof e);
    e.engine = open_engine(name, settings);
    e.memory = (uint8_t *)calloc(BYTES, 1);
    must(e.memory != NULL, "there is memory");
    check(wv_engine_register(e.engine, e.memory, BYTES, &e.region), "wv_engine_register");
    return e;
}

static void import(end *from, const end *to) {
    uint8_t descriptor[WV_DESCRIPTOR_BYTES];
    wv_remote_region region;
    WV_INIT(&region);
    check(wv_engine_descriptor(to->engine, to->region, descriptor, sizeof descriptor), "wv_engine_descriptor");
    check(wv_engine_import(from->peer, descriptor, sizeof descriptor, &region), "wv_engine_import");
    check(wv_engine_import(from->peer, descriptor, sizeof descriptor, NULL), "once more");
    must(region.address == at(to->memory) && region.bytes == BYTES, "the region is where it is");
    from->remote = region.address;
}

// Whether engines of this process go by the NIC.
static int by_nic(void) {
    return getenv("WARPVERBS_ENGINE_PATH") != NULL;
}

static void meet(end *a, end *b) {
    char address[64];
    check(wv_engine_listen(b->engine, "127.0.0.1:0", address, sizeof address), "wv_engine_listen");
    check(wv_engine_connect(a->engine, address, &a->peer), "wv_engine_connect");
    check(wv_engine_accept(b->engine, LONG, &b->peer), "wv_engine_accept");
    wv_engine_peer_info info;
    WV_INIT(&info);
    check(wv_engine_peer_get_info(a->peer, &info), "wv_engine_peer_get_info");
    must(info.qps == 2 && info.open == 1 && strcmp(info.name, "b") == 0, "a is connected to b");
    must(info.path == (by_nic() ? WV_PATH_NIC : WV_PATH_PROCESS), "b is of this process");
    import(a, b);
    import(b, a);
}

static void done(const end *e, wv_transfer transfer) {
    uint32_t state = WV_TRANSFER_PENDING;
    check(wv_engine_wait(e->engine, transfer, LONG, &state), "wv_engine_wait");
    must(state == WV_TRANSFER_DONE, "it is done");
    check(wv_engine_poll(e->engine, transfer, &state), "wv_engine_poll");
    must(state == WV_TRANSFER_DONE, "and stays so");
}

static void released(const end *e, wv_transfer transfer) {
    uint32_t state;
    check(wv_engine_release(e->engine, transfer), "wv_engine_release");
    check(wv_engine_release(e->engine, transfer), "once more");
    check(wv_engine_poll(e->engine, transfer, &state), "wv_engine_poll");
    must(state == WV_TRANSFER_UNKNOWN, "it is unknown");
}

static void fill(uint8_t *bytes, uint64_t seed) {
    for (uint32_t i = 0; i < BYTES; ++i) bytes[i] = (uint8_t)draw(&seed);
}

static void whole(const end *a, const end *b) {
    wv_transfer transfer;
    fill(a->memory, 1);
    check(wv_engine_write(a->peer, at(a->memory), a->remote, BYTES, &transfer), "wv_engine_write");
    wv_stall stall;
    WV_INIT(&stall);
    uint32_t by = by_nic() ? 0 : WV_NO_RAIL;
    check(wv_engine_stalled(a->engine, transfer, by, &stall), "wv_engine_stalled");
    must(stall.in_flight > 0 || stall.since_completion_ns == 0, "without slices no time counts");
    uint32_t what = UINT32_MAX;
    check(wv_engine_waits_for(a->engine, transfer, &what), "wv_engine_waits_for");
    must(what <= WV_WAITS_FOR_COMPLETION && what != WV_WAITS_FOR_QP, "no QP has failed");
    done(a, transfer);
    check(wv_engine_waits_for(a->engine, transfer, &what), "wv_engine_waits_for");
    must(what == WV_WAITS_FOR_NOTHING, "a transfer that is done waits for nothing");
    check(wv_engine_stalled(a->engine, transfer, by, &stall), "wv_engine_stalled");
    must(stall.in_flight == 0 && stall.since_completion_ns == 0, "of a transfer that is done nothing is in flight");
    must(memcmp(a->memory, b->memory, BYTES) == 0, "every byte was written");
    released(a, transfer);
    fill(a->memory, 2);
    check(wv_engine_read(b->peer, at(b->memory), b->remote, BYTES, &transfer), "wv_engine_read");
    done(b, transfer);
    must(memcmp(a->memory, b->memory, BYTES) == 0, "every byte was read");
    released(b, transfer);
    check(wv_engine_write(a->peer, at(a->memory), a->remote, 0, &transfer), "no bytes");
    done(a, transfer);
    released(a, transfer);
}

// Two engines that find each other by name, and names that are none.
static void names(const char *directory) {
    char url[4096], address[64];
    snprintf(url, sizeof url, "file://%s", directory);
    wv_engine_names *store = NULL;
    refused(wv_engine_names_open("nowhere", NULL, &store), WV_STORE_REFUSED, "nowhere");
    refused(wv_engine_names_open("file:///nosuch/folder", NULL, &store), WV_STORE_REFUSED, "does not exist");
    refused(wv_engine_names_open(url, NULL, NULL), WV_BAD_ARGUMENT, "names is");
    must(store == NULL, "nothing was opened");
    check(wv_engine_names_open(url, NULL, &store), "wv_engine_names_open");
    wv_engine *a = open_engine("by-name-a", ""), *b = open_engine("by-name-b", ""), *twin = open_engine("by-name-b", "");
    wv_engine *odd = open_engine("no key", "");
    wv_engine_peer *peer = NULL;
    refused(wv_engine_connect_by_name(a, store, "by-name-b", &peer), WV_PEER_NOT_CONNECTED, "no engine has published the name 'by-name-b'");
    check(wv_engine_listen(b, "127.0.0.1:0", address, sizeof address), "wv_engine_listen");
    refused(wv_engine_publish(b, store, "0.0.0.0:7000"), WV_BAD_ARGUMENT, "the address 0.0.0.0:7000 is published; it must be");
    refused(wv_engine_publish(b, store, "127.0.0.1:0"), WV_BAD_ARGUMENT, "the address 127.0.0.1:0 is published");
    refused(wv_engine_publish(b, store, "nowhere"), WV_BAD_ARGUMENT, "address is nowhere; it must be an IP address and a port, or unix:PATH");
    refused(wv_engine_publish(b, store, NULL), WV_BAD_ARGUMENT, "address is null");
    refused(wv_engine_publish(b, NULL, address), WV_BAD_ARGUMENT, "names is null");
    refused(wv_engine_publish(odd, store, address), WV_STORE_REFUSED, "'engine/no key' is not a key");
    check(wv_engine_publish(b, store, address), "wv_engine_publish");
    refused(wv_engine_publish(twin, store, address), WV_RANK_TAKEN, "another engine has published the name 'by-name-b'");
    check(wv_engine_connect_by_name(a, store, "by-name-b", &peer), "wv_engine_connect_by_name");
    wv_engine_peer_info info;
    WV_INIT(&info);
    check(wv_engine_peer_get_info(peer, &info), "wv_engine_peer_get_info");
    must(info.open == 1 && strcmp(info.name, "by-name-b") == 0, "it is the one of the name");
    refused(wv_engine_connect_by_name(a, store, "no key", &peer), WV_STORE_REFUSED, "is not a key");
    refused(wv_engine_connect_by_name(a, store, "\xff", &peer), WV_BAD_ARGUMENT, "UTF-8");
    refused(wv_engine_connect_by_name(a, store, NULL, &peer), WV_BAD_ARGUMENT, "name is null");
    refused(wv_engine_connect_by_name(a, store, "by-name-b", NULL), WV_BAD_ARGUMENT, "peer is");
    check(wv_engine_unpublish(b), "wv_engine_unpublish");
    check(wv_engine_unpublish(b), "once more");
    check(wv_engine_listen(twin, "127.0.0.1:0", address, sizeof address), "wv_engine_listen");
    check(wv_engine_publish(twin, store, address), "the name is free");
    check(wv_engine_close(twin, NULL), "wv_engine_close");
    check(wv_engine_publish(b, store, address), "it was free with the end of the engine");
    check(wv_engine_peer_close(peer), "wv_engine_peer_close");
    check(wv_engine_close(a, NULL), "wv_engine_close");
    check(wv_engine_names_close(store), "before the engine that is published in it");
    refused(wv_engine_publish(b, store, address), WV_BAD_HANDLE, "no wv_engine_names that lives");
    check(wv_engine_close(b, NULL), "wv_engine_close");
    check(wv_engine_close(odd, NULL), "wv_engine_close");
    check(wv_engine_names_close(NULL), "none");
}

// Two engines that meet at a Unix socket, and paths that are none.
static void sockets(const char *directory) {
    char at[128], wanted[128], long_one[128] = "unix:";
    snprintf(wanted, sizeof wanted, "unix:%s/socket", directory);
    wv_engine *a = open_engine("socket-a", ""), *b = open_engine("socket-b", "");
    wv_engine_peer *peer = NULL;
    refused(wv_engine_listen(b, wanted, at, 64), WV_BAD_ARGUMENT, "bytes is 64; it must be at least 128");
    must(access(wanted + strlen("unix:"), F_OK) != 0, "nothing listens there");
    check(wv_engine_listen(b, wanted, at, sizeof at), "wv_engine_listen");
    must(strcmp(at, wanted) == 0, "it listens there");
    refused(wv_engine_listen(a, wanted, NULL, 0), WV_BAD_ARGUMENT, "a process listens there");
    memset(long_one + strlen("unix:"), 'x', 108);
    refused(wv_engine_listen(b, long_one, NULL, 0), WV_BAD_ARGUMENT, "it must be an IP address and a port, or unix:PATH");
    refused(wv_engine_connect(a, long_one, &peer), WV_PEER_NOT_CONNECTED, "it must have 1 to 107");
    check(wv_engine_connect(a, at, &peer), "wv_engine_connect");
    wv_engine_peer_info info;
    WV_INIT(&info);
    check(wv_engine_peer_get_info(peer, &info), "wv_engine_peer_get_info");
    must(info.open == 1 && strcmp(info.name, "socket-b") == 0, "a is connected to b");
    check(wv_engine_close(b, NULL), "wv_engine_close");
    must(access(wanted + strlen("unix:"), F_OK) != 0, "the socket goes with its engine");
    check(wv_engine_peer_close(peer), "wv_engine_peer_close");
    check(wv_engine_close(a, NULL), "wv_engine_close");
}

// Tensors of one buffer, all or none.
static void lists(const end *a) {
    enum { COUNT = 1265 };
    static uint8_t buffer[COUNT * 64];
    static wv_memory_range ranges[COUNT];
    static uint64_t regions[COUNT];
    uint8_t first[WV_DESCRIPTOR_BYTES], last[WV_DESCRIPTOR_BYTES];
    for (uint32_t i = 0; i < COUNT; ++i) {
        ranges[i].address = buffer + i * 64;
        ranges[i].bytes = i == 0 ? sizeof buffer : 64;
    }
    ranges[7].bytes = 0;
    refused(wv_engine_register_list(a->engine, ranges, COUNT, regions), WV_BAD_ARGUMENT, "element 7 of the list: 0 bytes of host memory");
    ranges[7].address = a->memory + BYTES - 32;
    ranges[7].bytes = 64;
    refused(wv_engine_register_list(a->engine, ranges, COUNT, regions), WV_BAD_ARGUMENT, "element 7 of the list: 64 bytes at 0x");
    must(regions[0] == 0 && regions[COUNT - 1] == 0, "nothing was registered");
    ranges[7].address = buffer + 7 * 64;
    check(wv_engine_register_list(a->engine, ranges, COUNT, regions), "wv_engine_register_list");
    check(wv_engine_descriptor(a->engine, regions[0], first, sizeof first), "wv_engine_descriptor");
    check(wv_engine_descriptor(a->engine, regions[COUNT - 1], last, sizeof last), "wv_engine_descriptor");
    must(memcmp(first, last, sizeof first) == 0, "they share a registration");
    for (uint32_t i = 0; i < COUNT; ++i) check(wv_engine_deregister(a->engine, regions[i]), "wv_engine_deregister");
    check(wv_engine_register_list(a->engine, NULL, 0, NULL), "an empty list");
    refused(wv_engine_register_list(a->engine, NULL, 1, regions), WV_BAD_ARGUMENT, "ranges is null");
    refused(wv_engine_register_list(a->engine, ranges, 1, NULL), WV_BAD_ARGUMENT, "regions is");
    refused(wv_engine_register_list(NULL, ranges, 1, regions), WV_BAD_ARGUMENT, "engine is null");
}

// Before anybody asks for it, by submit and by post; and what cannot count.
static void counters(const end *a, const end *b) {
    enum { COUNTER = 3 };
    wv_operation pages[PAGES];
    memset(pages, 0, sizeof pages);
    for (uint64_t i = 0; i < PAGES; ++i) {
        pages[i].kind = WV_WRITE;
        pages[i].local = at(a->memory) + i * PAGE;
        pages[i].remote = a->remote + i * PAGE;
        pages[i].bytes = PAGE;
    }
    wv_transfer_options options;
    WV_INIT(&options);
    options.counts = 1;
    options.counter = COUNTER;
    wv_transfer transfer;
    uint64_t value = 7;
    fill(a->memory, 3);
    check(wv_engine_submit(a->peer, pages, PAGES, &options, &transfer), "wv_engine_submit");
    done(a, transfer);
    released(a, transfer);
    check(wv_engine_counter_wait(b->engine, COUNTER, PAGES, LONG, &value), "wv_engine_counter_wait");
    must(value == PAGES && memcmp(a->memory, b->memory, PAGES * PAGE) == 0, "all that is counted is there");
    wv_engine_prepared *prepared = NULL;
    check(wv_engine_prepare_counting(a->peer, pages, PAGES, &prepared), "wv_engine_prepare_counting");
    check(wv_engine_post(a->peer, prepared, &options, &transfer), "wv_engine_post");
    done(a, transfer);
    released(a, transfer);
    check(wv_engine_prepared_destroy(prepared), "wv_engine_prepared_destroy");
    check(wv_engine_counter_wait(b->engine, COUNTER, 2 * PAGES, LONG, &value), "wv_engine_counter_wait");
    const uint64_t *word = NULL;
    check(wv_engine_counter_word(b->engine, COUNTER, &word), "wv_engine_counter_word");
    must(__atomic_load_n(word, __ATOMIC_ACQUIRE) == 2 * PAGES, "the word says the same");
    uint64_t said[2] = {7, 7};
    wv_mirror *mirror = NULL;
    check(wv_engine_counter_mirror(b->engine, COUNTER, &said[0], &mirror), "wv_engine_counter_mirror");
    must(__atomic_load_n(&said[0], __ATOMIC_ACQUIRE) == 2 * PAGES && said[1] == 7, "so does a word of the program");
    check(wv_mirror_destroy(mirror), "wv_mirror_destroy");
    check(wv_mirror_destroy(NULL), "a mirror that is NULL");
    refused(wv_mirror_destroy(mirror), WV_BAD_HANDLE, "mirror");
    refused(wv_engine_counter_mirror(b->engine, COUNTER, (uint64_t *)((char *)said + 4), &mirror), WV_BAD_ARGUMENT, "word is");
    refused(wv_engine_counter_mirror(b->engine, WV_COUNTERS, said, &mirror), WV_BAD_ARGUMENT, "counter 4096");
    refused(wv_engine_counter_mirror(b->engine, COUNTER, NULL, &mirror), WV_BAD_ARGUMENT, "word is");
    refused(wv_engine_counter_mirror(b->engine, COUNTER, said, NULL), WV_BAD_ARGUMENT, "mirror is");
    refused(wv_engine_counter_mirror(NULL, COUNTER, said, &mirror), WV_BAD_ARGUMENT, "engine is null");
    must(wv_engine_counter_wait(b->engine, COUNTER, 2 * PAGES + 1, 1, &value) == WV_TIMEOUT && value == 2 * PAGES, "no more come");
    check(wv_engine_counter_reset(b->engine, COUNTER, &value), "wv_engine_counter_reset");
    must(value == 2 * PAGES, "what it said");
    check(wv_engine_counter_read(b->engine, COUNTER, &value), "wv_engine_counter_read");
    must(value == 0, "it is set back");
    refused(wv_engine_counter_read(b->engine, WV_COUNTERS, &value), WV_BAD_ARGUMENT, "it must be 0 to 4095");
    refused(wv_engine_counter_read(NULL, 0, &value), WV_BAD_ARGUMENT, "engine is null");
    refused(wv_engine_counter_wait(b->engine, 0, 0, 0, NULL), WV_BAD_ARGUMENT, "value is");
    options.counter = WV_COUNTERS;
    refused(wv_engine_submit(a->peer, pages, 1, &options, &transfer), WV_BAD_ARGUMENT, "it must be 0 to 4095");
    options.counter = 0;
    options.counts = 2;
    refused(wv_engine_submit(a->peer, pages, 1, &options, &transfer), WV_BAD_ARGUMENT, "counts is 2");
    options.counts = 1;
    pages[0].kind = WV_READ;
    refused(wv_engine_submit(a->peer, pages, 1, &options, &transfer), WV_BAD_ARGUMENT, "is a READ");
}

// Alone, and after a transfer.
static void notices(const end *a, const end *b) {
    static uint8_t into[WV_NOTICE_BYTES], most[WV_NOTICE_BYTES + 1];
    wv_notice notice;
    WV_INIT(&notice);
    check(wv_engine_notify(a->peer, (const uint8_t *)"alone", 6, 0), "wv_engine_notify");
    check(wv_engine_next_notice(b->engine, LONG, into, sizeof into, &notice), "wv_engine_next_notice");
    must(notice.bytes == 6 && strcmp((const char *)into, "alone") == 0 && strcmp(notice.peer, "a") == 0, "it is what was sent");
    must(notice.transfer == WV_TRANSFER_PENDING && notice.has_operation == 0 && notice.incarnation != 0, "it was sent alone");
    wv_operation operation = {WV_WRITE, 0, at(a->memory), a->remote, PAGE};
    wv_transfer_options options;
    WV_INIT(&options);
    options.notice = (const uint8_t *)"behind";
    options.notice_bytes = 7;
    options.wait_ms = LONG;
    wv_transfer transfer;
    fill(a->memory, 3);
    check(wv_engine_submit(a->peer, &operation, 1, &options, &transfer), "wv_engine_submit");
    WV_INIT(&notice);
    check(wv_engine_next_notice(b->engine, LONG, into, sizeof into, &notice), "wv_engine_next_notice");
    must(memcmp(a->memory, b->memory, PAGE) == 0, "it comes behind the last byte");
    must(notice.transfer == WV_TRANSFER_DONE && notice.bytes == 7 && strcmp((const char *)into, "behind") == 0, "and says so");
    done(a, transfer);
    released(a, transfer);
    refused(wv_engine_notify(a->peer, most, sizeof most, 0), WV_BAD_ARGUMENT, "a notice of 65537 bytes");
    options.notice = most;
    options.notice_bytes = sizeof most;
    refused(wv_engine_submit(a->peer, &operation, 1, &options, &transfer), WV_BAD_ARGUMENT, "a notice of 65537 bytes");
    WV_INIT(&notice);
    refused(wv_engine_next_notice(b->engine, 1, into, sizeof into, &notice), WV_TIMEOUT, "no notice has come for 1 ms");
    refused(wv_engine_next_notice(b->engine, 1, into, sizeof into - 1, &notice), WV_BAD_ARGUMENT, "at least 65536");
}

// An engine without the key is not connected.
static void keys(const char *directory) {
    char file[4096], settings[8192], address[64];
    snprintf(file, sizeof file, "%s/key", directory);
    snprintf(settings, sizeof settings, "key_file=%s", file);
    const int key = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(key >= 0 && write(key, "0123456789abcdef0123456789abcdef", 32) == 32 && close(key) == 0, "there is a key");
    wv_engine *a = open_engine("keyed", settings), *b = open_engine("also", settings), *c = open_engine("clear", NULL);
    wv_engine_peer *peer;
    check(wv_engine_listen(a, NULL, address, sizeof address), "wv_engine_listen");
    check(wv_engine_connect(b, address, &peer), "wv_engine_connect");
    check(wv_engine_peer_close(peer), "wv_engine_peer_close");
    refused(wv_engine_connect(c, address, &peer), WV_PEER_NOT_CONNECTED, "asks for a key");
    check(wv_engine_close(a, NULL), "wv_engine_close");
    check(wv_engine_close(b, NULL), "wv_engine_close");
    check(wv_engine_close(c, NULL), "wv_engine_close");
    must(chmod(file, 0644) == 0, "others may read it");
    wv_engine_config config;
    WV_INIT(&config);
    config.name = "open";
    config.settings = settings;
    refused(wv_engine_open(&config, &a), WV_BAD_CONFIG, "others may use it");
}

// Pages change their places: those of even number are written, those of odd number read.
// One plan, posted three times, two of them at once.
static void planned(const end *a, const end *b) {
    wv_operation operations[2];
    memset(operations, 0, sizeof operations);
    for (uint32_t i = 0; i < 2; ++i) {
        operations[i].kind = WV_WRITE;
        operations[i].local = at(a->memory) + i * PAGE;
        operations[i].remote = a->remote + (1 - i) * PAGE;
        operations[i].bytes = PAGE;
    }
    wv_engine_prepared *prepared = NULL;
    refused(wv_engine_prepare(a->peer, operations, 0, &prepared), WV_BAD_ARGUMENT, "0 operations");
    refused(wv_engine_prepare(a->peer, operations, 2, NULL), WV_BAD_ARGUMENT, "prepared is");
    operations[1].bytes = BYTES;
    refused(wv_engine_prepare(a->peer, operations, 2, &prepared), WV_BAD_ARGUMENT, "is in no registered region");
    operations[1].bytes = PAGE;
    must(prepared == NULL, "a refused call makes nothing");
    check(wv_engine_prepare(a->peer, operations, 2, &prepared), "wv_engine_prepare");
    wv_transfer transfers[3];
    fill(a->memory, 5);
    fill(b->memory, 6);
    check(wv_engine_post(a->peer, prepared, NULL, &transfers[0]), "wv_engine_post");
    check(wv_engine_post(a->peer, prepared, NULL, &transfers[1]), "wv_engine_post");
    done(a, transfers[0]);
    released(a, transfers[0]);
    done(a, transfers[1]);
    released(a, transfers[1]);
    must(memcmp(b->memory, a->memory + PAGE, PAGE) == 0, "the second page lies first");
    must(memcmp(b->memory + PAGE, a->memory, PAGE) == 0, "and the first behind it");
    fill(a->memory, 7);
    wv_transfer_options options;
    WV_INIT(&options);
    options.wait_ms = LONG;
    options.deadline_ms = LONG;
    check(wv_engine_post(a->peer, prepared, &options, &transfers[2]), "wv_engine_post");
    done(a, transfers[2]);
    released(a, transfers[2]);
    must(memcmp(b->memory, a->memory + PAGE, PAGE) == 0, "what is there now was written");
    refused(wv_engine_post(b->peer, prepared, NULL, &transfers[0]), WV_BAD_ARGUMENT, "of this process has prepared is posted by engine");
    refused(wv_engine_post(a->peer, prepared, NULL, NULL), WV_BAD_ARGUMENT, "transfer is");
    refused(wv_engine_post(a->peer, NULL, NULL, &transfers[0]), WV_BAD_ARGUMENT, "prepared is null");
    check(wv_engine_prepared_destroy(prepared), "wv_engine_prepared_destroy");
    refused(wv_engine_post(a->peer, prepared, NULL, &transfers[0]), WV_BAD_HANDLE, "no wv_engine_prepared that lives");
    check(wv_engine_prepared_destroy(NULL), "none");
}

static void pages(const end *a, const end *b) {
    wv_operation operations[PAGES];
    memset(operations, 0, sizeof operations);
    fill(a->memory, 3);
    fill(b->memory, 4);
    uint8_t *before[2] = {(uint8_t *)malloc(BYTES), (uint8_t *)malloc(BYTES)};
    memcpy(before[0], a->memory, BYTES);
    memcpy(before[1], b->memory, BYTES);
    for (uint32_t i = 0; i < PAGES; ++i) {
        const uint32_t other = (i * 37 + 5) % PAGES;
        operations[i].kind = i % 2 == 0 ? WV_WRITE : WV_READ;
        // Writes go between the lower halves, reads between the upper ones.
        const uint32_t half = i % 2 == 0 ? 0 : BYTES / 2;
        operations[i].local = at(a->memory) + half + i * PAGE;
        operations[i].remote = a->remote + half + other * PAGE;
        operations[i].bytes = PAGE;
    }
    wv_transfer transfer;
    wv_transfer_options options;
    WV_INIT(&options);
    options.wait_ms = LONG;
    options.deadline_ms = LONG;
    check(wv_engine_submit(a->peer, operations, PAGES, &options, &transfer), "wv_engine_submit");
    size_t which = 99;
    check(wv_engine_wait_any(a->engine, &transfer, 1, LONG, &which), "wv_engine_wait_any");
    must(which == 0, "the one that there is");
    uint8_t each[PAGES];
    wv_transfer_report report;
    WV_INIT(&report);
    memset(each, 9, sizeof each);
    check(wv_engine_report(a->engine, transfer, &report, each, sizeof each), "wv_engine_report");
    must(report.state == WV_TRANSFER_DONE && report.operations == PAGES, "all operations");
    must(report.bytes_landed == PAGES * PAGE && report.has_failure == 0, "all bytes");
    for (uint32_t i = 0; i < PAGES; ++i) must(each[i] == WV_OPERATION_DONE, "each is done");
    released(a, transfer);
    for (uint32_t i = 0; i < PAGES; ++i) {
        const uint32_t other = (i * 37 + 5) % PAGES;
        if (i % 2 == 0) {
            must(memcmp(b->memory + other * PAGE, before[0] + i * PAGE, PAGE) == 0, "a page was written");
        } else {
            const uint32_t half = BYTES / 2;
            must(memcmp(a->memory + half + i * PAGE, before[1] + half + other * PAGE, PAGE) == 0, "a page was read");
        }
    }
    free(before[0]);
    free(before[1]);
}

typedef struct {
    const end *from;
    uint32_t number;
} job;

static void *work(void *argument) {
    const job *mine = (const job *)argument;
    const end *e = mine->from;
    const uint64_t part = BYTES / THREADS, offset = mine->number * part;
    wv_operation one;
    memset(&one, 0, sizeof one);
    one.local = at(e->memory) + offset;
    one.remote = e->remote + offset;
    one.bytes = part;
    wv_transfer_options options;
    WV_INIT(&options);
    options.wait_ms = LONG;
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        wv_transfer transfer;
        check(wv_engine_submit(e->peer, &one, 1, &options, &transfer), "wv_engine_submit");
        done(e, transfer);
        released(e, transfer);
    }
    return NULL;
}

// More threads than slots: each waits for one.
static void threads(const end *a, const end *b) {
    pthread_t all[THREADS];
    job jobs[THREADS];
    fill(a->memory, 5);
    for (uint32_t i = 0; i < THREADS; ++i) {
        jobs[i].from = a;
        jobs[i].number = i;
        must(pthread_create(&all[i], NULL, work, &jobs[i]) == 0, "a thread");
    }
    for (uint32_t i = 0; i < THREADS; ++i) pthread_join(all[i], NULL);
    must(memcmp(a->memory, b->memory, BYTES) == 0, "every part was written");
}

static void slots(const end *a) {
    wv_transfer kept[2], more;
    uint32_t states[2] = {9, 9};
    for (int i = 0; i < 2; ++i) check(wv_engine_write(a->peer, at(a->memory), a->remote, 8, &kept[i]), "a slot");
    refused(wv_engine_write(a->peer, at(a->memory), a->remote, 8, &more), WV_WOULD_BLOCK, "all 2 slots");
    for (int i = 0; i < 2; ++i) done(a, kept[i]);
    check(wv_engine_poll_many(a->engine, kept, 2, states), "wv_engine_poll_many");
    check(wv_engine_poll_many(a->engine, kept, 2, states), "and none was released");
    must(states[0] == WV_TRANSFER_DONE && states[1] == WV_TRANSFER_DONE, "both are done");
    wv_engine_info info;
    WV_INIT(&info);
    check(wv_engine_get_info(a->engine, &info), "wv_engine_get_info");
    must(info.in_use == 2 && info.incarnation != 0, "two slots are in use");
    check(wv_engine_cancel(a->engine, kept[0]), "a cancel of what is done");
    for (int i = 0; i < 2; ++i) released(a, kept[i]);
}

// All that was submitted is counted, and each slice at each place.
static void statistics(const end *a) {
    wv_engine_statistics all;
    wv_rail_info rail;
    wv_engine_info info;
    WV_INIT(&all);
    WV_INIT(&rail);
    WV_INIT(&info);
    check(wv_engine_get_info(a->engine, &info), "wv_engine_get_info");
    must(info.rails == 1, "it has one rail");
    check(wv_engine_get_statistics(a->engine, &all), "wv_engine_get_statistics");
    must(all.submitted > 0 && all.submitted == all.done + all.failed + all.cancelled + all.timed_out, "all have ended");
    must(all.slices_posted + all.slices_not_posted == all.slices_queued + all.slices_retried, "each is posted or given up");
    must(all.slices_posted == all.slices_completed + all.slices_failed && all.slices_completed > 0, "and finished");
    must(all.refused > 0 && all.done_bytes >= BYTES && all.posted_bytes >= all.done_bytes, "there was no slot for one");
    check(wv_engine_get_rail(a->engine, 0, &rail), "wv_engine_get_rail");
    must(rail.device[0] != 0 && rail.port == 1 && rail.state == WV_RAIL_WORKS && rail.rests == 0, "the rail works");
    must(rail.slices_posted == (by_nic() ? all.slices_posted : 0), "what was posted on it");
    refused(wv_engine_get_rail(a->engine, 1, &rail), WV_BAD_ARGUMENT, "rail is 1; it must be 0 to 0");
    refused(wv_engine_get_rail(a->engine, 0, NULL), WV_BAD_ARGUMENT, "info is");
    refused(wv_engine_get_rail(NULL, 0, &rail), WV_BAD_ARGUMENT, "engine is null");
    refused(wv_engine_get_statistics(a->engine, NULL), WV_BAD_ARGUMENT, "statistics is");
    refused(wv_engine_get_statistics(NULL, &all), WV_BAD_ARGUMENT, "engine is null");
}

// It stays as long as a region of it does.
static void shared_memory(const end *a, const end *b) {
    wv_shared_memory *memory = NULL;
    void *address = NULL;
    uint64_t region = 77;
    wv_transfer transfer;
    refused(wv_shared_memory_create(0, &memory, &address), WV_BAD_ARGUMENT, "0 bytes");
    refused(wv_shared_memory_create(PAGE, NULL, &address), WV_BAD_ARGUMENT, "memory is");
    refused(wv_shared_memory_create(PAGE, &memory, NULL), WV_BAD_ARGUMENT, "address is");
    must(memory == NULL && address == NULL, "nothing was made");
    check(wv_shared_memory_create(PAGE, &memory, &address), "wv_shared_memory_create");
    refused(wv_engine_register_shared(a->engine, NULL, &region), WV_BAD_ARGUMENT, "memory is null");
    refused(wv_engine_register_shared(a->engine, memory, NULL), WV_BAD_ARGUMENT, "region is");
    check(wv_engine_register_shared(a->engine, memory, &region), "wv_engine_register_shared");
    check(wv_shared_memory_destroy(memory), "wv_shared_memory_destroy");
    refused(wv_engine_register_shared(a->engine, memory, &region), WV_BAD_HANDLE, "no wv_shared_memory that lives");
    uint8_t *bytes = (uint8_t *)address;
    must(bytes[0] == 0 && bytes[PAGE - 1] == 0, "zeros at first");
    memset(bytes, 5, PAGE);
    check(wv_engine_write(a->peer, at(bytes), a->remote, PAGE, &transfer), "wv_engine_write");
    done(a, transfer);
    released(a, transfer);
    must(memcmp(bytes, b->memory, PAGE) == 0, "it was written");
    check(wv_engine_deregister(a->engine, region), "wv_engine_deregister");
    check(wv_shared_memory_destroy(NULL), "none");
}

static void bad_engines(void) {
    wv_engine *engine = NULL;
    wv_engine_config config;
    WV_INIT(&config);
    refused(wv_engine_open(NULL, &engine), WV_BAD_ARGUMENT, "config is null");
    refused(wv_engine_open(&config, NULL), WV_BAD_ARGUMENT, "engine is");
    refused(wv_engine_open(&config, &engine), WV_BAD_ARGUMENT, "name is null");
    config.name = "";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "name of an engine is 0; it must be 1 to 255");
    config.name = "\xff";
    refused(wv_engine_open(&config, &engine), WV_BAD_ARGUMENT, "UTF-8");
    config.name = "c";
    config.insecure = 2;
    refused(wv_engine_open(&config, &engine), WV_BAD_ARGUMENT, "insecure is 2");
    config.insecure = 0;
    config.settings = "qps=9";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "WARPVERBS_ENGINE_QPS is '9'; it must be a number from 1 to 8");
    config.settings = "rails=9";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "WARPVERBS_ENGINE_RAILS is '9'; it must be a number from 1 to 8");
    config.settings = "rails=3; qps=2";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "a connection has 2 QPs for 3 RDMA devices");
    config.settings = "windows=9";
    refused(wv_engine_open(&config, &engine), WV_BAD_ARGUMENT, "settings is windows");
    config.settings = "fragment=131072";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "a fragment of 131072 bytes; it must be 0 to 65536");
    config.settings = NULL;
    config.device = "nosuch_0";
    refused(wv_engine_open(&config, &engine), WV_NO_HCA, "nosuch_0");
    config.size = 9;
    refused(wv_engine_open(&config, &engine), WV_BAD_STRUCT, "size of config is 9");
    must(engine == NULL, "nothing was made");
}

static void opens(const wv_engine_config *config, const char *what) {
    wv_engine *engine = NULL;
    check(wv_engine_open(config, &engine), what);
    check(wv_engine_close(engine, NULL), "wv_engine_close");
}

static void providers(void) {
    static const char *const words[] = {"auto", "mlx5", "verbs"};
    wv_engine *engine = NULL;
    wv_engine_config config;
    WV_INIT(&config);
    config.name = "c";
    opens(&config, "no provider");
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i) {
        config.provider = words[i];
        opens(&config, words[i]);
    }
    config.provider = "efa";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "provider 'efa': it must be auto, mlx5, verbs, ofi, or ofi:NAME");
    config.provider = "\xff";
    refused(wv_engine_open(&config, &engine), WV_BAD_ARGUMENT, "UTF-8");
    config.provider = "mlx5";
    config.settings = "provider=ofi:";
    refused(wv_engine_open(&config, &engine), WV_BAD_CONFIG, "provider 'ofi:'");
    must(engine == NULL, "nothing was made");
    config.settings = NULL;
    // A struct of an older header ends before the field, and what lies there is not read.
    config.provider = "efa";
    config.size = offsetof(wv_engine_config, provider);
    opens(&config, "a struct without a provider");
}

static void bad_calls(const end *a, const end *b) {
    wv_transfer transfer, other;
    wv_engine_peer *peer = NULL;
    uint64_t region;
    uint32_t state;
    uint8_t descriptor[WV_DESCRIPTOR_BYTES];
    char address[64];
    refused(wv_engine_register(a->engine, a->memory, 0, &region), WV_BAD_ARGUMENT, "0 bytes of host memory");
    refused(wv_engine_register(a->engine, NULL, 8, &region), WV_BAD_ARGUMENT, "8 bytes of host memory");
    refused(wv_engine_register(a->engine, a->memory, SIZE_MAX, &region), WV_BAD_ARGUMENT, "of host memory");
    refused(wv_engine_deregister(a->engine, 77), WV_BAD_HANDLE, "region 77 was never registered");
    refused(wv_engine_descriptor(a->engine, a->region, descriptor, 71), WV_BAD_ARGUMENT, "bytes is 71; it must be at least 72");
    refused(wv_engine_listen(a->engine, "nowhere", NULL, 0), WV_BAD_ARGUMENT, "address is nowhere");
    refused(wv_engine_listen(a->engine, "", NULL, 0), WV_BAD_ARGUMENT, "address is ");
    refused(wv_engine_listen(a->engine, "127.0.0.1:0", address, 63), WV_BAD_ARGUMENT, "bytes is 63");
    refused(wv_engine_listen(a->engine, "0.0.0.0:0", NULL, 0), WV_BAD_CONFIG, "other machines reach 0.0.0.0:0");
    refused(wv_engine_connect(a->engine, "127.0.0.1:1", &peer), WV_PEER_NOT_CONNECTED, "127.0.0.1:1");
    refused(wv_engine_connect(a->engine, NULL, &peer), WV_BAD_ARGUMENT, "at is null");
    refused(wv_engine_accept(a->engine, 1, &peer), WV_TIMEOUT, "no engine has connected");

    // Descriptors.
    check(wv_engine_descriptor(b->engine, b->region, descriptor, sizeof descriptor), "wv_engine_descriptor");
    refused(wv_engine_import(a->peer, descriptor, 71, NULL), WV_BAD_ARGUMENT, "invalid region descriptor");
    descriptor[17] ^= 1;
    refused(wv_engine_import(a->peer, descriptor, sizeof descriptor, NULL), WV_BAD_ARGUMENT, "checksum");
    check(wv_engine_descriptor(a->engine, a->region, descriptor, sizeof descriptor), "its own");
    refused(wv_engine_import(a->peer, descriptor, sizeof descriptor, NULL), WV_GENERATION_OVER, "incarnation");

    // Ranges.
    const uint64_t here = at(a->memory), there = a->remote;
    refused(wv_engine_write(a->peer, here, there + 1, BYTES, &transfer), WV_BAD_ARGUMENT, "is in no registered region");
    refused(wv_engine_write(a->peer, here + 1, there, BYTES, &transfer), WV_BAD_ARGUMENT, "the local byte");
    refused(wv_engine_read(a->peer, here, UINT64_MAX, 2, &transfer), WV_BAD_ARGUMENT, "behind the last address");
    refused(wv_engine_write(a->peer, here, there, 8, NULL), WV_BAD_ARGUMENT, "transfer is");
    wv_operation one;
    memset(&one, 0, sizeof one);
    one.local = here;
    one.remote = there;
    one.bytes = 8;
    refused(wv_engine_submit(a->peer, &one, 0, NULL, &transfer), WV_BAD_ARGUMENT, "0 operations");
    refused(wv_engine_submit(a->peer, NULL, 1, NULL, &transfer), WV_BAD_ARGUMENT, "operations is null");
    refused(wv_engine_submit(a->peer, &one, SIZE_MAX, NULL, &transfer), WV_BAD_ARGUMENT, "length of operations");
    one.kind = 2;
    refused(wv_engine_submit(a->peer, &one, 1, NULL, &transfer), WV_BAD_ARGUMENT, "kind of operation 0 is 2");
    one.kind = WV_WRITE;
    one.reserved = 1;
    refused(wv_engine_submit(a->peer, &one, 1, NULL, &transfer), WV_BAD_ARGUMENT, "reserved of operation 0 is 1");
    wv_operation *many = (wv_operation *)calloc(65537, sizeof one);
    refused(wv_engine_submit(a->peer, many, 65537, NULL, &transfer), WV_BAD_ARGUMENT, "65537 operations");
    free(many);

    // Names of transfers.
    check(wv_engine_write(a->peer, here, there, 8, &transfer), "wv_engine_write");
    done(a, transfer);
    refused(wv_engine_poll(b->engine, transfer, &state), WV_BAD_HANDLE, "is not of engine");
    refused(wv_engine_poll(a->engine, transfer, NULL), WV_BAD_ARGUMENT, "state is");
    other = transfer;
    other.place |= 0xffffffff;
    refused(wv_engine_wait(a->engine, other, 1, &state), WV_BAD_HANDLE, "is not of engine");
    wv_stall stall;
    WV_INIT(&stall);
    refused(wv_engine_stalled(a->engine, other, 0, &stall), WV_BAD_HANDLE, "is not of engine");
    refused(wv_engine_stalled(a->engine, transfer, 1, &stall), WV_BAD_ARGUMENT, "rail is 1; it must be 0 to 0, or WV_NO_RAIL");
    refused(wv_engine_stalled(a->engine, transfer, 0, NULL), WV_BAD_ARGUMENT, "stall is");
    refused(wv_engine_stalled(NULL, transfer, 0, &stall), WV_BAD_ARGUMENT, "engine is null");
    uint32_t what;
    refused(wv_engine_waits_for(a->engine, other, &what), WV_BAD_HANDLE, "is not of engine");
    refused(wv_engine_waits_for(a->engine, transfer, NULL), WV_BAD_ARGUMENT, "what is");
    refused(wv_engine_waits_for(NULL, transfer, &what), WV_BAD_ARGUMENT, "engine is null");
    other = transfer;
    other.generation += 7;
    check(wv_engine_poll(a->engine, other, &state), "a generation that is not yet");
    must(state == WV_TRANSFER_UNKNOWN, "is unknown");
    refused(wv_engine_cancel(a->engine, other), WV_BAD_HANDLE, "was released");
    refused(wv_engine_stalled(a->engine, other, 0, &stall), WV_BAD_HANDLE, "was released");
    refused(wv_engine_waits_for(a->engine, other, &what), WV_BAD_HANDLE, "was released");
    wv_transfer_report report;
    WV_INIT(&report);
    refused(wv_engine_report(a->engine, other, &report, NULL, 0), WV_BAD_HANDLE, "was released");
    size_t which;
    refused(wv_engine_wait_any(a->engine, &transfer, 0, 1, &which), WV_BAD_ARGUMENT, "count is 0");
    check(wv_engine_poll_many(a->engine, NULL, 0, NULL), "none of none");
    released(a, transfer);
}

// Regions of another engine, none, and some that were never given: each call says which, and the regions of both engines stay.
static void regions_name_their_engine(const end *a, const end *b) {
    uint8_t before[WV_DESCRIPTOR_BYTES], after[WV_DESCRIPTOR_BYTES], grant[WV_GRANT_BYTES];
    check(wv_engine_descriptor(a->engine, a->region, before, sizeof before), "wv_engine_descriptor");
    must(a->region != 0 && b->region != 0 && a->region != b->region, "each region has its own number");
    const struct {
        uint64_t region;
        const char *words;
    } wrong[] = {
        {a->region, "was asked: ask the engine that has registered it"},
        {0, "region 0 was never registered"},
        {1, "region 1 was never registered"},
        {b->region + 1000000, "was never registered"},
        {UINT64_MAX, "names engine 16777215 of this process"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        const uint64_t region = wrong[i].region;
        refused(wv_engine_descriptor(b->engine, region, after, sizeof after), WV_BAD_HANDLE, wrong[i].words);
        refused(wv_engine_deregister(b->engine, region), WV_BAD_HANDLE, wrong[i].words);
        refused(wv_engine_deregister_wait(b->engine, region, 1), WV_BAD_HANDLE, wrong[i].words);
        refused(wv_engine_export(b->peer, region, grant, sizeof grant), WV_BAD_HANDLE, wrong[i].words);
    }
    check(wv_engine_descriptor(a->engine, a->region, after, sizeof after), "the region of a is there");
    must(memcmp(before, after, sizeof before) == 0, "and the same");
    check(wv_engine_descriptor(b->engine, b->region, after, sizeof after), "that of b, too");
    whole(a, b);
}

// A range that b grants a for reads: what a may do with it, and that nothing of it is left when it is revoked.
static void granted(end *a, end *b) {
    uint8_t grant[WV_GRANT_BYTES], whole[WV_GRANT_BYTES], wrong[WV_GRANT_BYTES];
    wv_transfer transfer;
    uint32_t state;
    wv_remote_region region;
    WV_INIT(&region);
    memset(b->memory + 100, 7, PAGE);
    check(wv_engine_grant(b->peer, b->memory + 100, PAGE, WV_MAY_READ, 0, grant, sizeof grant), "wv_engine_grant");
    check(wv_engine_import_grant(a->peer, grant, sizeof grant, &region), "wv_engine_import_grant");
    check(wv_engine_import_grant(a->peer, grant, sizeof grant, NULL), "once more");
    must(region.bytes == PAGE && region.address != at(b->memory + 100), "it has an address of its own");
    check(wv_engine_read(a->peer, at(a->memory), region.address, PAGE, &transfer), "wv_engine_read");
    done(a, transfer);
    must(a->memory[0] == 7 && a->memory[PAGE - 1] == 7, "it was read");
    refused(wv_engine_write(a->peer, at(a->memory), region.address, 8, &transfer), WV_BAD_ARGUMENT, "the peer has granted reads");
    refused(wv_engine_read(a->peer, at(a->memory), region.address + 1, PAGE, &transfer), WV_BAD_ARGUMENT, "is in no registered region");
    refused(wv_engine_deregister(b->engine, b->region), WV_BUSY, "1 uses of region");
    refused(wv_engine_deregister_wait(b->engine, b->region, 1), WV_BUSY, "1 uses of region");
    check(wv_engine_export(b->peer, b->region, whole, sizeof whole), "wv_engine_export");
    check(wv_engine_revoke(b->engine, whole, sizeof whole), "wv_engine_revoke");

    refused(wv_engine_grant(b->peer, b->memory, PAGE, WV_MAY_READ, 0, wrong, 95), WV_BAD_ARGUMENT, "grant_bytes is 95");
    refused(wv_engine_grant(b->peer, b->memory, PAGE, WV_MAY_READ, 0, NULL, 96), WV_BAD_ARGUMENT, "grant is");
    refused(wv_engine_grant(b->peer, b->memory, PAGE, 0, 0, wrong, sizeof wrong), WV_BAD_ARGUMENT, "rights is 0");
    refused(wv_engine_grant(b->peer, b->memory, PAGE, 4, 0, wrong, sizeof wrong), WV_BAD_ARGUMENT, "rights is 4");
    refused(wv_engine_grant(b->peer, b->memory, BYTES + 1, WV_MAY_BOTH, 0, wrong, sizeof wrong), WV_BAD_ARGUMENT, "all of one registration");
    refused(wv_engine_grant(b->peer, b->memory, 0, WV_MAY_WRITE, 0, wrong, sizeof wrong), WV_BAD_ARGUMENT, "a grant of 0 bytes");
    refused(wv_engine_export(b->peer, 77, wrong, sizeof wrong), WV_BAD_HANDLE, "region 77 was never registered");
    refused(wv_engine_revoke(a->engine, grant, sizeof grant), WV_BAD_HANDLE, "is not of this engine");
    refused(wv_engine_revoke(b->engine, grant, 95), WV_BAD_ARGUMENT, "invalid grant");
    refused(wv_engine_import_grant(b->peer, grant, sizeof grant, NULL), WV_GENERATION_OVER, "incarnation");
    memcpy(wrong, grant, sizeof wrong);
    wrong[20] ^= 1;
    refused(wv_engine_import_grant(a->peer, wrong, sizeof wrong, NULL), WV_BAD_ARGUMENT, "checksum");

    check(wv_engine_revoke(b->engine, grant, sizeof grant), "wv_engine_revoke");
    check(wv_engine_revoke(b->engine, grant, sizeof grant), "once more");
    memset(b->memory + 100, 9, PAGE);
    check(wv_engine_read(a->peer, at(a->memory), region.address, PAGE, &transfer), "wv_engine_read");
    check(wv_engine_wait(a->engine, transfer, LONG, &state), "wv_engine_wait");
    must(state == WV_TRANSFER_FAILED && a->memory[0] == 7, "nothing is read behind the end");
    released(a, transfer);
    check(wv_engine_forget(a->peer, region.address), "wv_engine_forget");
    refused(wv_engine_read(a->peer, at(a->memory), region.address, 8, &transfer), WV_BAD_ARGUMENT, "is in no registered region");
}

// A descriptor with a key that the peer does not have, and the checksum that fits.
static void forge(uint8_t *descriptor) {
    uint64_t sum = 0xcbf29ce484222325u;
    descriptor[4] ^= 0x5a;
    for (int i = 0; i < 64; ++i) sum = (sum ^ descriptor[i]) * 0x100000001b3u;
    for (int i = 0; i < 8; ++i) descriptor[64 + i] = (uint8_t)(sum >> 8 * i);
}

// The transfer fails with its cause, and once the connection is ended nothing is taken.
static void failure(end *a, end *b) {
    static uint8_t more[PAGE];
    uint8_t descriptor[WV_DESCRIPTOR_BYTES];
    wv_transfer transfer;
    uint64_t region;
    uint32_t state;
    check(wv_engine_register(b->engine, more, sizeof more, &region), "wv_engine_register");
    check(wv_engine_descriptor(b->engine, region, descriptor, sizeof descriptor), "wv_engine_descriptor");
    forge(descriptor);
    check(wv_engine_import(a->peer, descriptor, sizeof descriptor, NULL), "wv_engine_import");
    check(wv_engine_write(a->peer, at(a->memory), at(more), 8, &transfer), "wv_engine_write");
    check(wv_engine_wait(a->engine, transfer, LONG, &state), "wv_engine_wait");
    must(state == WV_TRANSFER_FAILED, "it has failed");
    uint8_t each[1] = {9};
    wv_transfer_report report;
    WV_INIT(&report);
    check(wv_engine_report(a->engine, transfer, &report, each, 1), "wv_engine_report");
    must(report.state == WV_TRANSFER_FAILED && each[0] == WV_OPERATION_FAILED && report.bytes_landed == 0, "nothing landed");
    must(report.has_failure == 1 && report.syndrome == 0x13 && report.remote == at(more), "a remote access error");
    must((report.has_rail == 1) == by_nic() && report.rail == 0, "the rail by which it was posted");
    must(report.remote_unknown == 0 && (report.qp != 0) == by_nic(), "the peer's memory is quiet; a copy has no QP");
    check(wv_engine_deregister(b->engine, region), "wv_engine_deregister");
    refused(wv_engine_deregister(b->engine, region), WV_BAD_HANDLE, "was taken away");
}

// Memory of the process stands for a GPU's: the NIC moves it, or the GPU copies it where threads copy host memory.
static void gpu_memory(end *a, end *b) {
    uint64_t posted[2];
    uint8_t *here = (uint8_t *)malloc(PAGE), *there = (uint8_t *)calloc(PAGE, 1);
    must(here != NULL && there != NULL, "there is memory");
    for (int i = 0; i < PAGE; i++) here[i] = (uint8_t)(i * 31 + 7);
    uint64_t local, inside[2];
    check(wv_engine_register_gpu(a->engine, "simt", at(here), PAGE, &local), "wv_engine_register_gpu");
    const wv_gpu_range ranges[2] = {{at(there) + 8, 8}, {at(there), PAGE}};
    check(wv_engine_register_gpu_list(b->engine, "simt", ranges, 2, inside), "wv_engine_register_gpu_list");
    uint8_t descriptor[WV_DESCRIPTOR_BYTES];
    wv_remote_region region;
    WV_INIT(&region);
    check(wv_engine_descriptor(b->engine, inside[0], descriptor, sizeof descriptor), "wv_engine_descriptor");
    check(wv_engine_import(a->peer, descriptor, sizeof descriptor, &region), "wv_engine_import");
    must(region.address == at(there) && region.bytes == PAGE, "the list shares a registration");
    wv_transfer transfer;
    for (int round = 0; round < 2; round++) {
        wv_rail_info rail;
        WV_INIT(&rail);
        check(wv_engine_get_rail(a->engine, 0, &rail), "wv_engine_get_rail");
        posted[round] = rail.slices_posted;
        if (round > 0) break;
        check(wv_engine_write(a->peer, at(here), region.address, PAGE, &transfer), "wv_engine_write");
        done(a, transfer);
        released(a, transfer);
    }
    must(posted[1] == posted[0] + by_nic(), "the NIC has moved it, or no WQE");
    must(memcmp(here, there, PAGE) == 0, "every byte arrived");
    uint64_t none = 7;
    refused(wv_engine_register_gpu(a->engine, "gpu0", at(here), PAGE, &none), WV_BAD_ARGUMENT, "auto, simt");
    refused(wv_engine_register_gpu(a->engine, "simt", at(here), 0, &none), WV_BAD_ARGUMENT, "0 bytes");
    refused(wv_engine_register_gpu(a->engine, "simt", at(here) + PAGE - 8, 16, &none), WV_BAD_ARGUMENT, "overlap a region");
    const wv_gpu_range wrong[2] = {{at(there), PAGE}, {1, UINT64_MAX}};
    refused(wv_engine_register_gpu_list(b->engine, "simt", wrong, 2, inside), WV_BAD_ARGUMENT, "element 1 of the list");
    must(none == 7, "no number was given");
    check(wv_engine_deregister(a->engine, local), "wv_engine_deregister");
    for (int i = 0; i < 2; i++) check(wv_engine_deregister(b->engine, inside[i]), "wv_engine_deregister");
    check(wv_engine_forget(a->peer, region.address), "wv_engine_forget");
    free(here);
    free(there);
}

int main(int argc, char **argv) {
    must(argc == 2, "engines STORE_DIRECTORY");
    bad_engines();
    providers();
    keys(argv[1]);
    names(argv[1]);
    sockets(argv[1]);
    end a = open_end("a", "transfers=2; qps=2"), b = open_end("b", "");
    meet(&a, &b);
    whole(&a, &b);
    pages(&a, &b);
    planned(&a, &b);
    threads(&a, &b);
    lists(&a);
    counters(&a, &b);
    notices(&a, &b);
    slots(&a);
    bad_calls(&a, &b);
    regions_name_their_engine(&a, &b);
    granted(&a, &b);
    shared_memory(&a, &b);
    gpu_memory(&a, &b);
    failure(&a, &b);
    statistics(&a);

    uint32_t cut_off = 9;
    check(wv_engine_disconnect(a.peer, &cut_off), "wv_engine_disconnect");
    must(cut_off == 0, "nothing ran");
    wv_transfer transfer;
    refused(wv_engine_write(a.peer, at(a.memory), a.remote, 8, &transfer), WV_PEER_NOT_CONNECTED, "connect again");
    wv_engine_end ended;
    WV_INIT(&ended);
    check(wv_engine_close(a.engine, &ended), "wv_engine_close");
    must(ended.failed == 2 && ended.cut_off == 0 && ended.cancelled == 0 && ended.timed_out == 0, "two have failed");
    must(ended.done == 2 * (1 + 1) + 3 + 1 + THREADS * ROUNDS + 2 + 2 + 1 + 1 + 1 + 1 + 1, "all others are done");
    refused(wv_engine_close(a.engine, NULL), WV_BAD_HANDLE, "no wv_engine that lives");
    refused(wv_engine_write(a.peer, at(a.memory), a.remote, 8, &transfer), WV_BAD_HANDLE, "is being closed");
    refused(wv_engine_poll((const wv_engine *)a.peer, transfer, &cut_off), WV_BAD_HANDLE, "no wv_engine that lives");
    check(wv_engine_close(b.engine, NULL), "wv_engine_close");
    check(wv_engine_close(NULL, NULL), "none");
    // Nothing uses it any more.
    free(a.memory);
    free(b.memory);
    check(wv_engine_peer_close(a.peer), "wv_engine_peer_close");
    check(wv_engine_peer_close(b.peer), "wv_engine_peer_close");
    check(wv_engine_peer_close(NULL), "none");
    printf("engines: every byte was moved\n");
    return 0;
}
