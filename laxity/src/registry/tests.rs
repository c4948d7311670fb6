//! Seats against each other, on one file.

use std::os::unix::fs::DirBuilderExt;

use proptest::prelude::*;

use super::book::SEATS;
use super::book::tests::claim;
use super::*;

/// A file in a directory of its own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("laxity-seats-{test}-{}-{number}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
    fn file(&self) -> PathBuf {
        self.0.join("registry")
    }
    fn store(&self) -> Store {
        Store::open(&Registry::At(self.file())).unwrap()
    }
    fn claims(&self) -> Vec<Claim> {
        self.store().update(|book| book.executives.clone()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Joins, for no more if no other executive is there.
fn join(place: &Place, claim: Claim) -> Result<Result<Seat, Shared>, RegistryError> {
    let alone = (claim.link, claim.processor_ppm);
    Seat::join(place.store(), claim, alone)
}

/// Takes what is wanted if it is free.
fn take(seat: &mut Seat, link: u64) -> bool {
    seat.update(|book, mine| {
        let fits = link <= mine.link + book.free(mine.link_rate);
        if fits {
            mine.link = link.max(1);
        }
        fits
    })
    .unwrap()
}

#[test]
fn what_does_not_fit_is_refused_and_says_who_holds_what() {
    let place = Place::new("fit");
    let first = join(&place, claim(1, 700_000)).unwrap().unwrap();
    let mut second = join(&place, claim(2, 200_000)).unwrap().unwrap();
    assert!(!take(&mut second, 300_001) && take(&mut second, 300_000));
    let refused = join(&place, claim(3, 1000)).unwrap().unwrap_err();
    assert_eq!(refused.shortage, Shortage::Link { free: 0 });
    let pid = std::process::id();
    assert_eq!(
        refused.to_string(),
        format!(
            "the link is used up: pid {pid} (send camera) holds 700KB/s for camera to 127.0.0.1:9 (4MB/s), \
             pid {pid} (send camera) holds 300KB/s for camera to 127.0.0.1:9 (4MB/s); free are 0B/s"
        )
    );
    drop(first);
    assert_eq!(place.claims().len(), 1);
    assert!(take(&mut second, 1_000_000));
    assert_eq!(holder_of_port(&place.store(), 5709).unwrap().unwrap().pid, pid);
    assert!(holder_of_port(&place.store(), 1).unwrap().is_none());
}

#[test]
fn who_is_alone_joins_with_more_and_a_newcomer_waits_until_it_is_given_back() {
    let place = Place::new("alone");
    let mut first = Seat::join(place.store(), claim(1, 20_000), (1_000_000, 7)).unwrap().unwrap();
    assert_eq!((first.claim().link, first.claim().revocable, first.claim().processor_ppm), (1_000_000, 980_000, 7));
    let store = place.store();
    let second = std::thread::spawn(move || Seat::join(store, claim(2, 20_000), (1_000_000, 7)).unwrap().unwrap());
    while !first.look().unwrap().is_wished(first.claim().key()) {
        std::thread::sleep(StdDuration::from_millis(1));
    }
    first.update(|_, mine| (mine.link, mine.revocable) = (20_000, 0)).unwrap();
    let second = second.join().unwrap();
    assert_eq!((second.claim().link, second.claim().processor_ppm), (20_000, 1000));
    let alone = |seat: &Seat| seat.look().unwrap().is_alone(seat.claim().key());
    assert!(!alone(&first) && !alone(&second));
    drop(first);
    assert!(alone(&second));
}

#[test]
fn a_claim_that_somebody_removed_comes_back_or_is_reported() {
    let place = Place::new("lost");
    let mut first = join(&place, claim(1, 600_000)).unwrap().unwrap();
    std::fs::remove_file(place.file()).unwrap();
    assert!(take(&mut first, 700_000));
    assert_eq!(place.claims(), [first.claim().clone()]);
    std::fs::remove_file(place.file()).unwrap();
    let _second = join(&place, claim(2, 600_000)).unwrap().unwrap();
    let error = first.update(|_, _| ()).unwrap_err();
    assert!(matches!(error, RegistryError::Lost { .. }), "{error}");
}

#[test]
fn an_executive_too_many_is_not_taken_in() {
    let place = Place::new("seats");
    let seats: Vec<Seat> = (0..SEATS).map(|number| join(&place, claim(number, 10)).unwrap().unwrap()).collect();
    let refused = join(&place, claim(99, 10)).unwrap().unwrap_err();
    assert_eq!((refused.shortage, refused.holders.len() as u64), (Shortage::Seats, SEATS));
    drop(seats);
}

#[test]
fn the_grid_divides_the_link_and_never_gives_nothing() {
    let rate = |bytes| Rate::bytes_per_second(bytes).unwrap();
    assert_eq!(grid(rate(12_500_000), GRID), rate(12_500_000));
    assert_eq!(grid(rate(12_500_000), FLOOR), rate(244_140));
    assert_eq!(grid(rate(3), 1), rate(1));
    assert_eq!(grid(rate(u64::MAX), GRID), rate(u64::MAX));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever executives come, go, want and give back: the claims never exceed the link, nor what anybody believes it has.
    #[test]
    fn claims_never_exceed_the_link(
        acts in prop::collection::vec((0usize..5, 0u8..4, 1u64..1_000_000), 1..30),
        rates in prop::collection::vec(500_000u64..1_000_000, 5),
    ) {
        let place = Place::new("sum");
        let mut seats: [Option<Seat>; 5] = Default::default();
        for (who, what, link) in acts {
            let link = link.min(rates[who]);
            match (&mut seats[who], what) {
                (seat @ Some(_), 0) => drop(seat.take()),
                (Some(seat), _) => { take(seat, link); }
                (seat, _) => {
                    let first = Claim { link_rate: rates[who], allowance_ns: 1 << 40, ..claim(who as u64, link) };
                    *seat = join(&place, first).unwrap().ok();
                }
            }
            let claims = place.claims();
            let sum: u64 = claims.iter().map(|claim| claim.link).sum();
            prop_assert!(claims.iter().all(|claim| sum <= claim.link_rate));
            prop_assert_eq!(claims.len(), seats.iter().flatten().count());
        }
    }
}
