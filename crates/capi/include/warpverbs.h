// MoE dispatch and combine over RDMA: the C ABI of Warpverbs. Rendered from crates/capi/src; do not edit.
//
//   wv_team_open -> wv_moe_create -> wv_call_create -> { wv_dispatch -> your experts -> wv_combine } ... -> wv_report
//
// - Every function that can fail returns a wv_status. wv_last_error() then says what was wrong, with value and limit; the
//   text belongs to the calling thread and stays until its next failing call.
// - A handle is made by one function, given back to its wv_..._close or wv_..._destroy once, and may be used from any thread
//   meanwhile, except that one wv_call belongs to one stream at a time. A layer keeps its team, a call keeps its layer.
// - Arrays are device memory (on the CPU: memory of wv_device_alloc) of the shapes said below. A launch returns at once and
//   reads and writes them later: they, the call and its layer stay until the stream is past it.
// - A stream is a CUstream of the GPU's primary context, or NULL for the default stream. A stream that is being captured
//   records the launch; a graph may hold any number of calls, and be replayed any number of times.


#ifndef WARPVERBS_H
#define WARPVERBS_H

#include <stddef.h>
#include <stdint.h>
#if defined(__cplusplus) && !defined(WV_NOEXCEPT)
#define WV_NOEXCEPT noexcept
#elif !defined(WV_NOEXCEPT)
#define WV_NOEXCEPT
#endif


// Changes with every change of this header that a compiled program would notice.
#define WV_ABI_VERSION 2

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

// Flag of wv_combine_input: `y` lies in the layer's own staging memory already.
#define WV_COMBINE_ZERO_COPY 1

// Flag of wv_combine_input: every weight counts as 1.
#define WV_COMBINE_UNWEIGHTED 2

// Flag of wv_combine_output: a token that lost experts is divided by the share of its weights that is left.
#define WV_COMBINE_RENORMALISE 4

// How a function ended.
typedef enum wv_status {
    // All went well.
    WV_OK = 0,
    // An argument is null, out of its range, or too short.
    WV_BAD_ARGUMENT = 1,
    // Configuration or environment.
    WV_CONFIG = 2,
    // The HCA or its driver.
    WV_VERBS = 3,
    // The GPU.
    WV_GPU = 4,
    // Other ranks, or the meeting with them.
    WV_TEAM = 5,
    // Shape, options or arrays of a layer.
    WV_MOE = 6,
    // wv_report: a phase did not go through for every rank.
    WV_INCOMPLETE = 7,
    // The stream is not idle yet.
    WV_TIMEOUT = 8,
    // A defect of the library.
    WV_INTERNAL = 9,
} wv_status;

// The handle of one call at a time; a program with two calls open at once has two.
typedef struct wv_call wv_call;

// A layer at this rank.
typedef struct wv_moe wv_moe;

// Ranks that have found each other.
typedef struct wv_team wv_team;

// How this process takes part in a team. What is 0 or NULL is taken from the environment (WARPVERBS_*, or the variables of
// torchrun, mpirun and srun), else from the defaults; a program that sets `ranks` needs no variables. The HCA carries all
// payload; with WARPVERBS_DIRECT=1 at both, ranks of one machine load from and store to each other's memory instead.
typedef struct wv_team_config {
    // Ranks of the team. 0: rank and ranks from the environment.
    uint32_t ranks;
    // This rank, below `ranks`.
    uint32_t rank;
    // Where the ranks meet: "file://DIRECTORY".
    const char *store;
    // Tells runs apart that might meet in one store.
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
} wv_team_config;

// The shape of a layer; the same at every rank. Zeros after `max_tokens` mean BF16, by expert, sums.
typedef struct wv_moe_config {
    // BF16 elements of a token.
    uint32_t hidden;
    // Experts of all ranks together.
    uint32_t experts;
    // Experts that a token may choose.
    uint32_t top_k;
    // Most tokens that a rank dispatches in one call.
    uint32_t max_tokens;
    // What a token is made of: WV_FORMAT_...
    uint32_t format;
    // The scales of FP8: WV_SCALES_...
    uint32_t scales;
    // WV_FORMAT_OPAQUE: bytes of a token.
    uint32_t payload_bytes;
    // WV_FORMAT_OPAQUE: bytes of its scales.
    uint32_t scale_bytes;
    // How dispatch lays out what it received: WV_LAYOUT_...
    uint32_t layout;
    // What combine sends back: WV_RETURNS_...
    uint32_t returns;
    // Expert slots that each rank has room for, for placements that change. 0: as many as the first one uses.
    uint32_t local_experts;
} wv_moe_config;

