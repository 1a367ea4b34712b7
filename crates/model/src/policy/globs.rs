//! Globs of a policy, compiled.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::confusables::fold_name;
use crate::{Code, LogicalPath, Refusal, excerpt};

/// How many globs one list may hold.
pub(super) const MAX_GLOBS: usize = 200;
/// How long one glob may be, in bytes.
pub(super) const MAX_GLOB_BYTES: usize = 500;

/// What a list of globs is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It says what may be touched: each glob means what it says.
    Allow,
    /// It says what may not be: each glob also matches everything under it, at any depth, in any letter case.
    Deny,
}

/// A compiled list of globs.
#[derive(Debug)]
pub(super) struct Globs {
    /// As the policy writes them.
    written: Vec<String>,
    /// Compiled; one of `written` may be several of these.
    set: GlobSet,
    /// For each of `set`, which of `written` it comes from.
    origins: Vec<usize>,
    purpose: Purpose,
    /// The first that matches everything. It is not compiled: most policies have no other, and a run shall be small.
    everything: Option<usize>,
}

/// A glob that does not compile.
#[derive(Debug, thiserror::Error)]
#[error("the glob `{glob}` is bad: {problem}")]
pub(super) struct BadGlob {
    glob: String,
    problem: String,
    /// Which of the list it is.
    pub(super) index: usize,
}

impl Globs {
    /// Compiles `globs`.
    ///
    /// # Errors
    ///
    /// The first bad one, or too many.
    pub(super) fn compile(purpose: Purpose, globs: &[String]) -> Result<Self, BadGlob> {
        let mut builder = GlobSetBuilder::new();
        let mut origins = Vec::new();
        let mut everything = None;
        for (index, glob) in globs.iter().enumerate() {
            let bad = |problem: String| BadGlob { glob: shorten(glob), problem, index };
            if index == MAX_GLOBS {
                return Err(bad(format!("it is one too many; a list holds at most {MAX_GLOBS}")));
            }
            check(glob).map_err(|problem| bad(problem.to_owned()))?;
            if matches!(glob.as_str(), "**" | "**/*") {
                everything = everything.or(Some(index));
                continue;
            }
            for pattern in patterns(purpose, glob) {
                builder.add(build(purpose, &pattern).map_err(|error| bad(error.kind().to_string()))?);
                origins.push(index);
            }
            // So that it also meets the paths that only look like those it names.
            if purpose == Purpose::Deny && !glob.is_ascii() {
                for built in
                    patterns(purpose, &fold_name(glob)).iter().filter_map(|pattern| build(purpose, pattern).ok())
                {
                    builder.add(built);
                    origins.push(index);
                }
            }
        }
        let set = builder.build().map_err(|error| BadGlob {
            glob: shorten(globs.first().map_or("", String::as_str)),
            problem: format!(
                "it and the {} others of its list are too large together: {}",
                globs.len() - 1,
                error.kind()
            ),
            index: 0,
        })?;
        Ok(Self { written: globs.to_vec(), set, origins, purpose, everything })
    }

    /// Whether one of them matches.
    pub(super) fn matches(&self, path: &LogicalPath) -> bool {
        self.everything.is_some()
            || (!self.set.is_empty()
                && (self.set.is_match(path.as_str()) || self.folded(path).is_some_and(|path| self.set.is_match(path))))
    }

    /// Every one that matches, as the policy writes it, in its order.
    pub(super) fn matching(&self, path: &LogicalPath) -> Vec<&str> {
        let mut found = Vec::new();
        if !self.set.is_empty() {
            self.set.matches_into(path.as_str(), &mut found);
            found.extend(self.folded(path).into_iter().flat_map(|path| self.set.matches(path)));
        }
        let mut indices: Vec<_> = found.into_iter().map(|at| self.origins[at]).chain(self.everything).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.written[index].as_str()).collect()
    }

    /// What `path` looks like, where look-alikes are denied too.
    fn folded(&self, path: &LogicalPath) -> Option<String> {
        let differs = self.purpose == Purpose::Deny && !path.as_str().is_ascii();
        differs.then(|| path.components().map(fold_name).collect::<Vec<_>>().join("/"))
    }
}

impl From<BadGlob> for Refusal {
    fn from(bad: BadGlob) -> Self {
        Self::new(
            Code::InvalidRequest,
            bad.to_string(),
            "Write globs relative to the root of the tree, such as `src/**` or `docs/*.md`.",
        )
    }
}

fn build(purpose: Purpose, pattern: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(purpose == Purpose::Deny)
        .build()
}

fn check(glob: &str) -> Result<(), &'static str> {
    let rest = glob.trim_start_matches("./").trim_matches('/');
    if glob.len() > MAX_GLOB_BYTES {
        Err("it is longer than 500 bytes")
    } else if rest.is_empty() {
        Err("it is empty")
    } else if glob.contains(char::is_control) {
        Err("it holds a control character")
    } else if glob.starts_with('!') {
        Err("there is no negation; use `deny`")
    } else if rest.split('/').any(|name| name == ".." || name == ".") {
        Err("a path has no `.` or `..`, so it would never match")
    } else {
        Ok(())
    }
}

/// Expands `glob` to patterns over a whole path.
fn patterns(purpose: Purpose, glob: &str) -> Vec<String> {
    let anchored = glob.strip_prefix("./").unwrap_or(glob);
    let rest = anchored.trim_start_matches('/');
    let folder = rest.strip_suffix('/').map(|folder| folder.trim_end_matches('/'));
    match purpose {
        Purpose::Allow => vec![folder.map_or_else(|| rest.to_owned(), |folder| format!("{folder}/**"))],
        Purpose::Deny => {
            let base = folder.unwrap_or(rest);
            let mut patterns = vec![base.to_owned(), format!("{base}/**")];
            if !base.contains('/') && anchored == rest && !glob.starts_with("./") {
                patterns.extend([format!("**/{base}"), format!("**/{base}/**")]);
            }
            // `secrets/**` means the folder, and so the folder itself.
            if let Some(folder) = base.strip_suffix("/**") {
                patterns.push(folder.to_owned());
            }
            patterns
        }
    }
}

fn shorten(glob: &str) -> String {
    excerpt(glob, 100).chars().filter(|c| !c.is_control()).collect()
}
