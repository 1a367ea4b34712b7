use proptest::prelude::*;

use super::FileKind::{
    self, Binary, Directory, Generated, Lockfile, SecretLike, TextConfig, TextDoc, TextSource, Unknown, Vendored,
};
use super::is_binary;
use crate::LogicalPath;
use crate::path::confusables::{fold_name, with_folded};
use crate::test_support::path;

fn check(want: FileKind, paths: &[&str]) {
    for raw in paths {
        assert_eq!(FileKind::of_path(&path(raw)), want, "{raw:?}");
    }
}

/// One name for each rule of the contract's list of secrets, and some similarly unambiguous names.
const SECRETS: &[&str] = &[
    ".env",
    ".env.local",
    ".env.production",
    "server.pem",
    "tls.key",
    "store.p12",
    "store.jks",
    "cert.pfx",
    "id_rsa",
    "id_ecdsa",
    "id_ed25519",
    ".npmrc",
    ".netrc",
    ".pgpass",
    "credentials.json",
    ".aws/credentials",
    ".kube/config",
    "secrets.yml",
    "secrets.yaml",
    "secret.yml",
    "secret.yaml",
    ".aws/config",
    "kubeconfig",
    "terraform.tfstate",
    "application-prod.yml",
    "application-prod.yaml",
    "application-prod.properties",
    ".envrc",
    ".dev.vars",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    "ssh_host_rsa_key",
    "ssh_host_ed25519_key",
    "terraform.tfvars",
    "auth.json",
    ".config/gh/hosts.yml",
    ".config/gcloud/credentials.db",
    ".m2/settings.xml",
    "client.ovpn",
    "http.keytab",
    ".vault_pass",
    "wp-config.php",
];

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn secrets_are_detected_by_name() {
    check(SecretLike, SECRETS);
    for secret in SECRETS {
        check(SecretLike, &[&format!("a/b/{secret}")]);
    }
    check(
        SecretLike,
        &[
            "prod.env",
            ".env-prod",
            ".env_prod",
            "id_rsa_work",
            "id_ed25519-sk",
            "deploy/.ssh/anything",
            ".git-credentials",
            ".pypirc",
            ".docker/config.json",
            "secrets.prod.yml",
            "secrets.json",
            "application-production.yml",
            "application-prod-eu.yml",
            "service-account.json",
            "client_secret_1234.json",
            ".npmrc.local",
            ".env.txt",
            "id_rsa.txt",
            ".netrc.txt",
            ".aws/credentials.txt",
            "credentials.json.txt",
            "key.pem.bak.txt",
            "kubeconfig.yaml",
            "kubeconfig-prod",
            "admin.kubeconfig",
            "terraform.tfstate.backup",
            "terraform.tfstate.1700000000.backup",
            "prod.tfstate.eu-west-1.backup",
            "terraform.tfstate.d/prod/terraform.tfstate",
            "secret.prod.yaml",
            ".envrc.local",
            ".dev.vars.production",
            "prod.auto.tfvars",
            "prod.auto.tfvars.json",
            ".config/hub",
            "home/.config/glab-cli/config.yml",
            ".gem/credentials",
            ".docker/config.json",
            ".codex/auth.json",
            ".gemini/oauth_creds.json",
            ".claude/.credentials.json",
            ".azure/msal_token_cache.json",
            ".oci/config",
            ".ssh/config",
            ".password-store/a.gpg",
            "app-firebase-adminsdk-x1.json",
            "gha-creds-0a1b.json",
            "secrets.xml",
            "secret.json",
            "Credentials.TOML",
            "bootstrap-prod.yml",
            "local.settings.json",
            ".bash_history",
            ".Renviron",
            "key.pk8",
            "app/.env",
            "tls/server.key",
            "home/.ssh/id_ed25519",
            "src/main/resources/application-prod.yml",
            ".ENV",
            "ID_RSA",
            "Server.PEM",
            "Credentials.JSON",
            ".env.bak",
            ".env~",
            "id_rsa.old",
            "secrets.yml.bak",
            "server.key.orig",
            "x/.env/inner.txt",
            "x/id_rsa/readme.txt",
            ".\u{ff45}nv",
            ".e\u{200b}nv",
            "\u{2024}env",
            "prod.tfstate.1700000000.backup",
            "k8s/secret.yml",
            "k8s/secret.yaml",
            "UTC--2024-01-01T00-00-00.0Z--0a1b",
        ],
    );
}

