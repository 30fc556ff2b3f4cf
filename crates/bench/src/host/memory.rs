//! Memory of an end of a measurement: of the host, or of a GPU. The host fills and reads memory of a GPU only by copies of the GPU, so that
//! memory need not be mapped in the host's address space.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use warpverbs::gpu::{DeviceMemory, Gpu, GpuError, GpuSelector};
use warpverbs::internal::engine::{
    AnyMemory, Engine, EngineDevice, GpuMemory, HostError, HostMemory, ProviderError, RegionId,
    ways,
};

use crate::error::BenchError;

/// The most bytes of one copy to or from a GPU. Other copies of the GPU wait for it.
pub(super) const PIECE: usize = 4 << 20;
/// The alignment of memory of a GPU: a page, as its DMA-BUF needs it.
const PAGE: usize = 4096;

/// The place where memory of an end is to lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryChoice {
    /// Memory of the host.
    #[default]
    Host,
    /// Memory of this GPU.
    Gpu(GpuSelector),
}

impl FromStr for MemoryChoice {
    type Err = String;

    /// Returns the choice that `text` means: `none` for the host, else what names a GPU.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Host),
            gpu => gpu.parse().map(Self::Gpu).map_err(|_| {
                "it must be none, auto, simt, simt-dmabuf or the number of a CUDA device".to_owned()
            }),
        }
    }
}

impl fmt::Display for MemoryChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("none"),
            Self::Gpu(selector) => selector.fmt(f),
        }
    }
}

/// The memory that an end has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum MemoryKind {
    /// Memory of the host.
    Host,
    /// Memory of a GPU, or of a simt device in its place.
    Gpu {
        /// The label of the GPU.
        gpu: String,
        /// True if the device is a simt device, whose memory is that of its process.
        in_process: bool,
        /// How each NIC of the end has registered the memory, and which ways were refused.
        registered: Vec<String>,
    },
}

impl MemoryKind {
    /// Returns the label of the GPU that has the memory, or None for memory of the host.
    fn gpu(&self) -> Option<&str> {
        match self {
            Self::Host => None,
            Self::Gpu { gpu, .. } => Some(gpu),
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Gpu {
            gpu,
            in_process,
            registered,
        } = self
        else {
            return f.write_str("the host");
        };
        let is_none = if *in_process {
            " (no GPU: memory of the process)"
        } else {
            ""
        };
        write!(f, "{gpu}{is_none}, registered by ")?;
        let first = registered.first().map_or("no NIC", String::as_str);
        if registered.iter().all(|way| way == first) {
            f.write_str(first)
        } else {
            f.write_str(&registered.join(" | "))
        }
    }
}

/// The memory of the end that measures, and of each of its peers.
#[derive(Clone, Debug, Serialize)]
pub struct Memories {
    /// The memory of the end that measures.
    pub here: MemoryKind,
    /// The memory of its peers, in their order.
    pub peers: Vec<MemoryKind>,
}

impl Memories {
    /// Returns `device` with each GPU whose memory an end uses, as `softhca+simt`.
    pub(super) fn label(&self, device: &str) -> String {
        let mut parts = vec![device];
        for gpu in self.all().filter_map(MemoryKind::gpu) {
            if !parts[1..].contains(&gpu) {
                parts.push(gpu);
            }
        }
        parts.join("+")
    }

    fn all(&self) -> impl Iterator<Item = &MemoryKind> {
        std::iter::once(&self.here).chain(&self.peers)
    }
}

impl fmt::Display for Memories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory here: {}", self.here)?;
        let mut told: Vec<&MemoryKind> = Vec::new();
        for kind in &self.peers {
            if !told.contains(&kind) {
                write!(f, "; of peers: {kind}")?;
                told.push(kind);
            }
        }
        Ok(())
    }
}

/// Memory of an end, filled with zeros.
#[derive(Debug)]
pub(super) enum EndMemory {
    Host(Arc<HostMemory>),
    Gpu(Arc<dyn Gpu>, Arc<GpuMemory>),
}

