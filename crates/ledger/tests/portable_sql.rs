//! What of PostgreSQL the ledger uses that distributed databases which speak its protocol lack, or have with other guarantees. Each use has
//! an entry that says what a database without it does, and "Other databases" in deploy/scaling.md says it for operators.
#![cfg_attr(test, expect(clippy::unwrap_used, reason = "tests and their fixtures fail by panicking"))]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A feature that a database lacks. The sources were read on 2026-11-24.
struct Feature {
    name: &'static str,
    /// Words that use it, in this order. `*` ends the beginning of a word.
    words: &'static [&'static str],
    /// Which database lacks it, by its documentation.
    #[expect(dead_code, reason = "for the reader")]
    lacking: &'static str,
}

const COCKROACH: &str =
    "CockroachDB: cockroachlabs.com/docs/v26.3/postgresql-compatibility, and sql-feature-support beside it";
const YUGABYTE: &str = "YugabyteDB: docs.yugabyte.com/latest/explore/ysql-language-features/postgresql-compatibility";
const CITUS: &str = "Citus: docs.citusdata.com/en/stable/develop/reference_workarounds.html";

const FEATURES: [Feature; 24] = [
    feature(
        "advisory locks",
        &["pg_advisory_*", "pg_try_advisory_*"],
        "CockroachDB: without effect before issues 168355 (of transactions) and 169981 (of sessions)",
    ),
    feature(
        "pg_locks",
        &["pg_locks"],
        "CockroachDB: empty. YugabyteDB: docs.yugabyte.com/stable/explore/observability/pg-locks",
    ),
    feature("notifications", &["listen", "notify", "pg_notify"], YUGABYTE),
    feature("snapshots", &["xmin", "xmax", "ctid", "pg_snapshot_*", "pg_current_*", "txid_*"], COCKROACH),
    feature("triggers of statements", &["for each statement"], COCKROACH),
    feature("triggers", &["create trigger", "create constraint trigger"], CITUS),
    feature("PL/pgSQL", &["language plpgsql", "do $$"], COCKROACH),
    feature("order of a sequence", &["nextval", "last_value", "serial", "bigserial", "as identity"], YUGABYTE),
    feature("exclusion constraints", &["exclude using"], YUGABYTE),
    feature("deferrable constraints", &["deferrable", "initially deferred"], YUGABYTE),
    feature("inheritance", &["inherits"], YUGABYTE),
    feature("rules", &["create rule"], CITUS),
    feature("GiST", &["using gist"], YUGABYTE),
    feature("extensions", &["create extension"], COCKROACH),
    feature("temporary tables", &["temp table", "temporary table"], COCKROACH),
    feature("large objects", &["lo_*"], COCKROACH),
    feature("locks of tables", &["lock table"], YUGABYTE),
    feature("locks of rows", &["for update", "for share", "for no key update", "for key share"], CITUS),
    feature("SKIP LOCKED", &["skip locked"], CITUS),
    feature("indexes made concurrently", &["index concurrently"], COCKROACH),
    feature("recursive queries", &["with recursive"], CITUS),
    feature("prepared statements of SQL", &["prepare"], "poolers of connections by transaction"),
    feature("level of isolation", &["isolation level"], YUGABYTE),
    feature("settings of the planner", &["enable_bitmapscan", "jit"], COCKROACH),
];

