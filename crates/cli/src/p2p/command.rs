//! The command line of `wv p2p`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use warpverbs::config::EngineConfig;
use warpverbs::engine::{EngineAddress, Publication};
use warpverbs::team::{Store, open_store};

use super::client::{Client, Copied};
use super::error::P2pError;
use super::figures::{EngineFigures, devices_line};
use super::server::{AT_ONCE, MOST_AT_ONCE, News, SERVERS, ServerOptions, serve};
use crate::number;
use crate::output;
use crate::store;

/// The address at which a server listens by default.
const LISTEN: EngineAddress =
    EngineAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7418));

/// The name of the command in its messages.
const NAME: &str = "wv p2p";

/// What to do.
#[derive(Subcommand)]
pub enum P2pCommand {
    /// Let others put files into a directory, and get them from it
    Serve(ServeArgs),
    /// Put a file into the directory of a server
    Put(PutArgs),
    /// Get a file from the directory of a server
    Get(GetArgs),
}

/// Which HCA, and how patient.
#[derive(Args)]
struct Common {
    /// Name of the engine of this process, 1 to 255 bytes: what WARPVERBS_ENGINE_ALLOW lists at the other end. One engine of a name
    /// connects at a time [default: a random one, p2p-..]
    #[arg(long, value_name = "NAME")]
    engine_name: Option<String>,
    /// RDMA device [default: what WARPVERBS_DEVICE says, else the best one]
    #[arg(long)]
    device: Option<String>,
    /// File with the key that both ends have: 32 bytes or 64 hexadecimal digits. Only its user may read it [default: what
    /// WARPVERBS_ENGINE_KEY_FILE says, else none]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Store in which servers have names: file://DIRECTORY or etcd://HOST:PORT/PREFIX. put and get then take the server's name in
    /// place of its address
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Longest wait for the other end, in seconds
    #[arg(long, default_value_t = 30, value_parser = number::seconds())]
    timeout: u64,
    /// Print what the engine of this process has done at the end, too
    #[arg(long)]
    statistics: bool,
    /// Print the result at the end as JSON, with what the engine of this process has done
    #[arg(long)]
    json: bool,
}

/// Options of `wv p2p serve`.
#[derive(Args)]
pub struct ServeArgs {
    /// Directory that clients put files into and get files from
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Address at which the server listens: a port, where 0 takes a free one, or a Unix socket. Every user of the machine reaches a port
    /// of loopback, and only this user the Unix socket; put it into a directory of your own [default: what WARPVERBS_ENGINE_LISTEN
    /// says, else 127.0.0.1:7418]
    #[arg(long, value_name = "IP:PORT|unix:PATH", value_parser = number::socket())]
    listen: Option<EngineAddress>,
    /// Name by which clients find the server in the store of --store
    #[arg(long, requires = "store")]
    name: Option<String>,
    /// Serve other machines, too, without a key that a client must have
    #[arg(long)]
    insecure: bool,
    /// End after so many puts and gets. Connections that ask for neither do not count, nor do refused requests beyond --at-once
    #[arg(long, value_parser = number::any::<u64>())]
    requests: Option<u64>,
    /// Most puts and gets at a time, each of which takes 4 MiB of registered memory. One more is refused
    #[arg(long, value_name = "COUNT", default_value_t = AT_ONCE, value_parser = number::within(1..=MOST_AT_ONCE))]
    at_once: usize,
    #[command(flatten)]
    common: Common,
}

/// Options of `wv p2p put`.
#[derive(Args)]
pub struct PutArgs {
    /// Address of the server; with --store, its name
    #[arg(value_name = "HOST:PORT|unix:PATH")]
    server: String,
    /// Path of the file
    file: PathBuf,
    /// Its name at the server [default: its own]
    name: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Options of `wv p2p get`.
#[derive(Args)]
pub struct GetArgs {
    /// Address of the server; with --store, its name
    #[arg(value_name = "HOST:PORT|unix:PATH")]
    server: String,
    /// Its name at the server
    name: String,
    /// Path of the copy [default: its name, in the working directory]
    file: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Runs `wv p2p`.
#[must_use]
pub fn run(command: &P2pCommand) -> ExitCode {
    let done = match command {
        P2pCommand::Serve(args) => run_serve(args).map(|()| String::new()),
        P2pCommand::Put(args) => run_put(args),
        P2pCommand::Get(args) => run_get(args),
    };
    match done {
        Ok(text) => output::finish(NAME, &text),
        Err(error) => {
            output::say(format_args!("{NAME}: {error}"));
            ExitCode::FAILURE
        }
    }
}

impl Common {
    /// Returns the configuration of the engine of this process, by its variables, except where options say otherwise.
    fn config(&self) -> Result<EngineConfig, P2pError> {
        let random = || format!("p2p-{:016x}", fastrand::u64(..));
        let name = self.engine_name.clone().unwrap_or_else(random);
        let variable = |variable: &str| match (variable, &self.device) {
            ("WARPVERBS_DEVICE", Some(device)) => Some(device.into()),
            _ => std::env::var_os(variable),
        };
        let config = EngineConfig::from_variables(&name, variable)?;
        let file = self.key_file.clone().or(config.key_file.clone());
        Ok(config.with_key_file(file).with_drain(self.timeout()))
    }

