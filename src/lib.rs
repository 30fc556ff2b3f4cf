//! GPU-initiated RDMA runtime with MoE dispatch and combine.
