//! What a host engine would use on this machine, with the variables that are set here.

use std::sync::Arc;

use warpverbs::engine::{CpuList, Engine, EngineConfig, EngineDevice, EngineDevices, HostError};
use warpverbs::verbs::{Context, LinkLayer};

use super::check::{Look, Text};

/// The text of the check.
pub(super) const TEXT: Text = Text {
    id: "nic-engine",
    what: "what a host engine would use",
    why: "A host engine, as of wv p2p, opens the devices that WARPVERBS_DEVICE names, else the best port. That is the nearest to the \
          GPU that WARPVERBS_GPU names, or to the CPUs of its workers, then the fastest. It makes queues for its first 16 peers at \
          its start.",
    mend: "WARPVERBS_DEVICE=NAME:PORT and WARPVERBS_GID name another device and address; transfers are striped over a list of \
           devices, or over WARPVERBS_ENGINE_RAILS equal ports. wv config prints the variables of an engine that are set, \
           docs/configuration.md has the limits of all.",
};

pub(super) fn look() -> Look {
    // This opens the device, and makes nothing on it.
    let config = match EngineConfig::from_env("wv doctor") {
        Ok(config) => config,
        Err(error) => return Look::degraded(error.to_string()),
    };
    match would_use(&config) {
        Ok(words) => Look::ok(words),
        Err(error) => Look::degraded(error.to_string()),
    }
}

fn would_use(config: &EngineConfig) -> Result<String, HostError> {
    let devices = Engine::choose_devices(config)?;
    let cpus = Engine::worker_cpus(&devices.devices, config)?;
    let has_key = Engine::read_key(config)?.is_some();
    let mut parts = by_others(&devices);
    if !devices.contexts.is_empty() {
        parts.push(paths(&devices.contexts, config));
    }
    parts.extend(chosen(config, &devices));
    parts.extend([
        shape(config),
        place(&devices.devices, &cpus),
        trust(config, has_key),
    ]);
    Ok(parts.join("; "))
}

/// Returns the devices that another provider than mlx5 drives, each with that provider, and why mlx5 does not.
fn by_others(devices: &EngineDevices) -> Vec<String> {
    let others = devices.devices.iter();
    let others = others.filter(|device| device.context().is_none());
    others
        .map(ToString::to_string)
        .chain(devices.steps.iter().cloned())
        .collect()
}

/// Returns why `auto` chose these ports, and why it passed over the others.
fn chosen(config: &EngineConfig, devices: &EngineDevices) -> Option<String> {
    if !config.device.is_auto() {
        return None;
    }
    let taken = devices.devices.len();
    let near = match devices.near {
        Some(near) => format!("nearest to {near}, then fastest"),
        None => "fastest, as nothing is known to be near".to_owned(),
    };
    let others = match &devices.passed_over[..] {
        [] => "no other port".to_owned(),
        others => format!("not {}", others.join(", not ")),
    };
    let most = config.rails;
    Some(format!("{taken} of at most {most} rails, {near}; {others}"))
}

/// Returns the CPUs of the workers.
fn place(devices: &[EngineDevice], cpus: &[Option<CpuList>]) -> String {
    if cpus.iter().all(Option::is_none) {
        return "workers on any CPU".to_owned();
    }
    let of_device = |(device, cpus): (&EngineDevice, &Option<CpuList>)| {
        let name = device.name();
        let cpus = cpus
            .as_ref()
            .map_or_else(|| "any".to_owned(), ToString::to_string);
        format!("CPU {cpus} for {name}")
    };
    let all: Vec<String> = devices.iter().zip(cpus).map(of_device).collect();
    format!("workers on {}", all.join(" and "))
}

fn paths(contexts: &[Arc<Context>], config: &EngineConfig) -> String {
    let paths: Vec<String> = contexts.iter().map(|it| path(it, config)).collect();
    paths.join(" and ")
}

fn path(context: &Context, config: &EngineConfig) -> String {
    let port = context.port();
    let address = match (port.link_layer, context.own_gid()) {
        (LinkLayer::InfiniBand, _) => match port.lid_with(config.path.path_bits) {
            Ok(lid) => format!("InfiniBand LID {lid:#x}"),
            Err(error) => error.to_string(),
        },
        (_, Ok(entry)) => {
            let gid = entry.gid;
            let ip = gid.ipv4();
            let ip = ip.map_or_else(|| gid.to_string(), |it| it.to_string());
            format!("RoCEv2 {ip} (gid {})", entry.index)
        }
        (_, Err(error)) => error.to_string(),
    };
    let class = context.traffic_class(config.path.traffic_class);
    let (name, number, mtu) = (context.name(), port.number, port.active_mtu);
    format!("{name} port {number}, {address}, MTU {mtu}, class {class}")
}

fn trust(config: &EngineConfig, has_key: bool) -> String {
    let listen = &config.listen;
    let key = if has_key {
        "peers must have its key"
    } else {
        "no key, so on loopback only unless it is insecure"
    };
    let named = match config.allow.len() {
        0 => String::new(),
        count => format!(", and be one of {count} by name"),
    };
    format!("listens at {listen}, {key}{named}")
}

fn shape(config: &EngineConfig) -> String {
    let EngineConfig {
        qps,
        workers,
        peers,
        chain,
        slice,
        ..
    } = config;
    let (depth, entries) = (1u32 << config.log_depth, 1u32 << config.log_entries);
    format!(
        "{qps} QPs of {depth} WQEBBs to each of up to {peers} peers, {workers} workers whose first CQ has {entries} entries, slices of \
         {slice} bytes, {chain} WQEs of one doorbell"
    )
}
