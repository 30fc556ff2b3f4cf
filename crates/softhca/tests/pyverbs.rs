//! An independent client: the tests that Debian ships with pyverbs, as far as they need nothing but what is here.
//!
//! They build their own commands and WQEs, so a misreading of the manual that our runtime and softhca share would
//! show here. One test with a table, because each run of Python costs a second.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";

/// Test modules, and how many of their tests pass with rdma-core 44. The others need queues made by verbs or
/// features that the device does not have.
const MODULES: &[(&str, usize)] = &[
    ("test_device", 12),
    ("test_pd", 4),
    ("test_addr", 3),
    ("test_mlx5_devx", 1),
    ("test_mlx5_uar", 1),
];

#[test]
fn pyverbs_tests_of_devices_and_devx_pass() {
    let installed = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs.device"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !installed || !Path::new(SHIPPED).exists() {
        println!(
            "skipped: pyverbs tests: python3-pyverbs or {SHIPPED} (package rdma-core) is not installed"
        );
        return;
    }
    let version_44 = Command::new("dpkg-query")
        .args(["-W", "-f=${Version}", "python3-pyverbs"])
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"44."));
    let directory = PathBuf::from(format!("/tmp/softhca-pyverbs-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    unpack(&directory);
    for (module, passing) in MODULES {
        let output = run(&directory, module);
        // Each test ends its line with its outcome; some print between name and outcome.
        let passed = output.lines().filter(|line| line.ends_with("ok")).count();
        assert!(
            !output.contains("ERROR") && !output.contains("FAIL"),
            "{module}:\n{output}"
        );
        if version_44 {
            assert_eq!(passed, *passing, "{module}:\n{output}");
        } else {
            println!("{module}: {passed} passed, {passing} with rdma-core 44");
        }
    }
    fs::remove_dir_all(&directory).unwrap();
}

/// Copies the tests, which the package holds compressed.
fn unpack(to: &Path) {
    const SCRIPT: &str = "\
import gzip, os, shutil, sys
source, target = sys.argv[1:]
os.makedirs(target + '/tests')
for name in os.listdir(source):
    path = os.path.join(source, name)
    if name.endswith('.gz'):
        with gzip.open(path) as packed, open(target + '/tests/' + name[:-3], 'wb') as plain:
            shutil.copyfileobj(packed, plain)
    elif name.endswith('.py'):
        shutil.copy(path, target + '/tests')
";
    let status = Command::new("/usr/bin/python3")
        .args(["-c", SCRIPT, SHIPPED])
        .arg(to)
        .status();
    assert!(status.unwrap().success());
}

fn run(directory: &Path, module: &str) -> String {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libsofthca.so");
    let output = Command::new("/usr/bin/python3")
        .args(["tests/run_tests.py", "--dev", "mlx5_0", "--gid", "3", "-v"])
        .arg(format!("tests.{module}"))
        .current_dir(directory)
        .env("LD_PRELOAD", library)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("SOFTHCA_DIR")
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
