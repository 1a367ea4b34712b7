//! Random calls, and what each is to change.

use std::fmt::Write as _;

use model::Sha256;
use serde_json::{Value, json};

use super::{DENIED, Sequence, is_asked, stays_inside};
use crate::checkout::{Changes, Entry, Files, above, file, files_under};

/// A call, a batch of calls, or a change set.
pub(super) struct Plan {
    pub(super) calls: Vec<(&'static str, Value)>,
    /// The layer of a change set.
    pub(super) layer: Option<Vec<u8>>,
    /// The changes of each call; `None` if it must be refused.
    pub(super) changes: Option<Vec<Changes>>,
    /// Whether no other call makes the same change, so that it may wait for approval, or be denied.
    pub(super) is_unique: bool,
}

/// One call of a tool, with its changes.
struct Call {
    tool: &'static str,
    input: Value,
    changes: Option<Changes>,
}

/// Returns a text of these lines.
fn joined(lines: &[impl AsRef<str>]) -> String {
    lines.iter().flat_map(|line| [line.as_ref(), "\n"]).collect()
}

/// Pseudo-random numbers (`SplitMix64`).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.next() % count as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }
}

/// Paths of new files. Some are those of folders, below files, below links, ignored or denied.
const NEW_PATHS: [&str; 25] = [
    "new.txt",
    "src/new.rs",
    "src/lib/new.txt",
    "src",
    "src/lib/deep",
    "docs/more",
    "d",
    "d/e",
    "d/e/f",
    "d/e/g.txt",
    "a.txt/below",
    "link-dir/new.txt",
    "link-dir",
    "dangling",
    "nowhere/at.txt",
    "x.log",
    "src/y.log",
    "ign/new.txt",
    "denied/new.txt",
    "ask/new.txt",
    "ask/sub/three.txt",
    "sp ace/q'uo\"te.txt",
    "ünï/cö.txt",
    "-x/-y",
    ".hidden/.h",
];
const NEW_FOLDERS: [&str; 8] = ["moved", "src/moved", "d", "d/e", "docs", "link-dir/in", "ask/moved", "mo ved/ö"];
const LINK_TARGETS: [&str; 8] =
    ["a.txt", "src", "src/lib/mod.rs", "docs/more", "nowhere", "d/e", "../x", "/etc/passwd"];

impl Sequence {
    /// Plans the next step. `head` is the run's newest record.
    pub(super) fn plan(&mut self, head: u64) -> Plan {
        match self.random.below(20) {
            0..=11 => self.single(),
            12..=13 => self.batch(),
            14..=16 => self.change_set(head),
            _ => self.revert().unwrap_or_else(|| self.single()),
        }
    }

    fn single(&mut self) -> Plan {
        let call = self.any_call();
        let is_unique = matches!(call.tool, "write_file" | "edit_file" | "replace_range");
        Plan {
            calls: vec![(call.tool, call.input)],
            layer: None,
            changes: call.changes.map(|one| vec![one]),
            is_unique,
        }
    }

    /// Calls that take effect one after the other, or not at all.
    fn batch(&mut self) -> Plan {
        let files = self.checkout.files.clone();
        let (mut calls, mut changes) = (Vec::new(), Some(Vec::new()));
        for _ in 0..2 + self.random.below(2) {
            let call = self.any_call();
            // The files of a folder are those that it had before the batch.
            if call.input.get("recursive").is_some() {
                continue;
            }
            calls.push((call.tool, call.input));
            if let Some(one) = &call.changes {
                self.checkout.files = self.checkout.after(one).unwrap();
            }
            changes = changes.zip(call.changes).map(|(mut all, one)| {
                all.push(one);
                all
            });
        }
        self.checkout.files = files;
        if calls.is_empty() {
            return self.single();
        }
        Plan { calls, layer: None, changes, is_unique: false }
    }

    fn any_call(&mut self) -> Call {
        let mut call = match self.random.below(14) {
            0..=3 => self.write(),
            4..=5 => self.edit(),
            6 => self.replace_range(),
            7 => self.delete(),
            8 => self.delete_folder(),
            9 => self.move_file(),
            10 => self.move_folder(),
            _ => self.patch(),
        };
        call.input["toolCallId"] = self.new_id();
        call.changes = call.changes.filter(|changes| self.is_allowed(changes));
        call
    }

