//! The server of `wv p2p`: a directory, and an engine in whose memory clients write and read.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use warpverbs::engine::{
    Accepted, Engine, EngineAddress, EngineConfig, EngineDevice, EngineKey, HostMemory, Listener,
    Publication, RegionId, Shortage,
};
use warpverbs::error::ThreadRefused;
use warpverbs::team::Store;

use super::door::{Door, Limits, Visit};
use super::error::P2pError;
use super::figures::EngineFigures;
use super::files::{self, Links, Source, Target, place};
use super::requests::{Answer, Connection, End, Lines, Request, VERSION};
use super::window::{SLOT, SLOTS, due};

/// The key of a store under which servers are found by name.
pub(super) const SERVERS: &str = "p2p";
/// The most requests that a server serves at a time by default. Each takes a window of 4 MiB.
pub(super) const AT_ONCE: usize = 64;
/// The largest value of the option that replaces [`AT_ONCE`]. It makes 16 GiB of windows.
pub(super) const MOST_AT_ONCE: usize = 4096;

/// How a server works.
#[derive(Clone, Debug)]
pub(super) struct ServerOptions {
    /// The directory that clients put files into and get files from.
    pub(super) directory: PathBuf,
    /// The address at which clients send requests.
    pub(super) listen: EngineAddress,
    /// The number of taken requests after which the server ends, whatever became of them. None: it does not end.
    pub(super) requests: Option<u64>,
    /// The most requests at a time. A further one is refused.
    pub(super) at_once: usize,
    /// The longest wait for a client.
    pub(super) timeout: Duration,
    /// A store, and the name under which clients find this server in it. None: clients find it by its address alone.
    pub(super) published: Option<(Arc<dyn Store>, String)>,
}

