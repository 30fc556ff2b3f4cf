//! Links libsoftofi.so, for tests: once for each build of the crate.
//!
//! Cargo makes a static library of the crate beside the programs of tests. `cc` makes a shared one of it, with a version script: programs
//! look symbols up by the versions that Debian's libfabric has. Rust's own shared libraries cannot carry them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The environment variable with the library that tests load instead of `libfabric.so.1`. The provider of warpverbs reads it too.
pub const LIBRARY_VARIABLE: &str = "WARPVERBS_LIBFABRIC";

/// The symbols, with the versions of libfabric 1.17. A version names the one before it, as there.
pub const VERSION_SCRIPT: &str = "\
FABRIC_1.0 { global: fi_version; fi_strerror; fi_tostr; local: *; };
FABRIC_1.1 { global: fi_fabric; } FABRIC_1.0;
FABRIC_1.2 { } FABRIC_1.1;
FABRIC_1.3 { global: fi_getinfo; fi_freeinfo; fi_dupinfo; } FABRIC_1.2;
";

/// What the linker must take out of the static library.
const SYMBOLS: [&str; 7] = [
    "fi_getinfo",
    "fi_freeinfo",
    "fi_dupinfo",
    "fi_fabric",
    "fi_version",
    "fi_strerror",
    "fi_tostr",
];

/// Why there is no library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// Cargo has not made the static library.
    #[error("there is no libsoftofi.a in {} or below deps: cargo build -p softofi", .folder.display())]
    NoArchive {
        /// Where cargo puts libraries.
        folder: PathBuf,
    },
    /// A file cannot be written or read.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Of the system.
        reason: io::Error,
    },
    /// The linker says no.
    #[error("cc cannot link libsoftofi.so: {0}")]
    Linker(String),
}

/// The path of libsoftofi.so in the target directory of the running program; it is linked if there is none, or an older one.
///
/// # Errors
///
/// [`LinkError`]: without the static library, a place to write, or a linker.
pub fn library() -> Result<PathBuf, LinkError> {
    let program = std::env::current_exe().map_err(|reason| LinkError::File {
        path: "/proc/self/exe".into(),
        reason,
    })?;
    // target/PROFILE/PROGRAM or target/PROFILE/deps/PROGRAM.
    let folder = program.parent().unwrap_or(Path::new("."));
    let folder = if folder.ends_with("deps") || folder.ends_with("examples") {
        folder.parent().unwrap_or(folder)
    } else {
        folder
    };
    library_in(folder)
}

/// The same for a folder of cargo's, `target/PROFILE`.
///
/// # Errors
///
/// As [`library`].
pub fn library_in(folder: &Path) -> Result<PathBuf, LinkError> {
    let archive = archive(folder).ok_or_else(|| LinkError::NoArchive {
        folder: folder.to_owned(),
    })?;
    let place = folder.join("softofi");
    let library = place.join("libsoftofi.so");
    let made = changed(&library);
    if made.is_some_and(|made| changed(&archive).is_none_or(|of_archive| of_archive < made)) {
        return Ok(library);
    }
    fs::create_dir_all(&place).map_err(of(&place))?;
    link(&archive, &place, &library)?;
    Ok(library)
}

/// The newest static library: cargo leaves older ones of other features beside it.
fn archive(folder: &Path) -> Option<PathBuf> {
    let entries = [folder.to_owned(), folder.join("deps")];
    let entries = entries
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let paths = entries.flatten().flatten().map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("libsoftofi") && name.ends_with(".a"))
    };
    paths.filter(is_ours).max_by_key(|path| changed(path))
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Tests of several programs link at once: each into a file of its own, which then takes the name.
fn link(archive: &Path, place: &Path, library: &Path) -> Result<(), LinkError> {
    let own = std::process::id();
    let script = place.join(format!("versions.{own}"));
    let unnamed = place.join(format!("libsoftofi.{own}.so"));
    fs::write(&script, VERSION_SCRIPT).map_err(of(&script))?;
    let undefined = SYMBOLS.map(|symbol| format!("-Wl,-u,{symbol}"));
    let output = Command::new("cc")
        .args(["-shared", "-Wl,--gc-sections", "-Wl,-soname,libsoftofi.so"])
        .arg(format!("-Wl,--version-script={}", script.display()))
        .args(undefined)
        .arg("-o")
        .args([&unnamed, archive])
        .args(["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"])
        .output()
        .map_err(|reason| LinkError::Linker(reason.to_string()))?;
    let _ = fs::remove_file(&script);
    if !output.status.success() {
        let _ = fs::remove_file(&unnamed);
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(LinkError::Linker(words.trim().to_owned()));
    }
    fs::rename(&unnamed, library).map_err(of(library))
}

fn of(path: &Path) -> impl Fn(io::Error) -> LinkError + use<> {
    let path = path.to_owned();
    move |reason| LinkError::File {
        path: path.clone(),
        reason,
    }
}
