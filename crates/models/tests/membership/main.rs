//! The rules of membership, checked: every interleaving of small worlds with bad evidence, two processes for one place, and a store
//! that loses the record. A world that leaves a rule out must break the property that is named with it.
//!
//! `cargo test -p models --test membership -- --nocapture` prints the table. What this proves and what not: docs/models.md.

mod anew;
mod successors;

use std::time::Instant;

use models::explore::search;
use models::membership::{Budget, Config, ENDLESS, Model, NONE, Rule};

const BASE: Config = Config {
    ranks: 3,
    traffic: true,
    calls: 0,
    split: false,
    witness: false,
    bound: 4,
    onebyone: false,
    stale: false,
    only: &[],
    budget: NONE,
    left_out: &[],
};

/// What other models had, and more than one of it.
const AGREEMENT: &[(&str, Config)] = &[
    (
        "death",
        Config {
            budget: Budget { die: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "death, 4 ranks",
        Config {
            ranks: 4,
            budget: Budget { die: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "deaths seen at once",
        Config {
            witness: true,
            budget: Budget { die: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "leave",
        Config {
            calls: 2,
            budget: Budget { leave: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "both leave",
        Config {
            ranks: 2,
            calls: 1,
            budget: Budget { leave: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "newcomer",
        Config {
            ranks: 2,
            calls: 1,
            split: true,
            budget: Budget { join: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "newcomer, two deaths, founded anew",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                die: 2,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "newcomer, one is cut off",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                cut1: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "newcomer, no path between two",
        Config {
            budget: Budget {
                join: 1,
                cutlink: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "newcomer, all stand still",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                pauseall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
];

/// The store.
const STORE: &[(&str, Config)] = &[
    (
        "store stands still twice",
        Config {
            ranks: 4,
            budget: Budget { stall: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "store stands still, a death",
        Config {
            budget: Budget {
                stall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "leases are lost",
        Config {
            traffic: false,
            budget: Budget { lose: 4, ..NONE },
            ..BASE
        },
    ),
    (
        "a lease is lost, store stands still",
        Config {
            ranks: 4,
            budget: Budget {
                lose: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a lease is lost, a death",
        Config {
            budget: Budget {
                lose: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "store far for one",
        Config {
            budget: Budget {
                xstall: 1,
                lose: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "keys nobody can read, asks of nobody, a death",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                die: 1,
                junkrow: 1,
                junkask: 2,
                ..NONE
            },
            ..BASE
        },
    ),
];

/// Ranks that stand still.
const PAUSES: &[(&str, Config)] = &[
    (
        "all stand still twice",
        Config {
            ranks: 4,
            budget: Budget {
                pauseall: 2,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one stands still, a death",
        Config {
            budget: Budget {
                pause1: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "no calls: one stands still, a death",
        Config {
            traffic: false,
            budget: Budget {
                pause1: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "no calls: a lease is lost, the store",
        Config {
            traffic: false,
            budget: Budget {
                stall: 1,
                lose: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "no calls: a lease is lost, all stand still",
        Config {
            traffic: false,
            budget: Budget {
                pauseall: 1,
                lose: 1,
                ..NONE
            },
            ..BASE
        },
    ),
];

/// Ports and paths.
const PATHS: &[(&str, Config)] = &[
    (
        "all ports",
        Config {
            budget: Budget { portall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports, contact is old",
        Config {
            stale: true,
            budget: Budget { portall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one is cut off, contact is old",
        Config {
            stale: true,
            budget: Budget { cut1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports, one has calls to make",
        Config {
            budget: Budget {
                portall: 1,
                behind: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one link",
        Config {
            budget: Budget {
                cutlink: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "no calls: one is cut off",
        Config {
            traffic: false,
            budget: Budget { cut1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "two ranks, one port, a death",
        Config {
            ranks: 2,
            budget: Budget {
                port1: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "two ranks, nothing carries twice",
        Config {
            ranks: 2,
            budget: Budget { cutall: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "two ranks, ports and pause",
        Config {
            ranks: 2,
            budget: Budget {
                portall: 1,
                pauseall: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
];

/// Ranks that wait for words before they propose that others go or part.
const DOUBT: &[(&str, Config)] = &[
    (
        "two deaths",
        Config {
            budget: Budget {
                die: 2,
                doubt: 6,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a death, writes land late",
        Config {
            split: true,
            budget: Budget {
                die: 1,
                doubt: 6,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one stands still",
        Config {
            budget: Budget {
                pause1: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all stand still",
        Config {
            budget: Budget {
                pauseall: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "the store",
        Config {
            budget: Budget {
                stall: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one port",
        Config {
            budget: Budget {
                port1: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one link",
        Config {
            budget: Budget {
                cutlink: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one is cut off",
        Config {
            budget: Budget {
                cut1: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a newcomer, a death",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                die: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a leaver, a death",
        Config {
            ranks: 2,
            calls: 1,
            budget: Budget {
                leave: 1,
                die: 1,
                doubt: 3,
                ..NONE
            },
            ..BASE
        },
    ),
];

/// The larger ones of each kind.
const FULL: &[(&str, Config)] = &[
    (
        "death, calls",
        Config {
            calls: 2,
            split: true,
            budget: Budget { die: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "leave and death",
        Config {
            calls: 1,
            budget: Budget {
                leave: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "newcomer, a death (its own too)",
        Config {
            ranks: 2,
            calls: 1,
            budget: Budget {
                join: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "newcomer, store stands still, a death",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                die: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "the same, split, calls",
        Config {
            calls: 1,
            split: true,
            budget: Budget {
                stall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all stand still, a death",
        Config {
            ranks: 4,
            budget: Budget {
                pauseall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one stands still",
        Config {
            ranks: 4,
            budget: Budget { pause1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one stands still, its lease is lost",
        Config {
            budget: Budget {
                pause1: 1,
                lose: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one, and the store",
        Config {
            budget: Budget {
                pause1: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one twice",
        Config {
            budget: Budget { pause1: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "no calls: all and the store, a death",
        Config {
            traffic: false,
            budget: Budget {
                stall: 1,
                pauseall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all, the store, a lease, a death",
        Config {
            budget: Budget {
                pauseall: 1,
                stall: 1,
                lose: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all ports twice, contact is old",
        Config {
            stale: true,
            budget: Budget { portall: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports, a death, contact is old",
        Config {
            stale: true,
            budget: Budget {
                portall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all ports, all stand still, contact is old",
        Config {
            stale: true,
            budget: Budget {
                portall: 1,
                pauseall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all ports, a short bound",
        Config {
            bound: 3,
            budget: Budget { portall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one port",
        Config {
            budget: Budget { port1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one is cut off",
        Config {
            budget: Budget { cut1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "nothing carries, QPs fail one by one",
        Config {
            onebyone: true,
            budget: Budget { cutall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports, a death",
        Config {
            budget: Budget {
                portall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "nothing carries, a death",
        Config {
            budget: Budget {
                cutall: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one link, store stands still",
        Config {
            budget: Budget {
                cutlink: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one link, all stand still",
        Config {
            budget: Budget {
                cutlink: 1,
                pauseall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "deaths, 4 ranks",
        Config {
            ranks: 4,
            budget: Budget { die: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "newcomer, all stand still, a death",
        Config {
            ranks: 2,
            calls: 1,
            budget: Budget {
                join: 1,
                die: 1,
                pauseall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one stands still and dies, split, calls",
        Config {
            calls: 1,
            split: true,
            budget: Budget {
                pause1: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "4 ranks, one link, store stands still",
        Config {
            ranks: 4,
            budget: Budget {
                cutlink: 1,
                stall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "4 ranks, two and two",
        Config {
            ranks: 4,
            budget: Budget { cuthalf: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports, QPs fail one by one",
        Config {
            onebyone: true,
            budget: Budget { portall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "no calls: nothing carries",
        Config {
            traffic: false,
            onebyone: true,
            budget: Budget { cutall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one is cut off, QPs fail one by one",
        Config {
            onebyone: true,
            budget: Budget { cut1: 1, ..NONE },
            ..BASE
        },
    ),
];

/// Name, the property that is broken, and the configuration with the rules that are left out.
const LEFT_OUT: &[(&str, &str, Config)] = &[
    (
        "1 lease loss is certain, duels",
        "A3",
        Config {
            ranks: 2,
            only: &["A3"],
            budget: Budget { lose: 2, ..NONE },
            left_out: &[
                Rule::StoreGap,
                Rule::FirstLook,
                Rule::Unheard,
                Rule::Withdrawn,
                Rule::Seconded,
                Rule::Veto,
                Rule::SoloOnce,
            ],
            ..BASE
        },
    ),
    (
        "1 the same, somebody is expelled",
        "A2",
        Config {
            budget: Budget { stall: 1, ..NONE },
            left_out: &[
                Rule::StoreGap,
                Rule::FirstLook,
                Rule::Unheard,
                Rule::Withdrawn,
                Rule::Seconded,
                Rule::Veto,
                Rule::SoloOnce,
            ],
            ..BASE
        },
    ),
    (
        "2 a slow store counts as healthy",
        "A2",
        Config {
            budget: Budget { stall: 1, ..NONE },
            left_out: &[Rule::StoreGap, Rule::FirstLook, Rule::Veto],
            ..BASE
        },
    ),
    (
        "3 a stale lease is revoked",
        "A2",
        Config {
            budget: Budget { stall: 1, ..NONE },
            left_out: &[Rule::NotRevoked, Rule::Unheard, Rule::Seconded, Rule::Veto],
            ..BASE
        },
    ),
    (
        "4 own gap ignored",
        "A2",
        Config {
            budget: Budget {
                pauseall: 1,
                ..NONE
            },
            left_out: &[Rule::OwnGap, Rule::FirstLook, Rule::Veto],
            ..BASE
        },
    ),
    (
        "5 port down: it goes",
        "A2",
        Config {
            budget: Budget { portall: 1, ..NONE },
            left_out: &[Rule::PortsSayNothing],
            ..BASE
        },
    ),
    (
        "5 silence counts as contact",
        "A2",
        Config {
            budget: Budget { cutall: 1, ..NONE },
            left_out: &[Rule::Lonely, Rule::Fresh, Rule::BothMeet],
            ..BASE
        },
    ),
    (
        "5 one alone may stay",
        "A2",
        Config {
            budget: Budget { portall: 1, ..NONE },
            left_out: &[Rule::Lonely, Rule::Fresh, Rule::TwoStay],
            ..BASE
        },
    ),
    (
        "5 contact that is old lets clocks run",
        "A2",
        Config {
            stale: true,
            budget: Budget { portall: 1, ..NONE },
            left_out: &[Rule::Fresh],
            ..BASE
        },
    ),
    (
        "5 fenced pair kept",
        "E6",
        Config {
            budget: Budget { cutlink: 1, ..NONE },
            left_out: &[Rule::PartsStand],
            ..BASE
        },
    ),
    (
        "7 a key nobody can read ends the look",
        "A1",
        Config {
            budget: Budget {
                die: 1,
                junkrow: 1,
                ..NONE
            },
            left_out: &[Rule::KeysOneByOne],
            ..BASE
        },
    ),
    (
        "8 asks without a lease count",
        "A2",
        Config {
            budget: Budget { junkask: 1, ..NONE },
            left_out: &[Rule::LaterIsNothing],
            ..BASE
        },
    ),
    (
        "9 the newest asker hides the living",
        "A1",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                junkask: 2,
                ..NONE
            },
            left_out: &[Rule::EachGeneration],
            ..BASE
        },
    ),
    (
        "10 a stopped observer is believed",
        "A2",
        Config {
            budget: Budget { pause1: 1, ..NONE },
            left_out: &[Rule::ClockFirst, Rule::Withdrawn, Rule::Seconded],
            ..BASE
        },
    ),
    (
        "11 answer clock runs through gaps",
        "A2",
        Config {
            budget: Budget {
                pauseall: 1,
                die: 1,
                ..NONE
            },
            left_out: &[Rule::AnswerGap],
            ..BASE
        },
    ),
    (
        "QPs of a newcomer count before they have carried anything",
        "N",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                cut1: 1,
                ..NONE
            },
            left_out: &[Rule::Proven],
            ..BASE
        },
    ),
    (
        "a newcomer comes in that reaches nobody",
        "N",
        Config {
            ranks: 2,
            budget: Budget {
                join: 1,
                cut1: 1,
                ..NONE
            },
            left_out: &[Rule::LargerPart],
            ..BASE
        },
    ),
    (
        "16 calls are held for a newcomer",
        "A4",
        Config {
            ranks: 2,
            budget: Budget { join: 1, ..NONE },
            left_out: &[Rule::NewcomersFirst],
            ..BASE
        },
    ),
    (
        "nobody goes for want of contact",
        "A5",
        Config {
            budget: Budget { cut1: 1, ..NONE },
            left_out: &[Rule::Choice],
            ..BASE
        },
    ),
    (
        "no veto by words that arrive",
        "A2",
        Config {
            budget: Budget { xstall: 1, ..NONE },
            left_out: &[Rule::Veto],
            ..BASE
        },
    ),
    (
        "a lease taken again is not told",
        "A2",
        Config {
            traffic: false,
            budget: Budget { lose: 2, ..NONE },
            left_out: &[Rule::Takings],
            ..BASE
        },
    ),
    (
        "a promise waits for QPs",
        "A2",
        Config {
            budget: Budget { cutlink: 2, ..NONE },
            left_out: &[Rule::PromiseAtOnce],
            ..BASE
        },
    ),
    (
        "the lease is renewed beside the rules",
        "A1",
        Config {
            traffic: false,
            budget: Budget { die: 1, ..NONE },
            left_out: &[Rule::RenewedByRules],
            ..BASE
        },
    ),
    (
        "no fence",
        "E2",
        Config {
            calls: 1,
            traffic: false,
            budget: Budget { die: 1, ..NONE },
            left_out: &[Rule::Fence],
            ..BASE
        },
    ),
    (
        "commit by majority",
        "E2",
        Config {
            ranks: 4,
            budget: Budget { die: 1, ..NONE },
            left_out: &[Rule::AllPromise],
            ..BASE
        },
    ),
    (
        "a proposal grows again",
        "E6",
        Config {
            only: &["E6"],
            budget: Budget { pause1: 1, ..NONE },
            left_out: &[Rule::OnlyLoses],
            ..BASE
        },
    ),
    (
        "first call is the largest promise",
        "E3",
        Config {
            calls: 2,
            budget: Budget { die: 1, ..NONE },
            left_out: &[Rule::FirstBehind],
            ..BASE
        },
    ),
];

/// What only this model has: leavers of which T holds, calls before a view that keep pairs parted, and proposals that wait for words.
const OURS: &[(&str, &str, Config)] = &[
    (
        "words are awaited without end",
        "A1",
        Config {
            budget: Budget {
                die: 1,
                doubt: ENDLESS,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "who has calls to make counts as out of reach",
        "A2",
        Config {
            budget: Budget {
                portall: 1,
                behind: 1,
                ..NONE
            },
            left_out: &[Rule::BehindSaysNothing],
            ..BASE
        },
    ),
    (
        "the last call of a leaver is forgotten",
        "T",
        Config {
            calls: 2,
            budget: Budget { leave: 1, ..NONE },
            left_out: &[Rule::LeaversCount],
            only: &["T"],
            ..BASE
        },
    ),
    (
        "a leaver ends at once",
        "T",
        Config {
            calls: 2,
            budget: Budget { leave: 1, ..NONE },
            left_out: &[Rule::LeaversWait],
            ..BASE
        },
    ),
];

/// Writes apart from looks, under each disturbance; the prototype has two of these.
const APART: &[(&str, Config)] = &[
    (
        "the store",
        Config {
            split: true,
            budget: Budget { stall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "leases",
        Config {
            split: true,
            budget: Budget { lose: 2, ..NONE },
            ..BASE
        },
    ),
    (
        "far from the store",
        Config {
            split: true,
            budget: Budget {
                xstall: 1,
                lose: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "all stand still",
        Config {
            split: true,
            budget: Budget {
                pauseall: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one stands still",
        Config {
            split: true,
            budget: Budget { pause1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "all ports",
        Config {
            split: true,
            budget: Budget { portall: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one link",
        Config {
            split: true,
            budget: Budget { cutlink: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one link, a death",
        Config {
            split: true,
            budget: Budget {
                cutlink: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a newcomer that dies, two ranks",
        Config {
            ranks: 2,
            split: true,
            budget: Budget {
                join: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "keys nobody can read, a death, two ranks",
        Config {
            ranks: 2,
            split: true,
            budget: Budget {
                join: 1,
                die: 1,
                junkrow: 1,
                junkask: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "one port, a death, two ranks",
        Config {
            ranks: 2,
            split: true,
            budget: Budget {
                port1: 1,
                die: 1,
                ..NONE
            },
            ..BASE
        },
    ),
    (
        "a leaver",
        Config {
            split: true,
            calls: 1,
            budget: Budget { leave: 1, ..NONE },
            ..BASE
        },
    ),
];

/// The same, with many states.
const APART_FULL: &[(&str, Config)] = &[
    (
        "one port",
        Config {
            split: true,
            budget: Budget { port1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "one is cut off",
        Config {
            split: true,
            budget: Budget { cut1: 1, ..NONE },
            ..BASE
        },
    ),
    (
        "nothing carries, QPs fail one by one",
        Config {
            split: true,
            onebyone: true,
            budget: Budget { cutall: 1, ..NONE },
            ..BASE
        },
    ),
];

#[test]
fn writes_may_land_late_under_each_disturbance() {
    run(APART);
    if is_full() {
        run(APART_FULL);
    }
}

/// As `writes_may_land_late_under_each_disturbance`, with many states.
const LEFT_OUT_FULL: &[(&str, &str, Config)] = &[(
    "5 who meets nobody accuses",
    "A2",
    Config {
        onebyone: true,
        budget: Budget { cutall: 1, ..NONE },
        left_out: &[Rule::Lonely, Rule::Fresh],
        ..BASE
    },
)];

fn is_full() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some()
}

fn run(all: &[(&str, Config)]) {
    for (name, config) in all {
        let start = Instant::now();
        let found = search(&Model::new(*config));
        let states = found.states;
        eprintln!("{states:>9} states in {:>7.1?}: {name}", start.elapsed());
        if let Some((broken, way)) = found.violation {
            panic!("{name}: {broken:?} after\n  {}", way.join("\n  "));
        }
    }
}

#[test]
fn deaths_leaves_and_newcomers_end_in_one_view() {
    run(AGREEMENT);
}

#[test]
fn a_store_that_stands_still_or_loses_leases_costs_no_rank_a_place() {
    run(STORE);
}

#[test]
fn ranks_that_stand_still_together_keep_their_places() {
    run(PAUSES);
}

#[test]
fn ports_and_paths_that_come_back_leave_all_in_one_view() {
    run(PATHS);
}

#[test]
fn a_proposal_that_waits_for_words_for_a_while_harms_nobody() {
    run(DOUBT);
}

#[test]
fn the_larger_worlds_hold_too() {
    if is_full() {
        run(FULL);
    }
}

#[test]
fn every_rule_that_is_left_out_is_missed_by_its_property() {
    let mut wrong = Vec::new();
    let larger = if is_full() { LEFT_OUT_FULL } else { &[] };
    for (name, property, config) in LEFT_OUT.iter().chain(OURS).chain(larger) {
        let start = Instant::now();
        let found = search(&Model::new(*config));
        let broken = found.violation.map(|(broken, _)| broken);
        let broken = broken.map_or(("nothing", String::new()), |it| (it.property, it.text));
        let (states, took) = (found.states, start.elapsed());
        eprintln!("{states:>9} states in {took:>7.1?}: {name}: {broken:?}");
        if broken.0 != *property {
            wrong.push(format!("{name} must break {property}, breaks {broken:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
