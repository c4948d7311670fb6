//! Handlers of messages in WebAssembly: untrusted code on the executive's thread.
//!
//! The application's thread compiles and instantiates a module when it installs the handler. The module's memory cannot grow, and
//! all of it is touched then. Fuel counts the operators that the module executes. Each message has as much fuel as fits into the
//! declared cost: the worst time of a unit of fuel is measured with code that was written to be slow ([`FuelCost`]). A module that uses
//! up its fuel is removed. It may import four functions; their effects take place when it has returned.
//!
//! | A module exports | |
//! |---|---|
//! | `memory` | its memory, of [`MAX_PAGES`] pages at most |
//! | `laxity_buffer(bytes: i32) -> i32` | the address for messages of up to `bytes` bytes; 0 if it has no room for them. Called once |
//! | `on_message(address: i32, bytes: i32) -> i32` | handles one message: 0 is [`Disposition::Done`], 1 [`Disposition::Deliver`]; after any other value the handler is removed |
//!
//! | It may import from `laxity` | |
//! |---|---|
//! | `reply(address: i32, bytes: i32) -> i32` | sends a message on the reply channel when the handler returns, [`MAX_REPLIES`] for each message at most: 0, or -1 for one too many or too long |
//! | `set(word: i32, value: i64)`, `get(word: i32) -> i64` | [`Event::set`], [`Event::get`] |
//! | `late() -> i32` | 1 if the message was late |
//!
//! Nothing else can be imported. Vectors, threads, several memories and 64-bit memories are refused, and so is compiled code in
//! place of a module.

use std::sync::{Arc, LazyLock};
use std::time::Instant as StdInstant;

use laxity_core::units::Duration;
use wasmtime::{
    Caller, Config, Engine, Extern, ExternType, Instance, Linker, Memory, Module as Compiled, Store, StoreLimits,
    StoreLimitsBuilder, TypedFunc, ValType,
};

use crate::error::Error;
use crate::handler::{Disposition, Event, Handler, HandlerRecord, HandlerSpec, MessageCode, STATE_WORDS};
use crate::wasm_shape::{MEMORY, operator_costs, unseen_fuel, wrong};

/// The largest size of a module, in bytes.
pub const MAX_MODULE: usize = 256 << 10;
/// The largest memory of a module, in pages of 64 KiB.
pub const MAX_PAGES: u64 = 16;
/// The largest number of elements of a module's tables.
pub const MAX_ELEMENTS: u64 = 1_000;
/// The largest number of replies to one message.
pub const MAX_REPLIES: usize = 4;
/// The largest size of all replies to one message, in bytes.
pub const MAX_REPLY_BYTES: usize = 64 << 10;

/// The stack of a handler, in bytes.
const STACK: usize = 64 << 10;
/// Fuel for the work of a module before its first message.
const START: u64 = 10_000_000;
/// Fuel for a call of an imported function.
const CALL: u64 = 80;
/// The time to send a reply when the handler has returned: set aside for as many as there may be.
const REPLY: Duration = Duration::from_micros(2);
/// Bytes of a page, and of a line of a cache.
const PAGE: u64 = 64 << 10;
const LINE: u64 = 64;

