//! Every credential here is assembled from parts, because this file must not contain one.

use proptest::prelude::*;

use super::form::{Before, FORMS, MARKS};
use super::{credential_in, excerpt, new_credential, redact};

const BODY: &str = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfnYgU6mUGbD7Zq1example0";

fn pem(label: &str, body: &str) -> String {
    format!("-----{} {label}-----\n{body}\n-----{} {label}-----\n", "BEGIN", "END")
}

/// A sample of each form, with its kind.
fn samples() -> Vec<(&'static str, String)> {
    let word = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m";
    let hex = "0123456789abcdef";
    vec![
        ("private key", pem("RSA PRIVATE KEY", BODY)),
        ("private key", pem("PRIVATE KEY", BODY)),
        ("private key", pem("OPENSSH PRIVATE KEY", BODY)),
        ("private key", pem("EC PRIVATE KEY", BODY)),
        ("private key", pem("ENCRYPTED PRIVATE KEY", BODY)),
        ("private key", pem("PGP PRIVATE KEY BLOCK", &format!("\n{BODY}"))),
        ("private key", pem("RSA PRIVATE KEY", &format!("Proc-Type: 4,ENCRYPTED\n\n{BODY}"))),
        ("private key", pem("PRIVATE KEY", "abc")),
        ("private key", pem("PRIVATE KEY", BODY).replace('\n', "\r\n")),
        ("private key", format!("{{\"private_key\": {:?}}}", pem("PRIVATE KEY", BODY))),
        (
            "private key",
            format!("PuTTY-User-Key-File-2: ssh-rsa\nPublic-Lines: 1\nAAAA\nPrivate-{}: 1\nAAAA\n", "Lines"),
        ),
        ("AWS access key ID", format!("AKIA{}", "IOSFODNN7EXAMPLF")),
        ("AWS access key ID", format!("ASIA{}", "Q3EGRRVTZXJ5WK7A")),
        ("AWS secret access key", format!("aws_secret_access_key = {word}")),
        ("AWS secret access key", format!("AWS_SECRET_ACCESS_KEY: \"{word}\"")),
        ("GitHub token", format!("ghp_{}", &word[..36])),
        ("GitHub token", format!("gho_{}", &word[..36])),
        ("GitHub token", format!("github_pat_11ABCDEFG0{}_{word}{word}", &word[..12])),
        ("GitLab token", format!("glpat-{}", &word[..20])),
        ("Slack token", format!("xoxb-{}-{}", "123456789012", &word[..24])),
        ("Slack token", format!("xapp-1-A0123-{}", &word[..24])),
        (
            "Slack webhook",
            format!("https://hooks.slack.com/services/T{}/B{}/{}", "0ABCDEF12", "0ABCDEF12", &word[..24]),
        ),
        ("Google API key", format!("AIza{}", &word[..35])),
        ("Google OAuth client secret", format!("GOCSPX-{}", &word[..28])),
        ("Stripe key", format!("sk_live_{}", &word[..24])),
        ("Stripe key", format!("rk_live_{}", &word[..24])),
        ("npm token", format!("npm_{}", &word[..36])),
        ("PyPI token", format!("pypi-AgEIcHlwaS5vcmc{word}{word}")),
        ("Anthropic API key", format!("sk-ant-api03-{word}-{word}")),
        ("OpenAI API key", format!("sk-proj-{word}_{word}")),
        ("API key", format!("sk-{word}")),
        ("API key", format!("sk-or-v1-{hex}{hex}{hex}{hex}")),
        ("SendGrid API key", format!("SG.{}.{}abc", &word[..22], word)),
        ("Hugging Face token", format!("hf_{}", &word[..34])),
        ("Groq API key", format!("gsk_{word}{word}")),
        ("RubyGems API key", format!("rubygems_{hex}{hex}{hex}{hex}")),
        ("DigitalOcean token", format!("dop_v1_{hex}{hex}{hex}{hex}")),
        ("Shopify token", format!("shpat_{hex}{hex}")),
        ("Databricks token", format!("dapi{hex}{hex}")),
        ("Vault token", format!("hvs.{word}")),
        ("Docker Hub token", format!("dckr_pat_{}", &word[..27])),
        ("Linear API key", format!("lin_api_{word}")),
        ("Grafana token", format!("glsa_{}_{}", &word[..32], &hex[..8])),
        (
            "age secret key",
            format!("AGE-SECRET-KEY-1{}", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L".repeat(2).get(..58).unwrap()),
        ),
        ("Azure storage key", format!("AccountKey={word}{word}abcdef==")),
        ("workspaced token", format!("wsr_{word}")),
        ("workspaced token", format!("wso_{hex}{hex}{hex}{hex}")),
    ]
}

#[test]
fn every_form_is_found_in_any_context() {
    assert!(MARKS.is_some());
    for (kind, sample) in samples() {
        for text in [
            sample.clone(),
            format!("let key = \"{sample}\";\n"),
            format!("key: {sample}\nnext: line\n"),
            format!("a long line before it {} {sample} and after", "x".repeat(10_000)),
            format!("curl -H 'Authorization: Bearer {sample}'"),
        ] {
            assert_eq!(credential_in(text.as_bytes()), Some(kind), "{text:?}");
        }
    }
}

#[test]
fn redaction_removes_the_whole_credential() {
    for (kind, sample) in samples() {
        let text = format!("see {sample} for the rest");
        let redacted = redact(&text);
        assert!(redacted.starts_with("see ") && redacted.contains(&format!("[redacted: {kind}]")), "{redacted:?}");
        assert_eq!(credential_in(redacted.as_bytes()), None, "{redacted:?}");
        let words = sample.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() > 15);
        for word in words.filter(|word| !["KEY", "aws", "AWS"].contains(word)) {
            assert!(!redacted.contains(word), "{redacted:?} still contains {word}");
        }
        assert_eq!(redact(&redacted), redacted, "redaction is idempotent");
    }
    let samples = samples();
    let (first, second) = (&samples[11].1, &samples[13].1);
    let text = format!("é{first}\n{second}ü, {first}");
    let want = "é[redacted: AWS access key ID]\n[redacted: AWS secret access key]ü, [redacted: AWS access key ID]";
    assert_eq!(redact(&text), want);
    assert!(matches!(redact("nothing to see, not even sk-"), std::borrow::Cow::Borrowed(_)));
    // A token longer than the maximum body, and a key without an end mark.
    let long = format!("ghp_{}", "aB3dE5gH7j".repeat(40));
    assert_eq!(redact(&long), "[redacted: GitHub token]");
    let open = format!("key: -----{} PRIVATE KEY-----\n{BODY}\nq9Zx8Yw7Vu6Ts5Rq4Po3Nm2Lk1Ji0Hg", "BEGIN");
    assert_eq!(redact(&open), "key: [redacted: private key]");
}

