//! A git repository as a source: fetched into a bare repository of the service, then read object by object.
//!
//! Nothing is checked out, so no filter, hook or attribute of the source has a moment to run in. The program that serves
//! a local source runs with an environment in which only the service's own configuration may name programs.

#[cfg(test)]
mod tests;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use model::Refusal;

use super::sink::{Sink, SinkFault, is_git_internal, shown};
use super::{ImportFault, ImportLimits, ImportWatch, bare};
use crate::base::manifest::{MODE_EXECUTABLE, MODE_FILE, MODE_LINK};
use crate::git::{Bounds, Git, GitFault};

/// How long a fetch may take.
const FETCH_TIME: Duration = Duration::from_mins(15);
/// How long reading the fetched objects may take.
const READ_TIME: Duration = Duration::from_mins(15);
/// Where the fetched commit is kept.
pub(crate) const FETCHED: &str = "refs/workspaced/base";
/// A link's target is a path.
const MAX_LINK_BYTES: u64 = 4096;

/// Where to fetch from.
pub(super) enum Origin {
    Remote(String),
    Local(PathBuf),
}

/// Fetches one commit into `git`'s folder, which is made, and puts its tree into the sink. Returns the commit.
pub(super) fn copy(
    git: &Git,
    origin: &Origin,
    reference: Option<&str>,
    limits: ImportLimits,
    watch: &dyn ImportWatch,
    sink: &mut Sink<'_>,
) -> Result<String, ImportFault> {
    let reference = reference.map_or(Ok("HEAD"), check_reference)?;
    let git = match origin {
        Origin::Remote(url) => from(git, check_url(url)?),
        Origin::Local(path) => from(git, path.to_str().ok_or_else(no_repository)?),
    };
    watch.progress("fetching", 0, 0);
    let fetch = Fetch { git: &git, limits, watch };
    let commit = fetch.commit(reference)?;
    watch.progress("writing", 0, 0);
    let entries = list(&git, &commit, limits, watch, sink)?;
    write(&git, &entries, watch, sink)?;
    Ok(commit)
}

/// Git with a remote of the name `origin` at `url`. By the environment: an address may hold a password, and what a
/// program was started with is for everybody to see.
fn from(git: &Git, url: &str) -> Git {
    git.clone()
        .with_env("GIT_CONFIG_COUNT", "1")
        .with_env("GIT_CONFIG_KEY_0", "remote.origin.url")
        .with_env("GIT_CONFIG_VALUE_0", url)
}

fn check_url(url: &str) -> Result<&str, Refusal> {
    let is_https = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let is_plain = url.len() <= 2048 && url.bytes().all(|byte| byte.is_ascii_graphic());
    if is_https && is_plain && url.len() > 8 {
        Ok(url)
    } else {
        Err(Refusal::invalid(
            "a git source is an address that begins with https:// or a folder under an import root",
            "Give the repository's https address.",
        ))
    }
}

/// The name of a branch, a tag or a commit, which git cannot take for anything else.
fn check_reference(reference: &str) -> Result<&str, Refusal> {
    let forbidden = |byte: u8| byte.is_ascii_control() || b" ~^:?*[\\".contains(&byte);
    let bad = reference.is_empty()
        || reference.len() > 255
        || reference.starts_with(['-', '/', '+'])
        || reference.ends_with(['/', '.'])
        || reference.contains("..")
        || reference.contains("//")
        || reference.contains("@{")
        || reference.bytes().any(forbidden)
        || reference.split('/').any(|name| name.starts_with('.') || name.strip_suffix(".lock").is_some());
    if bad {
        return Err(Refusal::invalid(
            "the source's `ref` is no name of a branch, a tag or a commit",
            "Give a branch, a tag, or a commit of 4 to 40 hexadecimal digits.",
        ));
    }
    Ok(reference)
}

fn no_repository() -> ImportFault {
    Refusal::invalid(
        "the source is no git repository that can be read",
        "Name a git repository with at least one commit, or use a `directory` source.",
    )
    .into()
}

struct Fetch<'a> {
    git: &'a Git,
    limits: ImportLimits,
    watch: &'a dyn ImportWatch,
}

