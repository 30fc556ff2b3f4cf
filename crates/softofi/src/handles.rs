//! Which pointers are objects of this library. Each object that C has is looked up here by its address.
//!
//! What C sees of an object (`fid_ep` and others) stays where it is for the life of the process, also after `fi_close`: the inline functions
//! of the headers read its tables before they call, so a call on a closed object comes here and is reported, instead of reading memory
//! that is something else by now. That is some 100 bytes for each object.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use crate::objects::{Domain, Endpoint, Fabric, Queue, Registration, Vector};
use crate::rules::Rule;

/// What stands behind a pointer.
#[derive(Clone)]
pub(crate) enum Object {
    Fabric(Arc<Fabric>),
    Domain(Arc<Domain>),
    Vector(Arc<Vector>),
    Queue(Arc<Queue>),
    Registration(Arc<Registration>),
    Endpoint(Arc<Endpoint>),
    Closed(&'static str),
}

impl Object {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fabric(_) => Fabric::NAME,
            Self::Domain(_) => Domain::NAME,
            Self::Vector(_) => Vector::NAME,
            Self::Queue(_) => Queue::NAME,
            Self::Registration(_) => Registration::NAME,
            Self::Endpoint(_) => Endpoint::NAME,
            Self::Closed(name) => name,
        }
    }
}

/// A kind of object.
pub(crate) trait Kind: Sized {
    /// In lines of the log.
    const NAME: &'static str;
    fn of(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident $name:literal;)*) => {$(
        impl Kind for $kind {
            const NAME: &'static str = $name;
            fn of(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$kind(found) => Some(found),
                    _ => None,
                }
            }
        }
    )*};
}

kinds! {
    Fabric "fabric";
    Domain "domain";
    Vector "address vector";
    Queue "completion queue";
    Registration "registration";
    Endpoint "endpoint";
}

static HANDLES: LazyLock<RwLock<HashMap<usize, Object>>> = LazyLock::new(RwLock::default);

/// The address by which an object is known. It is a number here: only C follows it.
pub(crate) fn address<T>(pointer: *const T) -> usize {
    pointer.expose_provenance()
}

/// Gives C an object of its own: `seen` is what it sees of it.
pub(crate) fn publish<T>(seen: T, object: Object) -> *mut T {
    let pointer = Box::into_raw(Box::new(seen));
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.insert(address(pointer), object);
    pointer
}

/// The object of any kind behind a pointer.
pub(crate) fn object<T>(pointer: *const T) -> Result<Object, c_int> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    let found = handles.get(&address(pointer)).cloned();
    drop(handles);
    match found {
        Some(Object::Closed(name)) => Err(Rule::ClosedHandle.broken(format_args!("({name})"))),
        Some(object) => Ok(object),
        None => Err(Rule::UnknownHandle.broken(format_args!("({pointer:p})"))),
    }
}

/// The object of this kind behind a pointer.
pub(crate) fn find<T: Kind>(pointer: *const impl Sized) -> Result<Arc<T>, c_int> {
    let object = object(pointer)?;
    T::of(&object).cloned().ok_or_else(|| {
        let (is, wanted) = (object.name(), T::NAME);
        Rule::OtherHandle.broken(format_args!("({is}, not {wanted})"))
    })
}

/// The object of this kind behind a number that may be anything, without a report.
pub(crate) fn peek<T: Kind>(address: usize) -> Option<Arc<T>> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    T::of(handles.get(&address)?).cloned()
}

/// The object behind a pointer is closed from now on.
pub(crate) fn retire<T>(pointer: *const T) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(object) = handles.get_mut(&address(pointer)) {
        let before = std::mem::replace(object, Object::Closed(object.name()));
        drop(handles);
        drop(before);
    }
}
