//! Joining a team: what agrees, what does not, and that a failure at one rank is known at all of them.

use std::sync::Arc;
use std::time::Duration;

use softhca::FailCommand;
use test_support::moe::{Hcas, Setup, join, on_threads, run};
use warpverbs::config::Config;
use warpverbs::gpu::GpuSelector;
use warpverbs::moe::{Moe, MoeConfig};
use warpverbs::team::{JoinOptions, MAX_WINDOWS, Store, Team, TeamConfig, TeamError};

/// Joins with what `config` names.
fn start(config: &Config) -> Result<Arc<Team>, TeamError> {
    let options = JoinOptions::new(TeamConfig::of(config));
    options.with_config(config).join()
}

/// Joins with what `change` makes of each rank's configuration; the errors, by rank.
fn errors(ranks: u32, change: impl Fn(&mut TeamConfig) + Sync) -> Vec<String> {
    let setup = Setup::adverse(ranks);
    let hcas = Hcas::new(&setup);
    let errors = on_threads(&setup, &hcas, |rank, own, store| {
        let mut config = setup.team.with_rank(rank);
        change(&mut config);
        join(config, own, store)
            .map(|team| team.rank())
            .unwrap_err()
            .to_string()
    });
    hcas.check();
    errors
}

#[test]
fn a_team_comes_and_goes_and_leaves_nothing() {
    for ranks in [1, 2, 4] {
        let bytes = run(&Setup::adverse(ranks), |team| {
            team.window(4096).unwrap();
            team.barrier("made").unwrap();
            team.control_stats().live_bytes
        });
        assert!(
            bytes.iter().all(|bytes| *bytes == bytes_of(ranks)),
            "{bytes:?}"
        );
    }
}

fn bytes_of(ranks: u32) -> u64 {
    // The QPs, and a line that swallows results of atomics.
    TeamConfig::new(0, ranks).qps() * 74_624 + 128
}

#[test]
fn different_settings_are_named_with_both_values_at_every_rank() {
    let errors = errors(4, |config| {
        if config.rank == 2 {
            config.log_depth = 9;
        }
    });
    for error in errors {
        assert!(
            error.contains("log_depth is")
                && error.contains("9 at rank 2")
                && error.contains("10 at rank"),
            "{error}"
        );
    }
}

#[test]
fn a_different_number_of_ranks_is_named_at_every_rank() {
    let errors = errors(3, |config| {
        if config.rank == 1 {
            config.ranks = 4;
        }
    });
    for error in errors {
        assert!(
            error.contains("number of ranks is")
                && error.contains("4 at rank 1")
                && error.contains("3 at rank"),
            "{error}"
        );
    }
}

#[test]
fn an_unknown_rank_is_named_to_all() {
    let unknown = errors(3, |config| {
        if config.rank == 2 {
            config.rank = 7;
        }
    });
    for error in unknown {
        assert!(
            error.contains("rank 7 is unknown: the team has ranks 0 to 2"),
            "{error}"
        );
    }
}

#[test]
fn a_founder_that_is_started_twice_fails_alone_and_the_team_stands() {
    let setup = Setup::adverse(4);
    let hcas = Hcas::new(&setup);
    on_threads(&setup, &hcas, |rank, own, store| {
        let config = setup.team.with_rank(rank);
        let start = || join(config, own, Arc::clone(&store));
        let mut started = match rank {
            1 => std::thread::scope(|scope| {
                let both = [scope.spawn(start), scope.spawn(start)];
                both.map(|one| one.join().unwrap()).into()
            }),
            _ => vec![start()],
        };
        // A third one, of a rank that stands already.
        if rank == 2 {
            started.push(start());
        }
        let (teams, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(
                matches!(error, TeamError::RankTaken { rank: of } if of == rank),
                "{error}"
            );
        }
        let [Ok(team)] = &teams[..] else {
            panic!("{teams:?}")
        };
        team.window(4096).unwrap();
        team.barrier("all").unwrap();
        team.check_peers().unwrap();
    });
    hcas.check();
}

#[test]
fn a_command_that_the_hca_of_one_rank_refuses_ends_all_of_them() {
    // RST2INIT_QP, INIT2RTR_QP, RTR2RTS_QP, CREATE_QP, CREATE_CQ.
    for opcode in [0x502, 0x503, 0x504, 0x500, 0x400] {
        let setup = Setup::adverse(3);
        let hcas = Hcas::new(&setup);
        hcas.of(1)[0].fail_command(FailCommand {
            opcode: Some(opcode),
            nth: 3,
            status: 0x8,
            syndrome: 0x00ab_cdef,
        });
        let errors = on_threads(&setup, &hcas, |rank, own, store| {
            let config = setup.team.with_rank(rank);
            join(config, own, store)
                .map(|team| team.rank())
                .unwrap_err()
                .to_string()
        });
        for error in errors {
            assert!(
                error.contains("syndrome 0x00abcdef"),
                "opcode {opcode:#x}: {error}"
            );
        }
        hcas.check();
    }
}

