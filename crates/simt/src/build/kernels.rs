//! A build of kernels: its sources, the library and the table that it makes of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BuildError;
use super::scan::exported_kernels;
use super::script::variable;
use super::{compiler, objects};

/// Starts a build of these sources, named relative to the package.
pub fn kernels<P: Into<PathBuf>>(sources: impl IntoIterator<Item = P>) -> Kernels {
    Kernels {
        sources: sources.into_iter().map(Into::into).collect(),
        includes: Vec::new(),
        defines: Vec::new(),
        quick: Vec::new(),
        library: "simt_kernels".to_owned(),
    }
}

/// A build of kernels; see [`kernels`].
#[derive(Clone, Debug)]
pub struct Kernels {
    sources: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    defines: Vec<(String, Option<String>)>,
    quick: Vec<PathBuf>,
    library: String,
}

impl Kernels {
    /// Adds a directory of headers.
    #[must_use]
    pub fn include(mut self, directory: impl Into<PathBuf>) -> Self {
        self.includes.push(directory.into());
        self
    }

    /// Defines a macro.
    #[must_use]
    pub fn define<'a>(mut self, name: &str, value: impl Into<Option<&'a str>>) -> Self {
        self.defines
            .push((name.to_owned(), value.into().map(str::to_owned)));
        self
    }

    /// Optimises sources whose path begins with `prefix` less. This is for big kernels that run seldom, such as tests that hold every
    /// variant of a function. It halves the time to compile them.
    #[must_use]
    pub fn quick(mut self, prefix: impl Into<PathBuf>) -> Self {
        self.quick.push(prefix.into());
        self
    }

    /// Sets the name of the static library, for packages that build several. Default: `simt_kernels`.
    #[must_use]
    pub fn library(mut self, name: &str) -> Self {
        name.clone_into(&mut self.library);
        self
    }

    /// Compiles and links the kernels and writes `$OUT_DIR/simt_kernels.rs`. On an error it reports to cargo and ends the script.
    pub fn compile(&self) {
        if let Err(error) = self.try_compile() {
            println!("cargo::error={}", error.to_string().replace('\n', " "));
            std::process::exit(1);
        }
    }

    /// As [`compile`](Self::compile), for scripts that handle errors themselves.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn try_compile(&self) -> Result<(), BuildError> {
        for path in self
            .sources
            .iter()
            .chain(&self.includes)
            .chain([&compiler::include_dir()])
        {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        let table = self.table()?;
        let out = PathBuf::from(variable("OUT_DIR")?).join("simt_kernels.rs");
        fs::write(&out, table).map_err(|source| BuildError::File { path: out, source })?;

        let mut build = compiler::for_kernels();
        build.includes(&self.includes);
        for (name, value) in &self.defines {
            build.define(name, value.as_deref());
        }
        compiler::require(&build)?;
        compiler::sanitize(&mut build)?;
        let objects = objects::compile(&build, &self.sources, &self.quick)?;
        build
            .objects(objects)
            .try_compile(&self.library)
            .map_err(|error| BuildError::Compile(error.to_string()))
    }

    /// Returns the kernels that the sources export, in their order. The entry of kernel `NAME` is the C symbol `simt_entry_NAME`.
    ///
    /// # Errors
    /// [`BuildError::File`], [`BuildError::Duplicate`], [`BuildError::NoKernels`].
    pub fn names(&self) -> Result<Vec<String>, BuildError> {
        let mut found: Vec<(String, &Path)> = Vec::new();
        for source in &self.sources {
            let text = fs::read_to_string(source).map_err(|error| BuildError::File {
                path: source.clone(),
                source: error,
            })?;
            for name in exported_kernels(&text) {
                if let Some((_, first)) = found.iter().find(|(other, _)| *other == name) {
                    return Err(BuildError::Duplicate {
                        name,
                        first: first.to_path_buf(),
                        second: source.clone(),
                    });
                }
                found.push((name, source));
            }
        }
        if found.is_empty() {
            return Err(BuildError::NoKernels {
                sources: self.sources.clone(),
            });
        }
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the text of `simt_kernels.rs`.
    fn table(&self) -> Result<String, BuildError> {
        let rows: String = self
            .names()?
            .iter()
            .map(|name| format!("    \"{name}\" = simt_entry_{name},\n"))
            .collect();
        Ok(format!("::simt::kernel_table! {{\n{rows}}}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the table of these sources, or the error with paths cut to file names.
    fn table(sources: &[&str]) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let names = (0..sources.len()).map(|i| directory.path().join(format!("{i}.cu")));
        let paths: Vec<PathBuf> = names.collect();
        for (path, text) in paths.iter().zip(sources) {
            fs::write(path, text).unwrap();
        }
        let cut = |error: BuildError| {
            error
                .to_string()
                .replace(&format!("{}/", directory.path().display()), "")
        };
        kernels(paths).table().map_err(cut)
    }

    #[test]
    fn the_table_lists_the_kernels_of_all_sources() {
        let expected =
            "::simt::kernel_table! {\n    \"a\" = simt_entry_a,\n    \"b\" = simt_entry_b,\n}\n";
        assert_eq!(
            table(&["SIMT_EXPORT(a)", "WV_EXPORT(b)"]).unwrap(),
            expected
        );
    }

    #[test]
    fn no_kernels_and_doubled_kernels_are_errors_that_name_the_sources() {
        let none = "no SIMT_EXPORT(kernel) or WV_EXPORT(kernel) in 0.cu, 1.cu";
        assert_eq!(table(&["", "// SIMT_EXPORT(a)"]).unwrap_err(), none);
        let twice = "kernel a is exported by 0.cu and by 1.cu";
        assert_eq!(
            table(&["SIMT_EXPORT(a)", "SIMT_EXPORT(a)"]).unwrap_err(),
            twice
        );
    }

    #[test]
    fn a_missing_source_is_named() {
        let error = kernels(["no/such.cu"]).table().unwrap_err().to_string();
        assert!(error.starts_with("no/such.cu: No such file"), "{error}");
    }
}
