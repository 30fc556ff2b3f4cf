//! Captures of programs that know nothing of them, and frames on a network interface: processes on the preloaded library.

mod captures;

use captures::programs::patience::HANG;
use captures::programs::{Place, build_peer, finish, free_tcp_port, library, preloaded};
use captures::{
    count_operations, dissect, judge, judges_are_there, judges_of_a_part_are_there, operations,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn said(output: &Output) -> String {
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Waits until a process listens at a TCP port.
fn wait_for_listener(port: u16) {
    let wanted = format!(":{port:04X} ");
    let end = Instant::now() + HANG;
    let listens = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && format!("{} ", words[1]).ends_with(&wanted) && words[3] == "0A"
    };
    loop {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
        let text: String = tables
            .iter()
            .filter_map(|table| fs::read_to_string(table).ok())
            .collect();
        if text.lines().any(listens) {
            return;
        }
        assert!(Instant::now() < end, "no process listens at port {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a server and a client with the same capture file, and expects both to succeed.
fn run_pair(server: &str, client: &str, port: u16, capture: &Path) {
    let start = |line: &str| -> Child {
        preloaded(line)
            .env("SOFTHCA_PCAP", capture)
            .spawn()
            .unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let server_child = start(server);
    wait_for_listener(port);
    let client_output = finish(start(client));
    let server_output = finish(server_child);
    assert!(
        client_output.status.success() && server_output.status.success(),
        "{client}: {} {server}: {}",
        said(&client_output),
        said(&server_output)
    );
}

/// Returns the name that the second of two processes gives its file.
fn second(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".2");
    name.into()
}

/// What one end captured as sent, the other captured as received: all of it, but for what came after its process had ended.
fn check_arrivals(sender: &Path, receiver: &Path, what: &str) {
    let sent = count_operations(sender, "infiniband && frame.packet_flags_direction == 2");
    let received = count_operations(receiver, "infiniband && frame.packet_flags_direction == 1");
    let total = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
    for (name, count) in &received {
        assert!(
            sent.get(name) >= Some(count),
            "{what}: {name}: {sent:?} {received:?}"
        );
    }
    let missing = total(&sent) - total(&received);
    assert!(missing <= 16, "{what}: {sent:?} {received:?}");
}

#[test]
fn both_ends_capture_every_packet_of_every_service_once() {
    if !judges_are_there("captures of processes") {
        return;
    }
    let place = Place::new();
    let peer = match build_peer(&place.0) {
        Ok(peer) => peer,
        Err(why) => return println!("skipped: captures of processes: {why}"),
    };
    let mut pairs = vec![(
        format!("{peer} mlx5_0 3 1024 4 passive listen"),
        format!("{peer} mlx5_0 3 1024 4 active connect 127.0.0.1"),
        vec![
            "RC Fetch Add",
            "RC RDMA Read Response Only",
            "RC Send Last Immediate",
        ],
    )];
    for (tool, operation) in [
        ("ibv_uc_pingpong", "UC Send Only"),
        ("ibv_ud_pingpong", "UD Send Only"),
        ("ibv_srq_pingpong", "RC Send Only"),
        ("ibv_xsrq_pingpong", "Unknown OpCode"),
    ] {
        let line = format!("{tool} -d mlx5_0 -g 3 -n 20 -s 1000 -p");
        pairs.push((line.clone(), line, vec![operation]));
    }
    let mut whole = vec![];
    for (number, (server, client, expected)) in pairs.iter().enumerate() {
        let (port, capture) = (free_tcp_port(), place.capture(number));
        let is_tool = number > 0;
        let host = if is_tool { " 127.0.0.1" } else { "" };
        run_pair(
            &format!("{server} {port}"),
            &format!("{client} {port}{host}"),
            port,
            &capture,
        );
        let ends = [capture.clone(), second(&capture)];
        let ours = operations(&ends[0]);
        check_arrivals(&ends[0], &ends[1], server);
        check_arrivals(&ends[1], &ends[0], server);
        for name in expected {
            assert!(ours.contains_key(*name), "{server}: no {name} in {ours:?}");
        }
        whole.extend(fs::read(&capture).unwrap());
    }
    // pcapng files one after the other are a pcapng file.
    let all = place.0.join("all.pcapng");
    fs::write(&all, whole).unwrap();
    println!("{} packets judged", judge(&all));
}

#[test]
fn the_capture_of_a_killed_process_is_readable_up_to_then() {
    if !judges_are_there("the capture of a killed process") {
        return;
    }
    let (place, port) = (Place::new(), free_tcp_port());
    let capture = place.capture(0);
    let line = format!("ibv_rc_pingpong -d mlx5_0 -g 3 -n 1000000 -s 64 -p {port}");
    let start = |line: &str| {
        preloaded(line)
            .env("SOFTHCA_PCAP", &capture)
            .spawn()
            .unwrap()
    };
    let mut server = start(&line);
    wait_for_listener(port);
    let mut client = start(&format!("{line} 127.0.0.1"));
    let end = Instant::now() + HANG;
    while fs::metadata(second(&capture)).map_or(0, |data| data.len()) < 100_000 {
        assert!(Instant::now() < end, "nothing is captured");
        std::thread::sleep(Duration::from_millis(5));
    }
    for child in [&mut client, &mut server] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for file in [&capture, &second(&capture)] {
        assert!(judge(file) > 100);
    }
}

/// In a namespace of its own: two interfaces joined, frames on them, and TCP for the programs over `lo`.
///
/// $1 peer, $2 library, $3 port, $4 capture, $5 the carrier of the second peer, $6 the entry of the GID table that both use. If
/// that carrier is UDP, the address belongs to the interface and the kernel makes the headers.
const NAMESPACE: &str = r#"
set -e
ip link set lo up
ip link add wv0 type veth peer name wv1
ip link set wv0 mtu 4400 up
ip link set wv1 mtu 4400 up
[ "$5" = udp ] && ip addr add 10.0.0.2/24 dev wv1
ip -6 route add local fd00:5::/96 dev lo
export LD_PRELOAD=$2 SOFTHCA_IPV6=fd00:5::
SOFTHCA_IP=10.0.0.2 SOFTHCA_CARRIER=$5 timeout 90 "$1" mlx5_0 $6 4096 3 passive listen $3 >"$4.said" 2>&1 &
passive=$!
until grep -qs listens "$4.said"; do sleep 0.01; done
SOFTHCA_IP=10.0.0.1 SOFTHCA_CARRIER=packet:wv0 SOFTHCA_PCAP=$4 timeout 90 "$1" mlx5_0 $6 4096 3 active connect 127.0.0.1 $3
wait $passive || { cat "$4.said"; exit 1; }
"#;

#[test]
fn frames_on_an_interface_reach_another_host_and_the_udp_socket_of_one() {
    let skipped = |why: &str| println!("skipped: frames on a network interface: {why}");
    let works = |namespaces: &&str| {
        let pair = "ip link add wv0 type veth peer name wv1";
        let mut command = Command::new("unshare");
        command.arg(namespaces).args(pair.split(' '));
        command.output().is_ok_and(|output| output.status.success())
    };
    // Root needs no namespace of users, and in a chroot none can be made.
    let Some(namespaces) = ["-n", "-rn"].into_iter().find(works) else {
        return skipped("no network namespace with a pair of interfaces can be made here");
    };
    let place = Place::new();
    let peer = match build_peer(&place.0) {
        Ok(peer) => peer,
        Err(why) => return skipped(&why),
    };
    let cases = [
        ("packet:wv1", "3", "ip && udp"),
        ("udp", "3", "ip && udp"),
        // RoCE v1, by either GID, and v2 over IPv6.
        ("packet:wv1", "0", "infiniband.grh && !ip && !ipv6"),
        ("packet:wv1", "1", "ipv6 && udp"),
        ("packet:wv1", "2", "infiniband.grh && !ip && !ipv6"),
        // An IPv6 subnet.
        (
            "packet:wv1",
            "4",
            "ipv6.src == fd00:5::/96 && ipv6.dst == fd00:5::/96 && udp",
        ),
    ];
    for (number, (carrier, index, headers)) in cases.into_iter().enumerate() {
        let capture = place.capture(number);
        let child = Command::new("unshare")
            .args([namespaces, "bash", "-c", NAMESPACE, "-"])
            .arg(&peer)
            .arg(library())
            .arg("7000")
            .arg(&capture)
            .arg(carrier)
            .arg(index)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = finish(child);
        assert!(output.status.success(), "{carrier}: {}", said(&output));
        assert!(said(&output).contains("CMP_SWAP=24"), "{}", said(&output));
        if judges_of_a_part_are_there("the capture of frames on an interface") {
            let packets = judge(&capture);
            assert!(packets > 100);
            let of_kind = dissect(
                &capture,
                &format!("infiniband && {headers}"),
                &["frame.number"],
            );
            assert_eq!(of_kind.len(), packets, "entry {index}: {headers}");
        }
    }
}
