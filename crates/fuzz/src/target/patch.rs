//! Patches: an input is a file's text and a patch of it, with a line of `====` between them.

use model::{FilePatch, LogicalPath, Patch, PatchOperation};

use super::{Target, stays_beneath};

pub(super) const TARGET: Target = Target {
    name: "patch",
    run,
    words: &[
        b"\n====\n",
        b"--- a/f\n",
        b"+++ b/f\n",
        b"--- /dev/null\n",
        b"+++ /dev/null\n",
        b"@@ -1,2 +1,2 @@\n",
        b"@@ -0,0 +1 @@\n",
        b"@@ -18446744073709551615,1 +1 @@\n",
        b"diff --git a/f b/f\n",
        b"rename from f\n",
        b"rename to g\n",
        b"old mode 100644\n",
        b"new mode 100755\n",
        b"deleted file mode 100644\n",
        b"GIT binary patch\n",
        b"\\ No newline at end of file\n",
        b"*** Begin Patch\n",
        b"*** End Patch\n",
        b"*** Update File: f\n",
        b"*** Delete File: f\n",
        b"*** End of File\n",
        b"@@\n",
        b"+a\n",
        b"-a\n",
        b" a\n",
        b"\"\\303\\251\"",
        b"../",
        b"/etc/passwd",
        b".git/config",
        b"\r\n",
        b"-- \n2.1\n",
    ],
    max_bytes: 8192,
    tries: 25_000,
};

fn run(input: &[u8]) {
    let divider = b"\n====\n";
    let at = input.windows(divider.len()).position(|window| window == divider);
    let (before, text) = at.map_or((&b""[..], input), |at| (&input[..=at], &input[at + divider.len()..]));
    let Ok(patch) = Patch::parse_bytes(text) else { return };
    assert!(!patch.files.is_empty(), "a patch of nothing was taken");
    assert_eq!(Patch::parse_bytes(text).as_ref(), Ok(&patch), "parsed twice, and not the same");
    for section in &patch.files {
        for path in [&section.from, &section.path] {
            assert!(stays_beneath(path.as_str()), "{path} leaves the root");
            assert_eq!(LogicalPath::parse(path.as_str()).as_ref(), Ok(path));
        }
        apply(section, before);
    }
}

fn apply(section: &FilePatch, before: &[u8]) {
    let Ok(patched) = section.apply(before) else { return };
    assert!(section.operation != PatchOperation::Delete || patched.bytes.is_empty(), "a deletion left something");
    let moved = patched.offsets.iter().all(|offset| offset.offset != 0 && offset.hunk as usize <= section.hunks.len());
    assert!(moved, "{:?}", patched.offsets);
    assert_eq!(section.apply(before).as_ref(), Ok(&patched), "applied twice, and not the same");
    // Where every hunk stood just as it said, with numbers and lines of its own, the way back is there as well.
    let exact = patched.offsets.is_empty() && section.hunks.iter().all(|hunk| hunk.old_start.is_some());
    let same_ends = !before.contains(&b'\r') && !patched.bytes.contains(&b'\r');
    if let Some(back) = section.reversed()
        && exact
        && same_ends
        && std::str::from_utf8(before).is_ok()
        && std::str::from_utf8(&patched.bytes).is_ok()
        && let Ok(undone) = back.apply(&patched.bytes)
        && undone.offsets.is_empty()
    {
        assert_eq!(String::from_utf8_lossy(&undone.bytes), String::from_utf8_lossy(before), "undone to something else");
    }
}
