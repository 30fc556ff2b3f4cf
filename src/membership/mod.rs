//! Agreement of the ranks of a team, through the store, on who is a member. Ranks die, leave and come back while the others go on.
//!
//! A member has a slot, a generation and a lease; each rank that takes the slot has another generation. A view is a set of members,
//! the pairs of them that are parted, an epoch and the first call that runs in it. Views follow each other by compare-and-set on
//! one record. Any member may propose, promise and commit.
//!
//! The group expels a member in four cases. Its process has ended. No rank that looks hears of it. The larger side has no contact
//! with it. Or it leaves a proposal unanswered. Only the end of a process is final at once: a sign of life withdraws the other
//! findings. Time in which the rank that looks, or the store, stood still does not count. If a QP between two members fails, the
//! pair parts, and neither is expelled.
//!
//! Crate `membership-rules` says what a rank concludes from a look and what it does next, and a model runs these very functions in every
//! order. Module `driver` looks (`see`), asks the rules, and does what they say (`steps`). Module `group_store` reads and writes the keys
//! in the store.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use warpverbs::gpu::{self, GpuSelector};
//! use warpverbs::membership::{Group, GroupConfig, GroupState, newest_view};
//! use warpverbs::moe::{Moe, MoeConfig};
//! use warpverbs::team::{JoinOptions, MemoryStore, Store, TeamConfig};
//! use warpverbs::verbs::{Context, DeviceSelector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let _hca = softhca::Hca::new()?; // where there is no ConnectX
//! let device = Context::open(&DeviceSelector::Auto)?;
//! let gpu = gpu::open(GpuSelector::Auto)?;
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
//! // Rank 0 founds the team alone; there is a place for one more.
//! let founders = [0].into_iter().collect();
//! let config = TeamConfig::new(0, 2).with_members(Some(founders));
//! let options = JoinOptions::new(config).with_contexts([&device]).with_gpu(&gpu);
//! let team = options.with_store(Arc::clone(&store)).join()?;
//! let shape = MoeConfig::BF16.with_hidden(64).with_experts(2).with_top_k(1).with_max_tokens(8);
//! let moe = Moe::new(&team, "layer0", shape)?;
//!
//! let group = Group::start(&team, moe, &GroupConfig::default())?;
//! group.wait(GroupState::Serving, Duration::from_secs(20))?;
//! let view = newest_view(&store, 2)?.expect("rank 0 has founded the group");
//! assert_eq!(view.members.into_keys().collect::<Vec<_>>(), [0]);
//! group.leave(Duration::from_secs(20))?;
//! # Ok(())
//! # }
//! ```
//!
//! | a rank is | and | does | and is then |
//! |---|---|---|---|
//! | `Joining` | founds the team; all founders hold their leases, or `found_bound` has passed | writes the first record | `Serving` in view 1 |
//! | `Joining` | comes later | takes a lease that asks, connects with every member and every other newcomer | `Joining` |
//! | `Joining` | a proposal takes it in | promises before any member does, and promises no call | `Joining` |
//! | `Joining` | the whole view has ended, or was not heard of for `found_bound` | proposes the ranks that ask and are connected with each other | `Joining` |
//! | `Serving` | a port is down, the store is away, or leases are missing after a gap | nothing | `Serving` |
//! | `Serving` | what it has to say of the others has changed | writes its row | `Serving` |
//! | `Serving`, `Changing` | a member has ended for certain: its process has, or it has said so | ends its QPs to it at once; no view opens them again | the same |
//! | `Serving` | a rank goes; else a pair parts; else a rank comes or a pair unites; and it is its turn | proposes the next view | `Serving` |
//! | `Serving` | wants to leave, and no proposal is open | starts no further call, says which was its last, wakes the others by the record | `Serving` until a view is without it |
//! | `Serving` | a proposal takes in newcomers that have not promised | nothing; calls go on | `Serving` |
//! | `Serving` | a proposal keeps it, and its newcomers have promised | closes the limit, ends its QPs to ranks that go or are parted from it, promises the last call it has started | `Changing` |
//! | `Changing` | a smaller proposal replaces the one it has promised | fences more, promises the same call | `Changing` |
//! | `Changing` | a rank of the proposal is gone, or has not promised for `promise_bound` | proposes without it | `Changing` |
//! | `Changing` | all of the proposal have promised, and it is its turn | commits: epoch + 1, first call = 1 + the largest promise | `Changing` |
//! | `Joining`, `Changing` | the record has a new view with it | opens the limit to first - 1, gives the device the view, opens newcomers and united peers, opens the limit | `Serving` |
//! | `Serving`, `Changing` | a proposal leaves it out | waits; if all ranks that it names are gone, proposes itself alone, once in a view | the same; `Expelled` the second time |
//! | any | the record has had it as a member and has it no more | ends its calls and its QPs; a leaver first ends the calls before that view | `Expelled`, or `Left` if it wanted to |
//! | any | the HCAs of all its rails have failed for good, and two others meet | ends its calls and its QPs, gives its lease back | `Expelled` |
//! | any | a thread of its group panics | ends its QPs and gives its lease back | `Broken` |
//!
//! A held call whose deadline runs out ends aborted and has used up its number, in any state; nothing else changes.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it.
//!
//! ```text
//! group.rs           `Group`: start, what it tells, how a rank leaves
//! driver.rs          the thread that follows the rules: its turns, and in `driver/` the steps of a change
//! see.rs             what a rank sees of the others: the look from which the rules conclude
//! age.rs anew.rs doubt.rs named.rs own_row.rs reports.rs tidy.rs turns.rs   parts of a turn, each with what only it knows
//! rank.rs            one rank: its store, how far it is by the rules, what its threads share
//! connector.rs bell.rs watch.rs report.rs   the threads that connect, wait for the record, watch; a group as others read it
//! connect.rs threads.rs   with whom QPs are connected, and when; how a thread starts
//! shared.rs group_store/   what the threads of a rank share; what it reads and writes in the store
//! config.rs generations.rs of_team.rs suspects.rs counters.rs outcome.rs   bounds; generations; a team as transport; causes
//! error.rs transport.rs   what can be wrong; the QPs, as a group sees them
//! attention.rs changes.rs event.rs heard.rs holders.rs layer.rs newcomers.rs pidfd.rs stored/   when a rank looks, and for what;
//!                    events; what was heard; leases; a layer; tries of newcomers; ends of processes; keys and values
//! ```

