// A CUDA driver without a GPU, for tests of src/gpu/cuda: libcuda.so as test_support::fake_cuda compiles it.
//
// It keeps what the runtime asks of the driver API: devices, attributes, primary contexts, memory, streams, events, graphs,
// modules, IPC. Device memory is pages of the host, each allocation a memfd, which stands for a DMA-BUF and is what an IPC handle
// names. A launch ends at once and computes nothing, so nothing that a test finds here says anything about a GPU. What is
// checked is the use of the API: a call without a current context, a handle that was destroyed, a range outside of all
// allocations and a page that is registered twice are refused with the code of NVIDIA's driver.
//
// The file that FAKE_CUDA names is read at each call; a line of it is one of
//
//   devices N                  how many there are, at most 16; default 1
//   name TEXT                  of every device
//   attribute ID VALUE [N]     a CUdevice_attribute by number, of device N or of all
//   pci N ADDRESS              where device N is, as 0000:1b:00; default 0000:00:00
//   driver N                   13000 for CUDA 13.0, which also says which PTX can be read
//   memory BYTES [N]           of device N or of each
//   reuse                      an allocation gets the address of one as long that was freed, if there is one
//   bases N                    allocations begin N bytes after a page
//   page BYTES                 the granule of registrations and DMA-BUFs; default the machine's
//   no-uva                     the device has pinned memory at another address than the host
//   jit-log TEXT               what the compiler of PTX says when it refuses
//   refuse CALL CODE [N [M]]   the Nth call of this function and the M - 1 after it are refused; default all
//   refuse-on D CALL CODE [N [M]]   the same of the calls that are for device D, or made in its context
//   refuse-any N CODE          the Nth call of any function is refused, counted from when this line is new
//   dmabuf FLAGS CODE          DMA-BUFs with these flags are refused: 1 for those across PCIe, 0 for the others
//   hold CALL PATH             each call of this function waits: it opens PATH.in to write, then PATH.out to read
//   calls PATH                 each call is appended there with its arguments
//   order PATH                 what comes to a stream is appended there: the stream, and host, event or kernel
//
// With FAKE_CUDA_PAGE set and this library preloaded, the process has pages of so many bytes, for all that sysconf says.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURED_EVENT = 907,
};