impl Fetch<'_> {
    /// Fetches what `reference` names, as little as possible.
    fn commit(&self, reference: &str) -> Result<String, ImportFault> {
        match self.fetch(&[&format!("+{reference}:{FETCHED}")], "--depth=1") {
            Ok(()) => return self.resolve(FETCHED),
            Err(ImportFault::Refused(refusal)) if !may_be_commit(reference) => return Err(refusal.into()),
            Err(ImportFault::Refused(_)) => {}
            Err(fault) => return Err(fault),
        }
        // The start of a commit's name, or a commit that no ref names: only all commits can tell.
        self.fetch(&["+refs/heads/*:refs/source/heads/*", "+refs/tags/*:refs/source/tags/*"], "--no-depth")?;
        let commit = self.resolve(reference)?;
        self.run(&["update-ref", FETCHED, &commit])?;
        Ok(commit)
    }

    fn fetch(&self, refspecs: &[&str], depth: &str) -> Result<(), ImportFault> {
        let mut args = vec!["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc"];
        args.extend(["--no-recurse-submodules", "--update-shallow"]);
        if depth == "--depth=1" {
            args.push(depth);
        }
        args.extend(["--end-of-options", "origin"]);
        args.extend(refspecs);
        let too_much = || bare::size(self.git.dir()) > self.limits.max_bytes;
        let bounds = Bounds { time: FETCH_TIME, stop: &|| self.watch.cancelled(), too_much: &too_much };
        self.git.output(&args, 64 * 1024, &bounds).map_err(fetch_fault)?;
        Ok(())
    }

    /// The commit that `name` leads to in what was fetched.
    fn resolve(&self, name: &str) -> Result<String, ImportFault> {
        let out = self.run(&["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")])?;
        let commit = String::from_utf8_lossy(&out).trim().to_owned();
        if commit.len() == 40 { Ok(commit) } else { Err(no_repository()) }
    }

    fn run(&self, args: &[&str]) -> Result<Vec<u8>, ImportFault> {
        self.git.output(args, 64 * 1024, &Bounds::seconds(60)).map_err(fetch_fault)
    }
}

fn may_be_commit(reference: &str) -> bool {
    (4..=40).contains(&reference.len()) && reference.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn fetch_fault(fault: GitFault) -> ImportFault {
    match fault {
        GitFault::Io(fault) => ImportFault::Io(fault),
        GitFault::Cancelled => ImportFault::Cancelled,
        GitFault::Failed(complaint) => {
            tracing::info!(complaint = %redact(&complaint), "a git source could not be fetched");
            Refusal::invalid(
                "the git source could not be fetched: no such repository, ref or commit, or it may not be read",
                "Check the address or path and the `ref`; an empty repository has no commit to start from.",
            )
            .into()
        }
        GitFault::TooLong => {
            Refusal::invalid("the git source took too long to fetch", "Try again, or import an archive of the commit.")
                .into()
        }
        GitFault::TooMuch => {
            Refusal::invalid("the git source is too large", "Import an archive with less in it.").into()
        }
    }
}

/// A complaint without the passwords of the addresses in it.
fn redact(complaint: &str) -> String {
    let mut out = String::new();
    let mut rest = complaint;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || c == '\'').unwrap_or(after.len());
        let host = after[..end].rfind('@').map_or(0, |sign| sign + 1);
        rest = &after[host..];
    }
    out + rest
}

/// One file of the commit's tree.
struct TreeEntry {
    mode: u32,
    oid: [u8; 20],
    path: Vec<u8>,
}

