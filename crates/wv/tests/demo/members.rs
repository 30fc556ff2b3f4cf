//! Ranks that die, stand still, lose each other and come back under the steps of the others: `wv demo --kill`, `wv chaos`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use test_basics::limits::until;

use super::{Demo, disturb, full, ranks_of, signal, wait_for_ranks, wait_for_record};

impl Demo {
    /// A run that ends well; its JSON.
    pub(super) fn json(self) -> Value {
        let output = self.run();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        // Status 3: the machine gave the ranks too little time for a verdict on their tokens. All else was judged.
        let is_good = [Some(0), Some(3)].contains(&output.status.code());
        assert!(is_good, "{text}\n{errors}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Durations of this name, in microseconds, ascending.
fn times(value: &Value, name: &str) -> Vec<u64> {
    let times = value[name].as_array().unwrap_or_else(|| panic!("{value}"));
    times.iter().map(|us| us.as_u64().unwrap()).collect()
}

#[test]
fn ranks_go_on_when_others_are_killed_under_their_steps() {
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("ranks.svg");
    let steps = if full() { "400" } else { "40" };
    let mut demo = Demo::new(&[
        "--ranks",
        "4",
        "--tokens",
        "16",
        "--hidden",
        "64",
        "--steps",
        steps,
        "--json",
        "--kill",
        "2@10",
        "--kill",
        "0@20",
        "--timeline",
    ]);
    demo.command.arg(&picture);
    let value = demo.json();
    assert_eq!(value["deaths"], 2, "{value}");
    assert_eq!(value["expelled"], 0, "{value}");
    let resumed = value["resume"].as_array().unwrap();
    // All survivors of each death; the second to die may not have got so far with the first.
    assert!((4..=5).contains(&resumed.len()), "{value}");
    let steps: u64 = steps.parse().unwrap();
    assert!(value["steps"].as_u64().unwrap() >= 2 * steps, "{value}");
    assert!(value["tokens_lost"].as_u64().unwrap() > 0, "{value}");
    let picture = fs::read_to_string(&picture).unwrap();
    assert_eq!(picture.matches("killed").count(), 2);
}

#[test]
fn a_killed_rank_comes_back_under_the_steps_of_the_others() {
    let steps = if full() { "4000" } else { "400" };
    let value = Demo::new(&[
        "--ranks",
        "4",
        "--tokens",
        "16",
        "--hidden",
        "64",
        "--steps",
        steps,
        "--json",
        "--kill",
        "2@5",
        "--rejoin-after",
        "0.1",
    ])
    .json();
    assert_eq!(
        (&value["deaths"], &value["expelled"]),
        (&1.into(), &0.into()),
        "{value}"
    );
    print("a rank that comes back", &value);
    // A survivor for which the machine has no time may find only the view in which the rank is back.
    assert!(times(&value, "resume").len() <= 3, "{value}");
    assert_eq!(value["rejoin"].as_array().unwrap().len(), 1, "{value}");
    // Of four QPs to the rank that came back, and of no other rank's; nothing is allocated for it.
    let commands = value["commands"].as_u64().unwrap();
    assert!((1..=5 * 4 + 8).contains(&commands), "{value}");
    assert_eq!(value["bytes"], 0, "{value}");
}

/// The figures of the README, on the output of the test.
fn print(what: &str, value: &Value) {
    let row = |name: &str| {
        let times = times(value, name);
        let of = |percent: usize| times.get((times.len() * percent).div_ceil(100).max(1) - 1);
        format!("{name} {:?} {:?} {:?} us", of(50), of(99), of(100))
    };
    let rows = ["detect", "resume", "recover", "rejoin", "connect", "gap"].map(row);
    println!("{what}: p50, p99, max of {}", rows.join(", "));
}

#[test]
fn eight_ranks_are_killed_in_turn_and_no_survivor_fails_a_step() {
    let count: usize = if full() { 100 } else { 4 };
    let directory = tempfile::tempdir().unwrap();
    let story = directory.path().join("story.jsonl");
    // No rank's patience runs out on a machine that is busy: what the dead rank owes is known from its process.
    let value = Demo::of(
        "chaos",
        &[
            "--ranks",
            "8",
            "--kills-only",
            "--deeds",
            &count.to_string(),
            "--minutes",
            "20",
            "--deadline",
            "20000",
            "--patience",
            "200",
            "--seed",
            "8",
            "--json",
            "--story",
            story.to_str().unwrap(),
        ],
    )
    .json();
    print("8 ranks", &value);
    assert_eq!(value["deaths"], count, "{value}");
    for none in ["expelled", "steps_failed", "bytes"] {
        assert_eq!(value[none], 0, "{none}: {value}");
    }
    assert_eq!(times(&value, "rejoin").len(), count, "{value}");
    // The test asserts no time of a survivor. How soon it notices, goes on without the dead rank and comes back to its pace depends
    // on the machine. A survivor may learn of a death by the next view, and then has not noticed it by itself. One that dies
    // meanwhile does not come back to its pace.
    for name in ["detect", "resume", "recover"] {
        assert!(times(&value, name).len() <= 7 * count, "{name}: {value}");
    }
    all_serve_behind_each_death(&story, 8);
    // One QP per kind and set to the rank that came, and keys of three windows; none of any other rank's. A mean over the time of a
    // survivor. In that time one more rank may have gone, whose four QPs were failed and whose successor has not come. Tests of the
    // team count the commands of one replacement.
    let commands = value["commands_per_rank"].as_u64().unwrap();
    assert!((1..=5 * 4 + 8 + 4).contains(&commands), "{value}");
}

/// Checks the reports of ranks in the story of a run. At the end every place is taken. The rank in it has been in another view
/// after each death during its life. Its last step lacks no rows.
fn all_serve_behind_each_death(story: &Path, ranks: u64) {
    let text = fs::read_to_string(story).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = lines.collect();
    let number = |record: &Value, name: &str| record[name].as_u64().unwrap();
    let is = |record: &Value, what: &str| record["what"] == what;
    let deaths = records.iter().filter(|record| is(record, "killed"));
    let deaths: Vec<u64> = deaths.map(|death| number(death, "us")).collect();
    let newest: BTreeMap<u64, u64> = records
        .iter()
        .map(|record| (number(record, "rank"), number(record, "generation")))
        .collect();
    assert_eq!(newest.len() as u64, ranks);
    for (&rank, &generation) in &newest {
        let of = |record: &&Value| record["rank"] == rank && record["generation"] == generation;
        let told: Vec<&Value> = records.iter().filter(of).collect();
        let views = told.iter().filter(|record| is(record, "serves"));
        let views: Vec<u64> = views.map(|view| number(view, "us")).collect();
        let first = views.first().expect("it serves");
        let last = views.last().expect("it serves");
        for death in deaths.iter().filter(|death| *death > first) {
            assert!(last > death, "rank {rank} is in no view behind {death} us");
        }
        let step = told.iter().rfind(|record| is(record, "step"));
        let step = step.expect("it has made a step");
        let whole = step["lost"] == 0 && step["missing"].as_array().unwrap().is_empty();
        assert!(whole, "rank {rank}: {step}");
    }
}

/// Some deeds of these kinds, then quiet until all ranks serve and have settled. The seed chooses the deeds.
fn chaos(seed: &str, loss: &str, kinds: &[&str]) -> Value {
    let deeds = if full() { 100 } else { 10 };
    let mut demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "6",
            "--minutes",
            "20",
            "--deeds",
            &deeds.to_string(),
            "--patience",
            "200",
            "--seed",
            seed,
            "--loss",
            loss,
            "--json",
        ],
    );
    // Of deadlines of half a second a busy machine leaves too little. `no_healthy_token_is_lost` judges tokens.
    demo.command.arg("--tokens-not-judged");
    for kind in kinds {
        demo.command.args(["--only", kind]);
    }
    let value = demo.json();
    print(&format!("seed {seed}, {loss}% lost"), &value);
    let disturbed = value["disturbed"].as_object().unwrap();
    let deaths = value["deaths"].as_u64().unwrap();
    println!("{deaths} deaths, {disturbed:?}");
    assert_eq!(value["deeds"], deeds, "{value}");
    assert!(disturbed.len() >= 3 && deaths > 0, "{value}");
    assert!(
        value["tokens_lost"].as_u64() < value["tokens"].as_u64(),
        "{value}"
    );
    assert_eq!(value["bytes"], 0, "{value}");
    value
}

#[test]
fn ranks_that_are_killed_frozen_and_parted_at_random_all_serve_in_the_end() {
    chaos("1", "0", &RANKS);
}

/// What is done to single ranks.
const RANKS: [&str; 5] = [
    "kills",
    "host-freezes",
    "kernel-freezes",
    "freezes",
    "partitions",
];
/// Deeds at all ranks, at their store, and at newcomers.
const ALL: [&str; 5] = [
    "pause-all",
    "store-pause",
    "store-slow",
    "garbage",
    "crash-loop",
];

#[test]
fn ranks_that_all_stand_still_or_whose_store_does_all_serve_in_the_end() {
    chaos("1", "0", &ALL);
}

/// Returns what was done, how often, in a run of a few deeds of `kinds` with these options.
fn few(options: &[&str], kinds: &[&str]) -> Value {
    few_with(&[], options, kinds)
}

/// As `few`, with these variables.
fn few_with(variables: &[(&str, &str)], options: &[&str], kinds: &[&str]) -> Value {
    let deeds = if full() { 40 } else { 4 };
    let mut demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "4",
            "--minutes",
            "20",
            "--patience",
            "200",
            "--json",
        ],
    );
    demo.command
        .args(["--deeds", &deeds.to_string(), "--tokens-not-judged"])
        .args(options);
    for kind in kinds {
        demo.command.args(["--only", kind]);
    }
    for (name, value) in variables {
        demo = demo.set(name, value);
    }
    let value = demo.json();
    print(&format!("{options:?}"), &value);
    println!("{}, {} parted", value["disturbed"], value["parted"]);
    assert_eq!(value["deeds"], deeds, "{value}");
    value
}

