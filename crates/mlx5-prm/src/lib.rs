//! Formats of the mlx5 programmer's reference manual: commands, contexts, WQEs, CQEs, doorbells.
