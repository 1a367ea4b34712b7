//! The forms of well-known credentials, and how a text is matched against them.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Match, MatchKind};
use memchr::memmem;

use super::private_key::{KEY_MARK, PUTTY_MARK, key_start, private_key, putty_key};

/// Maximum bytes of a class that are read after a mark. It bounds the cost of a hostile text to a multiple of its length.
pub(crate) const MAX_BODY_BYTES: usize = 160;
/// Maximum bytes that are read before a mark.
pub(crate) const MAX_BEFORE_BYTES: usize = 32;
/// Minimum length of a run of base64 before a mark that makes the mark a part of base64 text.
const BASE64_TEXT_BYTES: usize = 12;
/// Minimum number of digits in such a run. Names have fewer.
const BASE64_DIGITS: usize = 3;

/// A form of credential: its mark, what may precede the mark, and what follows it.
pub(crate) struct Form {
    kind: &'static str,
    pub(crate) mark: &'static str,
    pub(crate) before: Before,
    body: Body,
}

/// What may directly precede a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// Any bytes: the mark and its body do not occur by chance.
    Anything,
    /// Any bytes except base64 text, which may contain the mark by chance.
    NoBase64,
    /// No letter and no digit, unless it ends an escape sequence: `task-…` does not contain the mark `sk-`.
    NoWord,
}

/// What follows the mark of a credential.
enum Body {
    /// This number of characters of a class. Any bytes may follow them.
    First(Class, usize),
    /// At least this number of characters of a class.
    AtLeast(Class, usize),
    /// A body that a function recognizes. It returns the length of the body, or `None` if this is no credential.
    Custom(fn(&[u8]) -> Option<usize>),
}

pub(crate) type Class = fn(&u8) -> bool;

pub(crate) const UPPER: Class = |byte| byte.is_ascii_uppercase() || byte.is_ascii_digit();
const HEX: Class = u8::is_ascii_hexdigit;
pub(crate) const ALNUM: Class = u8::is_ascii_alphanumeric;
const WORD: Class = |byte| byte.is_ascii_alphanumeric() || *byte == b'_';
pub(crate) const URL_SAFE: Class = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
pub(crate) const BASE64: Class = |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');

use Body::{AtLeast, Custom, First};

const fn form(kind: &'static str, mark: &'static str, body: Body) -> Form {
    Form { kind, mark, before: Before::Anything, body }
}

