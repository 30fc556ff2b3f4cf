//! A store of Python's, such as one of torch.distributed, in which a team meets.
//!
//! It is called with the GIL on the thread of Python that has made a call of this module, and on no other. A thread of the
//! library that needed the GIL would stand still while Python does something long. So it carries no leases, and no group takes
//! it.

use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warpverbs::team::{BringUpStore, Records, Store, StoreError, TextMap};

use crate::interrupt;

/// The methods `check`, `get`, `set` and `compare_set` of an object, as c10d stores have them.
#[derive(Debug)]
struct PythonStore {
    store: Py<PyAny>,
    name: String,
}

/// Ranks of the run `run_id` meet in the object `store`, which errors call `name`.
pub(crate) fn of_python(
    store: Py<PyAny>,
    name: String,
    run_id: &str,
) -> Result<Arc<dyn Store>, StoreError> {
    let map = BringUpStore::new(Box::new(PythonStore { store, name }));
    Ok(Arc::new(Records::new(Arc::new(map), run_id)?))
}

impl PythonStore {
    fn call<T>(&self, body: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        if !interrupt::is_lent() {
            return Err("it belongs to Python, and a thread of the library has called it".into());
        }
        Python::attach(|py| {
            py.check_signals().map_err(interrupt::ends_with)?;
            body(self.store.bind(py)).map_err(|error| {
                match error.is_instance_of::<PyException>(py) {
                    true => error.to_string(),
                    false => interrupt::ends_with(error),
                }
            })
        })
    }
}

/// What c10d returns are bytes; other maps may return text.
fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned()),
        Err(_) => value.extract(),
    }
}

impl TextMap for PythonStore {
    fn name(&self) -> String {
        self.name.clone()
    }

    /// A `get` of c10d waits until the key is set; keys are never deleted.
    fn get(&self, key: &str) -> Result<Option<String>, String> {
        self.call(|store| {
            let set = store.call_method1("check", (vec![key],))?;
            match set.is_truthy()? {
                true => Ok(Some(text(&store.call_method1("get", (key,))?)?)),
                false => Ok(None),
            }
        })
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        self.call(|store| store.call_method1("set", (key, value)).map(drop))
    }

    fn compare_set(&self, key: &str, expected: &str, value: &str) -> Result<String, String> {
        self.call(|store| text(&store.call_method1("compare_set", (key, expected, value))?))
    }
}
