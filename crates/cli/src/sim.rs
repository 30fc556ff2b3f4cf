//! `wv sim -- COMMAND`: runs a program that was built for real NICs on software HCAs.
//!
//! The program is started with `libsofthca.so` preloaded, and finds `mlx5_0` through its own libibverbs. `wv` stays as its parent, to
//! remove what it leaves. `wv` owns a private directory (`SOFTHCA_DIR`) in which each process of the program makes the sysfs tree of its
//! HCAs. `wv` removes the directory when it returns, however the program ended. If `wv` itself is killed, so is the program, and the next
//! start of `wv` removes the directory.
//!
//! The loader ignores a preloaded library for some programs (setuid, static, another architecture). Such a program would find no
//! device without a reason, so `wv` refuses it.

mod child;
mod executable;
mod findings;
mod settings;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use thiserror::Error;

use super::number;
use super::output;
use super::softhca_library::{self, LibraryError};
use super::tied;
use child::Ending;
pub(super) use child::end_likewise;
use executable::ExecutableError;
use private_dir::{PrivateDir, PrivateDirError};
use settings::SettingsError;

/// The exit status of a run with `--check` whose checker has findings.
const FOUND: u8 = 123;

/// Run COMMAND with software HCAs in place of real ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each process of COMMAND that looks for RDMA devices finds HCAs of its own, mlx5_0 and on, reachable by RoCEv2 over
UDP from the others. Its exit status, or the signal that ended it, is that of wv. With --check it is 123 if the checker has
findings. If COMMAND cannot be run the status is 127 (not found), 126 (refused) or 125 (wv itself failed, or findings are lost).")]
pub struct SimArgs {
    /// HCAs per process
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::within(1_u32..=64))]
    pub devices: u32,

    /// IPv4 address of mlx5_0, the next devices take those above it [default: free ones of 127.0.0.0/8]
    #[arg(long, value_name = "A.B.C.D")]
    pub ip: Option<Ipv4Addr>,

    /// Ports of each device, 1 or 2, each with an address of its own [default: 1]
    #[arg(long, value_name = "N")]
    pub ports: Option<String>,

    /// Each device has an address of this /96 in addition, with its IPv4 address in the last bits, as GID 4. With the carrier
    /// udp this machine must have it: ip -6 route add local fd00:5::/96 dev lo
    #[arg(long, value_name = "SUBNET", verbatim_doc_comment)]
    pub ipv6: Option<String>,

    /// Faults to inject: drop=1%,dup=0.5%,reorder=1%,corrupt=0.1%,delay=50us..2ms@5%,partition=A.B.C.D,
    /// cmd=CREATE_QP#2:status=0x5,enomem=CREATE_CQ#1,cqe=wqe#100:syndrome=0x15,cqe=drop#50,cqe=delay#50:10ms,
    /// port-down@2s,port-up@3s,port-down=2@2s,freeze@1s+200ms,fatal@5s. Add seed=N for other chances
    #[arg(long, value_name = "SPEC", verbatim_doc_comment)]
    pub fault: Option<String>,

    /// Card that the devices look like: cx5, cx6, cx6dx, cx7, bf3, cx7-lag or cx7-lag-hash [default: cx7]. A cx5 has no masked
    /// atomics, one read at once and no doorbells without a record. The last two aggregate two ports: each QP of cx7-lag names its port, a
    /// hash chooses it for cx7-lag-hash
    #[arg(long, value_name = "CARD")]
    pub profile: Option<String>,

    /// Link layer: eth (RoCE v2), or ib, where an address A.B.C.D has the LID C.D and reaches LIDs of the same A.B
    /// [default: eth]
    #[arg(long, value_name = "LINK", verbatim_doc_comment)]
    pub link: Option<String>,

    /// LMC of the port, with the link layer ib: it has 2^LMC LIDs, and the device an address for each, 0 to 7 [default: 0]
    #[arg(long, value_name = "LMC")]
    pub lmc: Option<String>,

    /// Partition keys of the port, with the link layer ib: 0xffff,0x8001 [default: 0xffff]
    #[arg(long, value_name = "LIST")]
    pub pkeys: Option<String>,

    /// Checks that cost time, in addition to the others: wqe, overlap or all; quiet prints no finding. A run that ends with findings
    /// has the status 123
    #[arg(long, value_name = "LIST", verbatim_doc_comment)]
    pub check: Option<String>,

    /// With --check: the status is that of COMMAND, whatever was found
    #[arg(long, requires = "check")]
    pub keep_status: bool,

    /// Write what crosses the wire to FILE, as pcapng; further devices and processes take FILE.2 and on
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,

    /// Carrier of packets: udp, frames:ADDRESS:PORT,ADDRESS:PORT or packet:INTERFACE [default: udp]
    #[arg(long, value_name = "CARRIER")]
    pub carrier: Option<String>,

    /// The executor of WQEs, for commands of `wv` itself
    #[arg(skip)]
    pub execution: Option<&'static str>,

    /// Print what a device has and lacks, and run nothing
    #[arg(long)]
    pub list_capabilities: bool,

    /// The program and its arguments
    #[arg(
        required_unless_present = "list_capabilities",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

