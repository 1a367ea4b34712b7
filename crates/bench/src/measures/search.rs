//! `search_text` over the whole tree, beside `rg` with the same query over the same files.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::api::RunHandle;
use crate::compare::compare;
use crate::limits::programs::{is_installed, program};
use crate::load::Script;
use crate::measures::{import, plan};
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::tree::RARE;

/// A query: what it is called, its mode, and texts to choose from, since a tree may not hold the first one.
struct Query {
    name: &'static str,
    mode: &'static str,
    texts: &'static [&'static str],
    /// How many matches it shall have; at most 1,000, so that no answer stops early while `rg` goes on.
    matches: std::ops::RangeInclusive<usize>,
}

const QUERIES: [Query; 3] = [
    Query {
        name: "rare literal",
        mode: "literal",
        texts: &[RARE, "unwind_safe", "set_nodelay", "HTTP_1_1"],
        matches: 1..=30,
    },
    Query {
        name: "common literal",
        mode: "literal",
        texts: &["PhantomData<fn", "catch_unwind", "lantern_copper = granite", "poll_shutdown", "meadow.willow"],
        matches: 100..=999,
    },
    Query {
        name: "regex",
        mode: "regex",
        texts: &[r"fn\s+poll_\w+\s*\(", r"impl.*Future\s+for\s+\w+", r"let lantern_\w+ = granite\.ember\(\d{3}\);"],
        matches: 30..=999,
    },
];

/// Measures searches.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let run = import::tree_run(stage, report)?;
    let tree = stage.tree_of(run).map_or_else(|| stage.tree().map(PathBuf::from), Ok)?;
    let beside_rg = is_installed(&stage.options.rg);
    for query in &QUERIES {
        let text = choose(stage, report, run, query)?;
        let input = json!({ "query": text, "mode": query.mode, "maxMatches": 1000 });
        for &connections in &stage.options.connections {
            let script = |_| Ok(Script::new(vec![run.prepare("search_text", &input)?]));
            let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
            let mut searches =
                stage.service(format!("search of the tree: {} `{}`", query.name, escaped(text)), scripts);
            let mut rg = program("`rg`", &stage.options.rg, arguments(query.mode, text, None), &tree, &[0]);
            let mut two =
                program("`rg` with 2 threads", &stage.options.rg, arguments(query.mode, text, Some(2)), &tree, &[0]);
            let mut limits: Vec<crate::compare::Limit<'_>> = Vec::new();
            if beside_rg {
                limits.push((&mut rg, Some(Target::TimesTheTime(0.9))));
                limits.push((&mut two, None));
            }
            report.rows.push(compare(plan(&stage.options, connections), &mut searches, &mut limits)?);
        }
    }
    Ok(())
}

/// The first text that has as many matches as is wanted, by what the service says.
fn choose(stage: &Stage, report: &mut Report, run: &RunHandle, query: &Query) -> anyhow::Result<&'static str> {
    let mut best: Option<(&str, usize, Value)> = None;
    for text in query.texts {
        let answer =
            stage.tool(run, "search_text", &json!({ "query": text, "mode": query.mode, "maxMatches": 1000 }))?;
        let matches = answer["matches"].as_array().map_or(0, Vec::len);
        let fits = query.matches.contains(&matches);
        let truncated = answer["truncated"] == true;
        if matches > 0 && !truncated && (fits || best.as_ref().is_none_or(|(_, most, _)| matches > *most)) {
            best = Some((text, matches, answer["filesSearched"].clone()));
        }
        if fits && !truncated {
            break;
        }
    }
    let (text, matches, files) = best.with_context(|| format!("the tree holds nothing for a {}", query.name))?;
    report.notes.push(format!("{} `{}`: {matches} matches in {files} files searched.", query.name, escaped(text)));
    Ok(text)
}

/// The same files as the service searches: hidden ones too, ignored ones by the tree's own rules alone.
fn arguments(mode: &str, text: &str, threads: Option<usize>) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--no-config", "--hidden", "--no-ignore-parent", "--no-ignore-global", "--no-require-git", "--glob=!.git"]
            .map(str::to_owned)
            .into();
    arguments.extend(["--line-number", "--column", "--no-heading"].map(str::to_owned));
    if mode == "literal" {
        arguments.push("--fixed-strings".to_owned());
    }
    arguments.extend(threads.map(|threads| format!("--threads={threads}")));
    arguments.extend(["--regexp".to_owned(), text.to_owned(), ".".to_owned()]);
    arguments
}

/// A pipe would end the table's cell.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
