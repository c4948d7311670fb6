//! Handlers of messages in WebAssembly: code that is not trusted, on the executive's thread.
//!
//! A module is compiled and instantiated when its handler is installed, by the application's thread; its memory cannot grow, and all of it is touched
//! then. Each message has so much fuel as fits into what was declared: the worst time that a unit of fuel takes is measured with code that was
//! written to be slow ([`FuelCost`]). What it wants done it says through four functions, and that is done when it has returned.
//!
//! | A module exports | |
//! |---|---|
//! | `memory` | its memory, of [`MAX_PAGES`] pages at most |
//! | `laxity_buffer(bytes: i32) -> i32` | where messages of up to so many bytes are put; 0 if it has no room for them. Called once |
//! | `on_message(address: i32, bytes: i32) -> i32` | handles one: 0 is [`Disposition::Done`], 1 [`Disposition::Deliver`]; with any other value it is taken out |
//!
//! | It may import from `laxity` | |
//! |---|---|
//! | `reply(address: i32, bytes: i32) -> i32` | a message for the reply channel, sent when the handler returns, [`MAX_REPLIES`] for each message at most: 0, or -1 if it is one too many or too long |
//! | `set(word: i32, value: i64)`, `get(word: i32) -> i64` | [`Event::set`], [`Event::get`] |
//! | `late() -> i32` | 1 if the message was late |
//!
//! Nothing else can be imported. Vectors, threads, several memories and 64-bit ones are refused; so is what is no module but compiled code.

use std::sync::{Arc, LazyLock};
use std::time::Instant as StdInstant;

use laxity_core::units::Duration;
use wasmtime::{
    Caller, Config, Engine, Extern, ExternType, Instance, Linker, Memory, Module as Compiled, ResourceLimiter, Store,
    TypedFunc, ValType,
};

use crate::error::Error;
use crate::handler::{Code, Disposition, Event, Handler, HandlerSpec, Record, STATE_WORDS};
use crate::wasm_shape::{MEMORY, Shape, operator_costs, wrong};

/// Bytes of a module at most.
pub const MAX_MODULE: usize = 256 << 10;
/// Pages of 64 KiB that a module's memory has at most.
pub const MAX_PAGES: u64 = 16;
/// Elements of a module's tables at most.
pub const MAX_ELEMENTS: u64 = 1_000;
/// Replies to one message at most.
pub const MAX_REPLIES: usize = 4;
/// Bytes of all replies to one message at most.
pub const MAX_REPLY_BYTES: usize = 64 << 10;

/// Bytes of the stack that a handler may use.
const STACK: usize = 64 << 10;
/// Fuel for what a module does before its first message.
const START: u64 = 10_000_000;
/// Fuel of a call of ours.
const CALL: u64 = 80;
/// What sending a reply takes when the handler has returned: set aside for as many as there may be.
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

/// A module that was compiled. Each handler that is made of it is an instance of its own.
#[derive(Clone, Debug)]
pub struct Module {
    compiled: Compiled,
    shape: Shape,
    /// Pages of its memory.
    pages: u64,
    /// Whether it may reply.
    replies: bool,
}

impl Module {
    /// Compiles a module, in its binary form. That takes some milliseconds, more for large ones, of the calling thread.
    ///
    /// # Errors
    /// [`Error::Module`]: it is larger than [`MAX_MODULE`], no module, or imports, exports or asks for what it cannot have.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() > MAX_MODULE {
            return Err(wrong(format!("it has {} bytes, expected at most {MAX_MODULE}", bytes.len())));
        }
        if !bytes.starts_with(b"\0asm\x01\0\0\0") {
            return Err(wrong("it does not begin as a WebAssembly module of version 1 does (in its binary form)"));
        }
        let engine = ENGINE.as_ref().map_err(|problem| wrong(format!("the compiler cannot be set up: {problem}")))?;
        let shape = Shape::of(bytes)?;
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
        Ok(Self { compiled, shape, pages, replies })
    }

    /// A handler of its own memory.
    pub fn handler(&self) -> Handler {
        Handler::of(Wasm { module: self.clone(), running: None })
    }
}

