//! How a rank joins a team and leaves it.

use std::sync::Arc;

use rendezvous::Store;

use super::change::found::found;
use super::choices::chosen::{self, Choices};
use super::config::TeamConfig;
use super::devices::{Given, RankDevices};
use super::error::TeamError;
use super::holder::Holder;
use super::meeting::exchange::Exchange;
use super::meeting::link_layer::tell_link_layer;
use super::meeting::settings::{ORDER, Settings, settle};
use super::meeting::tries::Meetings;
use super::parts::Parts;
use super::peers::list::{Introduction, Peers};
use super::qps::close::{CloseReport, close as end_qps};
use super::qps::set::Qps;
use super::report::paths::paths;
use super::report::summary::summary;
use super::tables::Tables;
use super::windows::list::Windows;
use crate::config::Config;
use crate::fabric::{FabricError, LiveTeam, Rail, RailConfig, Ways};
use crate::gpu::Gpu;
use crate::verbs::{Context, Pd, QpConfig};

/// The name by which programs filter what a team says of itself in its log.
const LOG: &str = "warpverbs::team";

/// Opens the devices that are not `given`, as `config` names them. If that fails, the other ranks hear of it.
pub(in crate::team) fn open(
    config: &Config,
    team: &TeamConfig,
    given: Given,
    store: &Arc<dyn Store>,
) -> Result<RankDevices, TeamError> {
    let opened = RankDevices::open_rest(config, team, given, store);
    match &opened {
        Ok(opened) => {
            for reason in &opened.passed_over {
                tracing::info!(target: LOG, "rank {} passes over {reason}", team.rank);
            }
        }
        Err(error) if !error.is_remote() => {
            let exchange = Exchange::new(Arc::clone(store), team);
            // Only the first start of a rank publishes a failure. A second start is often refused its devices because the first
            // one uses them.
            if let Err(taken @ TeamError::RankTaken { .. }) = exchange.enter() {
                return Err(taken);
            }
            exchange.fail_with(&error.to_string());
        }
        Err(_) => {}
    }
    opened
}

/// Joins the team that meets in `store`. `domains` are the protection domains by rail. If empty, each rail makes its own.
pub(in crate::team) fn join(
    config: TeamConfig,
    devices: &RankDevices,
    domains: &[Arc<Pd>],
    store: Arc<dyn Store>,
) -> Result<Parts, TeamError> {
    let exchange = Exchange::new(store, &config);
    // If another process has started this rank before, this start ends here. It publishes no failure, so the team goes on.
    exchange.enter()?;
    let joined = join_with(config, devices, domains, &exchange);
    exchange.tell_error(joined)
}

fn join_with(
    config: TeamConfig,
    devices: &RankDevices,
    domains: &[Arc<Pd>],
    exchange: &Exchange,
) -> Result<Parts, TeamError> {
    let Holder { rank, generation } = config.holder();
    let _span = tracing::info_span!("join", rank, generation).entered();
    let RankDevices { gpu, contexts, .. } = devices;
    let number_of_rails = u32::try_from(contexts.len()).unwrap_or(u32::MAX);
    config.check(number_of_rails)?;
    tell_link_layer(exchange, contexts)?;
    let (mut ways, signals) = chosen::settle(&config, contexts, gpu.as_ref())?;
    let mut agreed = config.agreed(number_of_rails);
    let own = Settings {
        agreed: agreed.clone(),
        qps_per_peer: config.qps_per_peer,
        orders: signals.kept.clone(),
    };
    let settled = settle(exchange, own)?;
    let config = config.with_qps_per_peer(settled.qps_per_peer);
    let signals = signals.settled(settled.order, settled.lacking);
    agreed.push((ORDER.to_owned(), chosen::order_of(&signals).to_string()));
    let living = LiveTeam::new();
    let identity = living.identity(gpu.as_ref(), config.modes.direct);
    let (rails, mut peers) = loop {
        let room = room(&config, contexts, &ways)?;
        let introduction = Introduction {
            agreed: agreed.clone(),
            identity: identity.clone(),
            costs: chosen::costs(ways.choices().into_iter().chain([&signals])),
        };
        match rails_and_peers(&config, devices, domains, &room, introduction) {
            Ok(made) => break made,
            Err(Refused::Step(refusal)) => ways.leave(refusal)?,
            Err(Refused::Other(error)) => return Err(error),
        }
    };
    let told = if config.joins() {
        Vec::new()
    } else {
        found(&mut peers, exchange, &rails, &config)?
    };
    chosen::tell(ways.choices().into_iter().chain([&signals]), &told);
    let tables = tables_of(gpu, &config, number_of_rails, &peers)?;
    let parts = Parts {
        config,
        exchange: exchange.clone(),
        gpu: Arc::clone(gpu),
        tables,
        peers,
        choices: Choices::new(ways, signals),
        windows: Windows::default(),
        meetings: Meetings::default(),
        rails,
        living,
    };
    log(&parts);
    Ok(parts)
}

