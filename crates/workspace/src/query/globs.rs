//! Glob filters of callers.

use globset::{ErrorKind, GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::types::{Types, TypesBuilder};
use model::{LogicalPath, Refusal, composed};

/// Compiled globs: which paths to include (`None`: all), and which of those to exclude.
pub(crate) struct QueryGlobs {
    include: Option<GlobSet>,
    exclude: GlobSet,
    /// The type of the files.
    types: Option<Types>,
}

impl QueryGlobs {
    /// Compiles globs: `*` does not match `/`, and a glob without `/` matches names at any depth. Others are matched from the root,
    /// and from `folder`, which is searched. A glob also matches the name that it is when `[ ] { }` are read as characters, and
    /// names that are canonically equal. An included glob that begins with `!` excludes what the rest of it matches, as for ripgrep.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the invalid glob.
    pub(crate) fn compile(folder: &LogicalPath, include: &[String], exclude: &[String]) -> Result<Self, Refusal> {
        let (negated, include): (Vec<_>, Vec<_>) = include.iter().partition(|glob| glob.starts_with('!'));
        let negated = negated.iter().map(|glob| glob.trim_start_matches('!'));
        let exclude: Vec<_> = exclude.iter().map(String::as_str).chain(negated).collect();
        let include: Vec<_> = include.iter().map(|glob| glob.as_str()).collect();
        let include = if include.is_empty() { None } else { Some(compile(folder, &include)?) };
        Ok(Self { include, exclude: compile(folder, &exclude)?, types: None })
    }

    /// Includes only files of a type, by the name that ripgrep has for it.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an unknown name.
    pub(crate) fn of_type(self, name: Option<&str>) -> Result<Self, Refusal> {
        let Some(name) = name else { return Ok(self) };
        let mut types = TypesBuilder::new();
        let types = types.add_defaults().select(name).build().map_err(|_| {
            let message = format!("the type {} is not known", model::excerpt(name, 100));
            Refusal::invalid(
                message,
                "Name one that ripgrep knows, such as `rust`, `ts`, `py` or `md`, or give a glob.",
            )
        })?;
        Ok(Self { types: Some(types), ..self })
    }

    /// Whether the file, or the folder with everything in it, is filtered out.
    pub(crate) fn is_excluded(&self, path: &LogicalPath, is_folder: bool) -> bool {
        let matches = |globs: &GlobSet| {
            let name = path.as_str();
            globs.is_match(name) || !name.is_ascii() && globs.is_match(&*composed(name))
        };
        if !self.exclude.is_empty() && matches(&self.exclude) {
            return true;
        }
        if !is_folder && self.types.as_ref().is_some_and(|types| !types.matched(path.as_str(), false).is_whitelist()) {
            return true;
        }
        match &self.include {
            Some(include) => !is_folder && !matches(include),
            None => false,
        }
    }
}

/// The maximum length of a glob, as in a policy. The compiled size grows with it.
const MAX_GLOB_BYTES: usize = 500;

fn compile(folder: &LogicalPath, globs: &[&str]) -> Result<GlobSet, Refusal> {
    let bad = |glob: &str, error: &globset::Error| {
        Refusal::invalid(
            format!("invalid glob `{glob}`: {}", error.kind()),
            "Use globs such as `*.rs`, `src/**` or `**/test_*.py`.",
        )
    };
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        if glob.len() > MAX_GLOB_BYTES {
            let message = format!("a glob has {} bytes; the limit is {MAX_GLOB_BYTES}", glob.len());
            return Err(Refusal::invalid(message, "Use shorter globs, such as `*.rs` or `src/**`."));
        }
        if glob.contains('\0') {
            return Err(Refusal::invalid("a glob contains a NUL byte, which no path has", "Remove the NUL byte."));
        }
        let trimmed = glob.strip_prefix("./").unwrap_or(glob);
        let trimmed = trimmed.strip_prefix('/').unwrap_or(trimmed);
        let (body, all) = match trimmed.strip_suffix('/') {
            Some(folder) => (folder, true),
            None => (trimmed, false),
        };
        let anywhere = if body.contains('/') || trimmed.len() < glob.len() { "" } else { "**/" };
        let tails: &[&str] = if all { &["", "/**"] } else { &[""] };
        let is_relative = anywhere.is_empty() && !glob.starts_with('/') && !folder.is_root();
        let folder = if is_relative { Some(literal(folder.as_str(), true, true) + "/") } else { None };
        let (mut is_valid, mut fault) = (false, None);
        for body in readings(body) {
            for start in [Some(anywhere), folder.as_deref()].into_iter().flatten() {
                for tail in tails {
                    let whole = format!("{start}{body}{tail}");
                    match GlobBuilder::new(&whole).literal_separator(true).build() {
                        Ok(compiled) => {
                            set.add(compiled);
                            is_valid = true;
                        }
                        Err(error) => fault = fault.or(Some(error)),
                    }
                }
            }
        }
        // `[[...sign-in]]` is no valid range, but a usual name.
        let is_range = |error: &globset::Error| matches!(error.kind(), ErrorKind::InvalidRange(..));
        if let Some(error) = fault.filter(|error| !is_valid || !is_range(error)) {
            return Err(bad(glob, &error));
        }
    }
    set.build().map_err(|error| bad(&globs.join(", "), &error))
}

