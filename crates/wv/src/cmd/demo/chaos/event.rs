//! The records of ranks, and of the process that starts and kills them: one JSON object a line.

use serde::{Deserialize, Deserializer, Serialize};
use warpverbs::engine::printable;

/// Something that has happened to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Microseconds since the run began.
    pub(crate) us: u64,
    /// The rank's slot, and which of its generations.
    pub(crate) rank: u32,
    pub(crate) generation: u32,
    #[serde(flatten)]
    pub(crate) what: RecordKind,
}

/// What is done to ranks, to the store, or to what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disturbance {
    /// Its process is killed.
    Kill,
    /// Its process is killed, and so are some that come after it.
    CrashLoop,
    /// Its host threads stand still; kernels and HCA go on.
    HostFreeze,
    /// Its kernels stand still; host threads and HCA go on.
    KernelFreeze,
    /// All of it stands still.
    Freeze,
    /// Nothing passes between it and some others, or all.
    Partition,
    /// All processes stand still.
    PauseAll,
    /// No call of the store ends.
    StorePause,
    /// Calls of the store are late, some too late.
    StoreSlow,
    /// The servers of the store are killed, and started again.
    StoreRestart,
    /// The server that leads the others is killed or stands still, and comes back.
    LeaderLoss,
    /// One of its rails carries nothing.
    Rail,
    /// The port of its HCA is down.
    PortOne,
    /// The ports of all HCAs are down.
    PortsAll,
    /// A key of the group, or of its team, holds garbage.
    Garbage,
    /// It sleeps between two calls.
    Late,
    /// Its process is killed, and no pidfd of another rank sees that.
    NoPidfd,
    /// Nothing passes between it and another in one direction.
    OneWay,
    /// Two processes are killed at once.
    Host,
    /// Its process is killed, and the next one has no link.
    LinkJoiner,
    /// Its process is killed, and two others come in its place.
    Twice,
    /// It makes a call with other arguments than the others.
    Arguments,
}

impl Disturbance {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HostFreeze => "host freeze",
            Self::KernelFreeze => "kernel freeze",
            Self::Freeze => "freeze",
            Self::Partition => "partition",
            Self::Kill => "kill",
            Self::CrashLoop => "crash loop",
            Self::PauseAll => "pause of all",
            Self::StorePause => "store pause",
            Self::StoreSlow => "slow store",
            Self::StoreRestart => "store restart",
            Self::LeaderLoss => "lost leader",
            Self::Rail => "rail",
            Self::PortOne => "port down",
            Self::PortsAll => "all ports down",
            Self::Garbage => "garbage",
            Self::Late => "late",
            Self::NoPidfd => "kill without a pidfd",
            Self::OneWay => "one way",
            Self::Host => "host",
            Self::LinkJoiner => "newcomer without a link",
            Self::Twice => "two for one place",
            Self::Arguments => "arguments",
        }
    }

    /// Returns whether it kills processes.
    pub(crate) fn kills(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::CrashLoop
                | Self::NoPidfd
                | Self::Host
                | Self::LinkJoiner
                | Self::Twice
        )
    }
}

