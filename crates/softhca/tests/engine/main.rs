//! The engine and the device model: WQEs, doorbells and completions, commands, faults, the checker.

mod checker;
mod device_commands;
mod device_failure;
mod device_objects;
mod device_random;
mod doorbell_states;
mod errors;
mod express;
mod faults;
mod files;
mod gids;
mod ipv6;
mod keys;
mod mixed;
mod no_record;
mod order;
mod programs;
mod random;
mod range_keys;
mod regions;
mod services;
mod srq;
mod wire;
mod wqe_programs;
mod write;
mod xrc;
