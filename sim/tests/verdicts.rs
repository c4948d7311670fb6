//! The true causes of misses are known here, and the run time finds them.

mod common;

use common::verdicts::cases;

#[test]
fn every_miss_is_blamed_on_its_owner() {
    let mut wrong = Vec::new();
    for case in cases() {
        let verdict = case.verdict();
        println!("{} | {:?} | {verdict:?}", case.what, case.expected);
        if !case.is_right(verdict) {
            wrong.push(case.what);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