#[test]
fn a_credential_in_utf_16_is_found() {
    let text = format!("key={}", samples()[11].1);
    let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    for bytes in
        [[&[0xff, 0xfe], &little[..]].concat(), [&[0xfe, 0xff], &big[..]].concat(), little.clone(), big.clone()]
    {
        assert_eq!(credential_in(&bytes), Some("AWS access key ID"));
        assert_eq!(new_credential(Some(&bytes), &bytes), None);
        assert_eq!(new_credential(Some(b"other"), &bytes), Some("AWS access key ID"));
    }
}

#[test]
fn a_credential_is_found_next_to_escapes_and_words() {
    for (kind, sample) in samples() {
        let Some(mark) = FORMS.iter().find(|form| sample.starts_with(form.mark)) else { continue };
        let ends =
            ["%3D", "Bearer%20", "key:\\n", "x\\t", "token\\u003d", "\\x3d", "\u{1b}[31m", "\\e[1;31m", "_", "é"];
        let glued = ["TOKEN", "id", "0", "_x"].into_iter().filter(|_| mark.before != Before::NoWord);
        for before in ends.into_iter().chain(glued) {
            assert_eq!(credential_in(format!("{before}{sample}").as_bytes()), Some(kind), "{before}{sample}");
            let redacted = redact(&format!("{before}{sample} x")).into_owned();
            assert!(
                redacted.starts_with(&format!("{before}[redacted: {kind}]")) || kind == "private key",
                "{redacted}"
            );
        }
        // A further character of the same class, and two credentials without a separator.
        let other = sample.replace('A', "B").replace('3', "4");
        if !matches!(kind, "private key" | "age secret key") {
            assert_eq!(credential_in(format!("{sample}7").as_bytes()), Some(kind), "{sample}7");
        }
        if mark.before == Before::Anything && kind != "private key" && other.starts_with(mark.mark) && other != sample {
            let both = format!("{sample}{other}");
            assert_eq!(new_credential(Some(sample.as_bytes()), both.as_bytes()), Some(kind), "{both}");
        }
    }
    let [first, second] = ["IOSFODNN7EXAMPLF", "Q3EGRRVTZXJ5WK7A"].map(|id| format!("AKIA{id}"));
    let both = format!("{first}{second}");
    assert_eq!(new_credential(Some(first.as_bytes()), both.as_bytes()), Some("AWS access key ID"));
}

