//! Starting a program with the library preloaded, and waiting for its end within a time.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::patience::HANG;

/// A directory for the trees of the HCAs and for what the programs print. It goes with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory.
    #[expect(clippy::new_without_default, reason = "it makes a directory")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("softhca-judge-{}-{count}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `program` with the library preloaded; `prefix` is what has to start it, or empty.
    pub fn preloaded(&self, prefix: &[String], program: &str) -> Command {
        let mut words = prefix.iter().map(String::as_str).chain([program]);
        let mut command = Command::new(words.next().unwrap());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SOFTHCA_") {
                command.env_remove(name);
            }
        }
        command
            .args(words)
            .env("LD_PRELOAD", library())
            .env("XDG_RUNTIME_DIR", &self.0)
            .env_remove("SYSFS_PATH");
        command
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Cargo puts it beside the test programs.
pub fn library() -> PathBuf {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libsofthca.so");
    assert!(library.exists(), "{} was not built", library.display());
    library
}

/// Returns whether `program` is installed; if not, says that `what` is skipped, and for want of which Debian package.
pub fn is_installed(program: &str, package: &str, what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).exists());
    if !found {
        println!("skipped: {what}: {program} (package {package}) is not installed");
    }
    found
}

/// What `ibv_devinfo -v` prints of an HCA that these variables describe. None if the program is not installed; then the output says that
/// `what` is skipped.
pub fn devinfo(what: &str, variables: &[(&str, &str)]) -> Option<Ended> {
    let program = "ibv_devinfo";
    if !is_installed(program, "ibverbs-utils", what) {
        return None;
    }
    let scratch = Scratch::new();
    let mut command = scratch.preloaded(&[], program);
    command.arg("-v").envs(variables.iter().copied());
    Some(Running::start(command, &scratch, program).end_within(LIMIT))
}

/// Returns what random choices start from: `SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"))
}

/// Returns the version of an installed Debian package.
pub fn package_version(package: &str) -> Option<String> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f=${Version}", package])
        .output()
        .ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !version.is_empty()).then_some(version)
}

/// How long a program may run: it only ends a hang. A test may start several, one after the other.
pub const LIMIT: Duration = HANG;

/// A started program. Dropping it kills the program.
pub struct Running {
    child: Child,
    command: String,
    printed: PathBuf,
    since: Instant,
}

/// A program that has ended, or was killed because it had not.
#[derive(Debug)]
pub struct Ended {
    /// Name and arguments.
    pub command: String,
    /// Both streams, in the order of writing.
    pub printed: String,
    /// From its start to its end.
    pub took: Duration,
    /// None: killed at the end of its time.
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts `command`; both its streams go to the file `name` of `scratch`.
    pub fn start(mut command: Command, scratch: &Scratch, name: &str) -> Self {
        let printed = scratch.path().join(name);
        let file = File::create(&printed).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file);
        let words: Vec<_> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let command_line = words.join(" ");
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command_line}: {error}"));
        Self {
            child,
            command: command_line,
            printed,
            since: Instant::now(),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the program has ended. Does not wait.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits until it ends, or kills it when it has run for `limit`.
    pub fn end_within(self, limit: Duration) -> Ended {
        let rest = limit.saturating_sub(self.since.elapsed());
        self.end_for(rest)
    }

    /// Waits until it ends, or kills it after so long.
    pub fn end_for(mut self, patience: Duration) -> Ended {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                self.child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ended {
            command: std::mem::take(&mut self.command),
            printed: String::from_utf8_lossy(&fs::read(&self.printed).unwrap()).into_owned(),
            took: self.since.elapsed(),
            status,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Returns whether it ended with status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Returns how it ended, in words.
    pub fn ending(&self) -> String {
        match self.status {
            None => format!("killed after {:.1} s", self.took.as_secs_f64()),
            Some(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("status {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            },
        }
    }

    /// Command, ending and all output, for a failure message.
    pub fn report(&self) -> String {
        format!("$ {}\n{}[{}]", self.command, self.printed, self.ending())
    }
}
