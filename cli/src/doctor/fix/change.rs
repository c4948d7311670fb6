//! The values that `--fix` changes: what they are, what it wants them to be, and how they are put back.

use std::fs::OpenOptions;
use std::io::{self, Write};

use super::super::memory::{HUGE_PAGES, RECEIVE_MOST, SEND_MOST, WANTED};
use super::super::root::{Root, chosen};
use super::super::throttle::RUNTIME;
use super::journal::{Entry, Journal};

const POLICIES: &str = "sys/devices/system/cpu/cpufreq";
const GOVERNOR: &str = "scaling_governor";

/// Whether a journal may name this file.
pub(super) fn is_known(file: &str) -> bool {
    [RUNTIME, HUGE_PAGES, RECEIVE_MOST, SEND_MOST].contains(&file) || {
        let policy = file.strip_prefix(POLICIES).and_then(|rest| rest.strip_prefix("/policy"));
        let number = policy.and_then(|rest| rest.strip_suffix(GOVERNOR)).and_then(|rest| rest.strip_suffix('/'));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    }
}

/// What a file says: its choice if it lists several, else all of it.
pub(super) fn current(root: &Root, file: &str) -> io::Result<String> {
    let text = root.text(file)?;
    Ok(chosen(&text).map_or_else(|| text.clone(), str::to_owned))
}

/// What this host lacks, in the order in which it is to be changed.
pub(super) fn wishes(root: &Root) -> Vec<Entry> {
    let mut wishes = Vec::new();
    let mut wish = |file: &str, new: &str, is_needed: &dyn Fn(&str) -> bool| {
        if let Ok(old) = current(root, file)
            && is_needed(&old)
        {
            wishes.push(Entry { file: file.to_owned(), old, new: new.to_owned() });
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

fn writable(root: &Root, file: &str) -> io::Result<std::fs::File> {
    OpenOptions::new().write(true).truncate(true).open(root.path(file))
}

/// Whether it may be changed; changes nothing.
pub(super) fn may_write(root: &Root, file: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(root.path(file)).map(drop)
}

/// Changes a value, and looks whether it is changed.
pub(super) fn write(root: &Root, file: &str, value: &str) -> io::Result<()> {
    writable(root, file)?.write_all(value.as_bytes())?;
    let found = current(root, file)?;
    if found == value { Ok(()) } else { Err(io::Error::other(format!("it is {found} after {value} was written"))) }
}

/// Puts back what still has our value, the last change first. In words what became of each value, but for what was so anyway;
/// and whether everything could be read and written.
pub(super) fn undo(root: &Root, journal: &Journal) -> (Vec<String>, bool) {
    let (mut said, mut is_over) = (Vec::new(), true);
    for Entry { file, old, new } in journal.changes.iter().rev() {
        let undone = current(root, file).and_then(|found| match found {
            // It was not changed, or somebody has put it back already.
            found if found == *old => Ok(None),
            found if found != *new => {
                Ok(Some(format!("/{file} is left at {found}: somebody else changed it (it was {old}, then {new})")))
            }
            _ => write(root, file, old).map(|()| Some(format!("/{file} is {old} again"))),
        });
        is_over &= undone.is_ok();
        said.extend(undone.unwrap_or_else(|error| Some(format!("/{file} could not be put back to {old}: {error}"))));
    }
    (said, is_over)
}

#[cfg(test)]
mod tests {
    use super::super::super::root::tests::Fake;
    use super::super::journal::tests::of_the_dead;
    use super::*;

    /// A host on which everything is to be wished for.
    fn host(test: &str) -> Fake {
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
        let fake = host("wishes");
        let root = fake.root();
        let wishes = wishes(&root);
        let files: Vec<&str> = wishes.iter().map(|wish| wish.file.as_str()).collect();
        let governor = format!("{POLICIES}/policy0/{GOVERNOR}");
        assert_eq!(files, [RUNTIME, RECEIVE_MOST, governor.as_str(), HUGE_PAGES]);
        assert!(files.iter().all(|file| is_known(file)));
        for wish in &wishes {
            write(&root, &wish.file, &wish.new).unwrap();
        }
        assert!(super::wishes(&root).is_empty());
        let journal = of_the_dead(wishes);
        let (said, is_over) = undo(&root, &journal);
        assert!(is_over && said.len() == 4 && said.iter().all(|line| line.ends_with(" again")), "{said:?}");
        assert_eq!(current(&root, RUNTIME).unwrap(), "950000");
        assert_eq!(current(&root, HUGE_PAGES).unwrap(), "always");
        assert_eq!(undo(&root, &journal), (Vec::new(), true));
    }

    #[test]
    fn what_somebody_else_changed_is_left_alone_and_told() {
        let fake = host("meanwhile");
        let root = fake.root();
        let journal = of_the_dead(wishes(&root));
        write(&root, RUNTIME, "500000").unwrap();
        write(&root, RECEIVE_MOST, &WANTED.to_string()).unwrap();
        std::fs::remove_file(root.path(HUGE_PAGES)).unwrap();
        let (said, is_over) = undo(&root, &journal);
        assert_eq!((said.len(), is_over), (3, false), "{said:?}");
        assert!(said[0].contains(HUGE_PAGES) && said[0].contains("could not be put back"), "{said:?}");
        assert!(said[1].contains("rmem_max is 212992 again"), "{said:?}");
        assert!(said[2].contains("left at 500000") && said[2].contains("it was 950000, then -1"), "{said:?}");
        assert_eq!(current(&root, RUNTIME).unwrap(), "500000");
    }

    #[test]
    fn a_journal_may_name_nothing_else() {
        for file in [
            "etc/passwd",
            "",
            "/proc/sys/kernel/sched_rt_runtime_us",
            "proc/sys/kernel/sched_rt_period_us",
            "sys/devices/system/cpu/cpufreq/policy/scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/../scaling_governor",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        ] {
            assert!(!is_known(file), "{file}");
        }
        assert!(is_known("sys/devices/system/cpu/cpufreq/policy12/scaling_governor"));
    }
}
