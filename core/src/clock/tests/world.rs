//! Worlds of two hosts with a clock each, in which every true latency is known.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::*;
use crate::units::Duration;

pub(super) const MICRO: u64 = 1_000;
pub(super) const MILLI: u64 = 1_000_000;
const MILLION: i128 = 1_000_000;

/// A source of numbers: the same for the same seed.
pub(super) struct SeededNumbers(pub(super) u64);

impl SeededNumbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
    /// Of any size from `least` to `most`, each magnitude as often.
    pub(super) fn magnitude(&mut self, least: u64, most: u64) -> u64 {
        let doublings = u64::from((most / least).ilog2());
        let base = least << self.below(doublings + 1);
        (base + self.below(base)).min(most)
    }
}

/// An estimator on trial.
pub(super) trait Estimator {
    fn say(&mut self, now: Instant, epoch: u8, wall: Option<WallReading>) -> ClockExchange;
    fn hear(&mut self, exchange: &ClockExchange, arrived: Instant, epoch: u8) -> ExchangeEffect;
    fn read_wall(&mut self, _: Option<WallReading>, _: u8) -> ExchangeEffect {
        ExchangeEffect::default()
    }
    fn push(&mut self, message: &CompletedMessage) -> Option<JudgedMessage>;
    fn poll(&mut self, now: Instant, epoch: u8) -> Option<JudgedMessage>;
    /// Messages may come from before the epoch.
    fn expect_older(&mut self) {}
    fn clock(&self) -> &PeerClock;
}

/// Ours.
pub(super) struct OwnEstimator(pub(super) PeerClock, pub(super) PendingMessages);

impl Estimator for OwnEstimator {
    fn say(&mut self, now: Instant, epoch: u8, wall: Option<WallReading>) -> ClockExchange {
        self.0.say(now, epoch, wall)
    }
    fn hear(&mut self, exchange: &ClockExchange, arrived: Instant, epoch: u8) -> ExchangeEffect {
        self.0.hear(exchange, arrived, epoch)
    }
    fn read_wall(&mut self, wall: Option<WallReading>, epoch: u8) -> ExchangeEffect {
        self.0.set_epoch(epoch);
        self.0.read_wall(wall)
    }
    fn push(&mut self, message: &CompletedMessage) -> Option<JudgedMessage> {
        self.1.push(&self.0, message)
    }
    fn poll(&mut self, now: Instant, epoch: u8) -> Option<JudgedMessage> {
        self.0.set_epoch(epoch);
        self.1.settle(&self.0, now)
    }
    fn expect_older(&mut self) {
        self.0.expect_older();
    }
    fn clock(&self) -> &PeerClock {
        &self.0
    }
}

/// One host, and its clock in millionths of a nanosecond.
struct Host {
    origin: i128,
    /// Per nanosecond.
    rate: i128,
    /// It stands still in this span, and stood still as long as `stood` before.
    still: [u64; 2],
    stood: u64,
    jumped: i128,
    epoch: u8,
    /// Its wall clock as it was read last, and by how much that may be off.
    wall: Option<WallReading>,
    wall_error: u64,
    wall_lie: i64,
    /// In which epoch the first message may be sent to it, until it begins to listen.
    first: Option<u8>,
}

impl Host {
    /// What its clock would read if it never jumped.
    fn steady(&self, at: u64) -> i128 {
        let gone = if at < self.still[1] { self.still[0] } else { at - (self.still[1] - self.still[0]) } - self.stood;
        self.origin + i128::from(gone) * self.rate
    }
    fn reads(&self, at: u64) -> Instant {
        Instant::from_nanos(u64::try_from((self.steady(at) + self.jumped).div_euclid(MILLION)).unwrap())
    }
    /// Its wall clock, off by anything that is allowed.
    fn reads_wall(&self, at: u64, numbers: &mut SeededNumbers) -> WallReading {
        let off = numbers.below(2 * self.wall_error + 1).cast_signed() - self.wall_error.cast_signed();
        let off = [self.wall_error.cast_signed(), -self.wall_error.cast_signed(), off][numbers.below(3) as usize];
        let reads = self.reads(at);
        let ahead =
            i64::try_from(i128::from(at) + i128::from(off + self.wall_lie) - i128::from(reads.as_nanos())).unwrap();
        WallReading { at: reads, ahead, error: Duration::from_nanos(self.wall_error) }
    }
    fn bump(&mut self) {
        self.wall = None;
        self.epoch = (self.epoch + 1) % (MAX_EPOCH + 1);
    }
}

