//! The devices of the ranks of a demo: software HCAs or RDMA devices of the machine, and the GPUs on which kernels run.

use std::collections::BTreeSet;
use std::env::{self, VarError};
use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use crate::error::DemoError;
use crate::messages::Spec;
use crate::options::DemoOptions;
use warpverbs::config::{BadGid, Config, DeviceChoice, GidChoice};
use warpverbs::gpu::{self, GpuSelector};
use warpverbs::team::RankDevices;
use warpverbs::verbs::{Context, DeviceSelector, VerbsError};
use warpverbs_cli::launched::Job;
use warpverbs_cli::{output, sim};

/// The value of `--device` with which a kernel of the GPU is the HCA of all ranks.
pub(crate) const GPUHCA: &str = "gpuhca";

/// The HCAs of the ranks.
pub(crate) enum Device {
    /// Software HCAs, which this `LD_PRELOAD` provides.
    Soft(OsString),
    /// RDMA devices of this machine, as `--device` names them.
    Real(String),
}

impl Device {
    /// Returns the HCAs that `--device` means for `ranks` ranks. `auto` takes software HCAs if no RDMA device can be used, and says why
    /// none can.
    pub(crate) fn choose(option: &str, ranks: u32) -> Result<Self, DemoError> {
        if option == "sim" {
            return Self::soft();
        }
        // `auto` cannot be part of a list.
        choice(option)?;
        if !is_auto(option) {
            let names: BTreeSet<String> = (0..ranks)
                .map(|rank| of_rank("--device", option, rank, ranks))
                .collect::<Result<_, _>>()?;
            for name in names {
                open(choice(&name)?, GpuSelector::Simt, 0)?;
            }
            return Ok(Self::Real(option.to_owned()));
        }
        match open(choice(option)?, GpuSelector::Simt, 0) {
            Ok(_) => Ok(Self::Real(option.to_owned())),
            Err(DemoError::Device(error)) => match error.downcast_ref() {
                Some(VerbsError::NoDevice { found, .. }) => {
                    for reason in found {
                        output::say(format_args!("wv demo: passes over {reason}"));
                    }
                    Self::soft()
                }
                _ => Err(DemoError::Device(error)),
            },
            Err(error) => Err(error),
        }
    }

    fn soft() -> Result<Self, DemoError> {
        Ok(Self::Soft(sim::preload_for_ranks()?))
    }

    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Soft(_) => "software HCAs, one per rank".to_owned(),
            Self::Real(option) if is_auto(option) => {
                "RDMA devices of this machine, the best one for each rank".to_owned()
            }
            Self::Real(option) => format!("RDMA device {option}"),
        }
    }

    /// Returns the `--device` of the ranks, or None for software HCAs.
    pub(crate) fn option(&self) -> Option<String> {
        match self {
            Self::Soft(_) => None,
            Self::Real(option) => Some(option.clone()),
        }
    }

    pub(crate) fn preload(&self) -> Option<&OsString> {
        match self {
            Self::Soft(preload) => Some(preload),
            Self::Real(_) => None,
        }
    }
}

/// Refuses a `--gpu` that `ranks` ranks cannot use.
pub(crate) fn check_gpus(option: &str, ranks: u32) -> Result<(), DemoError> {
    (0..ranks).try_for_each(|rank| selector(option, rank, ranks).map(drop))
}

/// Returns the devices of a rank that is a process of its own.
pub(crate) fn open_for(spec: &Spec, rank: u32, ranks: u32) -> Result<RankDevices, DemoError> {
    let device = match (&spec.device, spec.rails) {
        (None, 1) => DeviceChoice::default(),
        (None, rails) => choice(&mlx5_names(rails))?,
        (Some(option), _) if is_auto(option) => choice(option)?,
        (Some(option), _) => choice(&of_rank("--device", option, rank, ranks)?)?,
    };
    let gpu = selector(&spec.options.gpu, rank, ranks)?;
    open(device, in_turn(gpu, rank)?, rank)
}

/// Returns the devices of a rank of a launcher's job. The options name them, or else the environment does.
pub(crate) fn open_launched(options: &DemoOptions, job: &Job) -> Result<RankDevices, DemoError> {
    let config = &job.config;
    let (rank, ranks) = (config.rank, config.ranks);
    let mut config = config.clone();
    match options.device.as_str() {
        // A rank that was started with `--inside` has its software HCA and no other device.
        "auto" | "sim" => {}
        option if is_auto(option) => config.device = choice(option)?,
        option => config.device = choice(&of_rank("--device", option, rank, ranks)?)?,
    }
    if options.gpu != "auto" {
        config.gpu = selector(&options.gpu, rank, ranks)?;
    }
    Ok(job.open_devices(&config)?)
}

