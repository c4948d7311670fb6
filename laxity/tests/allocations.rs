//! The data path allocates nothing after set-up: neither in the application's threads nor in the executives.
//!
//! One test, alone in its process, because the counter counts every thread.
#![allow(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration as StdDuration;

use laxity::handler::{Disposition, Handler, HandlerSpec, HandlerWatch};
use laxity::upcall::{Upcall, Upcalls};
use laxity::{ChannelSpec, Host, HostConfig, ListenConfig, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends one message on each channel and receives it, `rounds` times. Lost messages would show as a timeout.
fn exchange(channels: &mut [(Sender, Receiver)], message: &[u8], rounds: usize) {
    for _ in 0..rounds {
        for (sender, _) in channels.iter_mut() {
            let most = sender.grant().service.max_message() as usize;
            sender.send(&message[..message.len().min(most)]).unwrap();
        }
        for (_, receiver) in channels.iter_mut() {
            let received = receiver.recv_timeout(StdDuration::from_secs(10)).unwrap();
            assert_eq!(received.len(), message.len().min(receiver.grant().service.max_message() as usize));
        }
    }
}

#[test]
fn the_data_path_allocates_nothing_after_set_up() {
    // With an envelope, as calibrated hosts have it: what is stolen in its windows is watched.
    let mut platform = Platform::assumed_host();
    platform.interference.envelopes = vec![(Duration::from_millis(100), Duration::from_millis(10))];
    let host = |spin: Duration| {
        let costs = HostConfig::with_costs(platform.clone());
        let longest_iteration = Duration::from_micros(500);
        Host::start(costs.advanced(|advanced| {
            advanced.claims = None;
            advanced.spin = spin.into();
            advanced.longest_iteration = longest_iteration.into();
        }))
        .unwrap()
    };
    // One of them spins before it sleeps.
    let (a, b) = (host(Duration::from_micros(100)), host(Duration::ZERO));
    let contract = Contract::new(20_000, 1, Duration::from_millis(4), 1, Duration::from_millis(100)).unwrap();
    let specs = [ChannelSpec::real_time(contract), ChannelSpec::best_effort(20_000, 8).unwrap()];
    let mut channels: Vec<(Sender, Receiver)> = specs
        .into_iter()
        .zip(["real-time", "best-effort"])
        .map(|(spec, name)| {
            let listener = b.listen(name).unwrap();
            let sender = a.open(b.address(), name, spec).unwrap();
            (sender, listener.accept(Some(StdDuration::from_secs(10))).unwrap())
        })
        .collect();
    let _answers = handled(&a, &b, &mut channels);
    let (_read, watch) = read(&b);
    let message = vec![7; 20_000];
    exchange(&mut channels, &message, 20);
    let (runs, before) = (watch.figures().runs, CALLS.load(Ordering::SeqCst));
    // Longer than a keep-alive of the lease takes, so that signalling is part of it.
    exchange(&mut channels, &message, 300);
    let calls = CALLS.load(Ordering::SeqCst) - before;
    assert_eq!(calls, 0, "calls of the allocator during all these messages");
    assert!(watch.figures().runs > runs, "and what was read");
}

/// A reader of a pipe that always has something.
fn read(host: &Host) -> ((Upcalls, Upcall), HandlerWatch) {
    let upcalls = host.trusted_upcalls().unwrap();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let handler = Handler::new(|_| Disposition::Done);
    let (spec, interval) =
        (HandlerSpec::taking(Duration::from_micros(50)).within(Duration::from_secs(1)), Duration::from_millis(20));
    let (upcall, watch) = upcalls.create_reader("flood", reader.into(), 64, interval, spec, handler).unwrap();
    upcall.run().unwrap();
    std::thread::spawn(move || while writer.write_all(&[0; 64]).is_ok() {});
    ((upcalls, upcall), watch)
}

/// Channels with handlers, which answer each message and leave it to the application: one in Rust, and with the feature `wasm` one of a module.
fn handled(a: &Host, b: &Host, channels: &mut Vec<(Sender, Receiver)>) -> Vec<Receiver> {
    let wait = Some(StdDuration::from_secs(10));
    let contract = Contract::new(20_000, 1, Duration::from_millis(4), 1, Duration::from_millis(100)).unwrap();
    let spec = ChannelSpec::real_time(contract);
    let native = Handler::new(|event| {
        let message = event.message();
        event.reply(&message[..100]).unwrap();
        Disposition::Deliver
    });
    let handlers = [("native", native)];
    #[cfg(feature = "wasm")]
    // A speed over its limit is answered, and delivered.
    let handlers = {
        let module = include_bytes!("../../lab/examples/emergency-stop/stop-c.wasm");
        let [native] = handlers;
        [native, ("module", laxity::handler::wasm::Module::new(module).unwrap().handler())]
    };
    let each = handlers.into_iter().map(|(name, handler)| {
        let of_handler = HandlerSpec::taking(Duration::from_micros(400)).within(Duration::from_secs(1));
        let (config, answers) =
            (ListenConfig { handler: Some(of_handler), ..ListenConfig::default() }, a.listen(name).unwrap());
        let listener = b.listen_with(name, config).unwrap();
        let spec = if name == "module" {
            ChannelSpec::real_time(Contract::new(64, 1, contract.interval(), 1, contract.deadline()).unwrap())
        } else {
            spec
        };
        let sender = a.open(b.address(), name, spec).unwrap();
        let mut receiver = listener.accept(wait).unwrap();
        let reply = b.open(a.address(), name, spec).unwrap();
        receiver.on_message(handler.replying_on(reply)).unwrap();
        channels.push((sender, receiver));
        answers.accept(wait).unwrap()
    });
    each.collect()
}
