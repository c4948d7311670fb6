//! An emergency stop: a speed over the limit is answered at once, with itself; the application learns of it. `.ci/wasm --renew` makes
//! stop-rust.wasm of it.
#![no_std]
#![no_main]

const LIMIT: i32 = 1_000;
const DONE: i32 = 0;
const DELIVER: i32 = 1;

#[link(wasm_import_module = "laxity")]
unsafe extern "C" {
    safe fn reply(message: *const u8, bytes: usize) -> i32;
    safe fn set(word: u32, value: u64);
    safe fn get(word: u32) -> u64;
}

static mut BUFFER: [u8; 64] = [0; 64];

#[unsafe(no_mangle)]
extern "C" fn laxity_buffer(bytes: usize) -> *mut u8 {
    if bytes <= 64 { (&raw mut BUFFER).cast() } else { core::ptr::null_mut() }
}

#[unsafe(no_mangle)]
extern "C" fn on_message(message: *const u8, bytes: usize) -> i32 {
    if bytes < 4 {
        return DELIVER;
    }
    // SAFETY: the message is in the buffer, and that is all of it.
    let speed = unsafe { message.cast::<i32>().read_unaligned() };
    set(1, u64::from(speed.cast_unsigned()));
    if speed <= LIMIT {
        return DONE;
    }
    set(0, get(0) + 1);
    reply(message, bytes);
    DELIVER
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
