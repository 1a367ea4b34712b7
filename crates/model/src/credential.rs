//! Credentials in text: well-known forms only, so that a find is one.
//!
//! Forms that cannot be told from harmless text are left out: JSON web tokens (every test suite has some), passwords in
//! addresses, and long random strings without a mark of their issuer.

mod free_text;
mod scan;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Match, MatchKind};
use memchr::memmem;

pub(crate) use scan::{CredentialScan, Credentials};

/// With what the head of a private key begins.
const KEY_MARK: &str = "-----BEGIN";
/// How far behind its mark a credential is looked at, so that a hostile text costs no more than its length.
const MAX_BODY_BYTES: usize = 160;
/// How much of a private key is compared to find whether the old text held it already.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// How far before its mark a credential is looked at.
const MAX_BEFORE_BYTES: usize = 32;
/// So many bytes of base64 before a mark that base64 may hold by chance are a text in base64.
const BASE64_TEXT_BYTES: usize = 12;
/// What may stand between the head of a private key and its text, white space not counted.
const MAX_SEAM_BYTES: usize = 1024;

/// A form of credential: its mark, what may stand before it, and what follows.
struct Form {
    what: &'static str,
    mark: &'static str,
    before: Before,
    body: Body,
}

/// What may stand directly before a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Whatever there is: nobody writes the mark and what follows by chance.
    Anything,
    /// No text in base64, which may hold the mark by chance.
    NoBase64,
    /// No letter and no digit, unless it is the end of an escape: `task-…` is no `sk-…`.
    NoWord,
}

/// What follows the mark of a credential.
enum Body {
    /// So many characters of a class; what stands behind them does not matter.
    First(Class, usize),
    /// So many characters of a class or more.
    AtLeast(Class, usize),
    /// Whatever the function takes: the length that it makes up, `None` where it is no credential.
    Other(fn(&[u8]) -> Option<usize>),
}

type Class = fn(&u8) -> bool;

const UPPER: Class = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit();
const HEX: Class = u8::is_ascii_hexdigit;
const ALNUM: Class = u8::is_ascii_alphanumeric;
const WORD: Class = |byte| byte.is_ascii_alphanumeric() || *byte == b'_';
const URL_SAFE: Class = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
const BASE64: Class = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');

use Body::{AtLeast, First, Other};

const fn form(what: &'static str, mark: &'static str, body: Body) -> Form {
    Form { what, mark, before: Before::Anything, body }
}

impl Form {
    const fn behind(self, before: Before) -> Self {
        Self { before, ..self }
    }
}

