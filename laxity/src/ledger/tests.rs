use std::os::unix::fs::symlink;

use super::value::{HUGE_PAGES, RECEIVE_MOST, RUNTIME, Value, current};
use super::*;

/// A directory that looks like a host, and has its journals; gone at the end.
pub(super) struct FakeHost(pub(super) PathBuf);

impl FakeHost {
    pub(super) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-ledger-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn ledger(&self) -> Ledger {
        Ledger::at(&self.0, &self.0)
    }
    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }
    fn says(&self, name: &str) -> String {
        current(&self.0, name).unwrap()
    }
    fn own(&self, name: &str) -> OwnedChanges {
        let (owned, lines) = self.ledger().own(name, Duration::ZERO).unwrap();
        assert!(lines.is_empty(), "{lines:?}");
        owned
    }
    /// Leaves a journal as a process that is gone.
    fn left_by_the_dead(&self, name: &str, changes: Vec<Change>) {
        let mut journal = Journal::new(changes).unwrap();
        journal.start = 1;
        JournalPath::new(&self.0, name).unwrap().write(&journal).unwrap();
    }
    fn journal(&self, name: &str) -> PathBuf {
        JournalPath::new(&self.0, name).unwrap().file()
    }
    /// Everything beside `proc` and `sys`.
    fn journals(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !["proc", "sys"].contains(&name.as_str())).collect();
        names.sort();
        names
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn value(file: &str, old: &str, new: &str) -> Change {
    Change::Value(Value { file: file.to_owned(), old: old.to_owned(), new: new.to_owned() })
}

pub(super) fn runtime(old: &str, new: &str) -> Change {
    value(RUNTIME, old, new)
}

fn make(change: &Change, fake: &FakeHost) {
    let Change::Value(value) = change else { panic!("{change:?}") };
    value.set(&fake.0).unwrap();
}

/// Its name and state, of each.
fn states(found: &[JournalReport]) -> Vec<(&str, JournalState)> {
    found.iter().map(|found| (found.name.as_str(), found.state)).collect()
}

#[test]
fn what_is_recorded_is_undone_from_the_last_to_the_first_and_once() {
    let fake = FakeHost::new("undone");
    fake.file(RUNTIME, "950000\n").file(HUGE_PAGES, "[always] madvise never\n").file(RECEIVE_MOST, "1000\n");
    let mut owned = fake.own("doctor");
    let changes =
        [runtime("950000", "-1"), value(HUGE_PAGES, "always", "madvise"), value(RECEIVE_MOST, "1000", "2000")];
    // One by one, and all are kept.
    for change in &changes {
        owned.record(vec![change.clone()]).unwrap();
        make(change, &fake);
    }
    assert_eq!(JournalPath::new(&fake.0, "doctor").unwrap().read().unwrap().unwrap().changes, changes);
    assert_eq!(fake.says(RUNTIME), "-1");
    let said = owned.undo();
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains("rmem_max is 1000 again") && said[2].contains("runtime_us is 950000 again"), "{said:?}");
    assert_eq!((fake.says(RUNTIME), fake.says(HUGE_PAGES)), ("950000".to_owned(), "always".to_owned()));
    assert_eq!(fake.journals(), ["doctor.changes.lock"]);
    assert!(owned.undo().is_empty());
    // What is dropped is undone as well.
    owned.record(vec![changes[0].clone()]).unwrap();
    make(&changes[0], &fake);
    drop(owned);
    assert_eq!(fake.says(RUNTIME), "950000");
    assert!(fake.journals().is_empty());
}

#[test]
fn what_another_program_changed_is_left_alone_and_said() {
    let fake = FakeHost::new("meanwhile");
    fake.file(RUNTIME, "500000\n").file(RECEIVE_MOST, "2000\n");
    let changes =
        vec![runtime("950000", "-1"), value(RECEIVE_MOST, "1000", "2000"), value(HUGE_PAGES, "always", "madvise")];
    fake.left_by_the_dead("doctor", changes);
    let found = fake.ledger().recover();
    assert_eq!(states(&found), [("doctor", JournalState::Stays)]);
    let said = &found[0].said;
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said[0].contains(HUGE_PAGES) && said[0].contains("could not be put back to always"), "{said:?}");
    assert!(said[1].contains("rmem_max is 1000 again"), "{said:?}");
    assert!(said[2].contains("left at 500000: another program changed it (it was 950000, then -1)"), "{said:?}");
    assert_eq!(fake.says(RUNTIME), "500000");
    // When the rest can be undone, too, nothing is left.
    fake.file(HUGE_PAGES, "always [madvise] never\n").file(RUNTIME, "950000\n");
    let found = fake.ledger().recover();
    assert_eq!(states(&found), [("doctor", JournalState::Undone)]);
    assert_eq!(found[0].said, [format!("/{HUGE_PAGES} is always again")]);
    assert!(fake.journals().is_empty());
}

