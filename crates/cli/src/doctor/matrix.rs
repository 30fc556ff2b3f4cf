//! `--launched`: which ranks of a job reach each other, on each rail.

use std::fmt::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::couple::{Member, Transfer};
use crate::launched::{Cause, Job};
use warpverbs::error::Error;
use warpverbs::team::{JoinOptions, RankDevices, TeamConfig, TeamError};
use warpverbs::verbs::Context;

/// The topics under which a rank publishes its GIDs, and the ranks that it reaches.
const GIDS: &str = "gids";
const REACHED: &str = "reached";

/// How long rank 0 waits for the results of the others after it has its own.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result of one packet from a rank to another one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reach {
    to: u32,
    rail: u32,
    /// Why the packet did not arrive; None if it did.
    reason: Option<String>,
}

/// The results of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    reaches: Vec<Reach>,
    /// The number of bytes of the packet.
    bytes: u64,
}

/// The results of all ranks.
pub(super) struct Matrix {
    rows: Vec<Row>,
    /// The GIDs of each rank, one for each of its rails.
    gids: Vec<Vec<String>>,
}

/// Sends a packet of this rank to each other rank, on each rail. Returns the results of all ranks on rank 0, and None on the others.
pub(super) fn find(job: &Job, devices: &RankDevices) -> Result<Option<Matrix>, Cause> {
    let gid = |context: &std::sync::Arc<Context>| match context.own_gid() {
        Ok(entry) => entry
            .gid
            .ipv4()
            .map_or_else(|| entry.gid.to_string(), |address| address.to_string()),
        Err(error) => error.to_string(),
    };
    let gids: Vec<String> = devices.contexts.iter().map(gid).collect();
    told(job.tell(GIDS, &gids))?;
    let row = row(job, devices).map_err(|error| cause_of(&error))?;
    told(job.tell(REACHED, &row))?;
    if !job.prints() {
        return Ok(None);
    }
    let rows: Vec<Option<Row>> = told(job.hear(REACHED, PATIENCE))?;
    let gids: Vec<Option<Vec<String>>> = told(job.hear(GIDS, PATIENCE))?;
    let missing = (0..)
        .zip(&rows)
        .find_map(|(rank, row): (u32, _)| row.is_none().then_some(rank));
    if let Some(rank) = missing {
        let failures = job.failures().unwrap_or_default();
        let is_remote = !failures.is_empty();
        return Err(Cause {
            message: format!("rank {rank} has not reported which ranks it reaches"),
            is_remote,
            is_taken: false,
        });
    }
    Ok(Some(Matrix {
        rows: rows.into_iter().flatten().collect(),
        gids: gids.into_iter().map(Option::unwrap_or_default).collect(),
    }))
}

fn told<T>(result: Result<T, warpverbs::team::StoreError>) -> Result<T, Cause> {
    result.map_err(|error| cause_of(&TeamError::from(error)))
}

/// Returns the cause that a rank reports if it cannot open its devices.
pub(super) fn cause_of_devices(error: &Error) -> Cause {
    match error.downcast_ref() {
        Some(of_team) => cause_of(of_team),
        None => Cause {
            message: error.to_string(),
            is_remote: false,
            is_taken: false,
        },
    }
}

fn cause_of(error: &TeamError) -> Cause {
    Cause {
        message: error.to_string(),
        is_remote: error.is_remote(),
        is_taken: matches!(error, TeamError::RankTaken { .. }),
    }
}

