//! Which GPU and which HCA a rank gets, where a driver shows several GPUs.

use std::sync::Arc;

use softhca::{Hca, HcaConfig};
use warpverbs::config::{Config, EngineConfig, GpuSelector};
use warpverbs::engine::{Engine, Near};
use warpverbs::gpu::{self, GpuError};
use warpverbs::team::{JoinOptions, RankDevices, Team, TeamConfig};
use warpverbs::verbs::VerbsError;

use super::fake;

/// Buses (attribute 33) of two GPUs.
const TWO: &str = "devices 2\nattribute 33 27 0\nattribute 33 67 1";

fn of_local_rank(local_rank: u32) -> Config {
    Config::default().with_local_rank(Some(local_rank))
}

/// The team of a rank whose devices `config` names.
fn started(config: &Config) -> Arc<Team> {
    let options = JoinOptions::new(TeamConfig::of(config)).with_config(config);
    options.join().unwrap()
}

/// The error of a rank that cannot have its devices.
fn refusal(config: &Config) -> String {
    RankDevices::open(config).unwrap_err().to_string()
}

#[test]
fn each_rank_of_a_machine_has_the_gpu_of_its_number() {
    fake(TWO).run(|fake| {
        let _hca = Hca::new().unwrap();
        let seen = gpu::visible().unwrap();
        assert_eq!(seen.len(), 2);
        assert!(fake.calls("cuDevicePrimaryCtxRetain").is_empty(), "none is opened");
        for (local_rank, slot) in [(0, "gpu 0 (0000:1b:00.0)"), (1, "gpu 1 (0000:43:00.0)")] {
            let devices = RankDevices::open(&of_local_rank(local_rank)).unwrap();
            assert_eq!(devices.gpu.slot().unwrap().to_string(), slot);
            assert_eq!(devices.gpu.slot().unwrap().pci, seen[local_rank as usize]);
        }
        let error = refusal(&of_local_rank(2));
        let wanted = "number of this rank on its machine is 2; it must be below the number of GPUs that this process sees, 2";
        assert!(error.starts_with(wanted), "{error}");
        // Named, it is no matter of the number.
        let named = of_local_rank(2).with_gpu(GpuSelector::Cuda(1));
        assert_eq!(RankDevices::open(&named).unwrap().gpu.slot().unwrap().ordinal, 1);
        let absent = RankDevices::open(&named.with_gpu(GpuSelector::Cuda(7))).unwrap_err();
        assert!(matches!(absent.downcast_ref(), Some(GpuError::NoDevice { ordinal: 7, count: 2 })));
        let on_cpu = RankDevices::open(&of_local_rank(2).with_gpu(GpuSelector::Simt)).unwrap();
        assert_eq!(on_cpu.gpu.slot(), None);
    });
}

#[test]
fn a_rank_that_is_shown_its_gpu_alone_takes_that() {
    fake("attribute 33 67").run(|_| {
        let _hca = Hca::new().unwrap();
        let devices = RankDevices::open(&of_local_rank(5)).unwrap();
        assert_eq!(
            devices.gpu.slot().unwrap().to_string(),
            "gpu 0 (0000:43:00.0)"
        );
    });
}

#[test]
fn no_gpu_is_visible_if_the_driver_has_no_device_or_no_cuinit() {
    fake("refuse cuInit 100").run(|_| assert_eq!(gpu::visible().unwrap(), []));
    fake("")
        .lacking("cuInit")
        .run(|_| assert_eq!(gpu::visible().unwrap(), []));
}

#[test]
fn a_driver_that_does_not_start_is_an_error_of_auto() {
    fake("refuse cuInit 803").run(|_| {
        let error = gpu::visible().unwrap_err();
        assert!(matches!(error, GpuError::NoStart { .. }), "{error}");
        assert!(refusal(&of_local_rank(0)).contains("releases"));
    });
}

#[test]
fn hcas_are_named_left_out_and_refused_in_words() {
    fake(TWO).run(|_| {
        let [one, other] = [0, 1].map(|_| Hca::new().unwrap());
        let config = |devices: String| of_local_rank(0).with_device(devices.parse().unwrap());
        let names = |devices: String| -> Vec<String> {
            let devices = RankDevices::open(&config(devices)).unwrap();
            devices
                .contexts
                .iter()
                .map(|context| context.name().to_owned())
                .collect()
        };
        let [a, b] = [&one, &other].map(|hca| hca.name().to_owned());
        assert_eq!(names(format!("{b},{a}:1")), [b.clone(), a.clone()]);
        assert_eq!(names(format!("^{a}")), [b.as_str()]);
        assert_eq!(names(format!("^{b}:1")), [a.as_str()]);

        for port in [2, 255] {
            let refusal = refusal(&config(format!("{a}:{port}")));
            assert_eq!(refusal, format!("port is {a}:{port}; it must be {a}:1"));
        }
        let both = RankDevices::open(&config(format!("^{a},{b}"))).unwrap_err();
        let Some(VerbsError::NoDevice { wanted, found }) = both.downcast_ref() else {
            panic!("{both}");
        };
        assert!(wanted.ends_with(&format!("of ^{a},{b}")), "{wanted}");
        let told = |name: &str| format!("{name} port 1: the configuration leaves it out");
        assert_eq!(*found, [told(&a), told(&b)]);
    });
}