#[test]
fn ports_and_paths_that_fail_and_come_back_leave_all_in_one_view() {
    few(
        &["--seed", "3"],
        &["port-one", "ports-all", "partitions", "pause-all"],
    );
}

/// SIGSTOP to all processes, and SIGCONT to one after the other, up to a lease apart: no rank is expelled.
fn all_processes_stand_still(store: &[&str]) {
    let (pauses, longest) = if full() { (50, "30") } else { (3, "2") };
    let seed = if full() {
        fastrand::u64(1..1 << 32).to_string()
    } else {
        "9".to_owned()
    };
    println!("{store:?}, seed {seed}");
    let mut demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "4",
            "--minutes",
            "60",
            "--deeds",
            &pauses.to_string(),
            "--only",
            "pause-all",
            "--tokens-not-judged",
            "--longest-pause",
            longest,
            "--patience",
            "200",
            "--seed",
            &seed,
            "--json",
        ],
    );
    demo.command.args(store);
    let value = demo.json();
    print(&format!("{store:?}, seed {seed}"), &value);
    assert_eq!(value["deeds"], pauses, "seed {seed}: {value}");
    for none in ["deaths", "expelled"] {
        assert_eq!(value[none], 0, "{none}, seed {seed}: {value}");
    }
}

#[test]
fn processes_that_all_stand_still_meet_in_their_directory_again() {
    all_processes_stand_still(&[]);
}

