//! The command, and what it prints.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::schema::accept;

/// `wv doctor` with no other variable of the project, a launcher or a software HCA than those that are added.
pub(crate) fn doctor(arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_wv")));
    command.arg("doctor").args(arguments);
    command
}

/// As `doctor`, on a software HCA, which `options` of `wv sim` describe. Files of the run go below `scratch`.
pub(crate) fn simulated(scratch: &Path, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = clean(Command::new(env!("CARGO_BIN_EXE_wv")));
    command
        .arg("sim")
        .args(options)
        .args(["--", env!("CARGO_BIN_EXE_wv"), "doctor"])
        .args(arguments)
        .env("XDG_RUNTIME_DIR", scratch);
    command
}

fn clean(mut command: Command) -> Command {
    const OTHERS: [&str; 7] = [
        "RANK",
        "OMPI_COMM_WORLD_RANK",
        "PMI_RANK",
        "SLURM_PROCID",
        "LD_PRELOAD",
        "SYSFS_PATH",
        "CUDA_VISIBLE_DEVICES",
    ];
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = ["WARPVERBS_", "SOFTHCA_"]
            .iter()
            .any(|begin| text.starts_with(begin));
        // Where the fake driver is, no NVRTC takes part.
        if (is_ours && text != "WARPVERBS_NVRTC") || OTHERS.contains(&&*text) {
            command.env_remove(name);
        }
    }
    command
}

/// What a run has printed as JSON, which the schema has accepted.
pub(crate) struct Examined {
    pub(crate) status: Option<i32>,
    pub(crate) json: Value,
}

impl Examined {
    /// Runs a command that has the option `--json`.
    pub(crate) fn by(mut command: Command) -> Self {
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let json =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        accept(&text);
        Self {
            status: output.status.code(),
            json,
        }
    }

    /// Returns the checks of this id, of all subjects.
    pub(crate) fn checks(&self, id: &str) -> Vec<&Value> {
        let groups = self.json["groups"].as_array().unwrap();
        let checks = groups
            .iter()
            .flat_map(|group| group["checks"].as_array().unwrap());
        checks.filter(|check| check["id"] == id).collect()
    }

    /// The one check of this id whose subject contains `subject`.
    pub(crate) fn check(&self, subject: &str, id: &str) -> &Value {
        let found = self.checks(id);
        let of_it = found
            .iter()
            .find(|check| check["subject"].as_str().unwrap().contains(subject));
        of_it.unwrap_or_else(|| panic!("no {id} of {subject}: {:#}", self.json))
    }
}
