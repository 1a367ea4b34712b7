//! Paths as callers write them: those of another Unicode form are followed, and what a caller may have meant is named.

use std::sync::Arc;

use model::{Code, LogicalPath, Permission, Refusal, Rules};
use serde_json::{Map, Value};
use workspace::{FollowedPath, Tree, WorkspaceError};

use crate::CallError;
use crate::call::Call;
use crate::call_error::refusals::canonically_equal;
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::input::{URI_SCHEME, path_of_uri};

/// The members of inputs that have a path, and one that has several.
const PATH_MEMBERS: [&str; 3] = ["path", "from", "to"];
const PATHS_MEMBER: &str = "paths";

impl Engine {
    /// Replaces each path of an input that does not exist by the only one that is canonically equal and does. Policy judges that one,
    /// and records have it.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED` for a new file whose name would be canonically equal to an existing one.
    pub(crate) async fn follow_names(
        &self,
        call: &Call,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<Map<String, Value>, CallError> {
        let has_form =
            |value: &Value| value.as_str().is_some_and(|text| !text.is_ascii() || text.starts_with(URI_SCHEME));
        let in_list = |value: &Value| value.as_array().is_some_and(|values| values.iter().any(has_form));
        let is_plain = !PATH_MEMBERS.iter().filter_map(|name| members.get(*name)).any(has_form)
            && !members.get(PATHS_MEMBER).is_some_and(in_list);
        if is_plain {
            return Ok(members);
        }
        let tree = match &call.mount {
            None => None,
            Some(name) => match run.mount(name) {
                Ok(tree) => Some(tree),
                // The call is refused for the mount.
                Err(_) => return Ok(members),
            },
        };
        let run = Arc::clone(run);
        let follow = self.blocking(move || {
            let tree = tree.as_deref().unwrap_or_else(|| run.workspace.tree());
            Ok(follow_members(tree, &run.rules, members)?)
        });
        // Boxed, so that the futures of all calls do not get larger for few of them.
        Box::pin(follow).await
    }

    /// Returns those of `paths` that do not exist and have a canonically equal path that does, each with that one.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn canonically_equal(
        &self,
        run: &Arc<OpenRun>,
        paths: Vec<LogicalPath>,
    ) -> Result<Vec<(LogicalPath, FollowedPath)>, CallError> {
        let run = Arc::clone(run);
        let follow = move || {
            let mut all = Vec::new();
            for path in paths {
                if let Some(followed) = run.workspace.tree().follow_path(&run.rules, &path)? {
                    all.push((path, followed));
                }
            }
            Ok(all)
        };
        self.blocking(follow).await
    }

    /// Adds to a refusal of a path that does not exist what the caller may have meant, if they may list files.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn name_meant(
        &self,
        call: &Call,
        run: &Arc<OpenRun>,
        refusal: Refusal,
    ) -> Result<Refusal, CallError> {
        if refusal.code != Code::NotFound || refusal.details.path.is_none() {
            return Ok(refusal);
        }
        let tree = call.mount.as_ref().and_then(|name| run.mount(name).ok());
        // The whole tree may be searched.
        let _permit = Box::pin(self.read_permit(true)).await;
        let (run, may_list) = (Arc::clone(run), may_list(call));
        let search = self.blocking(move || {
            let tree = tree.as_deref().unwrap_or_else(|| run.workspace.tree());
            Ok(with_meant(tree, &run.rules, may_list, refusal)?)
        });
        Box::pin(search).await
    }
}

/// Whether the caller may learn the names of files.
pub(crate) fn may_list(call: &Call) -> bool {
    call.caller.permissions.contains(&Permission::FileList)
}

/// As [`Engine::name_meant`], on a thread that may block.
///
/// # Errors
///
/// If the disk fails.
pub(crate) fn with_meant(
    tree: &Tree,
    rules: &Rules,
    may_list: bool,
    refusal: Refusal,
) -> Result<Refusal, WorkspaceError> {
    let path = refusal.details.path.as_deref().filter(|_| may_list && refusal.code == Code::NotFound);
    let Some(path) = path.and_then(|path| LogicalPath::parse(path).ok()) else { return Ok(refusal) };
    let meant = tree.find_meant(rules, &path)?;
    Ok(match meant {
        Some(meant) => refusal.suggesting(&meant),
        None => refusal,
    })
}

fn follow_members(
    tree: &Tree,
    rules: &Rules,
    mut members: Map<String, Value>,
) -> Result<Map<String, Value>, WorkspaceError> {
    let is_create = members.get("mode").is_some_and(|mode| mode == "CREATE_NEW");
    for name in PATH_MEMBERS {
        let is_new = name == "to" || is_create;
        if let Some(value) = members.get_mut(name) {
            follow_value(tree, rules, value, is_new)?;
        }
    }
    if let Some(Value::Array(paths)) = members.get_mut(PATHS_MEMBER) {
        for value in paths {
            follow_value(tree, rules, value, false)?;
        }
    }
    Ok(members)
}

fn follow_value(tree: &Tree, rules: &Rules, value: &mut Value, is_new: bool) -> Result<(), WorkspaceError> {
    let Value::String(raw) = value else { return Ok(()) };
    // What is no path is refused by the tool.
    let Ok(path) = LogicalPath::parse(&path_of_uri(raw)) else { return Ok(()) };
    let Some(followed) = tree.follow_path(rules, &path)? else { return Ok(()) };
    if is_new && followed.exists {
        return Err(canonically_equal(&path, &followed).into());
    }
    let slash = if raw.ends_with('/') { "/" } else { "" };
    *raw = format!("{}{slash}", followed.path);
    Ok(())
}
