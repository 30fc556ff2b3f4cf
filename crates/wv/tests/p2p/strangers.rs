//! What others can take of a server: so much, and they give it back.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{ChildStderr, Command};
use std::thread::JoinHandle;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use test_basics::limits::{HANG, until};
use test_support::counts::full;

use crate::{Server, p2p, process, succeeds};

/// Most conversations at a time that have not made a request.
const MOST: usize = 64;

/// What a process has of the system.
#[derive(Debug, PartialEq, Eq)]
struct Taken {
    descriptors: usize,
    threads: usize,
}

impl Taken {
    fn by(process: u32) -> Self {
        let count = |what: &str| {
            fs::read_dir(format!("/proc/{process}/{what}"))
                .unwrap()
                .count()
        };
        Self {
            descriptors: count("fd"),
            threads: count("task"),
        }
    }

    /// What a server keeps that has served a first time: an engine keeps a descriptor of its last peer until the next one comes.
    fn once_served(process: u32, before: &Self) -> Self {
        until("its threads end", || {
            Self::by(process).threads == before.threads
        });
        let kept = Self::by(process);
        assert!(
            kept.descriptors <= before.descriptors + 1,
            "{kept:?}, {before:?}"
        );
        kept
    }

    /// Waits until the process has as much as this again.
    fn is_given_back(&self, process: u32) {
        until(format!("it has {self:?} again"), || {
            Self::by(process) == *self
        });
    }
}

/// Bytes of memory that a process has, in KiB, and its time on CPUs, in ticks.
fn figures(process: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let memory = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    format!("{memory}, {} + {} ticks", words[11], words[12])
}

/// All that a server tells its user, which is read meanwhile.
fn told(server: &mut Server) -> JoinHandle<String> {
    let mut errors: ChildStderr = server.child.stderr.take().unwrap();
    std::thread::spawn(move || {
        let mut told = String::new();
        errors.read_to_string(&mut told).unwrap();
        told
    })
}

/// Ends a server and what it has told.
fn ended(mut server: Server, told: JoinHandle<String>) -> String {
    let under_sim = process(&server.child);
    let under_sim = Pid::from_raw(under_sim.try_into().unwrap()).unwrap();
    rustix::process::kill_process(under_sim, rustix::process::Signal::TERM).unwrap();
    server.child.wait().unwrap();
    told.join().unwrap()
}

/// A client that speaks lines of its own.
struct Stranger {
    lines: BufReader<TcpStream>,
}

impl Stranger {
    fn new(place: &str) -> Self {
        let stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let lines = BufReader::new(stream);
        Self { lines }
    }

    fn says(&mut self, line: &str) {
        // It may have been ended meanwhile.
        let _ = self
            .lines
            .get_mut()
            .write_all(format!("{line}\n").as_bytes());
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        // A reset after what it was told is an end, too.
        let _ = self.lines.read_line(&mut line);
        line
    }