fn engine() -> Result<Engine, wasmtime::Error> {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .operator_cost(operator_costs())
        // A signal's handler is the whole process's, and what an application does with it is its own affair.
        .signals_based_traps(false)
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(None)
        .max_wasm_stack(STACK)
        // Nothing is left for the first message to do.
        .table_lazy_init(false)
        .memory_init_cow(false)
        .memory_may_move(false)
        .memory_reservation(MAX_PAGES << 16)
        .memory_reservation_for_growth(0)
        .memory_guard_size(0)
        .wasm_simd(false)
        .wasm_relaxed_simd(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_tail_call(false)
        // A branch could move a thousand of them.
        .wasm_multi_value(false);
    Engine::new(&config)
}

static ENGINE: LazyLock<Result<Engine, String>> = LazyLock::new(|| engine().map_err(|error| error.to_string()));

/// What WebAssembly said, in one line.
fn said(what: &str, error: &wasmtime::Error) -> Error {
    let all = format!("{error:#}").replace('\n', " ");
    wrong(format!("{what}: {}", all.trim()))
}

/// A compiled module. Each handler that is made of it is an instance of its own.
#[derive(Clone, Debug)]
pub struct Module {
    compiled: Compiled,
    /// Fuel that it may use unseen ([`unseen_fuel`]).
    unseen: u64,
    /// Pages of its memory.
    pages: u64,
    /// True if it may reply.
    replies: bool,
}

impl Module {
    /// Compiles a module in its binary form. This takes some milliseconds of the calling thread, more for large modules.
    ///
    /// # Errors
    /// [`Error::Module`] if it is larger than [`MAX_MODULE`], is no module, or imports, exports or asks for something that is not
    /// allowed.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_MODULE {
            return Err(wrong(format!("it has {} bytes, expected at most {MAX_MODULE}", bytes.len())));
        }
        if !bytes.starts_with(b"\0asm\x01\0\0\0") {
            return Err(wrong("it does not begin as a WebAssembly module of version 1 does (in its binary form)"));
        }
        let engine = ENGINE.as_ref().map_err(|problem| wrong(format!("the compiler cannot be set up: {problem}")))?;
        let unseen = unseen_fuel(bytes)?;
        let compiled = Compiled::from_binary(engine, bytes).map_err(|error| said("it cannot be compiled", &error))?;
        for import in compiled.imports() {
            let function = match (import.module(), import.ty()) {
                ("laxity", ExternType::Func(function)) => function,
                _ => {
                    return Err(wrong(format!("it imports {}.{}, which there is not", import.module(), import.name())));
                }
            };
            let is = |parameters: &[ValType], results: &[ValType]| {
                let eq = |one: &ValType, other: &ValType| ValType::eq(one, other);
                function.params().len() == parameters.len()
                    && function.results().len() == results.len()
                    && function.params().zip(parameters).all(|(one, other)| eq(&one, other))
                    && function.results().zip(results).all(|(one, other)| eq(&one, other))
            };
            let fits = match import.name() {
                "reply" => is(&[ValType::I32, ValType::I32], &[ValType::I32]),
                "set" => is(&[ValType::I32, ValType::I64], &[]),
                "get" => is(&[ValType::I32], &[ValType::I64]),
                "late" => is(&[], &[ValType::I32]),
                other => return Err(wrong(format!("it imports laxity.{other}, expected reply, set, get or late"))),
            };
            if !fits {
                return Err(wrong(format!("it imports laxity.{} with other parameters than it has", import.name())));
            }
        }
        let pages = match compiled.get_export("memory") {
            Some(ExternType::Memory(memory)) if memory.minimum() <= MAX_PAGES => memory.minimum(),
            Some(ExternType::Memory(memory)) => {
                return Err(wrong(format!("its memory has {} pages, expected at most {MAX_PAGES}", memory.minimum())));
            }
            _ => return Err(wrong("it exports no memory of the name `memory`")),
        };
        let replies = compiled.imports().any(|import| import.name() == "reply");
        Ok(Self { compiled, unseen, pages, replies })
    }

    /// Makes a handler, with a memory of its own.
    pub fn handler(&self) -> Handler {
        Handler::of(WasmHandler { module: self.clone(), running: None })
    }
}

/// The worst time of a unit of fuel, and of a call beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelCost {
    /// The time of a thousand units.
    pub thousand: Duration,
    /// The time of a call from the executive into the handler and back, with nothing in any cache.
    pub entry: Duration,
    /// The additional time for a line of memory that is in no cache.
    pub miss: Duration,
}

/// How often each piece is measured; what counts is the longest of the quarter that was disturbed least.
const BATCHES: usize = 12;
/// Fuel for each of them.
const BATCH: u64 = 200_000;
/// What was measured counts for half as much again: another processor, another place in memory.
const MARGIN: (u64, u64) = (3, 2);

/// How long `run` takes, ns, `before` not included: interrupts and other threads may only make it longer.
fn calmest(mut before: impl FnMut(), mut run: impl FnMut()) -> u64 {
    let mut took: [u64; BATCHES] = std::array::from_fn(|_| {
        before();
        let begin = StdInstant::now();
        run();
        begin.elapsed().as_nanos() as u64
    });
    took.sort_unstable();
    took[BATCHES / 4]
}

impl FuelCost {
    /// Measures the costs on this host. The first call in a process takes some tens of milliseconds.
    ///
    /// # Errors
    /// If the compiler cannot be set up.
    pub fn of_this_host() -> Result<Self, Error> {
        static MEASURED: LazyLock<Result<FuelCost, String>> =
            LazyLock::new(|| FuelCost::measure().map_err(|error| error.to_string()));
        MEASURED.clone().map_err(wrong)
    }

