//! Precedence of settings, their defaults, and messages about invalid ones.

use std::time::Duration;

use clap::{Args as _, FromArgMatches as _};
use model::{RunId, Sha256};

use super::*;

mod document;
mod issuer;
mod webhooks;

/// A token as the service generates them.
const GOOD: &str = "5b3f9a0c7e1d4826bf05a9c83d71e64f";

/// Checks `serve` with these arguments. Tests do not change the environment, which the whole process shares.
fn check(arguments: &[&str]) -> Result<Config, ConfigError> {
    check_with(arguments, &|_| None)
}

fn check_with(arguments: &[&str], env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let matches = serve().try_get_matches_from(["serve"].iter().chain(arguments)).unwrap();
    ServeArgs::from_arg_matches(&matches).unwrap().check(env)
}

/// The command that has these settings.
fn serve() -> clap::Command {
    ServeArgs::augment_args(clap::Command::new("serve"))
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn error_of(result: Result<Config, ConfigError>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message:?} is one line");
    message
}

#[test]
fn what_is_not_set_has_its_default() {
    let config = check(&[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.data_dir.to_str(), Some("./data"));
    assert_eq!(config.database_url.url, "sqlite://./data/workspaced.db");
    assert!(config.import_roots.is_empty() && config.tokens.operator.is_none() && config.limits.rate.is_none());
    assert_eq!(config.http_limits.max_body_bytes, 4 << 20);
}

#[test]
fn the_database_is_in_the_data_folder_unless_it_is_named() {
    let config = check(&["--data-dir", "/srv/w"]).unwrap();
    assert_eq!(config.database_url.url, "sqlite:///srv/w/workspaced.db");
    assert_eq!(config.database_url.sqlite_file(), Some("/srv/w/workspaced.db"));
    let config = check(&["--data-dir", "/srv/w", "--database-url", "postgres://u:p@h/d"]).unwrap();
    assert_eq!((config.database_url.url.as_str(), config.database_url.sqlite_file()), ("postgres://u:p@h/d", None));
}

#[test]
fn a_flag_counts_more_than_the_file_and_the_file_more_than_nothing() {
    let (_folder, path) =
        file("listen = \"127.0.0.1:1\"\nmax_body_bytes = 5\nmax-archive-bytes = 6\ndrain-seconds = 7\n");
    let config = check(&["--config", &path, "--max-body-bytes", "50"]).unwrap();
    assert_eq!(config.listen.port(), 1);
    assert_eq!((config.http_limits.max_body_bytes, config.http_limits.max_archive_bytes), (50, 6));
    assert_eq!(
        (config.http_limits.drain, config.http_limits.header_timeout),
        (Duration::from_secs(7), Duration::from_secs(10))
    );
}

#[test]
fn an_unknown_setting_in_a_file_is_refused_with_its_position() {
    for (text, position) in [
        ("listen = \"127.0.0.1:1\"\nbogus = 1\n", "line 2, column 1: unknown setting `bogus`"),
        ("max-run = 1\n", "line 1, column 1: unknown setting `max-run`: did you mean `max-runs`?"),
        ("\nread-concurrency = 1\n", "line 2, column 1: unknown setting `read-concurrency`"),
        ("[limits]\nmax-runs = 1\n", "line 1, column 2: unknown setting `limits`"),
        ("[[max-run]]\nid = 1\n", "line 1, column 3: unknown setting `max-run`: did you mean `max-runs`?"),
        ("listen = { a = 1 }\n", "line 1, column 10: `listen`: expected a text"),
        ("max-runs = \"many\"\n", "line 1, column 12: invalid value 'many' for '--max-runs <N>'"),
        ("sandbox = \"maybe\"\n", "line 1, column 11: invalid value 'maybe' for '--sandbox <WHEN>'"),
        ("listen = 7\n", "line 1, column 10: `listen`: expected a text"),
        ("max-runs = 1\nmax_runs = 2\n", "line 2, column 1: duplicate key `max-runs`"),
        ("operator-token = \"x\"\n", "line 1, column 1: unknown setting `operator-token`"),
        ("listen = \n", "line 1, column 10"),
        ("database-url = secret\n", "(at `database-url`)"),
    ] {
        let (_folder, path) = file(text);
        let message = error_of(check(&["--config", &path]));
        assert!(message.contains(position) && message.len() < 200 && !message.contains("hunter2"), "{message}");
    }
    assert!(error_of(check(&["--config", "/nowhere/at/all"])).contains("/nowhere/at/all"));
}

#[test]
fn one_number_stands_for_each_kind_of_concurrency_and_one_time_for_each_wait_for_a_client() {
    let config = check(&["--concurrency", "6", "--client-timeout-seconds", "12", "--rate-limit", "7:9"]).unwrap();
    let limits = &config.limits;
    let reads = [limits.read_concurrency, limits.search_concurrency, limits.export_concurrency];
    assert_eq!((reads, limits.write_concurrency, limits.import_concurrency), ([6, 6, 6], 12, 6));
    assert_eq!(check(&["--concurrency", "100"]).unwrap().limits.import_concurrency, 8);
    let http = &config.http_limits;
    let times = [http.header_timeout, http.body_timeout, http.idle_timeout].map(|time| time.as_secs());
    assert_eq!((times, limits.rate), ([4, 12, 30], Some((7, 9))));
    let short = check(&["--client-timeout-seconds", "1"]).unwrap().http_limits;
    assert_eq!(short.header_timeout, Duration::from_secs(1));
    let halves = check(&["--max-memory-bytes", "100000000"]).unwrap();
    assert_eq!(halves.limits.max_body_memory_bytes, 50_000_000);
    assert_eq!(halves.http_limits.max_answer_memory_bytes, 50_000_000);
}

#[test]
fn import_roots_come_by_flag_by_environment_or_by_file_and_must_be_folders() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().to_str().unwrap();
    let (_folder, path) = file(&format!("import-roots = [\"{one}\"]\n"));
    let env = |name: &str| (name == "WORKSPACED_IMPORT_ROOTS").then(|| format!("{one}::{one}/"));
    let roots = |arguments: &[&str]| check_with(arguments, &env).unwrap().import_roots.len();
    assert_eq!(roots(&["--config", &path, "--import-root", one, "--import-root", one, "--import-root", one]), 3);
    assert_eq!(roots(&["--config", &path]), 2, "the environment counts more than the file; empty ones are none");
    assert_eq!(check(&["--config", &path]).unwrap().import_roots.len(), 1);
    let empty = |name: &str| (name == "WORKSPACED_IMPORT_ROOTS").then(String::new);
    assert!(check_with(&[], &empty).unwrap().import_roots.is_empty());
    assert!(error_of(check(&["--import-root", "/nowhere/at/all"])).starts_with("--import-root `/nowhere/at/all`"));
    assert!(error_of(check(&["--import-root", &path])).contains("not a folder"));
}