/// What a unit of fuel takes at worst, and what a call takes beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelCost {
    /// A thousand units.
    pub thousand: Duration,
    /// From the executive into the handler and back, with nothing in any cache.
    pub entry: Duration,
    /// What it takes longer to have a line of memory that is in no cache.
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
    /// Of this process's host: measured when it is first asked for, which takes some tens of milliseconds.
    ///
    /// # Errors
    /// The compiler cannot be set up.
    pub fn of_this_host() -> Result<Self, Error> {
        static MEASURED: LazyLock<Result<FuelCost, String>> =
            LazyLock::new(|| FuelCost::measure().map_err(|error| error.to_string()));
        MEASURED.clone().map_err(wrong)
    }

    fn measure() -> Result<Self, Error> {
        let module = Module::new(include_bytes!("adversaries/adversaries.wasm"))?;
        let none = |error: wasmtime::Error| said("measuring what fuel takes", &error);
        let record = Arc::new(Record::new(HandlerSpec::taking(Duration::from_secs(1))));
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
        let fuel = units.checked_sub(bytes.checked_add(module.shape.unseen)?)?;
        // What has no loop ends: a module that could not do that once is refused, and not taken out by its first message.
        let least = module.shape.unseen.checked_add(MAX_REPLIES as u64 * (CALL + 2 * bytes))?;
        Some(fuel).filter(|&fuel| fuel >= least)
    }
}

/// What an instance's calls find.
struct Inside {
    record: Arc<Record>,
    memory: Option<Memory>,
    /// Set once it has all that it will ever have.
    is_complete: bool,
    is_late: bool,
    /// The replies, one behind the other, and where each ends.
    replies: Vec<u8>,
    ends: [usize; MAX_REPLIES],
    count: usize,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").finish_non_exhaustive()
    }
}

impl ResourceLimiter for Inside {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(!self.is_complete && desired as u64 <= MAX_PAGES << 16)
    }
    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(!self.is_complete && desired as u64 <= MAX_ELEMENTS)
    }
    fn instances(&self) -> usize {
        1
    }
    fn memories(&self) -> usize {
        1
    }
    fn tables(&self) -> usize {
        4
    }
}

/// Takes what a call of ours costs beside the operator.
fn charge(caller: &mut Caller<'_, Inside>, fuel: u64) -> wasmtime::Result<()> {
    let left = caller.get_fuel()?;
    caller.set_fuel(left.checked_sub(fuel).ok_or(wasmtime::Trap::OutOfFuel)?)
}

fn word(word: i32) -> wasmtime::Result<usize> {
    usize::try_from(word).ok().filter(|word| *word < STATE_WORDS).ok_or_else(|| wasmtime::Trap::TableOutOfBounds.into())
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<Inside>> {
    use std::sync::atomic::Ordering::SeqCst;
    let mut linker = Linker::new(engine);
    linker.func_wrap("laxity", "reply", |mut caller: Caller<'_, Inside>, address: i32, bytes: i32| {
        charge(&mut caller, CALL.saturating_add(u64::from(bytes.cast_unsigned()).saturating_mul(2)))?;
        let Some(memory) = caller.data().memory else { return Ok(-1) };
        let (contents, inside) = memory.data_and_store_mut(&mut caller);
        let (begin, bytes) = (address.cast_unsigned() as usize, bytes.cast_unsigned() as usize);
        let Some(message) = contents.get(begin..begin.saturating_add(bytes)) else {
            return Err(wasmtime::Trap::MemoryOutOfBounds.into());
        };
        if inside.count == MAX_REPLIES || inside.replies.len() + bytes > inside.replies.capacity() {
            return Ok(-1);
        }
        inside.replies.extend_from_slice(message);
        inside.ends[inside.count] = inside.replies.len();
        inside.count += 1;
        wasmtime::Result::Ok(0)
    })?;
    linker.func_wrap("laxity", "set", |mut caller: Caller<'_, Inside>, number: i32, value: i64| {
        charge(&mut caller, CALL)?;
        caller.data().record.word(word(number)?).store(value.cast_unsigned(), SeqCst);
        wasmtime::Result::Ok(())
    })?;
    linker.func_wrap("laxity", "get", |mut caller: Caller<'_, Inside>, number: i32| {
        charge(&mut caller, CALL)?;
        wasmtime::Result::Ok(caller.data().record.word(word(number)?).load(SeqCst).cast_signed())
    })?;
    linker.func_wrap("laxity", "late", |mut caller: Caller<'_, Inside>| {
        charge(&mut caller, CALL)?;
        wasmtime::Result::Ok(i32::from(caller.data().is_late))
    })?;
    Ok(linker)
}