impl EndMemory {
    /// Returns `bytes` bytes of memory for `engine`.
    pub(super) fn new(
        engine: &Engine,
        choice: MemoryChoice,
        bytes: u64,
    ) -> Result<Self, BenchError> {
        match choice {
            MemoryChoice::Host => {
                let memory = HostMemory::new(bytes).map_err(HostError::from)?;
                Ok(Self::Host(Arc::new(memory)))
            }
            MemoryChoice::Gpu(selector) => Self::of(engine.gpu(selector)?, bytes),
        }
    }

    /// Returns `bytes` bytes of memory of `gpu`.
    pub(super) fn of(gpu: Arc<dyn Gpu>, bytes: u64) -> Result<Self, BenchError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = gpu.alloc(length, PAGE);
        Self::over(gpu, memory, bytes)
    }

    /// Returns `bytes` bytes of memory of `gpu` that other processes of this machine can open.
    pub(super) fn shared(gpu: Arc<dyn Gpu>, bytes: u64) -> Result<Self, BenchError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = gpu.alloc_shared(length, PAGE);
        Self::over(gpu, memory, bytes)
    }

    fn over(
        gpu: Arc<dyn Gpu>,
        memory: Result<DeviceMemory, GpuError>,
        bytes: u64,
    ) -> Result<Self, BenchError> {
        let memory = memory.map_err(|error| match error {
            GpuError::OutOfMemory { detail, .. } => BenchError::NoMemory {
                gpu: gpu.label(),
                bytes,
                detail,
            },
            error => error.into(),
        })?;
        let memory = GpuMemory::new(&gpu, &Arc::new(memory)).map_err(HostError::from)?;
        Ok(Self::Gpu(gpu, Arc::new(memory)))
    }

    /// Returns the memory in the type that an engine takes.
    pub(super) fn any(&self) -> AnyMemory {
        match self {
            Self::Host(memory) => memory.into(),
            Self::Gpu(_, memory) => memory.into(),
        }
    }

    /// Returns the `bytes` bytes at `offset`, in the type that an engine takes.
    pub(super) fn part(&self, offset: u64, bytes: u64) -> Result<AnyMemory, BenchError> {
        let part: Result<AnyMemory, ProviderError> = match self {
            Self::Host(whole) => {
                HostMemory::part(whole, offset, bytes).map(|part| (&Arc::new(part)).into())
            }
            Self::Gpu(_, whole) => {
                GpuMemory::part(whole, offset, bytes).map(|part| (&Arc::new(part)).into())
            }
        };
        Ok(part.map_err(HostError::from)?)
    }

    /// Returns the address of the first byte, as requests name it.
    pub(super) fn address(&self) -> u64 {
        self.any().address()
    }

    /// Registers the whole memory. Returns its region, and its kind with the ways in which the NICs have registered it.
    pub(super) fn register(&self, engine: &Engine) -> Result<(RegionId, MemoryKind), BenchError> {
        let region = engine.register(self.any())?;
        let kind = match self {
            Self::Host(_) => MemoryKind::Host,
            Self::Gpu(gpu, _) => MemoryKind::Gpu {
                gpu: gpu.label(),
                in_process: gpu.slot().is_none(),
                registered: ways(engine, region)?,
            },
        };
        Ok((region, kind))
    }

    /// Copies `from` to the memory at `offset`.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), BenchError> {
        match self {
            Self::Host(memory) => memory.write(offset, from).map_err(HostError::from)?,
            Self::Gpu(gpu, memory) => {
                let mut at = memory.address() + offset;
                for piece in from.chunks(PIECE) {
                    gpu.write(at, piece)?;
                    at += piece.len() as u64;
                }
            }
        }
        Ok(())
    }

    /// Copies the memory at `offset` to `to`.
    pub(super) fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), BenchError> {
        match self {
            Self::Host(memory) => memory.read(offset, to).map_err(HostError::from)?,
            Self::Gpu(gpu, memory) => {
                let mut at = memory.address() + offset;
                for piece in to.chunks_mut(PIECE) {
                    gpu.read(at, piece)?;
                    at += piece.len() as u64;
                }
            }
        }
        Ok(())
    }
}

