//! The files in the folder of a set.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::BuildError;

/// What is in the folder of a set, sorted.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) kernels: Vec<PathBuf>,
    pub(crate) headers: Vec<PathBuf>,
    pub(crate) ptx: Vec<PathBuf>,
}

impl Files {
    /// Looks through the folder and those below it.
    ///
    /// # Errors
    ///
    /// [`BuildError::File`].
    pub(crate) fn of(folder: &Path) -> Result<Self, BuildError> {
        let mut files = Self::default();
        files.collect(folder)?;
        for list in [&mut files.kernels, &mut files.headers, &mut files.ptx] {
            list.sort();
        }
        Ok(files)
    }

    fn collect(&mut self, folder: &Path) -> Result<(), BuildError> {
        // Also new files: cargo looks at everything below.
        println!("cargo::rerun-if-changed={}", folder.display());
        let refused = |source| BuildError::File {
            path: folder.to_owned(),
            source,
        };
        for entry in fs::read_dir(folder).map_err(refused)? {
            let path = entry.map_err(refused)?.path();
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            match suffix {
                _ if path.is_dir() => self.collect(&path)?,
                Some("cu") => self.kernels.push(path),
                Some("cuh" | "h") => self.headers.push(path),
                Some("ptx") => self.ptx.push(path),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Files::of(Path::new("no/such")).unwrap_err().to_string();
        assert!(error.starts_with("no/such: "), "{error}");
    }
}
