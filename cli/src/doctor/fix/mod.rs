//! `laxity doctor --fix`: what is safe and can be undone is changed, for as long as it runs.
//!
//! Before the first change the old and new values stand in a journal, and a guardian waits for the doctor's end. So the changes
//! are undone at an orderly end, by the doctor; if the doctor is killed, by the guardian; if both are killed, by the next
//! doctor. `/dev/cpu_dma_latency` needs no journal: the kernel forgets it with the process that held it.

mod change;
mod guardian;
mod journal;

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use laxity::ClaimDirectory;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde_json::{Value, json};

use super::idle::{LATENCY, keep_awake};
use super::{DoctorArguments, Finding, Root, State};
use crate::failure::Failure;
use crate::file::failed;
use crate::report::to_json;
use crate::stop::Stop;
use journal::{Entry, Journal, Place};

pub(super) use guardian::guard;

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
enum Became {
    /// It is in force.
    Changed,
    /// It may not be, or could not be.
    Failed,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
struct Change {
    name: String,
    state: Became,
    old: Option<String>,
    new: Option<String>,
    text: String,
}

impl Change {
    /// What became of a wish.
    fn of(Entry { file, old, new }: &Entry, outcome: io::Result<()>) -> Self {
        let (state, new, text) = match outcome {
            Ok(()) => (Became::Changed, Some(new.clone()), format!("/{file} was {old}, is {new}")),
            Err(error) => (Became::Failed, None, format!("/{file} stays {old}: {error}")),
        };
        Self { name: format!("/{file}"), state, old: Some(old.clone()), new, text }
    }
}

/// Changes what it may, waits or runs the command, and undoes it. The exit status.
pub(super) fn run(root: &Root, arguments: &DoctorArguments, stop: &Stop) -> Result<u8, Failure> {
    let directory = ClaimDirectory::Default.directory().map_err(laxity::Error::from)?;
    let place = Place::at(&directory);
    let Some(locked) = place.lock(PATIENCE).map_err(failed(&place.file()))? else {
        let who = match place.read() {
            Ok(Some(journal)) => format!(" (pid {})", journal.pid),
            _ => String::new(),
        };
        let problem = format!("another laxity doctor --fix{who} is at work on this host; end it first");
        return Err(Failure::NotPermitted(problem));
    };
    for line in undo_journal(root, &place) {
        eprintln!("laxity: a doctor was killed earlier; {line}");
    }
    if place.file().exists() {
        let problem = format!("{} is in the way; see above, then remove it", place.file().display());
        return Err(Failure::NotPermitted(problem));
    }
    let (applied, changes) = Applied::start(root, place, locked)?;
    let changed = changes.iter().any(|change| change.state == Became::Changed);
    if !changed && changes.iter().any(|change| change.state == Became::Failed) {
        let each: Vec<&str> = changes.iter().map(|change| change.text.as_str()).collect();
        let problem = format!("nothing may be changed here by this user; try sudo ({})", each.join("; "));
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
#[derive(Debug)]
struct Applied {
    root: Root,
    place: Place,
    /// Its end of standard input is the doctor's.
    guardian: Option<Child>,
    /// Held open, it keeps processors awake.
    awake: Option<File>,
    _locked: File,
}

impl Applied {
    /// Changes what it may; tells what became of everything.
    fn start(root: &Root, place: Place, locked: File) -> Result<(Self, Vec<Change>), Failure> {
        let mut changes = Vec::new();
        let (mut permitted, wishes) = (Vec::new(), change::wishes(root));
        for wish in wishes {
            match change::may_write(root, &wish.file) {
                Ok(()) => permitted.push(wish),
                refused => changes.push(Change::of(&wish, refused)),
            }
        }
        let mut applied = Self { root: root.clone(), place, guardian: None, awake: None, _locked: locked };
        if !permitted.is_empty() {
            // If one of these fails nothing was changed, and dropping `applied` takes the journal away.
            let journal = Journal::new(permitted.clone()).and_then(|journal| applied.place.write(&journal));
            let guardian = journal.and_then(|()| guardian::start(&applied.place));
            applied.guardian = Some(guardian.map_err(failed(&applied.place.file()))?);
        }
        for wish in &permitted {
            changes.push(Change::of(wish, change::write(root, &wish.file, &wish.new)));
        }
        let name = format!("/{LATENCY}");
        let (state, text) = match keep_awake(root) {
            Ok(awake) => {
                applied.awake = Some(awake);
                (Became::Changed, format!("{name} is held at 0: processors stay awake"))
            }
            Err(error) => (Became::Failed, format!("{name} cannot be held: {error}")),
        };
        changes.push(Change { name, state, old: None, new: None, text });
        Ok((applied, changes))
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.awake.take().is_some() {
            eprintln!("laxity: undone: /{LATENCY} is given back");
        }
        for line in undo_journal(&self.root, &self.place) {
            eprintln!("laxity: undone: {line}");
        }
        if let Some(mut guardian) = self.guardian.take() {
            // That closes its standard input, so it ends.
            let _ = guardian.wait();
        }
    }
}

/// Undoes what the journal says and removes it, in words; the caller holds the lock. What cannot be put back stays in the
/// journal's place for somebody with more rights.
fn undo_journal(root: &Root, place: &Place) -> Vec<String> {
    let journal = match place.read() {
        Ok(Some(journal)) => journal,
        Ok(None) => return Vec::new(),
        Err(error) => return vec![format!("its journal {} cannot be used: {error}", place.file().display())],
    };
    let (mut said, is_over) = if journal.is_of_this_boot() { change::undo(root, &journal) } else { (Vec::new(), true) };
    if is_over && let Err(error) = place.remove() {
        said.push(format!("its journal {} cannot be removed: {error}", place.file().display()));
    }
    said
}

/// What is in force, for people or programs; beside a command on standard error.
fn tell(changes: &[Change], arguments: &DoctorArguments) {
    let has_command = !arguments.command.is_empty();
    let text = if arguments.json {
        let words = || arguments.command.iter().map(|word| word.to_string_lossy()).collect::<Value>();
        to_json(&json!({ "changes": changes, "command": has_command.then(words) }))
    } else {
        let mut lines: Vec<String> = changes.iter().map(|change| change.text.clone()).collect();
        if !has_command {
            lines.push("In force until Ctrl-C; then all of it is undone.".to_owned());
        }
        lines.join("\n")
    };
    if has_command {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}

/// What an earlier doctor left because it was killed together with its guardian: undone, or told to whom it belongs.
pub(super) fn left_over(root: &Root) -> Vec<Finding> {
    let Ok(directory) = ClaimDirectory::Default.directory() else { return Vec::new() };
    let ours = Place::at(&directory);
    let mut findings: Vec<Finding> = left_in(root, &ours).into_iter().collect();
    if directory != Path::new(ROOTS_PLACE) {
        findings.extend(left_by_root(&Place::at(Path::new(ROOTS_PLACE))));
    }
    findings
}

const NAME: &str = "changes in force";

fn left_in(root: &Root, place: &Place) -> Option<Finding> {
    if !place.file().exists() {
        return None;
    }
    let in_the_way = |error: &dyn std::fmt::Display| {
        Finding::new(NAME, State::Bad, format!("{}: {error}", place.file().display()))
            .mended_by(format!("compare what it says with the values in force, then remove {}", place.file().display()))
    };
    match place.lock(Duration::ZERO) {
        Err(error) => Some(in_the_way(&error)),
        Ok(None) => Some(at_work(place)),
        Ok(Some(_locked)) => {
            let said = undo_journal(root, place);
            for line in &said {
                eprintln!("laxity: a doctor was killed earlier; {line}");
            }
            if place.file().exists() {
                return Some(in_the_way(&said.join("; ")));
            }
            let said = if said.is_empty() { "nothing was left to undo".to_owned() } else { said.join("; ") };
            Some(Finding::new(NAME, State::Good, format!("a doctor and its guardian were killed earlier; {said}")))
        }
    }
}

fn at_work(place: &Place) -> Finding {
    let who = place.read().ok().flatten().map_or(0, |journal| journal.pid);
    Finding::new(
        NAME,
        State::Good,
        format!("laxity doctor --fix (pid {who}) is at work: what is found here is with its changes"),
    )
}

/// Another user may read root's journal, but undo nothing.
fn left_by_root(place: &Place) -> Option<Finding> {
    let journal = place.read().ok()??;
    if journal.owner_lives() {
        return Some(at_work(place));
    }
    let found = format!(
        "a doctor of root (pid {}) was killed before it could undo its changes; {} has them",
        journal.pid,
        place.file().display()
    );
    Some(Finding::new(NAME, State::Bad, found).mended_by("`sudo laxity doctor` undoes them"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::root::tests::Fake;
    use super::super::throttle::RUNTIME;
    use super::journal::tests::{entry, of_the_dead};
    use super::*;

    #[test]
    fn what_the_dead_left_is_undone_once() {
        let fake = Fake::new("left");
        let (root, place) = (fake.root(), Place::at(&fake.0));
        assert_eq!(left_in(&root, &place), None);
        fake.file(RUNTIME, "-1\n");
        place.write(&of_the_dead(vec![entry("950000", "-1")])).unwrap();
        assert_eq!(left_by_root(&place).unwrap().state, State::Bad);
        let finding = left_in(&root, &place).unwrap();
        assert!(
            finding.state == State::Good && finding.found.contains("sched_rt_runtime_us is 950000 again"),
            "{finding:?}"
        );
        assert_eq!(fs::read_to_string(fake.0.join(RUNTIME)).unwrap(), "950000");
        assert_eq!(left_in(&root, &place), None);
    }

    #[test]
    fn what_somebody_holds_is_left_alone() {
        let fake = Fake::new("held");
        let (root, place) = (fake.root(), Place::at(&fake.0));
        fake.file(RUNTIME, "-1\n");
        place.write(&Journal::new(vec![entry("950000", "-1")]).unwrap()).unwrap();
        let held = place.lock(Duration::ZERO).unwrap();
        let finding = left_in(&root, &place).unwrap();
        assert!(finding.found.contains(&format!("pid {}", std::process::id())), "{finding:?}");
        assert_eq!(left_by_root(&place).unwrap().state, State::Good);
        assert_eq!(fs::read_to_string(fake.0.join(RUNTIME)).unwrap(), "-1\n");
        drop(held);
    }

    #[test]
    fn a_journal_that_cannot_be_used_stays_and_is_told() {
        let fake = Fake::new("unusable");
        let (root, place) = (fake.root(), Place::at(&fake.0));
        fs::write(place.file(), "nonsense").unwrap();
        let finding = left_in(&root, &place).unwrap();
        assert!(finding.state == State::Bad && finding.remedy.unwrap().contains("remove"), "{}", finding.found);
        // What cannot be put back keeps the journal.
        place.write(&of_the_dead(vec![entry("950000", "-1")])).unwrap();
        assert_eq!(left_in(&root, &place).unwrap().state, State::Bad);
        assert!(place.file().exists());
    }

    #[test]
    fn a_status_is_passed_on_as_a_shell_would() {
        for (script, status) in [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)] {
            assert_eq!(passed_on(Command::new("sh").args(["-c", script]).status().unwrap()), status);
        }
    }
}
