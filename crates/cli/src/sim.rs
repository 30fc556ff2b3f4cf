//! `wv sim -- COMMAND`: runs a program that was built for real NICs on software HCAs.
//!
//! The program is started with `libsofthca.so` preloaded, and finds `mlx5_0` through its own libibverbs. `wv` stays as its parent, to
//! remove what it leaves. `wv` owns a private directory (`SOFTHCA_DIR`) in which each process of the program makes the sysfs tree of its
//! HCAs. `wv` removes the directory when it returns, however the program ended. If `wv` itself is killed, so is the program, and the next
//! start of `wv` removes the directory.
//!
//! The loader ignores a preloaded library for some programs (setuid, static, another architecture). Such a program would find no
//! device without a reason, so `wv` refuses it.

mod child;
mod executable;
mod findings;
mod options;
mod settings;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use thiserror::Error;

use crate::output;
use crate::signals::end_likewise;
use crate::softhca_library::{self, LibraryError};
use crate::tied;
use child::Ending;
use executable::ExecutableError;
pub use options::SimArgs;
use private_dir::{PrivateDir, PrivateDirError};
use settings::SettingsError;

/// The exit status of a run with `--check` whose checker has findings.
const FOUND: u8 = 123;

/// Why a command could not be run.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SimError(#[from] Cause);

#[derive(Debug, Error)]
enum Cause {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("the path {} holds a space or colon, which LD_PRELOAD cannot express", .path.display())]
    LibraryPath { path: PathBuf },
    #[error("{file} cannot be loaded ({}); install it: apt-get install {package}", child::loader_message(.reason))]
    Missing {
        file: &'static str,
        package: &'static str,
        reason: libloading::Error,
    },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Executable(#[from] ExecutableError),
    #[error(transparent)]
    Dir(#[from] PrivateDirError),
    #[error("cannot run {}: {source}", .command.display())]
    Run { command: PathBuf, source: io::Error },
    #[error(transparent)]
    Findings(#[from] findings::Lost),
}

impl SimError {
    /// Returns the exit status that says whose fault it was, with the values of `env(1)`.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match &self.0 {
            Cause::Executable(ExecutableError::NotFound { .. }) => 127,
            Cause::Executable(_) | Cause::Run { .. } => 126,
            _ => 125,
        }
    }
}

/// Runs the command until it ends.
///
/// If a signal ended it, the same signal ends this process, and this function does not return.
///
/// # Errors
///
/// The command could not be run.
pub fn run(args: &SimArgs) -> Result<ExitCode, SimError> {
    if args.list_capabilities {
        let library = softhca_library::find().map_err(Cause::from)?;
        let text = settings::capabilities(&library).map_err(Cause::from)?;
        return Ok(output::finish("wv sim", &text));
    }
    let ending = run_to_the_end(args)?;
    match ending {
        Ending::Exited(status) => Ok(ExitCode::from(status)),
        Ending::Signalled(signal) => end_likewise(signal),
    }
}

fn run_to_the_end(args: &SimArgs) -> Result<Ending, Cause> {
    let [name, arguments @ ..] = args.command.as_slice() else {
        return Err(ExecutableError::NotFound {
            name: OsString::new(),
        }
        .into());
    };
    let library = softhca_library::find()?;
    let preload = preload(&library, env::var_os("LD_PRELOAD").as_deref())?;
    let variables = settings::variables(args)?;
    settings::check(&library, &variables)?;
    let program = executable::resolve(name)?;
    executable::check(&program)?;
    check_packages()?;

    private_dir::sweep(&private_dir::standard_parent());
    let dir =
        Removed(PrivateDir::create(&private_dir::standard_parent().join(
            format!("s{}-{:08x}", std::process::id(), fastrand::u32(..)),
        ))?);
    let found = dir.0.path().join("findings");
    findings::begin(&found)?;
    let mut command = Command::new(&program);
    child::set_name(&mut command, name);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("SOFTHCA_DIR", dir.0.path())
        .env("SOFTHCA_FINDINGS", &found)
        .envs(variables);
    tied::tie(&mut command);
    let ending = child::run(command).map_err(|source| Cause::Run {
        command: program,
        source,
    })?;
    let Some(line) = findings::summary(&found)? else {
        return Ok(ending);
    };
    output::say(format_args!("{line}"));
    Ok(match ending {
        Ending::Exited(_) if args.check.is_some() && !args.keep_status => Ending::Exited(FOUND),
        ending => ending,
    })
}

/// Returns the `LD_PRELOAD` that gives a process of this program software HCAs of its own.
///
/// # Errors
/// The library of the software HCAs, or a library that it needs, is not there.
pub fn preload_for_ranks() -> Result<OsString, SimError> {
    let library = softhca_library::find().map_err(Cause::from)?;
    check_packages()?;
    Ok(preload(&library, env::var_os("LD_PRELOAD").as_deref())?)
}

/// A directory that is removed when this is dropped.
struct Removed(PrivateDir);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Returns the value of `LD_PRELOAD`: our library, and after it the old value.
fn preload(library: &Path, before: Option<&OsStr>) -> Result<OsString, Cause> {
    let name = library.as_os_str();
    if name
        .as_encoded_bytes()
        .iter()
        .any(|byte| b": ".contains(byte))
    {
        return Err(Cause::LibraryPath {
            path: library.to_path_buf(),
        });
    }
    let mut value = name.to_os_string();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// Checks that the libraries are here that the program needs to find any device.
fn check_packages() -> Result<(), Cause> {
    const NEEDED: [(&str, &str); 2] = [
        ("libibverbs.so.1", "libibverbs1"),
        ("libmlx5.so.1", "ibverbs-providers"),
    ];
    for (file, package) in NEEDED {
        child::can_load(file).map_err(|reason| Cause::Missing {
            file,
            package,
            reason,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_goes_before_other_preloads() {
        let preloaded = |before: &str| {
            preload(Path::new("/x/libsofthca.so"), Some(OsStr::new(before)))
                .unwrap()
                .into_string()
                .unwrap()
        };
        assert_eq!(preloaded(""), "/x/libsofthca.so");
        assert_eq!(preloaded("/a.so b.so"), "/x/libsofthca.so:/a.so b.so");
        for path in ["/my files/libsofthca.so", "/a:b/libsofthca.so"] {
            assert!(preload(Path::new(path), None).is_err(), "{path}");
        }
    }

    #[test]
    fn the_missing_package_is_named() {
        let reason = child::can_load("libdoesnotexist.so.7").unwrap_err();
        let error = SimError(Cause::Missing {
            file: "libmlx5.so.1",
            package: "ibverbs-providers",
            reason,
        });
        let text = error.to_string();
        assert!(text.starts_with("libmlx5.so.1 cannot be loaded"), "{text}");
        assert!(text.contains("No such file"), "{text}");
        assert!(
            text.ends_with("install it: apt-get install ibverbs-providers"),
            "{text}"
        );
        assert_eq!(error.exit_status(), 125);
    }
}
