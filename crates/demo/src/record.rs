//! The records of ranks, and of the process that starts and kills them: one JSON object a line.

use serde::{Deserialize, Deserializer, Serialize};
use warpverbs::engine::printable;

/// A record of something that has happened to a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Microseconds since the run began.
    pub(crate) us: u64,
    /// The rank's slot, and the generation of its process.
    pub(crate) rank: u32,
    pub(crate) generation: u32,
    #[serde(flatten)]
    pub(crate) what: RecordKind,
}

/// The kinds of disturbances, of ranks, of the store, or of keys in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Disturbance {
    /// The process of a rank is killed.
    Kill,
    /// The process of a rank is killed, and so are several that come after it.
    CrashLoop,
    /// The host threads of a rank stand still; its kernels and HCA go on.
    HostFreeze,
    /// The kernels of a rank stand still; its host threads and HCA go on.
    KernelFreeze,
    /// The whole process of a rank stands still.
    Freeze,
    /// No packet passes between a rank and some or all others.
    Partition,
    /// The processes of all ranks stand still.
    PauseAll,
    /// No call of the store ends.
    StorePause,
    /// Calls of the store are late, some too late.
    StoreSlow,
    /// The servers of the store are killed, and started again.
    StoreRestart,
    /// The server that leads the others is killed or stands still, and comes back.
    LeaderLoss,
    /// One rail of a rank carries no packet.
    Rail,
    /// The port of one rank's HCA is down.
    PortOne,
    /// The ports of all HCAs are down.
    PortsAll,
    /// A key of the group, or of its team, holds garbage.
    Garbage,
    /// A rank sleeps between two calls.
    Late,
    /// The process of a rank is killed, and no pidfd of another rank shows that.
    NoPidfd,
    /// No packet passes between a rank and another one in one direction.
    OneWay,
    /// The processes of two ranks are killed at once.
    Host,
    /// The process of a rank is killed, and the next one has no link.
    LinkJoiner,
    /// The process of a rank is killed, and two others come in its place.
    Twice,
    /// A rank makes a call with other arguments than the other ranks.
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

    /// Returns whether this kind kills processes.
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

/// What has happened. The starting process writes the kinds up to `Calm`, and the ranks write the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(crate) enum RecordKind {
    /// The setting of the run: the number of ranks, the time to live of their leases, and the longest wait of their device calls.
    Plan {
        ranks: u32,
        lease_ms: u64,
        /// 0 in stories of older versions, whose ranks counted no tokens of undisturbed ranks.
        #[serde(default)]
        deadline_ms: u64,
        /// True if the ranks mask each other, and take back masked ranks when they are told to.
        #[serde(default)]
        masks: bool,
    },
    /// All ranks are told to take back the ranks that they mask, before this call.
    TakesBack { step: u32 },
    /// A deed begins.
    Deed(Begun),
    /// The deed is over, and ranks that it killed have been started again.
    DeedOver { deed: u32 },
    /// The process of the rank has ended before it served, because the store did not let it in.
    GaveUp {
        #[serde(deserialize_with = "plain")]
        message: String,
    },
    /// A process of the rank was started.
    Started,
    /// A second process was started for the rank.
    Rival,
    /// The process of the rank was killed.
    Killed,
    /// The rank is disturbed in this way from now on.
    Disturbed { how: Disturbance },
    /// The disturbances of the rank are over.
    Calm,
    /// The rank has made its QPs and memory, and asks to be taken in.
    Asks,
    /// The rank is connected with a newcomer.
    Connected { other: u32, took_us: u64 },
    /// The rank does not reach another rank.
    Suspects {
        other: u32,
        #[serde(deserialize_with = "plain")]
        cause: String,
        /// True if a QP to the other rank has failed.
        #[serde(default)]
        qp_failed: bool,
    },
    /// The rank reaches the other rank again.
    Trusts { other: u32 },
    /// The kernels of the rank no longer wait for these ranks.
    Masked { others: Vec<u32> },
    /// The rank has put a proposal into the store: its number, and the members that it keeps and takes in.
    Proposes { proposal: u64, members: Vec<u32> },
    /// The rank has promised the change that this proposal asks for. Until it serves in the next view its calls are held.
    Promises { proposal: u64 },
    /// The rank serves in a view of these members. Before that it joined, or served in the view before.
    Serves {
        epoch: u32,
        members: Vec<u32>,
        /// The pairs of members that exchange no tokens in the view, each with the lower rank first.
        #[serde(default)]
        parted: Vec<(u32, u32)>,
        /// How many commands the rank has given to its HCA, and how many bytes it has allocated, since its last view.
        commands: u64,
        bytes: u64,
    },
    /// The rank has run and checked a step.
    Step {
        step: u32,
        /// The view in which the step ran, low 16 bits; None if it ended before it was sent.
        epoch: Option<u32>,
        tokens: u32,
        /// The number of these tokens that have lost an expert.
        lost: u32,
        /// The members of the view from which rows did not come.
        missing: Vec<u32>,
        /// The lost tokens by the ranks whose experts they lack. None in stories of older versions.
        #[serde(default)]
        losses: Option<Vec<Loss>>,
        /// The time from the step's begin to its last token, without the checks.
        took_us: u64,
    },
    /// The rank has slept before a call, as a deed had told it to.
    Slept,
    /// A thread of the rank that only looks at the clock stood still for so long.
    Stood { ms: u64 },
    /// The rank has failed, or was found to hang, and the run ends because of that.
    Failed {
        #[serde(deserialize_with = "plain")]
        message: String,
    },
    /// The others have dropped the rank.
    Expelled,
    /// Another event of the rank's group, in words.
    Notes {
        #[serde(deserialize_with = "plain")]
        words: String,
    },
}

/// Tokens of one call that lack experts of the same ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) tokens: u32,
    /// The ranks whose experts the tokens lack, ascending.
    pub(crate) of: Vec<u32>,
    /// Why the rows of each of these ranks are missing, in the order of `of`.
    #[serde(deserialize_with = "all_plain")]
    pub(crate) causes: Vec<String>,
}

/// A deed, and the ranks that it disturbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Begun {
    /// The number of the deed, from 1 on.
    pub(crate) deed: u32,
    pub(crate) how: Disturbance,
    /// The ranks that the deed disturbs.
    pub(crate) ranks: Vec<u32>,
    /// The pairs between which no packet passes, each with the lower rank first.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// The parameters of the deed, in words.
    #[serde(deserialize_with = "plain")]
    pub(crate) words: String,
}

impl RecordKind {
    /// Returns whether the starting process writes this kind, and not the rank.
    pub(crate) fn is_done_to(&self) -> bool {
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

/// Reads a text of a story, which another program may have written, and makes it printable.
fn plain<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    String::deserialize(text).map(|text| printable(&text))
}

fn all_plain<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<String>, D::Error> {
    let texts = Vec::<String>::deserialize(texts)?;
    Ok(texts.iter().map(|text| printable(text)).collect())
}

/// Reads the records, oldest first. If the last line has no end, because its rank was killed, it is left out.
pub(crate) fn parse(lines: &str) -> Result<Vec<Record>, String> {
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
pub(crate) mod recorded {
    use super::{Record, RecordKind, parse};

    /// The records of three ranks. The third dies and comes back, and once the second is wrongly suspected.
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
