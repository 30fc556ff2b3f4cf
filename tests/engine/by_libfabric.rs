//! Tests of other modules over providers of libfabric: tcp;ofi_rxm and shm of the installed library, and softofi, at both ends. Each
//! engine has a domain of its own. No HCA is used, though the rig makes some.
//!
//! The sample covers transfers, grants, notices, counters, lanes that fail and begin again, connections that are made again, lives of a
//! peer, and engines that are closed under load. `suite` runs all that a provider can do; suite.md says why shm does less.

use warpverbs::internal::engine::{HostError, OfiError, ProviderError, Rights};

use crate::drivers::{Driver, driven};
use crate::rig::pair;

/// Makes tests of these: the first over each provider, the others over each but shm.
macro_rules! sample {
    (each { $($module:ident::$test:ident,)+ } but_shm { $($not_module:ident::$not_test:ident,)+ }) => {
        mod tcp {
            use super::{Driver, driven};
            driven!(Driver::Tcp, $($module::$test,)+ $($not_module::$not_test,)+);
        }

        mod shm {
            use super::{Driver, driven};
            driven!(Driver::Shm, $($module::$test,)+);
        }

        mod softofi {
            use super::{Driver, driven};
            driven!(Driver::SoftOfi, $($module::$test,)+ $($not_module::$not_test,)+);
        }
    };
}

sample! {
    each {
        transfers::every_byte_of_a_write_and_of_a_read_arrives_and_no_other_changes,
        transfers::vectors_of_writes_and_reads_move_every_byte_once_prepared_or_not,
        transfers::a_close_drains_what_runs_and_reports_what_was,
        notices::notices_of_any_bytes_and_length_come_once_and_in_order,
        notices::a_notice_comes_behind_the_last_byte_of_its_transfer,
        counters::each_operation_counts_once_behind_its_bytes_asked_for_or_not,
        counters::what_was_planned_once_counts_at_each_post,
        reconnect::a_new_life_of_a_peer_makes_everything_of_the_old_stale,
        lost::what_was_done_stays_done_when_the_peer_is_lost,
    }
    but_shm {
        transfers::an_unknown_remote_key_fails_only_its_own_transfer_and_gives_the_cause,
        grants::a_grant_lets_its_peer_do_what_it_says_from_its_first_byte_to_its_last,
        grants::no_read_that_races_with_a_revocation_returns_a_byte_written_later,
        grants::a_region_stays_as_long_as_it_is_granted,
        counters::a_counter_goes_on_with_the_same_life_of_a_peer_and_then_is_final,
        counters::behind_a_cancel_all_is_counted_that_ever_is,
        counters::what_the_peer_refuses_is_not_counted_and_fails_only_itself,
        reconnect::with_the_same_life_of_a_peer_its_regions_and_what_was_prepared_go_on,
        reconnect::a_gone_peer_is_reported_once_behind_the_end_of_its_transfers,
        closes::a_lane_that_is_closed_under_load_fails_no_other_transfer,
        closes::two_engines_are_closed_in_either_order_and_at_once,
        restarts::a_peer_that_restarts_at_one_address_gets_the_bytes_of_each_life,
    }
}

#[test]
fn an_engine_over_shm_makes_no_grant() {
    Driver::Shm.run(|| {
        let (_a, b, [_to_b, to_a]) = pair(4096);
        let refused = to_a.grant(b.at(0), 4096, Rights::Read, None);
        let error = refused.unwrap_err();
        let HostError::Provider(ProviderError::Ofi(OfiError::KeysStay { provider })) = &error
        else {
            panic!("{error}");
        };
        assert_eq!(provider, "shm");
        assert_eq!(b.engine.grants(), 0);
        // What was taken for it is given back.
        b.engine.deregister(b.region).unwrap();
    });
}

/// Processes that are killed and stopped.
macro_rules! processes {
    ($($name:ident: $driver:expr,)+) => {
        $(
            mod $name {
                use super::{Driver, driven};
                driven!(
                    $driver,
                    killed::of_four_processes_one_is_killed_and_only_its_transfers_fail,
                    killed::of_four_processes_one_is_stopped_for_a_time_and_no_transfer_fails,
                );
            }
        )+
    };
}

processes! {
    tcp_processes: Driver::Tcp,
    softofi_processes: Driver::SoftOfi,
}
