//! The end of the process while ONNX Runtime may still be at work.
//!
//! A session that is being built, or a run inside one operator, cannot be interrupted. `exit` would run the destructors of
//! ONNX Runtime's libraries under it, which ends in a crash behind a log that says `drained`. Nothing is left to destroy
//! when the server has drained: files are in their places, spans are sent, the log is not buffered.
#![allow(unsafe_code)]

use std::io::Write as _;

/// Ends the process at once with an exit code, without destructors of libraries.
pub(crate) fn leave(code: i32) -> ! {
    // Nobody may be reading.
    let _ = std::io::stdout().flush();
    // SAFETY: `_exit` only ends the process; it takes no pointers and runs no code of ours.
    unsafe { libc::_exit(code) }
}
