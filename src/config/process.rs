//! The configuration of a process that takes part in a team.

use std::ffi::OsString;

use crate::config::devices::DeviceChoice;
use crate::config::error::ConfigError;
use crate::config::gid::GidChoice;
use crate::config::gpu::GpuSelector;
use crate::config::launcher::{self, Launcher};
use crate::config::setters::setters;
use crate::config::source::Source;
use crate::config::store;
use crate::config::team::{TeamSettings, holds_settings};

/// The configuration of a process that takes part in a team. [`Config::from_env`] reads it; a program may also fill it in. The settings of
/// the team can be used like fields of this struct: `config.rank` is `config.settings.rank`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// The settings that the ranks share.
    pub settings: TeamSettings,
    /// Rendezvous store, `file://DIRECTORY`, `etcd://HOST:PORT/PREFIX` or `etcds://..`: see [`open_store`](crate::team::open_store).
    /// `WARPVERBS_STORE`, with `WARPVERBS_STORE_CA`, `_CERT`, `_KEY` and `_SHARED` as its options.
    pub store: String,
    /// A text that tells runs apart that might meet in one store. `WARPVERBS_RUN_ID`, or the launcher's job number. Default `0`.
    pub run_id: String,
    /// Number of this rank among the ranks of its machine. `WARPVERBS_LOCAL_RANK`, or the launcher's variable. It chooses the GPU, and the
    /// NIC among equals. Default none, which counts as 0.
    pub local_rank: Option<u32>,
    /// RDMA devices, one for each rail: `mlx5_3`, `mlx5_3:2` (a port), `mlx5_0,mlx5_1`, `^mlx5_bond_0` (all but this) or `auto`, which
    /// takes the best device for the GPU. `WARPVERBS_DEVICE`. Default `auto`.
    pub device: DeviceChoice,
    /// The GID that the rank sends from: an index, a subnet such as `10.1.0.0/16`, an interface such as `ens3`, or `auto`. `WARPVERBS_GID`.
    /// Default `auto`.
    pub gid: GidChoice,
    /// The device that kernels run on. `WARPVERBS_GPU`: `auto`, `simt`, `simt-dmabuf` or the number of a GPU. Default `auto`.
    pub gpu: GpuSelector,
}

setters! {
    Config {
        with_settings(settings: TeamSettings),
        with_store(store: String),
        with_run_id(run_id: String),
        with_local_rank(local_rank: Option<u32>),
        with_device(device: DeviceChoice),
        with_gid(gid: GidChoice),
        with_gpu(gpu: GpuSelector),
    }
}

holds_settings! { Config }

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: TeamSettings::default(),
            store: String::new(),
            run_id: "0".to_owned(),
            local_rank: None,
            device: DeviceChoice::default(),
            gid: GidChoice::default(),
            gpu: GpuSelector::default(),
        }
    }
}

