//! A network of its own in which this machine has all addresses of an IPv6 subnet, as it has those of 127/8.

use std::process::{Command, Stdio};

/// The subnet whose addresses the network has.
pub const SUBNET: &str = "fd00:5::/96";

/// Runs its arguments in a network with all addresses of the subnet.
const SCRIPT: &str = "ip link set lo up; ip -6 route add local fd00:5::/96 dev lo; exec \"$@\"";

/// Returns what starts a command in such a network; if this machine has none, `test` is reported as skipped.
#[must_use]
pub fn network(test: &str) -> Option<Command> {
    let start = |namespaces: &str| {
        let mut command = Command::new("unshare");
        command.args([namespaces, "sh", "-ec", SCRIPT, "sh"]);
        command
    };
    let mut why = String::new();
    // Root needs no namespace of users, and in a chroot none can be made.
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