    fn new_id(&mut self) -> Value {
        json!(format!("call-{}", self.random.next()))
    }

    /// Whether policy and the other files permit the changes.
    fn is_allowed(&mut self, changes: &Changes) -> bool {
        self.checkout.after(changes).is_some()
            && changes.iter().all(|(path, _)| !path.starts_with(DENIED) && !self.checkout.is_ignored(path))
    }

    /// Returns an existing file or link. None of them has a name that no new file may have.
    fn existing(&mut self) -> String {
        let paths: Vec<_> = self.checkout.files.keys().filter(|path| !path.contains('\n')).cloned().collect();
        self.random.pick(&paths)
    }

    fn any_path(&mut self) -> String {
        if self.random.one_in(2) { self.existing() } else { self.random.pick(&NEW_PATHS).to_owned() }
    }

    fn folder(&mut self) -> String {
        let folders: Vec<_> = self.checkout.files.keys().flat_map(|path| above(path)).map(str::to_owned).collect();
        self.random.pick(&folders)
    }

    /// Returns a line that no other text has.
    fn line(&mut self) -> String {
        let word = self.random.pick(&["line", "needle", "zwölf", "  indented"]);
        format!("{word} {:x}", self.random.next())
    }

    fn lines(&mut self, most: usize) -> Vec<String> {
        (0..self.random.below(most + 1)).map(|_| self.line()).collect()
    }

    fn sha256(&self, path: &str) -> Option<String> {
        match self.checkout.files.get(path)? {
            Entry::File(bytes, _) => Some(Sha256::of(bytes).to_string()),
            Entry::Link(_) => None,
        }
    }

    /// The text of a file without NUL, and whether it is executable.
    fn text(&self, path: &str) -> Option<(String, bool)> {
        text_of(&self.checkout.files, path)
    }

    /// Returns the hash of the present version, or sometimes of another one, with which the call must be refused.
    fn expected(&mut self, path: &str) -> (Option<String>, bool) {
        if self.random.one_in(8) {
            return (Some(Sha256::of(b"another version").to_string()), true);
        }
        (self.sha256(path), false)
    }

    fn write(&mut self) -> Call {
        let path = self.any_path();
        let (expected, is_stale) = self.expected(&path);
        let mut lines = self.lines(4);
        if lines.is_empty() && self.text(&path).is_some_and(|(text, _)| text.is_empty()) {
            lines.push(self.line());
        }
        let content: String = joined(&lines);
        let old = self.text(&path);
        let is_text = old.is_some() || !self.checkout.files.contains_key(&path);
        let (old, is_executable) = old.unwrap_or_default();
        // A file keeps its line endings.
        let new = file(with_endings_of(&old, &content).as_bytes(), is_executable);
        let changes = (is_text && !is_stale).then(|| vec![(path.clone(), Some(new))]);
        Call {
            tool: "write_file",
            input: json!({"path": path, "content": content, "expectedSha256": expected}),
            changes,
        }
    }

    fn edit(&mut self) -> Call {
        let path = self.existing();
        let (expected, is_stale) = self.expected(&path);
        let new = self.line();
        let old = self.text(&path);
        let lines: Vec<_> = old.iter().flat_map(|(text, _)| text.lines()).map(str::to_owned).collect();
        let line = if lines.is_empty() { "missing".to_owned() } else { self.random.pick(&lines) };
        let once = |text: &String| !line.is_empty() && text.match_indices(&line).count() == 1;
        let edited = old.filter(|(text, _)| once(text) && !is_stale);
        let changes =
            edited.map(|(text, bit)| vec![(path.clone(), Some(file(text.replace(&line, &new).as_bytes(), bit)))]);
        Call {
            tool: "edit_file",
            input: json!({"path": path, "oldString": line, "newString": new, "expectedSha256": expected}),
            changes,
        }
    }

