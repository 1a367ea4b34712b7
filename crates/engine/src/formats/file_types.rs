//! Types of files, as ripgrep names them, and the files of a type that a glob matches.

use model::Refusal;

use super::refusals::repeated;

/// The globs of types of files, by the names that ripgrep has for them.
const FILE_TYPES: [(&str, &[&str]); 22] = [
    ("c", &["*.c", "*.h"]),
    ("cpp", &["*.cpp", "*.cc", "*.cxx", "*.hpp", "*.hh", "*.h"]),
    ("cs", &["*.cs"]),
    ("css", &["*.css", "*.scss"]),
    ("go", &["*.go"]),
    ("html", &["*.html", "*.htm"]),
    ("java", &["*.java"]),
    ("js", &["*.js", "*.jsx", "*.mjs", "*.cjs", "*.vue"]),
    ("json", &["*.json"]),
    ("kotlin", &["*.kt", "*.kts"]),
    ("lua", &["*.lua"]),
    ("md", &["*.md", "*.markdown"]),
    ("php", &["*.php"]),
    ("py", &["*.py", "*.pyi"]),
    ("ruby", &["*.rb"]),
    ("rust", &["*.rs"]),
    ("sh", &["*.sh", "*.bash", "*.zsh"]),
    ("sql", &["*.sql"]),
    ("swift", &["*.swift"]),
    ("toml", &["*.toml"]),
    ("ts", &["*.ts", "*.tsx", "*.mts", "*.cts"]),
    ("yaml", &["*.yaml", "*.yml"]),
];

/// A glob that matches no file: the root has no name.
const NOTHING: &str = "/";

/// Returns the globs of a type of files.
///
/// # Errors
///
/// `INVALID_REQUEST`, which names the types.
pub(super) fn of_type(named: &str) -> Result<&'static [&'static str], Refusal> {
    FILE_TYPES.iter().find(|(name, _)| *name == named).map(|(_, globs)| *globs).ok_or_else(|| {
        let message = format!("the type {} is not known", repeated(named));
        let names: Vec<_> = FILE_TYPES.iter().map(|(name, _)| *name).collect();
        Refusal::invalid(message, format!("Give a glob instead, or one of {}.", names.join(", ")))
    })
}

/// Returns globs of the files of a type that `glob` matches as well. A search takes globs of which one must match.
///
/// # Errors
///
/// As [`of_type`]; `INVALID_REQUEST` for a glob whose end says too little of the end of a name.
pub(super) fn of_type_within(named: &str, glob: &str) -> Result<Vec<String>, Refusal> {
    let extensions: Vec<_> = of_type(named)?.iter().map(|glob| glob.trim_start_matches('*')).collect();
    let mut globs = Vec::new();
    for alternative in alternatives(glob) {
        let found = extensions.iter().map(|extension| with_extension(&alternative, extension));
        let found: Option<Vec<_>> = found.collect();
        globs.extend(found.ok_or_else(|| {
            let message = format!("`glob` {} cannot be combined with a `type`", repeated(glob));
            Refusal::invalid(message, "Give a glob that ends in the extension, without a type.")
        })?);
    }
    let mut globs: Vec<_> = globs.into_iter().flatten().collect();
    globs.sort_unstable();
    globs.dedup();
    Ok(if globs.is_empty() { vec![NOTHING.to_owned()] } else { globs })
}

/// Returns globs of the files with this extension that `glob`, which has no alternatives, matches as well; `None` if its end does not say
/// which.
fn with_extension(glob: &str, extension: &str) -> Option<Vec<String>> {
    if glob.ends_with('/') {
        return Some(vec![format!("{glob}**/*{extension}")]);
    }
    if glob == "**" || glob.ends_with("/**") {
        return Some(vec![format!("{glob}/*{extension}")]);
    }
    let Some(wild) = glob.rfind(['*', '?', ']']).filter(|at| *at >= glob.rfind('/').unwrap_or_default()) else {
        return Some(if glob.ends_with(extension) { vec![glob.to_owned()] } else { Vec::new() });
    };
    let end = &glob[wild + 1..];
    if end.ends_with(extension) {
        return Some(vec![glob.to_owned()]);
    }
    if end.contains('.') {
        return Some(Vec::new());
    }
    let start = glob.strip_suffix('*').filter(|start| !start.ends_with('*'))?;
    if start.is_empty() || start.ends_with('/') {
        return Some(vec![format!("{start}*{extension}")]);
    }
    // What comes before the star may have the beginning of the extension.
    let overlaps = (1..=extension.len()).filter(|at| start.ends_with(&extension[..*at]));
    let mut globs: Vec<_> = overlaps.map(|at| format!("{start}{}", &extension[at..])).collect();
    globs.push(format!("{glob}{extension}"));
    Some(globs)
}

/// Returns the alternatives of a glob with `{a,b}`, also within each other. A glob without them is its own alternative.
fn alternatives(glob: &str) -> Vec<String> {
    /// Bounds what a short glob with many alternatives becomes.
    const MOST: usize = 100;
    let (mut open, mut done) = (vec![glob.to_owned()], Vec::new());
    while let Some(glob) = open.pop() {
        // The innermost one.
        let inner = glob.find('}').and_then(|end| Some((glob[..end].rfind('{')?, end)));
        match inner {
            Some((start, end)) if open.len() + done.len() < MOST => {
                let parts = glob[start + 1..end].split(',');
                open.extend(parts.map(|part| format!("{}{part}{}", &glob[..start], &glob[end + 1..])));
            }
            Some(_) | None => done.push(glob),
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::of_type_within;

    #[test]
    fn a_type_and_a_glob_are_both_matched() {
        let table: [(&str, &str, &[&str]); 12] = [
            ("rust", "src/**", &["src/**/*.rs"]),
            ("rust", "src/", &["src/**/*.rs"]),
            ("rust", "*", &["*.rs"]),
            ("rust", "src/foo*", &["src/foo*.rs"]),
            ("rust", "*.rs", &["*.rs"]),
            ("rust", "*.{rs,ts}", &["*.rs"]),
            ("rust", "*.ts", &["/"]),
            ("rust", "foo.*", &["foo.*.rs", "foo.rs"]),
            ("rust", "a.r*", &["a.r*.rs", "a.rs"]),
            ("py", "src/main.py", &["src/main.py"]),
            ("py", "{src,lib}/**", &["lib/**/*.py", "lib/**/*.pyi", "src/**/*.py", "src/**/*.pyi"]),
            ("c", "**/*.h", &["**/*.h"]),
        ];
        for (named, glob, want) in table {
            let globs = of_type_within(named, glob).map_err(|refusal| refusal.message);
            assert_eq!(globs.as_deref(), Ok(&want.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>()[..]));
        }
        assert!(of_type_within("rust", "*x?").is_err() && of_type_within("cobol", "*").is_err());
    }
}
