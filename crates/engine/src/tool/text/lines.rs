//! Texts that grow line by line.

use std::fmt::{Display, Write as _};

/// A text that grows line by line.
pub trait PushLine {
    /// Appends a line and its end.
    fn push_line(&mut self, line: impl Display);
}

impl PushLine for String {
    fn push_line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _infallible = writeln!(self, "{line}");
    }
}