/// The ways to read a glob: as it is, and with its brackets, its braces or both as characters of a name.
fn readings(glob: &str) -> Vec<String> {
    let mut readings = vec![glob.to_owned()];
    let (has_brackets, has_braces) = (glob.contains(['[', ']']), glob.contains(['{', '}']));
    // A glob with escapes says itself what its characters are.
    if !glob.contains('\\') {
        readings.extend(has_brackets.then(|| literal(glob, true, false)));
        readings.extend(has_braces.then(|| literal(glob, false, true)));
        readings.extend((has_brackets && has_braces).then(|| literal(glob, true, true)));
    }
    let composed: Vec<_> =
        readings.iter().filter(|glob| !glob.is_ascii()).map(|glob| composed(glob).into_owned()).collect();
    readings.extend(composed);
    readings
}

/// Escapes brackets, braces or both.
fn literal(glob: &str, brackets: bool, braces: bool) -> String {
    let is_escaped = |c: char| brackets && matches!(c, '[' | ']') || braces && matches!(c, '{' | '}');
    glob.chars().flat_map(|c| is_escaped(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::path;

    fn matches(folder: &str, glob: &str, file: &str) -> bool {
        let globs = QueryGlobs::compile(&path(folder), &[glob.to_owned()], &[]).unwrap();
        let excluding = QueryGlobs::compile(&path(folder), &[], &[glob.to_owned()]).unwrap();
        let is_included = !globs.is_excluded(&path(file), false);
        assert_eq!(excluding.is_excluded(&path(file), false), is_included, "{glob} {file}");
        is_included
    }

    #[test]
    fn a_glob_that_is_a_name_matches_it() {
        for (glob, file) in [
            ("app/[slug]/page.tsx", "app/[slug]/page.tsx"),
            ("app/[slug]/**", "app/[slug]/a/page.tsx"),
            ("[[...sign-in]].tsx", "app/[[...sign-in]].tsx"),
            ("app/{a}/b.txt", "app/{a}/b.txt"),
            ("app/[id]/*.{ts,tsx}", "app/[id]/a.ts"),
            ("[ab].txt", "a.txt"),
            ("*.{rs,py}", "x/a.py"),
            ("R\u{e9}s*", "Re\u{301}sume\u{301}.txt"),
            ("Re\u{301}s*", "R\u{e9}sum\u{e9}.txt"),
        ] {
            assert!(matches(".", glob, file), "{glob} {file}");
        }
        assert!(!matches(".", "[ab].txt", "c.txt") && !matches(".", "a/[b]", "a/[c]"));
        for invalid in ["[a", "{a", "a/[!"] {
            assert!(QueryGlobs::compile(&path("."), &[invalid.to_owned()], &[]).is_err(), "{invalid}");
        }
    }

    #[test]
    fn files_of_a_type_are_those_that_ripgrep_means() {
        let of_type =
            |name: &str| QueryGlobs::compile(&path("."), &["src/**".to_owned()], &[]).unwrap().of_type(Some(name));
        for (name, file, is_match) in [
            ("rust", "src/a.rs", true),
            ("rust", "b.rs", false),
            ("rust", "src/a.ts", false),
            ("cpp", "src/a.hpp", true),
            ("make", "src/Makefile", true),
            ("docker", "src/deep/Dockerfile", true),
            ("elixir", "src/a.exs", true),
        ] {
            assert_eq!(!of_type(name).unwrap().is_excluded(&path(file), false), is_match, "{name} {file}");
        }
        assert!(!of_type("rust").unwrap().is_excluded(&path("src"), true), "a folder has no type");
        assert!(of_type("nosuchtype").is_err_and(|refusal| refusal.message.contains("nosuchtype")));
    }

    #[test]
    fn a_glob_after_an_exclamation_mark_excludes() {
        let globs = |include: &[&str]| {
            let include: Vec<_> = include.iter().map(|glob| (*glob).to_owned()).collect();
            let globs = QueryGlobs::compile(&path("."), &include, &[]).unwrap();
            ["a.ts", "b.md", "docs/c.ts"].map(|file| !globs.is_excluded(&path(file), false))
        };
        assert_eq!(globs(&["!*.md"]), [true, false, true]);
        assert_eq!(globs(&["*.ts", "!docs/**"]), [true, false, false]);
        assert_eq!(globs(&["!/a.ts"]), [false, true, true]);
    }

    #[test]
    fn a_glob_with_a_folder_is_matched_from_the_root_and_from_the_folder() {
        for (folder, glob, file, is_match) in [
            ("src", "util/*.ts", "src/util/x.ts", true),
            ("src", "src/util/*.ts", "src/util/x.ts", true),
            ("src", "/util/*.ts", "src/util/x.ts", false),
            ("src", "./util/x.ts", "src/util/x.ts", true),
            ("app/[slug]", "ui/*.ts", "app/[slug]/ui/x.ts", true),
            ("src", "*.ts", "src/util/x.ts", true),
            (".", "util/*.ts", "src/util/x.ts", false),
        ] {
            assert_eq!(matches(folder, glob, file), is_match, "{folder} {glob}");
        }
    }
}
