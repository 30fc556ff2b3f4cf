//! Checks that a preloaded library can reach a program, before the program is started.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::endian::Endianness;
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{FileKind, ReadCache};
use rustix::fs::getxattr_query;
use thiserror::Error;

/// Why a program cannot be run with a preloaded library.
#[derive(Debug, Error)]
pub(super) enum ExecutableError {
    #[error("{}: command not found", .name.display())]
    NotFound { name: OsString },
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is statically linked, so no library can be preloaded into it", .path.display())]
    Static { path: PathBuf },
    #[error("{} is {kind}, and for such programs the loader ignores LD_PRELOAD", .path.display())]
    Privileged { path: PathBuf, kind: &'static str },
    #[error("{} is built for {found}, and libsofthca.so for {own}", .path.display())]
    Foreign {
        path: PathBuf,
        found: String,
        own: &'static str,
    },
    #[error("{} is linked with the loader {loader}, and libsofthca.so needs that of glibc", .path.display())]
    OtherLibc { path: PathBuf, loader: String },
    #[error("{} is neither an ELF program nor a script", .path.display())]
    NoProgram { path: PathBuf },
    #[error("{} needs a chain of more than {limit} interpreters", .path.display())]
    TooDeep { path: PathBuf, limit: u32 },
}

/// Returns the file that `execvp` would run.
pub(super) fn resolve(name: &OsStr) -> Result<PathBuf, ExecutableError> {
    resolve_in(name, env::var_os("PATH").as_deref())
}

fn resolve_in(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, ExecutableError> {
    let not_found = || ExecutableError::NotFound {
        name: name.to_os_string(),
    };
    if name.is_empty() {
        return Err(not_found());
    }
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if path.exists() {
            Ok(path)
        } else {
            Err(not_found())
        };
    }
    env::split_paths(path.unwrap_or(OsStr::new("/bin:/usr/bin")))
        .map(|directory| directory.join(name))
        .find(|candidate| {
            fs::metadata(candidate)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(not_found)
}

/// Refuses a program that the loader would start without the preloaded library.
pub(super) fn check(program: &Path) -> Result<(), ExecutableError> {
    /// The number of `#!` lines that the kernel follows.
    const DEPTH: u32 = 5;
    let mut at = program.to_path_buf();
    for _ in 0..DEPTH {
        let read = |source| ExecutableError::Read {
            path: at.clone(),
            source,
        };
        let file = File::open(&at).map_err(read)?;
        let mut head = Vec::new();
        (&file).take(256).read_to_end(&mut head).map_err(read)?;
        if let Some(interpreter) = interpreter_of_script(&head) {
            at = interpreter;
            continue;
        }
        let data = ReadCache::new(&file);
        match FileKind::parse(&data) {
            Ok(FileKind::Elf32) => check_elf::<elf::FileHeader32<Endianness>>(&at, &data)?,
            Ok(FileKind::Elf64) => check_elf::<elf::FileHeader64<Endianness>>(&at, &data)?,
            _ => return Err(ExecutableError::NoProgram { path: at }),
        }
        return check_privileges(&at);
    }
    Err(ExecutableError::TooDeep {
        path: program.to_path_buf(),
        limit: DEPTH,
    })
}

/// Returns the interpreter that the `#!` line names, if there is such a line.
fn interpreter_of_script(head: &[u8]) -> Option<PathBuf> {
    let line = head
        .strip_prefix(b"#!")?
        .split(|&byte| byte == b'\n')
        .next()?;
    let word = line
        .split(|byte| b" \t".contains(byte))
        .find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsString::from_vec(word.to_vec())))
}

/// The machine in the ELF header of this program, which is 64-bit and little-endian.
const OWN: (u16, &str) = if cfg!(target_arch = "x86_64") {
    (elf::EM_X86_64, "x86-64")
} else if cfg!(target_arch = "aarch64") {
    (elf::EM_AARCH64, "AArch64")
} else {
    (
        elf::EM_NONE,
        "an architecture that softhca does not support",
    )
};

/// Refuses a program that cannot use our library: one of another architecture, a static one without a loader, or one with another loader
/// than glibc's.
fn check_elf<H: FileHeader<Endian = Endianness>>(
    path: &Path,
    data: &ReadCache<&File>,
) -> Result<(), ExecutableError> {
    let damaged = |error| ExecutableError::Read {
        path: path.to_path_buf(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    };
    let header = H::parse(data).map_err(damaged)?;
    let order = header.endian().map_err(damaged)?;
    let (machine, own) = (header.e_machine(order), OWN);
    if (header.is_type_64(), order, machine) != (true, Endianness::Little, own.0) {
        return Err(ExecutableError::Foreign {
            path: path.to_path_buf(),
            found: architecture(machine, header.is_type_64()),
            own: own.1,
        });
    }
    for segment in header.program_headers(order, data).map_err(damaged)? {
        if let Some(loader) = segment.interpreter(order, data).map_err(damaged)? {
            let loader = String::from_utf8_lossy(loader).into_owned();
            return if loader.contains("ld-musl") {
                Err(ExecutableError::OtherLibc {
                    path: path.to_path_buf(),
                    loader,
                })
            } else {
                Ok(())
            };
        }
    }
    Err(ExecutableError::Static {
        path: path.to_path_buf(),
    })
}

/// Returns the name of an architecture for people.
fn architecture(machine: u16, is_64_bit: bool) -> String {
    let bits = if is_64_bit { "64-bit" } else { "32-bit" };
    let name = match machine {
        elf::EM_386 => "x86",
        elf::EM_MIPS => "MIPS",
        elf::EM_PPC64 => "PowerPC",
        elf::EM_S390 => "s390",
        elf::EM_ARM => "ARM",
        elf::EM_X86_64 => "x86-64",
        elf::EM_AARCH64 => "AArch64",
        elf::EM_RISCV => "RISC-V",
        elf::EM_LOONGARCH => "LoongArch",
        other => return format!("ELF machine {other} ({bits})"),
    };
    format!("{name} ({bits})")
}

fn check_privileges(path: &Path) -> Result<(), ExecutableError> {
    let mode = fs::metadata(path)
        .map_err(|source| ExecutableError::Read {
            path: path.to_path_buf(),
            source,
        })?
        .permissions()
        .mode();
    // Setgid without group execution marks mandatory locking, and gives no privilege.
    let kind = if mode & 0o4000 != 0 {
        "setuid"
    } else if mode & 0o2010 == 0o2010 {
        "setgid"
    } else if has_capabilities(path) {
        "given file capabilities"
    } else {
        return Ok(());
    };
    Err(ExecutableError::Privileged {
        path: path.to_path_buf(),
        kind,
    })
}

fn has_capabilities(path: &Path) -> bool {
    getxattr_query(path, c"security.capability").is_ok_and(|size| size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (directory, path)
    }

    /// Returns a copy of a dynamically linked program of this machine.
    fn copy_of_program() -> (tempfile::TempDir, PathBuf) {
        written("program", &fs::read("/bin/true").unwrap())
    }

    #[test]
    fn an_ordinary_program_and_a_script_pass() {
        let (_directory, program) = copy_of_program();
        check(&program).unwrap();
        let line = format!("#! {} -x\necho\n", program.display());
        let (_directory, script) = written("script", line.as_bytes());
        check(&script).unwrap();
    }

    #[test]
    fn privileged_programs_are_refused() {
        for (mode, kind) in [(0o4755, "setuid"), (0o2755, "setgid")] {
            let (_directory, program) = copy_of_program();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            let text = check(&program).unwrap_err().to_string();
            assert!(text.contains(&format!("is {kind}, and")), "{text}");
        }
        let (_directory, program) = copy_of_program();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o2745)).unwrap();
        check(&program).unwrap();
    }

