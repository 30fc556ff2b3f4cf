//! How a workspace combines.

use crate::config::setters;

/// The options with which a workspace combines. By default it uses the weights of dispatch, copies rows, and scales no token.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CombineOptions {
    /// The experts write into the layer's staging memory, if the call may use it.
    pub zero_copy: bool,
    /// Every weight counts as 1.
    pub unweighted: bool,
    /// Sums of tokens that lost choices are scaled by the weights that are left.
    pub renormalise: bool,
    /// No combine follows the dispatch ([`DispatchInput::no_combine`](crate::moe::DispatchInput::no_combine)).
    pub no_combine: bool,
    /// Weights that are known only when the call is combined, `[tokens, top_k]`.
    pub weights: Option<Vec<f32>>,
}

setters! {
    CombineOptions {
        with_zero_copy(zero_copy: bool),
        with_unweighted(unweighted: bool),
        with_renormalise(renormalise: bool),
        with_no_combine(no_combine: bool),
        with_weights(weights: Option<Vec<f32>>),
    }
}