/// Every form. If the mark of one form starts with the mark of another, the form with the longer mark comes first.
pub(crate) static FORMS: &[Form] = &[
    form("private key", KEY_MARK, Custom(private_key)),
    form("private key", PUTTY_MARK, Custom(putty_key)),
    form("age secret key", "AGE-SECRET-KEY-1", First(UPPER, 58)),
    form("AWS access key ID", "AKIA", Custom(aws_key_id)).with_before(Before::NoBase64),
    form("AWS access key ID", "ASIA", Custom(aws_key_id)).with_before(Before::NoBase64),
    form("AWS secret access key", "aws_secret_access_key", Custom(aws_secret)),
    form("AWS secret access key", "AWS_SECRET_ACCESS_KEY", Custom(aws_secret)),
    form("AWS secret access key", "secret_access_key", Custom(aws_secret)),
    form("AWS secret access key", "SECRET_ACCESS_KEY", Custom(aws_secret)),
    form("AWS secret access key", "secretAccessKey", Custom(aws_secret)),
    form("AWS secret access key", "SecretAccessKey", Custom(aws_secret)),
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
    form("Slack token", "xoxa-", Custom(slack_token)),
    form("Slack token", "xoxb-", Custom(slack_token)),
    form("Slack token", "xoxp-", Custom(slack_token)),
    form("Slack token", "xoxr-", Custom(slack_token)),
    form("Slack token", "xoxs-", Custom(slack_token)),
    form("Slack token", "xapp-", Custom(slack_token)).with_before(Before::NoWord),
    form("Slack webhook", "https://hooks.slack.com/services/T", Custom(slack_webhook)),
    form("Google API key", "AIza", First(URL_SAFE, 35)).with_before(Before::NoBase64),
    form("Google OAuth client secret", "GOCSPX-", First(URL_SAFE, 28)),
    form("Stripe key", "sk_live_", AtLeast(ALNUM, 16)).with_before(Before::NoWord),
    form("Stripe key", "rk_live_", AtLeast(ALNUM, 16)).with_before(Before::NoWord),
    form("npm token", "npm_", First(ALNUM, 36)),
    form("PyPI token", "pypi-AgEIcHlwaS5vcmc", AtLeast(URL_SAFE, 50)),
    form("Anthropic API key", "sk-ant-", AtLeast(URL_SAFE, 24)).with_before(Before::NoWord),
    form("OpenAI API key", "sk-proj-", AtLeast(URL_SAFE, 24)).with_before(Before::NoWord),
    form("OpenAI API key", "sk-svcacct-", AtLeast(URL_SAFE, 24)).with_before(Before::NoWord),
    form("OpenAI API key", "sk-admin-", AtLeast(URL_SAFE, 24)).with_before(Before::NoWord),
    form("API key", "sk-or-v1-", First(HEX, 64)).with_before(Before::NoWord),
    form("API key", "sk-", Custom(random_word)).with_before(Before::NoWord),
    form("SendGrid API key", "SG.", Custom(sendgrid_key)).with_before(Before::NoWord),
    form("Google OAuth token", "ya29.", AtLeast(URL_SAFE, 40)).with_before(Before::NoWord),
    form("Groq API key", "gsk_", First(ALNUM, 50)).with_before(Before::NoWord),
    form("xAI API key", "xai-", First(ALNUM, 70)).with_before(Before::NoWord),
    form("GitLab token", "glsoat-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glft-", AtLeast(URL_SAFE, 20)),
    form("GitLab token", "glcbt-", AtLeast(URL_SAFE, 20)),
    form("RubyGems API key", "rubygems_", First(HEX, 48)),
    form("New Relic API key", "NRAK-", First(UPPER, 27)).with_before(Before::NoWord),
    form("DigitalOcean token", "doo_v1_", First(HEX, 64)),
    form("Vault token", "hvb.", AtLeast(URL_SAFE, 60)).with_before(Before::NoWord),
    form("Hugging Face token", "hf_", First(ALNUM, 34)),
    form("DigitalOcean token", "dop_v1_", First(HEX, 64)),
    form("Shopify token", "shpat_", First(HEX, 32)),
    form("Shopify token", "shpss_", First(HEX, 32)),
    form("Databricks token", "dapi", First(HEX, 32)),
    form("Vault token", "hvs.", AtLeast(URL_SAFE, 24)).with_before(Before::NoWord),
    form("Docker Hub token", "dckr_pat_", First(URL_SAFE, 27)),
    form("Linear API key", "lin_api_", First(ALNUM, 40)),
    form("Grafana token", "glsa_", Custom(grafana_token)),
    form("workspaced token", "wsr_", AtLeast(ALNUM, 40)),
    form("workspaced token", "wso_", AtLeast(ALNUM, 40)),
];

/// Finds the marks of all forms in one pass. `None` if the table is invalid, which a test excludes.
pub(crate) static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(FORMS.iter().map(|form| form.mark)).ok()
});

/// A credential in a text.
pub(crate) struct FoundCredential {
    pub(crate) kind: &'static str,
    /// From the start of the mark to the end of the credential.
    pub(crate) span: Range<usize>,
    /// The part that identifies the credential.
    pub(crate) value: Range<usize>,
}

/// Returns every credential in `text`.
pub(crate) fn credentials(text: &[u8]) -> impl Iterator<Item = FoundCredential> {
    let marks = MARKS.iter().flat_map(move |marks| marks.find_iter(text));
    marks.filter_map(move |mark| credential_at(text, &mark))
}

