//! The host registry, as another process, a crash or an editor may have left it: no content makes a reader panic, and what is
//! read keeps the rules that admission rests on.

use super::book::Book;

/// The input is the file.
pub fn registry(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut book = match Book::parse(text) {
        Ok(book) => book,
        Err(what) => {
            assert!(!what.contains(char::is_control) && what.len() < 1_000, "{what:?}");
            return;
        }
    };
    let written = serde_json::to_string_pretty(&book).expect("what was read can be written");
    assert_eq!(Book::parse(&written).as_ref(), Ok(&book), "another book comes back");
    let claimed: u128 = book.executives.iter().map(|claim| u128::from(claim.link)).sum();
    let rate = book.executives.iter().filter(|claim| claim.link > 0).map(|claim| claim.link_rate).min();
    assert!(rate.is_none_or(|rate| claimed <= rate.into()), "more of the link than there is");
    for rate in [1, 125_000, 1_000_000_000, u64::MAX] {
        let least = rate.min(book.executives.iter().filter(|c| c.link > 0).map(|c| c.link_rate).min().unwrap_or(rate));
        assert!(u128::from(book.free(rate)) + claimed <= claimed.max(least.into()));
    }
    for claim in book.executives.clone() {
        let _ = (book.processor_of_others(claim.key()), book.revocable(claim.key()), book.has_seat(&claim));
        let _ = (claim.own_allowance(), claim.settling());
        assert!(book.find(claim.key()).is_some());
    }
    // Of another boot everything is forgotten; of this one, what nobody lives for. What is left can be read again.
    let now = 1_000_000_000;
    let boot = book.boot.clone();
    book.lapse(&boot, now);
    assert!(book.settled_ns <= now + 1_000_000_000, "a wrong value does lasting harm");
    if let Some(key) = book.executives.first().map(|claim| claim.key()) {
        book.remove(key, now);
        assert!(book.find(key).is_none());
    }
    let left = serde_json::to_string(&book).expect("what was read can be written");
    assert_eq!(Book::parse(&left).as_ref(), Ok(&book));
    book.lapse("another boot", now);
    assert!(book.executives.is_empty());
}
