// Cost kernels: puts and what goes with them, at the scopes.
#include "cost.cuh"

namespace {

template <class T>
WV_DEVICE T held_back(T options) {
  options.more = true;
  return options;
}

}  // namespace

WV_COST(put_thread_shared, Shared, wv::put(Thread{}, qp, put, options))
WV_COST(put_warp_shared, Shared, wv::put(Warp{}, qp, put, options))
WV_COST(put_block_shared, Shared, wv::put(Block{}, qp, put, options))
WV_COST(put_thread_exclusive, Exclusive, wv::put(Thread{}, qp, put, options))
WV_COST(put_warp_exclusive, Exclusive, wv::put(Warp{}, qp, put, options))
WV_COST(put_more_thread_shared, Shared, wv::put(Thread{}, qp, put, held_back(options)))
WV_COST(put_value_thread_shared, Shared, put_value(Thread{}, qp, a.dst, a.first, options))
WV_COST(put_signal_thread_shared, Shared,
        put_signal(Thread{}, qp, put, a.signal_dst, Words{a.first, a.second}, options))
WV_COST(put_signal_thread_exclusive, Exclusive,
        put_signal(Thread{}, qp, put, a.signal_dst, Words{a.first, a.second}, options))
WV_COST(put_signal_warp_shared, Shared,
        put_signal(Warp{}, qp, put, a.signal_dst, Words{a.first, a.second}, options))
WV_COST(flush_thread_shared, Shared, flush(Thread{}, qp, a.deadline))
