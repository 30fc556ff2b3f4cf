//! `wv doctor` on the machine of the test, and on trees, drivers and software HCAs that stand for other machines.

mod checks;
mod examined;
mod frame;
mod schema;
mod store;
