//! A network namespace in which this machine has all addresses of an IPv6 subnet, as it has all of 127/8.

use std::process::{Command, Stdio};

/// The subnet of all the addresses.
pub const SUBNET: &str = "fd00:5::/96";

/// A shell script that runs its arguments in a network with all addresses of the subnet.
const SCRIPT: &str = "ip link set lo up; ip -6 route add local fd00:5::/96 dev lo; exec \"$@\"";

/// Returns a command that runs its arguments in such a network. If this machine cannot make one, `test` is reported as skipped.
#[must_use]
pub fn network(test: &str) -> Option<Command> {
    let start = |namespaces: &str| {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-ec", SCRIPT, "sh"]);
        command
    };
    let mut why = String::new();
    // Root needs no user namespace, and in a chroot none can be made.
    for namespaces in ["-n", "-rn"] {
        let tried = start(namespaces).arg("true").stdin(Stdio::null()).output();
        why = match tried {
            Ok(output) if output.status.success() => return Some(start(namespaces)),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
    }
    println!("skipped: {test}: no network namespace with an IPv6 subnet can be made here: {why}");
    None
}
