//! The inputs of all ranks in all steps: from files, from the data that comes with the program, or generated.

use super::generate;
use super::npy::{self, Table};
use crate::error::DemoError;
use crate::options::{DemoOptions, RoutingKind};
use warpverbs::moe::{Batch, MoeConfig, check_routing};

/// The most rank processes of a demo.
pub(crate) const MAX_DEMO_RANKS: u32 = 64;

/// Hidden size, choices and experts of the data that comes with the program.
const SHIPPED_HIDDEN: u32 = 384;
const SHIPPED_TOP_K: u32 = 8;
const SHIPPED_EXPERTS: [u32; 2] = [64, 256];

macro_rules! shipped {
    ($name:literal) => {
        (
            concat!("crates/demo/data/", $name),
            &include_bytes!(concat!("../../data/", $name))[..],
        )
    };
}

/// The source of tokens.
#[derive(Debug)]
enum Tokens {
    Table(Table<u16>),
    Generated,
}

/// The source of choices and weights.
#[derive(Debug)]
enum Routing {
    Table {
        experts: Table<i32>,
        weights: Option<Table<f32>>,
    },
    Generated {
        kind: RoutingKind,
        popularity: Vec<f64>,
    },
}

/// The inputs of a demo. Every rank can make the inputs of every other rank.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub(crate) config: MoeConfig,
    pub(crate) ranks: u32,
    seed: u64,
    tokens: Tokens,
    routing: Routing,
    /// What the inputs are, in words.
    pub(crate) description: String,
}

impl Inputs {
    /// Reads and checks everything that `options` name.
    pub(crate) fn load(options: &DemoOptions) -> Result<Self, DemoError> {
        if !(1..=MAX_DEMO_RANKS).contains(&options.ranks) {
            let message = format!(
                "--ranks is {}; it must be 1 to {MAX_DEMO_RANKS}",
                options.ranks
            );
            return Err(DemoError::Option(message));
        }
        if options.steps == 0 {
            return Err(DemoError::Option(
                "--steps is 0; it must be at least 1".to_owned(),
            ));
        }
        let shipped = uses_shipped_data(options);
        let experts = options.experts.unwrap_or(SHIPPED_EXPERTS[0]);
        let tokens = match &options.tokens_file {
            Some(path) => {
                let name = path.display().to_string();
                Tokens::Table(npy::read_tokens(&name, npy::open_file(path)?)?)
            }
            None if shipped => {
                let (name, bytes) = shipped!("tokens_bf16.npy");
                Tokens::Table(npy::read_tokens(name, bytes)?)
            }
            None => Tokens::Generated,
        };
        let routing = match &options.routing {
            Some(path) => {
                let name = path.display().to_string();
                let experts = npy::read_routing(&name, npy::open_file(path)?)?;
                let weights = options.weights.as_ref().map(|path| {
                    npy::read_weights(&path.display().to_string(), npy::open_file(path)?)
                });
                let weights = weights.transpose()?;
                Routing::Table { experts, weights }
            }
            None if shipped => shipped_routing(experts)?,
            None => {
                let kind = options.routing_kind.unwrap_or(RoutingKind::Uniform);
                let popularity = generate::popularity(kind, options.seed, experts);
                Routing::Generated { kind, popularity }
            }
        };
        let config = MoeConfig::BF16
            .with_hidden(agreed(
                "--hidden",
                options.hidden,
                tokens.columns(),
                if shipped { SHIPPED_HIDDEN } else { 1024 },
            )?)
            .with_experts(experts)
            .with_top_k(agreed(
                "--top-k",
                options.top_k,
                routing.columns(),
                SHIPPED_TOP_K,
            )?)
            .with_max_tokens(options.tokens)
            .with_format(options.format.format())
            .with_layout(options.layout.layout())
            .with_failing_links(options.failing_links);
        config.check(options.ranks)?;
        let inputs = Self {
            config,
            ranks: options.ranks,
            seed: options.seed,
            description: describe(options, &tokens, &routing),
            tokens,
            routing,
        };
        inputs.check_tables(options)?;
        Ok(inputs)
    }

    /// Checks all rows of all tables, so that every rank finds the same error.
    fn check_tables(&self, options: &DemoOptions) -> Result<(), DemoError> {
        let Routing::Table { experts, weights } = &self.routing else {
            return Ok(());
        };
        check_routing(&experts.values, self.config.top_k, self.config.experts)?;
        let rows = |what: &str, rows: usize, want: usize| match rows == want {
            true => Ok(()),
            false => Err(DemoError::Option(format!(
                "the {what} has {rows} rows, the routing {want}; they must be as many"
            ))),
        };
        if let Tokens::Table(tokens) = &self.tokens {
            rows("tokens file", tokens.rows, experts.rows)?;
        }
        if let Some(weights) = weights {
            rows("weights file", weights.rows, experts.rows)?;
            if weights.columns != experts.columns {
                return Err(DemoError::Option(format!(
                    "the weights have {} columns, the routing {}; they must be as many",
                    weights.columns, experts.columns
                )));
            }
            if let Some(place) = weights.values.iter().position(|weight| !weight.is_finite()) {
                let name = options.weights.as_ref().map_or("weights", |_| "--weights");
                let (token, value) = (place / weights.columns, weights.values[place]);
                return Err(DemoError::Option(format!(
                    "{name}: token {token} has weight {value}; it must be finite"
                )));
            }
        }
        Ok(())
    }