    /// Makes a request, and has its window.
    fn asks(&mut self, request: &str) {
        self.says(r#"{"hello":1}"#);
        assert!(self.hears().contains("engine"));
        self.says(request);
        let answer = self.hears();
        assert!(answer.contains("window"), "{answer}");
    }
}

#[test]
fn silent_connections_are_no_requests_and_take_so_much_and_no_more() {
    let [runtime, served, own] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), [9; 100_000]).unwrap();
    let key = own.path().join("key");
    fs::write(&key, [1; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let keyed = ["--key-file", key.to_str().unwrap()];
    let most = if full() { 1200 } else { 120 };
    for more in [&[][..], &keyed] {
        let mut server = Server::start_with(runtime.path(), served.path(), "4", more);
        let (serves, told) = (process(&server.child), told(&mut server));
        let copy = own.path().join("copy");
        let get = || {
            let options = ["get", &server.place, "file", copy.to_str().unwrap()];
            let get = p2p(runtime.path(), &[&options[..], more].concat()).output();
            succeeds(&get.unwrap());
            assert_eq!(fs::read(&copy).unwrap(), [9; 100_000]);
            fs::remove_file(&copy).unwrap();
        };
        let fresh = Taken::by(serves);
        get();
        let at_first = Taken::once_served(serves, &fresh);
        let silent = |_| TcpStream::connect(&server.place).unwrap();
        let mut silent: Vec<TcpStream> = (0..most).map(silent).collect();
        for (nth, stream) in silent[..most - MOST].iter_mut().enumerate() {
            stream.set_read_timeout(Some(HANG)).unwrap();
            let mut rest = Vec::new();
            // A reset is an end, too.
            let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
            let timeout = Err(std::io::ErrorKind::WouldBlock);
            assert_ne!(ended, timeout, "connection {nth} is not ended");
        }
        println!("beside {most} silent ones: {:?}", Taken::by(serves));
        // A thread tells its user why, after its connection has ended.
        until("there are threads for the most of them alone", || {
            Taken::by(serves).threads <= at_first.threads + MOST
        });
        get();
        drop(silent);
        at_first.is_given_back(serves);
        get();
        assert!(server.child.try_wait().unwrap().is_none(), "it has one yet");
        get();
        assert!(server.child.wait().unwrap().success());
        let told = told.join().unwrap();
        let silent = told.lines().filter(|it| it.contains("was silent longest"));
        // Those of the gets make places, too.
        assert!(silent.count() >= most - MOST, "{told}");
    }
}

#[test]
fn many_gets_leave_the_server_as_it_was() {
    let [runtime, served, own] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), [9; 100_000]).unwrap();
    let mut server = Server::start(runtime.path(), served.path(), "1000000");
    let (serves, told) = (process(&server.child), told(&mut server));
    let gets = |count: u32| {
        let copy = own.path().join("copy");
        let get = [
            env!("CARGO_BIN_EXE_wv"),
            "p2p",
            "get",
            &server.place,
            "file",
        ];
        let get = get.join(" ") + " " + copy.to_str().unwrap();
        let all = format!("i=0; while [ $i -lt {count} ]; do {get} || exit 1; i=$((i+1)); done");
        let mut sim = Command::new(env!("CARGO_BIN_EXE_wv"));
        let ip = test_basics::addresses::free_address().to_string();
        sim.args(["sim", "--ip", &ip, "--", "sh", "-c", &all])
            .env("XDG_RUNTIME_DIR", runtime.path())
            .env_remove("WARPVERBS_SOFTHCA");
        succeeds(&sim.output().unwrap());
    };
    let fresh = Taken::by(serves);
    gets(10);
    let at_first = Taken::once_served(serves, &fresh);
    println!("after 10 gets: {}", figures(serves));
    let most = if full() { 10_000 } else { 100 };
    gets(most);
    at_first.is_given_back(serves);
    println!("after {most} more: {}", figures(serves));
    let told = ended(server, told);
    assert_eq!(told, "");
}

#[test]
fn a_server_without_descriptors_waits_and_serves_when_it_has_some() {
    let [runtime, served, own] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), b"bytes").unwrap();
    // None is ended for its silence.
    let more = ["--timeout", "10000"];
    let mut server = Server::start_with(runtime.path(), served.path(), "1", &more);
    let (serves, told) = (process(&server.child), told(&mut server));
    let own_pid = Pid::from_raw(serves.try_into().unwrap()).unwrap();
    let before = getrlimit(Resource::Nofile);
    let at_first = Taken::by(serves);
    let few = u64::try_from(at_first.descriptors + 20).unwrap();
    let limit = Rlimit {
        current: Some(few),
        maximum: before.maximum,
    };
    prlimit(Some(own_pid), Resource::Nofile, limit).unwrap();
    let silent = |_| TcpStream::connect(&server.place).unwrap();
    let silent: Vec<TcpStream> = (0..40).map(silent).collect();
    until("all descriptors are taken", || {
        Taken::by(serves).descriptors + 1 >= at_first.descriptors + 20
    });
    println!("without descriptors: {}", figures(serves));
    let copy = own.path().join("copy");
    let get = |timeout: &str| {
        let file = copy.to_str().unwrap();
        let options = ["get", &server.place, "file", file, "--timeout", timeout];
        p2p(runtime.path(), &options).output().unwrap()
    };
    // Meanwhile it asks the system again several times.
    let output = get("3");
    let said = String::from_utf8_lossy(&output.stderr);
    let late = "timeout: no whole line within 3 s";
    assert!(!output.status.success() && said.contains(late), "{said}");
    println!("3 s later: {}", figures(serves));
    drop(silent);
    at_first.is_given_back(serves);
    succeeds(&get("30"));
    assert!(server.child.wait().unwrap().success());
    let told = told.join().unwrap();
    let waits = told
        .lines()
        .filter(|it| it.contains("takes no connection for now"));
    // Once each time when there are none: some are free for a while when a few have gone.
    assert!((1..=4).contains(&waits.count()), "{told}");
}

