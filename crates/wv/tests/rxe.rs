//! `wv p2p` between softhca and Linux Soft-RoCE in a virtual machine. The engine of the guest is driven by `verbs`, as rxe has no DevX; that of
//! the host by `verbs` and by `mlx5`.
//!
//! Each end serves, and the other puts a file there and gets it back. So either HCA posts the WRITEs and the READs, and the other one
//! answers. In one case packets are lost. Every byte is compared at the end that has put the file, and once more at the other.
//!
//! The guest boots once for all cases. Guest and wire are those of the judge of softhca (`crates/softhca/tests/rxe`). That judge has a guest
//! of its own: cargo builds `wv` for the tests of this package alone, and nothing that judges the HCA should need `wv`.
//!
//! A server tells its clients the TCP address of its engine. So both ends call each other by the same addresses, though the guest is
//! in a network of QEMU's: 127.0.0.1 is the host, and [`GUEST`] is the guest. The kernel of the guest sends packets for 127.0.0.1 to QEMU,
//! which connects to the loopback of the host. QEMU listens at [`GUEST`] on the host, for the two ports at which the guest listens.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use test_basics::limits::until;

#[path = "../../softhca/tests/rxe/guest.rs"]
mod guest;
#[path = "../../softhca/tests/rxe/relay.rs"]
mod relay;

use guest::{Forward, GUEST_PORT, Guest, Wiring};
use relay::{Relay, free_udp_address};

/// The loopback address of the guest, at both ends.
const GUEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The directory of the guest for files: its root is the host's, and read-only.
const GUEST_FILES: &str = "/run/files";
/// More than the window of `wv p2p` holds, and no whole number of packets.
const FILE_BYTES: usize = (4 << 20) + 12_345;
/// The longest wait of an end, in seconds. It is less than that of the test, so that the end says for what it has waited.
const PATIENCE: &str = "200";
/// Variables of both ends. An emulated end takes its time for the steps of a connection.
const BOTH: [(&str, &str); 2] = [
    ("WARPVERBS_ENGINE_PATH", "nic"),
    ("WARPVERBS_ENGINE_CONNECT_TIMEOUT_MS", "200000"),
];
/// Variables of the end on Soft-RoCE. It sends again after a second, and gives the host up after nine.
const OF_RXE: [(&str, &str); 3] = [
    ("WARPVERBS_PROVIDER", "verbs"),
    ("WARPVERBS_DEVICE", "rxe0"),
    ("WARPVERBS_ACK_TIMEOUT", "18"),
];
/// Variables of the end on softhca. It sends again when its own timer says so, and gives the guest up after half a minute.
const OF_SOFTHCA: [(&str, &str); 2] = [
    ("WARPVERBS_DEVICE", "mlx5_0"),
    ("WARPVERBS_ACK_TIMEOUT", "20"),
];

/// A case in which the guest serves.
struct Case {
    /// The provider of the host.
    provider: &'static str,
    /// Lost of a thousand packets, to the guest and from it.
    loss: [u32; 2],
}

const CASES: [Case; 3] = [
    Case {
        provider: "verbs",
        loss: [0, 0],
    },
    Case {
        provider: "mlx5",
        loss: [0, 0],
    },
    Case {
        provider: "mlx5",
        loss: [20, 20],
    },
];

#[test]
fn wv_p2p_copies_between_softhca_and_soft_roce_by_verbs_and_by_devx() {
    let boot = match Guest::prepare() {
        Ok(boot) => boot,
        Err(why) => return println!("skipped: wv p2p with Soft-RoCE in a virtual machine: {why}"),
    };
    let start = Instant::now();
    let mut ends = Ends::new(&boot);
    let up = start.elapsed();
    ends.guest_serves();
    for provider in ["verbs", "mlx5"] {
        ends.host_serves(provider);
    }
    println!(
        "Soft-RoCE in a virtual machine: up after {:.1} s, {} cases after {:.1} s",
        up.as_secs_f64(),
        CASES.len() + 2,
        start.elapsed().as_secs_f64()
    );
}

/// The two ends, the wire between them, and a file.
struct Ends {
    guest: Guest,
    relay: Relay,
    /// What softhca calls the wire.
    carrier: String,
    /// The seed of the file and of the losses.
    seed: u64,
    /// The address at which the host finds the server of the guest.
    server: SocketAddr,
    /// The address at which both ends find its engine.
    engine: SocketAddr,
    source: PathBuf,
    bytes: Vec<u8>,
    files: TempDir,
    runtime: TempDir,
}

