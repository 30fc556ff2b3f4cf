//! What the command does whatever the checks are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use test_support::fake_cuda::FakeDriver;

use crate::examined::{Examined, doctor, simulated};

#[test]
fn a_machine_with_nothing_ends_with_1_and_names_wv_sim() {
    let nothing = tempfile::tempdir().unwrap();
    let root = nothing.path().to_str().unwrap();
    let output = doctor(&["--root", root]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("wv sim -- wv doctor"), "{text}");
    assert!(
        text.contains("missing        nic: no RDMA device"),
        "{text}"
    );
    let found = Examined::by(doctor(&["--json", "--root", root]));
    assert_eq!(found.status, Some(1));
    assert_eq!(found.json["usable"], false);
    // The command made no file in it.
    assert_eq!(fs::read_dir(nothing.path()).unwrap().count(), 0);
}

#[test]
fn a_machine_with_a_software_hca_can_be_used_and_moves_data() {
    let scratch = tempfile::tempdir().unwrap();
    let found = Examined::by(simulated(scratch.path(), &[], &["--loopback", "--json"]));
    assert_eq!(found.status, Some(0), "{:#}", found.json);
    assert_eq!(found.json["usable"], true);
    let moved = found.check("mlx5_0", "pair-loopback");
    assert_eq!(moved["state"], "ok", "{moved}");
    let words = moved["found"].as_str().unwrap();
    for way in [
        "by the GPU, queues and data by address",
        "by mailbox, queues and data by address",
        "by the GPU, queues in host",
        "by mailbox, queues in host",
        "queues and data in host",
    ] {
        assert!(words.contains(way), "{words}");
    }
    // The memory of simt is offered by its address alone.
    assert!(
        words.ends_with("not offered here: dmabuf (PCIe), dmabuf"),
        "{words}"
    );
    assert!(
        words.starts_with("64 to 8192 KiB in each direction, every byte compared"),
        "{words}"
    );
}

#[test]
fn data_moves_by_dmabuf_on_both_of_its_steps() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = ["--loopback", "--json", "--only", "pair"];
    let mut command = simulated(scratch.path(), &[], &arguments);
    command.env("WARPVERBS_GPU", "simt-dmabuf");
    let found = Examined::by(command);
    let moved = found.check("mlx5_0", "pair-loopback");
    assert_eq!(moved["state"], "ok", "{moved}");
    let words = moved["found"].as_str().unwrap();
    let (_, ways) = words.split_once("every byte compared: ").unwrap();
    let ways: Vec<&str> = ways.split("; ").collect();
    for rung in ["dmabuf (PCIe)", "dmabuf", "address"] {
        for ringer in ["the GPU", "mailbox"] {
            let way = format!("doorbell by {ringer}, queues and data by {rung}");
            assert!(ways.contains(&&*way), "{way}: {words}");
        }
    }
}

#[test]
fn a_bond_is_shown_with_its_mode() {
    for (profile, words) in [
        (
            "cx7-lag",
            "2 ports by queue affinity, which QPs take in turn",
        ),
        ("cx7-lag-hash", "2 ports by hash of a packet's addresses"),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let options = ["--profile", profile];
        let arguments = ["--json", "--only", "nic"];
        let found = Examined::by(simulated(scratch.path(), &options, &arguments));
        let bond = found.check("mlx5_0", "nic-lag");
        assert_eq!(bond["state"], "ok", "{bond}");
        assert_eq!(bond["found"], words);
    }
}

#[test]
fn what_a_host_engine_would_use_is_shown_with_its_variables() {
    let look = |set: &[(&str, &str)]| engine_on(&[], set);
    let [state, words] = look(&[
        ("WARPVERBS_ENGINE_QPS", "8"),
        ("WARPVERBS_ENGINE_PEERS", "3"),
    ]);
    assert_eq!(state, "ok", "{words}");
    assert!(words.starts_with("mlx5_0 port 1, RoCEv2 127."), "{words}");
    // 24 QPs have a share of 32.
    let shape =
        "8 QPs of 512 WQEBBs to each of up to 3 peers, 1 workers whose first CQ has 16384 entries";
    assert!(words.contains(shape), "{words}");
    // A software HCA is near no CPU.
    assert!(words.contains("; workers on any CPU;"), "{words}");
    for (set, reason) in [
        (
            ("WARPVERBS_ENGINE_CPUS", "1023"),
            "a CPU in WARPVERBS_ENGINE_CPUS is 1023; it must be of those that this process may use, ",
        ),
        (
            ("WARPVERBS_ENGINE_QPS", "9"),
            "WARPVERBS_ENGINE_QPS is '9'; it must be a number from 1 to 8",
        ),
        (
            ("WARPVERBS_ENGINE_FRAGMENT", "65537"),
            "a fragment of 65537",
        ),
        (("WARPVERBS_DEVICE", "mlx5_9"), "mlx5_9"),
        (("WARPVERBS_DEVICE", "mlx5_0,mlx5_1"), "mlx5_1"),
        (("WARPVERBS_DEVICE", "a,b,c,d,e,f,g,h,i"), "9 RDMA devices"),
        (
            ("WARPVERBS_ENGINE_RAILS", "0"),
            "WARPVERBS_ENGINE_RAILS is '0'; it must be a number from 1 to 8",
        ),
        (
            ("WARPVERBS_ENGINE_RAILS", "5"),
            "a connection has 4 QPs for 5 RDMA devices; they must be at least 5 (WARPVERBS_ENGINE_QPS)",
        ),
        (("WARPVERBS_GPU", "64"), "no CUDA device 64"),
    ] {
        let [state, words] = look(&[set]);
        assert_eq!(state, "degraded", "{words}");
        assert!(words.contains(reason), "{words}");
    }
}

