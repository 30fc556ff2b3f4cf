//! `wv doctor` on machines that are there, and on trees, drivers and software HCAs that stand for others.

mod checks;
mod examined;
mod frame;
mod store;