static const struct {
    CUresult code;
    const char *name;
} ERRORS[] = {
    {0, "CUDA_SUCCESS"},
    {1, "CUDA_ERROR_INVALID_VALUE"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY"},
    {3, "CUDA_ERROR_NOT_INITIALIZED"},
    {34, "CUDA_ERROR_STUB_LIBRARY"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {100, "CUDA_ERROR_NO_DEVICE"},
    {101, "CUDA_ERROR_INVALID_DEVICE"},
    {200, "CUDA_ERROR_INVALID_IMAGE"},
    {201, "CUDA_ERROR_INVALID_CONTEXT"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {218, "CUDA_ERROR_INVALID_PTX"},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM"},
    {400, "CUDA_ERROR_INVALID_HANDLE"},
    {500, "CUDA_ERROR_NOT_FOUND"},
    {600, "CUDA_ERROR_NOT_READY"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {719, "CUDA_ERROR_LAUNCH_FAILED"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
    {800, "CUDA_ERROR_NOT_PERMITTED"},
    {801, "CUDA_ERROR_NOT_SUPPORTED"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
    {907, "CUDA_ERROR_CAPTURED_EVENT"},
    {999, "CUDA_ERROR_UNKNOWN"},
};

// ---- What the file says

#define DEVICES 16

static struct {
    char text[16384];
} file;

/// Attributes of a device that the file does not name.
static const int ATTRIBUTES[][2] = {
    {16, 132}, // multiprocessors
    {41, 1},   // unified addressing
    {75, 9},   // compute capability, major
    {76, 0},   // minor
    {95, 1},   // cooperative launch
    {116, 1},  // GPUDirect RDMA
    {117, 3},  // flush by host and in a stream
    {118, 100}, // writes in order for the owner
    {124, 1},  // DMA-BUF
};

static void read_file(void) {
    file.text[0] = 0;
    const char *path = getenv("FAKE_CUDA");
    if (!path) return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    size_t have = 0;
    for (;;) {
        ssize_t got = read(fd, file.text + have, sizeof file.text - 1 - have);
        if (got <= 0) break;
        have += (size_t)got;
    }
    file.text[have] = 0;
    close(fd);
}

/// The next line from `*at` on that begins with `word`; what stands after the word goes into `rest`.
static bool next_line(const char **at, const char *word, char *rest, size_t room) {
    size_t length = strlen(word);
    while (**at) {
        const char *line = *at, *end = strchrnul(line, '\n');
        *at = *end ? end + 1 : end;
        if (strncmp(line, word, length) || (line[length] != ' ' && line[length] != '\n' && line[length])) continue;
        line += length;
        if (*line == ' ') line++;
        size_t bytes = (size_t)(end - line) < room - 1 ? (size_t)(end - line) : room - 1;
        if (end < line) bytes = 0;
        memcpy(rest, line, bytes);
        rest[bytes] = 0;
        return true;
    }
    return false;
}

static bool setting(const char *word, char *rest, size_t room) {
    const char *at = file.text;
    return next_line(&at, word, rest, room);
}

static uint64_t number(const char *word, uint64_t otherwise) {
    char text[64];
    return setting(word, text, sizeof text) ? strtoull(text, NULL, 0) : otherwise;
}

/// Attributes that say where a device is.
enum { PCI_BUS = 33, PCI_DEVICE = 34, PCI_DOMAIN = 50 };

static bool pci_of(CUdevice device, int id, int *value) {
    char rest[64];
    for (const char *at = file.text; next_line(&at, "pci", rest, sizeof rest);) {
        int which;
        unsigned domain, bus, slot;
        if (sscanf(rest, "%d %x:%x:%x", &which, &domain, &bus, &slot) != 4 || which != device) continue;
        *value = (int)(id == PCI_BUS ? bus : id == PCI_DEVICE ? slot : domain);
        return true;
    }
    return false;
}

static int attribute_of(CUdevice device, int id) {
    char rest[64];
    int place;
    if ((id == PCI_BUS || id == PCI_DEVICE || id == PCI_DOMAIN) && pci_of(device, id, &place)) return place;
    for (const char *at = file.text; next_line(&at, "attribute", rest, sizeof rest);) {
        int which, value, only;
        int words = sscanf(rest, "%d %d %d", &which, &value, &only);
        if (words >= 2 && which == id && (words == 2 || only == device)) return value;
    }
    for (size_t i = 0; i < sizeof ATTRIBUTES / sizeof *ATTRIBUTES; i++)
        if (ATTRIBUTES[i][0] == id) return ATTRIBUTES[i][1];
    return 0;
}

static uint64_t memory_of(CUdevice device) {
    char rest[64];
    for (const char *at = file.text; next_line(&at, "memory", rest, sizeof rest);) {
        long long bytes;
        int only;
        int words = sscanf(rest, "%lli %d", &bytes, &only);
        if (words == 1 || (words == 2 && only == device)) return (uint64_t)bytes;
    }
    return 16ull << 30;
}

static uint64_t page_bytes(void) {
    return number("page", (uint64_t)sysconf(_SC_PAGESIZE));
}

// ---- What there is

enum kind { NONE, CONTEXT, MEMORY, HOST, REGISTERED, OPENED, MODULE, FUNCTION, STREAM, EVENT, GRAPH, EXEC };

/// Anything that a handle or an address names. Never freed, so that a stale handle differs from a live one.
struct thing {
    enum kind kind;
    struct thing *next;
    CUdevice device;
    struct thing *of; // module of a function, stream of an event, context of a stream
    uint64_t base, bytes;
    int fd;
    uint64_t mapped, mapped_bytes;
    uint64_t buffer;           // no other thing has the same
    char *text;
    int nodes;
    int number, captured_by;   // streams: index, and that of the stream whose capture it is in; -1: none
    struct thing *in;          // the context that it was made in
    uint32_t seen[64];         // operations of each captured stream that are ordered before this one's
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct thing *things;
static bool started;
static int retained[DEVICES];
static struct thing *contexts[DEVICES];
static int streams;
static __thread struct thing *current;

/// Of the device whose context is current.
static int attribute(int id) {
    return attribute_of(current ? current->device : 0, id);
}

static struct thing *made(enum kind kind) {
    static uint64_t buffers;
    struct thing *one = calloc(1, sizeof *one);
    one->kind = kind;
    one->buffer = ++buffers;
    one->device = current ? current->device : 0;
    one->in = current;
    one->fd = one->captured_by = -1;
    one->next = things;
    things = one;
    return one;
}

static bool is(struct thing *one, enum kind kind) {
    for (struct thing *t = things; t; t = t->next)
        if (t == one) return t->kind == kind;
    return false;
}

static bool has_room(enum kind kind) {
    return kind == MEMORY || kind == HOST || kind == REGISTERED || kind == OPENED;
}

static struct thing *at(uint64_t addr, uint64_t bytes) {
    for (struct thing *t = things; t; t = t->next)
        if (has_room(t->kind) && addr >= t->base && addr - t->base <= t->bytes && bytes <= t->bytes - (addr - t->base))
            return t;
    return NULL;
}

static uint64_t used(CUdevice device) {
    uint64_t bytes = 0;
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == MEMORY && t->device == device) bytes += t->bytes;
    return bytes;
}

// ---- What happens at each call

/// No device: of a call that is for none, and in no context.
#define NOWHERE (-1)

static struct {
    const char *call;
    unsigned count;
    unsigned on[DEVICES];
} counts[128];

/// Counts a call; how many there were, of all devices and of this one.
static unsigned counted(const char *call, CUdevice device, unsigned *on_it) {
    bool known = device >= 0 && device < DEVICES;
    *on_it = 0;
    for (int i = 0; i < 128; i++) {
        if (!counts[i].call) counts[i].call = call;
        if (strcmp(counts[i].call, call)) continue;
        if (known) *on_it = ++counts[i].on[device];
        return ++counts[i].count;
    }
    return 0;
}

/// Whether the `nth` call of a function is refused by the words after `refuse`; with which code.
static bool refuses(const char *words, const char *call, unsigned nth, int *code) {
    char name[128];
    unsigned first = 1, count = UINT32_MAX;
    if (sscanf(words, "%127s %d %u %u", name, code, &first, &count) < 2 || strcmp(name, call)) return false;
    return nth >= first && nth - first < count;
}

/// Whether this call is refused by `refuse-any`: the one of its number since that line is what it is.
static bool refuses_any(int *code) {
    static char known[64];
    static unsigned calls;
    char words[64];
    unsigned nth;
    if (!setting("refuse-any", words, sizeof words)) return false;
    if (strcmp(known, words)) {
        strcpy(known, words);
        calls = 0;
    }
    calls++;
    return sscanf(words, "%u %d", &nth, code) == 2 && calls == nth;
}

/// With which code a call on `device` is refused.
static CUresult refusal(const char *call, unsigned nth, CUdevice device, unsigned on_it) {
    char rest[512];
    int code, only, words;
    if (refuses_any(&code)) return code;
    for (const char *line = file.text; next_line(&line, "refuse", rest, sizeof rest);)
        if (refuses(rest, call, nth, &code)) return code;
    for (const char *line = file.text; next_line(&line, "refuse-on", rest, sizeof rest);)
        if (sscanf(rest, "%d %n", &only, &words) == 1 && only == device && refuses(rest + words, call, on_it, &code)) return code;
    return SUCCESS;
}

static void wait_at(const char *path) {
    char name[600];
    snprintf(name, sizeof name, "%s.in", path);
    int in = open(name, O_WRONLY | O_CLOEXEC);
    snprintf(name, sizeof name, "%s.out", path);
    int out = open(name, O_RDONLY | O_CLOEXEC);
    close(in);
    close(out);
}

/// What a call needs that it is made at all.
enum need { ANYTIME, AFTER_INIT, IN_CONTEXT };

/// Reports the call and may refuse it. If it does not, the mutex is held when it returns.
__attribute__((format(printf, 4, 5))) static CUresult enter(const char *call, CUdevice device, enum need need, const char *format,
                                                            ...) {
    char rest[512], name[128];
    pthread_mutex_lock(&mutex);
    read_file();
    unsigned on_it, nth = counted(call, device, &on_it);
    if (setting("calls", rest, sizeof rest)) {
        char line[512];
        va_list arguments;
        va_start(arguments, format);
        int length = snprintf(line, sizeof line, "%s ", call);
        length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, arguments);
        va_end(arguments);
        line[length++] = '\n';
        int fd = open(rest, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (write(fd, line, (size_t)length) < 0) abort();
        close(fd);
    }
    CUresult result = refusal(call, nth, device, on_it);
    if (result == SUCCESS && need != ANYTIME && !started) result = NOT_INITIALIZED;
    if (result == SUCCESS && need == IN_CONTEXT && !is(current, CONTEXT)) result = INVALID_CONTEXT;
    char path[512];
    for (const char *line = file.text; next_line(&line, "hold", rest, sizeof rest);) {
        if (sscanf(rest, "%127s %511s", name, path) != 2 || strcmp(name, call)) continue;
        pthread_mutex_unlock(&mutex);
        wait_at(path);
        pthread_mutex_lock(&mutex);
        read_file();
        break;
    }
    if (result != SUCCESS) pthread_mutex_unlock(&mutex);
    return result;
}

#define ENTER_ON(device, need, ...)                                    \
    do {                                                               \
        CUresult refused = enter(__func__, device, need, __VA_ARGS__); \
        if (refused != SUCCESS) return refused;                        \
    } while (0)

#define ENTER(need, ...) ENTER_ON(current ? current->device : NOWHERE, need, __VA_ARGS__)

static CUresult leave(CUresult result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

// ---- Devices

CUresult cuGetErrorName(CUresult code, const char **name) {
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) {
            *name = ERRORS[i].name;
            return SUCCESS;
        }
    *name = NULL;
    return INVALID_VALUE;
}

CUresult cuInit(unsigned flags) {
    ENTER(ANYTIME, "%u", flags);
    if (!number("devices", 1)) return leave(NO_DEVICE);
    started = true;
    return leave(SUCCESS);
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(ANYTIME, "%s", "");
    *version = (int)number("driver", 13000);
    return leave(SUCCESS);
}

static bool is_device(CUdevice device) {
    return device >= 0 && device < DEVICES && (uint64_t)device < number("devices", 1);
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(AFTER_INIT, "%s", "");
    uint64_t devices = number("devices", 1);
    *count = devices < DEVICES ? (int)devices : DEVICES;
    return leave(SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER_ON(ordinal, AFTER_INIT, "%d", ordinal);
    if (!is_device(ordinal)) return leave(INVALID_DEVICE);
    *device = ordinal;
    return leave(SUCCESS);
}

CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
    ENTER_ON(device, AFTER_INIT, "%d", device);
    if (!is_device(device) || room < 1) return leave(INVALID_DEVICE);
    char text[256];
    if (!setting("name", text, sizeof text)) strcpy(text, "a fake without a GPU");
    snprintf(name, (size_t)room, "%s", text);
    return leave(SUCCESS);
}

CUresult cuDeviceGetAttribute(int *value, int id, CUdevice device) {
    ENTER_ON(device, AFTER_INIT, "%d %d", id, device);
    if (!is_device(device)) return leave(INVALID_DEVICE);
    *value = attribute_of(device, id);
    return leave(SUCCESS);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER(AFTER_INIT, "%d", device);
    if (!is_device(device)) return leave(INVALID_DEVICE);
    *bytes = number("memory", 16ull << 30);
    return leave(SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(struct thing **context, CUdevice device) {
    ENTER_ON(device, AFTER_INIT, "%d", device);
    if (!is_device(device)) return leave(INVALID_DEVICE);
    if (!retained[device]) {
        contexts[device] = made(CONTEXT);
        contexts[device]->device = device;
    }
    retained[device]++;
    *context = contexts[device];
    return leave(SUCCESS);
}

/// What is left in a context when the last user lets go of it.
static int left_of(CUdevice device) {
    int left = 0;
    for (struct thing *t = things; t; t = t->next)
        left += t->kind != NONE && t->kind != CONTEXT && t->kind != FUNCTION && t->device == device;
    return left;
}

static CUresult unmap(enum kind kind, CUdeviceptr addr);

/// What is left in a context ends with it.
static void tear_down(struct thing *context) {
    for (struct thing *t = things; t; t = t->next) {
        if (t->in != context || t->kind == NONE || t->kind == CONTEXT) continue;
        if (t->kind == MEMORY || t->kind == HOST || t->kind == OPENED) unmap(t->kind, t->base);
        t->kind = NONE;
    }
    context->kind = NONE;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    pthread_mutex_lock(&mutex);
    int left = left_of(device);
    pthread_mutex_unlock(&mutex);
    ENTER_ON(device, AFTER_INIT, "%d left %d", device, left);
    if (!is_device(device) || !retained[device]) return leave(INVALID_CONTEXT);
    if (!--retained[device]) tear_down(contexts[device]);
    return leave(SUCCESS);
}

CUresult cuCtxSetCurrent(struct thing *context) {
    ENTER(AFTER_INIT, "%s", "");
    if (context && !is(context, CONTEXT)) return leave(INVALID_CONTEXT);
    current = context;
    return leave(SUCCESS);
}

/// Of each device; a limit of the stack is the only one.
static size_t stack_limits[16];

CUresult cuCtxGetLimit(size_t *value, int limit) {
    ENTER(IN_CONTEXT, "%d", limit);
    if (limit) return leave(INVALID_VALUE);
    size_t set = stack_limits[current->device];
    *value = set ? set : 1024;
    return leave(SUCCESS);
}

CUresult cuCtxSetLimit(int limit, size_t value) {
    ENTER(IN_CONTEXT, "%d %zu", limit, value);
    if (limit) return leave(INVALID_VALUE);
    stack_limits[current->device] = value;
    return leave(SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER(IN_CONTEXT, "%s", "");
    *device = current->device;
    return leave(SUCCESS);
}

CUresult cuCtxSynchronize(void) {
    ENTER(IN_CONTEXT, "%s", "");
    return leave(SUCCESS);
}

CUresult cuCtxGetCurrent(struct thing **context) {
    ENTER(AFTER_INIT, "%s", "");
    *context = current;
    return leave(SUCCESS);
}

/// One beside the primary context, which becomes current.
CUresult cuCtxCreate_v4(struct thing **context, void *parameters, unsigned flags, CUdevice device) {
    ENTER_ON(device, AFTER_INIT, "%p %u %d", parameters, flags, device);
    if (!is_device(device)) return leave(INVALID_DEVICE);
    *context = current = made(CONTEXT);
    current->device = device;
    return leave(SUCCESS);
}

CUresult cuCtxDestroy_v2(struct thing *context) {
    ENTER(AFTER_INIT, "%s", "");
    if (!is(context, CONTEXT)) return leave(INVALID_CONTEXT);
    context->kind = NONE;
    if (current == context) current = NULL;
    return leave(SUCCESS);
}

// ---- Memory

static uint64_t whole(uint64_t bytes, uint64_t granule) {
    return (bytes + granule - 1) / granule * granule;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER(IN_CONTEXT, "%s", "");
    *total = memory_of(current->device);
    *free = *total - used(current->device);
    return leave(SUCCESS);
}

/// The address of an allocation of so many bytes that was freed, for one that is to take it; 0: there is none.
static uint64_t freed(uint64_t bytes, uint64_t align) {
    char none[4];
    if (!setting("reuse", none, sizeof none)) return 0;
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == NONE && t->mapped_bytes == bytes && t->mapped % align == 0) {
            t->mapped_bytes = 0;
            return t->mapped;
        }
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *addr, size_t bytes) {
    ENTER(IN_CONTEXT, "%zu", bytes);
    if (!bytes) return leave(INVALID_VALUE);
    uint64_t total = memory_of(current->device);
    if (bytes > total - used(current->device)) return leave(OUT_OF_MEMORY);
    const uint64_t align = 2 << 20;
    uint64_t behind = number("bases", 0), length = whole(behind + bytes, 65536);
    int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)length)) return leave(OPERATING_SYSTEM);
    uint64_t start = freed(length, align);
    if (!start) {
        char *room = mmap(NULL, length + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) return leave(OPERATING_SYSTEM);
        start = whole((uint64_t)room, align);
    }
    int flags = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
    if (mmap((void *)start, length, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) return leave(OPERATING_SYSTEM);
    struct thing *one = made(MEMORY);
    one->base = start + behind;
    one->bytes = bytes;
    one->mapped = start;
    one->mapped_bytes = length;
    one->fd = fd;
    // What the memory held before: a caller that needs zeros writes them.
    memset((void *)one->base, 0xa5, bytes < 4096 ? bytes : 4096);
    *addr = one->base;
    return leave(SUCCESS);
}

static CUresult unmap(enum kind kind, CUdeviceptr addr) {
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == kind && t->base == addr) {
            // No other mapping of the process takes its place: a stale address faults.
            mmap((void *)t->mapped, t->mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            if (t->fd >= 0) close(t->fd);
            t->kind = NONE;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%#lx", addr);
    return leave(unmap(MEMORY, addr));
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%#lx", addr);
    struct thing *one = at(addr, 1);
    if (!one) return leave(NOT_FOUND);
    *base = one->base;
    *bytes = one->bytes;
    return leave(SUCCESS);
}

/// The ordinal of the device, and the number of the buffer.
CUresult cuPointerGetAttribute(void *value, int id, CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%d %#lx", id, addr);
    struct thing *one = at(addr, 1);
    if (!value || !one || (id != 9 && id != 7)) return leave(INVALID_VALUE);
    if (id == 9) *(int *)value = one->device;
    else *(uint64_t *)value = one->buffer;
    return leave(SUCCESS);
}

/// Of the current context, for the device that owns it.
CUresult cuFlushGPUDirectRDMAWrites(int target, int scope) {
    ENTER(IN_CONTEXT, "%d %d", target, scope);
    if (target != 0 || (scope != 100 && scope != 200)) return leave(INVALID_VALUE);
    return leave(attribute(117) & 1 ? SUCCESS : NOT_SUPPORTED);
}

CUresult cuPointerSetAttribute(const void *value, int id, CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%d %#lx", id, addr);
    struct thing *one = at(addr, 1);
    return leave(value && one && one->kind == MEMORY ? SUCCESS : INVALID_VALUE);
}

// As drivers do, it gives no whole pages: an allocation may begin anywhere in one.
CUresult cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    ENTER(IN_CONTEXT, "%zu %u", bytes, flags);
    const uint64_t inside = 0x780;
    uint64_t length = whole(bytes + inside, 65536);
    void *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!bytes || mapped == MAP_FAILED) return leave(OUT_OF_MEMORY);
    struct thing *one = made(HOST);
    one->mapped = (uint64_t)mapped;
    one->base = one->mapped + inside;
    one->bytes = bytes;
    one->mapped_bytes = length;
    *host = (void *)one->base;
    return leave(SUCCESS);
}

CUresult cuMemFreeHost(void *host) {
    ENTER(IN_CONTEXT, "%p", host);
    return leave(unmap(HOST, (uint64_t)host));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *addr, void *host, unsigned flags) {
    ENTER(IN_CONTEXT, "%p %u", host, flags);
    struct thing *one = at((uint64_t)host, 1);
    char none[4];
    if (!one) return leave(INVALID_VALUE);
    *addr = (uint64_t)host + (setting("no-uva", none, sizeof none) ? 1ull << 45 : 0);
    return leave(SUCCESS);
}

/// Whether the page at `addr` has no struct page: what cannot be pinned as memory.
static bool is_pfn(uint64_t addr) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[4096];
    uint64_t begin, end;
    bool here = false, found = false;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) here = begin <= addr && addr < end;
        else if (here && !strncmp(line, "VmFlags:", 8)) found = strstr(line, " pf") || strstr(line, " io");
    }
    if (maps) fclose(maps);
    return found;
}

CUresult cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags) {
    ENTER(IN_CONTEXT, "%p %zu %u", host, bytes, flags);
    uint64_t page = page_bytes(), start = (uint64_t)host / page * page, end = whole((uint64_t)host + bytes, page);
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == REGISTERED && start < t->mapped + t->mapped_bytes && t->mapped < end) return leave(ALREADY_REGISTERED);
    const unsigned io = 4;
    if (!bytes || (!(flags & io) && is_pfn((uint64_t)host))) return leave(INVALID_VALUE);
    struct thing *one = made(REGISTERED);
    one->base = (uint64_t)host;
    one->bytes = bytes;
    one->mapped = start;
    one->mapped_bytes = end - start;
    return leave(SUCCESS);
}

