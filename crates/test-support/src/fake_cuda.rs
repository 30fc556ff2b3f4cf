//! A CUDA driver without a GPU, for tests of what the runtime asks of one: `fake_cuda/libcuda.c` says what it does.
//!
//! The runtime finds it as it finds NVIDIA's driver, by the loader. So each test that uses it is a process of its own whose
//! `LD_LIBRARY_PATH` begins with it. [`FakeDriver::run`] starts the test's program again for that one test.

use std::any::type_name;
use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs::{self, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../fake_cuda/libcuda.c");
const SOURCE_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fake_cuda/libcuda.c");

/// Names the file of settings, to the driver and to this module.
const SETTINGS: &str = "FAKE_CUDA";
/// Length of a page, to the driver where it is preloaded.
const PAGE: &str = "FAKE_CUDA_PAGE";

/// A driver that a test wants.
#[derive(Clone, Debug)]
pub struct FakeDriver {
    settings: String,
    page: Option<usize>,
    lacks: Option<&'static str>,
}

impl FakeDriver {
    /// One that does what these lines say, which `fake_cuda/libcuda.c` explains; empty: one device, and no refusals.
    #[must_use]
    pub fn new(settings: &str) -> Self {
        Self {
            settings: settings.to_owned(),
            page: None,
            lacks: None,
        }
    }

    /// On a machine that says of itself that it has pages of `bytes` bytes.
    #[must_use]
    pub fn with_page(self, bytes: usize) -> Self {
        let settings = format!("{}\npage {bytes}", self.settings);
        Self {
            settings,
            page: Some(bytes),
            ..self
        }
    }

    /// One whose library does not have this function.
    #[must_use]
    pub fn lacking(self, function: &'static str) -> Self {
        Self {
            lacks: Some(function),
            ..self
        }
    }

    /// Runs `body`, which is the whole of the test that calls this, in a process that has the driver. Without a C compiler the test
    /// is skipped.
    ///
    /// # Panics
    ///
    /// If `body` does, or the driver does not compile.
    pub fn run<F: FnOnce(&Fake)>(&self, body: F) {
        if let Some(file) = env::var_os(SETTINGS) {
            let file = PathBuf::from(file);
            let folder = file.parent().expect("a file in a folder").to_owned();
            return body(&Fake { folder });
        }
        let library = match library(self.lacks) {
            Ok(library) => library,
            Err(why) => {
                println!("skipped: a CUDA driver without a GPU: {why}");
                return;
            }
        };
        let scratch = tempfile::tempdir().unwrap();
        let fake = Fake {
            folder: scratch.path().to_owned(),
        };
        fake.set(&self.settings);
        let mut paths = vec![library.clone()];
        if let Some(inherited) = env::var_os("LD_LIBRARY_PATH") {
            paths.extend(env::split_paths(&inherited));
        }
        let name = test_of::<F>();
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", &name, "--nocapture", "--test-threads=1"])
            .env(SETTINGS, fake.file("settings"))
            .env("LD_LIBRARY_PATH", env::join_paths(paths).unwrap())
            // No NVRTC of this machine takes part.
            .env("WARPVERBS_NVRTC", "/nowhere/libnvrtc.so");
        if let Some(page) = self.page {
            command
                .env(PAGE, page.to_string())
                .env("LD_PRELOAD", library.join("libcuda.so.1"));
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}\n{text}{errors}", output.status);
        assert!(text.contains("1 passed"), "{name} did not run: {text}");
        // A child that skips its part has skipped this test.
        for line in text.lines() {
            let told = ["skipped: ", "left out: "].map(|title| line.find(title));
            if let Some(at) = told.into_iter().flatten().min() {
                println!("{}", &line[at..]);
            }
        }
    }
}

/// The driver that this process has.
#[derive(Debug)]
pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// From now on the driver does what these lines say, in place of earlier ones.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn set(&self, settings: &str) {
        let calls = self.file("calls");
        let text = format!("calls {}\n{settings}\n", calls.display());
        // As one: a thread of the runtime may be in a call.
        let (new, file) = (self.file("new"), self.file("settings"));
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Arguments of each call of a function so far, as `fake_cuda/libcuda.c` writes them.
    #[must_use]
    pub fn calls(&self, function: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file("calls")).unwrap_or_default();
        let of_it = |line: &str| {
            let (name, arguments) = line.split_once(' ')?;
            (name == function).then(|| arguments.to_owned())
        };
        text.lines().filter_map(of_it).collect()
    }

    /// All calls so far, or since [`Fake::forget_calls`]: the function, and its arguments.
    #[must_use]
    pub fn all_calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Calls are noted anew.
    ///
    /// # Panics
    ///
    /// If the file with those so far cannot be removed.
    pub fn forget_calls(&self) {
        match fs::remove_file(self.file("calls")) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    /// From now on the driver notes what comes to streams, in place of earlier settings.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn note_order(&self) {
        self.set(&format!("order {}", self.file("order").display()));
    }

    /// Returns what has come to streams since [`Fake::note_order`], in its order: the stream, and what it was.
    ///
    /// # Panics
    ///
    /// If nothing was noted.
    #[must_use]
    pub fn order(&self) -> Vec<(String, String)> {
        let text = fs::read_to_string(self.file("order")).unwrap();
        let words = text.lines().map(|line| line.split_once(' ').unwrap());
        words
            .map(|(stream, what)| (stream.to_owned(), what.to_owned()))
            .collect()
    }

    /// A place where calls wait: with the line `hold CALL PATH` of its [`path`](Hold::path).
    ///
    /// # Panics
    ///
    /// If `mkfifo` cannot make its two pipes.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let path = self.file("hold");
        for end in ["in", "out"] {
            let made = Command::new("mkfifo")
                .arg(path.with_extension(end))
                .status();
            assert!(made.unwrap().success(), "mkfifo");
        }
        Hold { path }
    }

    /// A file of this test alone.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Where calls wait.
