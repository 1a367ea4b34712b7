use super::*;

fn signer(seed: u8) -> SignerKey {
    SignerKey::from_seed("example.org/log", &[seed; 32]).unwrap()
}

fn root(size: u64) -> Sha256 {
    Sha256::of(&size.to_be_bytes())
}

fn change(old: u8, new: u8, size: u64) -> String {
    signer(old).sign_change(&signer(new), size, root(size)).unwrap()
}

fn follow(trusted: u8, statements: &[String]) -> Result<KeyHistory, KeyChangeError> {
    KeyHistory::follow(signer(trusted).verifier_key(), statements.iter().map(String::as_str))
}

fn key(seed: u8) -> String {
    signer(seed).verifier_key().to_text()
}

#[test]
fn a_verifier_of_either_key_accepts_a_checkpoint_that_both_sign() {
    let note = change(1, 2, 7);
    let lines: Vec<&str> = note.lines().collect();
    assert_eq!(lines[..2], ["example.org/log", "7"]);
    assert_eq!(lines[3..5], [format!("old-key {}", key(1)), format!("new-key {}", key(2))]);
    assert_eq!(lines.len(), 8, "{note}");
    let parsed = KeyChange::verify(&note).unwrap();
    assert_eq!((parsed.old, parsed.new), (signer(1).verifier_key(), signer(2).verifier_key()));
    assert_eq!(parsed.checkpoint.size, 7);
    for seed in [1, 2] {
        assert_eq!(
            signer(seed).verifier_key().verify(&note).unwrap().size,
            7,
            "a verifier without statements takes it"
        );
    }
    assert_eq!(signer(3).verifier_key().verify(&note), Err(NoteError::NotSigned), "a verifier of neither key");
    assert!(KeyChange::is_statement(&note) && !KeyChange::is_statement(&signer(1).sign(7, root(7))));
}

#[test]
fn each_key_signs_the_checkpoints_of_its_range_regardless_of_the_trusted_one() {
    let statements = [change(1, 2, 7), change(2, 3, 8), change(3, 4, 10)];
    for trusted in 1..=4 {
        let history = follow(trusted, &statements).unwrap();
        assert_eq!(history.newest(), &signer(4).verifier_key());
        for (size, seed) in [(0, 1), (6, 1), (7, 2), (8, 3), (9, 3), (10, 4), (u64::MAX, 4)] {
            assert_eq!(history.key_at(size), &signer(seed).verifier_key(), "{size}");
            assert_eq!(history.verify(&signer(seed).sign(size, root(size))).unwrap().size, size);
        }
    }
    let alone = follow(1, &[]).unwrap();
    assert_eq!((alone.newest(), alone.changes().len()), (&signer(1).verifier_key(), 0));
}

#[test]
fn without_a_consistency_proof_a_later_key_does_not_vouch_for_an_earlier_one() {
    let statements = [change(1, 2, 7), change(2, 3, 9)];
    let alone = |trusted: u8, signed_by: u8, size: u64| {
        let note = signer(signed_by).sign(size, root(size));
        follow(trusted, &statements).unwrap().verify_without_consistency(&note).map(|signed| signed.size)
    };
    for (trusted, signed_by, size) in [(1, 1, 5), (1, 2, 8), (1, 3, 10), (2, 3, 10), (3, 3, 10)] {
        assert_eq!(alone(trusted, signed_by, size), Ok(size));
    }
    assert_eq!((alone(2, 2, 7), alone(3, 3, 9)), (Ok(7), Ok(9)), "the trusted key has signed this tree");
    let earlier = |seed: u8, size: u64| Err(KeyChangeError::Earlier { size, key: key(seed) });
    assert_eq!((alone(2, 1, 6), alone(3, 1, 6), alone(3, 2, 8)), (earlier(1, 6), earlier(1, 6), earlier(2, 8)));
}

