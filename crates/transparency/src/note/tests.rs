use super::*;

/// The key and the note that the format's own documents show (Go's `note` package).
const KNOWN_VERIFIER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const KNOWN_TEXT: &str =
    "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
const KNOWN_SIGNATURE: &str =
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";

fn key() -> SignerKey {
    SignerKey::from_seed("example.org/log", &[7; 32]).unwrap()
}

#[test]
fn a_known_signature_holds_and_on_another_text_does_not() {
    let verifier = VerifierKey::parse(KNOWN_VERIFIER).unwrap();
    assert_eq!(verifier.to_text(), KNOWN_VERIFIER);
    assert_eq!(verifier.has_signed(KNOWN_TEXT, KNOWN_SIGNATURE), Ok(true));
    assert_eq!(verifier.has_signed("If you\n", KNOWN_SIGNATURE), Err(NoteError::BadSignature));
    let note = format!("{KNOWN_TEXT}\n{KNOWN_SIGNATURE}\n");
    assert_eq!(verifier.verify(&note), Err(NoteError::NoCheckpoint), "a note, but no checkpoint");
}

#[test]
fn a_checkpoint_is_signed_and_opened() {
    let (root, verifier) = (Sha256::of(b"root"), key().verifier_key());
    let note = key().sign(42, root);
    let text = format!("example.org/log\n42\n{}\n\n— example.org/log ", STANDARD.encode(root.as_bytes()));
    assert!(note.starts_with(&text) && note.ends_with('\n'), "{note}");
    assert_eq!(verifier.verify(&note).unwrap(), Checkpoint { origin: "example.org/log".into(), size: 42, root });
    let cosigned = format!("{note}— someone.else AAAAAAAA\n");
    assert_eq!(verifier.verify(&cosigned).unwrap().size, 42);
    let other = SignerKey::from_seed("example.org/log", &[8; 32]).unwrap();
    assert_eq!(other.verifier_key().verify(&note), Err(NoteError::NotSigned));
    assert_eq!(key().with_name("other").unwrap().verifier_key().verify(&note), Err(NoteError::NotSigned));
}

#[test]
fn a_changed_note_is_refused() {
    let verifier = key().verifier_key();
    let note = key().sign(42, Sha256::of(b"root"));
    let signature = note.lines().last().unwrap();
    let bent = if signature.ends_with("A==") { "B" } else { "A" };
    let (start, _) = note.split_at(note.len() - 12);
    for (changed, why) in [
        (note.replacen("42", "43", 1), NoteError::BadSignature),
        (note.replacen("example.org/log\n", "example.org/lok\n", 1), NoteError::BadSignature),
        (format!("{start}{bent}{bent}{bent}{}", &note[note.len() - 9..]), NoteError::BadSignature),
        (note.replacen("\n\n", "\n", 1), NoteError::Malformed),
        (note.trim_end().to_owned(), NoteError::Malformed),
        (note.replace('—', "-"), NoteError::Malformed),
        (format!("{note}\u{1}\n"), NoteError::Malformed),
        (String::new(), NoteError::Malformed),
    ] {
        assert_eq!(verifier.verify(&changed), Err(why), "{changed}");
    }
}

#[test]
fn a_checkpoint_s_text_is_read_strictly() {
    let root = STANDARD.encode([1; 32]);
    let parsed = Checkpoint::parse(&format!("o\n7\n{root}\nfurther\n")).unwrap();
    assert_eq!((parsed.size, parsed.root), (7, Sha256::from_bytes([1; 32])));
    for text in [
        "o\n7\n".to_owned(),
        format!("o\n7\n{root}"),
        format!("o\n07\n{root}\n"),
        format!("o\n+7\n{root}\n"),
        format!("o\n-7\n{root}\n"),
        format!("\n7\n{root}\n"),
        format!("o\n7\n{root}\n\n"),
        "o\n7\nAAAA\n".to_owned(),
    ] {
        assert_eq!(Checkpoint::parse(&text), Err(NoteError::NoCheckpoint), "{text}");
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    let key = key();
    assert_eq!(SignerKey::parse(&key.to_text()).unwrap().to_text(), key.to_text());
    assert_eq!(VerifierKey::parse(&key.verifier_key().to_text()).unwrap(), key.verifier_key());
    assert!(!format!("{key:?}").contains("PRIVATE"));
    for text in ["", "PRIVATE+KEY+", "a+b", "a+00000000+AQ==", &key.verifier_key().to_text()] {
        assert!(SignerKey::parse(text).is_err(), "{text}");
    }
    let verifier = key.verifier_key().to_text();
    let other_id = verifier.replacen(&verifier[16..24], "00000000", 1);
    for text in ["", "a+b+c", &other_id, &key.to_text()] {
        assert!(VerifierKey::parse(text).is_err(), "{text}");
    }
    for name in ["", "two words", "a+b", "line\nfeed", &"x".repeat(256)] {
        assert_eq!(SignerKey::from_seed(name, &[0; 32]).unwrap_err(), NoteError::Origin, "{name}");
    }
}