/// A direction of the network path.
#[derive(Clone, Copy)]
pub(super) struct PathDirection {
    pub(super) delay: u64,
    pub(super) jitter: u64,
    /// What is added from when on.
    pub(super) later: (u64, u64),
}

#[derive(Clone, Copy)]
enum Event {
    Listen,
    Exchange,
    Write(Instant),
    Arrive(ClockExchange),
    Hear(ClockExchange, Instant),
    ReadWall,
    Send,
    Complete(Instant, u8, usize),
    Push(CompletedMessage),
    Step,
}

/// What happens in a world.
pub(super) struct WorldRules {
    pub(super) stated_ppm: u32,
    /// Of both clocks.
    pub(super) drift_ppm: [i128; 2],
    pub(super) period: u64,
    pub(super) legs: [PathDirection; 2],
    /// Between two readings that belong together.
    pub(super) slop: u64,
    pub(super) loss: u64,
    pub(super) copies: u64,
    pub(super) answers: u64,
    pub(super) steps: u64,
    /// False: host 0 jumps ahead and host 1 stands still without a word, and only host 1 can judge.
    pub(super) told: bool,
    /// When each host begins to judge, and to speak: what was sent before may still come.
    pub(super) listens: [u64; 2],
    pub(super) lasts: u64,
    /// Between messages.
    pub(super) every: u64,
    pub(super) deadline: u64,
    /// How far each host's wall clock may be off, if it has one.
    pub(super) walls: Option<[u64; 2]>,
}

impl WorldRules {
    /// Any world.
    pub(super) fn any(numbers: &mut SeededNumbers) -> Self {
        let stated_ppm = [0, 100, 300, 50_000][numbers.below(4) as usize];
        let first = numbers.below(u64::from(stated_ppm) + 1) as i128;
        let mut second = i128::from(stated_ppm) - first;
        if numbers.percent(30) {
            second = second.min(1);
        }
        let sign = if numbers.percent(50) { 1 } else { -1 };
        let period = numbers.magnitude(2 * MILLI, 100 * MILLI);
        let lasts = period * (20 + numbers.below(60));
        let leg = |numbers: &mut SeededNumbers| {
            let slowest = [50 * MICRO, 3_000 * MILLI][usize::from(numbers.percent(20))];
            let widest = [MICRO, 50 * MICRO, period, 3_000 * MILLI][numbers.below(4) as usize];
            PathDirection {
                delay: numbers.magnitude(1, slowest),
                jitter: numbers.magnitude(1, widest),
                later: (numbers.below(2 * lasts), numbers.magnitude(MICRO, 200 * MILLI)),
            }
        };
        // Without delays the bounds are as sharp as the readings.
        let is_sharp = numbers.percent(10);
        let legs = [leg(numbers), leg(numbers)]
            .map(|leg| if is_sharp { PathDirection { delay: 0, jitter: 1, ..leg } } else { leg });
        Self {
            stated_ppm,
            drift_ppm: [sign * first, -sign * second],
            period,
            legs,
            slop: if is_sharp { 1 } else { numbers.magnitude(1, 500 * MICRO) },
            loss: numbers.below(40),
            copies: numbers.below(20),
            answers: numbers.below(101),
            steps: numbers.below(u64::from(MAX_EPOCH) + 1),
            told: numbers.percent(50),
            listens: [(); 2].map(|()| if numbers.percent(70) { 0 } else { numbers.below(lasts / 2) }),
            lasts,
            every: period / (1 + numbers.below(4)),
            deadline: numbers.magnitude(10 * MICRO, 1_000 * MILLI),
            walls: numbers.percent(50).then(|| [(); 2].map(|()| numbers.below(2) * numbers.magnitude(1, 10 * MILLI))),
        }
    }
}

/// A message, judged beside the truth, which is in millionths of a nanosecond.
pub(super) struct Outcome {
    pub(super) host: usize,
    pub(super) sent_at: u64,
    pub(super) took: i128,
    /// Its receiver had not heard a report when it came.
    pub(super) is_early: bool,
    pub(super) judged: JudgedMessage,
}

