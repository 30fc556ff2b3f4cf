//! An independent client: the tests that Debian ships with pyverbs, as far as they need nothing but what is here.
//!
//! They build their own commands and WQEs, so a misreading of the manual that our runtime and softhca share would
//! show here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIPPED: &str = "/usr/share/doc/rdma-core/tests";

/// The modules, in one run, because a start of Python costs a second.
const MODULES: &[&str] = &[
    "tests.test_device",
    "tests.test_pd",
    "tests.test_addr",
    "tests.test_mlx5_devx",
    "tests.test_mlx5_uar",
];
/// How many of their tests pass with rdma-core 44. The others skip themselves: they need features that the device
/// does not have.
const PASSING: usize = 21;

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
    let output = run(&directory);
    // Each test ends its line with its outcome; some print between name and outcome.
    let passed = output.lines().filter(|line| line.ends_with("ok")).count();
    assert!(
        !output.contains("ERROR") && !output.contains("FAIL"),
        "{output}"
    );
    if version_44 {
        assert_eq!(passed, PASSING, "{output}");
    } else {
        println!("{passed} passed; {PASSING} do with rdma-core 44");
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

fn run(directory: &Path) -> String {
    let library = std::env::current_exe()
        .unwrap()
        .with_file_name("libsofthca.so");
    let output = Command::new("/usr/bin/python3")
        .args(["tests/run_tests.py", "--dev", "mlx5_0", "--gid", "3", "-v"])
        .args(MODULES)
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