    fn measure() -> Result<Self, Error> {
        let module = Module::new(include_bytes!("adversaries/adversaries.wasm"))?;
        let none = |error: wasmtime::Error| said("measuring what fuel takes", &error);
        let record = Arc::new(HandlerRecord::new(HandlerSpec::taking(Duration::from_secs(1))));
        let (mut store, instance) = instantiate(&module, &record)?;
        let exports: Vec<String> = module.compiled.exports().map(|export| export.name().to_owned()).collect();
        let mut slowest = 1;
        for name in exports.iter().filter(|name| name.starts_with("slow_")) {
            let slow: TypedFunc<(), ()> = instance.get_typed_func(&mut store, name).map_err(none)?;
            // It never ends by itself. What a trap takes is the entry's.
            let took = calmest(
                || {},
                || {
                    let _ = store.set_fuel(BATCH);
                    let _ = slow.call(&mut store, ());
                },
            );
            slowest = slowest.max((took * 1_000).div_ceil(BATCH));
        }
        let mut others = vec![0u8; 32 << 20];
        let mut evict = || others.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        let lines: TypedFunc<(), ()> = instance.get_typed_func(&mut store, "cold_lines").map_err(none)?;
        let miss = calmest(&mut evict, || {
            let _ = store.set_fuel(START);
            let _ = lines.call(&mut store, ());
        });
        let miss = miss.div_ceil(MAX_PAGES * PAGE / LINE);
        let nothing: TypedFunc<(i32, i32), i32> = instance.get_typed_func(&mut store, "on_message").map_err(none)?;
        let entry = calmest(&mut evict, || {
            let _ = store.set_fuel(BATCH);
            let _ = nothing.call(&mut store, (0, 0));
        });
        let more = |nanos: u64| Duration::from_nanos((nanos * MARGIN.0).div_ceil(MARGIN.1));
        Ok(Self { thousand: more(slowest), entry: more(entry), miss: more(miss) })
    }

    /// The fuel that fits into `cost` for messages of up to `bytes` bytes, if so much may be used unseen, and the memory has so many pages: each line of
    /// it may be in no cache, and each load or store may be of another one.
    fn within(&self, cost: Duration, bytes: u64, module: &Module) -> Option<u64> {
        let replies = if module.replies { REPLY * MAX_REPLIES as u64 } else { Duration::ZERO };
        let left = u128::from(cost.checked_sub(self.entry + replies)?.as_nanos());
        let (thousand, miss) = (u128::from(self.thousand.as_nanos().max(1)), u128::from(self.miss.as_nanos()));
        let all = miss * u128::from(module.pages * PAGE / LINE);
        let by_lines = left.saturating_sub(all) * 1_000 / thousand;
        let by_loads = left * 1_000 / (thousand + 1_000 * miss / u128::from(MEMORY));
        let units = u64::try_from(by_lines.max(by_loads)).unwrap_or(u64::MAX);
        // Putting the message there takes no longer than if the module did it.
        let fuel = units.checked_sub(bytes.checked_add(module.unseen)?)?;
        // What has no loop ends: a module that could not do that once is refused, and not taken out by its first message.
        let least = module.unseen.checked_add(MAX_REPLIES as u64 * (CALL + 2 * bytes))?;
        Some(fuel).filter(|&fuel| fuel >= least)
    }
}

/// What an instance's calls find.
struct InstanceState {
    record: Arc<HandlerRecord>,
    memory: Option<Memory>,
    /// What it may still grow to: nothing, once it has all that it will ever have.
    limits: StoreLimits,
    is_late: bool,
    /// The replies, one behind the other, and where each ends.
    replies: Vec<u8>,
    ends: Vec<usize>,
}

fn limits(memory: u64, elements: u64) -> StoreLimits {
    let limits = StoreLimitsBuilder::new().memory_size(memory as usize).table_elements(elements as usize);
    limits.instances(1).memories(1).tables(4).build()
}

/// Takes what a call of ours costs beside the operator.
fn charge(caller: &mut Caller<'_, InstanceState>, fuel: u64) -> wasmtime::Result<()> {
    let left = caller.get_fuel()?;
    caller.set_fuel(left.checked_sub(fuel).ok_or(wasmtime::Trap::OutOfFuel)?)
}