mod age;
mod anew;
mod attention;
mod bell;
mod changes;
mod config;
mod connect;
mod connector;
mod counters;
mod doubt;
mod driver;
mod error;
mod event;
mod generations;
mod group;
mod group_store;
mod heard;
mod holders;
mod layer;
mod named;
mod newcomers;
mod of_team;
mod outcome;
mod own_row;
mod pidfd;
mod rank;
mod report;
mod reports;
#[cfg(test)]
mod scenarios;
mod see;
mod shared;
#[cfg(any(test, feature = "sim"))]
#[doc(hidden)]
pub mod sim;
mod stored;
mod suspects;
mod threads;
mod tidy;
mod transport;
mod turns;
mod watch;

pub use config::GroupConfig;
pub use counters::GroupCounters;
pub use error::GroupError;
pub use event::{Cause, GroupEvent, GroupEventKind, GroupState, GroupView};
pub use generations::next_generation;
pub use group::Group;
pub use group_store::newest_view;
pub use layer::{Layer, LayerError, LayerView};
pub use membership_rules::members::Members;
pub use report::{GroupReport, HeldBackReport, OpenProposal, RankReport, read_group};

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    /// Returns the Rust files below `directory`.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let below = |path: PathBuf| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        };
        let all = paths.flat_map(below);
        all.filter(|path| path.extension().is_some_and(|it| it == "rs"))
            .collect()
    }

    #[test]
    fn no_clock_that_can_be_set_is_read_by_groups_and_stores() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let settable = ["System", "Time"].concat();
        for part in [
            "src/membership",
            "crates/membership-rules/src",
            "crates/rendezvous/src",
        ] {
            let found = sources(&root.join(part));
            assert!(found.len() > 10, "{part}: {found:?}");
            for path in found {
                let text = std::fs::read_to_string(&path).unwrap();
                for clock in [
                    settable.as_str(),
                    "CLOCK_REALTIME",
                    "UNIX_EPOCH",
                    ".modified()",
                ] {
                    let own = clock != settable && path.ends_with("src/membership/mod.rs");
                    assert!(own || !text.contains(clock), "{}: {clock}", path.display());
                }
            }
        }
    }

    #[test]
    fn the_table_of_states_is_the_same_here_and_in_the_document() {
        let rows = |text: &'static str, prefix: &str| -> Vec<&str> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
            let table = lines.skip_while(|line| !line.starts_with("| a rank is"));
            table.take_while(|line| line.starts_with('|')).collect()
        };
        let here = rows(include_str!("mod.rs"), "//! ");
        assert_eq!(here.len(), 21);
        assert_eq!(here, rows(include_str!("../../docs/membership.md"), ""));
    }
}