    /// Returns what is printed at the end: the result and, if asked for, what the engine has done.
    fn end(&self, text: String, mut fields: Value, engine: &EngineFigures) -> String {
        match (self.json, self.statistics) {
            (true, _) => {
                fields["engine"] = json!(engine);
                format!("{fields:#}\n")
            }
            (false, true) => format!("{text}{engine}"),
            (false, false) => text,
        }
    }

    /// Returns the store that the options name, if any.
    fn opened(&self) -> Result<Option<Arc<dyn Store>>, P2pError> {
        let Some(url) = &self.store else {
            return Ok(None);
        };
        let config = store::configured(Some(url))?;
        Ok(Some(open_store(&config.store, &config.run_id)?))
    }

    /// Returns the place at which a server listens. `server` is that place, or the server's name in the store.
    fn place(&self, server: &str) -> Result<String, P2pError> {
        match self.opened()? {
            Some(store) => Ok(Publication::find(store.as_ref(), SERVERS, server)?),
            None => Ok(server.to_owned()),
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.max(1))
    }
}

fn run_serve(args: &ServeArgs) -> Result<(), P2pError> {
    let config = args.common.config()?.with_insecure(args.insecure);
    let configured = match std::env::var_os("WARPVERBS_ENGINE_LISTEN") {
        Some(_) => config.listen.clone(),
        None => LISTEN,
    };
    let named = args.name.clone();
    let published = args.common.opened()?.zip(named);
    let options = ServerOptions {
        directory: args.directory.clone(),
        listen: args.listen.clone().unwrap_or(configured),
        requests: args.requests,
        at_once: args.at_once,
        timeout: args.common.timeout(),
        published,
    };
    let directory = args.directory.display();
    serve(config, &options, &|news| match news {
        News::Serves(place, devices) => {
            let devices = devices_line(devices);
            let text = format!("serving {directory} at {place}\n{devices}");
            if let Err(error) = output::print(&text) {
                output::say(format_args!("{NAME}: {error}"));
            }
        }
        // These errors name the client.
        News::Failed(_, error @ (P2pError::Other { .. } | P2pError::Gone { .. })) => {
            output::say(format_args!("{NAME}: {error}"));
        }
        News::Failed(from, error) => output::say(format_args!("{NAME}: {from}: {error}")),
        News::Pauses(error) => output::say(format_args!(
            "{NAME}: takes no connection for now, and asks the system again: {error}"
        )),
        News::Ends(engine) => {
            if let Err(error) = output::print(&args.common.end(String::new(), json!({}), engine)) {
                output::say(format_args!("{NAME}: {error}"));
            }
        }
    })
}

fn run_put(args: &PutArgs) -> Result<String, P2pError> {
    let own = args.file.file_name().and_then(|name| name.to_str());
    let name = args.name.as_deref().or(own).unwrap_or_default();
    let place = args.common.place(&args.server)?;
    let client = Client::connect(args.common.config()?, &place, args.common.timeout())?;
    let begin = Instant::now();
    let copied = client.put(&args.file, name)?;
    Ok(told(
        &args.common,
        ("put", &args.file),
        &copied,
        begin.elapsed(),
    ))
}

fn run_get(args: &GetArgs) -> Result<String, P2pError> {
    let file = args
        .file
        .clone()
        .unwrap_or_else(|| PathBuf::from(&args.name));
    let place = args.common.place(&args.server)?;
    let client = Client::connect(args.common.config()?, &place, args.common.timeout())?;
    let begin = Instant::now();
    let copied = client.get(&args.name, &file)?;
    Ok(told(&args.common, ("got", &file), &copied, begin.elapsed()))
}

fn told(common: &Common, (what, file): (&str, &Path), copied: &Copied, time: Duration) -> String {
    let Copied {
        bytes,
        engine,
        devices,
    } = copied;
    let (file, seconds) = (file.display().to_string(), time.as_secs_f64());
    let text = format!(
        "{what} {file}: {bytes} bytes in {seconds:.3} s, their sum is the same at both ends\n{devices}"
    );
    let fields = json!({ "file": file, "bytes": bytes, "seconds": seconds });
    common.end(text, fields, engine)
}
