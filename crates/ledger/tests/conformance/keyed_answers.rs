//! Answers to creations under a key.

use ledger::{Appended, KeyedAnswer, LedgerError, RunTransition};
use model::{Record, Sha256};
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, change_of, new_run, new_token, read, run_id};
use crate::operators::{ChangeOperators as _, name, new_operator};

const NOON: &str = "2026-01-01T12:00:00.000000Z";
const EVENING: &str = "2026-01-01T18:00:00.000000Z";

fn answer(operator: &str, key: &str, text: &str) -> KeyedAnswer {
    KeyedAnswer {
        operator: operator.to_owned(),
        key_sha256: Sha256::of(key.as_bytes()),
        request_sha256: Sha256::of(text.as_bytes()),
        answer: format!("{{\"text\":\"{text}\"}}"),
        expires_at: EVENING.to_owned(),
    }
}

/// Stores a run with a token, its record and an answer.
async fn create_run(
    db: &TestDatabase,
    run: &str,
    token: &str,
    answer: &KeyedAnswer,
    now: &str,
) -> ledger::Result<Vec<Record>> {
    let mut entry = read(run, "a");
    entry.draft.tool = "run.create".into();
    entry.keyed_answer = Some((answer.clone(), now.to_owned()));
    db.ledger.create_run(&new_run(run), &new_token(run, token), vec![entry]).await
}

/// Stores another token with its record and an answer.
async fn issue_token(
    db: &TestDatabase,
    run: &str,
    token: &str,
    answer: &KeyedAnswer,
    now: &str,
) -> ledger::Result<Appended> {
    let mut entry = change_of(run, "token.issue", RunTransition::IssueToken(new_token(run, token)));
    entry.keyed_answer = Some((answer.clone(), now.to_owned()));
    db.try_append(entry).await
}

#[rstest]
#[tokio::test]
async fn an_operator_and_its_answer_are_stored_atomically(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let first = answer("a", "operator", "first");
    let keyed = |answer: &KeyedAnswer| Some((answer.clone(), NOON.to_owned()));
    db.ledger.create_operator(&new_operator("ada", 1), keyed(&first)).await.unwrap();
    let stored = async |key: &KeyedAnswer| db.ledger.keyed_answer("a", &key.key_sha256, NOON).await.unwrap();
    assert_eq!(stored(&first).await.as_ref(), Some(&first));
    let taken_name = answer("a", "other", "second");
    let refused = db.ledger.create_operator(&new_operator("ADA", 2), keyed(&taken_name)).await;
    assert!(matches!(refused, Err(LedgerError::AlreadyExists)), "{refused:?}");
    assert_eq!(stored(&taken_name).await, None);
    let refused = db.ledger.create_operator(&new_operator("bob", 3), keyed(&first)).await;
    assert!(matches!(refused, Err(LedgerError::AlreadyExists)), "{refused:?}");
    assert_eq!(db.ledger.operator(&name("bob")).await.unwrap(), None);
}

#[rstest]
#[tokio::test]
async fn a_replaced_token_and_its_answer_are_stored_atomically(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (first, second) = (answer("a", "one", "first"), answer("a", "two", "second"));
    let keyed = |answer: &KeyedAnswer| Some((answer.clone(), NOON.to_owned()));
    let stored = async |key: &KeyedAnswer| db.ledger.keyed_answer("a", &key.key_sha256, NOON).await.unwrap();
    let replace = async |token: u8, answer: &KeyedAnswer| {
        db.ledger.replace_operator_token(&new_operator("ada", token), EVENING, true, keyed(answer)).await
    };
    assert!(!replace(1, &first).await.unwrap(), "nobody has the name");
    assert_eq!(stored(&first).await, None);
    db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    assert!(replace(2, &first).await.unwrap());
    assert_eq!(stored(&first).await.as_ref(), Some(&first));
    let refused = replace(3, &first).await;
    assert!(matches!(refused, Err(LedgerError::AlreadyExists)), "{refused:?}");
    let found = db.ledger.operator(&name("ada")).await.unwrap().unwrap();
    assert_eq!(found, new_operator("ada", 2), "the refused replacement has ended the token");
    assert!(replace(3, &second).await.unwrap());
    assert_eq!(stored(&second).await.as_ref(), Some(&second));
}