CUresult cuMemHostUnregister(void *host) {
    ENTER(IN_CONTEXT, "%p", host);
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == REGISTERED && t->base == (uint64_t)host) {
            t->kind = NONE;
            return leave(SUCCESS);
        }
    return leave(NOT_REGISTERED);
}

CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr addr, size_t bytes, int kind, unsigned long long flags) {
    ENTER(IN_CONTEXT, "%#lx %zu %d %llu", addr, bytes, kind, flags);
    uint64_t page = page_bytes();
    struct thing *one = at(addr, bytes ? 1 : 0);
    if (kind != 1 || !one || one->kind != MEMORY || addr % page || !bytes || bytes % page) return leave(INVALID_VALUE);
    // Whole pages beyond the last byte asked for belong to the allocation, too.
    if (addr + bytes > one->mapped + one->mapped_bytes) return leave(INVALID_VALUE);
    if (!attribute(124)) return leave(NOT_SUPPORTED);
    char rest[64];
    for (const char *line = file.text; next_line(&line, "dmabuf", rest, sizeof rest);) {
        unsigned long long only;
        int code;
        if (sscanf(rest, "%llu %d", &only, &code) == 2 && only == flags) return leave(code);
    }
    if (addr != one->mapped) {
        // A descriptor begins at its first byte: these pages get one of their own, and with it all after them.
        uint64_t rest = one->mapped + one->mapped_bytes - addr;
        int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)rest) || pwrite(fd, (void *)addr, rest, 0) != (ssize_t)rest)
            return leave(OPERATING_SYSTEM);
        int fixed = MAP_SHARED | MAP_FIXED | MAP_NORESERVE;
        if (mmap((void *)addr, rest, PROT_READ | PROT_WRITE, fixed, fd, 0) == MAP_FAILED) return leave(OPERATING_SYSTEM);
        close(one->fd);
        one->fd = fd;
        one->mapped = addr;
        one->mapped_bytes = rest;
    }
    int fd = fcntl(one->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) return leave(OPERATING_SYSTEM);
    *(int *)handle = fd;
    return leave(SUCCESS);
}

