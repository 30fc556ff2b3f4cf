//! PTX that git does not carry. It is written beside its sources before programs for users are built, with a stamp that names its sources
//! and compiler.
//!
//! Build scripts take the PTX if its stamp is of the sources at hand (`crates/warpverbs-build/src/ptx.rs`). So no program gets PTX of other
//! sources. PTX of these sources and of this compiler need not be written again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{At, Failure, Result};
use crate::kernels::{ARCHITECTURES, compile_fresh, compiler};
use crate::stamp;
use crate::tree::{PTX_WRITTEN, ends_in, files_below, fresh_folder, prepare};

/// Writes the PTX that is missing, or is of other sources or another compiler. This comes before a build for users.
pub(crate) fn write() -> Result {
    prepare("kernels")?;
    for folder in PTX_WRITTEN {
        if is_current(folder, &stamp_of(folder)?)? {
            continue;
        }
        println!("x: compiling the kernels of {folder} to PTX");
        compile(folder)?;
    }
    Ok(())
}

/// Compiles all of this PTX, whatever is there, and writes what differs.
pub(crate) fn compile_everything() -> Result {
    PTX_WRITTEN.iter().try_for_each(|folder| compile(folder))
}

/// Fails if a program lacks one of these PTX texts, which its build had to take.
pub(crate) fn check_carried(program: &Path) -> Result {
    let bytes = fs::read(program).at(program)?;
    for folder in PTX_WRITTEN {
        let ptx = ptx_of(folder);
        match first_lacking(&bytes, Path::new(&ptx))? {
            None => {}
            Some(file) => {
                let (program, file) = (program.display(), file.display());
                let text = format!(
                    "{program} has not the text of {ptx}/{file}: its sources were changed since it was compiled"
                );
                return Err(Failure::new(1, text));
            }
        }
    }
    Ok(())
}

/// Returns the first file of a folder of PTX whose text a program does not contain.
fn first_lacking(program: &[u8], ptx: &Path) -> Result<Option<PathBuf>> {
    let mut texts = contents(ptx)?;
    texts.remove(Path::new(stamp::NAME));
    let lacking = texts
        .into_iter()
        .find(|(_, text)| memchr::memmem::find(program, text).is_none());
    Ok(lacking.map(|(name, _)| name))
}

fn ptx_of(folder: &str) -> String {
    format!("{folder}/ptx")
}

/// Returns the stamp of what the sources of a folder would compile to now.
fn stamp_of(folder: &str) -> Result<String> {
    // The build scripts of these kernel sets look for headers in these folders.
    let folders = [folder, "kernels/include"].map(PathBuf::from);
    stamp::of(&compiler()?, &folders).map_err(|unreadable| {
        let text = format!("{}: {}", unreadable.path.display(), unreadable.source);
        Failure::new(1, text)
    })
}

/// Returns whether the PTX of a folder has this stamp, and exists for each kernel.
fn is_current(folder: &str, stamp: &str) -> Result<bool> {
    let ptx = PathBuf::from(ptx_of(folder));
    if fs::read_to_string(ptx.join(stamp::NAME)).ok().as_deref() != Some(stamp) {
        return Ok(false);
    }
    let kernels = files_below(folder, |path| ends_in(path, &["cu"]))?;
    let is_there = |kernel: &PathBuf| {
        let name = kernel.strip_prefix(folder).unwrap_or(kernel);
        ARCHITECTURES.iter().all(|architecture| {
            let file = ptx.join(format!("sm_{architecture}")).join(name);
            file.with_extension("ptx").is_file()
        })
    };
    Ok(kernels.iter().all(is_there))
}

/// Compiles the kernels of a folder. The stamp is taken before that. If sources change meanwhile, the stamp does not fit them, so the PTX
/// is not used.
fn compile(folder: &str) -> Result {
    let stamp = stamp_of(folder)?;
    let fresh = compile_fresh(folder)?;
    place(&fresh, Path::new(&ptx_of(folder)), &stamp)
}

/// Copies PTX to where builds look for it, the stamp last. If nothing differs, the files stay as they are, so that cargo builds nothing
/// again.
fn place(fresh: &Path, ptx: &Path, stamp: &str) -> Result {
    let made = contents(fresh)?;
    let mut wanted = made.clone();
    wanted.insert(PathBuf::from(stamp::NAME), stamp.as_bytes().to_vec());
    if ptx.is_dir() && contents(ptx)? == wanted {
        return Ok(());
    }
    fresh_folder(ptx)?;
    for (name, bytes) in made {
        let place = ptx.join(name);
        let parent = place.parent().unwrap_or(ptx);
        fs::create_dir_all(parent).at(parent)?;
        fs::write(&place, bytes).at(&place)?;
    }
    let place = ptx.join(stamp::NAME);
    fs::write(&place, stamp).at(place)
}

