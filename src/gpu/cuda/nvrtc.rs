//! NVIDIA's run-time compiler, opened at run time. It compiles kernels of sets without PTX, kernels for drivers that cannot read their PTX,
//! and a user's kernels from source.
//!
//! This file binds its thirteen functions by hand, because cudarc's `nvrtc` does not suffice. cudarc opens the first library that it finds
//! in a fixed list of names, once for the process. So neither `WARPVERBS_NVRTC` nor a folder of a toolkit could choose the library, and a
//! missing library or function would be a panic.

// UNSAFETY: calls of a C library that is opened by dlopen.
#![expect(unsafe_code, reason = "NVRTC, by dlopen")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use super::sources::{CudaSource, SYSTEM_HEADERS, flatten};
use crate::gpu::GpuError;

/// The variable that names the file or folder of the library. If it is set, no other place is tried.
const VARIABLE: &str = "WARPVERBS_NVRTC";
/// Names of the library for the loader, the newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
/// Folders of a toolkit that the loader does not search.
const FOLDERS: [&str; 2] = [
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
];

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

/// The functions that fetch one kind of result of a program.
#[derive(Clone, Copy)]
struct Getter {
    size: Size,
    fetch: Fetch,
}

/// The opened library. It is never unloaded.
pub(super) struct Nvrtc {
    path: String,
    /// CUDA version, `(13, 0)`.
    version: (u32, u32),
    /// Architectures that the library knows, ascending.
    architectures: Vec<u32>,
    create: Create,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    ptx: Getter,
    cubin: Getter,
    log: Getter,
}

/// The result of a compilation.
pub(super) struct Compiled {
    pub(super) ptx: String,
    /// Machine code, if the library knows the device's architecture.
    pub(super) cubin: Option<Vec<u8>>,
}

impl Nvrtc {
    /// Opens the library that `WARPVERBS_NVRTC` names, or else the newest library that is found.
    ///
    /// # Errors
    ///
    /// The places that were tried, in words.
    pub(super) fn find() -> Result<Self, String> {
        if let Some(path) = std::env::var_os(VARIABLE) {
            return Self::open(Path::new(&path)).map_err(|error| format!("{VARIABLE}: {error}"));
        }
        let folders = FOLDERS.iter().map(Path::new);
        let in_folders = folders.flat_map(|folder| NAMES.iter().map(|name| folder.join(name)));
        let mut tried = Vec::new();
        for path in NAMES.iter().map(PathBuf::from).chain(in_folders) {
            match Self::open(&path) {
                Ok(nvrtc) => return Ok(nvrtc),
                // A file that does not exist is no error. A library that exists but does not load is one.
                Err(error) if path.is_absolute() && !path.exists() => drop(error),
                Err(error) => tried.push(error),
            }
        }
        Err(format!("not found: {}", tried.join("; ")))
    }