fn word(word: i32) -> wasmtime::Result<usize> {
    usize::try_from(word).ok().filter(|word| *word < STATE_WORDS).ok_or_else(|| wasmtime::Trap::TableOutOfBounds.into())
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<InstanceState>> {
    use std::sync::atomic::Ordering::SeqCst;
    let mut linker = Linker::new(engine);
    linker.func_wrap("laxity", "reply", |mut caller: Caller<'_, InstanceState>, address: i32, bytes: i32| {
        charge(&mut caller, CALL.saturating_add(u64::from(bytes.cast_unsigned()).saturating_mul(2)))?;
        let Some(memory) = caller.data().memory else { return Ok(-1) };
        let (contents, inside) = memory.data_and_store_mut(&mut caller);
        let (begin, bytes) = (address.cast_unsigned() as usize, bytes.cast_unsigned() as usize);
        let Some(message) = contents.get(begin..begin.saturating_add(bytes)) else {
            return Err(wasmtime::Trap::MemoryOutOfBounds.into());
        };
        if inside.ends.len() == MAX_REPLIES || inside.replies.len() + bytes > inside.replies.capacity() {
            return Ok(-1);
        }
        inside.replies.extend_from_slice(message);
        inside.ends.push(inside.replies.len());
        wasmtime::Result::Ok(0)
    })?;
    linker.func_wrap("laxity", "set", |mut caller: Caller<'_, InstanceState>, number: i32, value: i64| {
        charge(&mut caller, CALL)?;
        caller.data().record.words[word(number)?].store(value.cast_unsigned(), SeqCst);
        wasmtime::Result::Ok(())
    })?;
    linker.func_wrap("laxity", "get", |mut caller: Caller<'_, InstanceState>, number: i32| {
        charge(&mut caller, CALL)?;
        wasmtime::Result::Ok(caller.data().record.words[word(number)?].load(SeqCst).cast_signed())
    })?;
    linker.func_wrap("laxity", "late", |mut caller: Caller<'_, InstanceState>| {
        charge(&mut caller, CALL)?;
        wasmtime::Result::Ok(i32::from(caller.data().is_late))
    })?;
    Ok(linker)
}

/// An instance that has all its memory.
fn instantiate(module: &Module, record: &Arc<HandlerRecord>) -> Result<(Store<InstanceState>, Instance), Error> {
    let engine = module.compiled.engine();
    let inside = InstanceState {
        record: Arc::clone(record),
        memory: None,
        limits: limits(MAX_PAGES << 16, MAX_ELEMENTS),
        is_late: false,
        replies: Vec::with_capacity(MAX_REPLY_BYTES),
        ends: Vec::with_capacity(MAX_REPLIES),
    };
    let mut store = Store::new(engine, inside);
    store.limiter(|inside| &mut inside.limits);
    let failed = |error: wasmtime::Error| said("it cannot be started", &error);
    store.set_fuel(START).map_err(failed)?;
    let instance =
        linker(engine).and_then(|linker| linker.instantiate(&mut store, &module.compiled)).map_err(failed)?;
    let Some(Extern::Memory(memory)) = instance.get_export(&mut store, "memory") else {
        return Err(wrong("it exports no memory of the name `memory`"));
    };
    // Each page is there from now on.
    memory.data_mut(&mut store).chunks_mut(4 << 10).for_each(|page| {
        let byte = std::hint::black_box(page[0]);
        page[0] = std::hint::black_box(byte);
    });
    let inside = store.data_mut();
    (inside.memory, inside.limits) = (Some(memory), limits(0, 0));
    Ok((store, instance))
}

/// A handler that is a module's.
struct WasmHandler {
    module: Module,
    running: Option<MeteredCall>,
}

/// What a message takes.
struct MeteredCall {
    store: Store<InstanceState>,
    memory: Memory,
    on_message: TypedFunc<(i32, i32), i32>,
    address: i32,
    room: usize,
    fuel: u64,
}

/// Where messages of up to so many bytes are put: what the module says.
fn buffer(store: &mut Store<InstanceState>, instance: &Instance, bytes: i32) -> Result<i32, Error> {
    let buffer: TypedFunc<i32, i32> = export(store, instance, "laxity_buffer", "(i32) -> i32")?;
    buffer.call(store, bytes).map_err(|error| said("laxity_buffer failed", &error))
}

fn export<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    store: &mut Store<InstanceState>,
    instance: &Instance,
    name: &str,
    expected: &str,
) -> Result<TypedFunc<P, R>, Error> {
    instance
        .get_typed_func(store, name)
        .map_err(|error| said(&format!("its export {name} is not as expected, {expected}"), &error))
}

