//! The version of ONNX Runtime, as the library itself tells it.
//!
//! In: the file that was loaded. Out: its version, as `1.31.1`. The one call of ONNX Runtime's C interface that is made
//! here by hand: the `ort` crate makes it too, and keeps the answer to itself.
#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::ffi::CStr;
use std::path::Path;

/// `OrtGetApiBase`, the only function that the library exports for everybody.
type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;

/// Asks a library for its version.
///
/// # Errors
/// A file that is no library, or none of ONNX Runtime.
pub(super) fn version_of(library: &Path) -> Result<String, String> {
    let failed = |what: String| format!("{}: {what}", library.display());
    // SAFETY: this very library was loaded by `ort` before, so its initialisers have run and do nothing again; the handle
    // only counts it once more. It stays loaded by `ort` for the life of the process.
    let loaded = unsafe { Library::new(library) }.map_err(|e| failed(e.to_string()))?;
    // SAFETY: ONNX Runtime declares this symbol as a function of this type since its first version.
    let get: Symbol<'_, GetApiBase> = unsafe { loaded.get(b"OrtGetApiBase") }.map_err(|e| failed(e.to_string()))?;
    // SAFETY: it takes nothing and gives a pointer to static data, which is checked for null.
    let base = unsafe { get().as_ref() }.ok_or_else(|| failed("OrtGetApiBase gives nothing".into()))?;
    // SAFETY: it takes nothing and gives a pointer to a static string that ends in NUL.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err(failed("GetVersionString gives nothing".into()));
    }
    // SAFETY: as above, and not null.
    let version = unsafe { CStr::from_ptr(version) };
    let version = version.to_str().map_err(|e| failed(e.to_string()))?;
    Ok(version.to_owned())
}