fn row(job: &Job, devices: &RankDevices) -> Result<Row, TeamError> {
    let rails = u32::try_from(devices.contexts.len()).unwrap_or(u32::MAX);
    let (rank, ranks) = (job.config.rank, job.config.ranks);
    let config = TeamConfig::new(rank, ranks)
        .with_qps_per_peer(rails)
        .with_join_timeout(job.config.join_timeout)
        .with_modes(job.config.modes)
        .with_path(job.config.path);
    let team = JoinOptions::new(config)
        .with_contexts(&devices.contexts)
        .with_gpu(&devices.gpu)
        .with_store(job.store.clone())
        .join()?;
    let sizes = devices
        .contexts
        .iter()
        .map(|context| u64::from(context.port().active_mtu.bytes()));
    let bytes = sizes.max().unwrap_or(0);
    // The window has a place for what each rank sends, after the bytes that this rank sends.
    let window = team.window((u64::from(ranks) + 1) * bytes)?;
    let member = Member { team, window };
    let mut reaches = Vec::new();
    for peer in (0..ranks).filter(|peer| *peer != rank) {
        for rail in 0..rails {
            let what = Transfer {
                peer,
                qp: rail,
                from: 0,
                to: (u64::from(rank) + 1) * bytes,
                bytes,
                lanes: 1,
            };
            reaches.push(Reach {
                to: peer,
                rail,
                reason: member.put(&what).err(),
            });
        }
    }
    // No rank may close its window while another writes into it.
    member.team.barrier("reached")?;
    Ok(Row { reaches, bytes })
}

impl Matrix {
    /// Returns all packets, in the order of senders: the sender, and the receiver with the result.
    fn pairs(&self) -> impl Iterator<Item = (usize, &Reach)> {
        self.rows
            .iter()
            .enumerate()
            .flat_map(|(from, row)| row.reaches.iter().map(move |reach| (from, reach)))
    }

    fn gid(&self, rank: usize, rail: u32) -> &str {
        let of_rank = self.gids.get(rank);
        of_rank
            .and_then(|gids| gids.get(rail as usize))
            .map_or("unknown", String::as_str)
    }

    /// Returns whether every rank reaches every other one on every rail.
    pub(super) fn is_whole(&self) -> bool {
        self.pairs().all(|(_, reach)| reach.reason.is_none())
    }

    fn rails(&self) -> u32 {
        self.pairs()
            .map(|(_, reach)| reach.rail + 1)
            .max()
            .unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| row.bytes).max().unwrap_or(0)
    }

    pub(super) fn json(&self) -> Value {
        let pair = |(from, reach): (usize, &Reach)| {
            json!({
                "from": from,
                "to": reach.to,
                "rail": reach.rail,
                "from_gid": self.gid(from, reach.rail),
                "to_gid": self.gid(reach.to as usize, reach.rail),
                "reached": reach.reason.is_none(),
                "reason": reach.reason,
            })
        };
        json!({
            "ranks": self.rows.len(),
            "rails": self.rails(),
            "packet_bytes": self.bytes(),
            "pairs": self.pairs().map(pair).collect::<Vec<_>>(),
        })
    }

    /// Returns a square for each rail, and the first pair that fails.
    pub(super) fn text(&self) -> String {
        let ranks = self.rows.len();
        let mut text = format!(
            "ranks\n  a packet of {} bytes from each rank (down) to each other one (across): + came, X did not\n",
            self.bytes()
        );
        for rail in 0..self.rails() {
            let _ = writeln!(text, "  rail {rail}");
            for from in 0..ranks {
                let came = |to: usize| {
                    let mut pairs = self.pairs().filter(|(rank, _)| *rank == from);
                    let reach =
                        pairs.find(|(_, reach)| reach.rail == rail && reach.to as usize == to);
                    match reach {
                        None => '.',
                        Some((_, reach)) if reach.reason.is_none() => '+',
                        Some(_) => 'X',
                    }
                };
                let line: String = (0..ranks).map(came).collect();
                let _ = writeln!(text, "  {from:>5} {line}  {}", self.gid(from, rail));
            }
        }
        if let Some((from, reach)) = self.pairs().find(|(_, reach)| reach.reason.is_some()) {
            let _ = writeln!(
                text,
                "  missing        rank {from} ({}) does not reach rank {} ({}) on rail {}: {}",
                self.gid(from, reach.rail),
                reach.to,
                self.gid(reach.to as usize, reach.rail),
                reach.rail,
                reach.reason.as_deref().unwrap_or_default()
            );
        }
        text
    }
}
