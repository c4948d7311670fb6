//! One thread waits for several channels with their descriptors.

use std::path::PathBuf;
use std::time::Duration;

use laxity::serving::ServeConfig;
use laxity::{Contract, Error, Host, HostConfig, Placement, Platform, Receiver, Sender, ms};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const PATIENCE: Duration = Duration::from_secs(10);

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

fn channel(from: &Host, to: &Host, name: &str) -> (Sender, Receiver) {
    let listener = to.listen(name).unwrap();
    let contract = Contract::messages(100).every(ms(1)).burst(50).within(ms(500)).unwrap();
    (from.open(to.address(), name, contract).unwrap(), listener.accept(Some(PATIENCE)).unwrap())
}

/// Which of the channels have something, within `timeout`.
fn ready(channels: &[(Sender, Receiver)], timeout: Duration) -> Vec<bool> {
    let waits = channels.iter().map(|(_, receiver)| receiver.descriptor().unwrap());
    let mut waits: Vec<_> = waits.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
    poll(&mut waits, Some(&Timespec::try_from(timeout).unwrap())).unwrap();
    waits.iter().map(|wait| wait.revents().contains(PollFlags::IN)).collect()
}

fn is_empty(receiver: &mut Receiver) -> bool {
    matches!(receiver.try_recv(), Err(Error::WouldBlock))
}

/// Nothing is there, and after a notification that came late nothing is told.
fn become_quiet(channels: &mut [(Sender, Receiver)]) {
    for _ in 0..100 {
        assert!(channels.iter_mut().all(|(_, receiver)| is_empty(receiver)));
        if !ready(channels, Duration::ZERO).contains(&true) {
            return;
        }
    }
    panic!("it is told of something again and again, and nothing is there");
}

fn each_channel_is_ready_with_its_messages(from: &Host, to: &Host) {
    let mut channels = ["one", "two"].map(|name| channel(from, to, name));
    assert_eq!(ready(&channels, PATIENCE), [true; 2], "at first, to be looked at");
    become_quiet(&mut channels);

    for at in [0, 1, 1, 0] {
        for number in 0..3 {
            channels[at].0.send(&[number]).unwrap();
        }
        // Messages come one by one: it is ready again as long as it was looked at before the next one.
        for number in 0..3 {
            let message = loop {
                match channels[at].1.try_recv() {
                    Ok(message) => break message,
                    // Of it alone: another one may still be told of what happened before.
                    Err(Error::WouldBlock) => {
                        assert_eq!(
                            ready(std::slice::from_ref(&channels[at]), PATIENCE),
                            [true],
                            "it is told of a message"
                        );
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            assert_eq!(message[..], [number]);
        }
        become_quiet(&mut channels);
    }

    let [first, second] = channels;
    first.0.close().unwrap();
    let mut channels = [(second.0, first.1)];
    while is_empty(&mut channels[0].1) {
        assert_eq!(ready(&channels, PATIENCE), [true], "the end is told");
    }
    assert!(matches!(channels[0].1.try_recv(), Err(Error::Closed)));
}

#[test]
fn of_two_hosts() {
    for placement in [Placement::Thread, Placement::Inline] {
        let host = || Host::start(HostConfig { placement, ..config() }).unwrap();
        each_channel_is_ready_with_its_messages(&host(), &host());
    }
}

#[test]
fn of_an_application_that_is_attached() {
    let socket: PathBuf = std::env::temp_dir().join(format!("laxity-poll-{}", std::process::id()));
    let host = Host::start(config()).unwrap();
    let serving = host.serve(ServeConfig { socket: socket.clone(), ..ServeConfig::default() }).unwrap();
    let attached = Host::start(HostConfig { placement: Placement::Server, server: Some(socket), ..config() }).unwrap();
    each_channel_is_ready_with_its_messages(&host, &attached);
    drop(serving);
}

#[test]
fn a_host_that_stops_is_told() {
    let (from, to) = (Host::start(config()).unwrap(), Host::start(config()).unwrap());
    let mut channels = [channel(&from, &to, "one")];
    assert_eq!(ready(&channels, PATIENCE), [true]);
    become_quiet(&mut channels);
    drop(to);
    while is_empty(&mut channels[0].1) {
        assert_eq!(ready(&channels, PATIENCE), [true]);
    }
}