#[test]
fn a_credential_is_found_after_any_name() {
    let word = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m";
    let id = format!("AKIA{}", "Q3EGRRVTZXJ5WK7A");
    let google = format!("AIza{}", &word[..35]);
    for name in [
        "AWS_ACCESS_KEY_ID=",
        "export PRODUCTION_AWS_ACCESS_KEY_ID_1=",
        "my-service/production/aws-access-key-id=",
        "awsAccessKeyId=",
        "aws2AccessKeyIdOfTheService_",
        "aws-access-key-id-",
        "AWSACCESSKEYID",
        "https://example.org/?accessKeyIdentifier=",
        "THE_GOOGLE_MAPS_PLATFORM_API_KEY=",
        "-DgoogleMapsPlatformApiKey=",
    ] {
        for (kind, credential) in [("AWS access key ID", &id), ("Google API key", &google)] {
            assert_eq!(credential_in(format!("{name}{credential}").as_bytes()), Some(kind), "{name}");
            assert_eq!(redact(&format!("see {name}{credential} x")), format!("see {name}[redacted: {kind}] x"));
        }
    }
    for name in ["secretAccessKey: ", "\"SecretAccessKey\": \"", "SECRET_ACCESS_KEY=", "minio_secret_access_key="] {
        assert_eq!(credential_in(format!("{name}{word}").as_bytes()), Some("AWS secret access key"), "{name}");
    }
}

#[test]
fn published_placeholders_are_no_credentials() {
    let example = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    for text in [
        format!("AWS_ACCESS_KEY_ID=AKIA{}", "IOSFODNN7EXAMPLE"),
        format!("AKIA{} ASIA{}", "I44QH8DHBEXAMPLE", "IOSFODNN7EXAMPLE"),
        format!("aws_secret_access_key = {example}"),
        format!("ghp_{} glpat-{}", "a".repeat(36), "0".repeat(20)),
        format!("sk-ant-{} sk_live_{}", "X".repeat(40), "x-x-".repeat(12)),
        format!("AKIA{} npm_{} AIza{}", "0".repeat(16), "Z".repeat(36), "_".repeat(35)),
        format!("ghp_{}EXAMPLE{}", "a1".repeat(10), "b2".repeat(10)),
        format!("xoxb-{} hooks: sk-{}", "1".repeat(40), "7".repeat(40)),
    ] {
        assert_eq!(credential_in(text.as_bytes()), None, "{text}");
    }
    // A word after a whole credential does not make it a placeholder.
    let word = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m";
    for text in [format!("glpat-{}-EXAMPLE", &word[..20]), format!("github_pat_{word}_EXAMPLE")] {
        assert!(credential_in(text.as_bytes()).is_some(), "{text}");
    }
}

