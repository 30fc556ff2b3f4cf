//! Tools over a wire that loses, doubles and reorders packets in both directions: data and counts are right all the same.

use softhca_rig::tools::pair::{self, PairEnded, Places};
use softhca_rig::tools::programs::{Ended, LIMIT, Scratch, is_installed, seed};

/// `command` is a tool and its options; both HCAs have `faults`.
fn run(command: &str, faults: &str) -> Option<PairEnded> {
    let mut words = command.split_whitespace();
    let tool = words.next().unwrap();
    let (package, gid) = if tool.starts_with("ibv_") {
        ("ibverbs-utils", "-g")
    } else {
        ("perftest", "-x")
    };
    if !is_installed(tool, package, "tools over a bad wire") {
        return None;
    }
    let mut places = Places::here();
    for place in [&mut places.server, &mut places.client] {
        place.environment.push(("SOFTHCA_FAULT", faults.to_owned()));
    }
    let options: Vec<_> = ["-d", "mlx5_0", gid, "3"]
        .into_iter()
        .chain(words)
        .collect();
    let ended = pair::run(&Scratch::new(), &places, tool, &options, LIMIT);
    println!("{command}: {:.2} s", ended.took().as_secs_f64());
    Some(ended)
}

/// How often a command is run at most.
///
/// A run in which [`lost_the_last_ack`] is no failure of softhca, and shows nothing about the command. So the test runs the command
/// again with another seed, and prints and counts each such run. Each packet is lost with 1% at either end. So about one run in
/// thirty loses its last ACK, and four in a row do by chance once in a million. If they do, softhca has lost the ACK, and the test
/// fails.
const ATTEMPTS: usize = 4;

/// Returns whether one end has ended well and the other one with exceeded retries.
///
/// The end that receives the last message acknowledges it, destroys its QP and exits. If the wire loses that one ACK, the sender
/// sends the message again, and no QP is left to answer. The tools do not tell each other that they may exit, so no transport can
/// exclude this. A NIC of silicon answers nothing for a destroyed QP either. Every other failure fails the test at once: wrong
/// data, an end that hangs, both ends failed, or another error.
fn lost_the_last_ack(ended: &PairEnded) -> bool {
    let exceeded = |ended: &Ended| {
        !ended.is_success()
            && ["retry counter exceeded (12)", "status 12"]
                .iter()
                .any(|words| ended.printed.contains(words))
    };
    (ended.server.is_success() && exceeded(&ended.client))
        || (ended.client.is_success() && exceeded(&ended.server))
}

#[test]
fn tools_end_well_with_loss_duplication_and_reordering() {
    let seed = seed();
    let commands = [
        "ibv_rc_pingpong -c -n 300",
        "ibv_rc_pingpong -c -e -n 100 -s 300000",
        "ibv_srq_pingpong -c -n 50",
        "ib_write_bw -u 20 -n 200 -s 65536",
        "ib_write_bw -u 20 -n 200 -s 65536 -b -q 4",
        "ib_write_lat -u 20 -n 200",
        "ib_read_bw -u 20 -n 200 -s 65536",
        "ib_send_bw -u 20 -n 200 -s 65536 -q 4",
        "ib_send_lat -u 20 -n 200 -s 10000",
        "ib_atomic_bw -u 20 -n 500",
        "ib_atomic_lat -u 20 -n 200 -A CMP_AND_SWAP",
    ];
    let (mut failures, mut again) = (String::new(), 0);
    for (index, command) in commands.iter().enumerate() {
        for attempt in 0..ATTEMPTS {
            let seed = seed + (index + attempt * commands.len()) as u64;
            let faults = format!("seed={seed},drop=1%,dup=0.5%,reorder=1%");
            let Some(ended) = run(command, &faults) else {
                break;
            };
            let Err(report) = ended.check(&["invalid data", "rror", "ailed", "ouldn't"]) else {
                break;
            };
            if attempt + 1 < ATTEMPTS && lost_the_last_ack(&ended) {
                println!("again: with {faults} the last ACK was lost after its sender had ended");
                again += 1;
                continue;
            }
            failures += &format!("SOFTHCA_FAULT={faults} (SEED={seed})\n{report}");
            break;
        }
    }
    println!(
        "{} commands, {again} of their runs repeated",
        commands.len()
    );
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn a_tool_whose_packets_are_all_lost_says_so() {
    let Some(ended) = run("ibv_rc_pingpong -n 10", "drop-out=100%") else {
        return;
    };
    let complaint = "transport retry counter exceeded (12)";
    assert!(
        ended.client.printed.contains(complaint),
        "{}",
        ended.client.report()
    );
}
