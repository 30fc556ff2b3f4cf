//! The server: a directory, and an engine in whose memory clients write and read.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use warpverbs::engine::{
    Engine, EngineAddress, EngineConfig, EngineKey, HostMemory, Publication, RegionId,
};
use warpverbs::team::Store;

use super::figures::EngineFigures;
use super::files::{self, Links, Source, Target, place};
use super::requests::{Answer, Chunk, End, Lines, Request, VERSION};
use super::{P2pError, SERVERS, SLOT, SLOTS};

/// After so long the server asks the system again that could take no connection, and after twice as long each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How a server works.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The directory that clients put files into and get files from.
    pub directory: PathBuf,
    /// Where clients ask.
    pub listen: SocketAddr,
    /// End after so many requests; none: never.
    pub requests: Option<u64>,
    /// Longest wait for a client.
    pub timeout: Duration,
    /// A store and the name by which clients find this server in it; none: by its address alone.
    pub published: Option<(Arc<dyn Store>, String)>,
}

/// News of a server for its user.
#[derive(Debug)]
pub enum News<'a> {
    /// It serves: where clients ask.
    Serves(SocketAddr),
    /// A request was not fulfilled.
    Failed(&'a str, &'a P2pError),
    /// It has answered its last request: what its engine has done.
    Ends(&'a EngineFigures),
}

/// Serves by an engine of this configuration, and hands news for its user to `tell`.
///
/// # Errors
/// A failure that keeps it from serving. A failure of one client goes to that client and to `tell`.
pub fn serve(
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
    let engine = Engine::start(config.with_key(key.clone()))?;
    let mut at_engine = options.listen;
    at_engine.set_port(0);
    let at_engine = match engine.listen(at_engine.into())? {
        EngineAddress::Tcp(address) => address,
        EngineAddress::Unix(_) => at_engine,
    };
    let failed = |source| P2pError::File {
        path: options.listen.to_string(),
        source,
    };
    let listener = TcpListener::bind(options.listen).map_err(failed)?;
    let own = listener.local_addr().map_err(failed)?;
    let published = options.published.as_ref();
    let published =
        published.map(|(store, name)| Publication::new(store, SERVERS, name, &own.into()));
    let published = published.transpose()?;
    tell(&News::Serves(own));
    let server = Server {
        engine,
        at_engine,
        key,
        options,
    };
    thread::scope(|scope| {
        let mut requests = 0;
        while options.requests.is_none_or(|most| requests < most) {
            let (stream, from) = next(&listener, &|source| {
                tell(&News::Failed(
                    "no connection is taken for now",
                    &failed(source),
                ));
            });
            requests += 1;
            let server = &server;
            scope.spawn(move || {
                let from = from.to_string();
                if let Err(error) = server.answer(stream, &from) {
                    tell(&News::Failed(&from, &error));
                }
            });
        }
        Ok::<(), P2pError>(())
    })?;
    drop(published);
    let _ = server.engine.close();
    tell(&News::Ends(&EngineFigures::of(&server.engine)));
    Ok(())
}

/// The next connection. A failure of the system is told once, and passes when others end: then this server goes on.
fn next(listener: &TcpListener, tell: &dyn Fn(io::Error)) -> (TcpStream, SocketAddr) {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let error = match listener.accept() {
            Ok(come) => return come,
            Err(error) => error,
        };
        match error.kind() {
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
            _ if pause == SHORTEST_PAUSE => tell(error),
            _ => {}
        }
        thread::sleep(pause);
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

struct Server<'a> {
    engine: Engine,
    at_engine: SocketAddr,
    key: Option<EngineKey>,
    options: &'a ServerOptions,
}

/// Memory that one client writes or reads, for as long as its request takes.
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
    fn answer(&self, stream: TcpStream, from: &str) -> Result<(), P2pError> {
        let (end, timeout) = ((from, End::Server), self.options.timeout);
        let mut at_engine = self.at_engine;
        if at_engine.ip().is_unspecified() {
            // The client reaches the address by which it has reached this stream.
            let own = stream.local_addr();
            let own = own.map_err(|error| P2pError::Other {
                place: from.to_owned(),
                reason: error.to_string(),
            })?;
            at_engine.set_ip(own.ip());
        }
        let mut lines = Lines::new(stream, end, timeout, self.key.as_ref())?;
        let done = self.converse(&mut lines, at_engine);
        // Clients only write and read windows: no peer of the engine is called from here, and each would be kept.
        while self.engine.accept(Duration::ZERO).is_some() {}
        if let Err(error) = &done {
            // It may be gone.
            let _ = lines.tell(&Answer::Refused(error.to_string()));
        }
        done
    }

    fn converse(&self, lines: &mut Lines, at_engine: SocketAddr) -> Result<(), P2pError> {
        match lines.hear()? {
            Request::Hello(VERSION) => {}
            other => return Err(lines.other(format!("{other:?}; it must be version {VERSION}"))),
        }
        lines.tell(&Answer::Engine(at_engine.to_string()))?;
        let directory: &Path = &self.options.directory;
        match lines.hear()? {
            Request::Put { name, bytes } => self.take(lines, &place(directory, &name)?, bytes),
            Request::Get { name } => self.give(lines, &place(directory, &name)?),
            other => Err(lines.other(format!("{other:?}; it must be put or get"))),
        }
    }

    /// Takes a file.
    fn take(&self, lines: &mut Lines, path: &Path, bytes: u64) -> Result<(), P2pError> {
        let mut target = Target::create(path, Links::Refuse)?;
        let window = Window::new(&self.engine)?;
        window.tell(lines, bytes)?;
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < bytes {
            let Request::Filled(chunk) = lines.hear()? else {
                return Err(lines.other("its request has no bytes of the file"));
            };
            let due = due(at, bytes);
            if chunk != due {
                return Err(lines.other(format!("{chunk:?}; it must be {due:?}")));
            }
            buffer.resize(usize::try_from(due.bytes).unwrap_or_default(), 0);
            window.memory.read(due.slot * SLOT, &mut buffer)?;
            target.append(&buffer)?;
            at += due.bytes;
            lines.tell(&Answer::Taken { slot: due.slot })?;
        }
        let Request::End { sum } = lines.hear()? else {
            return Err(lines.other("its request is not the end of the file"));
        };
        target.keep(sum)?;
        lines.tell(&Answer::Kept)
    }

    /// Gives a file.
    fn give(&self, lines: &mut Lines, path: &Path) -> Result<(), P2pError> {
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
                other => return Err(lines.other(format!("{other:?}; it must be {expected:?}"))),
            }
        }
        lines.tell(&Answer::End { sum: source.sum.0 })
    }
}

/// The chunk that begins at `offset` of a file.
pub(super) fn due(offset: u64, bytes: u64) -> Chunk {
    Chunk {
        slot: offset / SLOT % SLOTS,
        offset,
        bytes: SLOT.min(bytes - offset),
    }
}