/// Returns the HCA of a rank that is a thread of this process, which has an HCA for each rank.
pub(crate) fn open_own_of(rank: u32) -> Result<Arc<Context>, DemoError> {
    let selector = DeviceSelector::Name(format!("mlx5_{rank}"));
    Ok(Context::open(&selector)?)
}

fn open(device: DeviceChoice, gpu: GpuSelector, rank: u32) -> Result<RankDevices, DemoError> {
    let config = Config::default()
        .with_local_rank(Some(rank))
        .with_device(device)
        .with_gid(gid()?)
        .with_gpu(gpu);
    Ok(RankDevices::open(&config)?)
}

/// Returns the GID that the environment chooses.
fn gid() -> Result<GidChoice, DemoError> {
    let refused = |error: &dyn fmt::Display| DemoError::Option(format!("WARPVERBS_GID: {error}"));
    match env::var("WARPVERBS_GID") {
        Ok(named) => named.parse().map_err(|error: BadGid| refused(&error)),
        Err(VarError::NotPresent) => Ok(GidChoice::default()),
        Err(error) => Err(refused(&error)),
    }
}

/// Returns the GPU of a rank. If any may be taken, the ranks take the GPUs in turn, because all are on this machine and may be more than
/// GPUs.
fn in_turn(gpu: GpuSelector, rank: u32) -> Result<GpuSelector, DemoError> {
    if gpu != GpuSelector::Auto {
        return Ok(gpu);
    }
    let visible = u32::try_from(gpu::visible()?.len()).unwrap_or(u32::MAX);
    Ok(match rank.checked_rem(visible) {
        Some(ordinal) => GpuSelector::Cuda(ordinal),
        None => GpuSelector::Auto,
    })
}

fn selector(option: &str, rank: u32, ranks: u32) -> Result<GpuSelector, DemoError> {
    let word = of_rank("--gpu", option, rank, ranks)?;
    word.parse()
        .map_err(|error| DemoError::Option(format!("--gpu: {error}")))
}

fn choice(text: &str) -> Result<DeviceChoice, DemoError> {
    text.parse()
        .map_err(|error| DemoError::Option(format!("--device: {error}")))
}

/// Returns whether `option` lets each rank look for the best device itself.
fn is_auto(option: &str) -> bool {
    option == "auto" || option.starts_with('^')
}

fn mlx5_names(count: u32) -> String {
    let names: Vec<_> = (0..count).map(|number| format!("mlx5_{number}")).collect();
    names.join(",")
}

/// Returns the entry of a list for one rank. The ranks take the entries in turn, and each entry must get as many ranks as any other.
fn of_rank(option: &str, list: &str, rank: u32, ranks: u32) -> Result<String, DemoError> {
    let entries: Vec<&str> = list.split(',').map(str::trim).collect();
    let is_shared = (ranks as usize).is_multiple_of(entries.len());
    if !is_shared {
        return Err(DemoError::Option(format!(
            "{option} names {} for {ranks} ranks, which cannot share them evenly: name 1, {ranks}, or a number that divides {ranks}",
            entries.len()
        )));
    }
    Ok(entries[rank as usize % entries.len()].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_take_the_entries_of_a_list_in_turn() {
        let of = |list: &str, ranks| -> Result<Vec<String>, String> {
            let each = (0..ranks).map(|rank| of_rank("--gpu", list, rank, ranks));
            each.collect::<Result<_, _>>()
                .map_err(|error| error.to_string())
        };
        assert_eq!(of("0,1,2,3", 4).unwrap(), ["0", "1", "2", "3"]);
        assert_eq!(
            of("mlx5_0, mlx5_1", 4).unwrap(),
            ["mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1"]
        );
        assert_eq!(of("auto", 3).unwrap(), ["auto"; 3]);
        for (list, ranks) in [("0,1,2", 4), ("0,1,2,3", 2), ("0,1", 3), ("0,1", 1)] {
            let error = of(list, ranks).unwrap_err();
            assert!(error.contains(&format!("for {ranks} ranks")), "{error}");
        }
    }

    #[test]
    fn lists_that_do_not_fit_are_errors_of_the_command_line() {
        assert!(check_gpus("0,1,2,3", 4).is_ok() && check_gpus("simt", 7).is_ok());
        for option in ["0,1,2", "0,x", "0,", "^0"] {
            assert!(check_gpus(option, 4).unwrap_err().is_input(), "{option}");
        }
        let devices = |option| Device::choose(option, 4).map(|device| device.in_words());
        for option in ["mlx5_0,mlx5_1,mlx5_2", "mlx5_0:0", "", "^", "mlx5_0,auto"] {
            let error = devices(option).unwrap_err();
            assert!(error.is_input(), "{option}: {error}");
        }
    }
}
