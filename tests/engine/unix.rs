//! Engines that meet at Unix sockets: who reaches one, what becomes of its file, and what stands in its place.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rendezvous::{MemoryStore, Store};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use test_support::limits::{HANG, until};
use warpverbs::internal::engine::{
    BadAddress, EngineAddress, EngineKey, EnginePath, HostError, PeerPath, SocketPath,
};

use crate::descriptors::descriptor;
use crate::local_processes;
use crate::rig::{End, as_other, config, frame, message, moves};

const BYTES: u64 = 4096;

fn text(path: &Path) -> String {
    format!("unix:{}", path.display())
}

fn listens(end: &End, path: &Path) -> Result<EngineAddress, HostError> {
    end.engine.listen(EngineAddress::unix(path).unwrap())
}

fn auto(name: &str) -> End {
    End::new(config(name).with_engine_path(EnginePath::Auto), BYTES)
}

/// Returns why the engine cannot listen there.
fn refused(end: &End, path: &Path) -> String {
    match listens(end, path).unwrap_err() {
        HostError::Listen { address, source } => {
            assert_eq!(address, EngineAddress::unix(path).unwrap());
            source.to_string()
        }
        error => panic!("{error:?}"),
    }
}

#[test]
fn engines_meet_at_a_socket_by_address_and_by_name_with_and_without_a_key() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let key = Some(EngineKey::new([7; 32]));
    for (nth, (path, expected, key)) in [
        (EnginePath::Auto, PeerPath::Process, None),
        (EnginePath::Auto, PeerPath::Process, key.clone()),
        (EnginePath::Nic, PeerPath::Nic, None),
        (EnginePath::Nic, PeerPath::Nic, key),
    ]
    .into_iter()
    .enumerate()
    {
        let [own, other] = [format!("a{nth}"), format!("b{nth}")].map(|name| {
            let config = config(&name).with_engine_path(path).with_key(key.clone());
            End::new(config, BYTES)
        });
        let socket = directory.path().join(format!("{nth}"));
        let address = listens(&other, &socket).unwrap();
        assert_eq!(address.to_string(), text(&socket));
        other.engine.publish(&store, &address).unwrap();
        let region = other.engine.descriptor(other.region).unwrap();
        let by_address = own.engine.connect(&address.to_string()).unwrap();
        let name = format!("b{nth}");
        let by_name = own.engine.connect_by_name(store.as_ref(), &name).unwrap();
        for peer in [by_address, by_name] {
            assert_eq!(peer.path(), expected);
            assert_eq!(other.engine.accept(HANG).unwrap().path(), expected);
            peer.import(&region).unwrap();
            moves(&own, &peer, other.at(0));
        }
    }
}

#[test]
fn a_socket_is_its_users_alone_and_goes_with_its_engine() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("e");
    let end = auto("b");
    listens(&end, &socket).unwrap();
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let _ = end.engine.close();
    assert!(!socket.exists());
    let error = auto("a").engine.connect(&text(&socket)).unwrap_err();
    assert!(matches!(error, HostError::Connection { .. }), "{error:?}");
}

#[test]
fn a_socket_in_use_stays_and_one_that_was_left_over_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("e");
    let spec = format!("serves open own b {}", text(&socket));
    let mut process = local_processes::start(&spec);
    let said = process.says();
    let (address, region) = said.split_once(' ').unwrap();
    assert_eq!(address, text(&socket));
    let (own, other) = (auto("a"), auto("c"));
    assert_eq!(refused(&other, &socket), "a process listens there");
    // It serves on.
    let peer = own.engine.connect(address).unwrap();
    assert_eq!(peer.path(), PeerPath::Machine);
    peer.import(&descriptor(region)).unwrap();
    moves(&own, &peer, descriptor(region).address);
    process.kill();
    until("the process has ended", || {
        UnixStream::connect(&socket).is_err()
    });
    assert!(socket.exists(), "it is left over");
    listens(&other, &socket).unwrap();
    assert_eq!(own.engine.connect(address).unwrap().name(), "c");
    // A second listener of the same engine is none, too.
    assert_eq!(refused(&other, &socket), "a process listens there");
    assert_eq!(own.engine.connect(address).unwrap().name(), "c");
}

#[test]
fn of_many_that_replace_a_socket_at_once_one_listens_and_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("e");
    for _ in 0..20 {
        drop(UnixListener::bind(&socket).unwrap());
        let ends: Vec<End> = (0..4).map(|nth| auto(&format!("b{nth}"))).collect();
        let won: Vec<&End> = thread::scope(|scope| {
            let socket = &socket;
            let each = |end| scope.spawn(move || listens(end, socket).is_ok().then_some(end));
            let all: Vec<_> = ends.iter().map(each).collect();
            let all = all.into_iter();
            all.filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(won.len(), 1);
        let peer = auto("a").engine.connect(&text(&socket)).unwrap();
        assert!(won[0].engine.accept(HANG).is_some());
        drop(peer);
        drop(ends);
        assert!(!socket.exists());
    }
}

#[test]
fn what_is_no_socket_is_never_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let end = auto("b");
    fs::write(at("file"), "mine").unwrap();
    symlink("nowhere", at("link")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    for name in ["file", "link", "directory"] {
        let said = refused(&end, &at(name));
        assert_eq!(said, "a file is there that is no socket", "{name}");
    }
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "mine");
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    let said = refused(&end, &at("none/e"));
    assert!(said.contains("No such file"), "{said}");
    // One that somebody has put in its place stays.
    let socket = at("e");
    listens(&end, &socket).unwrap();
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    let _ = end.engine.close();
    assert!(socket.exists());
    drop(other);
}