/// Lists the commit's tree; what has no place in a run's is left out.
fn list(
    git: &Git,
    commit: &str,
    limits: ImportLimits,
    watch: &dyn ImportWatch,
    sink: &mut Sink<'_>,
) -> Result<Vec<TreeEntry>, ImportFault> {
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let args = ["ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit];
    let (entries, is_whole) = git
        .talk(&args, &bounds, |stdin, stdout| {
            drop(stdin);
            let mut from = BufReader::with_capacity(256 * 1024, stdout);
            let (mut entries, mut line) = (Vec::new(), Vec::new());
            let mut last_cut = Vec::new();
            // A tree of trees can name more files than there are atoms: it is not read to its end.
            while entries.len() as u64 <= limits.max_entries {
                line.clear();
                if from.read_until(0, &mut line)? == 0 {
                    return Ok((entries, true));
                }
                let entry = parse_entry(line.strip_suffix(b"\0").unwrap_or(&line))?;
                entries.extend(keep(entry, &mut last_cut, sink));
            }
            Err(io::ErrorKind::FileTooLarge.into())
        })
        .or_else(|fault| match fault {
            GitFault::Io(fault) if fault.kind() == io::ErrorKind::FileTooLarge => Ok((Vec::new(), false)),
            fault => Err(fetch_fault(fault)),
        })?;
    if is_whole { Ok(entries) } else { Err(super::sink::too_large("entries", limits.max_entries)) }
}

fn parse_entry(line: &[u8]) -> io::Result<(u32, Option<[u8; 20]>, Vec<u8>)> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "git ls-tree wrote an unknown line");
    let tab = line.iter().position(|byte| *byte == b'\t').ok_or_else(odd)?;
    let words = std::str::from_utf8(&line[..tab]).map_err(|_| odd())?;
    let [mode, _, oid] = words.split(' ').collect::<Vec<_>>()[..] else { return Err(odd()) };
    let mode = u32::from_str_radix(mode, 8).map_err(|_| odd())?;
    Ok((mode, parse_oid(oid), line[tab + 1..].to_owned()))
}