impl Ends {
    fn new(boot: &Path) -> Self {
        let seed = fastrand::u64(..u64::MAX / 2);
        fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let source = files.path().join("source");
        let mut bytes = vec![0; FILE_BYTES];
        fastrand::Rng::with_seed(seed).fill(&mut bytes);
        // The guest keeps what it has seen of the host's files, so the file is there before the guest is.
        fs::write(&source, &bytes).unwrap();
        let [at_guest, at_hca] = [(); 2].map(|()| free_udp_address());
        let relay = Relay::new(at_guest, at_hca, seed);
        let [server, engine] = free_addresses_of_the_guest();
        let wiring = Wiring {
            frames: [at_guest, relay.for_guest],
            tcp: vec![
                Forward {
                    host: server,
                    guest: (GUEST, GUEST_PORT).into(),
                },
                Forward {
                    host: engine,
                    guest: engine,
                },
            ],
        };
        let mut ends = Self {
            guest: Guest::boot(boot, &wiring),
            carrier: format!("frames:{at_hca},{}", relay.for_hca),
            relay,
            seed,
            server,
            engine,
            source,
            bytes,
            files,
            runtime: tempfile::tempdir().unwrap(),
        };
        ends.guest.hear("ready");
        ends.share_loopback();
        ends.in_guest(&format!("mkdir {GUEST_FILES}"));
        ends
    }

    /// Makes 127.0.0.1 the host in the guest, and [`GUEST`] the guest itself.
    fn share_loopback(&mut self) {
        for line in [
            "ip addr del 127.0.0.1/8 dev lo",
            "echo 1 >/proc/sys/net/ipv4/conf/eth1/route_localnet",
            &format!("ip addr add {GUEST}/32 dev eth1"),
            "ip route add 127.0.0.1 via 10.0.2.2 dev eth1",
        ] {
            self.in_guest(line);
        }
    }

    /// The server of the guest has files put and got by softhca.
    fn guest_serves(&mut self) {
        let ports = "/proc/sys/net/ipv4/ip_local_port_range";
        // The engine of a server listens at any free port, and only this one leads into the guest.
        let port = self.engine.port();
        self.in_guest(&format!("echo {port} {port} >{ports}"));
        let requests = 2 * CASES.len();
        self.guest.serve(&on_rxe(&format!(
            "serve {GUEST_FILES} --listen {GUEST}:{GUEST_PORT} --requests {requests}"
        )));
        for (number, case) in CASES.iter().enumerate() {
            self.relay.take_counts();
            self.relay.lose(case.loss);
            self.copy_by_softhca(case.provider, &format!("file-{number}"));
            self.check_wire(case.provider, case.loss);
        }
        self.relay.lose([0, 0]);
        let status = self.guest.finish();
        let said = self.guest.tail();
        assert_eq!(status, 0, "seed {}: {said}", self.seed);
        assert!(said.contains("the engine is on rxe0:1 by verbs"), "{said}");
        self.in_guest(&format!("echo 32768 60999 >{ports}"));
        let source = self.source.display().to_string();
        for number in 0..CASES.len() {
            self.in_guest(&format!("cmp {source} {GUEST_FILES}/file-{number}"));
        }
    }

    /// Puts the file to the server of the guest, and gets it back.
    fn copy_by_softhca(&self, provider: &str, name: &str) {
        let place = self.server.to_string();
        let back = self.files.path().join(format!("back-{name}"));
        let [source, copy] = [&self.source, &back].map(|path| path.to_str().unwrap());
        for words in [["put", &place, source, name], ["get", &place, name, copy]] {
            let (is_done, printed) = self.on_softhca(provider, &words).end();
            assert!(
                is_done && has_copied(&printed, &format!("mlx5_0:1 by {provider}")),
                "{words:?} by {provider}, seed {}: {printed} guest: {}",
                self.seed,
                self.guest.tail()
            );
        }
        let is_same = fs::read(&back).unwrap() == self.bytes;
        assert!(is_same, "{name} by {provider}, seed {}", self.seed);
    }

