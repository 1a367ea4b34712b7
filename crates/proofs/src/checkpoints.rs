//! Signed checkpoints as callers read them: the newest one, its key, proofs, and how far they cover a run.
//!
//! A task that the service starts ([`signer`](crate::signer)) signs them and publishes each one here.

mod coverage;
mod proofs;
mod tree;

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use ledger::Ledger;
use model::{Code, Refusal, Sha256};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use transparency::{KeyChangeError, KeyHistory, VerifierKey};

pub use coverage::{AuditVerification, leaves_of, push_leaf};
pub use tree::load_frontier;

/// Rows that one query of leaves or checkpoints returns at most.
pub const PAGE: u32 = 500;

/// The published checkpoints, and the task that signs them.
pub struct Checkpoints {
    ledger: Arc<dyn Ledger>,
    state: watch::Receiver<CheckpointState>,
    keys: watch::Receiver<PublicKeys>,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What a verifier has to know of the keys. It changes when the first checkpoint has two signatures.
#[derive(Clone, Debug)]
pub struct PublicKeys {
    /// The newest public key, as text.
    pub verifier_key: String,
    /// The statements about changes of the key, in order.
    pub statements: Vec<String>,
}

/// What is published.
#[derive(Clone, Debug)]
pub enum CheckpointState {
    /// Nothing was signed yet.
    Empty,
    /// The newest checkpoint in the checkpoint file.
    Signed(Arc<SignedCheckpoint>),
    /// The database contradicts the checkpoints. Nothing is signed or published until an operator has acted.
    Halted,
}

/// A checkpoint that is in the checkpoint file.
#[derive(Debug)]
pub struct SignedCheckpoint {
    /// The number of leaves.
    pub size: u64,
    /// The position of the newest record that it covers.
    pub position: i64,
    /// The root of their tree.
    pub root: Sha256,
    /// The signed note.
    pub note: String,
}

impl PublicKeys {
    /// Returns the keys with the sizes for which each was in force.
    ///
    /// # Errors
    ///
    /// If a statement is invalid.
    fn history(&self) -> Result<KeyHistory, KeyChangeError> {
        let newest = VerifierKey::parse(&self.verifier_key)?;
        KeyHistory::follow(newest, self.statements.iter().map(String::as_str))
    }
}

impl Checkpoints {
    /// Publishes what a signing task sends to `state`. [`close`](Self::close) cancels `stop` and awaits `task`.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        state: watch::Receiver<CheckpointState>,
        keys: watch::Receiver<PublicKeys>,
        stop: CancellationToken,
        task: JoinHandle<()>,
    ) -> Self {
        Self { ledger, state, keys, stop, task: Mutex::new(Some(task)) }
    }

    /// Returns whether the database contradicts the checkpoints.
    pub fn is_halted(&self) -> bool {
        matches!(*self.state.borrow(), CheckpointState::Halted)
    }

    /// Returns the newest checkpoint.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`, `UNAVAILABLE`.
    pub fn newest(&self) -> Result<Arc<SignedCheckpoint>, Refusal> {
        match &*self.state.borrow() {
            CheckpointState::Signed(signed) => Ok(Arc::clone(signed)),
            CheckpointState::Empty => Err(Refusal::new(
                Code::NotFound,
                "no checkpoint has been signed yet",
                "The first one is signed a few seconds after the first call: try again then.",
            )),
            CheckpointState::Halted => Err(contradiction()),
        }
    }

    /// Returns the position of the newest record that a checkpoint covers; `None` if the database contradicts the
    /// checkpoints.
    pub fn covered_position(&self) -> Option<i64> {
        match &*self.state.borrow() {
            CheckpointState::Signed(signed) => Some(signed.position),
            CheckpointState::Empty => Some(0),
            CheckpointState::Halted => None,
        }
    }

    /// Returns the public key as text.
    pub fn verifier_key(&self) -> String {
        self.keys.borrow().verifier_key.clone()
    }

    /// Returns the keys with the sizes for which each was in force.
    ///
    /// # Errors
    ///
    /// If a statement about a change of the key is invalid.
    pub fn key_history(&self) -> Result<KeyHistory, KeyChangeError> {
        self.keys.borrow().history()
    }

    /// Returns the statements about changes of the key, in order.
    pub fn key_changes(&self) -> Vec<String> {
        self.keys.borrow().statements.clone()
    }

    /// Signs the last checkpoint, then ends the task.
    #[boxed]
    pub async fn close(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the task that signs checkpoints failed");
        }
    }
}

/// The refusal of every answer that the database cannot prove.
fn contradiction() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "no checkpoint is available: the database contradicts what was signed",
        "Ask the operator to run `workspaced verify`, which reports what is wrong.",
    )
}
