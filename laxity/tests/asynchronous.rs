//! Channels as streams and sinks on tokio.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use laxity::{Contract, Error, Host, HostConfig, Platform, ms};

const PATIENCE: Duration = Duration::from_secs(10);
const MESSAGES: u32 = 30;

/// More messages than the contract, and the channel, have room for at once: the sink waits for both.
#[tokio::test]
async fn messages_pass_in_order_until_the_sink_is_closed() {
    let config = HostConfig::emulated(Platform::assumed_host());
    let (from, to) = (Host::start(config.clone()).unwrap(), Host::start(config).unwrap());
    let listener = to.listen("telemetry").unwrap();
    let contract = Contract::messages(100).every(ms(5)).within(ms(500)).unwrap();
    let mut sink = from.open(to.address(), "telemetry", contract).unwrap().into_sink().unwrap();
    let mut messages = listener.accept(Some(PATIENCE)).unwrap().into_stream().unwrap();
    let send = async {
        for number in 0..MESSAGES {
            sink.send(number.to_be_bytes()).await?;
        }
        sink.close().await
    };
    let receive = async {
        let mut received = Vec::new();
        while let Some(message) = messages.next().await {
            received.push(u32::from_be_bytes(message?[..].try_into().unwrap()));
        }
        Ok::<_, Error>(received)
    };
    let ((), received) =
        tokio::time::timeout(PATIENCE, async { tokio::try_join!(send, receive) }).await.unwrap().unwrap();
    assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(messages.receiver().figures().delivered, u64::from(MESSAGES));
}
