//! One rank process of the demo: `wv demo-rank`, which `wv demo` starts.

pub(crate) mod check;
pub(crate) mod disturbed_store;
mod experts;
pub(crate) mod instructions;
pub(crate) mod member;
mod reference;

use gpuhca::Gpuhca;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters;
use crate::data::dump::{self, Dump};
use crate::data::input::Inputs;
use crate::devices;
use crate::error::DemoError;
use crate::messages::{Message, RankResult, Spec, tell};
use experts::{expert, factors};
use warpverbs::abi::DevicePtr;
use warpverbs::config::{PathConfig, QpModes};
use warpverbs::gpu::{self, DeviceMemory, Gpu, GpuSelector, Launch};
use warpverbs::internal::moe_abi::DemoExpertParams;
use warpverbs::membership::{newest_view, next_generation};
use warpverbs::moe::{Batch, Format, Moe, MoeError, RowLayout, Workspace, required_bytes};
use warpverbs::team::{JoinOptions, Store, Team, TeamConfig, TeamError, open_store};
use warpverbs::verbs::Context;
use warpverbs_cli::number;

/// Options of a rank process.
#[derive(clap::Args, Debug)]
pub struct RankOptions {
    /// What to do, written by the demo
    #[arg(long)]
    spec: PathBuf,
    /// This rank
    #[arg(long, value_parser = number::any::<u32>())]
    rank: u32,
    /// The others are at work already
    #[arg(long)]
    joins: bool,
}

impl RankOptions {
    /// Returns the options of a rank that is a thread of this process.
    pub(crate) fn of_thread(spec: PathBuf, rank: u32) -> Self {
        Self {
            spec,
            rank,
            joins: false,
        }
    }
}

