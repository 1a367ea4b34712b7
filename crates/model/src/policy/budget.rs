//! Limits of what one call or a whole run may change.

use serde::{Deserialize, Serialize};

use crate::Usage;

/// Limits of changes. The lines of lockfiles do not count, because a package manager rewrites many of them for one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Budget {
    /// Distinct files. A move counts once.
    pub max_files_touched: u64,
    /// Lines added.
    pub max_insertions: u64,
    /// Lines removed.
    pub max_deletions: u64,
    /// Files deleted. A move deletes none.
    pub max_files_deleted: u64,
    /// Bytes of new files and, for replaced texts, of the lines that are new.
    pub max_bytes: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            max_files_touched: 20,
            max_insertions: 800,
            max_deletions: 800,
            max_files_deleted: 5,
            max_bytes: 200_000,
        }
    }
}

/// Some members of a [`Budget`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `Budget`")]
pub struct BudgetOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_files_touched: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_insertions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_deletions: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_files_deleted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl Budget {
    /// The limits of a change set: formatters and generators change many files at once.
    pub fn of_command() -> Self {
        Self {
            max_files_touched: 5_000,
            max_insertions: 200_000,
            max_deletions: 200_000,
            max_files_deleted: 1_000,
            max_bytes: 32_000_000,
        }
    }
}

impl BudgetOverrides {
    /// Returns `base` with these members replaced.
    pub(crate) fn over(&self, base: &Budget) -> Budget {
        Budget {
            max_files_touched: self.max_files_touched.unwrap_or(base.max_files_touched),
            max_insertions: self.max_insertions.unwrap_or(base.max_insertions),
            max_deletions: self.max_deletions.unwrap_or(base.max_deletions),
            max_files_deleted: self.max_files_deleted.unwrap_or(base.max_files_deleted),
            max_bytes: self.max_bytes.unwrap_or(base.max_bytes),
        }
    }

    /// Returns the members of which a run has used 80 % `after` a call and had not `before` it: name, limit and what is used.
    pub fn reached(&self, before: &Usage, after: &Usage) -> Vec<(&'static str, u64, u64)> {
        let members = [
            ("maxFilesTouched", self.max_files_touched, before.files_touched, after.files_touched),
            ("maxInsertions", self.max_insertions, before.insertions, after.insertions),
            ("maxDeletions", self.max_deletions, before.deletions, after.deletions),
            ("maxFilesDeleted", self.max_files_deleted, before.files_deleted, after.files_deleted),
            ("maxBytes", self.max_bytes, before.bytes, after.bytes),
        ];
        let reached = members.into_iter().filter_map(|(name, limit, before, after)| {
            let limit = limit.filter(|limit| *limit > 0)?;
            let is_reached = |used: u64| u128::from(used) * 5 >= u128::from(limit) * 4;
            (is_reached(after) && !is_reached(before)).then_some((name, limit, after))
        });
        reached.collect()
    }

    /// Returns these members, and those of `base` in place of missing ones.
    pub(super) fn or(&self, base: &Self) -> Self {
        Self {
            max_files_touched: self.max_files_touched.or(base.max_files_touched),
            max_insertions: self.max_insertions.or(base.max_insertions),
            max_deletions: self.max_deletions.or(base.max_deletions),
            max_files_deleted: self.max_files_deleted.or(base.max_files_deleted),
            max_bytes: self.max_bytes.or(base.max_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_reached_once_at_80_percent() {
        let budget = BudgetOverrides { max_insertions: Some(10), max_bytes: Some(0), ..BudgetOverrides::default() };
        let used = |insertions| Usage { insertions, bytes: insertions, ..Usage::default() };
        let reached: Vec<_> = (0..12).map(|lines| budget.reached(&used(lines), &used(lines + 1))).collect();
        let at_8 = vec![("maxInsertions", 10, 8)];
        let expected: Vec<_> = (0..12).map(|lines| if lines == 7 { at_8.clone() } else { Vec::new() }).collect();
        assert_eq!(reached, expected);
        assert_eq!(budget.reached(&used(0), &used(100)), [("maxInsertions", 10, 100)]);
        let huge = BudgetOverrides { max_bytes: Some(u64::MAX), ..BudgetOverrides::default() };
        assert_eq!(huge.reached(&used(0), &used(u64::MAX)), [("maxBytes", u64::MAX, u64::MAX)]);
    }
}
