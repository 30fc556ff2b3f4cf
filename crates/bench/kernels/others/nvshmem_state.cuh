// NVSHMEM's state of a device that has one peer and no library behind it: what its headers and
// DeepEP's look up for each put. The headers declare it, this file defines it, so it is included
// once.
//
// This PE is 1 and the peer 0, on one HCA. The heap is all memory, with one key. Compile with
// NDEBUG: NVSHMEM's asserts are not part of a put.
#pragma once

#define EXTERN_CONSTANT extern __constant__
#include <nvshmem.h>
#undef EXTERN_CONSTANT
#define EXTERN_CONSTANT extern __constant__
#include <device_host_transport/nvshmem_common_ibgda.h>
#undef EXTERN_CONSTANT
#define EXTERN_CONSTANT extern __constant__
#include <non_abi/device/threadgroup/nvshmemi_common_device_defines.cuh>
#undef EXTERN_CONSTANT

#include "other.cuh"

namespace nvshmem_state {

constexpr int PEER = 0, SELF = 1;
/// What NVSHMEM calls the QP to the peer that QP 0 of a case is: lower numbers mean "any".
constexpr int FIRST = 2;
/// As many as a case has at most, 1024.
constexpr uint32_t MAX_QPS = FIRST + 1024;

__device__ nvshmemi_ibgda_device_qp_t rcs[MAX_QPS];
__device__ nvshmemi_ibgda_device_cq_t cqs[MAX_QPS];
/// Where the heaps of both lie.
__device__ void* heaps[2];

constexpr nvshmemi_ibgda_device_state_t transport() {
  nvshmemi_ibgda_device_state_t state{};
  state.num_rc_per_pe = MAX_QPS;
  state.num_requests_in_batch = 1;  // rings for each put
  state.log2_cumem_granularity = 63;
  state.num_devices_initialized = 1;
  state.nic_buf_on_gpumem = true;
  state.support_half_av_seg = true;
  for (auto& key : state.constmem.lkeys) key = {0, UINT64_MAX};
  for (auto& key : state.constmem.rkeys) key = {0, UINT64_MAX};
  state.globalmem.rcs = rcs;
  state.globalmem.cqs = cqs;
  return state;
}

constexpr nvshmemi_device_host_state_t device() {
  nvshmemi_device_host_state_t state{};
  state.mype = SELF;
  state.npes = 2;
  state.node_npes = 1;
  state.heap_size = SIZE_MAX;
  state.peer_heap_base_remote = heaps;
  return state;
}

/// Makes the QP that QP `number` of the case is.
WV_DEVICE void open(uint32_t number, wv::QpContext* context) {
  nvshmemi_ibgda_device_qp_t& qp = rcs[FIRST + number];
  nvshmemi_ibgda_device_cq_t& cq = cqs[FIRST + number];
  qp = {};
  cq = {};
  auto& indices = qp.mvars.tx_wq;
  cq.qp_type = NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC;
  cq.cqe = context->cqe;
  cq.prod_idx = &indices.prod_idx;
  cq.cons_idx = &indices.cons_idx;
  cq.resv_head = &indices.resv_head;
  cq.ready_head = &indices.ready_head;
  cq.ncqes = context->depth;
  cq.qpn = context->qpn;
  qp.qp_type = NVSHMEMI_IBGDA_DEVICE_QP_TYPE_RC;
  qp.qpn = context->qpn;
  qp.tx_wq.nwqes = static_cast<uint16_t>(context->depth);
  qp.tx_wq.wqe = context->sq;
  qp.tx_wq.dbrec = context->dbrec + 1;
  qp.tx_wq.bf = context->doorbell;
  qp.tx_wq.cq = &cq;
  qp.tx_wq.prod_idx = &indices.prod_idx;
}

}  // namespace nvshmem_state

__constant__ nvshmemi_ibgda_device_state_t nvshmemi_ibgda_device_state_d =
    nvshmem_state::transport();
__constant__ nvshmemi_device_host_state_t nvshmemi_device_state_d = nvshmem_state::device();
