//! What each code means, for the pages that the `type` of a problem document names.

use super::Code;

/// The explanation of a code. Each text is one or two sentences of plain text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guide {
    /// Why a request is refused with the code.
    pub cause: &'static str,
    /// What the caller does next.
    pub remedy: &'static str,
    /// A request that is refused with the code.
    pub example: &'static str,
}

impl Code {
    /// Returns the code with this name, as callers see it.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// Returns what the code means.
    pub fn guide(self) -> Guide {
        let (_, cause, remedy, example) = GUIDES[self as usize];
        Guide { cause, remedy, example }
    }
}

/// Code, cause, remedy and example, in the order of [`Code::ALL`].
const GUIDES: [(Code, &str, &str, &str); Code::ALL.len()] = [
    (
        Code::BodyTooLarge,
        "The body of the request is larger than the service accepts on this route.",
        "Send less data per request: fewer or smaller files, or several batches. `limit` is the maximum in bytes.",
        "POST /v1/runs/issue-4711/tools/write_file with a body of 5 MiB, where --max-body-bytes is 4 MiB.",
    ),
    (
        Code::Unauthenticated,
        "The request has no token, or the token is unknown, expired or revoked.",
        "Send `Authorization: Bearer TOKEN` with a valid token. An agent asks its orchestrator for another one.",
        "GET /v1/runs without an Authorization header.",
    ),
    (
        Code::Forbidden,
        "The token is valid, but does not permit this request: it belongs to another run, or lacks a permission.",
        "Use a token of this run that has the permission in `reasons`, or an operator token.",
        "POST /v1/runs/issue-4711/tools/write_file with a token that has only the permission file:read.",
    ),
    (
        Code::RateLimited,
        "The token, the run or the address sends too many requests per second, or too many at the same time.",
        "Wait for the seconds in the header Retry-After, then continue more slowly. RateLimit shows what remains.",
        "101 requests within one second, where --rate-limit is 50:100.",
    ),
    (
        Code::RunNotFound,
        "No run has the ID in the path. Only operators receive this code.",
        "List the runs with GET /v1/runs, and check the ID.",
        "GET /v1/runs/issue-4712, where only issue-4711 exists.",
    ),
    (
        Code::ToolNotFound,
        "No tool has the name in the path or in the batch.",
        "List the tools with GET /v1/tools, and check the name.",
        "POST /v1/runs/issue-4711/tools/rename_file, where the tool is called move_file.",
    ),
    (
        Code::InvalidRequest,
        "The request is malformed: a member is missing, unknown, of another type or outside its range.",
        "Compare the request with /openapi.json. `message` names the member and the value.",
        "POST /v1/runs/issue-4711/tools/read_file with {\"file\": \"README.md\"} instead of {\"path\": \"README.md\"}.",
    ),
    (
        Code::PatchInvalid,
        "The text in `patch` is not a unified diff, or its hunk headers do not match its lines.",
        "Send a unified diff as `git diff` writes it. `message` names the line that cannot be parsed.",
        "POST /v1/runs/issue-4711/tools/apply_patch with the new content of a file instead of a diff.",
    ),
    (
        Code::PreconditionRequired,
        "A request that changes a file does not say which version it expects.",
        "Send `If-Match` with the file's ETag to replace or delete it, or `If-None-Match: *` to create it.",
        "PUT /v1/runs/issue-4711/files/logo.png without If-Match and without If-None-Match.",
    ),
    (
        Code::ToolCallIdReused,
        "Another call of this run, with another tool or input, has the same `toolCallId`.",
        "Give every new call an ID of its own, or omit `toolCallId`. Repeat a call with exactly the same input.",
        "write_file under the ID call-1, then write_file with another content under the ID call-1.",
    ),
    (
        Code::IdempotencyKeyReused,
        "The same operator has sent another request under the same `Idempotency-Key` within the last 24 hours.",
        "Give every new request a key of its own, such as a UUID. Repeat a request with exactly the same body.",
        "POST /v1/runs under the key job-1, then POST /v1/runs with another source under the key job-1.",
    ),
    (
        Code::PathRejected,
        "A path leaves the workspace, is absolute, is inside `.git`, or has a component that is not permitted.",
        "Name a path inside the workspace, relative to its root and separated by `/`.",
        "POST /v1/runs/issue-4711/tools/read_file with {\"path\": \"../../etc/passwd\"}.",
    ),
    (
        Code::RunClosed,
        "The run is closed, deleted or not open yet, and does not take this request in that state.",
        "Wait until the run is open, or ask the orchestrator for a new run. Reads of a closed run still work.",
        "POST /v1/runs/issue-4711/tools/write_file after POST /v1/runs/issue-4711/close.",
    ),
    (
        Code::RunNeedsRepair,
        "The files of the run were changed from outside the service while a change was pending.",
        "Continue with reads, and ask the operator to run `workspaced repair` for this run.",
        "write_file in a run whose folder was edited on the server's disk after a power failure.",
    ),
    (
        Code::BaseCommitMismatch,
        "The run was made from another commit than the one that the request names.",
        "Read `baseCommit` of the run, and make the patch against that commit.",
        "apply_patch with the `expectedBaseCommit` of a newer commit than the run's.",
    ),
    (
        Code::PolicyDeniedSecret,
        "The path looks like a secret, or the new content contains a credential. The policy hides such content.",
        "Continue without this file. Use a template such as `.env.example`, and let the operator supply the secret.",
        "POST /v1/runs/issue-4711/tools/read_file with {\"path\": \".env\"}.",
    ),
    (
        Code::PolicyDenied,
        "The run's policy does not permit this read or change. `reasons` names the rules.",
        "Read the run's policy, and change other files. An orchestrator may make a run with another policy.",
        "write_file to target/app.js, which is build output.",
    ),
    (
        Code::NotFound,
        "The file, the approval, the artifact or the route does not exist.",
        "Check the path with list_dir or find_files, and the ID with the list of its kind.",
        "POST /v1/runs/issue-4711/tools/read_file with {\"path\": \"src/mian.rs\"}.",
    ),
    (
        Code::AlreadyExists,
        "A file, a run or a decision with this name exists already.",
        "Choose another name, or replace the existing file with its current hash.",
        "write_file with the mode CREATE_NEW and a path that exists.",
    ),
    (
        Code::NotADirectory,
        "The path, or a part of it, is a file where a folder is required.",
        "Use list_dir to see what is at the path.",
        "list_dir with {\"path\": \"README.md\"}.",
    ),
    (
        Code::NotAFile,
        "The path is a folder, a pipe, a socket or a device where a regular file is required.",
        "Name a regular file. Use list_dir for a folder.",
        "read_file with {\"path\": \"src\"}.",
    ),
    (
        Code::FileTooLarge,
        "The file, or the content that the call would write, is larger than the run's policy permits.",
        "Read a range of lines with startLine and maxLines, or use the files routes. `limit` is the maximum in bytes.",
        "write_file with a content of 2 MiB, where `maxFileBytes` is 1 MiB.",
    ),
    (
        Code::UnsupportedBinary,
        "The file is binary, and the tool works on text only.",
        "Download or store it with GET and PUT /v1/runs/{run}/files/{path}.",
        "read_file with {\"path\": \"logo.png\"}.",
    ),
    (
        Code::WriteConflict,
        "The call does not name the present version of the file: it names none, or the file has changed since.",
        "Read the file again, make the change to the current version, and send its hash.",
        "write_file with the `expectedSha256` of a version that another agent has replaced.",
    ),
    (
        Code::PatchConflict,
        "A hunk of the patch does not match the file: its context lines differ from the current content.",
        "Read the files in `conflicts` again, and make the patch against the current content.",
        "apply_patch with a hunk for a function that was renamed since.",
    ),
    (
        Code::EditNotFound,
        "The file does not contain `oldString`.",
        "Read the lines in `lines`, which are the most similar ones, and copy the text exactly.",
        "edit_file with an `oldString` that is indented by spaces, where the file has tabs.",
    ),
    (
        Code::EditNotUnique,
        "The file contains `oldString` several times.",
        "Add surrounding lines to `oldString` until it is unique, or set `replaceAll`.",
        "edit_file with the `oldString` \"return 0;\" in a file with three such lines.",
    ),
    (
        Code::RevertConflict,
        "A later call has changed a file that the revert would restore.",
        "Revert the later calls too, or edit the file.",
        "revert_calls of the first of two writes to the same file.",
    ),
    (
        Code::ChangedOutside,
        "The file was changed by something else than a call of the run: no record, and not the base, has its present version.",
        "Ask the operator to settle it: POST /v1/runs/{run}/drift accepts the present file or restores the recorded one. \
         `knownSha256` is the recorded version, `currentSha256` the present one.",
        "edit_file of a file to which a program outside of the service has appended a line.",
    ),
    (
        Code::PatchBudgetExceeded,
        "The change is larger than the budget of a call or of the run.",
        "Make a smaller change. `reasons` names the budget, `limit` its value and `actual` that of the change.",
        "apply_patch to 30 files, where `maxFilesTouched` is 20.",
    ),
    (
        Code::QuotaExceeded,
        "The run or the service would store more files, bytes or approvals than its quota permits.",
        "Delete files that are no longer needed, or ask the operator for a larger quota.",
        "POST /v1/runs, where as many runs exist as --max-runs permits.",
    ),
    (
        Code::ApprovalRequired,
        "The policy requires that a person approves this change. Nothing has changed yet.",
        "Wait for the decision with GET /v1/runs/{run}/tool-calls/{toolCallId}?waitSeconds=30, or do other work.",
        "write_file to Cargo.lock in a run with the profile SUPERVISED_PR.",
    ),
    (
        Code::BatchNotDone,
        "Another call of the same atomic batch was refused, so no call of the batch took effect.",
        "Correct the call that `failedCall` names, and send the whole batch again under new IDs.",
        "The second call of an atomic batch, whose first call was refused with WRITE_CONFLICT.",
    ),
    (
        Code::Unavailable,
        "The database or the disk is full or unavailable, or the service is too busy or shutting down.",
        "Wait for the seconds in the header Retry-After, then repeat the same request. Nothing has changed.",
        "Any change while the disk of the database is full.",
    ),
    (
        Code::Internal,
        "The service failed. The cause is in its log, under the ID of the request.",
        "Repeat the same request. If it fails again, report `instance` to the operator of the service.",
        "Any request that meets a defect of the service.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_guide() {
        for (index, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!((GUIDES[index].0, code as usize), (code, index), "{code}");
            assert_eq!(Code::parse(code.as_str()), Some(code));
            let Guide { cause, remedy, example } = code.guide();
            for text in [cause, remedy, example] {
                assert!((20..=200).contains(&text.len()) && text.ends_with('.'), "{code}: {text}");
            }
        }
        // `Internal` is the last code.
        assert_eq!(Code::Internal as usize + 1, Code::ALL.len());
        assert_eq!(Code::parse("NONE"), None);
    }
}