#[test]
fn numbers_outside_their_bounds_are_refused_by_name() {
    for (flag, value) in [
        ("--max-connections", "0"),
        ("--request-timeout-seconds", "100000"),
        ("--max-body-bytes", "0"),
        ("--drain-seconds", "0"),
    ] {
        assert!(error_of(check(&[flag, value])).starts_with(&format!("{flag} {value}: expected 1 to ")));
    }
    for bad in ["5:0", "many", "5:", ":5", "-1"] {
        let refused = serve().try_get_matches_from(["serve", &format!("--rate-limit={bad}")]).unwrap_err();
        assert!(refused.to_string().contains("expected requests per second, such as 50"), "{refused}");
    }
    assert_eq!(check(&["--rate-limit", "5"]).unwrap().limits.rate, Some((5, 10)));
    assert_eq!(check(&["--rate-limit", "0"]).unwrap().limits.rate, None);
}

#[test]
fn a_bad_address_or_database_is_refused_without_its_password() {
    assert!(error_of(check(&["--listen", "nowhere"])).starts_with("--listen `nowhere`"));
    let message = error_of(check(&["--database-url", "mysql://user:hunter2@host/db"]));
    assert!(message.starts_with("--database-url") && !message.contains("hunter2"), "{message}");
    let config = check(&["--database-url", "postgres://user:hunter2@host/db"]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn tokens_come_from_the_environment_and_are_kept_as_hashes() {
    let env = |name: &str| (name == "WORKSPACED_OPERATOR_TOKEN").then(|| GOOD.to_owned());
    let config = check_with(&[], &env).unwrap();
    assert_eq!(config.tokens.operator.unwrap(), Sha256::of(GOOD.as_bytes()));
    assert!(config.tokens.audit.is_none() && !format!("{config:?}").contains(GOOD));
    let tokens = |value: &str| {
        let value = value.to_owned();
        check_with(&[], &|name| name.ends_with("_TOKEN").then(|| value.clone()))
    };
    assert!(tokens("").unwrap().tokens.operator.is_none(), "empty is not set");
    assert!(error_of(tokens(GOOD)).contains("must differ"));
    let spaced = error_of(tokens("a b"));
    assert!(spaced.starts_with("WORKSPACED_OPERATOR_TOKEN") && !spaced.contains("a b"), "{spaced}");
}

#[test]
fn no_operator_s_token_is_easy_to_guess() {
    for name in ["WORKSPACED_OPERATOR_TOKEN", "WORKSPACED_AUDIT_TOKEN"] {
        let check = |value: &str| check_with(&[], &|asked| (asked == name).then(|| value.to_owned()));
        for weak in ["secret", "operator-secret", "0123456789abcdef", &"x".repeat(64), &"ab".repeat(20)] {
            let message = error_of(check(weak));
            assert!(message.starts_with(name) && message.contains("guess") && !message.contains(weak), "{message}");
        }
        for good in [
            GOOD,
            "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
            "3c59dc04-8e88-4502-a0f3-9f2b1c7d6e5a",
            "Vq7-pL2x_Rk9.Zt4mWb8+Ys3",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
    }
}

#[test]
fn profiles_are_read_at_the_start() {
    let (_folder, path) = file("log = \"warn\"\n[profiles.DOCS]\nwrite = [\"docs/**\"]\n");
    let names = |config: &Config| config.profiles.names().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&check(&["--config", &path]).unwrap()), ["AUTONOMOUS", "DOCS", "READ_ONLY", "SUPERVISED_PR"]);
    assert_eq!(names(&check(&[]).unwrap()).len(), 3);
    for (text, why) in [
        ("[profiles.A]\n\nwrite = [\"a[\"]\n", "line 3, column 10"),
        ("[profile.A]\n", "line 1, column 2: unknown setting `profile`"),
        ("profiles = 1\n", "line 1, column 12"),
    ] {
        let (_folder, path) = file(text);
        let message = error_of(check(&["--config", &path]));
        assert!(message.starts_with(&format!("--config {path}: {why}")), "{message}");
    }
}

#[test]
fn verify_finds_the_database_as_serve_does() {
    let (_folder, path) = file("data-dir = \"/srv/w\"\nlisten = \"127.0.0.1:1\"\n");
    let verify = VerifyArgs::augment_args(clap::Command::new("verify"));
    let matches = verify.clone().try_get_matches_from(["verify", "--config", &path, "--run", "r1"]).unwrap();
    let args = VerifyArgs::from_arg_matches(&matches).unwrap();
    let config = args.check().unwrap();
    assert_eq!(config.database_url.url, "sqlite:///srv/w/workspaced.db");
    assert_eq!(config.run, Some(RunId::parse("r1").unwrap()));
    assert!(verify.try_get_matches_from(["verify", "--run", "../x"]).is_err());
}

#[test]
fn checkpoints_have_their_settings_and_their_key_comes_from_the_environment_alone() {
    let defaults = check(&["--data-dir", "/srv/w"]).unwrap().checkpoints;
    assert_eq!(defaults.every, Duration::from_secs(5));
    assert_eq!(defaults.file.to_str(), Some("/srv/w/checkpoints.log"));
    assert!(defaults.keys.is_none());

    let key = transparency::SignerKey::from_seed("example.org/log", &[3; 32]).unwrap();
    let env = |name: &str| (name == "WORKSPACED_CHECKPOINT_KEY").then(|| key.to_text());
    let (_folder, path) = file("checkpoint-seconds = 9\n");
    let given = check_with(&["--config", &path, "--checkpoint-file", "/log/c"], &env).unwrap();
    assert!(!format!("{given:?}").contains("PRIVATE"), "{given:?}");
    let given = given.checkpoints;
    assert_eq!((given.every, given.file.to_str()), (Duration::from_secs(9), Some("/log/c")));
    assert_eq!(given.keys.map(|keys| keys.to_text()), Some(key.to_text() + "\n"));

    assert!(error_of(check(&["--checkpoint-seconds", "0"])).contains("--checkpoint-seconds"));
    let bad = error_of(check_with(&[], &|name| (name == "WORKSPACED_CHECKPOINT_KEY").then(|| "hunter2".to_owned())));
    assert!(bad.starts_with("WORKSPACED_CHECKPOINT_KEY") && !bad.contains("hunter2"), "{bad}");
}
