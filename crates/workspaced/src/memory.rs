//! Memory that nothing uses, given back to the system.

/// Gives back what the allocator holds and nothing uses. May take some milliseconds.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a function of the C library that takes a number and can be called at any time")]
pub(crate) fn give_back() {
    // SAFETY: `malloc_trim` locks what it looks at, and takes away nothing that is in use.
    let _some = unsafe { libc::malloc_trim(0) };
}

/// Nothing: other allocators do it by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn give_back() {}
