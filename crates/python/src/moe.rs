//! Layers: one for each shape.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use warpverbs::abi::MoeCause;
use warpverbs::gpu::Stream;
use warpverbs::moe::{
    Deadlines, Format, MoeConfig, Placement, PlacementPolicy, Returns, RowLayout, Scales,
};

use crate::call::Call;
use crate::dlpack::Memory;
use crate::error::{Raise, raise, raise_difference};
use crate::interrupt;
use crate::origin::Origin;
use crate::team::{Team, runs_on_cpu, seconds_of};

/// Shape of a layer: hidden, experts, top_k, max_tokens, format, payload bytes, scale bytes, layout, returns, local experts.
type Shape = (
    u32,
    u32,
    u32,
    u32,
    String,
    u32,
    u32,
    String,
    String,
    u32,
    u32,
);

/// Of a fault: number of the call, phase, ranks that were missed, words, whether the call found no free send buffer, and whether the
/// ranks that were missed have said that they send nothing.
type FaultParts = (u32, u32, Vec<u32>, String, bool, bool);

/// A MoE layer. `warpverbs.Moe` wraps it.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Moe {
    pub(crate) moe: Arc<warpverbs::moe::Moe>,
    /// Of launches on the CPU, where callers have no stream.
    stream: Option<Stream>,
    pub(crate) origin: Origin,
}

fn word<T: Copy>(py: Python<'_>, name: &str, word: &str, known: &[(&str, T)]) -> PyResult<T> {
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == word) {
        return Ok(*value);
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let words = format!("{name} is {word:?}; it must be one of {}", names.join(", "));
    Err(raise(py, "Refused", words))
}

/// Formats by name.
const FORMATS: [(&str, Format); 4] = [
    ("bf16", Format::Bf16),
    ("fp8", Format::Fp8(Scales::F32)),
    ("fp8-pow2", Format::Fp8(Scales::PowerOfTwo)),
    ("fp8-ue8m0", Format::Fp8(Scales::Ue8m0)),
];

/// The format of a call by its place among them, from 1 on. 0: that of the layer.
pub(crate) fn format_at(py: Python<'_>, place: u8) -> PyResult<Option<Format>> {
    match usize::from(place).checked_sub(1) {
        None => Ok(None),
        Some(at) if at < FORMATS.len() => Ok(Some(FORMATS[at].1)),
        Some(_) => {
            let most = FORMATS.len();
            let words = format!("the format is {place}; it must be 0 to {most}");
            Err(raise(py, "Refused", words))
        }
    }
}

fn config(py: Python<'_>, shape: &Shape) -> PyResult<MoeConfig> {
    let (
        hidden,
        experts,
        top_k,
        max_tokens,
        format,
        payload,
        scale,
        layout,
        returns,
        local,
        failing,
    ) = shape;
    let opaque = Format::Opaque {
        payload_bytes: *payload,
        scale_bytes: *scale,
    };
    let formats = [&FORMATS[..], &[("opaque", opaque)]].concat();
    let layouts = [
        ("expert", RowLayout::ExpertMajor),
        ("rank", RowLayout::RankMajor),
    ];
    let all_returns = [("sums", Returns::Sums), ("rows", Returns::Rows)];
    Ok(MoeConfig::BF16
        .with_hidden(*hidden)
        .with_experts(*experts)
        .with_top_k(*top_k)
        .with_max_tokens(*max_tokens)
        .with_format(word(py, "format", format, &formats)?)
        .with_layout(word(py, "layout", layout, &layouts)?)
        .with_returns(word(py, "returns", returns, &all_returns)?)
        .with_local_experts(*local)
        .with_failing_links(*failing))
}

