//! The migrations of the schema, and which of them a database lacks.

use crate::statement::Select;
use crate::{LedgerError, Result};

/// A migration of the schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) version: i64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// A migration that was applied to a database.
#[derive(Clone, Debug)]
pub(crate) struct AppliedMigration {
    pub(crate) version: i64,
    pub(crate) name: String,
    pub(crate) checksum: String,
}

/// Creates the table of applied migrations, on both databases.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migration (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TEXT NOT NULL)";
/// The message for a database that lacks migrations, where none may be applied.
pub(crate) const OLDER: &str =
    "the database has an older schema than this program: use the program of the service's version";
pub(crate) const LIST: Select<AppliedMigration> = Select {
    sql: "SELECT version, name, checksum FROM schema_migration ORDER BY version",
    read: |row| Ok(AppliedMigration { version: row.int(0)?, name: row.text(1)?, checksum: row.text(2)? }),
};
pub(crate) const INSERT: &str = "INSERT INTO schema_migration (version, name, checksum, applied_at) \
    VALUES ($1, $2, $3, CAST(CURRENT_TIMESTAMP AS TEXT))";

/// Declares the migrations of both databases by their versions and names.
macro_rules! migrations {
    ($($version:literal $name:literal;)+) => {
        pub(crate) const SQLITE: &[Migration] = &[$(migrations!("sqlite" $version $name)),+];
        pub(crate) const POSTGRES: &[Migration] = &[$(migrations!("postgres" $version $name)),+];
    };
    ($dialect:literal $version:literal $name:literal) => {
        Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../../../migrations/", $dialect, "/", $name, ".sql")),
        }
    };
}

migrations! {
    1 "0001_ledger";
}

/// Returns the number of migrations that this program knows.
pub(crate) fn newest() -> usize {
    SQLITE.len()
}

/// Returns the first `count` of `known`.
///
/// # Errors
///
/// If the program knows fewer.
pub(crate) fn first(known: &'static [Migration], count: usize) -> Result<&'static [Migration]> {
    let newer = || LedgerError::Internal("the rows are of a newer schema than this program: use a newer one".into());
    known.get(..count).ok_or_else(newer)
}

impl Migration {
    /// Returns the hash of the migration's text, as hex.
    pub(crate) fn checksum(&self) -> String {
        model::Sha256::of(self.sql.as_bytes()).to_string()
    }
}

/// Returns the migrations of `known` that are not in `applied`.
///
/// # Errors
///
/// If the database is newer than this program, or an applied migration has changed since.
pub(crate) fn missing<'a>(known: &'a [Migration], applied: &[AppliedMigration]) -> Result<&'a [Migration]> {
    for (index, found) in applied.iter().enumerate() {
        let Some(migration) = known.get(index) else {
            return Err(reject(
                found,
                "it is unknown to this program: the database belongs to another version, whose program opens it",
            ));
        };
        if (migration.version, migration.name) != (found.version, &found.name) {
            return Err(reject(found, "this program has a different migration with this number"));
        }
        if migration.checksum() != found.checksum {
            return Err(reject(
                found,
                "its text has changed since: no release of this program made the database, so begin with an empty one",
            ));
        }
    }
    Ok(&known[applied.len()..])
}

fn reject(found: &AppliedMigration, reason: &str) -> LedgerError {
    let AppliedMigration { version, name, .. } = found;
    LedgerError::Internal(format!("the database has migration {version} `{name}`: {reason}").into())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn applied(migration: &Migration) -> AppliedMigration {
        AppliedMigration { version: migration.version, name: migration.name.to_owned(), checksum: migration.checksum() }
    }

    #[test]
    fn every_migration_is_numbered_and_says_why() {
        assert!(SQLITE.is_sorted_by(|one, next| one.version < next.version));
        for migration in SQLITE.iter().chain(POSTGRES) {
            assert!(migration.name.starts_with(&format!("{:04}_", migration.version)), "{}", migration.name);
            assert!(migration.sql.starts_with("-- Why: "), "{}", migration.name);
        }
    }

    #[test]
    fn both_databases_have_the_same_tables_and_columns() {
        assert_eq!(columns(SQLITE), columns(POSTGRES));
        let tables: BTreeSet<_> = crate::dump::TABLES.iter().map(|table| table.name).collect();
        assert_eq!(columns(SQLITE).into_keys().collect::<BTreeSet<_>>(), tables, "whose are the rows of a new table?");
    }

    /// Returns the columns of each table after `all` migrations.
    fn columns(all: &[Migration]) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut tables = BTreeMap::<&str, BTreeSet<&str>>::new();
        let mut created = "";
        for line in all.iter().flat_map(|migration| migration.sql.lines()) {
            let is_column = line.starts_with("  ") && line[2..].starts_with(|first: char| first.is_ascii_lowercase());
            let words: Vec<_> = line.trim_end_matches(';').split_whitespace().collect();
            match words[..] {
                ["CREATE", "TABLE", table, ..] => created = table,
                [column, ..] if is_column => drop(tables.entry(created).or_default().insert(column)),
                ["DROP", "TABLE", table] => drop(tables.remove(table).unwrap()),
                ["ALTER", "TABLE", table, "RENAME", "TO", name] => {
                    let columns = tables.remove(table).unwrap();
                    tables.insert(name, columns);
                }
                ["ALTER", "TABLE", table, "DROP", "COLUMN", column] => {
                    assert!(tables.get_mut(table).unwrap().remove(column), "{line}");
                }
                ["ALTER", "TABLE", table, "ADD", "COLUMN", column, ..] => {
                    assert!(tables.get_mut(table).unwrap().insert(column), "{line}");
                }
                ["ALTER", "TABLE", _, "RENAME", "COLUMN", ..] => panic!("unsupported by this test: {line}"),
                _ => {}
            }
        }
        tables
    }

    #[test]
    fn a_changed_renamed_or_unknown_migration_is_rejected() {
        let known = &SQLITE[..1];
        assert_eq!(missing(known, &[]).unwrap().len(), 1);
        assert_eq!(missing(known, &[applied(&known[0])]).unwrap().len(), 0);
        let changed = AppliedMigration { checksum: "00".to_owned(), ..applied(&known[0]) };
        let renamed = AppliedMigration { name: "0001_other".to_owned(), ..applied(&known[0]) };
        let newer = AppliedMigration { version: 2, ..applied(&known[0]) };
        for applied in [vec![changed], vec![renamed], vec![applied(&known[0]), newer]] {
            assert!(missing(known, &applied).is_err(), "{applied:?}");
        }
    }
}
