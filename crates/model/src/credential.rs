//! Credentials in text: well-known forms only, so that a find is one.
//!
//! Forms that cannot be told from harmless text are left out: JSON web tokens (every test suite has some), passwords in
//! addresses, and long random strings without a mark of their issuer.

mod scan;

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Match, MatchKind};
use memchr::memmem;

pub(crate) use scan::{CredentialScan, Credentials};

/// How far behind its mark a credential is looked at, so that a hostile text costs no more than its length.
const MAX_BODY_BYTES: usize = 160;
/// How much of a private key is compared to find whether the old text held it already.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// A form of credential: its mark, and what follows.
struct Form {
    what: &'static str,
    mark: &'static str,
    body: Body,
}

/// What follows the mark of a credential.
enum Body {
    /// So many characters of a class and then none.
    Exactly(Class, usize),
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

use Body::{AtLeast, Exactly, Other};

const fn form(what: &'static str, mark: &'static str, body: Body) -> Form {
    Form { what, mark, body }
}

/// Every form. Where the mark of one begins that of another, the longer stands first.
static FORMS: &[Form] = &[
    form("private key", "-----BEGIN ", Other(private_key)),
    form("private key", "PuTTY-User-Key-File-", Other(putty_key)),
    form("age secret key", "AGE-SECRET-KEY-1", Exactly(UPPER, 58)),
    form("AWS access key ID", "AKIA", Exactly(UPPER, 16)),
    form("AWS access key ID", "ASIA", Exactly(UPPER, 16)),
    form("AWS secret access key", "aws_secret_access_key", Other(aws_secret)),
    form("AWS secret access key", "AWS_SECRET_ACCESS_KEY", Other(aws_secret)),
    form("Azure storage key", "AccountKey=", Exactly(BASE64, 88)),
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
    form("Slack token", "xapp-", Other(slack_token)),
    form("Slack webhook", "https://hooks.slack.com/services/T", Other(slack_webhook)),
    form("Google API key", "AIza", Exactly(URL_SAFE, 35)),
    form("Google OAuth client secret", "GOCSPX-", Exactly(URL_SAFE, 28)),
    form("Stripe key", "sk_live_", AtLeast(ALNUM, 16)),
    form("Stripe key", "rk_live_", AtLeast(ALNUM, 16)),
    form("npm token", "npm_", Exactly(ALNUM, 36)),
    form("PyPI token", "pypi-AgEIcHlwaS5vcmc", AtLeast(URL_SAFE, 50)),
    form("Anthropic API key", "sk-ant-", AtLeast(URL_SAFE, 24)),
    form("OpenAI API key", "sk-proj-", AtLeast(URL_SAFE, 24)),
    form("OpenAI API key", "sk-svcacct-", AtLeast(URL_SAFE, 24)),
    form("OpenAI API key", "sk-admin-", AtLeast(URL_SAFE, 24)),
    form("API key", "sk-or-v1-", Exactly(HEX, 64)),
    form("API key", "sk-", Other(random_word)),
    form("SendGrid API key", "SG.", Other(sendgrid_key)),
    form("Hugging Face token", "hf_", Exactly(ALNUM, 34)),
    form("DigitalOcean token", "dop_v1_", Exactly(HEX, 64)),
    form("Shopify token", "shpat_", Exactly(HEX, 32)),
    form("Shopify token", "shpss_", Exactly(HEX, 32)),
    form("Databricks token", "dapi", Exactly(HEX, 32)),
    form("Vault token", "hvs.", AtLeast(URL_SAFE, 24)),
    form("Docker Hub token", "dckr_pat_", Exactly(URL_SAFE, 27)),
    form("Linear API key", "lin_api_", Exactly(ALNUM, 40)),
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
    let new = readable(new);
    let mut found = credentials(&new).peekable();
    found.peek()?;
    let old = readable(old.unwrap_or_default());
    let known: HashSet<&[u8]> = credentials(&old).map(|(_, value)| value).collect();
    found.find(|(_, value)| !known.contains(value)).map(|(what, _)| what)
}

/// `text` with each well-known credential replaced by `[redacted: kind]`; borrowed where it holds none.
///
/// For what people and agents write freely: reasons, notes, labels. More is taken out than [`credential_in`] needs to see: a
/// private key up to its end mark or the end of the text, every other form up to the end of its word.
pub fn redact(text: &str) -> Cow<'_, str> {
    let mut redacted = String::new();
    let mut done = 0;
    for (what, span) in credential_spans(text.as_bytes()) {
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
        return Cow::Borrowed(text);
    }
    redacted.push_str(&text[done..]);
    Cow::Owned(redacted)
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

/// Every credential in `text`: what it is, and the bytes from its mark to its end.
fn credentials(text: &[u8]) -> impl Iterator<Item = (&'static str, &[u8])> {
    let marks = MARKS.iter().flat_map(move |marks| marks.find_iter(text));
    marks.filter_map(move |mark| credential_at(text, &mark))
}

/// Every credential in `text`: what it is, and where it is, from its mark to its end.
fn credential_spans(text: &[u8]) -> impl Iterator<Item = (&'static str, Range<usize>)> {
    let marks = MARKS.iter().flat_map(move |marks| marks.find_iter(text));
    marks.filter_map(move |mark| {
        credential_at(text, &mark).map(|(what, value)| (what, mark.start()..mark.start() + value.len()))
    })
}

/// The credential that begins with `mark` in `text`, if it is one.
fn credential_at<'a>(text: &'a [u8], mark: &Match) -> Option<(&'static str, &'a [u8])> {
    let form = &FORMS[mark.pattern().as_usize()];
    // The mark begins a word: `task-…` is no `sk-…`.
    let glued = mark.start() > 0 && ALNUM(&text[mark.start() - 1]) && ALNUM(&form.mark.as_bytes()[0]);
    let length = if glued { None } else { form.body.length(&text[mark.end()..]) };
    length.map(|length| (form.what, &text[mark.start()..mark.end() + length]))
}