#[test]
fn owners_of_two_names_coexist_and_a_second_of_one_name_is_refused() {
    let fake = FakeHost::new("names");
    fake.file(RUNTIME, "-1\n").file(RECEIVE_MOST, "2000\n");
    let (mut doctor, mut guard) = (fake.own("doctor"), fake.own("guard-4026531840-3"));
    let refused = |pid| match fake.ledger().own("doctor", Duration::from_millis(20)) {
        Err(LedgerError::Held { name, pid: found }) => name == "doctor" && found == pid,
        _ => false,
    };
    assert!(refused(None));
    doctor.record(vec![runtime("950000", "-1")]).unwrap();
    guard.record(vec![value(RECEIVE_MOST, "1000", "2000")]).unwrap();
    assert!(refused(Some(std::process::id())));
    let at_work = [("doctor", JournalState::AtWork), ("guard-4026531840-3", JournalState::AtWork)];
    assert_eq!(states(&fake.ledger().recover()), at_work);
    assert_eq!(states(&fake.ledger().look()), at_work);
    assert_eq!(fake.says(RUNTIME), "-1");
    drop(guard);
    assert_eq!((fake.says(RUNTIME), fake.says(RECEIVE_MOST)), ("-1".to_owned(), "1000".to_owned()));
    assert_eq!(doctor.undo().len(), 1);
    drop(doctor);
    fake.own("doctor");
    assert!(matches!(fake.ledger().own("../doctor", Duration::ZERO), Err(LedgerError::Name(_))));
}

#[test]
fn only_what_the_dead_left_is_undone() {
    let fake = FakeHost::new("recover");
    assert!(fake.ledger().recover().is_empty() && Ledger::at(&fake.0.join("none"), &fake.0).recover().is_empty());
    fake.file(RUNTIME, "-1\n").file(RECEIVE_MOST, "2000\n");
    fake.left_by_the_dead("doctor", vec![runtime("950000", "-1")]);
    let mut guard = fake.own("guard");
    guard.record(vec![value(RECEIVE_MOST, "1000", "2000")]).unwrap();
    assert_eq!(states(&fake.ledger().look()), [("doctor", JournalState::Dead), ("guard", JournalState::AtWork)]);
    let found = fake.ledger().recover();
    assert_eq!(states(&found), [("doctor", JournalState::Undone), ("guard", JournalState::AtWork)]);
    let pid = std::process::id();
    assert_eq!(found[0].lines(), [format!("doctor (pid {pid}) was killed; /{RUNTIME} is 950000 again")]);
    assert_eq!((found[1].owner(), found[1].lines().len()), (format!("guard (pid {pid})"), 0));
    assert_eq!((fake.says(RUNTIME), fake.says(RECEIVE_MOST)), ("950000".to_owned(), "2000".to_owned()));
    assert_eq!(states(&fake.ledger().recover()), [("guard", JournalState::AtWork)]);
}

#[test]
fn the_next_owner_of_a_name_undoes_what_the_dead_one_left() {
    let fake = FakeHost::new("next");
    fake.file(RUNTIME, "-1\n");
    fake.left_by_the_dead("doctor", vec![runtime("950000", "-1")]);
    let (owned, lines) = fake.ledger().own("doctor", Duration::ZERO).unwrap();
    assert!(
        lines.len() == 1 && lines[0].contains("was killed; ") && lines[0].ends_with("is 950000 again"),
        "{lines:?}"
    );
    drop(owned);
    // Of another boot nothing is in force.
    fake.file(RUNTIME, "-1\n");
    let journal = Journal::new(vec![runtime("950000", "-1")]).unwrap();
    let text = serde_json::to_string(&journal).unwrap().replace(&crate::process::boot().unwrap(), "another");
    fs::write(fake.journal("doctor"), text).unwrap();
    drop(fake.own("doctor"));
    assert_eq!(fake.says(RUNTIME), "-1");
    assert!(fake.journals().is_empty());
    // What cannot be undone stays, and is in the way.
    fake.left_by_the_dead("doctor", vec![value(HUGE_PAGES, "always", "madvise")]);
    let error = fake.ledger().own("doctor", Duration::ZERO).unwrap_err();
    assert!(matches!(&error, LedgerError::InTheWay { lines, .. } if lines.len() == 1), "{error}");
    assert!(error.to_string().contains("in the way") && error.to_string().contains(HUGE_PAGES), "{error}");
    assert_eq!(fake.journals(), ["doctor.changes.json"]);
}

