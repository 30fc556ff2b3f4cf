//! The page of the software HCA: its test runs; its container file and its workflow do what they say, with the tar file of `./x dist`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use test_basics::limits;

mod example {
    use warpverbs::verbs::{Context, DeviceSelector};

    include!("example.rs");

    /// Opens the device and closes it.
    fn my_code(name: &str) {
        let device = Context::open(&DeviceSelector::Name(name.to_owned())).unwrap();
        assert_eq!(device.info().name, name);
    }
}

/// The lines of the first fenced block of a language.
fn block(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let lines = page.lines().skip_while(|line| *line != fence).skip(1);
    let lines: Vec<String> = lines
        .take_while(|line| *line != "```")
        .map(str::to_owned)
        .collect();
    assert!(!lines.is_empty(), "no block of {language}");
    lines
}

/// Makes the tar file, and unpacks it as the workflow says, below `root`.
fn unpack(root: &Path, tar_line: &str) {
    let made = Command::new("./x")
        .arg("dist")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(
        made.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let tar = said
        .split_whitespace()
        .find(|word| word.ends_with(".tar.gz"))
        .unwrap();
    let tar = Path::new(env!("CARGO_MANIFEST_DIR")).join(tar);
    let local = root.join("usr/local");
    fs::create_dir_all(&local).unwrap();
    let command = tar_line
        .replace("sudo ", "")
        .replace("/usr/local", local.to_str().unwrap())
        .replace("warpverbs-*.tar.gz", tar.to_str().unwrap());
    shell(root, &command);
}

/// Runs a line with what was unpacked first in the path.
fn shell(root: &Path, line: &str) -> String {
    let path = format!(
        "{}:{}",
        root.join("usr/local/bin").display(),
        std::env::var("PATH").unwrap()
    );
    let ran = Command::new("timeout")
        .args([&limits::HANG.as_secs().to_string(), "sh", "-ec", line])
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", root)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(ran.status.success(), "{line}: {}: {said}", ran.status);
    said
}

#[test]
fn the_page_shows_the_test_that_runs_here() {
    let page = include_str!("../../../crates/softhca/README.md");
    let shown = format!("```rust\n{}```\n", include_str!("example.rs"));
    assert!(
        page.contains(&shown),
        "the page has another test than example.rs"
    );
}

#[test]
fn the_container_file_and_the_workflow_work_with_the_tar_file() {
    let page = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/crates/softhca/README.md"
    ))
    .unwrap();
    let root = tempfile::tempdir().unwrap();

    // The workflow: installing packages is not for a test; the rest is.
    let steps: Vec<String> = block(&page, "yaml")
        .iter()
        .filter_map(|line| Some(line.trim().strip_prefix("- run: ")?.to_owned()))
        .collect();
    let (packages, rest) = steps.split_first().unwrap();
    assert!(packages.contains("apt-get install"), "{packages}");
    let (tar, commands) = rest.split_first().unwrap();
    unpack(root.path(), tar);
    for command in commands {
        let said = shell(root.path(), command);
        assert!(said.contains("mlx5_0"), "{command}: {said}");
    }
    assert!(commands.len() >= 2, "{commands:?}");

    // The container file: what it copies is in the tar file, at the place where `wv` looks for it.
    let image = tempfile::tempdir().unwrap();
    let mut ran = 0;
    for line in block(&page, "dockerfile") {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["COPY", from, to] => {
                let from = root.path().join("usr/local").join(from);
                let to: PathBuf = image.path().join(to.trim_start_matches('/'));
                fs::create_dir_all(&to).unwrap();
                fs::copy(&from, to.join(from.file_name().unwrap()))
                    .unwrap_or_else(|error| panic!("{line}: {}: {error}", from.display()));
            }
            ["RUN", "apt-get", ..] | ["FROM", _] => {}
            ["RUN", ref command @ ..] => {
                let said = shell(image.path(), &command.join(" "));
                assert!(said.contains("hca_id:\tmlx5_0"), "{said}");
                ran += 1;
            }
            _ => panic!("{line:?} is not understood"),
        }
    }
    assert_eq!(ran, 1);
}
