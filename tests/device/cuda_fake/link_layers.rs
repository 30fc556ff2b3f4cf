//! Ranks of machines that have ports of different link layers: `auto` takes a port of the layer that all have. Each test has a process
//! of its own, which shows it no software HCA of another test.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use softhca::link::Link;
use softhca::{Hca, HcaConfig};
use warpverbs::config::Config;
use warpverbs::gpu::GpuSelector;
use warpverbs::team::{JoinOptions, MemoryStore, RankSet, Store, Team, TeamConfig, TeamError};
use warpverbs::verbs::LinkLayer::{self, Ethernet, InfiniBand};

use super::fake;

/// A machine for each of four ranks: a port of Ethernet, and one of InfiniBand.
struct Machines {
    hcas: Vec<[Hca; 2]>,
    store: Arc<dyn Store>,
}

const LINKS: [(Link, LinkLayer); 2] = [(Link::Ethernet, Ethernet), (Link::InfiniBand, InfiniBand)];

impl Machines {
    fn new() -> Self {
        let hca = |(link, _)| {
            let config = HcaConfig {
                link,
                ..HcaConfig::default()
            };
            Hca::with_config(config).unwrap()
        };
        Self {
            hcas: (0..4).map(|_| LINKS.map(hca)).collect(),
            store: Arc::new(MemoryStore::new()),
        }
    }

    fn name(&self, rank: u32, layer: LinkLayer) -> &str {
        let place = LINKS.iter().position(|(_, of)| *of == layer).unwrap();
        self.hcas[rank as usize][place].name()
    }

    /// `WARPVERBS_DEVICE` by which rank `rank` sees, of all ports of this process, those of its machine that are of `layers`.
    fn auto(&self, rank: u32, layers: &[LinkLayer]) -> String {
        let all = (0..4).flat_map(|of| [Ethernet, InfiniBand].map(|layer| (of, layer)));
        let others = all.filter(|(of, layer)| *of != rank || !layers.contains(layer));
        let names: Vec<_> = others.map(|(of, layer)| self.name(of, layer)).collect();
        format!("^{}", names.join(","))
    }

    fn start(&self, device: &str, team: TeamConfig) -> Result<Arc<Team>, TeamError> {
        let config = Config::default()
            .with_rank(team.rank)
            .with_ranks(team.ranks)
            .with_device(device.parse().unwrap())
            .with_gpu(GpuSelector::Simt);
        JoinOptions::new(team)
            .with_config(&config)
            .with_store(Arc::clone(&self.store))
            .join()
    }

    /// Returns what comes of founders with these devices, of a team with room for one more.
    fn found(&self, devices: &[String]) -> Vec<Result<Arc<Team>, TeamError>> {
        let founders = u32::try_from(devices.len()).unwrap();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..)
                .zip(devices)
                .map(|(rank, device)| {
                    let team = TeamConfig::new(rank, founders + 1)
                        .with_members(Some(RankSet::first(founders)))
                        .with_join_timeout(Duration::from_secs(100));
                    scope.spawn(move || self.start(device, team))
                })
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }
}

/// The layer that the path of a team goes by.
fn layer_of(team: &Team) -> LinkLayer {
    let path = team.paths()[0].to_string();
    match (path.contains("RoCEv2"), path.contains("InfiniBand LID")) {
        (true, false) => Ethernet,
        (false, true) => InfiniBand,
        _ => panic!("{path}"),
    }
}

#[test]
fn ranks_that_have_a_choice_take_the_layer_of_those_that_have_none() {
    fake("devices 0").run(|_| {
        let both = [Ethernet, InfiniBand];
        for layer in both {
            // Rank 1 has no other, or is given its port by name.
            for is_named in [false, true] {
                let machines = Machines::new();
                let second = if is_named {
                    machines.name(1, layer).to_owned()
                } else {
                    machines.auto(1, &[layer])
                };
                let devices = [machines.auto(0, &both), second, machines.auto(2, &both)];
                let teams = machines.found(&devices);
                let layers: Vec<_> = teams
                    .iter()
                    .map(|team| layer_of(team.as_ref().unwrap()))
                    .collect();
                assert_eq!(layers, [layer; 3], "{devices:?}");
                // One that joins later takes that of the team, which it finds.
                let members = RankSet::first(3);
                let config = TeamConfig::new(3, 4).joining(2, members);
                let late = machines.start(&machines.auto(3, &both), config).unwrap();
                assert_eq!(layer_of(&late), layer, "{devices:?}");
                assert_eq!(machines.store.list("link-layer").unwrap(), ["0", "1", "2"]);
            }
        }
    });
}

#[test]
fn ranks_that_all_have_a_choice_take_the_same_layer() {
    fake("devices 0").run(|_| {
        let machines = Machines::new();
        let devices = [0, 1, 2].map(|rank| machines.auto(rank, &[Ethernet, InfiniBand]));
        let teams = machines.found(&devices);
        let layers: Vec<_> = teams
            .iter()
            .map(|team| layer_of(team.as_ref().unwrap()))
            .collect();
        // Of equal speed.
        assert_eq!(layers, [InfiniBand; 3]);
    });
}

#[test]
fn machines_that_have_no_layer_in_common_are_refused_with_both_values() {
    fake("devices 0").run(|_| {
        for first in [vec![Ethernet, InfiniBand], vec![Ethernet]] {
            let machines = Machines::new();
            let devices = [
                machines.auto(0, &first),
                machines.auto(1, &[Ethernet]),
                machines.name(2, InfiniBand).to_owned(),
            ];
            let teams = machines.found(&devices);
            for team in teams {
                let error = team.unwrap_err().to_string();
                let is_named =
                    error.contains("link layer") && error.contains("InfiniBand at rank 2");
                assert!(is_named && error.contains("Ethernet at rank"), "{error}");
            }
        }
    });
}

#[test]
fn a_spoiled_record_of_a_founder_is_refused_by_its_rank() {
    fake("devices 0").run(|_| {
        for record in [
            r#"{"offers":[]}"#,
            r#"{"offers":[{"layer":"ethernet","rate_mbps":1},{"layer":"ethernet","rate_mbps":2}]}"#,
            r#"{"offers":[{"layer":"token ring","rate_mbps":1}]}"#,
            r#"{"offers":1}"#,
            "",
        ] {
            let machines = Machines::new();
            machines
                .store
                .put("link-layer/1", record.as_bytes())
                .unwrap();
            let team = TeamConfig::new(0, 2);
            let device = machines.auto(0, &[Ethernet, InfiniBand]);
            let error = machines.start(&device, team).unwrap_err().to_string();
            assert!(
                error.starts_with("invalid record 'link-layer' from rank 1: "),
                "{record}: {error}"
            );
        }
    });
}
