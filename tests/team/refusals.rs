//! A rank that comes and does not fit is refused by name, and the place is free for the next.

use std::sync::Arc;
use std::time::Duration;

use warpverbs::team::{MemoryStore, RankSet, Records, Store, TeamConfig};

use crate::fleet::DrivenFleet;
use crate::rank::{Rank, setup};
use test_support::fleet::Hcas;

/// The errors of both ends when rank 2 comes as `generation` and has made windows as `window` does beside its first.
fn refused(
    fleet: &mut DrivenFleet<'_>,
    generation: u32,
    change: impl Fn(&mut TeamConfig),
    windows: impl Fn(&Rank<'_>),
) -> String {
    let mut config = fleet.joining(2, generation);
    change(&mut config);
    let new = Rank::alone(config, fleet.hcas.of(2), Arc::clone(&fleet.store));
    let new = match new {
        // It finds out itself, from the records of the members.
        Err(error) => return error.to_string(),
        Ok(new) => new,
    };
    windows(&new);
    new.team.hello().unwrap();
    let team = &fleet.rank(0).team;
    let before = team.commands();
    let error = team
        .resolve_peer(2, generation, Duration::ZERO)
        .unwrap_err();
    let again = team
        .connect_peer(2, generation, Duration::ZERO)
        .unwrap_err();
    assert_eq!(error.to_string(), again.to_string());
    assert_eq!(team.commands(), before, "nothing is touched");
    error.to_string()
}

#[test]
fn a_rank_that_does_not_fit_is_refused_by_name() {
    let setup = setup(3);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let nothing = |_: &Rank<'_>| {};
    let message = refused(&mut fleet, 2, |config| config.log_depth = 9, nothing);
    assert_eq!(message, "log_depth is 8 at rank 0 but 9 at rank 2");
    let message = refused(&mut fleet, 3, |config| config.ranks = 4, nothing);
    assert_eq!(message, "number of ranks is 3 at rank 0 but 4 at rank 2");
    let message = refused(
        &mut fleet,
        4,
        |_| {},
        |rank| {
            rank.team.window(4096).unwrap();
        },
    );
    assert_eq!(message, "number of windows is 1 at rank 0 but 2 at rank 2");
    // The founders make another, and the newcomer makes it larger, or for another purpose.
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let team = &fleet.rank(rank).team;
            scope.spawn(move || team.data_window(4096).unwrap());
        }
    });
    let message = refused(&mut fleet, 5, |_| {}, nothing);
    assert_eq!(message, "number of windows is 2 at rank 0 but 1 at rank 2");
    let message = refused(
        &mut fleet,
        6,
        |_| {},
        |rank| {
            rank.team.data_window(8192).unwrap();
        },
    );
    assert_eq!(
        message,
        "bytes of window 1 is 4096 at rank 0 but 8192 at rank 2"
    );
    let message = refused(
        &mut fleet,
        7,
        |_| {},
        |rank| {
            rank.team.window(4096).unwrap();
        },
    );
    assert_eq!(
        message,
        "purpose of window 1 is Data at rank 0 but Any at rank 2"
    );

    let config = fleet.joining(2, 8);
    let new = Rank::alone(config, hcas.of(2), Arc::clone(&fleet.store)).unwrap();
    new.team.data_window(4096).unwrap();
    new.team.hello().unwrap();
    fleet.settle(new);
    fleet.connect(2);
    fleet.open(2);
    fleet.talk_all();
    // It does not do what founders do together.
    let error = fleet.rank(2).team.barrier("all").unwrap_err().to_string();
    assert_eq!(
        error,
        "a barrier is for those who founded the team; rank 2 joined later"
    );
    drop(fleet);
    hcas.check();
}

#[test]
fn a_rank_with_another_number_of_rails_is_refused() {
    let mut setup = setup(2);
    setup.rails = 2;
    let hcas = Hcas::new(&setup);
    let fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(1));
    let one = &hcas.of(1)[..1];
    let error = Rank::alone(fleet.joining(1, 1), one, Arc::clone(&fleet.store)).map(drop);
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "number of rails is 2 at rank 0 but 1 at rank 1");
}

