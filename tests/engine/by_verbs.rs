//! Tests of other modules over the provider `verbs`: at one end of each connection, at the other end, and at both. The other end of a
//! mixed connection is of `mlx5`. Both drive the same kind of software HCA.
//!
//! The sample covers transfers, grants, notices, counters, failed QPs, connections that are made again, peers that are lost, and processes
//! that are killed, stopped and started again. `suite` runs all that a provider can do.

use softhca::HcaConfig;
use softhca::device::FailCommand;
use test_support::hca::hca_with;
use warpverbs::internal::engine::{Engine, EngineConfig, EngineDevice, HostMemory, ProviderChoice};

use crate::drivers::{Driver, driven};
use crate::rig::{Side, config, connect, moves};

/// The configuration of an engine on this device, by this provider.
fn of(device: &str, provider: &str) -> Result<EngineConfig, String> {
    let read = EngineConfig::from_variables("a", |name| match name {
        "WARPVERBS_DEVICE" => Some(device.to_owned()),
        "WARPVERBS_PROVIDER" => Some(provider.to_owned()),
        "WARPVERBS_ENGINE_PATH" => Some("nic".to_owned()),
        _ => None,
    });
    read.map_err(|error| error.to_string())
}

#[test]
fn the_configured_provider_drives_the_device_and_no_other_word_is_taken() {
    let hca = hca_with(HcaConfig::default());
    for (word, expected) in [("auto", "mlx5"), ("mlx5", "mlx5"), ("verbs", "verbs")] {
        let config = of(hca.name(), word).unwrap();
        let found = Engine::choose_devices(&config).unwrap();
        let taken: Vec<_> = found.devices.iter().map(EngineDevice::provider).collect();
        assert_eq!(taken, [expected]);
        assert_eq!(found.contexts.len(), usize::from(expected == "mlx5"));
        assert_eq!(found.steps, Vec::<String>::new());
        assert_eq!(Engine::start(config).unwrap().devices(), [hca.name()]);
    }
    let refused = Engine::open_devices(&of(hca.name(), "verbs").unwrap());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("provider is verbs, needed: mlx5"),
        "{refused}"
    );
    let refused = of(hca.name(), "efa").unwrap_err();
    let expected =
        "WARPVERBS_PROVIDER: provider 'efa': it must be auto, mlx5, verbs, ofi, or ofi:NAME";
    assert!(refused.starts_with(expected), "{refused}");
    let absent = of("nowhere_0", "auto").unwrap();
    let refused = Engine::start(absent).unwrap_err().to_string();
    assert!(
        refused.starts_with("no RDMA device nowhere_0: "),
        "{refused}"
    );
}

#[test]
fn a_device_without_devx_is_driven_by_verbs_and_the_reason_is_said() {
    let hca = hca_with(HcaConfig::default());
    let refuses = || {
        hca.fail_command(FailCommand {
            opcode: Some(FailCommand::DEVX),
            nth: 1,
            status: 1,
            syndrome: 0,
        });
    };
    refuses();
    let found = Engine::choose_devices(&of(hca.name(), "auto").unwrap()).unwrap();
    assert_eq!(found.devices[0].provider(), "verbs");
    let [step] = &found.steps[..] else {
        panic!("{:?}", found.steps);
    };
    let expected = format!("{} is driven by verbs, not by mlx5: ", hca.name());
    assert!(step.starts_with(&expected), "{step}");
    refuses();
    let refused = Engine::start(of(hca.name(), "mlx5").unwrap()).unwrap_err();
    assert!(refused.to_string().contains("DevX"), "{refused}");
    refuses();
    let engine = Engine::start(of(hca.name(), "auto").unwrap()).unwrap();
    let a = Side::new(engine, HostMemory::new(1 << 20).unwrap());
    let choice = config("b")
        .with_device(hca.name().parse().unwrap())
        .with_provider(ProviderChoice::Mlx5);
    let b = Side::new(
        Engine::start(choice).unwrap(),
        HostMemory::new(1 << 20).unwrap(),
    );
    let [to_b, to_a] = connect(&a, &b);
    moves(&a, &to_b, b.at(0));
    moves(&b, &to_a, a.at(0));
}

