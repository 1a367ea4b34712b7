//! Which service a command calls, with which token: the client's settings.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client reads its own settings")]

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use workspaced_client::Client;

use crate::error::CliError;

/// Looks up an environment variable.
pub type Env<'a> = dyn Fn(&str) -> Option<String> + Sync + 'a;

/// The address of a service that was started without settings.
const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// The most bytes of a file of settings or of a token.
const MAX_FILE_BYTES: u64 = 64 << 10;
/// The most bytes of a file of certificates. The bundle of a system has a few hundred KiB.
const MAX_CA_FILE_BYTES: u64 = 4 << 20;

/// Which service is called, and whom the client trusts to name it.
#[derive(Clone, Debug, clap::Args)]
pub struct Address {
    /// Address of the service [default: that of the client's settings, or `http://127.0.0.1:8080`]
    #[arg(long, global = true, env = "WORKSPACED_URL", value_name = "URL")]
    pub url: Option<String>,
    /// File of certificates in PEM that are trusted in addition to those of the system [default: that of the client's
    /// settings]
    #[arg(long, global = true, env = "WORKSPACED_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// What all commands that call a service take.
#[derive(Clone, Debug, clap::Args)]
pub struct Connection {
    /// Which service.
    #[command(flatten)]
    pub address: Address,
    /// Print JSON for programs: one document a line.
    #[arg(long, global = true)]
    pub json: bool,
    /// Print times as RFC 3339, not how long ago they were.
    #[arg(long, global = true)]
    pub utc: bool,
}

/// The client's settings, `~/.config/workspaced/client.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConnectionSettings {
    url: Option<String>,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// Returns a client of the service at `address`, or of the settings.
///
/// The token of the settings is sent to the address of the settings only.
///
/// # Errors
///
/// If no token is known, or a file of the settings cannot be used.
pub fn connect(address: &Address, env: &Env<'_>) -> Result<Client, CliError> {
    connect_to(address, env).map(|(client, _)| client)
}

/// Returns the address that [`connect`] calls.
pub fn address_of(address: &Address, env: &Env<'_>) -> Option<String> {
    connect_to(address, env).ok().map(|(_, url)| url)
}

fn connect_to(address: &Address, env: &Env<'_>) -> Result<(Client, String), CliError> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let file = settings_file(env);
    let settings = file.as_deref().map(read_settings).transpose()?.unwrap_or_default();
    let settings_url = settings.url.as_deref().unwrap_or(DEFAULT_URL);
    let url = address.url.as_deref().filter(|url| !url.is_empty()).unwrap_or(settings_url);
    let is_of_settings = url.trim_end_matches('/') == settings_url.trim_end_matches('/');
    let token = if let Some(token) = set("WORKSPACED_TOKEN") {
        Some(token)
    } else if let Some(path) = set("WORKSPACED_TOKEN_FILE") {
        Some(read(Path::new(&path))?)
    } else if !is_of_settings {
        None
    } else if let (Some(path), Some(file)) = (&settings.token_file, &file) {
        Some(read(&file.parent().unwrap_or(file).join(path))?)
    } else {
        settings.token
    };
    let token = token.ok_or_else(|| {
        CliError::Usage(format!(
            "no token for {url}: set WORKSPACED_TOKEN or WORKSPACED_TOKEN_FILE, or write `url` and `token_file` to \
             ~/.config/workspaced/client.toml"
        ))
    })?;
    let ca_file = match (&address.ca_file, &settings.ca_file, &file) {
        (Some(path), _, _) if !path.as_os_str().is_empty() => Some(path.clone()),
        (_, Some(path), Some(file)) => Some(file.parent().unwrap_or(file).join(path)),
        _ => None,
    };
    let client = match ca_file {
        None => Client::new(url, token.trim())?,
        Some(file) => Client::trusting(url, token.trim(), read_at_most(&file, MAX_CA_FILE_BYTES)?.as_bytes())?,
    };
    Ok((client, url.to_owned()))
}

fn settings_file(env: &Env<'_>) -> Option<PathBuf> {
    let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))?;
    Some(config.join("workspaced/client.toml"))
}

fn read_settings(file: &Path) -> Result<ConnectionSettings, CliError> {
    let bad = |why: &str| CliError::Usage(format!("{}: {why}", file.display()));
    let mode = match std::fs::metadata(file) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ConnectionSettings::default()),
        Err(error) => return Err(bad(&error.to_string())),
    };
    let settings: ConnectionSettings = toml::from_str(&read(file)?).map_err(|error| bad(error.message()))?;
    match (&settings.token, &settings.token_file) {
        (Some(_), Some(_)) => Err(bad("has both `token` and `token_file`: give one of them")),
        (Some(_), None) if mode & 0o077 != 0 => Err(bad("has a token and can be read by others: chmod 600")),
        _ => Ok(settings),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    read_at_most(path, MAX_FILE_BYTES)
}

fn read_at_most(path: &Path, max_bytes: u64) -> Result<String, CliError> {
    let bad = |why: String| CliError::Usage(format!("{}: {why}", path.display()));
    let mut text = String::new();
    let file = File::open(path).map_err(|error| bad(error.to_string()))?;
    file.take(max_bytes + 1).read_to_string(&mut text).map_err(|error| bad(error.to_string()))?;
    if text.len() as u64 > max_bytes {
        return Err(bad(format!("has more than {max_bytes} bytes")));
    }
    Ok(text)
}