/// Every form. Where the mark of one begins that of another, the longer stands first.
static FORMS: &[Form] = &[
    form("private key", KEY_MARK, Other(private_key)),
    form("private key", "PuTTY-User-Key-File-", Other(putty_key)),
    form("age secret key", "AGE-SECRET-KEY-1", First(UPPER, 58)),
    form("AWS access key ID", "AKIA", Other(aws_key_id)).behind(Before::NoBase64),
    form("AWS access key ID", "ASIA", Other(aws_key_id)).behind(Before::NoBase64),
    form("AWS secret access key", "aws_secret_access_key", Other(aws_secret)),
    form("AWS secret access key", "AWS_SECRET_ACCESS_KEY", Other(aws_secret)),
    form("Azure storage key", "AccountKey=", First(BASE64, 88)),
    form("GitHub token", "ghp_", AtLeast(ALNUM, 36)),
    form("GitHub token", "gho_", AtLeast(ALNUM, 36)),
    form("GitHub token", "ghu_", AtLeast(ALNUM, 36)),
    form("GitHub token", "ghs_", AtLeast(ALNUM, 36)),
    form("GitHub token", "ghr_", AtLeast(ALNUM, 36)),
    form("GitHub token", "github_pat_", AtLeast(WORD, 36)),
    form("GitLab token", "glpat-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "gldt-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glrt-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glptt-", AtLeast(URL_SAFE, 20)),
    form("Slack token", "xoxa-", Other(slack_token)),
    form("Slack token", "xoxb-", Other(slack_token)),
    form("Slack token", "xoxp-", Other(slack_token)),
    form("Slack token", "xoxr-", Other(slack_token)),
    form("Slack token", "xoxs-", Other(slack_token)),
    form("Slack token", "xapp-", Other(slack_token)).behind(Before::NoWord),
    form("Slack webhook", "https://hooks.slack.com/services/T", Other(slack_webhook)),
    form("Google API key", "AIza", First(URL_SAFE, 35)).behind(Before::NoBase64),
    form("Google OAuth client secret", "GOCSPX-", First(URL_SAFE, 28)),
    form("Stripe key", "sk_live_", AtLeast(ALNUM, 16)).behind(Before::NoWord),
    form("Stripe key", "rk_live_", AtLeast(ALNUM, 16)).behind(Before::NoWord),
    form("npm token", "npm_", First(ALNUM, 36)),
    form("PyPI token", "pypi-AgEIcHlwaS5vcmc", AtLeast(URL_SAFE, 50)),
    form("Anthropic API key", "sk-ant-", AtLeast(URL_SAFE, 24)).behind(Before::NoWord),
    form("OpenAI API key", "sk-proj-", AtLeast(URL_SAFE, 24)).behind(Before::NoWord),
    form("OpenAI API key", "sk-svcacct-", AtLeast(URL_SAFE, 24)).behind(Before::NoWord),
    form("OpenAI API key", "sk-admin-", AtLeast(URL_SAFE, 24)).behind(Before::NoWord),
    form("API key", "sk-or-v1-", First(HEX, 64)).behind(Before::NoWord),
    form("API key", "sk-", Other(random_word)).behind(Before::NoWord),
    form("SendGrid API key", "SG.", Other(sendgrid_key)).behind(Before::NoWord),
    form("Google OAuth token", "ya29.", AtLeast(URL_SAFE, 40)).behind(Before::NoWord),
    form("Groq API key", "gsk_", First(ALNUM, 50)).behind(Before::NoWord),
    form("xAI API key", "xai-", First(ALNUM, 70)).behind(Before::NoWord),
    form("GitLab token", "glsoat-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glft-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glcbt-", AtLeast(URL_SAFE, 20)),
    form("RubyGems API key", "rubygems_", First(HEX, 48)),
    form("New Relic API key", "NRAK-", First(UPPER, 27)).behind(Before::NoWord),
    form("DigitalOcean token", "doo_v1_", First(HEX, 64)),
    form("Vault token", "hvb.", AtLeast(URL_SAFE, 60)).behind(Before::NoWord),
    form("Hugging Face token", "hf_", First(ALNUM, 34)),
    form("DigitalOcean token", "dop_v1_", First(HEX, 64)),
    form("Shopify token", "shpat_", First(HEX, 32)),
    form("Shopify token", "shpss_", First(HEX, 32)),
    form("Databricks token", "dapi", First(HEX, 32)),
    form("Vault token", "hvs.", AtLeast(URL_SAFE, 24)).behind(Before::NoWord),
    form("Docker Hub token", "dckr_pat_", First(URL_SAFE, 27)),
    form("Linear API key", "lin_api_", First(ALNUM, 40)),
    form("Grafana token", "glsa_", Other(grafana_token)),
    form("workspaced token", "wsr_", AtLeast(ALNUM, 40)),
    form("workspaced token", "wso_", AtLeast(ALNUM, 40)),
];

/// Finds the mark of every form in one pass. `None` if the table is bad, which a test excludes.
static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(FORMS.iter().map(|form| form.mark)).ok()
});

/// The well-known credential that `text` holds, if any: what it is, never the value.
///
/// Takes time linear in the text. UTF-16 with a byte order mark is read as such.
pub fn credential_in(text: &[u8]) -> Option<&'static str> {
    new_credential(None, text)
}

/// The well-known credential that `new` holds and `old` does not, if any: what it is, never the value.
///
/// So a text that has always held one, such as the key of a test, can still be edited around it.
pub fn new_credential(old: Option<&[u8]>, new: &[u8]) -> Option<&'static str> {
    let new = readings(new);
    let mut found = new.iter().flat_map(|text| values(text)).peekable();
    found.peek()?;
    let old = readings(old.unwrap_or_default());
    let known: HashSet<&[u8]> = old.iter().flat_map(|text| values(text)).map(|(_, value)| value).collect();
    found.find(|(_, value)| !known.contains(value)).map(|(what, _)| what)
}

/// `text` without credentials and then cut at `max_chars` characters, with a mark where more was there.
///
/// For messages that repeat what a caller sent: cut first, a credential might be one no more, and most of it still told.
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let redacted = redact(text);
    match redacted.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &redacted[..end]),
        None => redacted.into_owned(),
    }
}