#[test]
fn what_the_contract_says_is_plain_is_not_secret() {
    for name in [
        ".env.example",
        ".env.sample",
        ".env.template",
        "environment.txt",
        "id_rsa_notes.md",
        "keyboard.rs",
        "src/credentials.rs",
        "monkey.txt",
    ] {
        assert_ne!(FileKind::of_path(&path(name)), SecretLike, "{name:?}");
    }
    check(TextSource, &["a.rs", "x.py"]);
    check(TextConfig, &["a.toml", ".github/workflows/ci.yml"]);
    check(TextDoc, &["notes.txt"]);
}

#[test]
fn backups_of_secrets_are_secrets() {
    for secret in SECRETS {
        for suffix in [
            "~",
            ".bak",
            ".old",
            ".orig",
            ".swp",
            ".swo",
            ".tmp",
            ".save",
            ".1",
            ".20240131",
            ".2024-01-31",
            "_old",
            "-backup",
        ] {
            check(SecretLike, &[&format!("{secret}{suffix}"), &format!("{secret}.bak{suffix}")]);
        }
        for suffix in [" (1)", "(copy)", " copy", " - copy", ".gz", ".tar.gz", ".zip"] {
            check(SecretLike, &[&format!("{secret}{suffix}")]);
        }
        let (folder, name) = secret.rsplit_once('/').map_or((String::new(), *secret), |(f, n)| (format!("{f}/"), n));
        for (prefix, suffix) in
            [("#", "#"), (".#", ""), (".", ".swp"), ("._", ""), ("old-", ""), ("backup.", ""), ("copy of ", "")]
        {
            check(SecretLike, &[&format!("{folder}{prefix}{name}{suffix}")]);
        }
    }
    check(
        SecretLike,
        &[
            "secrets (1).yml",
            "secrets.bak.yml",
            "credentials copy.json",
            "application-prod.old.yml",
            ".aws.bak/credentials",
        ],
    );
}

#[test]
fn everything_under_a_folder_named_like_a_secret_is_secret() {
    for secret in SECRETS {
        check(SecretLike, &[&format!("{secret}/a.txt"), &format!("{secret}/src/main.rs")]);
        assert_eq!(FileKind::of_dir(&path(secret)), SecretLike, "{secret:?}");
        assert_eq!(FileKind::of_dir(&path(&format!("{secret}/a"))), SecretLike, "{secret:?}");
    }
    check(SecretLike, &["target/.env", "node_modules/x/server.pem", "x/.env\\y"]);
}

#[test]
fn look_alikes_of_secrets_are_secrets() {
    check(
        SecretLike,
        &[
            ".ENV",
            "ID_RSA",
            "Server.PEM",
            ".Aws/Credentials",
            "．ｅｎｖ",
            ".e\u{200b}nv",
            ".\u{ad}env",
            ".\u{0435}nv",          // Cyrillic e
            ".e\u{0578}v",          // Armenian n
            ".Ε\u{039d}V",          // Greek capitals
            "\u{0456}d_rsa",        // Cyrillic i
            "id_r\u{0455}\u{0430}", // Cyrillic s and a
            "ıd_rsa",
            "İD_RSA",
            "id_rſa",
            ".nρmrc",
            "server.р\u{0435}м",
            "creden\u{0442}ials.json",
            "𝐢𝐝_𝐫𝐬𝐚",
            ".env\u{7}",
            ".env ",
            ".env.",
            ".env::$DATA",
            ".env:x",
            "credentials.json. .",
            "conf\\.env",
            "．\u{feff}ENV．bak",
        ],
    );
}

#[test]
fn templates_and_similar_names_are_not_secret() {
    check(TextConfig, &[".env.example", ".env.sample", ".env.template", "a/.ENV.Example"]);
    check(Unknown, &[".env.local.example", ".env-prod.sample"]);
    check(TextConfig, &[".env.dist", ".env.default", ".env.defaults"]);
    check(TextSource, &[".env.d.ts", "kubeconfig.go"]);
    check(TextDoc, &["tests/fixtures/key.pem.txt", "kubeconfig.md"]);
    check(TextConfig, &["secret.example.yml", "deploy/.aws.md/config.yml"]);
    for name in [
        ".envrc.example",
        "terraform.tfvars.example",
        "example.tfvars",
        "src/locales/en/auth.json",
        "i18n/de/auth.json",
        "settings.xml",
        "hosts.yml",
        "config/hub",
        "variables.tf",
        "ssh_host_rsa_key.pub",
        "environment.ts",
        "env",
        "key",
        "pem",
        "src/keys.rs",
        "monkey.rs",
        "id_rsa.pub",
        "id_rsa_test.go",
        "credentials",
        "config",
        "src/credentials.rs",
        "secrets.py",
        "secrets.example.yml",
        "application-dev.yml",
        "application.yml",
        "application-product.yml",
        "example.env",
        ".npmrc.example",
        "oldham.pem.rs",
        "a.b",
        "a:b",
    ] {
        assert_ne!(FileKind::of_path(&path(name)), SecretLike, "{name:?}");
    }
}

