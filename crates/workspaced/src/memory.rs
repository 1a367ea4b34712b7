//! Memory that a program at rest does not need, given back to the system.

/// Lets go of the program's own pages: whatever of them is run again comes back from the system's cache of its file. What the
/// allocator holds and nothing uses it gives back by itself. May take some milliseconds.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "the C library alone knows where the program lies, and advice on memory takes addresses"
)]
pub(crate) fn let_go_of_program() {
    use std::ffi::{c_int, c_void};

    /// Called with the program first, then with each library; any answer but 0 ends the round.
    unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: libc::size_t, _data: *mut c_void) -> c_int {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1).max(1);
        // SAFETY: the C library hands in a valid description, whose headers live as long as the program.
        let (base, headers) = unsafe {
            let info = &*info;
            (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
        };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0)
        {
            let (Ok(start), Ok(length)) = (usize::try_from(base + header.p_vaddr), usize::try_from(header.p_memsz))
            else {
                continue;
            };
            let (from, to) = (start / page * page, start + length);
            // SAFETY: the segment is mapped from the program's file and cannot be written, so that every page of it comes
            // back as it was. A page that it shares with a writable one cannot be: their rights differ.
            let advised = unsafe { libc::madvise(from as *mut c_void, to - from, libc::MADV_DONTNEED) };
            if advised != 0 {
                tracing::debug!(error = %std::io::Error::last_os_error(), "the program's pages stay in memory");
            }
        }
        1
    }
    // SAFETY: `visit` has the type that is asked for, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(visit), std::ptr::null_mut()) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
/// Nothing: what is not in use is the system's to find.
pub(crate) fn let_go_of_program() {}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod tests {
    #[expect(clippy::disallowed_methods, reason = "what the system says of this process is none of a run's files")]
    fn mapped_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn the_programs_pages_go_and_come_back() {
        // Other tests run beside this one, and take theirs back meanwhile.
        let went = (0..50).any(|_| {
            let before = mapped_kilobytes();
            super::let_go_of_program();
            mapped_kilobytes() + 64 < before
        });
        assert!(went);
    }
}