const fn feature(name: &'static str, words: &'static [&'static str], lacking: &'static str) -> Feature {
    Feature { name, words, lacking }
}

const MIGRATIONS: &str = "migrations/postgres/";
const ROLES: &str = "deploy/roles.sql";
const FENCE: &str = "crates/ledger/src/postgres/fence.rs";
const OPEN: &str = "crates/ledger/src/postgres/open.rs";
const POSITIONS: &str = "crates/ledger/src/postgres/positions.rs";

const REFUSED: &str = "`positions::check_marks` refuses the database at the start";
const GUARDS: &str =
    "none: the migration fails. A role as that of deploy/roles.sql lacks the privileges for what the triggers refuse";
const ONE_PRIMARY: &str = "none: the tables stay on one primary, with Citus on its coordinator";
const OF_READS: &str = "none: it fails where the records of many runs are in many shards";

/// Every use: the feature, the file or the folder of it, and what happens with a database that lacks it.
const USES: [(&str, &str, &str); 19] = [
    ("advisory locks", FENCE, REFUSED),
    ("advisory locks", OPEN, "none: two processes that migrate at the same time may fail, and are started again"),
    ("advisory locks", POSITIONS, REFUSED),
    ("pg_locks", POSITIONS, REFUSED),
    ("triggers of statements", MIGRATIONS, GUARDS),
    ("triggers", MIGRATIONS, GUARDS),
    ("PL/pgSQL", MIGRATIONS, GUARDS),
    ("PL/pgSQL", ROLES, "the role is created by hand"),
    ("order of a sequence", MIGRATIONS, ONE_PRIMARY),
    ("order of a sequence", POSITIONS, ONE_PRIMARY),
    ("locks of rows", "crates/ledger/src/postgres/append_state.rs", ONE_PRIMARY),
    ("locks of rows", FENCE, "none is needed: each statement names one run"),
    ("locks of rows", POSITIONS, ONE_PRIMARY),
    ("recursive queries", "crates/ledger/src/filter.rs", OF_READS),
    ("recursive queries", "crates/ledger/src/store/sql.rs", OF_READS),
    ("prepared statements of SQL", POSITIONS, "none: a pool of connections must keep one for each session"),
    ("level of isolation", FENCE, "none: a stricter level makes commits of the same run fail, which are repeated"),
    ("level of isolation", "crates/ledger/src/postgres/dump.rs", "none: a stricter level gives the same rows"),
    ("settings of the planner", OPEN, "none: a server that does not know them refuses the connection"),
];

#[test]
fn every_use_of_what_distributed_databases_lack_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut found = BTreeSet::new();
    for file in sources(&root) {
        let text = std::fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(&root).unwrap().to_str().unwrap();
        let is_rust = file.extension().is_some_and(|kind| kind == "rs");
        let sql = if is_rust { literals(&text) } else { without_comments(&text) };
        let words = words_of(&sql);
        for feature in FEATURES.iter().filter(|feature| feature.words.iter().any(|pattern| uses(&words, pattern))) {
            found.insert((feature.name, if path.starts_with(MIGRATIONS) { MIGRATIONS } else { path }.to_owned()));
        }
    }
    let known = USES.iter().map(|(feature, path, _)| (*feature, (*path).to_owned())).collect::<BTreeSet<_>>();
    assert_eq!(known.len(), USES.len(), "an entry exists twice");
    let unknown: Vec<_> = found.difference(&known).collect();
    assert!(unknown.is_empty(), "uses without an entry: {unknown:#?}");
    let unused: Vec<_> = known.difference(&found).collect();
    assert!(unused.is_empty(), "entries without a use: {unused:#?}");
}

#[test]
fn operators_read_which_database_lacks_what() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("deploy/scaling.md")).unwrap();
    let section = page.split("\n## Other databases\n").nth(1).unwrap();
    for (feature, ..) in USES {
        assert!(section.contains(feature), "{feature}");
    }
}

/// All files with SQL for PostgreSQL.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut folders = vec![root.join("migrations/postgres"), root.join("crates/ledger/src")];
    let mut files = vec![root.join("deploy/roles.sql")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() && name != "sqlite" && name != "tests" {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "sql" || kind == "rs")
                && name != "sqlite"
                && name != "tests"
            {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 30, "{}", files.len());
    files
}

fn without_comments(sql: &str) -> String {
    sql.lines().map(|line| line.split("--").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// The texts of a source file before its tests, one after the other, without comments.
fn literals(source: &str) -> String {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = String::new();
    for line in source.lines().filter(|line| !line.trim_start().starts_with("//")) {
        found.push_str(line);
        found.push('\n');
    }
    // Every second part between quotes. A quote in a text is escaped, or is a character.
    let plain = found.replace("\\\"", " ").replace("'\"'", " ");
    plain.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ")
}

fn words_of(sql: &str) -> Vec<String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    sql.split(|c| !is_of_word(c)).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn uses(words: &[String], pattern: &str) -> bool {
    let pattern: Vec<&str> = pattern.split(' ').collect();
    let is = |word: &String, expected: &str| match expected.strip_suffix('*') {
        Some(start) => word.starts_with(start),
        None => word == expected,
    };
    words.windows(pattern.len()).any(|window| window.iter().zip(&pattern).all(|(word, expected)| is(word, expected)))
}

#[test]
fn uses_are_found_in_texts_and_not_in_comments() {
    let source = "// LISTEN\nconst A: &str = \"SELECT pg_try_advisory_xact_lock(1) \\\n  FOR   update\"; // \"\n";
    let words = words_of(&literals(source));
    assert!(uses(&words, "pg_try_advisory_*") && uses(&words, "for update") && !uses(&words, "listen"));
    assert!(!uses(&words, "pg_advisory_*") && !uses(&words, "update for"));
    assert!(!uses(&words_of(&without_comments("SELECT 1; -- LOCK TABLE\n")), "lock table"));
}