/// `text` with each well-known credential replaced by `[redacted: kind]`; borrowed where it holds none.
///
/// For what people and agents write freely: reasons, notes, labels. More is taken out than [`credential_in`] needs to see: a
/// private key up to its end mark or the end of the text, every other form up to the end of its word; and JSON web tokens,
/// values of `Authorization` headers and passwords in addresses, which files may hold.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut redacted = String::new();
    let mut done = 0;
    for Found { what, span, .. } in credentials(text.as_bytes()) {
        // A mark inside what was taken out already.
        if span.start < done {
            continue;
        }
        let end = if what == "private key" { end_of_key(text, span.start) } else { end_of_word(text, span.end) };
        redacted.push_str(&text[done..span.start]);
        redacted.extend(["[redacted: ", what, "]"]);
        done = end;
    }
    if done == 0 {
        return free_text::redact(Cow::Borrowed(text));
    }
    redacted.push_str(&text[done..]);
    free_text::redact(Cow::Owned(redacted))
}

/// Where the private key ends that begins at `start`.
fn end_of_key(text: &str, start: usize) -> usize {
    const END: &str = "-----END";
    let Some(end) = text[start..].find(END).map(|at| start + at + END.len()) else { return text.len() };
    text[end..].find("-----").map_or(text.len(), |at| end + at + "-----".len())
}

/// Where the word ends that goes on at `from`: a form is looked at no further than its own length.
fn end_of_word(text: &str, from: usize) -> usize {
    let goes_on = |byte: &&u8| BASE64(byte) || URL_SAFE(byte);
    from + text.as_bytes().iter().skip(from).take_while(goes_on).count()
}

/// `text` with one byte for each ASCII character.
pub(crate) fn readable(text: &[u8]) -> Cow<'_, [u8]> {
    let decoded = match text {
        [0xff, 0xfe, rest @ ..] => encoding_rs::UTF_16LE.decode_without_bom_handling(rest).0,
        [0xfe, 0xff, rest @ ..] => encoding_rs::UTF_16BE.decode_without_bom_handling(rest).0,
        _ => return Cow::Borrowed(text),
    };
    Cow::Owned(decoded.into_owned().into_bytes())
}

/// `text` in each way in which it may be read: where it holds NULs, also without them, as UTF-16 that does not say that it
/// is.
fn readings(text: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let text = readable(text);
    let dense = matches!(text, Cow::Borrowed(_)) && memchr::memchr(0, &text).is_some();
    let dense = dense.then(|| Cow::Owned(without_nul(&text)));
    [text].into_iter().chain(dense).collect()
}

pub(crate) fn without_nul(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| *byte != 0).collect()
}

/// Every credential in `text`: what it is, and what tells it from others.
fn values(text: &[u8]) -> impl Iterator<Item = (&'static str, &[u8])> {
    credentials(text).map(|found| (found.what, &text[found.value]))
}

/// A credential in a text.
struct Found {
    what: &'static str,
    /// From its mark to its end.
    span: Range<usize>,
    /// What tells it from others.
    value: Range<usize>,
}

/// Every credential in `text`.
fn credentials(text: &[u8]) -> impl Iterator<Item = Found> {
    let marks = MARKS.iter().flat_map(move |marks| marks.find_iter(text));
    marks.filter_map(move |mark| credential_at(text, &mark))
}

/// The credential that begins with `mark` in `text`, if it is one.
fn credential_at(text: &[u8], mark: &Match) -> Option<Found> {
    let form = &FORMS[mark.pattern().as_usize()];
    let (before, rest) = (&text[mark.start().saturating_sub(MAX_BEFORE_BYTES)..mark.start()], &text[mark.end()..]);
    let fits = match form.before {
        Before::Anything => true,
        Before::NoBase64 => !ends_in_base64(before) || ends_in_key_id(before),
        Before::NoWord => !before.last().is_some_and(ALNUM) || ends_in_escape(before),
    };
    let length = if fits { form.body.length(rest) } else { None }?;
    let end = mark.end() + length;
    let start = if is_private_key(form) { mark.end() + start_of_key(rest)? } else { mark.start() };
    Some(Found { what: form.what, span: mark.start()..end, value: start..end })
}

fn is_private_key(form: &Form) -> bool {
    form.mark == KEY_MARK
}

fn ends_in_base64(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| BASE64(byte) || URL_SAFE(byte)).count() >= BASE64_TEXT_BYTES
}

/// Whether another AWS access key ID stands directly before.
fn ends_in_key_id(before: &[u8]) -> bool {
    let id = before.last_chunk::<20>();
    let is_mark = |id: &[u8; 20]| id.starts_with(b"AKIA") || id.starts_with(b"ASIA");
    id.is_some_and(|id| is_mark(id) && id.iter().all(UPPER) && id.iter().any(u8::is_ascii_digit))
}