    fn replace_range(&mut self) -> Call {
        let path = self.existing();
        let (expected, is_stale) = self.expected(&path);
        let expected = expected.unwrap_or_else(|| Sha256::of(b"").to_string());
        let old = self.text(&path);
        let total = old.as_ref().map_or(0, |(text, _)| text.lines().count());
        let start = self.random.below(total + 1);
        let end = start + self.random.below(total + 1 - start);
        let mut new = self.lines(3);
        if end == start && new.is_empty() {
            new.push(self.line());
        }
        let content: String = joined(&new);
        let is_ended = |text: &String| text.is_empty() || text.ends_with('\n');
        let changes = old.filter(|_| !is_stale).filter(|(text, _)| is_ended(text) || end < total).map(|(text, bit)| {
            let lines: Vec<_> = text.split_inclusive('\n').collect();
            let new = [&lines[..start].concat(), &with_endings_of(&text, &content), &lines[end..].concat()]
                .map(String::as_str)
                .concat();
            vec![(path.clone(), Some(file(new.as_bytes(), bit)))]
        });
        // The last line of a file without an end of line is left alone: give lines that are not there.
        let end = if changes.is_none() && !is_stale { end.max(total) + 7 } else { end };
        let input = json!({"path": path, "startLine": start + 1, "endLine": end, "content": content, "expectedSha256": expected});
        Call { tool: "replace_range", input, changes }
    }

    fn delete(&mut self) -> Call {
        let path = self.any_path();
        let (expected, is_stale) = self.expected(&path);
        let is_file = self.sha256(&path).is_some() && !is_stale;
        let expected = expected.unwrap_or_else(|| Sha256::of(b"").to_string());
        let input = json!({"path": path, "expectedSha256": expected});
        Call { tool: "delete_file", input, changes: is_file.then(|| vec![(path, None)]) }
    }

    fn delete_folder(&mut self) -> Call {
        let folder = self.folder();
        let gone: Files =
            files_under(&self.checkout.files, &folder).map(|(path, entry)| (path.clone(), entry.clone())).collect();
        let changes = gone.values().all(is_file).then(|| gone.into_keys().map(|path| (path, None)).collect());
        Call { tool: "delete_file", input: json!({"path": folder, "recursive": true}), changes }
    }

    fn move_file(&mut self) -> Call {
        let (from, to) = (self.existing(), self.random.pick(&NEW_PATHS).to_owned());
        let (expected, is_stale) = self.expected(&from);
        let expected = expected.unwrap_or_else(|| Sha256::of(b"").to_string());
        let entry = self.checkout.files.get(&from).filter(|entry| is_file(entry) && !is_stale).cloned();
        let is_free = !self.checkout.files.contains_key(&to);
        let changes = entry.filter(|_| is_free).map(|entry| vec![(from.clone(), None), (to.clone(), Some(entry))]);
        Call { tool: "move_file", input: json!({"from": from, "to": to, "expectedSha256": expected}), changes }
    }

    fn move_folder(&mut self) -> Call {
        let (from, to) = (self.folder(), self.random.pick(&NEW_FOLDERS).to_owned());
        let files = &self.checkout.files;
        let moved: Files = files_under(files, &from).map(|(path, entry)| (path.clone(), entry.clone())).collect();
        let is_possible = from != to
            && !to.starts_with(&format!("{from}/"))
            && files_under(files, &to).next().is_none()
            && !files.contains_key(&to)
            && moved.values().all(is_file);
        let changes = moved.into_iter().flat_map(|(path, entry)| {
            let new = format!("{to}{}", path.strip_prefix(&from).unwrap());
            [(path, None), (new, Some(entry))]
        });
        let changes = is_possible.then(|| changes.collect());
        Call { tool: "move_file", input: json!({"from": from, "to": to, "recursive": true}), changes }
    }

