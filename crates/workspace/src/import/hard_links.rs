//! Hard links of a source. In the tree each name is a separate file, so a name must not reveal what another name hides.

use std::collections::HashMap;

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};

use super::tracked::IgnoreFiles;
use super::writer::ImportWriter;
use crate::WorkspaceError;
use crate::ignored::{ExcludedFiles, RuleSet};

/// The files with several names.
#[derive(Default)]
pub(super) struct HardLinks {
    /// Every name of such a file, also one that the tree does not have or that another file has taken.
    names: Vec<(FileId, Vec<u8>)>,
    /// The file that has a name of the tree now.
    current: HashMap<Vec<u8>, FileId>,
}

/// The identity of a file or folder, which does not depend on its path: device and inode. Files of an archive have numbers in place of both.
pub(super) type FileId = (u64, u64);

/// How strictly a name hides its file, in increasing order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hidden {
    No,
    /// By policy, or because git ignores it.
    Denied,
    Secret,
}

impl HardLinks {
    /// Returns the file of an archive with the name `path`, which may have had no other name so far.
    pub(super) fn file_at(&mut self, path: &[u8]) -> FileId {
        self.current.get(path).copied().unwrap_or_else(|| {
            let file = (0, self.names.len() as u64);
            self.add_name(file, path, true);
            file
        })
    }

    /// Adds a name of a file. `exists` is false if only the source has the name, not the tree.
    pub(super) fn add_name(&mut self, file: FileId, path: &[u8], exists: bool) {
        self.names.push((file, path.to_owned()));
        if exists {
            self.current.insert(path.to_owned(), file);
        }
    }

    /// Notes that the name is gone from the tree. The file had it all the same, for what the name hides.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.current.remove(path);
    }
}

/// Removes every name that would reveal what another name of the same file hides, and returns the tree's `.gitignore` files.
///
/// Secrecy and policy depend on the names alone and are judged first, since they decide on `.gitignore` files too. The rules that remain
/// stay in force even if their file must go because git ignores another name of it.
pub(super) fn remove_revealing(writer: &mut ImportWriter<'_>, rules: &Rules) -> Result<IgnoreFiles, WorkspaceError> {
    remove_less_hidden(writer, rules, &mut |_| false);
    let ignores = writer.ignore_files()?;
    if writer.hard_links.names.is_empty() {
        return Ok(ignores);
    }
    let git_rules = RuleSet::new(&ignores);
    let mut excluded = ExcludedFiles::by(&git_rules);
    remove_less_hidden(writer, rules, &mut |name| excluded.contains(name));
    Ok(ignores)
}

/// Removes the names of each file that hide it less than another one does.
fn remove_less_hidden(writer: &mut ImportWriter<'_>, rules: &Rules, is_ignored: &mut dyn FnMut(&[u8]) -> bool) {
    let names = std::mem::take(&mut writer.hard_links.names);
    let hidden: Vec<_> = names.iter().map(|(_, name)| hidden(rules, name, is_ignored(name))).collect();
    let mut strictest = HashMap::new();
    for ((file, _), hidden) in names.iter().zip(&hidden) {
        let of_file = strictest.entry(*file).or_insert(Hidden::No);
        *of_file = (*of_file).max(*hidden);
    }
    for ((file, name), hidden) in names.iter().zip(hidden) {
        if hidden < strictest[file] && writer.hard_links.current.get(name) == Some(file) {
            writer.remove(name);
            let reason = match strictest[file] {
                Hidden::Secret => "a hard link to a secret-like file",
                Hidden::Denied | Hidden::No => "a hard link to a file that policy or git's ignore rules hide",
            };
            writer.skip(name, reason);
        }
    }
    writer.hard_links.names = names;
}

fn hidden(rules: &Rules, name: &[u8], ignored: bool) -> Hidden {
    let Ok(path) = LogicalPath::parse(&String::from_utf8_lossy(name)) else { return Hidden::No };
    let kind = rules.kind_of_path(&path);
    if kind == FileKind::SecretLike {
        return Hidden::Secret;
    }
    let facts = PathFacts { path: &path, real_path: None, kind, ignored, hard_linked: false };
    if model::judge_path(rules, Access::Read, &facts).is_ok() { Hidden::No } else { Hidden::Denied }
}