#[test]
fn processes_that_all_stand_still_meet_in_their_etcd_again() {
    let Some(program) = test_basics::etcd::program() else {
        println!("skipped: {}", test_basics::etcd::NO_PROGRAM);
        return;
    };
    let program = program.display().to_string();
    all_processes_stand_still(&["--etcd", "1", "--etcd-program", &program]);
}

#[test]
fn killed_stopped_or_leaderless_etcd_servers_cost_no_rank_its_place() {
    let Some(program) = test_basics::etcd::program() else {
        println!("skipped: {}", test_basics::etcd::NO_PROGRAM);
        return;
    };
    let program = program.display().to_string();
    let kinds = ["store-pause", "store-restart", "leader-loss"];
    let options = ["--etcd", "3", "--etcd-program", &program, "--seed", "1"];
    let value = few(&options, &kinds);
    assert_eq!(
        (&value["deaths"], &value["expelled"]),
        (&0.into(), &0.into()),
        "{value}"
    );
}

#[test]
fn a_rail_that_carries_nothing_for_a_while_does_again_for_all() {
    let rails = if full() { &["2", "4"][..] } else { &["4"] };
    for rails in rails {
        let value = few(&["--rails", rails, "--seed", "1"], &["rail"]);
        assert_eq!(value["expelled"], 0, "{value}");
    }
}