/// Bytes of device memory that a layer of this shape takes at each of `ranks`, by what they are for.
#[pyfunction]
pub(crate) fn required_bytes<'py>(
    py: Python<'py>,
    shape: Shape,
    ranks: u32,
) -> PyResult<Bound<'py, PyDict>> {
    let shape = config(py, &shape)?;
    let bytes = warpverbs::moe::required_bytes(&shape, ranks).map_err(|error| error.raise(py))?;
    let all = PyDict::new(py);
    for (name, value) in [
        ("slots", bytes.slots),
        ("staging", bytes.staging),
        ("signals", bytes.signals),
        ("state", bytes.state),
        ("handle", bytes.handle),
        ("recv_x", bytes.recv_x),
        ("recv_scales", bytes.recv_scales),
        ("y", bytes.y),
    ] {
        all.set_item(name, value)?;
    }
    Ok(all)
}

#[pymethods]
impl Moe {
    /// Collective: all ranks make their layers in the same order. `placement`: the experts of each rank in the order of their local
    /// numbers; none: contiguous blocks.
    #[new]
    fn new(
        py: Python<'_>,
        team: &Team,
        name: &str,
        shape: Shape,
        placement: Option<Vec<Vec<u32>>>,
    ) -> PyResult<Self> {
        let team = team.get(py)?;
        let shape = config(py, &shape)?;
        let experts = shape.experts;
        let made = interrupt::detach(py, || {
            let moe = match placement {
                None => warpverbs::moe::Moe::new(&team, name, shape),
                Some(table) => Placement::from_slots(experts, table).and_then(|placement| {
                    warpverbs::moe::Moe::with_placement(&team, name, shape, placement)
                }),
            }?;
            let stream = if runs_on_cpu(moe.team()) {
                Some(team.gpu().stream()?)
            } else {
                None
            };
            Ok::<_, warpverbs::moe::MoeError>((moe, stream))
        })?;
        let (moe, stream) = made.map_err(|error| error.raise(py))?;
        Ok(Self {
            moe,
            stream,
            origin: Origin::here(),
        })
    }

    /// A handle of calls.
    fn call(&self, py: Python<'_>) -> PyResult<Call> {
        self.origin.check(py, "the layer")?;
        let made = py.detach(|| self.moe.call());
        let call = made.map_err(|error| error.raise(py))?;
        Ok(Call::new(&self.moe, call, self.stream.clone()))
    }

    /// Experts of this rank in the newest view, in the order of their local numbers.
    fn local_experts(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.origin.check(py, "the layer")?;
        Ok(self.moe.local_experts())
    }

    /// Places for experts that each rank has: the first dimension of what dispatch writes by expert.
    #[getter]
    fn room(&self) -> u32 {
        self.moe.config().local_experts
    }