struct name {
    char reserved[64];
};

struct ipc {
    uint64_t magic, inode, behind, bytes, mapped_bytes;
    int pid, fd;
};

#define MAGIC 0x66616b652d697063

_Static_assert(sizeof(struct ipc) <= 64, "it is in a handle");

CUresult cuIpcGetMemHandle(struct name *name, CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%#lx", addr);
    struct thing *one = at(addr, 1);
    struct stat status;
    if (!one || one->kind != MEMORY || one->base < one->mapped || fstat(one->fd, &status)) return leave(INVALID_VALUE);
    struct ipc ipc = {MAGIC, status.st_ino, one->base - one->mapped, one->bytes, one->mapped_bytes, getpid(), one->fd};
    memset(name, 0, sizeof *name);
    memcpy(name, &ipc, sizeof ipc);
    return leave(SUCCESS);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *addr, struct name name, unsigned flags) {
    ENTER(IN_CONTEXT, "%u", flags);
    struct ipc ipc;
    memcpy(&ipc, &name, sizeof ipc);
    if (ipc.magic != MAGIC) return leave(INVALID_VALUE);
    if (ipc.pid == getpid()) return leave(INVALID_CONTEXT);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", ipc.pid, ipc.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) || status.st_ino != ipc.inode) {
        if (fd >= 0) close(fd);
        return leave(INVALID_VALUE);
    }
    void *mapped = mmap(NULL, ipc.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return leave(OPERATING_SYSTEM);
    struct thing *one = made(OPENED);
    one->fd = fd;
    one->mapped = (uint64_t)mapped;
    one->mapped_bytes = ipc.mapped_bytes;
    one->base = one->mapped + ipc.behind;
    one->bytes = ipc.bytes;
    *addr = one->base;
    return leave(SUCCESS);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr addr) {
    ENTER(IN_CONTEXT, "%#lx", addr);
    return leave(unmap(OPENED, addr));
}

