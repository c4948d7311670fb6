//! Channels on tokio: `cargo run -p laxity --example async --features tokio`.

use futures_util::{SinkExt, StreamExt};
use laxity::{Contract, Host, HostConfig, ms};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let host = Host::start(HostConfig::default())?;
    let listener = host.listen("telemetry")?;
    let contract = Contract::messages(500).every(ms(20)).within(ms(50))?;
    let mut sink = host.open(host.address(), "telemetry", contract)?.into_sink()?;
    let mut messages = listener.accept(None)?.into_stream()?;
    let send = async {
        for number in 0..20u32 {
            sink.send(number.to_be_bytes()).await?;
        }
        sink.close().await
    };
    let receive = async {
        while let Some(message) = messages.next().await {
            let message = message?;
            println!("message {} of {} bytes after {}", message.sequence(), message.len(), message.latency());
        }
        Ok(())
    };
    tokio::try_join!(send, receive)?;
    println!("{} delivered", messages.receiver().figures().delivered);
    Ok(())
}
