//! Names of secret files: those of the contract's list, similarly unambiguous names, and backups of both.

use super::file_kind::FileKind;
use super::names::extension_kind;

/// Extensions of keys, key stores and files of one tool that contain credentials.
const EXTENSIONS: &[&str] = &[
    "agekey",
    "bcfks",
    "bks",
    "dockerconfigjson",
    "jceks",
    "jks",
    "kdb",
    "kdbx",
    "key",
    "keychain",
    "keychain-db",
    "keystore",
    "keytab",
    "kubeconfig",
    "ovpn",
    "p12",
    "p8",
    "pem",
    "pfx",
    "pk8",
    "pkcs12",
    "pkcs8",
    "ppk",
    "psafe3",
    "publishsettings",
    "pvk",
    "secret",
    "secrets",
    "snk",
    "tfstate",
    "vault-token",
];

/// Files that contain only credentials, or a history of what was typed. They may have a suffix after a dot, such as `.npmrc.local`.
const DOTFILES: &[&str] = &[
    ".ansible_vault_pass",
    ".bash_history",
    ".boto",
    ".cqlshrc",
    ".credentials",
    ".databrickscfg",
    ".dev.vars",
    ".dockercfg",
    ".dockerconfigjson",
    ".dopplerrc",
    ".envrc",
    ".fetchmailrc",
    ".ftppass",
    ".git-credentials",
    ".gitcookies",
    ".gnupg",
    ".htdigest",
    ".htpasswd",
    ".msmtprc",
    ".my.cnf",
    ".mylogin.cnf",
    ".mysql_history",
    ".netrc",
    ".node_repl_history",
    ".npmrc",
    ".passwd-s3fs",
    ".password-store",
    ".pg_service.conf",
    ".pgpass",
    ".psql_history",
    ".pypirc",
    ".python_history",
    ".rediscli_history",
    ".renviron",
    ".runtimeconfig.json",
    ".s3cfg",
    ".s3curl",
    ".secrets",
    ".sentryclirc",
    ".sh_history",
    ".smbcredentials",
    ".ssh",
    ".terraformrc",
    ".vault-pass",
    ".vault-password",
    ".vault-token",
    ".vault_pass",
    ".vault_password",
    ".vaultpass",
    ".zsh_history",
    "_netrc",
    "pgpass.conf",
];

/// Usual names of private keys. A comment may follow, as in `id_rsa_work`.
const KEY_STEMS: &[&str] = &["id_dsa", "id_ecdsa", "id_ed25519", "id_rsa", "id_xmss"];

/// Extensions of `secrets.…` and `credentials.…`.
const DATA_EXTENSIONS: &[&str] = &[
    "cfg",
    "conf",
    "config",
    "csv",
    "hcl",
    "ini",
    "json",
    "json5",
    "jsonc",
    "plist",
    "properties",
    "toml",
    "xml",
    "yaml",
    "yml",
];

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

/// Whole names of files with the credentials of one tool.
const NAMES: &[&str] = &[
    "auth.json",
    "chap-secrets",
    "clouds.yaml",
    "cqlshrc",
    "credentials-config.json",
    "credentials.tfrc.json",
    "filezilla.xml",
    "gcloud-service-key.json",
    "gcp-credentials.json",
    "google-credentials.json",
    "kaggle.json",
    "key3.db",
    "key4.db",
    "local.settings.json",
    "localsettings.php",
    "logins.json",
    "msal_token_cache.bin",
    "msal_token_cache.json",
    "oauth_creds.json",
    "pap-secrets",
    "pg_service.conf",
    "rclone.conf",
    "recentservers.xml",
    "robomongo.json",
    "secring.gpg",
    "secure.yaml",
    "service-principal.json",
    "settings-security.xml",
    "sftp-config.json",
    "sitemanager.xml",
    "smbcredentials",
    "terraform.rc",
    "vault-pass",
    "vault-password",
    "vault_pass",
    "vault_password",
    "wallet.dat",
    "wp-config.php",
    "wpa_supplicant.conf",
];

