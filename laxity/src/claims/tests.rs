use std::fs::File;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use laxity_link::netlink::Interface;

use super::holder::MOST_TEXT;
use super::*;

/// A directory of its own for each test.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-claims-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
    fn at(&self) -> ClaimDirectory {
        ClaimDirectory::At(self.0.clone())
    }
    fn claim(&self, wanted: ClaimHolder) -> Result<Result<OwnFile, Conflict>, ClaimsError> {
        let address = wanted.address;
        match ClaimAttempt::with(&self.at(), wanted)? {
            Ok(claiming) => claiming.finish(address, false),
            Err(conflict) => Ok(Err(conflict)),
        }
    }
    fn granted(&self, wanted: ClaimHolder) -> OwnFile {
        self.claim(wanted).unwrap().unwrap()
    }
    fn refused(&self, wanted: ClaimHolder) -> Conflict {
        self.claim(wanted).unwrap().unwrap_err()
    }
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name != "claims.lock").collect();
        names.sort();
        names
    }
    /// A file that claims are looked for in, held if it is to be.
    fn file(&self, name: &str, content: &[u8], is_held: bool) -> File {
        self.at().directory().unwrap();
        let mut file =
            open(OpenOptions::new().write(true).create(true).truncate(true), &self.0.join(name), 0o600).unwrap();
        file.write_all(content).unwrap();
        assert!(!is_held || sys::hold(&file).unwrap());
        file
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn link(name: &str, index: u32) -> ClaimedLink {
    ClaimedLink::Interface { name: name.to_owned(), index }
}

fn holder(link: ClaimedLink, processors: &[usize]) -> ClaimHolder {
    ClaimHolder {
        pid: std::process::id(),
        command: "recv camera".to_owned(),
        address: "10.0.0.1:5709".parse().unwrap(),
        link,
        network: NetworkNamespace { device: 4, inode: 7 },
        processors: processors.to_vec(),
    }
}

#[test]
fn a_link_is_one_executives_until_its_claim_is_dropped() {
    let place = TestDirectory::new("link");
    let first = place.granted(holder(link("eth0", 2), &[0]));
    let Conflict { holder: found, what } = place.refused(holder(link("eth0", 2), &[1]));
    assert_eq!((&found, &what), (&holder(link("eth0", 2), &[0]), &ClaimedResource::Link(link("eth0", 2))));
    assert_eq!(place.at().holders().unwrap(), [found]);
    // All links and one of them.
    assert_eq!(place.refused(holder(ClaimedLink::All, &[1])).what, ClaimedResource::Link(link("eth0", 2)));
    drop(first);
    let all = place.granted(holder(ClaimedLink::All, &[0]));
    assert_eq!(place.refused(holder(link("eth0", 2), &[1])).what, ClaimedResource::Link(ClaimedLink::All));
    drop(all);
    assert_eq!(place.at().holders().unwrap(), []);
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn other_links_and_other_processors_are_granted_and_common_ones_refused() {
    let place = TestDirectory::new("apart");
    let _first = place.granted(holder(link("eth0", 2), &[0, 1]));
    let _second = place.granted(holder(link("eth1", 3), &[2, 3]));
    let elsewhere = NetworkNamespace { device: 4, inode: 8 };
    let there = ClaimHolder { network: elsewhere, ..holder(link("eth0", 2), &[4]) };
    let _third = place.granted(there);
    assert_eq!(place.names().len(), 3);
    let overlapping = ClaimHolder { network: elsewhere, ..holder(link("eth7", 9), &[1, 2, 5]) };
    let Conflict { holder, what } = place.refused(overlapping);
    let expected = if holder.processors == [0, 1] { vec![1] } else { vec![2] };
    assert_eq!(what, ClaimedResource::Processors(expected));
}

#[test]
fn another_is_refused_though_it_looked_before_the_claim_was_made() {
    let place = TestDirectory::new("race");
    let wanted = || holder(link("eth0", 2), &[0]);
    let [first, second] = [(); 2].map(|()| ClaimAttempt::with(&place.at(), wanted()).unwrap().unwrap());
    let address = "10.0.0.1:7".parse().unwrap();
    let _claim = first.finish(address, false).unwrap().unwrap();
    assert_eq!(second.finish(address, false).unwrap().unwrap_err().holder.address, address);
}

#[test]
fn what_a_dead_process_left_is_removed() {
    let place = TestDirectory::new("dead");
    let claim = place.granted(holder(link("eth0", 2), &[0]));
    let (path, content) = (claim.path.clone(), fs::read(&claim.path).unwrap());
    drop(claim);
    place.file("7-1.claim", &content, false);
    place.file("7-2.claim", b"half of a cl", false);
    // A lock that needs no right to write keeps nothing alive.
    let reading = File::open(place.0.join("7-1.claim")).unwrap();
    rustix::fs::flock(&reading, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(place.at().holders().unwrap(), []);
    assert!(place.names().is_empty(), "{:?}", place.names());
    assert!(!path.exists());
    // What is no claim stays.
    place.file("server", b"", false);
    let _claim = place.granted(holder(link("eth0", 2), &[0]));
    assert_eq!(place.names().len(), 2);
}

#[test]
fn a_claim_that_is_held_and_says_nothing_is_an_error_that_names_it() {
    let place = TestDirectory::new("damaged");
    let other = br#"{"format":"laxity-claim","version":9,"holder":{"more":1}}"#;
    let long = vec![b' '; 20_000];
    for content in [&b"{}"[..], b"", b"\xff", other, &long] {
        let held = place.file("7-1.claim", content, true);
        let error = place.claim(holder(link("eth0", 2), &[0])).unwrap_err();
        assert!(matches!(error, ClaimsError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("7-1.claim"), "{error}");
        assert_eq!(crate::Error::from(error).exit_status(), 2);
        drop(held);
    }
    assert_eq!(place.at().holders().unwrap(), []);
}

#[test]
fn what_others_may_write_or_have_put_there_is_not_trusted() {
    let place = TestDirectory::new("foreign");
    let foreign = |says: &str| {
        let error = place.at().holders().unwrap_err();
        assert!(matches!(error, ClaimsError::Foreign { .. } | ClaimsError::Io { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let path = place.0.join("7-1.claim");
    place.file("7-1.claim", b"", false);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    foreign("others may write it");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let is_root = this_user() == 0;
    if is_root {
        std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
        foreign("belongs to user 12345");
    }
    fs::remove_file(&path).unwrap();
    symlink("/etc/passwd", &path).unwrap();
    foreign("7-1.claim");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    foreign("no regular file");
    fs::remove_dir(&path).unwrap();
    assert_eq!(place.at().holders().unwrap(), []);

    fs::set_permissions(&place.0, Permissions::from_mode(0o777)).unwrap();
    foreign("its mode is 777");
    fs::set_permissions(&place.0, Permissions::from_mode(0o700)).unwrap();
    let linked = place.0.join("linked");
    symlink(&place.0, &linked).unwrap();
    assert!(ClaimDirectory::At(linked).holders().is_err());
    let error = ClaimDirectory::At("/dev/null/claims".into()).holders().unwrap_err();
    assert!(error.to_string().contains("/dev/null/claims"), "{error}");
    assert_eq!(crate::Error::from(error).exit_status(), 4);
}

#[test]
fn roots_claims_are_heeded_by_others_who_leave_the_files_alone() {
    let place = TestDirectory::new("roots");
    let _claim = place.granted(holder(link("eth0", 2), &[0]));
    place.file("7-1.claim", b"left", false);
    assert_eq!(live(&place.0, this_user(), false).unwrap(), [holder(link("eth0", 2), &[0])]);
    assert!(place.names().contains(&"7-1.claim".to_owned()));
    // Only if no other user could have put them there.
    assert_eq!(is_roots(&place.0), this_user() == 0);
    fs::set_permissions(&place.0, Permissions::from_mode(0o777)).unwrap();
    assert!(!is_roots(&place.0) && !is_roots(Path::new("/no/such/directory")));
    fs::set_permissions(&place.0, Permissions::from_mode(0o755)).unwrap();
    if this_user() == 0 {
        assert!(place.names().iter().any(|name| {
            let mode = fs::metadata(place.0.join(name)).unwrap().permissions().mode();
            name != "7-1.claim" && mode & 0o777 == 0o644
        }));
    }
}

#[test]
fn a_lock_that_is_held_is_waited_for_and_not_for_ever() {
    let place = TestDirectory::new("lock");
    let held = lock(&place.at().directory().unwrap(), this_user()).unwrap();
    let error = place.at().holders().unwrap_err();
    assert!(error.to_string().contains("claims.lock") && error.to_string().contains("1000 ms"), "{error}");
    let waiting = std::thread::spawn({
        let place = place.at();
        move || place.holders()
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    drop(held);
    assert_eq!(waiting.join().unwrap().unwrap(), []);
}

#[test]
fn many_at_once_have_one_link_in_turn() {
    let place = TestDirectory::new("turns");
    let granted = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    if let Ok(Ok(claim)) = place.claim(holder(link("eth0", 2), &[0])) {
                        assert_eq!(place.at().holders().unwrap().len(), 1);
                        granted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        drop(claim);
                    }
                }
            });
        }
    });
    assert!(granted.into_inner() > 0);
}

#[test]
fn the_link_of_an_address_is_its_interface_or_the_one_below_it() {
    let interface = |index, name: &str, address: &str| Interface {
        index,
        name: name.to_owned(),
        addresses: vec![(address.parse().unwrap(), 24)],
        ..Interface::default()
    };
    let eth0 = interface(2, "eth0", "10.0.0.1");
    let on = |index| Interface { vlan: Some((index, 7)), ..interface(5, "eth0.7", "10.0.1.1") };
    let twice = [interface(6, "one", "10.0.2.1"), interface(7, "two", "10.0.2.1")];
    let all = [&[interface(1, "lo", "127.0.0.1"), eth0, on(2)][..], &twice].concat();
    let of = |address: &str, named| ClaimedLink::among(&all, address.parse().unwrap(), named);
    assert_eq!(of("10.0.0.1", None), link("eth0", 2));
    assert_eq!(of("10.0.1.1", None), link("eth0", 2));
    assert_eq!(ClaimedLink::among(&[on(2)], "10.0.1.1".parse().unwrap(), None), link("eth0.7", 5));
    assert_eq!(of("127.0.0.9", None), link("lo", 1));
    assert_eq!(of("10.0.0.1", Some("one")), link("one", 6));
    for address in ["0.0.0.0", "::", "10.9.9.9", "10.0.2.1"] {
        assert_eq!(of(address, None), ClaimedLink::All, "{address}");
    }
    let ClaimedLink::Interface { name, .. } = ClaimedLink::of("127.0.0.1".parse().unwrap(), None) else {
        return println!("skipped: no interface can be asked about");
    };
    assert_eq!(name, "lo");
}

#[test]
fn a_refusal_says_by_whom_of_what_and_what_helps() {
    let said = |what| crate::Error::from(Conflict { holder: holder(link("eth0", 2), &[0]), what }).to_string();
    let text = said(ClaimedResource::Link(link("eth0", 2)));
    let who = format!("claimed by pid {} (recv camera) at 10.0.0.1:5709; attach to ", std::process::id());
    assert!(text.starts_with(&format!("refused by this host: link eth0 is {who}")), "{text}");
    assert!(said(ClaimedResource::Link(ClaimedLink::All)).contains("all links are claimed"));
    let text = said(ClaimedResource::Processors(vec![0, 1, 2, 5, 7, 8]));
    assert!(text.contains("processors 0-2,5,7-8 are claimed by") && text.contains("(taskset)"), "{text}");
    assert!(said(ClaimedResource::Processors(vec![3])).contains("processor 3 is claimed"));
    let error = crate::Error::from(Conflict {
        holder: holder(ClaimedLink::All, &[]),
        what: ClaimedResource::Link(ClaimedLink::All),
    });
    assert_eq!(error.exit_status(), 3);
}

#[test]
fn the_claim_of_a_process_that_was_forked_is_its_parents() {
    let place = TestDirectory::new("forked");
    let mut claim = place.granted(holder(link("eth0", 2), &[0]));
    claim.pid += 1;
    let path = claim.path.clone();
    drop(claim);
    assert!(path.exists());
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_an_error_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(ClaimHolder::parse(&bytes).is_err());
    }
    #[test]
    fn what_a_process_calls_itself_can_be_read_again(command in ".{0,300}", processors in prop::collection::btree_set(0usize..1024, 0..1024)) {
        let written = ClaimHolder {
            command: presentable(&command),
            processors: processors.into_iter().collect(),
            ..holder(ClaimedLink::All, &[])
        };
        let text = written.written().unwrap();
        prop_assert!(text.len() as u64 <= MOST_BYTES, "{}", text.len());
        prop_assert_eq!(ClaimHolder::parse(text.as_bytes()), Ok(written));
    }
    #[test]
    fn a_claim_with_a_mistake_is_an_error(number in 0usize..5) {
        let mistaken = [
            ClaimHolder { command: "a\u{1b}".to_owned(), ..holder(ClaimedLink::All, &[]) },
            ClaimHolder { command: "a".repeat(MOST_TEXT + 1), ..holder(ClaimedLink::All, &[]) },
            holder(link("eth\n0", 2), &[]),
            holder(ClaimedLink::All, &[1, 0]),
            holder(ClaimedLink::All, &[1, 1]),
        ];
        prop_assert!(mistaken[number].clone().checked().is_err());
    }
}
