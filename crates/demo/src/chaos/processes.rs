//! The rank processes, which this program starts, instructs, stops, kills and starts again.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::spaces;
use crate::clock::unix_us;
use crate::rank::instructions::Instruction;
use crate::record::{Record, RecordKind};
use warpverbs::deadline::Looks;
use warpverbs::error::ThreadPanicked;

/// What came from the process of a rank.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A line of the standard output.
    Told(String),
    /// A line of the standard error.
    Said(String),
    /// The end of the standard output, after its last line.
    Closed,
}

/// A rank and the generation of its process.
pub(super) type RankGeneration = (u32, u32);

/// The processes, by rank slot. They are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Processes {
    running: BTreeMap<u32, Running>,
    /// The second processes of ranks.
    rivals: BTreeMap<u32, Running>,
    heard: Receiver<(RankGeneration, Heard)>,
    sender: Sender<(RankGeneration, Heard)>,
    /// When the run began, in microseconds since 1970.
    began_us: u64,
    /// The records of what was done to the processes.
    deeds: Vec<Record>,
}

#[derive(Debug)]
struct Running {
    generation: u32,
    child: Child,
    /// The standard input of the process, which ends when this is closed.
    input: Option<ChildStdin>,
}

impl Processes {
    /// Returns a collection without processes. `began_us` is when the run began, in microseconds since 1970.
    pub(super) fn new(began_us: u64) -> Self {
        let (sender, heard) = channel();
        Self {
            running: BTreeMap::new(),
            rivals: BTreeMap::new(),
            heard,
            sender,
            began_us,
            deeds: Vec::new(),
        }
    }

    /// Starts the process of generation `who.1` of rank `who.0`. If an earlier one still runs, it is killed.
    pub(super) fn start(&mut self, who: RankGeneration, command: &mut Command) -> io::Result<()> {
        let rank = who.0;
        let running = self.spawn(who, command)?;
        if let Some(mut earlier) = self.running.insert(rank, running) {
            end(&mut earlier.child);
        }
        self.note(rank, RecordKind::Started);
        Ok(())
    }

    /// Starts a second process for this rank, beside the one that runs.
    pub(super) fn start_rival(
        &mut self,
        who: RankGeneration,
        command: &mut Command,
    ) -> io::Result<()> {
        let running = self.spawn(who, command)?;
        if let Some(mut earlier) = self.rivals.insert(who.0, running) {
            end(&mut earlier.child);
        }
        self.note_of(unix_us(), who, RecordKind::Rival);
        Ok(())
    }

    /// Returns the generation of the second process of `rank`, if it has one.
    pub(super) fn rival(&self, rank: u32) -> Option<u32> {
        self.rivals.get(&rank).map(|running| running.generation)
    }

    /// Kills the second process of a rank, if it is of this generation.
    pub(super) fn end_rival(&mut self, (rank, generation): RankGeneration) {
        if self.rival(rank) == Some(generation)
            && let Some(mut rival) = self.rivals.remove(&rank)
        {
            end(&mut rival.child);
        }
    }

    /// Kills the first process of `rank`, because the second one has become the rank.
    pub(super) fn end_for_rival(&mut self, rank: u32) {
        if let Some(first) = self.running.get_mut(&rank) {
            end(&mut first.child);
        }
    }

    /// Makes the second process of `rank` its process. The first one has ended. Returns the generation of the second.
    pub(super) fn promote(&mut self, rank: u32) -> Option<u32> {
        let rival = self.rivals.remove(&rank)?;
        let generation = rival.generation;
        self.running.insert(rank, rival);
        self.note(rank, RecordKind::Started);
        Some(generation)
    }