/// Returns the tables for kernels, in which peers that are not connected are closed.
fn tables_of(
    gpu: &Arc<dyn Gpu>,
    config: &TeamConfig,
    rails: u32,
    peers: &Peers,
) -> Result<Tables, TeamError> {
    let contexts = peers.contexts(config.qps_per_peer);
    let tables = Tables::new(gpu, config, rails, &contexts)?;
    for (rank, peer) in (0..).zip(peers.all()) {
        if rank != config.rank && peer.state().connected == 0 {
            tables.close(rank);
        }
    }
    Ok(tables)
}

/// Logs what this rank has joined as, and which ways its traffic takes.
fn log(parts: &Parts) {
    tracing::info!(target: LOG, "{}", summary(parts));
    if tracing::enabled!(tracing::Level::INFO) {
        for path in paths(parts) {
            tracing::info!(target: LOG, "{path}");
        }
    }
}

/// Returns what the rail on each of `contexts` needs room for.
fn room(
    config: &TeamConfig,
    contexts: &[Arc<Context>],
    ways: &Ways,
) -> Result<Vec<RailConfig>, TeamError> {
    let rails = u32::try_from(contexts.len()).unwrap_or(u32::MAX);
    let room = |(number, context): (u32, &Arc<Context>)| {
        let shape = QpConfig {
            doorbell: ways.doorbell(context.caps()),
            queues: ways.queues(),
            ..config.any_shape()
        };
        config.rail(number, rails, shape, ways.queue_rung())
    };
    (0..).zip(contexts).map(room).collect()
}

/// Why rails and QPs cannot be made.
enum Refused {
    /// A device refused a step of the chosen ways. Another step may work.
    Step(FabricError),
    Other(TeamError),
}

/// Makes the rails, and the QPs on them.
fn rails_and_peers(
    config: &TeamConfig,
    devices: &RankDevices,
    domains: &[Arc<Pd>],
    room: &[RailConfig],
    introduction: Introduction,
) -> Result<(Vec<Rail>, Peers), Refused> {
    let gpu = devices.gpu.as_ref();
    let domains = domains.iter().map(Some).chain(std::iter::repeat(None));
    let each = devices.contexts.iter().zip(domains).zip(room);
    let rails = each
        .map(|((context, domain), room)| Ok(Rail::new(context, domain, gpu, room)?.with_events()));
    let rails: Vec<Rail> = rails
        .collect::<Result<_, FabricError>>()
        .map_err(Refused::Step)?;
    match Peers::new(gpu, &rails, config, introduction) {
        Ok(peers) => Ok((rails, peers)),
        Err(TeamError::Gpu(refusal)) => Err(Refused::Step(refusal.into())),
        Err(TeamError::Verbs(refusal)) => Err(Refused::Step(refusal.into())),
        Err(other) => Err(Refused::Other(other)),
    }
}

/// Ends the team of this rank, and returns a report. The parts end in the order in which a drop ends them.
pub(in crate::team) fn close(parts: Parts) -> CloseReport {
    let Parts {
        config,
        tables,
        peers,
        windows,
        rails,
        living,
        ..
    } = parts;
    // The tables go first: kernels find QPs and windows by them.
    drop(tables);
    let (qps, failures) = peers.into_qps();
    let peer_qps = qps.into_iter().flat_map(Qps::into_peer_qps);
    let mut report = end_qps(peer_qps.collect(), config.deadline);
    drop(failures);
    for window in windows.into_vec() {
        report.leaked.extend(window.end());
    }
    drop((rails, living));
    report
}