#[test]
fn a_private_key_is_found_after_many_separators() {
    let key = pem("RSA PRIVATE KEY", BODY);
    for separators in [" ".repeat(200), "\n".repeat(100_000), "\\n".repeat(100), "\n# ".repeat(200), "\\u000a".into()] {
        let text = key.replacen("-----\n", &format!("-----{separators}"), 1);
        assert_eq!(credential_in(text.as_bytes()), Some("private key"), "{separators:.20?}");
        assert_eq!(redact(&format!("a {text}")), "a [redacted: private key]\n");
        assert_eq!(new_credential(Some(key.as_bytes()), text.as_bytes()), None, "{separators:.20?}");
    }
    for text in [key.replace(' ', "%20").replace('\n', "%0A"), key.replace(' ', "+").replace('\n', "%0d%0A")] {
        assert_eq!(credential_in(text.as_bytes()), Some("private key"), "{text}");
        assert!(!redact(&text).contains(BODY));
    }
    let long = pem(&format!("{}PRIVATE KEY", "RSA ".repeat(20)), BODY);
    assert_eq!(credential_in(long.as_bytes()), Some("private key"));
}

#[test]
fn an_excerpt_is_redacted_before_it_is_truncated() {
    for (kind, sample) in samples().into_iter().filter(|(kind, _)| *kind != "private key") {
        for before in 0..100 {
            let actual = excerpt(&format!("{} {sample} and more", "a".repeat(before)), 100);
            assert!(actual.chars().count() <= 101);
            let shown = format!("{} [redacted: {kind}]", "a".repeat(before));
            let actual: String = actual.trim_end_matches('…').chars().take(shown.len()).collect();
            assert!(shown.starts_with(&actual), "{actual}");
        }
    }
    assert_eq!((excerpt("äöü", 3), excerpt("äöü", 2)), ("äöü".to_owned(), "äö…".to_owned()));
}

