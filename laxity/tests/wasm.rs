//! Handlers in WebAssembly: what a module may be, what it may do, and that nothing else happens whatever it is.
#![cfg(feature = "wasm-tests")]

use std::time::Duration as StdDuration;

use laxity::handler::wasm::{FuelCost, MAX_MODULE, Module, try_out};
use laxity::handler::{HandlerSpec, HandlerState};
use laxity::{ChannelSpec, Error, Host, HostConfig, ListenConfig, Receiver, Sender};
use laxity_core::contract::Contract;
use laxity_core::platform::Platform;
use laxity_core::units::Duration;

const WAIT: StdDuration = StdDuration::from_secs(10);
/// Debug builds of the compiler's run time are slow.
const COST: Duration = Duration::from_micros(2_000);

fn host() -> Host {
    let config = HostConfig::with_costs(Platform::assumed_host());
    Host::start(config.advanced(|advanced| {
        advanced.claims = None;
        advanced.longest_iteration = StdDuration::from_micros(2_100);
    }))
    .unwrap()
}

fn contract() -> ChannelSpec {
    ChannelSpec::real_time(Contract::new(64, 1, Duration::from_millis(10), 4, Duration::from_millis(200)).unwrap())
}

/// Two hosts, a channel whose receiver may have handlers, and one back.
struct HandlerFixture {
    sender: Sender,
    receiver: Receiver,
    reply: Option<Sender>,
    answered: Receiver,
    _hosts: (Host, Host),
}

fn scene() -> HandlerFixture {
    let (a, b) = (host(), host());
    let spec = HandlerSpec::taking(COST).within(Duration::from_secs(1));
    let listener = b.listen_with("handled", ListenConfig { handler: Some(spec), ..ListenConfig::default() }).unwrap();
    let sender = a.open(b.address(), "handled", contract()).unwrap();
    let receiver = listener.accept(Some(WAIT)).unwrap();
    let listener = a.listen("answers").unwrap();
    let reply = Some(b.open(a.address(), "answers", contract()).unwrap());
    let answered = listener.accept(Some(WAIT)).unwrap();
    HandlerFixture { sender, receiver, reply, answered, _hosts: (a, b) }
}

impl HandlerFixture {
    fn install(&mut self, text: &str) -> Result<(), Error> {
        let handler = Module::new(&wat::parse_str(text).unwrap())?.handler();
        self.receiver.on_message(match self.reply.take() {
            Some(reply) => handler.replying_on(reply),
            None => handler,
        })?;
        Ok(())
    }

    /// Sends a message, and waits until the handler has had it.
    fn send(&mut self, message: &[u8]) {
        let before = self.receiver.handler().unwrap().runs;
        self.sender.send(message).unwrap();
        for _ in 0..1_000 {
            if self.receiver.handler().unwrap().runs > before {
                return;
            }
            std::thread::sleep(StdDuration::from_millis(10));
        }
        panic!("{:?}", self.receiver.handler());
    }
}

/// A module with this body of `on_message`, one page and a buffer.
fn module(body: &str) -> String {
    format!(
        r#"(module
            (import "laxity" "reply" (func $reply (param i32 i32) (result i32)))
            (import "laxity" "set" (func $set (param i32 i64)))
            (import "laxity" "get" (func $get (param i32) (result i64)))
            (import "laxity" "late" (func $late (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 16) "stopped")
            (func (export "laxity_buffer") (param i32) (result i32)
                (if (result i32) (i32.gt_u (local.get 0) (i32.const 1024)) (then (i32.const 0)) (else (i32.const 64))))
            (func (export "on_message") (param $at i32) (param $len i32) (result i32) {body}))"#
    )
}