#[derive(Debug)]
pub struct Hold {
    path: PathBuf,
}

impl Hold {
    /// Its name in settings.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits until a call waits here; it goes on when the result is dropped.
    ///
    /// # Panics
    ///
    /// If the pipes are gone.
    #[must_use]
    pub fn entered(&self) -> Held {
        let entered = File::open(self.path.with_extension("in")).unwrap();
        Held {
            path: self.path.clone(),
            entered,
        }
    }
}

/// A call that waits.
#[derive(Debug)]
pub struct Held {
    path: PathBuf,
    entered: File,
}

impl Drop for Held {
    fn drop(&mut self) {
        let out = OpenOptions::new()
            .write(true)
            .open(self.path.with_extension("out"));
        drop(out.and_then(|mut out| out.flush()));
        // Until the call has closed its end.
        let _ = self.entered.read(&mut [0]);
    }
}

/// The name of the test in which a closure of type `F` was written.
fn test_of<F>() -> String {
    let path = type_name::<F>();
    let (_, path) = path.split_once("::").expect("of a crate");
    path.trim_end_matches("::{{closure}}").to_owned()
}

/// The folder with the driver, compiled once for all tests beside their programs. The error says in words why it cannot be made.
fn library(lacks: Option<&str>) -> Result<PathBuf, String> {
    let mut hash = DefaultHasher::new();
    (SOURCE, lacks).hash(&mut hash);
    let program = env::current_exe().unwrap();
    let beside = program.parent().expect("in a folder");
    let folder = beside.join(format!("fake-cuda-{:016x}", hash.finish()));
    if folder.exists() {
        return Ok(folder);
    }
    let made = tempfile::tempdir_in(beside).unwrap();
    compile(&made.path().join("libcuda.so.1"), lacks)?;
    // What cudarc looks for first.
    symlink("libcuda.so.1", made.path().join("libcuda.so")).unwrap();
    match fs::rename(made.path(), &folder) {
        Ok(()) => {}
        // Another test was faster.
        Err(_) if folder.exists() => {}
        Err(error) => panic!("{}: {error}", folder.display()),
    }
    Ok(folder)
}

fn compile(library: &Path, lacks: Option<&str>) -> Result<(), String> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler)
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"])
        .args(["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(library)
        .args(lacks.map(|function| format!("-D{function}=absent_{function}")))
        .args([SOURCE_PATH, "-ldl", "-pthread"])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(format!("the C compiler {compiler} is missing"));
        }
        Err(error) => panic!("{compiler}: {error}"),
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler}: {errors}");
    Ok(())
}
