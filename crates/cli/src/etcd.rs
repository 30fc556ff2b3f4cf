//! An etcd that a command starts for its ranks. Its servers can be killed, stopped and started again.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::tied;
use warpverbs::deadline::Looks;

/// The longest time for servers to come up.
const START: Duration = Duration::from_secs(60);
/// The longest wait for a server's answer to the question which member leads.
const ASK: Duration = Duration::from_millis(200);
/// The time between two such questions.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time for all threads of a server to stop.
const STOP: Duration = Duration::from_secs(5);
/// How often other ports are tried. A port that is free when it is picked may be taken a moment later.
const TRIES: u32 = 5;

/// Why an etcd does not serve.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct EtcdError {
    /// The program, or the file, that cannot be used.
    pub file: PathBuf,
    /// The error of the system.
    pub reason: String,
}

impl EtcdError {
    fn new(file: &Path, reason: &dyn ToString) -> Self {
        Self {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// The servers of one etcd. They are killed when this is dropped, and when this process ends.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    program: PathBuf,
    arguments: Vec<String>,
    log: PathBuf,
    address: SocketAddr,
    process: Option<Child>,
    /// How many deeds keep the server down, and how many keep it stopped.
    down: u32,
    stopped: u32,
}

impl Etcd {
    /// Starts `members` servers of `program` with their data below `place`, and waits until they have a leader.
    ///
    /// # Errors
    /// A server cannot be started, or ends; they have no leader in time.
    pub fn start(program: &Path, members: u16, place: &Path) -> Result<Self, EtcdError> {
        let refused = |error: &dyn ToString| EtcdError::new(program, error);
        for number in 0..TRIES {
            let place = place.join(format!("etcd{number}"));
            std::fs::create_dir(&place).map_err(|error| EtcdError::new(&place, &error))?;
            let mut etcd = Self::new(program, members, &place).map_err(|error| refused(&error))?;
            for member in &mut etcd.members {
                member.start().map_err(|error| refused(&error))?;
            }
            let mut looks = Looks::within(START);
            while etcd.all_run() {
                let Some(left) = looks.next() else {
                    let words = format!("its servers have no leader within {START:?}");
                    return Err(refused(&words));
                };
                if etcd.leader().is_some() {
                    return Ok(etcd);
                }
                std::thread::sleep(LOOK.min(left));
            }
        }
        Err(refused(&"it ends when it is started as a server"))
    }

    fn new(program: &Path, members: u16, place: &Path) -> io::Result<Self> {
        let mut free = Vec::new();
        for _ in 0..2 * members {
            free.push(TcpListener::bind("127.0.0.1:0")?);
        }
        let addresses: Vec<SocketAddr> = free
            .iter()
            .map(TcpListener::local_addr)
            .collect::<io::Result<_>>()?;
        let (clients, peers) = addresses.split_at(members.into());
        let cluster: Vec<String> = (0..)
            .zip(peers)
            .map(|(number, peer): (u32, _)| format!("m{number}=http://{peer}"))
            .collect();
        let member = |(number, (client, peer)): (u32, (&SocketAddr, &SocketAddr))| {
            let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
            let data = place.join(format!("m{number}"));
            let options = [
                ("name", format!("m{number}")),
                ("data-dir", data.display().to_string()),
                ("listen-client-urls", client_url.clone()),
                ("advertise-client-urls", client_url),
                ("listen-peer-urls", peer_url.clone()),
                ("initial-advertise-peer-urls", peer_url),
                ("initial-cluster", cluster.join(",")),
            ];
            Member {
                program: program.to_owned(),
                arguments: options
                    .map(|(name, value)| format!("--{name}={value}"))
                    .into(),
                log: place.join(format!("log{number}")),
                address: *client,
                process: None,
                down: 0,
                stopped: 0,
            }
        };
        let members = (0..).zip(clients.iter().zip(peers)).map(member);
        Ok(Self {
            members: members.collect(),
        })
    }

    /// Returns the URL by which ranks open this store.
    #[must_use]
    pub fn url(&self) -> String {
        let members = self.members.iter().map(|member| member.address.to_string());
        format!("etcd://{}/wv", members.collect::<Vec<_>>().join(","))
    }

    /// Returns the processes of the servers that run.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let processes = self.members.iter().filter_map(|it| it.process.as_ref());
        processes.map(Child::id).collect()
    }

    /// Returns the numbers of all servers.
    #[must_use]
    pub fn all(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    fn all_run(&mut self) -> bool {
        let runs = |member: &mut Member| {
            let process = member.process.as_mut();
            process.is_some_and(|process| matches!(process.try_wait(), Ok(None)))
        };
        self.members.iter_mut().all(runs)
    }

    /// Returns the number of the server that leads, if a server says that it does.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: &Member| {
            let status = member.status().unwrap_or_default();
            let leader = field(&status, "leader");
            !leader.is_empty() && leader == field(&status, "member_id")
        };
        self.members.iter().position(leads)
    }