// Device memory that a layer takes at each rank, in bytes.
typedef struct wv_bytes {
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

// How a call went.
typedef struct wv_call_report {
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
} wv_call_report;

// The experts in the slots of each rank. An expert may be at several ranks, of which a token's own is taken, else they take
// turns; or at none, so that choices of it are lost.
typedef struct wv_placement {
    // Slots of each rank: `[ranks]`.
    const uint32_t *counts;
    // Their experts, rank after rank; in a rank by local number.
    const uint32_t *experts;
} wv_placement;

// Who takes part, and who holds which expert, from one call on.
typedef struct wv_view {
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
    // Who holds which expert. No rank holds more than the layer has room for.
    struct wv_placement placement;
} wv_view;

// Input of a dispatch: device memory, unchanged until the stream is past the send phase. Zero what is not used.
typedef struct wv_dispatch_input {
    // Tokens `[tokens, row bytes]` in the layer's format, or BF16 that dispatch casts. 16-byte aligned.
    const void *x;
    // Their scales `[tokens, scale bytes]`: for FP8 of the caller and for opaque tokens.
    const void *x_scales;
    // Choices `[tokens, top_k]`, -1 for none.
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

// Output of a dispatch: device memory. `rows` is [local experts, ranks * max_tokens], or by rank [ranks, max_tokens].
typedef struct wv_dispatch_output {
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
    // Added to: rows of each local expert. NULL: not kept.
    uint64_t *recv_stats;
    // Added to: ns waited for each rank. NULL: not kept.
    uint64_t *wait_ns;
    // 1 for each rank whose rows are here: `[ranks]`. NULL: not told.
    uint32_t *active;
} wv_dispatch_output;

// Input of a combine: device memory.
typedef struct wv_combine_input {
    // What the experts made of `recv_x`, BF16, in the same places. 16-byte aligned.
    const void *y;
    // WV_COMBINE_ZERO_COPY | WV_COMBINE_UNWEIGHTED.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
} wv_combine_input;

// Output of a combine: device memory.
typedef struct wv_combine_output {
    // BF16 `[tokens, hidden]`. 16-byte aligned.
    void *out;
    // 1 for each token all of whose experts contributed: `[tokens]`.
    uint8_t *token_valid;
    // Weights `[tokens, top_k]` in a layer that returns every expert's row. NULL: those of dispatch.
    const float *weights;
    // Added to: ns waited for each rank. NULL: not kept.
    uint64_t *wait_ns;
    // 1 for each rank whose rows were added: `[ranks]`. NULL: not told.
    uint32_t *active;
    // WV_COMBINE_RENORMALISE.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
} wv_combine_output;

// Memory that combine sends from. It has the shape of `y`.
typedef struct wv_staging {
    // Device address.
    void *address;
    // Local experts, where rows lie by expert; else ranks.
    uint64_t blocks;
    // Rows of a block, of which the first `counts[block]` are sent.
    uint64_t rows;
    // Bytes of a row: `hidden` BF16.
    uint64_t row_bytes;
} wv_staging;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What the last failing call of this thread said; an empty text if none has failed. Stays until the next one fails.
const char *wv_last_error(void)
WV_NOEXCEPT;

// WV_ABI_VERSION of the library that runs, to be compared with that of the header.
uint32_t wv_abi_version(void) WV_NOEXCEPT;

// Opens HCA and GPU and meets the other ranks. Collective. `config` NULL: all from the environment.
//
// Requires:
// `config` is null or a struct whose texts end with a NUL; `team` is where the handle goes.
enum wv_status wv_team_open(const struct wv_team_config *config, struct wv_team **team) WV_NOEXCEPT;

// Gives a team back, and the device memory that is still allocated. NULL is allowed.
//
// Requires:
// `team` is null or of `wv_team_open` and used no more; no kernel uses its memory.
enum wv_status wv_team_close(struct wv_team *team) WV_NOEXCEPT;

// This rank and the number of ranks. Either may be NULL.
//
// Requires:
// `team` is a live handle; the others are null or variables.
enum wv_status wv_team_rank(const struct wv_team *team, uint32_t *rank, uint32_t *ranks) WV_NOEXCEPT;

// Waits until all ranks have come here with the same `name`, which is used once. Host only: streams go on.
//
// Requires:
// `team` is a live handle, `name` ends with a NUL.
enum wv_status wv_team_barrier(const struct wv_team *team, const char *name) WV_NOEXCEPT;

// Waits until everything in `stream` has ended, at most `timeout_ms`: WV_TIMEOUT if it has not. For programs without the
// CUDA runtime.
//
// Requires:
// `team` is a live handle, `stream` a stream of its device or null.
enum wv_status wv_stream_synchronize(const struct wv_team *team,
                                     void *stream,
                                     uint32_t timeout_ms)
WV_NOEXCEPT;

// Allocates device memory, aligned for any array of this header and filled with zeros. A GPU program may use its own
// allocator instead.
//
// Requires:
// `team` is a live handle, `address` where the address goes.
enum wv_status wv_device_alloc(const struct wv_team *team,
                               size_t bytes,
                               void **address)
WV_NOEXCEPT;

// Gives memory of `wv_device_alloc` back. NULL is allowed.
//
// Requires:
// `team` is a live handle; no kernel uses the memory.
enum wv_status wv_device_free(const struct wv_team *team, void *address) WV_NOEXCEPT;

// Copies `bytes` from the host to device memory of `wv_device_alloc`. Does not wait for streams.
//
// Requires:
// `team` is a live handle; `from` holds `bytes` bytes; no kernel uses the memory.
enum wv_status wv_device_write(const struct wv_team *team,
                               void *to,
                               const void *from,
                               size_t bytes)
WV_NOEXCEPT;

// Copies `bytes` of device memory of `wv_device_alloc` to the host. Does not wait for streams.
//
// Requires:
// `team` is a live handle; `to` has room for `bytes` bytes.
enum wv_status wv_device_read(const struct wv_team *team,
                              void *to,
                              const void *from,
                              size_t bytes)
WV_NOEXCEPT;

// What a layer of this shape takes at each of `ranks`, without making anything.
//
// Requires:
// `config` is a struct, `bytes` where the answer goes.
enum wv_status wv_required_bytes(const struct wv_moe_config *config,
                                 uint32_t ranks,
                                 struct wv_bytes *bytes)
WV_NOEXCEPT;

// Makes a layer, its experts in contiguous blocks over the ranks. Collective: `name` is used once, and all ranks make their
// layers in the same order.
//
// Requires:
// `team` is a live handle, `name` ends with a NUL, `config` is a struct, `moe` where the handle goes.
enum wv_status wv_moe_create(const struct wv_team *team,
                             const char *name,
                             const struct wv_moe_config *config,
                             struct wv_moe **moe)
WV_NOEXCEPT;

// Gives a layer back. NULL is allowed. Its memory goes with its last call.
//
// Requires:
// `moe` is null or of `wv_moe_create` and used no more; no kernel of it runs.
enum wv_status wv_moe_destroy(struct wv_moe *moe) WV_NOEXCEPT;

// The experts of this rank in the newest view, in the order of their local numbers: up to `room` of them go to `experts`, which
// may be NULL if `room` is 0; `count` says how many there are.
//
// Requires:
// `moe` is a live handle, `experts` has room for `room` numbers, `count` is where the answer goes.
enum wv_status wv_moe_local_experts(const struct wv_moe *moe,
                                    uint32_t *experts,
                                    uint32_t room,
                                    uint32_t *count)
WV_NOEXCEPT;

// Makes a handle.
//
// Requires:
// `moe` is a live handle, `call` where the new one goes.
enum wv_status wv_call_create(const struct wv_moe *moe, struct wv_call **call) WV_NOEXCEPT;

// Gives a handle back. NULL is allowed.
//
// Requires:
// `call` is null or of `wv_call_create` and used no more; no kernel or graph uses it.
enum wv_status wv_call_destroy(struct wv_call *call) WV_NOEXCEPT;

// How the call went so far; the phases that are asked about have ended. WV_INCOMPLETE if something is missing: the report is
// then filled in all the same, and wv_last_error() says what happened with which rank.
//
// Requires:
// `call` is a live handle, `report` where the answer goes.
enum wv_status wv_report(const struct wv_call *call,
                         struct wv_call_report *report)
WV_NOEXCEPT;

// As wv_moe_create, with the experts where `placement` says. All ranks give the same.
//
// Requires:
// As wv_moe_create; `placement` is a struct with the arrays that it says.
enum wv_status wv_moe_create_placed(const struct wv_team *team,
                                    const char *name,
                                    const struct wv_moe_config *config,
                                    const struct wv_placement *placement,
                                    struct wv_moe **moe)
WV_NOEXCEPT;

// Makes `view` that of all calls from `view.first` on; calls before it end in the view that they have. All ranks set the same,
// and none launches call `view.first` before all have. A layer keeps two views: this waits up to `timeout_ms` until no call
// needs the older one.
//
// Requires:
// `moe` is a live handle, `view` a struct with the arrays that it says.
enum wv_status wv_moe_set_view(const struct wv_moe *moe,
                               const struct wv_view *view,
                               uint32_t timeout_ms)
WV_NOEXCEPT;

// Launches the send phase of dispatch: takes the number of the call and sends the tokens. All ranks launch the same phases
// in the same order, each phase of a call once and in turn.
//
// Requires:
// `call` is a live handle, `input` a struct whose arrays are as said there, `stream` a stream of the GPU or null.
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

// Launches the send phase of combine: adds up what the experts made of each token and sends it back.
//
// Requires:
// As wv_dispatch_send, with the arrays of `input`.
enum wv_status wv_combine_send(const struct wv_call *call,
                               const struct wv_combine_input *input,
                               void *stream)
WV_NOEXCEPT;

// Launches the receive phase of combine: waits for every rank and adds up what came back.
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

// Where the experts of a call may write what its combine sends with WV_COMBINE_ZERO_COPY: from the end of the receive phase of
// its dispatch to that of the send phase of its combine, and at no other time. `set` is the number of the call modulo 2
// (wv_call_report.call). The addresses stay the same while the layer lives. Refused for a layer that adds up itself: by expert,
// with WV_RETURNS_SUMS.
//
// Requires:
// `moe` is a live handle, `staging` where the answer goes.
enum wv_status wv_combine_staging(const struct wv_moe *moe,
                                  uint32_t set,
                                  struct wv_staging *staging)
WV_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* WARPVERBS_H */