impl SimArgs {
    /// Returns the arguments that run `command` with `devices` HCAs and default settings.
    pub(super) fn plain(devices: u32, command: Vec<OsString>) -> Self {
        Self {
            devices,
            ip: None,
            ports: None,
            ipv6: None,
            fault: None,
            profile: None,
            link: None,
            lmc: None,
            pkeys: None,
            check: None,
            keep_status: false,
            pcap: None,
            carrier: None,
            execution: None,
            list_capabilities: false,
            command,
        }
    }

    /// As `plain`, but an executor that `command` attaches runs the WQEs of the HCAs.
    pub(super) fn external(devices: u32, command: Vec<OsString>) -> Self {
        Self {
            execution: Some("external"),
            ..Self::plain(devices, command)
        }
    }
}

/// Why a command could not be run.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct SimError(#[from] Cause);

#[derive(Debug, Error)]
enum Cause {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("the path {} holds a space or colon, which LD_PRELOAD cannot express", .path.display())]
    LibraryPath { path: PathBuf },
    #[error("{file} cannot be loaded ({}); install it: apt-get install {package}", child::loader_message(.reason))]
    Missing {
        file: &'static str,
        package: &'static str,
        reason: libloading::Error,
    },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Executable(#[from] ExecutableError),
    #[error(transparent)]
    Dir(#[from] PrivateDirError),
    #[error("cannot run {}: {source}", .command.display())]
    Run { command: PathBuf, source: io::Error },
    #[error(transparent)]
    Findings(#[from] findings::Lost),
}

impl SimError {
    /// Returns the exit status that says whose fault it was, with the values of `env(1)`.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match &self.0 {
            Cause::Executable(ExecutableError::NotFound { .. }) => 127,
            Cause::Executable(_) | Cause::Run { .. } => 126,
            _ => 125,
        }
    }
}

/// Runs the command until it ends.
///
/// If a signal ended it, the same signal ends this process, and this function does not return.
///
/// # Errors
///
/// The command could not be run.
pub fn run(args: &SimArgs) -> Result<ExitCode, SimError> {
    if args.list_capabilities {
        let library = softhca_library::find().map_err(Cause::from)?;
        let text = settings::capabilities(&library).map_err(Cause::from)?;
        return Ok(output::finish("wv sim", &text));
    }
    let ending = run_to_the_end(args)?;
    match ending {
        Ending::Exited(status) => Ok(ExitCode::from(status)),
        Ending::Signalled(signal) => end_likewise(signal),
    }
}

