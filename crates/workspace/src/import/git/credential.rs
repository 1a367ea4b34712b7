//! Credentials of the operator for private repositories.
//!
//! A credential reaches the one git process that connects to the repository, as a header for that URL alone, in variables of
//! its environment: arguments are visible to every user of the machine, and a file could remain. The environment of
//! a process can be read by the same user and by root only, who can read the token's file too.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::{Code, Refusal};

use super::remote;

/// The maximum size of a token.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// The maximum length of a credential's name.
const MAX_NAME_BYTES: usize = 64;

/// A credential for the repositories under a URL.
#[derive(Clone, Debug)]
pub struct GitCredential {
    name: String,
    /// The [canonical](canonical) URL.
    prefix: String,
    username: String,
    token: GitToken,
}

/// Where the token of a credential is. `Debug` does not show a token.
#[derive(Clone, PartialEq, Eq)]
pub enum GitToken {
    /// In this file, which is read at each use.
    File(PathBuf),
    /// The token itself.
    Text(String),
}

impl fmt::Debug for GitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text"),
        }
    }
}

impl GitCredential {
    /// Creates a credential for the repositories under `url_prefix`.
    ///
    /// # Errors
    ///
    /// A message about the part that cannot be used.
    pub fn new(name: &str, url_prefix: &str, username: &str, token: GitToken) -> Result<Self, String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !starts_well || name.len() > MAX_NAME_BYTES || !name.bytes().all(fits) {
            return Err(
                "name is not 1 to 64 letters, digits, `.`, `_` or `-` that start with a letter or digit".to_owned()
            );
        }
        let prefix = canonical(url_prefix).ok_or(
            "url_prefix is not a URL `https://HOST/PATH` without user, `%`, `?`, `#` and empty or dotted parts of its path",
        )?;
        if username.is_empty() || username.contains(|c: char| c == ':' || c.is_control()) {
            return Err("username is empty, or has a colon or control characters".to_owned());
        }
        if let GitToken::Text(text) = &token {
            usable(text.as_bytes()).map_err(|problem| format!("its token {problem}"))?;
        }
        Ok(Self { name: name.to_owned(), prefix, username: username.to_owned(), token })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file of its token, if it is in a file.
    pub fn token_file(&self) -> Option<&Path> {
        match &self.token {
            GitToken::File(path) => Some(path),
            GitToken::Text(_) => None,
        }
    }

    /// Whether it is for the repository at `url`.
    pub(in crate::import) fn covers(&self, url: &str) -> bool {
        canonical(url).is_some_and(|url| url.starts_with(&self.prefix))
    }

    /// Returns the git setting, and its value, that sends it to `url`, which it must cover, and nowhere else.
    pub(super) fn header(&self, url: &str) -> Result<(String, String), Refusal> {
        let token = match &self.token {
            GitToken::Text(text) => text.clone(),
            GitToken::File(path) => read(path).map_err(|error| {
                tracing::error!(credential = self.name, %error, "the token of a git credential cannot be read");
                Refusal::new(
                    Code::Unavailable,
                    format!("the credential `{}` cannot be read", self.name),
                    "Ask the operator of the service to check its token file, then try again.",
                )
            })?,
        };
        let pair = STANDARD.encode(format!("{}:{token}", self.username));
        Ok((format!("http.{url}.extraHeader"), format!("Authorization: Basic {pair}")))
    }
}

/// Returns host, port and path of `url`, with a slash at the end, so that only whole parts are the start of another one; `None` if it has a
/// form that programs read in different ways.
fn canonical(url: &str) -> Option<String> {
    let (host, port) = remote::parse(url).ok()?;
    let rest = url.get("https://".len()..)?;
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    // No escapes, and no `;`, with which some servers begin a parameter of a name, such as `..;`.
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~+@-".contains(&byte);
    if rest.contains(['%', '\\', '?', '#']) || !path.bytes().all(fits) {
        return None;
    }
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').any(|name| matches!(name, "." | "..") || name.is_empty() && !path.is_empty()) {
        return None;
    }
    let end = if path.is_empty() { "" } else { "/" };
    Some(format!("{}:{port}/{path}{end}", host.to_ascii_lowercase()))
}

/// Reads a token, without the newline at its end.
fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_TOKEN_BYTES as u64 + 2).read_to_end(&mut bytes)?;
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    usable(line).map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, format!("the token {problem}")))
}

