//! Globs that can match no path of a tree.

/// How often a spelling is corrected: each correction may uncover another mistake.
const MAX_CORRECTIONS: usize = 4;
/// Names of folders that hold the homes or workspaces of a machine.
const MACHINE_FOLDERS: [&str; 4] = ["/home/", "/Users/", "/root/", "/workspaces/"];
/// Beginnings that name the root of the tree, or what people take for it.
const ROOTS: [&str; 8] =
    ["~/", "$HOME/", "${HOME}/", "$PWD/", "${PWD}/", "workspace:///", "file:///workspace/", "/workspace/"];

/// Returns why `glob` can match no path of a tree, with its correct spelling; `None` if it can.
pub fn glob_mistake(glob: &str) -> Option<String> {
    let (mut problem, mut globs) = mistake(glob)?;
    for _ in 0..MAX_CORRECTIONS {
        globs = globs.into_iter().flat_map(|glob| mistake(&glob).map_or(vec![glob], |(_, globs)| globs)).collect();
    }
    globs.retain(|glob| !glob.is_empty());
    if problem.is_empty() {
        problem = "paths are relative to the root of the tree";
    }
    Some(match globs.as_slice() {
        [] => format!("{problem}; write it relative to the root of the tree, such as `src/**`"),
        [one] => format!("{problem}; write `{one}`"),
        several => format!("{problem}; write {} globs: `{}`", several.len(), several.join("`, `")),
    })
}

/// Returns the first mistake of a glob, and the globs that were meant.
fn mistake(glob: &str) -> Option<(&'static str, Vec<String>)> {
    let one = |problem, glob: &str| Some((problem, vec![glob.to_owned()]));
    if glob.trim() != glob {
        return one("it begins or ends with a blank", glob.trim());
    }
    if let Some(inner) = ['"', '\'', '`'].iter().find_map(|quote| glob.strip_prefix(*quote)?.strip_suffix(*quote)) {
        return one("its quotes belong to it", inner);
    }
    if has_separating_backslash(glob) {
        return one("a backslash escapes the character after it; `/` separates folders", &glob.replace('\\', "/"));
    }
    let pieces = split_at_commas(glob);
    if pieces.len() > 1 && pieces.iter().all(|piece| !piece.trim().is_empty()) {
        let globs = pieces.iter().map(|piece| piece.trim().to_owned()).collect();
        return Some(("a comma separates alternatives only in braces, and `\\,` is one in a name", globs));
    }
    for root in ROOTS {
        if let Some(rest) = glob.strip_prefix(root) {
            return one("", if rest.is_empty() { "**" } else { rest });
        }
        if glob == root.trim_end_matches('/') && root != "workspace:///" {
            return one("", "**");
        }
    }
    let mut chars = glob.chars();
    let is_drive = chars.next().is_some_and(|c| c.is_ascii_alphabetic()) && chars.as_str().starts_with(":/");
    if is_drive || glob.contains("://") || MACHINE_FOLDERS.iter().any(|folder| glob.starts_with(folder)) {
        return Some(("it is a path of a machine", Vec::new()));
    }
    // A leading `/` or `./` is the root.
    let rest = glob.trim_start_matches("./").trim_matches('/');
    if rest.split('/').any(|name| matches!(name, "" | "." | "..")) && !rest.is_empty() {
        return one("no path has an empty name, `.` or `..`", &normalized(rest));
    }
    None
}

/// Whether a backslash is meant to separate folders: it escapes no special character of a name.
fn has_separating_backslash(glob: &str) -> bool {
    let mut chars = glob.chars();
    while let Some(c) = chars.next() {
        if c == '\\' && !chars.next().is_some_and(|c| "[]{},\\!".contains(c)) {
            return true;
        }
    }
    false
}

/// Splits a glob at its commas outside of braces and brackets.
fn split_at_commas(glob: &str) -> Vec<&str> {
    let (mut pieces, mut start, mut depth, mut is_escaped) = (Vec::new(), 0, 0_usize, false);
    for (at, c) in glob.char_indices() {
        match c {
            _ if is_escaped => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                pieces.push(&glob[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    pieces.push(&glob[start..]);
    pieces
}

/// Resolves `.`, `..` and empty names; empty if nothing is left, or the glob leaves the tree.
fn normalized(glob: &str) -> String {
    let mut names = Vec::new();
    for name in glob.split('/') {
        match name {
            "" | "." => {}
            ".." => match names.pop() {
                Some(above) if above != "**" => {}
                Some(_) | None => return String::new(),
            },
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_that_match_no_path_are_corrected() {
        for (glob, correct) in [
            ("/workspace/secret/**", "write `secret/**`"),
            ("/workspace", "write `**`"),
            ("workspace:///src/**", "write `src/**`"),
            ("~/x/**", "write `x/**`"),
            ("$HOME/x", "write `x`"),
            ("~", "write `**`"),
            ("plans/** ", "write `plans/**`"),
            ("\tplans/**", "write `plans/**`"),
            ("secret,docs", "write 2 globs: `secret`, `docs`"),
            ("src/{a,b}/**, ~/docs/ ", "write 2 globs: `src/{a,b}/**`, `docs/`"),
            ("src\\secret\\**", "write `src/secret/**`"),
            ("src\\*.rs", "write `src/*.rs`"),
            ("\"src/**\"", "write `src/**`"),
            ("../secret/**", "write it relative to the root of the tree"),
            ("a/../secret/**", "write `secret/**`"),
            ("a//b", "write `a/b`"),
            ("a/./b", "write `a/b`"),
            ("/home/me/project/src/**", "write it relative"),
            ("/Users/me/**", "write it relative"),
            ("C:\\project\\src", "write it relative"),
            ("C:/project", "write it relative"),
        ] {
            let mistake = glob_mistake(glob).unwrap_or_default();
            assert!(mistake.contains(correct), "{glob}: {mistake}");
        }
        for glob in [
            "secret",
            "secret/",
            "/secret",
            "./secret/**",
            "**/secret/**",
            "**",
            "a/{b,c}/*.{rs,ts}",
            "[a,b]",
            "a\\,b",
            "app/\\[id\\]/**",
            "/tmp/**",
            "workspace/**",
            "**/workspace/x",
            "a b/c",
            ".env",
            "...",
            "a..b",
            "$types",
            "x~",
            "",
            "/",
            ",",
            "!a",
        ] {
            assert_eq!(glob_mistake(glob), None, "{glob}");
        }
    }
}
