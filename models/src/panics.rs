//! Runs readers of foreign formats, which may panic on damaged files.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// True while a panic of this thread becomes an error, and is not printed.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs a reader. Its panic becomes an error, and is printed only if `RUST_BACKTRACE` is set.
///
/// # Errors
/// The reader's own error, or its panic.
pub(crate) fn unless_it_panics<T, E: From<String>>(read: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_QUIET.get() || std::env::var_os("RUST_BACKTRACE").is_some() {
                before(info);
            }
        }));
    });
    let was_quiet = IS_QUIET.replace(true);
    let read = catch_unwind(AssertUnwindSafe(read));
    IS_QUIET.set(was_quiet);
    read.unwrap_or_else(|_| Err("its reader gave up: the file is damaged".to_owned().into()))
}
