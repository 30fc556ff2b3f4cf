//! A model of what a rejoin must do with words, credits and slots.
//!
//! The model has a survivor S and one peer slot: generation A (epoch 1) is dropped, and B joins (epoch 2, from call `first`). There is
//! dispatch only, with two sets and a QP for each set. A runs at any speed and gives up freely, so it may be far ahead, and its packets may
//! be late. S runs calls of the old epoch, fences A, commits, finishes all old calls, clears what A left, and connects B. In epoch 2 both
//! send the next dispatch before they receive the present one, and send credits after each release. No rank may be stuck (rules J1 to J3).

mod configuration;
mod state;
mod steps;

pub use configuration::{Mutant, Rejoin};