// ---- Modules

static const char *jit_says(const char *otherwise, char *text, size_t room) {
    return setting("jit-log", text, room) ? text : otherwise;
}

/// Whether the compiler takes `text`; what it says if not.
static CUresult compiled(const char *text, char *log, size_t room) {
    int major, minor, target = 0;
    const char *version = strstr(text, ".version "), *arch = strstr(text, ".target sm_");
    int driver = (int)number("driver", 13000);
    if (!version || sscanf(version, ".version %d.%d", &major, &minor) != 2) {
        const char *says = "ptxas application ptx input, line 1; fatal   : Missing .version directive at start of file";
        snprintf(log, room, "%s", says);
        return INVALID_PTX;
    }
    if ((major + 4) * 1000 + minor * 10 > driver) {
        const char *says = "ptxas application ptx input, line 1; fatal   : Unsupported .version %d.%d; current version is '%d.%d'";
        snprintf(log, room, says, major, minor, driver / 1000 - 4, driver % 1000 / 10);
        return UNSUPPORTED_PTX_VERSION;
    }
    if (arch) sscanf(arch, ".target sm_%d", &target);
    if (target > attribute(75) * 10 + attribute(76)) return NO_BINARY_FOR_GPU;
    return SUCCESS;
}

/// Options that name the buffer for what goes wrong, and its length.
enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6 };

