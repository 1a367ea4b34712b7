//! Names of secret files: those of the contract's list, similarly unambiguous names, and backups of both.

use super::file_kind::FileKind;
use super::names::extension_kind;

/// Extensions of keys and key stores.
const EXTENSIONS: &[&str] = &[
    "env",
    "jks",
    "kdbx",
    "key",
    "keystore",
    "kubeconfig",
    "p12",
    "p8",
    "pem",
    "pfx",
    "pkcs12",
    "ppk",
    "tfstate",
    "vault-token",
];

/// Files that contain only credentials. They may have a suffix after a dot, such as `.npmrc.local`.
const DOTFILES: &[&str] = &[
    ".dockercfg",
    ".git-credentials",
    ".gnupg",
    ".htpasswd",
    ".my.cnf",
    ".mylogin.cnf",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".secrets",
    ".ssh",
    ".vault-token",
    "_netrc",
    "pgpass.conf",
];

/// Usual names of private keys. A comment may follow, as in `id_rsa_work`.
const KEY_STEMS: &[&str] = &["id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "id_xmss"];

/// Extensions of `secrets.…` and `credentials.…`.
const DATA_EXTENSIONS: &[&str] = &["csv", "ini", "json", "properties", "toml", "yaml", "yml"];

/// Stems of JSON key files that cloud consoles create.
const JSON_STEMS: &[&str] = &[
    "application_default_credentials",
    "client_secret",
    "client_secrets",
    "service-account",
    "service-account-key",
    "service_account",
    "service_account_key",
    "serviceaccount",
    "serviceaccountkey",
];

/// Last words of the names of templates, which contain no secrets.
const TEMPLATE_WORDS: &[&str] = &["default", "defaults", "dist", "example", "sample", "template"];

/// Extensions, and last words of stems, of backups.
const BACKUP_WORDS: &[&str] = &[
    "7z", "back", "backup", "bak", "bk", "bkp", "bup", "bz2", "copy", "disabled", "gz", "kate-swp", "last", "old",
    "orig", "original", "part", "prev", "previous", "rej", "rpmnew", "rpmsave", "save", "saved", "tar", "temp", "tgz",
    "tmp", "un", "xz", "zip", "zst",
];

/// Prefixes of the names of backups.
const BACKUP_PREFIXES: &[&str] = &["#", ".#", "._", "backup", "bak", "copy of ", "copy_of_", "old", "orig", "~$"];

/// Substrings of which every name of a secret or of its backup contains at least one.
pub(super) const MARKS: &[&str] = &[
    ".aws",
    ".cnf",
    ".docker",
    ".env",
    ".jks",
    ".kdbx",
    ".key",
    ".kube",
    ".p12",
    ".p8",
    ".pem",
    ".pfx",
    ".pkcs12",
    ".ppk",
    ".s3cfg",
    ".ssh",
    ".tfstate",
    "application-prod",
    "credential",
    "dockercfg",
    "gnupg",
    "htpasswd",
    "id_",
    "kubeconfig",
    "netrc",
    "npmrc",
    "pgpass",
    "pypirc",
    "secret",
    "service-account",
    "service_account",
    "serviceaccount",
    "vault-token",
];

/// Folders in which more names are secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Parent {
    /// `.aws`.
    Aws,
    /// `.kube`.
    Kube,
    /// `.docker`.
    Docker,
    /// Any other.
    #[default]
    Other,
}

impl Parent {
    /// Classifies the folder with the folded name `name`.
    pub(super) fn of(name: &str) -> Self {
        if !name.contains(['a', 'k', 'd']) || !name.contains('.') {
            return Self::Other;
        }
        match without_backup(name) {
            ".aws" => Self::Aws,
            ".kube" => Self::Kube,
            ".docker" => Self::Docker,
            _ => Self::Other,
        }
    }
}

/// Whether the folded `name` in a folder `parent` is that of a secret or of its backup.
pub(super) fn is_secret(name: &str, parent: Parent) -> bool {
    // Other systems ignore trailing dots and blanks, and treat the text after a colon as a stream of the file.
    let trimmed = name.trim_end_matches(['.', ' ']).trim_start_matches(' ');
    let matches = |name: &str| {
        let core = without_backup(name);
        is_secret_core(core, parent)
            // Editors prefix the names of swap files with a dot.
            || core.strip_prefix('.').is_some_and(|core| is_secret_core(core, parent))
            // Terraform inserts a name between the state and the word for a backup.
            || (core.len() < name.len() && core.contains(".tfstate."))
    };
    matches(trimmed) || trimmed.split_once(':').is_some_and(|(file, _)| matches(file.trim_end_matches(['.', ' '])))
}

/// Returns the name of the file that `name` is a backup of, or `name` itself if it is not a backup.
fn without_backup(mut name: &str) -> &str {
    loop {
        let shorter = without_backup_prefix(without_backup_suffix(name));
        if shorter.len() == name.len() || shorter.is_empty() {
            return name;
        }
        name = shorter;
    }
}

fn without_backup_suffix(name: &str) -> &str {
    let trimmed = name.trim_end_matches(['~', '#', ' ']);
    if trimmed.len() < name.len() && !trimmed.is_empty() {
        return trimmed;
    }
    // `key.pem (1)`, `key.pem(copy)`
    if let Some((front, _)) = name.strip_suffix(')').and_then(|inner| inner.rsplit_once('(')) {
        return front.trim_end();
    }
    let Some(at) = name.rfind(['.', '-', '_', ' ']).filter(|at| *at > 0) else { return name };
    let (front, word) = (&name[..at], &name[at + 1..]);
    let dated = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let swap = matches!(word.as_bytes(), [b's', b'w', b'a'..=b'z'] | [b's', b'w', b'p', b'x']);
    if dated || swap || contains(BACKUP_WORDS, word) { front.trim_end_matches(['-', '_', ' ']) } else { name }
}