/// Whether the last letters and digits belong to an escape, as of an address, a string of a program or a terminal: `%3D`,
/// `\n`, `\x3d`, `\u003d`, `ESC[31m`.
fn ends_in_escape(before: &[u8]) -> bool {
    let escaped = |mark: &[u8], digits: usize| {
        let at = before.len().checked_sub(mark.len() + digits);
        at.is_some_and(|at| before[at..].starts_with(mark) && before[at + mark.len()..].iter().all(HEX))
    };
    let colour = || {
        let sequence = before.strip_suffix(b"m");
        let is_of_one = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
        sequence.is_some_and(|bytes| bytes.iter().rev().find(|byte| !is_of_one(byte)) == Some(&b'['))
    };
    matches!(before, [.., b'\\', b'n' | b'r' | b't' | b'0' | b'a' | b'b' | b'e' | b'f' | b'v'])
        || escaped(b"%", 2)
        || escaped(b"\\x", 2)
        || escaped(b"\\u", 4)
        || colour()
}

impl Body {
    /// How many bytes at the start of `rest` make up the credential.
    fn length(&self, rest: &[u8]) -> Option<usize> {
        let (length, enough) = match self {
            First(class, count) => {
                let length = run(rest, *class).min(*count);
                (length, length == *count)
            }
            AtLeast(class, count) => {
                let length = run(rest, *class);
                (length, length >= *count)
            }
            Other(length) => return length(rest),
        };
        (enough && !is_placeholder(&rest[..length])).then_some(length)
    }
}

/// How many bytes of `class` stand at the start, as far as is looked.
fn run(rest: &[u8], class: Class) -> usize {
    rest.iter().take(MAX_BODY_BYTES).take_while(|byte| class(byte)).count()
}

/// `xxxx…`, as documents show where a credential goes.
fn is_placeholder(body: &[u8]) -> bool {
    body.iter().all(|byte| matches!(byte, b'x' | b'X' | b'-' | b'_'))
}

/// A PEM block, in a file of its own, in a string of a program or in an address: the label, then what is no code but base64.
fn private_key(rest: &[u8]) -> Option<usize> {
    let start = start_of_key(rest)?;
    let key = &rest[start..rest.len().min(start + MAX_KEY_BYTES)];
    let length = run(key, BASE64);
    let headed = [&b"Proc-Type:"[..], b"DEK-Info:", b"Version:", b"Comment:"];
    let is_key =
        length >= 16 || (length > 0 && is_short_key(key)) || headed.iter().any(|header| key.starts_with(header));
    let value = || memmem::find(key, b"-----END").unwrap_or(length.max(1));
    is_key.then(|| start + value())
}

/// Where the text of a private key may begin, behind the mark of its head.
fn start_of_key(rest: &[u8]) -> Option<usize> {
    let label = end_of_label(rest)?;
    match skip_to_key(&rest[label..]) {
        Skip::To(start) => Some(label + start),
        Skip::NoKey | Skip::Ended => None,
    }
}

/// The end of a head that says that a private key follows. Its blanks may be written as in an address.
fn end_of_label(rest: &[u8]) -> Option<usize> {
    let of_label = |byte: &u8| UPPER(byte) || matches!(byte, b' ' | b'+' | b'%');
    let length = run(rest, of_label);
    let label = rest[..length].strip_suffix(b"BLOCK").map_or(&rest[..length], |label| {
        [&b" "[..], b"+", b"%20"].iter().find_map(|blank| label.strip_suffix(*blank)).unwrap_or(label)
    });
    let is_one = [&b"PRIVATE KEY"[..], b"PRIVATE+KEY", b"PRIVATE%20KEY"].iter().any(|words| label.ends_with(words));
    (is_one && rest[length..].starts_with(b"-----")).then_some(length + 5)
}

/// Whether nothing but base64, line ends and the seams of string literals stands before the end mark, and soon.
fn is_short_key(key: &[u8]) -> bool {
    let near = &key[..key.len().min(MAX_BODY_BYTES)];
    let is_filler = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'\'' | b',' | b'%');
    memmem::find(near, b"-----END").is_some_and(|end| near[..end].iter().all(|byte| BASE64(byte) || is_filler(byte)))
}

