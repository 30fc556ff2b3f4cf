//! Tests of processes that are stopped or killed between any two steps while others go on, and of late links by the kernel and NFS.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::super::scratch::{MAX_SCRATCH, SCRATCH};
use super::*;
use crate::Process;

const KEY: &str = "folder/key";
const LONG: Duration = Duration::from_secs(100);

/// The function that runs before each step of a call.
#[derive(Default)]
pub(super) struct Steps(Mutex<Option<Box<dyn FnMut() + Send>>>);

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Steps")
    }
}

impl Steps {
    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn FnMut() + Send>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn run(&self) {
        let happens = self.lock().take();
        if let Some(mut happens) = happens {
            happens();
            *self.lock() = Some(happens);
        }
    }
}

impl Keys {
    /// Runs `happens` before the step of this number. The first step has number 0.
    fn before_step(&self, number: usize, happens: impl FnOnce() + Send + 'static) {
        let mut happens = Some(happens);
        self.before_each_step(move |step| {
            if let Some(happens) = happens.take_if(|_| step == number) {
                happens();
            }
        });
    }

    fn before_each_step(&self, mut happens: impl FnMut(usize) + Send + 'static) {
        let mut steps = 0..;
        *self.steps.lock() = Some(Box::new(move || {
            if let Some(step) = steps.next() {
                happens(step);
            }
        }));
    }

    fn tell(&self) -> Newest {
        self.newest(KEY, &Tries::within(LONG)).unwrap()
    }

    /// Makes one change, without a second try. Returns whether it was made.
    fn change(&self, content: &str) -> bool {
        let mut newest = self.tell();
        if !newest.has_room() {
            self.begin(KEY).unwrap();
            newest = self.tell();
        }
        self.add(KEY, &newest, content.as_bytes()).unwrap()
    }

    /// Removes the key and then ends its room. Returns whether the removal was made.
    fn is_removed(&self) -> bool {
        let made = self.change("removed");
        if made {
            self.end(KEY, &self.tell()).unwrap();
        }
        made
    }

    fn changes(&self, changes: u64) {
        for _ in 0..changes {
            assert!(self.change("other"));
        }
    }

