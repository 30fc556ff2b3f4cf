//! A configuration of the model.

use super::left_out::AnewRule;

/// One configuration: how often each thing may happen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Number of founders that have ended at the beginning, from 0 on.
    pub gone: usize,
    /// How often a process dies.
    pub dies: u8,
    /// How often a process is cut off from the store.
    pub cuts: u8,
    /// How many of these cuts last long.
    pub long: u8,
    /// How often a rank proposes a change.
    pub changes: u8,
    /// How often the store loses everything.
    pub loses: u8,
    /// How often the store is back as it was at an earlier moment.
    pub returns: u8,
    /// How often a newcomer draws a generation.
    pub joins: u8,
    /// Rules that the ranks do not follow.
    pub left_out: &'static [AnewRule],
}
