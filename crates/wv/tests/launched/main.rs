//! `wv demo --launched` and `wv doctor --launched` as launchers start them: mpirun itself, and the variables of torchrun and srun.

mod demo;
mod doctor;
mod job;
mod mistakes;
#[path = "../doctor/schema.rs"]
mod schema;