#[test]
fn ranks_that_never_come_are_named_at_the_timeout() {
    let mut setup = Setup::adverse(3);
    setup.team.join_timeout = Duration::from_millis(200);
    let hcas = Hcas::new(&setup);
    let store: Arc<dyn Store> = Arc::new(warpverbs::team::MemoryStore::new());
    let error = join(setup.team.with_rank(1), hcas.of(1), store).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("ranks 0, 2 have not come within"),
        "{error}"
    );
    hcas.check();
}

#[test]
fn a_window_must_be_the_same_everywhere_and_inside_its_limits() {
    let errors = run(&Setup::adverse(2), |team| {
        let bytes = 4096 + u64::from(team.rank()) * 64;
        team.window(bytes).unwrap_err().to_string()
    });
    for error in &errors {
        assert!(
            error.contains("bytes of window 0 is 4096 at rank 0 but 4160 at rank 1"),
            "{error}"
        );
    }
}

#[test]
fn a_window_of_no_bytes_and_one_too_many_are_refused_with_the_limit() {
    run(&Setup::adverse(1), |team| {
        let error = team.window(0).unwrap_err().to_string();
        assert_eq!(error, "window is 0; it must be 1 to 1099511627776 bytes");
        for _ in 0..MAX_WINDOWS {
            team.window(64).unwrap();
        }
        let error = team.window(64).unwrap_err().to_string();
        assert_eq!(
            error,
            "number of windows is 17; it must be at most 16 (WARPVERBS_WINDOWS): as many as 5 MoE layers take"
        );
    });
}

#[test]
fn a_layer_must_have_the_same_shape_everywhere() {
    let errors = run(&Setup::adverse(3), |team| {
        let config = MoeConfig::BF16
            .with_hidden(if team.rank() == 1 { 128 } else { 64 })
            .with_experts(6)
            .with_top_k(2)
            .with_max_tokens(8);
        Moe::new(team, "layer", config).unwrap_err().to_string()
    });
    for error in errors {
        assert!(
            error.contains("hidden is")
                && error.contains("128 at rank 1")
                && error.contains("64 at rank"),
            "{error}"
        );
    }
}

#[test]
fn a_layer_beyond_its_limits_is_refused_at_every_rank() {
    let errors = run(&Setup::adverse(2), |team| {
        let hidden = if team.rank() == 0 { 100 } else { 104 };
        let config = MoeConfig::BF16
            .with_hidden(hidden)
            .with_experts(6)
            .with_top_k(2)
            .with_max_tokens(8);
        Moe::new(team, "layer", config).unwrap_err().to_string()
    });
    for error in errors {
        assert!(
            error.contains("hidden is 100, which is not a multiple of 8"),
            "{error}"
        );
    }
}

#[test]
fn ranks_that_a_launcher_started_meet_in_a_directory() {
    let setup = Setup::adverse(3);
    let hcas = Hcas::new(&setup);
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    on_threads(&setup, &hcas, |rank, own, _| {
        let variables = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "3".to_owned()),
            ("WARPVERBS_STORE", store.clone()),
            ("WARPVERBS_DEVICE", own[0].name().to_owned()),
            ("WARPVERBS_GPU", "simt".to_owned()),
        ];
        let find = |name: &str| {
            let variable = variables.iter().find(|(key, _)| *key == name);
            variable.map(|(_, value)| value.clone())
        };
        let team = start(&Config::from_variables(find).unwrap()).unwrap();
        assert_eq!((team.rank(), team.ranks()), (rank, 3));
        team.barrier("end").unwrap();
    });
    hcas.check();
}

#[test]
fn a_rank_without_its_device_is_named_to_those_that_have_theirs() {
    let setup = Setup::adverse(2);
    let hcas = Hcas::new(&setup);
    let directory = tempfile::tempdir().unwrap();
    let errors = on_threads(&setup, &hcas, |rank, own, _| {
        let device = if rank == 1 {
            "mlx5_none"
        } else {
            own[0].name()
        };
        let config = Config::default()
            .with_rank(rank)
            .with_ranks(2)
            .with_store(format!("file://{}", directory.path().display()))
            .with_device(device.parse().unwrap())
            .with_gpu(GpuSelector::Simt);
        start(&config)
            .map(|team| team.rank())
            .unwrap_err()
            .to_string()
    });
    assert!(
        errors
            .iter()
            .all(|error| error.contains("no RDMA device mlx5_none")),
        "{errors:?}"
    );
    hcas.check();
}
