//! Receives a guaranteed channel: `cargo run -p laxity --example receive`, then `cargo run -p laxity --example send` in another terminal.

use laxity::{DEFAULT_PORT, Error, Host, HostConfig};

fn main() -> Result<(), Error> {
    let bind = ([127, 0, 0, 1], DEFAULT_PORT).into();
    let host = Host::start(HostConfig { bind, ..HostConfig::default() })?;
    let listener = host.listen("telemetry")?;
    println!("waiting on {}", host.address());

    let mut receiver = listener.accept(None)?;
    println!("{} sends, every message within {}", receiver.grant().peer, receiver.grant().deadline.unwrap());
    loop {
        match receiver.recv() {
            Ok(message) => {
                println!("message {}: {} bytes after {}", message.sequence(), message.len(), message.latency())
            }
            Err(Error::Closed) => break,
            Err(error) => return Err(error),
        }
    }
    let figures = receiver.figures();
    println!("{} delivered, {} late, {} lost", figures.delivered, figures.late, figures.lost);
    Ok(())
}
