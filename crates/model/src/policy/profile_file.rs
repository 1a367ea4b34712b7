//! An operator's profiles in the TOML file of settings.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::approval_rule::ApprovalRuleOverrides;
use super::budget::BudgetOverrides;
use super::commands::CommandOverrides;
use super::definition::{OutsideChanges, Policy, PolicyOverrides, Trigger};
use super::globs::{Globs, Purpose};
use super::kind_decision::KindDecision;
use super::profiles::{MAX_FILE_BYTES, MAX_NUMBER, Profiles, with_overrides};
use super::quota::QuotaOverrides;
use crate::{FileKind, Verdict};

/// An error in a file of profiles, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ProfileFileError {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong, in one line.
    pub message: String,
}

/// The rest of the file is not read here.
#[derive(Deserialize)]
struct ParsedFile {
    #[serde(default)]
    profiles: BTreeMap<Spanned<String>, Spanned<Profile>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Profile {
    extends: Option<Spanned<String>>,
    read: Option<Vec<Spanned<String>>>,
    write: Option<Vec<Spanned<String>>>,
    deny: Option<Vec<Spanned<String>>>,
    ask: Option<Vec<Spanned<String>>>,
    not_secret: Option<Vec<Spanned<String>>>,
    kinds: Option<Spanned<BTreeMap<FileKind, KindDecision>>>,
    budget: Option<BudgetOverrides>,
    command_budget: Option<BudgetOverrides>,
    file_budget: Option<Verdict>,
    run_budget: Option<BudgetOverrides>,
    quota: Option<QuotaOverrides>,
    max_file_bytes: Option<Spanned<u64>>,
    max_transfer_bytes: Option<Spanned<u64>>,
    require_approval_if: Option<BTreeSet<Trigger>>,
    approval: Option<ApprovalRuleOverrides>,
    allow_mode_change: Option<bool>,
    ignored_files: Option<Verdict>,
    symbolic_links: Option<Verdict>,
    outside_changes: Option<OutsideChanges>,
    commands: Option<Spanned<CommandOverrides>>,
}

/// The offset of an error in bytes, and what is wrong.
type ErrorAt = (usize, String);

impl Profiles {
    /// Returns the built-in profiles and those of an operator's file of settings.
    ///
    /// A profile is a table `[profiles.NAME]` with the members of `policy` in `POST /v1/runs`. Missing members have the values
    /// of the built-in profile that `extends` names, by default `SUPERVISED_PR`:
    ///
    /// ```toml
    /// [profiles.DOCS]
    /// extends = "AUTONOMOUS"
    /// write = ["docs/**", "*.md"]
    /// deny = ["docs/legal/"]
    /// budget = { maxFilesTouched = 5 }
    /// requireApprovalIf = ["deletesFile"]
    /// ```
    ///
    /// # Errors
    ///
    /// The first error with its line and column: invalid TOML, an unknown key, an invalid glob, a kind that must be denied, a
    /// number that is too large, or the name of a built-in profile.
    pub fn with_toml(text: &str) -> Result<Self, ProfileFileError> {
        let at = |(byte, message): ErrorAt| locate(text, byte, message);
        let file: ParsedFile = toml::from_str(text).map_err(|error| {
            at((error.span().map_or(0, |span| span.start), error.message().lines().collect::<Vec<_>>().join(" ")))
        })?;
        let built_in = Self::built_in();
        let mut all = built_in.clone();
        for (name, profile) in file.profiles {
            check_name(&built_in, &name).map_err(at)?;
            let start = profile.span().start;
            all.insert(profile.into_inner().resolve(&built_in, name.into_inner(), start).map_err(at)?);
        }
        Ok(all)
    }
}

impl Profile {
    fn resolve(self, built_in: &Profiles, name: String, start: usize) -> Result<Policy, ErrorAt> {
        let extends = self.extends.as_ref();
        let base = built_in.get(extends.map_or("SUPERVISED_PR", |extends| extends.get_ref())).ok_or_else(|| {
            let names: Vec<_> = built_in.names().collect();
            (
                extends.map_or(start, |extends| extends.span().start),
                format!("`extends` must be one of {}", names.join(", ")),
            )
        })?;
        for (purpose, globs) in [
            (Purpose::Allow, &self.read),
            (Purpose::Allow, &self.write),
            (Purpose::Allow, &self.not_secret),
            (Purpose::Deny, &self.deny),
            (Purpose::Deny, &self.ask),
        ] {
            check_globs(purpose, globs.as_deref().unwrap_or_default())?;
        }
        let commands_at = self.commands.as_ref().map(|commands| commands.span().start);
        let kinds_at = self.kinds.as_ref().map_or(start, |kinds| kinds.span().start);
        let sizes = [(&self.max_file_bytes, MAX_FILE_BYTES), (&self.max_transfer_bytes, MAX_NUMBER)];
        let too_large =
            sizes.into_iter().filter_map(|(size, limit)| size.as_ref().filter(|size| *size.get_ref() > limit));
        let number_at = too_large.map(|size| size.span().start).next().unwrap_or(start);
        let strings = |list: Option<Vec<Spanned<String>>>| {
            list.map(|list| list.into_iter().map(Spanned::into_inner).collect::<Vec<_>>())
        };
        let overrides = PolicyOverrides {
            profile: None,
            read: strings(self.read),
            write: strings(self.write),
            deny: strings(self.deny),
            ask: strings(self.ask),
            not_secret: strings(self.not_secret),
            kinds: self.kinds.map(Spanned::into_inner),
            budget: self.budget,
            command_budget: self.command_budget,
            file_budget: self.file_budget,
            run_budget: self.run_budget,
            quota: self.quota,
            max_file_bytes: self.max_file_bytes.map(Spanned::into_inner),
            max_transfer_bytes: self.max_transfer_bytes.map(Spanned::into_inner),
            require_approval_if: self.require_approval_if,
            approval: self.approval,
            allow_mode_change: self.allow_mode_change,
            ignored_files: self.ignored_files,
            symbolic_links: self.symbolic_links,
            outside_changes: self.outside_changes,
            commands: self.commands.map(Spanned::into_inner),
        };
        let mut policy = with_overrides(base, &overrides).map_err(|refusal| {
            if let Some(at) = commands_at.filter(|_| refusal.message.contains("`commands.")) {
                return (at, refusal.message);
            }
            // Only a number that is too large has a limit; the other possible error is a kind.
            (if refusal.details.limit.is_some() { number_at } else { kinds_at }, refusal.message)
        })?;
        policy.profile = name;
        Ok(policy)
    }
}

fn check_name(built_in: &Profiles, name: &Spanned<String>) -> Result<(), ErrorAt> {
    let text = name.get_ref();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let problem = if built_in.get(text).is_some() {
        format!("the profile `{text}` is built in; choose another name, and name the built-in profile in `extends`")
    } else if text.is_empty() || text.len() > 64 || !plain {
        "a profile name must have 1 to 64 letters, digits, `_` and `-`".to_owned()
    } else {
        return Ok(());
    };
    Err((name.span().start, problem))
}

fn check_globs(purpose: Purpose, globs: &[Spanned<String>]) -> Result<(), ErrorAt> {
    let texts: Vec<_> = globs.iter().map(|glob| glob.get_ref().clone()).collect();
    match Globs::compile(purpose, &texts) {
        Ok(_) => Ok(()),
        Err(invalid) => Err((globs.get(invalid.index).map_or(0, |glob| glob.span().start), invalid.to_string())),
    }
}

fn locate(text: &str, byte: usize, message: String) -> ProfileFileError {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    ProfileFileError {
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
        message,
    }
}