    /// A patch of up to four files: created, changed in one line or in mode, deleted, or renamed.
    fn patch(&mut self) -> Call {
        let (mut patch, mut changes, mut expected) = (String::new(), Some(Changes::new()), json!({}));
        for _ in 0..=self.random.below(4) {
            let path = self.any_path();
            let others = changes.iter().flatten().any(|(other, _)| *other == path);
            // Line endings and a missing end of line are for other tests.
            let old = self.text(&path).filter(|(text, _)| text.ends_with('\n') && !text.contains('\r'));
            if others || (old.is_none() && self.checkout.files.contains_key(&path)) {
                continue;
            }
            let section = match old {
                None => self.created(&path, &mut patch),
                Some((text, bit)) => {
                    expected[&path] = json!(self.sha256(&path));
                    self.changed(&path, &text, bit, &mut patch)
                }
            };
            let is_new =
                |(path, _): &(String, Option<Entry>)| !changes.iter().flatten().any(|(other, _)| other == path);
            changes =
                section.iter().all(is_new).then(|| changes.clone().unwrap_or_default()).filter(|_| changes.is_some());
            changes = changes.map(|all| [all, section].concat());
        }
        if patch.is_empty() {
            return self.write();
        }
        if self.random.one_in(10) {
            (expected, changes) = (json!({self.existing(): Sha256::of(b"another version").to_string()}), None);
        }
        Call { tool: "apply_patch", input: json!({"patch": patch, "expectedSha256": expected}), changes }
    }

    fn created(&mut self, path: &str, patch: &mut String) -> Changes {
        let (lines, bit) = (self.lines(3), self.random.one_in(4));
        let mode = if bit { "100755" } else { "100644" };
        writeln!(patch, "diff --git {0} {1}\nnew file mode {mode}", quoted("a", path), quoted("b", path)).unwrap();
        if !lines.is_empty() {
            writeln!(patch, "--- /dev/null\n+++ {}\n@@ -0,0 +1,{} @@", quoted("b", path), lines.len()).unwrap();
        }
        let text: String = joined(&lines);
        patch.extend(lines.iter().map(|line| format!("+{line}\n")));
        vec![(path.to_owned(), Some(file(text.as_bytes(), bit)))]
    }

    fn changed(&mut self, path: &str, text: &str, bit: bool, patch: &mut String) -> Changes {
        let lines: Vec<_> = text.lines().collect();
        let (a, b) = (quoted("a", path), quoted("b", path));
        match self.random.below(5) {
            0 => {
                let mode = if bit { "100755" } else { "100644" };
                writeln!(
                    patch,
                    "diff --git {a} {b}\ndeleted file mode {mode}\n--- {a}\n+++ /dev/null\n@@ -1,{} +0,0 @@",
                    lines.len()
                )
                .unwrap();
                patch.extend(lines.iter().map(|line| format!("-{line}\n")));
                vec![(path.to_owned(), None)]
            }
            1 => {
                let to = self.random.pick(&NEW_PATHS);
                let (from, new) = (quoted("", path), quoted("", to));
                writeln!(
                    patch,
                    "diff --git {a} {}\nsimilarity index 100%\nrename from {from}\nrename to {new}",
                    quoted("b", to)
                )
                .unwrap();
                let entry = Some(file(text.as_bytes(), bit));
                // A rename onto an existing path is refused: so is a change that puts two entries at one path.
                if self.checkout.files.contains_key(to) {
                    return vec![
                        (path.to_owned(), None),
                        (to.to_owned(), entry.clone()),
                        (format!("{to}/taken"), entry),
                    ];
                }
                vec![(path.to_owned(), None), (to.to_owned(), entry)]
            }
            2 => {
                let (old, new) = if bit { ("100755", "100644") } else { ("100644", "100755") };
                writeln!(patch, "diff --git {a} {b}\nold mode {old}\nnew mode {new}").unwrap();
                vec![(path.to_owned(), Some(file(text.as_bytes(), !bit)))]
            }
            _ => {
                let (at, new) = (self.random.below(lines.len()), self.line());
                writeln!(patch, "diff --git {a} {b}\n--- {a}\n+++ {b}\n@@ -1,{0} +1,{0} @@", lines.len()).unwrap();
                let mut changed = String::new();
                for (index, line) in lines.iter().enumerate() {
                    if index == at {
                        write!(patch, "-{line}\n+{new}\n").unwrap();
                        writeln!(changed, "{new}").unwrap();
                    } else {
                        writeln!(patch, " {line}").unwrap();
                        writeln!(changed, "{line}").unwrap();
                    }
                }
                vec![(path.to_owned(), Some(file(changed.as_bytes(), bit)))]
            }
        }
    }

