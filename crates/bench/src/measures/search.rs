//! `search_text` over the whole tree. Baseline: `rg` with the same query and files.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::api::RunHandle;
use crate::baselines::programs::{is_installed, program};
use crate::compare::compare;
use crate::load::Script;
use crate::measures::{import, plan};
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::tree::{COMMON_LITERAL, RARE_LITERAL};

/// A query with alternative texts: not every tree contains the first one.
struct Query {
    name: &'static str,
    mode: &'static str,
    texts: &'static [&'static str],
    /// The wanted number of matches: under 1,000, so that the service searches all files, as `rg` does.
    matches: std::ops::RangeInclusive<usize>,
}

const QUERIES: [Query; 3] = [
    Query {
        name: "rare literal",
        mode: "literal",
        texts: &[RARE_LITERAL, "unwind_safe", "set_nodelay", "HTTP_1_1"],
        matches: 1..=30,
    },
    Query {
        name: "common literal",
        mode: "literal",
        texts: &[COMMON_LITERAL, "PhantomData<fn", "catch_unwind", "poll_shutdown"],
        matches: 100..=999,
    },
    Query {
        name: "regex",
        mode: "regex",
        texts: &[r"fn\s+poll_\w+\s*\(", r"impl.*Future\s+for\s+\w+", r"reed_of_\w+_marsh\(\d+\)"],
        matches: 30..=999,
    },
];

/// Measures searches.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let run = import::tree_run(testbed, report)?;
    let tree = testbed.tree()?;
    let has_rg = is_installed(&testbed.options.rg);
    for query in &QUERIES {
        let text = choose(testbed, report, run, query)?;
        let input = json!({ "query": text, "mode": query.mode, "maxMatches": 1000 });
        for &connections in &testbed.options.connections {
            let script = |_| Ok(Script::new(vec![run.prepare("search_text", &input)?]));
            let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
            let mut searches =
                testbed.service(format!("search of the tree: {} `{}`", query.name, escaped(text)), scripts);
            let mut rg = program("`rg`", &testbed.options.rg, arguments(query.mode, text, None), tree, &[0]);
            let mut two =
                program("`rg` with 2 threads", &testbed.options.rg, arguments(query.mode, text, Some(2)), tree, &[0]);
            let mut baselines: Vec<crate::compare::Baseline<'_>> = Vec::new();
            if has_rg {
                baselines.push((&mut rg, Some(Target::TimesTheTime(0.9))));
                baselines.push((&mut two, None));
            }
            report.rows.push(compare(plan(&testbed.options, connections), &mut searches, &mut baselines)?);
        }
    }
    Ok(())
}

/// Returns the first text with the wanted number of matches, or the one with the most.
fn choose(testbed: &Testbed, report: &mut Report, run: &RunHandle, query: &Query) -> anyhow::Result<&'static str> {
    let mut best: Option<(&str, usize, Value)> = None;
    for text in query.texts {
        let answer =
            testbed.tool(run, "search_text", &json!({ "query": text, "mode": query.mode, "maxMatches": 1000 }))?;
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
    let (text, matches, files) = best.with_context(|| format!("the tree has no match for a {}", query.name))?;
    report.notes.push(format!("{} `{}`: {matches} matches in {files} files searched.", query.name, escaped(text)));
    Ok(text)
}

/// Returns arguments for the files that the service searches: also hidden ones; ignored ones by the tree's own rules only.
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

/// Escapes pipes for a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
