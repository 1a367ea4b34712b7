//! Patches that begin with `*** Begin Patch`: whole ones, and those of one file without headers.

use engine::tools::ArgumentForms;
use model::{Code, LogicalPath, Patch, PatchOperation, Refusal};
use serde_json::{Map, Value, json};

use crate::arguments::Arguments;
use crate::paths::strip;
use crate::templates::repeated;

/// The headers of a patch that name a file.
const HEADERS: [&str; 4] = ["*** Add File: ", "*** Delete File: ", "*** Update File: ", "*** Move to: "];

/// Returns a patch with paths from the root of the run.
pub(crate) fn freeform(text: &str) -> Result<String, Refusal> {
    let text = without_here_document(text);
    let mut patch = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match HEADERS.iter().find_map(|header| Some((*header, line.strip_prefix(header)?))) {
            Some((header, rest)) => {
                let path = rest.trim_end_matches(['\r', '\n']);
                patch.extend([header, &strip(path)?, &rest[path.len()..]]);
            }
            None => patch.push_str(line),
        }
    }
    Ok(patch)
}

/// Returns the text of a here-document, such as `apply_patch <<'EOF'` up to `EOF`; another text as it is.
fn without_here_document(text: &str) -> &str {
    let inner = || {
        let (first, rest) = text.trim_start().split_once('\n')?;
        let (command, word) = first.trim_end().split_once("<<")?;
        let word = word.trim_start_matches('-').trim().trim_matches(['\'', '"']);
        let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let body = rest.trim_end().strip_suffix(word).filter(|body| body.is_empty() || body.ends_with('\n'))?;
        (is_word && ["", "apply_patch", "applypatch"].contains(&command.trim())).then_some(body)
    };
    inner().unwrap_or(text)
}

/// Returns the patch of an operation of `apply_patch_call`, the path in the operation, and the number of lines before its diff.
pub(crate) fn operation(operation: Value) -> Result<(String, String, u64), Refusal> {
    let text = json!({ "type": "string" });
    let forms =
        ArgumentForms::of(&json!({ "properties": { "type": text, "path": text, "diff": text, "move_to": text } }));
    let members = if let Value::Object(members) = operation { members } else { Map::new() };
    let mut operation = Arguments::of_members(members, &forms, "tool `apply_patch`");
    let kind = operation.text("type")?;
    operation = operation.for_command(&kind);
    let written = operation.text("path")?;
    let (diff, move_to) = (operation.optional_text("diff")?, operation.optional_text("move_to")?);
    operation.finish(false)?;
    let diff = diff.filter(|_| kind != "delete_file").unwrap_or_default();
    let diff = without_here_document(&diff);
    let path = strip(&written)?;
    let target = move_to.as_deref().map(strip).transpose()?;
    let (header, wanted) = match (kind.as_str(), &target) {
        ("create_file", None) => (format!("*** Add File: {path}\n"), PatchOperation::Create),
        ("delete_file", None) => (format!("*** Delete File: {path}\n"), PatchOperation::Delete),
        ("update_file", None) => (format!("*** Update File: {path}\n"), PatchOperation::Modify),
        ("update_file", Some(to)) => (format!("*** Update File: {path}\n*** Move to: {to}\n"), PatchOperation::Rename),
        ("create_file" | "delete_file", Some(_)) => {
            return Err(Refusal::invalid("`move_to` is for update_file alone", "Leave it out."));
        }
        (other, _) => {
            let message = format!("there is no operation {}", repeated(other));
            return Err(Refusal::invalid(message, "Give create_file, update_file or delete_file."));
        }
    };
    let end = if diff.is_empty() || diff.ends_with('\n') { "" } else { "\n" };
    let before = format!("*** Begin Patch\n{header}");
    let patch = format!("{before}{diff}{end}*** End Patch\n");
    // Headers in the diff would reach other files than the operation names.
    if let Ok(parsed) = Patch::parse(&patch) {
        let is = |raw: &str, found: &LogicalPath| LogicalPath::parse_file(raw).is_ok_and(|path| path == *found);
        let is_only = matches!(&parsed.files[..], [file] if file.operation == wanted
            && is(&path, &file.from) && is(target.as_ref().unwrap_or(&path), &file.path));
        if !is_only {
            let message = format!("the diff is not that of {} alone", repeated(&written));
            return Err(Refusal::new(Code::PatchInvalid, message, "Leave headers of files out of the diff."));
        }
    }
    Ok((patch, written, before.lines().count() as u64))
}

#[cfg(test)]
mod tests {
    use super::without_here_document;

    #[test]
    fn a_here_document_is_its_text() {
        let patch = "*** Begin Patch\n*** Delete File: a\n*** End Patch\n";
        for start in ["<<EOF", "<<'EOF'", "<<\"EOF\"", "apply_patch <<'EOF'", "applypatch << EOF", "apply_patch <<-EOF"]
        {
            assert_eq!(without_here_document(&format!("{start}\n{patch}EOF\n")), patch, "{start}");
        }
        for other in [patch.to_owned(), format!("<<EOF\n{patch}"), format!("cat <<EOF\n{patch}EOF\n")] {
            assert_eq!(without_here_document(&other), other);
        }
    }
}
