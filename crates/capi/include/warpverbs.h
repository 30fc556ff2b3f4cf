// MoE dispatch and combine over RDMA: the C ABI of Warpverbs. Rendered from crates/capi/src; do not edit.
//
//   wv_team_open -> wv_moe_create -> wv_call_create -> { wv_dispatch -> your experts -> wv_combine } ... -> wv_report
//   wv_team_open -> wv_window_create -> your kernels, with wv_team_info.context and wv_window.kernel
//   wv_moe_create -> wv_group_start -> wv_group_wait: ranks die, leave and come back (wv_team_join) while calls go on
//   wv_engine_open -> wv_engine_register -> wv_engine_connect -> wv_engine_import -> { wv_engine_submit -> wv_engine_wait } ...: a
//   program on the CPU moves memory of the host or of a GPU to and from peers, without a team
//
// - Every struct begins with its size. Begin with WV_INIT(&it), which sets the size and zeroes the rest; zero is the default of
//   every field. Then set what differs. So a program works with an older or a newer library. Fields that its header lacks have
//   their defaults, and answers are filled up to its size. WV_BAD_STRUCT refuses a size that no header has, and a field that is
//   not zero and that the library does not know.
// - Every function that can fail returns a wv_status, which names the cause. wv_last_error() then returns a message with value
//   and limit. The text belongs to the calling thread and stays until its next failing call. No panic and no exception leaves the
//   library.
// - A handle is made by one function, and given back once to its wv_..._close or wv_..._destroy. Any thread may use it meanwhile,
//   except that one wv_call belongs to one stream at a time. WV_BAD_HANDLE refuses a handle that was given back or is of another
//   kind. NULL is WV_BAD_ARGUMENT, but may be given back without effect. A layer keeps its team, a call its layer, a group its
//   layer and team. Functions of an engine, its peers and its transfers may be called from any thread at any time.
// - Every wait ends: after a timeout that the function takes, else after join_timeout_ms of the team. "Never waits" may still
//   issue a command to HCA or GPU.
// - Arrays are device memory (on the CPU: any memory of this process) of the shapes said below. A launch returns at once, and the
//   kernel reads and writes the arrays later. The arrays, the call and its layer stay until the stream is past the launch.
// - A stream is a CUstream of the GPU's primary context, or NULL for the default stream. A stream that is being captured
//   records the launch; a graph may hold any number of calls, and be replayed any number of times.
// - A rank is a place in a team. The processes that have it one after the other are its generations: 1, 2 and so on.


#ifndef WARPVERBS_H
#define WARPVERBS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__cplusplus) && !defined(WV_NOEXCEPT)
#define WV_NOEXCEPT noexcept
#elif !defined(WV_NOEXCEPT)
#define WV_NOEXCEPT
#endif

// Sets every field of the struct at `of` to zero, and its size. `of` is looked at twice.
#define WV_INIT(of) (memset((of), 0, sizeof *(of)), (void)((of)->size = sizeof *(of)))


// Number of the ABI. It grows with every change of this header that breaks a compiled program. A struct that grows does not: its `size` shows it.
#define WV_ABI_VERSION 4

// Kind of a window: for anything, signals too. Writes to it are seen in the order in which they come.
#define WV_WINDOW_ANY 0

// Kind of a window: for data that is read only after a signal in a window of kind WV_WINDOW_ANY, or after a completion. Writes
// to it may overtake each other on PCIe, so no kernel polls it.
#define WV_WINDOW_DATA 1

// Kind of a window: for what this rank sends. No peer gets a key of it, and none can write it.
#define WV_WINDOW_SEND 2

// wv_moe_config.format: BF16.
#define WV_FORMAT_BF16 0

// wv_moe_config.format: FP8 (e4m3) with one scale for each 128 channels; scales by wv_moe_config.scales.
#define WV_FORMAT_FP8 1

// wv_moe_config.format: bytes that the library does not look into.
#define WV_FORMAT_OPAQUE 2

// wv_moe_config.scales: f32.
#define WV_SCALES_F32 0

// wv_moe_config.scales: f32, rounded up to a power of two.
#define WV_SCALES_POWER_OF_TWO 1

// wv_moe_config.scales: the exponent byte of such a power, four to a 32-bit word.
#define WV_SCALES_UE8M0 2

// wv_moe_config.layout: rows by local expert.
#define WV_LAYOUT_EXPERT_MAJOR 0

// wv_moe_config.layout: rows by source rank, each token once.
#define WV_LAYOUT_RANK_MAJOR 1

// wv_moe_config.returns: combine sends back one sum for each rank.
#define WV_RETURNS_SUMS 0

// wv_moe_config.returns: combine sends back one row for each expert.
#define WV_RETURNS_ROWS 1

// Flag of wv_dispatch_input: `x` is FP8 already, and `x_scales` holds its scales.
#define WV_DISPATCH_QUANTIZED 1

// Flag of wv_dispatch_input: no combine follows, so the call ends with the receive phase of its dispatch.
#define WV_DISPATCH_ONLY 2

// Flag of wv_dispatch_input: choices are int64_t.
#define WV_DISPATCH_IDS_64 4

// Flag of wv_dispatch_output: `active` is the caller's own mask. Entries of ranks whose rows did not arrive become 0, the others
// stay.
#define WV_DISPATCH_IN_PLACE 1

// Flag of wv_dispatch_output: `recv_stats` is the address of int32_t, which wrap.
#define WV_DISPATCH_STATS_32 2

// Flag of wv_combine_input: `y` lies in the layer's own staging memory already.
#define WV_COMBINE_ZERO_COPY 1

// Flag of wv_combine_input: every weight counts as 1.
#define WV_COMBINE_UNWEIGHTED 2

// Flag of wv_combine_output: a token that lost experts is divided by the share of its weights that is left.
#define WV_COMBINE_RENORMALISE 4

// Flag of wv_combine_output: `active` is the caller's own mask. Entries of ranks whose rows were not added become 0, the others
// stay.
#define WV_COMBINE_IN_PLACE 16

// State of a rank in its group: a state that this header does not know.
#define WV_GROUP_OTHER 0

// State of a rank in its group: not a member yet. Its calls are held.
#define WV_GROUP_JOINING 1

// State of a rank in its group: a member whose calls start.
#define WV_GROUP_SERVING 2

// State of a rank in its group: a member. Its calls are held while the members agree on the next view.
#define WV_GROUP_CHANGING 3

// State of a rank in its group: dropped by the others. Its calls end at once. It comes back by wv_team_join.
#define WV_GROUP_EXPELLED 4

// State of a rank in its group: it has left by wv_group_leave.
#define WV_GROUP_LEFT 5

// State of a rank in its group: a thread of the group has panicked. The others go on without this rank; it comes back by
// wv_team_join.
#define WV_GROUP_BROKEN 6

// wv_group_event.kind: an event that this header does not know; `text` names it.
#define WV_EVENT_OTHER 0

// wv_group_event.kind: this rank suspects `rank`, by `cause`.
#define WV_EVENT_SUSPECTED 1

// wv_group_event.kind: this rank suspects `rank` no longer.
#define WV_EVENT_TRUSTED 2

// wv_group_event.kind: kernels do not wait for `members`, from now on.
#define WV_EVENT_MASKED 3

// wv_group_event.kind: this rank proposes `members` with their `generations`, as `proposal`.
#define WV_EVENT_PROPOSED 4

// wv_group_event.kind: this rank has promised `proposal`. `call` is the last that it starts in the old view, 0 if it joins.
#define WV_EVENT_PROMISED 5

// wv_group_event.kind: the QPs to `members` are in error.
#define WV_EVENT_FENCED 6

// wv_group_event.kind: kernels have view `epoch` of `members` with their `generations`, from `call` on.
#define WV_EVENT_VIEWED 7

// wv_group_event.kind: all calls may start again, in view `epoch`. They were held for `duration_ns`.
#define WV_EVENT_RESUMED 8

// wv_group_event.kind: nothing is left of an earlier process of `rank`.
#define WV_EVENT_CLEARED 9

// wv_group_event.kind: the QPs to `generation` of `rank`, which wants to come in, are connected. That took `duration_ns`.
#define WV_EVENT_CONNECTED 10

// wv_group_event.kind: the QPs to `generation` of `rank` could not be connected, for the reason in `text`. It is tried again.
#define WV_EVENT_NOT_CONNECTED 11

// wv_group_event.kind: a step failed at this rank, for what `text` says. It is tried again.
#define WV_EVENT_FAILED 12

// wv_group_event.kind: the store does not answer, for what `text` says. No view changes.
#define WV_EVENT_STORE_LOST 13

// wv_group_event.kind: the store answers again, after `duration_ns`.
#define WV_EVENT_STORE_BACK 14

// wv_group_event.kind: a thread of the group has panicked, as `text` says. This process of the rank is over.
#define WV_EVENT_PANICKED 15

// wv_group_event.kind: this process of the rank is over: `state` says how.
#define WV_EVENT_ENDED 16

// wv_group_event.kind: the port of rail `detail` carries nothing any more. That alone parts this rank from no member.
#define WV_EVENT_RAIL_DOWN 17

// wv_group_event.kind: the port of rail `detail` is up again.
#define WV_EVENT_RAIL_UP 18

// wv_group_event.kind: the HCA of rail `detail` has failed for good.
#define WV_EVENT_RAIL_LOST 19

// wv_group_event.kind: of the first calls of the store 99 of 100 took up to `duration_ns`, more than a sixth of a lease.
#define WV_EVENT_SLOW_STORE 20

// wv_group_event.kind: this rank comes in when generation `generation` of its slot `rank`, a member still, is gone.
#define WV_EVENT_WAITS 21

// wv_group_event.kind: what is posted to `rank` on some rails goes by other rails. `detail` has a bit for each of rails 0 to 31;
// `text` names all.
#define WV_EVENT_GOES_ROUND 22

// wv_group_event.kind: `detail` newcomers of `rank`, one after the other, came to nothing. Members take the next one in
// `duration_ns` after the last of them, or later.
#define WV_EVENT_HELD_BACK 23

// wv_group_event.kind: the store is without the group's record, for `duration_ns` as far as is known. `text` says what the ranks
// wait for, and what to do.
#define WV_EVENT_RECORD_LOST 24

// wv_group_event.kind: the group's record, of view `epoch`, stands in the store again, which was without it for `duration_ns`.
#define WV_EVENT_RECORD_BACK 25

// wv_group_event.cause: a cause that this header does not know; `text` names it.
#define WV_CAUSE_OTHER 0

// wv_group_event.cause: kernels have waited for it up to the deadline of a call.
#define WV_CAUSE_TIMEOUT 1

// wv_group_event.cause: a QP to it is in error; `detail` is vendor syndrome << 8 | syndrome.
#define WV_CAUSE_QP_ERROR 2

// wv_group_event.cause: the HCA says that a QP to it has failed; `detail` is the type of event.
#define WV_CAUSE_QP_EVENT 3

// wv_group_event.cause: nothing has arrived from it, or could be sent to it, for the stall bound.
#define WV_CAUSE_OVERDUE 4

// wv_group_event.cause: a QP to it was flushed, and the first error is lost.
#define WV_CAUSE_QP_FLUSHED 5