/// Folders of tools, and what is secret directly in them.
const TOOL_FOLDERS: &[(&str, &[&str])] = &[
    (".aliyun", &["config.json"]),
    (".aws", &["config", "credentials"]),
    (".azure", &["accesstokens.json", "azureprofile.json", "service_principal_entries.json"]),
    (".bluemix", &["config.json"]),
    (".cargo", &["credentials", "credentials.toml"]),
    (".cassandra", &["credentials"]),
    (".cf", &["config.json"]),
    (".chef", &["credentials"]),
    (".circleci", &["cli.yml"]),
    (".dbt", &["profiles.yml"]),
    (".docker", &["config.json"]),
    (".doppler", &[".doppler.yaml"]),
    (".fly", &["config.yml"]),
    (".gem", &["credentials"]),
    (".hex", &["hex.config"]),
    (".huggingface", &["stored_tokens", "token"]),
    (".ibmcloud", &["config.json"]),
    (".kube", &["config"]),
    (".m2", &["settings.xml"]),
    (".mc", &["config.json"]),
    (".mcli", &["config.json"]),
    (".netlify", &["config.json"]),
    (".oci", &["config"]),
    (".op", &["config"]),
    (".pip", &["pip.conf"]),
    (".railway", &["config.json"]),
    (".rancher", &["cli.json", "cli2.json"]),
    (".snowflake", &["config.toml", "connections.toml"]),
    (".snowsql", &["config"]),
    (".subversion", &["auth"]),
    (".tccli", &["default.credential"]),
    (".travis", &["config.yml"]),
    (".twilio-cli", &["config.json"]),
    (".wrangler", &["config"]),
];

/// Folders of tools in a folder of [`CONFIG_ROOTS`], and what is secret directly in them.
const CONFIG_FOLDERS: &[(&str, &[&str])] = &[
    ("configstore", &["firebase-tools.json"]),
    ("doctl", &["config.yaml"]),
    ("gcloud", &["access_tokens.db", "credentials.db", "legacy_credentials"]),
    ("gh", &["hosts.yaml", "hosts.yml"]),
    ("github-copilot", &["apps.json", "hosts.json"]),
    ("glab-cli", &["config.yml"]),
    ("hcloud", &["cli.toml"]),
    ("helm", &["registry", "registry.json", "repositories.yaml"]),
    ("huggingface", &["stored_tokens", "token"]),
    ("ngrok", &["ngrok.yml"]),
    ("op", &["config"]),
    ("pip", &["pip.conf"]),
    ("scw", &["config.yaml"]),
    ("snowflake", &["connections.toml"]),
    ("stripe", &["config.toml"]),
    ("tea", &["config.yml"]),
    ("turso", &["settings.json"]),
];

/// Folders in which tools have their own, and what is secret directly in them.
const CONFIG_ROOTS: &[(&str, &[&str])] = &[(".cache", &[]), (".config", &["hub", "linode-cli"])];

/// Folders of translations, whose files are named by topic.
const TRANSLATIONS: &[&str] = &["i18n", "lang", "langs", "languages", "locale", "locales", "messages", "translations"];

/// Parts of the names of secrets that no table has.
const MARKS: &[&str] = &[
    ".env",
    ".tfstate",
    ".tfvars",
    "adminsdk",
    "application-prod",
    "bootstrap-prod",
    "credential",
    "gha-creds-",
    "id_",
    "kubeconfig",
    "secret",
    "service-account",
    "service_account",
    "serviceaccount",
    "ssh_host_",
    "utc--20",
];

/// Returns substrings of which every name of a secret or of its backup, or the folder of a tool above it, contains at least one.
pub(super) fn marks() -> impl Iterator<Item = String> {
    let names = [DOTFILES, NAMES, MARKS].into_iter().flatten().copied();
    let folders = [TOOL_FOLDERS, CONFIG_ROOTS].into_iter().flatten().map(|(name, _)| *name);
    let extensions = EXTENSIONS.iter().map(|extension| format!(".{extension}"));
    names.chain(folders).map(str::to_owned).chain(extensions)
}

/// What is known of the folder above a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parent {
    /// What is secret in it because it is the folder of a tool.
    files: &'static [&'static str],
    /// Whether it has the folders of tools.
    is_config_root: bool,
    /// Whether it has translations.
    has_translations: bool,
}

