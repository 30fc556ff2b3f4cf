//! Ranks, windows, the peer table in device memory, the rendezvous store.
