//! Which run each checkout of this machine is of, noted outside of it: a command that writes into the folder can change the index there,
//! and must not lead its user's token to another run.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client keeps notes for its user")]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use model::Sha256;
use workspaced_client::RunId;

use crate::connection::Env;
use crate::error::CliError;

/// The notes of one user, in `$XDG_STATE_HOME/workspaced/checkouts`, by default in `~/.local/state`.
pub(crate) struct CheckoutNotes(Option<PathBuf>);

impl CheckoutNotes {
    /// Returns the notes of the user; none are kept if the environment names no folder for them.
    pub(crate) fn of(env: &Env<'_>) -> Self {
        let folder = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(".local/state")));
        Self(state.map(|state| state.join("workspaced/checkouts")))
    }

    /// Notes that `folder` is a checkout of `run`.
    pub(crate) fn add(&self, folder: &Path, run: &str) -> Result<(), CliError> {
        let Some(notes) = &self.0 else { return Ok(()) };
        let file = notes.join(name_of(folder)?);
        let written = std::fs::create_dir_all(notes).and_then(|()| std::fs::write(&file, run));
        written.map_err(|error| CliError::file(&file.display().to_string(), &error))
    }

    /// Checks that `folder`, which says that it is a checkout of `run`, is one: of `given`, or else of the run that was noted.
    pub(crate) fn check(&self, folder: &Path, run: &str, given: Option<&RunId>) -> Result<(), CliError> {
        let expected = match given {
            Some(given) => given.to_string(),
            None => self.noted(folder)?,
        };
        if run.starts_with(&expected) {
            return Ok(());
        }
        let folder = folder.display();
        let why = "a command may have changed its index";
        Err(CliError::Failed(format!(
            "{folder} says that it is a checkout of the run {run}, and not of {expected}: {why}"
        )))
    }

    fn noted(&self, folder: &Path) -> Result<String, CliError> {
        let unknown = || {
            let folder = folder.display();
            CliError::Failed(format!("nothing is noted of the checkout {folder}: name its run with --run"))
        };
        let file = self.0.as_ref().ok_or_else(unknown)?.join(name_of(folder)?);
        match std::fs::read_to_string(&file) {
            Ok(run) if !run.is_empty() => Ok(run),
            Ok(_) => Err(unknown()),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(unknown()),
            Err(error) => Err(CliError::file(&file.display().to_string(), &error)),
        }
    }
}

fn name_of(folder: &Path) -> Result<String, CliError> {
    let whole = folder.canonicalize().map_err(|error| CliError::file(&folder.display().to_string(), &error))?;
    Ok(Sha256::of(std::os::unix::ffi::OsStrExt::as_bytes(whole.as_os_str())).to_string())
}
