//! The edit of one text file: of its whole content, of a text in it, or of its lines. What `write_file`, `edit_file` and `replace_range`
//! have in common.

use std::collections::BTreeSet;

use async_trait::async_trait;
use model::{Decoded, Effect, Encoding, LogicalPath, Refusal, Rules};
use workspace::{Target, Workspace, WorkspaceError};

use crate::CallError;
use crate::run::seen_versions::SeenVersion;
use crate::tool::change_plan::{ChangePlan, DesiredFile, NEW_FILE_MODE};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{check_guess, decode_for_edit, not_encodable};
use crate::tool::output::members;
use crate::tool::{Mutation, NewText, PlanContext, RunLookup, Scope, WriteMode, exists_instead};
use crate::tools::edits::{Edit, Edited, EditedText, Present, TextEdit, TextEditOutput};
use crate::tools::write_file::already_exists;
use crate::tools::write_file::merge::OnConflict;

#[async_trait]
impl Mutation for TextEdit {
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        lookup.seen(self.expected_versions()).await?;
        if let (Edit::Whole(whole), Some(version)) = (&mut self.edit, self.expected.and_then(ExpectedVersion::sha256))
            && whole.on_conflict == OnConflict::Merge
        {
            whole.base = Some(lookup.content(&self.path, version).await?);
        }
        Ok(())
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        self.expected.iter_mut().map(|expected| (&self.path, expected)).collect()
    }

    fn scope(&self) -> Scope {
        Scope { write_mode: self.write_mode(), ..Scope::of(vec![self.path.clone()]) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let is_new = self.write_mode() == Some(WriteMode::CreateNew);
        let exists = |path: &LogicalPath| is_new.then(|| already_exists(path));
        workspace.targets(rules, &scope.paths, removed).map_err(|error| exists_instead(error, exists))
    }

    fn new_texts(&self) -> Vec<NewText<'_>> {
        let text = match &self.edit {
            Edit::Whole(whole) => &whole.content,
            Edit::Replace(replaced) => &replaced.new,
            Edit::Range(lines) => &lines.content,
        };
        vec![NewText::to(&self.path, text.as_bytes())]
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let present = targets.first().and_then(|target| target.before.as_ref());
        let rules = context.rules;
        let edited = match &self.edit {
            Edit::Whole(whole) => whole.write(self, present)?,
            Edit::Replace(replaced) => {
                self.edit_part(present, |text, encoding| replaced.apply(rules, &self.path, text, encoding))?
            }
            Edit::Range(lines) => {
                self.edit_part(present, |text, encoding| lines.apply(rules, &self.path, text, encoding))?
            }
        };
        if let (Some((_, present)), None) = (present, self.encoding) {
            check_guess(&self.path, present, &edited.bytes)?;
        }
        let (effect, mode) =
            present.map_or((Effect::Create, NEW_FILE_MODE), |(state, _)| (Effect::Replace, state.mode));
        let desired = DesiredFile { path: self.path.clone(), effect, after: Some((edited.bytes, mode)) };
        let mut plan = ChangePlan::build(rules, targets, vec![desired])?;
        if let Some(conflict) = edited.conflict {
            return Err(conflict);
        }
        let Some((change, content)) = plan.at(&self.path).and_then(|change| Some((change, change.after.as_ref()?)))
        else {
            return Err(Refusal::not_found(&self.path));
        };
        let output = TextEditOutput {
            path: self.path.clone(),
            created: change.before.is_none(),
            old_sha256: change.before.as_ref().map(|state| state.sha256),
            new_sha256: content.sha256,
            bytes_written: content.size_bytes,
            insertions: change.counts.insertions,
            deletions: change.counts.deletions,
            merged: edited.merged_from.is_some(),
            merged_from: edited.merged_from,
            replacements: edited.replacements,
        };
        plan.summary = format!("{} (+{} -{})", edited.done, output.insertions, output.deletions);
        plan.output = members(&output);
        plan.warnings.extend(edited.warnings);
        Ok(plan)
    }
}

impl TextEdit {
    /// Whether the file may or must exist, if the whole content is written.
    fn write_mode(&self) -> Option<WriteMode> {
        match &self.edit {
            Edit::Whole(whole) => Some(whole.mode),
            Edit::Replace(_) | Edit::Range(_) => None,
        }
    }

    /// Edits a part of the present file, which keeps its encoding.
    fn edit_part(
        &self,
        present: Option<&Present>,
        edit: impl FnOnce(&str, Encoding) -> Result<EditedText, Refusal>,
    ) -> Result<Edited, Refusal> {
        let path = &self.path;
        let (state, bytes) = present.ok_or_else(|| Refusal::not_found(path))?;
        // A text that is replaced says what the file must contain, so that it need not have been read.
        let is_unseen = self.expected.and_then(ExpectedVersion::seen) == Some(SeenVersion::Never);
        let is_by_text = matches!(self.edit, Edit::Replace(_));
        if let Some(expected) = self.expected.filter(|_| !(is_by_text && is_unseen)) {
            expect_version(path, Some(state.sha256), Some(expected))?;
        }
        let Decoded { text, encoding } = decode_for_edit(path, bytes, self.encoding)?;
        let (text, replacements, done) = edit(&text, encoding)?;
        let member = if is_by_text { "`newString`" } else { "`content`" };
        let bytes = model::encode(&text, encoding).ok_or_else(|| not_encodable(member, path, encoding))?;
        Ok(Edited { bytes, done, replacements: Some(replacements), ..Edited::default() })
    }
}
