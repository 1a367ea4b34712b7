//! Changes between a run and a folder outside of the service, as layers: tar streams in the form of a layer of an OCI image.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use model::{RunId, Sha256};
use percent_encoding::percent_decode_str;
use reqwest::{Method, header};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::files::Download;
use crate::packed_layer::PackedLayer;
use crate::problem::Error;
use crate::request::{Request, new_id, with_id};
use crate::transport::Client;

/// A run's tree at one record, or what has changed in it since an earlier one.
#[derive(Debug)]
pub struct RunLayer {
    /// The newest record at this state of the tree.
    pub seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// How many entries are left out, such as files that look like secrets.
    pub left_out: u64,
    /// The paths of the first of those.
    pub left_out_paths: Vec<String>,
    /// Whether it is a tar.gz, not a tar.
    pub is_compressed: bool,
    /// The tar.
    pub content: Download,
}

/// What happens to a set of changes of which others have changed a file meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangesetConflict {
    /// It is refused.
    #[default]
    Refuse,
    /// Both changes are merged, if they are apart.
    Merge,
}

/// What happens to a set of changes of which policy denies some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangesetDenied {
    /// It is refused.
    #[default]
    Refuse,
    /// The others are made.
    Leave,
}

/// The command that made a set of changes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesetCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder in which it ran, relative to the root of the tree.
    pub cwd: String,
    /// Its exit code; omitted if a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// When it was started, RFC 3339.
    pub started_at: String,
    /// How long it took, in microseconds.
    pub duration_micros: u64,
    /// Its output, which was uploaded as an artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<Sha256>,
    /// Why its output is not kept, such as the code of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_refused: Option<String>,
    /// Where it ran.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub environment: Map<String, Value>,
    /// What was not the run's when it began: the first paths. A folder, with a slash at its end, stands for new files in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// How many there are of those, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs_count: Option<u64>,
}

/// A set of changes, whose files are in a layer.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewChangeset {
    /// The ID of the set. Made by the client if missing, so that a repetition is the same set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changeset_id: Option<String>,
    /// The record of the run that the folder had before the changes.
    pub based_on_seq: u64,
    /// Reason for the audit.
    pub reason: String,
    /// The command that made them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<ChangesetCommand>,
    /// What happens if others have changed a file meanwhile.
    pub on_conflict: ChangesetConflict,
    /// What happens if policy denies some.
    pub on_denied: ChangesetDenied,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// A request to merge a fork into the run that it was made from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewMerge {
    /// The fork.
    pub from: RunId,
    /// Reason for the audit.
    pub reason: String,
    /// What happens if both runs have changed a file.
    pub on_conflict: ChangesetConflict,
    /// What happens if policy denies some files.
    pub on_denied: ChangesetDenied,
    /// Only say what would happen.
    pub dry_run: bool,
}

/// An applied set of changes. The whole answer is in `members`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangesetOutcome {
    /// The number of its record. Missing if nothing was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The number of the record of its command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_seq: Option<u64>,
    /// What was applied.
    #[serde(default)]
    pub applied: Vec<ChangesetPath>,
    /// What was merged with the changes of others.
    #[serde(default)]
    pub merged: Vec<ChangesetPath>,
    /// What policy denied.
    #[serde(default)]
    pub left: Vec<ChangesetPath>,
    /// How many files of generated, vendored and ignored folders were not taken, by their top folder.
    #[serde(default)]
    pub not_taken: std::collections::BTreeMap<String, u64>,
    /// The change in one line.
    #[serde(default)]
    pub summary: String,
    /// The other members of the answer.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

/// A file of a set of changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ChangesetPath {
    /// Its path alone.
    Path(String),
    /// Its path and more, such as the rule that denied it.
    Entry {
        /// The path.
        path: String,
        /// The rule that denied it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The other members.
        #[serde(flatten)]
        members: Map<String, Value>,
    },
}

impl ChangesetPath {
    /// Returns the path.
    pub fn path(&self) -> &str {
        match self {
            Self::Path(path) | Self::Entry { path, .. } => path,
        }
    }

    /// Returns the rule that denied it.
    pub fn rule(&self) -> Option<&str> {
        match self {
            Self::Path(_) => None,
            Self::Entry { rule, .. } => rule.as_deref(),
        }
    }
}

