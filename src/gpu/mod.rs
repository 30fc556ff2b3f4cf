//! Where kernels run: the trait `Gpu`, CUDA and simt.