fn with_two_ports() -> Hca {
    let config = HcaConfig {
        ports: 2,
        ..HcaConfig::default()
    };
    Hca::with_config(config).unwrap()
}

/// The port of the first device of a rank.
fn port(config: &Config) -> (String, u8) {
    let devices = RankDevices::open(config).unwrap();
    let context = &devices.contexts[0];
    (context.name().to_owned(), context.port().number)
}

#[test]
fn each_port_of_a_device_is_named_left_out_and_refused_in_words() {
    fake(TWO).run(|_| {
        let hca = with_two_ports();
        let name = hca.name().to_owned();
        let config = |devices: String| of_local_rank(0).with_device(devices.parse().unwrap());
        for (devices, expected) in [
            (name.clone(), 1),
            (format!("{name}:1"), 1),
            (format!("{name}:2"), 2),
            (format!("^{name}:1"), 2),
            (format!("^{name}:2"), 1),
        ] {
            assert_eq!(
                port(&config(devices.clone())),
                (name.clone(), expected),
                "{devices}"
            );
        }
        let team = started(&config(format!("{name}:2")));
        let path = team.paths()[0].to_string();
        assert!(path.contains(&format!("{name} port 2, RoCEv2 ")), "{path}");
        assert_eq!(
            refusal(&config(format!("{name}:3"))),
            format!("port is {name}:3; it must be {name}:1 to {name}:2")
        );
    });
}

#[test]
fn auto_takes_an_active_port_of_a_device_whose_first_is_down() {
    fake(TWO).run(|_| {
        let hca = with_two_ports();
        let (name, auto) = (hca.name().to_owned(), of_local_rank(0));
        assert_eq!(port(&auto), (name.clone(), 1));
        hca.set_port_of(1, false);
        assert_eq!(port(&auto), (name.clone(), 2));
        let by_name = auto.clone().with_device(name.parse().unwrap());
        assert_eq!(port(&by_name), (name.clone(), 2));
        hca.set_port_of(2, false);
        let error = refusal(&auto);
        for port in [1, 2] {
            let told = format!("is the cable of port {port} in");
            assert!(error.contains(&told), "{error}");
        }
    });
}

#[test]
fn an_engine_takes_a_port_that_is_not_left_out_and_is_active() {
    fake("devices 0").run(|_| {
        let hca = with_two_ports();
        let name = hca.name().to_owned();
        let open = |devices: &str| {
            let config = EngineConfig::new("ports").with_device(devices.parse().unwrap());
            Engine::open_devices(&config)
        };
        let port = |devices: String| open(&devices).unwrap()[0].port().number;
        assert_eq!(port("auto".to_owned()), 1);
        assert_eq!(
            [1, 2].map(|left_out| port(format!("^{name}:{left_out}"))),
            [2, 1]
        );
        hca.set_port_of(1, false);
        assert_eq!(port("auto".to_owned()), 2);
        assert_eq!(port(format!("^{name}:1")), 2);
        let error = open(&format!("^{name}:2")).unwrap_err().to_string();
        let left_out = format!("{name} port 2: the configuration leaves it out");
        assert!(error.contains(&left_out), "{error}");
        assert!(error.contains("is the cable of port 1 in"), "{error}");
    });
}

/// Near each GPU both HCAs are as far, so the turn of the GPU decides.
#[test]
fn an_engine_looks_near_the_gpu_that_is_named_and_else_asks_no_driver() {
    fake(TWO).run(|fake| {
        let hcas = [0, 1].map(|_| Hca::new().unwrap());
        let look = |gpu: &str, rails: u32| {
            let config = EngineConfig::new("near").with_rails(rails);
            let config = config.with_gpu(gpu.parse().unwrap());
            let found = Engine::choose_devices(&config);
            found.map(|it| {
                let names = it.contexts.iter().map(|it| it.name().to_owned());
                (names.collect::<Vec<_>>(), it.near)
            })
        };
        let names = hcas.each_ref().map(|hca| hca.name().to_owned());
        let [a, b] = names.clone();
        for word in ["auto", "simt", "simt-dmabuf"] {
            let (taken, near) = look(word, 1).unwrap();
            assert_eq!(taken, [a.as_str()], "{word}");
            assert!(!matches!(near, Some(Near::Gpu { .. })), "{word}: {near:?}");
        }
        assert!(fake.calls("cuInit").is_empty());
        for (gpu, slot, order) in [
            ("0", "GPU 0 (0000:1b:00.0)", [&a, &b]),
            ("1", "GPU 1 (0000:43:00.0)", [&b, &a]),
        ] {
            for rails in [1, 2] {
                let (taken, near) = look(gpu, rails).unwrap();
                assert!(
                    taken.iter().eq(order[..rails as usize].iter().copied()),
                    "{gpu}: {taken:?}"
                );
                assert_eq!(near.unwrap().to_string(), slot);
            }
        }
        assert!(
            fake.calls("cuDevicePrimaryCtxRetain").is_empty(),
            "none is opened"
        );
        let refused = look("7", 1).unwrap_err().to_string();
        assert!(
            refused.starts_with("no CUDA device 7: the driver knows 2"),
            "{refused}"
        );
        // Of named devices none is chosen near anything.
        let config = EngineConfig::new("named").with_gpu(GpuSelector::Cuda(7));
        let config = config.with_device(b.parse().unwrap());
        let found = Engine::choose_devices(&config).unwrap();
        assert_eq!((found.contexts[0].name(), found.near), (b.as_str(), None));
    });
}