    /// A change set of files, links, modes and removals, also of whole folders and of files in the place of folders.
    fn change_set(&mut self, head: u64) -> Plan {
        let (mut tar, mut changes, mut is_refused) = (tar::Builder::new(Vec::new()), Changes::new(), false);
        let before = self.checkout.files.clone();
        for _ in 0..=self.random.below(5) {
            let path = if self.random.one_in(4) { self.folder() } else { self.any_path() };
            // One entry of the layer is not to depend on another one.
            let is_near = |other: &String| {
                *other == path || other.starts_with(&format!("{path}/")) || path.starts_with(&format!("{other}/"))
            };
            let is_below_file = above(&path).any(|folder| self.checkout.files.contains_key(folder));
            if changes.iter().any(|(other, _)| is_near(other)) || is_below_file {
                continue;
            }
            let under: Vec<_> = files_under(&self.checkout.files, &path).map(|(path, _)| path.clone()).collect();
            if under.iter().any(|path| path.starts_with(DENIED) || self.checkout.is_ignored(path)) {
                continue;
            }
            let entry = self.layer_entry(&path);
            add_to_layer(&mut tar, &path, entry.as_ref());
            if self.checkout.is_ignored(&path) {
                // What git ignores is not taken.
                continue;
            }
            is_refused |= path.starts_with(DENIED) || entry.as_ref().is_some_and(|entry| !stays_inside(&path, entry));
            // A link that leads out of the tree is in no archive, so no command has changed it.
            is_refused |= before.get(&path).is_some_and(|old| !stays_inside(&path, old));
            changes.extend(under.into_iter().map(|path| (path, None)));
            if entry.is_some() || self.checkout.files.contains_key(&path) {
                changes.push((path, entry));
            }
        }
        is_refused |= changes.iter().any(|(path, entry)| leads_through_link(path, entry.as_ref(), &before, &changes));
        changes.retain(|(path, entry)| before.get(path) != entry.as_ref());
        let input = json!({"toolCallId": self.new_id(), "basedOnSeq": head});
        if !is_refused && changes.is_empty() {
            return self.single();
        }
        let layer = Some(tar.into_inner().unwrap());
        let changes = (!is_refused).then(|| vec![changes]);
        Plan { calls: vec![("apply_changeset", input)], layer, changes, is_unique: false }
    }

    fn layer_entry(&mut self, path: &str) -> Option<Entry> {
        match self.random.below(8) {
            0..=1 => None,
            2 => Some(Entry::Link(self.random.pick(&LINK_TARGETS).to_owned())),
            3 => Some(file(format!("\0{}", self.line()).as_bytes(), self.random.one_in(2))),
            4 => match self.checkout.files.get(path) {
                Some(Entry::File(bytes, bit)) => Some(Entry::File(bytes.clone(), !bit)),
                _ => Some(file(b"", false)),
            },
            5 => Some(file(self.lines(3).join("\r\n").as_bytes(), false)),
            _ => Some(file(self.lines(4).join("\n").as_bytes(), self.random.one_in(4))),
        }
    }

    /// Undoes one to three calls. Each is undone if its files are as it left them.
    fn revert(&mut self) -> Option<Plan> {
        let count = self.done.len();
        if count < 3 {
            return None;
        }
        // Mostly late ones, whose files have not changed since.
        let first = if self.random.one_in(4) { self.random.below(count) } else { count - 1 - self.random.below(3) };
        let chosen = first..count.min(first + 1 + self.random.below(3));
        let (mut now, mut fits) = (self.checkout.files.clone(), true);
        let mut touched = Vec::new();
        for call in self.done[chosen.clone()].iter().rev() {
            fits &= call.after.iter().all(|(path, after)| now.get(path).map(bytes_of) == after.as_ref().map(bytes_of));
            let restored = call.before.iter().zip(&call.after).map(|((path, before), (_, after))| {
                let entry = match (before, after, now.get(path)) {
                    // A mode that the call has not changed stays as it is.
                    (Some(Entry::File(bytes, old)), Some(Entry::File(_, new)), Some(Entry::File(_, bit)))
                        if old == new =>
                    {
                        Some(file(bytes, *bit))
                    }
                    _ => before.clone(),
                };
                (path.clone(), entry)
            });
            for (path, entry) in restored.collect::<Vec<_>>() {
                match entry {
                    Some(entry) => now.insert(path.clone(), entry),
                    None => now.remove(&path),
                };
                touched.push(path);
            }
        }
        touched.sort();
        touched.dedup();
        let changes: Changes = touched.iter().map(|path| (path.clone(), now.get(path).cloned())).collect();
        let changes: Changes =
            changes.into_iter().filter(|(path, entry)| self.checkout.files.get(path) != entry.as_ref()).collect();
        if fits && changes.is_empty() {
            return None;
        }
        let ids: Vec<_> = self.done[chosen].iter().map(|call| &call.id).collect();
        let input = json!({"toolCallIds": ids, "toolCallId": format!("revert-{}", self.random.next())});
        let changes = (fits && self.checkout.after(&changes).is_some()).then(|| vec![changes]);
        Some(Plan { calls: vec![("revert_calls", input)], layer: None, changes, is_unique: false })
    }

