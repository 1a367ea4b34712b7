//! Paths as formats write them: absolute ones are under one folder, the root of the run.

use engine::tools::URI_SCHEME;
use model::{Code, Refusal, excerpt};

/// The folder that stands for the root of the run.
pub const ROOT: &str = "/workspace";

/// Returns a path from the root of the run. The engine judges it.
pub(crate) fn strip(raw: &str) -> Result<String, Refusal> {
    let under = raw.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    match under.map(|rest| rest.trim_start_matches('/')) {
        Some("") => Ok(".".to_owned()),
        Some(path) => Ok(path.to_owned()),
        None if !raw.starts_with('/') || raw.starts_with(URI_SCHEME) => Ok(raw.to_owned()),
        None => {
            let shown = excerpt(raw, 200);
            let message = format!("Path must start with {ROOT}, got: {shown}");
            let hint = format!("Give a path under `{ROOT}`, which is the root of all files here.");
            Err(Refusal::new(Code::PathRejected, message, hint).with_details(|details| details.path = Some(shown)))
        }
    }
}

/// As [`strip`], for a folder that may be empty.
pub(crate) fn strip_folder(raw: &str) -> Result<String, Refusal> {
    if raw.is_empty() { Ok(".".to_owned()) } else { strip(raw) }
}

/// Returns a glob from the root of the run. One that is not absolute is relative to the folder that is searched, and `!` before it
/// excludes.
pub(crate) fn strip_glob(glob: &str) -> Result<String, Refusal> {
    if let Some(excluded) = glob.strip_prefix('!') {
        return Ok(format!("!{}", strip_glob(excluded)?));
    }
    if glob.starts_with('/') { Ok(format!("/{}", strip(glob)?)) } else { Ok(glob.to_owned()) }
}

/// Returns the globs of a search that ripgrep would be given one by one: separated by blanks, and by commas outside of braces.
pub(crate) fn globs(list: &str) -> Result<Vec<String>, Refusal> {
    let has_braces = |part: &str| part.contains('{') && part.contains('}');
    let parts = list.split_whitespace().flat_map(|part| part.split(move |c: char| c == ',' && !has_braces(part)));
    parts.filter(|part| !part.is_empty()).map(strip_glob).collect()
}

/// Returns how a format writes a path from the root of the run.
pub(crate) fn show(path: &str) -> String {
    match path {
        "" | "." => ROOT.to_owned(),
        path => format!("{ROOT}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::globs;

    #[test]
    fn globs_are_taken_one_by_one_and_may_exclude() {
        let table: [(&str, &[&str]); 4] = [
            ("*.{ts,tsx}", &["*.{ts,tsx}"]),
            ("*.ts,*.md !docs/** ", &["*.ts", "*.md", "!docs/**"]),
            ("!*.md", &["!*.md"]),
            ("!/workspace/docs/**", &["!/docs/**"]),
        ];
        for (list, want) in table {
            let globs = globs(list).map_err(|refusal| refusal.message);
            assert_eq!(globs, Ok(want.iter().map(|glob| (*glob).to_owned()).collect()), "{list}");
        }
    }
}