fn without_backup_prefix(name: &str) -> &str {
    if !name.starts_with(['#', '.', 'b', 'c', 'o', '~']) {
        return name;
    }
    for prefix in BACKUP_PREFIXES {
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        if !prefix.ends_with(|c: char| c.is_ascii_alphabetic()) {
            return rest;
        }
        // The prefix must be a whole word: `old-key.pem`, not `oldham.pem`.
        if let Some(rest) = rest.strip_prefix(['.', '-', '_', ' ']).filter(|rest| !rest.is_empty()) {
            return rest;
        }
    }
    name
}

fn is_secret_core(name: &str, parent: Parent) -> bool {
    match (parent, name.strip_suffix(".txt").unwrap_or(name)) {
        (Parent::Aws, "config" | "credentials") | (Parent::Kube, "config") | (Parent::Docker, "config.json") => {
            return true;
        }
        (Parent::Aws | Parent::Kube | Parent::Docker | Parent::Other, _) => {}
    }
    if let Some(rest) = name.strip_prefix(".env") {
        if let Some(word) = rest.strip_prefix(['.', '-', '_', ' ']) {
            // `.env.d.ts` declares the types of the variables.
            return !TEMPLATE_WORDS.contains(&word) && word != "d.ts";
        }
        if rest.is_empty() {
            return true;
        }
    }
    if name.starts_with(['.', '_', 'p']) && is_dotfile(name) {
        return true;
    }
    if name.starts_with("id_") {
        return is_private_key(name);
    }
    if let Some(rest) = name.strip_prefix("kubeconfig") {
        return is_kubeconfig(rest);
    }
    match name.rsplit_once('.') {
        Some((stem, "env")) => !stem.rsplit(['.', '-', '_']).next().is_some_and(|word| TEMPLATE_WORDS.contains(&word)),
        // A text file about a key is not secret, but a backup of a key is.
        Some((stem, "txt")) => {
            let core = without_backup(stem);
            (core.len() < stem.len() && is_secret_core(core, parent))
                || stem.rsplit_once('.').is_some_and(|(stem, extension)| is_secret_data(stem, extension))
        }
        Some((stem, extension)) => contains(EXTENSIONS, extension) || is_secret_data(stem, extension),
        None => false,
    }
}

fn is_dotfile(name: &str) -> bool {
    let is_document = |word| word != "txt" && extension_kind(word) == FileKind::TextDoc;
    let is = |dotfile: &str| {
        let Some(rest) = name.strip_prefix(dotfile) else { return false };
        let variant = rest.strip_prefix('.');
        rest.is_empty() || variant.is_some_and(|word| !TEMPLATE_WORDS.contains(&word) && !is_document(word))
    };
    DOTFILES.iter().any(|dotfile| is(dotfile))
}

/// Whether `kubeconfig` followed by `rest` contains credentials: alone, with the name of a cluster, or as a data file.
fn is_kubeconfig(rest: &str) -> bool {
    let extension = rest.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_about = match extension_kind(extension) {
        FileKind::TextSource => true,
        FileKind::TextDoc => extension != "txt",
        _ => TEMPLATE_WORDS.contains(&extension),
    };
    !is_about && !rest.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_private_key(name: &str) -> bool {
    let is =
        |stem: &str| name.strip_prefix(stem).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()));
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_about_keys = match extension_kind(extension) {
        FileKind::TextSource => true,
        FileKind::TextDoc => extension != "txt",
        _ => extension == "pub",
    };
    !is_about_keys && KEY_STEMS.iter().any(|stem| is(stem))
}

/// Whether `stem.extension` is a data file whose name indicates secrets.
fn is_secret_data(stem: &str, extension: &str) -> bool {
    if !contains(DATA_EXTENSIONS, extension) {
        return false;
    }
    let stem = without_backup(stem);
    if let Some(rest) = stem.strip_prefix("application-prod") {
        let profile = rest.strip_prefix("uction").unwrap_or(rest);
        return matches!(extension, "properties" | "yaml" | "yml") && (profile.is_empty() || profile.starts_with('-'));
    }
    if extension == "json" && (contains(JSON_STEMS, stem) || stem.starts_with("client_secret_")) {
        return true;
    }
    // `secrets.prod.yml` is secret; `secrets.example.yml` and an encrypted `secrets.enc.yml` are not.
    let (first, rest) = stem.split_once('.').unwrap_or((stem, ""));
    let last = rest.rsplit('.').next().unwrap_or_default();
    let is_named =
        matches!(first, "secrets" | "credentials") || (first == "secret" && matches!(extension, "yaml" | "yml"));
    is_named && !TEMPLATE_WORDS.contains(&last) && !matches!(last, "enc" | "sops")
}

fn contains(table: &[&str], word: &str) -> bool {
    table.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_for_binary_search_are_sorted() {
        for table in [EXTENSIONS, DATA_EXTENSIONS, JSON_STEMS, BACKUP_WORDS] {
            assert!(table.is_sorted(), "{table:?}");
        }
    }
}
