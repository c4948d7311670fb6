//! Sends over a guaranteed channel to the `receive` example: 500 bytes every 20 ms, delivered within 50 ms.

use std::thread;
use std::time::Duration as StdDuration;

use laxity::{ChannelSpec, DEFAULT_PORT, Error, Host, HostConfig};
use laxity_core::contract::Contract;
use laxity_core::units::Duration;

fn main() -> Result<(), Error> {
    let host = Host::start(HostConfig::default())?;
    for note in &host.standing().notes {
        eprintln!("note: {note}");
    }
    // Largest message, smallest, shortest interval, burst, deadline.
    let contract = Contract::new(500, 1, Duration::from_millis(20), 1, Duration::from_millis(50))?;
    let peer = ([127, 0, 0, 1], DEFAULT_PORT).into();
    let mut sender = match host.open(peer, "telemetry", ChannelSpec::real_time(contract)) {
        Ok(sender) => sender,
        Err(Error::Refused { by, refusal, .. }) => {
            println!("{by} says no: {refusal}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for number in 0..100u32 {
        // Written in place: the channel's own memory, no copy when it is sent.
        let mut message = sender.loan(500)?;
        message[..4].copy_from_slice(&number.to_be_bytes());
        message.send()?;
        thread::sleep(StdDuration::from_millis(20));
    }
    let (counters, report) = sender.close()?;
    println!("sent {}, the receiver says {report:?}", counters.sent);
    Ok(())
}
