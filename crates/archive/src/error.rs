//! What is wrong with an archive.

/// What is wrong with an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{member}: {problem}")]
pub struct ArchiveError {
    /// The member that is invalid or missing.
    pub member: String,
    /// What is wrong with it.
    pub problem: String,
}

pub(crate) fn invalid(member: &str, problem: &(impl ToString + ?Sized)) -> ArchiveError {
    ArchiveError { member: member.to_owned(), problem: problem.to_string() }
}
