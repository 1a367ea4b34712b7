//! The data folder of a node: other nodes have folders of their own for the same database.

#![expect(clippy::disallowed_methods, reason = "the name of the node is beside the runs' folders, not in them")]

use async_recursion::async_recursion as boxed;
use std::io::ErrorKind;
use std::time::Duration;

use engine::clock::new_secret;
use ledger::{Ledger, Node, NodeIdentity};

use super::durable_file::write_durably;
use super::instance::{Continuity, Instance, InstanceNote};
use super::lock::{DataDirLock, SETTING, io_error};
use config::StartError;

/// The file in the data folder with the name of the node.
const NODE_ID: &str = "node-id";
/// Maximum number of attempts to join while other nodes do.
const MAX_ATTEMPTS: usize = 5;

impl DataDirLock {
    /// Returns the name of the node whose folder this is. Generates it at the first start.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn node_id(&self) -> Result<String, StartError> {
        let path = self.path().join(NODE_ID);
        let stored = match std::fs::read_to_string(&path) {
            Ok(text) => text.trim().to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(io_error(&error)),
        };
        if !stored.is_empty() {
            return Ok(stored);
        }
        let fresh = format!("node-{:08x}", rand::random::<u32>());
        write_durably(self.path(), NODE_ID, &fresh).map_err(|error| io_error(&error))?;
        Ok(fresh)
    }

    /// Binds the folder to a database that has folders on other nodes too. A folder without runs takes on the database's identity.
    ///
    /// # Errors
    ///
    /// Fails if the folder belongs to another database, or one of them cannot be read or written.
    #[boxed]
    pub async fn bind_node(&self, ledger: &dyn Ledger) -> Result<(), StartError> {
        let of_folder = self.identity().map_err(|error| io_error(&error))?;
        let fresh = || of_folder.clone().unwrap_or_else(|| new_secret("data"));
        let known = match ledger.setting(SETTING).await? {
            Some(known) => known,
            None => ledger.set_setting_once(SETTING, &fresh()).await?,
        };
        match of_folder {
            Some(of_folder) if of_folder == known => Ok(()),
            None if !self.has_runs() => self.set_identity(&known).map_err(|error| io_error(&error)),
            _ => Err(self.refused("it belongs to another database; start this node with an empty folder").into()),
        }
    }

    /// Joins the nodes that use the database, or begins to share it. Returns the node, and whether the database is an older copy.
    ///
    /// # Errors
    ///
    /// Fails if another process takes over the database at the same time, or if the database or the disk fails.
    #[boxed]
    pub async fn join(
        &self,
        ledger: &dyn Ledger,
        identity: &NodeIdentity,
        lease: Duration,
    ) -> Result<(Node, Continuity), StartError> {
        let note = self.note();
        let before = note.read().map_err(|error| io_error(&error))?;
        for _ in 0..MAX_ATTEMPTS {
            let stored = ledger.setting(ledger::INSTANCE).await?;
            let parsed = stored.as_deref().and_then(Instance::parse);
            let continuity = match before.continuity(parsed.as_ref()) {
                // Other nodes have used the database meanwhile.
                Continuity::OlderFolder => Continuity::Whole,
                continuity => continuity,
            };
            let instance = before.of_nodes(parsed.as_ref());
            if let Some(node) = ledger.join(identity, stored.as_deref(), &instance.to_string(), lease).await? {
                note.write(&InstanceNote::of_node(instance)).map_err(|error| io_error(&error))?;
                return Ok((node, continuity));
            }
        }
        Err(self.refused("other processes are starting with this database").into())
    }
}
