//! Version of ONNX Runtime, as reported by the library itself.
//!
//! In: the loaded file. Out: its version, such as `1.31.1`. Calls ONNX Runtime's C interface directly, because the
//! `ort` crate makes the same call but does not expose the result.
#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::ffi::CStr;
use std::path::Path;

/// `OrtGetApiBase`, the library's only public export.
type GetApiBase = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;

/// Reads a library's version.
///
/// # Errors
/// Fails if the file is not a library, or not ONNX Runtime.
pub(super) fn version_of(library: &Path) -> Result<String, String> {
    let failed = |what: String| format!("{}: {what}", library.display());
    // SAFETY: `ort` loaded this library before, so its initialisers have run and do nothing again; the handle only
    // increments its count. `ort` keeps it loaded for the life of the process.
    let loaded = unsafe { Library::new(library) }.map_err(|e| failed(e.to_string()))?;
    // SAFETY: ONNX Runtime declares this symbol as a function of this type since its first version.
    let get: Symbol<'_, GetApiBase> = unsafe { loaded.get(b"OrtGetApiBase") }.map_err(|e| failed(e.to_string()))?;
    // SAFETY: it takes nothing and returns a pointer to static data, which is checked for null.
    let base = unsafe { get().as_ref() }.ok_or_else(|| failed("OrtGetApiBase returned nothing".into()))?;
    // SAFETY: it takes nothing and returns a pointer to a static string that ends in NUL.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Err(failed("GetVersionString returned nothing".into()));
    }
    // SAFETY: as above, and not null.
    let version = unsafe { CStr::from_ptr(version) };
    let version = version.to_str().map_err(|e| failed(e.to_string()))?;
    Ok(version.to_owned())
}