// wv_group_event.cause: its lease has run out, and no sign of life has come from it for one and a half leases since.
#define WV_CAUSE_UNHEARD 6

// wv_group_event.cause: its process, on this machine, has ended.
#define WV_CAUSE_PROCESS_EXIT 7

// wv_group_event.cause: it says itself that it has ended.
#define WV_CAUSE_OVER 8

// wv_group_event.cause: it wants to leave.
#define WV_CAUSE_LEAVES 9

// wv_group_event.cause: it has not promised a proposal in time.
#define WV_CAUSE_SILENT 10

// wv_group_event.cause: wv_group_suspect, for what `text` says.
#define WV_CAUSE_TOLD 11

// Bytes of a descriptor. The size is part of the ABI.
#define WV_DESCRIPTOR_BYTES 72

// Path of a peer: transfers to it go by the NIC.
#define WV_PATH_NIC 0

// Path of a peer: by copies within this process.
#define WV_PATH_PROCESS 1

// Path of a peer: by copies between two processes of this machine and user.
#define WV_PATH_MACHINE 2

// Bytes of a grant. The size is part of the ABI.
#define WV_GRANT_BYTES 96

// What a peer may do: read.
#define WV_MAY_READ 1

// What a peer may do: write.
#define WV_MAY_WRITE 2

// What a peer may do: both.
#define WV_MAY_BOTH 3

// Kind of an operation: from here to the peer.
#define WV_WRITE 0

// Kind of an operation: from the peer to here.
#define WV_READ 1

// State of a transfer: it is not concluded yet.
#define WV_TRANSFER_PENDING 0

// State of a transfer: all bytes have landed.
#define WV_TRANSFER_DONE 1

// State of a transfer: a part has failed for good.
#define WV_TRANSFER_FAILED 2

// State of a transfer: wv_engine_cancel has ended it.
#define WV_TRANSFER_CANCELLED 3

// State of a transfer: its deadline has passed before.
#define WV_TRANSFER_TIMED_OUT 4

// State of a transfer: it was released.
#define WV_TRANSFER_UNKNOWN 5

// What became of an operation: all its bytes have landed.
#define WV_OPERATION_DONE 0

// What became of an operation: a part has failed. Other parts may have landed.
#define WV_OPERATION_FAILED 1

// What became of an operation: a part was never posted, and no part has failed.
#define WV_OPERATION_NOT_POSTED 2

// Most bytes of a notice.
#define WV_NOTICE_BYTES 65536

// Counters of an engine: their numbers are below this.
#define WV_COUNTERS 4096

// State of a rail: QPs of it that have failed are connected again.
#define WV_RAIL_WORKS 0

// State of a rail: its QPs have failed often, and none is connected again while another rail carries slices.
#define WV_RAIL_RESTS 1

// State of a rail: after a rest one QP is connected again, and the others if that one does not fail.
#define WV_RAIL_PROBES 2

// Instead of the number of a rail: copies within the machine.
#define WV_NO_RAIL UINT32_MAX

// What a transfer waits for: nothing, it is concluded.
#define WV_WAITS_FOR_NOTHING 0

// What a transfer waits for: room on a QP, for slices that are not posted.
#define WV_WAITS_FOR_ROOM 1

// What a transfer waits for: a QP. Both ends reset one of the connection first, and connect it again.
#define WV_WAITS_FOR_QP 2

// What a transfer waits for: completions of what is posted. wv_engine_stalled says more of them.
#define WV_WAITS_FOR_COMPLETION 3

// What a transfer waits for: the reset at both ends of QPs on which a slice has failed.
#define WV_WAITS_FOR_RESET 4

// What a transfer waits for: the end of its connection, with the reset of all its QPs.
#define WV_WAITS_FOR_END 5

// How a function ended. Each value is a cause on which a program can act; its number never changes, and new ones may come. What
// it means in words is wv_status_text(), the whole message wv_last_error().
typedef enum wv_status {
    // All went well.
    WV_OK = 0,
    // An argument is null, misaligned, out of its range, too short, or does not fit the others. Correct the program.
    WV_BAD_ARGUMENT = 1,
    // A configuration, or a variable of the environment.
    WV_BAD_CONFIG = 2,
    // The `size` of a struct is none that a header of this library has, or the struct holds more than this library knows.
    WV_BAD_STRUCT = 3,
    // A handle that was given back, or of another kind, or none.
    WV_BAD_HANDLE = 4,
    // Team, layer, device or build cannot do this at all.
    WV_UNSUPPORTED = 5,
    // Not now: calls or kernels still use the object that would change. It may be called again.
    WV_BUSY = 6,
    // The wait ended before its event. It may be called again.
    WV_TIMEOUT = 7,
    // wv_report: a phase did not go through for every rank.
    WV_INCOMPLETE = 8,
    // No slot is free for a transfer, and nothing was done. It may be called again when a transfer was released.
    WV_WOULD_BLOCK = 9,
    // A rank did not come to a collective call within its time.
    WV_PEER_ABSENT = 16,
    // Another rank has given up.
    WV_PEER_FAILED = 17,
    // Ranks were started with different settings.
    WV_PEER_MISMATCH = 18,
    // The QPs to the rank or engine are not connected, or cannot be.
    WV_PEER_NOT_CONNECTED = 19,
    // The process before still runs, and could store into memory of this rank.
    WV_PEER_RUNS = 20,
    // Another process has this rank, or another engine this name.
    WV_RANK_TAKEN = 21,
    // The generation of the rank is over, or has been used; or the descriptor is of another life of the engine.
    WV_GENERATION_OVER = 22,
    // The other ranks have dropped this one from the group. It may come back by wv_team_join.
    WV_EXPELLED = 24,
    // This rank has left its group.
    WV_LEFT = 25,
    // The store cannot be reached or used now. Its records are not lost.
    WV_STORE_FAILED = 32,
    // The store refuses: URL, user, rights, space, or the build lacks its kind.
    WV_STORE_REFUSED = 33,
    // The store holds records of another run or version, or records that cannot be read.
    WV_STORE_FOREIGN = 34,
    // No RDMA device can be used.
    WV_NO_HCA = 48,
    // The HCA, or its driver, refused.
    WV_HCA_REFUSED = 49,
    // No GPU, or no kernels for it.
    WV_NO_GPU = 50,
    // The GPU, or its driver, refused.
    WV_GPU_REFUSED = 51,
    // A kernel has failed.
    WV_KERNEL_FAILED = 52,
    // No memory is left: of device, host or HCA.
    WV_OUT_OF_MEMORY = 53,
    // A ring of work requests has no room.
    WV_OUT_OF_RING = 54,
    // A thread or a function of the library has panicked. What it worked on is over, the process goes on.
    WV_PANIC = 64,
    // A cause that this header does not know.
    WV_OTHER = 65,
} wv_status;

// The handle of one call at a time; a program with two calls open at once has two.
typedef struct wv_call wv_call;

// A host engine.
typedef struct wv_engine wv_engine;

// Where engines tell their names.
typedef struct wv_engine_names wv_engine_names;

// A connection of a host engine to another.
typedef struct wv_engine_peer wv_engine_peer;

// A transfer that was planned once, to be posted many times.
typedef struct wv_engine_prepared wv_engine_prepared;

// One rank in its group, with the threads that keep it a member.
typedef struct wv_group wv_group;

// A counter and a word of the program that says the same.
typedef struct wv_mirror wv_mirror;

// One MoE layer, as this rank holds it.
typedef struct wv_moe wv_moe;

// Host memory that engines of other processes of this machine and user may map. They copy it at the speed of memory, without a
// system call.
typedef struct wv_shared_memory wv_shared_memory;

// The ranks of a team, from the view of this one.
typedef struct wv_team wv_team;

// How this process takes part in a team. Needs WV_INIT first. A field that is 0 or NULL is taken from the environment (WARPVERBS_*, or
// the variables of torchrun, mpirun and srun), else from the defaults. A program that sets `ranks` needs no variables. The HCA
// carries all payload. With WARPVERBS_DIRECT=1 at both, ranks of one machine load from and store to each other's memory instead.
typedef struct wv_team_config {
    // sizeof: WV_INIT.
    size_t size;
    // Ranks of the team. 0: rank and ranks from the environment.
    uint32_t ranks;
    // This rank, below `ranks`.
    uint32_t rank;
    // Where the ranks meet: "file://DIRECTORY" or "etcd://HOST:PORT/PREFIX". A team of one needs none.
    const char *store;
    // Separates runs that use the same store: ranks meet only ranks with the same text.
    const char *run_id;
    // RDMA device, or "auto"; several, one per rail, separated by commas.
    const char *device;
    // "auto", "simt" (kernels on the CPU) or the number of a GPU.
    const char *gpu;
    // Longest wait for other ranks while something is made together, ms.
    uint32_t join_timeout_ms;
    // Longest wait of a device call, ms.
    uint32_t deadline_ms;
    // QPs to each peer.
    uint32_t qps_per_peer;
    // log2 of the send queue's WQEBBs.
    uint32_t log_depth;
    // Ranks 0 to `founders` - 1 meet in wv_team_open; the others come later, by wv_team_join. 0: all ranks found the team.
    uint32_t founders;
    // wv_team_join: the generation of this rank, which no process has had before. 0: the next one, drawn from the store.
    uint32_t generation;
    // wv_team_join: the present members of the team: `[member_count]`. NULL: those of the newest view of the group.
    const uint32_t *members;
    // Number of `members`.
    uint32_t member_count;
    // Zero.
    uint32_t reserved;
    // More settings: `field=value`, several of them separated by semicolons, as "mtu=1024; ack_timeout=15". A field is a variable
    // of docs/configuration.md that a rank reads, without WARPVERBS_, in small letters. They outrank the environment and the fields above. NULL: none.
    const char *settings;
} wv_team_config;

// The result of closing a team. Needs WV_INIT first.
typedef struct wv_team_end {
    // sizeof: WV_INIT.
    size_t size;
    // QPs that were connected, went to Err, and have nothing left to send.
    uint32_t drained;
    // QPs that were not connected.
    uint32_t idle;
    // QPs that the HCA did not move to Err, or that had not drained within the deadline.
    uint32_t refused;
    // QPs that the HCA did not destroy, and keys of windows that it did not take back. Their memory stays until the process ends.
    uint32_t leaked;
    // The refusals of the HCA and the resources leaked, in words, with a NUL. Cut to its length.
    char words[512];
} wv_team_end;

// The properties of a team. Needs WV_INIT first.
typedef struct wv_team_info {
    // sizeof: WV_INIT.
    size_t size;
    // The rank of this process, from 0 on.
    uint32_t rank;
    // Ranks of the team, members or not.
    uint32_t ranks;
    // Which process of this rank this is: 1 is the first.
    uint32_t generation;
    // HCAs of each rank.
    uint32_t rails;
    // QPs to each peer.
    uint32_t qps_per_peer;
    // Windows that wv_window_create has made. Layers have windows of their own, which are not counted.
    uint32_t windows;
    // Longest wait of a device call, ns.
    uint64_t deadline_ns;
    // Device address of the `wv::TeamContext` (warpverbs/abi.h), from which kernels find QPs, windows and guards of all peers. It
    // stays the same while the team lives.
    void *context;
} wv_team_info;