#[test]
fn generated_and_vendored_files_are_detected_by_folder_and_name() {
    check(
        Generated,
        &[
            "target/generated/X.java",
            "build/a.txt",
            "web/dist/a.js",
            "a/generated-sources/b/C.java",
            "openapi/generated/api.ts",
            "BUILD/x.c",
            "api/x.pb.go",
            "x_grpc.pb.go",
            "X.generated.java",
            "x_pb2.py",
            "x_pb2_grpc.pyi",
            "lib/a.g.dart",
            "a.freezed.dart",
            "jquery.min.js",
            "a.min.css",
            "app.js.map",
            "zz_generated.deepcopy.go",
            "Form.Designer.cs",
            "__pycache__/a.pyc",
            "target/Cargo.lock",
        ],
    );
    check(
        Vendored,
        &["node_modules/a/index.js", "vendor/b.go", "third_party/c.c", "a/node_modules/.bin/x", "Vendor/x.php"],
    );
    check(TextConfig, &["build", "a/BUILD"]);
    check(TextSource, &["src/build.rs", "target.rs", "vendor.rs", "min.js", "g.dart", "pb.go", "src/builder/a.rs"]);
    check(Unknown, &["dist", "target", "vendor"]);
}

#[test]
fn a_folder_has_the_kind_of_everything_under_it() {
    let table = [
        (".", Directory),
        ("src", Directory),
        ("target", Generated),
        ("a/node_modules", Vendored),
        ("node_modules/build", Vendored),
        ("node_modules/.env", SecretLike),
        (".aws", Directory),
        (".ssh", SecretLike),
    ];
    for (raw, want) in table {
        assert_eq!(FileKind::of_dir(&path(raw)), want, "{raw:?}");
    }
}

#[test]
fn other_kinds_are_detected_by_extension_and_name() {
    check(
        Lockfile,
        &[
            "Cargo.lock",
            "a/package-lock.json",
            "yarn.lock",
            "pnpm-lock.yaml",
            "poetry.lock",
            "uv.lock",
            "Gemfile.lock",
            "composer.lock",
            "go.sum",
            "gradle.lockfile",
            "flake.lock",
            "bun.lockb",
            ".terraform.lock.hcl",
        ],
    );
    check(TextSource, &["src/main.rs", "A.java", "a.test.tsx", "x.PY", "index.html", "a.d.ts"]);
    check(
        TextConfig,
        &[
            "Cargo.toml",
            "a.json",
            "Dockerfile",
            "Dockerfile.dev",
            "Makefile",
            ".gitignore",
            ".eslintrc",
            "pom.xml",
            "go.mod",
        ],
    );
    check(TextDoc, &["README", "README.md", "LICENSE-MIT", "docs/a.rst", "CHANGELOG.txt", "a.svg"]);
    check(Binary, &["a.png", "b.JAR", "c.woff2"]);
    check(Unknown, &["a", "src/a.xyz", "bin/tool"]);
    check(Directory, &["."]);
}

