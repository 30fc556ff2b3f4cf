//! How libmlx5 and libibverbs are opened, and which functions they lack.

use std::sync::OnceLock;

use super::bindings::Rdma;
use super::error::{LoadError, MissingFunction};

/// Where libmlx5 is looked for, in this order. The loader adds LD_LIBRARY_PATH and the system's directories.
const LIBRARIES: [&str; 2] = ["libmlx5.so.1", "libmlx5.so"];

/// Where libibverbs is looked for, for devices that need no libmlx5.
const VERBS_LIBRARIES: [&str; 2] = ["libibverbs.so.1", "libibverbs.so"];

/// What the functions of libmlx5 begin with.
const OF_LIBMLX5: &str = "mlx5dv_";

/// Functions without which something else works, and the releases of rdma-core that have them first.
const OPTIONAL: [(&str, u32); 8] = [
    ("ibv_reg_dmabuf_mr", 34),
    ("ibv_reg_mr_iova", 25),
    ("mlx5dv_devx_umem_reg", 21),
    ("mlx5dv_devx_umem_reg_ex", 35),
    ("mlx5dv_devx_create_event_channel", 25),
    ("mlx5dv_devx_destroy_event_channel", 25),
    ("mlx5dv_devx_subscribe_devx_event", 25),
    ("mlx5dv_devx_get_event", 25),
];

/// The error for each function of the table that the library lacks, by its name.
macro_rules! absent {
    ($table:ident, $($function:ident),+ $(,)?) => {
        [$((stringify!($function), $table.$function.as_ref().err())),+]
    };
}

impl Rdma {
    /// The functions of libibverbs and libmlx5, opened at the first call and kept for the life of the process.
    ///
    /// # Errors
    ///
    /// [`LoadError`] with everything that was tried; the same again at later calls.
    pub fn load() -> Result<&'static Self, LoadError> {
        static TABLE: OnceLock<Result<Rdma, LoadError>> = OnceLock::new();
        TABLE
            .get_or_init(|| open("libmlx5", &LIBRARIES))
            .as_ref()
            .map_err(LoadError::clone)
    }

    /// The functions of libibverbs alone, opened at the first call and kept for the life of the process. The table has no function of
    /// libmlx5.
    ///
    /// # Errors
    ///
    /// As [`Rdma::load`].
    pub(crate) fn load_verbs() -> Result<&'static Self, LoadError> {
        static TABLE: OnceLock<Result<Rdma, LoadError>> = OnceLock::new();
        TABLE
            .get_or_init(|| open("libibverbs", &VERBS_LIBRARIES))
            .as_ref()
            .map_err(LoadError::clone)
    }

    /// Returns whether the table has the functions of libmlx5.
    pub(crate) fn has_mlx5(&self) -> bool {
        self.mlx5dv_is_supported.is_ok()
    }

    fn absent(&self) -> impl Iterator<Item = (&'static str, &libloading::Error)> {
        let all = absent!(
            self,
            ibv_get_device_list,
            ibv_free_device_list,
            ibv_get_device_name,
            ibv_open_device,
            ibv_close_device,
            ibv_query_device,
            ibv_query_port,
            _ibv_query_gid_table,
            ibv_alloc_pd,
            ibv_dealloc_pd,
            ibv_reg_mr,
            ibv_reg_mr_iova,
            ibv_reg_dmabuf_mr,
            ibv_dereg_mr,
            ibv_create_ah,
            ibv_destroy_ah,
            ibv_create_comp_channel,
            ibv_destroy_comp_channel,
            ibv_create_cq,
            ibv_destroy_cq,
            ibv_get_cq_event,
            ibv_ack_cq_events,
            ibv_create_qp,
            ibv_modify_qp,
            ibv_query_qp,
            ibv_destroy_qp,
            mlx5dv_init_obj,
            mlx5dv_is_supported,
            mlx5dv_open_device,
            mlx5dv_devx_obj_create,
            mlx5dv_devx_obj_query,
            mlx5dv_devx_obj_modify,
            mlx5dv_devx_obj_destroy,
            mlx5dv_devx_general_cmd,
            mlx5dv_devx_umem_reg,
            mlx5dv_devx_umem_reg_ex,
            mlx5dv_devx_umem_dereg,
            mlx5dv_devx_alloc_uar,
            mlx5dv_devx_free_uar,
            mlx5dv_devx_query_eqn,
            mlx5dv_devx_create_event_channel,
            mlx5dv_devx_destroy_event_channel,
            mlx5dv_devx_subscribe_devx_event,
            mlx5dv_devx_get_event,
        );
        all.into_iter()
            .filter_map(|(name, error)| Some((name, error?)))
    }

    /// Refuses a function that the libraries lack.
    pub(crate) fn has(&self, function: &'static str) -> Result<(), MissingFunction> {
        let lacks = |(name, _)| name == function;
        if self.absent().any(lacks) || hidden().contains(&function) {
            Err(lacking(function))
        } else {
            Ok(())
        }
    }

    /// Returns the functions that the libraries lack and without which something else works.
    pub(crate) fn missing(&self) -> Vec<MissingFunction> {
        let lacks = |(name, _): &&(&'static str, u32)| self.has(name).is_err();
        let missing = OPTIONAL.iter().filter(lacks);
        missing.map(|(name, _)| lacking(name)).collect()
    }
}

