//! Open MPI and MPICH as they come, which reach the HCA by UCX. A program of a few calls looks at what arrives.

use std::path::Path;
use std::process::Command;

use super::ipc::apart;
use softhca_rig::tools::programs::{LIMIT, Running, Scratch, is_installed};

/// An MPI and how its programs are compiled and started.
struct Kind {
    compiler: &'static str,
    package: &'static str,
    launcher: &'static str,
    options: &'static [&'static str],
}

const OPEN_MPI: Kind = Kind {
    compiler: "mpicc.openmpi",
    package: "libopenmpi-dev",
    launcher: "mpirun.openmpi",
    // Debian's configuration leaves UCX out.
    options: &[
        "--allow-run-as-root",
        "--oversubscribe",
        "--mca",
        "pml",
        "ucx",
        "--mca",
        "osc",
        "ucx",
    ],
};

const MPICH: Kind = Kind {
    compiler: "mpicc.mpich",
    package: "libmpich-dev",
    launcher: "mpiexec.mpich",
    options: &[],
};

fn check(kind: &Kind) {
    let what = format!("ranks of {}", kind.launcher);
    if !is_installed(kind.compiler, kind.package, &what)
        || !is_installed(kind.launcher, kind.package, &what)
    {
        return;
    }
    let scratch = Scratch::new();
    let program = scratch.path().join("ring");
    compile(kind, &program);
    let apart = apart(&what);
    for ranks in ["2", "4", "8"] {
        let mut command = scratch.preloaded(&[], kind.launcher);
        command.args(kind.options).args(["-n", ranks]).args(&apart);
        command.arg(&program);
        if !apart.is_empty() {
            command.arg("packets");
        }
        let ended = Running::start(command, &scratch, "printed").end_within(LIMIT);
        let expected = format!("{ranks} ranks: all is as it should be\n");
        assert!(
            ended.is_success() && ended.printed.contains(&expected),
            "{}",
            ended.report()
        );
        for complaint in ["ERROR", "WARN", "softhca:", "Assertion"] {
            assert!(!ended.printed.contains(complaint), "{}", ended.report());
        }
    }
}

fn compile(kind: &Kind, program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/ring.c");
    let output = Command::new(kind.compiler)
        .args(["-O1", "-Wall", "-Werror", "-o"])
        .args([program, &source])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", kind.compiler);
}

#[test]
fn ranks_of_open_mpi_talk_by_the_hca() {
    check(&OPEN_MPI);
}

#[test]
fn ranks_of_mpich_talk_by_the_hca() {
    check(&MPICH);
}