    /// Returns the numbers in the room, ascending.
    fn files(&self) -> Vec<u64> {
        let home = self.home(KEY);
        let rooms = names(&home).unwrap();
        assert_eq!(rooms.len(), 1, "{rooms:?}");
        let mut numbers: Vec<u64> = names(&home.join(&rooms[0]))
            .unwrap()
            .iter()
            .map(|name| number(name).unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns what the names of this handle's scratch files begin with.
    fn own(&self) -> String {
        let (name, _) = self.scratch.new_name();
        name.rsplit_once('-').unwrap().0.to_owned()
    }

    fn scratch_files(&self) -> Vec<String> {
        names(&self.directory.join(SCRATCH)).unwrap()
    }
}

/// Returns a handle whose rooms begin with number 0, so that versions count changes.
fn open(directory: &Path) -> Keys {
    let mut keys = Keys::open(directory).unwrap();
    keys.first = || 0;
    keys
}

/// Returns a directory whose key was changed that often, and two handles on it.
fn changed(changes: u64) -> (tempfile::TempDir, Arc<Keys>, Arc<Keys>) {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = [(); 2].map(|()| Arc::new(open(directory.path())));
    other.changes(changes);
    (directory, one, other)
}

/// The number of steps that no call reaches.
const STEPS: usize = 14;

#[test]
fn a_writer_stopped_before_any_step_has_made_its_change_or_finds_no_place() {
    for (before, step, meanwhile) in grid() {
        let case = format!("{before} before, {meanwhile} before step {step}");
        let (_directory, one, other) = changed(before);
        let others = Arc::clone(&other);
        let (tell, told) = channel();
        one.before_step(step, move || {
            others.changes(meanwhile);
            tell.send(()).unwrap();
        });
        let made = one.change("mine");
        let was_stopped = told.try_recv().is_ok();
        let changes = before + u64::from(made) + meanwhile * u64::from(was_stopped);
        let newest = other.tell();
        assert_eq!(newest.version, changes, "{case}");
        if made && (!was_stopped || meanwhile == 0) {
            assert_eq!(newest.content, b"mine", "{case}");
        }
        assert!(other.files().len() <= 2, "{case}: {:?}", other.files());
        assert_eq!(other.scratch_files(), [""; 0], "{case}");
        // The stopped writer goes on with what it finds now.
        *one.steps.lock() = None;
        assert!(one.change("again"), "{case}");
        assert_eq!(other.tell().version, changes + 1, "{case}");
    }
}

fn grid() -> impl Iterator<Item = (u64, usize, u64)> {
    (0..4).flat_map(|before| {
        (0..STEPS).flat_map(move |step| (0..4).map(move |changes| (before, step, changes)))
    })
}

#[test]
fn two_stopped_writers_and_a_third_that_goes_on_make_each_change_once() {
    for before in [0, 1, 2] {
        for (first, second) in (0..STEPS).flat_map(|a| (0..STEPS).map(move |b| (a, b))) {
            for meanwhile in [0, 1, 3] {
                let case = format!("{before} before, {meanwhile} before {first} and {second}");
                let (directory, one, other) = changed(before);
                let two = open(directory.path());
                let others = Arc::clone(&other);
                let (tell, told) = channel();
                let also_tell = tell.clone();
                two.before_step(second, move || {
                    others.changes(meanwhile);
                    tell.send(meanwhile).unwrap();
                });
                one.before_step(first, move || {
                    let made = two.change("two");
                    also_tell.send(u64::from(made)).unwrap();
                });
                let made = one.change("one");
                let changes = before + u64::from(made) + told.try_iter().sum::<u64>();
                assert_eq!(other.tell().version, changes, "{case}");
                assert!(other.files().len() <= 2, "{case}: {:?}", other.files());
            }
        }
    }
}

#[test]
fn a_killed_writer_leaves_a_whole_change_or_none() {
    for before in [0, 1, 2] {
        for step in 0..STEPS {
            let (directory, one, other) = changed(before);
            let (tell, told) = channel();
            one.before_step(step, {
                let tell = tell.clone();
                move || {
                    tell.send(None).unwrap();
                    // A killed writer does nothing any more.
                    loop {
                        thread::park();
                    }
                }
            });
            thread::spawn(move || tell.send(Some(one.change("killed"))).unwrap());
            let made = told.recv().unwrap().map(u64::from);
            let found = other.tell().version - before;
            match made {
                Some(made) => assert_eq!(found, made, "step {step}"),
                None => assert!(found <= 1, "step {step}"),
            }
            for change in 1..=3 {
                assert!(other.change("next"), "step {step}");
                assert_eq!(other.tell().version, before + found + change);
                assert!(other.files().len() <= 2, "{:?}", other.files());
            }
            assert!(other.scratch_files().len() <= 1);
            let late = open(directory.path());
            assert_eq!(late.tell().version, before + found + 3);
        }
    }
}

#[test]
fn a_stopped_reader_finds_a_version_that_was_newest_during_its_stop() {
    for (before, step, meanwhile) in grid() {
        let (_directory, one, other) = changed(0);
        for version in 1..=before {
            assert!(other.change(&version.to_string()));
        }
        one.before_step(step, move || {
            for version in before + 1..=before + meanwhile {
                assert!(other.change(&version.to_string()));
            }
        });
        let found = one.tell();
        let case = format!("{before} before, {meanwhile} before step {step}");
        let possible = before..=before + meanwhile;
        assert!(
            possible.contains(&found.version),
            "{case}: {}",
            found.version
        );
        let expected = match found.version {
            0 => String::new(),
            version => version.to_string(),
        };
        assert_eq!(String::from_utf8(found.content).unwrap(), expected);
    }
}

/// The number of the step at which a writer that has found two versions links.
const LINK: usize = 6;

/// Links the scratch file of the handle `own` as `number` in the present room.
fn link_late(keys: &Keys, own: &str, number: u64) {
    let home = keys.home(KEY);
    let room = home.join(&names(&home).unwrap()[0]);
    let scratch = keys.scratch_files();
    let mut own = scratch.iter().filter(|name| name.starts_with(own));
    let path = keys.directory.join(SCRATCH).join(own.next().unwrap());
    assert_eq!(own.next(), None);
    fs::hard_link(path, room.join(number.to_string())).unwrap();
}

#[test]
fn a_link_that_reaches_a_room_of_later_is_no_change_and_is_not_read() {
    // These are the first counts of later changes after which the room has no file of that name.
    for later in 3..6 {
        let (_directory, one, other) = changed(2);
        let others = Arc::clone(&other);
        let own = one.own();
        let (tell, told) = channel();
        one.before_step(LINK, move || {
            others.changes(later);
            link_late(&others, &own, 3);
            assert!(others.files().starts_with(&[3]), "a stray");
            let newest = others.tell();
            assert_eq!(
                (newest.version, newest.content),
                (2 + later, b"other".to_vec())
            );
            tell.send(()).unwrap();
        });
        assert!(!one.change("late"));
        told.try_recv().expect("it was at the link");
        assert_eq!(other.tell().version, 2 + later);
        // The writer was killed before it came back to its stray.
        other.changes(1);
        assert!(other.files().len() <= 2, "{:?}", other.files());
        assert_eq!(other.tell().version, 3 + later);
    }
}

#[test]
fn a_reader_that_opens_a_stray_looks_again() {
    // The room has the name 3, and holds 3 and 4.
    let (directory, one, other) = changed(4);
    let home = other.home(KEY);
    let stray = directory.path().join("stray");
    fs::write(&stray, "1-2-3\nstray").unwrap();
    one.before_each_step(move |step| match step {
        1 => {
            other.changes(3);
            // The symbolic link acts for an early lookup of the room, by its name of then.
            std::os::unix::fs::symlink(home.join("6"), home.join("3")).unwrap();
            fs::hard_link(&stray, home.join("6/4")).unwrap();
        }
        2 => fs::remove_file(home.join("3")).unwrap(),
        _ => {}
    });
    assert!(one.look(KEY).unwrap().is_none());
    let newest = one.tell();
    assert_eq!((newest.version, newest.content), (7, b"other".to_vec()));
}

#[test]
fn a_writer_whose_lookups_are_old_takes_no_stray_for_its_change() {
    let (_directory, one, other) = changed(2);
    let home = other.home(KEY);
    let others = Arc::clone(&other);
    let old = home.join("2");
    one.before_step(LINK, move || {
        others.changes(5);
        // A client of NFS may still take this for the room 2.
        std::os::unix::fs::symlink(home.join("6"), home.join("2")).unwrap();
    });
    assert!(!one.change("late"));
    fs::remove_file(old).unwrap();
    assert_eq!(other.files(), [3, 6, 7]);
    other.changes(1);
    assert_eq!(other.files(), [7, 8]);
    assert_eq!(one.tell().version, 8);
}

#[test]
fn a_link_whose_answer_was_lost_is_a_change() {
    for meanwhile in 0..4 {
        let (_directory, one, other) = changed(2);
        let others = Arc::clone(&other);
        let own = one.own();
        one.before_step(LINK, move || {
            link_late(&others, &own, 3);
            others.changes(meanwhile);
        });
        // The second request finds the file at the path, or the path closed.
        assert!(one.change("asked twice"), "{meanwhile}");
        assert_eq!(other.tell().version, 3 + meanwhile);
        assert_eq!(other.scratch_files(), [""; 0]);
    }
}

#[test]
fn a_key_that_never_settles_ends_the_call_at_its_bound() {
    let (_directory, one, other) = changed(2);
    let home = one.home(KEY);
    fs::remove_dir_all(home.join("1")).unwrap();
    fs::write(home.join("of another program"), "").unwrap();
    for bound in [Duration::ZERO, Duration::from_millis(20)] {
        let error = one.newest(KEY, &Tries::within(bound)).unwrap_err();
        assert!(
            matches!(&error, StoreError::Late { waited, .. } if *waited >= bound),
            "{error}"
        );
    }
    // A handle does not take an older version than it has found before.
    assert_eq!(one.seen().get(KEY), None);
    fs::create_dir(home.join("1")).unwrap();
    fs::write(home.join("1/1"), "1-2-3\nold").unwrap();
    assert_eq!(one.tell().version, 1);
    let error = other.newest(KEY, &Tries::within(Duration::ZERO));
    assert!(matches!(error, Err(StoreError::Late { .. })));
    fs::remove_dir_all(&home).unwrap();
    assert!(!other.tell().has_room(), "its home is gone");
}

#[test]
fn numbers_and_names_that_no_writer_makes_are_not_taken() {
    let (_directory, one, _other) = changed(3);
    let home = one.home(KEY);
    let most = (u64::MAX / 2 - 1).to_string();
    assert_eq!(number(&most), Some(u64::MAX / 2 - 1));
    let most = u64::MAX.to_string();
    for name in ["03", "+3", "-1", "x", "", "18446744073709551616", &most] {
        assert_eq!(number(name), None, "{name}");
        let _ = fs::create_dir(home.join(name));
    }
    assert_eq!(one.tell().version, 3);
    let room = home.join("2");
    let long = "1".repeat(MAX_SCRATCH + 1) + "\n";
    for bytes in ["", "1-2", "../../x\nvalue", "\nvalue", "a b\n", &long] {
        fs::write(room.join("3"), bytes).unwrap();
        let error = one.newest(KEY, &Tries::within(LONG)).unwrap_err();
        assert!(matches!(error, StoreError::NotARecord { .. }), "{error}");
    }
}

#[test]
fn what_a_process_that_has_ended_has_left_is_cleared_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().join(SCRATCH);
    fs::create_dir(&scratch).unwrap();
    // The child must run when its tag is made: nothing says when an ended process started.
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let ended = Process::of(child.id()).tag();
    child.kill().unwrap();
    child.wait().unwrap();
    let this = Process::this().tag();
    let elsewhere = this.rsplit_once('-').unwrap().0.to_owned() + "-0123456789abcdef";
    let kept = [
        format!("{this}-1-1"),
        format!("{this}-1-2.done"),
        format!("{elsewhere}-1-1"),
        "something".to_owned(),
    ];
    let left = [format!("{ended}-1-1"), format!("{ended}-1-2.done")];
    for name in kept.iter().chain(&left) {
        fs::write(scratch.join(name), "").unwrap();
    }
    fs::create_dir_all(scratch.join(format!("{ended}-1-3/0"))).unwrap();
    let keys = Keys::open(directory.path()).unwrap();
    let mut found = keys.scratch_files();
    found.sort_unstable();
    let mut kept = kept.to_vec();
    kept.sort_unstable();
    assert_eq!(found, kept);
}

/// Removes the key and sets it again, `times` times.
fn removed_and_set(keys: &Keys, times: u64) {
    for time in 0..times {
        assert!(keys.is_removed());
        assert!(!keys.home(KEY).exists());
        assert!(keys.change(&format!("again {time}")));
    }
}

#[test]
fn a_call_that_is_stopped_while_its_room_ends_takes_nothing_of_the_next() {
    for before in [1, 2, 3] {
        for step in 0..STEPS {
            for meanwhile in [1, 2] {
                let case = format!("{before} before, {meanwhile} rooms before step {step}");
                let directory = tempfile::tempdir().unwrap();
                let [one, other] =
                    [(); 2].map(|()| Arc::new(Keys::open(directory.path()).unwrap()));
                other.changes(before);
                let others = Arc::clone(&other);
                let (tell, told) = channel();
                one.before_step(step, move || {
                    removed_and_set(&others, meanwhile);
                    tell.send(()).unwrap();
                });
                let made = one.change("mine");
                let was_stopped = told.try_recv().is_ok();
                let newest = String::from_utf8(other.tell().content).unwrap();
                // A change that was made before the first removal is gone with its room.
                let last = format!("again {}", meanwhile - 1);
                let expected = match (was_stopped, made) {
                    (false, made) => {
                        assert!(made, "{case}");
                        vec!["mine".to_owned()]
                    }
                    (true, false) => vec![last],
                    (true, true) => vec![last, "mine".to_owned()],
                };
                assert!(expected.contains(&newest), "{case}: {newest}, {made}");
                assert!(other.files().len() <= 2, "{case}");
                *one.steps.lock() = None;
                assert!(one.change("behind"), "{case}");
                assert_eq!(other.tell().content, b"behind", "{case}");
                assert_eq!(other.scratch_files(), [""; 0], "{case}");
            }
        }
    }
}

#[test]
fn a_room_that_is_ended_at_any_step_by_two_is_ended_once_and_no_later_one() {
    for step in 0..STEPS {
        for again in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let [one, other] = [(); 2].map(|()| Arc::new(Keys::open(directory.path()).unwrap()));
            other.changes(2);
            assert!(other.change("removed"));
            let removal = one.tell();
            let others = Arc::clone(&other);
            one.before_step(step, move || {
                others.end(KEY, &others.tell()).unwrap();
                if again {
                    assert!(others.change("next"));
                }
            });
            one.end(KEY, &removal).unwrap();
            *one.steps.lock() = None;
            match one.tell() {
                next if next.exists => assert_eq!(next.content, b"next", "step {step}"),
                _ => assert!(!one.home(KEY).exists(), "step {step}"),
            }
            assert!(one.change("last"), "step {step}");
            assert_eq!(other.tell().content, b"last", "step {step}");
        }
    }
}

#[test]
fn a_remover_learns_that_it_was_the_one_when_another_ends_the_room() {
    for step in 0..STEPS {
        let (_directory, one, other) = changed(2);
        let others = Arc::clone(&other);
        one.before_step(step, move || {
            let newest = others.tell();
            if newest.content == b"removed" {
                others.end(KEY, &newest).unwrap();
            }
        });
        assert!(one.change("removed"), "step {step}");
    }
}

#[test]
fn an_end_leaves_no_folder_and_no_key_beside_it_goes() {
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::open(directory.path()).unwrap();
    keys.changes(1);
    assert!(keys.is_removed());
    assert!(!directory.path().join("folder").exists());
    fs::create_dir_all(directory.path().join("folder/other@/7")).unwrap();
    keys.changes(1);
    assert!(keys.is_removed());
    assert!(directory.path().join("folder/other@/7").exists());
    assert!(!keys.home(KEY).exists());
}
