//! The values that `--fix` changes, and what it wants them to be.

use laxity::ledger::value::{GOVERNOR, HUGE_PAGES, POLICIES, RECEIVE_MOST, RUNTIME, SEND_MOST, Value, current};

use super::super::memory::WANTED;
use super::super::root::Root;

/// What this host lacks, in the order in which it is to be changed.
pub(super) fn wishes(root: &Root) -> Vec<Value> {
    let mut wishes = Vec::new();
    let mut wish = |file: &str, new: &str, is_needed: &dyn Fn(&str) -> bool| {
        if let Ok(old) = current(root.directory(), file)
            && is_needed(&old)
        {
            wishes.push(Value { file: file.to_owned(), old, new: new.to_owned() });
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

#[cfg(test)]
mod tests {
    use laxity::ledger::Change;

    use super::super::super::root::tests::Fake;
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
        assert!(wishes.iter().all(Value::is_known));
        for wish in &wishes {
            wish.set(root.directory()).unwrap();
        }
        assert!(super::wishes(&root).is_empty());
        for wish in wishes {
            let said = Change::Value(wish.clone()).undo(root.directory()).unwrap().unwrap();
            assert!(said.ends_with(" again"), "{said}");
            assert_eq!(current(root.directory(), &wish.file).unwrap(), wish.old);
        }
    }
}
