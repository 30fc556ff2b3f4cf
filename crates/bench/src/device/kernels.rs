//! The kernels that measure, as a set.

warpverbs::kernels! {
    /// The kernels that measure.
    pub static KERNELS
}
