//! A store of Python's, such as one of torch.distributed, in which a team meets.
//!
//! It is called with the GIL on the thread of Python that has made a call of this module, and on no other. A thread of the
//! library that needed the GIL would stand still while Python does something long. So it carries no leases, and no group takes
//! it.

use std::fmt;
use std::sync::Arc;

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use warpverbs::team::{BringUpStore, Records, Store, StoreError, TextMap};

use crate::interrupt;

/// The methods `check`, `get`, `set`, `compare_set`, `add` and `delete_key` of an object, as c10d stores have them.
#[derive(Debug)]
struct PythonStore {
    store: Py<PyAny>,
    name: String,
}

/// A rank's handle of a store of Python's.
pub(crate) struct Meeting {
    map: Arc<BringUpStore>,
    /// What the ranks of the run write there.
    pub(crate) records: Arc<dyn Store>,
}

impl Meeting {
    /// Ranks of the run `run_id` meet in the object `store`, which errors call `name`.
    pub(crate) fn new(store: Py<PyAny>, name: String, run_id: &str) -> Result<Self, StoreError> {
        let map = Arc::new(BringUpStore::new(Box::new(PythonStore { store, name })));
        let records = Arc::new(Records::new(Arc::<BringUpStore>::clone(&map), run_id)?);
        Ok(Self { map, records })
    }

    /// Ends the use of the store by a rank whose team of so many members it closes. With the last of them all that the team has
    /// written goes.
    ///
    /// No rank needs it any more. The place in the store is that of one team: a rank has entered it by a number that it drew from the
    /// store, and neither it nor a later process of it draws that number again. So no rank comes later, or comes back. A rank that is
    /// still joining has not been counted. One that names founders who do not name it waits for their offers in vain, so it needs no
    /// key either. A member is counted after its last call ([`BringUpStore::leave`]). One that ended without a close is never
    /// counted, and its team's keys stay.
    pub(crate) fn leave(&self, members: u32) {
        match self.map.leave(members) {
            Ok(last) => tracing::debug!("left the store of the team; the last: {last}"),
            // It may have ended with the rank that held it, and then so have the keys.
            Err(error) => tracing::debug!("what the team has written stays: {error}"),
        }
    }
}

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.map.fmt(f)
    }
}

impl PythonStore {
    fn call<T>(&self, body: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> Result<T, String> {
        if !interrupt::is_lent() {
            return Err("it belongs to Python, and a thread of the library has called it".into());
        }
        Python::attach(|py| {
            py.check_signals().map_err(interrupt::ends_with)?;
            body(self.store.bind(py)).map_err(|error| {
                if error.is_instance_of::<PyException>(py) {
                    error.to_string()
                } else {
                    interrupt::ends_with(error)
                }
            })
        })
    }
}

/// Returns what c10d returns are bytes; other maps may return text.
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

    /// A `get` of c10d waits until the key is set; none is deleted before this rank has left.
    fn get(&self, key: &str) -> Result<Option<String>, String> {
        self.call(|store| {
            let set = store.call_method1("check", (vec![key],))?;
            if set.is_truthy()? {
                Ok(Some(text(&store.call_method1("get", (key,))?)?))
            } else {
                Ok(None)
            }
        })
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        self.call(|store| store.call_method1("set", (key, value)).map(drop))
    }

    fn compare_set(&self, key: &str, expected: &str, value: &str) -> Result<String, String> {
        self.call(|store| text(&store.call_method1("compare_set", (key, expected, value))?))
    }

    fn add_one(&self, key: &str) -> Result<u64, String> {
        self.call(|store| store.call_method1("add", (key, 1))?.extract())
    }

    fn delete(&self, key: &str) -> Result<(), String> {
        self.call(|store| store.call_method1("delete_key", (key,)).map(drop))
    }
}
