//! Dispatch and combine of MoE tokens, and their scalar reference.