    fn spawn(
        &self,
        (rank, generation): RankGeneration,
        command: &mut Command,
    ) -> io::Result<Running> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        if let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) {
            let who = (rank, generation);
            listen(
                who,
                output,
                self.sender.clone(),
                Heard::Told,
                Some(Heard::Closed),
            );
            listen(who, errors, self.sender.clone(), Heard::Said, None);
        }
        Ok(Running {
            generation,
            child,
            input,
        })
    }

    /// Sends SIGKILL at once. Returns whether a process ran as `rank`.
    pub(super) fn kill(&mut self, rank: u32) -> bool {
        let Some(running) = self.running.get_mut(&rank) else {
            return false;
        };
        let at = unix_us();
        end(&mut running.child);
        self.note_at(at, rank, RecordKind::Killed);
        self.running.remove(&rank);
        true
    }

    /// Stops all threads of a rank's process, and with them its software HCA. Returns whether a process ran as `rank`.
    pub(super) fn stop(&self, rank: u32) -> bool {
        self.signal(rank, Signal::STOP)
    }

    /// Resumes the process of a rank. Returns whether a process ran as `rank`.
    pub(super) fn resume(&self, rank: u32) -> bool {
        self.signal(rank, Signal::CONT)
    }

    fn signal(&self, rank: u32, signal: Signal) -> bool {
        // The process is a child that has not been waited for, so no other process has its number.
        self.running
            .get(&rank)
            .is_some_and(|running| kill_process(spaces::process_of(&running.child), signal).is_ok())
    }

    /// Sends an instruction to a rank on its standard input. Returns whether a process could read it.
    pub(super) fn instruct(&mut self, rank: u32, instruction: &Instruction) -> bool {
        let input = self
            .running
            .get_mut(&rank)
            .and_then(|running| running.input.as_mut());
        let mut line = serde_json::to_vec(instruction).expect("words and numbers");
        line.push(b'\n');
        input.is_some_and(|input| input.write_all(&line).is_ok())
    }

    /// Returns name and state of each thread of a rank, as the system gives them: R runs, S sleeps, T is stopped.
    pub(super) fn threads(&self, rank: u32) -> String {
        let Some(running) = self.running.get(&rank) else {
            return "none".to_owned();
        };
        let process = spaces::process_of(&running.child).as_raw_nonzero();
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let stats = tasks.into_iter().flatten().filter_map(|task| {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            // The line is `NUMBER (NAME) STATE ..`.
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            Some(format!("{name} {}", rest.trim_start().get(..1)?))
        });
        stats.collect::<Vec<_>>().join(", ")
    }

    /// Returns the generation of the process that runs as `rank`.
    pub(super) fn generation(&self, rank: u32) -> Option<u32> {
        self.running.get(&rank).map(|running| running.generation)
    }

    /// Asks a rank to end, by closing its input.
    pub(super) fn close(&mut self, rank: u32) {
        if let Some(running) = self.running.get_mut(&rank) {
            running.input = None;
        }
    }

    /// Waits for a rank that was asked to end, and kills it after `timeout`. Returns its status if it ended by itself.
    pub(super) fn reap(&mut self, rank: u32, timeout: Duration) -> Option<ExitStatus> {
        let mut running = self.running.remove(&rank)?;
        running.input = None;
        for left in Looks::within(timeout) {
            if let Ok(Some(status)) = running.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(left.min(Duration::from_millis(1)));
        }
        end(&mut running.child);
        None
    }

    /// Returns the ranks that have a process, in ascending order.
    pub(super) fn running(&self) -> Vec<u32> {
        self.running.keys().copied().collect()
    }

    /// Returns what comes next from any process, if it comes within `timeout`. That may be of an earlier generation.
    pub(super) fn next(&self, timeout: Duration) -> Option<(RankGeneration, Heard)> {
        self.heard.recv_timeout(timeout).ok()
    }

    /// Returns the records of what was done to the ranks so far.
    pub(super) fn deeds(&self) -> &[Record] {
        &self.deeds
    }

    /// Adds a record that concerns no single rank.
    pub(super) fn note_all(&mut self, what: RecordKind) {
        self.note_at(unix_us(), 0, what);
    }

    /// Adds a record of what is done to a rank now.
    pub(super) fn note(&mut self, rank: u32, what: RecordKind) {
        self.note_at(unix_us(), rank, what);
    }

    fn note_at(&mut self, at_us: u64, rank: u32, what: RecordKind) {
        let generation = self
            .running
            .get(&rank)
            .map_or(0, |running| running.generation);
        self.note_of(at_us, (rank, generation), what);
    }

    /// As `note_at`, for a process that may be the second one of its rank.
    pub(super) fn note_of(
        &mut self,
        at_us: u64,
        (rank, generation): RankGeneration,
        what: RecordKind,
    ) {
        self.deeds.push(Record {
            us: at_us.saturating_sub(self.began_us),
            rank,
            generation,
            what,
        });
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for running in self.running.values_mut().chain(self.rivals.values_mut()) {
            end(&mut running.child);
        }
    }
}

