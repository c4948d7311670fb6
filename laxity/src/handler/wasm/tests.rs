//! Random modules.

use laxity_core::frames::MessageBuf;

use super::*;
use crate::handler::{HandlerState, Handlers};
use crate::port::{Handling as _, Inbound, Told};

/// A host's side of a channel's handlers, without a channel.
fn handlers(spec: HandlerSpec) -> Handlers {
    let (_, installed) = rtrb::RingBuffer::new(1);
    let (give, _) = rtrb::RingBuffer::new(1);
    Handlers { installed, give, present: None, record: Arc::new(Record::new(spec)) }
}

fn message(bytes: &[u8]) -> Inbound {
    let mut message = MessageBuf::with_capacity(64);
    message.fill(bytes);
    Inbound { message, told: Told::default() }
}

/// What a module's handlers did.
struct Did {
    state: HandlerState,
    longest: Duration,
}

/// Makes a handler of a module, and gives it messages until it traps; what it has done to its memory stays.
fn try_out(bytes: &[u8], spec: HandlerSpec) -> Result<Did, Error> {
    let module = Module::new(bytes)?;
    let mut handlers = handlers(spec);
    // Hardly any says by itself where messages may be put.
    let place = |store: &mut Store<Inside>, instance: &Instance, bytes| {
        Ok(buffer(store, instance, bytes).unwrap_or(64).max(64))
    };
    let running = Some(Running::new(&module, 64, &spec, &handlers.record, place)?);
    handlers.present = Some(Box::new(Handler { code: Box::new(Wasm { module, running }), reply: None }));
    handlers.set_state(HandlerState::Installed);
    for number in 0..20u64 {
        handlers.run(&message(&number.to_le_bytes()));
    }
    let figures = handlers.record.figures();
    Ok(Did { state: figures.state, longest: figures.took.max.unwrap_or_default() })
}

/// Nothing but refusals, traps and results, whatever a module is, and within what was declared. `LAXITY_MODULES` is how many are tried.
#[test]
fn random_modules_are_refused_or_trap_or_return() {
    let count: u64 = std::env::var("LAXITY_MODULES").map_or(300, |count| count.parse().unwrap());
    let spec = HandlerSpec::taking(Duration::from_millis(2)).within(Duration::from_secs(1));
    let (mut refused, mut trapped, mut returned, mut longest) = (0u64, 0u64, 0u64, Duration::ZERO);
    for seed in 0..count {
        let module = random::module(seed);
        let Ok(did) = try_out(&module, spec) else {
            refused += 1;
            continue;
        };
        match did.state {
            HandlerState::Installed => returned += 1,
            HandlerState::Trapped => trapped += 1,
            other => panic!("module {seed}: {other:?}"),
        }
        // What an interrupt takes counts as the thread's own: so the least of some tries is what the module takes.
        let tries = (0..5).filter_map(|_| try_out(&module, spec).ok().map(|did| did.longest));
        let took = if did.longest > spec.cost { tries.fold(did.longest, Duration::min) } else { did.longest };
        assert!(took <= spec.cost, "module {seed} takes {took}");
        longest = longest.max(took);
    }
    println!(
        "{count} modules: {refused} refused, {trapped} trapped, {returned} returned; {longest} at the most, {} were declared",
        spec.cost
    );
    assert!(refused > 0 && trapped > 0 && returned > 0);
}

#[test]
fn the_slow_code_is_that_of_its_source() {
    assert!(wat::parse_str(include_str!("adversaries.wat")).unwrap() == include_bytes!("adversaries.wasm"));
}

/// Whatever a module does, it has its fuel used up within what was declared. `LAXITY_LIVE` makes that a test; else it is printed.
#[test]
fn fuel_ends_within_what_was_declared() {
    let cost = FuelCost::of_this_host().unwrap();
    println!("a thousand units of fuel take {} at worst, a call {}", cost.thousand, cost.entry);
    assert!(cost.within(cost.entry, 64, 100).is_none());
    let fuel = cost.within(Duration::from_millis(1), 64, 100).unwrap();
    assert!(cost.for_fuel(fuel, 64, 100) <= Duration::from_millis(1));
    assert!(cost.for_fuel(fuel + 1, 64, 100) + cost.thousand > Duration::from_millis(1));
}

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

    /// A module by a seed. Three of four have the exports of a handler, and import what there is.
    pub(super) fn module(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        let bytes: Vec<u8> = (0..4_096)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect();
        let mut config = Config::default();
        (config.allow_start_export, config.max_memory32_bytes, config.max_memories) =
            (true, 20 << 16, if seed % 16 == 3 { 2 } else { usize::from(seed % 4 == 0) });
        config.max_table_elements = if seed % 16 == 5 { 1 << 20 } else { 1_000 };
        config.reference_types_enabled = seed % 16 == 4;
        (config.simd_enabled, config.relaxed_simd_enabled, config.threads_enabled) = (seed % 16 == 1, false, false);
        (config.gc_enabled, config.exceptions_enabled, config.memory64_enabled) = (false, false, seed % 16 == 2);
        (config.tail_call_enabled, config.bulk_memory_enabled, config.max_instructions) = (false, true, 400);
        if seed % 4 > 0 {
            config.exports = Some(wat::parse_str(NEEDED).unwrap());
            config.available_imports = Some(wat::parse_str(OFFERED).unwrap());
        }
        match Module::new(config, &mut Unstructured::new(&bytes)) {
            Ok(module) => module.to_bytes(),
            Err(_) => bytes,
        }
    }
}