fn run_to_the_end(args: &SimArgs) -> Result<Ending, Cause> {
    let [name, arguments @ ..] = args.command.as_slice() else {
        return Err(ExecutableError::NotFound {
            name: OsString::new(),
        }
        .into());
    };
    let library = softhca_library::find()?;
    let preload = preload(&library, env::var_os("LD_PRELOAD").as_deref())?;
    let variables = settings::variables(args)?;
    settings::check(&library, &variables)?;
    let program = executable::resolve(name)?;
    executable::check(&program)?;
    check_packages()?;

    private_dir::sweep(&private_dir::standard_parent());
    let dir =
        Removed(PrivateDir::create(&private_dir::standard_parent().join(
            format!("s{}-{:08x}", std::process::id(), fastrand::u32(..)),
        ))?);
    let found = dir.0.path().join("findings");
    findings::begin(&found)?;
    let mut command = Command::new(&program);
    child::set_name(&mut command, name);
    command
        .args(arguments)
        .env("LD_PRELOAD", preload)
        .env("SOFTHCA_DIR", dir.0.path())
        .env("SOFTHCA_FINDINGS", &found)
        .envs(variables);
    tied::tie(&mut command);
    let ending = child::run(command).map_err(|source| Cause::Run {
        command: program,
        source,
    })?;
    let Some(line) = findings::summary(&found)? else {
        return Ok(ending);
    };
    output::say(format_args!("{line}"));
    Ok(match ending {
        Ending::Exited(_) if args.check.is_some() && !args.keep_status => Ending::Exited(FOUND),
        ending => ending,
    })
}

/// Returns the `LD_PRELOAD` that gives a process of this program software HCAs of its own.
pub(super) fn preload_for_ranks() -> Result<OsString, SimError> {
    let library = softhca_library::find().map_err(Cause::from)?;
    check_packages()?;
    Ok(preload(&library, env::var_os("LD_PRELOAD").as_deref())?)
}

/// A directory that is removed when this is dropped.
struct Removed(PrivateDir);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Returns the value of `LD_PRELOAD`: our library, and after it the old value.
fn preload(library: &Path, before: Option<&OsStr>) -> Result<OsString, Cause> {
    let name = library.as_os_str();
    if name
        .as_encoded_bytes()
        .iter()
        .any(|byte| b": ".contains(byte))
    {
        return Err(Cause::LibraryPath {
            path: library.to_path_buf(),
        });
    }
    let mut value = name.to_os_string();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// Checks that the libraries are here that the program needs to find any device.
fn check_packages() -> Result<(), Cause> {
    const NEEDED: [(&str, &str); 2] = [
        ("libibverbs.so.1", "libibverbs1"),
        ("libmlx5.so.1", "ibverbs-providers"),
    ];
    for (file, package) in NEEDED {
        child::can_load(file).map_err(|reason| Cause::Missing {
            file,
            package,
            reason,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_goes_before_other_preloads() {
        let preloaded = |before: &str| {
            preload(Path::new("/x/libsofthca.so"), Some(OsStr::new(before)))
                .unwrap()
                .into_string()
                .unwrap()
        };
        assert_eq!(preloaded(""), "/x/libsofthca.so");
        assert_eq!(preloaded("/a.so b.so"), "/x/libsofthca.so:/a.so b.so");
        for path in ["/my files/libsofthca.so", "/a:b/libsofthca.so"] {
            assert!(preload(Path::new(path), None).is_err(), "{path}");
        }
    }

    #[test]
    fn the_missing_package_is_named() {
        let reason = child::can_load("libdoesnotexist.so.7").unwrap_err();
        let error = SimError(Cause::Missing {
            file: "libmlx5.so.1",
            package: "ibverbs-providers",
            reason,
        });
        let text = error.to_string();
        assert!(text.starts_with("libmlx5.so.1 cannot be loaded"), "{text}");
        assert!(text.contains("No such file"), "{text}");
        assert!(
            text.ends_with("install it: apt-get install ibverbs-providers"),
            "{text}"
        );
        assert_eq!(error.exit_status(), 125);
    }
}
