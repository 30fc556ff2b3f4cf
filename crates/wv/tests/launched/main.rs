//! Commands as launchers start them: the variables of torchrun and srun.

mod doctor;
mod job;