/// Returns the credential that starts with `mark` in `text`, if it is one.
pub(crate) fn credential_at(text: &[u8], mark: &Match) -> Option<FoundCredential> {
    let form = &FORMS[mark.pattern().as_usize()];
    let (before, rest) = (&text[mark.start().saturating_sub(MAX_BEFORE_BYTES)..mark.start()], &text[mark.end()..]);
    let fits = match form.before {
        Before::Anything => true,
        Before::NoBase64 => is_after_name(before, rest) || ends_in_key_id(before),
        Before::NoWord => !before.last().is_some_and(ALNUM) || ends_in_escape(before),
    };
    let length = if fits { form.body.length(rest) } else { None }?;
    let end = mark.end() + length;
    let start = if form.is_private_key() { mark.end() + key_start(rest)? } else { mark.start() };
    Some(FoundCredential { kind: form.kind, span: mark.start()..end, value: start..end })
}

impl Form {
    const fn with_before(self, before: Before) -> Self {
        Self { before, ..self }
    }

    /// Whether this is the form of a private key in PEM.
    pub(crate) fn is_private_key(&self) -> bool {
        self.mark == KEY_MARK
    }
}

impl Body {
    /// Returns the length of the body at the start of `rest`.
    fn length(&self, rest: &[u8]) -> Option<usize> {
        let (length, count) = match self {
            First(class, count) => (run_length(rest, *class).min(*count), *count),
            AtLeast(class, count) => (run_length(rest, *class), *count),
            Custom(length) => return length(rest),
        };
        // What follows the minimum must not turn a credential into a placeholder.
        (length >= count && !is_placeholder(&rest[..count])).then_some(length)
    }
}

/// Whether a mark may begin a credential after `before`. Directly after a letter, words and protein sequences without digits do
/// not.
fn is_after_name(before: &[u8], rest: &[u8]) -> bool {
    let is_delimited = !before.last().is_some_and(ALNUM);
    !ends_in_base64(before) && (is_delimited || rest.iter().take(16).any(u8::is_ascii_digit))
}

/// Whether `before` ends in base64 text, rather than in a name such as `AWS_ACCESS_KEY_ID`. Padding ends a text, so that what
/// follows a `=` is not part of it.
fn ends_in_base64(before: &[u8]) -> bool {
    let is_part = |byte: &&u8| **byte != b'=' && (BASE64(byte) || URL_SAFE(byte));
    let run = &before[before.len() - before.iter().rev().take_while(is_part).count()..];
    let class = |byte: &u8| (byte.is_ascii_lowercase(), byte.is_ascii_uppercase(), byte.is_ascii_digit());
    let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
    let changes = run.windows(2).filter(|pair| class(&pair[0]) != class(&pair[1])).count();
    run.len() >= BASE64_TEXT_BYTES && digits > 0 && (digits >= BASE64_DIGITS || changes * 2 > run.len())
}

/// Whether `before` ends in another AWS access key ID.
fn ends_in_key_id(before: &[u8]) -> bool {
    let id = before.last_chunk::<20>();
    let is_mark = |id: &[u8; 20]| id.starts_with(b"AKIA") || id.starts_with(b"ASIA");
    id.is_some_and(|id| is_mark(id) && id.iter().all(UPPER) && id.iter().any(u8::is_ascii_digit))
}

/// Whether the last letters and digits belong to an escape sequence of a URL, a string literal or a terminal: `%3D`, `\n`,
/// `\x3d`, `\u003d`, `ESC[31m`.
fn ends_in_escape(before: &[u8]) -> bool {
    let escaped = |mark: &[u8], digits: usize| {
        let at = before.len().checked_sub(mark.len() + digits);
        at.is_some_and(|at| before[at..].starts_with(mark) && before[at + mark.len()..].iter().all(HEX))
    };
    let colour = || {
        let sequence = before.strip_suffix(b"m");
        let is_parameter = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
        sequence.is_some_and(|bytes| bytes.iter().rev().find(|byte| !is_parameter(byte)) == Some(&b'['))
    };
    matches!(before, [.., b'\\', b'n' | b'r' | b't' | b'0' | b'a' | b'b' | b'e' | b'f' | b'v'])
        || escaped(b"%", 2)
        || escaped(b"\\x", 2)
        || escaped(b"\\u", 4)
        || colour()
}

