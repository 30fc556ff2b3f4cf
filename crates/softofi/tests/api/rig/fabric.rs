//! A library that is open, and a domain of it.

use std::cell::Cell;
use std::ffi::{CString, c_int};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use libfabric_abi::bindings::*;
use libfabric_abi::errors::FI_ENODATA;
use libfabric_abi::{Functions, Version, calls};
use softofi::watch::Watch;

/// Which library and provider, and how.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// softofi's configuration, or none: the installed library.
    pub(crate) config: Option<String>,
    pub(crate) provider: &'static str,
}

impl Kind {
    /// softofi with this configuration.
    pub(crate) fn soft(config: &str) -> Self {
        Self {
            config: Some(config.to_owned()),
            provider: "efa",
        }
    }

    /// Everything that bodies for any library run on.
    pub(crate) fn all() -> Vec<Self> {
        let installed = ["tcp;ofi_rxm", "shm"].map(|provider| Self {
            config: None,
            provider,
        });
        let soft = ["profile=efa-direct", "profile=efa"].map(Self::soft);
        soft.into_iter().chain(installed).collect()
    }

    fn functions(&self) -> Option<&'static Functions> {
        if self.config.is_some() {
            return Some(softofi());
        }
        static INSTALLED: OnceLock<Option<Functions>> = OnceLock::new();
        INSTALLED
            .get_or_init(|| Functions::load(Path::new("libfabric.so.1")).ok())
            .as_ref()
    }
}

/// The shared library that was linked of this crate.
pub(crate) fn softofi() -> &'static Functions {
    static SOFT: OnceLock<Functions> = OnceLock::new();
    SOFT.get_or_init(|| {
        let path = softofi::library().unwrap();
        Functions::load(&path).unwrap()
    })
}

/// A look into it.
pub(crate) fn watch() -> Watch {
    Watch::open(softofi()).unwrap()
}

/// An open domain. Dropping it closes it, which must work.
pub(crate) struct Fabric {
    pub(crate) functions: &'static Functions,
    pub(crate) info: *mut fi_info,
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    next_key: Cell<u64>,
}

impl Fabric {
    /// Of a kind that must be there.
    pub(crate) fn soft(config: &str) -> Self {
        Self::open(&Kind::soft(config)).expect("softofi has it")
    }

    /// None where the installed library is not there, or does not have the provider.
    pub(crate) fn open(kind: &Kind) -> Option<Self> {
        Self::open_with(kind, |_| ())
    }

    /// With other hints.
    pub(crate) fn open_with(kind: &Kind, change: impl FnOnce(&mut fi_info)) -> Option<Self> {
        let functions = kind.functions()?;
        Self::opened(kind, functions, Self::find(functions, kind, change))
    }

    /// By an older API.
    pub(crate) fn open_as(kind: &Kind, version: Version) -> Option<Self> {
        let functions = kind.functions()?;
        Self::opened(
            kind,
            functions,
            Self::find_as(functions, kind, version, |_| ()),
        )
    }

    fn opened(
        kind: &Kind,
        functions: &'static Functions,
        found: Result<*mut fi_info, c_int>,
    ) -> Option<Self> {
        let info = match found {
            Ok(info) => info,
            Err(error) => {
                assert_eq!(error, -FI_ENODATA, "{kind:?}: fi_getinfo");
                println!("left out: {} is not here", kind.provider);
                return None;
            }
        };
        let (mut fabric, mut domain) = (null_mut(), null_mut());
        // SAFETY: a description of the library, and places that live here.
        unsafe {
            let opened = (functions.fi_fabric)((*info).fabric_attr, &raw mut fabric, null_mut());
            assert_eq!(opened, 0, "{kind:?}: fi_fabric");
            let opened = calls::fi_domain(fabric, info, &raw mut domain, null_mut());
            assert_eq!(opened, 0, "{kind:?}: fi_domain");
        }
        Some(Self {
            functions,
            info,
            fabric,
            domain,
            next_key: Cell::new(1),
        })
    }

    /// `fi_getinfo` with hints as a program of RMA has them, changed by the test.
    pub(crate) fn find(
        functions: &Functions,
        kind: &Kind,
        change: impl FnOnce(&mut fi_info),
    ) -> Result<*mut fi_info, c_int> {
        Self::find_as(functions, kind, functions.api_version(), change)
    }

    pub(crate) fn find_as(
        functions: &Functions,
        kind: &Kind,
        version: Version,
        change: impl FnOnce(&mut fi_info),
    ) -> Result<*mut fi_info, c_int> {
        let node = kind.config.as_ref();
        let node = node.map(|config| CString::new(format!("softofi:{config}")).unwrap());
        let node = node.as_ref().map_or(null(), |node| node.as_ptr());
        let mut info = null_mut();
        // SAFETY: hints of the library, whose texts are of C's allocator; it frees them.
        let found = unsafe {
            let hints = (functions.fi_dupinfo)(null());
            (*hints).caps = FI_RMA;
            (*hints).mode = FI_CONTEXT | FI_CONTEXT2;
            (*(*hints).ep_attr).type_ = FI_EP_RDM;
            (*(*hints).domain_attr).mr_mode =
                FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
            let name = CString::new(kind.provider).unwrap();
            (*(*hints).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            change(&mut *hints);
            let found = (functions.fi_getinfo)(version.0, node, null(), 0, hints, &raw mut info);
            (functions.fi_freeinfo)(hints);
            found
        };
        if found == 0 { Ok(info) } else { Err(found) }
    }

    /// Whether registrations have a mode.
    pub(crate) fn has_mr_mode(&self, mode: c_int) -> bool {
        // SAFETY: a description of the library.
        let modes = unsafe { (*(*self.info).domain_attr).mr_mode };
        modes == FI_MR_BASIC as c_int || modes & mode != 0
    }

    pub(crate) fn next_key(&self) -> u64 {
        self.next_key.replace(self.next_key.get() + 1)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // SAFETY: opened here, and closed once.
        unsafe {
            let closed = calls::fi_close(&raw mut (*self.domain).fid);
            let ended = calls::fi_close(&raw mut (*self.fabric).fid);
            (self.functions.fi_freeinfo)(self.info);
            if !std::thread::panicking() {
                assert_eq!((closed, ended), (0, 0), "domain and fabric close");
            }
        }
    }
}