#[test]
fn the_longest_path_is_taken_and_one_more_byte_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let of = |bytes: usize| -> PathBuf {
        let parent = directory.path().as_os_str().len() + 1;
        directory.path().join("x".repeat(bytes - parent))
    };
    let (own, other) = (auto("a"), auto("b"));
    let longest = of(SocketPath::MOST);
    let address = listens(&other, &longest).unwrap().to_string();
    own.engine.connect(&address).unwrap();
    let long = of(SocketPath::MOST + 1);
    assert_eq!(
        EngineAddress::unix(&long).unwrap_err(),
        BadAddress::Length { bytes: 108 }
    );
    let error = own.engine.connect(&text(&long)).unwrap_err().to_string();
    assert!(error.contains("it must have 1 to 107"), "{error}");
}

/// What is known of the processes takes the place of addresses.
#[test]
fn a_peer_beyond_a_relay_of_another_process_is_reached_by_the_nic() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, relay] = ["e", "relay"].map(|name| directory.path().join(name));
    let process = local_processes::start(&format!("serves open own b {}", text(&socket)));
    let said = process.says();
    let address = said.split_once(' ').unwrap().0;
    let listener = UnixListener::bind(&relay).unwrap();
    let far = socket.clone();
    thread::spawn(move || {
        let near = listener.accept().unwrap().0;
        let far = UnixStream::connect(far).unwrap();
        for (mut from, mut to) in [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))]
            .map(|(from, to)| (from.unwrap(), to.unwrap()))
        {
            // Until an end has gone.
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    let own = auto("a");
    let relayed = text(&relay);
    let by = [address, &relayed].map(|to| own.engine.connect(to).unwrap().path());
    assert_eq!(by, [PeerPath::Machine, PeerPath::Nic]);
}

/// Sends each message back, changed, until the stream ends. The last message.
fn echo(mut stream: UnixStream, change: fn(&str) -> String) -> String {
    let mut last = String::new();
    loop {
        let mut head = [0; 12];
        if stream.read_exact(&mut head).is_err() {
            return last;
        }
        let length = u32::from_le_bytes(head[8..].try_into().unwrap());
        let mut body = vec![0; length as usize];
        stream.read_exact(&mut body).unwrap();
        last = String::from_utf8(body).unwrap();
        if stream.write_all(&frame(&change(&last))).is_err() {
            return last;
        }
    }
}

#[test]
fn one_that_sends_everything_back_at_a_socket_is_no_peer() {
    let directory = tempfile::tempdir().unwrap();
    let [socket, stranger] = ["e", "stranger"].map(|name| directory.path().join(name));
    let end = auto("a");
    listens(&end, &socket).unwrap();
    for (change, reason) in [
        (
            (|said| said.to_owned()) as fn(&str) -> String,
            "it sends back what this engine says",
        ),
        (|said| as_other(said, "b"), "which is this engine's own"),
    ] {
        let said = echo(UnixStream::connect(&socket).unwrap(), change);
        assert!(said.contains(reason), "{said}");
        let listener = UnixListener::bind(&stranger).unwrap();
        let echoes = thread::spawn(move || echo(listener.accept().unwrap().0, change));
        let said = end
            .engine
            .connect(&text(&stranger))
            .unwrap_err()
            .to_string();
        assert!(said.contains(reason), "{said}");
        echoes.join().unwrap();
        fs::remove_file(&stranger).unwrap();
    }
    assert!(end.engine.accept(std::time::Duration::ZERO).is_none());
}

/// Runs this as another user, who owns nothing of this one; only root can.
fn as_another<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        // The system keeps users by thread.
        let thread = scope.spawn(|| {
            let user = Uid::from_raw(65_533);
            set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        thread.join().unwrap()
    })
}

#[test]
fn another_user_is_no_peer_even_where_the_file_lets_it_in() {
    if !geteuid().is_root() {
        println!("skipped: other users at a Unix socket: only root acts as one");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let [socket, stranger] = ["e", "stranger"].map(|name| directory.path().join(name));
    let end = auto("a");
    listens(&end, &socket).unwrap();
    let denied = as_another(|| UnixStream::connect(&socket).unwrap_err());
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let mut stream = as_another(|| UnixStream::connect(&socket).unwrap());
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is ended");
    // The one that listens is another user's.
    let listener = as_another(|| UnixListener::bind(&stranger).unwrap());
    let error = end
        .engine
        .connect(&text(&stranger))
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is of user 65533"), "{error}");
    drop(listener);
    // It serves its own user on.
    let mut own = UnixStream::connect(&socket).unwrap();
    assert!(message(&mut own).contains("hello"));
}
