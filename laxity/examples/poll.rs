//! One thread that waits for two receivers and for Ctrl-C: `cargo run -p laxity --example poll`.

use std::os::unix::net::UnixStream;
use std::thread;

use laxity::{Contract, Error, Host, HostConfig, ms};
use rustix::event::{PollFd, PollFlags, poll};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (interrupted, write) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGINT, write)?;
    let host = Host::start(HostConfig::default())?;
    let mut receivers = Vec::new();
    for (name, interval) in [("left", ms(100)), ("right", ms(150))] {
        let listener = host.listen(name)?;
        let contract = Contract::messages(500).every(interval).within(ms(50))?;
        let mut sender = host.open(host.address(), name, contract)?;
        receivers.push(listener.accept(None)?);
        thread::spawn(move || (0..20).try_for_each(|number| sender.send(&[number])));
    }

    while !receivers.is_empty() {
        let mut waits = vec![PollFd::new(&interrupted, PollFlags::IN)];
        for receiver in &receivers {
            waits.push(PollFd::from_borrowed_fd(receiver.descriptor()?, PollFlags::IN));
        }
        poll(&mut waits, None)?;
        if !waits[0].revents().is_empty() {
            break;
        }
        // Reads until there is nothing more: only then does the descriptor report the next message.
        receivers.retain_mut(|receiver| {
            loop {
                match receiver.try_recv() {
                    Ok(message) => println!("{}: {} after {}", receiver.grant().name, message[0], message.latency()),
                    Err(Error::WouldBlock) => break true,
                    Err(_) => break false,
                }
            }
        });
    }
    Ok(())
}
