//! The options of `wv demo`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::kill::Kill;
use warpverbs::moe::{Format, RowLayout, Scales};
use warpverbs_cli::number;

/// The layout of the files that `--dump` writes, for the help.
const DUMP_HELP: &str = "Write inputs and outputs as .npy to DIR, made if missing: \
    stepS_rankR_{tokens,routing,weights} are the inputs ([tokens, hidden] uint16 BF16 bits, [tokens, top-k] int32, float32); \
    stepS_rankR_received is what dispatch brought, one row per choice of a token, expert after expert ([rows, hidden] uint16), \
    stepS_rankR_sources where each row comes from ([rows, 3] int32: expert, rank, token); \
    stepS_rankR_output is what combine returned ([tokens, hidden] uint16); \
    rankR_control_heap.txt is a map of the control heap after the last step";

/// Options of `wv demo`.
#[derive(clap::Args, Clone, Debug, Serialize, Deserialize)]
pub struct DemoOptions {
    /// Rank processes, 1 to 64
    #[arg(long, default_value_t = 4, value_parser = number::any::<u32>())]
    pub(crate) ranks: u32,
    /// Tokens of each rank in each step, 1 to 65,534
    #[arg(long, default_value_t = 128, value_parser = number::any::<u32>())]
    pub(crate) tokens: u32,
    /// BF16 elements of a token, a multiple of 8 [default: that of the tokens file, 384 with the shipped data, else 1024]
    #[arg(long, value_parser = number::any::<u32>())]
    pub(crate) hidden: Option<u32>,
    /// Experts of all ranks together [default: 64]
    #[arg(long, value_parser = number::any::<u32>())]
    pub(crate) experts: Option<u32>,
    /// Experts that each token chooses, 1 to 32 [default: that of the routing file, else 8]
    #[arg(long, value_parser = number::any::<u32>())]
    pub(crate) top_k: Option<u32>,
    /// Format of tokens on their way: BF16, or FP8 (e4m3) that dispatch casts, with a scale for each 128 channels. Experts compute
    /// on the device for BF16 by expert, else on the host
    #[arg(long, value_enum, default_value_t = TokenFormat::Bf16)]
    pub(crate) format: TokenFormat,
    /// How dispatch lays out what it received: by expert, or by rank with each token once
    #[arg(long, value_enum, default_value_t = LayoutKind::Expert)]
    pub(crate) layout: LayoutKind,
    /// Links of a rank that may fail within the patience of its HCA while its calls with all others go on
    #[arg(long, default_value_t = 1, value_parser = number::any::<u32>())]
    pub(crate) failing_links: u32,
    /// Steps: dispatch, experts, combine, check
    #[arg(long, default_value_t = 8, value_parser = number::any::<u32>())]
    pub(crate) steps: u32,
    /// Seed of everything that is generated
    #[arg(long, default_value_t = 1, value_parser = number::any::<u64>())]
    pub(crate) seed: u64,
    /// Activations [rows, hidden]: uint16 with BF16 bits, or float32
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) tokens_file: Option<PathBuf>,
    /// Chosen experts [rows, top-k], int32 or int64; -1 is no choice. Rank r of R takes rows ((step·R + r)·tokens + i) mod rows
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) routing: Option<PathBuf>,
    /// Weights of the choices [rows, top-k], float32 [default with a routing file: 1/top-k]
    #[arg(long, value_name = "FILE.npy", requires = "routing")]
    pub(crate) weights: Option<PathBuf>,
    /// Generate the routing: even, skewed, or every token to the same experts
    #[arg(long, value_enum, conflicts_with = "routing")]
    pub(crate) routing_kind: Option<RoutingKind>,
    /// RDMA device: auto, ^NAME, sim, NAME, NAME,NAME or gpuhca. With auto each rank takes the best device for its GPU that DevX
    /// can drive, else the software HCA. ^NAME is auto without that device. Ranks take the devices of NAME,NAME in turn. With
    /// gpuhca, a kernel of the GPU itself, all ranks are threads of one process
    #[arg(long, default_value = "auto")]
    pub(crate) device: String,
    /// Where kernels run: auto (the GPUs in turn, else the CPU), simt (the CPU), simt-dmabuf, or the number of a GPU. With
    /// simt-dmabuf a software HCA takes the CPU's memory as DMA-BUFs. Ranks take several numbers, separated by commas, in turn
    #[arg(long, default_value = "auto")]
    pub(crate) gpu: String,
    /// Let ranks load from and store to each other's memory where they can, and leave the HCA out, as with WARPVERBS_DIRECT=1.
    /// Without either all traffic goes by the HCA
    #[arg(long)]
    pub(crate) direct: bool,
    /// Bound of the whole run, in seconds
    #[arg(long, default_value_t = 120, value_parser = number::seconds())]
    pub(crate) timeout: u64,
    /// Kill RANK when it begins STEP, counted from 1; the others go on. May be given several times
    #[arg(long, value_name = "RANK@STEP", conflicts_with_all = ["explain", "dump"])]
    pub(crate) kill: Vec<Kill>,
    /// Start a killed rank again after so many seconds: it comes back under its number, and the others go on meanwhile
    #[arg(long, value_name = "SECONDS", requires = "kill", value_parser = number::fraction())]
    pub(crate) rejoin_after: Option<f64>,
    /// Draw the state of each rank over time
    #[arg(long, value_name = "FILE.svg", requires = "kill")]
    pub(crate) timeline: Option<PathBuf>,
    /// Print which bytes, QPs and signals this shape takes, and do not run
    #[arg(long)]
    pub(crate) explain: bool,
    /// The result as one JSON object on stdout; everything else goes to stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to write inputs and outputs
    #[arg(long, value_name = "DIR", help = DUMP_HELP)]
    pub(crate) dump: Option<PathBuf>,
    /// This process is one rank of a launcher's job (torchrun, mpirun, MPICH, srun). Number, number of ranks and local rank are
    /// the launcher's, the store is WARPVERBS_STORE, and rank 0 prints
    #[arg(long, conflicts_with_all = ["ranks", "kill", "explain"])]
    #[serde(default)]
    pub(crate) launched: bool,
    /// This process has the HCAs of all ranks, or, launched, that of its own
    #[arg(long, hide = true)]
    #[serde(default)]
    pub(crate) inside: bool,
}

