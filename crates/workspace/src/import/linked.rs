//! Names of one content, which a source has as hard links. In the tree each is a file of its own, which nothing holds together
//! any more: what one name hides, another must not show.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;

use model::{Access, FileKind, LogicalPath, PathFacts, Rules};

use super::ImportError;
use super::sink::{ImportWriter, WriteError, split};
use super::tracked::{Excluded, folder_rules, ignore_files};
use crate::ignored::GITIGNORE_NAME;

/// Names that one content has or had, each with whether it has it still.
pub(super) type Names = BTreeMap<Vec<u8>, bool>;

/// How a name hides what has it, the strictest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hidden {
    No,
    /// By policy, or as what git ignores.
    Denied,
    Secret,
}

/// Leaves out every name of `sink` that would show what another name of the same content hides, by `rules` and by what git
/// ignores once the tree is complete.
pub(super) fn leave_out(sink: &mut ImportWriter<'_>, root: BorrowedFd<'_>, rules: &Rules) -> Result<(), ImportError> {
    let mut linked = sink.take_linked();
    while !linked.is_empty() {
        sink.check_cancelled()?;
        let ignores = ignore_files(root, sink.rows())?;
        let git_rules = folder_rules(&ignores);
        let mut excluded = Excluded::by(&git_rules);
        let mut rules_went = false;
        for names in &mut linked {
            let hidden: Vec<_> = names.keys().map(|name| hidden(rules, name, &mut excluded)).collect();
            let strictest = hidden.iter().copied().max().unwrap_or(Hidden::No);
            for ((name, there), _) in
                names.iter_mut().zip(hidden).filter(|((_, there), own)| **there && *own < strictest)
            {
                withdraw(sink, name, strictest)?;
                *there = false;
                rules_went |= split(name).1 == GITIGNORE_NAME.as_bytes();
            }
        }
        if !rules_went {
            break;
        }
        // What git ignores is another matter without them.
    }
    Ok(())
}

fn hidden(rules: &Rules, name: &[u8], excluded: &mut Excluded<'_>) -> Hidden {
    let Ok(path) = LogicalPath::parse(&String::from_utf8_lossy(name)) else { return Hidden::No };
    let kind = rules.kind_of_path(&path);
    if kind == FileKind::SecretLike {
        return Hidden::Secret;
    }
    let facts = PathFacts { path: &path, real_path: None, kind, ignored: excluded.holds(name), hard_linked: false };
    if model::judge_path(rules, Access::Read, &facts).is_ok() { Hidden::No } else { Hidden::Denied }
}

fn withdraw(sink: &mut ImportWriter<'_>, name: &[u8], strictest: Hidden) -> Result<(), ImportError> {
    sink.withdraw(name).map_err(|error| match error {
        WriteError::Over(error) => error,
        WriteError::Source(error) => ImportError::Io(error),
        WriteError::Misfit(reason) => ImportError::Io(io::Error::other(reason)),
    })?;
    let reason = match strictest {
        Hidden::Secret => "a hard link to a secret-like file",
        Hidden::Denied | Hidden::No => "a hard link to a file that policy or git's ignore rules hide",
    };
    sink.leave_out(name, reason);
    Ok(())
}
