//! Objects of an earlier build. A source is compiled again only if it, a header that it includes, or the command has changed.
//!
//! Beside each object is a record: the command, the path of the object, and the files that the compiler has read (`-MD`). Without it cargo,
//! which runs a build script as a whole or not at all, would compile all of the many kernels.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::error::BuildError;

/// Compiles `source`, unless the object of an earlier build is current.
pub(super) fn object(
    build: &cc::Build,
    source: &Path,
    out: &Path,
) -> Result<Vec<PathBuf>, BuildError> {
    let failed = |error: cc::Error| BuildError::Compile(error.to_string());
    let command = format!(
        "{:?} {source:?}",
        build.try_get_compiler().map_err(failed)?.to_command()
    );
    let mut hash = DefaultHasher::new();
    source.hash(&mut hash);
    let dependencies = out.join(format!("{:016x}.d", hash.finish()));
    let record = dependencies.with_extension("made");
    if let Some(object) = current(&record, &dependencies, &command) {
        return Ok(vec![object]);
    }
    let _ = fs::remove_file(&record);
    let objects = build
        .clone()
        .file(source)
        .flag("-MD")
        .flag("-MF")
        .flag(&dependencies)
        .try_compile_intermediates()
        .map_err(failed)?;
    if let [object] = &objects[..] {
        let text = format!("{}\n{command}", object.display());
        fs::write(&record, text).map_err(|source| BuildError::File {
            path: record,
            source,
        })?;
    }
    Ok(objects)
}

/// Returns the object of an earlier build, if `command` made it and nothing that it read is newer.
fn current(record: &Path, dependencies: &Path, command: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(record).ok()?;
    let (object, made_by) = text.split_once('\n')?;
    let object = PathBuf::from(object);
    let made = changed(&object)?;
    let older = |path: &PathBuf| changed(path).is_some_and(|at| at < made);
    let read = fs::read_to_string(dependencies).ok()?;
    let read = files(&read);
    (made_by == command && !read.is_empty() && read.iter().all(older)).then_some(object)
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Returns the prerequisites of a make rule `object: file file \ file`. A blank in a name is escaped.
fn files(rule: &str) -> Vec<PathBuf> {
    let Some((_, list)) = rule.split_once(": ") else {
        return Vec::new();
    };
    let list = list.replace("\\\n", " ").replace("\\ ", "\0");
    list.split_whitespace()
        .map(|name| PathBuf::from(name.replace('\0', " ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_prerequisites_of_a_rule_are_read_over_lines_and_blanks() {
        let rule = "a/b.o: kernels/a.cu \\\n  include/x.cuh with\\ blank.h\n";
        let names = ["kernels/a.cu", "include/x.cuh", "with blank.h"];
        assert_eq!(files(rule), names.map(PathBuf::from));
        assert!(files("").is_empty());
    }

    #[test]
    fn an_object_is_current_until_a_header_the_command_or_itself_changes() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let age = |name: &str, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
            let file = fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(at(name))
                .unwrap();
            file.set_modified(time).unwrap();
        };
        for (name, seconds) in [("a.cu", 1), ("a.cuh", 2), ("a.o", 3)] {
            age(name, seconds);
        }
        let rule = format!(
            "a.o: {} \\\n {}\n",
            at("a.cu").display(),
            at("a.cuh").display()
        );
        fs::write(at("a.d"), rule).unwrap();
        fs::write(at("a.made"), format!("{}\ng++ -O2", at("a.o").display())).unwrap();
        let look = |command: &str| current(&at("a.made"), &at("a.d"), command);
        assert_eq!(look("g++ -O2"), Some(at("a.o")));
        assert_eq!(look("g++ -O3"), None);
        age("a.cuh", 3);
        assert_eq!(look("g++ -O2"), None, "as old as the object is not older");
        age("a.cuh", 2);
        fs::remove_file(at("a.o")).unwrap();
        assert_eq!(look("g++ -O2"), None);
        age("a.o", 9);
        fs::remove_file(at("a.cu")).unwrap();
        assert_eq!(look("g++ -O2"), None, "a file that is gone");
    }
}
