//! An emergency stop: a speed over the limit is answered where its message arrives, and the application learns of it.
//!
//! `cargo run --release -p laxity-lab --example emergency_stop -- --attack all` has a handler in Rust, of this program, on the executive's thread. With
//! `--module lab/examples/emergency-stop/stop.bpf.o` it is one in the kernel (as root: two hosts in network namespaces), and with the feature `wasm`
//! one of the two in WebAssembly beside that, from C and from Rust. Prints what was promised, and what was kept.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use laxity::handler::kernel::{Module, Notices};
use laxity::handler::{Disposition, Handler, HandlerFigures, HandlerSpec, HandlerState};
use laxity::{ChannelSpec, Costs, Host, HostConfig, LinkChoice, LinkKind, ListenConfig, Receiver, Sender, XdpOptions};
use laxity_core::contract::{Contract, Overload};
use laxity_core::figures::{Figures, Latencies};
use laxity_core::units::{Duration, Instant};
use laxity_lab::attack::{Attack, Content, HOGS, Hogs, Load, LoadTargets, unknown_peers};
use laxity_lab::hosts::{Devices, Hosts};
use laxity_link::sys::now;

type Failure = Box<dyn Error>;

/// A speed that is over the limit.
const LIMIT: i32 = 1_000;
const INTERVAL: Duration = Duration::from_millis(5);
const DEADLINE: Duration = Duration::from_millis(40);
/// What a handler takes for a message, in the process and in the kernel; and what those in the kernel may take in a tenth of a second.
const COST: Duration = Duration::from_micros(100);
const COST_IN_KERNEL: Duration = Duration::from_micros(20);
const IN_KERNEL: Duration = Duration::from_millis(3);
/// Every so many messages the speed is over the limit.
const OVER_EACH: i32 = 10;
const WAIT: StdDuration = StdDuration::from_secs(5);

struct Arguments {
    seconds: u64,
    attack: Attack,
    module: Option<String>,
}

fn arguments() -> Result<Arguments, Failure> {
    let mut found = Arguments { seconds: 5, attack: Attack::Idle, module: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--seconds" => found.seconds = value()?.parse()?,
            "--attack" => found.attack = value()?.parse()?,
            "--module" => found.module = Some(value()?),
            other => {
                return Err(
                    format!("{other} is not known, expected --seconds N, --attack NAME or --module FILE").into()
                );
            }
        }
    }
    if !(1..=600).contains(&found.seconds) {
        return Err(format!("--seconds is {}, expected 1 to 600", found.seconds).into());
    }
    Ok(found)
}

/// Stops in Rust.
fn native() -> Handler {
    Handler::new(|event| {
        let Some(speed) = event.message().first_chunk().map(|speed| i32::from_le_bytes(*speed)) else {
            return Disposition::Deliver;
        };
        event.set(1, u64::from(speed.cast_unsigned()));
        if speed <= LIMIT {
            return Disposition::Done;
        }
        event.set(0, event.get(0) + 1);
        let message = event.message();
        // What is not sent is counted.
        let _ = event.reply(message);
        Disposition::Deliver
    })
}

#[cfg(feature = "wasm")]
fn of_wasm(module: &[u8]) -> Result<Handler, Failure> {
    Ok(laxity::handler::wasm::Module::new(module)?.handler())
}

#[cfg(not(feature = "wasm"))]
fn of_wasm(_: &[u8]) -> Result<Handler, Failure> {
    Err("a module in WebAssembly needs the feature wasm: cargo run --features wasm …".into())
}

/// The operator and the robot: on loopback, or on a network of their own, from which frames come to the kernel's programs.
struct Machine {
    network: Option<Hosts>,
    ground: LoadTargets,
}

impl Machine {
    fn new(in_kernel: bool) -> Result<Self, Failure> {
        if !in_kernel {
            return Ok(Self { network: None, ground: LoadTargets::loopback() });
        }
        let hosts = Hosts::new()?;
        let [operator, _] = hosts.join(0, Devices::Whole)?;
        Ok(Self { network: Some(hosts), ground: LoadTargets::lab(&[(operator.address.ip(), 24)])? })
    }