    /// Returns an edit of one line of a text that a change creates: path, old and new line, and the file after it.
    pub(super) fn edit_of(&mut self, changes: &Changes) -> Option<(String, String, String, Entry)> {
        let new = self.line();
        let (path, Some(Entry::File(bytes, bit))) = changes.first()? else { return None };
        let text = std::str::from_utf8(bytes).ok()?;
        let line = text.lines().next().filter(|line| text.match_indices(line).count() == 1)?;
        let is_edited = is_asked(path) && !line.is_empty() && self.random.one_in(2);
        is_edited.then(|| (path.clone(), line.to_owned(), new.clone(), file(text.replace(line, &new).as_bytes(), *bit)))
    }
}

fn text_of(files: &Files, path: &str) -> Option<(String, bool)> {
    match files.get(path)? {
        Entry::File(bytes, bit) if !bytes.contains(&0) => Some((String::from_utf8(bytes.clone()).unwrap(), *bit)),
        Entry::File(..) | Entry::Link(_) => None,
    }
}

fn is_file(entry: &Entry) -> bool {
    matches!(entry, Entry::File(..))
}

fn bytes_of(entry: &Entry) -> &[u8] {
    match entry {
        Entry::File(bytes, _) => bytes,
        Entry::Link(target) => target.as_bytes(),
    }
}

fn with_endings_of(old: &str, new: &str) -> String {
    if old.contains("\r\n") { new.replace('\n', "\r\n") } else { new.to_owned() }
}

/// Whether a link leads through another one of the tree or of the changes.
fn leads_through_link(path: &str, entry: Option<&Entry>, before: &Files, changes: &Changes) -> bool {
    let Some(Entry::Link(target)) = entry else { return false };
    let mut names: Vec<_> = path.split('/').collect();
    names.pop();
    for name in target.split('/') {
        if name == ".." {
            names.pop();
        } else {
            names.push(name);
        }
    }
    let to = names.join("/");
    above(&to).any(|folder| match changes.iter().find(|(path, _)| path == folder) {
        Some((_, entry)) => matches!(entry, Some(Entry::Link(_))),
        None => matches!(before.get(folder), Some(Entry::Link(_))),
    })
}

/// Quotes a path as git does.
fn quoted(side: &str, path: &str) -> String {
    let mut quoted = String::from("\"");
    let full = if side.is_empty() { path.to_owned() } else { format!("{side}/{path}") };
    for byte in full.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            other => write!(quoted, "\\{other:03o}").unwrap(),
        }
    }
    quoted + "\""
}

fn add_to_layer(tar: &mut tar::Builder<Vec<u8>>, path: &str, entry: Option<&Entry>) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(if matches!(entry, Some(Entry::File(_, true))) { 0o755 } else { 0o644 });
    match entry {
        Some(Entry::Link(target)) => {
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            tar.append_link(&mut header, path, target).unwrap();
        }
        Some(Entry::File(bytes, _)) => {
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, &bytes[..]).unwrap();
        }
        None => {
            header.set_size(0);
            let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
            let whiteout = if folder.is_empty() { format!(".wh.{name}") } else { format!("{folder}/.wh.{name}") };
            tar.append_data(&mut header, whiteout, &[][..]).unwrap();
        }
    }
}
