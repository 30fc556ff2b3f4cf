//! A CUDA driver without a GPU, for tests of what the runtime asks of a driver. `fake_cuda/libcuda.c` says what it does.
//!
//! The runtime finds this driver by the loader, as it finds NVIDIA's. So each test that uses it is a process of its own whose
//! `LD_LIBRARY_PATH` begins with the driver's folder. [`FakeDriver::run`] starts the test's program again for that one test.

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

/// The name of a variable with the path of the settings file. The driver and this module read it.
const SETTINGS: &str = "FAKE_CUDA";
/// The name of a variable with the length of a page. The driver reads it where it is preloaded.
const PAGE: &str = "FAKE_CUDA_PAGE";

/// The driver that a test needs.
#[derive(Clone, Debug)]
pub struct FakeDriver {
    settings: String,
    page: Option<usize>,
    lacks: Option<&'static str>,
}

impl FakeDriver {
    /// Returns a driver that does what `settings` say, which `fake_cuda/libcuda.c` explains. Without settings it has one device and refuses
    /// nothing.
    #[must_use]
    pub fn new(settings: &str) -> Self {
        Self {
            settings: settings.to_owned(),
            page: None,
            lacks: None,
        }
    }

    /// Lets the machine seem to have pages of `bytes` bytes.
    #[must_use]
    pub fn with_page(self, bytes: usize) -> Self {
        let settings = format!("{}\npage {bytes}", self.settings);
        Self {
            settings,
            page: Some(bytes),
            ..self
        }
    }

    /// Leaves this function out of the driver's library.
    #[must_use]
    pub fn lacking(self, function: &'static str) -> Self {
        Self {
            lacks: Some(function),
            ..self
        }
    }

    /// Runs `body`, which must be all that the calling test does, in a process that has the driver. Without a C compiler the test is
    /// skipped.
    ///
    /// # Panics
    ///
    /// If `body` panics, or the driver cannot be compiled.
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
            // This keeps an NVRTC of the machine out of the test.
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
        // If the child skips a part of the test, the test reports that as skipped.
        for line in text.lines() {
            let told = ["skipped: ", "left out: "].map(|title| line.find(title));
            if let Some(at) = told.into_iter().flatten().min() {
                println!("{}", &line[at..]);
            }
        }
    }
}

/// The driver of this process.
#[derive(Debug)]
pub struct Fake {
    folder: PathBuf,
}

impl Fake {
    /// Lets the driver do what `settings` say from now on, in place of earlier settings.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn set(&self, settings: &str) {
        let calls = self.file("calls");
        let text = format!("calls {}\n{settings}\n", calls.display());
        // The file is replaced as a whole, because a thread of the runtime may be in a call.
        let (new, file) = (self.file("new"), self.file("settings"));
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    }

    /// Returns the arguments of each call of `function` so far, as `fake_cuda/libcuda.c` writes them.
    #[must_use]
    pub fn calls(&self, function: &str) -> Vec<String> {
        let text = fs::read_to_string(self.file("calls")).unwrap_or_default();
        let of_it = |line: &str| {
            let (name, arguments) = line.split_once(' ')?;
            (name == function).then(|| arguments.to_owned())
        };
        text.lines().filter_map(of_it).collect()
    }

    /// Returns all calls so far, or since [`Fake::forget_calls`]: each with its function and arguments.
    #[must_use]
    pub fn all_calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.file("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Forgets all calls so far.
    ///
    /// # Panics
    ///
    /// If the file of the calls cannot be removed.
    pub fn forget_calls(&self) {
        match fs::remove_file(self.file("calls")) {
            Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
            _ => {}
        }
    }

    /// Lets the driver note what comes to streams from now on, in place of earlier settings.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn note_order(&self) {
        self.set(&format!("order {}", self.file("order").display()));
    }

    /// Returns what has come to streams since [`Fake::note_order`], in order, each with its stream.
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

    /// Returns a place where calls wait. A setting `hold CALL PATH` with the place's [`path`](Hold::path) lets them wait there.
    ///
    /// # Panics
    ///
    /// If `mkfifo` cannot make the place's two pipes.
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

    /// Returns the path of a file that only this test has.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A place where calls wait.
#[derive(Debug)]
pub struct Hold {
    path: PathBuf,
}

impl Hold {
    /// Returns the path by which settings name the place.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits until a call waits at this place. The call goes on when the result is dropped.
    ///
    /// # Panics
    ///
    /// If the pipes do not exist.
    #[must_use]
    pub fn entered(&self) -> Held {
        let entered = File::open(self.path.with_extension("in")).unwrap();
        Held {
            path: self.path.clone(),
            entered,
        }
    }
}

/// A call that waits until this is dropped.
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
        // This read waits until the call has closed its end of the pipe.
        let _ = self.entered.read(&mut [0]);
    }
}

/// Returns the name of the test in which a closure of type `F` was written.
fn test_of<F>() -> String {
    let path = type_name::<F>();
    let (_, path) = path.split_once("::").expect("of a crate");
    path.trim_end_matches("::{{closure}}").to_owned()
}

/// Returns the folder of the driver, which is compiled once for all tests, beside their programs. The error says why it cannot be made.
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
    // This is the name that cudarc looks for first.
    symlink("libcuda.so.1", made.path().join("libcuda.so")).unwrap();
    match fs::rename(made.path(), &folder) {
        Ok(()) => {}
        // Another test has made the folder meanwhile.
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
