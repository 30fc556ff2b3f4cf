//! The control-buffer allocator: offsets only, metadata on the host.