/// A story that is read again by a process that has seen nothing else of the run.
fn judged(story: &Path) -> (bool, String) {
    let mut judge = Demo::of("chaos", &["--tokens-not-judged", "--judge"]);
    judge.command.arg(story);
    let output = judge.run();
    let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    // Status 3: all but the tokens was judged.
    let is_good = [Some(0), Some(3)].contains(&output.status.code());
    (is_good, texts.concat())
}

#[test]
fn three_deeds_at_once_expel_no_rank_left_alone_as_its_story_shows() {
    let directory = tempfile::tempdir().unwrap();
    let story = directory.path().join("story.jsonl");
    let seed = if full() {
        fastrand::u64(1..1 << 32).to_string()
    } else {
        "14".to_owned()
    };
    println!("seed {seed}");
    let deeds = if full() { 60 } else { 6 };
    let value = Demo::of(
        "chaos",
        &[
            "--ranks",
            "5",
            "--at-once",
            "3",
            "--tokens-not-judged",
            "--minutes",
            "20",
            "--deeds",
            &deeds.to_string(),
            "--patience",
            "200",
            "--seed",
            &seed,
            "--json",
            "--story",
            story.to_str().unwrap(),
        ],
    )
    .json();
    print(&format!("three at once, seed {seed}"), &value);
    assert_eq!(value["deeds"], deeds, "seed {seed}: {value}");
    let (good, text) = judged(&story);
    assert!(good, "seed {seed}: {text}");
    assert!(
        text.contains(&format!("{deeds} deeds: nothing that may not be")),
        "{text}"
    );
    // Without its deeds it is another story: no deed explains what the ranks report.
    let lines = fs::read_to_string(&story).unwrap();
    let is_kept = |line: &&str| {
        let record: Value = serde_json::from_str(line).unwrap();
        !["deed", "deed_over"].contains(&record["what"].as_str().unwrap())
    };
    let kept: Vec<&str> = lines.lines().filter(is_kept).collect();
    let planted = directory.path().join("planted.jsonl");
    fs::write(&planted, kept.join("\n") + "\n").unwrap();
    let (good, text) = judged(&planted);
    let done = ["\"what\":\"killed\"", "\"what\":\"disturbed\""];
    let was_done = kept
        .iter()
        .any(|line| done.iter().any(|what| line.contains(what)));
    assert!(was_done, "seed {seed}: nothing was done to a rank");
    assert!(
        !good && text.contains("no deed under way says so"),
        "{text}"
    );
}

#[test]
fn a_story_that_is_none_is_refused_with_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let story = directory.path().join("story.jsonl");
    fs::write(&story, "{\"us\":1}\n").unwrap();
    let (good, text) = judged(&story);
    assert!(!good && text.contains("line 1: "), "{text}");
    let (good, text) = judged(&directory.path().join("nothing"));
    assert!(!good && text.contains("nothing"), "{text}");
}

/// Kinds of ports other than RoCEv2 over IPv4, by the variables that make and choose them.
const PORTS: [&[(&str, &str)]; 4] = [
    &[("SOFTHCA_LINK", "ib")],
    &[("SOFTHCA_LINK", "ib"), ("WARPVERBS_GRH", "always")],
    &[("WARPVERBS_GID", "1")],
    &[("SOFTHCA_PROFILE", "cx7-lag")],
];

#[test]
fn ranks_on_every_kind_of_port_die_are_parted_and_come_back() {
    // InfiniBand in each run, and all of them in a full one.
    let ports = if full() { &PORTS[..] } else { &PORTS[..1] };
    for port in ports {
        println!("{port:?}");
        few_with(port, &["--seed", "1"], &["kills", "partitions"]);
    }
}