    #[test]
    fn foreign_and_static_programs_are_refused() {
        let (_directory, program) = copy_of_program();
        let mut bytes = fs::read(&program).unwrap();
        bytes[18..20].copy_from_slice(&243u16.to_le_bytes());
        let (_directory, foreign) = written("foreign", &bytes);
        let text = check(&foreign).unwrap_err().to_string();
        assert!(text.contains("is built for RISC-V (64-bit)"), "{text}");

        // This header is of a 32-bit program in the other byte order.
        let mut old = vec![0; 52];
        old[..8].copy_from_slice(b"\x7fELF\x01\x02\x01\0");
        old[18..20].copy_from_slice(&8u16.to_be_bytes());
        let (_directory, old) = written("old", &old);
        let text = check(&old).unwrap_err().to_string();
        assert!(text.contains("is built for MIPS (32-bit)"), "{text}");

        // A program without program headers has no loader.
        bytes = fs::read(&program).unwrap();
        bytes[56..58].copy_from_slice(&0u16.to_le_bytes());
        let (_directory, linked) = written("static", &bytes);
        let text = check(&linked).unwrap_err().to_string();
        assert!(text.contains("is statically linked"), "{text}");
    }

    #[test]
    fn damaged_programs_are_refused_and_do_no_harm() {
        let (_directory, program) = copy_of_program();
        let whole = fs::read(&program).unwrap();
        for (at, value) in [(32, u64::MAX), (32, 1 << 40), (54, u64::MAX)] {
            let mut bytes = whole.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            let (_directory, damaged) = written("damaged", &bytes);
            assert!(check(&damaged).is_err(), "{at} {value:#x}");
        }
        for length in [0, 3, 4, 10, 20, 60] {
            let (_directory, short) = written("short", &whole[..length]);
            assert!(check(&short).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn text_and_endless_scripts_are_refused() {
        let (_directory, text) = written("text", b"echo\n");
        assert!(matches!(
            check(&text),
            Err(ExecutableError::NoProgram { .. })
        ));
        let directory = tempfile::tempdir().unwrap();
        let endless = directory.path().join("endless");
        fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        assert!(matches!(
            check(&endless),
            Err(ExecutableError::TooDeep { .. })
        ));
    }

    #[test]
    fn names_are_looked_up_as_the_shell_does() {
        let (directory, program) = copy_of_program();
        let path = format!("/nowhere:{}", directory.path().display());
        let resolve = |name: &str| resolve_in(OsStr::new(name), Some(OsStr::new(&path)));
        assert_eq!(resolve("program").unwrap(), program);
        assert!(matches!(
            resolve("nothing"),
            Err(ExecutableError::NotFound { .. })
        ));
        assert!(resolve("").is_err());
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(resolve("program").is_err(), "not executable");
        assert_eq!(resolve(program.to_str().unwrap()).unwrap(), program);
    }
}
