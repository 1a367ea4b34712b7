//! Answers of the tools that change files.

use model::Sha256;
use serde_json::Value;

use super::lines::PushLine as _;
use super::{Rendered, quote};
use crate::tool::output::{ChangeOutput, ToolOutput};

impl ToolOutput for ChangeOutput {
    /// Renders the summary, and a line for each of several files.
    fn to_text(&self) -> Rendered {
        let mut out = format!("{}\n", quote::one_line(&self.summary));
        let files = self.members.get("files").and_then(Value::as_array).filter(|files| files.len() > 1);
        for file in files.into_iter().flatten() {
            push_file(&mut out, file);
        }
        out.into()
    }

    fn sha256(&self) -> Option<Sha256> {
        let hash = ["newSha256", "sha256"].into_iter().find_map(|name| self.members.get(name)?.as_str());
        hash.and_then(|hash| Sha256::parse(hash).ok())
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn names_record(&self) -> bool {
        true
    }
}

fn push_file(out: &mut String, file: &Value) {
    let letter = match file["operation"].as_str() {
        Some("created") => 'A',
        Some("deleted") => 'D',
        Some("renamed") => 'R',
        Some("copied") => 'C',
        _ => 'M',
    };
    let path = quote::path(file["path"].as_str().unwrap_or_default());
    let counts = match (file["insertions"].as_u64(), file["deletions"].as_u64()) {
        (Some(insertions), Some(deletions)) if insertions + deletions > 0 => format!(" +{insertions} -{deletions}"),
        _ => String::new(),
    };
    match file["from"].as_str() {
        Some(from) => out.push_line(format_args!("{letter} {} -> {path}{counts}", quote::path(from))),
        None => out.push_line(format_args!("{letter} {path}{counts}")),
    }
}
