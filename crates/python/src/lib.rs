//! `warpverbs._native`: the runtime as Python objects. Users import the package `warpverbs` (`python/warpverbs`), which calls
//! this module with tensors that most calls have (module `form`), or checks them itself and calls with their addresses.
//!
//! Six rules hold for every function here:
//!
//! - The GIL is released while a call launches a kernel, waits, or meets other ranks ([`pyo3::Python::detach`]). The call holds no
//!   lock of Rust when it takes the GIL again. So no thread that keeps a rank alive ever needs the GIL.
//! - A store of Python's is called on the thread that made the call of this module, and on no other (module `store`).
//! - A signal such as Ctrl-C ends every wait for other ranks at once (module `interrupt`).
//! - A process that was forked from one with a team is refused at its first call (module `origin`). Threads, registrations and QPs
//!   belong to the parent.
//! - Events of the runtime become records of Python's `logging`, on a thread of their own (module `log`).
//! - An error of the runtime becomes an exception of `warpverbs.errors` with the same text (module `error`).

// UNSAFETY: four modules open `unsafe_code`. In `call` launches read and write memory by the addresses of tensors. `dlpack` has C
// structs that other libraries read, and calls functions of theirs. In `engine` HCAs read and write buffers. `stubs` has a device that declares unsafe functions.
// PyO3 itself needs none here.

mod call;
mod config;
mod dlpack;
mod engine;
mod error;
mod form;
mod group;
mod interrupt;
mod log;
mod moe;
mod native_store;
mod origin;
mod shared_memory;
mod store;
mod stubs;
mod team;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::start();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<team::Team>()?;
    module.add_class::<moe::Moe>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<call::Event>()?;
    module.add_class::<form::Form>()?;
    module.add_class::<dlpack::Memory>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<engine::Peer>()?;
    module.add_class::<engine::Transfer>()?;
    module.add_class::<engine::Prepared>()?;
    module.add_class::<engine::Mirror>()?;
    module.add_class::<shared_memory::SharedMemory>()?;
    module.add_function(wrap_pyfunction!(moe::required_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(config::settings, module)?)?;
    module.add_function(wrap_pyfunction!(engine::engine_settings, module)?)?;
    module.add_function(wrap_pyfunction!(dlpack::read_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(stubs::team_of_stubs, module)?)?;
    module.add_function(wrap_pyfunction!(stubs::cross, module)?)?;
    module.add_function(wrap_pyfunction!(log::end_log, module)?)?;
    module.add_function(wrap_pyfunction!(log::next_events, module)?)?;
    Ok(())
}
