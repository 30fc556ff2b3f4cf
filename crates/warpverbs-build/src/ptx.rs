//! Which PTX a set gets: that of all its kernels, or none and the reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::BuildError;
use crate::files::Files;
use crate::stamp;

/// The folder of PTX, below that of the set.
const FOLDER: &str = "ptx";

/// The PTX of a set.
#[derive(Debug, Default)]
pub(crate) struct Ptx {
    pub(crate) folder: PathBuf,
    pub(crate) files: Vec<PathBuf>,
    /// Why the set has none; empty if it has.
    pub(crate) lack: String,
    /// The PTX in the folder is not taken.
    is_refused: bool,
}

impl Ptx {
    /// PTX that is kept beside the sources in `folder`.
    pub(crate) fn kept(folder: &Path, files: &Files) -> Result<Self, BuildError> {
        let ptx = folder.join(FOLDER);
        if files.ptx.is_empty() {
            let lack = format!("there is no PTX in {}", ptx.display());
            return Ok(Self::none(ptx, lack));
        }
        Self::whole(folder, files)
    }

    /// PTX that `command` has written, if it is of the sources in `folders`, the first of which is that of the set.
    pub(crate) fn written(
        folders: &[PathBuf],
        files: &Files,
        command: &str,
    ) -> Result<Self, BuildError> {
        let ptx = folders[0].join(FOLDER);
        let stamp = ptx.join(stamp::NAME);
        let old = match fs::read_to_string(&stamp) {
            Ok(old) => Some(old),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => {
                return Err(BuildError::File {
                    path: stamp,
                    source,
                });
            }
        };
        let new = stamp::of("", folders)?;
        let wrong = match old {
            None if files.ptx.is_empty() => {
                let lack = format!(
                    "there is no PTX in {}; `{command}` writes it, before the build",
                    ptx.display()
                );
                return Ok(Self::none(ptx, lack));
            }
            None => Some("is not whole".to_owned()),
            Some(_) if files.ptx.is_empty() => Some("is gone".to_owned()),
            Some(old) => {
                difference(&old, &new).map(|file| format!("was compiled of another {file}"))
            }
        };
        let Some(wrong) = wrong else {
            return Self::whole(&folders[0], files);
        };
        let lack = format!(
            "the PTX in {} {wrong}; `{command}` writes it anew, before the build",
            ptx.display()
        );
        Ok(Self {
            is_refused: true,
            ..Self::none(ptx, lack)
        })
    }

    fn none(folder: PathBuf, lack: String) -> Self {
        Self {
            folder,
            lack,
            ..Self::default()
        }
    }

    /// Fails if an architecture has PTX of some kernels and not of all.
    fn whole(folder: &Path, files: &Files) -> Result<Self, BuildError> {
        let ptx = folder.join(FOLDER);
        let architectures = files.ptx.iter().map(|file| architecture(file, &ptx));
        let architectures: BTreeSet<u32> = architectures
            .map(|found| Ok(found?.0))
            .collect::<Result<_, BuildError>>()?;
        for architecture in architectures {
            for kernel in &files.kernels {
                let name = kernel.strip_prefix(folder).unwrap_or(kernel);
                let place = ptx.join(format!("sm_{architecture}")).join(name);
                let missing = place.with_extension("ptx");
                if !files.ptx.contains(&missing) {
                    return Err(BuildError::PartOfPtx { missing });
                }
            }
        }
        Ok(Self {
            folder: ptx,
            files: files.ptx.clone(),
            ..Self::default()
        })
    }

    /// What cargo is to say: there is PTX, and the set does not get it.
    pub(crate) fn warning(&self) -> Option<String> {
        let effect =
            "programs of this build have these kernels without PTX, and need NVRTC on a GPU";
        self.is_refused.then(|| format!("{}: {effect}", self.lack))
    }
}

/// The first file that the stamps `old` and `new` tell differently. None: they are of equal sources, whatever compiled them.
fn difference<'a>(old: &'a str, new: &'a str) -> Option<&'a str> {
    let files = |stamp: &'a str| stamp.lines().skip(1).collect::<Vec<_>>();
    let (old, new) = (files(old), files(new));
    let changed = new.iter().find(|line| !old.contains(line));
    let line = changed.or_else(|| old.iter().find(|line| !new.contains(line)))?;
    Some(line.split_once(' ').map_or(line, |(_, name)| name))
}