impl Body {
    /// How many bytes at the start of `rest` make up the credential.
    fn length(&self, rest: &[u8]) -> Option<usize> {
        let (length, enough) = match self {
            Exactly(class, count) => {
                let length = run(rest, *class);
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

/// A PEM block, in a file of its own or in a string of a program: the label, then what is no code but base64.
fn private_key(rest: &[u8]) -> Option<usize> {
    const MAX_LABEL_BYTES: usize = 64;
    let label = &rest[..run(rest, |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b' ')];
    if label.len() > MAX_LABEL_BYTES || !(label.ends_with(b"PRIVATE KEY") || label.ends_with(b"PRIVATE KEY BLOCK")) {
        return None;
    }
    let body = rest[label.len()..].strip_prefix(b"-----")?;
    let start = skip_to_key(body)?;
    let key = &body[start..body.len().min(start + MAX_KEY_BYTES)];
    let length = run(key, BASE64);
    let headed = [&b"Proc-Type:"[..], b"DEK-Info:", b"Version:", b"Comment:"];
    let is_key =
        length >= 16 || (length > 0 && is_short_key(key)) || headed.iter().any(|header| key.starts_with(header));
    let value = || memmem::find(key, b"-----END").unwrap_or(length.max(1));
    is_key.then(|| label.len() + 5 + start + value())
}

/// Whether nothing but base64, line ends and the seams of string literals stands before the end mark, and soon.
fn is_short_key(key: &[u8]) -> bool {
    let near = &key[..key.len().min(MAX_BODY_BYTES)];
    let is_filler = |byte: &u8| !byte.is_ascii_graphic() || matches!(byte, b'\\' | b'"' | b'\'' | b',');
    memmem::find(near, b"-----END").is_some_and(|end| near[..end].iter().all(|byte| BASE64(byte) || is_filler(byte)))
}

/// Where the text of a key begins: behind line ends, written out or escaped, and behind the seam of two string literals.
/// `None` where a string has ended and none begins, so that what follows is code.
fn skip_to_key(body: &[u8]) -> Option<usize> {
    let mut quotes = 0;
    let mut escaped = false;
    for (at, byte) in body.iter().enumerate().take(MAX_BODY_BYTES) {
        match byte {
            b'\\' => escaped = true,
            b'n' | b'r' | b't' if escaped => escaped = false,
            b'"' | b'\'' | b'`' if !escaped => quotes += 1,
            b' ' | b'\t' | b'\r' | b'\n' | b'+' | b'.' | b',' | b'#' | b'*' | b'>' | b'|' => escaped = false,
            _ if quotes % 2 == 0 => return Some(at),
            _ => return None,
        }
    }
    None
}

fn putty_key(rest: &[u8]) -> Option<usize> {
    const LINES: &[u8] = b"Private-Lines:";
    const MAX_HEAD_BYTES: usize = 2048;
    memmem::find(&rest[..rest.len().min(MAX_HEAD_BYTES)], LINES).map(|at| at + LINES.len())
}

/// `= "…"`, `: …` with the 40 characters of a key.
fn aws_secret(rest: &[u8]) -> Option<usize> {
    const KEY_BYTES: usize = 40;
    let start = rest
        .iter()
        .take(16)
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'=' | b':' | b'>' | b'"' | b'\''))
        .count();
    let length = run(&rest[start..], BASE64);
    let key = &rest[start..start + length];
    (start > 0 && length == KEY_BYTES && !is_placeholder(key)).then_some(start + length)
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
    (id == 22 && rest[id] == b'.' && secret == 43 && !is_placeholder(&rest[..id])).then_some(id + 1 + secret)
}

fn grafana_token(rest: &[u8]) -> Option<usize> {
    let length = run(rest, WORD);
    let separated = rest.get(32) == Some(&b'_');
    (length == 41 && separated).then_some(length)
}

#[cfg(test)]
mod tests;
