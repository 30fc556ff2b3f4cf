//! Real etcd servers on loopback, of Debian's package, each in a private directory, and an impostor in place of a server.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::certificates::{Authority, Issued};
use crate::limits::HANG;
use crate::stopped;

/// The time after which a search is repeated.
const ANSWER: Duration = Duration::from_secs(20);

/// What the tests lack without [`program`], and why.
pub const NO_PROGRAM: &str =
    "stores etcd://: etcd is not installed (./x test unpacks Debian's etcd-server)";

/// The most bytes of an etcd that is small, and the bytes of each key that fills it.
const SMALL: usize = 8 << 20;
const FILLER: usize = 1 << 19;
/// The begin of the names of keys that fill an etcd.
const FILLERS: &str = "fill-";

/// Returns the path of etcd, as `./x test` has unpacked it or as it is installed.
pub fn program() -> Option<PathBuf> {
    let unpacked = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../.tools/etcd/usr/bin/etcd"
    );
    [unpacked, "/usr/bin/etcd"]
        .map(PathBuf::from)
        .into_iter()
        .find(|program| program.exists())
}

/// One etcd of one or more members. They are killed when this is dropped.
pub struct Etcd {
    members: Vec<Member>,
    directory: tempfile::TempDir,
}

struct Member {
    program: PathBuf,
    arguments: Vec<String>,
    data: PathBuf,
    port: u16,
    /// The port on which the member takes connections by TLS.
    tls_port: Option<u16>,
    process: Option<Child>,
}

/// What an etcd needs to take connections by TLS.
pub struct TlsServer<'a> {
    /// The server's certificate and key.
    pub issued: &'a Issued,
    /// The authority of clients. If it is given, the server asks clients for their certificates.
    pub clients: Option<&'a Authority>,
}

impl Etcd {
    /// Starts an etcd of `members` members, and waits until they serve. Returns `None` if etcd is not installed, so that the test is
    /// skipped.
    pub fn start(members: usize) -> Option<Self> {
        Self::start_with(members, None)
    }

    /// Starts an etcd of one member, which also takes connections by TLS.
    pub fn start_with_tls(tls: &TlsServer<'_>) -> Option<Self> {
        Self::start_with(1, Some(tls))
    }

    /// Starts an etcd of one member that keeps no more than a few MiB, so that [`Etcd::fill`] can fill it.
    pub fn start_small() -> Option<Self> {
        let small = |etcd: &mut Self| {
            let quota = format!("--quota-backend-bytes={SMALL}");
            etcd.members[0].arguments.push(quota);
        };
        Self::start_as(1, None, small)
    }

    fn start_with(members: usize, tls: Option<&TlsServer<'_>>) -> Option<Self> {
        Self::start_as(members, tls, |_| ())
    }

    fn start_as(
        members: usize,
        tls: Option<&TlsServer<'_>>,
        configure: impl Fn(&mut Self),
    ) -> Option<Self> {
        let Some(program) = program() else {
            println!("skipped: {NO_PROGRAM}");
            return None;
        };
        // A port that is free when it is picked may be taken a moment later, so other ports are tried.
        for _ in 0..5 {
            let mut etcd = Self::new(&program, members, tls);
            configure(&mut etcd);
            (0..members).for_each(|i| etcd.start_member(i));
            if (0..members).all(|i| etcd.serves(i)) {
                return Some(etcd);
            }
            eprintln!("an etcd has ended: its ports were taken by others");
        }
        panic!("no etcd comes up");
    }

