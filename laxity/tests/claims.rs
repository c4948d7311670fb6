//! Hosts that claim their link and processors.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use laxity::{ClaimDirectory, ClaimedLink, ClaimedResource, Error, Host, HostConfig, Placement};
use laxity_core::platform::Platform;
use laxity_link::sys;

/// A directory of its own for each test.
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("laxity-hosts-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }
    fn at(&self) -> ClaimDirectory {
        ClaimDirectory::At(self.0.clone())
    }
    fn config(&self, command: &str) -> HostConfig {
        let (claims, command) = (Some(self.at()), Some(command.to_owned()));
        // By default a second one attaches to the first.
        let placement = Placement::Thread;
        HostConfig { placement, ..HostConfig::with_costs(Platform::assumed_host()) }.advanced(|advanced| {
            advanced.claims = claims;
            advanced.command = command;
        })
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refusal(config: HostConfig) -> (ClaimedResource, String) {
    let error = Host::start(config).expect_err("it is claimed");
    assert_eq!(error.exit_status(), 3, "{error}");
    let text = error.to_string();
    let Error::Claimed { what, .. } = error else { panic!("{text}") };
    (what, text)
}

#[test]
fn a_second_host_is_refused_until_the_first_one_is_dropped() {
    let place = TestDirectory::new("second");
    let first = Host::start(place.config("first")).unwrap();
    let holders = place.at().holders().unwrap();
    assert_eq!(holders.len(), 1);
    let holder = &holders[0];
    assert_eq!((holder.pid, holder.command.as_str()), (std::process::id(), "first"));
    assert_eq!((holder.address, &holder.processors), (first.address(), &sys::processors()));

    let (what, text) = refusal(place.config("second"));
    assert!(matches!(what, ClaimedResource::Link(ClaimedLink::Interface { .. } | ClaimedLink::All)), "{text}");
    let who = format!("pid {} (first) at {}", std::process::id(), first.address());
    assert!(text.contains(&who) && text.contains("laxity serve"), "{text}");
    let (_, text) = refusal(HostConfig { bind: "0.0.0.0:0".parse().unwrap(), ..place.config("all") });
    assert!(text.contains(&who), "{text}");
    // One that claims nothing is let alone, and so is one that looks elsewhere.
    drop(Host::start(place.config("emulated").advanced(|advanced| advanced.claims = None)).unwrap());
    let other = TestDirectory::new("elsewhere");
    drop(Host::start(other.config("elsewhere")).unwrap());

    drop(first);
    assert_eq!(place.at().holders().unwrap(), []);
    drop(Host::start(place.config("second")).unwrap());
}

#[test]
fn hosts_on_processors_of_their_own_still_cannot_have_the_same_link() {
    let place = TestDirectory::new("processors");
    let processors = sys::processors();
    let [one, .., other] = processors.as_slice() else { return println!("skipped: a single processor") };
    let start = |processor: usize, config: HostConfig| {
        let pinned = std::thread::spawn(move || {
            sys::pin(processor).unwrap();
            Host::start(config)
        });
        pinned.join().unwrap()
    };
    let first = start(*one, place.config("first")).unwrap();
    assert_eq!(place.at().holders().unwrap()[0].processors, [*one]);
    let error = start(*other, place.config("second")).expect_err("the link is claimed");
    assert!(matches!(error, Error::Claimed { what: ClaimedResource::Link(_), .. }), "{error}");
    drop(first);
    drop(start(*other, place.config("second")).unwrap());
}

#[test]
fn a_host_that_cannot_start_leaves_no_claim() {
    let place = TestDirectory::new("failed");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = HostConfig { bind: taken.local_addr().unwrap(), ..place.config("failed") };
    assert_eq!(Host::start(config.clone()).unwrap_err().exit_status(), 5);
    assert_eq!(place.at().holders().unwrap(), []);
    // Or takes another port, if that will do.
    let host = Host::start(config.advanced(|advanced| advanced.any_port = true)).unwrap();
    let said = format!("port {} is in use; taking {}", taken.local_addr().unwrap().port(), host.address().port());
    assert!(host.status().notes.contains(&said), "{:?}", host.status().notes);
    assert_eq!(place.at().holders().unwrap()[0].address, host.address());
}