#[test]
fn a_mark_inside_base64_text_is_no_credential() {
    let run = "q9Zx8Yw7Vu6Ts5Rq4Po3Nm2Lk1Ji0Hg+/";
    let word = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m";
    for text in [
        format!("{run}AKIA{}", "IOSFODNN7EXAMPLF"),
        format!("{run}AIza{word}"),
        // Lines of letters without a digit, as in a protein sequence.
        "MKVAKIALLVGGALVLGLVAAAPASA\nAKIALLVGGALVLGLVAAAPASAQQQ\n".to_owned(),
    ] {
        assert_eq!(credential_in(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn a_key_in_a_string_literal_is_found() {
    let begin = format!("-----{} RSA PRIVATE KEY-----", "BEGIN");
    for text in [
        format!("String KEY = \"{begin}\\n\" +\n    \"{BODY}\\n\" +\n"),
        format!("key = '''{begin}\n{BODY}\n'''"),
        format!("key: |\n  {begin}\n  {BODY}\n"),
        format!("# {begin}\n# {BODY}\n"),
        format!("KEY=\"{begin}\\n{BODY}"),
    ] {
        assert_eq!(credential_in(text.as_bytes()), Some("private key"), "{text}");
    }
}

#[test]
fn harmless_text_contains_no_credential() {
    let begin = format!("-----{} PRIVATE KEY-----", "BEGIN");
    let end = format!("-----{} PRIVATE KEY-----", "END");
    let texts = [
        format!("if line == \"{begin}\" {{ in_key = true; }}"),
        format!("const BEGIN: &str = \"{begin}\";\nconst END: &str = \"{end}\";\n"),
        format!("\"{begin}\\n\" + encodedPrivateKeyBytes + \"\\n{end}\""),
        format!("f\"{begin}\\n{{key}}\\n{end}\""),
        format!("{begin}\n...\n{end}"),
        format!("{begin}\n<your key here>\n{end}"),
        format!("The header `{begin}` is followed by base64."),
        pem("PUBLIC KEY", BODY),
        pem("CERTIFICATE", BODY),
        pem("RSA PUBLIC KEY", BODY),
        "sk-spinner sk-fading-circle task-0123456789abcdef0123456789abcdef0123".to_owned(),
        "network_live_statisticsofthisnode task-proj-management-for-everyone-there-is".to_owned(),
        "risk-aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m".to_owned(),
        format!("ghp_{}", "x".repeat(36)),
        "ghp_short".to_owned(),
        "npm_config_registry=https://registry.example.org/ npm_lifecycle_event".to_owned(),
        "AKIAXXXXXXXXXXXXXXXX".to_owned(),
        "AKIAlowercaseisnotone AKIA12345".to_owned(),
        "aws_secret_access_key = ${AWS_SECRET}".to_owned(),
        "aws_secret_access_key_that_is_a_long_identifier_in_code = 1".to_owned(),
        "sk_test_aB3dE5gH7jK9mN1pQ3sT5vW7 pk_live_aB3dE5gH7jK9mN1pQ3sT5vW7".to_owned(),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U".to_owned(),
        "SG.short.key dapi hvs. AIza AIzaTooShort".to_owned(),
        "xoxb-your-bot-token-goes-here-please".to_owned(),
        "postgres://user:password@localhost/db".to_owned(),
        "d41d8cd98f00b204e9800998ecf8427e da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned(),
    ];
    for text in texts {
        assert_eq!(credential_in(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn only_credentials_missing_from_the_old_text_count() {
    let samples = samples();
    let (first, second) = (&samples[11].1, &samples[12].1);
    let key = pem("PRIVATE KEY", BODY);
    let table = [
        (Some(format!("a {first}")), format!("b\nb {first} b"), None),
        (Some(format!("a {first}")), format!("{first} {second}"), Some("AWS access key ID")),
        (Some(format!("a {first}")), second.clone(), Some("AWS access key ID")),
        (Some(first.clone()), String::new(), None),
        (None, first.clone(), Some("AWS access key ID")),
        (Some(key.clone()), format!("{key}// more\n"), None),
        (Some(key.clone()), key.replace("JJcds", "JKcds"), Some("private key")),
        (Some(key.clone()), format!("{key}{first}"), Some("AWS access key ID")),
    ];
    for (old, new, want) in table {
        assert_eq!(new_credential(old.as_deref().map(str::as_bytes), new.as_bytes()), want, "{old:?} → {new:?}");
    }
}

#[test]
fn no_earlier_mark_is_a_prefix_of_a_later_one() {
    for (at, form) in FORMS.iter().enumerate() {
        let earlier = FORMS[..at].iter().find(|other| form.mark.starts_with(other.mark));
        assert!(earlier.is_none(), "{}", form.mark);
    }
}

#[test]
fn hostile_text_takes_linear_time() {
    // In quadratic time this would take hours.
    let megabyte = 1024 * 1024;
    for unit in [
        "sk-",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nA\n",
        "-----BEGIN PRIVATE KEY----- \n \n \n.\n",
        "g\0h\0p\0_\0",
        "PuTTY-User-Key-File-",
        "AKIA",
        "xoxb-",
        "SG.a",
        "aws_secret_access_key=",
    ] {
        let text = unit.repeat(megabyte / unit.len());
        assert_eq!(credential_in(text.as_bytes()), None, "{unit}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_searched_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..64, cut in 0_usize..200) {
        credential_in(&bytes);
        let (_, sample) = &samples()[at % samples().len()];
        let cut = &sample.as_bytes()[..cut.min(sample.len())];
        credential_in(&[cut, &bytes].concat());
    }

    #[test]
    fn any_text_is_redacted(before in "\\PC{0,20}", after in "\\PC{0,20}", at in 0_usize..64) {
        let (_, sample) = &samples()[at % samples().len()];
        let text = format!("{before} {sample}{after}");
        prop_assert_eq!(credential_in(redact(&text).as_bytes()), None);
    }

    #[test]
    fn an_edit_around_a_credential_is_allowed(before in "[a-z \n]{0,20}", after in "[ \n][a-z \n]{0,20}", at in 0_usize..64) {
        let (_, sample) = &samples()[at % samples().len()];
        let old = format!("x {sample} y");
        prop_assert_eq!(new_credential(Some(old.as_bytes()), format!("{before} {sample}{after}").as_bytes()), None);
    }
}
