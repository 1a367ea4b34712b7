//! Asking a repository for its refs, without fetching anything.

use super::GitSource;
use crate::WorkspaceError;
use crate::git::{Bounds, GitError, parse_oid};

/// The time limit of the question, in seconds.
const SECONDS: u64 = 60;
/// The maximum size of the answer. A repository with more refs is fetched.
const MAX_BYTES: usize = 4 << 20;

/// How git completes the name of a ref, in the order in which it looks.
const COMPLETIONS: [(&str, &str); 6] = [
    ("", ""),
    ("refs/", ""),
    ("refs/tags/", ""),
    ("refs/heads/", ""),
    ("refs/remotes/", ""),
    ("refs/remotes/", "/HEAD"),
];

impl GitSource<'_> {
    /// Returns the commit to which the source's reference leads in the repository now; `None` if only a fetch finds it. The
    /// repository is asked with the rights of this import.
    ///
    /// # Errors
    ///
    /// As for a fetch.
    pub(in crate::import) fn tip(&self) -> Result<Option<String>, WorkspaceError> {
        self.watch.progress("fetching", 0, 0);
        let is_commit = parse_oid(self.reference).is_some();
        let mut args = vec!["ls-remote".to_owned(), "--end-of-options".to_owned(), "origin".to_owned()];
        // A commit has no name to ask for.
        if !is_commit {
            for (before, after) in COMPLETIONS {
                let name = format!("{before}{}{after}", self.reference);
                args.extend([format!("{name}^{{}}"), name]);
            }
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let bounds = Bounds { stop: &|| self.watch.cancelled(), ..Bounds::seconds(SECONDS) };
        let listed = match self.remote.output(&args, MAX_BYTES, &bounds) {
            Err(GitError::TooMuch | GitError::TooLong) => return Ok(None),
            listed => String::from_utf8_lossy(&listed.map_err(|error| self.remote_error(error))?).into_owned(),
        };
        Ok(if is_commit { named_commit(&listed, self.reference) } else { found(&listed, self.reference) })
    }
}

/// Returns the object to which git would lead `reference`.
fn found(listed: &str, reference: &str) -> Option<String> {
    let object = |name: &str| {
        let mut lines = listed.lines().filter_map(|line| line.split_once('\t'));
        lines.find(|(_, listed)| *listed == name).map(|(object, _)| object.to_owned())
    };
    let names = COMPLETIONS.iter().map(|(before, after)| format!("{before}{reference}{after}"));
    // An annotated tag leads to another object.
    names.into_iter().find_map(|name| {
        let tag = object(&name)?;
        Some(object(&format!("{name}^{{}}")).unwrap_or(tag))
    })
}

/// Returns `commit` if a ref leads to it. Another commit may have been removed from the repository.
fn named_commit(listed: &str, commit: &str) -> Option<String> {
    let commit = commit.to_ascii_lowercase();
    listed.lines().any(|line| line.split('\t').next() == Some(&commit)).then_some(commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_where_git_would_lead_it() {
        let listed = "1\tHEAD\n2\trefs/heads/main\n3\trefs/tags/v1\n4\trefs/tags/v1^{}\n5\trefs/heads/v1\n\
                      6\trefs/heads/x/main\n7\trefs/remotes/up/HEAD\n";
        for (name, object) in [
            ("HEAD", Some("1")),
            ("main", Some("2")),
            ("heads/main", Some("2")),
            ("refs/heads/v1", Some("5")),
            ("v1", Some("4")),
            ("up", Some("7")),
            ("x", None),
        ] {
            assert_eq!(found(listed, name).as_deref(), object, "{name}");
        }
        assert_eq!(named_commit("ab\tHEAD\n", "AB").as_deref(), Some("ab"));
        assert_eq!(named_commit("ab\tHEAD\n", "cd"), None);
    }
}