impl MeteredCall {
    /// An instance for messages of up to `room` bytes, which lie where `buffer` says.
    fn new(
        module: &Module,
        room: usize,
        record: &Arc<HandlerRecord>,
        buffer: impl FnOnce(&mut Store<InstanceState>, &Instance, i32) -> Result<i32, Error>,
    ) -> Result<Self, Error> {
        let cost = FuelCost::of_this_host()?;
        let Some(fuel) = cost.within(record.cost, room as u64, module) else {
            return Err(wrong(format!(
                "a cost of {} leaves it too little fuel: a call takes {}, a thousand units {}, a line of memory {}, a reply {REPLY}; {} units are set \
                 aside, and as many it has to have at least",
                record.cost,
                cost.entry,
                cost.thousand,
                cost.miss,
                module.unseen.saturating_add(room as u64)
            )));
        };
        let asked = i32::try_from(room).map_err(|_| wrong("messages of the channel are larger than its memory"))?;
        let (mut store, instance) = instantiate(module, record)?;
        let on_message = export(&mut store, &instance, "on_message", "(i32, i32) -> i32")?;
        let address = buffer(&mut store, &instance, asked)?;
        let memory = store.data().memory.ok_or_else(|| wrong("it has no memory"))?;
        let end = (address.cast_unsigned() as usize).checked_add(room);
        if address == 0 || end.is_none_or(|end| end > memory.data_size(&store)) {
            return Err(wrong(format!(
                "laxity_buffer has no room for messages of {room} bytes: it returned {address}"
            )));
        }
        Ok(Self { store, memory, on_message, address, room, fuel })
    }

    /// Has a message handled: what the module returns. Its replies are inside.
    fn call(&mut self, message: &[u8], is_late: bool) -> Result<i32, ()> {
        let Self { store, memory, on_message, address, room, fuel } = self;
        let begin = address.cast_unsigned() as usize;
        let contents = memory.data_mut(&mut *store);
        let place = contents.get_mut(begin..begin + message.len()).filter(|_| message.len() <= *room);
        place.ok_or(())?.copy_from_slice(message);
        store.set_fuel(*fuel).map_err(drop)?;
        let inside = store.data_mut();
        inside.is_late = is_late;
        inside.replies.clear();
        inside.ends.clear();
        on_message.call(&mut *store, (*address, message.len() as i32)).map_err(drop)
    }
}

impl MessageCode for WasmHandler {
    fn prepare(&mut self, max_message: usize, record: &Arc<HandlerRecord>) -> Result<(), Error> {
        // Another instance runs first, so that no page of the code is met for the first time by a message. What it does goes nowhere.
        let unseen = Arc::new(HandlerRecord { cost: record.cost, ..HandlerRecord::default() });
        let _ = MeteredCall::new(&self.module, max_message, &unseen, buffer)?.call(&[], false);
        self.running = Some(MeteredCall::new(&self.module, max_message, record, buffer)?);
        Ok(())
    }

    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()> {
        let running = self.running.as_mut().ok_or(())?;
        let returned = running.call(event.message(), event.late().is_some())?;
        let (inside, mut begin) = (running.store.data(), 0);
        for end in &inside.ends {
            // What is not sent is counted.
            let _ = event.reply(&inside.replies[begin..*end]);
            begin = *end;
        }
        match returned {
            0 => Ok(Disposition::Done),
            1 => Ok(Disposition::Deliver),
            _ => Err(()),
        }
    }
}

/// The result of a handler that was tried out.
#[cfg(feature = "wasm-tests")]
#[derive(Clone, Copy, Debug)]
pub struct TrialResult {
    /// Its state at the end.
    pub state: crate::handler::HandlerState,
    /// Its longest processor time for a message.
    pub longest: Duration,
}

/// Makes a handler of a module, without a channel, and gives it 20 messages, or as many as it takes until it traps. Where `address` is given, messages
/// lie there if the module has no buffer for them.
///
/// # Errors
/// It is refused.
#[cfg(feature = "wasm-tests")]
pub fn try_out(bytes: &[u8], spec: HandlerSpec, address: i32) -> Result<TrialResult, Error> {
    let module = Module::new(bytes)?;
    let record = Arc::new(HandlerRecord::new(spec));
    let place = |store: &mut Store<InstanceState>, instance: &Instance, bytes| {
        Ok(buffer(store, instance, bytes).unwrap_or(address).max(address))
    };
    let running = Some(MeteredCall::new(&module, 64, &record, place)?);
    let handler = Handler::of(WasmHandler { module, running });
    let figures = crate::handler::try_out(handler, &record);
    Ok(TrialResult { state: figures.state, longest: figures.took.max.unwrap_or_default() })
}
