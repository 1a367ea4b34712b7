//! Where symbolic links lead to, as their text says.

use super::{LogicalPath, PathRejected};

/// Whether a symbolic link at `path` with this target stays in the tree, judged by the target's text only. `..` is taken only at the
/// beginning: after a name, which may be a link itself, nobody knows from where it goes up.
pub fn link_stays_inside(path: &[u8], target: &[u8]) -> bool {
    if target.is_empty() || target.starts_with(b"/") || target.contains(&0) {
        return false;
    }
    let mut above = path.split(|byte| *byte == b'/').count() - 1;
    let mut is_below = false;
    for name in target.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if is_below || above == 0 => return false,
            b".." => above -= 1,
            _ => is_below = true,
        }
    }
    true
}

impl LogicalPath {
    /// Returns the path that a new symbolic link here with this target leads to, if no other link is on the way.
    ///
    /// # Errors
    ///
    /// Returns the first rule broken: of links, or of new names.
    pub fn link_destination(&self, target: &[u8]) -> Result<Self, PathRejected> {
        let text = std::str::from_utf8(target).map_err(|_| PathRejected::LinkToUnnameable)?;
        if !link_stays_inside(self.as_str().as_bytes(), target) {
            return Err(PathRejected::LinkOut);
        }
        let folder = self.as_str().rsplit_once('/').map_or(".", |(folder, _)| folder);
        let to = Self::parse(&format!("{folder}/{text}"))?;
        to.check_new()?;
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::path;

    #[test]
    fn a_link_leads_to_a_path_of_the_tree_or_is_rejected() {
        let to = |at: &str, target: &str| path(at).link_destination(target.as_bytes()).map(|to| to.to_string());
        for (at, target, expected) in [
            ("l", "a.txt", "a.txt"),
            ("d/l", "a.txt", "d/a.txt"),
            ("d/e/l", "../.././a//b/", "a/b"),
            ("d/l", "..", "."),
            ("l", "l", "l"),
        ] {
            assert_eq!(to(at, target).as_deref(), Ok(expected), "{at} -> {target}");
        }
        for (at, target, rule) in [
            ("l", "", PathRejected::LinkOut),
            ("l", "/etc/passwd", PathRejected::LinkOut),
            ("d/l", "../../x", PathRejected::LinkOut),
            ("d/l", "a/../b", PathRejected::LinkOut),
            ("l", "a\0b", PathRejected::LinkOut),
            ("d/l", "../.GIT/config", PathRejected::GitInternal),
            ("l", "a\nb", PathRejected::ControlCharacter),
        ] {
            assert_eq!(to(at, target), Err(rule), "{at} -> {target:?}");
        }
        assert_eq!(path("l").link_destination(b"\xff"), Err(PathRejected::LinkToUnnameable));
    }
}
