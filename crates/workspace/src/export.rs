//! The tree as a tar.gz.

use std::io::Write;

use model::Rules;

use crate::{Fault, Workspace};

impl Workspace {
    /// Writes the tree as tar.gz to `out`; what policy hides is left out.
    ///
    /// # Errors
    ///
    /// Where the disk or `out` fails.
    pub fn export(&self, _rules: &Rules, _out: &mut dyn Write) -> Result<(), Fault> {
        unimplemented!()
    }
}