/// The starting process writes those up to `Calm`, the ranks write the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(crate) enum RecordKind {
    /// The run has so many ranks, whose leases last so long. Their device calls wait no longer than the deadline.
    Plan {
        ranks: u32,
        lease_ms: u64,
        /// 0 in stories of before: their ranks counted no tokens of undisturbed ranks.
        #[serde(default)]
        deadline_ms: u64,
        /// Ranks mask each other, and take back what they mask when they are told to.
        #[serde(default)]
        masks: bool,
    },
    /// All ranks take back those that they mask before this call.
    TakesBack { step: u32 },
    /// A deed begins.
    Deed(Begun),
    /// The deed is over, and ranks that it killed have been started again.
    DeedOver { deed: u32 },
    /// Its process has ended before it served, since the store did not let it in.
    GaveUp {
        #[serde(deserialize_with = "plain")]
        message: String,
    },
    /// Its process was started.
    Started,
    /// A second process was started for its place.
    Rival,
    /// Its process was killed.
    Killed,
    /// Something is done to it.
    Disturbed { how: Disturbance },
    /// That is over.
    Calm,
    /// It has made its QPs and memory, and asks to be taken in.
    Asks,
    /// It is connected with one that asks.
    Connected { other: u32, took_us: u64 },
    /// It does not reach another rank.
    Suspects {
        other: u32,
        #[serde(deserialize_with = "plain")]
        cause: String,
        /// A QP to it has failed.
        #[serde(default)]
        qp_failed: bool,
    },
    /// It reaches it again.
    Trusts { other: u32 },
    /// Its kernels wait no more for these.
    Masked { others: Vec<u32> },
    /// It has put a proposal into the store: its number, and the members that it keeps and takes in.
    Proposes { proposal: u64, members: Vec<u32> },
    /// It has promised the change that this proposal asks for. Until it serves in the next view its calls are held.
    Promises { proposal: u64 },
    /// It serves in a view of these members, or serves on in the next.
    Serves {
        epoch: u32,
        members: Vec<u32>,
        /// Pairs of members that exchange no tokens in it, the lower first.
        #[serde(default)]
        parted: Vec<(u32, u32)>,
        /// Given to the HCA, and allocated, since its last view.
        commands: u64,
        bytes: u64,
    },
    /// A step was checked.
    Step {
        step: u32,
        /// The view that it ran in, low 16 bits; none if it ended before.
        epoch: Option<u32>,
        tokens: u32,
        /// Of those, which have lost an expert.
        lost: u32,
        /// Members of the view from which rows did not come.
        missing: Vec<u32>,
        /// The lost tokens by the ranks whose experts they lack. None in stories of before.
        #[serde(default)]
        losses: Option<Vec<Loss>>,
        /// From its begin to the last token, without the checks.
        took_us: u64,
    },
    /// It has slept before a call, as a deed had told it to.
    Slept,
    /// A thread of it that does nothing but look at the clock stood still for so long.
    Stood { ms: u64 },
    /// It has failed, or was found to hang, and the run ends for that.
    Failed {
        #[serde(deserialize_with = "plain")]
        message: String,
    },
    /// The others have dropped it.
    Expelled,
    /// Another event of its group, in words.
    Notes {
        #[serde(deserialize_with = "plain")]
        words: String,
    },
}

/// Tokens of one call that lack experts of the same ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) tokens: u32,
    /// The ranks whose experts they lack, ascending.
    pub(crate) of: Vec<u32>,
    /// Why rows of each of these are missing, in the same order.
    #[serde(deserialize_with = "all_plain")]
    pub(crate) causes: Vec<String>,
}

/// A deed, and the ranks that it disturbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// Its number, from 1 on.
    pub(crate) deed: u32,
    pub(crate) how: Disturbance,
    /// The ranks to which it is done.
    pub(crate) ranks: Vec<u32>,
    /// The pairs between which nothing passes, the lower first.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// The parameters of the deed, in words.
    #[serde(deserialize_with = "plain")]
    pub(crate) words: String,
}

impl RecordKind {
    /// Returns whether the starting process wrote it, and not the rank.
    pub(super) fn is_done_to(&self) -> bool {
        matches!(
            self,
            Self::Plan { .. }
                | Self::TakesBack { .. }
                | Self::Deed(_)
                | Self::DeedOver { .. }
                | Self::GaveUp { .. }
                | Self::Started
                | Self::Rival
                | Self::Killed
                | Self::Disturbed { .. }
                | Self::Calm
                | Self::Failed { .. }
        )
    }
}

/// A text of a story, which another program may have written.
fn plain<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    String::deserialize(text).map(|text| printable(&text))
}

fn all_plain<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(texts)?;
    Ok(texts.iter().map(|text| printable(text)).collect())
}

/// Reads the records, oldest first. A line that a killed rank has not ended is left out.
pub(super) fn parse(lines: &str) -> Result<Vec<Record>, String> {
    let whole = lines.rfind('\n').map_or("", |end| &lines[..end]);
    let record = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| {
            let error = printable(&error.to_string());
            format!("line {}: {error}", number + 1)
        })
    };
    let mut records: Vec<Record> = whole
        .lines()
        .enumerate()
        .map(record)
        .collect::<Result<_, _>>()?;
    records.sort_by_key(|record| record.us);
    Ok(records)
}

#[cfg(test)]
pub(super) mod recorded {
    use super::{Record, RecordKind, parse};