    fn start(&self) -> Result<[Host; 2], Failure> {
        let kind = if self.network.is_some() { LinkKind::Xdp } else { LinkKind::Udp };
        let costs = Costs::of_this_host(kind)?;
        let longest_iteration = COST + costs.platform.receive_first;
        let config = HostConfig { costs: Some(costs), ..HostConfig::default() }.advanced(|advanced| {
            advanced.longest_iteration = longest_iteration.into();
            advanced.claims = None;
        });
        let Some(hosts) = &self.network else { return Ok([Host::start(config.clone())?, Host::start(config)?]) };
        let link = LinkChoice::Xdp(XdpOptions { handlers: IN_KERNEL, ..XdpOptions::default() });
        let start = |host: u8| {
            let bind = std::net::SocketAddr::from(([198, 18, 0, host + 1], 5709));
            let config = HostConfig { bind, link: link.clone(), ..config.clone() };
            hosts.on(host.into(), || Ok(Host::start(config)))
        };
        Ok([start(0)??, start(1)??])
    }

    /// Datagrams of no channel, from one host to the other, until it is over.
    fn flood(&self, from: usize, to: std::net::SocketAddr, span: Duration, is_over: &AtomicBool) {
        let load = Load { per_second: Some(10_000), packets: u64::MAX, span };
        let flood = || unknown_peers(&[to], Content::UnknownChannel, 200, &load, &self.ground, is_over, |_| {});
        let flooded = match &self.network {
            Some(hosts) => hosts.on(from, || Ok(flood())).map_err(|error| error.to_string()),
            None => Ok(flood()),
        };
        if let Err(error) = flooded.and_then(|flooded| flooded.map_err(|error| error.to_string())) {
            eprintln!("the flood ended: {error}");
        }
    }
}

fn main() -> Result<(), Failure> {
    let Arguments { seconds, attack, module } = arguments()?;
    let module = module.map(std::fs::read).transpose()?;
    let in_kernel = module.as_ref().is_some_and(|module| module.starts_with(b"\x7fELF"));
    let machine = Machine::new(in_kernel)?;
    let [operator, robot] = machine.start()?;
    let contract = Contract::new(16, 4, INTERVAL, 2, DEADLINE)?;
    let spec = HandlerSpec::taking(if in_kernel { COST_IN_KERNEL } else { COST });
    let handled = ListenConfig { handler: Some(spec), ..ListenConfig::default() };
    let (speeds, stops) = (robot.listen_with("speeds", handled)?, operator.listen("stops")?);
    let mut speed = operator.open(robot.address(), "speeds", ChannelSpec::real_time(contract))?;
    let stop = robot.open(operator.address(), "stops", ChannelSpec::real_time(contract))?;
    let (mut at_robot, mut stopped) = (speeds.accept(Some(WAIT))?, stops.accept(Some(WAIT))?);
    let (handler, mut notices) = match &module {
        Some(object) if in_kernel => {
            let (module, notices) = Module::new(object)?;
            (module.handler(), Some(notices))
        }
        Some(module) => (of_wasm(module)?, None),
        None => (native(), None),
    };
    at_robot.on_message(handler.replying_on(stop))?;

    // One that sends ten times what it declared.
    let greedy_name = robot.listen("greedy")?;
    let greedy_contract = Contract::new(4_000, 1, Duration::from_millis(20), 1, DEADLINE)?;
    let mut spec = ChannelSpec::real_time(greedy_contract);
    spec.overload = Overload::Drop;
    let mut greedy = operator.open(robot.address(), "greedy", spec)?;
    let mut from_greedy = greedy_name.accept(Some(WAIT))?;

    let is_over = AtomicBool::new(false);
    let span = Duration::from_secs(seconds + 5);
    let hogs = attack.hogs().then(|| Hogs::start(HOGS, span)).transpose()?;
    let (learned, turns) = std::thread::scope(|scope| -> Result<_, Failure> {
        let learns = scope.spawn(|| count(&mut at_robot, &is_over));
        let told = notices.as_mut().map(|notices| scope.spawn(|| count_told(notices, &is_over)));
        scope.spawn(|| count(&mut from_greedy, &is_over));
        if attack.violates() {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    // What is beyond the contract is dropped, and counted.
                    let _ = greedy.send(&[0; 4_000]);
                    std::thread::sleep(StdDuration::from_millis(2));
                }
            });
        }
        if attack.floods() {
            let (to, machine, is_over) = ([robot.address(), operator.address()], &machine, &is_over);
            for (from, to) in (0..).zip(to) {
                scope.spawn(move || machine.flood(from, to, span, is_over));
            }
        }
        let turns = stop_again_and_again(&mut speed, &mut stopped, seconds);
        // What is under way ends.
        std::thread::sleep(StdDuration::from_millis(200));
        is_over.store(true, Ordering::SeqCst);
        let learned = [Some(learns), told].into_iter().flatten().map(|thread| thread.join());
        let learned = learned.sum::<Result<u64, _>>().map_err(|_| "a thread of the application ended")?;
        Ok((learned, turns?))
    })?;
    drop(hogs);
    report(&at_robot, &stopped, learned, turns)
}