// A window as kernels take it, by value: the `wv::Window` of warpverbs/abi.h, byte for byte. It stays so, and has no size.
typedef struct wv_kernel_window {
    // Its row in the tables of the team.
    uint32_t id;
    // Local key of the first rail, big-endian.
    uint32_t lkey_be;
    // Device address at this rank.
    uint64_t base;
    // Length at every rank.
    uint64_t bytes;
} wv_kernel_window;

// A window at this rank. Needs WV_INIT first.
typedef struct wv_window {
    // sizeof: WV_INIT.
    size_t size;
    // Device address at this rank. Byte `i` of the window has offset `i` at every rank; the addresses differ.
    void *address;
    // Length at every rank.
    uint64_t bytes;
    // WV_WINDOW_...
    uint32_t kind;
    // Zero.
    uint32_t reserved;
    // What kernels take.
    struct wv_kernel_window kernel;
} wv_window;

// How a kernel is launched. Needs WV_INIT first.
typedef struct wv_launch_config {
    // sizeof: WV_INIT.
    size_t size;
    // Name that the kernel is exported by.
    const char *kernel;
    // Blocks in x, y, z. 0: 1.
    uint32_t grid[3];
    // Threads of a block in x, y, z. 0: 1.
    uint32_t block[3];
    // Dynamic shared memory of a block, bytes.
    uint64_t shared_bytes;
    // 1: all blocks must be resident at once, so that they may wait for each other.
    uint32_t cooperative;
    // On the CPU: longest run of the kernel, which then fails. 0: 60 s. A GPU ignores it.
    uint32_t timeout_ms;
} wv_launch_config;

// The state of this rank's QPs to another rank. Needs WV_INIT first.
typedef struct wv_peer_info {
    // sizeof: WV_INIT.
    size_t size;
    // Generation of the rank that the QPs are for, or were. 0: no process of it has ever come.
    uint32_t generation;
    // 1: the QPs are connected with it, and have not been failed.
    uint32_t connected;
    // 1: kernels get no guard of it, and post nothing to it.
    uint32_t closed;
    // 1: kernels reach all its windows by load and store.
    uint32_t direct;
    // Number of guards of it that kernels hold now.
    uint64_t guards;
} wv_peer_info;

// The shape of a layer. All ranks give the same. Needs WV_INIT first. If all fields after `max_tokens` are 0, rows are BF16 and
// come by expert, and combine returns sums.
typedef struct wv_moe_config {
    // sizeof: WV_INIT.
    size_t size;
    // BF16 elements of a token.
    uint32_t hidden;
    // Experts of all ranks together.
    uint32_t experts;
    // Experts that a token may choose.
    uint32_t top_k;
    // Most tokens that a rank dispatches in one call.
    uint32_t max_tokens;
    // Format of a token: WV_FORMAT_...
    uint32_t format;
    // The scales of FP8: WV_SCALES_...
    uint32_t scales;
    // WV_FORMAT_OPAQUE: bytes of a token.
    uint32_t payload_bytes;
    // WV_FORMAT_OPAQUE: bytes of its scales.
    uint32_t scale_bytes;
    // How dispatch lays out what it received: WV_LAYOUT_...
    uint32_t layout;
    // What combine returns to the source of a token: WV_RETURNS_...
    uint32_t returns;
    // Most expert slots of each rank, for placements that change. 0: as many as the first placement uses.
    uint32_t local_experts;
    // Zero.
    uint32_t reserved;
} wv_moe_config;

// Device memory that a layer takes at each rank, in bytes. Needs WV_INIT first.
typedef struct wv_bytes {
    // sizeof: WV_INIT.
    size_t size;
    // Slots that peers write into.
    uint64_t slots;
    // Copies that the NIC sends from.
    uint64_t staging;
    // Signals of all peers.
    uint64_t signals;
    // Context and state per peer.
    uint64_t state;
    // One handle of a call.
    uint64_t handle;
    // The caller's `recv_x`.
    uint64_t recv_x;
} wv_bytes;

// Waiting times of a layer, in ns. Needs WV_INIT first.
typedef struct wv_deadlines {
    // sizeof: WV_INIT.
    size_t size;
    // Longest wait of a phase. 0: the team's deadline.
    uint64_t steady_ns;
    // The same in the first `warm_calls` calls. 0: `steady_ns`.
    uint64_t warm_ns;
    // Longest time for which a call is held while the group changes its view; then it ends `aborted`. 0: the longer of 10 s and
    // `steady_ns`.
    uint64_t change_ns;
    // Calls that are warm-up.
    uint32_t warm_calls;
    // Zero.
    uint32_t reserved;
} wv_deadlines;

// The result of a call. Needs WV_INIT first.
typedef struct wv_call_report {
    // sizeof: WV_INIT.
    size_t size;
    // Number of the call; 0: the handle was never used.
    uint32_t call;
    // Phases that have begun: 0 to 4.
    uint32_t phases;
    // How each of them ended: dispatch send, dispatch receive, combine send, combine receive. 0: well.
    uint32_t status[4];
    // 1: every phase so far went through for every rank.
    uint32_t complete;
    // Ranks with which one did not.
    uint32_t troubled_ranks;
    // 1: its dispatch has offered the staging memory for a combine with WV_COMBINE_ZERO_COPY.
    uint32_t offered;
    // Calls of the layer at this rank, up to this one, that found no free send buffer and so sent nothing. Wraps.
    uint32_t unbuffered;
} wv_call_report;

// The experts in the slots of each rank. Needs WV_INIT first. An expert may be at several ranks: a token takes the one at its own rank,
// and else they take turns. Choices of an expert that is at no rank are lost.
typedef struct wv_placement {
    // sizeof: WV_INIT.
    size_t size;
    // Slots of each rank: `[ranks]`.
    const uint32_t *counts;
    // Their experts, rank after rank; in a rank by local number.
    const uint32_t *experts;
} wv_placement;

// The ranks that take part from one call on, and the experts that each holds. Needs WV_INIT first.
typedef struct wv_view {
    // sizeof: WV_INIT.
    size_t size;
    // First call that runs in it.
    uint32_t first;
    // Counts the changes of the members; the same at all ranks.
    uint32_t epoch;
    // The ranks that take part: `[member_count]`.
    const uint32_t *members;
    // How many they are.
    uint32_t member_count;
    // Zero.
    uint32_t reserved;
    // The experts of each rank. No rank holds more than the layer has room for.
    const struct wv_placement *placement;
} wv_view;

// Input of a dispatch: device memory, unchanged until the stream is past the send phase. Needs WV_INIT first. Zero means: not
// used.
typedef struct wv_dispatch_input {
    // sizeof: WV_INIT.
    size_t size;
    // Tokens `[tokens, row bytes]` in the layer's format, or BF16 that dispatch casts. 16-byte aligned.
    const void *x;
    // Their scales `[tokens, scale bytes]`: for FP8 of the caller and for opaque tokens.
    const void *x_scales;
    // Choices `[tokens, top_k]`, -1 for none. With WV_DISPATCH_IDS_64 the address of int64_t.
    const int32_t *experts;
    // Weights `[tokens, top_k]`. NULL: all are 1.
    const float *weights;
    // Which ranks take part: `[ranks]`, 0 for those that do not. NULL: all.
    const uint32_t *active;
    // Longest wait of each phase of the call, ns. 0: the layer's.
    uint64_t deadline_ns;
    // Number of tokens, at most max_tokens.
    uint32_t tokens;
    // WV_DISPATCH_...
    uint32_t flags;
} wv_dispatch_input;

// Output of a dispatch: device memory. Needs WV_INIT first. `rows` is [local experts, ranks * max_tokens], or by rank [ranks, max_tokens].
typedef struct wv_dispatch_output {
    // sizeof: WV_INIT.
    size_t size;
    // Tokens `[rows, row bytes]`. 16-byte aligned.
    void *recv_x;
    // Their scales, where the format has any.
    void *recv_scales;
    // Rows of each local expert, or of each rank.
    uint32_t *counts;
    // Row of its rank's input that each row is: `[rows]`.
    uint32_t *src_info;
    // By expert: begin << 32 | count of the rows of each rank: `[local experts, ranks]`.
    uint64_t *layout_range;
    // By rank: local experts of each row, -1 none: `[rows, top_k]`.
    int32_t *recv_experts;
    // By rank: their weights: `[rows, top_k]`.
    float *recv_weights;
    // Added to: rows of each local expert; int32_t with WV_DISPATCH_STATS_32. NULL: not kept.
    uint64_t *recv_stats;
    // Added to: nanoseconds, whatever the clock of the GPU, waited for each rank. NULL: not kept.
    uint64_t *wait_ns;
    // Output: 1 for each rank whose rows arrived, 0 for the others: `[ranks]`. NULL: not written.
    uint32_t *active;
    // WV_DISPATCH_IN_PLACE | WV_DISPATCH_STATS_32.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // Output: the address of this call's staging memory, as wv_combine_staging has it; 0 if the caller may not write to it. NULL:
    // not written.
    uint64_t *staging;
} wv_dispatch_output;

// Input of a combine: device memory. Needs WV_INIT first.
typedef struct wv_combine_input {
    // sizeof: WV_INIT.
    size_t size;
    // The experts' results for `recv_x`, BF16, in the same places. 16-byte aligned.
    const void *y;
    // WV_COMBINE_ZERO_COPY | WV_COMBINE_UNWEIGHTED.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // Longest wait of each phase of the combine, ns. 0: that of its dispatch.
    uint64_t deadline_ns;
    // With WV_COMBINE_ZERO_COPY, in the shape of `y`: from where a call copies whose dispatch offered no staging memory
    // (`staging` 0 of the dispatch output). NULL: such a combine is refused. 16-byte aligned.
    const void *copy_from;
} wv_combine_input;

// Output of a combine: device memory. Needs WV_INIT first.
typedef struct wv_combine_output {
    // sizeof: WV_INIT.
    size_t size;
    // BF16 `[tokens, hidden]`. 16-byte aligned.
    void *out;
    // 1 for each token all of whose experts contributed: `[tokens]`.
    uint8_t *token_valid;
    // Weights `[tokens, top_k]` in a layer that returns every expert's row. NULL: those of dispatch.
    const float *weights;
    // Added to: nanoseconds, whatever the clock of the GPU, waited for each rank. NULL: not kept.
    uint64_t *wait_ns;
    // Output: 1 for each rank whose rows were added, 0 for the others: `[ranks]`. NULL: not written.
    uint32_t *active;
    // WV_COMBINE_RENORMALISE | WV_COMBINE_IN_PLACE.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
} wv_combine_output;

// Memory that combine sends from. It has the shape of `y`. Needs WV_INIT first.
typedef struct wv_staging {
    // sizeof: WV_INIT.
    size_t size;
    // Device address.
    void *address;
    // Local experts, where rows lie by expert; else ranks.
    uint64_t blocks;
    // Rows of a block, of which the first `counts[block]` are sent.
    uint64_t rows;
    // Bytes of a row: `hidden` BF16.
    uint64_t row_bytes;
} wv_staging;