    /// Opens the library at `path`, which is its file, its folder, or a name for the loader.
    ///
    /// # Errors
    ///
    /// The loader's message, or what the library lacks.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = if path.is_dir() {
            NAMES
                .iter()
                .map(|name| path.join(name))
                .find(|file| file.exists())
                .ok_or_else(|| format!("no libnvrtc.so in {}", path.display()))?
        } else {
            path.to_owned()
        };
        if let Some(folder) = file.parent().filter(|folder| folder.is_absolute()) {
            load_builtins(folder);
        }
        // SAFETY: NVIDIA's library; its initialisers have no demands.
        let library = unsafe { Library::open(Some(&file), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| loader_message(&error))?;
        let nvrtc = Self::bind(&library, &file.display().to_string());
        // The library stays loaded, since its functions are kept as plain pointers.
        std::mem::forget(library);
        nvrtc
    }

    fn bind(library: &Library, path: &str) -> Result<Self, String> {
        type Numbers = unsafe extern "C" fn(*mut c_int) -> c_int;
        type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        // SAFETY: the types are those of nvrtc.h, the same from CUDA 11.2 to 13.
        let (version, count, list, mut nvrtc) = unsafe {
            (
                function::<Version>(library, path, "nvrtcVersion")?,
                function::<Numbers>(library, path, "nvrtcGetNumSupportedArchs")?,
                function::<Numbers>(library, path, "nvrtcGetSupportedArchs")?,
                Self {
                    path: path.to_owned(),
                    version: (0, 0),
                    architectures: Vec::new(),
                    create: function(library, path, "nvrtcCreateProgram")?,
                    compile: function(library, path, "nvrtcCompileProgram")?,
                    destroy: function(library, path, "nvrtcDestroyProgram")?,
                    error_string: function(library, path, "nvrtcGetErrorString")?,
                    ptx: Getter {
                        size: function(library, path, "nvrtcGetPTXSize")?,
                        fetch: function(library, path, "nvrtcGetPTX")?,
                    },
                    cubin: Getter {
                        size: function(library, path, "nvrtcGetCUBINSize")?,
                        fetch: function(library, path, "nvrtcGetCUBIN")?,
                    },
                    log: Getter {
                        size: function(library, path, "nvrtcGetProgramLogSize")?,
                        fetch: function(library, path, "nvrtcGetProgramLog")?,
                    },
                },
            )
        };
        let (mut major, mut minor, mut known) = (0, 0, 0);
        // SAFETY: the integers are written during the calls.
        let asked = unsafe {
            [
                version(&raw mut major, &raw mut minor),
                count(&raw mut known),
            ]
        };
        let mut architectures = vec![0; usize::try_from(known).unwrap_or(0)];
        // SAFETY: as many integers as the library has just said.
        let listed = unsafe { list(architectures.as_mut_ptr()) };
        if asked != [0, 0] || listed != 0 {
            return Err(format!("{path} does not say what it can"));
        }
        let number = |n: c_int| u32::try_from(n).unwrap_or(0);
        nvrtc.version = (number(major), number(minor));
        nvrtc.architectures = architectures.into_iter().map(number).collect();
        nvrtc.architectures.sort_unstable();
        Ok(nvrtc)
    }

    /// Compiles `main` for a device of `arch` (90 for sm_90). The result has machine code if the library knows `arch`; else it is PTX for
    /// the newest lower architecture that the library knows.
    ///
    /// # Errors
    ///
    /// [`GpuError::Compile`] with the compiler's log.
    pub(super) fn compile(
        &self,
        main: CudaSource<'_>,
        extra: &[CudaSource<'_>],
        arch: u32,
    ) -> Result<Compiled, GpuError> {
        let failed = |log: String| GpuError::Compile {
            file: main.name.to_owned(),
            log,
        };
        let target = self
            .architectures
            .iter()
            .rev()
            .find(|known| **known <= arch);
        let target = *target.ok_or_else(|| {
            failed(format!(
                "{self} knows no architecture up to sm_{arch}: {:?}",
                self.architectures
            ))
        })?;
        self.compile_for(main, extra, target, target == arch)
    }

    /// Compiles to PTX for architecture `target`, and if `code` also to machine code.
    fn compile_for(
        &self,
        main: CudaSource<'_>,
        extra: &[CudaSource<'_>],
        target: u32,
        code: bool,
    ) -> Result<Compiled, GpuError> {
        let failed = |log: String| GpuError::Compile {
            file: main.name.to_owned(),
            log,
        };
        let options = [
            format!("-arch={}_{target}", if code { "sm" } else { "compute" }),
            "-std=c++17".to_owned(),
            // Lambdas and shims carry no annotations, so they count as device functions.
            "-default-device".to_owned(),
        ];
        let text = flatten(main, extra)?;
        let program = OwnedProgram::new(self, main.name, &text).map_err(failed)?;
        program.compile(&options).map_err(failed)?;
        let ptx = program.fetch(self.ptx).map_err(failed)?;
        let cubin = if code {
            Some(program.fetch(self.cubin).map_err(failed)?)
        } else {
            None
        };
        Ok(Compiled {
            ptx: text_of(ptx),
            cubin,
        })
    }

    /// Opens the library of the pinned wheel if that is installed, else the library that [`Nvrtc::find`] finds.
    #[cfg(test)]
    pub(super) fn for_tests() -> Result<Self, String> {
        let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/lib");
        let pythons = venv.read_dir().into_iter().flatten().flatten();
        let file = "site-packages/nvidia/cu13/lib/libnvrtc.so.13";
        let mut files = pythons.map(|python| python.path().join(file));
        match files.find(|file| file.exists()) {
            Some(file) => Self::open(&file),
            None => Self::find(),
        }
    }

    fn error(&self, call: &str, code: c_int) -> String {
        // SAFETY: the library answers any number with a static string.
        let text = unsafe { CStr::from_ptr((self.error_string)(code)) };
        format!("{call} of {self}: {}", text.to_string_lossy())
    }
}

impl fmt::Display for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}.{})", self.path, self.version.0, self.version.1)
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvrtc({self})")
    }
}