/// Makes the tests of each of these, with verbs at one end, at the other, and at both.
macro_rules! at_each_end {
    ($($module:ident::$test:ident,)+) => {
        mod first {
            use super::{Driver, driven};
            driven!(Driver::VerbsFirst, $($module::$test,)+);
        }

        mod others {
            use super::{Driver, driven};
            driven!(Driver::VerbsOthers, $($module::$test,)+);
        }

        mod all {
            use super::{Driver, driven};
            driven!(Driver::Verbs, $($module::$test,)+);
        }
    };
}

at_each_end! {
    transfers::every_byte_of_a_write_and_of_a_read_arrives_and_no_other_changes,
    transfers::vectors_of_writes_and_reads_move_every_byte_once_prepared_or_not,
    transfers::an_unknown_remote_key_fails_only_its_own_transfer_and_gives_the_cause,
    transfers::a_cancel_and_a_deadline_end_a_transfer_once_and_the_buffers_are_quiet,
    transfers::registrations_share_a_region_and_transfers_keep_it_while_they_use_it,
    transfers::a_close_drains_what_runs_and_reports_what_was,
    grants::a_grant_lets_its_peer_do_what_it_says_from_its_first_byte_to_its_last,
    grants::the_hca_refuses_more_than_was_granted_and_the_connection_goes_on,
    grants::an_ended_key_lets_no_peer_in_even_where_another_has_its_number,
    grants::a_region_stays_as_long_as_it_is_granted,
    grants::no_read_that_races_with_a_revocation_returns_a_byte_written_later,
    notices::notices_of_any_bytes_and_length_come_once_and_in_order,
    notices::a_notice_comes_behind_the_last_byte_of_its_transfer,
    notices::a_transfer_that_is_not_done_is_reported_with_its_cause,
    counters::each_operation_counts_once_behind_its_bytes_asked_for_or_not,
    counters::a_counter_never_says_more_than_what_is_there,
    counters::many_small_ones_from_two_peers_are_counted_each,
    counters::packets_that_are_lost_change_no_count,
    counters::a_counter_goes_on_with_the_same_life_of_a_peer_and_then_is_final,
    counters::behind_a_cancel_all_is_counted_that_ever_is,
    counters::what_the_peer_refuses_is_not_counted_and_fails_only_itself,
    retry::a_qp_that_fails_is_used_again_and_no_transfer_fails,
    retry::a_slice_is_retried_up_to_its_limit_and_then_fails_with_its_first_cause,
    retry::nothing_that_has_lost_a_qp_is_concluded_before_both_ends_are_reset,
    retry::with_the_last_qp_the_connection_ends,
    retry::a_cancelled_transfer_whose_qp_fails_is_tried_no_more,
    reconnect::with_the_same_life_of_a_peer_its_regions_and_what_was_prepared_go_on,
    reconnect::a_new_life_of_a_peer_makes_everything_of_the_old_stale,
    reconnect::a_gone_peer_is_reported_once_behind_the_end_of_its_transfers,
    lost::transfers_to_a_lost_peer_fail_and_report_the_remote_end_as_unknown,
    lost::what_was_done_stays_done_when_the_peer_is_lost,
    closes::a_lane_that_is_closed_under_load_fails_no_other_transfer,
    closes::two_engines_are_closed_in_either_order_and_at_once,
}

/// Processes, and lives at one address: at both ends.
mod ends {
    use super::{Driver, driven};
    driven!(
        Driver::Verbs,
        killed::of_four_processes_one_is_killed_and_only_its_transfers_fail,
        killed::of_four_processes_one_is_stopped_for_a_time_and_no_transfer_fails,
        restarts::a_peer_that_restarts_at_one_address_gets_the_bytes_of_each_life,
    );
}