/// Receives what there is, until it is over: how many messages.
fn count(receiver: &mut Receiver, is_over: &AtomicBool) -> u64 {
    let mut received = 0;
    while !is_over.load(Ordering::SeqCst) {
        received += u64::from(receiver.recv_timeout(StdDuration::from_millis(50)).is_ok());
    }
    received
}

/// Likewise what the handler in the kernel tells of.
fn count_told(notices: &mut Notices, is_over: &AtomicBool) -> u64 {
    let mut told = 0;
    while !is_over.load(Ordering::SeqCst) {
        told += u64::from(notices.wait(StdDuration::from_millis(50)).is_ok());
    }
    told
}

/// Speeds that were over the limit: how many, how many were answered, and how long that took from the operator's call to its hand.
#[derive(Default)]
struct StopFigures {
    over: u64,
    answered: Vec<u64>,
}

fn stop_again_and_again(speed: &mut Sender, stopped: &mut Receiver, seconds: u64) -> Result<StopFigures, Failure> {
    let (begin, mut turns) = (now(), StopFigures::default());
    let mut due = begin;
    for number in 1i32.. {
        if now().since(begin) > Duration::from_secs(seconds) {
            break;
        }
        let is_over = number % OVER_EACH == 0;
        let mut message = [0; 16];
        message[..4].copy_from_slice(&(if is_over { LIMIT + number } else { number % LIMIT }).to_le_bytes());
        let sent = now();
        speed.send(&message)?;
        turns.over += u64::from(is_over);
        due += INTERVAL;
        while let Ok(answer) = stopped.recv_timeout(until(due)) {
            if answer[..] == message {
                turns.answered.push(now().since(sent).as_nanos());
            }
        }
    }
    Ok(turns)
}

fn until(due: Instant) -> StdDuration {
    StdDuration::from_nanos(due.since(now()).as_nanos())
}

fn report(at_robot: &Receiver, stopped: &Receiver, learned: u64, turns: StopFigures) -> Result<(), Failure> {
    let handler = at_robot.handler().ok_or("the channel has no handler")?;
    let of = [at_robot.figures(), stopped.figures()];
    println!(
        "channel  delivered    late    lost  dropped  deadline      bound    largest  misses by sender, receiver, network, platform, laxity, unexplained"
    );
    for figures in &of {
        line(figures);
    }
    let HandlerFigures { runs, delivered, replies, unsent, over_cost, took, response, spec, .. } = &handler;
    let longest = took.max.unwrap_or_default();
    println!(
        "handler: {runs} messages, {replies} replies ({unsent} not sent), {delivered} for the application, which learned of {learned}; {longest} at the most of {} declared, {over_cost} over",
        spec.cost()
    );
    if let Latencies { p50: Some(half), p99: Some(most), max: Some(largest), .. } = response {
        println!("handler: done with a message p50 {half}, p99 {most}, largest {largest} after it was sent");
    }
    let state: &str = handler.state.into();
    println!("the handler is {state}");
    println!("the handler's words: {} stops, the last speed {}", handler.state_word(0), handler.state_word(1));
    let StopFigures { over, mut answered } = turns;
    answered.sort_unstable();
    let at = |permille: usize| {
        answered.get(answered.len() * permille / 1000).copied().map(Duration::from_nanos).unwrap_or_default()
    };
    println!(
        "stops, from the operator's call to its hand: {} of {over} within the next interval; p50 {}, p99 {}, largest {}",
        answered.len(),
        at(500),
        at(990),
        answered.last().copied().map(Duration::from_nanos).unwrap_or_default()
    );
    let broken: u64 =
        of.iter().map(|figures| figures.misses.laxity + figures.misses.unexplained + figures.over_bound).sum();
    if handler.state != HandlerState::Installed {
        return Err(format!("the handler is {state}, and stops nothing any more").into());
    }
    if broken > 0 {
        return Err(format!("{broken} messages were late or lost by Laxity's fault").into());
    }
    Ok(())
}

fn line(figures: &Figures) {
    let Figures { name, delivered, late, lost, dropped, misses, response, .. } = figures;
    let shown = |span: Option<Duration>| span.map_or_else(|| "-".to_owned(), |span| span.to_string());
    println!(
        "{name:8} {delivered:9} {late:7} {lost:7} {dropped:8} {:>9} {:>10} {:>10}  {}, {}, {}, {}, {}, {}",
        shown(figures.deadline),
        shown(figures.bound),
        shown(*response),
        misses.sender,
        misses.receiver,
        misses.network,
        misses.platform,
        misses.laxity,
        misses.unexplained
    );
}
