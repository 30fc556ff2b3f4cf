//! Two programs that know nothing of each other but an address, each under a `wv sim` of its own.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

use test_basics::addresses::free_address;
use test_basics::limits::until;

/// `ibv_rc_pingpong` under `wv sim --ip IP`, killed with the value.
struct Pingpong(Child);

impl Pingpong {
    fn start(
        directory: &tempfile::TempDir,
        ip: Ipv4Addr,
        options: &str,
        host: Option<&str>,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
        command
            .args([
                "sim",
                "--ip",
                &ip.to_string(),
                "--",
                "ibv_rc_pingpong",
                "-g",
                "3",
            ])
            .args(options.split_whitespace())
            .args(host)
            .env("XDG_RUNTIME_DIR", directory.path())
            .env_remove("WARPVERBS_SOFTHCA")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Returns what it printed, and its status; panics if it does not end in time.
    fn end(mut self) -> (String, Option<i32>) {
        until("the program ends", || self.0.try_wait().unwrap().is_some());
        let mut printed = String::new();
        self.0
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        self.0
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut printed)
            .unwrap();
        (printed, self.0.wait().unwrap().code())
    }
}

impl Drop for Pingpong {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Until the server's table of sockets has its port: to connect would be to be its client.
fn wait_until_listening(server: &mut Pingpong, port: u16) {
    let suffix = format!(":{port:04X}");
    let listens = |table: &&str| {
        let table = std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
        let is_it = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1].ends_with(&suffix) && fields[3] == "0A"
        };
        table.lines().any(is_it)
    };
    until("the server listens", || {
        let ended = server.0.try_wait().unwrap();
        assert!(ended.is_none(), "the server has ended");
        ["tcp", "tcp6"].iter().any(listens)
    });
}

#[test]
fn ibv_rc_pingpong_runs_between_two_simulated_machines() {
    let directory = tempfile::tempdir().unwrap();
    let ips = [free_address(), free_address()];
    let options = format!("-c -n 200 -p {}", free_port());
    let port = options.rsplit(' ').next().unwrap().parse().unwrap();
    let mut server = Pingpong::start(&directory, ips[0], &options, None);
    wait_until_listening(&mut server, port);
    let client = Pingpong::start(&directory, ips[1], &options, Some("127.0.0.1"));
    for (end, own, peer) in [(client, ips[1], ips[0]), (server, ips[0], ips[1])] {
        let (printed, status) = end.end();
        assert_eq!(status, Some(0), "{printed}");
        assert!(!printed.contains("invalid data"), "{printed}");
        for expected in [
            "200 iters in",
            &format!("GID ::ffff:{own}"),
            &format!("GID ::ffff:{peer}"),
        ] {
            assert!(printed.contains(expected), "{expected}: {printed}");
        }
    }
    assert!(!directory.path().join("softhca").exists());
}
