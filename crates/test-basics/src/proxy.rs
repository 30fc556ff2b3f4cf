//! A proxy for a server on loopback, which can be slow, or away.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A proxy that takes connections and passes what arrives on to a server. What the server answers goes back at once. The proxy's threads
/// live as long as the connections, and the thread that takes connections lives as long as the program.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How long after its arrival each part of a request is passed on.
    delay: Duration,
    /// True if connections are refused.
    away: bool,
    /// Both ends of each connection, by its number.
    open: BTreeMap<u64, [TcpStream; 2]>,
    /// The number of connections so far.
    opened: u64,
}

impl Proxy {
    /// Returns a proxy for the server at `server`, which is neither slow nor away.
    pub fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let passing = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().filter_map(Result::ok) {
                // If the server cannot be reached, the client finds its connection closed.
                drop(passing.open(&client));
            }
        });
        Self { address, shared }
    }

    /// Returns the address at which the proxy takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the delay with which the proxy passes everything on. It holds for what waits already, too.
    pub fn set_delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
        self.shared.changed.notify_all();
    }

    /// If `away`, closes all connections, and each new one at once. Otherwise accepts connections again.
    pub fn set_away(&self, away: bool) {
        let mut state = self.shared.state();
        state.away = away;
        if away {
            for end in std::mem::take(&mut state.open).into_values().flatten() {
                // The other side may have closed the connection already.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Shared {
    /// Locks the state. Each operation leaves it whole, so a panic under the lock has broken nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(self: &Arc<Self>, client: &TcpStream) -> std::io::Result<()> {
        let mut state = self.state();
        if state.away {
            return client.shutdown(Shutdown::Both);
        }
        let server = TcpStream::connect(self.server)?;
        for end in [client, &server] {
            end.set_nodelay(true)?;
        }
        let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
        let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
        state.opened += 1;
        let number = state.opened;
        state.open.insert(number, [client.try_clone()?, server]);
        drop(state);
        let (arrived, waits) = channel();
        let (delaying, closing) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || take(&mut from_client, &arrived));
        thread::spawn(move || {
            delaying.pass_on(&waits, &mut to_server);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        thread::spawn(move || {
            // The copy ends when either side has closed the connection.
            let _ = std::io::copy(&mut from_server, &mut to_client);
            let _ = to_client.shutdown(Shutdown::Both);
            closing.state().open.remove(&number);
        });
        Ok(())
    }

    /// Passes on what has arrived, each part when its time has come, even if the client has given up.
    fn pass_on(&self, waits: &Receiver<(Instant, Vec<u8>)>, server: &mut TcpStream) {
        while let Ok((arrived, bytes)) = waits.recv() {
            let mut state = self.state();
            loop {
                let left = state.delay.saturating_sub(arrived.elapsed());
                if left.is_zero() {
                    break;
                }
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(state);
            if server.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

/// Takes what arrives until the client closes the connection.
fn take(client: &mut TcpStream, arrived: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(bytes @ 1..) = client.read(&mut buffer) {
        if arrived
            .send((Instant::now(), buffer[..bytes].to_vec()))
            .is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a proxy to a server that sends each byte back, and a connection to it.
    fn echo() -> (Proxy, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::new(listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut back = stream.try_clone().unwrap();
                thread::spawn(move || std::io::copy(&mut &stream, &mut back));
            }
        });
        let client = TcpStream::connect(proxy.address()).unwrap();
        (proxy, client)
    }

    #[test]
    fn what_is_sent_comes_late_and_whole_and_a_server_that_is_away_closes() {
        let (proxy, mut client) = echo();
        let mut buffer = [0; 5];
        for delay in [0, 300].map(Duration::from_millis) {
            proxy.set_delay(delay);
            let start = Instant::now();
            client.write_all(b"12345").unwrap();
            client.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"12345");
            assert!(start.elapsed() >= delay, "{:?}", start.elapsed());
        }
        // What waits is passed on as soon as the delay is removed.
        proxy.set_delay(Duration::from_secs(3600));
        client.write_all(b"abcde").unwrap();
        proxy.set_delay(Duration::ZERO);
        client.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"abcde");
        proxy.set_away(true);
        assert!(!matches!(client.read(&mut buffer), Ok(1..)));
        let mut refused = TcpStream::connect(proxy.address()).unwrap();
        assert!(!matches!(refused.read(&mut buffer), Ok(1..)));
        proxy.set_away(false);
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(b"again").unwrap();
        client.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"again");
    }
}