    fn new(program: &std::path::Path, members: usize, tls: Option<&TlsServer<'_>>) -> Self {
        // etcd answers only when a write has reached the disk. That takes seconds while a compiler writes to the disk, so the data are in
        // memory.
        let memory = std::path::Path::new("/dev/shm");
        let parent = memory.is_dir().then(|| memory.to_owned());
        let directory = tempfile::tempdir_in(parent.unwrap_or_else(std::env::temp_dir)).unwrap();
        let free: Vec<TcpListener> = (0..members * 3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let port = |i: usize| free[i].local_addr().unwrap().port();
        let cluster: Vec<String> = (0..members)
            .map(|i| format!("m{i}=http://127.0.0.1:{}", port(members + i)))
            .collect();
        let member = |i: usize| {
            let client = format!("http://127.0.0.1:{}", port(i));
            let peer = format!("http://127.0.0.1:{}", port(members + i));
            let tls_port = tls.map(|_| port(2 * members + i));
            let by_tls = tls_port.map(|port| format!("https://127.0.0.1:{port}"));
            let clients = [Some(client), by_tls].into_iter().flatten();
            let clients = clients.collect::<Vec<_>>().join(",");
            let data = directory.path().join(format!("m{i}"));
            let options = [
                ("name", format!("m{i}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", clients.clone()),
                ("advertise-client-urls", clients),
                ("listen-peer-urls", peer.clone()),
                ("initial-advertise-peer-urls", peer),
                ("initial-cluster", cluster.join(",")),
            ];
            Member {
                program: program.to_owned(),
                data,
                arguments: options
                    .into_iter()
                    .chain(tls.into_iter().flat_map(TlsServer::options))
                    .map(|(name, value)| format!("--{name}={value}"))
                    .collect(),
                port: port(i),
                tls_port,
                process: None,
            }
        };
        Self {
            members: (0..members).map(member).collect(),
            directory,
        }
    }

    /// Returns the URL of the etcd: its members from number `first` on, `user` (`name:password@` or nothing), and the prefix.
    pub fn url(&self, first: usize, user: &str, prefix: &str) -> String {
        let count = self.members.len();
        let members: Vec<String> = (first..first + count)
            .map(|i| format!("127.0.0.1:{}", self.members[i % count].port))
            .collect();
        format!("etcd://{user}{}/{prefix}", members.join(","))
    }

    /// Returns the URL by TLS, with `host` in place of 127.0.0.1, and with options.
    pub fn tls_url(&self, host: &str, prefix: &str, options: &str) -> String {
        let port = self.members[0].tls_port.unwrap();
        format!("etcds://{host}:{port}/{prefix}?{options}")
    }

    /// Starts a member again with the data that it had.
    pub fn start_member(&mut self, i: usize) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join(format!("log{i}")))
            .unwrap();
        let member = &mut self.members[i];
        // The server is killed when this thread ends, however it ends.
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(&member.program)
            .args(&member.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.process = Some(process.unwrap());
    }

    /// Waits until a member has a leader. Returns false if its process has ended.
    pub fn serves(&mut self, i: usize) -> bool {
        let start = Instant::now();
        loop {
            let process = self.members[i].process.as_mut().unwrap();
            if process.try_wait().unwrap().is_some() {
                return false;
            }
            let status = self.post(i, "maintenance/status", "{}").unwrap_or_default();
            if !field(&status, "leader").is_empty() {
                return true;
            }
            assert!(start.elapsed() < HANG, "member {i} has no leader");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills a member (SIGKILL).
    pub fn kill(&mut self, i: usize) {
        let mut process = self.members[i].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Kills a member (SIGKILL) and removes its data. It can be started again, empty, at the same address.
    pub fn wipe(&mut self, i: usize) {
        self.kill(i);
        fs::remove_dir_all(&self.members[i].data).unwrap();
    }

    /// Stops a member (SIGSTOP), so that it answers nothing any more.
    pub fn stop(&self, i: usize) {
        stopped::stop(self.members[i].process.as_ref().unwrap().id());
    }

    /// Resumes a member (SIGCONT).
    pub fn resume(&self, i: usize) {
        stopped::resume(self.members[i].process.as_ref().unwrap().id());
    }

    /// Returns the number of the member that leads.
    pub fn leader(&self) -> usize {
        let leads = |&i: &usize| {
            let status = self.post(i, "maintenance/status", "{}").unwrap_or_default();
            let leader = field(&status, "leader");
            !leader.is_empty() && leader == field(&status, "member_id")
        };
        let start = Instant::now();
        loop {
            let mut running =
                (0..self.members.len()).filter(|&i| self.members[i].process.is_some());
            if let Some(leader) = running.find(leads) {
                return leader;
            }
            assert!(start.elapsed() < HANG, "no member leads");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes a user `root` with a password. From then on a request without the password fails.
    pub fn require_password(&self, password: &str) {
        for (path, body) in [
            (
                "auth/user/add",
                format!(r#"{{"name":"root","password":"{password}"}}"#),
            ),
            ("auth/role/add", r#"{"name":"root"}"#.to_owned()),
            (
                "auth/user/grant",
                r#"{"user":"root","role":"root"}"#.to_owned(),
            ),
            ("auth/enable", "{}".to_owned()),
        ] {
            let answer = self.post(0, path, &body).unwrap();
            assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
        }
    }

    /// Returns the address at which a member takes connections.
    pub fn address(&self, i: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.members[i].port))
    }

    /// Returns the number of the newest change.
    pub fn revision(&self) -> u64 {
        let status = self.post(0, "maintenance/status", "{}").unwrap();
        field(&status, "revision")
            .parse()
            .unwrap_or_else(|_| panic!("{status}"))
    }

    /// Forgets every change before the newest one, and returns its number.
    pub fn compact(&self) -> u64 {
        let revision = self.revision();
        let body = format!(r#"{{"revision":"{revision}","physical":true}}"#);
        let answer = self.post(0, "kv/compaction", &body).unwrap();
        let already = answer.contains("has been compacted");
        assert!(already || answer.starts_with("HTTP/1.0 200"), "{answer}");
        revision
    }

    /// Puts keys outside of every prefix, until an etcd of [`Etcd::start_small`] has no space for another.
    pub fn fill(&self) {
        for number in 0.. {
            assert!(number < SMALL / FILLER, "it is not full");
            let key = STANDARD.encode(format!("{FILLERS}{number}"));
            let value = STANDARD.encode(vec![b'x'; FILLER]);
            let body = format!(r#"{{"key":"{key}","value":"{value}"}}"#);
            let answer = self.post(0, "kv/put", &body).unwrap();
            if answer.contains("database space exceeded") {
                return;
            }
            assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        }
    }

    /// Removes what [`Etcd::fill`] has put, as an administrator does: keys, history, free pages, and the alarm.
    pub fn make_room(&self) {
        let (from, to) = (
            STANDARD.encode(FILLERS),
            STANDARD.encode(format!("{FILLERS}~")),
        );
        let post = |path: &str, body: &str| {
            let answer = self.post(0, path, body).unwrap();
            assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
            answer
        };
        post(
            "kv/deleterange",
            &format!(r#"{{"key":"{from}","range_end":"{to}"}}"#),
        );
        self.compact();
        post("maintenance/defragment", "{}");
        let status = post("maintenance/status", "{}");
        let member = field(&status, "member_id");
        let off = format!(r#"{{"action":"DEACTIVATE","memberID":"{member}","alarm":"NOSPACE"}}"#);
        post("maintenance/alarm", &off);
        let left = post("maintenance/alarm", r#"{"action":"GET"}"#);
        assert!(!left.contains("NOSPACE"), "{left}");
    }

    fn post(&self, i: usize, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[i].port))?;
        stream.set_read_timeout(Some(ANSWER))?;
        let length = body.len();
        write!(
            stream,
            "POST /v3/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

impl TlsServer<'_> {
    fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![
            ("cert-file", self.issued.certificate.display().to_string()),
            ("key-file", self.issued.key.display().to_string()),
        ];
        if let Some(clients) = self.clients {
            let file = clients.certificate().display().to_string();
            options.push(("trusted-ca-file", file));
            options.push(("client-cert-auth", "true".to_owned()));
        }
        options
    }
}

/// Returns the text of a field of an answer; empty if the answer lacks the field.
fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let begin = format!("\"{name}\":\"");
    let value = answer.split_once(&begin).map_or("", |(_, rest)| rest);
    value.split('"').next().unwrap_or_default()
}

/// Returns an address that takes connections and answers each request with `answer`. With None it never answers.
pub fn impostor(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            match answer {
                Some(answer) => {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(answer.as_bytes());
                }
                None => silent.push(stream),
            }
        }
    });
    address
}