/// Returns the files below a folder, as their paths from there and their bytes.
fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let files = files_below(&folder.to_string_lossy(), |_| true)?;
    let read = |file: PathBuf| {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_owned();
        Ok((name, fs::read(&file).at(&file)?))
    };
    files.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;
    use crate::tree::PTX_IN_GIT;

    fn write_all(folder: &Path, files: &[&str]) {
        for file in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
    }

    #[test]
    fn ptx_is_placed_with_its_stamp_and_replaced_as_a_whole() {
        let root = tempfile::tempdir().unwrap();
        let (fresh, ptx) = (root.path().join("fresh"), root.path().join("ptx"));
        write_all(&fresh, &["sm_80/a.ptx", "sm_90/a.ptx"]);
        write_all(&ptx, &["sm_90/gone.ptx", stamp::NAME]);
        place(&fresh, &ptx, "of these").unwrap();
        let names = |folder| {
            let names = contents(folder).unwrap().into_keys();
            names
                .map(|name| name.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&ptx), ["SOURCES", "sm_80/a.ptx", "sm_90/a.ptx"]);
        let stamp = ptx.join(stamp::NAME);
        assert_eq!(fs::read_to_string(&stamp).unwrap(), "of these");
        // A folder that is written again has none of the old files.
        let kept = root.path().join("kept");
        fs::hard_link(ptx.join("sm_90/a.ptx"), &kept).unwrap();
        let is_kept = || fs::metadata(&kept).unwrap().nlink() == 2;
        place(&fresh, &ptx, "of these").unwrap();
        assert!(is_kept());
        place(&fresh, &ptx, "of others").unwrap();
        assert_eq!(fs::read_to_string(&stamp).unwrap(), "of others");
        assert!(!is_kept());
    }

    #[test]
    fn ptx_is_current_with_its_stamp_and_each_kernel_for_each_gpu() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        let name = folder.to_str().unwrap();
        write_all(folder, &["a.cu", "below/b.cu"]);
        let is_current = || is_current(name, stamp::NAME).unwrap();
        assert!(!is_current(), "no PTX");
        let files = [
            "sm_80/a.ptx",
            "sm_80/below/b.ptx",
            "sm_90/a.ptx",
            "sm_90/below/b.ptx",
        ];
        let ptx = folder.join("ptx");
        write_all(&ptx, &files);
        assert!(!is_current(), "no stamp");
        // The text of each file is its name.
        write_all(&ptx, &[stamp::NAME]);
        assert!(is_current());
        assert!(!super::is_current(name, "of other sources").unwrap());
        for file in files {
            fs::remove_file(ptx.join(file)).unwrap();
            assert!(!is_current(), "{file}");
            write_all(&ptx, &[file]);
        }
        assert!(is_current());
    }

    #[test]
    fn a_program_for_others_that_lacks_a_text_of_the_ptx_is_refused() {
        let root = tempfile::tempdir().unwrap();
        write_all(root.path(), &["sm_80/a.ptx", "sm_90/a.ptx", stamp::NAME]);
        let lacking = |program: &[u8]| first_lacking(program, root.path()).unwrap();
        assert_eq!(lacking(b"\x7fELF sm_80/a.ptx\0 sm_90/a.ptx\0"), None);
        let first = Some(PathBuf::from("sm_90/a.ptx"));
        assert_eq!(lacking(b"\x7fELF sm_80/a.ptx\0 sm_90/a.pt"), first);
    }

    #[test]
    fn git_ignores_what_is_written_and_has_the_rest() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let ignored = fs::read_to_string(root.join(".gitignore")).unwrap();
        let is_ignored = |folder: &str| {
            let line = format!("/{}/", ptx_of(folder));
            ignored.lines().any(|ignored| ignored == line)
        };
        assert!(
            PTX_WRITTEN.iter().all(|folder| is_ignored(folder)),
            "{ignored}"
        );
        assert!(
            !PTX_IN_GIT.iter().any(|folder| is_ignored(folder)),
            "{ignored}"
        );
    }
}
