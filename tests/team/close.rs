//! A team that is closed: QPs go to Err and drain before they are destroyed, and the report says what the HCA refused.

use std::sync::Arc;
use std::time::Duration;

use mlx5_prm::cmd::{self, Opcode};
use softhca::{FailCommand, Hca};
use test_support::fleet::Hcas;
use warpverbs::abi::Status;
use warpverbs::team::{CloseReport, MemoryStore, RankSet};

use crate::fleet::DrivenFleet;
use crate::rank::{PATIENCE, Put, Rank, setup};

/// Two ranks that have talked; what `close` of rank 0 says after `before`, and its HCA.
fn closed(before: impl Fn(&Hca)) -> (CloseReport, Hcas) {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    fleet.talk_all();
    let team = fleet.leave(0);
    before(&hcas.of(0)[0]);
    let report = team.close().expect("the last holder");
    drop(fleet);
    (report, hcas)
}

fn fail(hca: &Hca, opcode: Opcode) {
    hca.fail_command(FailCommand {
        opcode: Some(opcode.0),
        nth: 1,
        status: cmd::Status::BAD_RES_STATE.0,
        syndrome: 0x77,
    });
}

/// Opcodes of the commands for each QP, in their order.
fn by_qp(hca: &Hca) -> Vec<(u32, Vec<Opcode>)> {
    let mut all: Vec<(u32, Vec<Opcode>)> = Vec::new();
    for command in hca.recorded_commands() {
        let opcode = Opcode(u16::from_be_bytes([command[0], command[1]]));
        let qpn = u32::from_be_bytes([0, command[9], command[10], command[11]]);
        if ![Opcode::TO_ERR_QP, Opcode::QUERY_QP, Opcode::DESTROY_QP].contains(&opcode) {
            continue;
        }
        match all.iter_mut().find(|(of, _)| *of == qpn) {
            Some((_, opcodes)) => opcodes.push(opcode),
            None => all.push((qpn, vec![opcode])),
        }
    }
    all
}

#[test]
fn qps_are_in_error_and_drained_before_they_are_destroyed() {
    let (report, hcas) = closed(Hca::record_commands);
    assert_eq!((report.drained, report.idle), (2, 0), "{report}");
    assert!(report.is_clean(), "{report}");
    let text = "2 QPs drained, 0 were idle, 0 refused, 0 leaked";
    assert_eq!(report.to_string(), text);
    let commands = by_qp(&hcas.of(0)[0]);
    assert_eq!(commands.len(), 2);
    for (qpn, opcodes) in commands {
        assert_eq!(opcodes.first(), Some(&Opcode::TO_ERR_QP), "{qpn:#x}");
        assert_eq!(opcodes.last(), Some(&Opcode::DESTROY_QP), "{qpn:#x}");
        assert!(opcodes.contains(&Opcode::QUERY_QP), "{qpn:#x}: {opcodes:?}");
    }
    hcas.check();
}

#[test]
fn what_the_hca_refuses_is_reported_and_the_rest_goes_on() {
    let (report, hcas) = closed(|hca| fail(hca, Opcode::TO_ERR_QP));
    assert_eq!((report.drained, report.refused.len()), (1, 1), "{report}");
    assert!(report.leaked.is_empty(), "{report}");
    let text = &report.refused[0];
    assert!(
        text.contains("to rank 1 on rail 0: ") && text.contains("TO_ERR_QP"),
        "{text}"
    );
    hcas.check();

    let (report, hcas) = closed(|hca| fail(hca, Opcode::DESTROY_QP));
    assert_eq!((report.drained, report.leaked.len()), (2, 1), "{report}");
    assert!(report.refused.is_empty() && !report.is_clean(), "{report}");
    assert!(
        report.leaked[0].contains("mlx5dv_devx_obj_destroy"),
        "{report}"
    );
    assert_eq!(hcas.of(0)[0].live_objects().qp, 1, "the one that stays");
}

#[test]
fn a_key_that_the_hca_does_not_take_back_is_reported() {
    let (report, hcas) = closed(|hca| fail(hca, Opcode::DESTROY_MKEY));
    assert_eq!((report.drained, report.leaked.len()), (2, 1), "{report}");
    let text = &report.leaked[0];
    assert!(
        text.starts_with("key 0x")
            && text.contains(" of window 0: ")
            && text.contains("ibv_dereg_mr"),
        "{text}"
    );
    assert_eq!(hcas.of(0)[0].live_objects().mr, 1, "the one that stays");
}

#[test]
fn a_team_that_others_hold_is_given_back() {
    let setup = setup(1);
    let hcas = Hcas::new(&setup);
    let store = Arc::new(MemoryStore::new());
    let rank = Rank::alone(setup.of_rank(0), hcas.of(0), store);
    let team = rank.unwrap().team;
    let copy = Arc::clone(&team);
    let back = team.close().unwrap_err();
    assert_eq!(back.rank(), 0);
    drop(copy);
    let report = back.close().unwrap();
    assert_eq!(report, CloseReport::default());
    hcas.check();
}

#[test]
fn work_for_a_peer_that_sleeps_is_drained() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    fleet.talk_all();
    hcas.of(1)[0].pause(PATIENCE);
    let put = Put {
        deadline: Duration::from_millis(20),
        ..Put::new(1, 20)
    };
    let seen = fleet.rank(0).put(&put).finish()[0];
    assert_ne!(seen.status, Status::OK, "no peer has answered: {seen:?}");
    let report = fleet.leave(0).close().expect("the last holder");
    assert!(report.is_clean() && report.drained == 2, "{report}");
    hcas.of(1)[0].pause(Duration::ZERO);
    drop(fleet);
    hcas.check();
}