#[test]
fn a_request_beyond_those_at_once_is_refused_with_their_number() {
    let [runtime, served, own] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let source = own.path().join("source");
    fs::write(&source, b"bytes").unwrap();
    let more = ["--at-once", "2"];
    let mut server = Server::start_with(runtime.path(), served.path(), "3", &more);
    let put = || {
        let options = ["put", &server.place, source.to_str().unwrap(), "there"];
        p2p(runtime.path(), &options).output().unwrap()
    };
    let served_now = |nth: u32| {
        let mut stranger = Stranger::new(&server.place);
        stranger.asks(&format!(r#"{{"put":{{"name":"file-{nth}","bytes":5}}}}"#));
        stranger
    };
    let all = [served_now(0), served_now(1)];
    let output = put();
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = "at most 2 requests at a time (--at-once)";
    assert!(!output.status.success() && said.contains(reason), "{said}");
    drop(all);
    until("a request is taken again", || put().status.success());
    assert_eq!(fs::read(served.path().join("there")).unwrap(), b"bytes");
    until("it has had its requests", || {
        server.child.try_wait().unwrap().is_some()
    });
    let zero = ["serve", "--at-once", "0"];
    let output = p2p(runtime.path(), &zero).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("it must be a whole number from 1 to 4096"),
        "{said}"
    );
}

#[test]
fn a_line_that_moves_nothing_ends_the_conversation() {
    let [runtime, served] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), [9; 100]).unwrap();
    let server = Server::start(runtime.path(), served.path(), "1000");
    let put = r#"{"put":{"name":"new","bytes":100}}"#;
    let get = r#"{"get":{"name":"file"}}"#;
    let hello = r#"{"hello":1}"#;
    for (request, more, due) in [
        (put, hello, "'slot 0 has 100 bytes from byte 0 on' was due"),
        (
            put,
            r#"{"filled":{"slot":0,"offset":0,"bytes":0}}"#,
            "'slot 0 has 0 bytes from byte 0 on'",
        ),
        (put, r#"{"read":{"slot":0}}"#, "'slot 0 was read'"),
        (put, "", "none of this version"),
        (get, get, "a get of \\\"file\\\""),
        (get, r#"{"read":{"slot":1}}"#, "'slot 0 was read' was due"),
    ] {
        let mut stranger = Stranger::new(&server.place);
        stranger.asks(request);
        if request == get {
            assert!(stranger.hears().contains("filled"));
        }
        stranger.says(more);
        let answer = stranger.hears();
        assert!(
            answer.contains("refused") && answer.contains(due),
            "{answer}"
        );
        assert_eq!(stranger.hears(), "", "it is ended");
    }
    // Before a request, too.
    let mut stranger = Stranger::new(&server.place);
    stranger.says(hello);
    assert!(stranger.hears().contains("engine"));
    stranger.says(hello);
    assert!(
        stranger
            .hears()
            .contains("'version 1', where 'a put or a get' was due")
    );
    assert_eq!(stranger.hears(), "", "it is ended");
    let _ = stranger.lines.get_mut().shutdown(Shutdown::Both);
    assert!(!served.path().join("new").exists());
}
