//! Two network namespaces joined by a veth pair, as long as the value lives.
//!
//! A namespace lives as long as a process is in it. Here that is `cat`, which ends with the pipe to its standard input. So nothing
//! is left however the test ends. A user other than root gets one as root of a user namespace, where the machine permits that.

use std::io::Read;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use softhca_rig::tools::pair::{Place, Places};

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

/// The two namespaces.
pub(crate) struct Namespaces {
    holders: [Holder; 2],
}

struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Namespaces {
    /// None: the machine refuses, and it is said that `what` is skipped.
    pub(crate) fn new(what: &str) -> Option<Self> {
        match Self::try_new() {
            Ok(namespaces) => Some(namespaces),
            Err(why) => {
                println!("skipped: {what}: no network namespaces here: {why}");
                None
            }
        }
    }

    fn try_new() -> Result<Self, String> {
        let first = hold(&[], &["--net"])
            .or_else(|_| hold(&[], &["--user", "--map-root-user", "--net"]))?;
        let second = hold(&enter(&first), &["--net"])?;
        let namespaces = Self {
            holders: [first, second],
        };
        let pid = namespaces.holders[1].0.id().to_string();
        // Into the second by its number, because both ends are made in the first.
        namespaces.ip(
            0,
            &[
                "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", &pid,
            ],
        )?;
        for (index, address) in ADDRESSES.iter().enumerate() {
            namespaces.ip(
                index,
                &["address", "add", &format!("{address}/24"), "dev", "veth0"],
            )?;
            namespaces.ip(index, &["link", "set", "veth0", "up"])?;
            namespaces.ip(index, &["link", "set", "lo", "up"])?;
        }
        Ok(namespaces)
    }

    fn ip(&self, index: usize, arguments: &[&str]) -> Result<(), String> {
        let prefix = enter(&self.holders[index]);
        let output = Command::new(&prefix[0])
            .args(&prefix[1..])
            .arg("ip")
            .args(arguments)
            .output()
            .map_err(|error| format!("nsenter (package util-linux): {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let why = String::from_utf8_lossy(&output.stderr);
        Err(format!("ip {}: {}", arguments.join(" "), why.trim()))
    }

    /// Returns the server in the first, the client in the second, and their HCAs at the addresses of the veth pair.
    pub(crate) fn places(&self) -> Places {
        let place = |index: usize| Place {
            prefix: enter(&self.holders[index]),
            ip: Some(ADDRESSES[index]),
            ..Place::default()
        };
        Places {
            server: place(0),
            client: place(1),
            host: ADDRESSES[0],
        }
    }
}

/// Returns what starts a command in the namespaces of `holder`.
fn enter(holder: &Holder) -> Vec<String> {
    let pid = holder.0.id().to_string();
    let is_user_too = namespace_of("self", "user") != namespace_of(&pid, "user");
    let mut words = vec![
        "nsenter".to_owned(),
        "--target".to_owned(),
        pid,
        "--net".to_owned(),
    ];
    if is_user_too {
        words.extend(["--user", "--preserve-credentials"].map(str::to_owned));
    }
    words
}

fn namespace_of(pid: &str, kind: &str) -> Option<std::path::PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()
}

/// Starts `cat` in new namespaces, and waits until it runs: until it prints what it has read.
fn hold(prefix: &[String], kinds: &[&str]) -> Result<Holder, String> {
    let mut words = prefix.iter().map(String::as_str).chain(["unshare"]);
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .args(kinds)
        .args(["sh", "-c", "echo; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("unshare (package util-linux): {error}"))?;
    let mut line = [0];
    if child.stdout.as_mut().unwrap().read_exact(&mut line).is_ok() {
        return Ok(Holder(child));
    }
    let mut why = String::new();
    let _ = child.stderr.as_mut().unwrap().read_to_string(&mut why);
    let _ = child.wait();
    Err(why.trim().to_owned())
}
