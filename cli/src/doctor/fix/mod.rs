//! `laxity doctor --fix`: what is safe and can be undone is changed, for as long as it runs.
//!
//! Before the first change the old and new values stand in the [`laxity::ledger`], and a guardian waits for the doctor's
//! end. So the changes are undone at an orderly end, by the doctor; if the doctor is killed, by the guardian; if both are killed,
//! by the next doctor. `/dev/cpu_dma_latency` needs no journal: the kernel forgets it with the process that held it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use laxity::ledger::value::{self, GOVERNOR, HUGE_PAGES, POLICIES, RECEIVE_MOST, RUNTIME, SEND_MOST, current};
use laxity::ledger::{self, JournalReport, Ledger, LedgerError, OwnedChanges};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};

use super::idle::{LATENCY, keep_awake};
use super::memory::WANTED;
use super::{DoctorArguments, Finding, Root, State};
use crate::failure::Failure;
use crate::file::failed;
use crate::guardian::{self, Guardian};
use crate::report::to_json;
use crate::stop::Stop;

/// Under which its changes are recorded.
const OWNER: &str = "doctor";
/// Longer than it takes to undo everything.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// After Ctrl-C the command has this long to end by itself: a terminal tells it, too.
const GRACE: Duration = Duration::from_secs(1);
/// Where root's doctor keeps its journal.
const ROOTS_PLACE: &str = "/run/laxity";

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ChangeOutcome {
    /// It is in force.
    Changed,
    /// It may not be, or could not be.
    Failed,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
struct Change {
    name: String,
    state: ChangeOutcome,
    old: Option<String>,
    new: Option<String>,
    text: String,
}

impl Change {
    /// What became of a wish.
    fn of(value::Value { file, old, new }: &value::Value, outcome: io::Result<()>) -> Self {
        let (state, new, text) = match outcome {
            Ok(()) => (ChangeOutcome::Changed, Some(new.clone()), format!("/{file} was {old}, is {new}")),
            Err(error) => (ChangeOutcome::Failed, None, format!("/{file} stays {old}: {error}")),
        };
        Self { name: format!("/{file}"), state, old: Some(old.clone()), new, text }
    }
}

/// Changes what it may, waits or runs the command, and undoes it. The exit status.
pub(super) fn run(root: &Root, arguments: &DoctorArguments, stop: &Stop) -> Result<u8, Failure> {
    let ledger = Ledger::of_this_host().map_err(laxity::Error::from)?;
    let (owned, lines) = ledger.own(OWNER, PATIENCE).map_err(|error| match error {
        LedgerError::Held { pid, .. } => {
            let who = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let problem = format!("end the other laxity doctor --fix{who} first: it is at work on this host");
            Failure::NotPermitted(problem)
        }
        other => other.into(),
    })?;
    for line in lines {
        eprintln!("laxity: {line}");
    }
    let (applied, changes) = AppliedChanges::start(root, &ledger, owned)?;
    if changes.iter().all(|change| change.state == ChangeOutcome::Failed) {
        let each: Vec<&str> = changes.iter().map(|change| change.text.as_str()).collect();
        let problem = format!("try sudo: this user may change nothing here ({})", each.join("; "));
        return Err(Failure::NotPermitted(problem));
    }
    tell(&changes, arguments);
    let status = match arguments.command.split_first() {
        None => {
            while !stop.is_set() {
                thread::sleep(LOOK);
            }
            Ok(0)
        }
        Some((program, rest)) => {
            let command = Command::new(program).args(rest).spawn();
            command.and_then(|child| wait(child, stop)).map_err(failed(Path::new(program)))
        }
    };
    drop(applied);
    status
}

/// What this host lacks, in the order in which it is to be changed.
fn wishes(root: &Root) -> Vec<value::Value> {
    let mut wishes = Vec::new();
    let mut wish = |file: &str, new: &str, is_needed: &dyn Fn(&str) -> bool| {
        if let Ok(old) = current(&root.0, file)
            && is_needed(&old)
        {
            wishes.push(value::Value { file: file.to_owned(), old, new: new.to_owned() });
        }
    };
    wish(RUNTIME, "-1", &|old| old != "-1");
    let is_less = |old: &str| old.parse::<usize>().is_ok_and(|old| old < WANTED);
    wish(RECEIVE_MOST, &WANTED.to_string(), &is_less);
    wish(SEND_MOST, &WANTED.to_string(), &is_less);
    for policy in root.names(POLICIES).iter().filter(|name| name.starts_with("policy")) {
        let offers = root.line(&format!("{POLICIES}/{policy}/scaling_available_governors")).unwrap_or_default();
        if offers.split_whitespace().any(|offer| offer == "performance") {
            wish(&format!("{POLICIES}/{policy}/{GOVERNOR}"), "performance", &|old| old != "performance");
        }
    }
    wish(HUGE_PAGES, "madvise", &|old| old == "always");
    wishes
}

/// Waits for the command's end; after a signal it is asked to end, too.
fn wait(mut child: Child, stop: &Stop) -> io::Result<u8> {
    let mut told: Option<Instant> = None;
    let mut asked = false;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(passed_on(status));
        }
        if stop.is_set() {
            let since = *told.get_or_insert_with(Instant::now);
            if !asked && since.elapsed() > GRACE {
                asked = true;
                kill_process(Pid::from_child(&child), Signal::TERM)?;
            }
        }
        thread::sleep(LOOK);
    }
}