    /// Kills the server (SIGKILL). It stays down until it was started again as often as it was killed.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn kill(&mut self, number: usize) {
        let member = &mut self.members[number];
        member.down += 1;
        member.end();
    }

    /// Starts the server again with its old data, once it was started as often as killed.
    ///
    /// # Errors
    /// The error of the system.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn start_again(&mut self, number: usize) -> Result<(), EtcdError> {
        let member = &mut self.members[number];
        member.down = member.down.saturating_sub(1);
        if member.down > 0 || member.process.is_some() {
            return Ok(());
        }
        let started = member.start();
        started.map_err(|error| EtcdError::new(&member.program, &error))?;
        if member.stopped > 0 {
            member.stand_still();
        }
        Ok(())
    }

    /// Stops the server (SIGSTOP). It stands still until it was resumed as often as it was stopped.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn stop(&mut self, number: usize) {
        let member = &mut self.members[number];
        member.stopped += 1;
        member.stand_still();
    }

    /// Resumes the server (SIGCONT), once it was resumed as often as stopped.
    ///
    /// # Panics
    /// If there is no server of this number.
    pub fn resume(&mut self, number: usize) {
        let member = &mut self.members[number];
        member.stopped = member.stopped.saturating_sub(1);
        if member.stopped == 0 {
            member.signal(Signal::CONT);
        }
    }
}

impl Member {
    fn start(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        tied::tie(&mut command);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.process = Some(command.spawn()?);
        Ok(())
    }

    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            // A server that has ended by itself must be reaped as well.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops the server (SIGSTOP), and waits until the system says that all threads have stopped. Until then the server may still answer.
    fn stand_still(&self) {
        self.signal(Signal::STOP);
        let Some(process) = &self.process else { return };
        let id = WaitId::Pid(Pid::from_child(process));
        // With NOWAIT the status can be waited for again, as `end` does.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let options = options | WaitIdOptions::NOWAIT;
        for left in Looks::within(STOP) {
            if !matches!(waitid(id.clone(), options), Ok(None)) {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            // No thread has waited for this child, so no other process has its number.
            let _ = kill_process(Pid::from_child(process), signal);
        }
    }

    fn status(&self) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, ASK)?;
        stream.set_read_timeout(Some(ASK))?;
        let request = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.take(1 << 16).read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.members.iter_mut().for_each(Member::end);
    }
}

/// Returns the value of a field of an answer, or an empty text if it is missing.
fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let begin = format!("\"{name}\":\"");
    let value = answer.split_once(&begin).map_or("", |(_, rest)| rest);
    value.split('"').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_basics::limits::until;

    fn start(members: u16) -> Option<(Etcd, tempfile::TempDir)> {
        let Some(program) = test_basics::etcd::program() else {
            println!("skipped: {}", test_basics::etcd::NO_PROGRAM);
            return None;
        };
        let place = tempfile::tempdir().unwrap();
        let etcd = Etcd::start(&program, members, place.path()).unwrap();
        Some((etcd, place))
    }

    #[test]
    fn a_server_is_down_and_stands_still_until_every_deed_at_it_is_over() {
        let Some((mut etcd, _place)) = start(1) else {
            return;
        };
        assert!(
            etcd.url().starts_with("etcd://127.0.0.1:"),
            "{}",
            etcd.url()
        );
        etcd.kill(0);
        etcd.kill(0);
        etcd.start_again(0).unwrap();
        assert_eq!(etcd.leader(), None, "another deed keeps it down");
        etcd.start_again(0).unwrap();
        until("it leads again", || etcd.leader() == Some(0));
        etcd.stop(0);
        etcd.stop(0);
        etcd.resume(0);
        assert_eq!(etcd.leader(), None, "another deed keeps it stopped");
        // A server that is started again while it is stopped stands still as well.
        etcd.kill(0);
        etcd.start_again(0).unwrap();
        etcd.resume(0);
        until("it leads again", || etcd.leader() == Some(0));
    }

    #[test]
    fn without_its_leader_an_etcd_of_three_has_another() {
        let Some((mut etcd, _place)) = start(3) else {
            return;
        };
        let mut first = None;
        until("one leads", || {
            first = etcd.leader();
            first.is_some()
        });
        let first = first.unwrap();
        etcd.kill(first);
        until("another leads", || {
            etcd.leader().is_some_and(|leader| leader != first)
        });
        etcd.start_again(first).unwrap();
        until("it runs again", || etcd.members[first].status().is_ok());
    }

    #[test]
    fn a_program_that_is_none_is_named() {
        let place = tempfile::tempdir().unwrap();
        let missing = Path::new("/nonexistent/etcd");
        let error = Etcd::start(missing, 1, place.path()).unwrap_err();
        assert!(
            error.to_string().starts_with("/nonexistent/etcd: "),
            "{error}"
        );
        let place = tempfile::tempdir().unwrap();
        let error = Etcd::start(Path::new("/bin/true"), 1, place.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/bin/true: it ends when it is started as a server"
        );
    }
}