CUresult cuModuleLoadDataEx(struct thing **module, const void *image, unsigned count, int *options, void **values) {
    char said[2048] = "", set[1024];
    CUresult result = enter(__func__, current ? current->device : NOWHERE, IN_CONTEXT, "%u", count);
    bool refused = result != SUCCESS;
    if (refused) {
        pthread_mutex_lock(&mutex);
        snprintf(said, sizeof said, "%s", jit_says("", set, sizeof set));
    } else if (memcmp(image, "\177ELF", 4)) {
        result = compiled(image, said, sizeof said);
    }
    char *log = NULL;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == ERROR_LOG) log = values[i];
        if (options[i] == ERROR_LOG_BYTES) room = (size_t)values[i];
    }
    if (log && room) snprintf(log, room, "%s", said);
    if (result == SUCCESS) {
        struct thing *one = made(MODULE);
        one->text = memcmp(image, "\177ELF", 4) ? strdup(image) : NULL;
        *module = one;
    }
    return leave(result);
}

CUresult cuModuleLoadData(struct thing **module, const void *image) {
    ENTER(IN_CONTEXT, "%s", "");
    char said[2048];
    CUresult result = memcmp(image, "\177ELF", 4) ? compiled(image, said, sizeof said) : SUCCESS;
    if (result != SUCCESS) return leave(result);
    struct thing *one = made(MODULE);
    one->text = memcmp(image, "\177ELF", 4) ? strdup(image) : NULL;
    *module = one;
    return leave(SUCCESS);
}

CUresult cuModuleGetFunction(struct thing **function, struct thing *module, const char *name) {
    ENTER(IN_CONTEXT, "%s", name);
    char entry[256];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    if (!is(module, MODULE)) return leave(INVALID_HANDLE);
    if (module->text && !strstr(module->text, entry)) return leave(NOT_FOUND);
    struct thing *one = made(FUNCTION);
    one->of = module;
    one->bytes = 48 << 10;
    *function = one;
    return leave(SUCCESS);
}

CUresult cuModuleUnload(struct thing *module) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(module, MODULE)) return leave(INVALID_HANDLE);
    module->kind = NONE;
    free(module->text);
    return leave(SUCCESS);
}

CUresult cuFuncSetAttribute(struct thing *function, int id, int value) {
    ENTER(IN_CONTEXT, "%d %d", id, value);
    if (!is(function, FUNCTION)) return leave(INVALID_HANDLE);
    if (id == 8 && value > 227 << 10) return leave(INVALID_VALUE);
    if (id == 8) function->bytes = (uint64_t)value;
    return leave(SUCCESS);
}

/// What a compiler would have made: 40 registers, nothing spilled, 1024 threads.
CUresult cuFuncGetAttribute(int *value, int id, struct thing *function) {
    ENTER(IN_CONTEXT, "%d", id);
    if (!is(function, FUNCTION)) return leave(INVALID_HANDLE);
    *value = id == 4 ? 40 : id == 3 ? 1408 : id == 0 ? 1024 : 0;
    return leave(SUCCESS);
}

// ---- Streams, events, graphs

static bool is_stream(struct thing *stream) {
    return !stream || is(stream, STREAM);
}

CUresult cuStreamCreate(struct thing **stream, unsigned flags) {
    ENTER(IN_CONTEXT, "%u", flags);
    struct thing *one = made(STREAM);
    one->number = streams++ % 64;
    one->of = current;
    *stream = one;
    return leave(SUCCESS);
}

CUresult cuStreamCreateWithPriority(struct thing **stream, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(stream, flags);
}

CUresult cuStreamGetCtx(struct thing *stream, struct thing **context) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is_stream(stream)) return leave(INVALID_HANDLE);
    *context = stream ? stream->of : current;
    return leave(SUCCESS);
}

CUresult cuStreamDestroy_v2(struct thing *stream) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(stream, STREAM)) return leave(INVALID_HANDLE);
    stream->kind = NONE;
    return leave(SUCCESS);
}

CUresult cuStreamSynchronize(struct thing *stream) {
    ENTER(IN_CONTEXT, "%s", "");
    return leave(is_stream(stream) ? SUCCESS : INVALID_HANDLE);
}

CUresult cuStreamQuery(struct thing *stream) {
    ENTER(IN_CONTEXT, "%s", "");
    return leave(is_stream(stream) ? SUCCESS : INVALID_HANDLE);
}

CUresult cuStreamIsCapturing(struct thing *stream, int *status) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is_stream(stream)) return leave(INVALID_HANDLE);
    *status = stream && stream->captured_by >= 0;
    return leave(SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    static __thread int mine = 0;
    ENTER(AFTER_INIT, "%d", *mode);
    int before = mine;
    mine = *mode;
    *mode = before;
    return leave(SUCCESS);
}

CUresult cuStreamBeginCapture_v2(struct thing *stream, int mode) {
    ENTER(IN_CONTEXT, "%d", mode);
    if (!is(stream, STREAM)) return leave(INVALID_HANDLE);
    stream->captured_by = stream->number;
    stream->nodes = 0;
    memset(stream->seen, 0, sizeof stream->seen);
    return leave(SUCCESS);
}

/// Something is put into a captured stream: it is a node of the graph.
static void recorded(struct thing *stream) {
    stream->nodes++;
    stream->seen[stream->number]++;
}

