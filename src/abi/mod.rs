//! Structs that host and kernels share: the one definition, rendered to `kernels/include/warpverbs/abi.h`.
