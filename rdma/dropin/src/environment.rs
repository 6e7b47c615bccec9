//! Environment variables of the library. A program that runs with more rights than its user ignores
//! them (`secure_getenv(3)`). Otherwise the user could make it read files or use interfaces that
//! the user has no access to.

use std::ffi::{CStr, OsString, c_char};
use std::os::unix::ffi::OsStringExt;

unsafe extern "C" {
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

/// The value of a variable; `None` if it is not set, or not trusted.
pub(crate) fn value(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with a zero.
    let value = unsafe { secure_getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the value ends with a zero, and stays until the program changes its environment. By
    // setenv(3), it does not do that while another thread reads.
    let value = unsafe { CStr::from_ptr(value) };
    Some(OsString::from_vec(value.to_bytes().to_vec()))
}

/// Whether a variable is set, to any value.
#[cfg(test)]
pub(crate) fn is_set(name: &CStr) -> bool {
    value(name).is_some()
}

/// Whether a variable enables an option: it is set, and neither empty nor `0`.
pub(crate) fn is_on(name: &CStr) -> bool {
    value(name).is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_is_what_the_standard_library_reads() {
        let path = std::env::var_os("PATH");
        assert!(path.is_some());
        assert_eq!(value(c"PATH"), path);
        assert!(is_set(c"PATH") && is_on(c"PATH") && !is_on(c"no such variable"));
        assert_eq!(value(c"no such variable"), None);
    }
}
