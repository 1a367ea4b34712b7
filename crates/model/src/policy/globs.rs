//! Compiled globs of a policy.

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::glob_mistake::glob_mistake;
use crate::path::confusables::fold_name;
use crate::{Code, LogicalPath, Refusal, excerpt};

/// The maximum number of globs in a list.
pub(super) const MAX_GLOBS: usize = 200;
/// The maximum length of a glob, in bytes.
pub(super) const MAX_GLOB_BYTES: usize = 500;

/// The purpose of a list of globs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The list permits paths: each glob matches exactly.
    Allow,
    /// The list denies paths or asks a person about them: each glob also matches everything under it, in any letter case.
    Deny,
}

/// A compiled list of globs.
#[derive(Debug)]
pub(super) struct Globs {
    /// The globs as the policy states them.
    sources: Vec<String>,
    /// The compiled patterns. A glob may have several.
    set: GlobSet,
    /// For each pattern of `set`, the index of its glob in `sources`.
    origins: Vec<usize>,
    purpose: Purpose,
    /// The first glob that matches everything. It is not compiled, because most policies have no other, and it costs memory in
    /// every run.
    everything: Option<usize>,
}

/// An invalid glob.
#[derive(Debug, thiserror::Error)]
#[error("invalid glob `{glob}`: {problem}")]
pub(super) struct InvalidGlob {
    glob: String,
    problem: String,
    /// Its index in the list.
    pub(super) index: usize,
}

impl Globs {
    /// Compiles `globs`.
    ///
    /// # Errors
    ///
    /// The first invalid glob, or the first one beyond [`MAX_GLOBS`].
    pub(super) fn compile(purpose: Purpose, globs: &[String]) -> Result<Self, InvalidGlob> {
        let mut builder = GlobSetBuilder::new();
        let mut origins = Vec::new();
        let mut everything = None;
        for (index, glob) in globs.iter().enumerate() {
            let invalid = |problem: String| InvalidGlob { glob: shorten(glob), problem, index };
            if index == MAX_GLOBS {
                return Err(invalid(format!("a list may have at most {MAX_GLOBS} globs")));
            }
            check(glob).map_err(invalid)?;
            if matches!(glob.as_str(), "**" | "**/*") {
                everything = everything.or(Some(index));
                continue;
            }
            for pattern in patterns(purpose, glob) {
                builder.add(build(purpose, &pattern).map_err(|error| invalid(error.kind().to_string()))?);
                origins.push(index);
            }
            // Also matches paths that look like those that the glob names.
            if purpose == Purpose::Deny && !glob.is_ascii() {
                for built in
                    patterns(purpose, &fold_name(glob)).iter().filter_map(|pattern| build(purpose, pattern).ok())
                {
                    builder.add(built);
                    origins.push(index);
                }
            }
        }
        let set = builder.build().map_err(|error| InvalidGlob {
            glob: shorten(globs.first().map_or("", String::as_str)),
            problem: format!("the {} globs of its list are too large together: {}", globs.len(), error.kind()),
            index: 0,
        })?;
        Ok(Self { sources: globs.to_vec(), set, origins, purpose, everything })
    }

    /// Whether any glob matches.
    pub(super) fn matches(&self, path: &LogicalPath) -> bool {
        self.everything.is_some()
            || (!self.set.is_empty()
                && (self.set.is_match(path.as_str()) || self.folded(path).is_some_and(|path| self.set.is_match(path))))
    }

    /// Returns every glob that matches, as the policy states it and in its order.
    pub(super) fn matching(&self, path: &LogicalPath) -> Vec<&str> {
        let mut found = Vec::new();
        if !self.set.is_empty() {
            self.set.matches_into(path.as_str(), &mut found);
            found.extend(self.folded(path).into_iter().flat_map(|path| self.set.matches(path)));
        }
        let mut indices: Vec<_> = found.into_iter().map(|at| self.origins[at]).chain(self.everything).collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| self.sources[index].as_str()).collect()
    }

    /// Returns the form of `path` that its look-alikes share, if the list also matches look-alikes.
    fn folded(&self, path: &LogicalPath) -> Option<String> {
        let differs = self.purpose == Purpose::Deny && !path.as_str().is_ascii();
        differs.then(|| path.components().map(fold_name).collect::<Vec<_>>().join("/"))
    }
}

impl From<InvalidGlob> for Refusal {
    fn from(glob: InvalidGlob) -> Self {
        Self::new(
            Code::InvalidRequest,
            glob.to_string(),
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

fn check(glob: &str) -> Result<(), String> {
    let rest = glob.trim_start_matches("./").trim_matches('/');
    if glob.len() > MAX_GLOB_BYTES {
        Err("it is longer than 500 bytes".to_owned())
    } else if rest.trim().is_empty() {
        Err("it is empty".to_owned())
    } else if glob.contains(char::is_control) {
        Err("it contains a control character".to_owned())
    } else if glob.starts_with('!') {
        Err("globs have no negation; use `deny`".to_owned())
    } else if let Some(mistake) = glob_mistake(glob) {
        Err(format!("it matches no path: {mistake}"))
    } else {
        Ok(())
    }
}

/// Returns the patterns of `glob`, which match whole paths.
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
            // `secrets/**` also denies the folder itself.
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
