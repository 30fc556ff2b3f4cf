//! The client: puts a file into the server's directory, or gets one from it.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use warpverbs::engine::{
    Descriptor, Engine, EngineConfig, EngineDevice, HostMemory, Outcome, Peer, Status, Stream,
    TransferId,
};

use super::error::P2pError;
use super::figures::{EngineFigures, devices_line};
use super::files::{Links, Source, Target};
use super::requests::{Answer, Chunk, Connection, End, Lines, Request, VERSION};
use super::window::{SLOT, SLOTS, due};

/// How long a client whose transfer has failed listens for the reason. The QPs of a killed process may end before its connections.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A file that was copied.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    /// Length of the file in bytes.
    pub(super) bytes: u64,
    /// What the engine of this process has done to copy the file.
    pub(super) engine: EngineFigures,
    /// A line that says on which devices the engine is.
    pub(super) devices: String,
}

/// A client of one server.
pub(super) struct Client {
    lines: Lines,
    peer: Peer,
    memory: Arc<HostMemory>,
    engine: Engine,
    devices: Vec<EngineDevice>,
    timeout: Duration,
}

/// The window in the server's memory.
struct Window {
    address: u64,
    /// The number of bytes of the file.
    bytes: u64,
}

impl Client {
    /// Connects to the server at `place`, as `host:port` or `unix:PATH`, by an engine of this configuration. `timeout` is the longest wait
    /// for an answer.
    ///
    /// # Errors
    /// No server of this version answers.
    pub(super) fn connect(
        config: EngineConfig,
        place: &str,
        timeout: Duration,
    ) -> Result<Self, P2pError> {
        let other = |reason: String| P2pError::Other {
            place: place.to_owned(),
            reason,
        };
        let key = Engine::read_key(&config)?;
        let connection = Connection::new(Stream::connect(place, timeout)?);
        let connection = connection.map_err(|error| other(error.to_string()))?;
        let mut lines = Lines::new(connection, (place, End::Client), timeout, key.as_ref())?;
        lines.tell(&Request::Hello(VERSION))?;
        let at_engine = match lines.answer()? {
            Answer::Engine(place) => place,
            other => return Err(lines.unexpected(&other, "the place of its engine")),
        };
        let devices = Engine::open_nics(&config)?;
        let engine = Engine::on(&devices, config.with_key(key))?;
        let memory = Arc::new(HostMemory::new(SLOT * SLOTS)?);
        engine.register(&memory)?;
        let peer = engine.connect(&at_engine)?;
        Ok(Self {
            lines,
            peer,
            memory,
            engine,
            devices,
            timeout,
        })
    }

    /// Puts the file at `path` into the server's directory under `name`.
    ///
    /// # Errors
    /// The failure. The server then keeps nothing of the file.
    pub(super) fn put(mut self, path: &Path, name: &str) -> Result<Copied, P2pError> {
        let done = self.put_file(path, name);
        done.map_err(|error| self.explained(error))
    }

    fn put_file(&mut self, path: &Path, name: &str) -> Result<Copied, P2pError> {
        let mut source = Source::open(path)?;
        let (name, bytes) = (name.to_owned(), source.bytes);
        self.lines.tell(&Request::Put { name, bytes })?;
        let window = self.window()?;
        let mut writing: VecDeque<(TransferId, Chunk)> = VecDeque::new();
        let mut buffer = Vec::new();
        let (mut begun, mut taken) = (0, 0);
        while taken < bytes {
            while begun < bytes && begun - taken < SLOT * SLOTS {
                let chunk = due(begun, bytes);
                buffer.resize(usize::try_from(chunk.bytes).unwrap_or_default(), 0);
                source.next(&mut buffer)?;
                let place = chunk.slot * SLOT;
                self.memory.write(place, &buffer)?;
                let (local, remote) = (self.memory.address() + place, window.address + place);
                writing.push_back((self.peer.write(local, remote, chunk.bytes)?, chunk));
                begun += chunk.bytes;
            }
            if let Some((id, chunk)) = writing.pop_front() {
                self.finish(id, chunk.offset)?;
                self.lines.tell(&Request::Filled(chunk))?;
            }
            // Slots are taken in their order, with one answer for each filled chunk.
            let expected = due(taken, bytes);
            match self.lines.answer()? {
                Answer::Taken { slot } if slot == expected.slot => taken += expected.bytes,
                other => {
                    let slot = expected.slot;
                    return Err(self.lines.unexpected(&other, Answer::Taken { slot }));
                }
            }
        }
        self.lines.tell(&Request::End {
            sum: source.sum.value(),
        })?;
        match self.lines.answer()? {
            Answer::Kept => Ok(self.copied(bytes)),
            other => Err(self.lines.unexpected(&other, Answer::Kept)),
        }
    }

