//! Attacks on a host, over loopback and in a lab with the fast path: the channel that breaks its contract has the blame, and the channel beside it gets what it was promised. How
//! late its messages are depends on the machine; the cause does not.

#[path = "common/lab.rs"]
mod lab;
#[path = "common/violator.rs"]
mod violator;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration as StdDuration;

use lab::{Lab, Side};
use laxity::{ChannelSpec, Error as LaxityError, Host, HostConfig, LinkChoice, Receiver, Sender, XdpOptions};
use laxity_core::admission::Code;
use laxity_core::contract::{Contract, Service};
use laxity_core::figures::Figures;
use laxity_core::platform::Platform;
use laxity_core::units::{Duration, Rate};
use laxity_core::wire::{Accept, Control, Keepalive, MAX_CONTROL_BYTES, Open, SenderPace};
use laxity_lab::Error;
use laxity_lab::attack::{Content, Load, LoadTargets, OfferedLoad, unknown_peers};
use laxity_lab::figures::per_second;
use laxity_link::sys::{self, now};
use laxity_link::xdp::{EarlyDrops, XdpError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use violator::Violator;

const PATIENCE: Option<StdDuration> = Some(StdDuration::from_secs(10));
/// How long an attack lasts.
const SPAN: Duration = Duration::from_millis(1_500);
/// Of the channel that keeps its contract.
const INTERVAL: Duration = Duration::from_millis(10);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn config() -> HostConfig {
    HostConfig::emulated(Platform::assumed_host())
}

/// The pace of a peer whose link need not be slower beside others.
fn told() -> SenderPace {
    SenderPace { rate: Rate::bytes_per_second(1_000_000), ahead: Duration::ZERO, spacing: Duration::ZERO }
}

/// Two hosts, and a channel between them that is attacked. One scene at a time: they would be each other's attack.
struct AttackFixture {
    here: Host,
    there: Host,
    /// The lab that they are in, if not on loopback.
    lab: Option<Lab>,
    _alone: MutexGuard<'static, ()>,
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AttackFixture {
    fn on_loopback() -> Self {
        let host = || Host::start(config()).expect("a host starts without rights");
        Self { _alone: alone(), here: host(), there: host(), lab: None }
    }

    /// Over the fast path; `None` where that is not permitted.
    fn in_lab() -> Option<Self> {
        let (alone, lab) = (alone(), Lab::new(1)?);
        let start = |side: Side| {
            let link = LinkChoice::Xdp(XdpOptions::default());
            let config = HostConfig { bind: SocketAddr::new(side.v4(), 5709), link, ..config() };
            lab.on(side, move || Ok(Host::start(config))).unwrap()
        };
        let here = match start(Side::A) {
            Err(LaxityError::Xdp(XdpError::NotPermitted { interface, what })) => {
                println!("skipped: not permitted to {what} on {interface}");
                return None;
            }
            here => here.unwrap(),
        };
        let there = start(Side::B).unwrap();
        Some(Self { _alone: alone, here, there, lab: Some(lab) })
    }

    /// Does something where the sending host is.
    fn here<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.lab {
            Some(lab) => lab.on(Side::A, || Ok(work())).unwrap(),
            None => work(),
        }
    }

    fn ground(&self) -> LoadTargets {
        match &self.lab {
            Some(_) => LoadTargets::lab(&[(Side::B.v4(), 24)]).unwrap(),
            None => LoadTargets::loopback(),
        }
    }

    fn connect(&self, name: &str, spec: ChannelSpec) -> (Sender, Receiver) {
        let listener = self.there.listen(name).unwrap();
        let sender = self.here.open(self.there.address(), name, spec).unwrap();
        (sender, listener.accept(PATIENCE).unwrap())
    }

    /// Runs `attack` beside a channel that keeps its contract, and checks that channel.
    fn beside<T>(&self, attack: impl FnOnce() -> T) -> T {
        let (outcome, sent, figures) = self.run_beside(attack);
        assert_eq!((figures.delivered, figures.lost, figures.dropped), (sent, 0, 0), "{figures:?}");
        assert_eq!((figures.misses.laxity, figures.misses.sender), (0, 0), "{figures:?}");
        outcome
    }

    /// Runs `attack` beside a channel that keeps its contract; how many messages that sent, and its figures.
    fn run_beside<T>(&self, attack: impl FnOnce() -> T) -> (T, u64, Figures) {
        // A deadline that is far away: this is not about how fast the machine is.
        let contract = Contract::new(1_000, 1, INTERVAL, 1, ms(500)).unwrap();
        let (mut sender, receiver) = self.connect("neighbour", ChannelSpec::real_time(contract));
        let (outcome, sent, figures) = std::thread::scope(|scope| {
            let sending = scope.spawn(move || {
                let (start, mut sent) = (now(), 0);
                while now().since(start) < SPAN {
                    sender.send(&[sent as u8; 1_000]).unwrap();
                    sent += 1;
                    // As an application that keeps its contract by the clock.
                    let due = (start + INTERVAL * sent).since(now());
                    sys::wait(&mut [], Some(due)).unwrap();
                }
                sender.close().unwrap();
                sent
            });
            let receiving = scope.spawn(move || read_to_the_end(receiver));
            let outcome = attack();
            (outcome, sending.join().unwrap(), receiving.join().unwrap())
        });
        assert!(sent > 50, "{sent}");
        (outcome, sent, figures)
    }
}

/// A violator that attacks the channel of `sender`, if that is permitted here.
fn violator(scene: &AttackFixture, sender: Sender) -> Option<(Sender, Violator)> {
    let (from, ground) = (scene.here.address(), scene.ground());
    // A sender may move to another thread, and cannot be looked at from one.
    let (sender, violator) = scene.here(move || {
        let violator = Violator::new(&sender, from, 0, &ground);
        (sender, violator)
    });
    match violator {
        Ok(violator) => Some((sender, violator)),
        Err(error @ Error::System { .. }) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Sends at this pace as long as an attack lasts.
fn violate(violator: &mut Violator, pace: u64) -> OfferedLoad {
    let load = Load { per_second: Some(pace), packets: u64::MAX, span: SPAN };
    let offered = violator.run(&load, &AtomicBool::new(false)).unwrap();
    println!("{offered:?}, {} a second", per_second(offered.packets, offered.elapsed));
    offered
}

/// Reads until the channel is closed.
fn read_to_the_end(mut receiver: Receiver) -> Figures {
    loop {
        match receiver.recv_timeout(StdDuration::from_secs(10)) {
            Ok(_) => {}
            Err(LaxityError::Closed) => return receiver.figures(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Attacks a channel of 150 packets a second with so many; returns what became of it, and of how many messages.
fn break_a_contract(scene: &AttackFixture, per_second: u64) -> Option<(Figures, u64)> {
    let contract = Contract::new(4_000, 1, ms(20), 1, ms(500)).unwrap();
    let (sender, receiver) = scene.connect("violated", ChannelSpec::real_time(contract));
    let (sender, mut violator) = violator(scene, sender)?;
    let reading = std::thread::spawn(move || read_to_the_end(receiver));
    let offered = scene.beside(|| violate(&mut violator, per_second));
    sender.close().unwrap();
    let figures = reading.join().unwrap();
    println!("{figures:?} of {}", violator.next());
    assert!(offered.packets > 1_000, "{offered:?}");
    // What the contract has in that time, and what may be ahead of it.
    let most = offered.elapsed.div_ceil(ms(20)) + ms(500).div_ceil(ms(20)) + 2;
    assert!(figures.delivered <= most, "{} of at most {most}", figures.delivered);
    assert!(figures.misses.sender > 200, "{figures:?}");
    // What is not delivered is the violator's fault; those that were under reassembly at the end have no cause.
    assert_eq!(figures.misses.receiver + figures.misses.network + figures.misses.laxity, 0, "{figures:?}");
    Some((figures, violator.next()))
}

#[test]
fn who_breaks_its_contract_gets_it_and_has_the_blame() {
    let scene = AttackFixture::on_loopback();
    let Some((figures, messages)) = break_a_contract(&scene, 4_000) else { return };
    // Its due, and the blame for all the rest: at most as many as are under reassembly have no cause yet.
    assert!(figures.delivered >= 20, "{figures:?}");
    assert!(figures.misses.sender + figures.delivered + 64 >= messages, "{figures:?} of {messages}");
}

#[test]
fn what_the_driver_drops_of_who_breaks_its_contract_is_its_own_fault() {
    let Some(scene) = AttackFixture::in_lab() else { return };
    // The driver knows no messages: of what it lets through few are whole. Who sends within the contract loses none.
    if break_a_contract(&scene, 20_000).is_none() {
        return;
    }
    std::thread::sleep(StdDuration::from_millis(250));
    let early = scene.there.early().expect("it is the fast path").early();
    println!("{early:?}");
    assert!(early.dropped.over_rate > 10_000, "{early:?}");
    assert_eq!(early.dropped.all(), early.dropped.over_rate, "{early:?}");
}

#[test]
fn a_flood_of_best_effort_that_is_not_read_fills_its_own_queue_only() {
    for (is_lab, per_second) in [(false, 4_000), (true, 20_000)] {
        let scene = if is_lab { AttackFixture::in_lab() } else { Some(AttackFixture::on_loopback()) };
        let Some(scene) = scene else { return };
        let (sender, receiver) = scene.connect("flooded", ChannelSpec::best_effort(5_000, 4).unwrap());
        let Some((sender, mut violator)) = violator(&scene, sender) else { return };
        scene.beside(|| violate(&mut violator, per_second));
        sender.close().unwrap();
        let figures = read_to_the_end(receiver);
        println!("{figures:?} of {} messages", violator.next());
        assert!(figures.misses.receiver > 100, "{figures:?}");
        assert!(figures.delivered < 100, "{figures:?}");
        assert_eq!(figures.misses.sender + figures.misses.laxity, 0, "{figures:?}");
    }
}

#[test]
fn unknown_peers_disturb_no_channel() {
    let scene = AttackFixture::on_loopback();
    let port = scene.there.address();
    let absent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let closed = absent.local_addr().unwrap();
    drop(absent);
    let stop = AtomicBool::new(false);
    let load = Load { per_second: Some(4_000), packets: 1_000, span: SPAN };
    let offered = scene.beside(|| {
        let mut all = Vec::new();
        for (to, content, bytes) in [
            (port, Content::Garbage, 1),
            (port, Content::Garbage, 1_400),
            (port, Content::UnknownChannel, 1_400),
            (port, Content::Control, 1),
            (closed, Content::UnknownChannel, 64),
        ] {
            all.push(unknown_peers(&[to], content, bytes, &load, &LoadTargets::loopback(), &stop, |_| ()).unwrap());
        }
        all
    });
    for some in &offered {
        assert!((1..=1_000).contains(&some.packets) && some.elapsed <= SPAN + ms(500), "{some:?}");
        assert!(some.bytes >= some.packets);
    }
    assert_eq!(offered.iter().map(|some| some.refused).sum::<u64>(), 0, "{offered:?}");
}

/// Processor time that the executives of this process have taken.
fn executives_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let task = task.unwrap().path();
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
        if name.trim() == "laxity" { times.split_whitespace().next()?.parse::<u64>().ok() } else { None }
    });
    Duration::from_nanos(tasks.sum())
}

#[test]
fn unknown_peers_take_no_more_of_the_processor_than_looks_are_charged() {
    let scene = AttackFixture::on_loopback();
    let (stop, begin) = (AtomicBool::new(false), executives_time());
    let load = Load { per_second: None, packets: u64::MAX, span: SPAN };
    let to = [scene.there.address()];
    let offered = unknown_peers(&to, Content::Garbage, 60, &load, &LoadTargets::loopback(), &stop, |_| ()).unwrap();
    let took = executives_time() - begin;
    println!("{offered:?}, the executives ran for {took}");
    assert!(per_second(offered.packets, offered.elapsed) > 50_000, "{offered:?}");
    // By the costs that are assumed a look takes 14 % of a round; what is measured contains waking up, too, and where the test is not
    // optimised a look takes longer than the longest rest allows for. Without rests it was 82 to 90 %, as fast as frames came.
    assert!(took < offered.elapsed.mul_ratio(55, 100), "{took} of {}", offered.elapsed);
}

/// One host asks for all the memory of another, as best effort and as real time, by one request and by many.
#[test]
fn one_host_takes_no_more_of_another_than_it_leaves_for_others() {
    let scene = AttackFixture::on_loopback();
    let to = scene.there.address();
    let greedy = UdpSocket::bind("127.0.0.2:0").unwrap();
    greedy.set_read_timeout(PATIENCE).unwrap();
    let listener = scene.there.listen("greedy").unwrap();
    let mut tokens = 0..;
    let mut ask = |service: Service| {
        let (mut frame, mut answer, token) = ([0; MAX_CONTROL_BYTES], [0; MAX_CONTROL_BYTES], tokens.next().unwrap());
        let open = Open {
            name: "greedy",
            traffic: service.into(),
            packet: 1_000,
            upstream: Duration::ZERO,
            lease: ms(60_000),
            clock: 0,
            oversize: 1,
            pace: told(),
        };
        let len = Control::Open(open).write(token, &mut frame).unwrap();
        greedy.send_to(&frame[..len], to).unwrap();
        loop {
            let len = greedy.recv(&mut answer).unwrap();
            match Control::parse(&answer[..len]).unwrap() {
                (answered, _) if answered != token => {}
                (_, Control::Accept(Accept { channel, key, .. })) => {
                    let len = Control::Keepalive(Keepalive { channel, key, sent: 0, ..Keepalive::default() })
                        .write(token, &mut frame)
                        .unwrap();
                    greedy.send_to(&frame[..len], to).unwrap();
                    break Ok(());
                }
                (_, Control::Refuse(refuse)) => break Err(refuse.refusal.code),
                (_, other) => panic!("{other:?}"),
            }
        }
    };
    // 70 bytes that ask for 256 MiB, as the reported attack did.
    assert_eq!(ask(Service::best_effort(16 << 20, 16).unwrap()), Err(Code::Memory));
    assert_eq!(ask(Service::best_effort(16 << 20, 5).unwrap()), Err(Code::PeerShare));
    let small: Vec<_> = std::iter::repeat_with(|| ask(Service::best_effort(1, 1).unwrap())).take(70).collect();
    assert_eq!(small.iter().filter(|answer| answer.is_ok()).count(), 64, "{small:?}");
    assert!(small[64..].iter().all(|answer| *answer == Err(Code::PeerShare)), "{small:?}");
    let large = Contract::new(200_000, 1, ms(1_000), 4, ms(2_000)).unwrap();
    let large: Vec<_> = std::iter::repeat_with(|| ask(Service::RealTime(large))).take(30).collect();
    println!("granted of 30 real-time channels: {}", large.iter().filter(|answer| answer.is_ok()).count());
    assert_eq!(large.last(), Some(&Err(Code::PeerShare)), "{large:?}");
    // Others find what they need, best effort and real time.
    let contract = Contract::new(100_000, 1, ms(1_000), 1, ms(2_000)).unwrap();
    let real_time = scene.connect("proper", ChannelSpec::real_time(contract));
    let best_effort = scene.connect("other", ChannelSpec::best_effort(100_000, 16).unwrap());
    assert!(real_time.0.end().is_none() && best_effort.0.end().is_none());
    drop(listener);
}

/// Asks for a channel whose deadline no host can keep.
fn too_late() -> Open<'static> {
    let late = Service::RealTime(Contract::new(60_000, 1, ms(20), 1, ms(1)).unwrap());
    Open {
        name: "asked",
        traffic: late.into(),
        packet: 1_000,
        upstream: Duration::ZERO,
        lease: ms(2_000),
        clock: 0,
        oversize: 1,
        pace: told(),
    }
}

/// 62 best-effort channels that are granted to `crowd`: the token of each, and its place and key.
fn be_granted(scene: &AttackFixture, crowd: &UdpSocket, open: &Open<'_>) -> (Vec<(u64, u32, u64)>, Vec<Receiver>) {
    let listener = scene.there.listen(open.name).unwrap();
    let granted = |token| {
        let (mut frame, mut answer) = ([0; MAX_CONTROL_BYTES], [0; MAX_CONTROL_BYTES]);
        let len = Control::Open(*open).write(token, &mut frame).unwrap();
        crowd.send_to(&frame[..len], scene.there.address()).unwrap();
        let receiver = listener.accept(PATIENCE).unwrap();
        loop {
            let len = crowd.recv(&mut answer).unwrap();
            if let Ok((of, Control::Accept(Accept { channel, key, .. }))) = Control::parse(&answer[..len])
                && of == token
            {
                let alive = Control::Keepalive(Keepalive { channel, key, sent: 0, ..Keepalive::default() })
                    .write(token, &mut frame)
                    .unwrap();
                crowd.send_to(&frame[..alive], scene.there.address()).unwrap();
                return ((token, channel, key), receiver);
            }
        }
    };
    (0..62).map(granted).unzip()
}

/// What ended every other channel of a host within two seconds, once: 62 best-effort channels of one peer whose KEEPALIVE and OPEN
/// come again and again, and beside them 1,000 ports that ask for what cannot be granted; as fast as this machine can, if that is less.
/// Together 50,000 a second take nothing from the neighbour. 120,000 may: looks at what leads to no work have a share of the processor, and
/// what comes faster overflows the socket (docs/limits.md). Nothing else may change.
#[test]
fn a_peer_that_repeats_itself_ends_no_channel_and_keeps_no_peer_out() {
    repeat_beside_a_neighbour(40_000, 10_000, true);
    repeat_beside_a_neighbour(100_000, 20_000, false);
}

/// `repeated` and `asked` times a second; the socket `has_room` for that.
fn repeat_beside_a_neighbour(repeated: u64, asked: u64, has_room: bool) {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let scene = AttackFixture::on_loopback();
    let to = scene.there.address();
    let socket = || UdpSocket::bind("127.0.0.2:0").unwrap();
    let (crowd, askers): (_, Vec<_>) = (socket(), (0..1_000).map(|_| socket()).collect());
    crowd.set_read_timeout(PATIENCE).unwrap();
    let open = Open { name: "crowded", traffic: Service::best_effort(100, 1).unwrap().into(), ..too_late() };
    let (granted, held) = be_granted(&scene, &crowd, &open);
    crowd.set_nonblocking(true).unwrap();
    let _listener = scene.there.listen("asked").unwrap();
    let late = too_late();
    // Until the time is over, so many a second; how many there were.
    let at_rate = |rate: u64, send: &mut dyn FnMut(u64) -> bool| {
        let (start, mut sent) = (now(), 0);
        while now().since(start) < SPAN {
            while sent < now().since(start).as_nanos() * rate / 1_000_000_000 && now().since(start) < SPAN {
                sent += u64::from(send(sent));
            }
            sys::wait(&mut [], Some(ms(1))).unwrap();
        }
        sent
    };
    let repeat = || {
        let (mut frame, mut answer, mut answers) = ([0; MAX_CONTROL_BYTES], [0; MAX_CONTROL_BYTES], 0_u64);
        let sent = at_rate(repeated, &mut |number| {
            let (token, channel, key) = granted[number as usize / 2 % granted.len()];
            let control = match number % 2 {
                0 => Control::Keepalive(Keepalive { channel, key, sent: 0, ..Keepalive::default() }),
                _ => Control::Open(open),
            };
            let len = control.write(token, &mut frame).unwrap();
            if number % 100 == 0 {
                answers += std::iter::repeat_with(|| crowd.recv(&mut answer)).take_while(Result::is_ok).count() as u64;
            }
            crowd.send_to(&frame[..len], to).is_ok()
        });
        (sent, answers)
    };
    let ask = || {
        let mut frame = [0; MAX_CONTROL_BYTES];
        at_rate(asked, &mut |number| {
            let len = Control::Open(late).write(number, &mut frame).unwrap();
            askers[number as usize % askers.len()].send_to(&frame[..len], to).is_ok()
        })
    };
    let attack = || {
        std::thread::scope(|scope| {
            let (repeating, asking) = (scope.spawn(repeat), scope.spawn(ask));
            sys::wait(&mut [], Some(ms(300))).unwrap();
            let (contract, start) = (Contract::new(1_000, 1, INTERVAL, 1, ms(500)).unwrap(), now());
            let proper = scene.connect("proper", ChannelSpec::real_time(contract));
            let opened = now().since(start);
            assert!(proper.0.end().is_none());
            let (sent, answers) = repeating.join().unwrap();
            (sent, answers, asking.join().unwrap(), opened)
        })
    };
    let (sent, answers, asked, opened) = if has_room {
        scene.beside(attack)
    } else {
        let (outcome, sent, figures) = scene.run_beside(attack);
        println!("{figures:?}");
        // To its end; every message is accounted for, and most come even so.
        assert_eq!(figures.delivered + figures.lost + figures.dropped, sent, "{figures:?}");
        assert!(figures.delivered > sent / 2 && figures.misses.sender == 0, "{figures:?}");
        outcome
    };
    println!("{sent} repeated, {asked} asked, {answers} answers, a proper peer has its channel after {opened}");
    assert!(sent > 15_000 && asked > 3_000, "{sent} {asked}");
    // One in 50 ms for each channel, and two more.
    let most = held.len() as u64 * (SPAN.div_ceil(ms(50)) + 2);
    assert!(answers < most, "{answers} answers of at most {most}");
    assert!(opened < ms(1_000), "{opened}");
    assert!(held.iter().all(|receiver| receiver.end().is_none()));
}

/// How long the threads of this process that decide on requests have had a processor.
fn deciding() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let read = |task: &std::path::Path, file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
    let deciding = tasks.filter(|task| read(task, "comm").trim() == "laxity-control");
    // The first figure: ns on a processor.
    let taken = deciding.map(|task| read(&task, "schedstat").split(' ').next().unwrap().parse::<u64>().unwrap());
    Duration::from_nanos(taken.sum())
}

/// Being refused costs nothing; so refusing has a share of the processor: a tenth for one host, and half a second beforehand.
#[test]
fn a_peer_that_is_refused_without_end_has_a_share_of_the_processor_and_keeps_no_peer_out() {
    const LONG: Duration = Duration::from_secs(6);
    let scene = AttackFixture::on_loopback();
    let to = scene.there.address();
    let socket = UdpSocket::bind("127.0.0.2:0").unwrap();
    let _listener = scene.there.listen("asked").unwrap();
    // Every decision looks at them.
    let held: Vec<_> = (0..60)
        .map(|number| {
            let contract = Contract::new(1_000, 1, ms(100 + number), 1, ms(2_000)).unwrap();
            scene.connect(&format!("c{number}"), ChannelSpec::real_time(contract))
        })
        .collect();
    let open = too_late();
    let (before, start, mut asked, mut frame) = (deciding(), now(), 0, [0; MAX_CONTROL_BYTES]);
    // Live: a proper request may be lost at a socket that overflows, and is repeated, again and again on a machine that others use. Two of five may take long; one that is
    // quick at first is enough.
    let is_slow = |opened: &Duration| *opened >= ms(1_000);
    let mut opened: Vec<Duration> = Vec::new();
    let wants_more = |opened: &[Duration]| {
        let slow = opened.iter().filter(|one| is_slow(one)).count();
        opened.is_empty() || slow > 0 && slow < 3 && opened.len() < 5
    };
    while now().since(start) < LONG || wants_more(&opened) {
        let len = Control::Open(open).write(asked, &mut frame).unwrap();
        asked += u64::from(socket.send_to(&frame[..len], to).is_ok());
        if wants_more(&opened) && now().since(start) > LONG - ms(1_000) {
            opened.push(std::thread::scope(|scope| {
                let opening = scope.spawn(|| {
                    let contract = Contract::new(1_000, 1, INTERVAL, 1, ms(500)).unwrap();
                    let start = now();
                    drop(scene.connect("proper", ChannelSpec::real_time(contract)));
                    now().since(start)
                });
                while !opening.is_finished() {
                    asked += u64::from(socket.send_to(&frame[..len], to).is_ok());
                }
                opening.join().unwrap()
            }));
        }
    }
    let (taken, span) = (deciding() - before, now().since(start));
    println!("{asked} asked in {span}, decisions took {taken}, a proper peer has its channel after {opened:?}");
    assert!(asked > 10_000, "{asked}");
    // The last turn is charged when it is over, and one that brings no request is charged to no host.
    let most = ms(500) + Duration::from_nanos(span.as_nanos() / 10) + ms(50);
    assert!(taken < most, "{taken} of at most {most}");
    assert!(opened.iter().filter(|one| is_slow(one)).count() < 3, "{opened:?}");
    drop(held);
}

#[test]
fn unknown_peers_end_in_the_driver() {
    let Some(scene) = AttackFixture::in_lab() else { return };
    let (port, ground, stop) = (scene.there.address(), scene.ground(), AtomicBool::new(false));
    // As many as go, and no more than so many.
    let load = Load { per_second: None, packets: 50_000, span: ms(300) };
    let offered = scene.beside(|| {
        [Content::Garbage, Content::UnknownChannel, Content::Control].map(|content| {
            scene.here(|| unknown_peers(&[port], content, 200, &load, &ground, &stop, |_| ())).expect("it may go there")
        })
    });
    std::thread::sleep(StdDuration::from_millis(250));
    let early = scene.there.early().expect("it is the fast path").early();
    println!("{offered:?}\n{:?} a second\n{early:?}", offered.map(|some| per_second(some.packets, some.elapsed)));
    assert!(offered.iter().all(|some| some.packets > 1_000), "{offered:?}");
    let EarlyDrops { malformed, unknown, too_large, over_rate, over_control } = early.dropped;
    assert!(malformed > 1_000 && unknown > 1_000 && over_control > 500, "{early:?}");
    assert_eq!((over_rate, too_large), (0, 0), "{early:?}");
}

#[test]
fn load_leaves_neither_loopback_nor_a_lab() {
    let stop = AtomicBool::new(false);
    let load = Load { per_second: Some(1), packets: 1, span: ms(1) };
    for to in ["192.0.2.1:9", "[2001:db8::1]:9", "10.1.2.3:9"] {
        let to = to.parse().unwrap();
        for ground in [LoadTargets::loopback(), LoadTargets::lab(&[("10.99.0.0".parse().unwrap(), 24)]).unwrap()] {
            let error = unknown_peers(&[to], Content::Garbage, 100, &load, &ground, &stop, |_| ()).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(
                error.to_string().starts_with(&format!("{to} is neither a loopback address nor in a lab ")),
                "{error}"
            );
        }
    }
    let here = "127.0.0.1:9".parse().unwrap();
    assert!(unknown_peers(&[here], Content::Garbage, 9_000, &load, &LoadTargets::loopback(), &stop, |_| ()).is_err());
}