/// An instance that has all its memory.
fn instantiate(module: &Module, record: &Arc<Record>) -> Result<(Store<Inside>, Instance), Error> {
    let engine = module.compiled.engine();
    let inside = Inside {
        record: Arc::clone(record),
        memory: None,
        is_complete: false,
        is_late: false,
        replies: Vec::with_capacity(MAX_REPLY_BYTES),
        ends: [0; MAX_REPLIES],
        count: 0,
    };
    let mut store = Store::new(engine, inside);
    store.limiter(|inside| inside);
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
    (inside.memory, inside.is_complete) = (Some(memory), true);
    Ok((store, instance))
}

/// A handler that is a module's.
struct Wasm {
    module: Module,
    running: Option<Running>,
}

/// What a message takes.
struct Running {
    store: Store<Inside>,
    memory: Memory,
    on_message: TypedFunc<(i32, i32), i32>,
    address: i32,
    room: usize,
    fuel: u64,
}

/// Where messages of up to so many bytes are put: what the module says.
fn buffer(store: &mut Store<Inside>, instance: &Instance, bytes: i32) -> Result<i32, Error> {
    let buffer: TypedFunc<i32, i32> = export(store, instance, "laxity_buffer", "(i32) -> i32")?;
    buffer.call(store, bytes).map_err(|error| said("laxity_buffer failed", &error))
}

fn export<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    store: &mut Store<Inside>,
    instance: &Instance,
    name: &str,
    expected: &str,
) -> Result<TypedFunc<P, R>, Error> {
    instance
        .get_typed_func(store, name)
        .map_err(|error| said(&format!("its export {name} is not as expected, {expected}"), &error))
}

impl Running {
    /// An instance for messages of up to `room` bytes, which lie where `buffer` says.
    fn new(
        module: &Module,
        room: usize,
        spec: &HandlerSpec,
        record: &Arc<Record>,
        buffer: impl FnOnce(&mut Store<Inside>, &Instance, i32) -> Result<i32, Error>,
    ) -> Result<Self, Error> {
        let cost = FuelCost::of_this_host()?;
        let Some(fuel) = cost.within(spec.cost(), room as u64, module) else {
            return Err(wrong(format!(
                "a cost of {} leaves it too little fuel: a call takes {}, a thousand units {}, a line of memory {}, a reply {REPLY}; {} units are set \
                 aside, and as many it has to have at least",
                spec.cost(),
                cost.entry,
                cost.thousand,
                cost.miss,
                module.shape.unseen.saturating_add(room as u64)
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
        inside.count = 0;
        on_message.call(&mut *store, (*address, message.len() as i32)).map_err(drop)
    }
}

impl Code for Wasm {
    fn prepare(&mut self, max_message: usize, spec: &HandlerSpec, record: &Arc<Record>) -> Result<(), Error> {
        // Another instance runs first, so that no page of the code is met for the first time by a message. What it does goes nowhere.
        let mut first = Running::new(&self.module, max_message, spec, &Arc::new(Record::new(*spec)), buffer)?;
        let _ = first.call(&[], false);
        self.running = Some(Running::new(&self.module, max_message, spec, record, buffer)?);
        Ok(())
    }

    fn on_message(&mut self, event: &mut Event<'_>) -> Result<Disposition, ()> {
        let running = self.running.as_mut().ok_or(())?;
        let returned = running.call(event.message(), event.late().is_some())?;
        let (inside, mut begin) = (running.store.data(), 0);
        for end in &inside.ends[..inside.count] {
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

/// What a handler did that was tried out.
#[cfg(feature = "wasm-tests")]
#[derive(Clone, Copy, Debug)]
pub struct Tried {
    /// What it is in the end.
    pub state: crate::handler::HandlerState,
    /// What it took of the processor for a message at most.
    pub longest: Duration,
}

/// Makes a handler of a module, without a channel, and gives it 20 messages, or as many as it takes until it traps. Where `address` is given, messages
/// lie there if the module has no buffer for them.
///
/// # Errors
/// It is refused.
#[cfg(feature = "wasm-tests")]
pub fn try_out(bytes: &[u8], spec: HandlerSpec, address: i32) -> Result<Tried, Error> {
    let module = Module::new(bytes)?;
    let record = Arc::new(Record::new(spec));
    let place = |store: &mut Store<Inside>, instance: &Instance, bytes| {
        Ok(buffer(store, instance, bytes).unwrap_or(address).max(address))
    };
    let running = Some(Running::new(&module, 64, &spec, &record, place)?);
    let handler = Handler::of(Wasm { module, running });
    let figures = crate::handler::try_out(handler, &record, (0..20u64).map(u64::to_le_bytes));
    Ok(Tried { state: figures.state, longest: figures.took.max.unwrap_or_default() })
}
