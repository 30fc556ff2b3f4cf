//! Server and client of one tool, each a process with an HCA and an address of its own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use super::programs::{Ended, Running, Scratch};

/// Where a program of a pair runs.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// What has to start it, for instance to enter a namespace; or nothing.
    pub prefix: Vec<String>,
    /// The address of its HCA; by default a free one of 127.0.0.0/8.
    pub ip: Option<Ipv4Addr>,
    /// More of the environment.
    pub environment: Vec<(&'static str, String)>,
}

/// The places of a pair, and the address at which the tool's own TCP connection finds the server.
#[derive(Clone, Debug)]
pub struct Places {
    /// Where the server runs.
    pub server: Place,
    /// Where the client runs.
    pub client: Place,
    /// By which address the client finds the server.
    pub host: Ipv4Addr,
}

impl Places {
    /// Both on this machine, as they are.
    pub fn here() -> Self {
        Self {
            server: Place::default(),
            client: Place::default(),
            host: Ipv4Addr::LOCALHOST,
        }
    }
}

/// How a pair ended.
#[derive(Debug)]
pub struct PairEnded {
    /// How the server ended.
    pub server: Ended,
    /// How the client ended.
    pub client: Ended,
}

impl PairEnded {
    /// Unless both ended well and neither printed anything that holds one of `complaints`: both reports.
    pub fn check(&self, complaints: &[&str]) -> Result<(), String> {
        let is_well = |ended: &Ended| {
            let complains = |complaint: &&str| ended.printed.contains(*complaint);
            ended.is_success() && !complaints.iter().any(complains)
        };
        if is_well(&self.server) && is_well(&self.client) {
            return Ok(());
        }
        let (server, client) = (self.server.report(), self.client.report());
        Err(format!("--- server\n{server}\n--- client\n{client}\n"))
    }

    /// Returns how long the client ran.
    pub fn took(&self) -> Duration {
        self.client.took
    }
}

/// How long the server of a client that failed may go on.
const FAILED: Duration = Duration::from_secs(10);

/// Runs `program OPTIONS` as a server and then as its client; each has `limit` for all of its run.
///
/// A server that ended before it listened is tried again when another program had taken its port meanwhile.
pub fn run(
    scratch: &Scratch,
    places: &Places,
    program: &str,
    options: &[&str],
    limit: Duration,
) -> PairEnded {
    let options = [options.to_vec(), options.to_vec()];
    run_with(scratch, places, program, &options, limit)
}

/// [`run`] with options of the server and others of the client.
pub fn run_with(
    scratch: &Scratch,
    places: &Places,
    program: &str,
    [of_server, of_client]: &[Vec<&str>; 2],
    limit: Duration,
) -> PairEnded {
    for _ in 0..5 {
        let port = free_port().to_string();
        let start = |place: &Place, name: &str, options: &[&str], host: Option<String>| {
            let mut command = scratch.preloaded(&place.prefix, program);
            command.args(options).args(["-p", &port]).args(host);
            if let Some(ip) = place.ip {
                command.env("SOFTHCA_IP", ip.to_string());
            }
            for (name, value) in &place.environment {
                command.env(name, value);
            }
            Running::start(command, scratch, name)
        };
        let mut server = start(&places.server, "server", of_server, None);
        let is_listening = wait_until_listening(&mut server, &port, limit);
        let client = start(
            &places.client,
            "client",
            of_client,
            Some(places.host.to_string()),
        );
        let client = client.end_within(limit);
        // The server of a client that failed may wait for ever.
        let patience = if client.is_success() { limit } else { FAILED };
        let ended = PairEnded {
            server: server.end_for(patience),
            client,
        };
        if is_listening || !ended.server.printed.contains("Address already in use") {
            return ended;
        }
    }
    panic!("five ports in a row were taken");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns whether it came so far: it may end first, or need longer.
fn wait_until_listening(server: &mut Running, port: &str, limit: Duration) -> bool {
    let port: u16 = port.parse().unwrap();
    let since = Instant::now();
    while since.elapsed() < limit && !server.has_ended() {
        if is_listening(server.id(), port) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// In the tables of the network namespace that the process is in.
fn is_listening(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            local.ends_with(&suffix) && fields.nth(1) == Some(LISTEN)
        })
    })
}
