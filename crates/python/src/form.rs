//! The tensors of most calls: of torch's own class, dense, with the right elements and shape, on the right device. They are read and
//! checked here, all of a launch at once. The package looks at any other tensor itself: it knows other libraries, and says in words
//! what is wrong.
//!
//! Nothing is kept from one call to the next, because a tensor may be changed in place between them.

use std::array;

use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::call::{ReceiveArguments, SendArguments};
use crate::dlpack::Reader;

/// Elements by the names that the package gives them: code and bits as DLPack has them.
const KINDS: [(&str, (u8, u8)); 6] = [
    ("bf16", (4, 16)),
    ("fp8", (10, 8)),
    ("f32", (2, 32)),
    ("i32", (0, 32)),
    ("i64", (0, 64)),
    ("u8", (1, 8)),
];
const BF16: (u8, u8) = (4, 16);
const I32: (u8, u8) = (0, 32);
const I64: (u8, u8) = (0, 64);

/// Alignment of tokens, bytes.
const OF_TOKENS: u64 = 16;
/// A longer deadline is none, seconds.
const LONGEST: f64 = 1e9;

/// Of a shape: max_tokens, hidden, top_k, local experts, ranks.
type Sizes = (i64, i64, i64, i64, i64);

/// What the tensors of the dispatches of one shape must be.
#[pyclass(frozen, module = "warpverbs._native")]
#[derive(Debug)]
pub(crate) struct Form {
    reader: Reader,
    sizes: Sizes,
    /// What a dispatch writes, up to the statistics.
    written: [Wanted; 7],
    /// Format and max_tokens of the call; 0: the layer's.
    own: (u8, u32),
}

#[derive(Debug)]
struct Wanted {
    kind: (u8, u8),
    shape: Vec<i64>,
    align: u64,
}

#[pymethods]
impl Form {
    /// Returns the form of calls whose tensors are of the class `tensor`. None if the class has no table of functions for C, as in older
    /// versions of torch. `written` has the elements, shape and alignment of each tensor that a dispatch writes.
    #[staticmethod]
    fn of(
        tensor: &Bound<'_, PyType>,
        gpu: Option<i32>,
        sizes: Sizes,
        written: Vec<(String, Vec<i64>, u64)>,
        own: (u8, u32),
    ) -> Option<Self> {
        let wanted = |(name, shape, align): (String, Vec<i64>, u64)| {
            let (_, kind) = KINDS.iter().find(|(known, _)| *known == name)?;
            Some(Wanted {
                kind: *kind,
                shape,
                align,
            })
        };
        let written: Option<Vec<Wanted>> = written.into_iter().map(wanted).collect();
        Some(Self {
            reader: Reader::of(tensor, gpu)?,
            sizes,
            written: written?.try_into().ok()?,
            own,
        })
    }
}

impl Form {
    /// What a dispatch sends: `tensors` are x in BF16, the choices, and the mask or None. `deadline` is in seconds; None: the layer's.
    pub(crate) fn input(
        &self,
        tensors: &Bound<'_, PyTuple>,
        deadline: Option<f64>,
    ) -> Option<SendArguments> {
        let (max_tokens, hidden, top_k, _, ranks) = self.sizes;
        let [x, experts, active] = items(tensors)?;
        let (at_x, tokens) = self
            .reader
            .dense(&x, BF16, OF_TOKENS, |at, shape| match *shape {
                [tokens, width] if tokens <= max_tokens && width == hidden => Some((at, tokens)),
                _ => None,
            })?;
        let (at_experts, wide) = self.integers(&experts, &[tokens, top_k])?;
        let at_active = self.given(&active, I32, &[ranks], 4)?;
        let ns = deadline.map_or(Some(0), nanoseconds)?;
        let (format, own_tokens) = self.own;
        let tokens = u32::try_from(tokens).ok()?;
        Some((
            at_x, 0, at_experts, 0, at_active, tokens, ns, false, false, wide, format, own_tokens,
        ))
    }

    /// Returns what a dispatch writes: `tensors` are those of `written`, then statistics, ns waited, and the mask; each may be None.
    pub(crate) fn output(
        &self,
        tensors: &Bound<'_, PyTuple>,
        active_in_place: bool,
    ) -> Option<ReceiveArguments> {
        let (.., room, ranks) = self.sizes;
        let [
            x,
            scales,
            counts,
            src_info,
            range,
            experts,
            weights,
            stats,
            wait_ns,
            active,
        ] = items(tensors)?;
        let written = |place: usize, value: &Bound<'_, PyAny>| {
            let Wanted { kind, shape, align } = &self.written[place];
            self.given(value, *kind, shape, *align)
        };
        let (at_stats, wide) = if stats.is_none() {
            (0, true)
        } else {
            self.integers(&stats, &[room])?
        };
        let addresses = (
            written(0, &x)?,
            written(1, &scales)?,
            written(2, &counts)?,
            written(3, &src_info)?,
            written(4, &range)?,
            written(5, &experts)?,
            written(6, &weights)?,
            at_stats,
            self.given(&wait_ns, I64, &[ranks], 8)?,
            self.given(&active, I32, &[ranks], 4)?,
        );
        Some((addresses, !wide, active_in_place, self.own.0))
    }

    /// The address of such a tensor; 0 for None.
    fn given(
        &self,
        value: &Bound<'_, PyAny>,
        kind: (u8, u8),
        shape: &[i64],
        align: u64,
    ) -> Option<u64> {
        if value.is_none() {
            Some(0)
        } else {
            self.reader.dense(value, kind, align, |at, found| {
                (found == shape).then_some(at)
            })
        }
    }

    /// As `given`, of integers of 64 or of 32 bits, and whether they have 64.
    fn integers(&self, value: &Bound<'_, PyAny>, shape: &[i64]) -> Option<(u64, bool)> {
        let wide = self.given(value, I64, shape, 8).map(|at| (at, true));
        wide.or_else(|| Some((self.given(value, I32, shape, 4)?, false)))
    }
}

/// The items of a tuple of `N`.
fn items<'py, const N: usize>(tuple: &Bound<'py, PyTuple>) -> Option<[Bound<'py, PyAny>; N]> {
    if tuple.len() != N {
        return None;
    }
    let mut all = tuple.iter();
    Some(array::from_fn(|_| {
        all.next().expect("as many as the tuple has")
    }))
}

/// None: no deadline that the package takes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and below 2^60"
)]
fn nanoseconds(seconds: f64) -> Option<u64> {
    (seconds > 0.0 && seconds < LONGEST).then(|| ((seconds * 1e9) as u64).max(1))
}
