//! `wv p2p` between two processes, each under a `wv sim` of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use test_basics::addresses::free_address;
use test_basics::limits::until;

#[path = "p2p/ends.rs"]
mod ends;
#[path = "p2p/strangers.rs"]
mod strangers;
#[path = "p2p/wires.rs"]
mod wires;

/// `wv p2p` on a simulated machine of its own.
fn p2p(runtime: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
    command
        .args(["sim", "--ip", &free_address().to_string(), "--"])
        .args([env!("CARGO_BIN_EXE_wv"), "p2p"])
        .args(options)
        .env("XDG_RUNTIME_DIR", runtime)
        .env_remove("WARPVERBS_SOFTHCA")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

struct Server {
    child: Child,
    place: String,
    /// What it prints after its place.
    out: BufReader<ChildStdout>,
}

impl Server {
    fn start(runtime: &Path, directory: &Path, requests: &str) -> Self {
        Self::start_with(runtime, directory, requests, &[])
    }

    fn start_with(runtime: &Path, directory: &Path, requests: &str, more: &[&str]) -> Self {
        let directory = directory.to_str().unwrap();
        let mut options = vec!["serve", directory, "--requests", requests];
        if !more.contains(&"--listen") {
            options.extend(["--listen", "127.0.0.1:0"]);
        }
        options.extend(more);
        Self::of(p2p(runtime, &options))
    }

    /// By this command.
    fn of(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let place = line.trim_end().rsplit(' ').next().unwrap().to_owned();
        if !line.starts_with("serving") {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("{line:?}: {said}");
        }
        Self { child, place, out }
    }
}

/// Returns the process of `wv p2p` under the `wv sim` that this test has started.
fn process(sim: &Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", sim.id());
    let mut found = None;
    until("wv sim has started wv p2p", || {
        let children = fs::read_to_string(&children).unwrap();
        found = children.split_whitespace().next().map(str::to_owned);
        let name = found.as_ref().and_then(|child| {
            let words = fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?;
            words.split('\0').nth(1).map(str::to_owned)
        });
        name.is_some_and(|name| name == "p2p")
    });
    found.unwrap().parse().unwrap()
}

/// Returns whether `process` has written to a file in `directory` that has no name yet.
fn has_begun(process: u32, directory: &Path) -> bool {
    let own = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    own.flatten().any(|own| {
        let is_there = fs::read_link(own.path()).is_ok_and(|it| it.starts_with(directory));
        is_there && fs::metadata(own.path()).is_ok_and(|it| it.len() > 0)
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{said}");
    text
}

/// Returns the commands of "Five minutes", of which the first serves until it is ended.
fn commands_of_the_page() -> Vec<&'static str> {
    let page = include_str!("../../../docs/engine.md");
    let (_, five) = page.split_once("## Five minutes").unwrap();
    let (_, block) = five.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.lines().collect()
}

#[test]
fn the_commands_of_the_page_copy_a_file_there_and_back() {
    let (runtime, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = own.path().join("README.md");
    fs::write(&file, include_str!("../../../README.md")).unwrap();
    let wv = Path::new(env!("CARGO_BIN_EXE_wv")).parent().unwrap();
    let path = format!("{}:{}", wv.display(), std::env::var("PATH").unwrap());
    let served = own.path().join("wv/served");
    let addresses = [free_address(), free_address()].map(|address| address.to_string());
    let shell = |line: &str| {
        let line = line
            .replace("127.9.1.1", &addresses[0])
            .replace("127.9.1.2", &addresses[1]);
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .current_dir(&own)
            .env("HOME", own.path())
            .env("PATH", &path)
            .env("XDG_RUNTIME_DIR", runtime.path())
            .env_remove("WARPVERBS_SOFTHCA")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let lines = commands_of_the_page();
    assert_eq!(lines.len(), 3, "{lines:?}");
    // It ends after the two requests.
    let serve = format!("{} --requests 2", lines[0]);
    let mut server = shell(&serve).spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(server.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let socket = own.path().join("wv/files");
    assert!(
        line.contains(&format!("at unix:{}", socket.display())),
        "{line}"
    );
    for client in &lines[1..] {
        succeeds(&shell(client).output().unwrap());
    }
    assert!(server.wait().unwrap().success());
    let copied = fs::read(own.path().join("copy.md")).unwrap();
    assert_eq!(copied, fs::read(&file).unwrap());
    assert_eq!(fs::read(served.join("README.md")).unwrap(), copied);
    assert!(!socket.exists(), "it goes with the server");
}

#[test]
fn a_server_at_a_socket_is_found_by_name_and_a_killed_one_is_replaced() {
    let (runtime, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), b"bytes").unwrap();
    let socket = runtime.path().join("s");
    let place = format!("unix:{}", socket.display());
    let store = format!("file://{}", served.path().join("names").display());
    fs::create_dir(served.path().join("names")).unwrap();
    let more = ["--listen", &place, "--store", &store, "--name", "files"];
    let get = |from: &[&str], name: &str| {
        let copy = served.path().join(name);
        let options = [&["get"], from, &["file", copy.to_str().unwrap()]].concat();
        let output = p2p(runtime.path(), &options).output().unwrap();
        succeeds(&output);
        assert_eq!(fs::read(copy).unwrap(), b"bytes");
    };
    let mut server = Server::start_with(runtime.path(), served.path(), "9", &more[..2]);
    assert_eq!(server.place, place);
    let path = served.path().to_str().unwrap();
    let output = p2p(runtime.path(), &["serve", path, "--listen", &place]).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains("a process listens there"), "{said}");
    get(&[&place], "by-address");
    // Both processes: the server ends with the program that has simulated its HCA.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    until("nobody listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_err()
    });
    assert!(socket.exists(), "it is left over");
    let mut server = Server::start_with(runtime.path(), served.path(), "2", &more);
    get(&[&place], "again");
    get(&["files", "--store", &store], "by-name");
    assert!(server.child.wait().unwrap().success());
    assert!(!socket.exists() && !runtime.path().join("s.engine").exists());
    // The path of its engine is longer.
    let long = format!("unix:/{}", "x".repeat(106));
    let output = p2p(runtime.path(), &["serve", path, "--listen", &long]).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(
        said.contains("has 114 bytes; it must have 1 to 107"),
        "{said}"
    );
}

#[test]
fn files_of_any_length_are_put_and_got_byte_for_byte() {
    let (runtime, served, own) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let lengths = [0, 1, (1 << 20) - 1, (5 << 20) + 12_345];
    let requests = (2 * lengths.len() + 3).to_string();
    let mut server = Server::start(runtime.path(), served.path(), &requests);
    let run = |options: &[&str]| p2p(runtime.path(), options).output().unwrap();
    for (nth, length) in lengths.into_iter().enumerate() {
        let mut bytes = vec![0; length];
        fastrand::Rng::with_seed(nth as u64).fill(&mut bytes);
        let (there, back) = (format!("file-{nth}"), own.path().join("back"));
        let source = own.path().join("source");
        fs::write(&source, &bytes).unwrap();
        let text = succeeds(&run(&[
            "put",
            &server.place,
            source.to_str().unwrap(),
            &there,
        ]));
        assert!(text.contains(&format!("{length} bytes")), "{text}");
        assert!(
            fs::read(served.path().join(&there)).unwrap() == bytes,
            "{length}"
        );
        succeeds(&run(&[
            "get",
            &server.place,
            &there,
            back.to_str().unwrap(),
        ]));
        assert!(fs::read(&back).unwrap() == bytes, "{length}");
    }
    let source = own.path().join("source");
    for (options, reason) in [
        (["get", &server.place, "missing"], "No such file"),
        (["get", &server.place, "../secret"], "is no name of a file"),
        (["get", &server.place, ".."], "is no name of a file"),
    ] {
        let target = own.path().join("nothing");
        let target = target.to_str().unwrap();
        let output = run(&[&options[..], &[target]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
        assert!(!Path::new(target).exists());
    }
    assert!(source.exists());
    until("the server has served all", || {
        server.child.try_wait().unwrap().is_some()
    });
    assert!(server.child.wait().unwrap().success());
    // Nothing but whole files is left.
    assert_eq!(fs::read_dir(served.path()).unwrap().count(), lengths.len());
}

#[test]
fn what_the_engines_have_done_is_printed_as_text_and_as_json() {
    let (runtime, served, own) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let source = own.path().join("source");
    fs::write(&source, vec![7; (3 << 20) + 5]).unwrap();
    let more = ["--statistics"];
    let mut server = Server::start_with(runtime.path(), served.path(), "2", &more);
    let run = |options: &[&str]| succeeds(&p2p(runtime.path(), options).output().unwrap());
    let put = ["put", &server.place, source.to_str().unwrap(), "--json"];
    let told: Value = serde_json::from_str(&run(&put)).unwrap();
    assert_eq!(told["bytes"], (3 << 20) + 5);
    let (transfers, slices) = (&told["engine"]["transfers"], &told["engine"]["slices"]);
    assert_eq!(
        (&transfers["submitted"], &transfers["done"]),
        (&4.into(), &4.into())
    );
    assert_eq!(transfers["done_bytes"], (3 << 20) + 5);
    assert_eq!(slices["posted"], slices["completed"]);
    let rail = &told["engine"]["rails"][0];
    assert_eq!(
        (&rail["port"], &rail["state"]),
        (&1.into(), &"works".into())
    );
    let back = own.path().join("back");
    let get = [
        "get",
        &server.place,
        "source",
        back.to_str().unwrap(),
        "--statistics",
    ];
    let text = run(&get);
    for words in [
        "4 done (3145733 bytes)",
        "slices: ",
        " port 1: works, 0 rests",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let mut rest = String::new();
    server.out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("transfers: 0 submitted"), "{rest}");
}

#[test]
fn a_client_that_sends_a_byte_now_and_then_is_ended() {
    let (runtime, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start_with(runtime.path(), served.path(), "1", &["--timeout", "1"]);
    let stream = TcpStream::connect(&server.place).unwrap();
    let said = std::thread::scope(|scope| {
        // Until the server has ended the connection.
        scope.spawn(|| {
            while (&stream).write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut said = String::new();
        // A reset after what it has said is an end, too.
        let _ = BufReader::new(&stream).read_line(&mut said);
        let _ = stream.shutdown(Shutdown::Both);
        said
    });
    assert!(said.contains("timeout: no whole line within 1 s"), "{said}");
}

#[test]
fn what_cannot_be_served_or_kept_is_refused_at_the_start() {
    let (runtime, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(own.path().join("file"), b"bytes").unwrap();
    for (name, why) in [("nowhere", "No such file"), ("file", "not a directory")] {
        let path = own.path().join(name);
        let output = p2p(runtime.path(), &["serve", path.to_str().unwrap()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains(name) && said.contains(why), "{said}");
    }
    let server = Server::start(runtime.path(), own.path(), "1");
    let missing = own.path().join("missing/copy");
    let options = ["get", &server.place, "file", missing.to_str().unwrap()];
    let output = p2p(runtime.path(), &options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("missing"),
        "{said}"
    );
}

#[test]
fn a_server_at_all_addresses_names_one_that_its_client_reaches() {
    let (runtime, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(served.path().join("file"), b"bytes").unwrap();
    let more = ["--listen", "0.0.0.0:0", "--insecure"];
    let server = Server::start_with(runtime.path(), served.path(), "1", &more);
    let place = server.place.replace("0.0.0.0", "127.0.0.1");
    let copy = served.path().join("copy");
    let options = ["get", &place, "file", copy.to_str().unwrap()];
    succeeds(&p2p(runtime.path(), &options).output().unwrap());
    assert_eq!(fs::read(copy).unwrap(), b"bytes");
}

#[test]
fn the_engine_is_as_its_variables_say() {
    let (runtime, served) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let server = Server::start(runtime.path(), served.path(), "1");
    for (name, value, reason) in [
        ("WARPVERBS_DEVICE", "mlx5_7", "mlx5_7"),
        ("WARPVERBS_ENGINE_QPS", "9", "must be a number from 1 to 8"),
        ("WARPVERBS_MTU", "1000", "must be one of auto, 256"),
    ] {
        let mut command = p2p(runtime.path(), &["get", &server.place, "file"]);
        let output = command.env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

#[test]
fn with_a_key_only_its_holders_put_and_get() {
    let (runtime, served, own) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let file = |name: &str, bytes: &[u8]| {
        let path = own.path().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (key, other) = (file("key", &[1; 32]), file("other", &[2; 32]));
    let source = file("source", &[3; 100_000]);
    let keyed = ["--key-file", &key];
    // Whoever has no key makes no request.
    let mut server = Server::start_with(runtime.path(), served.path(), "1", &keyed);
    let put = |more: &[&str]| {
        let options = ["put", &server.place, &source, "there"];
        let options = [&options[..], more].concat();
        p2p(runtime.path(), &options).output().unwrap()
    };
    for (more, reason) in [
        (&["--key-file", &other][..], "its key is another"),
        (&[], "asks for a key"),
        (&["--key-file", &source], "has more than 66 bytes"),
    ] {
        let output = put(more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
        assert_eq!(fs::read_dir(served.path()).unwrap().count(), 0);
    }
    let clear = Server::start(runtime.path(), served.path(), "1");
    let options = ["put", &clear.place, &source, "there"];
    let output = p2p(runtime.path(), &[&options[..], &keyed].concat()).output();
    let said = String::from_utf8_lossy(&output.unwrap().stderr).into_owned();
    assert!(said.contains("it speaks without a key"), "{said}");
    succeeds(&put(&keyed));
    assert!(fs::read(served.path().join("there")).unwrap() == [3; 100_000]);
    until("the server has served all", || {
        server.child.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_server_is_found_by_its_name_in_a_store_for_as_long_as_it_lives() {
    let (runtime, served, own, names) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let source = own.path().join("source");
    fs::write(&source, [5; 100_000]).unwrap();
    let source = source.to_str().unwrap();
    let store = format!("file://{}", names.path().display());
    let named = ["--store", &store, "--name", "files"];
    let put = |name: &str, store: &str| {
        let options = ["put", name, source, "there", "--store", store];
        p2p(runtime.path(), &options).output().unwrap()
    };
    let fails = |output: Output, reason: &str| {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    };
    let serve = |more: &[&str]| {
        let directory = served.path().to_str().unwrap();
        let options = ["serve", directory, "--listen", "127.0.0.1:0"];
        p2p(runtime.path(), &[&options[..], more].concat())
    };
    let unknown = "no engine has published the name 'files' in the store";
    fails(put("files", &store), unknown);
    let mut server = Server::start_with(runtime.path(), served.path(), "9", &named);
    succeeds(&put("files", &store));
    assert!(fs::read(served.path().join("there")).unwrap() == [5; 100_000]);
    fails(put("others", &store), "the name 'others'");
    fails(put("no key", &store), "is not a key");
    fails(put("files", "nowhere://"), "nowhere://");
    let taken = "another engine has published the name 'files'";
    fails(serve(&named).output().unwrap(), taken);
    let anywhere = ["--listen", "0.0.0.0:0", "--insecure"];
    let anywhere = [&named[..2], &["--name", "all"], &anywhere].concat();
    let directory = served.path().to_str().unwrap();
    let options = [&["serve", directory], &anywhere[..]].concat();
    let output = p2p(runtime.path(), &options).output().unwrap();
    fails(output, "the address 0.0.0.0:");
    fails(serve(&named[2..]).output().unwrap(), "--store");
    // Its name goes with a server that is killed.
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    until("the name is free", || {
        let output = put("files", &store);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        said.contains(unknown)
    });
    let _server = Server::start_with(runtime.path(), served.path(), "9", &named);
    succeeds(&put("files", &store));
}