    /// Three ranks; the third dies and comes back, and once the second is suspected wrongly.
    const LINES: &str = r#"{"us":0,"rank":0,"generation":1,"what":"started"}
{"us":0,"rank":1,"generation":1,"what":"started"}
{"us":0,"rank":2,"generation":1,"what":"started"}
{"us":100000,"rank":0,"generation":1,"what":"serves","epoch":1,"members":[0,1,2],"commands":0,"bytes":0}
{"us":110000,"rank":1,"generation":1,"what":"serves","epoch":1,"members":[0,1,2],"commands":0,"bytes":0}
{"us":120000,"rank":2,"generation":1,"what":"serves","epoch":1,"members":[0,1,2],"commands":0,"bytes":0}
{"us":150000,"rank":0,"generation":1,"what":"step","step":1,"epoch":1,"tokens":16,"lost":0,"missing":[],"took_us":3000}
{"us":200000,"rank":2,"generation":1,"what":"killed"}
{"us":204000,"rank":0,"generation":1,"what":"suspects","other":2,"cause":"its process has ended"}
{"us":205000,"rank":0,"generation":1,"what":"masked","others":[2]}
{"us":206000,"rank":1,"generation":1,"what":"suspects","other":2,"cause":"its process has ended"}
{"us":207000,"rank":1,"generation":1,"what":"masked","others":[2]}
{"us":208000,"rank":0,"generation":1,"what":"step","step":2,"epoch":2,"tokens":16,"lost":5,"missing":[],"took_us":3000}
{"us":230000,"rank":0,"generation":1,"what":"serves","epoch":2,"members":[0,1],"commands":6,"bytes":0}
{"us":240000,"rank":1,"generation":1,"what":"serves","epoch":2,"members":[0,1],"commands":8,"bytes":0}
{"us":300000,"rank":0,"generation":1,"what":"suspects","other":1,"cause":"kernels wait for it in vain"}
{"us":320000,"rank":0,"generation":1,"what":"trusts","other":1}
{"us":500000,"rank":2,"generation":2,"what":"started"}
{"us":650000,"rank":2,"generation":2,"what":"serves","epoch":3,"members":[0,1,2],"commands":70,"bytes":9000}
{"us":651000,"rank":0,"generation":1,"what":"serves","epoch":3,"members":[0,1,2],"commands":12,"bytes":0}
{"us":652000,"rank":1,"generation":1,"what":"serves","epoch":3,"members":[0,1,2],"commands":12,"bytes":0}
{"us":700000,"rank":0,"generation":1,"what":"step","step":3,"epoch":3,"tokens":16,"lost":0,"missing":[],"took_us":3000}
{"us":900000,"rank":0,"generation":1,"what":"suspects","other":1,"cause":"kernels wait for it in vain"}
{"us":901000,"rank":2,"generation":2,"what":"suspects","other":1,"cause":"kernels wait for it in vain"}
{"us":960000,"rank":0,"generation":1,"what":"trusts","other":1}
{"us":961000,"rank":2,"generation":2,"what":"trusts","other":1}
{"us":1000000,"rank":0,"generation":1,"what":"ste"#;

    pub(crate) fn records() -> Vec<Record> {
        parse(LINES).unwrap()
    }

    pub(crate) fn told(us: u64, rank: u32, generation: u32, what: RecordKind) -> Record {
        Record {
            us,
            rank,
            generation,
            what,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_sorted_by_time_and_read_back_and_a_wrong_line_is_named() {
        let records = recorded::records();
        assert_eq!(records.len(), 26);
        assert!(records.is_sorted_by_key(|record| record.us));
        for record in &records {
            let line = serde_json::to_string(record).unwrap();
            let read = parse(&format!("{line}\n")).unwrap();
            assert_eq!(read.as_slice(), std::slice::from_ref(record));
        }
        assert_eq!(parse("").unwrap(), []);
        let error = parse("{\"us\":1}\n").unwrap_err();
        assert!(error.starts_with("line 1: "), "{error}");
    }

    #[test]
    fn texts_of_a_story_are_plain_lines() {
        const TEXT: &str = "a\\nERROR\\u001b[2J\\u202e\\u0085";
        let line = |what: &str| format!("{{\"us\":0,\"rank\":0,\"generation\":1,{what}}}\n");
        for what in [
            format!("\"what\":\"failed\",\"message\":\"{TEXT}\""),
            format!("\"what\":\"gave_up\",\"message\":\"{TEXT}\""),
            format!("\"what\":\"notes\",\"words\":\"{TEXT}\""),
            format!("\"what\":\"suspects\",\"other\":1,\"cause\":\"{TEXT}\""),
        ] {
            let [record] = &parse(&line(&what)).unwrap()[..] else {
                panic!("{what}");
            };
            let text = match &record.what {
                RecordKind::Failed { message } | RecordKind::GaveUp { message } => message,
                RecordKind::Notes { words } => words,
                RecordKind::Suspects { cause, .. } => cause,
                other => panic!("{other:?}"),
            };
            assert_eq!(text, "a\\nERROR\\u{1b}[2J\\u{202e}\\u{85}");
        }
        let loss = format!("{{\"tokens\":1,\"of\":[1],\"causes\":[\"{TEXT}\"]}}");
        let loss: Loss = serde_json::from_str(&loss).unwrap();
        assert_eq!(loss.causes, ["a\\nERROR\\u{1b}[2J\\u{202e}\\u{85}"]);
        let error = parse(&line(&format!("\"what\":\"{TEXT}\""))).unwrap_err();
        assert_eq!(error, printable(&error));
    }
}