/// Runs one rank and reports its progress to the demo.
#[must_use]
pub fn run_rank(options: &RankOptions) -> ExitCode {
    instructions::follow();
    let (message, code) = match Rank::run(options, None) {
        Ok(result) => (Message::Done(result), ExitCode::SUCCESS),
        Err(error) => {
            let remote = is_remote(&error);
            let message = error.to_string();
            (Message::Failed { message, remote }, ExitCode::FAILURE)
        }
    };
    match tell(&message) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns whether another rank is the cause of the error.
pub(crate) fn is_remote(error: &DemoError) -> bool {
    match error {
        DemoError::Team(error) | DemoError::Moe(MoeError::Team(error)) => error.is_remote(),
        DemoError::Device(error) => {
            let error: Option<&TeamError> = error.downcast_ref();
            error.is_some_and(TeamError::is_remote)
        }
        _ => false,
    }
}

/// Returns how the QPs of the ranks work, as the environment says.
pub(crate) fn modes() -> Result<QpModes, DemoError> {
    QpModes::from_env().map_err(|error| DemoError::Option(error.to_string()))
}

/// Returns how packets go to the peers, as the environment says.
fn path() -> Result<PathConfig, DemoError> {
    PathConfig::from_env().map_err(|error| DemoError::Option(error.to_string()))
}

/// As `path`, for ranks whose HCAs are software if `soft` is set. With several rails such HCAs give up on a peer after two rounds, about a
/// second, as a NIC does by default. The environment may set another time or count. So a rank stays in the group: its pairs go round a dead
/// rail before the stall bound.
fn path_of(spec: &Spec, soft: bool) -> Result<PathConfig, DemoError> {
    const TWO_ROUNDS: u8 = 1;
    let path = path()?;
    let is_set =
        path.ack_timeout.is_some() || path.retry_count != PathConfig::default().retry_count;
    Ok(if soft && spec.rails > 1 && !is_set {
        path.with_retry_count(TWO_ROUNDS)
    } else {
        path
    })
}

/// Returns the ways in which the HCAs reach device memory, each once.
fn memory_by(team: &Team) -> Vec<String> {
    let rungs = team.exports().into_iter().map(|(_, _, export)| export.rung);
    let rungs: std::collections::BTreeSet<_> = rungs.collect();
    rungs.iter().map(ToString::to_string).collect()
}

/// Returns the IPv4 address of the HCA, if its GID has one.
fn address(context: &Context) -> Option<String> {
    let gid = context.own_gid().ok()?.gid;
    let address = Ipv6Addr::from(gid.0).to_ipv4_mapped()?;
    Some(address.to_string())
}

/// Returns the settings of the next generation of a rank, which joins a group of serving ranks.
fn joining(config: TeamConfig, store: &Arc<dyn Store>) -> Result<TeamConfig, DemoError> {
    let Some(view) = newest_view(store, config.ranks)? else {
        let why = "no group meets in the store, so this rank can join none";
        return Err(DemoError::Option(why.to_owned()));
    };
    let generation = next_generation(store.as_ref(), config.rank)?;
    Ok(config.joining(generation, view.members.into_keys().collect()))
}

pub(crate) struct Rank {
    spec: Spec,
    inputs: Inputs,
    moe: Arc<Moe>,
    work: Workspace,
    factors: DeviceMemory,
    device: String,
    port: u8,
    result: RankResult,
}

impl Rank {
    /// Runs one rank. With `hca` that kernel executes the rank's WQEs, and the rank's HCA is the one with the rank's number.
    pub(crate) fn run(
        options: &RankOptions,
        hca: Option<&Gpuhca>,
    ) -> Result<RankResult, DemoError> {
        let mut rank = Self::join(options, hca)?;
        if rank.spec.membership {
            rank.serve()?;
            return Ok(rank.result);
        }
        rank.finish()
    }

    /// Returns the way of the traffic of this rank, one line for each rail.
    pub(crate) fn paths(&self) -> Vec<String> {
        let paths = self.moe.team().paths();
        paths.iter().map(ToString::to_string).collect()
    }

    /// Runs all steps, and returns the result.
    pub(crate) fn finish(mut self) -> Result<RankResult, DemoError> {
        let steps = self.run_steps();
        if let Err(error) = &steps
            && !is_remote(error)
        {
            self.moe.team().give_up(&error.to_string());
        }
        steps?;
        Ok(self.result)
    }

    /// Reads the inputs, joins the team and makes the layer.
    fn join(options: &RankOptions, hca: Option<&Gpuhca>) -> Result<Self, DemoError> {
        let file = |error: &dyn ToString| DemoError::file(&options.spec, error);
        let text = std::fs::read(&options.spec).map_err(|error| file(&error))?;
        let spec: Spec = serde_json::from_slice(&text).map_err(|error| file(&error))?;
        let inputs = Inputs::load(&spec.options)?;
        let store = open_store(&spec.store, &spec.run_id)?;
        let store = if spec.membership {
            instructions::disturbed(store)
        } else {
            store
        };
        let (contexts, gpu) = match hca {
            Some(hca) => {
                let gpu = gpu::open(spec.options.gpu.parse::<GpuSelector>()?)?;
                (vec![devices::open_own_of(options.rank)?], hca.for_rank(gpu))
            }
            None => {
                let own = devices::open_for(&spec, options.rank, inputs.ranks)?;
                (own.contexts, own.gpu)
            }
        };
        let (rank, joins) = (options.rank, options.joins);
        Self::on(spec, inputs, (rank, joins), (&contexts, &gpu), store)
    }

    /// Joins the team on these devices, and makes the layer. `joins`: the other ranks are at work already.
    pub(crate) fn on(
        spec: Spec,
        inputs: Inputs,
        (rank, joins): (u32, bool),
        (contexts, gpu): (&[Arc<Context>], &Arc<dyn Gpu>),
        store: Arc<dyn Store>,
    ) -> Result<Self, DemoError> {
        let context = &contexts[0];
        let config = TeamConfig::new(rank, inputs.ranks)
            .with_join_timeout(Duration::from_millis(spec.join_timeout_ms))
            .with_deadline(Duration::from_millis(spec.deadline_ms))
            .with_modes(modes()?)
            .with_path(path_of(&spec, context.info().is_soft())?);
        let config = config.with_direct(config.modes.direct || spec.options.direct);
        let config = if joins {
            joining(config, &store)?
        } else {
            config
        };
        let team = JoinOptions::new(config)
            .with_contexts(contexts)
            .with_gpu(gpu)
            .with_store(store)
            .join()?;
        let moe = Moe::new(&team, "demo", inputs.config)?;
        let work = Workspace::new(&moe)?;
        let values: Vec<f32> = moe
            .local_experts()
            .iter()
            .flat_map(|&id| factors(id))
            .collect();
        let memory = gpu.alloc(size_of_val(values.as_slice()).max(8), 128)?;
        if !values.is_empty() {
            gpu.write(memory.addr(), bytemuck::cast_slice(&values))?;
        }
        let others = (0..team.ranks()).filter(|other| *other != rank);
        let direct: Vec<bool> = others
            .map(|other| team.is_direct(other))
            .collect::<Result<_, _>>()?;
        let result = RankResult {
            rank,
            direct_peers: direct.into_iter().map(u32::from).sum(),
            control_bytes: team.control_stats().live_bytes,
            qps: team.config().qps(),
            layer_bytes: required_bytes(&inputs.config, inputs.ranks)?.library(1),
            memory_by: memory_by(&team),
            ..RankResult::default()
        };
        let _ = tell(&Message::Joined {
            device: context.name().to_owned(),
            soft: context.info().is_soft(),
            gpu: gpu.label(),
            addresses: contexts.iter().filter_map(|of| address(of)).collect(),
            paths: team.paths().iter().map(ToString::to_string).collect(),
        });
        Ok(Self {
            spec,
            inputs,
            moe,
            work,
            factors: memory,
            device: context.name().to_owned(),
            port: context.port().number,
            result,
        })
    }

    fn run_steps(&mut self) -> Result<(), DemoError> {
        // The counters are read before the barrier: other ranks send as soon as they have passed it, and this rank's HCA counts those
        // bytes.
        let before = counters::read(&self.device, self.port);
        self.moe.team().barrier("start")?;
        for step in 0..self.spec.options.steps {
            self.step(step)?;
            let _ = tell(&Message::Verified { step });
        }
        if let Some(directory) = &self.spec.dump {
            let team = self.moe.team();
            dump::control_heap(directory, team.rank(), &team.control_heap_dump())?;
        }
        // After this barrier every rank has received all. So windows and QPs may go, and nothing more is counted.
        self.moe.team().barrier("end")?;
        self.result.counters = counters::since(&before, &counters::read(&self.device, self.port));
        self.moe.team().barrier("counted")?;
        Ok(())
    }

    fn step(&mut self, step: u32) -> Result<(), DemoError> {
        let rank = self.moe.team().rank();
        let batches: Vec<Batch> = (0..self.inputs.ranks)
            .map(|rank| self.inputs.batch(step, rank))
            .collect();
        let batch = &batches[rank as usize];
        let dump = self
            .spec
            .dump
            .as_ref()
            .map(|directory| Dump::new(directory, step, rank));
        let wrong = |words: String| DemoError::Mismatch { rank, step, words };
        self.moe
            .set_schedule_seed(self.spec.options.seed ^ u64::from(step));

        let start = Instant::now();
        self.work.send(batch)?;
        let sources = self.work.receive()?;
        let mut busy = start.elapsed();
        self.work.call().check()?;
        let (config, placement) = (self.moe.config(), self.work.placement());
        let read = |local: usize, rows: Range<usize>| self.work.received_rows(local, rows);
        check::dispatch(config, placement, rank, &batches, &sources, read)?.map_err(wrong)?;

        let start = Instant::now();
        self.run_experts()?;
        self.work.send_back()?;
        let combined = self.work.receive_back()?;
        busy += start.elapsed();
        self.work.call().check()?;
        let (config, placement) = (self.moe.config(), self.work.placement());
        let far = check::combine(config, placement, rank, batch, &combined).map_err(wrong)?;
        self.result.difference = self.result.difference.max(far);

        if let Some(dump) = dump {
            dump.inputs(&self.moe, batch)?;
            dump.received(&self.moe, &self.work, &sources)?;
            dump.output(&self.moe, &combined)?;
        }
        self.result.tokens += batch.tokens(&self.inputs.config) as u64;
        self.result.choices += batch.experts.iter().filter(|expert| **expert >= 0).count() as u64;
        self.result.rows += sources.iter().map(|rows| rows.len() as u64).sum::<u64>();
        self.result.step_seconds.push(busy.as_secs_f64());
        Ok(())
    }

    /// Runs the experts between dispatch and combine. The kernel can do that only for BF16 rows in the order of experts.
    fn run_experts(&mut self) -> Result<(), DemoError> {
        let config = &self.inputs.config;
        match (config.format, config.layout) {
            (Format::Bf16, RowLayout::ExpertMajor) => self.launch_experts(),
            _ => Ok(self.work.experts(expert)?),
        }
    }

    /// Runs the experts as a kernel of the demo.
    #[expect(
        unsafe_code,
        reason = "launch of the expert kernel on buffers of the workspace"
    )]
    fn launch_experts(&mut self) -> Result<(), DemoError> {
        let config = &self.inputs.config;
        let [x, counts, y] = self.work.expert_buffers();
        let number = |value: usize| u32::try_from(value).expect("experts of a rank");
        let params = DemoExpertParams {
            x: DevicePtr::new(x),
            y: DevicePtr::new(y),
            counts: DevicePtr::new(counts),
            factors: DevicePtr::new(self.factors.addr()),
            local_experts: number(self.moe.local_experts().len()),
            rows: self.inputs.ranks * config.max_tokens,
            hidden: config.hidden,
            reserved: 0,
        };
        let grid = self.moe.grid();
        let launch = Launch::new("wv_demo_expert", grid.blocks, grid.threads);
        // SAFETY: the buffers are those of the workspace, as large as the layer needs. They, and the factors, stay until `wait` has
        // seen the kernel's end. No other code uses them meanwhile.
        let event = unsafe {
            self.moe
                .team()
                .gpu()
                .launch(&launch, bytemuck::bytes_of(&params))
        }?;
        Ok(self.work.wait(event)?)
    }
}
