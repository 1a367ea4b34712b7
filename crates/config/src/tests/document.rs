//! `deploy/configuration.md` lists exactly the settings of the command line, with the defaults in force.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::*;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/configuration.md")).unwrap()
});

/// One row of a table of settings. A cell that says `none` is `None`.
#[derive(Debug)]
struct Row {
    flag: Option<&'static str>,
    variable: &'static str,
    key: Option<&'static str>,
    default: &'static str,
}

/// What is between the first pair of backticks.
fn code(cell: &'static str) -> Option<&'static str> {
    cell.split('`').nth(1)
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for line in DOCUMENT.lines().filter(|line| line.starts_with("| ") && line.contains("`WORKSPACED_")) {
        let cells: Vec<&'static str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{line}");
        assert!(!cells[4].is_empty() && !cells[5].is_empty(), "no values or no meaning: {line}");
        let variable = code(cells[1]).unwrap();
        rows.push(Row { flag: code(cells[0]), variable, key: code(cells[2]), default: cells[3] });
    }
    rows
}

/// The arguments of `serve`, except for `--help` and hidden ones.
fn arguments() -> Vec<clap::Arg> {
    serve().get_arguments().filter(|argument| argument.get_id() != "help" && !argument.is_hide_set()).cloned().collect()
}

fn help(argument: &clap::Arg) -> String {
    [argument.get_help(), argument.get_long_help()].into_iter().flatten().map(ToString::to_string).collect()
}

/// The variable of an argument: clap's, or the one that its help names where this program splits the value itself.
fn variable(argument: &clap::Arg) -> String {
    let named = || help(argument).split('`').find(|word| word.starts_with("WORKSPACED_")).map(str::to_owned);
    argument.get_env().map(|name| name.to_str().unwrap().to_owned()).or_else(named).unwrap()
}

#[test]
fn the_guide_of_nodes_names_settings_that_exist() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nodes.md")).unwrap();
    let flags: BTreeSet<_> = rows().into_iter().filter_map(|row| row.flag).collect();
    let named: BTreeSet<_> = guide.split('`').filter(|code| code.starts_with("--")).collect();
    let named: BTreeSet<_> = named.into_iter().map(|code| code.split(' ').next().unwrap()).collect();
    assert!(named.len() >= 5 && named.is_subset(&flags), "{named:?}");
    let example = guide.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let settings = Settings::parse(example).unwrap();
    assert!(settings.node_url.is_some() && settings.object_store_url.is_some());
}

#[test]
fn the_document_lists_every_setting_and_no_other() {
    let of_program: BTreeSet<(String, String)> = arguments()
        .iter()
        .map(|argument| (format!("--{}", argument.get_long().unwrap()), variable(argument)))
        .collect();
    let rows = rows();
    let of_document: BTreeSet<(String, String)> =
        rows.iter().filter_map(|row| Some((row.flag?.to_owned(), row.variable.to_owned()))).collect();
    assert_eq!(of_document, of_program);
    assert_eq!(of_document.len(), rows.iter().filter(|row| row.flag.is_some()).count(), "a flag is listed twice");
}

#[test]
fn the_document_lists_every_secret_and_no_other() {
    let about = serve().get_long_about().unwrap().to_string();
    let of_program: BTreeSet<&str> = about.split('`').filter(|word| word.starts_with("WORKSPACED_")).collect();
    let rows = rows();
    let of_document: BTreeSet<&str> = rows.iter().filter(|row| row.flag.is_none()).map(|row| row.variable).collect();
    assert_eq!(of_document, of_program);
}

/// The default as it is given to the flag; `None` where it is generated, or no value at all.
fn default(row: &Row) -> Option<String> {
    let value = code(row.default)?;
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Some(match row.default.split_once("` per core") {
        Some((_, rest)) => {
            let least = rest.split_whitespace().last().and_then(|word| word.parse().ok()).unwrap_or(1);
            (value.parse::<usize>().unwrap() * cores).max(least).to_string()
        }
        None => value.replace("DATA_DIR", "./data"),
    })
}

#[test]
fn the_defaults_of_the_document_are_those_in_force() {
    let unset = format!("{:?}", check(&[]).unwrap());
    let mut checked = 0;
    for row in rows() {
        let (Some(flag), Some(value)) = (row.flag, default(&row)) else { continue };
        let config = check(&[flag, &value]).unwrap();
        assert_eq!(format!("{config:?}"), unset, "{flag} {value}");
        assert_eq!(config.database_url.url, check(&[]).unwrap().database_url.url, "{flag} {value}");
        if let Ok(number) = value.parse::<u64>() {
            let other = check(&[flag, &(number + 1).to_string()]).unwrap();
            assert_ne!(format!("{other:?}"), unset, "{flag} has no effect");
        }
        checked += 1;
    }
    assert!(checked > 20, "only {checked} defaults were checked");
}

#[test]
fn the_help_names_the_same_defaults() {
    let rows = rows();
    for argument in arguments() {
        let flag = format!("--{}", argument.get_long().unwrap());
        let help = help(&argument);
        let Some(said) = help.split("[default: ").nth(1).and_then(|rest| rest.split([']', ',', ' ']).next()) else {
            assert_eq!(flag, "--config", "{flag}: its help has no default");
            continue;
        };
        let row = rows.iter().find(|row| row.flag == Some(&flag)).unwrap();
        let documented = code(row.default).unwrap_or(row.default);
        if said.starts_with(|first: char| first.is_ascii_digit()) || documented.parse::<u64>().is_ok() {
            assert_eq!(said, documented, "{flag}");
        }
    }
}

#[test]
fn the_keys_of_the_document_are_those_of_the_file() {
    for row in rows() {
        let (Some(key), Some(value)) = (row.key, default(&row)) else { continue };
        let value = if value.parse::<u64>().is_ok() || value == "false" { value } else { format!("{value:?}") };
        let (_folder, path) = file(&format!("{key} = {value}\n"));
        assert!(check(&["--config", &path]).is_ok(), "{key} = {value}");
    }
    let without_file: Vec<_> = rows().iter().filter(|row| row.key.is_none()).map(|row| row.variable).collect();
    let secrets = ["WORKSPACED_OPERATOR_TOKEN", "WORKSPACED_AUDIT_TOKEN", "WORKSPACED_CHECKPOINT_KEY"];
    assert_eq!(without_file, [&["WORKSPACED_CONFIG"], &secrets[..]].concat());
}

#[test]
fn the_example_of_the_document_is_a_valid_file() {
    let example = DOCUMENT.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let root = tempfile::tempdir().unwrap();
    let example = example.replace("/srv/templates", root.path().to_str().unwrap());
    let (_folder, path) = file(&example);
    assert_eq!(check(&["--config", &path]).unwrap().limits.max_runs, Some(500));
}