/// Returns the error for a function that the libraries lack.
fn lacking(function: &'static str) -> MissingFunction {
    let known = OPTIONAL.iter().find(|(name, _)| *name == function);
    MissingFunction {
        function,
        release: known.map_or(0, |(_, release)| *release),
    }
}

/// Functions that tests take away.
static HIDDEN: OnceLock<Vec<&'static str>> = OnceLock::new();

fn hidden() -> &'static [&'static str] {
    HIDDEN.get().map_or(&[], Vec::as_slice)
}

/// Takes these functions away from this process for the rest of its life, as if the libraries were older. Whether it was the first
/// to do so.
pub(crate) fn hide(functions: &[&'static str]) -> bool {
    HIDDEN.set(functions.to_vec()).is_ok()
}

/// Opens the first of `files` that has all functions which are needed of `library`.
fn open(library: &'static str, files: &[&str]) -> Result<Rdma, LoadError> {
    let mut tried = Vec::new();
    let needs_mlx5 = library == "libmlx5";
    for name in files {
        // SAFETY: initialisers of libmlx5 register a provider and nothing else, and so do those of libibverbs. The table is never
        // dropped, so no function outlives its library. The types are those of the library's own headers (tests/verbs/bindings.rs).
        match unsafe { Rdma::new(name) } {
            Ok(table) => {
                let is_needed = |(name, _): &(&str, _)| {
                    let is_optional = OPTIONAL.iter().any(|(it, _)| it == name);
                    !is_optional && (needs_mlx5 || !name.starts_with(OF_LIBMLX5))
                };
                let reason = table.absent().find(is_needed);
                match reason.map(|(_, reason)| loader_message(reason)) {
                    None => return Ok(table),
                    Some(reason) => tried.push(format!("{name}: {reason}")),
                }
            }
            Err(reason) => tried.push(format!("{name}: {}", loader_message(&reason))),
        }
    }
    Err(LoadError { library, tried })
}

/// Returns what the dynamic loader said; libloading's own text is only which call failed.
fn loader_message(error: &libloading::Error) -> String {
    let said = std::error::Error::source(error);
    said.map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_every_file_and_the_package() {
        let error = open("libmlx5", &["libnothing.so.1", "/nowhere/libnothing.so"])
            .err()
            .unwrap()
            .to_string();
        for part in [
            "libnothing.so.1",
            "/nowhere/libnothing.so",
            "No such file or directory",
            "ibverbs-providers",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn a_library_without_the_functions_is_an_error_that_names_the_first_one() {
        for library in ["libmlx5", "libibverbs"] {
            let error = open(library, &["libc.so.6"]).err().unwrap().to_string();
            assert!(error.contains("ibv_get_device_list"), "{error}");
            assert!(
                error.starts_with(&format!("no usable {library} ")),
                "{error}"
            );
        }
    }

    #[test]
    fn libibverbs_alone_is_enough_for_devices_that_need_no_libmlx5() {
        let table = Rdma::load_verbs().unwrap();
        assert!(!table.has_mlx5() && Rdma::load().unwrap().has_mlx5());
        for function in ["ibv_create_qp", "ibv_reg_mr_iova", "ibv_reg_dmabuf_mr"] {
            assert_eq!(table.has(function), Ok(()));
        }
    }
}
