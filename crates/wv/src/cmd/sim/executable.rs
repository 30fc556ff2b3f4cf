//! Whether a preloaded library can reach a program, before it is started.

// UNSAFETY: getxattr.
#![expect(unsafe_code, reason = "asks for an extended attribute")]

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

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

/// The file that `execvp` would run.
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
    /// The kernel follows this many `#!` lines.
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
        if !head.starts_with(b"\x7fELF") {
            return Err(ExecutableError::NoProgram { path: at });
        }
        check_architecture(&at, &head)?;
        check_loader(&at, &file)?;
        return check_privileges(&at);
    }
    Err(ExecutableError::TooDeep {
        path: program.to_path_buf(),
        limit: DEPTH,
    })
}

/// What `#!` names.
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

/// Class, byte order and machine of an ELF header, as three bytes and a number.
const OWN: (u8, u8, u16, &str) = if cfg!(target_arch = "x86_64") {
    (2, 1, 62, "x86-64")
} else if cfg!(target_arch = "aarch64") {
    (2, 1, 183, "AArch64")
} else {
    (0, 0, 0, "an architecture that softhca does not support")
};

fn check_architecture(path: &Path, head: &[u8]) -> Result<(), ExecutableError> {
    let (class, order, machine, own) = OWN;
    let byte = |at: usize| head.get(at).copied().unwrap_or(0);
    let found_machine = match byte(5) {
        2 => u16::from_be_bytes([byte(18), byte(19)]),
        _ => u16::from_le_bytes([byte(18), byte(19)]),
    };
    if (byte(4), byte(5), found_machine) == (class, order, machine) {
        return Ok(());
    }
    let bits = if byte(4) == 1 { "32-bit" } else { "64-bit" };
    let name = match found_machine {
        3 => "x86".to_owned(),
        8 => "MIPS".to_owned(),
        21 => "PowerPC".to_owned(),
        22 => "s390".to_owned(),
        40 => "ARM".to_owned(),
        62 => "x86-64".to_owned(),
        183 => "AArch64".to_owned(),
        243 => "RISC-V".to_owned(),
        258 => "LoongArch".to_owned(),
        other => format!("ELF machine {other}"),
    };
    Err(ExecutableError::Foreign {
        path: path.to_path_buf(),
        found: format!("{name} ({bits})"),
        own,
    })
}

/// A program without a loader is static; one with a loader other than glibc's cannot use our library.
fn check_loader(path: &Path, file: &File) -> Result<(), ExecutableError> {
    let loader = loader(file).map_err(|source| ExecutableError::Read {
        path: path.to_path_buf(),
        source,
    })?;
    match loader {
        None => Err(ExecutableError::Static {
            path: path.to_path_buf(),
        }),
        Some(loader) if loader.contains("ld-musl") => Err(ExecutableError::OtherLibc {
            path: path.to_path_buf(),
            loader,
        }),
        Some(_) => Ok(()),
    }
}

/// `PT_INTERP` of a 64-bit little-endian ELF file.
fn loader(file: &File) -> io::Result<Option<String>> {
    const PT_INTERP: u32 = 3;
    /// Entries of the program header table that are looked at; the kernel stops at 64 KiB.
    const MAX_ENTRIES: u16 = 1024;
    let number = |at: u64, bytes: usize| -> io::Result<u64> {
        let mut buffer = [0; 8];
        file.read_exact_at(&mut buffer[..bytes], at)?;
        Ok(u64::from_le_bytes(buffer))
    };
    let beyond = || io::Error::from(io::ErrorKind::InvalidData);
    let table = number(32, 8)?;
    let entry_size = number(54, 2)?;
    let entries = number(56, 2)?.min(u64::from(MAX_ENTRIES));
    for index in 0..entries {
        let entry = table.checked_add(index * entry_size).ok_or_else(beyond)?;
        if number(entry, 4)? == u64::from(PT_INTERP) {
            let offset = number(entry.checked_add(8).ok_or_else(beyond)?, 8)?;
            let size = number(entry.checked_add(32).ok_or_else(beyond)?, 8)?.min(4096);
            let mut name = vec![0; usize::try_from(size).map_err(|_| beyond())?];
            file.read_exact_at(&mut name, offset)?;
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            return Ok(Some(String::from_utf8_lossy(name).into_owned()));
        }
    }
    Ok(None)
}

fn check_privileges(path: &Path) -> Result<(), ExecutableError> {
    let mode = fs::metadata(path)
        .map_err(|source| ExecutableError::Read {
            path: path.to_path_buf(),
            source,
        })?
        .permissions()
        .mode();
    // Setgid without group execution is a lock, not a privilege.
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
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two C strings; a null buffer of size 0 asks for the size only.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    size > 0
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

    /// A copy of a dynamically linked program of this machine.
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

        // Without its program headers a program has no loader.
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