/// What tokens are made of on their way to the experts.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum TokenFormat {
    /// BF16
    Bf16,
    /// FP8 with f32 scales
    Fp8,
    /// FP8 with f32 scales that are powers of two
    Fp8Pow2,
    /// FP8 with the exponent bytes of such powers as scales
    Fp8Ue8m0,
}

impl TokenFormat {
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Bf16 => Format::Bf16,
            Self::Fp8 => Format::Fp8(Scales::F32),
            Self::Fp8Pow2 => Format::Fp8(Scales::PowerOfTwo),
            Self::Fp8Ue8m0 => Format::Fp8(Scales::Ue8m0),
        }
    }
}

/// How dispatch lays out what it received.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LayoutKind {
    /// By local expert
    Expert,
    /// By source rank, each token once
    Rank,
}

impl LayoutKind {
    pub(crate) fn layout(self) -> RowLayout {
        match self {
            Self::Expert => RowLayout::ExpertMajor,
            Self::Rank => RowLayout::RankMajor,
        }
    }
}

/// Returns the name of a format, in words.
pub(crate) fn format_in_words(format: Format) -> &'static str {
    match format {
        Format::Bf16 => "BF16",
        Format::Fp8(Scales::F32) => "FP8 (f32 scales)",
        Format::Fp8(Scales::PowerOfTwo) => "FP8 (power-of-two scales)",
        Format::Fp8(Scales::Ue8m0) => "FP8 (UE8M0 scales)",
        Format::Opaque { .. } => "opaque bytes",
    }
}

/// How a generated routing spreads tokens over experts.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RoutingKind {
    /// Every expert alike
    Uniform,
    /// The i-th most popular expert with weight 1/i
    Zipf,
    /// Every token to experts 0 to top-k - 1
    AllToOne,
}

impl RoutingKind {
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
            Self::AllToOne => "all-to-one",
        }
    }
}

impl Default for DemoOptions {
    /// Returns the options of an empty command line.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Empty {
            #[command(flatten)]
            options: DemoOptions,
        }
        <Empty as clap::Parser>::parse_from(["demo"]).options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_command_line_is_four_ranks_of_128_tokens_for_eight_steps() {
        let options = DemoOptions::default();
        assert_eq!((options.ranks, options.tokens, options.steps), (4, 128, 8));
        assert_eq!((options.seed, options.timeout), (1, 120));
        assert_eq!(options.device, "auto");
    }
}
