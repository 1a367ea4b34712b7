//! Signed checkpoints: beside the calls, the heads of all runs go into one tree, whose root is signed and kept outside the
//! database as well.
//!
//! A round is: heads that moved → leaves → one ledger commit → the note behind the file's end, synced → told to callers.
//! The file is never ahead of the database but where somebody set the database back, so that this is found.

pub(crate) mod check;
pub(crate) mod file;
pub(crate) mod key;
mod proof;
mod signer;

use std::sync::Arc;

use ledger::Ledger;
use model::{Code, Refusal, Sha256};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::CheckpointConfig;
use crate::lock::NoteFile;
use crate::service::Service;
use crate::start::StartError;

pub(crate) use proof::{Consistency, ConsistencyProof, Inclusion, InclusionProof};
use signer::Signer;

/// What callers are told of checkpoints, and the task that makes them.
pub(crate) struct Checkpoints {
    published: watch::Receiver<Published>,
    /// The public key, as text.
    verifier: String,
    stop: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What callers may be told.
#[derive(Clone, Debug)]
pub(crate) enum Published {
    /// Nothing was signed yet.
    Nothing,
    /// The newest checkpoint that is in the file.
    Signed(Arc<Signed>),
    /// Database and file do not agree, so that nothing is signed until somebody has looked.
    Halted,
}

/// A checkpoint that is in the file.
#[derive(Debug)]
pub(crate) struct Signed {
    /// How many leaves it is over.
    pub(crate) size: u64,
    /// Their root.
    pub(crate) root: Sha256,
    /// The signed note.
    pub(crate) note: String,
}

impl Checkpoints {
    /// Takes up where an earlier process ended, and starts the task.
    ///
    /// # Errors
    ///
    /// Where key or file cannot be used, the file has lost checkpoints, or those so far are of another key.
    pub(crate) async fn start(
        config: &CheckpointConfig,
        ledger: Arc<dyn Ledger>,
        note: NoteFile,
    ) -> Result<Self, StartError> {
        let has_checkpoints =
            ledger.latest_checkpoint().await.map_err(|error| StartError::failed("the database", &error))?;
        let key = key::load_or_make(config, has_checkpoints.is_some())?;
        let verifier = key.verifier().to_text();
        let (tell, published) = watch::channel(Published::Nothing);
        let stop = CancellationToken::new();
        let mut signer = Signer::new(key, config, ledger, note, tell);
        signer.take_up().await?;
        let task = tokio::spawn(signer.run(stop.clone()));
        Ok(Self { published, verifier, stop, task: Mutex::new(Some(task)) })
    }

    /// Whether the database does not hold what was signed.
    pub(crate) fn is_contradicted(&self) -> bool {
        matches!(*self.published.borrow(), Published::Halted)
    }

    /// Makes the last checkpoint, then ends the task.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(error = &error as &dyn std::error::Error, "the task that signs checkpoints failed");
        }
    }
}

/// The database does not hold what was signed.
fn contradicted() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "no checkpoints are told: the database does not hold what was signed",
        "Ask the operator to run `workspaced verify`, which tells what is wrong.",
    )
}

impl Service {
    /// The newest checkpoint.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`, `UNAVAILABLE`.
    pub(crate) fn checkpoint(&self) -> Result<Arc<Signed>, Refusal> {
        match &*self.state.checkpoints.published.borrow() {
            Published::Signed(signed) => Ok(Arc::clone(signed)),
            Published::Nothing => Err(Refusal::new(
                Code::NotFound,
                "no checkpoint has been signed yet",
                "The first one is signed a few seconds after the first call: try again then.",
            )),
            Published::Halted => Err(contradicted()),
        }
    }

    /// The public key of the checkpoints.
    pub(crate) fn checkpoint_key(&self) -> &str {
        &self.state.checkpoints.verifier
    }
}