#[test]
fn ranks_take_the_ports_of_a_device_in_turn() {
    fake("devices 0").run(|_| {
        let _hca = with_two_ports();
        let ports = [0, 1, 2, 3].map(|rank| port(&of_local_rank(rank)).1);
        assert_eq!(ports, [1, 2, 1, 2]);
    });
}

/// The turn of ranks that see the same HCAs: by the number of the rank where they have no GPU.
#[test]
fn ranks_without_a_gpu_take_the_hcas_of_a_machine_in_turn() {
    fake("devices 0").run(|_| {
        let hcas = [0, 1, 2].map(|_| Hca::new().unwrap());
        let of = |rank: u32| {
            let devices = RankDevices::open(&of_local_rank(rank)).unwrap();
            devices.contexts[0].name().to_owned()
        };
        let names = [0, 1, 2, 0].map(|hca: usize| hcas[hca].name().to_owned());
        assert_eq!([0, 1, 2, 3].map(of), names);
        assert_eq!(of(1), names[1], "on every run");
    });
}

#[test]
fn a_gid_is_named_by_subnet_interface_or_index() {
    fake(TWO).run(|_| {
        let hca = Hca::new().unwrap();
        let config = |gid: &str| of_local_rank(0).with_gid(gid.parse().unwrap());
        let index = |gid: &str| {
            let devices = RankDevices::open(&config(gid).with_device(hca.name().parse().unwrap()));
            devices.unwrap().contexts[0].own_gid().unwrap().index
        };
        assert_eq!(["auto", "127.0.0.0/8", "lo", "3"].map(index), [3; 4]);
        assert_eq!(["fe80::/10", "1"].map(index), [1; 2]);
        let own = hca.ip().to_string();
        assert_eq!(index(&own), 3);
        // By name it is the error itself, and for `auto` the reason why the device is passed over.
        for gid in ["10.1.0.0/16", "ens3", "0", "99"] {
            let by_name = refusal(&config(gid).with_device(hca.name().parse().unwrap()));
            let wanted = format!(
                "GID is {gid}; it must be an entry of RoCE v2 in the table of {}: 0 fe80::",
                hca.name()
            );
            assert!(by_name.starts_with(&wanted), "{by_name}");
            assert!(
                by_name.contains(&format!("3 ::ffff:{own} (RoCE v2, lo)")),
                "{by_name}"
            );
            assert!(refusal(&config(gid)).contains(&wanted), "{gid}");
        }
    });
}

#[test]
fn devices_that_a_rank_gives_are_used_and_the_others_are_opened() {
    fake(TWO).run(|_| {
        let _hca = Hca::new().unwrap();
        let own = RankDevices::open(&of_local_rank(1)).unwrap();
        let options = JoinOptions::new(TeamConfig::new(0, 1)).with_config(&of_local_rank(0));
        let ordinal = |team: &Team| team.gpu().slot().unwrap().ordinal;
        let by_gpu = options.clone().with_gpu(&own.gpu).join().unwrap();
        assert_eq!((ordinal(&by_gpu), by_gpu.rails()), (1, 1));
        let by_hca = options.with_contexts(&own.contexts).join().unwrap();
        assert_eq!((ordinal(&by_hca), by_hca.rails()), (0, 1));
    });
}

#[test]
fn the_path_of_a_rank_is_one_line_for_each_rail() {
    fake(TWO).run(|_| {
        let hcas = [0, 1].map(|_| Hca::new().unwrap());
        let names = hcas.each_ref().map(|hca| hca.name());
        let config = of_local_rank(1).with_device(names.join(",").parse().unwrap());
        let team = started(&config);
        let paths: Vec<_> = team.paths().iter().map(ToString::to_string).collect();
        let wanted = hcas.each_ref().map(|hca| {
            let (name, ip) = (hca.name(), hca.ip());
            format!(
                "rank 0: gpu 1 (0000:43:00.0) -> {name} port 1, RoCEv2 {ip} (gid 3, lo), MTU 4096, class 0 (default), memory by \
                 address, doorbells by the GPU, signals inline"
            )
        });
        assert_eq!(paths, wanted);
    });
}