/// As `wv sim --link ib -- wv chaos --ranks 4 --minutes 2`.
#[test]
fn anything_is_done_to_ranks_on_infiniband_for_a_while() {
    let minutes = if full() { "2" } else { "0.1" };
    let seed = if full() {
        fastrand::u64(1..1 << 32).to_string()
    } else {
        "5".to_owned()
    };
    println!("seed {seed}");
    let mut demo = Demo::of("chaos", &["--ranks", "4", "--minutes", minutes, "--json"]);
    demo.command
        .args(["--patience", "200", "--seed", &seed, "--tokens-not-judged"]);
    let value = demo.set("SOFTHCA_LINK", "ib").json();
    print(&format!("InfiniBand, seed {seed}"), &value);
    println!("{} deaths, {}", value["deaths"], value["disturbed"]);
    assert!(value["deeds"].as_u64() > Some(0), "seed {seed}: {value}");
}

/// What may be done to ranks, links and the store while the tokens of the others are judged.
const JUDGED: [&str; 9] = [
    "kills",
    "freezes",
    "kernel-freezes",
    "partitions",
    "garbage",
    "late",
    "one-way",
    "host",
    "twice",
];

/// Deeds for 20 s among 6 ranks: no undisturbed rank loses a token of another one, later than in the call of a deed and the next one. The
/// deadline is longer than a busy machine keeps a rank waiting.
fn no_healthy_token_is_lost(store: &[&str]) {
    let mut demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "6",
            "--minutes",
            "0.333",
            "--seed",
            "1",
            "--patience",
            "200",
            "--json",
        ],
    );
    demo.command.args(["--deadline", "4000"]).args(store);
    for kind in JUDGED {
        demo.command.args(["--only", kind]);
    }
    let value = demo.json();
    print("six ranks for 20 s", &value);
    let counted = &value["undisturbed"];
    println!("{counted}");
    let deeds = counted["deeds"].as_object().unwrap();
    assert!(!deeds.is_empty(), "{value}");
    let (starved, calls) = (&counted["starved_calls"], &counted["calls"]);
    if starved.as_u64().unwrap() * 10 > calls.as_u64().unwrap() {
        println!("not judged: the machine starved {starved} of {calls} calls");
        return;
    }
    for (deed, row) in deeds {
        assert_eq!(row["lost_later"], 0, "{deed}: {value}");
    }
}

#[test]
fn late_ranks_links_of_one_direction_and_rivals_all_serve_in_the_end() {
    let kinds = ["late", "one-way", "link-joiner", "twice"];
    few(&["--seed", "1"], &kinds);
}

#[test]
fn ranks_that_die_where_no_pidfd_sees_it_come_back() {
    let mut namespace = std::process::Command::new("unshare");
    namespace.args([
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child=KILL",
        "true",
    ]);
    if !namespace
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("skipped: no-pidfd: unshare makes no PID namespace here");
        return;
    }
    let value = few(&["--seed", "1"], &["no-pidfd"]);
    assert_eq!(value["deaths"], value["deeds"], "{value}");
}

#[test]
fn no_deed_costs_a_rank_without_one_a_token_in_a_directory() {
    no_healthy_token_is_lost(&[]);
}

#[test]
fn no_deed_costs_a_rank_without_one_a_token_in_an_etcd() {
    let Some(program) = test_basics::etcd::program() else {
        println!("skipped: {}", test_basics::etcd::NO_PROGRAM);
        return;
    };
    let program = program.display().to_string();
    no_healthy_token_is_lost(&["--etcd", "1", "--etcd-program", &program]);
}

#[test]
fn the_same_over_a_wire_that_loses_packets() {
    chaos("2", "0.5", &RANKS);
}

#[test]
fn a_rank_that_dies_by_another_hand_ends_chaos_and_is_named() {
    let demo = Demo::of("chaos", &["--ranks", "3", "--kills-only", "--minutes", "5"]);
    let (status, message) = disturb(demo, |runtime| {
        wait_for_record(runtime, "group/record");
        // All of them: one alone might die by the hand of chaos at the same moment.
        until("chaos has ended", || {
            let ranks = ranks_of(runtime);
            for pid in &ranks {
                signal(*pid, "-KILL");
            }
            ranks.is_empty()
        });
    });
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("seed 1: rank "), "{message}");
    assert!(message.contains("its process ended"), "{message}");
}

