// Cost kernels: one put for each kind of QP.
#include "cost.cuh"

WV_COST(put_thread_cta, Cta, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_shared_no_record, SharedNoRecord, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_exclusive_no_record, ExclusiveNoRecord, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_shared_mailbox, SharedMailbox, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_shared_host, SharedHost, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_shared_wide, SharedWide, wv::put(Thread{}, qp, put, options))
WV_COST(put_thread_shared_any, SharedAny, wv::put(Thread{}, qp, put, options))
