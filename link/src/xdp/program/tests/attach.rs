//! Attaching: which mode, who is there already, and that nothing stays.

use super::*;
use crate::xdp::XdpError;
use crate::xdp::open::of_attach;

const CHILD: &str = "LAXITY_TEST_ATTACH";

fn program_of(interface: u32) -> Option<u32> {
    let found = crate::netlink::Netlink::open().unwrap().interface_by_index(interface).unwrap();
    found.unwrap().program
}

/// The reason why an interface, named as it is numbered, does not take the program.
fn refused(program: &mut Program, interface: u32, mode: Mode) -> XdpError {
    let source = program.attach(interface, mode).map(drop).unwrap_err();
    of_attach(&interface.to_string(), interface, mode, source)
}

#[test]
fn the_first_is_not_replaced_and_the_last_leaves_nothing() {
    let (Some(mut first), Some(mut second)) = (loaded(), loaded()) else { return };
    let Some([one, _]) = cable() else { return };
    assert_eq!(program_of(one), None);
    for mode in [Mode::Native, Mode::Generic, Mode::Any] {
        let attached = first.attach(one, mode).unwrap();
        assert_eq!(attached.is_native, mode != Mode::Generic);
        assert!(attached.refused.is_none());
        let number = program_of(one);
        assert!(number.is_some());
        for mode in [Mode::Native, Mode::Generic, Mode::Any] {
            let error = refused(&mut second, one, mode);
            assert!(
                error.to_string().starts_with(&format!("xdp {one}: program {} is attached", number.unwrap())),
                "{error}"
            );
            assert!(matches!(error, XdpError::ForeignProgram { program, .. } if Some(program) == number));
        }
        assert_eq!(program_of(one), number);
    }
    drop(first);
    assert_eq!(program_of(one), None);
    second.attach(one, Mode::Native).unwrap();
    second.detach();
    assert_eq!(program_of(one), None);
    let error = refused(&mut second, 99_999, Mode::Any);
    assert!(matches!(error, XdpError::NoInterface { interface } if interface == "99999"));
}

#[test]
fn what_a_driver_refuses_is_done_without_it() {
    let Some(mut program) = loaded() else { return };
    let Some([one, two]) = cable() else { return };
    // The driver has no room for a program beside frames of that length.
    assert!(ip(&["link", "set", "two", "mtu", "9000"]));
    let error = refused(&mut program, one, Mode::Native);
    assert!(matches!(&error, XdpError::NotAttached { interface, .. } if *interface == one.to_string()), "{error}");
    let attached = program.attach(one, Mode::Any).unwrap();
    assert!(!attached.is_native && attached.refused.is_some());
    // A loopback interface has no driver that could.
    drop(program);
    let mut program = loaded().unwrap();
    let error = refused(&mut program, 1, Mode::Native);
    assert!(
        matches!(&error, XdpError::NotAttached { source, .. } if source.raw_os_error() == Some(libc::EOPNOTSUPP)),
        "{error}"
    );
    assert!(!program.attach(1, Mode::Any).unwrap().is_native);
    assert!(program.attach(two, Mode::Any).is_ok());
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    if loaded().is_none() {
        return;
    }
    let Some([one, _]) = cable() else { return };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "xdp::program::tests::attach::attach_and_wait"])
        .env(CHILD, one.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = io::BufReader::new(child.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.contains("attached")));
    assert!(program_of(one).is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(program_of(one), None);
    let mut program = loaded().unwrap();
    assert!(program.attach(one, Mode::Native).is_ok());
}

#[test]
fn without_rights_it_says_which() {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    fn is_send<T: Send>() {}
    is_send::<Program>();

    if loaded().is_none() {
        return;
    }
    // Of this thread only. The last of them may load a program, and not what does arithmetic with pointers.
    for left in [CapabilitySet::empty(), CapabilitySet::NET_ADMIN, CapabilitySet::BPF | CapabilitySet::NET_ADMIN] {
        let before = rustix::thread::capabilities(None).unwrap();
        let fewer = CapabilitySets { effective: left & before.permitted, ..before };
        set_capabilities(None, fewer).unwrap();
        let error = Program::load().map(drop).unwrap_err();
        set_capabilities(None, before).unwrap();
        assert!(matches!(error, Error::NotPermitted { .. }), "with {left:?}: {error}");
        assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
    }
    assert!(Program::load().is_ok());
}

/// What the test of a process that is killed starts.
#[test]
fn attach_and_wait() {
    let Some(interface) = std::env::var(CHILD).ok().and_then(|number| number.parse().ok()) else { return };
    let mut program = Program::load().unwrap();
    program.attach(interface, Mode::Any).unwrap();
    println!("\nattached");
    std::thread::sleep(std::time::Duration::from_secs(60));
}
