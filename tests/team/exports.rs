//! How HCAs reach device memory: by DMA-BUFs where the device exports them, as a GPU does, else by address.

use std::env;
use std::process::Command;

use mlx5_prm::cmd::{Opcode, Status as CommandStatus};
use softhca::FailCommand;
use warpverbs::team::Matter;
use warpverbs::verbs::Rung;

use crate::rank::{run_on, setup};
use test_support::fleet::Hcas;

/// Names the device of tests; set for the process that runs the tests below.
const DEVICE: &str = "WARPVERBS_TEST_GPU";
const EXPORTING: &str = "simt-dmabuf";

/// Teams on a device whose memory is exported, in a process of their own: the same tests as on one whose memory is not.
#[test]
fn a_team_with_dmabufs_works_and_replaces_a_peer_for_as_many_commands() {
    let tests = [
        "exports::every_registration_says_what_it_was_made_from",
        "exports::a_heap_in_which_no_queue_is_made_steps_down_alone",
        "rails::each_qp_sends_on_the_rail_of_its_number",
        "replace::a_peer_that_died_is_replaced_and_nothing_of_the_others_moves",
    ];
    let output = Command::new(env::current_exe().unwrap())
        .arg("--exact")
        .args(tests)
        .env(DEVICE, EXPORTING)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let passed = format!("{} passed; 0 failed", tests.len());
    assert!(
        output.status.success() && told.contains(&passed),
        "{told}{errors}"
    );
}

/// Returns what memory is registered by where nothing is refused.
fn expected() -> Rung {
    match env::var(DEVICE) {
        Ok(device) if device == EXPORTING => Rung::DmabufPcie,
        _ => Rung::Address,
    }
}

#[test]
fn every_registration_says_what_it_was_made_from() {
    let mut setup = setup(2);
    setup.rails = 2;
    let hcas = Hcas::new(&setup);
    run_on(&setup, &hcas, |rank| {
        rank.team.send_window(100).unwrap();
        let exports = rank.team.exports();
        let names: Vec<_> = exports
            .iter()
            .map(|(name, rail, _)| (name.as_str(), *rail))
            .collect();
        let wanted = ["control heap", "window 0", "window 1"].map(|name| [(name, 0), (name, 1)]);
        assert_eq!(names, wanted.concat());
        for (name, rail, export) in &exports {
            let refused = export.refused.len();
            assert_eq!((export.rung, refused), (expected(), 0), "{name}, {rail}");
        }
        if rank.gpu.label() == "simt" {
            let exported = expected() == Rung::DmabufPcie;
            assert_eq!(rank.gpu.rdma().unwrap().dmabuf, exported);
        }
    });
    hcas.check();
}

#[test]
fn a_heap_in_which_no_queue_is_made_steps_down_alone() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let exported = expected() == Rung::DmabufPcie;
    if exported {
        // The CQ by which a heap is tried.
        hcas.of(0)[0].fail_command(FailCommand {
            opcode: Some(Opcode::CREATE_CQ.0),
            nth: 1,
            status: CommandStatus::BAD_PARAM.0,
            syndrome: 5,
        });
    }
    run_on(&setup, &hcas, |rank| {
        let stepped = exported && rank.number() == 0;
        let rungs = rank.team.exports().into_iter();
        let rungs: Vec<_> = rungs.map(|(_, _, export)| export.rung).collect();
        let heap = if stepped { Rung::Dmabuf } else { expected() };
        assert_eq!(rungs, [heap, expected()]);
        let choices = rank.team.choices();
        let queues = choices
            .iter()
            .find(|choice| choice.matter == Matter::Queues);
        let reasons = queues.unwrap().to_string();
        assert_eq!(
            reasons.contains("syndrome 0x00000005"),
            stepped,
            "{reasons}"
        );
        crate::modes::exchange(rank, 2);
    });
    hcas.check();
}