/// Where the text of a key begins: behind line ends, written out or escaped, and behind the seam of two string literals.
///
/// White space is skipped however long it is: no mark begins in it, so that it is looked at once.
fn skip_to_key(body: &[u8]) -> Skip {
    let (mut quotes, mut seam, mut at) = (0, 0, 0);
    while seam < MAX_SEAM_BYTES {
        let length = match &body[at..] {
            [b' ' | b'\t' | b'\r' | b'\n', ..] => {
                at += 1;
                continue;
            }
            [b'\\', b'u', b'0', b'0', b'0', b'a' | b'A' | b'd' | b'D', ..] => 6,
            [b'%', b'0', b'a' | b'A' | b'd' | b'D' | b'9', ..] | [b'%', b'2', b'0', ..] => 3,
            [b'\\', b'n' | b'r' | b't' | b'"' | b'\'' | b'`', ..] => 2,
            [b'\\' | b'+' | b'.' | b',' | b'#' | b'*' | b'>' | b'|', ..] => 1,
            [b'"' | b'\'' | b'`', ..] => {
                quotes += 1;
                1
            }
            [] => return Skip::Ended,
            _ if quotes % 2 == 0 => return Skip::To(at),
            _ => return Skip::NoKey,
        };
        seam += length;
        at += length;
    }
    Skip::NoKey
}

/// What stands behind the head of a private key.
enum Skip {
    /// What may be its text.
    To(usize),
    /// Something else: a string has ended and none begins, so that code follows.
    NoKey,
    /// Nothing but what is skipped.
    Ended,
}

fn putty_key(rest: &[u8]) -> Option<usize> {
    const LINES: &[u8] = b"Private-Lines:";
    const MAX_HEAD_BYTES: usize = 2048;
    memmem::find(&rest[..rest.len().min(MAX_HEAD_BYTES)], LINES).map(|at| at + LINES.len())
}

/// 16 upper-case letters and digits, or more where they are no word: names and sequences of letters have no digits.
fn aws_key_id(rest: &[u8]) -> Option<usize> {
    const ID_BYTES: usize = 16;
    let length = run(rest, UPPER);
    let id = rest.get(..ID_BYTES).filter(|_| length >= ID_BYTES)?;
    let digits = id.iter().filter(|byte| byte.is_ascii_digit()).count();
    ((length == ID_BYTES || digits > 0) && !is_placeholder(id)).then_some(ID_BYTES)
}

/// `= "…"`, `: …` with the 40 characters of a key, or more of the same kind.
fn aws_secret(rest: &[u8]) -> Option<usize> {
    const KEY_BYTES: usize = 40;
    let start = rest
        .iter()
        .take(16)
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'=' | b':' | b'>' | b'"' | b'\''))
        .count();
    let length = run(&rest[start..], BASE64);
    let key = rest.get(start..start + KEY_BYTES).filter(|_| length >= KEY_BYTES)?;
    let mixed =
        [u8::is_ascii_digit, u8::is_ascii_lowercase, u8::is_ascii_uppercase].iter().all(|of| key.iter().any(of));
    (start > 0 && (length == KEY_BYTES || mixed) && !is_placeholder(key)).then_some(start + KEY_BYTES)
}

fn slack_token(rest: &[u8]) -> Option<usize> {
    let length = run(rest, URL_SAFE);
    let digits = run(rest, u8::is_ascii_digit);
    (length >= 20 && digits > 0 && !is_placeholder(&rest[..length])).then_some(length)
}

/// `T…/B…/…`
fn slack_webhook(rest: &[u8]) -> Option<usize> {
    let length = run(rest, |byte| ALNUM(byte) || *byte == b'/');
    let mut parts = rest[..length].split(|byte| *byte == b'/');
    let (team, hook, secret) = (parts.next()?, parts.next()?, parts.next()?);
    let is_one = team.len() >= 7 && hook.starts_with(b"B") && secret.len() >= 20 && !is_placeholder(secret);
    is_one.then_some(length)
}

/// A word that no one writes by hand: at least 32 letters and digits, mixed.
fn random_word(rest: &[u8]) -> Option<usize> {
    let length = run(rest, ALNUM);
    let digits = rest[..length].iter().filter(|byte| byte.is_ascii_digit()).count();
    (length >= 32 && digits >= 3 && digits < length).then_some(length)
}

fn sendgrid_key(rest: &[u8]) -> Option<usize> {
    let id = run(rest, URL_SAFE);
    let secret = run(rest.get(id + 1..)?, URL_SAFE);
    (id == 22 && rest[id] == b'.' && secret >= 43 && !is_placeholder(&rest[..id])).then_some(id + 1 + 43)
}

fn grafana_token(rest: &[u8]) -> Option<usize> {
    const TOKEN_BYTES: usize = 41;
    (run(rest, WORD) >= TOKEN_BYTES && rest[32] == b'_').then_some(TOKEN_BYTES)
}

#[cfg(test)]
mod tests;