// How patient a group is. Needs WV_INIT first. All ranks say the same. 0: the default.
typedef struct wv_group_config {
    // sizeof: WV_INIT.
    size_t size;
    // How long a rank that does not renew its lease counts as living, ms: 50 to 3,600,000. Default 2,000.
    uint32_t lease_ttl_ms;
    // How long a living rank may be without contact to every rank of the larger side before the group expels it, ms. At least two
    // leases, and twice the team's deadline. Default 5 times that deadline, and two leases at least.
    uint32_t stall_bound_ms;
    // How long a QP to a rank is in error before the pair parts, ms. Neither rank is expelled for that. Default the team's
    // deadline.
    uint32_t error_bound_ms;
    // How long a living rank may leave a proposal unanswered, ms: at least two leases. Default 5 times the team's deadline, and two
    // leases at least.
    uint32_t promise_bound_ms;
    // Longest wait of the founders for each other, ms. Also the longest time in which joining ranks hear of no member. Default the
    // team's join_timeout_ms.
    uint32_t found_bound_ms;
    // Zero.
    uint32_t reserved;
} wv_group_config;

// The members of a group, as this rank knows it. Needs WV_INIT first.
typedef struct wv_group_view {
    // sizeof: WV_INIT.
    size_t size;
    // How this rank stands: WV_GROUP_...
    uint32_t state;
    // Number of the newest view that kernels of this rank have. 0: none yet.
    uint32_t epoch;
    // First call that runs in it.
    uint32_t first;
    // Ranks of it.
    uint32_t member_count;
    // Pairs of them that exchange no tokens in it, because a QP between them has failed. Their QPs are being connected anew.
    uint32_t parted_count;
    // Zero.
    uint32_t reserved;
} wv_group_view;

// How often each of these has happened to this rank since wv_group_start, and how many pairs are parted now. Needs WV_INIT first.
typedef struct wv_group_counters {
    // sizeof: WV_INIT.
    size_t size;
    // Views that kernels of this rank were given.
    uint64_t views;
    // Proposals that it has put into the store.
    uint64_t proposals;
    // Proposals that it has promised.
    uint64_t promises;
    // Times that it has begun to suspect a rank.
    uint64_t suspicions;
    // Times that the QPs to a rank were connected: to newcomers, and to ranks from which it was parted.
    uint64_t connections;
    // Times that the store was lost.
    uint64_t store_losses;
    // Pairs of members that the newest view parts.
    uint64_t parted;
    // Pairs that a view has parted and the view before had not.
    uint64_t partings;
    // Parted pairs that a later view has united.
    uint64_t unions;
} wv_group_counters;

// Decides which ranks hold which experts for the members of a view, `members[member_count]` in ascending order. Writes the number
// of slots of each rank to `counts[ranks]`. Writes their experts, rank after rank, to `experts`, which has room for `room`.
// Returns the number of experts written. It must be a pure function, the same at all ranks, and return by `return` only.
typedef uint32_t (*wv_placement_rule)(void *context,
                                      const uint32_t *members,
                                      uint32_t member_count,
                                      uint32_t *counts,
                                      uint32_t *experts,
                                      uint32_t room);

// Something that has happened in a group. Needs WV_INIT first. What `kind` does not speak of is zero. Arrays and `text` belong to the
// calling thread, and stay until its next wv_group_next_event.
typedef struct wv_group_event {
    // sizeof: WV_INIT.
    size_t size;
    // When: ns since wv_group_start.
    uint64_t at_ns;
    // What: WV_EVENT_...
    uint32_t kind;
    // The rank that the event is about.
    uint32_t rank;
    // The generation of that rank, from 1 on.
    uint32_t generation;
    // Why: WV_CAUSE_...
    uint32_t cause;
    // The detail of the cause or event: a syndrome, a type of event, or a rail.
    uint32_t detail;
    // WV_GROUP_...
    uint32_t state;
    // The epoch of the view that the event is about.
    uint32_t epoch;
    // The number of the call that the event is about.
    uint32_t call;
    // The number of the proposal that the event is about.
    uint64_t proposal;
    // How long something took.
    uint64_t duration_ns;
    // Ranks: `[member_count]`, ascending.
    const uint32_t *members;
    // The generation of each, or NULL.
    const uint32_t *generations;
    // The event in words. Never NULL.
    const char *text;
    // Number of members.
    uint32_t member_count;
    // Zero.
    uint32_t reserved;
} wv_group_event;

// How a host engine works. Needs WV_INIT first, then `name`. What is 0 or NULL is taken from the environment (WARPVERBS_ENGINE_*,
// WARPVERBS_PROVIDER, WARPVERBS_DEVICE, WARPVERBS_GPU and the variables of packets), else from the defaults.
typedef struct wv_engine_config {
    // sizeof: WV_INIT.
    size_t size;
    // By which peers know it, 1 to 255 bytes.
    const char *name;
    // RDMA device, several with commas between them, or "auto", which takes as many as the setting `rails` says.
    const char *device;
    // More settings: `field=value`, several of them separated by semicolons, as "qps=8; mtu=1024". A field is a variable of
    // docs/configuration.md that an engine reads, without WARPVERBS_ENGINE_ or WARPVERBS_, in small letters. They outrank the
    // environment, `device` and `provider`. NULL: none.
    const char *settings;
    // Longest wait for running transfers when a connection or the engine is closed, ms. 0: 5 s.
    uint32_t drain_ms;
    // 1: wv_engine_listen also takes addresses that are not loopback without a key. The settings `key_file` and `allow` restrict
    // which engines may connect.
    uint32_t insecure;
    // What drives the NICs: "mlx5", "verbs", "ofi", "ofi:NAME" with the name of a provider of libfabric, or "auto", the first of
    // these that can drive them. A name with a semicolon, as "ofi:tcp;ofi_rxm", cannot stand in `settings`.
    const char *provider;
} wv_engine_config;

// The result of closing an engine. Needs WV_INIT first.
typedef struct wv_engine_end {
    // sizeof: WV_INIT.
    size_t size;
    // Transfers that still ran when the time for them was over, and so have failed.
    uint64_t cut_off;
    // Transfers that were done since the engine was made.
    uint64_t done;
    // Transfers that failed since the engine was made.
    uint64_t failed;
    // Transfers that were cancelled since the engine was made.
    uint64_t cancelled;
    // Transfers that ran into their deadline since the engine was made.
    uint64_t timed_out;
} wv_engine_end;

// The properties of an engine. Needs WV_INIT first.
typedef struct wv_engine_info {
    // sizeof: WV_INIT.
    size_t size;
    // Number of this life of the engine, which its descriptors carry.
    uint64_t incarnation;
    // Transfers that were submitted and not released.
    uint64_t in_use;
    // Rails: ports of RDMA devices, see wv_engine_get_rail.
    uint64_t rails;
} wv_engine_info;

// Memory of the program, in a list. It stays so, and has no size.
typedef struct wv_memory_range {
    // First byte.
    void *address;
    // Number of bytes.
    size_t bytes;
} wv_memory_range;

// The state of a connection. Needs WV_INIT first.
typedef struct wv_engine_peer_info {
    // sizeof: WV_INIT.
    size_t size;
    // QPs, the smaller number of both ends.
    uint32_t qps;
    // 1: it takes transfers.
    uint32_t open;
    // Of the peer, with a NUL.
    char name[256];
    // WV_PATH_...: how transfers go to it now.
    uint64_t path;
} wv_engine_peer_info;

// A region of a peer, as its descriptor says. Needs WV_INIT first.
typedef struct wv_remote_region {
    // sizeof: WV_INIT.
    size_t size;
    // First byte, as the peer addresses it: what operations name.
    uint64_t address;
    // Its length.
    uint64_t bytes;
} wv_remote_region;

// Memory of the program on a GPU, in a list. It stays so, and has no size.
typedef struct wv_gpu_range {
    // First byte, as kernels address it.
    uint64_t address;
    // Number of bytes.
    uint64_t bytes;
} wv_gpu_range;

// Names a transfer. No other transfer of this process ever has the same. It stays so, and has no size.
typedef struct wv_transfer {
    // Engine and slot.
    uint64_t place;
    // Number of the use of the slot.
    uint64_t generation;
} wv_transfer;

// One operation of a transfer. It stays so, and has no size.
typedef struct wv_operation {
    // WV_WRITE or WV_READ.
    uint32_t kind;
    // Zero.
    uint32_t reserved;
    // First byte here: an address of a region of this engine.
    uint64_t local;
    // First byte at the peer: an address of a region that was imported.
    uint64_t remote;
    // Number of bytes. An operation of 0 bytes is done without a WQE.
    uint64_t bytes;
} wv_operation;

// Options of a transfer. Needs WV_INIT first.
typedef struct wv_transfer_options {
    // sizeof: WV_INIT.
    size_t size;
    // Deadline, ms: after it no slice is handed out any more. 0: that of the engine's configuration, which has none by default.
    uint32_t deadline_ms;
    // Longest wait for a free slot, and for room for the notice, ms. 0: WV_WOULD_BLOCK at once.
    uint32_t wait_ms;
    // A notice for the peer's program. It arrives after the last byte of the transfer, or with the state of a transfer that is not
    // done. NULL with `notice_bytes` 0: none; not NULL with 0: one without bytes.
    const uint8_t *notice;
    // Its bytes, at most WV_NOTICE_BYTES.
    size_t notice_bytes;
    // 1: each operation, a WRITE, counts once at `counter` of the peer, after its last byte. It is posted only once, because a
    // WRITE that failed may have counted.
    uint32_t counts;
    // The counter, below WV_COUNTERS.
    uint32_t counter;
} wv_transfer_options;

// The result of a transfer. Needs WV_INIT first.
typedef struct wv_transfer_report {
    // sizeof: WV_INIT.
    size_t size;
    // WV_TRANSFER_...
    uint32_t state;
    // 1: the peer has not said that its QPs are reset, so bytes may land in its memory until it does. Memory of this side is
    // quiet.
    uint32_t remote_unknown;
    // Bytes that are known to have landed.
    uint64_t bytes_landed;
    // How many operations the transfer has.
    uint64_t operations;
    // 1: the fields below describe the first failure.
    uint32_t has_failure;
    // The operation, from 0 on.
    uint32_t operation;
    // Address in the peer's memory at which the WQE would have begun.
    uint64_t remote;
    // The QP; 0: no QP was left.
    uint32_t qp;
    // `syndrome` of the CQE; 0: it was never posted.
    uint32_t syndrome;
    // `vendor_err_synd` of the CQE.
    uint32_t vendor;
    // Zero.
    uint32_t reserved;
    // 1: `rail` holds the rail of that WQE.
    uint32_t has_rail;
    // The rail, from 0 on, see wv_engine_get_rail.
    uint32_t rail;
} wv_transfer_report;

// A received notice. Needs WV_INIT first.
typedef struct wv_notice {
    // sizeof: WV_INIT.
    size_t size;
    // The life of the peer that has sent it.
    uint64_t incarnation;
    // Length of the notice in bytes.
    uint64_t bytes;
    // State of the transfer that it was sent with: WV_TRANSFER_DONE and so on. WV_TRANSFER_PENDING: it was sent alone.
    uint32_t transfer;
    // 1: `operation` holds the first operation that failed.
    uint32_t has_operation;
    // The operation, from 0 on.
    uint32_t operation;
    // `syndrome` of the sender's CQE; 0: none.
    uint32_t syndrome;
    // `vendor_err_synd` of the sender's CQE.
    uint32_t vendor;
    // Zero.
    uint32_t reserved;
    // Name of the peer, with a NUL.
    char peer[256];
} wv_notice;

