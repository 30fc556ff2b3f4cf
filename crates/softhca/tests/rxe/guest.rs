//! The virtual machine: Debian's kernel with Soft-RoCE, the host's root read-only, commands over the serial line.
//!
//! Tests of other packages boot it too, so it names its scripts from the folder of any package, and uses nothing of its neighbours.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use test_basics::limits::HANG;

/// The address of the guest in QEMU's own network.
pub(crate) const GUEST_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// TCP port of the guest at which its programs serve.
pub(crate) const GUEST_PORT: u16 = 7000;

/// A running guest. Dropping it ends it.
pub(crate) struct Guest {
    machine: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// The last lines of other programs, for the message of a failure.
    tail: VecDeque<String>,
}

/// How the guest is connected.
pub(crate) struct Wiring {
    /// Where QEMU receives frames, and where it sends them.
    pub(crate) frames: [SocketAddr; 2],
    /// TCP addresses of the host that lead into the guest.
    pub(crate) tcp: Vec<Forward>,
}

/// A TCP address of the host that leads to one of the guest.
pub(crate) struct Forward {
    pub(crate) host: SocketAddr,
    pub(crate) guest: SocketAddr,
}

/// A command line of the guest that has ended.
pub(crate) struct Ran {
    pub(crate) status: i32,
    /// The last lines that were printed meanwhile.
    pub(crate) printed: String,
}

impl Guest {
    /// Makes kernel and initramfs below the repository's `.tools`, unless they exist. The error says in words why that fails, or that
    /// QEMU is not installed.
    pub(crate) fn prepare() -> Result<PathBuf, String> {
        let version = Command::new("qemu-system-x86_64").arg("--version").output();
        let Ok(version) = version else {
            return Err("qemu-system-x86_64 (package qemu-system-x86) is not installed".to_owned());
        };
        assert!(version.status.success());
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools");
        std::fs::create_dir_all(&tools).map_err(|error| error.to_string())?;
        let boot = tools.canonicalize().expect("just made").join("rxe");
        let output = Command::new(script("prepare.sh"))
            .arg(&boot)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(boot)
        } else {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(errors.lines().last().unwrap_or_default().to_owned())
        }
    }

    /// Starts a guest from what [`Self::prepare`] made.
    pub(crate) fn boot(boot: &Path, wiring: &Wiring) -> Self {
        let [local, remote] = wiring.frames;
        let end = |side: &str, at: SocketAddr| {
            format!(
                "{side}.type=inet,{side}.host=127.0.0.1,{side}.port={}",
                at.port()
            )
        };
        let frames = format!(
            "dgram,id=wire,{},{}",
            end("local", local),
            end("remote", remote)
        );
        let mut tcp = "user,id=tcp".to_owned();
        for Forward { host, guest } in &wiring.tcp {
            tcp += &format!(",hostfwd=tcp:{host}-{guest}");
        }
        // Not KVM: where it is offered to containers and cloud machines, a stock kernel may hang on it.
        let mut machine = Command::new("qemu-system-x86_64")
            .args(
                "-accel tcg,thread=multi -cpu max -smp 2 -m 512 -nodefaults -display none"
                    .split(' '),
            )
            .args([
                "-serial",
                "stdio",
                "-no-reboot",
                "-netdev",
                &frames,
                "-netdev",
                &tcp,
            ])
            .args([
                "-device",
                "virtio-net-pci,netdev=wire,romfile=,mac=52:54:00:00:00:02",
            ])
            .args([
                "-device",
                "virtio-net-pci,netdev=tcp,romfile=,mac=52:54:00:00:00:03",
            ])
            .args([
                "-virtfs",
                "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
            ])
            .arg("-kernel")
            .arg(boot.join("kernel"))
            .arg("-initrd")
            .arg(boot.join("initramfs"))
            .arg("-append")
            .arg(format!(
                "console=ttyS0 quiet panic=-1 script={}",
                script("guest.sh").display()
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = machine.stdin.take().unwrap();
        let output = BufReader::new(machine.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            machine,
            input,
            lines,
            tail: VecDeque::new(),
        }
    }

    /// Waits for a line that begins with `@` and `word`; what follows.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        loop {
            let line = match self.lines.recv_timeout(HANG) {
                Ok(line) => line,
                Err(error) => panic!("the guest does not say @{word}: {error}; {:#?}", self.tail),
            };
            self.tail.push_back(line.clone());
            if self.tail.len() > 40 {
                self.tail.pop_front();
            }
            match line.split_once('@') {
                Some((_, said)) if said.starts_with(word) => {
                    return said[word.len()..].trim().to_owned();
                }
                Some((_, said)) if said.starts_with("failed") => {
                    panic!("guest: {line}; {:#?}", self.tail)
                }
                _ => {}
            }
        }
    }

    /// Runs a command line to its end.
    pub(crate) fn run(&mut self, line: &str) -> Ran {
        self.tail.clear();
        writeln!(self.input, "{line}").unwrap();
        let status = self.finish();
        let printed = self.tail.make_contiguous().join("\n");
        Ran { status, printed }
    }

    /// Starts a program that serves at [`GUEST_PORT`], and waits until it listens or has ended.
    pub(crate) fn serve(&mut self, program: &str) {
        let port = format!(":{GUEST_PORT:04X} .* 0A ");
        writeln!(
            self.input,
            "{program} & until grep -qs '{port}' /proc/net/tcp /proc/net/tcp6 || ! kill -0 $!; do sleep 0.02; done; echo @listens; wait $!"
        )
        .unwrap();
        self.hear("listens");
    }

    /// Waits for the end of what was started; its exit status.
    pub(crate) fn finish(&mut self) -> i32 {
        let status = self.hear("done");
        status.parse().unwrap()
    }

    /// Returns the last lines of the guest, and those for which nobody has waited.
    pub(crate) fn tail(&self) -> String {
        let unheard = self.lines.try_iter();
        let lines: Vec<String> = self.tail.iter().cloned().chain(unheard).collect();
        format!("{lines:#?}")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

/// Returns the path of a script beside this file.
fn script(name: &str) -> PathBuf {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../softhca/tests/rxe");
    scripts.canonicalize().unwrap().join(name)
}
