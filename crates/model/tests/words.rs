//! The vocabulary of names, messages, comments and documents: finds words for which there is a plainer term.
//!
//! A name counts by its parts: `is_told` and `ToldRun` both contain the word `told`. A phrase may continue on the next line
//! of a comment. To see the findings of a folder, delete its line of [`NOT_YET`] and run `cargo test -p model --test words`.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the test reads the repository's own files")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders and files that still use these words. Lines are only ever removed: an entry without findings fails the test.
const NOT_YET: &[&str] = &[];

/// What is not prose of this project, and this list itself.
const EXCLUDED: &[&str] = &[
    ".git/",
    "LICENSE",
    "Cargo.lock",
    "crates/model/tests/words.rs",
    "crates/workspaced/dashboard/node_modules/",
    "migrations/",
    "target/",
];

/// Lines that need such a word, by file and exact text.
const ALLOWED: &[(&str, &str)] = &[
    // The kernel's name of the flag.
    ("crates/workspace/src/dir.rs", "let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;"),
    (
        "crates/workspace/src/guard.rs",
        "Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV }",
    ),
    ("crates/workspace/src/guard.rs", "Self { dir, resolve: ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS }"),
    (
        "crates/workspace/src/guard/self_test.rs",
        r#"needed("openat2 with RESOLVE_BENEATH", "to open a file", opened)?;"#,
    ),
    // A column of the database.
    ("crates/ledger/src/checkpoint.rs", "NODE: Insert checkpoint_node (place Int, hash Bytes);"),
    (
        "crates/ledger/src/checkpoint.rs",
        r#"const NODES: &str = "SELECT place, hash FROM checkpoint_node WHERE place IN ($1, $2, $3, $4, $5, $6, $7, $8)";"#,
    ),
    (
        "crates/ledger/src/entry_rows.rs",
        "run_no Int, seq Int, place Int, path Text, before_sha256 Bytes, after_sha256 Bytes, mode Int, staged Text,",
    ),
    (
        "crates/ledger/src/rows.rs",
        r#""FROM (SELECT run_id, step.run_no, seq, place, path, before_sha256, after_sha256, mode, staged, position, ","#,
    ),
    (
        "crates/ledger/src/rows.rs",
        r#"" ORDER BY step.run_no, seq, place) AS s ORDER BY run_no, seq, place) AS s ORDER BY run_no, seq, place""#,
    ),
    (
        "crates/ledger/tests/conformance/checkpoints.rs",
        r#"[("checkpoint_leaf", "head_seq = 9"), ("checkpoint_node", "place = 9"), ("checkpoint", "note = 'x'")]"#,
    ),
    // A column of the database, and a constant of the kernel.
    (
        "crates/workspaced/tests/it/audit/tampering.rs",
        r#"server.rewrite(&run, &[&format!("update checkpoint_node set hash = {zero} where place = 0")]).await;"#,
    ),
    ("crates/workspaced/tests/it/audit/tampering.rs", r#""delete from checkpoint_node where place > 2","#),
    (
        "crates/workspaced/tests/it/operation/process.rs",
        r#""lacks openat2 with RESOLVE_BENEATH, which is needed to open a file""#,
    ),
];

/// One entry of the vocabulary: words or phrases, separated by commas.
struct Entry {
    /// What must not occur.
    words: &'static str,
    /// What to write.
    instead: &'static str,
    /// Longer phrases with one of `words` that are correct.
    except: &'static str,
}

const fn entry(words: &'static str, instead: &'static str) -> Entry {
    Entry { words, instead, except: "" }
}

const VOCABULARY: &[Entry] = &[
    entry("tell, tells, telling, told, untold", "report, return, say, inform, distinguish"),
    Entry {
        words: "stand, stands, standing, stood",
        instead: "is, remains, represents",
        except: "stand alone, standing in for",
    },
    Entry {
        words: "behind",
        instead: "after, beyond, lagging, in the background",
        except: "write behind, behind an http api, behind a proxy, behind a reverse proxy, behind one proxy, behind a load balancer",
    },
    entry("anew, afresh", "again, new"),
    Entry { words: "beneath", instead: "under, below", except: "path beneath rules, resolve beneath" },
    entry("whoever, whomever", "the caller, any caller, the client that"),
    entry("whatever, whichever", "any, every, regardless of"),
    entry("stead", "instead"),
    entry("come to, comes to, came to, coming to", "is, reaches, results in, amounts to"),
    entry("is none of, are none of, was none of", "does not belong to, is not one of"),
    entry("hear, hears, heard", "is notified, receives"),
    entry("lead out, leads out, led out", "escapes, resolves to a path outside"),
    entry("a look, the look, one look, each look, every look, looks and changes", "a read, a lookup, a check"),
    entry("is there, are there, was there, were there", "exists, is present, remains"),
    entry("what is left, whatever is left", "the rest, the remainder"),
    Entry { words: "for good", instead: "permanently", except: "for good in, for good and" },
    entry("as ever, than ever", "unchanged, as before"),
    entry("in vain", "without effect, unsuccessfully"),
    entry("see to it, sees to it, seen to", "ensures"),
    Entry { words: "it did", instead: "what the response contains", except: "as it did, than it did" },
    entry("errs", "prefers, chooses"),
    Entry {
        words: "place, places",
        instead: "offset, position, slot, permit, location, path",
        except: "in place, into place, in place of, takes place, took place, first place, decimal places",
    },
    entry("room, rooms", "space, capacity"),
    entry("hunt, hunts", "search"),
    entry("shelf, shelves", "cache"),
    entry("lane, lanes", "path locks"),
    entry("storm, storms", "mixed load, burst"),
    entry("eye, eyes", "worker"),
    entry("ground, grounds", "root, base"),
];

/// A word of a file.
struct Word {
    text: String,
    line: usize,
    /// Whether something other than a space, a comment's marker or an underscore separates it from the word before it.
    starts_phrase: bool,
}

/// Splits a text into lower-case words, and names into their parts.
fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let (mut line, mut starts_phrase) = (1, true);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character.is_ascii_alphabetic() {
            let mut word = String::from(character.to_ascii_lowercase());
            let mut has_lower = character.is_ascii_lowercase();
            while let Some(next) = characters.peek().copied().filter(char::is_ascii_alphabetic) {
                if has_lower && next.is_ascii_uppercase() {
                    break;
                }
                has_lower |= next.is_ascii_lowercase();
                word.push(next.to_ascii_lowercase());
                characters.next();
            }
            found.push(Word { text: word, line, starts_phrase });
            starts_phrase = false;
        } else if character == '\\' {
            // An escape such as `\n` is no part of the word that follows it.
            let escaped = characters.next_if(|next| *next != '\n');
            starts_phrase |= escaped.is_some();
        } else {
            line += usize::from(character == '\n');
            starts_phrase |= !character.is_whitespace() && !"/!#*>_-`'\"".contains(character);
        }
    }
    found
}