// Counts of an engine since it was opened. One snapshot is consistent: transfers that have ended were submitted, and slices that
// are completed or have failed were posted. `posted + not_posted` is at most `queued + retried`, and equal once all transfers are
// concluded. Needs WV_INIT first.
typedef struct wv_engine_statistics {
    // sizeof: WV_INIT.
    size_t size;
    // Transfers that the engine has taken.
    uint64_t submitted;
    // Transfers that it has refused, since all slots were taken. A wait for a slot counts each of its tries.
    uint64_t refused;
    // Transfers that are done.
    uint64_t done;
    // Transfers that have failed.
    uint64_t failed;
    // Transfers that were cancelled.
    uint64_t cancelled;
    // Transfers whose deadline has passed.
    uint64_t timed_out;
    // Bytes of the transfers that are done.
    uint64_t done_bytes;
    // Slices of the submitted transfers.
    uint64_t slices_queued;
    // How often a slice was put back to be posted again, since it had failed.
    uint64_t slices_retried;
    // Slices that were queued or put back and never posted, since their transfers had ended before.
    uint64_t slices_not_posted;
    // Slices that were given to a QP or to a copy, those that were posted again among them.
    uint64_t slices_posted;
    // Their bytes.
    uint64_t posted_bytes;
    // Posted slices whose bytes have landed.
    uint64_t slices_completed;
    // Posted slices that have failed. Each may have been posted again.
    uint64_t slices_failed;
    // How long workers have had slices to post and no room on any of their QPs, summed over workers, ns.
    uint64_t stalled_ns;
} wv_engine_statistics;

// A rail of an engine: a port of an RDMA device, and the counts of its QPs. Needs WV_INIT first.
typedef struct wv_rail_info {
    // sizeof: WV_INIT.
    size_t size;
    // Its RDMA device, with a NUL.
    char device[64];
    // The port of it, from 1 on.
    uint32_t port;
    // WV_RAIL_...
    uint32_t state;
    // How often it was given a rest.
    uint64_t rests;
    // Slices that were given to its QPs, those that were posted again among them.
    uint64_t slices_posted;
    // Their bytes.
    uint64_t posted_bytes;
    // Posted slices whose bytes have landed.
    uint64_t slices_completed;
    // Posted slices that have failed.
    uint64_t slices_failed;
    // How long its workers have had slices to post and no room on any of their QPs, summed over them, ns.
    uint64_t stalled_ns;
} wv_rail_info;

// Whether something completes of what is in flight to a peer by one rail. Needs WV_INIT first.
typedef struct wv_stall {
    // sizeof: WV_INIT.
    size_t size;
    // Slices that were posted and have not completed.
    uint64_t in_flight;
    // How long none of them has completed, ns; 0 without any.
    uint64_t since_completion_ns;
} wv_stall;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The name of a status: "WV_TIMEOUT". "WV_?" for a number that this library does not know. Never NULL, and never freed.
const char *wv_status_name(int32_t status)
WV_NOEXCEPT;

// The meaning of a status, in words without values. Never NULL, and never freed.
const char *wv_status_text(int32_t status) WV_NOEXCEPT;

// The message of the last failing call of this thread; an empty text if none has failed. Stays until the next one fails.
const char *wv_last_error(void)
WV_NOEXCEPT;

// WV_ABI_VERSION of the library that runs, to be compared with that of the header.
uint32_t wv_abi_version(void) WV_NOEXCEPT;

// Opens HCA and GPU and meets the other founders, at most for `join_timeout_ms`. Collective between them. `config` NULL: all from
// the environment.
//
// Requires:
// `config` is null or a struct whose texts end with a NUL; `team` is where the handle goes.
enum wv_status wv_team_open(const struct wv_team_config *config,
                            struct wv_team **team)
WV_NOEXCEPT;

// Opens HCA and GPU as a rank that comes later, or comes back: a new process in a free place. The members take it in while their
// calls go on. Waits for no rank, and up to `timeout_ms` until a group exists that it can join.
//
// Then: create the same windows and layers, in the same order, as the others; wv_group_start; wv_group_wait for
// WV_GROUP_SERVING; and only then the first call. Each time draws a new generation of the rank from the store, unless `config`
// names one.
//
// Requires:
// `config` is a struct whose texts end with a NUL and whose array has `member_count` numbers; `team` is where the handle goes.
enum wv_status wv_team_join(const struct wv_team_config *config,
                            uint32_t timeout_ms,
                            struct wv_team **team)
WV_NOEXCEPT;

// Gives a team back, and the device memory that is still allocated. `team` NULL is allowed. Windows and QPs go with the last layer
// of the team.
//
// With `end` the QPs of the team go to Err and drain, at most for the deadline of the team, and are destroyed. `end` reports how
// they ended. WV_BUSY: a layer of the team is left, or another thread uses it; the team lives on. Without `end`, which may be
// NULL, QPs are destroyed as they are.
//
// Requires:
// No kernel uses its memory; `end` is null or a struct.
enum wv_status wv_team_close(struct wv_team *team,
                             struct wv_team_end *end)
WV_NOEXCEPT;

// Gets the properties of a team, and the address of its context for kernels.
//
// Requires:
// `info` is a struct.
enum wv_status wv_team_get_info(const struct wv_team *team, struct wv_team_info *info) WV_NOEXCEPT;

// Checks the team: WV_PEER_FAILED if another rank has given up, WV_PANIC if a thread of this one has panicked. Never waits.
enum wv_status wv_team_check(const struct wv_team *team)
WV_NOEXCEPT;

// Gets this rank and the number of ranks. Either may be NULL.
//
// Requires:
// Both are null or variables.
enum wv_status wv_team_rank(const struct wv_team *team, uint32_t *rank, uint32_t *ranks) WV_NOEXCEPT;

// Waits until all ranks have called this with the same `name`, which is used once. A barrier of the hosts only: streams go on.
//
// Requires:
// `name` ends with a NUL.
enum wv_status wv_team_barrier(const struct wv_team *team,
                               const char *name)
WV_NOEXCEPT;

// Waits until everything in `stream` has ended, at most `timeout_ms`: WV_TIMEOUT if it has not. For programs without the
// CUDA runtime.
//
// Requires:
// `stream` is a stream of the device of the team, or null.
enum wv_status wv_stream_synchronize(const struct wv_team *team,
                                     void *stream,
                                     uint32_t timeout_ms)
WV_NOEXCEPT;

// Allocates device memory, aligned for any array of this header and filled with zeros. A GPU program may use its own
// allocator instead.
//
// Requires:
// `address` is where the address goes.
enum wv_status wv_device_alloc(const struct wv_team *team,
                               size_t bytes,
                               void **address)
WV_NOEXCEPT;

// Gives memory of `wv_device_alloc` back. NULL is allowed.
//
// Requires:
// No kernel uses the memory.
enum wv_status wv_device_free(const struct wv_team *team, void *address) WV_NOEXCEPT;

// Copies `bytes` from the host to device memory of `wv_device_alloc`. Does not wait for streams.
//
// Requires:
// `from` holds `bytes` bytes; no kernel uses the memory.
enum wv_status wv_device_write(const struct wv_team *team,
                               void *to,
                               const void *from,
                               size_t bytes)
WV_NOEXCEPT;

// Copies `bytes` of device memory of `wv_device_alloc` to the host. Does not wait for streams.
//
// Requires:
// `to` has room for `bytes` bytes.
enum wv_status wv_device_read(const struct wv_team *team,
                              void *to,
                              const void *from,
                              size_t bytes)
WV_NOEXCEPT;

// Makes a window of `bytes` at every rank, filled with zeros, in device memory of the team. Collective: the founders make their
// windows and layers together, in the same order. A rank that joins later makes the same ones, alone, before its group starts.
//
// A kernel finds the window of a peer by the team's context (wv_team_info.context) and `window->kernel`:
// `wv::load_peer(*team, window, peer)` of warpverbs/peer.cuh. The host reads and writes the window of its own rank by
// wv_device_read and wv_device_write, or by copies of CUDA. It lives as long as the team, and is given back with it.
//
// Requires:
// `window` is a struct.
enum wv_status wv_window_create(const struct wv_team *team,
                                uint32_t kind,
                                uint64_t bytes,
                                struct wv_window *window)
WV_NOEXCEPT;

// Window `number` of those that wv_window_create has made with this handle, the first being 0: below wv_team_info.windows.
//
// Requires:
// `window` is a struct.
enum wv_status wv_window_get(const struct wv_team *team,
                             uint32_t number,
                             struct wv_window *window)
WV_NOEXCEPT;

// Launches a kernel of the library by its name, with `bytes` bytes of its one parameter struct. Returns at once;
// wv_stream_synchronize waits until it ends, and returns its failure. On a GPU a program launches its own kernels by the CUDA
// runtime, in the same streams, and passes them wv_team_info.context and wv_window.kernel.
//
// Requires:
// `launch` is a struct whose text ends with a NUL. `params` are the bytes of the struct that the kernel declares, and what they
// point to stays until the stream is past the kernel. `stream` is a stream of the GPU or null.
enum wv_status wv_launch(const struct wv_team *team,
                         const struct wv_launch_config *launch,
                         const void *params,
                         size_t bytes,
                         void *stream)
WV_NOEXCEPT;

// Gets the state of the QPs to `peer`. Never waits.
//
// Requires:
// `info` is a struct.
enum wv_status wv_peer_get_info(const struct wv_team *team,
                                uint32_t peer,
                                struct wv_peer_info *info)
WV_NOEXCEPT;

// Ends everything with `peer` at once. Kernels get no guard of it any more, its QPs are in error, and every wait for them ends
// `aborted`. Never waits, and needs no answer of the peer.
enum wv_status wv_peer_fail(const struct wv_team *team,
                            uint32_t peer)
WV_NOEXCEPT;

// Brings the QPs to `peer` up again, whatever state they are in. Collective between this rank and the same process of `peer`.
// Requests in flight have an unknown outcome, and nothing is sent again. `times`, which may be NULL, gets the number of times that
// these two have done it. Waits at most for join_timeout_ms: WV_PEER_ABSENT if the peer does not come, WV_BUSY if kernels keep
// their guards.
//
// Requires:
// `times` is null or a variable.
enum wv_status wv_peer_recover(const struct wv_team *team,
                               uint32_t peer,
                               uint32_t *times)
WV_NOEXCEPT;

// Connects the QPs to process `generation` of `peer`: the first in its place, or another than before. QPs and keys for the earlier
// process end with this call. The peer makes the same call for this rank, after wv_team_announce. Waits at most `timeout_ms`.
// After an error it may be called again, and goes on from the step that failed. The peer stays closed to kernels until
// wv_peer_open.
enum wv_status wv_peer_connect(const struct wv_team *team,
                               uint32_t peer,
                               uint32_t generation,
                               uint32_t timeout_ms)
