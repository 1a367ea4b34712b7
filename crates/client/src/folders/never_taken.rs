//! What a run never takes of a folder, by the names and by the files of the run that say what git ignores.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use model::{FileKind, LogicalPath};
use shim::{ReadLimits, ScanReport, ShimError, texts_of_layer};

use crate::folders::checkout::Checkout;
use crate::folders::error::FolderError;

/// The name of a file that says what git ignores.
const NAME: &str = ".gitignore";
/// The most that is read of them.
const LIMITS: ReadLimits = ReadLimits { max_file_bytes: 1 << 20, max_total_bytes: 8 << 20 };

impl Checkout {
    /// Returns those of `paths` that no set of changes takes: what is generated, vendored or ignored by git. `report` says which files of
    /// the folder are not the run's: what those say does not count.
    pub(crate) async fn never_taken(
        &self,
        paths: &BTreeSet<String>,
        report: &ScanReport,
    ) -> Result<BTreeSet<String>, FolderError> {
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let changed: HashSet<&str> = report.changes.iter().map(|change| change.path.as_str()).collect();
        let files: BTreeSet<String> = paths
            .iter()
            .flat_map(|path| folders_of(path))
            .map(|folder| format!("{folder}{NAME}"))
            .filter(|file| LogicalPath::parse(file).is_ok() && !changed.contains(file.as_str()))
            .collect();
        let read = self.folder().with(move |folder| {
            let mut layer = Vec::new();
            folder.read(&files.into_iter().collect::<Vec<_>>(), LIMITS, &mut layer)?;
            Ok(texts_of_layer(layer.as_slice())?)
        });
        let rules = match read.await {
            Ok(texts) => IgnoreRules::new(texts),
            Err(error @ FolderError::Folder(ShimError::Lost(_))) => return Err(error),
            // Nothing is known to be taken.
            Err(_) => return Ok(paths.clone()),
        };
        Ok(paths.iter().filter(|path| rules.is_never_taken(path)).cloned().collect())
    }
}

/// What each file says that is ignored in its folder.
struct IgnoreRules(BTreeMap<String, Gitignore>);

impl IgnoreRules {
    fn new(texts: Vec<(String, String)>) -> Self {
        let rules = |(path, text): (String, String)| {
            let folder = path.strip_suffix(NAME)?.to_owned();
            let mut builder = GitignoreBuilder::new("");
            for line in text.lines() {
                // One that git cannot take either ignores nothing.
                let _ = builder.add_line(None, line);
            }
            Some((folder, builder.build().ok()?))
        };
        Self(texts.into_iter().filter_map(rules).collect())
    }

    fn is_never_taken(&self, path: &str) -> bool {
        let kind = LogicalPath::parse(path).map(|path| FileKind::of_path(&path));
        if kind.is_ok_and(|kind| matches!(kind, FileKind::Generated | FileKind::Vendored)) {
            return true;
        }
        // The nearest file that says something of it.
        let said = folders_of(path).into_iter().rev().find_map(|folder| {
            let matched = self.0.get(&folder)?.matched_path_or_any_parents(&path[folder.len()..], false);
            (!matched.is_none()).then(|| matched.is_ignore())
        });
        said == Some(true)
    }
}

/// Returns the folders above `path`, from the root on, each with a slash at its end but the root.
fn folders_of(path: &str) -> Vec<String> {
    let ends = path.match_indices('/').map(|(at, _)| &path[..=at]);
    std::iter::once("").chain(ends).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_ignores_or_a_build_writes_is_never_taken() {
        let texts = [(".gitignore", "*.sock\n/out\n!kept.sock\n"), ("d/.gitignore", "!a.sock\nlink\n")];
        let rules = IgnoreRules::new(texts.map(|(path, text)| (path.to_owned(), text.to_owned())).to_vec());
        for path in ["a.sock", "out", "out/x", "d/link", "d/e/link", "d/b.sock", "node_modules/.cache/s", "target/s"] {
            assert!(rules.is_never_taken(path), "{path}");
        }
        for path in ["newlink", "d/out", "kept.sock", "d/a.sock", "line\nbreak", "d"] {
            assert!(!rules.is_never_taken(path), "{path}");
        }
    }
}
