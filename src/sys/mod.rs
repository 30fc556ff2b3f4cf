//! Bindings over verbs.h and mlx5dv.h, opened by dlopen.
