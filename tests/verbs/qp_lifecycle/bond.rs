//! Firmware of a bond that does not let a QP in Ready To Send name its port again.

use mlx5_prm::cmd::{Opcode, Status};
use softhca::profile::Profile;
use softhca::{Hca, HcaConfig};
use test_support::hca::hca_with;
use test_support::log::Lines;
use test_support::node::{Node, connect};
use warpverbs::verbs::{QpConfig, QpState, VerbsError};

use super::{HEAP, assert_nothing_left, fail};

/// What is logged while two QPs of this shape are connected on a bond that refuses the first of these commands.
fn connected(
    shape: &QpConfig,
    refused: Status,
    check: impl FnOnce(&Hca, Result<[QpState; 2], VerbsError>),
) -> String {
    let hca = hca_with(HcaConfig {
        profile: Profile::ConnectX7Lag,
        ..HcaConfig::default()
    });
    fail(&hca, Opcode::RTS2RTS_QP, refused, 0x00ab_cdef);
    hca.record_commands();
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(move || writer.clone())
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let node = Node::open(&hca, HEAP).unwrap();
        let states = connect([&node, &node], shape)
            .and_then(|[a, b]| Ok([a.query()?.state, b.query()?.state]));
        check(&hca, states);
    });
    assert_nothing_left(&hca);
    lines.text()
}

/// Returns how often QPs have named their port again, refused or not.
fn asked(hca: &Hca) -> usize {
    let opcode = Opcode::RTS2RTS_QP.0.to_be_bytes();
    let commands = hca.recorded_commands();
    let again = commands.iter().filter(|input| input.starts_with(&opcode));
    again.count()
}

#[test]
fn a_refused_second_naming_of_a_port_is_reported_once_and_no_error() {
    let shape = QpConfig::default();
    let told = "QPs keep the port of the bond that they named before Ready To Send";
    for place in [None, Some(1)] {
        for status in [Status::BAD_OP, Status::BAD_PARAM] {
            let log = connected(&shape.with_place(place), status, |hca, states| {
                assert_eq!(states.unwrap(), [QpState::RTS; 2]);
                assert_eq!(asked(hca), 1, "the second QP does not ask again");
            });
            assert_eq!(log.matches(told).count(), 1, "{log}");
            assert!(
                log.contains("RTS2RTS_QP") && log.contains("0x00abcdef"),
                "{log}"
            );
        }
    }
}

#[test]
fn a_refused_second_naming_of_a_port_of_the_configuration_is_an_error() {
    let named = QpConfig::default().with_lag_port(2);
    let log = connected(&named, Status::BAD_PARAM, |hca, states| {
        let error = states.unwrap_err();
        assert_eq!(error.command().unwrap().opcode, Opcode::RTS2RTS_QP);
        assert!(error.to_string().contains("WARPVERBS_LAG_PORT"), "{error}");
        assert_eq!(asked(hca), 1);
    });
    assert_eq!(log, "");
}

#[test]
fn a_second_naming_that_fails_for_another_reason_is_an_error() {
    for status in [Status::BAD_SYS_STATE, Status::BAD_QP_STATE] {
        let log = connected(&QpConfig::default(), status, |_, states| {
            assert_eq!(states.unwrap_err().command().unwrap().status, status);
        });
        assert_eq!(log, "", "{status}");
    }
}