impl Config {
    /// Returns the configuration of this process, from its environment.
    ///
    /// # Errors
    /// [`ConfigError`] if a variable is no number in its range, or if no launcher has set a rank.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_variables(|name| std::env::var_os(name))
    }

    /// Returns the configuration from any source of variables, as `from_env` does from the environment.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_variables<T: Into<OsString>>(
        variable: impl Fn(&str) -> Option<T>,
    ) -> Result<Self, ConfigError> {
        Source::reading(variable, Self::read)
    }

    fn read(source: &Source<'_>) -> Result<Self, ConfigError> {
        let launcher = Launcher::of(source)?;
        let (rank, ranks) = launcher.place(source)?;
        Ok(Self {
            settings: TeamSettings::read(source, rank, ranks)?,
            store: store::url(source)?,
            run_id: launcher.job(source).unwrap_or_else(|| "0".to_owned()),
            local_rank: launcher::local_rank(source, ranks)?,
            device: source.parsed("WARPVERBS_DEVICE")?,
            gid: source.parsed("WARPVERBS_GID")?,
            gpu: source.read("WARPVERBS_GPU", GpuSelector::of_word)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let find = |name: &str| variables.iter().find(|(key, _)| *key == name);
        Config::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_variables_of_any_launcher_give_rank_and_number_of_ranks() {
        let torch = from(&[("RANK", "3"), ("WORLD_SIZE", "8"), ("SLURM_PROCID", "0")]).unwrap();
        assert_eq!((torch.rank, torch.ranks), (3, 8));
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_ID", "77"),
        ];
        assert_eq!(from(&slurm).unwrap().run_id, "77");
        let own = [
            ("WARPVERBS_RANK", "0"),
            ("WARPVERBS_RANKS", "2"),
            ("RANK", "5"),
            ("WORLD_SIZE", "9"),
        ];
        assert_eq!(from(&own).unwrap().ranks, 2);
    }

    #[test]
    fn the_variables_of_any_launcher_give_the_number_on_the_machine() {
        let local = |set: &[(&str, &str)]| from(set).map(|config| config.local_rank);
        for [rank, ranks, number] in [
            ["WARPVERBS_RANK", "WARPVERBS_RANKS", "WARPVERBS_LOCAL_RANK"],
            ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            [
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
            ],
            ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
            ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        ] {
            let set = [(rank, "9"), (ranks, "16"), (number, "1")];
            assert_eq!(local(&set), Ok(Some(1)), "{number}");
            assert_eq!(local(&set[..2]), Ok(None), "{number}");
            let bad = local(&[(rank, "9"), (ranks, "16"), (number, "16")]).unwrap_err();
            let wanted = format!("{number} is '16'; it must be a number from 0 to 15");
            assert_eq!(bad.to_string(), wanted);
        }
        // The program sets its ranks itself, and the launcher says the number on the machine. A launcher without its own rank counts for
        // nothing.
        let own = [("WARPVERBS_RANK", "0"), ("WARPVERBS_RANKS", "4")];
        let torch = [("RANK", "2"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "3")];
        assert_eq!(local(&[own.as_slice(), &torch].concat()), Ok(Some(3)));
        assert_eq!(local(&[own.as_slice(), &torch[2..]].concat()), Ok(None));
        let said = [("WARPVERBS_LOCAL_RANK", "1")];
        assert_eq!(local(&[torch.as_slice(), &said].concat()), Ok(Some(1)));
    }

    #[test]
    fn variables_of_the_store_are_options_of_its_url() {
        let url = |set: &[(&str, &str)]| {
            let rank = [("RANK", "0"), ("WORLD_SIZE", "1")];
            from(&[&rank, set].concat()).map(|config| config.store)
        };
        let store = |url| ("WARPVERBS_STORE", url);
        let shared = ("WARPVERBS_STORE_SHARED", "1");
        assert_eq!(
            url(&[store("file:///a"), shared]).unwrap(),
            "file:///a?shared"
        );
        assert_eq!(
            url(&[store("file:///a?shared"), shared]).unwrap(),
            "file:///a?shared"
        );
        assert_eq!(
            url(&[store("etcd://h:1/p"), shared]).unwrap(),
            "etcd://h:1/p"
        );
        let error = url(&[("WARPVERBS_STORE_SHARED", "yes")]).unwrap_err();
        assert!(error.to_string().contains("one of 0, 1"), "{error}");
        let files = [
            ("WARPVERBS_STORE_CA", "/etc/c a&b%.pem"),
            ("WARPVERBS_STORE_CERT", "/c"),
            ("WARPVERBS_STORE_KEY", "/k"),
        ];
        let with = |store| url(&[[store].as_slice(), &files].concat()).unwrap();
        assert_eq!(
            with(store("etcds://h:1/p")),
            "etcds://h:1/p?ca=/etc/c%20a%26b%25.pem&cert=/c&key=/k"
        );
        assert_eq!(
            with(store("etcds://h:1/p?key=/own")),
            "etcds://h:1/p?key=/own&ca=/etc/c%20a%26b%25.pem&cert=/c"
        );
        assert_eq!(
            with(store("etcd://h:1/p")),
            "etcd://h:1/p",
            "in plain text by its own word"
        );
    }

    #[test]
    fn what_is_not_set_has_its_default() {
        let config = from(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap();
        assert_eq!(config, Config::default());
    }

    #[test]
    fn a_value_out_of_its_range_is_named_with_the_range() {
        assert_eq!(from(&[]), Err(ConfigError::NoRank));
        let message = |name, value| {
            let set = [("RANK", "0"), ("WORLD_SIZE", "4"), (name, value)];
            from(&set).unwrap_err().to_string()
        };
        assert_eq!(
            message("WARPVERBS_LOG_DEPTH", "16"),
            "WARPVERBS_LOG_DEPTH is '16'; it must be a number from 8 to 15"
        );
        assert_eq!(
            message("WARPVERBS_DOORBELL", "bell"),
            "WARPVERBS_DOORBELL is 'bell'; it must be one of auto, record, no-record, mailbox"
        );
        assert_eq!(
            message("WARPVERBS_LOG_RECV_DEPTH", "3"),
            "WARPVERBS_LOG_RECV_DEPTH is '3'; it must be 0 or a number from 4 to 15"
        );
        assert_eq!(
            message("WARPVERBS_GPU", "gpu7"),
            "WARPVERBS_GPU: 'gpu7' is not `auto`, `simt`, `simt-dmabuf` or the number of a CUDA device"
        );
        assert!(
            message("WARPVERBS_DEVICE", "mlx5_0:0")
                .starts_with("WARPVERBS_DEVICE: RDMA devices 'mlx5_0:0': port '0' is not from 1")
        );
        assert!(message("WARPVERBS_GID", "10.0.0.0/40").contains("the prefix is not from 0 to 32"));
        let unknown = from(&[("RANK", "4"), ("WORLD_SIZE", "4")])
            .unwrap_err()
            .to_string();
        assert_eq!(unknown, "RANK is '4'; it must be a number from 0 to 3");
    }
}
