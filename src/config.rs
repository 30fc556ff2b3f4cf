//! The one configuration struct and its `WARPVERBS_*` variables.
