//! Target for patches. An input is the text of a file and a patch for it, separated by a line `====`.

use model::{FilePatch, LogicalPath, Patch, PatchOperation};

use crate::{Target, is_inside_root};

pub(crate) const TARGET: Target = Target {
    name: "patch",
    run,
    dictionary: &[
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
    iterations: 25_000,
};

fn run(input: &[u8]) {
    let divider = b"\n====\n";
    let at = input.windows(divider.len()).position(|window| window == divider);
    let (before, text) = at.map_or((&b""[..], input), |at| (&input[..=at], &input[at + divider.len()..]));
    let Ok(patch) = Patch::parse_bytes(text) else { return };
    assert!(!patch.files.is_empty(), "an empty patch was accepted");
    assert_eq!(Patch::parse_bytes(text).as_ref(), Ok(&patch), "the parser is not deterministic");
    for section in &patch.files {
        for path in [&section.from, &section.path] {
            assert!(is_inside_root(path.as_str()), "{path} escapes the root");
            assert_eq!(LogicalPath::parse(path.as_str()).as_ref(), Ok(path));
        }
        apply(section, before);
    }
}

fn apply(section: &FilePatch, before: &[u8]) {
    let Ok(patched) = section.apply(before) else { return };
    assert!(section.operation != PatchOperation::Delete || patched.bytes.is_empty(), "a deletion left content");
    let moved = patched.offsets.iter().all(|offset| offset.offset != 0 && offset.hunk as usize <= section.hunks.len());
    assert!(moved, "{:?}", patched.offsets);
    assert_eq!(section.apply(before).as_ref(), Ok(&patched), "the result is not deterministic");
    // If every hunk has line numbers and applied at them, the reversed patch restores the text.
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
        assert_eq!(
            String::from_utf8_lossy(&undone.bytes),
            String::from_utf8_lossy(before),
            "the reversed patch gives another text"
        );
    }
}