CUresult cuStreamWaitEvent(struct thing *stream, struct thing *event, unsigned flags) {
    ENTER(IN_CONTEXT, "%u", flags);
    if (!is_stream(stream) || !is(event, EVENT)) return leave(INVALID_HANDLE);
    if (event->captured_by < 0) return leave(SUCCESS);
    if (!stream) return leave(INVALID_HANDLE);
    if (stream->captured_by >= 0 && stream->captured_by != event->captured_by) return leave(CAPTURE_MERGE);
    if (stream->captured_by < 0) {
        stream->captured_by = event->captured_by;
        stream->nodes = 0;
        memset(stream->seen, 0, sizeof stream->seen);
    }
    for (int i = 0; i < 64; i++)
        if (stream->seen[i] < event->seen[i]) stream->seen[i] = event->seen[i];
    return leave(SUCCESS);
}

CUresult cuStreamEndCapture(struct thing *stream, struct thing **graph) {
    ENTER(IN_CONTEXT, "%s", "");
    *graph = NULL;
    if (!is(stream, STREAM)) return leave(INVALID_HANDLE);
    if (stream->captured_by != stream->number) return leave(CAPTURE_UNMATCHED);
    int nodes = 0;
    bool joined = true;
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == STREAM && t->captured_by == stream->number) {
            nodes += t->nodes;
            joined = joined && stream->seen[t->number] >= t->seen[t->number];
        }
    for (struct thing *t = things; t; t = t->next)
        if (t->kind == STREAM && t != stream && t->captured_by == stream->number) t->captured_by = -1;
    stream->captured_by = -1;
    if (!joined) return leave(CAPTURE_UNJOINED);
    *graph = made(GRAPH);
    (*graph)->nodes = nodes;
    return leave(SUCCESS);
}

/// Adds to the file `order`, if the settings name one, what comes to which stream, in the order in which it comes.
static void ordered(struct thing *stream, const char *what) {
    char path[512];
    if (!setting("order", path, sizeof path)) return;
    FILE *file = fopen(path, "a");
    if (!file) return;
    fprintf(file, "%p %s\n", (void *)stream, what);
    fclose(file);
}

CUresult cuEventCreate(struct thing **event, unsigned flags) {
    ENTER(IN_CONTEXT, "%u", flags);
    *event = made(EVENT);
    return leave(SUCCESS);
}

CUresult cuEventRecord(struct thing *event, struct thing *stream) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(event, EVENT) || !is_stream(stream)) return leave(INVALID_HANDLE);
    event->captured_by = stream ? stream->captured_by : -1;
    ordered(stream, "event");
    if (event->captured_by >= 0) memcpy(event->seen, stream->seen, sizeof event->seen);
    return leave(SUCCESS);
}

CUresult cuEventQuery(struct thing *event) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(event, EVENT)) return leave(INVALID_HANDLE);
    return leave(event->captured_by >= 0 ? CAPTURED_EVENT : SUCCESS);
}

CUresult cuEventDestroy_v2(struct thing *event) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(event, EVENT)) return leave(INVALID_HANDLE);
    event->kind = NONE;
    return leave(SUCCESS);
}

CUresult cuGraphGetNodes(struct thing *graph, void *nodes, size_t *count) {
    ENTER(IN_CONTEXT, "%p", nodes);
    if (!is(graph, GRAPH)) return leave(INVALID_HANDLE);
    *count = (size_t)graph->nodes;
    return leave(SUCCESS);
}

CUresult cuGraphInstantiateWithFlags(struct thing **exec, struct thing *graph, unsigned long long flags) {
    ENTER(IN_CONTEXT, "%llu", flags);
    if (!is(graph, GRAPH)) return leave(INVALID_HANDLE);
    *exec = made(EXEC);
    (*exec)->nodes = graph->nodes;
    return leave(SUCCESS);
}

CUresult cuGraphDestroy(struct thing *graph) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(graph, GRAPH)) return leave(INVALID_HANDLE);
    graph->kind = NONE;
    return leave(SUCCESS);
}

CUresult cuGraphExecDestroy(struct thing *exec) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is(exec, EXEC)) return leave(INVALID_HANDLE);
    exec->kind = NONE;
    return leave(SUCCESS);
}

CUresult cuGraphLaunch(struct thing *exec, struct thing *stream) {
    ENTER(IN_CONTEXT, "%s", "");
    return leave(is(exec, EXEC) && is_stream(stream) ? SUCCESS : INVALID_HANDLE);
}

// ---- Launches

#define GRID unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared

static CUresult launch(struct thing *function, uint64_t threads, unsigned shared, struct thing *stream, void **parameters) {
    if (!is(function, FUNCTION) || !is(function->of, MODULE) || !is_stream(stream)) return INVALID_HANDLE;
    if (!parameters || !threads || threads > 1024 || shared > function->bytes) return INVALID_VALUE;
    if (stream && stream->captured_by >= 0) recorded(stream);
    return SUCCESS;
}

/// Runs it at once: what came to the stream before has run.
CUresult cuLaunchHostFunc(struct thing *stream, void (*function)(void *), void *data) {
    ENTER(IN_CONTEXT, "%s", "");
    if (!is_stream(stream) || !function) return leave(INVALID_HANDLE);
    ordered(stream, "host");
    CUresult left = leave(SUCCESS);
    function(data);
    return left;
}

CUresult cuLaunchKernel(struct thing *function, GRID, struct thing *stream, void **parameters, void **extra) {
    ENTER(IN_CONTEXT, "%u %u %u %u %u %u %u %p", gx, gy, gz, bx, by, bz, shared, (void *)extra);
    ordered(stream, "kernel");
    return leave(launch(function, (uint64_t)bx * by * bz, shared, stream, parameters));
}