WV_NOEXCEPT;

// Lets kernels post to `peer`, to which the QPs are connected.
enum wv_status wv_peer_open(const struct wv_team *team, uint32_t peer) WV_NOEXCEPT;

// Publishes the addresses, settings and windows of this process, for the wv_peer_connect of the others. For a rank of wv_team_join
// without a group, when all its windows and layers are made. A group does it by itself.
enum wv_status wv_team_announce(const struct wv_team *team)
WV_NOEXCEPT;

// Computes the device memory that a layer of this shape takes at each of `ranks`, without making anything.
//
// Requires:
// `config` and `bytes` are structs.
enum wv_status wv_required_bytes(const struct wv_moe_config *config,
                                 uint32_t ranks,
                                 struct wv_bytes *bytes)
WV_NOEXCEPT;

// Makes a layer, its experts in contiguous blocks over the ranks. Collective: `name` is used once, and all ranks make their
// layers in the same order.
//
// Requires:
// `name` ends with a NUL, `config` is a struct, `moe` is where the handle goes.
enum wv_status wv_moe_create(const struct wv_team *team,
                             const char *name,
                             const struct wv_moe_config *config,
                             struct wv_moe **moe)
WV_NOEXCEPT;

// Gives a layer back. NULL is allowed. Its memory goes with its last call.
//
// Requires:
// No kernel of it runs.
enum wv_status wv_moe_destroy(struct wv_moe *moe) WV_NOEXCEPT;

// Gets the experts of this rank in the newest view, in the order of their local numbers. Up to `room` of them go to `experts`,
// which may be NULL if `room` is 0; `count` gets their number.
//
// Requires:
// `experts` has room for `room` numbers, `count` is where the answer goes.
enum wv_status wv_moe_local_experts(const struct wv_moe *moe,
                                    uint32_t *experts,
                                    uint32_t room,
                                    uint32_t *count)
WV_NOEXCEPT;

// Sets how long the phases of a layer wait, and calls while the group changes, from the next call on.
//
// Requires:
// `deadlines` is a struct.
enum wv_status wv_moe_set_deadlines(const struct wv_moe *moe,
                                    const struct wv_deadlines *deadlines)
WV_NOEXCEPT;

// Makes a handle for calls of a layer.
//
// Requires:
// `call` is where the handle goes.
enum wv_status wv_call_create(const struct wv_moe *moe, struct wv_call **call) WV_NOEXCEPT;

// Gives a call handle back. NULL is allowed.
//
// Requires:
// No kernel or graph uses it.
enum wv_status wv_call_destroy(struct wv_call *call) WV_NOEXCEPT;

// Gets the result of the phases that have ended, of those that are asked about. WV_INCOMPLETE if a rank's part is missing,
// WV_PEER_MISMATCH if that is because ranks pass arguments that differ: the report is then filled in all the same, and
// wv_last_error() says what happened with which rank. Asks the store why a rank was missed, once for each call.
//
// Requires:
// `report` is a struct.
enum wv_status wv_report(const struct wv_call *call,
                         struct wv_call_report *report)
WV_NOEXCEPT;

// As wv_moe_create, with the experts at the ranks that `placement` says. All ranks pass the same.
//
// Requires:
// As wv_moe_create; `placement` is a struct with the arrays that it says.
enum wv_status wv_moe_create_placed(const struct wv_team *team,
                                    const char *name,
                                    const struct wv_moe_config *config,
                                    const struct wv_placement *placement,
                                    struct wv_moe **moe)
WV_NOEXCEPT;

// Makes `view` the view of all calls from `view.first` on; earlier calls end in their own view. All ranks set the same view, and
// none launches call `view.first` before all have. A layer keeps eight views: this waits up to `timeout_ms` until no call needs
// the oldest one.
//
// Requires:
// `view` is a struct with the arrays that it says.
enum wv_status wv_moe_set_view(const struct wv_moe *moe,
                               const struct wv_view *view,
                               uint32_t timeout_ms)
WV_NOEXCEPT;

// Launches the send phase of dispatch: takes the number of the call and sends the tokens. All ranks launch the same phases
// in the same order, each phase of a call once and in turn.
//
// Requires:
// `input` is a struct whose arrays have the lengths that its fields say, `stream` a stream of the GPU or null.
enum wv_status wv_dispatch_send(const struct wv_call *call,
                                const struct wv_dispatch_input *input,
                                void *stream)
WV_NOEXCEPT;

// Launches the receive phase of dispatch: waits for the tokens of every rank and lays them out.
//
// Requires:
// As wv_dispatch_send, with the arrays of `output`.
enum wv_status wv_dispatch_receive(const struct wv_call *call,
                                   const struct wv_dispatch_output *output,
                                   void *stream)
WV_NOEXCEPT;

// Launches both phases of dispatch as one kernel.
//
// Requires:
// As wv_dispatch_send and wv_dispatch_receive.
enum wv_status wv_dispatch(const struct wv_call *call,
                           const struct wv_dispatch_input *input,
                           const struct wv_dispatch_output *output,
                           void *stream)
WV_NOEXCEPT;

// Launches the send phase of combine: adds up the experts' rows of each token and sends the sums back, or the rows
// (WV_RETURNS_ROWS).
//
// Requires:
// As wv_dispatch_send, with the arrays of `input`.
enum wv_status wv_combine_send(const struct wv_call *call,
                               const struct wv_combine_input *input,
                               void *stream)
WV_NOEXCEPT;

// Launches the receive phase of combine: waits for every rank and adds up the returned rows.
//
// Requires:
// As wv_dispatch_send, with the arrays of `output`.
enum wv_status wv_combine_receive(const struct wv_call *call,
                                  const struct wv_combine_output *output,
                                  void *stream)
WV_NOEXCEPT;

// Launches both phases of combine as one kernel.
//
// Requires:
// As wv_combine_send and wv_combine_receive.
enum wv_status wv_combine(const struct wv_call *call,
                          const struct wv_combine_input *input,
                          const struct wv_combine_output *output,
                          void *stream)
WV_NOEXCEPT;

// Gets the memory to which the experts of a call may write what its combine sends with WV_COMBINE_ZERO_COPY. They may write it
// from the end of the call's dispatch receive to the end of its combine send, and at no other time. `set` is the number of the
// call modulo 2 (wv_call_report.call). The addresses stay the same while the layer lives. Refused for a layer that adds up itself:
// by expert, with WV_RETURNS_SUMS.
//
// Requires:
// `staging` is a struct.
enum wv_status wv_combine_staging(const struct wv_moe *moe,
                                  uint32_t set,
                                  struct wv_staging *staging)
WV_NOEXCEPT;

// Puts a layer, and the team below it, under the rules of a group: its calls run in views that all members agree on. The founders
// of a team all start with the same first view. A rank of wv_team_join asks to be taken in. `config` NULL: defaults.
//
// Returns at once; wv_group_wait waits until the rank serves. A rank that joins makes no call before. Each process of a rank has
// one group, for one layer.
//
// Requires:
// `config` is null or a struct; `group` is where the handle goes.
enum wv_status wv_group_start(const struct wv_moe *moe,
                              const struct wv_group_config *config,
                              struct wv_group **group)
WV_NOEXCEPT;

// Stops the threads of a group and gives the lease of this rank back. The others go on without it, as without a rank that has
// died. Calls that run are not ended. A wv_group_leave before it loses no token. NULL is allowed. Layer and team stay.
enum wv_status wv_group_destroy(struct wv_group *group)
WV_NOEXCEPT;

// Gets the state of this rank and the members, ascending. Up to `capacity` members go to `members` and their generations to
// `generations`, either of which may be NULL. Never waits.
//
// Requires:
// `view` is a struct; the arrays are null or have room for `capacity` numbers.
enum wv_status wv_group_get_view(const struct wv_group *group,
                                 struct wv_group_view *view,
                                 uint32_t *members,
                                 uint32_t *generations,
                                 uint32_t capacity)
WV_NOEXCEPT;

// Gets the counters of this rank since wv_group_start. Never waits.
//
// Requires:
// `counters` is a struct.
enum wv_status wv_group_get_counters(const struct wv_group *group,
                                     struct wv_group_counters *counters)
WV_NOEXCEPT;

// Waits until this rank is in `state` (WV_GROUP_...), at most for `timeout_ms`. WV_TIMEOUT after that. WV_EXPELLED, WV_LEFT or
// WV_PANIC, at once, if it can no longer come to `state`.
enum wv_status wv_group_wait(const struct wv_group *group,
                             uint32_t state,
                             uint32_t timeout_ms)
WV_NOEXCEPT;

// Waits until this rank serves in a view of at least `epoch`, at most for `timeout_ms`, and fails as wv_group_wait does.
enum wv_status wv_group_wait_view(const struct wv_group *group,
                                  uint32_t epoch,
                                  uint32_t timeout_ms)
WV_NOEXCEPT;

// Reports that this rank cannot reach `rank`, and why. Kernels do not wait for it from now on. After the error bound the pair
// parts: the QPs between the two are ended and connected anew, and neither rank is expelled.
//
// Requires:
// `why` ends with a NUL.
enum wv_status wv_group_suspect(const struct wv_group *group,
                                uint32_t rank,
                                const char *why)
WV_NOEXCEPT;

// Asks the others to go on without this rank. Waits until they do and no rank needs it any more, at most for `timeout_ms`. Another
// thread must go on making calls meanwhile. Calls of which this rank is still part lose no token, and calls after the last one
// end at once.
enum wv_status wv_group_leave(const struct wv_group *group,
                              uint32_t timeout_ms)
WV_NOEXCEPT;

// Lets `rule` place the experts in the views of a group, from wv_group_start on. Without a rule the experts stay at their ranks,
// and no rank serves those of a rank that is gone until it is back. If the answer of the rule does not fit, the group of this rank
// ends with WV_GROUP_BROKEN, and the event says why.
//
// Requires:
// `rule` is such a function, may be called in any thread with `context`, and stays until the layer is gone.
enum wv_status wv_moe_place_by(const struct wv_moe *moe,
                               wv_placement_rule rule,
                               void *context)
WV_NOEXCEPT;

// Takes the oldest event, or waits for one up to `timeout_ms` and then returns WV_TIMEOUT. Once the group of this rank is over and
// no event is left, it returns WV_EXPELLED, WV_LEFT or WV_PANIC at once. The newest 4,096 events are kept.
//
// Requires:
// `event` is a struct.
enum wv_status wv_group_next_event(const struct wv_group *group,
                                   struct wv_group_event *event,
                                   uint32_t timeout_ms)
WV_NOEXCEPT;

// Opens the HCA and starts an engine on it. Waits for no other process.
//
// Requires:
// `config` is a struct whose texts end with a NUL; `engine` is where the handle goes.
enum wv_status wv_engine_open(const struct wv_engine_config *config, struct wv_engine **engine) WV_NOEXCEPT;

// Takes no new transfer, waits for running ones (`drain_ms`), ends all connections, takes all regions away, and gives the engine
// back. After that nothing uses memory that was registered. `end`, which may be NULL, reports what was left. Waits of other
// threads for its transfers end. Handles of its peers are given back by wv_engine_peer_close, before or after. NULL is allowed.
//
// Requires:
// `end` is null or a struct.
enum wv_status wv_engine_close(struct wv_engine *engine,
                               struct wv_engine_end *end)