/// Returns whether the process is started as rank `rank`.
fn holds_place(pid: u32, rank: u32) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let arguments: Vec<&[u8]> = arguments.split(|byte| *byte == 0).collect();
    let place = rank.to_string();
    arguments
        .windows(2)
        .any(|pair| pair == [b"--rank", place.as_bytes()])
}

#[test]
fn a_rank_that_hangs_ends_chaos_and_is_named() {
    let demo = Demo::of(
        "chaos",
        &[
            "--ranks",
            "3",
            "--only",
            "freezes",
            "--minutes",
            "5",
            "--patience",
            "6",
        ],
    );
    let (status, message) = disturb(demo, |runtime| {
        wait_for_ranks(runtime, 3);
        wait_for_record(runtime, "group/record");
        // They serve by now, as a rule. One that does not serve yet is named as well, for not coming back.
        std::thread::sleep(std::time::Duration::from_secs(1));
        // Again and again, and whichever process holds the place. Chaos continues a rank that it has stopped itself. On a busy
        // machine the others may drop a rank, and its successor takes the place.
        until("chaos has ended", || {
            let ranks = ranks_of(runtime);
            for pid in ranks.iter().filter(|&&pid| holds_place(pid, 1)) {
                signal(*pid, "-STOP");
            }
            ranks.is_empty()
        });
    });
    assert_eq!(status, Some(1), "{message}");
    let words = ["hangs after step", "does not come back"];
    assert!(
        words.iter().any(|words| message.contains(words)),
        "{message}"
    );
}

#[test]
fn chaos_that_cannot_be_is_one_sentence_with_value_and_limit() {
    let cases: [(&[&str], &str); 18] = [
        (
            &["--only", "host", "--ranks", "4"],
            "--only host is not possible among 4 ranks; add --ranks 5",
        ),
        (
            &["--only", "arguments"],
            "--only arguments is not possible to the ranks of the demo; add --buffer deep-ep or --buffer mooncake-ep",
        ),
        (
            &["--only", "kills", "--buffer", "deep-ep"],
            "--only kills is not possible where programs drive Buffers; leave out --buffer",
        ),
        (
            &["--only", "late", "--deadline", "49"],
            "--deadline is 49; it must be 50 to 60000 ms",
        ),
        (
            &["--longest-pause", "0.09"],
            "--longest-pause is 0.09; it must be 0.1 to 600 seconds",
        ),
        (
            &["--longest-pause", "601"],
            "--longest-pause is 601; it must be 0.1 to 600 seconds",
        ),
        (&["--ranks", "2"], "--ranks is 2; it must be 3 to 64"),
        (&["--at-once", "0"], "--at-once is 0; it must be at least 1"),
        (&["--ranks", "65"], "--ranks is 65; it must be"),
        (&["--rails", "0"], "--rails is 0; it must be 1 to 4"),
        (&["--rails", "5"], "--rails is 5; it must be 1 to 4"),
        (
            &["--only", "rail"],
            "--only rail is not possible where ranks have one rail; add --rails 2",
        ),
        (&["--etcd", "2"], "--etcd is 2; it must be 1 or 3"),
        (
            &["--only", "store-restart"],
            "--only store-restart is not possible where ranks meet in a directory, which has no server; add --etcd 1",
        ),
        (
            &["--etcd", "1", "--only", "leader-loss"],
            "--only leader-loss is not possible where ranks meet in an etcd of 1; add --etcd 3",
        ),
        (
            &["--loss", "51"],
            "--loss is 51; it must be 0 to 50 percent",
        ),
        (
            &["--minutes", "1000000000"],
            "--minutes is 1000000000; it must be 0 to 1440",
        ),
        (
            &["--deadline", "1"],
            "--deadline is 1; it must be 50 to 60000 ms",
        ),
    ];
    for (arguments, words) in cases {
        let (status, message) = Demo::of("chaos", arguments).refused();
        assert_eq!(status, 2, "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}