/// Returns what is said of a host engine on these simulated HCAs, with these variables.
fn engine_on(options: &[&str], set: &[(&str, &str)]) -> [String; 2] {
    let scratch = tempfile::tempdir().unwrap();
    let mut command = simulated(scratch.path(), options, &["--json", "--only", "nic"]);
    command.envs(set.iter().copied());
    let found = Examined::by(command);
    let check = found.check("", "nic-engine");
    let word = |name: &str| check[name].as_str().unwrap().to_owned();
    [word("state"), word("found")]
}

#[test]
fn the_ports_of_a_host_engine_are_shown_in_order_with_those_left() {
    let look = |set: &[(&str, &str)]| {
        let [state, words] = engine_on(&["--devices", "3"], set);
        assert_eq!(state, "ok", "{words}");
        words
    };
    let one = look(&[]);
    assert!(one.starts_with("mlx5_0 port 1, RoCEv2 127."), "{one}");
    assert!(one.contains("; 1 of at most 1 rails, "), "{one}");
    let spare =
        |device: &str| format!("not {device} port 1 (400 Gb/s): WARPVERBS_ENGINE_RAILS is 1");
    let both = format!("; {}, {}; 4 QPs", spare("mlx5_1"), spare("mlx5_2"));
    assert!(one.contains(&both), "{one}");
    let rest = look(&[
        ("WARPVERBS_ENGINE_RAILS", "3"),
        ("WARPVERBS_DEVICE", "^mlx5_1"),
    ]);
    let [first, second] = ["mlx5_0 port 1, ", " and mlx5_2 port 1, "].map(|it| rest.find(it));
    assert!(first == Some(0) && second.is_some(), "{rest}");
    assert!(rest.contains("; 2 of at most 3 rails, "), "{rest}");
    let left_out = "; not mlx5_1 port 1: the configuration leaves it out; 4 QPs";
    assert!(rest.contains(left_out), "{rest}");
    // A list is taken whole, in its order.
    let named = look(&[("WARPVERBS_DEVICE", "mlx5_2,mlx5_0")]);
    assert!(named.starts_with("mlx5_2 port 1, "), "{named}");
    assert!(!named.contains("rails"), "{named}");
}

#[test]
fn groups_are_looked_at_alone() {
    let found = Examined::by(doctor(&["--json", "--only", "gpu,store"]));
    let groups = found.json["groups"].as_array().unwrap();
    let names: Vec<&str> = groups
        .iter()
        .map(|group| group["group"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gpu", "store"]);
    assert_eq!(
        found.status,
        Some(0),
        "without a GPU kernels run on the CPU"
    );
}

#[test]
fn a_check_that_hangs_is_left_out_and_those_behind_it_are_looked_at() {
    FakeDriver::new("").run(|fake| {
        let hold = fake.hold();
        fake.set(&format!("hold cuInit {}", hold.path()));
        let found = Examined::by(doctor(&["--json", "--only", "software,gpu"]));
        assert_eq!(found.status, Some(0), "{:#}", found.json);
        for id in ["cuda-driver", "nvrtc", "gpu"] {
            let check = found.check("", id);
            assert_eq!(check["state"], "not-looked-at");
            assert_eq!(check["found"], "no answer within 2 s");
        }
        let state = &found.check("", "page-size")["state"];
        assert!(state == "ok" || state == "degraded", "{state}");
    });
}

/// The kernel that is to move data waits for good, so its check has 5 s. The one after it is looked at.
#[test]
fn a_loopback_that_hangs_is_left_out() {
    FakeDriver::new("").run(|fake| {
        let hold = fake.hold();
        fake.set(&format!("hold cuLaunchKernel {}", hold.path()));
        let scratch = tempfile::tempdir().unwrap();
        let arguments = ["--loopback", "--json", "--only", "pair,store"];
        let found = Examined::by(simulated(scratch.path(), &[], &arguments));
        let moved = found.check("mlx5_0", "pair-loopback");
        assert_eq!(moved["state"], "not-looked-at", "{moved}");
        assert_eq!(moved["found"], "no answer within 5 s");
        assert!(found.json["store"]["calls"].is_u64(), "{:#}", found.json);
    });
}

#[test]
fn each_check_is_explained_as_the_page_for_operators_has_it() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, warpverbs_cli::doctor::page()).unwrap();
    }
    let text = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        text == warpverbs_cli::doctor::page(),
        "{} is out of date: UPDATE=1 writes it anew",
        page.display()
    );
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(&text);
    for id in ids() {
        let output = doctor(&["--explain", &id]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{id}");
        let (_, said) = said.split_once('\n').unwrap();
        assert!(page.contains(&words(said)), "{id}: {said}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    for arguments in [
        &["--explain", "no-such-check"][..],
        &["--explain", ""],
        &["--only", "nics"],
        &["--json", "yes"],
    ] {
        let output = doctor(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let output = doctor(&["--explain", "no-such-check"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("nic-port"), "{said}");
}

#[test]
fn the_schema_refuses_what_is_no_report() {
    let schema: Value =
        serde_json::from_slice(&fs::read(crate::schema::schema()).unwrap()).unwrap();
    let states = &schema["definitions"]["check"]["properties"]["state"]["enum"];
    assert_eq!(
        *states,
        serde_json::json!(["ok", "degraded", "missing", "not-looked-at"])
    );
}

/// Returns the ids of all checks, as the page has them.
pub(crate) fn ids() -> BTreeSet<String> {
    let page = warpverbs_cli::doctor::page();
    let heads = page.lines().filter_map(|line| line.strip_prefix("### `"));
    heads
        .filter_map(|head| Some(head.split_once('`')?.0.to_owned()))
        .collect()
}