impl Outcome {
    pub(super) fn is_wrong(&self) -> bool {
        let millionths = |span: Duration| i128::from(span.as_nanos()) * MILLION;
        let JudgedMessage { lower, upper, deadline, verdict, .. } = self.judged;
        self.took < millionths(lower)
            || upper.is_some_and(|upper| self.took > millionths(upper))
            || (verdict == DeadlineVerdict::InTime && self.took > millionths(deadline))
            || (verdict == DeadlineVerdict::Late && self.took <= millionths(deadline))
    }
}

/// A world, going on.
pub(super) struct World<'a, E> {
    numbers: &'a mut SeededNumbers,
    pub(super) rules: WorldRules,
    hosts: [Host; 2],
    pub(super) ends: [E; 2],
    events: BTreeMap<(u64, u64), (usize, Event)>,
    scheduled: u64,
    /// For each message: when it was sent, the reading of the receiver's steady clock then, and true if it came before a report.
    sent: Vec<(u64, i128, bool)>,
    pub(super) outcomes: Vec<Outcome>,
    pub(super) heard: [Vec<ExchangeEffect>; 2],
}

impl<'a, E: Estimator> World<'a, E> {
    pub(super) fn new(numbers: &'a mut SeededNumbers, rules: WorldRules, make: impl Fn(&WorldRules) -> E) -> Self {
        let [first, second] = rules.drift_ppm;
        let hosts = [first, second].map(|ppm| Host {
            origin: i128::from(numbers.below(1 << 61)) * MILLION + i128::from(numbers.below(1_000_000)),
            rate: MILLION + ppm,
            still: [0; 2],
            stood: 0,
            jumped: 0,
            epoch: numbers.below(u64::from(MAX_EPOCH) + 1) as u8,
            wall: None,
            wall_error: 0,
            wall_lie: 0,
            first: None,
        });
        let mut hosts = hosts.map(|host| Host { first: Some(host.epoch), ..host });
        for (host, error) in hosts.iter_mut().zip(rules.walls.into_iter().flatten()) {
            host.wall_error = error;
        }
        let ends = [make(&rules), make(&rules)];
        let mut world = Self {
            numbers,
            rules,
            hosts,
            ends,
            events: BTreeMap::new(),
            scheduled: 0,
            sent: Vec::new(),
            outcomes: Vec::new(),
            heard: [Vec::new(), Vec::new()],
        };
        for host in 0..2 {
            let [exchange, message] = [world.rules.period, world.rules.every].map(|end| world.numbers.below(end));
            world.at(exchange, host, Event::Exchange);
            world.at(message, host, Event::Send);
        }
        for _ in 0..world.rules.steps {
            let [at, host] = [world.rules.lasts, 2].map(|end| world.numbers.below(end));
            world.at(at, host as usize, Event::Step);
        }
        for host in 0..2 {
            world.at(world.rules.listens[host], host, Event::Listen);
        }
        world
    }

    fn at(&mut self, at: u64, host: usize, event: Event) {
        self.scheduled += 1;
        self.events.insert((at, self.scheduled), (host, event));
    }

    fn soon(&mut self, now: u64, host: usize, event: Event) {
        let later = if self.numbers.percent(70) { 0 } else { self.numbers.below(self.rules.slop) };
        self.at(now + later, host, event);
    }

    fn delay(&mut self, from: usize, now: u64) -> u64 {
        let PathDirection { delay, jitter, later: (when, more) } = self.rules.legs[from];
        delay + self.numbers.below(jitter) + if now >= when { more } else { 0 }
    }

    /// A host's wall clock is ahead by so much that it does not tell.
    pub(super) fn lie(&mut self, host: usize, by: i64) {
        self.hosts[host].wall_lie = by;
    }

    /// Lets it go on to its end, and tells how it was judged.
    pub(super) fn run(&mut self) {
        while let Some(((now, _), (host, event))) = self.events.pop_first() {
            let resumes = self.hosts[host].still[1];
            if now < resumes && !matches!(event, Event::Step) {
                self.at(resumes, host, event);
                continue;
            }
            self.happen(now, host, event);
            self.poll(now, host);
        }
    }