WV_NOEXCEPT;

// Gets the properties of an engine. Never waits.
//
// Requires:
// `info` is a struct.
enum wv_status wv_engine_get_info(const struct wv_engine *engine, struct wv_engine_info *info) WV_NOEXCEPT;

// Registers `bytes` bytes of host memory of the program, for transfers of this engine and of those peers that get a descriptor.
// Memory inside a region that is registered already shares its registration.
//
// A mapping of a file is the caller's risk: whoever truncates the file takes its pages away. Copies by the processor then fail with a
// cause. A hardware HCA goes on with pages that no file has. A driver that copies for a GPU, and the program's own loads and stores,
// end the process with SIGBUS. A memfd with F_SEAL_SHRINK, or wv_shared_memory_create, has none of this.
//
// Requires:
// The memory stays, readable and writable, until wv_engine_deregister has taken this region and all regions inside it away, or
// wv_engine_close has returned. `region` gets the number of the region, which says its engine too. No other region of this process
// ever has the same, and none has 0.
enum wv_status wv_engine_register(const struct wv_engine *engine,
                                  void *address,
                                  size_t bytes,
                                  uint64_t *region)
WV_NOEXCEPT;

// Registers `count` ranges, as wv_engine_register does, or none of them: the error says which one cannot be, from 0 on, and why.
// Ranges inside a region, or inside another of the list, share its registration. `regions` gets the number of each.
//
// Requires:
// `ranges` holds `count` of them, and the memory of each stays as for wv_engine_register; `regions` has room for `count` numbers.
enum wv_status wv_engine_register_list(const struct wv_engine *engine,
                                       const struct wv_memory_range *ranges,
                                       size_t count,
                                       uint64_t *regions)
WV_NOEXCEPT;

// Takes a region away, from peers too. WV_BUSY while transfers of this engine or grants use it. WV_BAD_HANDLE, from each function
// that takes a region: it is of another engine, was taken away before, or was never registered. Nothing was done then.
enum wv_status wv_engine_deregister(const struct wv_engine *engine,
                                    uint64_t region)
WV_NOEXCEPT;

// Gets the description of a region that a peer needs, as WV_DESCRIPTOR_BYTES bytes. The program carries it to the peer.
//
// Requires:
// `descriptor` has room for `bytes` bytes.
enum wv_status wv_engine_descriptor(const struct wv_engine *engine,
                                    uint64_t region,
                                    uint8_t *descriptor,
                                    size_t bytes)
WV_NOEXCEPT;

// Lets other engines connect at `address`, as "127.0.0.1:7000" or "unix:PATH"; port 0 takes any free port. All users of the machine
// reach a port of loopback, and only this user a Unix socket, which goes with the engine. NULL: the address of its configuration
// (WARPVERBS_ENGINE_LISTEN). `at`, which may be NULL, gets the address with its port, or with its path from the root on, with a NUL.
// The path of a Unix socket has at most 107 bytes. `bytes` is at least 64 for a port, and 128 for a Unix socket.
//
// Requires:
// `address` is null or ends with a NUL; `at` is null or has room for `bytes` bytes.
enum wv_status wv_engine_listen(const struct wv_engine *engine,
                                const char *address,
                                char *at,
                                size_t bytes)
WV_NOEXCEPT;

// Connects to the engine that listens at `at`, as "host:port" or "unix:PATH". Each step of it waits at most WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS.
//
// Requires:
// `at` ends with a NUL; `peer` is where the handle goes.
enum wv_status wv_engine_connect(const struct wv_engine *engine,
                                 const char *at,
                                 struct wv_engine_peer **peer)
WV_NOEXCEPT;

// Takes the next peer that has connected to this engine. WV_TIMEOUT: none has, for `timeout_ms`.
//
// Requires:
// `peer` is where the handle goes.
enum wv_status wv_engine_accept(const struct wv_engine *engine,
                                uint32_t timeout_ms,
                                struct wv_engine_peer **peer)
WV_NOEXCEPT;

// Gets the state of a connection. Never waits.
//
// Requires:
// `info` is a struct.
enum wv_status wv_engine_peer_get_info(const struct wv_engine_peer *peer,
                                       struct wv_engine_peer_info *info)
WV_NOEXCEPT;

// Imports a region of the peer, from the bytes of its descriptor, so that transfers can read and write it. `region`, which may be
// NULL, gets its address and length. Importing the same region again does no harm.
//
// Requires:
// `descriptor` holds `bytes` bytes; `region` is null or a struct.
enum wv_status wv_engine_import(const struct wv_engine_peer *peer,
                                const uint8_t *descriptor,
                                size_t bytes,
                                struct wv_remote_region *region)
WV_NOEXCEPT;

// Waits for the transfers of a connection (`drain_ms`), and ends it. `cut_off`, which may be NULL, gets the number of transfers
// that still ran. The handle stays.
//
// Requires:
// `cut_off` is null or a variable.
enum wv_status wv_engine_disconnect(const struct wv_engine_peer *peer,
                                    uint32_t *cut_off)
WV_NOEXCEPT;

// Gives the handle of a peer back. The connection goes on, until either engine ends it. NULL is allowed.
enum wv_status wv_engine_peer_close(struct wv_engine_peer *peer) WV_NOEXCEPT;

// Opens a store in which engines find each other: "file://DIRECTORY", "etcd://HOST:PORT/PREFIX" or "etcds://..". `run_id` separates
// runs that use the same store. NULL, for each: what WARPVERBS_STORE and WARPVERBS_RUN_ID say.
//
// Requires:
// The texts are null or end with a NUL; `names` is where the handle goes.
enum wv_status wv_engine_names_open(const char *store,
                                    const char *run_id,
                                    struct wv_engine_names **names)
WV_NOEXCEPT;

// Gives the handle back. What engines have published stays. NULL is allowed.
enum wv_status wv_engine_names_close(struct wv_engine_names *names) WV_NOEXCEPT;

// Publishes that the engine listens at `address`, under its name, until wv_engine_unpublish or wv_engine_close. `address` is one of
// this machine with its port, or a Unix socket, as wv_engine_listen gives it. WV_RANK_TAKEN: another engine has published the name. A process that is
// killed keeps its name for at most ten seconds.
//
// Requires:
// `address` ends with a NUL.
enum wv_status wv_engine_publish(const struct wv_engine *engine,
                                 const struct wv_engine_names *names,
                                 const char *address)
WV_NOEXCEPT;

// Takes the engine's name out of all stores that it was published in. Once more does no harm.
enum wv_status wv_engine_unpublish(const struct wv_engine *engine) WV_NOEXCEPT;

// Connects to the engine that has published `name`, as wv_engine_connect does. WV_PEER_NOT_CONNECTED: none has, or it does not
// answer.
//
// Requires:
// `name` ends with a NUL; `peer` is where the handle goes.
enum wv_status wv_engine_connect_by_name(const struct wv_engine *engine,
                                         const struct wv_engine_names *names,
                                         const char *name,
                                         struct wv_engine_peer **peer)
WV_NOEXCEPT;

// Makes `bytes` bytes of zeros. `address` gets the address of the first. They stay until wv_shared_memory_destroy, and as long as
// a region of them is registered.
//
// Requires:
// `memory` is where the handle goes; `address` is a variable.
enum wv_status wv_shared_memory_create(size_t bytes,
                                       struct wv_shared_memory **memory,
                                       void **address)
WV_NOEXCEPT;

// Registers the whole memory, as wv_engine_register does. `region` gets the number of the region.
//
// Requires:
// `region` is a variable.
enum wv_status wv_engine_register_shared(const struct wv_engine *engine,
                                         const struct wv_shared_memory *memory,
                                         uint64_t *region)
WV_NOEXCEPT;

// Gives the handle back. The memory goes with it, or with the last region of it. NULL is allowed.
enum wv_status wv_shared_memory_destroy(struct wv_shared_memory *memory) WV_NOEXCEPT;

// Registers `bytes` bytes of device memory at `address`, which the program has allocated on `gpu`, as wv_engine_register does with host
// memory: by its DMA-BUF on each NIC, else by its address. `gpu` is the number of a CUDA device, or "auto" or NULL for the first;
// "simt" stands for a GPU where there is none. The NIC moves such memory, or a GPU copies it to peers of this machine.
//
// Requires:
// The memory stays allocated until wv_engine_deregister has taken this region and all regions inside it away, or wv_engine_close has
// returned. `gpu` is null or ends with a NUL; `region` is where the number goes.
enum wv_status wv_engine_register_gpu(const struct wv_engine *engine,
                                      const char *gpu,
                                      uint64_t address,
                                      uint64_t bytes,
                                      uint64_t *region)
WV_NOEXCEPT;

// Registers `count` ranges of one GPU, as wv_engine_register_gpu does, or none of them: the error says which one cannot be, from 0 on,
// and why. Ranges inside a region, or inside another of the list, share its registration. `regions` gets the number of each.
//
// Requires:
// `ranges` holds `count` of them, and the memory of each stays as for wv_engine_register_gpu; `regions` has room for `count` numbers;
// `gpu` is null or ends with a NUL.
enum wv_status wv_engine_register_gpu_list(const struct wv_engine *engine,
                                           const char *gpu,
                                           const struct wv_gpu_range *ranges,
                                           size_t count,
                                           uint64_t *regions)
WV_NOEXCEPT;

// Lets the peer read or write `bytes` bytes at `address` of this side, as `rights` say, by a key of its own. The grant ends after
// `ttl_ms` (0: never), with this connection, or by wv_engine_revoke. `grant` gets WV_GRANT_BYTES bytes, which the program keeps
// and carries to the peer.
//
// Requires:
// `grant` has room for `grant_bytes` bytes.
enum wv_status wv_engine_grant(const struct wv_engine_peer *peer,
                               const void *address,
                               size_t bytes,
                               uint32_t rights,
                               uint32_t ttl_ms,
                               uint8_t *grant,
                               size_t grant_bytes)
WV_NOEXCEPT;

// Grants the whole registration behind a region, to be read and written, without a time. `grant` as for wv_engine_grant.
//
// Requires:
// `grant` has room for `grant_bytes` bytes.
enum wv_status wv_engine_export(const struct wv_engine_peer *peer,
                                uint64_t region,
                                uint8_t *grant,
                                size_t grant_bytes)
WV_NOEXCEPT;

// Ends a grant. It returns when the HCA has destroyed the key: operations that the peer begins then fail, and the memory may be
// used for something else. Ending a grant twice is no error.
//
// Requires:
// `grant` holds `bytes` bytes.
enum wv_status wv_engine_revoke(const struct wv_engine *engine,
                                const uint8_t *grant,
                                size_t bytes)
WV_NOEXCEPT;

// Imports a grant of the peer, from its bytes. `region`, which may be NULL, gets the address by which operations name it, which is
// no address of the peer's memory. Importing the same grant again does no harm.
//
// Requires:
// `grant` holds `bytes` bytes; `region` is null or a struct.
enum wv_status wv_engine_import_grant(const struct wv_engine_peer *peer,
                                      const uint8_t *grant,
                                      size_t bytes,
                                      struct wv_remote_region *region)