CUresult cuLaunchCooperativeKernel(struct thing *function, GRID, struct thing *stream, void **parameters) {
    ENTER(IN_CONTEXT, "%u %u %u %u %u %u %u", gx, gy, gz, bx, by, bz, shared);
    if (!attribute(95)) return leave(NOT_SUPPORTED);
    uint64_t threads = (uint64_t)bx * by * bz, blocks = (uint64_t)gx * gy * gz;
    if (threads && blocks > 2048 / threads * (uint64_t)attribute(16)) return leave(COOPERATIVE_LAUNCH_TOO_LARGE);
    return leave(launch(function, threads, shared, stream, parameters));
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct thing *function, int threads, size_t shared) {
    ENTER(IN_CONTEXT, "%d %zu", threads, shared);
    if (!is(function, FUNCTION) || !is(function->of, MODULE)) return leave(INVALID_HANDLE);
    if (!blocks || threads < 1) return leave(INVALID_VALUE);
    *blocks = threads > 1024 ? 0 : 2048 / threads;
    return leave(SUCCESS);
}

/// Where the bytes at `addr` are in this process, if they are of a device or registered; else NULL.
static void *on_a_device(uint64_t addr, size_t bytes) {
    char none[4];
    uint64_t shift = setting("no-uva", none, sizeof none) ? 1ull << 45 : 0;
    if (at(addr, bytes)) return (void *)addr;
    return shift && addr > shift && at(addr - shift, bytes) ? (void *)(addr - shift) : NULL;
}

/// The same, or pages of the host that no call has told the driver of.
static void *reached(uint64_t addr, size_t bytes) {
    void *device = on_a_device(addr, bytes);
    uint64_t first = addr & ~4095ull;
    if (device || msync((void *)first, addr + bytes - first, MS_ASYNC)) return device;
    return (void *)addr;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct thing *stream) {
    ENTER(IN_CONTEXT, "%#lx %#lx %zu", to, from, bytes);
    if (!is_stream(stream)) return leave(INVALID_HANDLE);
    void *target = reached(to, bytes), *source = reached(from, bytes);
    if (!target || !source) return leave(INVALID_VALUE);
    memmove(target, source, bytes);
    return leave(SUCCESS);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER(IN_CONTEXT, "%#lx %zu", to, bytes);
    void *target = on_a_device(to, bytes);
    if (!target) return leave(INVALID_VALUE);
    memcpy(target, from, bytes);
    return leave(SUCCESS);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, struct thing *stream) {
    ENTER(IN_CONTEXT, "%#lx %u %zu", to, value, bytes);
    if (!is_stream(stream)) return leave(INVALID_HANDLE);
    void *target = on_a_device(to, bytes);
    if (!target) return leave(INVALID_VALUE);
    memset(target, value, bytes);
    return leave(SUCCESS);
}

// ---- What programs of other crates name and no test calls: a program that links the driver does not start without

#define ABSENT(function) \
    CUresult function(void) { return NOT_SUPPORTED; }
ABSENT(cuArray3DCreate_v2)
ABSENT(cuArray3DGetDescriptor_v2)
ABSENT(cuArrayDestroy)
ABSENT(cuCtxCreate_v2)
ABSENT(cuCtxGetApiVersion)
ABSENT(cuCtxGetCacheConfig)
ABSENT(cuCtxGetFlags)
ABSENT(cuCtxGetSharedMemConfig)
ABSENT(cuCtxGetStreamPriorityRange)
ABSENT(cuCtxPopCurrent_v2)
ABSENT(cuCtxPushCurrent_v2)
ABSENT(cuCtxSetCacheConfig)
ABSENT(cuCtxSetSharedMemConfig)
ABSENT(cuDestroyExternalMemory)
ABSENT(cuDevicePrimaryCtxReset_v2)
ABSENT(cuDevicePrimaryCtxSetFlags_v2)
ABSENT(cuEventElapsedTime)
ABSENT(cuEventSynchronize)
ABSENT(cuExternalMemoryGetMappedBuffer)
ABSENT(cuFuncSetCacheConfig)
ABSENT(cuFuncSetSharedMemConfig)
ABSENT(cuGetErrorString)
ABSENT(cuGraphAddKernelNode)
ABSENT(cuGraphCreate)
ABSENT(cuGraphDebugDotPrint)
ABSENT(cuGraphGetEdges)
ABSENT(cuGraphKernelNodeGetParams)
ABSENT(cuGraphNodeGetType)
ABSENT(cuImportExternalMemory)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkDestroy)
ABSENT(cuMemAdvise)
ABSENT(cuMemAllocAsync)
ABSENT(cuMemAllocHost_v2)
ABSENT(cuMemAllocManaged)
ABSENT(cuMemFreeAsync)
ABSENT(cuMemPrefetchAsync)
ABSENT(cuMemcpy2D_v2)
ABSENT(cuMemcpyAtoH_v2)
ABSENT(cuMemcpyDtoDAsync_v2)
ABSENT(cuMemcpyDtoD_v2)
ABSENT(cuMemcpyDtoHAsync_v2)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuMemcpyHtoA_v2)
ABSENT(cuMemcpyHtoDAsync_v2)
ABSENT(cuMemsetD16Async)
ABSENT(cuMemsetD16_v2)
ABSENT(cuMemsetD32Async)
ABSENT(cuMemsetD32_v2)
ABSENT(cuMemsetD8_v2)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuModuleLoad)
ABSENT(cuOccupancyAvailableDynamicSMemPerBlock)
ABSENT(cuOccupancyMaxPotentialBlockSize)
ABSENT(cuStreamGetFlags)
ABSENT(cuStreamGetPriority)
ABSENT(cuSurfObjectCreate)
ABSENT(cuSurfObjectDestroy)
ABSENT(cuSurfObjectGetResourceDesc)
ABSENT(cuTexObjectCreate)
ABSENT(cuTexObjectDestroy)
ABSENT(cuTexObjectGetResourceDesc)
ABSENT(cuTexObjectGetResourceViewDesc)

// ---- Pages of another length

long sysconf(int name) {
    static long (*real)(int);
    if (!real) real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    const char *page = getenv("FAKE_CUDA_PAGE");
    return page && name == _SC_PAGESIZE ? strtol(page, NULL, 10) : real(name);
}
