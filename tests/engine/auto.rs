//! The ports that an engine takes by `auto`: which, how many, in which order, and why not the others.
//!
//! `auto` sees every HCA of its process. So the tests of `alone` run one after the other in a process without other tests.

use std::process::Command;

#[test]
fn auto_takes_the_ports_that_it_should_where_it_sees_these_hcas_alone() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["auto::alone::", "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let passed = text.lines().filter(|line| line.ends_with("... ok"));
    assert!(passed.count() > 0, "{text}");
}

mod alone {
    use softhca::device::FaultSpec;
    use softhca::link::Link;
    use softhca::profile::Profile;
    use softhca::{Hca, HcaConfig};
    use test_support::hca::hca_with;
    use test_support::limits::until;
    use warpverbs::internal::engine::{
        Engine, EngineDevices, EngineError, HostError, HostMemory, Outcome,
    };

    use crate::knobs::of;
    use crate::rig::{Side, connect};

    const MIB: u64 = 1 << 20;

    fn cards(profiles: &[Profile]) -> Vec<Hca> {
        let card = |profile: &Profile| {
            hca_with(HcaConfig {
                profile: *profile,
                ..HcaConfig::default()
            })
        };
        profiles.iter().map(card).collect()
    }

    fn equal(count: usize) -> Vec<Hca> {
        cards(&vec![Profile::default(); count])
    }

