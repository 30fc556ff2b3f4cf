//! The environments of the Python tests: the package beside the newest torch that is pinned, and beside the oldest torch that the package
//! claims to support.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::pip;
use crate::failure::{At, Result};
use crate::process::{command, run, text_of};
use crate::steps::wants_large_counts;
use crate::tree::fresh_folder;

/// A Python with the package and what its tests need.
pub(super) struct Environment {
    venv: &'static str,
    /// Torch, and of the CUDA libraries that its metadata asks for only those that it calls when it is loaded.
    pub(super) torch: &'static [&'static str],
    /// The folders of these libraries below the packages of the environment.
    libraries: &'static [&'static str],
    /// The folder in which `stand_ins.py` makes stand-ins for the other libraries.
    stand_ins: &'static str,
    packages: &'static [&'static str],
    /// The packages that are installed with what they need.
    needy: &'static [&'static [&'static str]],
    /// More packages, for full runs.
    in_full: &'static [&'static str],
}

pub(super) const NEWEST: Environment = Environment {
    venv: "target/python/venv",
    torch: &[
        "torch==2.15.0",
        "nvidia-cuda-runtime==13.2.86",
        "nvidia-cuda-cupti==13.2.86",
    ],
    libraries: &["nvidia/cu13/lib"],
    stand_ins: "target/python/stand-ins",
    packages: &[
        "abi3audit==0.0.26",
        "auditwheel==6.8.2",
        "filelock==4.2.12",
        "fsspec==2026.9.0",
        "jinja2==3.1.6",
        "mypy==2.4.1",
        "networkx==3.6.1",
        "numpy==2.4.6",
        "pytest==9.2.0",
        "pytest-xdist==3.8.0", // most tests wait for other processes, so two at a time take little more than half the time
        "sympy==1.14.0",
        "transformers==5.23.0",
        "typing-extensions==4.16.0",
    ],
    needy: &[
        &["abi3audit", "auditwheel", "mypy", "pytest", "pytest-xdist"],
        &["jinja2", "sympy", "transformers"],
    ],
    // With all that it needs ray takes 260 MB, for the test of one example.
    in_full: &["ray==2.60.0"],
};

/// The pinned versions of what the packages of the environments need in turn. `pip freeze` in an environment made without these pins lists
/// newer versions.
const PINS: &str = include_str!("pins.txt");

/// The environment with the oldest torch that the package claims to support. The wheels of that torch are for Python 3.12 and older.
pub(super) const OLDEST: Environment = Environment {
    venv: "target/python/venv-oldest",
    torch: &[
        "torch==2.5.0",
        "nvidia-cuda-runtime-cu12==12.4.127",
        "nvidia-cuda-cupti-cu12==12.4.127",
    ],
    libraries: &["nvidia/cuda_runtime/lib", "nvidia/cuda_cupti/lib"],
    stand_ins: "target/python/stand-ins-oldest",
    packages: &[
        "filelock==4.2.12",
        "fsspec==2026.9.0",
        "jinja2==3.1.6",
        "networkx==3.6.1",
        "numpy==1.26.4",
        "pytest==9.2.0",
        "pytest-xdist==3.8.0", // most tests wait for other processes, so two at a time take little more than half the time
        "sympy==1.13.1",
        "typing-extensions==4.16.0",
    ],
    needy: &[&["jinja2", "sympy", "pytest", "pytest-xdist"]],
    in_full: &[],
};

impl Environment {
    pub(super) fn program(&self, name: &str) -> Result<PathBuf> {
        let here = std::env::current_dir().at(".")?;
        Ok(here.join(self.venv).join("bin").join(name))
    }

    /// Makes the environment, with this wheel in it.
    pub(super) fn make(&self, wheel: &Path) -> Result {
        let python = self.program("python")?;
        let wanted = [self.torch, self.packages, &[PINS]].concat().join("\n");
        let stamp = Path::new(self.venv).join("INSTALLED");
        if fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
            self.install(&python)?;
            fs::write(&stamp, &wanted).at(&stamp)?;
        }
        if !self.in_full.is_empty() && wants_large_counts() {
            // These packages must not change any of the packages above.
            let pinned = Path::new(self.venv).join("PINNED");
            fs::write(&pinned, self.packages.join("\n")).at(&pinned)?;
            run(pip(&python, "install")
                .arg("-c")
                .arg(&pinned)
                .args(self.in_full))?;
        }
        run(pip(&python, "install")
            .args(["--force-reinstall", "--no-deps"])
            .arg(wheel))
    }

    fn install(&self, python: &Path) -> Result {
        let here = std::env::current_dir().at(".")?;
        run(&mut command(
            "python3",
            ["-m", "venv", "--clear", self.venv],
        ))?;
        let pip = || pip(python, "install");
        run(pip().arg("--no-deps").args(self.torch))?;
        run(pip().arg("--no-deps").args(self.packages))?;
        let pinned = Path::new(self.venv).join("PINNED");
        fs::write(&pinned, PINS).at(&pinned)?;
        for needy in self.needy {
            run(pip().arg("-c").arg(&pinned).args(*needy))?;
        }
        let stand_ins = here.join(self.stand_ins);
        let made = command(python, ["python/tests/stand_ins.py"])
            .arg(&stand_ins)
            .status();
        let imports = self.imports_torch()?;
        if !made.is_ok_and(|status| status.success()) || !imports {
            println!(
                "{} does not import with stand-ins for CUDA's libraries; installing all of them, 3 GB",
                self.torch[0]
            );
            run(pip().arg(self.torch[0]))?;
            fresh_folder(&stand_ins)?;
        }
        Ok(())
    }

    fn imports_torch(&self) -> Result<bool> {
        let python = self.program("python")?;
        let mut import = command(&python, ["-c", "import torch"]);
        let status = self.with_libraries(&mut import)?.status();
        Ok(status.at(python)?.success())
    }

    /// Lets a command find the stand-ins, and the libraries of CUDA that torch calls when it is loaded.
    pub(super) fn with_libraries<'a>(&self, of: &'a mut Command) -> Result<&'a mut Command> {
        let here = std::env::current_dir().at(".")?;
        let place = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let site = text_of(&mut command(self.program("python")?, ["-c", place]))?;
        let mut path = here.join(self.stand_ins).display().to_string();
        for folder in self.libraries {
            path += &format!(":{}/{folder}", site.trim());
        }
        Ok(of.env("LD_LIBRARY_PATH", path))
    }
}
