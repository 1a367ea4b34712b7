//! Hard links of a source. In the tree each name is a separate file, so a name must not reveal what another name hides.

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};

use super::ImportError;
use super::tracked::ignore_files;
use super::writer::ImportWriter;
use crate::byte_path::split;
use crate::ignored::{ExcludedFiles, GITIGNORE_NAME, RuleSet};

/// How strictly a name hides its file, in increasing order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hidden {
    No,
    /// By policy, or because git ignores it.
    Denied,
    Secret,
}

/// Removes every name that would reveal what another name of the same file hides, by policy or by the ignore rules of the
/// complete tree.
pub(super) fn remove_revealing(writer: &mut ImportWriter<'_>, rules: &Rules) -> Result<(), ImportError> {
    let mut linked = writer.take_linked();
    while !linked.is_empty() {
        writer.check_cancelled()?;
        let (rows, contents) = writer.rows();
        let ignores = ignore_files(contents, rows)?;
        let git_rules = RuleSet::new(&ignores);
        let mut excluded = ExcludedFiles::by(&git_rules);
        let mut rules_changed = false;
        for names in &mut linked {
            let hidden: Vec<_> = names.keys().map(|name| hidden(rules, name, &mut excluded)).collect();
            let strictest = hidden.iter().copied().max().unwrap_or(Hidden::No);
            for ((name, exists), _) in
                names.iter_mut().zip(hidden).filter(|((_, exists), own)| **exists && *own < strictest)
            {
                remove(writer, name, strictest);
                *exists = false;
                rules_changed |= split(name).1 == GITIGNORE_NAME.as_bytes();
            }
        }
        if !rules_changed {
            break;
        }
        // A rule file was removed, so that other files may be ignored now.
    }
    Ok(())
}

fn hidden(rules: &Rules, name: &[u8], excluded: &mut ExcludedFiles<'_>) -> Hidden {
    let Ok(path) = LogicalPath::parse(&String::from_utf8_lossy(name)) else { return Hidden::No };
    let kind = rules.kind_of_path(&path);
    if kind == FileKind::SecretLike {
        return Hidden::Secret;
    }
    let facts = PathFacts { path: &path, real_path: None, kind, ignored: excluded.contains(name), hard_linked: false };
    if model::judge_path(rules, Access::Read, &facts).is_ok() { Hidden::No } else { Hidden::Denied }
}

fn remove(writer: &mut ImportWriter<'_>, name: &[u8], strictest: Hidden) {
    writer.remove(name);
    let reason = match strictest {
        Hidden::Secret => "a hard link to a secret-like file",
        Hidden::Denied | Hidden::No => "a hard link to a file that policy or git's ignore rules hide",
    };
    writer.skip(name, reason);
}