    /// Longest waits of a phase, seconds: of all calls, and of the first `warm_calls`; and of a change of members.
    fn set_deadlines(
        &self,
        py: Python<'_>,
        steady: f64,
        warm: f64,
        warm_calls: u32,
        change: f64,
    ) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        let wanted = Deadlines::new(seconds_of(py, "steady", steady)?)
            .with_warm(seconds_of(py, "warm", warm)?)
            .with_warm_calls(warm_calls)
            .with_change(seconds_of(py, "change", change)?);
        py.detach(|| self.moe.set_deadlines(&wanted))
            .map_err(|error| error.raise(py))
    }

    /// Where the experts are in the views of a group, by a name.
    fn set_placement_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        let policy: PlacementPolicy = policy
            .parse()
            .map_err(|error: warpverbs::moe::MoeError| error.raise(py))?;
        self.moe.set_placement_policy(policy);
        Ok(())
    }

    /// The experts of each rank in views of these members; none: by the policy.
    #[pyo3(signature = (members, placement))]
    fn set_placement_of(
        &self,
        py: Python<'_>,
        members: Vec<u32>,
        placement: Option<Vec<Vec<u32>>>,
    ) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        let table = placement
            .map(|table| Placement::from_slots(self.moe.config().experts, table))
            .transpose();
        table
            .and_then(|table| self.moe.set_placement_of(&members, table))
            .map_err(|error| error.raise(py))
    }

    /// Returns which ranks later calls exchange with, where a call brings no mask of its own.
    fn set_active(&self, py: Python<'_>, active: Vec<bool>) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        py.detach(|| self.moe.set_active(&active))
            .map_err(|error| error.raise(py))
    }

    /// Ranks that kernels have waited for in vain, and that have said nothing new since. Read from host memory, without a sync of the GPU.
    fn suspected(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.origin.check(py, "the layer")?;
        Ok(self.moe.suspected())
    }

    /// The number of calls so far that found no free send buffer, and so sent nothing. Read from host memory, without a sync of the GPU.
    #[getter]
    fn unbuffered(&self) -> u32 {
        self.moe.unbuffered()
    }

    /// The newest fault in words. Read from host memory, without a sync of the GPU.
    fn last_fault(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.origin.check(py, "the layer")?;
        Ok(self.moe.last_fault().map(|fault| fault.to_string()))
    }

    /// Number of records of faults so far. Read from host memory, without a sync of the GPU.
    #[getter]
    fn faults(&self) -> u32 {
        self.moe.faults()
    }

    /// The newest fault by parts: with no ranks this rank was refused, aborted or without a buffer, and with this rank the others have gone on without it.
    fn fault(&self, py: Python<'_>) -> PyResult<Option<FaultParts>> {
        self.origin.check(py, "the layer")?;
        Ok(self.moe.last_fault().map(|fault| {
            let mut ranks = fault.suspects.clone();
            let own = fault.cause == MoeCause::MISSED_CALL && fault.peer.is_none();
            ranks.extend(if own {
                Some(self.moe.team().rank())
            } else {
                fault.peer
            });
            ranks.sort_unstable();
            ranks.dedup();
            let unbuffered = fault.cause == MoeCause::NO_BUFFER;
            let missed = fault.cause == MoeCause::MISSED_CALL && fault.peer.is_some();
            let answered = missed && fault.suspects.is_empty();
            (
                fault.call,
                fault.phase,
                ranks,
                fault.to_string(),
                unbuffered,
                answered,
            )
        }))
    }

    /// The exception of arguments in which ranks differ, where the newest fault is of those. Asks the store.
    fn difference(&self, py: Python<'_>) -> PyResult<Option<PyErr>> {
        self.origin.check(py, "the layer")?;
        let found = interrupt::detach(py, || self.moe.difference())?;
        Ok(found.map(|found| raise_difference(py, &found)))
    }

    /// Tells the other ranks the shape of calls that follow: as of a dispatch.
    fn announce(&self, py: Python<'_>, format: u8, max_tokens: u32) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        let format = format_at(py, format)?;
        interrupt::detach(py, || self.moe.announce(format, max_tokens))?
            .map_err(|error| error.raise(py))
    }

    /// `rank` was waited for in vain, and lives. No kernel of the layer runs.
    fn trust(&self, py: Python<'_>, rank: u32) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        py.detach(|| self.moe.trust(rank))
            .map_err(|error| error.raise(py))
    }

    /// Leaves out calls up to `call`. No kernel of the layer runs.
    fn skip_to(&self, py: Python<'_>, call: u32) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        py.detach(|| self.moe.skip_to(call))
            .map_err(|error| error.raise(py))
    }

    /// The process of `rank` has ended: no call waits for it any more.
    fn mark_dead(&self, py: Python<'_>, rank: u32) -> PyResult<()> {
        self.origin.check(py, "the layer")?;
        py.detach(|| self.moe.mark_dead(rank))
            .map_err(|error| error.raise(py))
    }

    /// Numbers of calls that have started and ended.
    fn progress(&self, py: Python<'_>) -> PyResult<(u32, u32)> {
        self.origin.check(py, "the layer")?;
        Ok((self.moe.started(), self.moe.finished()))
    }

    /// Staging memory of the calls of `set`, with its shape: blocks, rows, bytes of a row.
    fn staging(&self, py: Python<'_>, set: u32) -> PyResult<(Memory, (u64, u64, u64))> {
        self.origin.check(py, "the layer")?;
        let staging = self
            .moe
            .combine_staging(set)
            .map_err(|error| error.raise(py))?;
        let shape = (staging.blocks, staging.rows, staging.row_bytes);
        Ok((Memory::of_staging(&self.moe, &staging), shape))
    }
}