/// Kills a process, stopped or not, and waits for it.
fn end(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(Some(_))) {
        // When the process in a namespace is killed, the program that started it ends, too.
        let _ = kill_process(spaces::process_of(child), Signal::KILL);
        let _ = child.wait();
    }
}

/// Starts a thread that passes on each line of `output`, and `end` after the last. The thread ends with the process.
fn listen(
    who: RankGeneration,
    output: impl Read + Send + 'static,
    to: Sender<(RankGeneration, Heard)>,
    heard: fn(String) -> Heard,
    end: Option<Heard>,
) {
    std::thread::spawn(move || {
        let listened = ThreadPanicked::catch("listener of a rank", || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            // If the receiver is gone, the rest of the lines is of no use.
            lines.all(|line| to.send((who, heard(line))).is_ok());
        });
        if let Err(panicked) = listened {
            let _ = to.send((who, Heard::Said(panicked.to_string())));
        }
        if let Some(end) = end {
            let _ = to.send((who, end));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns a process that counts on its output until its input ends.
    fn counter() -> Command {
        let mut command = Command::new("sh");
        let script = "n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done & read x; kill $!; echo end >&2; exit 3";
        command.args(["-c", script]);
        command
    }

    /// Returns the next line on the standard output of `who`.
    fn told(processes: &Processes, who: RankGeneration) -> String {
        loop {
            match processes.next(LONG).expect("a line") {
                (from, Heard::Told(line)) if from == who => return line,
                _ => {}
            }
        }
    }

    fn whats(processes: &Processes) -> Vec<(u32, u32, RecordKind)> {
        let what = |record: &Record| (record.rank, record.generation, record.what.clone());
        processes.deeds().iter().map(what).collect()
    }

    #[test]
    fn a_rank_is_killed_and_started_again_as_another_generation() {
        let mut processes = Processes::new(unix_us());
        let mut idle = Command::new("cat");
        processes.start((4, 1), &mut idle).unwrap();
        processes
            .start((2, 1), Command::new("cat").arg("-"))
            .unwrap();
        assert_eq!(processes.running(), [2, 4]);
        assert!(processes.kill(4));
        assert!(!processes.kill(4), "it is gone");
        assert_eq!(processes.running(), [2]);
        processes
            .start((4, 2), Command::new("echo").arg("back"))
            .unwrap();
        assert_eq!(told(&processes, (4, 2)), "back");
        assert_eq!(
            whats(&processes),
            [
                (4, 1, RecordKind::Started),
                (2, 1, RecordKind::Started),
                (4, 1, RecordKind::Killed),
                (4, 2, RecordKind::Started)
            ]
        );
        assert!(processes.deeds().is_sorted_by_key(|record| record.us));
        let status = processes.reap(2, LONG).unwrap();
        assert!(status.success(), "its input ended: {status}");
    }

    #[test]
    fn a_second_process_for_a_place_gets_it_when_the_first_ends() {
        let mut processes = Processes::new(unix_us());
        processes.start((2, 2), &mut Command::new("cat")).unwrap();
        processes
            .start_rival((2, 3), &mut Command::new("cat"))
            .unwrap();
        assert_eq!(
            (processes.generation(2), processes.rival(2)),
            (Some(2), Some(3))
        );
        processes.end_for_rival(2);
        processes.reap(2, LONG);
        assert_eq!(processes.promote(2), Some(3));
        assert_eq!(
            (processes.generation(2), processes.rival(2)),
            (Some(3), None)
        );
        assert_eq!(processes.promote(2), None);
        assert!(processes.instruct(2, &Instruction::Last(7)));
        assert_eq!(told(&processes, (2, 3)), r#"{"last":7}"#);
        // The second process can also be ended.
        processes
            .start_rival((2, 4), &mut Command::new("cat"))
            .unwrap();
        processes.end_rival((2, 3));
        assert_eq!(processes.rival(2), Some(4), "that is another one");
        processes.end_rival((2, 4));
        assert_eq!(processes.rival(2), None);
        assert_eq!(
            whats(&processes),
            [
                (2, 2, RecordKind::Started),
                (2, 3, RecordKind::Rival),
                (2, 3, RecordKind::Started),
                (2, 4, RecordKind::Rival)
            ]
        );
    }

    #[test]
    fn a_rank_has_ended_when_all_its_output_is_out_not_when_stderr_closes() {
        let mut processes = Processes::new(unix_us());
        let mut dying = Command::new("sh");
        dying.args(["-c", "echo why >&2; exec 2>&-; sleep 0.3; echo expelled"]);
        processes.start((0, 1), &mut dying).unwrap();
        let heard = [(); 3].map(|()| processes.next(LONG).expect("something").1);
        let wanted = [
            Heard::Said("why".to_owned()),
            Heard::Told("expelled".to_owned()),
            Heard::Closed,
        ];
        assert_eq!(heard, wanted);
        assert_eq!(processes.next(Duration::from_millis(100)), None);
    }

    #[test]
    fn a_stopped_rank_says_nothing_until_it_goes_on_and_can_be_killed() {
        let mut processes = Processes::new(unix_us());
        assert!(!processes.stop(0), "nobody is there");
        // The command is one process, so the signal stops all of it.
        let mut ticker = Command::new("sh");
        ticker.args(["-c", "while :; do echo tick; done"]);
        processes.start((0, 1), &mut ticker).unwrap();
        told(&processes, (0, 1));
        assert_eq!(processes.threads(1), "none");
        assert!(processes.threads(0).starts_with("sh "));
        assert!(processes.stop(0));
        // Lines that were in the pipe still come.
        let start = Instant::now();
        while processes.next(Duration::from_millis(300)).is_some() {
            assert!(start.elapsed() < LONG, "it does not stop");
        }
        assert!(processes.resume(0));
        told(&processes, (0, 1));
        assert!(processes.stop(0));
        assert!(processes.kill(0));
        assert_eq!(
            whats(&processes),
            [(0, 1, RecordKind::Started), (0, 1, RecordKind::Killed)]
        );
    }

    #[test]
    fn an_order_is_a_line_of_the_input() {
        let mut processes = Processes::new(unix_us());
        let instruction = Instruction::Last(7);
        assert!(!processes.instruct(3, &instruction), "nobody is there");
        processes.start((3, 2), &mut Command::new("cat")).unwrap();
        assert_eq!(processes.generation(3), Some(2));
        assert!(processes.instruct(3, &instruction));
        assert_eq!(told(&processes, (3, 2)), r#"{"last":7}"#);
    }

    #[test]
    fn a_rank_asked_to_end_gives_its_status_and_is_killed_if_it_does_not_end() {
        let mut processes = Processes::new(unix_us());
        processes.start((1, 1), &mut counter()).unwrap();
        assert_eq!(told(&processes, (1, 1)), "1");
        processes.close(1);
        assert_eq!(processes.reap(1, LONG).unwrap().code(), Some(3));
        processes
            .start((1, 2), Command::new("sleep").arg("60"))
            .unwrap();
        assert_eq!(processes.reap(1, Duration::from_millis(50)), None);
        assert!(processes.running().is_empty());
    }
}