#[test]
fn a_module_answers_sets_words_and_says_what_its_application_receives() {
    let mut scene = scene();
    scene
        .install(&module(
            r#"(call $set (i32.const 3) (i64.add (call $get (i32.const 3)) (i64.load8_u (local.get $at))))
               (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 115))
                   (then (drop (call $reply (i32.const 16) (i32.const 7))) (return (call $late))))
               (i32.const 1)"#,
        ))
        .unwrap();
    scene.send(b"go");
    scene.send(b"stop");
    scene.send(b"on");
    assert_eq!(&scene.answered.recv_timeout(WAIT).unwrap()[..], b"stopped");
    assert_eq!(&scene.receiver.recv_timeout(WAIT).unwrap()[..], b"go");
    assert_eq!(&scene.receiver.recv_timeout(WAIT).unwrap()[..], b"on");
    let figures = scene.receiver.handler().unwrap();
    assert_eq!((figures.state, figures.runs, figures.delivered, figures.replies), (HandlerState::Installed, 3, 2, 1));
    assert_eq!(figures.state_word(3), b"gso".iter().map(|byte| u64::from(*byte)).sum::<u64>());
}

#[test]
fn a_module_has_room_for_what_its_sender_may_exceed_the_contract_by() {
    let (a, b) = (host(), host());
    let handler = HandlerSpec::taking(COST).within(Duration::from_secs(1));
    let config = ListenConfig { handler: Some(handler), ..ListenConfig::default() };
    let listener = b.listen_with("handled", config).unwrap();
    let mut spec = contract();
    spec.overload = laxity_core::contract::Overload::Decay;
    let sender = a.open(b.address(), "handled", spec).unwrap();
    let receiver = listener.accept(Some(WAIT)).unwrap();
    let answers = a.listen("answers").unwrap();
    let reply = Some(b.open(a.address(), "answers", contract()).unwrap());
    let mut scene =
        HandlerFixture { sender, receiver, reply, answered: answers.accept(Some(WAIT)).unwrap(), _hosts: (a, b) };
    scene.install(&module("(call $set (i32.const 0) (i64.extend_i32_u (local.get $len))) (i32.const 0)")).unwrap();
    scene.send(&[7; 256]);
    let figures = scene.receiver.handler().unwrap();
    assert_eq!((figures.state, figures.state_word(0)), (HandlerState::Installed, 256));
}

#[test]
fn a_module_has_what_is_read_from_a_descriptor() {
    use std::io::Write;
    let host = host();
    let upcalls = host.trusted_upcalls().unwrap();
    let text = module("(call $set (i32.const 0) (i64.load8_u (local.get $at))) (i32.const 0)");
    let handler = Module::new(&wat::parse_str(text).unwrap()).unwrap().handler();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let spec = HandlerSpec::taking(COST).within(Duration::from_secs(1));
    let made = upcalls.create_reader("module", reader.into(), 64, Duration::from_millis(50), spec, handler);
    let (upcall, watch) = made.unwrap();
    upcall.run().unwrap();
    writer.write_all(b"x").unwrap();
    drop(writer);
    assert_eq!(upcalls.sleep_until_any(&[&upcall], Some(WAIT)).unwrap(), [0]);
    let figures = watch.figures();
    assert_eq!((figures.state, figures.runs, figures.state_word(0)), (HandlerState::EndOfFile, 1, b'x'.into()));
}

#[test]
fn a_module_that_traps_or_goes_on_for_ever_is_taken_out() {
    let mut scene = scene();
    for body in [
        "unreachable",
        "(loop $again (br $again)) (i32.const 0)",
        "(i32.load (i32.const 65536))",
        "(i32.div_u (i32.const 1) (i32.const 0))",
        "(i32.const 2)",
        "(i32.const -1)",
        "(call $set (i32.const 16) (i64.const 1)) (i32.const 0)",
        "(drop (call $reply (i32.const 65000) (i32.const 1000))) (i32.const 0)",
        "(drop (call $reply (i32.const -1) (i32.const -1))) (i32.const 0)",
        "(memory.fill (i32.const 0) (i32.const 1) (i32.const 65537)) (i32.const 0)",
        // The fuel is used up by the host's work, too.
        "(loop $again (drop (call $reply (i32.const 0) (i32.const 1))) (br $again)) (i32.const 0)",
    ] {
        scene.install(&module(body)).unwrap();
        scene.send(b"one");
        assert_eq!(scene.receiver.handler().unwrap().state, HandlerState::Trapped, "{body}");
        let told = scene.receiver.recv().unwrap_err();
        assert!(matches!(told, Error::HandlerEnded { how: "trapped", .. }), "{body}: {told}");
        assert_eq!(&scene.receiver.recv_timeout(WAIT).unwrap()[..], b"one");
        // The channel goes on.
        scene.sender.send(b"two").unwrap();
        assert_eq!(&scene.receiver.recv_timeout(WAIT).unwrap()[..], b"two");
    }
}