    /// A server of the host has a file put and got by Soft-RoCE.
    fn host_serves(&mut self, provider: &str) {
        self.relay.take_counts();
        let served = self.files.path().join(provider);
        fs::create_dir(&served).unwrap();
        let directory = served.to_str().unwrap();
        let words = format!("serve {directory} --listen 127.0.0.1:0 --requests 2");
        let words: Vec<&str> = words.split(' ').collect();
        let mut server = self.on_softhca(provider, &words);
        let line = server.line();
        let serves = line.starts_with("serving");
        assert!(serves, "{line:?} by {provider}: {:?}", server.end());
        let place = line.trim_end().rsplit(' ').next().unwrap_or_default();
        let source = self.source.display().to_string();
        let back = format!("{GUEST_FILES}/back-{provider}");
        for words in [
            format!("put {place} {source} file"),
            format!("get {place} file {back}"),
        ] {
            let printed = self.in_guest(&on_rxe(&words));
            assert!(has_copied(&printed, "rxe0:1 by verbs"), "{printed}");
        }
        self.check_wire(provider, [0, 0]);
        self.in_guest(&format!("cmp {source} {back}"));
        let (is_done, printed) = server.end();
        assert!(
            is_done && printed.contains(&format!("the engine is on mlx5_0:1 by {provider}")),
            "{provider}, seed {}: {printed}",
            self.seed
        );
        let is_same = fs::read(served.join("file")).unwrap() == self.bytes;
        assert!(
            is_same,
            "put by Soft-RoCE to {provider}, seed {}",
            self.seed
        );
    }

    /// Checks that packets have gone both ways since the counts were taken, and that so many were lost as are to be.
    fn check_wire(&self, provider: &str, loss: [u32; 2]) {
        let counts = self.relay.take_counts();
        for ((carried, lost), loss) in counts.into_iter().zip(loss) {
            let is_right = carried > 0 && (lost > 0) == (loss > 0);
            assert!(is_right, "{provider}, seed {}: {counts:?}", self.seed);
        }
    }

    /// Runs a command line in the guest, which must succeed. Returns what it has printed.
    fn in_guest(&mut self, line: &str) -> String {
        let ran = self.guest.run(line);
        let (status, printed) = (ran.status, ran.printed);
        assert_eq!(status, 0, "{line}, seed {}: {printed}", self.seed);
        printed
    }

    /// Starts `wv p2p` on a software HCA at the wire.
    fn on_softhca(&self, provider: &str, words: &[&str]) -> Program {
        let wv = env!("CARGO_BIN_EXE_wv");
        let mut command = Command::new(wv);
        command
            .args(["sim", "--ip", "10.0.0.1", "--carrier", &self.carrier])
            .args(["--", wv, "p2p"])
            .args(words)
            .args(["--timeout", PATIENCE])
            .envs(BOTH)
            .envs(OF_SOFTHCA)
            .env("WARPVERBS_PROVIDER", provider)
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env_remove("WARPVERBS_SOFTHCA");
        Program::start(command)
    }
}

/// Returns the command line of `wv p2p` on Soft-RoCE, for the guest.
fn on_rxe(words: &str) -> String {
    let variables = BOTH.iter().chain(&OF_RXE);
    let variables: Vec<String> = variables
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let (variables, wv) = (variables.join(" "), env!("CARGO_BIN_EXE_wv"));
    format!("{variables} {wv} p2p {words} --timeout {PATIENCE}")
}

/// Returns whether a client says that both ends have seen the same bytes, and that its engine is on this device by this provider.
fn has_copied(printed: &str, device: &str) -> bool {
    let is_same = printed.contains("their sum is the same at both ends");
    is_same && printed.contains(&format!("the engine is on {device}"))
}

/// Returns two TCP addresses of the guest that no process of the host has.
fn free_addresses_of_the_guest() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind((GUEST, 0)).unwrap());
    listeners.map(|it| it.local_addr().unwrap())
}

/// A program of the host. Dropping it ends it.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Returns the next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Waits for its end. Returns whether it has succeeded, and what it has printed but for lines that were taken.
    fn end(&mut self) -> (bool, String) {
        until("the program of the host ends", || {
            self.child.try_wait().unwrap().is_some()
        });
        let mut printed = String::new();
        self.out.read_to_string(&mut printed).unwrap();
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut printed).unwrap();
        (self.child.wait().unwrap().success(), printed)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