#[test]
fn records_that_no_rank_of_this_run_and_version_writes_are_refused() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let store: Arc<dyn Store> = Arc::new(Records::new(Arc::clone(&memory), "this").unwrap());
    let mut fleet = DrivenFleet::found_in(&setup, &hcas, RankSet::first(1), Arc::clone(&store));
    fleet.come(1, 1);
    let connect = |fleet: &DrivenFleet<'_>| {
        let error = fleet.connect_end(0, 1).unwrap_err().to_string();
        assert!(!fleet.rank(0).team.is_connected(1).unwrap());
        error
    };
    let text = |key: &str| String::from_utf8(store.try_get(key).unwrap().unwrap()).unwrap();
    let put = |key: &str, text: &str| store.put(key, text.as_bytes()).unwrap();

    // The hello: of another run, of another version, no record, cut off.
    let hello = text("hello/1.1");
    let other = Records::new(Arc::clone(&memory), "other").unwrap();
    other.put("hello/1.1", hello.as_bytes()).unwrap();
    let error = connect(&fleet);
    assert!(error.contains("version 3 of run 'other'"), "{error}");
    put(
        "hello/1.1",
        &hello.replacen("\"version\":6", "\"version\":7", 1),
    );
    assert_eq!(
        connect(&fleet),
        "invalid record 'hello/1.1' from rank 1: version 7; this is version 6"
    );
    for cut in ["", "{", &hello[..hello.len() / 2]] {
        put("hello/1.1", cut);
        let error = connect(&fleet);
        assert!(
            error.starts_with("invalid record 'hello/1.1' from rank 1: "),
            "{error}"
        );
    }
    put("hello/1.1", &hello.replacen("\"mtu\":", "\"mtu\":9", 1));
    let error = connect(&fleet);
    assert!(error.contains("it must be 1 to 5"), "{error}");

    // The welcome: for another rank, with a QP too many, a key too few, numbers that cannot be.
    put("hello/1.1", &hello);
    fleet.connect_end(1, 0).unwrap_err();
    let key = "welcome/1.1/0.1";
    let welcome = text(key);
    let wrong = [
        (
            "\"generation\":1",
            "\"generation\":2",
            "for rank 0 of generation 2",
        ),
        ("\"rank\":0", "\"rank\":1", "for rank 1 of generation 1"),
        (
            "\"version\":6",
            "\"version\":7",
            "version 7; this is version 6",
        ),
        (
            "\"qps\":[",
            "\"qps\":[{\"qpn\":5,\"psn\":5,\"far\":null,\"ece\":0},",
            "number of QPs told is 2 at rank 0 but 3 at rank 1",
        ),
        (
            "\"far\":null",
            "\"far\":16777216",
            "0x1000000; QPNs and PSNs have 24 bits",
        ),
        (
            "\"rkeys\":[",
            "\"rkeys\":[7,",
            "2 keys of a window; there are 1 rails",
        ),
        (
            "\"bytes\":262144",
            "\"bytes\":4096",
            "bytes of window 0 is 262144 at rank 0 but 4096",
        ),
        (
            "\"handle\":null",
            "\"handle\":{\"bytes\":262143,\"name\":{\"file\":{\"pid\":1,\"fd\":0,\"name\":\"\"}}}",
            "a handle of 262143 bytes for a window of 262144",
        ),
    ];
    for (part, instead, says) in wrong {
        assert!(welcome.contains(part), "{part}: {welcome}");
        put(key, &welcome.replacen(part, instead, 1));
        let error = connect(&fleet);
        assert!(error.contains(says), "{part}: {error}");
    }
    put(key, &welcome);
    fleet.connect(1);
    fleet.open(1);
    fleet.talk(0, 1);
    drop(fleet);
    hcas.check();
}
