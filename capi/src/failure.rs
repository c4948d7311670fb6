//! The failure of a call: a status, and a text for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use laxity::Error;

/// It is done.
pub const LAXITY_OK: c_int = 0;
/// The request is not possible: a value out of range, a message beyond the contract, an upcall that has ended.
pub const LAXITY_BAD_INPUT: c_int = 2;
/// Admission said no, at this host or at the peer; the text names values that would fit.
pub const LAXITY_REFUSED: c_int = 3;
/// This system does not permit it to this process.
pub const LAXITY_NOT_PERMITTED: c_int = 4;
/// The peer, the network, a port or a thread of the library is absent, in use or ended.
pub const LAXITY_UNAVAILABLE: c_int = 5;
/// The call would have to wait, or the timeout has passed.
pub const LAXITY_WOULD_BLOCK: c_int = -1;
/// The other end closed the channel in order; no message follows.
pub const LAXITY_CLOSED: c_int = -2;
/// An argument breaks the rules of this header: a null pointer, a text that is not UTF-8, an unknown constant, a buffer that is too small.
pub const LAXITY_BAD_ARGUMENT: c_int = -3;
/// The library panicked, which is a bug of Laxity. The objects of the call must not be used any more, only freed.
pub const LAXITY_INTERNAL: c_int = -4;

/// The reason why a call failed.
pub(crate) struct Failure {
    status: c_int,
    text: String,
}

impl Failure {
    /// The caller broke a rule of the header.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { status: LAXITY_BAD_ARGUMENT, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::WouldBlock => LAXITY_WOULD_BLOCK,
            Error::Closed => LAXITY_CLOSED,
            error => c_int::from(error.exit_status()),
        };
        Self { status, text: error.to_string() }
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

fn remember(text: &str) {
    // Texts may quote what the caller gave, zero bytes included.
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that ends has no place for it any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// The reason of the last failed call of the calling thread: one line of UTF-8, empty if none failed. Never null. It belongs to the library, and stays
/// valid until another call of the same thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn laxity_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given")
}

/// Does `call` and says how it went. No panic gets beyond here: in C nothing could catch it.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => return LAXITY_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure { status: LAXITY_INTERNAL, text: format!("a bug of Laxity: {}", said(&*panic)) },
    };
    remember(&failure.text);
    failure.status
}

/// As [`guarded`], for calls that cannot fail: `otherwise` after a panic.
pub(crate) fn guarded_or<T>(otherwise: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(otherwise)
}

/// Asks an object of the caller; `otherwise` for null, and after a panic.
///
/// # Safety
/// As [`borrowed`].
pub(crate) unsafe fn asked<T, R>(object: *const T, otherwise: R, ask: impl FnOnce(&T) -> R) -> R {
    // SAFETY: the caller says so.
    if let Some(object) = unsafe { object.as_ref() } { guarded_or(otherwise, || ask(object)) } else { otherwise }
}

/// The value that a pointer of the caller points to.
///
/// # Safety
/// It is null, or points to a valid `T` that is not changed as long as the reference lives.
pub(crate) unsafe fn borrowed<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("{what} is a null pointer")))
}

/// As [`borrowed`], to be changed.
///
/// # Safety
/// It is null, or points to a valid `T` that nothing else uses as long as the reference lives.
pub(crate) unsafe fn borrowed_mut<'a, T>(pointer: *mut T, what: &str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller says so.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::argument(format!("{what} is a null pointer")))
}

/// A text of the caller.
///
/// # Safety
/// It is null, or ends with a zero byte and is not changed as long as the reference lives.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(Failure::argument(format!("{what} is a null pointer")));
    }
    // SAFETY: the caller says that it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// Gives the caller what was made, at a place of the caller's.
///
/// # Safety
/// `place` is null, or may be written to.
pub(crate) unsafe fn give<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("{what} is a null pointer")));
    }
    // SAFETY: the caller says so; what was there is not ours to drop.
    unsafe { place.write(value) };
    Ok(())
}

/// Makes an object and gives it to the caller, whose it is from then on; null if that fails. Says how it went.
///
/// # Safety
/// As [`give`].
pub(crate) unsafe fn give_object<T>(
    place: *mut *mut T,
    what: &str,
    make: impl FnOnce() -> Result<T, Failure>,
) -> c_int {
    guarded(|| {
        // Nothing is made that could not be given.
        // SAFETY: the caller says that it may be written to.
        unsafe { give(place, std::ptr::null_mut(), what) }?;
        let object = Box::into_raw(Box::new(make()?));
        // SAFETY: as above.
        unsafe { give(place, object, what) }
    })
}

/// Takes an object back; `None` for null, which is nothing to take.
///
/// # Safety
/// It is null, or was given by [`give_object`] and not taken back since; nothing else uses it.
pub(crate) unsafe fn take<T>(object: *mut T) -> Option<Box<T>> {
    // SAFETY: the caller says that it is from `Box::into_raw`, once.
    (!object.is_null()).then(|| unsafe { Box::from_raw(object) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last() -> String {
        // SAFETY: it is never null, and ends with a zero byte.
        unsafe { CStr::from_ptr(laxity_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn what_failed_is_told_on_the_thread_that_called() {
        assert_eq!(last(), "");
        assert_eq!(guarded(|| Err(Failure::argument("a\0b"))), LAXITY_BAD_ARGUMENT);
        assert_eq!(last(), "a\u{fffd}b");
        assert_eq!(guarded(|| Ok(())), LAXITY_OK);
        assert_eq!(last(), "a\u{fffd}b", "a call that succeeds leaves it");
        assert_eq!(std::thread::spawn(last).join().unwrap(), "");
        assert_eq!(guarded(|| Err(Error::Closed.into())), LAXITY_CLOSED);
        assert_eq!(guarded(|| Err(Error::NameInUse(String::new()).into())), LAXITY_UNAVAILABLE);
    }

    /// The rules of the header about threads.
    #[test]
    fn objects_may_be_used_from_the_threads_that_the_header_names() {
        fn any_thread_at_any_time<T: Send + Sync>() {}
        fn one_thread_at_a_time<T: Send>() {}
        any_thread_at_any_time::<crate::Host>();
        any_thread_at_any_time::<crate::Upcalls>();
        any_thread_at_any_time::<crate::Upcall>();
        one_thread_at_a_time::<crate::Listener>();
        one_thread_at_a_time::<crate::Sender>();
        one_thread_at_a_time::<crate::Receiver>();
    }

    #[test]
    fn a_panic_is_a_status() {
        assert_eq!(guarded(|| panic!("on purpose")), LAXITY_INTERNAL);
        assert_eq!(last(), "a bug of Laxity: on purpose");
        assert_eq!(guarded_or(7, || panic!("on purpose")), 7);
    }

    #[test]
    fn bad_pointers_and_texts_are_errors() {
        // SAFETY: null pointers are allowed, and the text ends with a zero byte.
        unsafe {
            assert!(borrowed(std::ptr::null::<u8>(), "x").is_err());
            assert!(text(std::ptr::null(), "x").is_err());
            assert!(text(c"\xff".as_ptr(), "x").is_err());
            assert!(give(std::ptr::null_mut(), 1, "x").is_err());
            assert!(take(std::ptr::null_mut::<u8>()).is_none());
        }
    }
}
