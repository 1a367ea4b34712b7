//! Globs of a policy, compiled.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::kind::fold_name;
use crate::{Code, LogicalPath, Refusal};

/// How many globs one list may hold.
pub(super) const MAX_GLOBS: usize = 200;
/// How long one glob may be, in bytes.
pub(super) const MAX_GLOB_BYTES: usize = 500;

/// What a list of globs is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It says what may be touched: each glob means what it says.
    Allow,
    /// It says what may not be: each glob also means what lies beneath, at any depth, in any letter case.
    Deny,
}

/// A compiled list of globs.
#[derive(Debug)]
pub(super) struct Globs {
    /// As the policy writes them.
    globs: Vec<String>,
    /// Compiled; one of `globs` may be several of these.
    set: GlobSet,
    /// For each of `set`, which of `globs` it comes from.
    origins: Vec<usize>,
    purpose: Purpose,
    /// Whether one of them matches everything, so that no path need be matched.
    all: bool,
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
        for (index, glob) in globs.iter().enumerate() {
            let bad = |problem: String| BadGlob { glob: shorten(glob), problem, index };
            if index == MAX_GLOBS {
                return Err(bad(format!("it is one too many; a list holds at most {MAX_GLOBS}")));
            }
            check(glob).map_err(|problem| bad(problem.to_owned()))?;
            for pattern in patterns(purpose, glob) {
                let built = GlobBuilder::new(&pattern)
                    .literal_separator(true)
                    .backslash_escape(true)
                    .case_insensitive(purpose == Purpose::Deny)
                    .build()
                    .map_err(|error| bad(error.kind().to_string()))?;
                builder.add(built);
                origins.push(index);
            }
        }
        let set = builder.build().map_err(|error| BadGlob {
            glob: error.glob().unwrap_or_default().to_owned(),
            problem: error.kind().to_string(),
            index: 0,
        })?;
        let all = globs.iter().any(|glob| glob == "**" || glob == "**/*");
        Ok(Self { globs: globs.to_vec(), set, origins, purpose, all })
    }

    /// Whether one of them matches.
    pub(super) fn matches(&self, path: &LogicalPath) -> bool {
        self.all || (!self.set.is_empty() && self.set.is_match(path.as_str()))
    }

    /// Every one that matches, as the policy writes it, in its order.
    pub(super) fn matching(&self, path: &LogicalPath) -> Vec<&str> {
        if self.set.is_empty() {
            return Vec::new();
        }
        let mut found = self.set.matches(path.as_str());
        if self.purpose == Purpose::Deny && !path.as_str().is_ascii() {
            let folded: Vec<_> = path.names().map(fold_name).collect();
            found.extend(self.set.matches(folded.join("/")));
        }
        let mut indices: Vec<_> = found.into_iter().map(|at| self.origins[at]).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.globs[index].as_str()).collect()
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

/// What `glob` stands for, as patterns over a whole path.
fn patterns(purpose: Purpose, glob: &str) -> Vec<String> {
    let anchored = glob.strip_prefix("./").unwrap_or(glob);
    let rest = anchored.trim_start_matches('/');
    let folder = rest.strip_suffix('/').map(|folder| folder.trim_end_matches('/'));
    match purpose {
        Purpose::Allow => vec![folder.map_or_else(|| rest.to_owned(), |folder| format!("{folder}/**"))],
        Purpose::Deny => {
            let place = folder.unwrap_or(rest);
            let mut patterns = vec![place.to_owned(), format!("{place}/**")];
            if !place.contains('/') && anchored == rest && !glob.starts_with("./") {
                patterns.extend([format!("**/{place}"), format!("**/{place}/**")]);
            }
            // `secrets/**` means the folder, and so the folder itself.
            if let Some(folder) = place.strip_suffix("/**") {
                patterns.push(folder.to_owned());
            }
            patterns
        }
    }
}

fn shorten(glob: &str) -> String {
    glob.chars().filter(|c| !c.is_control()).take(100).collect()
}