impl Client {
    /// Applies to a run what one of its forks has changed since it was made or merged last.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn merge_run(&self, run: &RunId, merge: &NewMerge) -> Result<ChangesetOutcome, Error> {
        self.request(Method::POST, ["v1", "runs", run.as_str(), "merge"])?.json(merge).answer(self).await
    }

    /// Compares the files of two runs after the path `after`: JSON with the members of `RunComparison` in the API document.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn compare_runs(&self, run: &RunId, other: &RunId, after: Option<&str>) -> Result<Value, Error> {
        let request = self.request(Method::GET, ["v1", "runs", run.as_str(), "compare", other.as_str()])?;
        request.query(&[("after", after.map(str::to_owned))]).answer(self).await
    }

    /// Downloads a run's tree, or with `since` what has changed in it after that record.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`]. [`Error::Protocol`] if the service does not say which state it is.
    #[boxed]
    pub async fn layer(&self, run: &RunId, since: Option<u64>) -> Result<RunLayer, Error> {
        let request = self.request(Method::GET, ["v1", "runs", run.as_str(), "archive"])?;
        let mut request = request.query(&[("since", since.map(|seq| seq.to_string()))]);
        if self.is_on_this_machine() {
            // Where no network is between, compression takes longer than it saves.
            request = request.header(header::ACCEPT, "application/x-tar")?;
        }
        let response = request.send(self).await?;
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let missing = || Error::Protocol("an archive without `Workspaced-Seq` and `Workspaced-Head-Hash`".to_owned());
        let seq = text("workspaced-seq").and_then(|seq| seq.parse().ok()).ok_or_else(missing)?;
        let head_hash = text("workspaced-head-hash").and_then(|hash| Sha256::parse(hash).ok()).ok_or_else(missing)?;
        let left_out = text("workspaced-left-out").and_then(|count| count.parse().ok()).unwrap_or(0);
        let left_out_paths = text("workspaced-left-out-paths").unwrap_or_default();
        let left_out_paths = left_out_paths.split(',').filter(|path| !path.is_empty());
        let left_out_paths =
            left_out_paths.map(|path| percent_decode_str(path).decode_utf8_lossy().into_owned()).collect();
        let is_compressed = text(header::CONTENT_TYPE.as_str()).is_some_and(|media_type| media_type.contains("gzip"));
        Ok(RunLayer { seq, head_hash, left_out, left_out_paths, is_compressed, content: Download::new(response) })
    }

    /// Applies a set of changes: all of them, or none. May be sent again.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`]. A refused set has changed nothing.
    #[boxed]
    pub async fn apply_changeset(
        &self,
        run: &RunId,
        changeset: &NewChangeset,
        layer: &PackedLayer,
    ) -> Result<ChangesetOutcome, Error> {
        let members = with_id(changeset, "changesetId", new_id("cs_"))?;
        let form = LayerForm::new("changeset", &Value::Object(members), Some(layer));
        form.body_of(self.changesets(run)?)?.answer(self).await
    }

    fn changesets(&self, run: &RunId) -> Result<Request, Error> {
        self.request(Method::POST, ["v1", "runs", run.as_str(), "changesets"])
    }
}

/// A form with a document of JSON, and a layer.
pub(crate) struct LayerForm {
    head: Bytes,
    layer: PackedLayer,
    tail: Bytes,
    media_type: String,
}

impl LayerForm {
    pub(crate) fn new(name: &str, document: &Value, layer: Option<&PackedLayer>) -> Self {
        let boundary = new_id("workspaced-");
        let part = |name: &str, media_type: &str| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\nContent-Type: {media_type}\r\n\r\n"
            )
        };
        let mut head = format!("{}{document}\r\n", part(name, "application/json"));
        let mut tail = format!("--{boundary}--\r\n");
        if layer.is_some() {
            head += &part("layer", "application/x-tar");
            tail.insert_str(0, "\r\n");
        }
        let media_type = format!("multipart/form-data; boundary={boundary}");
        let layer = layer.cloned().unwrap_or_else(|| Vec::new().into());
        Self { head: head.into(), layer, tail: tail.into(), media_type }
    }

    /// Makes it the body of a request.
    pub(crate) fn body_of(self, request: Request) -> Result<Request, Error> {
        let Self { head, layer, tail, media_type } = self;
        let size_bytes = head.len() as u64 + layer.size_bytes() + tail.len() as u64;
        request.made_body(&media_type, size_bytes, move || layer.body(&head, &tail))
    }
}
