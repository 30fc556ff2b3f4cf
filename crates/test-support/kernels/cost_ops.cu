// Cost kernels: gets, atomics, immediates, two sources.
#include <warpverbs/amo.cuh>
#include <warpverbs/get.cuh>
#include <warpverbs/imm.cuh>

#include "cost.cuh"

WV_COST(put_two_thread_shared, Shared,
        put_two(Thread{}, qp, PutTwo{a.dst, a.src, 64, {a.first, 0}, 64}, options))
WV_COST(put_imm_thread_shared, Shared,
        put_imm(Thread{}, qp, put, static_cast<uint32_t>(a.first), options))
WV_COST(put_signal_add_thread_shared, Shared,
        put_signal<SignalOp::add>(Thread{}, qp, put, a.signal_dst, a.first, options))
WV_COST(get_thread_shared, Shared, get(Thread{}, qp, Get{a.src, a.dst, a.bytes}, options))
WV_COST(amo_fetch_add_thread_shared, Shared,
        amo<AmoOp::fetch_add>(Thread{}, qp, Amo<uint64_t>{a.dst, a.first, 0, a.src}, options))
WV_COST(amo_compare_swap_thread_shared, Shared,
        amo<AmoOp::compare_swap>(Thread{}, qp, Amo<uint64_t>{a.dst, a.first, a.second, a.src},
                                 options))
WV_COST(amo_swap_thread_shared, Shared,
        amo<AmoOp::swap>(Thread{}, qp, Amo<uint64_t>{a.dst, a.first, 0, a.src}, options))
WV_COST(wait_data_thread_shared, Shared, wait_data(Thread{}, qp, {a.ticket}, a.deadline))
