//! The search for `libsofthca.so`, the software HCA that `wv` preloads into other programs.

use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

const FILE: &str = "libsofthca.so";
const VARIABLE: &str = "WARPVERBS_SOFTHCA";

/// Why the library was not found.
#[derive(Debug, Error)]
pub(crate) enum LibraryError {
    /// The variable names something that is not the library.
    #[error("WARPVERBS_SOFTHCA={} is no file", .path.display())]
    Given {
        /// The path that the variable names.
        path: PathBuf,
    },
    /// The library is in none of its places.
    #[error("{FILE} was not found: WARPVERBS_SOFTHCA is not set, and it is not at {}", List(.tried))]
    NotFound {
        /// The places where it was looked for.
        tried: Vec<PathBuf>,
    },
    /// The directory of `wv` itself is unknown.
    #[error("cannot find out where wv itself is: {0}")]
    Myself(#[source] io::Error),
}

/// Returns the absolute path of the library.
///
/// The path is that of `WARPVERBS_SOFTHCA`, if it is set. Else it is the first of these that exists: beside `wv`, in `deps/` beside it
/// (where cargo puts the library), in `../lib/warpverbs/` (where the library is installed).
///
/// # Errors
///
/// The library does not exist; the error names all places.
pub(crate) fn find() -> Result<PathBuf, LibraryError> {
    let given = env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let wv = env::current_exe().map_err(LibraryError::Myself)?;
    find_from(given.map(PathBuf::from), &wv)
}

fn find_from(given: Option<PathBuf>, wv: &Path) -> Result<PathBuf, LibraryError> {
    if let Some(path) = given {
        return match path.canonicalize() {
            Ok(found) if found.is_file() => Ok(found),
            _ => Err(LibraryError::Given { path }),
        };
    }
    let beside = wv.parent().unwrap_or(Path::new("/"));
    let tried = vec![
        beside.join(FILE),
        beside.join("deps").join(FILE),
        beside.join("../lib/warpverbs").join(FILE),
    ];
    match tried.iter().find(|path| path.is_file()) {
        // `..` is removed from the path, so that the path stays right for a process that sees links differently.
        Some(found) => Ok(found.canonicalize().unwrap_or_else(|_| found.clone())),
        None => Err(LibraryError::NotFound { tried }),
    }
}

/// Paths that are printed as in a sentence: `a, b or c`.
struct List<'a>(&'a [PathBuf]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            let before = match index {
                0 => "",
                _ if index + 1 == self.0.len() => " or ",
                _ => ", ",
            };
            write!(f, "{before}{}", path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_places_are_tried_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let wv = root.join("bin/wv");
        fs::create_dir_all(root.join("bin/deps")).unwrap();
        fs::create_dir_all(root.join("lib/warpverbs")).unwrap();
        // Files are made from the last place to the first. Each new file is found instead of the one before.
        for place in [
            "lib/warpverbs/libsofthca.so",
            "bin/deps/libsofthca.so",
            "bin/libsofthca.so",
        ] {
            fs::write(root.join(place), "").unwrap();
            assert_eq!(find_from(None, &wv).unwrap(), root.join(place));
        }
        let given = root.join("mine.so");
        fs::write(&given, "").unwrap();
        assert_eq!(find_from(Some(given.clone()), &wv).unwrap(), given);
    }

    #[test]
    fn the_error_names_all_four_places() {
        let error = find_from(None, Path::new("/nowhere/bin/wv")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "libsofthca.so was not found: WARPVERBS_SOFTHCA is not set, and it is not at \
             /nowhere/bin/libsofthca.so, /nowhere/bin/deps/libsofthca.so or \
             /nowhere/bin/../lib/warpverbs/libsofthca.so"
        );
    }

    #[test]
    fn a_variable_that_names_no_file_is_an_error_and_not_passed_over() {
        let error = find_from(Some("/nowhere/x.so".into()), Path::new("/bin/wv")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "WARPVERBS_SOFTHCA=/nowhere/x.so is no file"
        );
    }
}