#[test]
fn bytes_distinguish_binary_from_text() {
    let binary: &[&[u8]] = &[
        b"a\0b",
        b"%PDF-1.7\n%abc",
        b"\x1f\x8b\x08x",
        b"GIF89a",
        b"\xff\xfe\0\0a\0\0\0",
        b"\xff\xfe\x01\0\x02\0",
        b"\xff\x01\x02\x80",
        b"\x01\x02\x03\x04",
    ];
    let text: &[&[u8]] = &[
        b"",
        b"plain\ttext\r\n",
        b"\xef\xbb\xbfwith a mark",
        b"\xff\xfea\0b\0",
        b"\xfe\xff\0a\0b",
        b"latin-1: caf\xe9\n",
        "Grüße\n".as_bytes(),
        b"\x1b[31mred\x1b[0m",
        "cut in a character: \u{20ac}".as_bytes().split_at(21).0,
    ];
    for head in binary {
        assert!(is_binary(head), "{head:?}");
        assert_eq!(FileKind::of_file(&path("a.rs"), head), Binary);
        assert_eq!(FileKind::of_file(&path(".env"), head), SecretLike);
        assert_eq!(FileKind::of_file(&path("target/a.rs"), head), Generated);
        assert_eq!(FileKind::of_file(&path("bun.lockb"), head), Lockfile);
    }
    for head in text {
        assert!(!is_binary(head), "{head:?}");
        assert_eq!(FileKind::of_file(&path("a.rs"), head), TextSource);
        assert_eq!(FileKind::of_file(&path("a"), head), Unknown);
        assert_eq!(FileKind::of_file(&path("a.png"), head), Unknown);
    }
}

#[test]
fn a_kind_has_the_same_name_in_json() {
    for kind in FileKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
    }
}

/// Names composed of parts of names of every kind.
fn some_name() -> impl Strategy<Value = String> {
    let pieces: Vec<&str> = SECRETS
        .iter()
        .flat_map(|secret| secret.split_inclusive(['.', '_', '-']))
        .filter(|piece| !piece.contains('/'))
        .chain([
            "a",
            "x.rs",
            "Target",
            "vendor",
            "node_modules",
            "~",
            ".bak",
            "old-",
            "(1)",
            "id_",
            "service",
            "account",
        ])
        .chain([
            "#", ":", " ", "\\", "\u{1}", "é", "．", "kube", ".aws", ".DOCKER", "config", ".json", ".pem", ".ssh",
            "my.cnf",
        ])
        .collect();
    let joined = prop::collection::vec(prop::sample::select(pieces), 1..5).prop_map(|pieces| pieces.concat());
    joined.prop_filter("a name", |name| !matches!(name.as_str(), "." | ".."))
}

#[test]
fn the_vectorized_count_of_control_characters_is_correct() {
    for byte in 0..=u8::MAX {
        let one = usize::from(super::binary::is_odd_control(u16::from(byte)));
        for length in [1, 254, 255, 256, 1000] {
            assert_eq!(super::binary::odd_controls(&vec![byte; length]), one * length, "{byte:#x} × {length}");
        }
    }
}

proptest! {
    #[test]
    fn folding_is_idempotent(name in "\\PC{0,20}") {
        let once = fold_name(&name);
        prop_assert_eq!(fold_name(&once), once);
    }

    #[test]
    fn the_fast_path_of_folding_has_the_same_result(name in "[ -~\\x00-\\x1f]{0,300}|\\PC{0,12}") {
        with_folded(&name, |folded| assert_eq!(folded, fold_name(&name)));
    }

    #[test]
    fn every_path_has_a_kind_and_a_folder_determines_that_of_its_files(raw in "\\PC{1,40}") {
        if let Ok(path) = LogicalPath::parse(&raw) {
            FileKind::of_path(&path);
            let below = path.child("a.rs").unwrap();
            let of_dir = FileKind::of_dir(&path);
            if of_dir != Directory {
                prop_assert_eq!(FileKind::of_path(&below), of_dir);
            }
        }
    }

    #[test]
    fn the_fast_path_to_a_kind_has_the_same_result(names in prop::collection::vec(some_name(), 1..4)) {
        let path = path(&names.join("/"));
        let (folders, file) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        if !path.is_root() {
            prop_assert_eq!(FileKind::of_path(&path), FileKind::of_names(folders, file, &super::NoOverrides, true), "{:?}", path);
        }
    }

    #[test]
    fn no_letter_case_or_invisible_character_hides_a_secret(
        at in 0..SECRETS.len(),
        flips in prop::collection::vec(any::<bool>(), 40),
        invisible in prop::sample::select(vec!['\u{200b}', '\u{ad}', '\u{feff}', '\u{2060}', '\u{e0041}']),
        position in 0_usize..40,
    ) {
        let mut name: String = SECRETS[at].chars().zip(flips)
            .map(|(c, flip)| if flip { c.to_ascii_uppercase() } else { c }).collect();
        prop_assert_eq!(FileKind::of_path(&path(&name)), SecretLike);
        name.insert(position.min(name.len()), invisible);
        prop_assert_eq!(FileKind::of_path(&path(&name)), SecretLike);
    }
}
