//! The schema of what the command prints as JSON.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// With all that the package does as it comes.
const VALIDATE: &str = "\
import json, jsonschema, sys
jsonschema.validate(*[json.load(open(file)) for file in sys.argv[1:]])";

/// Lets the schema judge an output. Where Python has no jsonschema the test goes on without.
pub(crate) fn accept(text: &str) {
    static HAS_IT: OnceLock<bool> = OnceLock::new();
    let python = |program: &str| {
        let mut command = Command::new("python3");
        command.args(["-W", "ignore", "-c", program]);
        command
    };
    let has_it = HAS_IT.get_or_init(|| {
        let imported = python("import jsonschema").output();
        let has_it = imported.is_ok_and(|output| output.status.success());
        if !has_it {
            println!("left out: the schema: there is no python3-jsonschema");
        }
        has_it
    });
    if !has_it {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("output.json");
    std::fs::write(&file, text).unwrap();
    let judged = judge(&mut python(VALIDATE), &file);
    assert!(
        judged.status.success(),
        "{}\n{text}",
        String::from_utf8_lossy(&judged.stderr)
    );
}

fn judge(python: &mut Command, file: &Path) -> Output {
    python.arg(file).arg(schema()).output().unwrap()
}

pub(crate) fn schema() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/doctor.schema.json")
}
