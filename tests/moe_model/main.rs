//! Exhaustive models of signals, epochs and rejoin.