/// Loads the builtins in `folder`. libnvrtc opens its builtins by name alone, so outside the loader's path they must be loaded before.
fn load_builtins(folder: &Path) {
    let Ok(files) = folder.read_dir() else {
        return;
    };
    let is_builtins = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("libnvrtc-builtins.so")
    };
    for file in files
        .flatten()
        .filter(|file| is_builtins(&file.file_name()))
    {
        // SAFETY: NVIDIA's library; its initialisers have no demands.
        match unsafe { Library::open(Some(file.path()), RTLD_NOW | RTLD_GLOBAL) } {
            Ok(library) => std::mem::forget(library),
            // If NVRTC needs this file, its own error will say so.
            Err(error) => {
                tracing::debug!("{}: {}", file.path().display(), loader_message(&error));
            }
        }
    }
}

/// A program of NVRTC. Its drop destroys it.
struct OwnedProgram<'a> {
    nvrtc: &'a Nvrtc,
    raw: Program,
}

impl<'a> OwnedProgram<'a> {
    fn new(nvrtc: &'a Nvrtc, name: &str, text: &str) -> Result<Self, String> {
        let c_string =
            |text: &str| CString::new(text).map_err(|_| "the text holds a NUL".to_owned());
        let (name, text) = (c_string(name)?, c_string(text)?);
        let header = |(name, text): &(&str, &str)| Ok((c_string(name)?, c_string(text)?));
        let headers: Vec<_> = SYSTEM_HEADERS
            .iter()
            .map(header)
            .collect::<Result<_, String>>()?;
        let names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<_> = headers.iter().map(|(_, text)| text.as_ptr()).collect();
        let count = c_int::try_from(headers.len()).expect("a few headers");
        let mut raw = ptr::null_mut();
        // SAFETY: NUL-terminated texts and arrays of `count` of them, which the library copies; `raw` is written.
        let made = unsafe {
            (nvrtc.create)(
                &raw mut raw,
                text.as_ptr(),
                name.as_ptr(),
                count,
                texts.as_ptr(),
                names.as_ptr(),
            )
        };
        if made != 0 {
            return Err(nvrtc.error("nvrtcCreateProgram", made));
        }
        Ok(Self { nvrtc, raw })
    }

    fn compile(&self, options: &[String]) -> Result<(), String> {
        let options: Vec<_> = options
            .iter()
            .map(|option| CString::new(option.as_str()).expect("options hold no NUL"))
            .collect();
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let count = c_int::try_from(pointers.len()).expect("a few options");
        // SAFETY: the program is live; `count` NUL-terminated options that live through the call.
        let compiled = unsafe { (self.nvrtc.compile)(self.raw, count, pointers.as_ptr()) };
        if compiled == 0 {
            return Ok(());
        }
        let log = self
            .fetch(self.nvrtc.log)
            .map_or_else(|error| error, text_of);
        Err(format!(
            "{}\n{log}",
            self.nvrtc.error("nvrtcCompileProgram", compiled)
        ))
    }

    fn fetch(&self, result: Getter) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program is live; `bytes` is written.
        let asked = unsafe { (result.size)(self.raw, &raw mut bytes) };
        if asked != 0 {
            return Err(self.nvrtc.error("the size of a result", asked));
        }
        let mut out = vec![0u8; bytes];
        // SAFETY: as many bytes as the library has just said.
        let fetched = unsafe { (result.fetch)(self.raw, out.as_mut_ptr().cast()) };
        match fetched {
            0 => Ok(out),
            code => Err(self.nvrtc.error("a result", code)),
        }
    }
}

impl Drop for OwnedProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `new`, destroyed once.
        let ended = unsafe { (self.nvrtc.destroy)(&raw mut self.raw) };
        if ended != 0 {
            tracing::error!("{}", self.nvrtc.error("nvrtcDestroyProgram", ended));
        }
    }
}

/// Returns the function of this name.
///
/// # Safety
///
/// `T` is the function's type.
unsafe fn function<T: Copy>(library: &Library, path: &str, name: &str) -> Result<T, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<T>(name.as_bytes()) };
    found
        .map(|symbol| *symbol)
        .map_err(|error| format!("{path} has no {name}: {}", loader_message(&error)))
}

/// Returns file and version of the run-time compiler.
pub(in crate::gpu) fn found_nvrtc() -> Result<String, String> {
    Nvrtc::find().map(|nvrtc| nvrtc.to_string())
}

/// Returns what the dynamic loader said. libloading's own text says only which call failed.
fn loader_message(error: &libloading::Error) -> String {
    let said = std::error::Error::source(error);
    said.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns the text without the NUL that ends it.
fn text_of(bytes: Vec<u8>) -> String {
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').to_owned()
}

#[cfg(test)]
mod tests;
