//! The program of the README: two hosts, one channel, one message.

use laxity::{Contract, Host, HostConfig, ms};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let operator = Host::start(HostConfig { bind: "127.0.0.1:5709".parse()?, ..HostConfig::default() })?;
    let listener = operator.listen("telemetry")?;

    // Usually on another machine. At most 500 bytes, one every 20 ms, each delivered within 50 ms.
    let robot = Host::start(HostConfig::default())?;
    let contract = Contract::messages(500).every(ms(20)).within(ms(50))?;
    let mut sender = robot.open(operator.address(), "telemetry", contract)?; // or the reason why not
    sender.send(b"21.5 degrees")?; // or loan() to write in place

    let message = listener.accept(None)?.recv()?;
    println!("{:?} after {}", String::from_utf8_lossy(&message), message.latency());
    Ok(())
}
