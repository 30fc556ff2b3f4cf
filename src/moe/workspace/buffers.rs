//! The device buffers of a workspace: inputs and outputs of the largest call of a layer.

use crate::gpu::{DeviceMemory, Gpu};
use crate::moe::sizes::output_rows;
use crate::moe::{Moe, MoeError};

/// The names of the buffers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    X,
    XScales,
    Experts,
    Weights,
    RecvX,
    RecvScales,
    Counts,
    SrcInfo,
    LayoutRange,
    RecvExperts,
    RecvWeights,
    RecvStats,
    DispatchWait,
    Arrived,
    Y,
    LateWeights,
    Out,
    Valid,
    CombineWait,
    Contributed,
}

/// The number of names.
const BUFFERS: usize = Buffer::Contributed as usize + 1;

/// The memory of each buffer, in the order of the names.
#[derive(Debug)]
pub(super) struct Buffers(Vec<DeviceMemory>);

impl Buffers {
    pub(super) fn new(moe: &Moe) -> Result<Self, MoeError> {
        let (config, layout, ranks) = (moe.config(), moe.layout(), moe.team().ranks());
        let tokens = u64::from(config.max_tokens);
        let choices = tokens * u64::from(config.top_k);
        let rows = output_rows(config, ranks);
        let (ranks, local) = (u64::from(ranks), u64::from(config.room(ranks)));
        let mut sizes = [0u64; BUFFERS];
        let mut size = |buffer: Buffer, bytes: u64| sizes[buffer as usize] = bytes;
        // The tokens that the caller gives may be longer than those that dispatch sends: it casts BF16 to FP8.
        size(
            Buffer::X,
            tokens * layout.row_bytes.max(layout.combine_row_bytes),
        );
        size(Buffer::XScales, tokens * layout.scale_bytes);
        size(Buffer::Experts, choices * 4);
        size(Buffer::Weights, choices * 4);
        size(Buffer::RecvX, rows * layout.row_bytes);
        size(Buffer::RecvScales, rows * layout.scale_bytes);
        size(Buffer::Counts, local.max(ranks) * 4);
        size(Buffer::SrcInfo, rows * 4);
        size(Buffer::LayoutRange, local * ranks * 8);
        size(Buffer::RecvExperts, ranks * choices * 4);
        size(Buffer::RecvWeights, ranks * choices * 4);
        size(Buffer::RecvStats, local * 8);
        size(Buffer::DispatchWait, ranks * 8);
        size(Buffer::Arrived, ranks * 4);
        size(Buffer::Y, rows * layout.combine_row_bytes);
        size(Buffer::LateWeights, choices * 4);
        size(Buffer::Out, tokens * layout.combine_row_bytes);
        size(Buffer::Valid, tokens);
        size(Buffer::CombineWait, ranks * 8);
        size(Buffer::Contributed, ranks * 4);
        let alloc = |bytes: u64| {
            let bytes = usize::try_from(bytes.max(16)).unwrap_or(usize::MAX);
            moe.team().gpu().alloc(bytes, 128)
        };
        Ok(Self(
            sizes.into_iter().map(alloc).collect::<Result<_, _>>()?,
        ))
    }

    pub(super) fn addr(&self, buffer: Buffer) -> u64 {
        self.0[buffer as usize].addr()
    }

    /// Reads `count` numbers of a buffer, from number `first` on.
    pub(super) fn read<T: bytemuck::Pod>(
        &self,
        gpu: &dyn Gpu,
        buffer: Buffer,
        first: u64,
        count: usize,
    ) -> Result<Vec<T>, MoeError> {
        let mut out = vec![T::zeroed(); count];
        if count != 0 {
            let at = self.addr(buffer) + first * size_of::<T>() as u64;
            gpu.read(at, bytemuck::cast_slice_mut(&mut out))?;
        }
        Ok(out)
    }

    pub(super) fn write<T: bytemuck::Pod>(
        &self,
        gpu: &dyn Gpu,
        buffer: Buffer,
        numbers: &[T],
    ) -> Result<(), MoeError> {
        if numbers.is_empty() {
            return Ok(());
        }
        Ok(gpu.write(self.addr(buffer), bytemuck::cast_slice(numbers))?)
    }
}
