//! Teams and MoE layers among ranks that are threads: kernels on simt, real libmlx5, software HCAs.

mod faults;
mod graphs;
mod orders;
mod team;
