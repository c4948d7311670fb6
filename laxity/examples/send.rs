//! Sends over a guaranteed channel to the `receive` example: 500 bytes every 20 ms, delivered within 50 ms.

use std::thread;

use laxity::{Contract, DEFAULT_PORT, Error, Host, HostConfig, ms};

fn main() -> Result<(), Error> {
    let host = Host::start(HostConfig::default())?;
    for note in &host.status().notes {
        eprintln!("note: {note}");
    }
    let contract = Contract::messages(500).every(ms(20)).within(ms(50))?;
    let peer = ([127, 0, 0, 1], DEFAULT_PORT).into();
    let mut sender = match host.open(peer, "telemetry", contract) {
        Ok(sender) => sender,
        Err(Error::Refused { by, refusal, .. }) => {
            println!("{by} says no: {refusal}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for number in 0..100u32 {
        // The message is written in place, in the channel's own memory: sending it copies nothing.
        let mut message = sender.loan(500)?;
        message[..4].copy_from_slice(&number.to_be_bytes());
        message.send()?;
        thread::sleep(ms(20));
    }
    let (counters, report) = sender.close()?;
    println!("sent {}, the receiver says {report:?}", counters.sent);
    Ok(())
}
