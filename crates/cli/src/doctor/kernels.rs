//! The kernel of the doctor, as a set.

warpverbs::kernels! {
    /// The kernel of `wv doctor`. It is a set of its own, so that the driver of a GPU compiles no other kernel in the time of a check.
    pub static KERNELS
}