#[rstest]
#[tokio::test]
async fn a_creation_and_its_answer_are_stored_atomically(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (run, token) = (answer("a", "run", "first"), answer("a", "token", "second"));
    create_run(&db, "r1", "tok-1", &run, NOON).await.unwrap();
    issue_token(&db, "r1", "tok-2", &token, NOON).await.unwrap();
    db.reopen().await;
    for stored in [&run, &token] {
        let found = db.ledger.keyed_answer("a", &stored.key_sha256, NOON).await.unwrap();
        assert_eq!(found.as_ref(), Some(stored));
        // The key of another operator is another key.
        assert_eq!(db.ledger.keyed_answer("b", &stored.key_sha256, NOON).await.unwrap(), None);
    }
    // Under a key with an answer nothing is created.
    for key in [&run, &token] {
        let created = create_run(&db, "r2", "tok-3", key, NOON).await;
        assert!(matches!(created, Err(LedgerError::AlreadyExists)), "{created:?}");
        let created = issue_token(&db, "r1", "tok-4", key, NOON).await;
        assert!(matches!(created, Err(LedgerError::AlreadyExists)), "{created:?}");
    }
    assert!(db.ledger.run(&run_id("r2")).await.unwrap().is_none());
    for (run, id) in [("r2", "tok-3"), ("r1", "tok-4")] {
        assert_eq!(db.ledger.token(&new_token(run, id).secret_sha256).await.unwrap(), None);
    }
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    assert!(report.intact && report.head_seq == 2, "{report:?}");
    // A creation that fails stores no answer.
    let free = answer("a", "free", "third");
    let exists = create_run(&db, "r1", "tok-5", &free, NOON).await;
    assert!(matches!(exists, Err(LedgerError::AlreadyExists)), "{exists:?}");
    let missing = issue_token(&db, "unknown", "tok-5", &free, NOON).await;
    assert!(matches!(missing, Err(LedgerError::NoSuchRun)), "{missing:?}");
    let change = RunTransition::Delete { at: NOON.to_owned() };
    db.append(change_of("r1", "run.delete", change)).await;
    let deleted = issue_token(&db, "r1", "tok-5", &free, NOON).await;
    assert!(matches!(deleted, Ok(Appended::PreconditionFailed(_))), "{deleted:?}");
    assert_eq!(db.ledger.keyed_answer("a", &free.key_sha256, NOON).await.unwrap(), None);
    let other = KeyedAnswer { operator: "b".to_owned(), ..run };
    create_run(&db, "r2", "tok-3", &other, NOON).await.unwrap();
}

#[rstest]
#[tokio::test]
async fn an_expired_answer_frees_its_key(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let first = answer("a", "key", "first");
    create_run(&db, "r1", "tok-1", &first, NOON).await.unwrap();
    db.ledger.delete_expired_answers("2026-01-01T17:59:59.999999Z").await.unwrap();
    assert_eq!(db.ledger.keyed_answer("a", &first.key_sha256, NOON).await.unwrap().as_ref(), Some(&first));
    assert_eq!(db.ledger.keyed_answer("a", &first.key_sha256, EVENING).await.unwrap(), None);

    let second = KeyedAnswer { expires_at: "2026-01-02T18:00:00.000000Z".to_owned(), ..answer("a", "key", "second") };
    issue_token(&db, "r1", "tok-2", &second, EVENING).await.unwrap();
    assert_eq!(db.ledger.keyed_answer("a", &first.key_sha256, NOON).await.unwrap().as_ref(), Some(&second));
    db.ledger.delete_expired_answers(&second.expires_at).await.unwrap();
    assert_eq!(db.ledger.keyed_answer("a", &first.key_sha256, NOON).await.unwrap(), None);
}