    fn names<'a>(hcas: impl IntoIterator<Item = &'a Hca>) -> Vec<String> {
        let port = |hca: &Hca| format!("{}:1", hca.name());
        hcas.into_iter().map(port).collect()
    }

    const EIGHT_QPS: (&str, &str) = ("ENGINE_QPS", "8");

    fn look(set: &[(&str, &str)]) -> Result<EngineDevices, HostError> {
        Engine::choose_devices(&of("a", &[&[EIGHT_QPS], set].concat()))
    }

    /// The ports that are taken, and what is said of the others.
    fn found(set: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let devices = look(set).unwrap();
        let port = |context: &std::sync::Arc<warpverbs::verbs::Context>| {
            format!("{}:{}", context.name(), context.port().number)
        };
        let taken = devices.contexts.iter().map(port).collect();
        (taken, devices.passed_over)
    }

    /// Two engines with these variables write and compare until every rail has moved bytes.
    fn each_rail_moves_bytes(set: &[(&str, &str)], rails: usize) {
        let set = [&[EIGHT_QPS], set].concat();
        let ends = ["a", "b"].map(|name| {
            let config = of(name, &set).with_slice(4096).with_fragment(0);
            let engine = Engine::start(config).unwrap();
            Side::new(engine, HostMemory::new(MIB).unwrap())
        });
        let [a, b] = &ends;
        assert_eq!(a.engine.devices().len(), rails);
        let [to_b, _to_a] = connect(a, b);
        let mut seed = 0;
        until("every rail has moved bytes", || {
            seed += 1;
            let sent = a.fill(seed);
            let id = to_b.write(a.at(0), b.at(0), MIB).unwrap();
            assert_eq!(a.concluded(id), Outcome::Done);
            assert!(b.bytes() == sent);
            a.engine.release(id).unwrap();
            let rails = a.engine.rails();
            rails.iter().all(|rail| rail.slices.posted_bytes > 0)
        });
    }

    #[test]
    #[ignore = "is started by the test above"]
    fn rails_says_how_many_equal_ports_are_taken_and_all_move_bytes() {
        for count in [1, 2, 4] {
            for rails in ["1", "2", "8"] {
                let hcas = equal(count);
                let most = count.min(rails.parse().unwrap());
                let set = [("ENGINE_RAILS", rails)];
                let reason = format!("(400 Gb/s): WARPVERBS_ENGINE_RAILS is {rails}");
                let others = hcas[most..].iter();
                let others = others.map(|hca| format!("{} port 1 {reason}", hca.name()));
                let expected = (names(&hcas[..most]), others.collect());
                assert_eq!(found(&set), expected, "{count} {rails}");
                each_rail_moves_bytes(&set, most);
                for (nth, hca) in hcas.iter().enumerate() {
                    let is_used = hca.counters().write_requests > 0;
                    assert_eq!(is_used, nth < most, "{count} {rails}: {nth}");
                }
            }
        }
    }

    #[test]
    #[ignore = "is started by the test above"]
    fn a_port_that_is_down_or_left_out_is_passed_over_with_the_reason() {
        let hcas = equal(4);
        let [down, out] = [&hcas[0], &hcas[2]];
        down.set_port_of(1, false);
        let device = format!("^{}", out.name());
        let set = [("ENGINE_RAILS", "8"), ("DEVICE", &*device)];
        let (taken, others) = found(&set);
        assert_eq!(taken, names([&hcas[1], &hcas[3]]));
        let [of_down, of_out] = &others[..] else {
            panic!("{others:?}");
        };
        let expected = format!("{} port 1: the port is down, not active", down.name());
        assert!(of_down.starts_with(&expected), "{of_down}");
        let expected = format!("{} port 1: the configuration leaves it out", out.name());
        assert_eq!(*of_out, expected);
        each_rail_moves_bytes(&set, 2);
        for hca in [down, out] {
            assert_eq!(hca.counters().write_requests, 0);
        }
        for hca in &hcas {
            hca.set_port_of(1, false);
        }
        let refused = look(&[]).unwrap_err().to_string();
        assert!(
            refused.starts_with("no RDMA device that DevX can drive"),
            "{refused}"
        );
        for hca in &hcas {
            assert!(
                refused.contains(&format!("{} port 1: ", hca.name())),
                "{refused}"
            );
        }
    }

    #[test]
    #[ignore = "is started by the test above"]
    fn ports_of_another_speed_or_link_layer_are_no_rails_beside_the_best() {
        let hcas = cards(&[
            Profile::ConnectX6,
            Profile::ConnectX7,
            Profile::ConnectX6Dx,
            Profile::ConnectX7,
        ]);
        let (taken, others) = found(&[("ENGINE_RAILS", "8")]);
        assert_eq!(taken, names([&hcas[1], &hcas[3]]));
        let slower = |hca: &Hca, rate: u32| {
            let name = hca.name();
            format!("{name} port 1 ({rate} Gb/s): it is slower than what is taken")
        };
        assert_eq!(others, [slower(&hcas[0], 200), slower(&hcas[2], 100)]);
        // Without the fast ones the next are the best.
        let but = format!("^{},{}", hcas[1].name(), hcas[3].name());
        let (taken, _) = found(&[("ENGINE_RAILS", "8"), ("DEVICE", &but)]);
        assert_eq!(taken, names([&hcas[0]]));
        drop(hcas);

        let of_link = |link| {
            hca_with(HcaConfig {
                link,
                ..HcaConfig::default()
            })
        };
        let hcas = [Link::Ethernet, Link::InfiniBand, Link::Ethernet].map(of_link);
        let (taken, others) = found(&[("ENGINE_RAILS", "8")]);
        assert_eq!(taken, names([&hcas[0], &hcas[2]]));
        let expected = format!(
            "{} port 1: the port is InfiniBand, not Ethernet",
            hcas[1].name()
        );
        assert_eq!(others, [expected]);
    }

    #[test]
    #[ignore = "is started by the test above"]
    fn the_next_port_is_taken_for_one_that_does_not_open() {
        let hcas = equal(3);
        let name = hcas[0].name();
        // The library of the device asks some of these.
        let all = (1..=16).map(|nth| format!("cmd=QUERY_HCA_CAP#{nth}"));
        let all = all.collect::<Vec<_>>().join(",");
        let fails = || hcas[0].set_faults(&all.parse().unwrap());
        for (rails, expected) in [("1", 1..2), ("2", 1..3)] {
            fails();
            let (taken, others) = found(&[("ENGINE_RAILS", rails)]);
            assert_eq!(taken, names(&hcas[expected]));
            assert!(others[0].starts_with(&format!("{name}:1: ")), "{others:?}");
            assert!(others[0].contains("QUERY_HCA_CAP"), "{others:?}");
        }
        // The log says it once, and that there are fewer rails than wanted.
        let log = crate::log::of_process();
        fails();
        let engine = Engine::start(of("few", &[EIGHT_QPS, ("ENGINE_RAILS", "3")])).unwrap();
        assert_eq!(engine.devices(), [hcas[1].name(), hcas[2].name()]);
        let said = log.text();
        let count = |words: &str| said.matches(words).count();
        assert_eq!(
            count(&format!("engine 'few' passes over {name}:1: ")),
            1,
            "{said}"
        );
        let few = "engine 'few' has 2 of 3 rails (WARPVERBS_ENGINE_RAILS): no other port is as near and as fast";
        assert_eq!(count(few), 1, "{said}");
        hcas[0].set_faults(&FaultSpec::default());
        each_rail_moves_bytes(&[("ENGINE_RAILS", "3")], 3);
        // No port has this address, so none opens.
        let refused = look(&[("GID", "10.1.0.0/16")]).unwrap_err().to_string();
        for hca in &hcas {
            assert!(
                refused.contains(&format!("{}:1: GID is 10.1.0.0/16", hca.name())),
                "{refused}"
            );
        }
    }

    #[test]
    #[ignore = "is started by the test above"]
    fn ports_of_one_device_are_rails_and_named_devices_are_taken_whole() {
        let two = HcaConfig {
            ports: 2,
            ..HcaConfig::default()
        };
        let hca = hca_with(two);
        let name = hca.name();
        let both = [1, 2].map(|port| format!("{name}:{port}"));
        assert_eq!(found(&[("ENGINE_RAILS", "2")]), (both.to_vec(), Vec::new()));
        each_rail_moves_bytes(&[("ENGINE_RAILS", "2")], 2);
        let list = both.join(",");
        for rails in ["1", "2", "8"] {
            let set = [("ENGINE_RAILS", rails), ("DEVICE", &*list)];
            assert_eq!(found(&set), (both.to_vec(), Vec::new()), "{rails}");
        }
        // More rails than QPs: `auto` is refused on every machine, a list by its own length.
        let few = |device: &str| {
            let set = [
                ("ENGINE_QPS", "1"),
                ("ENGINE_RAILS", "3"),
                ("DEVICE", device),
            ];
            match Engine::start(of("a", &set)) {
                Err(HostError::Refused(error)) => error,
                other => panic!("{other:?}"),
            }
        };
        let refusal = |devices| EngineError::FewQps { qps: 1, devices };
        assert_eq!([few("auto"), few(&list)], [refusal(3), refusal(2)]);
    }
}