/// Returns the number of bytes of `class` at the start of `rest`, at most [`MAX_BODY_BYTES`].
pub(crate) fn run_length(rest: &[u8], class: Class) -> usize {
    rest.iter().take(MAX_BODY_BYTES).take_while(|byte| class(byte)).count()
}

/// Whether `body` is a placeholder, which documentation shows in place of a credential: one repeated character, or a text with
/// the word `EXAMPLE`.
fn is_placeholder(body: &[u8]) -> bool {
    let mut letters = body.iter().filter(|byte| !matches!(byte, b'-' | b'_')).map(u8::to_ascii_lowercase);
    let first = letters.next();
    letters.all(|byte| Some(byte) == first) || memmem::find(body, b"EXAMPLE").is_some()
}

/// Matches 16 upper-case letters and digits. A longer run needs a digit in the first 16, which upper-case words and protein
/// sequences do not have.
fn aws_key_id(rest: &[u8]) -> Option<usize> {
    const ID_BYTES: usize = 16;
    let length = run_length(rest, UPPER);
    let id = rest.get(..ID_BYTES).filter(|_| length >= ID_BYTES)?;
    let digits = id.iter().filter(|byte| byte.is_ascii_digit()).count();
    ((length == ID_BYTES || digits > 0) && !is_placeholder(id)).then_some(ID_BYTES)
}

/// Matches `= "…"` or `: …` with a key of 40 characters. A longer run needs digits, lower-case and upper-case letters.
fn aws_secret(rest: &[u8]) -> Option<usize> {
    const KEY_BYTES: usize = 40;
    let start = rest
        .iter()
        .take(16)
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'=' | b':' | b'>' | b'"' | b'\''))
        .count();
    let length = run_length(&rest[start..], BASE64);
    let key = rest.get(start..start + KEY_BYTES).filter(|_| length >= KEY_BYTES)?;
    let mixed =
        [u8::is_ascii_digit, u8::is_ascii_lowercase, u8::is_ascii_uppercase].iter().all(|of| key.iter().any(of));
    (start > 0 && (length == KEY_BYTES || mixed) && !is_placeholder(key)).then_some(start + KEY_BYTES)
}

fn slack_token(rest: &[u8]) -> Option<usize> {
    let length = run_length(rest, URL_SAFE);
    let digits = run_length(rest, u8::is_ascii_digit);
    (length >= 20 && digits > 0 && !is_placeholder(&rest[..20])).then_some(length)
}

/// Matches the path of a webhook after its first `T`: `…/B…/…`.
fn slack_webhook(rest: &[u8]) -> Option<usize> {
    let length = run_length(rest, |byte| ALNUM(byte) || *byte == b'/');
    let mut parts = rest[..length].split(|byte| *byte == b'/');
    let (team, hook, secret) = (parts.next()?, parts.next()?, parts.next()?);
    let is_complete = team.len() >= 7 && hook.starts_with(b"B") && secret.len() >= 20 && !is_placeholder(&secret[..20]);
    is_complete.then_some(length)
}

/// Matches a generated word: at least 32 letters and digits, with letters and at least three digits.
fn random_word(rest: &[u8]) -> Option<usize> {
    let length = run_length(rest, ALNUM);
    let digits = rest[..length].iter().filter(|byte| byte.is_ascii_digit()).count();
    (length >= 32 && digits >= 3 && digits < length && !is_placeholder(&rest[..32])).then_some(length)
}

fn sendgrid_key(rest: &[u8]) -> Option<usize> {
    let id = run_length(rest, URL_SAFE);
    let secret = run_length(rest.get(id + 1..)?, URL_SAFE);
    (id == 22 && rest[id] == b'.' && secret >= 43 && !is_placeholder(&rest[..id])).then_some(id + 1 + 43)
}

fn grafana_token(rest: &[u8]) -> Option<usize> {
    const TOKEN_BYTES: usize = 41;
    (run_length(rest, WORD) >= TOKEN_BYTES && rest[32] == b'_').then_some(TOKEN_BYTES)
}