#[test]
fn a_module_has_no_more_memory_nor_replies_than_it_may() {
    let mut scene = scene();
    scene
        .install(&module(
            r#"(local $sent i32)
           (call $set (i32.const 0) (i64.extend_i32_s (memory.grow (i32.const 1))))
           (call $set (i32.const 1) (i64.extend_i32_s (call $reply (i32.const 0) (i32.const 65))))
           (loop $again
               (call $set (i32.const 2) (i64.extend_i32_s (call $reply (i32.const 16) (i32.const 7))))
               (local.set $sent (i32.add (local.get $sent) (i32.const 1)))
               (br_if $again (i32.lt_u (local.get $sent) (i32.const 5))))
           (i32.const 0)"#,
        ))
        .unwrap();
    scene.send(b"one");
    let figures = scene.receiver.handler().unwrap();
    assert_eq!((figures.state, figures.state_word(0) as i64), (HandlerState::Installed, -1));
    // What is larger than the reply channel's messages is taken, and not sent; the fifth is not taken.
    assert_eq!((figures.state_word(1) as i64, figures.state_word(2) as i64), (0, -1));
    assert_eq!((figures.replies, figures.unsent), (3, 1));
}

#[test]
fn what_cannot_be_a_handler_is_refused_with_the_reason() {
    let mut scene = scene();
    let refused = |bytes: &[u8], says: &str| {
        let error = Module::new(bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(b"", "does not begin");
    refused(b"\x7fELF and more", "does not begin");
    refused(b"(module)", "does not begin");
    refused(&vec![0; 50 << 20], &format!("expected at most {MAX_MODULE}"));
    refused(b"\0asm\x01\0\0\0\xff\xff\xff\xff\xff\xff", "cannot be read");
    for (text, says) in [
        ("(module)", "no memory"),
        (r#"(module (memory (export "memory") 17))"#, "17 pages, expected at most 16"),
        (
            r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32))))"#,
            "fd_write",
        ),
        (r#"(module (import "laxity" "exit" (func)))"#, "expected reply, set, get or late"),
        (r#"(module (import "laxity" "set" (func (param i32 i32))))"#, "other parameters"),
        (r#"(module (import "laxity" "memory" (memory 1)))"#, "laxity.memory"),
        (r#"(module (memory (export "memory") i64 1))"#, "cannot be compiled"),
        (r#"(module (memory (export "memory") 1) (func (result v128) (v128.const i64x2 0 0)))"#, "cannot be compiled"),
    ] {
        refused(&wat::parse_str(text).unwrap(), says);
    }
    // And what only its instance shows.
    let buffer = r#"(func (export "laxity_buffer") (param i32) (result i32) (i32.const 64))"#;
    let handler = r#"(func (export "on_message") (param i32 i32) (result i32) (i32.const 0))"#;
    let memory = r#"(memory (export "memory") 1)"#;
    for (text, says) in [
        (format!("(module {memory} {handler})"), "laxity_buffer is not as expected, (i32) -> i32"),
        (format!("(module {memory} {buffer})"), "on_message is not as expected, (i32, i32) -> i32"),
        (format!("(module {memory} {handler} {})", buffer.replace("64", "0")), "no room for messages of 64 bytes"),
        (format!("(module {memory} {handler} {})", buffer.replace("64", "65473")), "no room for messages of 64 bytes"),
        (format!("(module {memory} {handler} {})", buffer.replace("64", "-1")), "no room for messages of 64 bytes"),
        (
            format!(
                "(module {memory} {handler} {})",
                buffer.replace("i32.const 64", "unreachable").replace("(unreachable)", "unreachable")
            ),
            "laxity_buffer failed",
        ),
        (format!("(module {memory} {handler} {buffer} (func $s (loop $a (br $a))) (start $s))"), "cannot be started"),
        (format!("(module {memory} {handler} {buffer} (table 1001 funcref))"), "cannot be started"),
        (format!(r#"(module (memory (export "memory") 1) (memory 1) {handler} {buffer})"#), "cannot be compiled"),
    ] {
        let error = scene.install(&text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
    // What would be used before it is looked at again is set aside; and where that has no end it is refused.
    let long = "(memory.fill (i32.const 0) (i32.const 0) (i32.const 0))".repeat(1_500);
    let chain =
        format!("(func $a {long}) (func $b {long} (call $a)) (func $c {long} (call $b)) (func (export \"on_message\")");
    let chain = module("(call $c) (i32.const 0)").replace("(func (export \"on_message\")", &chain);
    let chain = wat::parse_str(chain).unwrap();
    let spec = |cost| HandlerSpec::taking(cost).within(Duration::from_secs(1));
    let error = try_out(&chain, spec(Duration::from_micros(20)), 64).unwrap_err().to_string();
    assert!(error.contains("leaves it too little fuel"), "{error}");
    assert_eq!(try_out(&chain, spec(Duration::from_millis(100)), 64).unwrap().state, HandlerState::Installed);
    let itself =
        module("(call $on (local.get $at) (local.get $len))").replace("(func (export \"on", "(func $on (export \"on");
    let through = r#"(call_indirect (param i32 i32) (result i32) (local.get $at) (local.get $len) (i32.const 0))"#;
    let through = module(through)
        .replace("(func (export \"on", "(table 1 funcref) (elem (i32.const 0) $on) (func $on (export \"on");
    for text in [itself, through] {
        let error = scene.install(&text).unwrap_err().to_string();
        assert!(error.contains("no recursion"), "{error}");
    }
    let parameters = "i64 ".repeat(17);
    let locals = "i64 ".repeat(1_001);
    for (text, says) in [
        (format!("(func (param {parameters}))"), "17 parameters, expected at most 16"),
        (format!("(func (local {locals}))"), "1001 local variables"),
        (format!("(func {} {})", "(block ".repeat(101), ")".repeat(101)), "nested more than 100 deep"),
        (format!("(func {})", "(drop (i64.const 0x7fffffffffff))".repeat(2_000)), "expected at most 16384"),
        ("(func) ".repeat(1_001), "more than 1000 functions"),
        ("(func (result i32 i32) (i32.const 0) (i32.const 0))".to_owned(), "cannot be compiled"),
    ] {
        refused(&wat::parse_str(format!("(module {memory} {text})")).unwrap(), says);
    }
    assert_eq!(scene.receiver.handler().unwrap().state, HandlerState::Absent);
}

/// Nothing but refusals, traps and results, whatever a module is, and within what was declared. `LAXITY_MODULES` is how many are tried.
#[test]
fn random_modules_are_refused_or_trap_or_return() {
    let count: u64 = std::env::var("LAXITY_MODULES").map_or(300, |count| count.parse().unwrap());
    let spec = HandlerSpec::taking(Duration::from_millis(2)).within(Duration::from_secs(1));
    let (mut refused, mut trapped, mut returned, mut longest) = (0u64, 0u64, 0u64, Duration::ZERO);
    for seed in 0..count {
        let module = random::module(seed);
        let Ok(did) = try_out(&module, spec, 64) else {
            refused += 1;
            continue;
        };
        match did.state {
            HandlerState::Installed => returned += 1,
            HandlerState::Trapped => trapped += 1,
            other => panic!("module {seed}: {other:?}"),
        }
        // What an interrupt takes counts as the thread's own: so the least of some tries is what the module takes.
        let tries = (0..5).filter_map(|_| try_out(&module, spec, 64).ok().map(|did| did.longest));
        let took = if did.longest > spec.cost() { tries.fold(did.longest, Duration::min) } else { did.longest };
        assert!(took <= spec.cost(), "module {seed} takes {took}");
        longest = longest.max(took);
    }
    println!(
        "{count} modules: {refused} refused, {trapped} trapped, {returned} returned; {longest} at the most, {} were declared",
        spec.cost()
    );
    assert!(refused > 0 && trapped > 0 && returned > 0);
}

/// Whatever a module asks the host's functions for: what they answer, and when they trap. `LAXITY_MODULES` is how many are tried, up to 3,000.
#[test]
fn the_hosts_functions_answer_or_trap_whatever_they_are_asked() {
    const MEMORY: u64 = 1 << 16;
    let count: u64 = std::env::var("LAXITY_MODULES").map_or(300, |count| count.parse().unwrap()).min(3_000);
    let spec = HandlerSpec::taking(Duration::from_millis(100)).within(Duration::from_secs(1));
    let (mut trapped, mut returned) = (0u64, 0u64);
    for seed in 0..count {
        let mut random = random::bytes(seed).into_iter();
        let mut below = |end: u32| u32::from(random.next().unwrap()) % end;
        let (mut body, mut traps, mut words) = (String::new(), false, [0i64; 16]);
        let (mut replies, mut bytes) = (0, 0);
        for _ in 0..=below(8) {
            // Near to where something ends, far beyond it, or negative.
            let near = [0u32, 1, 16, 64, 0x7FFF, 0xFFFF, 0x1_0000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF];
            let mut number = || near[below(10) as usize].wrapping_add(below(3)).wrapping_sub(1);
            // Each call is compared with what it should answer: a module that finds something else ends with 2.
            let (first, second) = (number(), number());
            match below(8) {
                0..=3 => {
                    // Most are within its memory.
                    let (first, second) =
                        if below(4) > 0 { (first & 0x3FFF, second & 0x7FFF) } else { (first, second) };
                    traps |= u64::from(first) + u64::from(second) > MEMORY;
                    let is_taken = replies < 4 && u64::from(bytes) + u64::from(second) <= 64 << 10;
                    body += &format!(
                        "(if (i32.ne (call $reply (i32.const {first}) (i32.const {second})) (i32.const {})) (then (return (i32.const 2))))",
                        if is_taken { 0 } else { -1 }
                    );
                    if is_taken && !traps {
                        (replies, bytes) = (replies + 1, bytes + second);
                    }
                }
                4 | 5 => {
                    let word = if below(8) > 0 { first & 0xF } else { first };
                    traps |= word >= 16;
                    body += &format!("(call $set (i32.const {word}) (i64.const {second}))");
                    words[word as usize & 0xF] = second.into();
                }
                6 => {
                    let word = if below(8) > 0 { second & 0xF } else { second };
                    traps |= word >= 16;
                    body += &format!("(call $set (i32.const {word}) (i64.const -1))");
                    words[word as usize & 0xF] = -1;
                    body += &format!(
                        "(if (i64.ne (call $get (i32.const {word})) (i64.const -1)) (then (return (i32.const 2))))"
                    );
                }
                _ => body += "(if (call $late) (then (return (i32.const 2))))",
            }
            if traps {
                break;
            }
        }
        let text = module(&format!("{body} (i32.const 0)"));
        let did = try_out(&wat::parse_str(&text).unwrap(), spec, 64).unwrap();
        let expected = if traps { HandlerState::Trapped } else { HandlerState::Installed };
        assert_eq!(did.state, expected, "module {seed}: {text}");
        (trapped, returned) = (trapped + u64::from(traps), returned + u64::from(!traps));
    }
    println!("{count} modules: {trapped} trapped, {returned} returned");
    assert!(trapped > 0 && returned > 0);
}

/// What is near to a module is refused, or traps, or returns. `LAXITY_MODULES` is how many are tried.
#[test]
fn damaged_modules_are_refused_or_trap_or_return() {
    let count: u64 = std::env::var("LAXITY_MODULES").map_or(300, |count| count.parse().unwrap());
    let spec = HandlerSpec::taking(Duration::from_millis(2)).within(Duration::from_secs(1));
    let body = "(drop (call $reply (local.get $at) (local.get $len))) (call $set (i32.const 1) (call $get (i32.const 2))) (call $late)";
    let whole = [wat::parse_str(module(body)).unwrap(), wat::parse_str(module("(i32.const 1)")).unwrap()];
    let (mut refused, mut tried) = (0u64, 0u64);
    for seed in 0..count {
        let mut random = random::bytes(seed).into_iter().map(usize::from);
        let mut below = |end: usize| (random.next().unwrap() << 8 | random.next().unwrap()) % end;
        let mut bytes = if below(4) == 0 { random::module(seed) } else { whole[below(2)].clone() };
        for _ in 0..=below(4) {
            // The first eight say that it is a module.
            let at = 8 + below(bytes.len().saturating_sub(8).max(1));
            match (below(4), bytes.get_mut(at)) {
                (0, _) => bytes.truncate(at),
                (1, Some(_)) => bytes.insert(at, below(256) as u8),
                (_, Some(byte)) => *byte = below(256) as u8,
                (_, None) => {}
            }
        }
        match try_out(&bytes, spec, 64) {
            Ok(did) => {
                assert!(matches!(did.state, HandlerState::Installed | HandlerState::Trapped), "module {seed}");
                tried += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Module { .. }), "module {seed}: {error}");
                assert!(!error.to_string().contains(char::is_control), "module {seed}: {error:?}");
                refused += 1;
            }
        }
    }
    println!("{count} modules: {refused} refused, {tried} tried");
    assert!(refused > 0 && tried > 0);
}

#[test]
fn the_slow_code_is_that_of_its_source() {
    assert!(
        wat::parse_str(include_str!("../src/adversaries/adversaries.wat")).unwrap()
            == include_bytes!("../src/adversaries/adversaries.wasm")
    );
    let cost = FuelCost::of_this_host().unwrap();
    println!("a thousand units of fuel take {}, a call {}, a line of memory {}", cost.thousand, cost.entry, cost.miss);
}

/// Modules by a seed, of which some are handlers.
mod random {
    use arbitrary::Unstructured;
    use wasm_smith::{Config, Module};

    const NEEDED: &str = r#"(module
        (memory (export "memory") 1 1)
        (func (export "laxity_buffer") (param i32) (result i32) unreachable)
        (func (export "on_message") (param i32 i32) (result i32) unreachable))"#;

    const OFFERED: &str = r#"(module
        (import "laxity" "reply" (func (param i32 i32) (result i32)))
        (import "laxity" "set" (func (param i32 i64)))
        (import "laxity" "get" (func (param i32) (result i64)))
        (import "laxity" "late" (func (result i32))))"#;

    /// As many as a module needs, by a seed.
    pub(super) fn bytes(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        (0..4_096)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    /// A module by a seed. Three of four have the exports of a handler, and import what there is.
    pub(super) fn module(seed: u64) -> Vec<u8> {
        let bytes = bytes(seed);
        let mut config = Config::default();
        (config.allow_start_export, config.max_memory32_bytes, config.max_memories) =
            (true, 20 << 16, if seed % 16 == 3 { 2 } else { usize::from(seed.is_multiple_of(4)) });
        config.max_table_elements = if seed % 16 == 5 { 1 << 20 } else { 1_000 };
        (config.multi_value_enabled, config.max_type_size) = (seed % 16 == 6, 1_000);
        config.reference_types_enabled = seed % 16 == 4;
        (config.simd_enabled, config.relaxed_simd_enabled, config.threads_enabled) = (seed % 16 == 1, false, false);
        (config.gc_enabled, config.exceptions_enabled, config.memory64_enabled) = (false, false, seed % 16 == 2);
        (config.tail_call_enabled, config.bulk_memory_enabled, config.max_instructions) = (false, true, 400);
        if !seed.is_multiple_of(4) {
            config.exports = Some(wat::parse_str(NEEDED).unwrap());
            config.available_imports = Some(wat::parse_str(OFFERED).unwrap());
        }
        match Module::new(config, &mut Unstructured::new(&bytes)) {
            Ok(module) => module.to_bytes(),
            Err(_) => bytes,
        }
    }
}
