//! `wv group`: shows the state of a group by the contents of its store. It changes nothing in the store, and asks no rank.

use std::fmt;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use warpverbs::engine::printable;
use warpverbs::membership::{GroupReport, HeldBackReport, OpenProposal, RankReport, read_group};
use warpverbs::team::open_store;

use crate::output;
use crate::store::{configured, place};

/// The name of the command in its messages.
const NAME: &str = "wv group";

/// List the members of a group of ranks, the pairs that are parted, and what each rank reports of the others
///
/// The run is WARPVERBS_RUN_ID. The status is 0 if a group has met in the store, 1 if none has or the store cannot be read.
#[derive(Args)]
pub struct GroupOptions {
    /// Store that the ranks meet in, else WARPVERBS_STORE
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `wv group`.
#[must_use]
pub fn run(options: &GroupOptions) -> ExitCode {
    let report = match report(options) {
        Ok(report) => report,
        Err(words) => {
            output::say(format_args!("{NAME}: {words}"));
            return ExitCode::FAILURE;
        }
    };
    if options.json {
        output::finish(NAME, &format_args!("{:#}\n", json_of(&report)))
    } else {
        output::finish(NAME, &Shown(&report))
    }
}

/// Returns what the store contains, or why there is nothing to show, in words.
fn report(options: &GroupOptions) -> Result<GroupReport, String> {
    let config = configured(options.store.as_deref()).map_err(|error| error.to_string())?;
    let (url, run) = (config.store.as_str(), &config.run_id);
    if url.is_empty() {
        return Err("which store? --store URL or WARPVERBS_STORE names it".to_owned());
    }
    let store = open_store(url, run).map_err(|error| error.to_string())?;
    let found = read_group(&store).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("no group of run '{run}' has met in {}", place(url)))
}

fn json_of(report: &GroupReport) -> Value {
    let view = &report.view;
    let rank = |of: &RankReport| {
        json!({
            "rank": of.rank,
            "generation": of.generation,
            "member": of.is_member,
            "holds_lease": of.holds_lease,
            "asks": of.asks,
            "parted_from": view.parted_from(of.rank),
            "unheard": of.unheard,
            "broken": of.broken,
            "overdue": of.overdue,
            "ended": of.ended,
            "unbuffered": of.unbuffered,
        })
    };
    let proposal = |of: &OpenProposal| {
        json!({
            "number": of.number,
            "by": of.by,
            "keeps": of.keeps,
            "takes": of.takes.iter().collect::<Vec<_>>(),
            "leaves": of.leaves,
            "parts": of.parts,
        })
    };
    let held_back = |of: &HeldBackReport| {
        json!({
            "rank": of.rank,
            "failures": of.failures,
            "leases": of.leases,
        })
    };
    json!({
        "slots": report.slots,
        "epoch": view.epoch,
        "first": view.first,
        "members": view.members.iter().collect::<Vec<_>>(),
        "parted": view.parted,
        "proposal": report.proposal.as_ref().map(proposal),
        "ranks": report.ranks.iter().map(rank).collect::<Vec<_>>(),
        "held_back": report.held_back.iter().map(held_back).collect::<Vec<_>>(),
        "odd": report.odd.iter().map(|words| printable(words)).collect::<Vec<_>>(),
    })
}

/// A report that is printed as text.
struct Shown<'a>(&'a GroupReport);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupReport {
            slots,
            view,
            proposal,
            ranks,
            held_back,
            odd,
            ..
        } = self.0;
        writeln!(
            f,
            "view {} from call {} on: {} members of {slots} slots, {} parted",
            view.epoch,
            view.first,
            view.members.len(),
            counted(view.parted.len(), "pair"),
        )?;
        if !view.parted.is_empty() {
            writeln!(f, "parted: {}", pairs(&view.parted))?;
        }
        if let Some(open) = proposal {
            writeln!(f, "{}", proposed(open))?;
        }
        writeln!(f, "\n{:>5} {:>10}  stands", "rank", "generation")?;
        for rank in ranks {
            let said = says(rank);
            let stands = stands(rank);
            writeln!(
                f,
                "{:>5} {:>10}  {stands}{said}",
                rank.rank, rank.generation
            )?;
        }
        for slot in held_back {
            writeln!(
                f,
                "rank {} is held back: {} newcomers of it, one after the other, served for less than ten leases; the next one is \
                 taken in {} after the last of them, or later",
                slot.rank,
                slot.failures,
                counted(slot.leases as usize, "lease"),
            )?;
        }
        odd.iter()
            .try_for_each(|words| writeln!(f, "note: {}", printable(words)))
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn pairs(pairs: &[(u32, u32)]) -> String {
    let pairs = pairs.iter().map(|(a, b)| format!("{a}-{b}"));
    pairs.collect::<Vec<_>>().join(", ")
}

fn proposed(open: &OpenProposal) -> String {
    let mut text = format!(
        "proposal {} by rank {}: keeps {:?}",
        open.number, open.by, open.keeps
    );
    for (rank, generation) in open.takes.iter() {
        text += &format!(", takes in {rank} (generation {generation})");
    }
    if !open.leaves.is_empty() {
        text += &format!(", without {:?}, which leave", open.leaves);
    }
    if open.parts.is_empty() {
        text
    } else {
        format!("{text}, parts {}", pairs(&open.parts))
    }
}

fn stands(rank: &RankReport) -> &'static str {
    match (rank.is_member, rank.holds_lease, rank.asks) {
        (true, true, _) => "member",
        (true, false, _) => "member without a lease",
        (false, _, true) => "asks to be taken in",
        (false, _, false) => "no member any more",
    }
}

/// Returns what a rank says against other ranks, for the end of its line.
fn says(rank: &RankReport) -> String {
    let all = [
        ("hears nothing of", &rank.unheard),
        ("has broken QPs to", &rank.broken),
        ("has no contact with", &rank.overdue),
        ("has seen the end of", &rank.ended),
    ];
    let said = all.iter().filter(|(_, ranks)| !ranks.is_empty());
    let mut text: String = said
        .map(|(words, ranks)| format!("; {words} {ranks:?}"))
        .collect();
    if rank.unbuffered > 0 {
        text += &format!("; {} calls found no send buffer", rank.unbuffered);
    }
    text
}