    /// Returns the input of `rank` in `step`.
    pub(crate) fn batch(&self, step: u32, rank: u32) -> Batch {
        let config = &self.config;
        let (hidden, top_k) = (config.hidden as usize, config.top_k as usize);
        let tokens = config.max_tokens as usize;
        let first = (u64::from(step) * u64::from(self.ranks) + u64::from(rank)) * tokens as u64;
        let row = |i: usize, rows: usize| {
            let row = (first + i as u64) % rows as u64;
            usize::try_from(row).expect("below a usize")
        };
        let mut random = generate::stream(self.seed, step, rank);
        let x = match &self.tokens {
            Tokens::Table(table) => (0..tokens)
                .flat_map(|i| table.row(row(i, table.rows)))
                .copied()
                .collect(),
            Tokens::Generated => generate::tokens(&mut random, tokens * hidden),
        };
        let mut batch = Batch {
            x,
            ..Batch::default()
        };
        for i in 0..tokens {
            match &self.routing {
                Routing::Table { experts, weights } => {
                    batch.experts.extend(experts.row(row(i, experts.rows)));
                    match weights {
                        Some(weights) => batch.weights.extend(weights.row(row(i, weights.rows))),
                        #[expect(clippy::cast_precision_loss, reason = "at most 32")]
                        None => batch
                            .weights
                            .extend(std::iter::repeat_n(1.0 / top_k as f32, top_k)),
                    }
                }
                Routing::Generated { kind, popularity } => {
                    let chosen = generate::choices(&mut random, *kind, popularity, top_k);
                    batch.experts.extend(chosen);
                    batch.weights.extend(generate::weights(&mut random, top_k));
                }
            }
        }
        batch
    }
}

impl Tokens {
    fn columns(&self) -> Option<usize> {
        match self {
            Self::Table(table) => Some(table.columns),
            Self::Generated => None,
        }
    }
}

impl Routing {
    fn columns(&self) -> Option<usize> {
        match self {
            Self::Table { experts, .. } => Some(experts.columns),
            Self::Generated { .. } => None,
        }
    }
}

/// Returns whether the data that comes with the program can serve: the options name no files and no sizes that it does not have.
fn uses_shipped_data(options: &DemoOptions) -> bool {
    let files = [&options.tokens_file, &options.routing, &options.weights];
    files.iter().all(|file| file.is_none())
        && options.routing_kind.is_none()
        && options.hidden.is_none_or(|hidden| hidden == SHIPPED_HIDDEN)
        && options.top_k.is_none_or(|top_k| top_k == SHIPPED_TOP_K)
        && options
            .experts
            .is_none_or(|experts| SHIPPED_EXPERTS.contains(&experts))
}

fn shipped_routing(experts: u32) -> Result<Routing, DemoError> {
    let (routing, weights) = if experts == SHIPPED_EXPERTS[0] {
        (
            shipped!("routing_e64_k8.npy"),
            shipped!("weights_e64_k8.npy"),
        )
    } else {
        (
            shipped!("routing_e256_k8.npy"),
            shipped!("weights_e256_k8.npy"),
        )
    };
    Ok(Routing::Table {
        experts: npy::read_routing(routing.0, routing.1)?,
        weights: Some(npy::read_weights(weights.0, weights.1)?),
    })
}

/// Returns a size that a file decides, which an option may only repeat. Without a file it is the option or the default.
fn agreed(
    name: &str,
    option: Option<u32>,
    file: Option<usize>,
    default: u32,
) -> Result<u32, DemoError> {
    let Some(columns) = file else {
        return Ok(option.unwrap_or(default));
    };
    let columns = u32::try_from(columns).unwrap_or(u32::MAX);
    match option {
        Some(option) if option != columns => Err(DemoError::Option(format!(
            "{name} is {option}, but the file has {columns} columns"
        ))),
        _ => Ok(columns),
    }
}

fn describe(options: &DemoOptions, tokens: &Tokens, routing: &Routing) -> String {
    let tokens = match (tokens, &options.tokens_file) {
        (Tokens::Table(table), Some(path)) => format!("{} rows of {}", table.rows, path.display()),
        (Tokens::Table(table), None) => {
            format!(
                "{} activations of a transformer (crates/demo/data)",
                table.rows
            )
        }
        (Tokens::Generated, _) => format!("generated tokens (seed {})", options.seed),
    };
    let routing = match (routing, &options.routing) {
        (Routing::Table { .. }, Some(path)) => format!("routing of {}", path.display()),
        (Routing::Table { .. }, None) => "their skewed routing".to_owned(),
        (Routing::Generated { kind, .. }, _) => format!("{} routing", kind.in_words()),
    };
    format!("{tokens}, {routing}")
}

#[cfg(test)]
mod tests;