/// 40 hexadecimal digits as bytes.
pub(crate) fn parse_oid(hex: &str) -> Option<[u8; 20]> {
    let mut oid = [0; 20];
    if hex.len() != 40 {
        return None;
    }
    for (byte, digits) in oid.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(oid)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(oid: &[u8]) -> String {
    oid.iter().fold(String::with_capacity(oid.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        text
    })
}

/// The entry, if it may be in a run's tree. `last_cut` is the last folder that was left out.
fn keep(
    (mode, oid, path): (u32, Option<[u8; 20]>, Vec<u8>),
    last_cut: &mut Vec<u8>,
    sink: &mut Sink<'_>,
) -> Option<TreeEntry> {
    if !last_cut.is_empty() && path.strip_prefix(&last_cut[..]).is_some_and(|rest| rest.first() == Some(&b'/')) {
        return None;
    }
    let mut end = 0;
    for name in path.split(|byte| *byte == b'/') {
        end += name.len();
        if is_git_internal(name) {
            last_cut.clear();
            last_cut.extend_from_slice(&path[..end]);
            sink.leave_out(&path[..end], "git's own");
            return None;
        }
        if matches!(name, b"" | b"." | b"..") {
            sink.leave_out(&path, "no name that a file can have");
            return None;
        }
        end += 1;
    }
    let mode = match mode {
        0o160_000 => {
            sink.leave_out(&path, "a submodule");
            return None;
        }
        MODE_LINK => MODE_LINK,
        mode if mode & 0o170_000 == 0o100_000 => {
            if mode & 0o111 == 0 {
                MODE_FILE
            } else {
                MODE_EXECUTABLE
            }
        }
        _ => {
            sink.leave_out(&path, "no file, folder or symbolic link");
            return None;
        }
    };
    Some(TreeEntry { mode, oid: oid?, path })
}

/// Writes the files' bytes, which one `cat-file` hands out in their order.
fn write(git: &Git, entries: &[TreeEntry], watch: &dyn ImportWatch, sink: &mut Sink<'_>) -> Result<(), ImportFault> {
    let bounds = Bounds { time: READ_TIME, stop: &|| watch.cancelled(), too_much: &|| false };
    let mut over = None;
    let said = git.talk(&["cat-file", "--batch", "--buffer"], &bounds, |mut stdin, stdout| {
        thread::scope(|scope| {
            let asked: Vec<_> = entries.iter().map(|entry| hex(&entry.oid)).collect();
            // Asks from beside, since git stops reading while nobody takes its answers.
            scope.spawn(move || asked.iter().try_for_each(|oid| writeln!(stdin, "{oid}")));
            let mut from = BufReader::with_capacity(256 * 1024, stdout);
            for entry in entries {
                if let Err(fault) = write_entry(entry, &mut from, sink) {
                    over = Some(fault);
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            Ok(())
        })
    });
    match (over, said) {
        (Some(fault), _) => Err(fault),
        (None, Ok(())) => Ok(()),
        (None, Err(fault)) => Err(fetch_fault(fault)),
    }
}

fn write_entry(entry: &TreeEntry, from: &mut impl BufRead, sink: &mut Sink<'_>) -> Result<(), ImportFault> {
    let mut line = String::new();
    from.by_ref().take(256).read_line(&mut line)?;
    let size = line.trim_end().rsplit(' ').next().and_then(|size| size.parse::<u64>().ok());
    let (true, Some(size)) = (line.contains(" blob "), size) else {
        tracing::warn!(line = %line.trim_end(), "a git source lacks an object of its tree");
        return Err(no_repository());
    };
    let mut bytes = from.by_ref().take(size);
    let placed = if entry.mode == MODE_LINK {
        let mut target = Vec::new();
        bytes.by_ref().take(MAX_LINK_BYTES + 1).read_to_end(&mut target)?;
        if size > MAX_LINK_BYTES {
            Err(SinkFault::Misfit("a symbolic link whose target is too long"))
        } else {
            sink.link(&entry.path, &target)
        }
    } else {
        sink.file(&entry.path, entry.mode == MODE_EXECUTABLE, size, Some(entry.oid), &mut bytes)
    };
    match placed {
        Ok(()) => {}
        Err(SinkFault::Misfit(reason)) => sink.leave_out(&entry.path, reason),
        Err(SinkFault::Source(fault)) => return Err(ImportFault::Io(fault)),
        Err(SinkFault::Over(fault)) => return Err(fault),
    }
    // What was not taken, and the line's end.
    io::copy(&mut bytes, &mut io::sink())?;
    let mut newline = [0];
    Ok(from.read_exact(&mut newline)?)
}

/// The git folder of the repository at `path`, if all of it lies where `is_allowed`.
///
/// A repository can point elsewhere: `.git` may be a file, `commondir` and `objects/info/alternates` name other folders,
/// and any of them may be a symbolic link. What is read by them is read for whoever asked, so it has to be allowed too.
#[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
pub(super) fn find(path: &Path, is_allowed: &dyn Fn(&Path) -> bool) -> Result<PathBuf, ImportFault> {
    let real = |path: &Path| std::fs::canonicalize(path).ok().filter(|real| is_allowed(real)).ok_or_else(no_repository);
    let dot_git = path.join(".git");
    let git_dir = match std::fs::symlink_metadata(&dot_git) {
        Ok(meta) if meta.is_file() => {
            let text = read_small(&dot_git)?;
            real(&path.join(text.strip_prefix("gitdir:").ok_or_else(no_repository)?.trim()))?
        }
        Ok(_) => real(&dot_git)?,
        Err(_) => real(path)?,
    };
    let common = git_dir.join("commondir");
    let common = if common.exists() { real(&git_dir.join(read_small(&common)?.trim()))? } else { git_dir.clone() };
    if !git_dir.join("HEAD").exists() {
        return Err(no_repository());
    }
    check_objects(&real(&common.join("objects"))?, &real, 0)?;
    Ok(git_dir)
}

fn check_objects(
    objects: &Path,
    real: &dyn Fn(&Path) -> Result<PathBuf, ImportFault>,
    depth: usize,
) -> Result<(), ImportFault> {
    const MAX_ALTERNATES: usize = 5;
    check_no_links(objects)?;
    let alternates = objects.join("info/alternates");
    if !alternates.exists() {
        return Ok(());
    }
    if depth == MAX_ALTERNATES {
        return Err(no_repository());
    }
    for line in read_small(&alternates)?.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // git unquotes such names; nobody needs them.
        if line.starts_with('"') {
            return Err(no_repository());
        }
        check_objects(&real(&objects.join(line))?, real, depth + 1)?;
    }
    Ok(())
}

/// Refuses symbolic links among the objects, as git's own local clone does.
fn check_no_links(objects: &Path) -> Result<(), ImportFault> {
    let mut folders = vec![objects.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                tracing::info!(name = %shown(entry.file_name().as_encoded_bytes()), "a link among a git source's objects");
                return Err(no_repository());
            }
            if kind.is_dir() && folder == objects {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

fn read_small(path: &Path) -> Result<String, ImportFault> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(64 * 1024).read_to_string(&mut text).map_err(|_| no_repository())?;
    Ok(text)
}
