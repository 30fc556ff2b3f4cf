//! Teams and MoE layers among ranks that are threads: kernels on simt, real libmlx5, software HCAs.

mod arguments;
mod faults;
mod graphs;
mod grid;
mod ladders;
mod layers;
mod options;
mod orders;
mod team;