#[test]
fn a_checkpoint_by_a_key_that_is_not_in_force_is_refused() {
    let history = follow(1, &[change(1, 2, 7)]).unwrap();
    let refused = |seed: u8, size: u64| history.verify(&signer(seed).sign(size, root(size))).unwrap_err();
    for size in [7, 8] {
        assert_eq!(refused(1, size), KeyChangeError::NotInForce { size, key: key(1), from: 7 }, "the old key goes on");
    }
    for size in [7, 8, 9] {
        let by_both = signer(1).sign_change(&signer(2), size, root(size)).unwrap();
        assert_eq!(history.verify(&by_both).unwrap().size, size, "both keys sign for a while");
    }
    assert_eq!(
        refused(2, 6),
        KeyChangeError::NotInForce { size: 6, key: key(2), from: 0 },
        "the new key signs the past"
    );
    assert_eq!(refused(3, 8), KeyChangeError::Note(NoteError::NotSigned));
    let forked = history.verify(&signer(2).sign(7, root(6)));
    assert_eq!(forked, Err(KeyChangeError::OtherRoot { size: 7 }));
}

#[test]
fn a_forged_or_changed_statement_is_refused() {
    let note = change(1, 2, 7);
    let (text, signatures) = note.split_once("\n\n").unwrap();
    let (by_old, by_new) = signatures.split_once('\n').unwrap();
    let by_other = signer(3).signature_line(&format!("{text}\n"));
    let not_by = |key| KeyChangeError::NotSignedBy { size: 7, key };
    for (changed, why) in [
        (format!("{text}\n\n{by_old}\n"), not_by("new key")),
        (format!("{text}\n\n{by_new}"), not_by("old key")),
        (format!("{text}\n\n{by_other}{by_new}"), not_by("old key")),
        (format!("{text}\n\n{by_old}\n{by_other}"), not_by("new key")),
        (note.replace(&key(2), &key(3)), not_by("old key")),
        (note.replacen("\n7\n", "\n8\n", 1), KeyChangeError::NotSignedBy { size: 8, key: "old key" }),
        (note.replace("\nold-key ", "\nold "), KeyChangeError::Malformed),
        (note.replace("\n\n", "\nmore\n\n"), KeyChangeError::Malformed),
        (signer(1).sign(7, root(7)), KeyChangeError::Malformed),
        (note.replace(&key(2), "x"), KeyChangeError::Note(NoteError::Key)),
        (note.replace("\n\n", "\n"), KeyChangeError::Note(NoteError::Malformed)),
    ] {
        assert_eq!(KeyChange::verify(&changed), Err(why), "{changed}");
    }
    let other_log = SignerKey::from_seed("example.org/other", &[2; 32]).unwrap();
    for other in [&other_log, &signer(1)] {
        assert_eq!(signer(1).sign_change(other, 7, root(7)), Err(KeyChangeError::Keys));
    }
}

#[test]
fn statements_that_are_no_chain_are_refused() {
    let (first, second) = (change(1, 2, 7), change(2, 3, 9));
    let trusted_in = |trusted: u8, statements: &[&String]| {
        follow(trusted, &statements.iter().map(|note| (*note).clone()).collect::<Vec<_>>()).map(drop)
    };
    assert_eq!(trusted_in(1, &[&first, &second]), Ok(()));
    let fork = change(1, 4, 8);
    assert_eq!(trusted_in(1, &[&first, &fork]), Err(KeyChangeError::Gap { size: 8 }), "two successors");
    assert_eq!(trusted_in(1, &[&first, &first]), Err(KeyChangeError::Gap { size: 7 }), "the same one twice");
    assert_eq!(trusted_in(1, &[&second]), Err(KeyChangeError::Untrusted), "the first one is removed");
    assert_eq!(trusted_in(5, &[&first, &second]), Err(KeyChangeError::Untrusted), "another log's key");
    assert_eq!(trusted_in(1, &[&first, &change(3, 4, 9)]), Err(KeyChangeError::Gap { size: 9 }), "one between");
    assert_eq!(trusted_in(1, &[&first, &change(2, 3, 6)]), Err(KeyChangeError::Backwards { size: 6, before: 7 }));
    assert_eq!(trusted_in(1, &[&first, &change(2, 3, 7)]), Err(KeyChangeError::Backwards { size: 7, before: 7 }));
    assert_eq!(trusted_in(1, &[&first, &change(2, 1, 9)]), Err(KeyChangeError::Gap { size: 9 }), "a replaced key");
    // Without the newest statement, what the newest key signs is not accepted.
    let cut = follow(1, &[first]).unwrap();
    assert_eq!(cut.verify(&signer(3).sign(10, root(10))), Err(KeyChangeError::Note(NoteError::NotSigned)));
}