/// A status as a shell tells it.
fn passed_on(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The changes that are in force. Dropping it undoes them.
struct AppliedChanges {
    /// Held open, it keeps processors awake.
    awake: Option<File>,
    owned: OwnedChanges,
    /// Goes last: until then it guards.
    _guardian: Option<Guardian>,
}

impl AppliedChanges {
    /// Changes what it may; tells what became of everything.
    fn start(root: &Root, ledger: &Ledger, mut owned: OwnedChanges) -> Result<(Self, Vec<Change>), Failure> {
        let mut changes = Vec::new();
        let mut permitted = Vec::new();
        for wish in wishes(root) {
            match wish.may_be_set(&root.0) {
                Ok(()) => permitted.push(wish),
                refused => changes.push(Change::of(&wish, refused)),
            }
        }
        let mut guardian = None;
        if !permitted.is_empty() {
            // If one of these fails nothing was changed, and dropping `owned` takes the journal away.
            owned.record(permitted.iter().cloned().map(ledger::Change::Value).collect())?;
            guardian = Some(Guardian::start(ledger.directory()).map_err(failed(ledger.directory()))?);
        }
        let mut applied = Self { awake: None, owned, _guardian: guardian };
        for wish in &permitted {
            changes.push(Change::of(wish, wish.set(&root.0)));
        }
        let name = format!("/{LATENCY}");
        let (state, text) = match keep_awake(root) {
            Ok(awake) => {
                applied.awake = Some(awake);
                (ChangeOutcome::Changed, format!("{name} is held at 0: processors stay awake"))
            }
            Err(error) => (ChangeOutcome::Failed, format!("{name} cannot be held: {error}")),
        };
        changes.push(Change { name, state, old: None, new: None, text });
        Ok((applied, changes))
    }
}

impl Drop for AppliedChanges {
    fn drop(&mut self) {
        if self.awake.take().is_some() {
            eprintln!("laxity: undone: /{LATENCY} is given back");
        }
        for line in self.owned.undo() {
            eprintln!("laxity: undone: {line}");
        }
    }
}

/// What is in force, for people or programs; beside a command on standard error.
fn tell(changes: &[Change], arguments: &DoctorArguments) {
    let has_command = !arguments.command.is_empty();
    let text = if arguments.json {
        let words = || arguments.command.iter().map(|word| word.to_string_lossy()).collect::<Value>();
        to_json(&json!({ "changes": changes, "command": has_command.then(words) }))
    } else {
        let end = (!has_command).then_some("In force until Ctrl-C; then all of it is undone.");
        changes.iter().map(|change| change.text.as_str()).chain(end).collect::<Vec<_>>().join("\n")
    };
    if has_command {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

/// What processes left because they were killed together with their guardians: undone, or told to whom it belongs.
pub(super) fn left_over(root: &Root) -> Vec<Finding> {
    let Ok(ours) = Ledger::of_this_host() else { return Vec::new() };
    let mut findings = left_in(&ours);
    let roots = Path::new(ROOTS_PLACE);
    if ours.directory() != roots {
        findings.extend(left_by_root(&Ledger::at(roots, &root.0)));
    }
    findings
}

fn left_in(ledger: &Ledger) -> Vec<Finding> {
    let found = ledger.recover();
    guardian::say(&found);
    found.iter().map(told).collect()
}

/// Another user may read root's journals, but undo nothing. What he cannot read says nothing.
fn left_by_root(ledger: &Ledger) -> Vec<Finding> {
    ledger.look().iter().filter(|found| found.state != ledger::JournalState::Stays).map(told).collect()
}

fn told(found: &JournalReport) -> Finding {
    let (owner, file, said) = (found.owner(), found.file.display(), found.said.join("; "));
    let finding = |state, text| Finding::new("changes in force", state, text);
    match found.state {
        ledger::JournalState::AtWork => {
            finding(State::Good, format!("{owner} is at work: what is found here is with its changes"))
        }
        ledger::JournalState::Undone => {
            let said = if said.is_empty() { "nothing was left to undo" } else { &said };
            finding(State::Good, format!("{owner} and its guardian were killed earlier; {said}"))
        }
        ledger::JournalState::Dead => {
            let text = format!("{owner} of root was killed before it could undo its changes; {file} has them");
            finding(State::Bad, text).mended_by("`sudo laxity doctor` undoes them")
        }
        ledger::JournalState::Stays => finding(State::Bad, format!("{file}: {said}"))
            .mended_by(format!("compare what it says with the values in force, then remove {file}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::root::tests::Fake;
    use super::*;

    const JOURNAL: &str = "doctor.changes.json";

    fn ledger(fake: &Fake) -> Ledger {
        Ledger::at(&fake.0, &fake.0)
    }

    /// A doctor that has switched off the throttle.
    fn doctor(fake: &Fake) -> OwnedChanges {
        let (mut owned, _) = ledger(fake).own(OWNER, Duration::ZERO).unwrap();
        let value = value::Value { file: RUNTIME.to_owned(), old: "950000".to_owned(), new: "-1".to_owned() };
        owned.record(vec![ledger::Change::Value(value)]).unwrap();
        fake.file(RUNTIME, "-1\n");
        owned
    }

    /// One that is gone: another process, of which the journal and its change are left.
    fn dead_doctor(fake: &Fake) {
        let owned = doctor(fake);
        let text = fs::read_to_string(fake.0.join(JOURNAL)).unwrap();
        drop(owned);
        fake.file(JOURNAL, &text.replace("\"start\": ", "\"start\": 1")).file(RUNTIME, "-1\n");
    }

    #[test]
    fn what_the_dead_left_is_undone_once() {
        let fake = Fake::new("left");
        assert!(left_in(&ledger(&fake)).is_empty());
        dead_doctor(&fake);
        assert_eq!(left_by_root(&ledger(&fake))[0].state, State::Bad);
        let findings = left_in(&ledger(&fake));
        assert!(
            findings.len() == 1
                && findings[0].state == State::Good
                && findings[0].found.contains("sched_rt_runtime_us is 950000 again"),
            "{findings:?}"
        );
        assert_eq!(fs::read_to_string(fake.0.join(RUNTIME)).unwrap(), "950000");
        assert!(left_in(&ledger(&fake)).is_empty());
    }

    #[test]
    fn what_a_process_at_work_has_is_left_alone() {
        let fake = Fake::new("held");
        let _owned = doctor(&fake);
        for findings in [left_in(&ledger(&fake)), left_by_root(&ledger(&fake))] {
            assert_eq!((findings.len(), findings[0].state), (1, State::Good));
            let who = format!("doctor (pid {}) is at work", std::process::id());
            assert!(findings[0].found.contains(&who), "{findings:?}");
        }
        assert_eq!(fs::read_to_string(fake.0.join(RUNTIME)).unwrap(), "-1\n");
    }

    #[test]
    fn a_journal_that_cannot_be_used_stays_and_is_told() {
        let fake = Fake::new("unusable");
        fake.file(JOURNAL, "nonsense");
        assert!(left_by_root(&ledger(&fake)).is_empty());
        let [finding] = &left_in(&ledger(&fake))[..] else { panic!("it is not told") };
        let remedy = finding.remedy.as_ref().unwrap();
        assert!(finding.state == State::Bad && remedy.contains("remove"), "{finding:?}");
        // What cannot be put back keeps the journal.
        fs::remove_file(fake.0.join(JOURNAL)).unwrap();
        dead_doctor(&fake);
        fs::remove_file(fake.0.join(RUNTIME)).unwrap();
        assert_eq!(left_in(&ledger(&fake))[0].state, State::Bad);
        assert!(fake.0.join(JOURNAL).exists());
    }

    /// A host on which everything is to be wished for.
    fn host_of_wishes(test: &str) -> Fake {
        let fake = Fake::new(test);
        fake.file(RUNTIME, "950000\n").file(RECEIVE_MOST, "212992\n").file(SEND_MOST, "99999999\n");
        fake.file(HUGE_PAGES, "[always] madvise never\n");
        for (policy, offers) in [("policy0", "performance powersave"), ("policy1", "powersave")] {
            fake.file(&format!("{POLICIES}/{policy}/{GOVERNOR}"), "powersave\n");
            fake.file(&format!("{POLICIES}/{policy}/scaling_available_governors"), offers);
        }
        fake
    }

    #[test]
    fn only_what_is_worse_is_changed_and_all_of_it_comes_back() {
        let fake = host_of_wishes("wishes");
        let root = fake.root();
        let wished = wishes(&root);
        let files: Vec<&str> = wished.iter().map(|wish| wish.file.as_str()).collect();
        let governor = format!("{POLICIES}/policy0/{GOVERNOR}");
        assert_eq!(files, [RUNTIME, RECEIVE_MOST, governor.as_str(), HUGE_PAGES]);
        assert!(wished.iter().all(value::Value::is_known));
        for wish in &wished {
            wish.set(&root.0).unwrap();
        }
        assert!(wishes(&root).is_empty());
        for wish in wished {
            let said = ledger::Change::Value(wish.clone()).undo(&root.0).unwrap().unwrap();
            assert!(said.ends_with(" again"), "{said}");
            assert_eq!(current(&root.0, &wish.file).unwrap(), wish.old);
        }
    }

    #[test]
    fn a_status_is_passed_on_as_a_shell_would() {
        for (script, status) in [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)] {
            assert_eq!(passed_on(Command::new("sh").args(["-c", script]).status().unwrap()), status);
        }
    }
}