impl Parent {
    /// Classifies the folder with the folded name `name` in the folder `above`.
    pub(super) fn of(name: &str, above: Self) -> Self {
        let has_translations = above.has_translations || contains(TRANSLATIONS, name);
        let files_in = |table: &[(&str, &'static [&'static str])]| {
            let name = without_backup(name);
            table.binary_search_by(|(folder, _)| (*folder).cmp(name)).ok().map(|at| table[at].1)
        };
        if above.is_config_root
            && let Some(files) = files_in(CONFIG_FOLDERS)
        {
            return Self { files, is_config_root: false, has_translations };
        }
        if !name.contains('.') {
            return Self { has_translations, ..Self::default() };
        }
        let root = files_in(CONFIG_ROOTS);
        let files = root.or_else(|| files_in(TOOL_FOLDERS)).unwrap_or_default();
        Self { files, is_config_root: root.is_some(), has_translations }
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
    let without_txt = name.strip_suffix(".txt").unwrap_or(name);
    if parent.files.contains(&without_txt) || (contains(NAMES, without_txt) && !parent.has_translations) {
        return true;
    }
    // Keys of a host, and key stores of Ethereum.
    if (name.starts_with("ssh_host_") && without_txt.ends_with("_key")) || name.starts_with("utc--20") {
        return true;
    }
    if let Some(rest) = name.strip_prefix(".env") {
        if let Some(word) = rest.strip_prefix(['.', '-', '_', ' ']) {
            // `.env.d.ts` declares the types of the variables.
            return !is_template(word) && word != "d.ts";
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
        Some((stem, "env" | "tfvars")) => !is_template(stem),
        Some((stem, "json")) if stem.ends_with(".tfvars") => !is_template(stem.trim_end_matches(".tfvars")),
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

/// Whether the last word of a stem says that the file is a template.
fn is_template(stem: &str) -> bool {
    stem.rsplit(['.', '-', '_']).next().is_some_and(|word| TEMPLATE_WORDS.contains(&word))
}

fn is_dotfile(name: &str) -> bool {
    let is_document = |word| word != "txt" && extension_kind(word) == FileKind::TextDoc;
    let is = |dotfile: &str| {
        let Some(rest) = name.strip_prefix(dotfile) else { return false };
        let variant = rest.strip_prefix('.');
        rest.is_empty() || variant.is_some_and(|word| !is_template(word) && !is_document(word))
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
    if let Some(rest) = stem.strip_prefix("application-prod").or_else(|| stem.strip_prefix("bootstrap-prod")) {
        let profile = rest.strip_prefix("uction").unwrap_or(rest);
        return matches!(extension, "properties" | "yaml" | "yml") && (profile.is_empty() || profile.starts_with('-'));
    }
    let is_key_of_google = || {
        let is_named = stem.starts_with("client_secret_") || stem.starts_with("gha-creds-");
        is_named || stem.contains("firebase-adminsdk")
    };
    if extension == "json" && (contains(JSON_STEMS, stem) || is_key_of_google()) {
        return true;
    }
    // `secrets.prod.yml` is secret; `secrets.example.yml` and an encrypted `secrets.enc.yml` are not.
    let (first, rest) = stem.split_once('.').unwrap_or((stem, ""));
    let last = rest.rsplit('.').next().unwrap_or_default();
    matches!(first, "secrets" | "secret" | "credentials")
        && !TEMPLATE_WORDS.contains(&last)
        && !matches!(last, "enc" | "sops")
}

fn contains(table: &[&str], word: &str) -> bool {
    table.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_for_binary_search_are_sorted() {
        for table in [EXTENSIONS, DATA_EXTENSIONS, JSON_STEMS, BACKUP_WORDS, NAMES, TRANSLATIONS] {
            assert!(table.is_sorted(), "{table:?}");
        }
        for table in [TOOL_FOLDERS, CONFIG_FOLDERS, CONFIG_ROOTS] {
            assert!(table.is_sorted_by(|(a, _), (b, _)| a < b), "{table:?}");
        }
    }
}