/// `90` and `sm_90/bench/post.ptx`.
pub(crate) fn architecture(file: &Path, folder: &Path) -> Result<(u32, String), BuildError> {
    let parsed = || {
        let path = file.strip_prefix(folder).ok()?;
        let arch = path.iter().next()?.to_str()?.strip_prefix("sm_")?;
        Some((arch.parse().ok()?, path.to_str()?.to_owned()))
    };
    parsed().ok_or_else(|| BuildError::NoArchitecture {
        path: file.to_owned(),
        folder: folder.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// The kernels a and b with a header, and a device library.
    struct Tree(TempDir);

    impl Tree {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for file in ["set/a.cu", "set/b.cu", "set/own.cuh", "library/put.cuh"] {
                tree.write(file, file);
            }
            tree
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn remove(&self, name: &str) {
            fs::remove_file(self.0.path().join(name)).unwrap();
        }

        /// As the command writes it, with the stamp of these sources.
        fn write_ptx(&self) {
            for architecture in [80, 90] {
                for kernel in ["a", "b"] {
                    self.write(&format!("set/ptx/sm_{architecture}/{kernel}.ptx"), "ret;");
                }
            }
            let stamp = stamp::of("nvcc", &self.folders()).unwrap();
            self.write("set/ptx/SOURCES", &stamp);
        }

        fn folders(&self) -> [PathBuf; 2] {
            ["set", "library"].map(|name| self.0.path().join(name))
        }

        fn written(&self) -> Result<Ptx, String> {
            let folders = self.folders();
            let files = Files::of(&folders[0]).unwrap();
            let cut = |text: String| text.replace(&format!("{}/", self.0.path().display()), "");
            let ptx = Ptx::written(&folders, &files, "./x kernels");
            let ptx = ptx.map_err(|error| cut(error.to_string()))?;
            let lack = cut(ptx.lack);
            Ok(Ptx { lack, ..ptx })
        }
    }

    #[test]
    fn written_ptx_is_taken_if_it_is_of_these_sources_and_this_library() {
        let tree = Tree::new();
        tree.write_ptx();
        let ptx = tree.written().unwrap();
        assert_eq!((ptx.files.len(), ptx.lack.as_str()), (4, ""));
        assert_eq!(ptx.warning(), None);
    }

    #[test]
    fn without_written_ptx_a_set_says_what_writes_it_and_cargo_is_silent() {
        let ptx = Tree::new().written().unwrap();
        let told = "there is no PTX in set/ptx; `./x kernels` writes it, before the build";
        assert_eq!((ptx.files.len(), ptx.lack.as_str()), (0, told));
        assert_eq!(ptx.warning(), None);
    }

    #[test]
    fn ptx_of_other_sources_is_refused_by_the_name_of_one_and_cargo_warns() {
        for (file, name) in [
            ("set/b.cu", "b.cu"),
            ("set/own.cuh", "own.cuh"),
            ("set/new.h", "new.h"),
            ("library/put.cuh", "put.cuh"),
        ] {
            let tree = Tree::new();
            tree.write_ptx();
            tree.write(file, "changed");
            let ptx = tree.written().unwrap();
            let told = format!(
                "the PTX in set/ptx was compiled of another {name}; `./x kernels` writes it anew, before the build"
            );
            assert_eq!((ptx.files.len(), ptx.lack.as_str()), (0, told.as_str()));
            assert!(ptx.warning().unwrap().contains("need NVRTC"));
        }
    }

    #[test]
    fn stamps_differ_by_files_changed_new_or_gone_and_not_by_the_compiler() {
        let old = "nvcc 13\n01 a.cu\n02 b.cuh\n";
        assert_eq!(difference(old, "nvcc 14\n01 a.cu\n02 b.cuh\n"), None);
        let changed = "nvcc 13\n01 a.cu\n03 b.cuh\n";
        assert_eq!(difference(old, changed), Some("b.cuh"));
        let gone = "nvcc 13\n01 a.cu\n";
        assert_eq!(difference(old, gone), Some("b.cuh"));
        assert_eq!(difference(gone, old), Some("b.cuh"));
        assert_eq!(difference("", old), Some("a.cu"));
    }

    #[test]
    fn ptx_of_a_command_that_was_interrupted_is_not_taken() {
        let tree = Tree::new();
        tree.write_ptx();
        tree.remove("set/ptx/SOURCES");
        let ptx = tree.written().unwrap();
        assert!(ptx.files.is_empty() && ptx.lack.contains("is not whole"));
        assert!(ptx.warning().is_some());
    }

    #[test]
    fn ptx_of_some_kernels_of_a_set_is_refused() {
        let tree = Tree::new();
        tree.write_ptx();
        tree.remove("set/ptx/sm_90/b.ptx");
        let told = "there is no set/ptx/sm_90/b.ptx, and PTX of other kernels of the set: make all of it, or remove the folder";
        assert_eq!(tree.written().unwrap_err(), told);
        let folder = tree.0.path().join("set");
        let files = Files::of(&folder).unwrap();
        let kept = Ptx::kept(&folder, &files).unwrap_err().to_string();
        assert!(kept.ends_with(&told["there is no ".len()..]), "{kept}");
    }

    #[test]
    fn ptx_outside_of_an_architecture_is_refused_by_name() {
        let folder = Path::new("kernels/ptx");
        for path in [
            "kernels/ptx/a.ptx",
            "kernels/ptx/sm_x/a.ptx",
            "kernels/a.ptx",
        ] {
            let error = architecture(Path::new(path), folder).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{path} is not below kernels/ptx/sm_NN")
            );
        }
    }
}