    /// Copies the file `name` of the server's directory to `path`.
    ///
    /// # Errors
    /// The failure. Then nothing of the file is kept at `path`.
    pub(super) fn get(mut self, name: &str, path: &Path) -> Result<Copied, P2pError> {
        let done = self.get_file(name, path);
        done.map_err(|error| self.explained(error))
    }

    fn get_file(&mut self, name: &str, path: &Path) -> Result<Copied, P2pError> {
        let mut target = Target::create(path, Links::Follow)?;
        let name = name.to_owned();
        self.lines.tell(&Request::Get { name })?;
        let window = self.window()?;
        let mut buffer = Vec::new();
        let mut at = 0;
        while at < window.bytes {
            let chunk = due(at, window.bytes);
            match self.lines.answer()? {
                Answer::Filled(filled) if filled == chunk => {}
                other => return Err(self.lines.unexpected(&other, chunk)),
            }
            let place = chunk.slot * SLOT;
            let (local, remote) = (self.memory.address() + place, window.address + place);
            let id = self.peer.read(local, remote, chunk.bytes)?;
            self.finish(id, chunk.offset)?;
            self.lines.tell(&Request::Read { slot: chunk.slot })?;
            buffer.resize(usize::try_from(chunk.bytes).unwrap_or_default(), 0);
            self.memory.read(place, &mut buffer)?;
            target.append(&buffer)?;
            at += chunk.bytes;
        }
        match self.lines.answer()? {
            Answer::End { sum } => target.keep(sum)?,
            other => return Err(self.lines.unexpected(&other, "the end of the file")),
        }
        Ok(self.copied(window.bytes))
    }

    /// Returns an error with the server's own reason, if there is one. When a server is gone, transfers fail in many ways.
    fn explained(&mut self, error: P2pError) -> P2pError {
        let is_of_engine = matches!(
            error,
            P2pError::Host(_) | P2pError::Transfer { .. } | P2pError::Late { .. }
        );
        match is_of_engine.then(|| self.lines.last_words(LAST_WORDS)) {
            Some(Some(P2pError::Gone { place, reason })) => P2pError::Gone {
                place,
                reason: format!("{reason} ({error})"),
            },
            Some(Some(P2pError::Other { place, reason })) => P2pError::Other {
                place,
                reason: format!("{reason} ({error})"),
            },
            _ => error,
        }
    }

    fn copied(&self, bytes: u64) -> Copied {
        let engine = EngineFigures::of(&self.engine, &self.devices);
        let devices = devices_line(&self.devices);
        Copied {
            bytes,
            engine,
            devices,
        }
    }

    fn window(&mut self) -> Result<Window, P2pError> {
        let (descriptor, bytes) = match self.lines.answer()? {
            Answer::Window { descriptor, bytes } => (descriptor, bytes),
            other => return Err(self.lines.unexpected(&other, "a window")),
        };
        let descriptor = Descriptor::from_bytes(&descriptor)?;
        if descriptor.bytes < SLOT * SLOTS {
            let reason = format!("a window of {} bytes", descriptor.bytes);
            return Err(self.lines.other(reason));
        }
        self.peer.import(&descriptor)?;
        Ok(Window {
            address: descriptor.address,
            bytes,
        })
    }

    /// Waits for a transfer, which must end as done.
    fn finish(&self, id: TransferId, offset: u64) -> Result<(), P2pError> {
        match self.engine.wait(id, self.timeout)? {
            Status::Concluded(Outcome::Done) => Ok(self.engine.release(id)?),
            Status::Concluded(outcome) => {
                let report = self.engine.report(id)?;
                let cause = report.first.and_then(|first| first.cause);
                let reason = match (cause, &report.device) {
                    (Some(cause), Some(device)) => format!("{cause}, by {device}"),
                    (Some(cause), None) => cause.to_string(),
                    (None, _) => "no QP was left".to_owned(),
                };
                Err(P2pError::Transfer {
                    offset,
                    outcome,
                    reason,
                })
            }
            Status::Pending | Status::Unknown => Err(P2pError::Late { offset }),
        }
    }
}