WV_NOEXCEPT;

// Forgets memory of the peer that begins at `address`: transfers that begin later do not reach it.
enum wv_status wv_engine_forget(const struct wv_engine_peer *peer, uint64_t address) WV_NOEXCEPT;

// As wv_engine_deregister, but waits up to `timeout_ms` for transfers and grants that use the region.
enum wv_status wv_engine_deregister_wait(const struct wv_engine *engine,
                                         uint64_t region,
                                         uint32_t timeout_ms)
WV_NOEXCEPT;

// Begins a transfer that writes `bytes` bytes from `local`, here, to `remote`, at the peer. Never waits.
//
// Requires:
// `transfer` is where its name goes. No thread writes the local bytes before the transfer is concluded.
enum wv_status wv_engine_write(const struct wv_engine_peer *peer,
                               uint64_t local,
                               uint64_t remote,
                               uint64_t bytes,
                               struct wv_transfer *transfer)
WV_NOEXCEPT;

// Begins a transfer that reads `bytes` bytes from `remote`, at the peer, to `local`, here. Never waits.
//
// Requires:
// `transfer` is where its name goes. No thread uses the local bytes before the transfer is concluded.
enum wv_status wv_engine_read(const struct wv_engine_peer *peer,
                              uint64_t local,
                              uint64_t remote,
                              uint64_t bytes,
                              struct wv_transfer *transfer)
WV_NOEXCEPT;

// Begins a transfer of `count` operations, 1 to 65,536, in no order among each other. `options` NULL: the defaults, no wait, no
// notice. WV_WOULD_BLOCK: no slot is free, or the peer has no room for the notice; nothing was posted.
//
// Requires:
// `operations` holds `count` of them; `options` is null or a struct whose notice has its bytes; `transfer` is where the name goes.
// Before the transfer is concluded, no thread uses local bytes that a READ fills, or writes those that a WRITE sends.
enum wv_status wv_engine_submit(const struct wv_engine_peer *peer,
                                const struct wv_operation *operations,
                                size_t count,
                                const struct wv_transfer_options *options,
                                struct wv_transfer *transfer)
WV_NOEXCEPT;

// Plans a transfer of `count` operations once, to be posted many times: it looks up ranges and cuts slices now. Moves no byte.
//
// Requires:
// `operations` holds `count` of them; `prepared` is where the handle goes.
enum wv_status wv_engine_prepare(const struct wv_engine_peer *peer,
                                 const struct wv_operation *operations,
                                 size_t count,
                                 struct wv_engine_prepared **prepared)
WV_NOEXCEPT;

// As wv_engine_prepare, for WRITEs that may be posted with `counts`: each is one WRITE of the HCA.
//
// Requires:
// As for wv_engine_prepare.
enum wv_status wv_engine_prepare_counting(const struct wv_engine_peer *peer,
                                          const struct wv_operation *operations,
                                          size_t count,
                                          struct wv_engine_prepared **prepared)
WV_NOEXCEPT;

// Begins a transfer that was prepared for this peer, over this connection or an earlier one to the same life of the peer. It may
// be posted again while earlier posts run. `options` as for wv_engine_submit.
//
// Requires:
// `options` is null or a struct whose notice has its bytes; `transfer` is where the name goes. Memory is used as by wv_engine_submit.
enum wv_status wv_engine_post(const struct wv_engine_peer *peer,
                              const struct wv_engine_prepared *prepared,
                              const struct wv_transfer_options *options,
                              struct wv_transfer *transfer)
WV_NOEXCEPT;

// Gives a plan back. Transfers that were posted go on. NULL is allowed.
enum wv_status wv_engine_prepared_destroy(struct wv_engine_prepared *prepared) WV_NOEXCEPT;

// Gets the state of a transfer: WV_TRANSFER_... Any number of polls return the same, until it is released. Never waits.
//
// Requires:
// `state` is a variable.
enum wv_status wv_engine_poll(const struct wv_engine *engine,
                              struct wv_transfer transfer,
                              uint32_t *state)
WV_NOEXCEPT;

// Gets the states of `count` transfers, in their order. It releases none.
//
// Requires:
// `transfers` and `states` hold `count` of them.
enum wv_status wv_engine_poll_many(const struct wv_engine *engine,
                                   const struct wv_transfer *transfers,
                                   size_t count,
                                   uint32_t *states)
WV_NOEXCEPT;

// Waits until a transfer is concluded, and says what became of it. WV_TIMEOUT: it still runs after `timeout_ms`; wv_engine_waits_for,
// wv_engine_stalled, and the words of the error, say what it waits for and whether something completes.
//
// Requires:
// `state` is a variable.
enum wv_status wv_engine_wait(const struct wv_engine *engine,
                              struct wv_transfer transfer,
                              uint32_t timeout_ms,
                              uint32_t *state)
WV_NOEXCEPT;

// Waits until one of `count` transfers is concluded or unknown; `which` gets its index. WV_TIMEOUT: all still run after
// `timeout_ms`.
//
// Requires:
// `transfers` holds `count` of them; `which` is a variable.
enum wv_status wv_engine_wait_any(const struct wv_engine *engine,
                                  const struct wv_transfer *transfers,
                                  size_t count,
                                  uint32_t timeout_ms,
                                  size_t *which)
WV_NOEXCEPT;

// Cancels a transfer: no slice of it is posted any more. It is concluded when the HCA holds none of its slices; wait for that.
enum wv_status wv_engine_cancel(const struct wv_engine *engine,
                                struct wv_transfer transfer)
WV_NOEXCEPT;

// Gets the result of a transfer that is concluded and not released; WV_BUSY if it still runs. `operations` may be NULL. It gets
// one WV_OPERATION_... byte for each operation, at most `count`.
//
// Requires:
// `report` is a struct; `operations` is null or has room for `count` bytes.
enum wv_status wv_engine_report(const struct wv_engine *engine,
                                struct wv_transfer transfer,
                                struct wv_transfer_report *report,
                                uint8_t *operations,
                                size_t count)
WV_NOEXCEPT;

// Gives the slot of a concluded transfer back; after that its name is unknown. WV_BUSY if it still runs. Releasing it twice does
// no harm.
enum wv_status wv_engine_release(const struct wv_engine *engine,
                                 struct wv_transfer transfer)
WV_NOEXCEPT;

// Sends a notice of `bytes` bytes, at most WV_NOTICE_BYTES, to the peer's program, after those sent before. It arrives once. If
// this connection ends before, it comes over a later connection of the same two lives. WV_WOULD_BLOCK: the peer's inbox had no
// room for `wait_ms`, because its program took no notice; nothing was sent.
//
// Requires:
// `notice` holds `bytes` bytes, or is null for none.
enum wv_status wv_engine_notify(const struct wv_engine_peer *peer,
                                const uint8_t *notice,
                                size_t bytes,
                                uint32_t wait_ms)
WV_NOEXCEPT;

// Takes the next notice of any peer; those of one peer come in the order in which it sent them. WV_TIMEOUT: none has come for
// `timeout_ms`. Its bytes go to `into`, which has room for `capacity` bytes, at least WV_NOTICE_BYTES, so that none is ever cut.
//
// Requires:
// `into` has room for `capacity` bytes; `notice` is a struct.
enum wv_status wv_engine_next_notice(const struct wv_engine *engine,
                                     uint32_t timeout_ms,
                                     uint8_t *into,
                                     size_t capacity,
                                     struct wv_notice *notice)
WV_NOEXCEPT;

// Gets the count of counter `id`: the number of WRITEs that have counted since it was set to 0. All bytes of these WRITEs are in
// memory (acquire). Counters exist from the start of the engine, so WRITEs that come before the first call count too. Never waits.
//
// Requires:
// `value` is a variable.
enum wv_status wv_engine_counter_read(const struct wv_engine *engine,
                                      uint32_t id,
                                      uint64_t *value)
WV_NOEXCEPT;

// Waits until counter `id` has `count` or more, for `timeout_ms` at most, else WV_TIMEOUT. In both cases `value` gets its count.
//
// Requires:
// `value` is a variable.
enum wv_status wv_engine_counter_wait(const struct wv_engine *engine,
                                      uint32_t id,
                                      uint64_t count,
                                      uint32_t timeout_ms,
                                      uint64_t *value)
WV_NOEXCEPT;

// Sets counter `id` to 0; `value` gets its count before that.
//
// Requires:
// `value` is a variable.
enum wv_status wv_engine_counter_reset(const struct wv_engine *engine,
                                       uint32_t id,
                                       uint64_t *value)
WV_NOEXCEPT;

// Gets the address of counter `id`, for kernels that wait for it by loads of system scope with acquire. The program first
// registers the memory with the driver. The address is valid until the engine is closed. All counters lie together, from the
// beginning of a page on.
//
// Requires:
// `word` is a variable.
enum wv_status wv_engine_counter_word(const struct wv_engine *engine,
                                      uint32_t id,
                                      const uint64_t **word)
WV_NOEXCEPT;

// Copies the value of counter `id` into `word`, 8 aligned bytes that this process and a kernel reach. The engine writes it now and
// at each change, until wv_mirror_destroy or the end of the engine. A kernel waits for the word by loads of system scope. When it
// has seen a value, the bytes of as many WRITEs have landed.
//
// Requires:
// `word` stays memory until the mirror is destroyed or the engine is closed; `mirror` is a variable.
enum wv_status wv_engine_counter_mirror(const struct wv_engine *engine,
                                        uint32_t id,
                                        uint64_t *word,
                                        struct wv_mirror **mirror)
WV_NOEXCEPT;

// Gives a mirror back: after this its word is not written. NULL is allowed.
enum wv_status wv_mirror_destroy(struct wv_mirror *mirror) WV_NOEXCEPT;

// Gets the counts of an engine since it was opened. Never waits.
//
// Requires:
// `statistics` is a struct.
enum wv_status wv_engine_get_statistics(const struct wv_engine *engine,
                                        struct wv_engine_statistics *statistics)
WV_NOEXCEPT;

// Gets the properties and counts of rail `rail` of an engine, below `rails` of wv_engine_info. Never waits.
//
// Requires:
// `info` is a struct.
enum wv_status wv_engine_get_rail(const struct wv_engine *engine,
                                  uint32_t rail,
                                  struct wv_rail_info *info)
WV_NOEXCEPT;

// Tells a transfer that is slow from one that is dead, after a wait for it was in vain. The answer is what its connection has in
// flight by rail `rail`, and for how long nothing has completed on that rail. `rail` is below the `rails` of wv_engine_info, or
// WV_NO_RAIL. Nothing is in flight for a transfer that is concluded. Never waits.
//
// Requires:
// `stall` is a struct.
enum wv_status wv_engine_stalled(const struct wv_engine *engine,
                                 struct wv_transfer transfer,
                                 uint32_t rail,
                                 struct wv_stall *stall)
WV_NOEXCEPT;

// What a transfer waits for at this moment, also where nothing is in flight. Never waits.
//
// Requires:
// `what` is a variable.
enum wv_status wv_engine_waits_for(const struct wv_engine *engine,
                                   struct wv_transfer transfer,
                                   uint32_t *what)
WV_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WARPVERBS_H */