fn usable(token: &[u8]) -> Result<String, &'static str> {
    if token.is_empty() {
        Err("is empty")
    } else if token.len() > MAX_TOKEN_BYTES {
        Err("is too long")
    } else if !token.iter().all(u8::is_ascii_graphic) {
        Err("is not printable ASCII without spaces")
    } else {
        Ok(String::from_utf8_lossy(token).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(prefix: &str) -> Result<GitCredential, String> {
        GitCredential::new("forge", prefix, "user", GitToken::Text("secret".to_owned()))
    }

    #[test]
    fn a_credential_is_for_the_urls_under_its_prefix_only() {
        let org = credential("https://Git.Example.com/org").unwrap();
        for url in [
            "https://git.example.com/org",
            "https://git.example.com/org/",
            "https://git.example.com/org/a.git",
            "HTTPS://GIT.EXAMPLE.COM:443/org/a/b.git",
            "https://git.example.com:/org/a",
        ] {
            assert!(org.covers(url), "{url}");
        }
        for url in [
            "https://git.example.com",
            "https://git.example.com/",
            "https://git.example.com/organisation/a",
            "https://git.example.com/Org/a",
            "https://git.example.com/other/org/a",
            "https://git.example.com.evil/org/a",
            "https://git.example.com.evil.example/org/a",
            "https://evil.git.example.com/org/a",
            "https://git.example.com:8443/org/a",
            "https://git.example.com@evil.example/org/a",
            "https://evil.example@git.example.com/org/a",
            "https://git.example.com\\@evil.example/org/a",
            "https://evil.example/https://git.example.com/org/a",
            "https://evil.example?git.example.com/org/a",
            "https://evil.example#git.example.com/org/a",
            "https://git.example.com/org/../other/a",
            "https://git.example.com/org/./a",
            "https://git.example.com/org//a",
            "https://git.example.com//org/a",
            "https://git.example.com/org/%2e%2e/other",
            "https://git.example.com/org/..;/other",
            "https://git.example.com/org%2fa",
            "https://git.example.com/org\\..\\other",
            "https://git.example.com/org/a?x=/../../other",
            "http://git.example.com/org/a",
            "https://git.example.com./org/a",
        ] {
            assert!(!org.covers(url), "{url}");
        }
        assert!(credential("https://git.example.com").unwrap().covers("https://git.example.com/any/a"));
        assert!(credential("https://[::1]:8443/org/").unwrap().covers("https://[::1]:8443/org/a"));
    }

    #[test]
    fn a_credential_that_cannot_be_used_is_refused() {
        for prefix in ["http://a/b", "https://u@a/b", "https://a/b/../c", "https://a/%62", "https://a/b?c", "a/b", ""] {
            assert!(credential(prefix).unwrap_err().contains("url_prefix"), "{prefix}");
        }
        for (name, username, token) in [
            ("", "u", "t"),
            ("-a", "u", "t"),
            ("a b", "u", "t"),
            ("a", "", "t"),
            ("a", "u:v", "t"),
            ("a", "u", "t\n"),
            ("a", "u", ""),
        ] {
            let made = GitCredential::new(name, "https://a/b", username, GitToken::Text(token.to_owned()));
            assert!(made.is_err(), "{name} {username} {token:?}");
        }
    }

    #[test]
    fn a_token_is_read_at_each_use_without_its_newline_and_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let credential = GitCredential::new("forge", "https://a/b", "user", GitToken::File(file.clone())).unwrap();
        assert_eq!(credential.header("https://a/b/c").err().unwrap().code, Code::Unavailable);
        for (written, token) in [("first\n", "first"), ("second\r\n", "second"), ("third", "third")] {
            std::fs::write(&file, written).unwrap();
            let (key, value) = credential.header("https://a/b/c").unwrap();
            assert_eq!(key, "http.https://a/b/c.extraHeader");
            assert_eq!(value, format!("Authorization: Basic {}", STANDARD.encode(format!("user:{token}"))));
        }
        for bad in ["", "\n", "two\nlines\n", "a b", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            std::fs::write(&file, bad).unwrap();
            let refusal = credential.header("https://a/b/c").err().unwrap();
            assert!(refusal.code == Code::Unavailable && (bad.is_empty() || !refusal.message.contains("lines")));
        }
        let text = GitCredential::new("f", "https://a/b", "u", GitToken::Text("hidden".to_owned())).unwrap();
        assert!(!format!("{text:?}").contains("hidden"));
    }
}
