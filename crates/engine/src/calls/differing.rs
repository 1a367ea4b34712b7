//! Files of a sandbox that are not those of the run. A command that found some is neither evidence nor a passed test.

use async_recursion::async_recursion as boxed;

use ledger::Entry;
use model::{LogicalPath, canonical_json};
use serde_json::{Value, json};

use crate::CallError;
use crate::call::evidence::{DIFFERS, DIFFERS_COUNT, found_other_files, is_check};
use crate::calls::Calls;
use crate::tools::apply_changeset::is_taken;

/// The most paths that a record names.
const MAX_DIFFERS: usize = 100;

impl Calls {
    /// Takes what a run never has out of the files that differ, as the event of a command names them: generated and vendored ones, and those
    /// that git ignores. Returns whether others are left.
    #[boxed]
    pub(crate) async fn settle_differing(&self, event: &mut Entry) -> Result<bool, CallError> {
        if !is_check(&event.draft.tool) {
            return Ok(false);
        }
        let run = event.draft.run_id.clone();
        let input = event.draft.input.as_mut();
        let data = input.and_then(|input| input.get_mut("data")).and_then(Value::as_object_mut);
        let Some((data, named)) = data.and_then(|data| {
            let named: Vec<String> = serde_json::from_value(data.get(DIFFERS)?.clone()).ok()?;
            Some((data, named))
        }) else {
            // In another form it is the caller's own, and counts as it is.
            let data = event.draft.input.as_ref().and_then(|input| input.get("data"));
            return Ok(found_other_files(data));
        };
        let count = data.get(DIFFERS_COUNT).and_then(Value::as_u64).unwrap_or(0);
        let unnamed = count.saturating_sub(named.len() as u64);
        let kept = match self.engine.open(&run).await {
            Ok(open) => {
                let keep = move || {
                    let mut kept = Vec::new();
                    for raw in named {
                        // A folder stands for new files in it.
                        let file = if raw.ends_with('/') { format!("{raw}_") } else { raw.clone() };
                        let path = LogicalPath::parse(&file);
                        if path.map_or(Ok(true), |path| is_taken(&open.rules, &open.workspace, &path))? {
                            kept.push(raw);
                        }
                    }
                    Ok(kept)
                };
                self.engine.blocking(keep).await?
            }
            // Of a run that is closed for good, nothing is known: the event is refused, or repeated.
            Err(_) => named,
        };
        let count = unnamed + kept.len() as u64;
        if count == 0 {
            data.remove(DIFFERS);
            data.remove(DIFFERS_COUNT);
        } else {
            data.insert(DIFFERS.to_owned(), json!(kept.iter().take(MAX_DIFFERS).collect::<Vec<_>>()));
            data.insert(DIFFERS_COUNT.to_owned(), json!(count));
        }
        if let (Some(bytes), Some(input)) = (&mut event.event_bytes, &event.draft.input) {
            *bytes = canonical_json(input).len() as u64;
        }
        Ok(count > 0)
    }
}
