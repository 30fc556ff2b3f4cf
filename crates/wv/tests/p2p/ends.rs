//! How copies end that cannot be finished: one end is killed, or told to end, or stands still for a while.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use test_basics::limits::until;
use test_basics::stopped;

use crate::{Server, has_begun, p2p, process, succeeds};

/// A directory that is served, and that of a client.
struct Ends {
    runtime: TempDir,
    served: TempDir,
    own: TempDir,
}

/// A copy of a large file that has begun.
struct Begun {
    server: Server,
    client: Child,
}

impl Ends {
    fn new() -> Self {
        let [runtime, served, own] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        Self {
            runtime,
            served,
            own,
        }
    }

    /// Begins a copy that takes half an hour, however fast the machine is: it goes by the HCA, whose packets are late.
    fn begin_slow(&self, what: &str) -> Begun {
        let environment = [
            ("WARPVERBS_ENGINE_PATH", "nic"),
            ("SOFTHCA_FAULT", "delay=200ms..200ms@100%"),
        ];
        self.begin(what, LARGE, &environment)
    }

    fn begin(&self, what: &str, bytes: u64, environment: &[(&str, &str)]) -> Begun {
        let [from, to] = match what {
            "put" => [self.own.path(), self.served.path()],
            _ => [self.served.path(), self.own.path()],
        };
        let source = fs::File::create(from.join("large")).unwrap();
        source.set_len(bytes).unwrap();
        let served = self.served.path().to_str().unwrap();
        let serve = [
            "serve",
            served,
            "--requests",
            "1",
            "--listen",
            "127.0.0.1:0",
        ];
        let mut server = p2p(self.runtime.path(), &serve);
        server.envs(environment.iter().copied());
        let server = Server::of(server);
        let own = self.own.path().join("large");
        let options = match what {
            "put" => ["put", &server.place, own.to_str().unwrap(), "large"],
            _ => ["get", &server.place, "large", own.to_str().unwrap()],
        };
        let mut client = p2p(self.runtime.path(), &options);
        client.envs(environment.iter().copied());
        let mut client = client.spawn().unwrap();
        let writes = match what {
            "put" => process(&server.child),
            _ => process(&client),
        };
        until("the copy has begun", || has_begun(writes, to));
        assert!(client.try_wait().unwrap().is_none(), "it is to be done yet");
        Begun { server, client }
    }

    /// Files of both directories but for the source.
    fn left(&self) -> usize {
        let count = |directory: &Path| fs::read_dir(directory).unwrap().count();
        count(self.served.path()) + count(self.own.path()) - 1
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// Returns what an end that has ended has told its user.
fn said(child: &mut Child) -> String {
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    said
}

const LARGE: u64 = 4 << 30;

#[test]
fn a_client_says_that_its_killed_server_is_gone_and_leaves_nothing() {
    for what in ["put", "get"] {
        let ends = Ends::new();
        let mut copy = ends.begin_slow(what);
        copy.server.child.kill().unwrap();
        until("the client ends", || {
            copy.client.try_wait().unwrap().is_some()
        });
        let said = said(&mut copy.client);
        assert!(!copy.client.wait().unwrap().success(), "{said}");
        let gone = format!("wv p2p: {} is gone: ", copy.server.place);
        assert!(said.starts_with(&gone), "{what}: {said}");
        assert_eq!(ends.left(), 0, "{what}");
    }
}

#[test]
fn a_server_says_that_a_killed_client_is_gone_and_leaves_nothing() {
    for what in ["put", "get"] {
        let ends = Ends::new();
        let mut copy = ends.begin_slow(what);
        copy.client.kill().unwrap();
        until("the server ends", || {
            copy.server.child.try_wait().unwrap().is_some()
        });
        assert!(copy.server.child.wait().unwrap().success(), "{what}");
        let said = said(&mut copy.server.child);
        let is_told = said.starts_with("wv p2p: 127.0.0.1:") && said.contains(" is gone: ");
        assert!(is_told && said.lines().count() == 1, "{what}: {said}");
        assert_eq!(ends.left(), 0, "{what}");
    }
}

#[test]
fn an_end_that_is_told_to_end_does_so_by_the_signal_and_leaves_nothing() {
    for (what, signal) in [("put", Signal::INT), ("get", Signal::TERM)] {
        let ends = Ends::new();
        let mut copy = ends.begin_slow(what);
        let Begun { server, client } = &mut copy;
        // The one that writes goes first.
        let all = match what {
            "put" => [&mut server.child, client],
            _ => [client, &mut server.child],
        };
        for (nth, child) in all.into_iter().enumerate() {
            if child.try_wait().unwrap().is_none() {
                // The other may have ended for want of this one meanwhile; it has not been waited for, so the number is its own.
                kill_process(Pid::from_child(child), signal).unwrap();
            }
            until("it ends", || child.try_wait().unwrap().is_some());
            let status = child.wait().unwrap();
            assert!(
                nth > 0 || status.signal() == Some(signal.as_raw()),
                "{what}: {status}"
            );
        }
        assert_eq!(ends.left(), 0, "{what}");
    }
}

#[test]
fn ends_that_stand_still_for_a_while_go_on_with_their_copy() {
    for what in ["put", "get"] {
        let ends = Ends::new();
        // A system call that waits is interrupted each time.
        let mut copy = ends.begin(what, 64 << 20, &[]);
        let both = [process(&copy.server.child), process(&copy.client)];
        let mut stops = 0;
        for end in both.into_iter().cycle().take(20) {
            // Either end may be done, and wv sim has then reaped it.
            if !stopped::stop_living(end) {
                break;
            }
            stopped::resume(end);
            stops += 1;
        }
        println!("{what}: ends stood still {stops} times");
        until("the client ends", || {
            copy.client.try_wait().unwrap().is_some()
        });
        let said = said(&mut copy.client);
        assert!(copy.client.wait().unwrap().success(), "{what}: {said}");
        let [there, own] = [&ends.served, &ends.own].map(|it| it.path().join("large"));
        assert!(fs::read(there).unwrap() == fs::read(own).unwrap(), "{what}");
    }
}

#[test]
fn an_engine_has_the_name_that_the_other_end_allows() {
    let ends = Ends::new();
    fs::write(ends.served.path().join("file"), b"bytes").unwrap();
    let directory = ends.served.path().to_str().unwrap();
    let serve = ["serve", directory, "--listen", "127.0.0.1:0"];
    let named = ["--engine-name", "files", "--requests", "9"];
    let mut server = p2p(ends.runtime.path(), &[&serve[..], &named].concat());
    server.env("WARPVERBS_ENGINE_ALLOW", "backup");
    let server = Server::of(server);
    let copy = ends.own.path().join("copy");
    let get = |more: &[&str], allow: &str| {
        let options = ["get", &server.place, "file", copy.to_str().unwrap()];
        let mut get = p2p(ends.runtime.path(), &[&options[..], more].concat());
        get.env("WARPVERBS_ENGINE_ALLOW", allow).output().unwrap()
    };
    let named = ["--engine-name", "backup"];
    for (more, allow) in [(&[][..], "files"), (&named, "others")] {
        let output = get(more, allow);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("none of the engines"), "{said}");
    }
    succeeds(&get(&named, "files"));
    assert_eq!(fs::read(&copy).unwrap(), b"bytes");
    let output = get(&["--engine-name", ""], "files");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("name"), "{said}");
}