    fn poll(&mut self, now: u64, host: usize) {
        if self.hosts[host].first.is_some() {
            return;
        }
        let (reading, epoch) = (self.hosts[host].reads(now), self.hosts[host].epoch);
        while let Some(judged) = self.ends[host].poll(reading, epoch) {
            self.note(host, judged);
        }
    }

    fn note(&mut self, host: usize, judged: JudgedMessage) {
        let (sent_at, took, is_early) = self.sent[judged.token[0] as usize];
        if self.rules.told || host == 1 {
            self.outcomes.push(Outcome { host, sent_at, took, is_early, judged });
        }
    }

    fn happen(&mut self, now: u64, host: usize, event: Event) {
        let (peer, reading, epoch) = (1 - host, self.hosts[host].reads(now), self.hosts[host].epoch);
        match event {
            Event::Listen => {
                if self.hosts[host].first.take() != Some(epoch) {
                    self.ends[host].expect_older();
                }
            }
            Event::Write(_) | Event::Hear(..) | Event::ReadWall | Event::Push(_)
                if self.hosts[host].first.is_some() => {}
            Event::Exchange => {
                self.soon(now, host, Event::Write(reading));
                if now < self.rules.lasts {
                    self.at(now + self.rules.period, host, Event::Exchange);
                }
            }
            Event::Write(stamp) => {
                let exchange = self.ends[host].say(stamp, epoch, self.hosts[host].wall);
                let copies = 1 + u64::from(self.numbers.percent(self.rules.copies));
                for _ in 0..copies {
                    if !self.numbers.percent(self.rules.loss) {
                        let delay = self.delay(host, now);
                        self.at(now + delay, peer, Event::Arrive(exchange));
                    }
                }
            }
            Event::Arrive(exchange) => self.soon(now, host, Event::Hear(exchange, reading)),
            Event::Hear(exchange, arrived) => {
                let heard = self.ends[host].hear(&exchange, arrived, epoch);
                self.heard[host].push(heard);
                if self.rules.walls.is_some() {
                    self.soon(now, host, Event::ReadWall);
                }
                if heard.refused.is_none() && host == 1 && self.numbers.percent(self.rules.answers) {
                    self.soon(now, host, Event::Write(reading));
                }
            }
            Event::ReadWall => {
                let wall = self.hosts[host].reads_wall(now, self.numbers);
                self.hosts[host].wall = Some(wall);
                let heard = self.ends[host].read_wall(Some(wall), epoch);
                self.heard[host].push(heard);
            }
            Event::Send => {
                let token = self.sent.len();
                self.sent.push((now, self.hosts[peer].steady(now), false));
                let delay = self.delay(host, now);
                self.at(now + delay, peer, Event::Complete(reading, epoch, token));
                if now < self.rules.lasts {
                    self.at(now + self.rules.every, host, Event::Send);
                }
            }
            Event::Complete(sent, sent_epoch, token) => {
                self.sent[token].1 = self.hosts[host].steady(now) - self.sent[token].1;
                let message = CompletedMessage {
                    sent,
                    completed: reading,
                    epoch: sent_epoch,
                    own_epoch: 0,
                    least: Duration::ZERO,
                    deadline: Duration::from_nanos(self.rules.deadline),
                    token: [token as u32; 2],
                };
                self.soon(now, host, Event::Push(message));
            }
            Event::Push(message) => {
                self.sent[message.token[0] as usize].2 = !self.heard[host].iter().any(|heard| heard.upper);
                if let Some(judged) = self.ends[host].push(&CompletedMessage { own_epoch: epoch, ..message }) {
                    self.note(host, judged);
                }
            }
            Event::Step => self.step(now, host),
        }
    }

    fn step(&mut self, now: u64, host: usize) {
        let size = self.numbers.magnitude(100, 10_000 * MILLI);
        let stands = if self.rules.told { self.numbers.percent(50) } else { host == 1 };
        let clock = &mut self.hosts[host];
        if self.rules.told {
            clock.bump();
        }
        if !stands {
            clock.jumped += i128::from(size) * MILLION;
        } else if now >= clock.still[1] {
            clock.stood += clock.still[1] - clock.still[0];
            clock.still = [now, now + size];
        }
    }
}
