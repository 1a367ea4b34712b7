//! What is asked of the shim, and how it answers.

use std::io;

use serde::{Deserialize, Serialize};

use crate::command::CommandSpec;
use crate::error::{LayerConflict, ShimError};
use crate::folder::{CheckedOut, ReadLimits};

/// The version of the frames and messages.
pub(crate) const PROTOCOL: u32 = 5;

/// The first message of the shim.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShimHello {
    /// The version of the protocol.
    pub(crate) protocol: u32,
    /// The folder.
    pub(crate) folder: String,
}

/// An operation. Lists and streams follow it as frames of their own.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum ShimRequest {
    /// The driver wants to hear of operations that send nothing. It is not answered.
    Beats,
    Have,
    Tree,
    /// The layer follows as data.
    Apply {
        after: CheckedOut,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        theirs: Vec<String>,
    },
    Scan {
        build_output: Vec<String>,
    },
    /// The paths follow as items.
    Read {
        limits: ReadLimits,
    },
    /// The paths follow as items.
    Confirm,
    /// The paths follow as items.
    PutAside,
    Exec {
        command: CommandSpec,
    },
}

/// Why an operation failed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShimFault {
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) conflicts: Vec<LayerConflict>,
    /// Whether the folder in which a command is to run is missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_folder_missing: bool,
}

impl From<&ShimError> for ShimFault {
    fn from(error: &ShimError) -> Self {
        let mut conflicts = if let ShimError::Conflicts(conflicts) = error { conflicts.clone() } else { Vec::new() };
        // All of it in one frame, however long the paths are.
        conflicts.truncate(64);
        let is_folder_missing = matches!(error, ShimError::NoFolder(_));
        Self { text: error.to_string(), conflicts, is_folder_missing }
    }
}

impl From<ShimFault> for ShimError {
    fn from(fault: ShimFault) -> Self {
        match fault {
            ShimFault { is_folder_missing: true, text, .. } => Self::NoFolder(text),
            ShimFault { conflicts, text, .. } if conflicts.is_empty() => Self::Refused(text),
            ShimFault { conflicts, .. } => Self::Conflicts(conflicts),
        }
    }
}

impl From<io::Error> for ShimError {
    /// Of the pipe: errors of files are made with their names.
    fn from(error: io::Error) -> Self {
        Self::lost(error)
    }
}