/// Returns the names of the devices of an engine, or that they are software, with the GPUs whose memory an end uses.
pub(super) fn ran_on(devices: &[EngineDevice], memories: &Memories) -> String {
    let names: Vec<&str> = devices.iter().map(EngineDevice::name).collect();
    if devices.iter().any(EngineDevice::is_soft) {
        memories.label("softhca") + " (no speed of a NIC)"
    } else {
        memories.label(&names.join(","))
    }
}

#[cfg(test)]
pub(super) mod of_tests {
    use super::*;
    use warpverbs::gpu::open_bare;

    pub(crate) fn host(bytes: u64) -> EndMemory {
        EndMemory::Host(Arc::new(HostMemory::new(bytes).unwrap()))
    }

    pub(crate) fn simt(bytes: u64) -> EndMemory {
        EndMemory::of(open_bare(GpuSelector::Simt, false).unwrap(), bytes).unwrap()
    }

    /// Returns memory of CUDA device 0 of the driver that the test has.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(bytes: u64) -> EndMemory {
        EndMemory::of(open_bare(GpuSelector::Cuda(0), false).unwrap(), bytes).unwrap()
    }

    fn gpu(gpu: &str, in_process: bool, registered: &[&str]) -> MemoryKind {
        MemoryKind::Gpu {
            gpu: gpu.to_owned(),
            in_process,
            registered: registered.iter().map(|way| (*way).to_owned()).collect(),
        }
    }

    #[test]
    fn a_label_names_each_gpu_once_and_no_nic_of_a_software_hca() {
        let one = gpu("one", false, &["dmabuf"]);
        let simt = gpu("simt", true, &["address", "address"]);
        let host = MemoryKind::Host;
        for (here, peers, label) in [
            (&host, [&host, &host], "softhca"),
            (&simt, [&simt, &host], "softhca+simt"),
            (&host, [&one, &one], "softhca+one"),
            (&one, [&simt, &one], "softhca+one+simt"),
        ] {
            let memories = Memories {
                here: here.clone(),
                peers: peers.map(Clone::clone).to_vec(),
            };
            assert_eq!(memories.label("softhca"), label);
        }
        let apart = gpu("one", false, &["dmabuf (PCIe)", "dmabuf"]);
        let memories = Memories {
            here: simt,
            peers: vec![host.clone(), one.clone(), host, apart],
        };
        assert_eq!(
            memories.to_string(),
            "memory here: simt (no GPU: memory of the process), registered by address; of peers: the host; \
             of peers: one, registered by dmabuf; of peers: one, registered by dmabuf (PCIe) | dmabuf"
        );
    }

    #[test]
    fn a_choice_reads_back_as_it_prints_and_another_word_is_refused() {
        for word in ["none", "auto", "simt", "simt-dmabuf", "3"] {
            let choice: MemoryChoice = word.parse().unwrap();
            assert_eq!(choice.to_string(), word);
        }
        assert_eq!("none".parse(), Ok(MemoryChoice::default()));
        for word in ["", "gpu0", "-1", "host"] {
            let refused = word.parse::<MemoryChoice>().unwrap_err();
            assert!(refused.starts_with("it must be none, auto, "), "{refused}");
        }
    }

    #[test]
    fn copies_reach_every_byte_however_many_of_them_it_takes() {
        let bytes = 2 * PIECE as u64 + 17;
        for memory in [host(bytes), simt(bytes)] {
            let mut sent = vec![0; 2 * PIECE + 11];
            fastrand::Rng::with_seed(3).fill(&mut sent);
            memory.write(5, &sent).unwrap();
            let mut came = vec![1; sent.len() + 6];
            memory.read(0, &mut came).unwrap();
            assert!(
                came[..5] == [0; 5] && came[5..sent.len() + 5] == sent[..] && came.ends_with(&[0])
            );
            assert!(memory.read(bytes, &mut [0]).is_err());
            assert!(memory.write(bytes - 1, &[0, 0]).is_err());
        }
    }
}
