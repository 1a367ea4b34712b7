//! Cursors of lists that a tool has cut. A cursor continues the list of the same query.

use std::fmt::Debug;

use model::{Refusal, Sha256};

/// Characters of the hash of a query in its cursors.
const CHECK_CHARS: usize = 8;

/// The query of a list, which its cursors belong to.
pub(crate) struct ListedQuery(String);

impl ListedQuery {
    /// The query with these members: all that determine which entries there are and in which order.
    pub(crate) fn of(members: &impl Debug) -> Self {
        let hash = Sha256::of(format!("{members:?}").as_bytes()).to_string();
        Self(hash[..CHECK_CHARS].to_owned())
    }

    /// Returns the cursor to continue after `position`.
    pub(crate) fn cursor(&self, position: &str) -> String {
        format!("{}:{position}", self.0)
    }

    /// Returns the position of a cursor.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if it is not a cursor of this query.
    pub(crate) fn position<'a>(&self, cursor: &'a str) -> Result<&'a str, Refusal> {
        let (query, position) = cursor.split_once(':').ok_or_else(bad_cursor)?;
        if query == self.0 { Ok(position) } else { Err(bad_cursor()) }
    }
}

/// The refusal of a cursor that belongs to another list.
pub(crate) fn bad_cursor() -> Refusal {
    Refusal::invalid(
        "the cursor belongs to another list",
        "Give the nextCursor of a response with otherwise the same input, or omit `cursor`.",
    )
}