#[test]
fn locks_of_a_process_that_ends_are_waited_for() {
    let fake = FakeHost::new("ending");
    fake.file(RUNTIME, "-1\n").file(RECEIVE_MOST, "2000\n");
    let mut guard = fake.own("guard");
    guard.record(vec![value(RECEIVE_MOST, "1000", "2000")]).unwrap();
    // Of process 1, whose lock is held a little longer.
    let place = JournalPath::new(&fake.0, "doctor").unwrap();
    let held = place.lock(Duration::ZERO).unwrap();
    let mut journal = Journal::new(vec![runtime("950000", "-1")]).unwrap();
    journal.pid = 1;
    place.write(&journal).unwrap();
    let start = std::time::Instant::now();
    let found = std::thread::scope(|scope| {
        let recovering = scope.spawn(|| fake.ledger().recover_after(1, Duration::from_secs(20)));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(fake.says(RUNTIME), "-1");
        drop(held);
        recovering.join().unwrap()
    });
    // Not those of others.
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(states(&found), [("doctor", JournalState::Undone), ("guard", JournalState::AtWork)]);
    assert_eq!(fake.says(RUNTIME), "950000");
}

#[test]
fn journals_that_were_tampered_with_are_refused_and_stay() {
    let fake = FakeHost::new("tampered");
    fake.file(RUNTIME, "-1\n");
    let text = serde_json::to_string(&Journal::new(vec![runtime("950000", "-1")]).unwrap()).unwrap();
    for (from, to, expected) in [
        (RUNTIME, "etc/passwd", "etc/passwd"),
        (RUNTIME, "proc/sys/kernel/../../../etc/passwd", "etc/passwd"),
        ("\"version\":1", "\"version\":2", "version is 2"),
        ("\"pid\"", "\"pdi\"", "pdi"),
        ("\"old\"", "\"odl\"", "odl"),
        ("\"value\"", "\"command\"", "command"),
        ("}", "", "expected"),
    ] {
        let changed = text.replace(from, to);
        assert_ne!(changed, text);
        fs::write(fake.journal("doctor"), &changed).unwrap();
        for found in [fake.ledger().recover(), fake.ledger().look()] {
            assert_eq!(states(&found), [("doctor", JournalState::Stays)]);
            assert!(found[0].lines()[0].contains(expected), "{expected:?}: {found:?}");
        }
        assert!(matches!(fake.ledger().own("doctor", Duration::ZERO), Err(LedgerError::InTheWay { .. })));
        assert_eq!(fs::read_to_string(fake.journal("doctor")).unwrap(), changed);
    }
    assert_eq!(fake.says(RUNTIME), "-1");
}

#[test]
fn what_is_no_regular_file_or_has_no_valid_name_is_told_and_never_followed() {
    let fake = FakeHost::new("irregular");
    fake.file(RUNTIME, "-1\n");
    fake.left_by_the_dead("elsewhere", vec![runtime("950000", "-1")]);
    let elsewhere = fake.0.join("proc/elsewhere");
    fs::rename(fake.journal("elsewhere"), &elsewhere).unwrap();
    symlink(&elsewhere, fake.journal("link")).unwrap();
    fs::create_dir(fake.journal("directory")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, fake.journal("pipe"), 0o600.into()).unwrap();
    fs::copy(&elsewhere, fake.0.join("not.a.name.changes.json")).unwrap();
    fs::copy(&elsewhere, fake.0.join("other.json")).unwrap();
    // A lock that leads elsewhere.
    fs::copy(&elsewhere, fake.journal("lock")).unwrap();
    symlink(fake.0.join("proc/made"), fake.0.join("lock.changes.lock")).unwrap();
    let found = fake.ledger().recover();
    let expected = [
        ("directory", "no regular file"),
        ("link", "no regular file"),
        ("lock", "cannot be taken"),
        ("\"not.a.name.changes.json\"", "its name"),
        ("pipe", "no regular file"),
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, (name, said)) in found.iter().zip(expected) {
        assert_eq!((found.name.as_str(), found.state), (name, JournalState::Stays), "{found:?}");
        assert!(found.said[0].contains(said), "{found:?}");
    }
    assert_eq!(fake.says(RUNTIME), "-1");
    assert!(elsewhere.exists() && !fake.0.join("proc/made").exists());
}

#[test]
fn no_more_journals_are_read_than_there_may_be() {
    let fake = FakeHost::new("many");
    fake.file(RUNTIME, "-1\n");
    for number in 0..MOST_JOURNALS + 3 {
        fake.left_by_the_dead(&format!("owner-{number}"), Vec::new());
    }
    let found = fake.ledger().recover();
    assert_eq!(found.iter().filter(|found| found.state == JournalState::Undone).count(), MOST_JOURNALS);
    assert!(found.last().unwrap().said[0].contains("more than 256 journals"), "{:?}", found.last());
    assert_eq!(fake.ledger().recover().len(), 3);
}

#[test]
fn what_is_not_known_is_not_recorded() {
    let fake = FakeHost::new("unknown");
    let mut owned = fake.own("doctor");
    let error = owned.record(vec![value("etc/passwd", "a", "b")]).unwrap_err();
    assert!(matches!(&error, LedgerError::Io { .. }) && error.to_string().contains("etc/passwd"), "{error}");
    assert_eq!(fake.journals(), ["doctor.changes.lock"]);
    assert!(owned.undo().is_empty());
}