/// The vocabulary, by the first word of each phrase.
struct Index(HashMap<&'static str, Vec<Phrase>>);

struct Phrase {
    words: Vec<&'static str>,
    except: Vec<Vec<&'static str>>,
    instead: &'static str,
}

impl Index {
    fn new() -> Self {
        let mut index: HashMap<_, Vec<_>> = HashMap::new();
        for entry in VOCABULARY {
            for words in split(entry.words) {
                let phrase = Phrase { words, except: split(entry.except), instead: entry.instead };
                index.entry(phrase.words[0]).or_default().push(phrase);
            }
        }
        Self(index)
    }

    /// Every finding in a text: its line, the words and what to write.
    fn findings(&self, text: &str) -> Vec<(usize, String, &'static str)> {
        let words = words(text);
        let mut found = Vec::new();
        for (start, word) in words.iter().enumerate() {
            for phrase in self.0.get(word.text.as_str()).into_iter().flatten() {
                if is_at(&words, start, &phrase.words) && !is_excepted(&words, start, phrase) {
                    found.push((word.line, phrase.words.join(" "), phrase.instead));
                }
            }
        }
        found
    }
}

fn split(phrases: &'static str) -> Vec<Vec<&'static str>> {
    let phrases = phrases.split(',').map(|phrase| phrase.split_whitespace().collect());
    phrases.filter(|phrase: &Vec<_>| !phrase.is_empty()).collect()
}

fn is_at(words: &[Word], start: usize, phrase: &[&str]) -> bool {
    words.get(start..start + phrase.len()).is_some_and(|found| {
        let equal = found.iter().zip(phrase).all(|(word, expected)| word.text == *expected);
        equal && found.iter().skip(1).all(|word| !word.starts_phrase)
    })
}

/// Whether the phrase at `start` is part of a correct one.
fn is_excepted(words: &[Word], start: usize, phrase: &Phrase) -> bool {
    phrase.except.iter().any(|correct| {
        let starts = (0..=correct.len() - phrase.words.len()).filter_map(|before| start.checked_sub(before));
        starts.into_iter().any(|first| is_at(words, first, correct))
    })
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every document, source and script of the repository, relative to its root.
fn files(root: &Path, under: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(under))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if under.is_empty() { name.clone() } else { format!("{under}/{name}") };
        let is_folder = entry.file_type()?.is_dir();
        let compared = if is_folder { format!("{path}/") } else { path.clone() };
        if EXCLUDED.iter().any(|excluded| compared.starts_with(excluded)) {
            continue;
        }
        let is_script = path.starts_with(".ci/") || path.starts_with("deploy/");
        let extension = Path::new(&name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if is_folder {
            files(root, &path, found)?;
        } else if is_script
            || ["rs", "md", "toml", "sh", "yml", "py"].contains(&extension)
            || path.starts_with("openapi/")
        {
            found.push(path);
        }
    }
    Ok(())
}

#[test]
fn every_file_uses_the_vocabulary() {
    let root = root();
    let mut paths = Vec::new();
    files(&root, "", &mut paths).unwrap();
    paths.sort();
    assert!(paths.len() > 300, "only {} files were found", paths.len());
    let index = Index::new();
    let (mut report, mut count, mut unfinished) = (String::new(), 0, vec![0; NOT_YET.len()]);
    for path in &paths {
        let text = fs::read_to_string(root.join(path)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (line, words, instead) in index.findings(&text) {
            if ALLOWED.contains(&(path.as_str(), lines[line - 1].trim())) {
                continue;
            }
            if let Some(entry) = NOT_YET.iter().position(|prefix| path.starts_with(prefix)) {
                unfinished[entry] += 1;
            } else {
                count += 1;
                writeln!(report, "{path}:{line}: `{words}`: write {instead}").unwrap();
            }
        }
    }
    for (prefix, findings) in NOT_YET.iter().zip(unfinished) {
        println!("{prefix}: {findings} findings, not yet fixed");
        if findings == 0 && root.join(prefix).exists() {
            count += 1;
            writeln!(report, "{prefix} has no findings: remove it from NOT_YET").unwrap();
        }
    }
    assert_eq!(count, 0, "{count} findings:\n{report}");
}

#[test]
fn every_exception_is_needed() {
    for (path, allowed) in ALLOWED {
        let text = fs::read_to_string(root().join(path)).unwrap();
        assert!(text.lines().any(|line| line.trim() == *allowed), "{path} has no line `{allowed}`");
    }
}

#[test]
fn words_are_found_in_prose_in_names_and_across_lines() {
    let index = Index::new();
    let found = |text: &str| {
        index.findings(text).into_iter().map(|(line, words, _)| format!("{line} {words}")).collect::<Vec<_>>()
    };
    assert_eq!(found("is\nTold."), ["2 told"]);
    assert_eq!(found("fn is_told(x: ToldProperly)"), ["1 told", "1 told"]);
    assert_eq!(found("/// the cursor is\n/// none of these"), ["1 is none of"]);
    assert_eq!(found("\"first\\ntold\""), ["1 told"]);
    assert_eq!(found("wrong: it did. It was"), ["1 it did"]);
    assert_eq!(found("the standard way of understanding a stand-alone process behind a proxy"), [""; 0]);
    assert_eq!(found("what it is. There is more"), [""; 0]);
    assert_eq!(found("renamed into place, in place of a file at the place"), ["1 place"]);
}