/// News of a server for its user.
#[derive(Debug)]
pub(super) enum News<'a> {
    /// The server serves now, and clients send requests to this address. Its engine is on these devices.
    Serves(&'a EngineAddress, &'a [EngineDevice]),
    /// A request of this client has failed, or its conversation had none.
    Failed(&'a str, &'a P2pError),
    /// The system has no descriptor, thread or memory for a connection, so the server takes no connection for a while.
    Pauses(&'a io::Error),
    /// The server has answered its last request. Its engine has done this.
    Ends(&'a EngineFigures),
}

/// Serves by an engine of this configuration, and gives `tell` the news for the user.
///
/// # Errors
/// A failure because of which the server cannot serve. A failure of one client goes to that client and to `tell`.
pub(super) fn serve(
    config: EngineConfig,
    options: &ServerOptions,
    tell: &(dyn Fn(&News<'_>) + Sync),
) -> Result<(), P2pError> {
    let directory = &options.directory;
    let found = std::fs::metadata(directory).and_then(|facts| match facts.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    found.map_err(files::failed(directory))?;
    let key = Engine::read_key(&config)?;
    let devices = Engine::open_nics(&config)?;
    let engine = Engine::on(&devices, config.with_key(key.clone()))?;
    let failed = |source| P2pError::File {
        path: options.listen.to_string(),
        source,
    };
    let listener = Listener::bind(&options.listen)?;
    let at_engine = engine.listen(beside(&options.listen)?)?;
    let limits = Limits {
        requests: options.requests,
        at_once: options.at_once,
    };
    let door = Door::new(limits).map_err(failed)?;
    let own = listener.address();
    let published = options.published.as_ref();
    let published = published.map(|(store, name)| Publication::new(store, SERVERS, name, own));
    let published = published.transpose()?;
    tell(&News::Serves(own, &devices));
    let server = Server {
        engine,
        at_engine,
        key,
        options,
    };
    thread::scope(|scope| {
        let mut shortage = Shortage::default();
        while !door.is_over() {
            let pause = shortage.pause();
            let comes = pause.is_none().then(|| listener.as_fd());
            if let Err(error) = door.wait(comes, pause) {
                door.close();
                return Err(failed(error));
            }
            let begun = listener.accept().and_then(|accepted| {
                let Some(Accepted { stream, from }) = accepted else {
                    return Ok(());
                };
                let connection = Connection::new(stream)?;
                let visit = door.enter(connection.handle(), from.clone());
                let server = &server;
                let body = move || {
                    if let Err(error) = server.answer(connection, visit) {
                        tell(&News::Failed(&from, &error));
                    }
                };
                let name = "wv-p2p";
                let thread = thread::Builder::new().name(name.to_owned());
                let thread = thread.spawn_scoped(scope, body);
                let refused = |cause| ThreadRefused::new(name, &cause).into();
                thread.map(drop).map_err(refused)
            });
            if let Some(error) = shortage.after(begun) {
                tell(&News::Pauses(&error));
            }
        }
        door.close();
        Ok::<(), P2pError>(())
    })?;
    drop(published);
    let _ = server.engine.close();
    tell(&News::Ends(&EngineFigures::of(&server.engine, &devices)));
    Ok(())
}

/// Returns the address at which the engine listens, for a server that listens at `listen`.
fn beside(listen: &EngineAddress) -> Result<EngineAddress, P2pError> {
    match listen {
        EngineAddress::Tcp(address) => Ok(SocketAddr::new(address.ip(), 0).into()),
        EngineAddress::Unix(path) => {
            let mut beside = path.as_path().as_os_str().to_owned();
            beside.push(".engine");
            EngineAddress::unix(beside).map_err(|error| P2pError::Other {
                place: listen.to_string(),
                reason: format!("its engine listens beside it, at that path and .engine: {error}"),
            })
        }
    }
}

struct Server<'a> {
    engine: Engine,
    at_engine: EngineAddress,
    key: Option<EngineKey>,
    options: &'a ServerOptions,
}

/// Memory that one client writes or reads while its request lasts.
struct Window<'a> {
    memory: Arc<HostMemory>,
    region: RegionId,
    engine: &'a Engine,
}

impl<'a> Window<'a> {
    fn new(engine: &'a Engine) -> Result<Self, P2pError> {
        let memory = Arc::new(HostMemory::new(SLOT * SLOTS)?);
        let region = engine.register(&memory)?;
        Ok(Self {
            memory,
            region,
            engine,
        })
    }

    fn tell(&self, lines: &mut Lines, bytes: u64) -> Result<(), P2pError> {
        let descriptor = self.engine.descriptor(self.region)?.to_bytes().to_vec();
        lines.tell(&Answer::Window { descriptor, bytes })
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.engine.deregister(self.region) {
            tracing::error!("a window is not taken away: {error}");
        }
    }
}

impl Server<'_> {
    fn answer(&self, connection: Connection, mut visit: Visit<'_>) -> Result<(), P2pError> {
        let from = visit.from().to_owned();
        let (end, timeout) = ((&*from, End::Server), self.options.timeout);
        let mut at_engine = self.at_engine.clone();
        if let EngineAddress::Tcp(address) = &mut at_engine
            && address.ip().is_unspecified()
        {
            // The client can reach the engine at the IP address by which it has reached this stream.
            let own = connection.address();
            let own = own.map_err(|error| P2pError::Other {
                place: from.clone(),
                reason: error.to_string(),
            })?;
            address.set_ip(own.map_or(address.ip(), |own| own.ip()));
        }
        let lines = Lines::new(connection, end, timeout, self.key.as_ref());
        let mut lines = match lines {
            Ok(lines) => lines,
            Err(error) => return visit.judged(Err(error)),
        };
        let done = self.converse(&mut lines, at_engine, &mut visit);
        let done = visit.judged(done);
        // Clients only write and read windows, and the server calls no peer of the engine. Peers that are not accepted would be kept.
        while self.engine.accept(Duration::ZERO).is_some() {}
        if let Err(error) = &done {
            // The client may be gone, which is no matter.
            let _ = lines.tell(&Answer::Refused(error.to_other_end()));
        }
        done
    }

    fn converse(
        &self,
        lines: &mut Lines,
        at_engine: EngineAddress,
        visit: &mut Visit<'_>,
    ) -> Result<(), P2pError> {
        match lines.hear()? {
            Request::Hello(VERSION) => {}
            other => return Err(lines.unexpected(&other, Request::Hello(VERSION))),
        }
        lines.tell(&Answer::Engine(at_engine.to_string()))?;
        let directory: &Path = &self.options.directory;
        let last = match lines.hear()? {
            Request::Put { name, bytes } => {
                visit.request()?;
                self.take(lines, &place(directory, &name)?, bytes)?
            }
            Request::Get { name } => {
                visit.request()?;
                self.give(lines, &place(directory, &name)?)?
            }
            other => return Err(lines.unexpected(&other, "a put or a get")),
        };
        // A client that has got the last answer may come again at once, so its place is freed before.
        visit.leave();
        lines.tell(&last)
    }

    /// Receives a file. Returns the last answer to the client.
    fn take(&self, lines: &mut Lines, path: &Path, bytes: u64) -> Result<Answer, P2pError> {
        let mut target = Target::create(path, Links::Refuse)?;
        let window = Window::new(&self.engine)?;
        window.tell(lines, bytes)?;
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < bytes {
            let due = due(at, bytes);
            match lines.hear()? {
                Request::Filled(chunk) if chunk == due => {}
                other => return Err(lines.unexpected(&other, due)),
            }
            buffer.resize(usize::try_from(due.bytes).unwrap_or_default(), 0);
            window.memory.read(due.slot * SLOT, &mut buffer)?;
            target.append(&buffer)?;
            at += due.bytes;
            lines.tell(&Answer::Taken { slot: due.slot })?;
        }
        let sum = match lines.hear()? {
            Request::End { sum } => sum,
            other => return Err(lines.unexpected(&other, "the end of the file")),
        };
        target.keep(sum)?;
        Ok(Answer::Kept)
    }

    /// Sends a file. Returns the last answer to the client.
    fn give(&self, lines: &mut Lines, path: &Path) -> Result<Answer, P2pError> {
        let mut source = Source::open(path)?;
        let window = Window::new(&self.engine)?;
        window.tell(lines, source.bytes)?;
        let mut buffer = Vec::new();
        let (mut filled, mut read) = (0, 0);
        while read < source.bytes {
            while filled < source.bytes && filled - read < SLOT * SLOTS {
                let due = due(filled, source.bytes);
                buffer.resize(usize::try_from(due.bytes).unwrap_or_default(), 0);
                source.next(&mut buffer)?;
                window.memory.write(due.slot * SLOT, &buffer)?;
                filled += due.bytes;
                lines.tell(&Answer::Filled(due))?;
            }
            let expected = due(read, source.bytes);
            match lines.hear()? {
                Request::Read { slot } if slot == expected.slot => read += expected.bytes,
                other => {
                    let slot = expected.slot;
                    return Err(lines.unexpected(&other, Request::Read { slot }));
                }
            }
        }
        Ok(Answer::End {
            sum: source.sum.value(),
        })
    }
}
