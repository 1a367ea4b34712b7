//! Pointers of Git LFS, which are in a repository in place of large files.

/// The start of every pointer.
const START: &[u8] = b"version https://git-lfs.github.com/spec/v1\n";
/// Pointers are shorter.
const MAX_BYTES: usize = 1024;

/// Returns the length in bytes of the content for which the file `bytes` is a pointer of Git LFS; `None` if it is none.
pub fn git_lfs_pointer(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(START).filter(|_| bytes.len() < MAX_BYTES)?;
    let lines = || std::str::from_utf8(rest).ok().into_iter().flat_map(str::lines);
    lines().find(|line| line.starts_with("oid "))?;
    lines().find_map(|line| line.strip_prefix("size "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::git_lfs_pointer;

    #[test]
    fn only_a_pointer_is_one() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        assert_eq!(git_lfs_pointer(pointer.as_bytes()), Some(12345));
        for other in
            ["", "size 1\n", &pointer.replace("oid", "id"), &pointer.replace("12345", "x"), &format!("x{pointer}")]
        {
            assert_eq!(git_lfs_pointer(other.as_bytes()), None, "{other}");
        }
        assert_eq!(git_lfs_pointer((pointer.to_owned() + &"x\n".repeat(600)).as_bytes()), None);
    }
}
